"""Films of token generation: of one server, by steps or by whole batches; and of all seats, for lanes."""

import math
from typing import NamedTuple

import numpy as np

from batchsim._compat import kept
from batchsim._format import counted, duration, listed
from batchsim.engines.log import Status
from batchsim.engines.token_log import NO_TRIGGER, TokenLog
from batchsim.result import Result
from batchsim.result.seats import last_tokens, replayed, seats, spells
from batchsim.scenario import Continuous
from batchsim.view.film.film import Film, until


class QueueLength(NamedTuple):
    """The number of waiting requests from each instant on."""

    times_s: np.ndarray
    waiting: np.ndarray

    @classmethod
    def between(cls, times_s: np.ndarray, came_s: np.ndarray, left_s: np.ndarray) -> "QueueLength":
        """Return it at some times, from when requests came and left, each in order."""
        came, left = (each.searchsorted(times_s, side="right") for each in (came_s, left_s))
        return cls(times_s, came - left)


class TokenFilm(Film):
    """One server of token generation: its steps, or the progress of its batch and why the next one waits.

    >>> from batchsim import Constant, Scenario, SizeOrWait, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), Continuous(4), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> print(TokenFilm(simulate(scenario, 2)).words(0.025))
    At 25.0 ms: a step of 10 tokens for 2 requests; 2 run, 0 wait; all that wait join; 2 arrived, 0 served.
    >>> print(TokenFilm(simulate(scenario.replace(rule=SizeOrWait(2, 50)), 2)).words(0.035))
    At 35.0 ms: no request waits; the server computes a batch of 2, token 2 of 3, 1 done; 2 arrived, 0 served.
    """

    def __init__(self, result: Result, server: int = 0) -> None:
        super().__init__(result)
        assert isinstance(result.log, TokenLog)
        self.shown, self.log = server, result.log
        self.whole = not isinstance(self.rule, Continuous)
        self._own = np.flatnonzero(self.log.batch_server == server)  # its steps
        self._firsts = np.flatnonzero(self.log.batch_trigger[self._own] != NO_TRIGGER)  # of whole batches
        self._start_s, self._finish_s = self.log.batch_start_s[self._own], self.log.batch_finish_s[self._own]

    @kept
    def instants(self) -> np.ndarray:
        """The begins and ends of steps; or when requests arrive, leave, and end their prompt and answer."""
        if not self.whole:
            return np.unique(np.concatenate([self._start_s, self._finish_s]))
        served = np.flatnonzero(self.result.status == Status.SERVED)
        done = last_tokens(self.log, served, self.log.token_step[served])
        ends_s = self.result.first_token_s[served], self.log.batch_finish_s[done], self.done_s
        return np.unique(np.concatenate([self.arrival_s, self.left_s, *ends_s]))

    @property
    def changes_s(self) -> np.ndarray:
        """When the words of a moment change, apart from the instants."""
        if not self.whole:  # they count all requests
            return np.concatenate([self.arrival_s, self._served_s])
        # A batch leaves only at the very instant.
        return np.append(self._start_s, np.nextafter(self.batches.start_s, math.inf))

    @property
    def queue(self) -> QueueLength:
        """The number of requests that wait as each step begins; or for any server, from each instant on."""
        if not self.whole:
            return QueueLength(self._start_s, self.log.step_waiting[self._own])
        return QueueLength.between(self.instants, self.arrival_s, np.sort(self.left_s))

    def words(self, time_s: float, within_s: float = 0.0, at_ms: str = "") -> str:
        """Return a moment in words; `at_ms` takes the place of the time, and of what grows with it."""
        where = f", server {self.shown + 1:,} of {self.servers:,}" if self.servers > 1 else ""
        if self.whole:
            parts = [self.state(time_s, within_s)[0], *self.queue_words(time_s, at_ms=at_ms)]
            parts.append(self._progress(time_s))
        else:
            parts = self._step(time_s)
        arrived, served, _ = self.counts(time_s)
        parts.append(f"{arrived:,} arrived, {served:,} served")
        at = f"At {at_ms} ms" if at_ms else self.at(time_s)
        return f"{at}{where}: {'; '.join(parts)}."

    def line(self, time_s: float, within_s: float = 0.0) -> int | None:
        if self.whole:
            return self.state(time_s, within_s)[1]
        at = self._computed(time_s)
        return None if at is None else int(self._lines[self._own[at]])

    @kept
    def _lines(self) -> np.ndarray:
        """The line at which each step ended."""
        assert isinstance(self.rule, Continuous)
        return len(self.lines) - len(self.rule.steps) + self.rule.ended(self.result.steps)

    def _computed(self, time_s: float) -> int | None:
        """Return the step that the server computes, by its place among the server's own."""
        at = until(self._start_s, time_s) - 1
        return at if at >= 0 and time_s < self._finish_s[at] else None

    def _step(self, time_s: float) -> list[str]:
        at, log = self._computed(time_s), self.result.steps
        if at is None:
            return ["no step, nobody is there"]
        step = self._own[at]
        tokens, rows = counted(int(log.tokens[step]), "token"), counted(int(log.rows[step]), "request")
        parts = [f"a step of {tokens} for {rows}{replayed(self.log, self.result.scenario, step)}"]
        parts.append(f"{int(log.running[step]):,} run, {int(log.waiting[step]):,} wait")
        if (blocks := getattr(self.rule, "kv_blocks", None)) is not None:
            parts.append(f"{int(log.kv_blocks[step]):,} of {blocks:,} blocks are taken")
        if preempted := int(log.preempted[step]):
            parts.append(f"{preempted:,} preempted")
        return [*parts, self.lines[self._lines[step]].because]

    def _progress(self, time_s: float) -> str:
        at = self._computed(time_s)
        if at is None:
            return "the server is idle"
        first = int(self._firsts[until(self._firsts, at) - 1])
        outputs = self.log.output_tokens[self.log.batch_index == self._own[first]]
        computes = f"the server computes a batch of {outputs.size:,}"
        made = at - first  # tokens of each request: one a step
        if not made:
            return f"{computes}, the prompts"
        done = np.count_nonzero(outputs <= made)
        return f"{computes}, token {made + 1:,} of {int(outputs.max()):,}, {done:,} done"


