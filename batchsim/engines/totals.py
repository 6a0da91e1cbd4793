"""What metrics are made of: the sums of a run, and latencies counted in bins.

A run with keep="summary" keeps nothing else.
"""

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

import numpy as np

Sum = Any  # a number, or an array with one for each part of a run


@dataclass(frozen=True, eq=False)
class Totals:
    """What a run's summary numbers are made of; the sum of two is that of both runs.

    Over the requests after the warm-up, and over the window from the first of them (from time 0 without a
    warm-up) to the last finish. Of several parts, every field has a leading axis.
    """

    requests: Sum
    statuses: np.ndarray  # how many of each Status
    parts_s: np.ndarray  # sums over the served: latency, forming, queueing, computing
    finished: Sum  # in the window, warm-up included
    busy_s: Sum  # of all servers, in the window
    window_s: Sum
    batches: Sum  # that start in the window
    items: Sum  # requests in these
    triggers: np.ndarray  # how many of these batches for each Trigger
    delayed: Sum = 0  # of the served: those that began after a timeout that delays
    device_wait_s: Sum = 0.0  # of the served: what they waited for a device that servers share
    off_device_s: Sum = 0.0  # of busy_s: before a batch had its device

    def __add__(self, other: Self) -> Self:
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenTotals(Totals):
    """What the summary of a run of token generation is made of, besides."""

    computing_s: np.ndarray  # sums over the served: prefill, decode, preempted
    ttft_s: Sum  # over the served
    tpot_s: Sum  # over those of more than one token
    longer: Sum  # how many these are
    output_tokens: Sum  # of the requests that finish in the window
    preempted: Sum  # requests that were, once or more


@dataclass(frozen=True, eq=False)
class TokenHistograms:
    """Counts as of a `Histogram`, of each column that percentiles are taken of."""

    latency_ms: np.ndarray
    ttft_ms: np.ndarray
    tpot_ms: np.ndarray


# A bin is 1/512 of a power of two wide: no latency is further than 0.1 % from its bin's middle.
BINS_AN_OCTAVE = 512
LOWEST = -40  # the first bin begins at 2^-40 s, a picosecond
OCTAVES = 80  # the last ends at 2^40 s
BINS = BINS_AN_OCTAVE * OCTAVES


@cache
def middles_s() -> np.ndarray:
    """Return the middle of each bin in seconds, shape (BINS,).

    >>> float(middles_s()[40 * BINS_AN_OCTAVE])  # the bin that begins at a second
    1.0009765625
    """
    octave, place = np.divmod(np.arange(BINS), BINS_AN_OCTAVE)
    return np.ldexp(1 + (place + 0.5) / BINS_AN_OCTAVE, octave + LOWEST)


def binned(seconds: np.ndarray) -> np.ndarray:
    """Return the bin of each latency, as the compiled loops find it.

    >>> binned(np.array([1.0, 1.001, 1.002])) - 40 * BINS_AN_OCTAVE
    array([0, 0, 1])
    """
    mantissas, exponents = np.frexp(seconds)  # mantissas in [0.5, 1)
    places = (exponents - 1 - LOWEST) * BINS_AN_OCTAVE + ((mantissas - 0.5) * 2 * BINS_AN_OCTAVE).astype(int)
    return np.clip(places, 0, BINS - 1)


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
        """Return how many latencies are at most that, to within the 0.1 % of a bin."""
        return int(self.counts[middles_s() <= objective_ms / 1000].sum())
