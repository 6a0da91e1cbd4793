"""A limit of a batch in units, the sizes of its requests: when it is full, and the parameters of rules."""

from typing import Any

from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules.rule import ENDLESS, Rule, Waiting, helper

LARGEST_LIMIT = 10**12  # units


@helper
def joins(count: int, longest: int, total: int, size: int, limit: int, summed: int) -> bool:
    """Return whether a request of a size may join a batch of others without breaking a limit in units."""
    units = total + size if summed else (count + 1) * max(longest, size)
    return count == 0 or units <= limit


@helper
def fitting(waiting: Waiting, most: int, limit: int, summed: int) -> tuple[int, bool]:
    """Return how many of the oldest requests fit into a batch, and whether no other may join these."""
    count = longest = total = 0
    while count < min(waiting.length, most):
        size = waiting.size[waiting.queue[waiting.head + count]]
        if not joins(count, longest, total, size, limit, summed):
            return count, True
        count, longest, total = count + 1, max(longest, size), total + size
    return count, count == most or not joins(count, longest, total, 1, limit, summed)


def max_batch_units() -> Any:
    """Return the field of rules that limit a batch by the sizes of its requests."""
    return parameter(
        "Max batch units", "A batch never holds more units than this, in the sizes of its requests",
        at_most=LARGEST_LIMIT, when_none="no limit", of_sizes=True, default=None, kw_only=True,
        slider=(1, 1e6, 0.01), log=True,
    )  # fmt: skip


def units() -> Any:
    """Return the field that says how such a limit counts."""
    return parameter(
        "Units", "How the limit counts: with padding, the number of requests times the longest; or the sum",
        type="word", words=("padded", "summed"), of_sizes=True, default="padded",
        kw_only=True,
    )  # fmt: skip


class Limited(Rule):
    """A rule that limits the units of a batch if `max_batch_units` is set, and reads sizes only then."""

    decides = False
    max_batch_units: int | None
    units: str

    @property
    def by_size(self) -> bool:  # type: ignore[override]
        return self.max_batch_units is not None

    @property
    def largest_size(self) -> int:
        return ENDLESS if self.max_batch_units is None else self.max_batch_units

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in self.parameters()}
        if not self.by_size:
            given = {name: value for name, value in given.items() if name not in ("max_batch_units", "units")}
        own = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"{type(self).__name__}({own})"
