"""When a batch leaves: the rules."""

import math
from dataclasses import dataclass
from typing import ClassVar

from batchsim import _check

LARGEST_BATCH = 65_536


class Rule:
    """What every rule says: the largest batch, how many are enough, and how long to wait.

    An idle server takes the oldest `max_batch_size` requests, or as many as there are, as soon
    as `enough` wait, or the oldest has waited `max_wait_ms` (inf: for ever).
    """

    max_batch_size: int
    max_wait_ms: float

    @property
    def enough(self) -> int:
        """How many waiting requests make a batch leave at once."""
        raise NotImplementedError


@dataclass(frozen=True)
class SizeOrWait(Rule):
    """The textbook rule: a batch leaves when it is full or its oldest request has waited.

    `max_wait_ms` counts from the oldest request's arrival; `math.inf` means full batches only.

    >>> SizeOrWait(max_batch_size=8, max_wait_ms=5)
    SizeOrWait(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = 32
    max_wait_ms: float = 10.0

    def __post_init__(self) -> None:
        _check.fix_whole(self, "max_batch_size", at_most=LARGEST_BATCH)
        _check.fix_real(self, "max_wait_ms", at_least=0, finite=False)

    @property
    def enough(self) -> int:
        return self.max_batch_size


@dataclass(frozen=True)
class AtLeast(Rule):
    """Serve when `min_batch_size` wait, at most `max_batch_size` together: Neuts' (a, b) rule.

    >>> AtLeast(4, 8)
    AtLeast(min_batch_size=4, max_batch_size=8)
    """

    min_batch_size: int
    max_batch_size: int
    max_wait_ms: ClassVar[float] = math.inf  # type: ignore[misc]

    def __post_init__(self) -> None:
        _check.fix_whole(self, "min_batch_size", at_most=LARGEST_BATCH)
        _check.fix_whole(self, "max_batch_size", at_most=LARGEST_BATCH)
        if self.min_batch_size > self.max_batch_size:
            raise ValueError(
                f"min_batch_size must be at most max_batch_size, {self.max_batch_size}, "
                f"got {self.min_batch_size}"
            )

    @property
    def enough(self) -> int:
        return self.min_batch_size
