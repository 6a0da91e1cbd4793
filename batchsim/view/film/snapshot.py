"""A run at one instant: which requests wait, what is computed, and what the rule waits for."""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from batchsim import _check
from batchsim._clock import later
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.scenario import Scenario
from batchsim.scenario.rules import Rule, Trigger


class ServiceOrder:
    """The order of a run's queue at any time: by level, in a level delayed requests last, then by arrival.

    `in_order`: it is always the order of arrival. `place` is the number of each request's level, 0 for the
    first, and `late_s` the time at which a request is delayed, inf: never. `left_s` is when each left.
    """

    def __init__(self, result: Result, left_s: np.ndarray) -> None:
        scenario, count = result.scenario, result.arrival_s.size
        self.in_order, self.levels, self.count = scenario.in_order, scenario.levels, count
        self.place = np.zeros(count, dtype=int)
        if result.priority is not None:
            self.place = np.searchsorted(self.levels, result.priority)
        delays_s = [limit.timeout_s if limit.delays else math.inf for limit in scenario.limits]
        self.late_s = later(result.arrival_s, np.array(delays_s)[self.place])
        self.batch = np.zeros(count, dtype=int)
        if scenario.rule.freezes or not scenario.by_level:  # earlier batches go first, despite new arrivals
            lost = np.searchsorted(result.batches.start_s, left_s)
            self.batch = np.where(result.batch_index < 0, lost, result.batch_index)

    def at(self, requests: np.ndarray, time_s: float | np.ndarray) -> np.ndarray:
        """Return a number for each of these requests; those with lower numbers go first at that time."""
        if self.in_order:
            return requests
        late = self.late_s[requests] <= time_s
        kind = 2 * self.place[requests] + late
        return (self.batch[requests] * 2 * max(len(self.levels), 1) + kind) * self.count + requests

    def counts(self, requests: np.ndarray) -> dict[int, int]:
        """Return the number of these requests in each level; empty without several levels."""
        if len(self.levels) < 2:
            return {}
        found = np.bincount(self.place[requests], minlength=len(self.levels)).tolist()
        return dict(zip(self.levels, found, strict=True))


REQUESTS, EARLIER = 200, 60  # the requests that are played, and those of them before the window


class Activity(StrEnum):
    """The state of the rule."""

    LEAVING = "a batch leaves"  # at this very instant
    FORMING = "waiting for company"  # a server is idle, but the rule wants more requests, or time
    QUEUEING = "waiting for a server"
    IDLE = "no request waits"


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch that has left: its number, its requests, and when and where it is computed."""

    number: int
    requests: np.ndarray  # their numbers, in the order of the queue
    start_s: float
    ready_s: float  # when its shape is compiled: its start, if it was compiled before
    finish_s: float
    server: int
    trigger: Trigger
    held_s: tuple[float, float]  # begin and end of its wait for its device

    def held(self, time_s: float) -> bool:
        """Return whether it waits for its device at a time."""
        return self.held_s[0] <= time_s < self.held_s[1]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a run at one instant, after everything that was due then.

    Requests are numbered from 0 in order of arrival. `computing` has an item for each server, None if it is
    idle; `last` is the batch that left last. Counts are of requests so far: each that arrived waits, is being
    computed, or was served, rejected, timed out or failed.
    """

    time_s: float
    scenario: Scenario
    waiting: np.ndarray  # request numbers, oldest first
    queue: np.ndarray  # the same in the order of the queue
    levels: dict[int, int]  # waiting requests by priority level; empty without several
    at_replicas: np.ndarray  # waiting requests by replica
    oldest_s: float | None  # arrival of the oldest waiting request
    computing: tuple[Batch | None, ...]
    last: Batch | None
    arrived: int
    served: int
    rejected: int
    timed_out: int
    failed: int

    def __repr__(self) -> str:
        computing = [None if batch is None else batch.requests.tolist() for batch in self.computing]
        state = f"time_s={self.time_s:g}, waiting={self.waiting.tolist()}, computing={computing}"
        counts = f"arrived={self.arrived}, served={self.served}, lost={self.lost}"
        return f"Snapshot({state}, {counts}, {self.activity()})"

    @property
    def rule(self) -> Rule:
        return self.scenario.rule

    @property
    def forming(self) -> bool:
        """Whether waiting requests are forming, as a server of their replica is idle; else they queue."""
        idle = np.array([batch is None for batch in self.computing]).reshape(self.at_replicas.size, -1)
        return bool((idle.any(axis=1) & ((self.at_replicas > 0) | (self.at_replicas.size == 1))).any())

    @property
    def compiling(self) -> int:
        """The number of batches whose shape is being compiled."""
        return sum(batch is not None and self.time_s < batch.ready_s for batch in self.computing)

    @property
    def held(self) -> int:
        """The number of batches on a server that wait for its device."""
        return sum(batch is not None and batch.held(self.time_s) for batch in self.computing)

    @property
    def waited_ms(self) -> float | None:
        """How long the oldest request has waited; None if the queue is empty."""
        return None if self.oldest_s is None else (self.time_s - self.oldest_s) * 1000

    @property
    def lost(self) -> int:
        return self.rejected + self.timed_out + self.failed

    def activity(self, within_s: float = 0.0) -> Activity:
        """Return the state of the rule; a batch that left at most `within_s` ago counts as leaving.

        Otherwise a film with a frame every `within_s` would show hardly any batch leave.
        """
        if self.last is not None and self.time_s - self.last.start_s <= within_s:
            return Activity.LEAVING
        if not self.waiting.size:
            return Activity.IDLE
        return Activity.FORMING if self.forming else Activity.QUEUEING


