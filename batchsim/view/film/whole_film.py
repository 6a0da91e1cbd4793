"""A run of token generation in whole batches, event by event, and each moment in words."""

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from batchsim._clock import later
from batchsim._format import number
from batchsim.engines.log import Status
from batchsim.engines.token_log import NO_TRIGGER, TokenLog
from batchsim.result import Result
from batchsim.scenario.rules import Trigger
from batchsim.view.film.code_line import CodeLine
from batchsim.view.film.pseudocode import acting_of, pseudocode
from batchsim.view.film.seats import last_tokens
from batchsim.view.film.snapshot import Activity
from batchsim.view.film.step_film import StepFilm


class WholeMoment(NamedTuple):
    """One instant: who waits, the batch that left last, and the one that the shown server computes.

    `batch` is the first step of that one, -1: none, and `step` the step that is computed. `idle`: whether
    any server is.
    """

    time_s: float
    film: "WholeFilm"
    waiting: int
    oldest_s: float
    idle: bool
    last: int
    batch: int
    step: int
    arrived: int
    served: int

    def activity(self, within_s: float = 0.0) -> Activity:
        """Return what the rule does now; a batch that left at most `within_s` ago still leaves."""
        if self.last >= 0 and self.time_s - self.film.log.batch_start_s[self.last] <= within_s:
            return Activity.LEAVING
        if not self.waiting:
            return Activity.IDLE
        return Activity.FORMING if self.idle else Activity.QUEUEING

    def acting(self, within_s: float = 0.0) -> int:
        """Return the index of the pseudo-code's line that acts."""
        activity = self.activity(within_s)
        leaving = activity is Activity.LEAVING
        trigger = Trigger(self.film.log.batch_trigger[self.last]) if leaving else None
        return acting_of(self.film.lines, activity, trigger)

    def said(self, within_s: float = 0.0) -> str:
        """Return the moment in a sentence."""
        film, log, activity = self.film, self.film.log, self.activity(within_s)
        parts = [str(activity)]
        if activity is Activity.LEAVING:
            because = film.lines[self.acting(within_s)].because
            parts = [f"a batch of {int(log.batch_size[self.last]):,} leaves: {because}"]
        if self.waiting:
            waited_ms = 1000 * (self.time_s - self.oldest_s)
            parts.append(f"{self.waiting:,} waiting, the oldest for {number(waited_ms)} ms")
        parts.append("the server is idle" if self.batch < 0 else f"the server computes {self._computing()}")
        parts.append(f"{self.arrived:,} arrived, {self.served:,} served")
        return f"{film.at(self.time_s)}{'; '.join(parts)}."

    def _computing(self) -> str:
        """Return what is computed: the prompts of a batch, or which token, and how many answers are done."""
        outputs = self.film.outputs_of(self.batch)
        batch, made = f"a batch of {outputs.size:,}", self.film.made(self.batch, self.step)
        if not made:
            return f"{batch}, the prompts"
        done = int((outputs <= made).sum())
        return f"{batch}, token {made + 1:,} of {int(outputs.max()):,}, {done:,} done"


class WholeFilm(StepFilm):
    """A run of whole batches, to be played: what one server computes, and for what the next batch waits.

    >>> from batchsim import Constant, Scenario, SizeOrWait, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), SizeOrWait(2, 50), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> film = WholeFilm(simulate(scenario, 2))
    >>> print(film.snapshot(0.035).said())
    At 35.0 ms: no request waits; the server computes a batch of 2, token 2 of 3, 1 done; 2 arrived, 0 served.
    """

    def __init__(self, result: Result, server: int = 0) -> None:
        assert isinstance(result.log, TokenLog)
        self.result, self.rule, self.servers = result, result.scenario.rule, result.scenario.servers  # type: ignore[assignment]
        self.shown, self.log = server, result.log
        log, status = self.log, result.status
        self._arrival_s = result.arrival_s
        self._first = np.flatnonzero(log.batch_trigger != NO_TRIGGER)  # the first steps of batches
        late = status == Status.TIMED_OUT
        left_s = np.where(late, later(result.arrival_s, result.timeout_s), result.start_s)
        self._queued_s = np.where(
            status == Status.REJECTED, result.arrival_s, left_s
        )  # until when each waits
        self._latest_s = np.maximum.accumulate(np.nan_to_num(self._queued_s, posinf=np.inf))
        self._finish_s = np.sort(result.finish_s[status == Status.SERVED])

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, result: Result, server: int = 0) -> "WholeFilm":
        """Return the film of a result and a server, prepared once."""
        return cls(result, server)

    @cached_property
    def lines(self) -> tuple[CodeLine, ...]:
        return pseudocode(self.result.scenario)

    @cached_property
    def _mine(self) -> list[np.ndarray]:
        """The steps of each server."""
        return [np.flatnonzero(self.log.batch_server == server) for server in range(self.servers)]

    @cached_property
    def _instants(self) -> np.ndarray:
        """When requests come and give up, batches start, and prompts, answers and batches are done."""
        log, served = self.log, np.flatnonzero(self.log.last_step >= 0)
        token, last = log.token_step[served], log.last_step[served]
        done = last_tokens(log, served, token)
        ends_s = (log.batch_finish_s[steps] for steps in (token, done, last))
        left_s = self._queued_s[np.isfinite(self._queued_s)]
        return np.unique(np.concatenate([self._arrival_s, left_s, *ends_s]))

    def outputs_of(self, batch: int) -> np.ndarray:
        """Return how many tokens each request of a batch makes."""
        outputs: np.ndarray = self.log.output_tokens[self.log.batch_index == batch]
        return outputs

    def made(self, batch: int, step: int) -> int:
        """Return how many steps of its batch come before a step: so many tokens each request has."""
        mine = self._mine[self.log.batch_server[batch]]
        return int(np.searchsorted(mine, step) - np.searchsorted(mine, batch))

    def snapshot(self, time_s: float) -> WholeMoment:  # type: ignore[override]
        """Return what is so at a time."""
        log = self.log
        arrived = int(self._arrival_s.searchsorted(time_s, side="right"))
        left = int(self._latest_s.searchsorted(time_s, side="right"))
        waiting = left + np.flatnonzero(self._queued_s[left:arrived] > time_s)
        steps = [self._under_way(mine, time_s) for mine in self._mine]
        starts_s = log.batch_start_s[self._first]
        before = int(starts_s.searchsorted(time_s, side="right"))
        step = batch = steps[self.shown]
        if step >= 0:
            own = self._first[:before]
            batch = int(own[log.batch_server[own] == self.shown][-1])
        oldest_s = float(self._arrival_s[waiting[0]]) if waiting.size else np.nan
        served = int(self._finish_s.searchsorted(time_s, side="right"))
        last = int(self._first[before - 1]) if before else -1
        return WholeMoment(
            time_s, self, waiting.size, oldest_s, -1 in steps, last, batch, step, arrived, served
        )

    def _under_way(self, steps: np.ndarray, time_s: float) -> int:
        """Return which of a server's steps is computed at a time, -1 where none is."""
        at = int(self.log.batch_start_s[steps].searchsorted(time_s, side="right")) - 1
        return int(steps[at]) if at >= 0 and time_s < self.log.batch_finish_s[steps[at]] else -1
