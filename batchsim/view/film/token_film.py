"""Films of token generation: by seats, for lanes; by steps; and by whole batches."""

import math
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from batchsim._clock import later
from batchsim._format import counted, listed, number
from batchsim.engines.log import Status
from batchsim.engines.token_log import NO_TRIGGER, TokenLog
from batchsim.result import Result
from batchsim.scenario import Continuous
from batchsim.scenario.rules import Trigger
from batchsim.view.film.pseudocode import CodeLine, acting_of, endings_of, pseudocode, step_lines
from batchsim.view.film.seats import last_tokens, seats, spells
from batchsim.view.film.snapshot import Activity, Film


class TokenMoment(NamedTuple):
    """Counts of requests at one instant, after all its events."""

    time_s: float
    waiting: int
    prefill: int
    decode: int
    padded: int  # answered, in a seat that the batch still occupies
    served: int

    @property
    def seated(self) -> int:
        return self.prefill + self.decode + self.padded

    def said(self) -> str:
        """Return the moment as a part of a sentence about several runs."""
        names = {"computing prompts": self.prefill, "making tokens": self.decode, "done": self.padded}
        doing = [f"{count:,} {name}" for name, count in names.items() if count]
        return f"{self.waiting:,} waiting, {listed(doing) if doing else 'all seats empty'}"


class QueueLength(NamedTuple):
    """The number of waiting requests from each instant on."""

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

    def __init__(self, result: Result) -> None:  # a Film has batches that leave whole
        self.seats = seats(result)
        self.result, self.rule, self.servers = result, result.scenario.rule, result.scenario.all_servers
        status, arrival_s = result.status, result.arrival_s
        self._arrival_s = arrival_s
        late = status == Status.TIMED_OUT
        self._late_s = np.sort(later(arrival_s[late], result.timeout_s[late]))
        entered = arrival_s[status != Status.REJECTED]
        came_s = np.sort(np.append(entered, self.seats.end_s[self.seats.preempted]))
        left_s = np.sort(np.append(self.seats.begin_s, self._late_s))
        times_s = np.unique(np.concatenate([came_s, left_s]))
        count = came_s.searchsorted(times_s, side="right") - left_s.searchsorted(times_s, side="right")
        self.queue = QueueLength(times_s, count)
        self._finish_s = np.sort(result.finish_s[status == Status.SERVED])

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, result: Result) -> "TokenFilm":
        """Return the film of a result, prepared once."""
        return cls(result)

    @cached_property
    def busy(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """When each server computes: the begins and ends of its uninterrupted steps."""
        steps = self.result.steps
        own = [steps.server == server for server in range(self.servers)]
        return [spells(steps.start_s[which], steps.finish_s[which]) for which in own]

    @cached_property
    def instants(self) -> np.ndarray:
        """The times of all events, ascending."""
        rows = self.seats
        return np.unique(
            np.concatenate([
                self._arrival_s, self._late_s, rows.begin_s, rows.first_token_s, rows.last_token_s, rows.end_s
            ])
        )  # fmt: skip

    def snapshot(self, time_s: float) -> TokenMoment:  # type: ignore[override]
        """Return the moment at a time."""
        rows = self.seats
        here = (rows.begin_s <= time_s) & (rows.end_s > time_s)
        prefill, padded, seated = (
            int(np.count_nonzero(here & which))
            for which in (rows.first_token_s > time_s, rows.last_token_s <= time_s, True)
        )
        at = int(self.queue.times_s.searchsorted(time_s, side="right")) - 1
        waiting = int(self.queue.waiting[at]) if at >= 0 else 0
        served = int(self._finish_s.searchsorted(time_s, side="right"))
        return TokenMoment(time_s, waiting, prefill, seated - prefill - padded, padded, served)


class StepMoment(NamedTuple):
    """One instant: the step that is computed, or -1, and counts of requests."""

    time_s: float
    film: "StepFilm"
    step: int
    arrived: int
    served: int

    def acting(self, within_s: float = 0.0) -> int | None:
        """Return the index of the line at which the choice of the step's rows ended."""
        return None if self.step < 0 else int(self.film.endings[self.step])

    def said(self, within_s: float = 0.0, at_ms: str = "") -> str:
        """Return the moment in a sentence; `at_ms` takes the place of the time."""
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
        return f"{film.at(at_ms or self.time_s)}{'; '.join(parts)}."


class StepFilm(Film):
    """A run of continuous batching, to be played step by step: the steps of one server.

    >>> from batchsim import Constant, Scenario, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), Continuous(4), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> film = StepFilm(simulate(scenario, 2))
    >>> print(film.snapshot(0.025).said())
    At 25.0 ms: a step of 10 tokens for 2 requests; 2 run, 0 wait; all that wait join; 2 arrived, 0 served.
    """

    rule: Continuous

    def __init__(self, result: Result, server: int = 0) -> None:  # a Film has batches that leave whole
        assert isinstance(result.scenario.rule, Continuous)
        self.shown = server
        self.result, self.rule, self.servers = result, result.scenario.rule, result.scenario.all_servers
        self._arrival_s, steps = result.arrival_s, result.steps
        self._numbers = np.flatnonzero(steps.server == server)
        self._start_s, self._end_s = steps.start_s[self._numbers], steps.finish_s[self._numbers]
        self._finish_s = np.sort(result.finish_s[result.status == Status.SERVED])

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, result: Result, server: int = 0) -> "StepFilm":
        """Return the film of a result and a server, prepared once."""
        return cls(result, server)

    def at(self, time: float | str) -> str:
        """Return the beginning of a moment's sentence: the time, and which of several servers."""
        where = f", server {self.shown + 1:,} of {self.servers:,}" if self.servers > 1 else ""
        return f"At {time if isinstance(time, str) else f'{time * 1000:,.1f}'} ms{where}: "

    @property
    def changes_s(self) -> np.ndarray:
        """When the sentence of a moment changes, apart from the instants: it counts all requests."""
        return np.concatenate([self._start_s, self._arrival_s, self._finish_s])

    @property
    def queue(self) -> QueueLength:
        """The number of requests that wait at the beginning of each step."""
        return QueueLength(self._start_s, self.result.steps.waiting[self._numbers])

    @cached_property
    def lines(self) -> tuple[CodeLine, ...]:
        return step_lines(self.rule)

    @cached_property
    def endings(self) -> np.ndarray:
        return endings_of(self.result)

    @cached_property
    def instants(self) -> np.ndarray:
        """The begins and ends of steps, ascending."""
        return np.unique(np.concatenate([self._start_s, self._end_s]))

    def snapshot(self, time_s: float) -> StepMoment:  # type: ignore[override]
        """Return the moment at a time."""
        at = int(self._start_s.searchsorted(time_s, side="right")) - 1
        under_way = at >= 0 and time_s < self._end_s[at]
        arrived, served = (
            int(times_s.searchsorted(time_s, side="right")) for times_s in (self._arrival_s, self._finish_s)
        )
        return StepMoment(time_s, self, int(self._numbers[at]) if under_way else -1, arrived, served)


