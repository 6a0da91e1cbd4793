"""Where each request's time went, from an engine's columns."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from batchsim._compat import repeat
from batchsim.engines.log import Log


class Stretches(NamedTuple):
    """Stretches of some requests' time; `row` is which of them."""

    row: np.ndarray
    from_s: np.ndarray
    to_s: np.ndarray

    def there(self) -> "Stretches":
        """Return those that last."""
        lasts = self.to_s > self.from_s
        return Stretches(self.row[lasts], self.from_s[lasts], self.to_s[lasts])


def stretches(runs: Sequence[Any], requests: np.ndarray) -> dict[str, Stretches]:
    """Return what requests of several runs, numbered in a row, went through: see `Result.stretches`."""
    ends = np.cumsum([run.log.arrival_s.size for run in runs])
    of_run = np.searchsorted(ends, requests, side="right")
    parts = []
    for number in np.unique(of_run) if requests.size else [0]:
        rows, run = np.flatnonzero(of_run == number), runs[number]
        own = run.stretches(requests[rows] - (ends[number] - run.log.arrival_s.size))
        parts.append({name: each._replace(row=rows[each.row]) for name, each in own.items()})
    together = {name: zip(*(part[name] for part in parts), strict=True) for name in parts[0]}
    return {name: Stretches(*map(np.concatenate, columns)) for name, columns in together.items()}


class Busy(NamedTuple):
    """The columns of a replica's log that say when its servers compute, and when its requests come."""

    batch_start_s: np.ndarray
    batch_finish_s: np.ndarray
    arrival_s: np.ndarray


class ServerTime:
    """The servers' idle and busy time up to a time t, as piecewise linear functions.

    At the corners `times_s`: `idle_s` is I(t), how long at least one server was idle, and `busy_s` the sum of
    the servers' busy times. A wait is forming where I(t) grows, queueing where it does not.
    """

    def __init__(self, log: Log | Busy, servers: int) -> None:
        starts_s, ends_s = log.batch_start_s, log.batch_finish_s
        if servers == 1:  # one batch after the other: in order already
            times_s = np.concatenate([[0.0], np.column_stack([starts_s, ends_s]).ravel()])
            busy = np.tile([0, 1], starts_s.size + 1)[: times_s.size]
        else:
            times_s = np.concatenate([[0.0], starts_s, ends_s])
            order = np.argsort(times_s, kind="stable")
            times_s = times_s[order]
            busy = np.cumsum(repeat([0, 1, -1], [1, starts_s.size, ends_s.size])[order])
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
        return self._forming_s(log.arrival_s, idle_s, waited_s)

    def forming_between_s(self, arrival_s: np.ndarray, start_s: np.ndarray) -> np.ndarray:
        """Return how much of the waits between these times was forming; NaN where one is NaN."""
        return self._forming_s(arrival_s, np.interp(start_s, self.times_s, self.idle_s), start_s.copy())

    def _forming_s(self, arrival_s: np.ndarray, idle_s: np.ndarray, start_s: np.ndarray) -> np.ndarray:
        idle_s -= np.interp(arrival_s, self.times_s, self.idle_s)
        start_s -= arrival_s
        return np.minimum(np.maximum(idle_s, 0), start_s)  # sums of floats, off by 1e-12 s

    def idle_until_start_s(self, log: Log) -> np.ndarray:
        """Return I(t) at the start of each batch."""
        return np.interp(log.batch_start_s, self.times_s, self.idle_s)

    def waits(self, arrival_s: np.ndarray, start_s: np.ndarray) -> dict[str, Stretches]:
        """Return when each of some requests was forming and when it was queueing, each stretch in one."""
        first, last = (np.searchsorted(self.times_s, each, side="right") for each in (arrival_s, start_s))
        count = np.maximum(last - first, 0) + 1  # of each request's stretches, from corner to corner
        row = repeat(np.arange(count.size), count)
        nth = np.arange(row.size) - (np.cumsum(count) - count)[row]
        corners_s = np.append(self.times_s, math.nan)  # for an index past the end, whose value is not used
        from_s = np.where(nth == 0, arrival_s[row], corners_s[first[row] + nth - 1])
        to_s = np.where(nth == count[row] - 1, start_s[row], corners_s[first[row] + nth])
        row, from_s, to_s = Stretches(row, from_s, to_s).there()
        # I(t) grows by all of a stretch or by nothing; half of it is far from both.
        idle_from_s, idle_to_s = (np.interp(each, self.times_s, self.idle_s) for each in (from_s, to_s))
        forming = idle_to_s - idle_from_s > (to_s - from_s) / 2
        changes = (np.diff(row) != 0) | (np.diff(forming) != 0)
        begin, end = np.ones(row.size, bool), np.ones(row.size, bool)
        begin[1:], end[:-1] = changes, changes
        waits = {}
        for name, is_it in (("forming", forming), ("queueing", ~forming)):
            waits[name] = Stretches(row[begin & is_it], from_s[begin & is_it], to_s[end & is_it])
        return waits
