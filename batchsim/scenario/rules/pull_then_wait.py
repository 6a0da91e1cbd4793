"""A free server takes the oldest request first, and only then waits for more."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting

# In `state`: whether a server collects, until when, and the arrival of the last request that it has seen.
COLLECTS, DUE_S, SEEN_S = 0, 1, 2


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send a full batch, or all that wait once the collecting server has waited."""
    if waiting.length >= params.max_batch_size:
        state[COLLECTS] = 0
        return rule_api.START, params.max_batch_size, rule_api.FULL
    oldest_s = rule_api.oldest_s(waiting)
    # If the oldest is new, all seen requests have timed out, and the server starts to collect again.
    if state[COLLECTS] == 0 or oldest_s > state[SEEN_S]:
        state[COLLECTS], state[DUE_S] = 1, later(now_s, params.max_wait_s)
    state[SEEN_S] = rule_api.oldest_s(waiting, waiting.length - 1)
    trigger = -1
    if now_s >= state[DUE_S]:
        # With a wait of 0 the server takes all that wait, at once or when it is free.
        trigger = rule_api.BACKLOG if params.max_wait_s == 0 and oldest_s < now_s else rule_api.WAIT
    elif waiting.ended and params.max_wait_s == math.inf:
        trigger = rule_api.DRAIN
    if trigger < 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    state[COLLECTS] = 0
    return rule_api.START, waiting.length, trigger


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return when the collecting server has waited."""
    return state[DUE_S]


@dataclass(frozen=True)
class PullThenWait(Rule):
    """A free server takes the oldest request, and only then waits for others.

    `max_wait_ms` counts from the moment at which the server takes its first request, which may have waited
    before; `math.inf` means full batches only. One idle server collects at a time.

    >>> PullThenWait(max_batch_size=8, max_wait_ms=5)
    PullThenWait(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(  # type: ignore[misc]
        "How long a free server, once it has a request, waits for others to join the batch", default=10.0
    )

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    state_size = 3
    title = "Pull, then wait"
    used_by = "TorchServe, KServe"
    clock = "the clock starts as a free server takes a request, however long that has waited"

    @property
    def steps(self) -> tuple[Step, ...]:
        over = f"a server has waited {typed(self.max_wait_ms)} ms"
        because = f"{over} since it took the oldest"
        step = Step(over, "send all", Trigger.WAIT, because, "server's wait was over")
        return rule_api.send_full_or(self.max_batch_size, self.max_wait_ms, step)
