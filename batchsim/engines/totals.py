"""The sums of a run, the histograms of its latencies, and their percentiles: metrics are made from these.

`engines/compiled/sums.py` fills them, from the columns of a whole run or from one window after another. A run
with keep="summary" keeps nothing else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Protocol, Self, get_type_hints

import numpy as np

from batchsim._clock import PER_S, WHOLE, on_grid
from batchsim._compat import kept
from batchsim.engines.log import Status
from batchsim.scenario.rules import Trigger

Sum = Any  # one number, or an array with a row for each section of a run
Count = Annotated[Any, np.int64]  # the dtype of the array; a number after it is the number of sums
Seconds = Annotated[Any, float]
Joules = Annotated[Any, float]


@dataclass(frozen=True, eq=False)
class Totals:
    """The sums over the requests after the warm-up, and over the window from the first of them.

    The window begins at time 0 without a warm-up, and ends at the last finish. The totals of several
    sections of a run have arrays, with a row for each. The sum of two totals is that of both runs. A sum with
    a default may be missing in a file of an earlier version.
    """

    requests: Count
    statuses: Annotated[Sum, np.int64, len(Status)]  # requests by `Status`
    parts_s: Annotated[Sum, float, 4]  # over the served: latency, and its parts: forming, queueing, computing
    finished: Count  # requests that finish in the window, warm-up included
    busy_s: Seconds  # of all servers, in the window
    window_s: Seconds
    batches: Count  # that start in the window
    items: Count  # requests in these batches
    triggers: Annotated[Sum, np.int64, len(Trigger)]  # these batches by `Trigger`
    delayed: Count = 0  # of the served: those that began after a timeout that delays
    device_wait_s: Seconds = 0.0  # over the served: waiting for a device that servers share
    off_device_s: Seconds = 0.0  # of busy_s: before a batch had its device
    units: Count = 0  # that these batches compute, padding included
    carried: Count = 0  # of these units: the sizes of their requests
    oversized: Count = 0  # requests above the rule's limit, rejected or truncated
    replica_s: Seconds = 0.0  # with an autoscaler: of all replicas, in the window, from being asked for on
    cycles: Count = 0  # of the autoscaler: see `engines.autoscaling.rises`
    joules: Joules = 0.0  # that servers draw while they compute, of batches that finish in the window

    @classmethod
    @cache
    def forms(cls) -> dict[str, tuple[type, tuple[int, ...]]]:
        """Return the dtype and the shape of each sum."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: (hint.__metadata__[0], hint.__metadata__[1:]) for name, hint in hints.items()}

    @classmethod
    @cache
    def _record(cls) -> tuple[np.dtype, dict[str, Any]]:
        """Return the record of a section, and the places of its sums among its numbers."""
        places, at = {}, 0
        for name, (_, shape) in cls.forms().items():
            places[name] = slice(at, at + shape[0]) if shape else at
            at += math.prod(shape)
        return np.dtype([(name, *form) for name, form in cls.forms().items()]), places

    @classmethod
    def records(cls, sections: int) -> np.ndarray:
        """Return a record for each section of a run, to which nothing has been added yet."""
        return np.zeros(sections, cls._record()[0])

    @classmethod
    def of(cls, records: np.ndarray) -> Self:
        """Return the totals whose sums are the columns of records."""
        return cls(**{name: records[name] for name in cls.forms()})

    @kept
    def _table(self) -> np.ndarray:
        """All sums, shape (sections, numbers)."""
        table = np.empty((self.requests.size, self._record()[0].itemsize // 8))
        for name, place in self._record()[1].items():
            table[:, place] = getattr(self, name)
        return table

    def grouped(self, counts: Sequence[int]) -> Self:
        """Return the totals of groups of neighbours: the function `grouped` of all sums at once."""
        table = grouped(self._table, counts)
        return type(self)(**{name: table[:, place] for name, place in self._record()[1].items()})

    def whole(self) -> Self:
        """Return the totals of all sections together."""
        sums = {name: np.add.reduce(getattr(self, name)) for name in self.forms()}
        return type(self)(**{name: found if found.ndim else found.item() for name, found in sums.items()})

    def __add__(self, other: Self) -> Self:
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in self.forms()})


