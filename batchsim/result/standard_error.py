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
from typing import NamedTuple

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

    def spread(values: np.ndarray) -> np.ndarray:
        count = values.shape[1]
        return np.sqrt(((values - whole[:, np.newaxis]) ** 2).sum(axis=1) / (count - 1) / count)

    fine = values[:, : counts[0]]
    known = np.isfinite(fine).all(axis=1) & np.isfinite(whole)
    alike, taken = np.zeros(whole.size, bool), np.full(whole.size, counts[0])
    if len(counts) == 1:
        errors = spread(fine)
    else:
        many, few = values[:, counts[0] : -counts[2]], values[:, -counts[2] :]
        alike, short = _correlation(fine) > TOO_ALIKE, dependent(many, ONE_IN_FIVE)
        errors = np.where(short, spread(few) * widen(few), spread(many) * widen(many))
        taken = np.where(short, counts[2], counts[1])
    found: list[StandardError | NoInterval] = [
        NO_NUMBER if not there else ALIKE if close else StandardError(error, count)
        for there, close, error, count in zip(
            *(column.tolist() for column in (known, alike, errors * widening, taken)), strict=True
        )
    ]
    ends = list(accumulate(each.whole.size for each in series))
    return [found[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _above(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how far values are above their mean, the sum of its squares, and whether it is not rounding."""
    above = values - np.add.reduce(values, axis=-1, keepdims=True) / values.shape[-1]
    square = np.add.reduce(above**2, axis=-1)
    return above, square, square > np.add.reduce(values**2, axis=-1) * 1e-20


def _correlation(values: np.ndarray) -> np.ndarray:
    """Return the correlation of neighbours along the last axis; 0 if all are the same but for rounding."""
    above, square, varies = _above(values)
    products = np.add.reduce(above[..., 1:] * above[..., :-1], axis=-1)
    return np.divide(products, square, out=np.zeros_like(square), where=varies)


def widen(values: np.ndarray) -> np.ndarray:
    """Return the factor by which the correlation of neighbours widens the error.

    The mean of an autoregressive series, whose neighbours correlate by r, has sqrt((1 + r) / (1 - r)) times
    the error of an independent one. Estimated from n values, r is too low by 1/n.
    """
    correlation = np.minimum(np.maximum(_correlation(values) + 1 / values.shape[-1], 0.0), MOST_ALIKE)
    return np.sqrt((1 + correlation) / (1 - correlation))


def dependent(values: np.ndarray, deviations: float) -> np.ndarray:
    """Return whether neighbours resemble each other too much to be independent, by von Neumann's ratio.

    The ratio is the sum of the squared steps from one value to the next over that of the squared deviations
    from the mean. For independent values it is 2 on average, with variance 4 (n - 2) / (n^2 - 1); it is
    less for neighbours that resemble each other, by `deviations` of the normal distribution.
    """
    count, (above, square, varies) = values.shape[-1], _above(values)
    steps = np.add.reduce((above[..., 1:] - above[..., :-1]) ** 2, axis=-1)
    least = 2 - deviations * math.sqrt(4 * (count - 2) / (count**2 - 1))
    return varies & (steps < least * square)
