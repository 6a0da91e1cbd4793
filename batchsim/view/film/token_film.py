"""A run of token generation from moment to moment: how many wait, and what is done in its seats."""

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from batchsim._clock import later
from batchsim.engines.log import Status
from batchsim.result import Result
from batchsim.view.film.seats import seats
from batchsim.view.film.snapshot import Film


class TokenMoment(NamedTuple):
    """What is so at one instant, after everything that was due then: counts of requests."""

    time_s: float
    waiting: int
    prefill: int
    decode: int
    padded: int  # whose answer is made, in a seat that their batch keeps
    served: int

    @property
    def seated(self) -> int:
        return self.prefill + self.decode + self.padded


class Line(NamedTuple):
    """How many wait from each instant on."""

    times_s: np.ndarray
    waiting: np.ndarray


class TokenFilm(Film):
    """A run of token generation, to be played; ValueError for a result that has no seats.

    >>> from batchsim import Constant, Scenario, SizeOrWait, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), SizeOrWait(2, 50), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> film = TokenFilm(simulate(scenario, 2))
    >>> film.snapshot(0.035)
    TokenMoment(time_s=0.035, waiting=0, prefill=0, decode=1, padded=1, served=0)
    """

    def __init__(self, result: Result) -> None:  # not a run of batches that leave whole, which a Film is of
        self.seats = seats(result)
        self.result, self.rule, self.servers = result, result.scenario.rule, result.scenario.servers
        status, arrival_s = result.status, result.arrival_s
        self._arrival_s = arrival_s
        late = status == Status.TIMED_OUT
        self._late_s = np.sort(later(arrival_s[late], result.timeout_s[late]))
        entered = arrival_s[status != Status.REJECTED]
        came_s = np.sort(np.append(entered, self.seats.end_s[self.seats.preempted]))
        left_s = np.sort(np.append(self.seats.begin_s, self._late_s))
        times_s = np.unique(np.concatenate([came_s, left_s]))
        count = came_s.searchsorted(times_s, side="right") - left_s.searchsorted(times_s, side="right")
        self.line = Line(times_s, count)
        self._finish_s = np.sort(result.finish_s[status == Status.SERVED])

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, result: Result) -> "TokenFilm":
        """Return the film of a result, prepared once."""
        return cls(result)

    @cached_property
    def batch_s(self) -> float:
        """The mean time that a request sits, in s: it is that which the eye follows."""
        return float((self.seats.end_s - self.seats.begin_s).mean()) if len(self.seats) else 1.0

    @cached_property
    def busy(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """When each server computes: the beginnings and the ends of its steps in a row."""
        steps, found = self.result.steps, []
        for server in range(self.servers):
            mine = steps.server == server
            begin_s, end_s = steps.start_s[mine], steps.finish_s[mine]
            pause = begin_s[1:] > end_s[:-1]
            found.append(
                (begin_s[np.append(True, pause)[: mine.sum()]], end_s[np.append(pause, True)[: mine.sum()]])
            )
        return found

    @property
    def decimals(self) -> int:
        """How many decimals of a millisecond to show: steps take some."""
        return 1

    @cached_property
    def _instants(self) -> np.ndarray:
        rows = self.seats
        return np.unique(
            np.concatenate([
                self._arrival_s, self._late_s, rows.begin_s, rows.first_token_s, rows.last_token_s, rows.end_s
            ])
        )  # fmt: skip

    def instants(self, requests: int | None = None) -> np.ndarray:
        """Return when anything happens, ascending."""
        return self._instants

    def largest_leaving(self, begin_s: float, until_s: float) -> None:
        """Return None: no batch is on its way."""

    def snapshot(self, time_s: float) -> TokenMoment:  # type: ignore[override]
        """Return what is so at a time."""
        rows = self.seats
        here = (rows.begin_s <= time_s) & (rows.end_s > time_s)
        prefill, padded, seated = (
            int(np.count_nonzero(here & which))
            for which in (rows.first_token_s > time_s, rows.last_token_s <= time_s, True)
        )
        at = int(self.line.times_s.searchsorted(time_s, side="right")) - 1
        waiting = int(self.line.waiting[at]) if at >= 0 else 0
        served = int(self._finish_s.searchsorted(time_s, side="right"))
        return TokenMoment(time_s, waiting, prefill, seated - prefill - padded, padded, served)
