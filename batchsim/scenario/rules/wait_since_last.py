"""A timer that starts as the last batch ends, whether or not a request has come."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting
from batchsim.scenario.rules.running_window import SINCE_S, finished, hand_over


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send a full batch, or all that wait once enough time has passed since the last batch."""
    size, trigger = waiting.length, -1
    due_s = later(state[SINCE_S], params.max_wait_s)
    if size >= params.max_batch_size:
        size, trigger = params.max_batch_size, rule_api.FULL
    elif now_s >= due_s:
        trigger = rule_api.WAIT if now_s == due_s else rule_api.ENOUGH
        if params.max_wait_s == 0:
            trigger = rule_api.timer(now_s, waiting, 0.0)
    elif waiting.ended and params.max_wait_s == math.inf:
        trigger = rule_api.DRAIN
    if trigger < 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    hand_over(now_s, idle, state)
    return rule_api.START, size, trigger


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return when enough time has passed since the last batch."""
    return later(state[SINCE_S], params.max_wait_s)


@dataclass(frozen=True)
class WaitSinceLast(Rule):
    """A batch leaves when it is full, or `max_wait_ms` after the end of the batch before.

    A request that comes later than that leaves at once and alone; a request that waited for the server waits
    for the whole time again. `math.inf` means full batches only. One idle server collects at a time.

    >>> WaitSinceLast(max_batch_size=8, max_wait_ms=5)
    WaitSinceLast(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(  # type: ignore[misc]
        "How long after the end of the last batch a server collects the next", default=10.0
    )

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    state_size = 2
    title = "Wait since the last batch"
    used_by = "Ray Serve until mid-2023"
    clock = "the clock starts as the batch before ends"

    @property
    def steps(self) -> tuple[Step, ...]:
        ms = typed(self.max_wait_ms)
        over = f"the last batch ended {ms} ms ago"
        late = f"a request came more than {ms} ms after the last batch"
        return rule_api.send_full_or(
            self.max_batch_size, self.max_wait_ms,
            Step(over, "send all", Trigger.WAIT, over, "wait was over"),
            Step("it ended longer ago", "send all", Trigger.ENOUGH, late, "nothing to wait for"),
        )  # fmt: skip
