"""The textbook rule: a batch leaves when it is full, or when its oldest request has waited."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import later
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Threshold, Waiting


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send a full batch, or what waits once the oldest has waited."""
    if waiting.length >= params.max_batch_size:
        return rule_api.START, params.max_batch_size, rule_api.FULL
    # Deadlines are compared as times: (now - then) * 1000 >= wait can be false exactly at the deadline.
    due_s = later(rule_api.oldest_s(waiting), params.max_wait_s)
    if now_s >= due_s:
        return rule_api.START, waiting.length, rule_api.WAIT if now_s == due_s else rule_api.BACKLOG
    if waiting.ended and params.max_wait_s == math.inf:
        return rule_api.START, waiting.length, rule_api.DRAIN  # no timer would ever release the remainder
    return rule_api.NOTHING, 0, rule_api.FULL


@dataclass(frozen=True)
class SizeOrWait(Rule):
    """The textbook rule: a batch leaves when it is full or its oldest request has waited.

    `max_wait_ms` counts from the oldest request's arrival; `math.inf` means full batches only.

    >>> SizeOrWait(max_batch_size=8, max_wait_ms=5)
    SizeOrWait(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(default=10.0)  # type: ignore[misc]

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.deadline_s)
    title = "Size or wait"
    used_by = "textbook, Triton, TensorFlow Serving"
    clock = "the clock starts as the oldest request comes, and the batch grows until it leaves"

    @property
    def threshold(self) -> Threshold:
        return Threshold(self.max_wait_ms / 1000, self.max_batch_size, self.max_batch_size)

    @property
    def steps(self) -> tuple[Step, ...]:
        full = rule_api.send_full(self.max_batch_size)
        return (full,) if self.max_batch_size == 1 else (full, *rule_api.send_after(self.max_wait_ms))
