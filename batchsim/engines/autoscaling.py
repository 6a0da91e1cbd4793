"""The autoscaler of a run: which replicas are up, and for how long each runs.

Both engines call `Scaler` before the first request that comes at or after an evaluation, and the router uses
the replicas 0 .. up - 1. Like the router, an evaluation sees what happened before its instant, or, with
`stale_ms`, before that long ago.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from batchsim._clock import PER_S, between_ms, later, on_grid
from batchsim.engines.log import Log
from batchsim.engines.totals import Totals
from batchsim.scenario import Scenario

MOST_EVALUATIONS = 1_000_000
AT, SIGNAL, ASKED, UP = range(4)  # the columns of `Log.scaling`
SELDOM = 0.1  # of the evaluations: a number of replicas asked for less often decides little


class Seen(NamedTuple):
    """The columns of a replica so far: of requests, and of its batches, or its steps, by number."""

    arrival_s: np.ndarray
    batch_index: np.ndarray  # with tokens: the last step
    start_s: np.ndarray
    finish_s: np.ndarray


class Scaler:
    """The state of an autoscaler."""

    def __init__(self, scenario: Scenario, arrival_s: np.ndarray | None) -> None:
        """`arrival_s`: of all requests, if known; ValueError if there are too many evaluations until then."""
        assert scenario.autoscale is not None
        self.auto, self.full, self.servers = (
            scenario.autoscale,
            scenario.rule.max_batch_size,
            scenario.servers,
        )
        self.stale_s = scenario.stale_ms / 1000
        self.asked = max(scenario.replicas, self.auto.least)
        self.ready_s = np.full(self.auto.most, math.inf)
        self.ready_s[: self.asked] = 0.0
        self.evaluations, self.last = 0, [self.asked]
        self.rows = [(0.0, math.nan, self.asked, self.asked)]
        self._check(0 if arrival_s is None else int(arrival_s[-1] / self.auto.every_s))
        # By replica: the rows before these ended before the last evaluation.
        self.first = np.zeros((self.auto.most, 2), np.int64)

    @property
    def next_s(self) -> float:
        """When the next evaluation is due."""
        return float(on_grid((self.evaluations + 1) * self.auto.every_s))

    def up(self, now_s: float) -> int:
        """Return how many replicas the router can use."""
        return int(np.count_nonzero(self.ready_s[: self.asked] <= now_s))

    def change_s(self, now_s: float) -> float:
        """Return when the number of replicas may change next, after `now_s`."""
        coming = self.ready_s[: self.asked]
        return min(self.next_s, float(coming[coming > now_s].min(initial=math.inf)))

    def evaluate(self, waiting: Sequence[int] | np.ndarray, replicas: Sequence[Seen]) -> None:
        """Take the evaluation that is due; `waiting`: the requests that wait at each replica."""
        from_s, at_s = (float(on_grid((self.evaluations + k) * self.auto.every_s)) for k in (0, 1))
        self.evaluations += 1
        self._check(self.evaluations)
        up = self.up(at_s)
        window_s = later(from_s, -self.stale_s), later(at_s, -self.stale_s)
        if self.auto.signal == "queue":
            value = float(sum(waiting[:up]) / up)
        elif self.auto.signal == "utilisation":
            value = self._utilisation(replicas, up, *window_s)
        else:
            value = self._p99_ms(replicas, *window_s)
        self.last = [*self.last, self.auto.wanted(up, self.asked, value, self.full)][-self.auto.held :]
        asked = max(self.last)
        self.ready_s[self.asked : asked] = later(at_s, self.auto.startup_s)
        self.ready_s[asked:] = math.inf
        self.asked = asked
        self.rows.append((at_s, value, asked, self.up(at_s)))

    def _utilisation(self, replicas: Sequence[Seen], up: int, from_s: float, to_s: float) -> float:
        busy = there = 0
        for k in range(up):
            begin_s, seen, first = max(from_s, float(self.ready_s[k])), replicas[k], int(self.first[k, 1])
            there += self.servers * max(round(to_s * PER_S) - round(begin_s * PER_S), 0)
            end = first + int(seen.start_s[first:].searchsorted(to_s))  # they are in order of start
            if first == end:
                continue
            start_s, finish_s = seen.start_s[first:end], seen.finish_s[first:end]
            spent = _ticks(np.minimum(finish_s, to_s)) - _ticks(np.maximum(start_s, begin_s))
            busy += int(np.maximum(spent, 0).sum())
            self.first[k, 1] += _settled(finish_s < to_s)
        return busy / there if there else math.nan

    def _p99_ms(self, replicas: Sequence[Seen], from_s: float, to_s: float) -> float:
        found = [np.empty(0)]
        for k, seen in enumerate(replicas):
            first = int(self.first[k, 0])
            end = first + int(seen.arrival_s[first:].searchsorted(to_s))
            if first == end or not seen.finish_s.size:
                continue
            arrival_s, index = seen.arrival_s[first:end], seen.batch_index[first:end]
            finish_s = np.where(index < 0, math.inf, seen.finish_s[index])
            finished = (from_s <= finish_s) & (finish_s < to_s)
            found.append(between_ms(arrival_s[finished], finish_s[finished]))
            self.first[k, 0] += _settled(finish_s < to_s)
        latency_ms = np.sort(np.concatenate(found))
        count = latency_ms.size
        return float(latency_ms[math.ceil(0.99 * count) - 1]) if count else math.nan

    def _check(self, evaluations: int) -> None:
        if evaluations > MOST_EVALUATIONS:
            rule = f"a run must have at most {MOST_EVALUATIONS:,} evaluations of its autoscaler"
            raise ValueError(f"{rule}, got every_s={self.auto.every_s!r}")

    def table(self) -> np.ndarray:
        """Return a row for each evaluation, as `Log.scaling` has them."""
        return np.array(self.rows, float)


def _ticks(time_s: np.ndarray) -> np.ndarray:
    return np.rint(time_s * PER_S).astype(np.int64)


def _settled(done: np.ndarray) -> int:
    """Return how many rows at the front are done."""
    return int(done.argmin()) if not done.all() else done.size


def calls_s(scaling: np.ndarray, replica: int) -> np.ndarray:
    """Return when a replica was asked for, was no more, and was again, shape (3, times); inf: never."""
    at_s = np.append(scaling[:, AT], math.inf)
    asked = np.concatenate([[False], scaling[:, ASKED] > replica, [False]])
    begin_s, end_s = at_s[asked[1:] & ~asked[:-1]], at_s[asked[:-1] & ~asked[1:]]
    return np.array([begin_s, end_s, np.append(begin_s[1:], math.inf)[: begin_s.size]])


def drained_s(again_s: np.ndarray, start_s: np.ndarray, finish_s: np.ndarray) -> np.ndarray:
    """Return when the last of the batches of a replica ended that started before each of some times."""
    return np.maximum.accumulate(np.append(0.0, finish_s))[np.searchsorted(start_s, again_s)]


def stays_s(calls: np.ndarray, last_s: np.ndarray, end_s: float) -> np.ndarray:
    """Return when a replica began and ended to run, (2, stays): asked for, until it has served the last.

    `last_s` is when it had served the last, by `drained_s`. The last stay ends with the run: with its last
    batch, or its last request.
    """
    begin_s, until_s, again_s = calls
    return np.array([begin_s, np.minimum(np.maximum(until_s, last_s), np.minimum(again_s, end_s))])


def replica_s(scenario: Scenario, log: Log, edges_s: np.ndarray, replica: int | None = None) -> np.ndarray:
    """Return for how many seconds one replica ran, or all added up, from each edge to the next."""
    assert log.scaling is not None
    end_s, of = max(log.last_s, float(log.arrival_s[-1])), log.batch_server // scenario.servers
    ran_s = np.zeros(edges_s.size - 1)
    for k in range(scenario.most_replicas) if replica is None else [replica]:
        calls, own = calls_s(log.scaling, k), of == k
        last_s = drained_s(calls[2], log.batch_start_s[own], log.batch_finish_s[own])
        ran_s += within_s(stays_s(calls, last_s, end_s), edges_s)
    return ran_s


def within_s(stays: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    """Return how many seconds of stays lie between each edge and the next."""
    begin_s, end_s = stays[:, :, None]
    return np.maximum(np.minimum(end_s, edges_s[1:]) - np.maximum(begin_s, edges_s[:-1]), 0).sum(axis=0)


def rises(scaling: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    """Return how often the number of replicas rose through a level, from each edge to the next.

    Between two rises the number has been below the level and above it, and has forgotten what it was. The
    level is the one that it passes most seldom, of those that it is above, and below, for a good part of the
    time; without such a one, that which it is above and below for the most equal parts.
    """
    rows = scaling[scaling[:, AT] >= edges_s[0]]
    found: list[tuple[float, int, np.ndarray]] = []
    for level in np.unique(rows[:, ASKED])[1:]:
        above = rows[:, ASKED] >= level
        at_s, share = rows[1:, AT][above[1:] & ~above[:-1]], float(above.mean())
        found.append((max(SELDOM - share, SELDOM + share - 1, 0.0), at_s.size, at_s))
    _, _, at_s = min(found, key=lambda each: each[:2], default=(0.0, 0, np.empty(0)))
    return np.histogram(at_s, edges_s)[0]


def add_scaling(totals: Totals, scenario: Scenario, log: Log, edges_s: np.ndarray) -> None:
    """Set the sums of the autoscaler, if there is one, from each edge to the next."""
    if log.scaling is not None:
        totals.replica_s[:], totals.cycles[:] = replica_s(scenario, log, edges_s), rises(log.scaling, edges_s)
