"""The textbook rule: a batch leaves when it is full, or when its oldest request has waited."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import later
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import ENDLESS, Decision, Rule, Step, Threshold, Waiting

LARGEST_LIMIT = 10**12  # units


@rule_api.helper
def joins(count: int, longest: int, total: int, size: int, limit: int, summed: int) -> bool:
    """Return whether a request of a size may join a batch of others without breaking a limit in units."""
    units = total + size if summed else (count + 1) * max(longest, size)
    return count == 0 or units <= limit


@rule_api.helper
def fitting(waiting: Waiting, most: int, limit: int, summed: int) -> tuple[int, bool]:
    """Return how many of the oldest requests fit into a batch, and whether no other may join these."""
    count = longest = total = 0
    while count < min(waiting.length, most):
        size = waiting.size[waiting.queue[waiting.head + count]]
        if not joins(count, longest, total, size, limit, summed):
            return count, True
        count, longest, total = count + 1, max(longest, size), total + size
    return count, count == most or not joins(count, longest, total, 1, limit, summed)


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send a full batch, or what waits once the oldest has waited."""
    if params.max_batch_units < ENDLESS:
        size, full = fitting(waiting, params.max_batch_size, params.max_batch_units, params.units)
    else:
        size = min(waiting.length, params.max_batch_size)
        full = size == params.max_batch_size
    if full:
        return rule_api.START, size, rule_api.FULL
    # Deadlines are compared as times: (now - then) * 1000 >= wait can be false exactly at the deadline.
    due_s = later(rule_api.oldest_s(waiting), params.max_wait_s)
    if now_s >= due_s:
        return rule_api.START, size, rule_api.WAIT if now_s == due_s else rule_api.BACKLOG
    if waiting.ended and params.max_wait_s == math.inf:
        return rule_api.START, size, rule_api.DRAIN  # no timer would ever release the remainder
    return rule_api.NOTHING, 0, rule_api.FULL


def max_batch_units() -> Any:
    """Return the field of rules that limit a batch by the sizes of its requests."""
    return parameter(
        "Max batch units", "A batch never holds more units than this, in the sizes of its requests",
        at_most=LARGEST_LIMIT, may_be_none=True, of_sizes=True, default=None, kw_only=True,
    )  # fmt: skip


def units() -> Any:
    """Return the field that says how such a limit counts."""
    return parameter(
        "Units", "How the limit counts: with padding, the number of requests times the longest; or the sum",
        kind="word", words=("padded", "summed"), of_sizes=True, default="padded",
        kw_only=True,
    )  # fmt: skip


@dataclass(frozen=True, repr=False)
class SizeOrWait(Rule):
    """The textbook rule: a batch leaves when it is full or its oldest request has waited.

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
    wake_s = staticmethod(rule_api.deadline_s)
    title = "Size or wait"
    used_by = "textbook, Triton, TensorFlow Serving"
    clock = "the clock starts as the oldest request comes, and the batch grows until it leaves"

    @property
    def by_size(self) -> bool:  # type: ignore[override]
        return self.max_batch_units is not None

    @property
    def largest_size(self) -> int:
        return ENDLESS if self.max_batch_units is None else self.max_batch_units

    @property
    def threshold(self) -> Threshold | None:
        return None if self.by_size else self.filling

    @property
    def filling(self) -> Threshold:
        """The rule without its limit in units."""
        return Threshold(self.max_wait_ms / 1000, self.max_batch_size, self.max_batch_size)

    @property
    def steps(self) -> tuple[Step, ...]:
        size, limit = self.max_batch_size, self.max_batch_units
        full = rule_api.send_full(size)
        if size == 1:
            return (full,)
        if limit is not None:
            because = f"{size:,} requests wait, or the next one would exceed {limit:,} units"
            condition = f"{size:,} wait, or {limit:,} units"
            full = dataclasses.replace(full, condition=condition, action="send these", because=because)
        return (full, *rule_api.send_after(self.max_wait_ms))

    def __repr__(self) -> str:
        own = f"max_batch_size={self.max_batch_size!r}, max_wait_ms={self.max_wait_ms!r}"
        limit = f", max_batch_units={self.max_batch_units!r}, units={self.units!r}" if self.by_size else ""
        return f"{type(self).__name__}({own}{limit})"
