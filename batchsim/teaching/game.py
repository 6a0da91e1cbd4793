"""Be the batcher: a student sends the batches of a fifth of a second, and compares with the best policy."""

import functools
import math
import random
import re
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._clock import on_grid
from batchsim._compat import kept
from batchsim.result import Result
from batchsim.scenario import Affine, AtLeast, Scenario, SizeOrWait, Trace
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Waiting
from batchsim.simulate import simulate
from batchsim.teaching import progress_store
from batchsim.teaching.output_capture import Act, WholeText
from batchsim.theory.optimum import Optimum, optimum

# The explorer's service time, at a third of its load: slowed 100 times, twenty seconds and some 33 batches.
RATE_PER_S, MAX_BATCH_SIZE, SERVICE, UNTIL_S = 800.0, 32, Affine(fixed_ms=5, per_item_ms=0.25), 0.2
MOST = 10_000  # sends
EXERCISE = r"\d\d\.\d+"


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send all that wait if Send was pressed while they waited, or if the time is over."""
    after_s = math.nextafter(state[0], math.inf) if state[0] else 0.0  # the last batch's start
    since_s = max(rule_api.oldest_s(waiting), after_s)
    sends_s = params.sends_s[np.searchsorted(params.sends_s, since_s) :]
    if now_s < UNTIL_S and not (sends_s.size and sends_s[0] <= now_s):
        return rule_api.NOTHING, 0, rule_api.FULL
    state[0] = now_s
    return rule_api.START, min(waiting.length, params.max_batch_size), rule_api.ENOUGH


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return the next time at which Send is pressed, or the end."""
    later_s = params.sends_s[np.searchsorted(params.sends_s, now_s, "right") :]
    return float(later_s[0]) if later_s.size and later_s[0] < UNTIL_S else UNTIL_S


@dataclass(frozen=True)
class ByHand(Rule):
    """A batch leaves when somebody presses Send, at `sends_s`, or later, as soon as the server is free."""

    sends_s: tuple[float, ...]
    max_batch_size: int = rule_api.max_batch_size(MAX_BATCH_SIZE)

    Params = namedtuple("Params", ["sends_s", "max_batch_size"])  # as a rule's own are
    decide, wake_s = staticmethod(decide), staticmethod(wake_s)
    state_size, compiled, title = 1, False, "By hand"

    @property
    def params(self) -> Any:
        return self.Params(np.array(self.sends_s, float), self.max_batch_size)


@functools.cache
def best() -> Optimum:
    """Return the best of all policies for the game's traffic."""
    return optimum(RATE_PER_S, SERVICE, MAX_BATCH_SIZE)


def rivals() -> dict[str, Rule]:
    """Return the rules that a student's sends are compared with; the last one is the best policy's."""
    waits = {"Wait of 10 ms": 10, "No wait": 0}
    least = best().control_limit
    if least is None:
        raise ValueError(f"the best policy of the game must have a control limit, got {best()!r}")
    rules = {name: SizeOrWait(MAX_BATCH_SIZE, wait_ms) for name, wait_ms in waits.items()}
    return {**rules, "Best possible policy": AtLeast(least, MAX_BATCH_SIZE)}


def arrivals(seed: str) -> Trace:
    """Return the requests of a game, the same for the same seed on every machine."""
    gaps_s = iter(functools.partial(random.Random(seed).expovariate, RATE_PER_S), None)
    times_s = takewhile(lambda at_s: at_s < UNTIL_S, accumulate(gaps_s))
    return Trace(np.array([on_grid(at_s) for at_s in times_s]))


def checked(sends_s: Any) -> tuple[float, ...]:
    """Return the times of sends on the clock's grid; TypeError or ValueError unless they rise."""
    if not _check.listed(sends_s) or len(sends_s) > MOST:
        raise TypeError(f"sends_s must be a list of at most {MOST:,} times in seconds, got {sends_s!r:.80}")
    found = [_check.real("a send in seconds", each, at_least=0, at_most=UNTIL_S) for each in sends_s]
    if sorted(found) != found:
        raise ValueError(f"sends_s must rise, got {found!r:.80}")
    return tuple(float(on_grid(each)) for each in found)


