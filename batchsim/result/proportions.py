"""Intervals of shares and of counts: binomial and Poisson bounds, from effective numbers of requests."""

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from batchsim.result.run_length import FEW

if TYPE_CHECKING:
    from batchsim.result.standard_error import StandardError

FEW_CLUMPS = 20  # fewer do not show how large they are
MANY_CLUMPS = 100  # more make a sum that is normal enough


def effective(share: float, error: "StandardError", most: float, level: float) -> float:
    """Return the number of independent requests that would know a share as well, `most` at most.

    The share of n independent ones has the variance p (1 - p) / n. Their number comes from the spread of a
    few sections, and is itself not certain: it is reduced by as much as Student's t is wider than the normal
    distribution.
    """
    if error.value == 0:
        return most
    certainty = (students_t(level, math.inf) / students_t(level, error.sections)) ** 2
    return min(share * (1 - share) / error.value**2 * certainty, most)


def proportion(share: float, independent: float, level: float) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a share of that many independent requests.

    (Korn and Graubard 1998 use it so, with an effective sample size.)
    """
    from scipy.special import betaincinv

    if math.isinf(independent):
        return share, share
    at, tail = independent * share, (1 - level) / 2
    low = float(betaincinv(at, independent - at + 1, tail)) if share > 0 else 0.0
    high = float(betaincinv(at + 1, independent - at, 1 - tail)) if share < 1 else 1.0
    return low, high


def expected_count(total: float, size: float, level: float) -> tuple[float, float]:
    """Return the interval of the expected number of events in a run that saw `total`, in clumps of `size`.

    Were the events independent, these would be Garwood's Poisson bounds (1936). Where no event occurs, 3.7
    clumps were possible.
    """
    from scipy.special import gammaincinv

    tail, clumps = (1 - level) / 2, total / size
    low = float(gammaincinv(clumps, tail)) if total else 0.0
    return size * low, size * float(gammaincinv(clumps + 1, 1 - tail))


def clump_size(counts: np.ndarray, clump: float, level: float) -> float:
    """Return how many events count as one independent event, from their numbers in a run's sections.

    This is the dispersion of the counts. A few clumps do not show it: then it is at least that of clumps of
    geometric size, of mean `clump`.
    """
    size = max(1.0, _dispersion(counts))
    if counts.size % FEW == 0:  # clumps may be longer than the sections
        size = max(size, _dispersion(counts.reshape(-1, counts.size // FEW).sum(axis=1)))
    # The dispersion of a few sections is itself uncertain, as a variance in Student's t is.
    size *= (students_t(level, counts.size) / students_t(level, math.inf)) ** 2
    geometric = 2 * clump - 1
    return max(size, geometric) if counts.sum() < FEW_CLUMPS * geometric else size


def _dispersion(counts: np.ndarray) -> float:
    return float(counts.var(ddof=1) / counts.mean()) if counts.any() else 0.0


@cache
def students_t(level: float, sections: float) -> float:
    """Return Student's t for a two-sided interval from that many sections; inf for the normal's."""
    from scipy.special import ndtri, stdtrit

    upper = (1 + level) / 2
    return float(ndtri(upper) if math.isinf(sections) else stdtrit(sections - 1, upper))
