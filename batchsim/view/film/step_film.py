"""A run of token generation step by step, and each moment in words."""

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from batchsim._format import counted
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.scenario import Continuous
from batchsim.view.film.code_line import CodeLine
from batchsim.view.film.snapshot import Film
from batchsim.view.film.steps_code import endings_of, step_lines


class StepMoment(NamedTuple):
    """One instant: the step that is computed then, -1 where there is none, and counts of requests."""

    time_s: float
    film: "StepFilm"
    step: int
    arrived: int
    served: int

    def acting(self, within_s: float = 0.0) -> int | None:
        """Return the index of the pseudo-code's line at which the choice of the step's rows ended."""
        return None if self.step < 0 else int(self.film.endings[self.step])

    def said(self, within_s: float = 0.0) -> str:
        """Return the moment in a sentence."""
        film, log = self.film, self.film.result.steps
        parts = ["no step, nobody is there"]
        if self.step >= 0:
            at = self.step
            rows, tokens, waiting = int(log.rows[at]), int(log.tokens[at]), int(log.waiting[at])
            parts = [f"a step of {counted(tokens, 'token')} for {counted(rows, 'request')}"]
            parts.append(f"{int(log.running[at]):,} run, {waiting:,} wait")
            if film.rule.kv_blocks is not None:
                parts.append(f"{int(log.kv_blocks[at]):,} of {film.rule.kv_blocks:,} blocks are taken")
            if preempted := int(log.preempted[at]):
                parts.append(f"{preempted:,} preempted")
            parts.append(film.lines[film.endings[at]].because)
        parts.append(f"{self.arrived:,} arrived, {self.served:,} served")
        return f"{film.at(self.time_s)}{'; '.join(parts)}."


class StepFilm(Film):
    """A run of continuous batching, to be played step by step: the steps of one server.

    >>> from batchsim import Constant, Scenario, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), Continuous(4), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> film = StepFilm(simulate(scenario, 2))
    >>> print(film.snapshot(0.025).said())
    At 25.0 ms: a step of 10 tokens for 2 requests; 2 run, 0 wait; all that wait join; 2 arrived, 0 served.
    """

    rule: Continuous

    def __init__(self, result: Result, server: int = 0) -> None:  # a Film is of batches that leave whole
        assert isinstance(result.scenario.rule, Continuous)
        self.shown = server
        self.result, self.rule, self.servers = result, result.scenario.rule, result.scenario.servers
        self._arrival_s, steps = result.arrival_s, result.steps
        self._numbers = np.flatnonzero(steps.server == server)
        self._start_s, self._end_s = steps.start_s[self._numbers], steps.finish_s[self._numbers]
        self._finish_s = np.sort(result.finish_s[result.status == Status.SERVED])

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, result: Result, server: int = 0) -> "StepFilm":
        """Return the film of a result and a server, prepared once."""
        return cls(result, server)

    def at(self, time_s: float) -> str:
        """Return how a sentence of a moment begins: when, and on which of several servers."""
        where = f", server {self.shown + 1:,} of {self.servers:,}" if self.servers > 1 else ""
        return f"At {time_s * 1000:,.1f} ms{where}: "

    @cached_property
    def lines(self) -> tuple[CodeLine, ...]:
        return step_lines(self.rule)

    @cached_property
    def endings(self) -> np.ndarray:
        return endings_of(self.result)

    @property
    def batch_s(self) -> float:
        """The mean time that a request is computed, in s: it is that which the eye follows."""
        mean_ms = float(self.result.summary()["mean_computing_ms"])
        return mean_ms / 1000 if mean_ms > 0 else 1.0  # nobody may be served

    @property
    def decimals(self) -> int:
        """How many decimals of a millisecond to show."""
        return 1

    @cached_property
    def _instants(self) -> np.ndarray:
        return np.unique(np.concatenate([self._start_s, self._end_s]))

    def instants(self, requests: int | None = None) -> np.ndarray:
        """Return when steps begin and end, ascending."""
        return self._instants

    def largest_leaving(self, begin_s: float, until_s: float) -> None:
        """Return None: no batch is on its way."""

    def snapshot(self, time_s: float) -> StepMoment:  # type: ignore[override]
        """Return what is so at a time."""
        at = int(self._start_s.searchsorted(time_s, side="right")) - 1
        under_way = at >= 0 and time_s < self._end_s[at]
        arrived, served = (
            int(times_s.searchsorted(time_s, side="right")) for times_s in (self._arrival_s, self._finish_s)
        )
        return StepMoment(time_s, self, int(self._numbers[at]) if under_way else -1, arrived, served)