class Game:
    """The requests of a game, by its seed, and the runs that sends and the rivals make of them."""

    def __init__(self, seed: str) -> None:
        self.traffic = arrivals(seed)

    def run(self, rule: Rule) -> Result:
        """Return the run that a rule makes."""
        return simulate(Scenario(self.traffic, rule, SERVICE))

    @kept
    def rivals(self) -> list[dict[str, Any]]:
        return [_row(name, self.run(rule)) for name, rule in rivals().items()]

    def rows(self, sends_s: Sequence[float]) -> list[dict[str, Any]]:
        """Return the comparison, a row for each batcher: the student's first, the best policy's last."""
        return [_row("You", self.run(ByHand(checked(sends_s)))), *self.rivals]


def _row(name: str, result: Result) -> dict[str, Any]:
    forming_ms, p99_ms = result.summary()["mean_forming_ms"], result.percentile(99)
    times = {"mean_ms": result.mean_latency_ms, "p99_ms": p99_ms, "forming_ms": forming_ms}
    return {"name": name, **times, "batches": len(result.batches)}


class BeTheBatcher(WholeText, Act):
    """A game: send batches for twenty seconds, slowed 100 times, then compare with the best possible policy.

    Each Send takes all requests that wait, as soon as the server is free. At the end the rest leaves. Without
    `exercise` all students have the same requests. With it, such as "01.4", each student has other ones, and
    `check` judges the game. It works without a browser: `play` takes the times of the sends, in seconds.

    >>> game = be_the_batcher()
    >>> game.play([0.004, 0.015, 0.03, 0.05, 0.07, 0.1, 0.12, 0.15, 0.17])
    You                   mean 21.2 ms, p99 40.2 ms, 10 batches
    Wait of 10 ms         mean 13.4 ms, p99 18.6 ms, 19 batches
    No wait               mean 9.9 ms, p99 14.1 ms, 33 batches
    Best possible policy  mean 9.8 ms, p99 13.9 ms, 32 batches
    >>> game.result.mean_batch_size
    18.2
    """

    def __init__(self, exercise: str | None = None) -> None:
        if exercise is not None and not (isinstance(exercise, str) and re.fullmatch(EXERCISE, exercise)):
            raise ValueError(f"exercise must be its number, such as '01.4', got {exercise!r}")
        self.seed = "everybody"
        if exercise is not None:  # a change that changes nothing begins the record, so that its key lasts
            self.seed = seed_of(exercise, progress_store.change(lambda record: None).key)
        self.game = Game(self.seed)
        self.sends_s: tuple[float, ...] = ()
        arrival_s = self.game.traffic.times_s.tolist()
        seconds = [0.0, *map(SERVICE, range(1, MAX_BATCH_SIZE + 1))]
        setting = {"arrival_s": arrival_s, "seconds": seconds, "until_s": UNTIL_S}
        super().__init__("batcher", {"setting": setting, "least": best().control_limit})

    def play(self, sends_s: Sequence[float]) -> "BeTheBatcher":
        """Play with these times of sends; a send while no request waits does nothing."""
        self.answered = self.answer({"sends_s": sends_s})
        return self

    @property
    def result(self) -> Result:
        """The run that the sends made; ValueError before the game."""
        if not self.sends_s:
            raise ValueError("play first: press Start, and then Send, or call play() with the times of sends")
        return self.game.run(ByHand(self.sends_s))

    def answer(self, done: dict[str, Any]) -> dict[str, Any]:
        self.sends_s = checked(done["sends_s"])
        return {"rows": self.game.rows(self.sends_s)}

    def __repr__(self) -> str:
        if not self.answered:
            how = "press Start, and for twenty seconds Send, which dispatches a batch"
            return f"Be the batcher: run this cell, {how}."
        lines = "{name:<22}mean {mean_ms:.1f} ms, p99 {p99_ms:.1f} ms, {batches} batches"
        return "\n".join(lines.format(**row) for row in self.answered["rows"])


def seed_of(exercise: str, key: str) -> str:
    """Return the seed of a student's requests in an exercise, from the key of the student's record."""
    return f"{key} {exercise}"


be_the_batcher = BeTheBatcher
