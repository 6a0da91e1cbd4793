"""The textbook rule: a batch leaves when it is full, or when its oldest request has waited `max_wait_ms`.

The general loop asks `decide` whenever something happens while a server is idle, and again at the time that
`wake_s` returned: here the deadline of the oldest request. Python runs both, and Numba compiles
them. A decision is an action, the number of the oldest requests that it takes, and the trigger, which is why.
`state` is the memory of rules that have one.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import (
    ENDLESS,
    Decision,
    LimitedBatches,
    Step,
    Threshold,
    Waiting,
    fitting,
    max_batch_units,
    units,
)


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send a full batch, or what waits once the oldest has waited."""
    if params.max_batch_units < ENDLESS:
        # How many of the oldest fit, and whether no other would.
        size, full = fitting(waiting, params.max_batch_size, params.max_batch_units, params.units)
    else:
        size = min(waiting.length, params.max_batch_size)
        full = size == params.max_batch_size
    if full:
        return rule_api.START, size, rule_api.FULL
    # Start if now_s >= the deadline: the trigger is WAIT at it, and BACKLOG after it, as no server was idle.
    return rule_api.by_timer(now_s, waiting, size, params.max_wait_s)


@dataclass(frozen=True, repr=False)
class SizeOrWait(LimitedBatches):
    """The textbook rule: a batch leaves when it is full or its oldest request has waited `max_wait_ms`.

    `max_wait_ms` counts from the oldest request's arrival; `math.inf` means full batches only.

    `max_batch_units` limits the sizes of a batch's requests: their number times the longest ("padded"), or
    their sum (`units="summed"`). A batch takes requests in order until the next one, however small, would
    break a limit: then it is full. The scenario's `oversize_action` says what becomes of a request that alone
    exceeds it.

    >>> SizeOrWait(max_batch_size=8, max_wait_ms=5)
    SizeOrWait(max_batch_size=8, max_wait_ms=5)
    >>> SizeOrWait(8, 5, max_batch_units=4096, units="summed")
    SizeOrWait(max_batch_size=8, max_wait_ms=5, max_batch_units=4096, units='summed')
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(default=10.0)  # type: ignore[misc]
    max_batch_units: int | None = max_batch_units()
    units: str = units()

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.deadline_s)  # later(oldest_s(waiting), params.max_wait_s)
    title = "Size or wait"
    used_by = "textbook, Triton, TensorFlow Serving"
    clock = "the clock starts as the oldest request comes, and the batch grows until it leaves"

    @property
    def threshold(self) -> Threshold | None:
        """The rule in three numbers, for the fast loop; None if it reads sizes."""
        return None if self.by_size else self.count_threshold

    @property
    def unit_limit(self) -> tuple[int, int]:
        """The most units of a batch, and whether they are the sum of its sizes."""
        return self.largest_size, int(self.units == "summed")

    @property
    def count_threshold(self) -> Threshold:
        """A wait, how many requests end it, and how many leave at most."""
        size = self.max_batch_size
        return Threshold(wait_s=self.max_wait_ms / 1000, enough=size, largest=size)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The rule in words: conditions and actions of its pseudo-code, and the reasons why batches leave."""
        size, limit = self.max_batch_size, self.max_batch_units
        full = rule_api.send_full(size)
        if size == 1:
            return (full,)
        if limit is not None:
            because = f"{size:,} requests have gathered, or the next one would exceed {limit:,} units"
            condition = f"{size:,} wait, or {limit:,} units"
            full = dataclasses.replace(full, condition=condition, action="send these", because=because)
        return (full, *rule_api.send_after(self.max_wait_ms))
