"""Batches of sizes that compute well: the largest preferred size, or all that wait once the timer ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from batchsim import _check
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting


@rule_api.helper
def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send the largest preferred size available, or all that wait once the oldest has waited."""
    for place in range(params.preferred.size - 1, -1, -1):
        size = params.preferred[place]
        if waiting.length >= size:
            return rule_api.START, size, rule_api.FULL if size == params.max_batch_size else rule_api.ENOUGH
    return rule_api.by_timer(now_s, waiting, waiting.length, params.max_wait_s)


@dataclass(frozen=True)
class PreferredSizes(Rule):
    """An idle server takes the largest preferred size available, or all that wait once the oldest has waited.

    Sizes above the largest preferred one are never sent; `max_batch_size` limits the values in `preferred`.
    `max_wait_ms` counts from the oldest request's arrival. `math.inf`: only preferred sizes leave, and the
    remainder at the end of the run.

    >>> PreferredSizes([4, 8], max_batch_size=8, max_wait_ms=5)
    PreferredSizes(preferred=(4, 8), max_batch_size=8, max_wait_ms=5)
    """

    preferred: tuple[int, ...] = parameter(
        "Preferred sizes", "A batch of such a size leaves as soon as it is complete, as 4, 8", type="sizes",
        usual=(8, 32),
    )  # fmt: skip
    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(default=10.0)  # type: ignore[misc]

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.deadline_s)
    title = "Preferred sizes or wait"
    clock = "the clock starts as the oldest request comes, and preferred sizes leave before"

    def check(self) -> None:
        _check.at_most("preferred sizes", self.preferred[-1], self.max_batch_size, "max_batch_size")

    def at(self, x: Any, y: Any) -> Self:
        # A smaller limit drops the preferred sizes above it.
        sizes = [size for size in self.preferred if size <= x]
        return replace(self, preferred=sizes, max_batch_size=x, max_wait_ms=y)  # type: ignore[arg-type]

    @property
    def enough(self) -> int:
        return self.preferred[0]

    @property
    def largest_batch(self) -> int:
        return self.preferred[-1]

    @property
    def steps(self) -> tuple[Step, ...]:
        # A trigger has one step: sizes below max_batch_size leave by the same.
        *smaller, largest = self.preferred
        steps = [send_preferred(self.preferred)]
        if largest == self.max_batch_size:
            steps = [rule_api.send_full(largest), *([send_preferred(smaller)] if smaller else [])]
        # If 1 is a preferred size, requests never wait for others.
        return tuple(steps) if self.enough == 1 else (*steps, *rule_api.send_after(self.max_wait_ms))


def send_preferred(sizes: Sequence[int]) -> Step:
    """Return the step of some preferred sizes: the largest available one leaves."""
    which = "" if len(sizes) == sizes[0] == 1 else " " + ", else ".join(f"{it:,}" for it in reversed(sizes))
    what, because = (
        f"{sizes[0]:,} or more wait",
        f"{sizes[0]:,} or more requests were waiting, a preferred size",
    )
    if sizes[0] == 1:
        what, because = rule_api.ANYONE, "a request waits, and one is a preferred size"
    return Step(what, f"send the oldest{which}", Trigger.ENOUGH, because, "preferred size")