def grouped(column: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Return a column's sums over `counts` groups of neighbours, in turn; each count divides the last."""
    found = []
    for count in counts:
        if count < column.shape[0]:
            column = np.add.reduce(column.reshape(count, -1, *column.shape[1:]), axis=1)
        found.append(column)
    return np.concatenate(found)


# A bin ends with a duration of four digits, which is in it, and begins behind the one before. Every duration
# is within 0.1 % of its bin's middle. A limit of up to four digits is the end of a bin, because many requests
# may have exactly that latency: those that waited for `max_wait_ms`.
FIRST = 10_000  # up to it a nanosecond each
A_DECADE = 9_000  # in each of the next ones
EXACT = FIRST - A_DECADE  # the first of them: the rest of FIRST is a decade like any other, of nanoseconds
DECADES = 12  # up to 10^16 ns, which no duration reaches
BINS = FIRST + 1 + A_DECADE * DECADES


@cache
def middles_s() -> np.ndarray:
    """Return the middle of each bin in seconds, shape (BINS,).

    >>> round(1e9 * float(middles_s()[binned(0.016)]), 1)  # of the nanoseconds from 15,990,001 to 16,000,000
    15995000.5
    """
    decade, place = np.divmod(np.maximum(np.arange(BINS) - EXACT - 1, 0), A_DECADE)
    width = 10.0**decade
    last = np.where(np.arange(BINS) > EXACT, (place + EXACT + 1) * width, np.arange(BINS))
    return (last - (width - 1) / 2) / PER_S


def binned(seconds: Any) -> Any:
    """Return the bin of each duration, as the compiled loops find it.

    >>> binned(np.array([0.016, 0.016000001, 0.01601, 0.016010001])) - binned(0.016)
    array([0, 1, 1, 2])
    """
    ticks = seconds * PER_S + WHOLE - WHOLE  # rounded, half to even: floats this large are whole numbers
    decade = np.searchsorted(FIRST * 10.0 ** np.arange(DECADES), ticks)
    return np.minimum(A_DECADE * decade + np.ceil(ticks / 10.0**decade).astype(np.int64), BINS - 1)


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many latencies are in each bin, shape (BINS,)."""

    counts: np.ndarray

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(self.counts + other.counts)

    def at_ranks_ms(self, ranks: np.ndarray) -> np.ndarray:
        """Return the latencies with that many smaller ones, to 0.1 %."""
        return middles_s()[np.searchsorted(np.cumsum(self.counts), ranks, side="right")] * 1000

    def within(self, objective_ms: float) -> int:
        """Return how many latencies are at most that; a limit of more than four digits is taken to 0.1 %."""
        limit_s = on_grid(objective_ms / 1000)
        return int(self.counts[: np.searchsorted(middles_s(), limit_s, side="right")].sum())


class Ranked(Protocol):
    """A column with values by rank: all latencies, sorted where they are kept, or a `Histogram`."""

    def at_ranks_ms(self, ranks: np.ndarray) -> np.ndarray: ...


def percentiles(column: Ranked, qs: np.ndarray, values: int, count: int) -> np.ndarray:
    """Return percentiles, `qs` in percent, of `count` requests, of which `values` are in the column.

    The others, not served, are infinitely late. A percentile has a rank, mostly between two whole ones: it
    lies between the latencies of these. There must be at least one value.
    """
    ranks = qs / 100 * (count - 1)
    lows, highs = np.floor(ranks), np.ceil(ranks)
    places = np.minimum([lows, highs], values - 1).astype(np.int64)
    below_ms, above_ms = column.at_ranks_ms(places)
    # NumPy's "linear", to its last bit.
    parts, rises_ms = ranks - lows, above_ms - below_ms
    found_ms = np.where(parts < 0.5, below_ms + rises_ms * parts, above_ms - rises_ms * (1 - parts))
    return np.where(highs < values, found_ms, np.inf)
