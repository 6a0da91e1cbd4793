"""Films: a run at any time in words, with the acting line of its rule; and the film of whole requests."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from batchsim import _check
from batchsim._clock import later
from batchsim._compat import bincount, kept
from batchsim._format import listed, number
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.scenario.rules import Trigger
from batchsim.view.film.pseudocode import FORMING, IDLE, QUEUEING, pseudocode

REQUESTS, EARLIER = 200, 60  # the requests that are played, and those of them before the window
MOST_LISTED = 8  # replicas


class PlayRange(NamedTuple):
    """A part of a run, by its times in s."""

    begin_s: float
    until_s: float


def until(times_s: np.ndarray, time_s: float) -> int:
    """Return how many of some rising times have passed."""
    return int(times_s.searchsorted(time_s, side="right"))


class Film(ABC):
    """A run that says what happens, at any time and in any order.

    A film has `instants`, `words(time_s)`, and `line(time_s)` if its rule has a line for each moment. All
    describe the state after everything that was due then. A batch that left at most `within_s` ago counts as
    leaving: otherwise a film with a frame every `within_s` would show hardly any batch leave. Requests and
    batches are numbered from 0, in order of arrival and of start; under continuous batching each step is a
    batch.

    ValueError for a result without columns, or of several replications.
    """

    decimals = 1  # after the point of its times in ms, in its words and on its clock

    def __init__(self, result: Result) -> None:
        if not isinstance(result, Result):
            raise TypeError(f"result must be a Result, got {result!r}")
        if len(result.replications) > 1:
            raise ValueError(f"a film must be of one run, got {len(result.replications)} replications")
        scenario, status, arrival_s = result.scenario, result.status, result.arrival_s
        self.result, self.rule, self.servers = result, scenario.rule, scenario.all_servers
        self.arrival_s, self.batches, self.lines = arrival_s, result.batches, pseudocode(scenario)
        # When each request leaves the queue, and when the system. A rejected one leaves as it arrives, and so
        # does a failed one, whose other times are unknown.
        at_once, late = np.isin(status, [Status.REJECTED, Status.FAILED]), status == Status.TIMED_OUT
        self.left_s = np.where(at_once, arrival_s, result.start_s)
        self.left_s[late] = later(arrival_s[late], result.timeout_s[late])
        self.done_s = np.where(status == Status.SERVED, result.finish_s, self.left_s)
        served = status == Status.SERVED
        self._served_s, self._lost_s = np.sort(self.done_s[served]), np.sort(self.done_s[~served])
        # By time t, every request before the first whose running maximum of departures exceeds t has left the
        # queue: only the others need a look. The same holds for batches, which are in order of their starts.
        self._latest_left_s = np.maximum.accumulate(self.left_s)
        self._latest_finish_s = np.maximum.accumulate(self.batches.finish_s)

    @classmethod
    @lru_cache(maxsize=4)
    def of(cls, *given: Any) -> Self:
        """Return the film of a result, prepared once."""
        return cls(*given)

    @property
    @abstractmethod
    def instants(self) -> np.ndarray:
        """The times of events, ascending."""

    @abstractmethod
    def words(self, time_s: float, within_s: float = 0.0) -> str:
        """Return a moment in words."""

    def at(self, time_s: float) -> str:
        """Return how a sentence about a moment begins."""
        return f"At {time_s * 1000:,.{self.decimals}f} ms"

    def line(self, time_s: float, within_s: float = 0.0) -> int | None:
        """Return the index of the acting line of the pseudo-code, None if there is none."""
        return None

    def waiting(self, time_s: float) -> np.ndarray:
        """Return the requests that wait, oldest first."""
        left, arrived = until(self._latest_left_s, time_s), until(self.arrival_s, time_s)
        return left + np.flatnonzero(self.left_s[left:arrived] > time_s)

    def running(self, time_s: float) -> np.ndarray:
        """Return the batches on servers."""
        done, begun = until(self._latest_finish_s, time_s), until(self.batches.start_s, time_s)
        return done + np.flatnonzero(self.batches.finish_s[done:begun] > time_s)

    def counts(self, time_s: float) -> tuple[int, int, int]:
        """Return how many requests have arrived, were served, and were lost."""
        return until(self.arrival_s, time_s), until(self._served_s, time_s), until(self._lost_s, time_s)

    def at_replicas(self, waiting: np.ndarray) -> np.ndarray:
        """Return how many of some requests are at each replica."""
        return bincount(self.result.replica[waiting], minlength=self.result.scenario.most_replicas)

    def forming(self, time_s: float) -> bool:
        """Return whether requests that wait are forming: a server of their replica is idle."""
        at_replicas = self.at_replicas(self.waiting(time_s))
        servers = bincount(self.batches.server[self.running(time_s)], minlength=self.servers)
        idle = (servers.reshape(at_replicas.size, -1) == 0).any(axis=1)
        return bool((idle & ((at_replicas > 0) | (at_replicas.size == 1))).any())

    def state(self, time_s: float, within_s: float = 0.0) -> tuple[str, int]:
        """Return the state of the rule, or why a batch leaves, and the acting line."""
        last = until(self.batches.start_s, time_s) - 1
        if last >= 0 and time_s - self.batches.start_s[last] <= within_s:
            line = self.line_of(Trigger(self.batches.trigger[last]))
            size = int(self.batches.batch_size[last])
            return f"a batch of {size:,} leaves: {self.lines[line].because}", line
        activity = IDLE
        if self.waiting(time_s).size:
            activity = FORMING if self.forming(time_s) else QUEUEING
        return activity, self.line_of(activity)

    def line_of(self, reason: object) -> int:
        """Return the index of the line of a trigger, or of a state of the rule."""
        return next(i for i, line in enumerate(self.lines) if reason in (line.trigger, line.activity))

    def queue_words(self, time_s: float, at_ms: str = "") -> list[str]:
        """Return the number of waiting requests by level and replica, and the longest wait.

        `at_ms` takes the place of the time.
        """
        waiting, levels, of_level = self.waiting(time_s), self.result.scenario.levels, ""
        if not waiting.size:
            return []
        if len(levels) > 1:
            counts = zip(*np.unique(self.result.priority[waiting], return_counts=True), strict=True)
            of_level = f" ({listed([f'{count:,} of level {level}' for level, count in counts])})"
        oldest_s = float(self.arrival_s[waiting[0]])
        waited = f"{{since {oldest_s!r}}}" if at_ms else number((time_s - oldest_s) * 1000)
        at_replicas = by_replica(self.at_replicas(waiting).tolist())
        return [f"{waiting.size:,} waiting{of_level}{at_replicas}, the oldest for {waited} ms"]


def by_replica(waiting: Sequence[int]) -> str:
    """Return how many requests wait at each of several replicas, or at the fullest of many.

    >>> by_replica([2, 0, 1]), by_replica([1] * 40), by_replica([3])
    (' (2, 0 and 1 by replica)', ' (at most 1 at a replica)', '')
    """
    if len(waiting) > MOST_LISTED:
        return f" (at most {max(waiting):,} at a replica)"
    return f" ({listed([f'{count:,}' for count in waiting])} by replica)" if len(waiting) > 1 else ""


class ServiceOrder:
    """The order of a run's queue: by batch, by level, in a level delayed requests last, then by arrival.

    `in_order`: it is always the order of arrival. `place` is the number of each request's level, 0 for the
    first, and `late_s` the time at which a request is delayed, inf: never. `batch` is the same for all
    unless earlier batches go first, despite new arrivals. `left_s` is when each left.
    """

    def __init__(self, result: Result, left_s: np.ndarray) -> None:
        scenario, count = result.scenario, result.arrival_s.size
        self.in_order, self.levels = scenario.in_order, scenario.levels
        self.place = np.zeros(count, dtype=np.int64)
        if result.priority is not None:
            self.place = np.searchsorted(self.levels, result.priority)
        delays_s = [limit.timeout_s if limit.delays else math.inf for limit in scenario.limits]
        self.late_s = later(result.arrival_s, np.array(delays_s)[self.place])
        self.batch = np.zeros(count, dtype=np.int64)
        if scenario.rule.freezes or not scenario.by_level:
            lost = np.searchsorted(result.batches.start_s, left_s)
            self.batch = np.where(result.batch_index < 0, lost, result.batch_index)


class RequestFilm(Film):
    """Requests that wait, and leave in whole batches; `order` is the order in which they leave the queue.

    >>> from batchsim import Affine, Scenario, SizeOrWait, Trace, simulate
    >>> film = RequestFilm(simulate(Scenario(Trace([0.000, 0.004, 0.012]), SizeOrWait(2, 20), Affine(9, 1))))
    >>> film.instants.round(6).tolist()
    [0.0, 0.004, 0.012, 0.015, 0.032, 0.042]
    >>> print(film.words(0.002))
    At 2.0 ms: waiting for company; 1 waiting, the oldest for 2 ms; server idle; 1 arrived, 0 served, 0 lost.
    >>> film.lines[film.line(0.004)].text
    'elif 2 or more wait: send the oldest 2'
    """

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        if result.scenario.tokens is not None:
            raise ValueError("a film shows batches that leave whole, got a run of token generation")
        self.order, self._device_time = ServiceOrder(result, self.left_s), result.run.device_time
        batch_s = np.mean(self.batches.finish_s - self.batches.start_s) if self.batches.start_s.size else 1.0
        self.decimals = min(max(math.ceil(-math.log10(1000 * batch_s)) + 2, 0), 9)

    @kept
    def instants(self) -> np.ndarray:
        return np.unique(np.concatenate([self.arrival_s, self.left_s, self.done_s]))

    def words(self, time_s: float, within_s: float = 0.0) -> str:
        time_s = float(_check.real("time_s", time_s, at_least=0))
        arrived, served, lost = self.counts(time_s)
        parts = [self.state(time_s, within_s)[0], *self.queue_words(time_s), self._busy(time_s)]
        parts.append(f"{arrived:,} arrived, {served:,} served, {lost:,} lost")
        return f"{self.at(time_s)}: {'; '.join(parts)}."

    def line(self, time_s: float, within_s: float = 0.0) -> int:
        return self.state(time_s, within_s)[1]

    def _busy(self, time_s: float) -> str:
        running, device = self.running(time_s), self._device_time
        busy = "server busy" if running.size else "server idle"
        if self.servers > 1:
            busy = f"{running.size:,} of {self.servers:,} servers busy"
        if compiling := np.count_nonzero(time_s < self.result.ready_s[running]):
            busy += ", compiling" if self.servers == 1 else f", {compiling:,} compiling"
        asked, free = device.asked_s[running] <= time_s, device.begin_s[running] <= time_s
        if held := np.count_nonzero(asked & ~free):
            busy += f", {held:,} waiting for a device"
        return busy

    def stretch(self, begin_s: float = 0.0, end_s: float = 0.0, requests: int = REQUESTS) -> PlayRange:
        """Return the part to play: about `requests` requests, from some before a window.

        A run that is not much longer is played whole, until its last request has left.
        """
        arrival_s = self.arrival_s
        if arrival_s.size <= requests + EARLIER:
            return PlayRange(0.0, float(self.instants[-1]))
        first = max(int(arrival_s.searchsorted(begin_s)) - EARLIER, 0)
        last = max(first + requests, until(arrival_s, end_s))
        over = last >= arrival_s.size
        until_s = max(float(self.instants[-1] if over else arrival_s[last]), end_s * (not over))
        # The beginning of a run shows an empty system.
        return PlayRange(float(arrival_s[first]) if first else 0.0, until_s)

    def largest_leaving(self, begin_s: float, until_s: float) -> int | None:
        """Return the first of the largest batches that leave between two times; None without any."""
        first, last = self.batches.start_s.searchsorted([begin_s, until_s]).tolist()
        sizes = self.batches.batch_size[first:last]
        return first + int(sizes.argmax()) if sizes.size else None


class QueueFilm(RequestFilm):
    """The same in a lane: its words are a part of a sentence about several runs."""

    def words(self, time_s: float, within_s: float = 0.0) -> str:
        running = self.running(time_s)
        sizes = self.batches.batch_size[running[np.argsort(self.batches.server[running])]]
        computes = f"computing {' and '.join(map(str, sizes))}" if sizes.size else "idle"
        return f"{self.waiting(time_s).size:,} waiting, {computes}"
