"""The interval of a share: as of a binomial proportion, of as many independent requests as know as much."""

import math

def effective(share: float, standard_error: float, most: float) -> float:
    """Return the number of independent requests that would know a share as well, `most` at most.

    The share of n independent ones has the variance p (1 - p) / n.
    """
    return min(share * (1 - share) / standard_error**2 if standard_error else math.inf, most)


def proportion(share: float, independent: float, sections: int, level: float) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a share of that many independent requests.

    (Korn and Graubard 1998 use it so, with an effective sample size.)
    """
    from scipy.special import betaincinv

    if math.isinf(independent):
        return share, share
    independent *= certainty(sections, level)
    at, tail = independent * share, (1 - level) / 2
    low = float(betaincinv(at, independent - at + 1, tail)) if share > 0 else 0.0
    high = float(betaincinv(at + 1, independent - at, 1 - tail)) if share < 1 else 1.0
    return low, high


def certainty(sections: int, level: float) -> float:
    """Return the factor on a number of independent requests that is itself not certain.

    It comes from the spread of a few sections, and is reduced by as much as Student's t is wider than the
    normal distribution.
    """
    return (students_t(level, math.inf) / students_t(level, sections)) ** 2


def students_t(level: float, sections: float) -> float:
    """Return Student's t for a two-sided interval from that many sections; inf for the normal's."""
    from scipy.special import ndtri, stdtrit

    upper = (1 + level) / 2
    return float(ndtri(upper) if math.isinf(sections) else stdtrit(sections - 1, upper))