class WholeMoment(NamedTuple):
    """One instant: the queue, the batch that left last, and the batch that the shown server computes.

    `batch` is the first step of the latter, or -1, and `step` the step that is computed. `idle`: whether any
    server is idle.
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
        """Return the state of the rule; a batch that left at most `within_s` ago counts as leaving."""
        if self.last >= 0 and self.time_s - self.film.log.batch_start_s[self.last] <= within_s:
            return Activity.LEAVING
        if not self.waiting:
            return Activity.IDLE
        return Activity.FORMING if self.idle else Activity.QUEUEING

    def acting(self, within_s: float = 0.0) -> int:
        """Return the index of the acting line."""
        activity = self.activity(within_s)
        leaving = activity is Activity.LEAVING
        trigger = Trigger(self.film.log.batch_trigger[self.last]) if leaving else None
        return acting_of(self.film.lines, activity, trigger)

    def said(self, within_s: float = 0.0, at_ms: str = "") -> str:
        """Return the moment in a sentence; `at_ms` takes the place of the time, and of what grows with it."""
        film, log, activity = self.film, self.film.log, self.activity(within_s)
        parts = [str(activity)]
        if activity is Activity.LEAVING:
            because = film.lines[self.acting(within_s)].because
            parts = [f"a batch of {int(log.batch_size[self.last]):,} leaves: {because}"]
        if self.waiting:
            since = number(1000 * (self.time_s - self.oldest_s))
            waited = f"{{since {self.oldest_s!r}}}" if at_ms else since
            parts.append(f"{self.waiting:,} waiting, the oldest for {waited} ms")
        parts.append("the server is idle" if self.batch < 0 else f"the server computes {self._computing()}")
        parts.append(f"{self.arrived:,} arrived, {self.served:,} served")
        return f"{film.at(at_ms or self.time_s)}{'; '.join(parts)}."

    def _computing(self) -> str:
        """Return the progress of the batch: its prompts, or the token and the number of complete answers."""
        outputs = self.film.outputs_of(self.batch)
        batch, made = f"a batch of {outputs.size:,}", self.film.made(self.batch, self.step)
        if not made:
            return f"{batch}, the prompts"
        done = int((outputs <= made).sum())
        return f"{batch}, token {made + 1:,} of {int(outputs.max()):,}, {done:,} done"


class WholeFilm(StepFilm):
    """A run of whole batches, to be played: one server's computing, and the reason why the next batch waits.

    >>> from batchsim import Constant, Scenario, SizeOrWait, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), SizeOrWait(2, 50), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> film = WholeFilm(simulate(scenario, 2))
    >>> print(film.snapshot(0.035).said())
    At 35.0 ms: no request waits; the server computes a batch of 2, token 2 of 3, 1 done; 2 arrived, 0 served.
    """

    def __init__(self, result: Result, server: int = 0) -> None:
        assert isinstance(result.log, TokenLog)
        self.result, self.rule, self.servers = result, result.scenario.rule, result.scenario.all_servers  # type: ignore[assignment]
        self.shown, self.log = server, result.log
        log, status = self.log, result.status
        self._arrival_s = result.arrival_s
        self._first = np.flatnonzero(log.batch_trigger != NO_TRIGGER)  # the first steps of batches
        late = status == Status.TIMED_OUT
        left_s = np.where(late, later(result.arrival_s, result.timeout_s), result.start_s)
        self._queued_s = np.where(status == Status.REJECTED, result.arrival_s, left_s)  # the end of each wait
        self._latest_s = np.maximum.accumulate(np.nan_to_num(self._queued_s, posinf=np.inf))
        self._finish_s = np.sort(result.finish_s[status == Status.SERVED])

    @cached_property
    def lines(self) -> tuple[CodeLine, ...]:
        return pseudocode(self.result.scenario)

    @cached_property
    def _mine(self) -> list[np.ndarray]:
        """The steps of each server."""
        return [np.flatnonzero(self.log.batch_server == server) for server in range(self.servers)]

    @cached_property
    def instants(self) -> np.ndarray:
        """The times when requests arrive, give up or start, and prompts, answers and batches end."""
        log, served = self.log, np.flatnonzero(self.log.last_step >= 0)
        token, last = log.token_step[served], log.last_step[served]
        done = last_tokens(log, served, token)
        ends_s = (log.batch_finish_s[steps] for steps in (token, done, last))
        left_s = self._queued_s[np.isfinite(self._queued_s)]
        return np.unique(np.concatenate([self._arrival_s, left_s, *ends_s]))

    @property
    def changes_s(self) -> np.ndarray:
        start_s = self.log.batch_start_s  # a batch leaves only at the very instant
        return np.append(start_s[self._mine[self.shown]], np.nextafter(start_s[self._first], math.inf))

    @property
    def queue(self) -> QueueLength:
        """The number of requests that wait for any server, from each instant on."""
        times_s, left_s = self.instants, np.sort(self._queued_s)
        arrived, left = (each.searchsorted(times_s, side="right") for each in (self._arrival_s, left_s))
        return QueueLength(times_s, arrived - left)

    def outputs_of(self, batch: int) -> np.ndarray:
        """Return the number of tokens that each request of a batch makes."""
        outputs: np.ndarray = self.log.output_tokens[self.log.batch_index == batch]
        return outputs

    def made(self, batch: int, step: int) -> int:
        """Return the number of steps of a batch before a step, which is each request's number of tokens."""
        mine = self._mine[self.log.batch_server[batch]]
        return int(np.searchsorted(mine, step) - np.searchsorted(mine, batch))

    def snapshot(self, time_s: float) -> WholeMoment:  # type: ignore[override]
        """Return the moment at a time."""
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
        """Return the step of a server that is computed at a time, or -1."""
        at = int(self.log.batch_start_s[steps].searchsorted(time_s, side="right")) - 1
        return int(steps[at]) if at >= 0 and time_s < self.log.batch_finish_s[steps[at]] else -1
