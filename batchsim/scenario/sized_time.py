"""Service times that depend on the sizes of a batch's requests: padded, packed, or a measured table.

A batch takes the seconds of its count, as of any service time, and those of its units. `extra_s` is the only
spelling of the second part: Python runs it, and Numba compiles it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from batchsim import _check
from batchsim._compat import repeat
from batchsim._format import brief
from batchsim.scenario.lengths import LONGEST, whole_lengths
from batchsim.scenario.parameters import LARGEST_BATCH, parameter
from batchsim.scenario.service import Service, cost, fixed_ms, per_item_ms, per_pair_ms


class UnitCost(NamedTuple):
    """How the time of a batch depends on its requests' sizes, as engines take it; without `rows`, not."""

    rows: Any  # by batch size: the requests that are computed, with padding; empty: sizes change nothing
    packed: bool  # whether a batch computes the sum of its sizes, rather than rows * longest
    unit_s: float  # for each unit that is computed
    pair_s: float  # for each pair of units of one request
    edges: Any  # lengths to which the longest is padded; empty: none
    table_s: Any  # seconds by batch size and place of the edge; empty: the two factors apply


NO_UNITS = UnitCost(np.empty(0, np.int64), False, 0.0, 0.0, np.empty(0, np.int64), np.empty((0, 0)))


def edge_of(longest: int, cost: UnitCost) -> int:
    """Return the place of the edge to which a batch is padded; 0 without edges."""
    place = 0
    while place < cost.edges.size and cost.edges[place] < longest:
        place += 1
    return place


def padded(longest: int, cost: UnitCost) -> int:
    """Return the length to which every request of a batch is padded."""
    if cost.edges.size > 0:
        return cost.edges[edge_of(longest, cost)]
    return longest


def units_of(count: int, longest: int, total: int, cost: UnitCost) -> int:
    """Return the units that a batch computes, padding included; `total` is the sum of its sizes."""
    return total if cost.packed else cost.rows[count] * padded(longest, cost)


def padded_to(counts: np.ndarray, longest: np.ndarray, cost: UnitCost) -> tuple[np.ndarray, np.ndarray]:
    """Return the requests and the length that batches compute, with padding; a length of 0: each its own."""
    if cost.packed or not cost.rows.size:
        return counts, np.zeros_like(counts)
    if cost.edges.size:
        longest = cost.edges[np.searchsorted(cost.edges, longest)]
    return cost.rows[counts], longest


def extra_s(count: int, longest: int, total: int, squares: int, cost: UnitCost) -> float:
    """Return the seconds that a batch's units add; `squares` is the sum of its squared sizes."""
    if cost.table_s.size > 0:
        return cost.table_s[count, edge_of(longest, cost)]
    units = units_of(count, longest, total, cost)
    pairs = squares if cost.packed else units * padded(longest, cost)
    return cost.unit_s * float(units) + cost.pair_s * float(pairs)


