"""Preferred sizes until the oldest request is late, then all that wait."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.preferred_sizes import PreferredSizes, send_preferred
from batchsim.scenario.rules.rule import Decision, Step, Trigger, Waiting


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send all once the oldest has waited; before that, the largest preferred size available."""
    pending = min(waiting.length, params.max_batch_size)
    oldest_s = rule_api.oldest_s(waiting)
    due_s = later(oldest_s, params.max_wait_s)
    # With a wait of 0 requests are never late.
    if params.max_wait_s > 0 and now_s >= due_s:
        if pending == params.max_batch_size:
            return rule_api.START, pending, rule_api.FULL
        return rule_api.START, pending, rule_api.WAIT if now_s == due_s else rule_api.BACKLOG
    for place in range(params.preferred.size - 1, -1, -1):
        size = params.preferred[place]
        if pending >= size:
            return rule_api.START, size, rule_api.FULL if size == params.max_batch_size else rule_api.ENOUGH
    if params.max_wait_s == 0:
        return rule_api.START, pending, rule_api.WAIT if oldest_s == now_s else rule_api.BACKLOG
    if waiting.ended and params.max_wait_s == math.inf:
        return rule_api.START, pending, rule_api.DRAIN
    return rule_api.NOTHING, 0, rule_api.FULL


@dataclass(frozen=True)
class PreferredUntilLate(PreferredSizes):
    """An idle server takes the largest preferred size available, or all that wait once the oldest is late.

    A request is late after `max_wait_ms`, for example because all servers compute. Then all that wait leave,
    up to `max_batch_size`. With a wait of 0 requests are never late, and fewer than any preferred size leave
    at once. `math.inf`: only preferred sizes leave, and the remainder at the end of the run.

    >>> PreferredUntilLate([4, 8], max_batch_size=8, max_wait_ms=5)
    PreferredUntilLate(preferred=(4, 8), max_batch_size=8, max_wait_ms=5)
    """

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.deadline_s)
    title = "Preferred batch sizes"
    used_by = "Triton"

    @property
    def largest_batch(self) -> int:
        return self.max_batch_size if 0 < self.max_wait_ms < math.inf else self.preferred[-1]

    @property
    def steps(self) -> tuple[Step, ...]:
        # A trigger has one step: sizes below max_batch_size leave by the same.
        size, wait_ms = self.max_batch_size, self.max_wait_ms
        smaller = [each for each in self.preferred if each < size]
        preferred = [send_preferred(smaller)] if smaller else []
        full = [rule_api.send_full(size)] if size in self.preferred else []
        if wait_ms in (0, math.inf):  # requests are never late; 1 may be a preferred size
            return (*full, *preferred, *(() if self.enough == 1 else rule_api.send_after(wait_ms)))
        if not full:
            because = (
                f"{size:,} requests wait, a full batch, of which the oldest had waited {typed(wait_ms)} ms"
            )
            late = f"{size:,} or more wait and one is late"
            full = [Step(late, f"send the oldest {size:,}", Trigger.FULL, because, "full")]
        return (*full, *(rule_api.send_after(wait_ms) if size > 1 else ()), *preferred)
