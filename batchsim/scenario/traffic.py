"""The common part of all workloads: the priority level and the size of each request."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from batchsim import _check
from batchsim.scenario import priorities as levels
from batchsim.scenario.lengths import Lengths, Listed, whole_lengths
from batchsim.scenario.parameters import Described
from batchsim.scenario.priorities import Shares

UNIT = "tokens"  # of sizes


@dataclass(frozen=True)
class Traffic(Described):
    """The common part of all workloads: a level and a size drawn for each request, and defaults."""

    title: ClassVar[str] = ""  # its name in the explorer's list

    priorities: Shares | None = field(default=None, kw_only=True, repr=False)
    sizes: Lengths | None = field(default=None, kw_only=True, repr=False)
    size_unit: str = field(default=UNIT, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.priorities is not None:
            object.__setattr__(self, "priorities", levels.check(self.priorities))
        if self.sizes is not None and _check.listed(self.sizes):
            object.__setattr__(self, "sizes", Listed(whole_lengths("sizes", self.sizes)))
        _check.instance("sizes", self.sizes, (Lengths, type(None)), "lengths, such as Lognormal(80, cv=1)")
        _check.instance("size_unit", self.size_unit, str, 'a word, such as "tokens"')

    @property
    def of_requests(self) -> dict[str, Any]:
        """The fields that do not change when requests arrive."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(Traffic)}

    @property
    def max_requests(self) -> int | None:
        """The number of requests with a size, None if unlimited."""
        return self.sizes.max_requests if isinstance(self.sizes, Listed) else None

    @property
    def day(self) -> Any:
        """The day that the arrival rate follows again and again; None for other traffic."""
        return None

    def rates_per_s(self, first: int, requests: int) -> np.ndarray:
        """Return the arrival rate along `requests` after the `first` ones; empty if it is steady."""
        return np.empty(0)

    def with_priorities(self, shares: Mapping[int, float]) -> Self:
        """Return this traffic with a priority level for each request, {level: share of the requests}.

        Level 1 is served first, and the oldest first within a level. Levels are whole numbers from 1 to 255;
        their shares are positive and sum to 1.

        >>> from batchsim import Poisson
        >>> Poisson(900).with_priorities({1: 0.2, 2: 0.8})
        Poisson(rate_per_s=900).with_priorities({1: 0.2, 2: 0.8})
        """
        return dataclasses.replace(self, priorities=shares)  # type: ignore[arg-type]  # made a tuple

    def with_sizes(self, sizes: Lengths | Sequence[int], unit: str = UNIT) -> Self:
        """Return this traffic with a size for each request, in whole units named `unit`.

        `sizes` is a distribution, or a list in order of arrival. A service time may depend on the sizes of
        its batch, as `PaddedTime`, and a rule may limit them.

        >>> from batchsim import Lognormal, Poisson
        >>> Poisson(900).with_sizes(Lognormal(80, cv=1, at_most=512))
        Poisson(rate_per_s=900).with_sizes(Lognormal(mean=80, cv=1, at_most=512))
        """
        return dataclasses.replace(self, sizes=sizes, size_unit=unit)  # type: ignore[arg-type]  # made lengths

    def __repr__(self) -> str:
        own = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if not f.kw_only)
        return f"{type(self).__name__}({', '.join(own)})" + self._suffix()

    def _suffix(self) -> str:
        unit = "" if self.size_unit == UNIT else f", {self.size_unit!r}"
        sizes = "" if self.sizes is None else f".with_sizes({self.sizes!r}{unit})"
        return ("" if self.priorities is None else f".with_priorities({dict(self.priorities)})") + sizes
