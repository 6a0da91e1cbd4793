"""The interval of a percentile, and of the difference of two: from the fractions of requests below it.

A section's percentiles are biased, and their distribution is skewed. What is measured instead is the fraction
of requests below the whole's percentile, a mean of zeros and ones. From the standard error of that
fraction follows how many *independent* requests would say as much (a burst of a hundred slow requests may
be worth one), from their number the interval of the fraction, and its ends are percentiles of the run.
"""

import math
from collections.abc import Sequence

import numpy as np

from batchsim.result.metrics import LATENCY, metric
from batchsim.result.proportions import effective, proportion, students_t
from batchsim.result.run_length import BEYOND, FEW, REQUESTS
from batchsim.result.sections import Sections
from batchsim.result.standard_error import (
    MANY,
    ROUNDING,
    Interval,
    NoInterval,
    Sample,
    StandardError,
    Statistic,
    standard_errors,
)

TAIL = 0.06  # of the requests: rarer ones come in clumps, of which a run sees one in a relaxation time
DIRECTIONS = 64


def of_percentile(
    sample: Sample, q: float, column: str, error: StandardError, of_median: StandardError | NoInterval,
    level: float, shares: Sequence[float] | None = None, needed: float = BEYOND,
) -> Interval:  # fmt: skip
    """Return a percentile's interval from the standard errors of the fractions below it and the median.

    Of all requests: `shares` are these fractions. They differ from q where the percentile is infinite.
    """
    whole, of_all = sample.whole, shares is not None
    independent = _independent(sample, q, error, of_median, level, shares, needed)
    if isinstance(independent, NoInterval):
        return independent
    unserved = "inf" if of_all else "ignore"
    ends = proportion(q / 100, independent, level)
    return Interval(*(whole.percentile(100 * end, unserved, column) for end in ends))


def _independent(
    sample: Sample, q: float, error: StandardError, of_median: StandardError | NoInterval, level: float,
    shares: Sequence[float] | None = None, needed: float = BEYOND,
) -> float | NoInterval:  # fmt: skip
    """Return how many independent requests know the fraction below a percentile as well as a sample."""
    fraction, whole, of_all = q / 100, sample.whole, shares is not None
    most = float(whole.totals.requests) if of_all else whole.served
    if min(fraction, 1 - fraction) < TAIL:
        most = min(most, sample.independent)
    share, half = shares or (fraction, 0.5)
    independent = effective(share, error, most, level)
    if sample.replicated:
        return independent
    # A short run that by luck has seen no burst of slow requests knows less of them than it shows. The
    # median tells more surely how many requests are worth one: a percentile knows no more.
    if isinstance(of_median, NoInterval):
        return of_median
    by_median = effective(half, of_median, most, level)
    independent = min(independent, by_median)
    beyond = (independent if of_all else by_median) * min(fraction, 1 - fraction)
    if beyond < needed * (1 - ROUNDING):
        got = f"about {beyond:.1f}: neighbours are alike, take more of them"
        return NoInterval(f"needs at least {needed} independent requests beyond the percentile, got {got}")
    return independent


