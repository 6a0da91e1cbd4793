"""The values that percentiles and limits read: a column by rank, and several limits at once as one column."""

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from batchsim._compat import kept

TINY = 1e-300  # its inverse is finite
COLUMNS = ("latency_ms", "ttft_ms", "tpot_ms")
_NAME = re.compile("within" + "".join(rf"(?:_{name.removesuffix('_ms')}_([\d.e+-]+))?" for name in COLUMNS))


def joint(limits_ms: Mapping[str, float]) -> str:
    """Return the name of the column with the part of its limits that each request takes.

    >>> joint({"ttft_ms": 500, "tpot_ms": 40.5})
    'within_ttft_500_tpot_40.5'
    """
    limits = (f"_{name.removesuffix('_ms')}_{limits_ms[name]!r}" for name in COLUMNS if name in limits_ms)
    return "within" + "".join(limits)


def limits_of(name: str) -> dict[str, float]:
    """Return the limits that a column's name says; none for another column.

    >>> limits_of("within_ttft_500_tpot_40.5")
    {'ttft_ms': 500.0, 'tpot_ms': 40.5}
    """
    found = _NAME.fullmatch(name)
    limits = zip(COLUMNS, found.groups() if found else (), strict=False)
    return {column: float(limit) for column, limit in limits if limit is not None}


def in_words(name: str) -> str:
    """Return a column's name for people.

    >>> in_words("within_ttft_500_tpot_40.5")
    'share within TTFT 500 ms and TPOT 40.5 ms'
    """
    words = {"latency_ms": "latency", "ttft_ms": "TTFT", "tpot_ms": "TPOT"}
    return "share within " + " and ".join(f"{words[of]} {ms:g} ms" for of, ms in limits_of(name).items())


def part_of_limits(columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return the largest part that each request takes of a limit: at most 1 if it keeps all of them.

    NaN if it is not served. An answer of one token has no TPOT, and keeps any limit on it.
    """
    limits_ms = limits_of(name)
    if not limits_ms:
        raise KeyError(name)
    parts = [columns[column] / limit_ms for column, limit_ms in limits_ms.items()]
    return np.fmax.reduce([0 * columns[COLUMNS[0]], *parts])


class Columns(dict[str, Any]):
    """Columns by name; a missing one is made on first use."""

    def __init__(self, known: Mapping[str, Any], make: Callable[[str], Any]) -> None:
        super().__init__(known)
        self._make = make

    def __missing__(self, name: str) -> Any:
        self[name] = self._make(name)
        return self[name]


def pooled(runs: Sequence[Mapping[str, Any]]) -> Columns:
    """Return the columns of several runs together."""

    def add(name: str) -> Any:
        return functools.reduce(operator.add, (columns[name] for columns in runs))

    return Columns({name: add(name) for name in runs[0]}, add)


class OrderStatistics:
    """The values of columns, without NaN, by rank, sorted only near the ranks that are read.

    A plain `np.sort` takes several times as long as all else that a summary takes. Memory for all values in a
    new order would take as long as this.
    """

    BUCKETS = 4096

    def __init__(self, *columns: np.ndarray) -> None:
        self._columns = columns

    def __add__(self, other: "OrderStatistics") -> "OrderStatistics":
        return OrderStatistics(*self._columns, *other._columns)

    @kept
    def _values(self) -> np.ndarray:
        return self._columns[0] if len(self._columns) == 1 else np.concatenate(self._columns)

    @kept
    def _buckets(self) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray, np.ndarray]:
        """The values and their buckets; the ranks at which these begin; which are in order, and all values.

        Values are in order in these buckets alone: the memory of others is not written.
        """
        from batchsim.engines.compiled.columns import writable  # Numba loads with it
        from batchsim.engines.compiled.passes import find_buckets

        low, high = float(self._values.min()), float(self._values.max())
        if not TINY < high - low < math.inf:  # the scale would overflow: all are in one bucket
            begins = np.array([0, self._values.size])
            return (), begins, np.ones(1, bool), np.sort(self._values)
        of = writable(self._values), np.empty(self._values.size, np.uint16)
        begins = np.zeros(self.BUCKETS + 1, np.int64)
        find_buckets(of[0], low, (self.BUCKETS - 1) / (high - low), of[1], begins[1:])
        return of, np.cumsum(begins, out=begins), np.zeros(self.BUCKETS, bool), np.empty(self._values.size)

    def at_ranks_ms(self, ranks: np.ndarray) -> np.ndarray:
        """Return the values with that many smaller ones."""
        from batchsim.engines.compiled.passes import take_buckets

        of, begins, in_order, values = self._buckets
        buckets = begins.searchsorted(ranks, side="right") - 1
        lacking = {*buckets[~in_order[buckets]].tolist()}
        if lacking:
            wanted = np.zeros(self.BUCKETS, bool)
            wanted[[*lacking]] = True
            ends = [(begins[bucket], begins[bucket + 1]) for bucket in sorted(lacking)]
            taken, at = np.empty(sum(end - begin for begin, end in ends)), 0
            take_buckets(*of, wanted, taken)
            taken.sort()
            # Two threads may both do this, and write the same.
            for begin, end in ends:
                values[begin:end] = taken[at : at + end - begin]
                at += end - begin
            in_order |= wanted
        return values[ranks]

    def within(self, limit_ms: float) -> int:
        return int(np.count_nonzero(self._values <= limit_ms))


class Weighted:
    """Values by rank, each as often as `counts`."""

    def __init__(self, values: np.ndarray, counts: np.ndarray) -> None:
        order = np.argsort(values)
        self._values, self._counts = values[order], counts[order]
        self._until = np.cumsum(self._counts)

    def __add__(self, other: "Weighted") -> "Weighted":
        both = (self._values, other._values), (self._counts, other._counts)
        return Weighted(*map(np.concatenate, both))

    def at_ranks_ms(self, ranks: np.ndarray) -> np.ndarray:
        """Return the values with that many smaller ones."""
        return self._values[np.searchsorted(self._until, ranks, side="right")]

    def within(self, limit_ms: float) -> int:
        return int(self._counts[: np.searchsorted(self._values, limit_ms, side="right")].sum())


class AtRanks:
    """The values of a column by rank, for a single query: many times as fast as a sort of a short column."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def at_ranks_ms(self, ranks: np.ndarray) -> np.ndarray:
        """Return the values with that many smaller ones."""
        return np.partition(self._values, np.unique(ranks))[ranks]
