"""The interval of a share: as of a binomial proportion, of as many independent requests as know as much."""

import math
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchsim.result.standard_error import StandardError


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


@cache
def students_t(level: float, sections: float) -> float:
    """Return Student's t for a two-sided interval from that many sections; inf for the normal's."""
    from scipy.special import ndtri, stdtrit

    upper = (1 + level) / 2
    return float(ndtri(upper) if math.isinf(sections) else stdtrit(sections - 1, upper))