class SeatFilm(Film):
    """The seats of all servers, in a lane: its words are a part of a sentence about several runs.

    >>> from batchsim import Constant, Scenario, SizeOrWait, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), SizeOrWait(2, 50), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> SeatFilm(simulate(scenario, 2)).words(0.035)
    '0 waiting, 1 making tokens and 1 done'
    """

    def __init__(self, result: Result) -> None:
        self.seats = seats(result)
        super().__init__(result)
        status, rows = result.status, self.seats
        self._late_s = self.left_s[status == Status.TIMED_OUT]
        entered_s = self.arrival_s[status != Status.REJECTED]
        self._came_s = np.sort(np.append(entered_s, rows.end_s[rows.preempted]))
        self._went_s = np.sort(np.append(rows.begin_s, self._late_s))

    @kept
    def queue(self) -> QueueLength:
        times_s = np.unique(np.concatenate([self._came_s, self._went_s]))
        return QueueLength.between(times_s, self._came_s, self._went_s)

    @kept
    def busy(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """When each server computes: the begins and ends of its uninterrupted steps."""
        steps = self.result.steps
        own = [steps.server == server for server in range(self.servers)]
        return [spells(steps.start_s[which], steps.finish_s[which]) for which in own]

    @kept
    def instants(self) -> np.ndarray:
        rows = self.seats
        sat_s = rows.begin_s, rows.first_token_s, rows.last_token_s, rows.end_s
        return np.unique(np.concatenate([self.arrival_s, self._late_s, *sat_s]))

    def words(self, time_s: float, within_s: float = 0.0) -> str:
        rows, waiting = self.seats, until(self._came_s, time_s) - until(self._went_s, time_s)
        here = (rows.begin_s <= time_s) & (rows.end_s > time_s)
        prompts, done = here & (rows.first_token_s > time_s), here & (rows.last_token_s <= time_s)
        named = {"computing prompts": prompts, "making tokens": here & ~prompts & ~done, "done": done}
        counts = {name: np.count_nonzero(which) for name, which in named.items()}
        doing = [f"{count:,} {name}" for name, count in counts.items() if count]
        return f"{waiting:,} waiting, {listed(doing) if doing else 'all seats empty'}"


def life(result: Result, request: int) -> str:
    """Return what a request of token generation went through; `film.js` writes those of whole batches.

    >>> from batchsim import Constant, Scenario, SizeOrWait, StepTime, Tokens, simulate
    >>> scenario = Scenario(Constant(100), SizeOrWait(2, 50), StepTime(10, 0, 0), tokens=Tokens(9, [3, 1]))
    >>> print(life(simulate(scenario, 2), 0))
    Request 0 waited 10.0 ms for a seat, and received its first token 10.0 ms later (prefill of 9 tokens) ...
    """
    waited_ms = (result.start_s[request] - result.arrival_s[request]) * 1000
    prefill, decode, preempted, latency = (
        duration(float(getattr(result, f"{part}_ms")[request]))
        for part in ("prefill", "decode", "preempted", "latency")
    )
    prompt, others = int(result.prompt_tokens[request]), int(result.output_tokens[request]) - 1
    times = int(result.preemptions[request])
    tokens = f" and the other {others:,} in {decode} (decode)" if others else ""
    often = "once" if times == 1 else f"{times:,} times"
    again = f"; it was preempted {often}, for {preempted}" if times else ""
    return (
        f"Request {request:,} waited {duration(waited_ms)} for a seat, and received its first token "
        f"{prefill} later (prefill of {prompt:,} tokens){tokens}{again}: {latency} in all."
    )