@dataclass(frozen=True)
class SizedTime(Service):
    """A service time that depends on the sizes of a batch's requests: call it with these sizes."""

    packed = False

    def unit_cost(self, max_batch_size: int) -> UnitCost:
        """Return how sizes change the time of batches up to this size."""
        rows = np.array([0, *map(self._shape, range(1, max_batch_size + 1))], np.int64)
        return NO_UNITS._replace(rows=rows, packed=self.packed, edges=np.array(self.edges, np.int64))

    @property
    def edges(self) -> tuple[int, ...]:
        """The lengths to which the longest of a batch is padded; none: it keeps its length."""
        return ()

    @property
    def longest(self) -> float:
        """The largest size that it covers."""
        return self.edges[-1] if self.edges else math.inf

    def count_s(self, max_batch_size: int) -> np.ndarray:
        _check.at_most("batch_size", max_batch_size, self.largest_batch, "the largest padded size")
        counts = range(1, max_batch_size + 1)
        return np.array([math.nan, *(self._cost_ms(self._shape(count)) / 1000 for count in counts)])

    def batch_s(self, sizes: Sequence[int]) -> float:
        """Return the mean seconds of a batch of requests of these sizes."""
        _check.at_most("the largest size", max(sizes), self.longest, "the largest length")
        count, squares = len(sizes), sum(size * size for size in sizes)
        count_s = self.count_s(count)[count]
        return float(count_s + extra_s(count, max(sizes), sum(sizes), squares, self.unit_cost(count)))

    def alone_s(self, sizes: np.ndarray) -> np.ndarray:
        """Return the mean seconds of requests of these sizes, each in a batch of one."""
        cost, seconds = self.unit_cost(1), self.count_s(1)[1]
        if cost.edges.size:
            places = np.searchsorted(cost.edges, sizes)
            if cost.table_s.size:
                return seconds + cost.table_s[1, places]
            sizes = cost.edges[places]
        units = sizes if cost.packed else cost.rows[1] * sizes
        return seconds + cost.unit_s * units + cost.pair_s * units * sizes

    def __call__(self, sizes: Any) -> float:
        """Return the mean seconds of a batch of requests of these sizes."""
        if not _check.listed(sizes):
            rule = f"a {type(self).__name__} must be called with the sizes of a batch's requests"
            raise TypeError(f"{rule}, as [80, 512], got {brief(sizes)}")
        return self.batch_s(whole_lengths("sizes", sizes).tolist())

    def table(self, max_batch_size: int) -> np.ndarray:
        raise ValueError(f"seconds by batch size need a service time that ignores sizes, got {self!r}")

    def cold_start(self, max_batch_size: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the seconds of compiling and the shape, by batch size and then by place of the edge."""
        found = super().cold_start(max_batch_size)
        if found is None:
            return None
        if not self.edges:
            rule = f"a {type(self).__name__} that compiles must have lengths to pad to"
            raise ValueError(f"{rule}, got none: each length would be a shape")
        (seconds, shapes), count = found, len(self.edges)
        return repeat(seconds, count), (shapes[:, None] * count + np.arange(count)).ravel()


def unit_cost(service: Service, max_batch_size: int) -> UnitCost:
    """Return how sizes change the time of a service's batches."""
    return service.unit_cost(max_batch_size) if isinstance(service, SizedTime) else NO_UNITS


@dataclass(frozen=True, repr=False)
class _Factors(SizedTime):
    """Fixed and linear milliseconds, with a quadratic part for attention."""

    fixed_ms: float = fixed_ms()
    per_item_ms: float = per_item_ms()
    per_unit_ms: float = cost(
        "Cost per unit (ms)", "Time that each unit of the requests' sizes adds", 0.1, 0.0005, 0.01
    )
    per_pair_ms: float = per_pair_ms()

    def check(self) -> None:
        if self.fixed_ms + self.per_item_ms + self.per_unit_ms + self.per_pair_ms <= 0:
            raise ValueError("the sum of a service time's parts must be greater than 0, got 0")
        super().check()

    def _cost_ms(self, batch_size: int) -> float:
        return self.fixed_ms + self.per_item_ms * batch_size

    def scaled(self, factor: float, max_batch_size: int) -> Any:
        factor = _check.real("factor", factor, above=0)
        return replace(self, **{name: getattr(self, name) * factor for name in self.__match_args__})

    def unit_cost(self, max_batch_size: int) -> UnitCost:
        unit_s, pair_s = self.per_unit_ms / 1000, self.per_pair_ms / 1000
        return super().unit_cost(max_batch_size)._replace(unit_s=unit_s, pair_s=pair_s)

    def __repr__(self) -> str:
        names = self.__match_args__ if self.per_pair_ms else self.__match_args__[:-1]
        own = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({own})" + self._suffix()


@dataclass(frozen=True, repr=False)
class PaddedTime(_Factors):
    """A batch pads every request to its longest: it computes batch size * longest units.

    Milliseconds: fixed + per item * size + per unit * size * longest + per pair * size * longest^2, the last
    for attention. With `padded_to`, batch size and longest are padded up first.

    >>> PaddedTime(fixed_ms=2, per_item_ms=0.5, per_unit_ms=0.01)([100, 400])
    0.011
    >>> PaddedTime(fixed_ms=2, per_item_ms=0.5, per_unit_ms=0.01).padded_to([1, 4], lengths=[150, 512])([100])
    0.004
    """

    _: KW_ONLY
    lengths: tuple[int, ...] | None = parameter(
        "Pad to lengths", "Round the longest of a batch up to the next of these lengths, e.g. 128, 512",
        type="sizes", at_most=LONGEST, when_none="no padding", default=None,
    )  # fmt: skip

    @property
    def edges(self) -> tuple[int, ...]:
        return self.lengths or ()

    def padded_to(self, sizes: Iterable[int] | None = None, lengths: Iterable[int] | None = None) -> Self:
        """Return this service time with batch sizes, lengths, or both padded up to the next of some."""
        padding = self.padding if sizes is None else sizes
        lengths = self.lengths if lengths is None else lengths
        return replace(self, padding=padding, lengths=lengths)  # type: ignore[arg-type]  # made tuples

    def _padded_to(self) -> str:
        if self.lengths is None:
            return super()._padded_to()
        return f".padded_to({self.padding and [*self.padding]}, lengths={[*self.lengths]})"


@dataclass(frozen=True, repr=False)
class PackedTime(_Factors):
    """A batch computes its requests one behind the other, without padding: the sum of their sizes.

    Milliseconds: fixed + per item * size + per unit * sum + per pair * sum of the squared sizes, the last for
    attention.

    >>> PackedTime(fixed_ms=2, per_item_ms=0.5, per_unit_ms=0.01)([100, 300])
    0.007
    """

    packed = True


@dataclass(frozen=True, repr=False)
class SizeTable(SizedTime):
    """Measured milliseconds by batch size and length; a batch is padded up to the next of both.

    `times_ms` has a row for each batch size, with a time for each length.

    >>> SizeTable([1, 8], [128, 512], [[2.0, 4.5], [5.0, 22.0]])([80, 300, 20])
    0.022
    """

    batch_sizes: tuple[int, ...]
    lengths: tuple[int, ...]
    times_ms: tuple[tuple[float, ...], ...]

    def check(self) -> None:
        sizes = _check.sizes("batch_sizes", self.batch_sizes, LARGEST_BATCH)
        lengths = _check.sizes("lengths", self.lengths, LONGEST)
        rows = [list(row) if _check.listed(row) else row for row in self.times_ms]
        shape = np.shape(rows) if all(isinstance(row, list) for row in rows) else ()
        if shape != (len(sizes), len(lengths)):
            rule = f"times_ms must have {len(sizes)} rows of {len(lengths)}, as batch_sizes and lengths say"
            raise ValueError(f"{rule}, got shape {shape}")
        times = tuple(
            tuple(
                _check.real(f"the time of batch size {size} and length {length}", ms, above=0)
                for length, ms in zip(lengths, row, strict=True)
            )
            for size, row in zip(sizes, rows, strict=True)
        )
        for name, value in (("batch_sizes", sizes), ("lengths", lengths), ("times_ms", times)):
            object.__setattr__(self, name, value)
        if self.padding is not None and tuple(self.padding) != sizes:
            raise ValueError(f"padding of a SizeTable must be its batch_sizes, got {brief(self.padding)}")
        object.__setattr__(self, "padding", sizes)
        super().check()

    @property
    def edges(self) -> tuple[int, ...]:
        return self.lengths

    def scaled(self, factor: float, max_batch_size: int) -> Self:  # type: ignore[override]
        factor = _check.real("factor", factor, above=0)
        return replace(self, times_ms=[[ms * factor for ms in row] for row in self.times_ms])  # type: ignore

    def _cost_ms(self, batch_size: int) -> float:
        return 0.0

    def unit_cost(self, max_batch_size: int) -> UnitCost:
        cost = super().unit_cost(max_batch_size)
        seconds = np.array(self.times_ms) / 1000
        places = np.searchsorted(self.batch_sizes, np.maximum(cost.rows, 1))
        return cost._replace(table_s=seconds[places])

    def __repr__(self) -> str:
        own = f"{list(self.batch_sizes)}, {list(self.lengths)}, {[list(row) for row in self.times_ms]}"
        return f"SizeTable({own})" + self._suffix()

    def _padded_to(self) -> str:
        return ""
