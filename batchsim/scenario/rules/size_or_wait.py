"""The textbook rule: a batch leaves when it is full, or when its oldest request has waited."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchsim._format import typed
from batchsim.scenario.rules import rule as seam
from batchsim.scenario.rules.rule import (
    BACKLOG,
    DRAIN,
    FULL,
    NOTHING,
    START,
    WAIT,
    Decision,
    Rule,
    Step,
    Threshold,
    Trigger,
    Waiting,
    oldest_s,
)  # fmt: skip


class SizeOrWaitParams(NamedTuple):
    """The parameters of `SizeOrWait`, the wait in seconds."""

    max_batch_size: int
    max_wait_s: float


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: SizeOrWaitParams) -> Decision:
    """Send a full batch, or what waits once the oldest has waited."""
    if waiting.length >= params.max_batch_size:
        return START, params.max_batch_size, FULL
    # A deadline is compared as a time: (now - then) * 1000 >= wait can be false at the very deadline.
    due_s = oldest_s(waiting) + params.max_wait_s
    if now_s >= due_s:
        return START, waiting.length, WAIT if now_s == due_s else BACKLOG
    if waiting.ended and params.max_wait_s == math.inf:
        return START, waiting.length, DRAIN  # no timer would ever release the remainder
    return NOTHING, 0, FULL


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: SizeOrWaitParams) -> float:
    """Return the deadline of the oldest request."""
    return oldest_s(waiting) + params.max_wait_s


@dataclass(frozen=True)
class SizeOrWait(Rule):
    """The textbook rule: a batch leaves when it is full or its oldest request has waited.

    `max_wait_ms` counts from the oldest request's arrival; `math.inf` means full batches only.

    >>> SizeOrWait(max_batch_size=8, max_wait_ms=5)
    SizeOrWait(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = seam.max_batch_size(default=32)
    max_wait_ms: float = seam.max_wait_ms(default=10.0)  # type: ignore[misc]

    Params = SizeOrWaitParams
    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    title = "Size or wait (textbook)"

    @property
    def params(self) -> SizeOrWaitParams:
        return SizeOrWaitParams(self.max_batch_size, self.max_wait_ms / 1000)

    @property
    def threshold(self) -> Threshold:
        return Threshold(self.max_wait_ms / 1000, self.max_batch_size, self.max_batch_size)

    @property
    def steps(self) -> tuple[Step, ...]:
        size, wait_ms = self.max_batch_size, self.max_wait_ms
        if size == 1:
            full = Step("a request waits", "send it", Trigger.FULL, "one request is a full batch", "full")
            return (full,)
        full = seam.send_full(size)
        if wait_ms == 0:
            return (full, *seam.send_at_once(Trigger.WAIT))
        if math.isinf(wait_ms):
            return (full, seam.send_remainder())
        return (full, *seam.send_after(f"{typed(wait_ms)} ms"))
