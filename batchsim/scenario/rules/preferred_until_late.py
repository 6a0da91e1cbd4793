"""Preferred sizes until the oldest request is late, then all that wait."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.rules import preferred_sizes
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.preferred_sizes import PreferredSizes, send_preferred
from batchsim.scenario.rules.rule import Decision, Step, Trigger, Waiting


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send all once the oldest has waited; before that, the largest preferred size available."""
    # With a wait of 0 requests are never late.
    if params.max_wait_s > 0 and now_s >= later(rule_api.oldest_s(waiting), params.max_wait_s):
        if waiting.length >= params.max_batch_size:
            return rule_api.START, params.max_batch_size, rule_api.FULL
        return rule_api.by_timer(now_s, waiting, waiting.length, params.max_wait_s)
    return preferred_sizes.decide(now_s, waiting, idle, state, params)


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
