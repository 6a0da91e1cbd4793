"""Batches that form in a loop that stalls while one of them computes."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._format import typed
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.frozen_batches import DUE_S, FORMS, SEEN_S, close_batch
from batchsim.scenario.rules.rule import ENDLESS, Decision, Rule, Step, Trigger, Waiting


@rule_api.helper
def entered(waiting: Waiting, state: Any, most: int) -> int:
    """Return how many waiting requests had come when the last batch started, up to `most` + 1; all if 0."""
    count, most = 0, min(most + 1, waiting.length)
    while state[FORMS] == 1 and count < most and rule_api.oldest_s(waiting, count) <= state[SEEN_S]:
        count += 1
    return count if count > 0 else waiting.length


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Freeze batches as `FrozenBatches` does, but only while a server is idle; start the oldest."""
    if idle == 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    if params.max_wait_s == 0:
        # The requests that did not fit into a batch open the next one. It closes once the first batch is
        # computed, before later requests get in.
        count = entered(waiting, state, params.max_batch_size)
        size = min(count, params.max_batch_size)
        state[FORMS], state[SEEN_S] = int(size < count), rule_api.oldest_s(waiting, waiting.length - 1)
        if size == params.max_batch_size:
            return rule_api.START, size, rule_api.FULL
        return rule_api.by_timer(now_s, waiting, size, 0.0)
    size, trigger = close_batch(now_s, waiting, math.inf, ENDLESS, 0, state, params)
    if trigger >= 0:
        return rule_api.FREEZE, size, trigger
    if waiting.frozen > 0:
        return rule_api.START, 0, rule_api.FULL
    return rule_api.NOTHING, 0, rule_api.FULL


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return when the forming batch has waited, if the loop runs."""
    return state[DUE_S] if idle > 0 and state[FORMS] == 1 and waiting.length > 0 else math.inf


@dataclass(frozen=True)
class StalledBatches(Rule):
    """Batches close as `FrozenBatches` do, but in a loop that stalls while one of them computes.

    Requests that come meanwhile get in when the loop continues. Then batches close that are full or have
    waited, and the first of them computes before other requests get in. The wait counts from the moment at
    which a batch gets its first request: before the stall, if more had come than one batch holds. With
    `max_wait_ms=0` the requests that did not fit leave next, without later ones.

    >>> StalledBatches(max_batch_size=8, max_wait_ms=5)
    StalledBatches(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(default=10.0, may_be_inf=False)  # type: ignore[misc]

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    state_size = 4
    freezes = True
    asked_while_busy = False
    title = "Blocking handler"
    used_by = "Ray Serve"

    @property
    def steps(self) -> tuple[Step, ...]:
        full = rule_api.send_full(self.max_batch_size)
        if self.max_batch_size == 1:
            return (full,)
        if self.max_wait_ms == 0:
            return full, *rule_api.send_at_once(Trigger.WAIT, "send all, first who did not fit")
        over = f"a batch opened {typed(self.max_wait_ms)} ms ago"
        because = f"its first had got in {typed(self.max_wait_ms)} ms before, or earlier"
        return full, Step(over, "send all", Trigger.WAIT, because, "wait was over")
