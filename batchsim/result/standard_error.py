"""How far a statistic of a run may be off: its standard error, from the run's sections.

The requests of one run are not independent: one that waits long has neighbours that wait long, so that the
textbook's s / sqrt(n) over requests would be far too small. Therefore the run is cut into a few long
sections ("batch means"; here a batch is something else). The same statistic is computed of each section and
of the whole; the spread of the former around the latter is the standard error ("sectioning": Asmussen and
Glynn, Stochastic Simulation, 2007, III.5a). Centring on the whole rather than on the sections' mean keeps
the bias of short sections, as of a ratio or a percentile, out of the estimate.

Sections must be long enough to be nearly independent, and many enough for a spread:

- 16 are taken, as a t of 15 degrees of freedom is hardly wider than the normal's;
- 8, twice as long, if neighbours among the 16 still resemble each other by von Neumann's test;
- the resemblance that is left then widens the error, as in Skart (Tafazzoli, Steiger and Wilson 2011);
- where even 64 short sections resemble their neighbours strongly, the memory of the run is as long as a
  good part of it, and there is no standard error: a false one is worse than none.

Replications are sections too. They are independent by construction, so these tests are unnecessary.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np

MANY = 16  # sections: Student's t of 15 degrees of freedom is 2.13, hardly wider than the normal's 1.96
ROUNDING = 1e-9  # relative: sums of a billion floats differ by less, real differences are larger
TOO_ALIKE = 0.75  # the correlation of neighbours among the 64 at which even 8 sections are too short
ONE_IN_FIVE = 0.8416  # standard normal deviations: a test at 20 %, as to take 8 in vain costs little
MOST_ALIKE = 0.9  # of neighbours among the 16 or 8: with more, their error would be widened without end


class Interval(NamedTuple):
    """Two ends. The true value lies between them with the requested confidence."""

    low: float
    high: float


class NoInterval(Interval):
    """NaN ends, and why there is no interval."""

    reason: str

    def __new__(cls, reason: str) -> "NoInterval":
        none = super().__new__(cls, math.nan, math.nan)
        none.reason = reason
        return none


NO_NUMBER = NoInterval("needs a number from every part of the run, got none from some")
WHY_ALIKE = "the run is too short for its load, or it drifts (see over_time)"
ALIKE = NoInterval(f"needs sections that do not resemble their neighbours: {WHY_ALIKE}")


class StandardError(NamedTuple):
    """A standard error, and the number of sections that it comes from."""

    value: float
    sections: int


class Series(NamedTuple):
    """Statistics, a row each: of sections as in `Sample.grouped`, and of the whole. Errors are widened."""

    values: np.ndarray
    whole: np.ndarray
    widening: Sequence[float] | np.ndarray


def standard_errors(
    series: Sequence[Series], counts: Sequence[int]
) -> list[list[StandardError | NoInterval]]:  # fmt: skip
    """Return the standard errors of each series' statistics, or a `NoInterval` with the reason.

    `counts` are those of the sections: see `Sample.counts`.
    """
    values, whole, widening = (np.concatenate(columns) for columns in zip(*series, strict=True))
    spread, sizes = Spread.of(values, counts, whole), np.array(counts)
    errors = np.sqrt(spread.from_whole / (sizes - 1) / sizes)
    known, place = np.isfinite(errors[:, 0]), np.zeros(whole.size, np.int64)
    alike = place > 0
    if len(counts) > 1:
        errors *= spread.widening
        alike, place = spread.correlation[:, 0] > TOO_ALIKE, 1 + spread.resembles(ONE_IN_FIVE)[:, 1]
    errors = errors[np.arange(whole.size), place] * widening
    found: list[StandardError | NoInterval] = [
        NO_NUMBER if not there else ALIKE if close else StandardError(error, count)
        for there, close, error, count in zip(
            *(column.tolist() for column in (known, alike, errors, sizes[place])), strict=True
        )
    ]
    ends = list(accumulate(each.whole.size for each in series))
    return [found[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class Spread(NamedTuple):
    """How far values are from a number and from their mean, and how neighbours resemble each other.

    A column for each group of sections. `ratio` is von Neumann's: the sum of the squared steps from one value
    to the next over that of the squared deviations from the mean. If all values are the same but for
    rounding, the correlation is 0, and the ratio infinite.
    """

    sizes: np.ndarray
    from_whole: np.ndarray  # the sum of the squared deviations from the whole's value
    correlation: np.ndarray  # of neighbours
    ratio: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, counts: Sequence[int], whole: np.ndarray | None = None) -> Self:
        """Return those of rows of values, in groups of so many, one after the other."""
        from batchsim.engines.compiled.passes import note_spread  # Numba loads with it

        found, sizes = np.empty((3, len(values), len(counts))), np.array(counts)
        whole = np.zeros(len(values)) if whole is None else whole
        note_spread(np.ascontiguousarray(values, float), sizes, whole, found)
        return cls(sizes, *found)

    @property
    def widening(self) -> np.ndarray:
        """The factor by which the correlation of neighbours widens the error.

        The mean of an autoregressive series, whose neighbours correlate by r, has sqrt((1 + r) / (1 - r))
        times the error of an independent one. Estimated from n values, r is too low by 1/n.
        """
        correlation = np.minimum(np.maximum(self.correlation + 1 / self.sizes, 0.0), MOST_ALIKE)
        return np.sqrt((1 + correlation) / (1 - correlation))

    def resembles(self, deviations: float) -> np.ndarray:
        """Return whether neighbours resemble each other too much to be independent.

        For independent values the ratio is 2 on average, with variance 4 (n - 2) / (n^2 - 1); it is less for
        neighbours that resemble each other, by `deviations` of the normal distribution.
        """
        return self.ratio < 2 - deviations * np.sqrt(4 * (self.sizes - 2) / (self.sizes**2 - 1))


def dependent(values: np.ndarray, deviations: float) -> np.ndarray:
    """Return whether neighbours along the last axis resemble each other, as `Spread.resembles`."""
    return Spread.of(np.atleast_2d(values), [values.shape[-1]]).resembles(deviations)[:, 0]
