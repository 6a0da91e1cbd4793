"""What happens at one moment of a run: who waits, what is computed, and what the rule waits for."""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from batchsim import _check
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.scenario.rules import Rule, Trigger


class Doing(StrEnum):
    """What the rule is about."""

    LEAVING = "a batch leaves"  # at this very instant
    COMPANY = "waiting for company"  # a server is idle, but the rule wants more requests, or time
    SERVER = "waiting for a server"
    NOTHING = "nothing to do"  # no request waits


@dataclass(frozen=True, eq=False)
class Job:
    """A batch that has left: its number, its requests, and when and where it is computed."""

    number: int
    requests: np.ndarray  # their numbers, oldest first
    start_s: float
    finish_s: float
    server: int
    trigger: Trigger


@dataclass(frozen=True, eq=False)
class Moment:
    """The state of a run at one time, after everything that was due then.

    Requests go by their number, 0 for the first that arrived. `computing` has a place for each
    server, None where it is idle; `last` is the batch that left last. Counts are of requests so far;
    each that arrived waits, is computed, or is served, rejected or timed out.
    """

    time_s: float
    rule: Rule
    waiting: np.ndarray  # request numbers, oldest first
    oldest_s: float | None  # arrival of the oldest that waits
    computing: tuple[Job | None, ...]
    last: Job | None
    arrived: int
    served: int
    rejected: int
    timed_out: int

    def __repr__(self) -> str:
        computing = [None if job is None else job.requests.tolist() for job in self.computing]
        return (
            f"Moment(time_s={self.time_s:g}, waiting={self.waiting.tolist()}, computing={computing}, "
            f"arrived={self.arrived}, served={self.served}, lost={self.lost}, {self.doing()})"
        )

    @property
    def forming(self) -> bool:
        """Whether all that wait are forming, a server being idle; else they are queueing."""
        return None in self.computing

    @property
    def deadline_s(self) -> float | None:
        """When the oldest that waits will have waited long enough; inf for never, None if nobody waits."""
        return None if self.oldest_s is None else self.oldest_s + self.rule.max_wait_ms / 1000

    @property
    def waited_ms(self) -> float | None:
        """How long the oldest has waited; None if nobody waits."""
        return None if self.oldest_s is None else (self.time_s - self.oldest_s) * 1000

    @property
    def lost(self) -> int:
        return self.rejected + self.timed_out

    def doing(self, within_s: float = 0.0) -> Doing:
        """Return what the rule does now; a batch that left `within_s` ago still leaves.

        A player that shows some times only needs that, to show a batch leave at all.
        """
        if self.last is not None and self.time_s - self.last.start_s <= within_s:
            return Doing.LEAVING
        if not self.waiting.size:
            return Doing.NOTHING
        return Doing.COMPANY if self.forming else Doing.SERVER


