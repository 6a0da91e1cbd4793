"""Where each request's time went, from an engine's columns."""

import math
from itertools import pairwise

import numpy as np

from batchsim.engines.log import Log


class ServerTime:
    """The servers' idle and busy time up to a time t, as piecewise linear functions.

    At the corners `times_s`: `idle_s` is I(t), how long at least one server was idle, and `busy_s` the sum of
    the servers' busy times. A wait is forming where I(t) grows, queueing where it does not.
    """

    def __init__(self, log: Log, servers: int) -> None:
        starts_s, ends_s = log.batch_start_s, log.batch_finish_s
        if servers == 1:  # one batch after the other: in order already
            times_s = np.concatenate([[0.0], np.column_stack([starts_s, ends_s]).ravel()])
            busy = np.tile([0, 1], starts_s.size + 1)[: times_s.size]
        else:
            times_s = np.concatenate([[0.0], starts_s, ends_s])
            order = np.argsort(times_s, kind="stable")
            times_s = times_s[order]
            busy = np.cumsum(np.repeat([0, 1, -1], [1, starts_s.size, ends_s.size])[order])
        end_s = max(times_s[-1], float(log.arrival_s[-1]))
        self.times_s = np.append(times_s, end_s)
        self.slope = np.append(busy < servers, 0.0)  # of idle_s from each corner on
        self.idle_s = np.concatenate([[0.0], np.cumsum(np.diff(self.times_s) * self.slope[:-1])])
        self.busy_s = np.concatenate([[0.0], np.cumsum(np.diff(self.times_s) * busy)])

    def forming_s(self, log: Log) -> np.ndarray:
        """Return how long each request waited while a server was idle; NaN for one not served."""
        # Once a batch: there are fewer of them than requests. Index -1, not served, finds the NaN at the end.
        columns = self.idle_until_start_s(log), log.batch_start_s
        idle_s, waited_s = (np.append(column, math.nan)[log.batch_index] for column in columns)
        idle_s -= np.interp(log.arrival_s, self.times_s, self.idle_s)
        waited_s -= log.arrival_s
        return np.minimum(np.maximum(idle_s, 0), waited_s)  # sums of floats, off by 1e-12 s

    def idle_until_start_s(self, log: Log) -> np.ndarray:
        """Return I(t) at the start of each batch."""
        return np.interp(log.batch_start_s, self.times_s, self.idle_s)

    def waits(self, arrival_s: float, start_s: float) -> list[tuple[str, float, float]]:
        """Return a request's waits in order: ("forming" or "queueing", from_s, to_s)."""
        inside = slice(*np.searchsorted(self.times_s, [arrival_s, start_s], side="right"))
        corners_s = [arrival_s, *self.times_s[inside].tolist(), start_s]
        waits: list[tuple[str, float, float]] = []
        for begin_s, end_s in pairwise(corners_s):
            if end_s <= begin_s:
                continue
            # I(t) grows by all of the stretch or by nothing; half of it is far from both.
            grown = np.diff(np.interp([begin_s, end_s], self.times_s, self.idle_s))[0]
            name = "forming" if grown > (end_s - begin_s) / 2 else "queueing"
            if waits and waits[-1][0] == name:
                begin_s = waits.pop()[1]
            waits.append((name, begin_s, end_s))
        return waits
