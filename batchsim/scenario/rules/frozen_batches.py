"""Batches that form whether or not a server is free, and then wait for one unchanged."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import (
    ENDLESS,
    Decision,
    LimitedBatches,
    Step,
    Trigger,
    Waiting,
    fitting,
    max_batch_units,
    units,
)

# In `state`: the number of requests in frozen batches or computing; whether a batch forms, until when, and
# the arrival of the last request that the batcher has seen.
INSIDE, FORMS, DUE_S, SEEN_S = 0, 1, 2, 3


@rule_api.helper
def close_batch(
    now_s: float, waiting: Waiting, room: float, limit: int, summed: int, state: Any, params: Any
) -> tuple[int, int]:
    """Return the size of the forming batch, at most `room`, and why it closes now, -1 if it does not.

    `limit` is that in units, on their sum if `summed`; ENDLESS: none.
    """
    size, trigger = int(min(float(waiting.length), room)), -1
    most, full = params.max_batch_size, False
    if limit < ENDLESS:
        fit, full = fitting(waiting, most, limit, summed)
        size, full = min(size, fit), full and fit <= size
    if size >= most or (full and size > 0):
        size, trigger = min(size, most), rule_api.FULL
    elif size > 0:
        # If the oldest is new, all seen requests have timed out, and another batch forms.
        if state[FORMS] == 0 or rule_api.oldest_s(waiting) > state[SEEN_S]:
            state[FORMS], state[DUE_S] = 1, later(now_s, params.max_wait_s)
        state[SEEN_S] = rule_api.oldest_s(waiting, waiting.length - 1)
        if now_s >= state[DUE_S]:
            trigger = rule_api.WAIT
        elif waiting.ended and params.max_wait_s == math.inf and size == waiting.length:
            trigger = rule_api.DRAIN
    if trigger >= 0:
        state[FORMS] = 0
    return size, trigger


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Freeze a full batch, or all inside once the first has waited; start the oldest frozen one."""
    room, limit, summed = params.max_ongoing - state[INSIDE], params.max_batch_units, params.units
    size, trigger = close_batch(now_s, waiting, room, limit, summed, state, params)
    if trigger >= 0:
        state[INSIDE] += size
        return rule_api.FREEZE, size, trigger
    if idle > 0 and waiting.frozen > 0:
        return rule_api.START, 0, rule_api.FULL
    return rule_api.NOTHING, 0, rule_api.FULL


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return when the forming batch has waited."""
    return state[DUE_S] if state[FORMS] == 1 and waiting.length > 0 else math.inf


def finished(now_s: float, size: int, seconds: float, state: Any, params: Any) -> None:
    """Let other requests inside."""
    state[INSIDE] -= size


@dataclass(frozen=True, repr=False)
class FrozenBatches(LimitedBatches):
    """A batch closes when it is full or its oldest has waited; later requests do not join it.

    Closed, or frozen, batches queue for a server unchanged: in a busy spell they pile up instead of growing.
    So too short a wait overloads a server that would keep up with larger batches
    (`batchsim.theory.frozen_wait_min_ms`, `Scenario.stable`). `math.inf` means full batches only.

    At most `max_ongoing` requests are inside: in the forming batch, frozen or computing. The others wait
    until one of these is answered, and `max_wait_ms` counts from the moment at which a batch's first gets
    inside. `max_batch_units` is a limit in units, as of `SizeOrWait`.

    >>> from batchsim import Affine, Poisson, Scenario
    >>> scenario = Scenario(Poisson(2000), FrozenBatches(32, max_wait_ms=2.2), Affine(1.8874, 0.1438))
    >>> scenario.stable, scenario.replace(max_wait_ms=2.1).stable
    (True, False)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(default=10.0)  # type: ignore[misc]
    max_ongoing: float = parameter(
        "Max ongoing", "How many requests may be in batches, formed or computed, at once", type="real",
        at_least=1, may_be_inf=True, usual=math.inf, default=math.inf,
    )  # fmt: skip
    max_batch_units: int | None = max_batch_units()
    units: str = units()

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    state_size = 4
    freezes = forms_while_busy = True
    title = "Batches close in advance"
    used_by = "Ray Serve"
    clock = "the clock starts as a request is taken, server busy or not, and closed batches do not grow"

    def check(self) -> None:
        if math.isfinite(self.max_ongoing):
            _check.whole("max_ongoing", self.max_ongoing)
            if math.isinf(self.max_wait_ms) and self.max_ongoing < self.max_batch_size:
                rule = f"max_ongoing must be at least max_batch_size, {self.max_batch_size}, without a timer"
                raise ValueError(f"{rule}: other batches are never full, got {self.max_ongoing}")

    @property
    def largest_batch(self) -> int:
        return int(min(self.max_batch_size, self.max_ongoing))

    @property
    def enough(self) -> int:
        return self.largest_batch

    def carried_per_s(self, rate_per_s: float, seconds: np.ndarray, servers: int) -> float:
        """Return the rate at which servers compute the batches that form under Poisson arrivals.

        A batch is the request that opens it and up to B - 1 that come within the wait; other traffic counts
        as Poisson. See `batchsim.theory.frozen_load`. With `max_ongoing` below a full batch, these requests
        form a batch, wait and compute again and again (in several batches too, which is neglected). Otherwise
        it limits the number of servers that can compute full batches.
        """
        most, size = self.max_ongoing, self.max_batch_size
        if most >= size:
            return self._formed_per_s(rate_per_s, seconds, int(min(servers, most // size)))
        formed = self._formed_per_s(rate_per_s, seconds, servers)
        return min(formed, float(most / (self.max_wait_ms / 1000 + seconds[-1])))

    def _formed_per_s(self, rate_per_s: float, seconds: np.ndarray, servers: int) -> float:
        size, joined = seconds.size, rate_per_s * self.max_wait_ms / 1000 if self.max_wait_ms else 0.0
        if math.isinf(joined) or size == 1:
            return super().carried_per_s(rate_per_s, seconds, servers)
        if joined == 0:
            return float(servers / seconds[0])
        # The logarithms of Poisson's probabilities that 0, 1, ... size - 2 join; the rest is a full batch.
        logs = np.cumsum(np.append(-joined, math.log(joined) - np.log(np.arange(1, size - 1))))
        odds = np.exp(logs)
        odds = np.append(odds, max(0.0, 1 - odds.sum()))
        return float(servers * (odds @ np.arange(1, size + 1)) / (odds @ seconds))

    @property
    def steps(self) -> tuple[Step, ...]:
        size, wait_ms = self.max_batch_size, self.max_wait_ms
        limited = self.max_ongoing < math.inf  # then a request may have to wait outside
        anyone = f"one waits, under {typed(self.max_ongoing)} ongoing" if limited else rule_api.ANYONE
        if size == 1:
            one = Step(anyone, "freeze it", Trigger.FULL, "one request is a full batch", "full")
            return (one,)
        because = f"{size:,} requests were a full batch, and later ones do not join"
        full = [Step(f"{size:,} or more wait", f"freeze the oldest {size:,}", Trigger.FULL, because, "full")]
        if self.max_ongoing < size:
            full = []
        if math.isinf(wait_ms):
            return *full, replace(rule_api.REMAINDER, action="freeze all")
        over = anyone if wait_ms == 0 else f"the oldest has waited {typed(wait_ms)} ms"
        because = (
            "no batch waits for company" if wait_ms == 0 else f"its oldest had waited {typed(wait_ms)} ms"
        )
        return *full, Step(over, "freeze all", Trigger.WAIT, because, "wait was over")