class Film:
    """A run, ready to be looked at any moment: each takes microseconds, in whatever order.

    ValueError for a result without columns, or of several replications.

    >>> from batchsim import Affine, Scenario, SizeOrWait, Trace, simulate
    >>> scenario = Scenario(Trace([0.000, 0.004, 0.012]), SizeOrWait(2, 5), Affine(9, 1))
    >>> film = Film(simulate(scenario))
    >>> film.instants().round(6).tolist()
    [0.0, 0.004, 0.012, 0.015, 0.017, 0.027]
    >>> film.moment(0.013)
    Moment(time_s=0.013, waiting=[2], computing=[[0, 1]], arrived=3, served=0, lost=0, waiting for a server)
    """

    def __init__(self, result: Result) -> None:
        if not isinstance(result, Result):
            raise TypeError(f"result must be a Result, got {result!r}")
        if result.runs:
            raise ValueError(f"a film must be of one run, got {len(result.runs)} replications")
        log, scenario = result.log, result.scenario
        self.rule, self.servers = scenario.rule, scenario.servers
        self._arrival_s = log.arrival_s
        self._trigger = result.batches.trigger
        self._log = log
        # First in, first out: those that entered the queue also leave it in their order, into a
        # batch or timed out. So those that wait stand between two places of it.
        self._entered = np.flatnonzero(log.status != Status.REJECTED)
        self._entered_s = log.arrival_s[self._entered]
        timed_out = log.status[self._entered] == Status.TIMED_OUT
        self._left_s = result.start_s[self._entered]
        self._left_s[timed_out] = self._entered_s[timed_out] + scenario.timeout_s
        self._timed_out_s = self._left_s[timed_out]
        self._rejected_s = log.arrival_s[log.status == Status.REJECTED]
        # A batch is a stretch of the served; of those before `_latest_s` exceeds t, all are finished.
        self._served = np.flatnonzero(log.batch_index >= 0)
        self._first = np.concatenate([[0], np.cumsum(log.batch_size)])
        self._latest_s = np.maximum.accumulate(log.batch_finish_s)
        order = np.argsort(log.batch_finish_s, kind="stable")
        self._finish_s = log.batch_finish_s[order]
        self._finished = np.concatenate([[0], np.cumsum(log.batch_size[order])])

    @property
    def end_s(self) -> float:
        """When the last thing happens."""
        last_s = (column.max(initial=0.0) for column in (self._arrival_s, self._left_s, self._finish_s))
        return float(max(last_s))

    @cached_property
    def decimals(self) -> int:
        """How many decimals of a millisecond tell its moments apart: a hundredth of a batch's time."""
        log = self._log
        mean_s = float((log.batch_finish_s - log.batch_start_s).mean()) if log.batch_size.size else 1.0
        return min(max(math.ceil(-math.log10(mean_s * 1000)) + 2, 0), 9)

    @cached_property
    def _instants(self) -> np.ndarray:
        return np.unique(np.concatenate([self._arrival_s, self._left_s, self._finish_s]))

    def instants(self, requests: int | None = None) -> np.ndarray:
        """Return when anything happens, ascending, until the first `requests` are done with (all)."""
        if requests is None:
            return self._instants
        first = slice(_check.whole("requests", requests))
        batches = self._log.batch_index[first]
        last_s = [
            self._arrival_s[first][-1],  # which may be rejected then
            self._left_s[: np.searchsorted(self._entered, first.stop)].max(initial=0.0),
            self._log.batch_finish_s[batches[batches >= 0]].max(initial=0.0),
        ]
        return self._instants[: np.searchsorted(self._instants, max(last_s), side="right")]

    def job(self, number: int) -> Job:
        """Return the batch of that number."""
        log = self._log
        return Job(
            number=number,
            requests=self._served[self._first[number] : self._first[number + 1]],
            start_s=float(log.batch_start_s[number]),
            finish_s=float(log.batch_finish_s[number]),
            server=int(log.batch_server[number]),
            trigger=Trigger(self._trigger[number]),
        )

    def moment(self, time_s: float) -> Moment:
        """Return the state at a time from 0 on, after everything that was due then."""
        time_s = float(_check.real("time_s", time_s, at_least=0))

        def until(times_s: np.ndarray) -> int:
            return int(times_s.searchsorted(time_s, side="right"))

        gone, entered = until(self._left_s), until(self._entered_s)
        done, started = until(self._latest_s), until(self._log.batch_start_s)
        computing: list[Job | None] = [None] * self.servers
        for number in done + np.flatnonzero(self._log.batch_finish_s[done:started] > time_s):
            job = self.job(int(number))
            computing[job.server] = job
        return Moment(
            time_s=time_s,
            rule=self.rule,
            waiting=self._entered[gone:entered],
            oldest_s=float(self._entered_s[gone]) if gone < entered else None,
            computing=tuple(computing),
            last=self.job(started - 1) if started else None,
            arrived=until(self._arrival_s),
            served=int(self._finished[until(self._finish_s)]),
            rejected=until(self._rejected_s),
            timed_out=until(self._timed_out_s),
        )


def moment(result: Result, time_s: float) -> Moment:
    """Return the state of a run at a time from 0 on; of many times, ask a `Film`."""
    return Film(result).moment(time_s)
