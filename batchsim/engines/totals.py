"""Latencies counted in bins: what a run with keep="summary" remembers of their distribution."""

from dataclasses import dataclass
from functools import cache

import numpy as np

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