class PlayRange(NamedTuple):
    """A part of a run, by its times in s."""

    begin_s: float
    until_s: float


class Film:
    """A run from which snapshots are taken: each takes microseconds, at any time and in any order.

    `order` is the order in which requests leave the queue, which may differ from that of arrival.

    ValueError for a result without columns, or of several replications.

    >>> from batchsim import Affine, Scenario, SizeOrWait, Trace, simulate
    >>> scenario = Scenario(Trace([0.000, 0.004, 0.012]), SizeOrWait(2, 5), Affine(9, 1))
    >>> film = Film(simulate(scenario))
    >>> film.instants.round(6).tolist()
    [0.0, 0.004, 0.012, 0.015, 0.017, 0.027]
    >>> film.snapshot(0.013)
    Snapshot(time_s=0.013, waiting=[2], computing=[[0, 1]], arrived=3, served=0, lost=0, waiting for a server)
    """

    def __init__(self, result: Result) -> None:
        if not isinstance(result, Result):
            raise TypeError(f"result must be a Result, got {result!r}")
        if len(result.replications) > 1:
            raise ValueError(f"a film must be of one run, got {len(result.replications)} replications")
        if result.scenario.tokens is not None:
            raise ValueError("a film shows batches that leave whole, got a run of token generation")
        scenario, status, arrival_s = result.scenario, result.status, result.arrival_s
        self.result, self.rule, self.servers = result, scenario.rule, scenario.all_servers
        self._batches, self._arrival_s = result.batches, arrival_s
        # When each request leaves the queue, and when the system. A rejected one leaves as it arrives, and so
        # does a failed one, whose other times are unknown.
        at_once = np.isin(status, [Status.REJECTED, Status.FAILED])
        self.left_s = np.where(at_once, arrival_s, result.start_s)
        timed_out = status == Status.TIMED_OUT
        self.left_s[timed_out] = later(arrival_s[timed_out], result.timeout_s[timed_out])
        self.done_s = np.where(status == Status.SERVED, result.finish_s, self.left_s)
        self._done_by_status = [np.sort(self.done_s[status == each]) for each in Status]
        self._ready_s, self._device_time = result.ready_s, result.run.device_time
        self.order = ServiceOrder(result, self.left_s)
        self.loses = bool((status != Status.SERVED).any())
        # By time t, every request before the first whose running maximum of departures exceeds t has left the
        # queue: only the others need a look. The same holds for batches, which are in order of their starts.
        self._latest_left_s = np.maximum.accumulate(self.left_s)
        self._latest_finish_s = np.maximum.accumulate(self._batches.finish_s)
        # The served requests, batch by batch, the oldest of each batch first.
        self._requests = np.argsort(result.batch_index, kind="stable")[np.sum(result.batch_index < 0) :]
        self._ends = np.cumsum(self._batches.batch_size)

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, result: Result) -> "Film":
        """Return the film of a result, prepared once."""
        return cls(result)

    @cached_property
    def instants(self) -> np.ndarray:
        """The times of events, ascending."""
        return np.unique(np.concatenate([self._arrival_s, self.left_s, self.done_s]))

    def stretch(self, begin_s: float = 0.0, end_s: float = 0.0, requests: int = REQUESTS) -> "PlayRange":
        """Return the part to play: about `requests` requests, from some before a window.

        A run that is not much longer is played whole, until its last request has left.
        """
        arrival_s = self._arrival_s
        if arrival_s.size <= requests + EARLIER:
            return PlayRange(0.0, float(self.instants[-1]))
        first = max(int(arrival_s.searchsorted(begin_s)) - EARLIER, 0)
        last = max(first + requests, int(arrival_s.searchsorted(end_s, side="right")))
        over = last >= arrival_s.size
        until_s = max(float(self.instants[-1] if over else arrival_s[last]), end_s * (not over))
        # The beginning of a run shows an empty system.
        return PlayRange(float(arrival_s[first]) if first else 0.0, until_s)

    def largest_leaving(self, begin_s: float, until_s: float) -> Batch | None:
        """Return the first of the largest batches that leave between two times; None without any."""
        first, last = self._batches.start_s.searchsorted([begin_s, until_s]).tolist()
        sizes = self._batches.batch_size[first:last]
        return self.batch(first + int(sizes.argmax())) if sizes.size else None

    def batch(self, number: int) -> Batch:
        batches, end = self._batches, self._ends[number]
        start_s, ready_s, finish_s = (
            float(column[number]) for column in (batches.start_s, self._ready_s, batches.finish_s)
        )
        requests, server = self._requests[end - batches.batch_size[number] : end], int(batches.server[number])
        if not self.order.in_order:
            requests = self.in_turn(requests, math.nextafter(start_s, 0))
        trigger = Trigger(batches.trigger[number])
        times = self._device_time
        held_s = float(times.asked_s[number]), float(times.begin_s[number])
        return Batch(number, requests, start_s, ready_s, finish_s, server, trigger, held_s)

    def in_turn(self, requests: np.ndarray, time_s: float) -> np.ndarray:
        """Return these requests in the order of the queue at a time."""
        return requests[np.argsort(self.order.at(requests, time_s))]

    def snapshot(self, time_s: float) -> Snapshot:
        """Return the state at a time from 0 on, after everything that was due then."""
        time_s = float(_check.real("time_s", time_s, at_least=0))

        def until(times_s: np.ndarray) -> int:
            return int(times_s.searchsorted(time_s, side="right"))

        left, arrived = until(self._latest_left_s), until(self._arrival_s)
        waiting = left + np.flatnonzero(self.left_s[left:arrived] > time_s)
        finished, started = until(self._latest_finish_s), until(self._batches.start_s)
        computing: list[Batch | None] = [None] * self.servers
        for number in finished + np.flatnonzero(self._batches.finish_s[finished:started] > time_s):
            computing[self._batches.server[number]] = self.batch(int(number))
        oldest_s = float(self._arrival_s[waiting[0]]) if waiting.size else None
        last = self.batch(started - 1) if started else None
        counts = {each.name.lower(): until(self._done_by_status[each]) for each in Status}
        queue = waiting if self.order.in_order else self.in_turn(waiting, time_s)
        scenario, levels = self.result.scenario, self.order.counts(waiting)
        at_replicas = np.bincount(self.result.replica[waiting], minlength=scenario.most_replicas)
        return Snapshot(
            time_s, scenario, waiting, queue, levels, at_replicas, oldest_s, tuple(computing), last, arrived,
            **counts,
        )  # fmt: skip