def between_percentiles(samples: Sequence[Sample], q: float, column: str, level: float) -> Interval:
    """Return the interval of how far a percentile of the second of two samples is above that of the first.

    Both fractions below the percentiles err, together in so far as the traffic is the same. Of all pairs
    of errors on the ellipse within which they lie with that confidence, the ends are the pairs at which the
    two percentiles are farthest apart, either way. Were percentiles linear in the fraction, that would be the
    difference plus and minus so many standard errors; but in a tail they are anything but linear.
    """
    from scipy.special import betaincinv, ndtr

    below_q, counts, errors = q / 100, [], []
    for sample in samples:
        statistics = [below(sample, column, each) for each in (q, 50)]
        error, of_median = standard_errors([sample], statistics)
        if isinstance(error, NoInterval):
            return error
        # In a search, which asks no length of a run, it asks no number beyond the percentile either.
        needed = 0 if sample.length is None else BEYOND
        independent = _independent(sample, q, error, of_median, level, needed=needed)
        if isinstance(independent, NoInterval):
            return independent
        counts.append(independent)
        errors.append(_errors(sample, statistics[0]))
    squares = [float((each**2).sum()) for each in errors]
    together = (
        float((errors[0] * errors[1]).sum()) / math.sqrt(squares[0] * squares[1]) if all(squares) else 0.0
    )
    angles = np.linspace(0, 2 * math.pi, DIRECTIONS, endpoint=False)
    normal = np.cos(angles), together * np.cos(angles) + math.sqrt(max(1 - together**2, 0)) * np.sin(angles)
    ends_ms = []
    for sample, count, deviations in zip(samples, counts, normal, strict=True):
        chances = ndtr(students_t(level, math.inf) * deviations)
        fractions = betaincinv(count * below_q + 0.5, count * (1 - below_q) + 0.5, chances)
        ends_ms.append(np.array([sample.whole.percentile(100 * f, column=column) for f in fractions]))
    apart_ms = ends_ms[1] - ends_ms[0]
    return Interval(float(apart_ms.min()), float(apart_ms.max()))


def _errors(sample: Sample, statistic: Statistic) -> np.ndarray:
    """Return how far a statistic of the whole is off in each section."""
    assert sample.sections is not None
    sections = sample.sections if sample.replicated else sample.sections.merged(MANY)
    return statistic.of_sections([sections]) - statistic.whole


def percentile_of_all(sample: Sample, q: float, level: float, independent: float = BEYOND) -> Interval:
    """Return the interval of a percentile of all requests, in which one not served is infinitely late."""
    if reason := sample.too_short(metric(f"p{q:.9g}")):
        return NoInterval(reason)
    statistics = [below(sample, LATENCY, each, of_all=True) for each in (q, 50)]
    error, of_median = standard_errors([sample], statistics)
    if isinstance(error, NoInterval):
        return error
    shares = [statistic.whole for statistic in statistics]
    return of_percentile(sample, q, LATENCY, error, of_median, level, shares, independent)


def share_of_all(sample: Sample, limit_ms: float, level: float) -> Interval:
    """Return the interval of the fraction of all requests that are served within a limit, inf for none."""
    requests, length = int(sample.whole.totals.requests), sample.length
    least = REQUESTS * FEW
    if length is not None:
        least = max(least, math.ceil(length.cycle), math.ceil(length.noise))
    if requests < least:
        return NoInterval(f"needs at least {least:,} requests, got {requests:,}")
    statistic = _within(sample, LATENCY, limit_ms, of_all=True)
    (error,) = standard_errors([sample], [statistic])
    if isinstance(error, NoInterval):
        return error
    share = statistic.whole
    independent = effective(share, error, min(requests, sample.independent), level)
    return Interval(*proportion(share, independent, level))


def below(sample: Sample, column: str, q: float, of_all: bool = False) -> Statistic:
    """Return the fraction of the requests that do not exceed the whole's percentile."""
    unserved = "inf" if of_all else "ignore"
    return _within(sample, column, sample.whole.percentile(q, unserved, column), of_all)


def _within(sample: Sample, column: str, limit_ms: float, of_all: bool = False) -> Statistic:
    # Many latencies can be one, such as a wait and a batch after it, but for the floats' rounding.
    limit_ms *= 1 + ROUNDING
    whole = sample.whole
    among = whole.totals.requests if of_all else whole.served

    def of_sections(sections: Sequence[Sections]) -> np.ndarray:
        requests = sections[0].totals.requests if of_all else sections[0].served
        return sections[0].within(limit_ms, column) / np.maximum(requests, 1)

    return Statistic(of_sections, float(whole.columns[column].within(limit_ms) / among))
