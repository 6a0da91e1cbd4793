"""How sure a metric is: its interval, from the standard error of the run's sections.

Everything here is silent: it returns an interval, or a `NoInterval` with the reason; only `Result.interval`
and `compare` warn. It knows samples and metrics, not runs: a metric of another column, such as the time to a
first token, needs its line in `METRICS` and its column in `Run.measured`, and nothing here.

A mean, a rate or a share is the whole's value plus and minus Student's t times its standard error.

A percentile is not: its sections' percentiles are biased, and its distribution is skewed. What is measured
instead is the fraction of requests below it, a mean of zeros and ones. From the standard error of that
fraction follows how many *independent* requests would say as much (a burst of a hundred slow requests may
be worth one), from their number the exact binomial interval of the fraction (Clopper and Pearson's, as
Korn and Graubard 1998 use it with an effective sample size), and its ends are percentiles of the run.
"""

import math
from collections.abc import Sequence

import numpy as np

from batchsim.result.metrics import LATENCY, Kind, Metric
from batchsim.result.sections import Sections
from batchsim.result.standard_error import (
    FEW,
    Interval,
    NoInterval,
    Sample,
    StandardError,
    Statistic,
    standard_errors,
)

ROUNDING = 1e-9
REQUESTS, BEYOND = 40, 5  # requests that a section needs, and those of them beyond a percentile
INDEPENDENT = 5  # independent requests that a percentile needs on its rarer side
MEDIAN = "median of "


def metric_intervals(
    samples: Sequence[Sample], metrics: Sequence[Metric], level: float
) -> dict[str, Interval]:
    """Return the interval of each metric of a sample, or of how far it is higher in the second of two.

    Two are compared section by section: in runs of one seed these have the same traffic, whose luck cancels
    out in the difference.
    """
    intervals: dict[str, Interval] = {}
    statistics: dict[str, Statistic] = {}
    for each in metrics:
        statistic = _impossible(each, samples) or _statistic(each, samples)
        if isinstance(statistic, NoInterval):
            intervals[each.key] = statistic
            continue
        statistics[each.key] = statistic
        if each.q is not None and len(samples) == 1:
            statistics[MEDIAN + each.column] = _below(samples[0], each.column, 50)
    errors = dict(zip(statistics, standard_errors(samples, list(statistics.values())), strict=True))
    for each in (each for each in metrics if each.key in statistics):
        error, of_median = errors[each.key], errors.get(MEDIAN + each.column)
        if isinstance(error, NoInterval):
            intervals[each.key] = error
        elif each.q is not None and of_median is not None:
            intervals[each.key] = _of_percentile(samples[0], each.q, each.column, error, of_median, level)
        else:
            intervals[each.key] = _symmetric(each, samples, error, level)
    return intervals


def _impossible(metric: Metric, samples: Sequence[Sample]) -> NoInterval | None:
    """Return why a metric of these samples cannot have an interval, before anything is computed."""
    if any(sample.sections is None for sample in samples):
        return NoInterval("needs columns or replications, got one run with keep='summary'")
    if len(samples) == 1 and samples[0].drift is not None:
        low, high = samples[0].drift  # no section stands for the others
        got = f"a rate that drifts from {low:.4g}/s to {high:.4g}/s"
        return NoInterval(
            f"needs traffic that stays the same, got {got}: see over_time, or take replications"
        )
    return next(filter(None, (_too_short(sample, metric.q) for sample in samples)), None)


def _too_short(sample: Sample, q: float | None) -> NoInterval | None:
    """Return why there are too few requests or batches in each section for a percentile, or a mean."""
    rarer = 0.5 if q is None else min(q, 100 - q) / 100
    if not rarer:
        return NoInterval("cannot be given: the extremes of a longer run lie further out")
    assert sample.sections is not None
    sections = sample.sections.size if sample.replicated else FEW
    for what, needed, got in (
        ("served requests", max(REQUESTS, math.ceil(BEYOND / rarer - ROUNDING)), sample.whole.served),
        ("batches", BEYOND, sample.whole.totals.batches),
    ):
        if got < needed * sections:
            return NoInterval(f"needs at least {needed * sections:,} {what}, got {got:,}")
    return None


def _statistic(metric: Metric, samples: Sequence[Sample]) -> Statistic | NoInterval:
    """Return what to compute of each section for a metric, or for the difference of two samples in it."""
    if metric.q is not None:
        if len(samples) == 1:
            return _below(samples[0], metric.column, metric.q)
        return _percentile_difference(samples, metric.column, metric.q)

    def of_sections(sections: Sequence[Sections]) -> np.ndarray:
        first, last = sections[0].numbers[metric.key], sections[-1].numbers[metric.key]
        values = last - (first if len(sections) > 1 else 0.0)
        return values * (values.size if metric.kind is Kind.COUNT else 1)  # a section has a part of a count

    first, last = samples[0].whole.number(metric.key), samples[-1].whole.number(metric.key)
    return Statistic(of_sections, last - (first if len(samples) > 1 else 0.0))


def _percentile_difference(samples: Sequence[Sample], column: str, q: float) -> Statistic | NoInterval:
    """Return how far each section's percentiles are apart, beyond those of the whole, in ms.

    To first order a section's percentile is off by the slope of the percentile there, in ms for each unit of
    the fraction, times how far the fraction below the whole's percentile is off in that section.
    """
    fractions = [_below(sample, column, q) for sample in samples]
    slopes = []
    for sample, fraction in zip(samples, fractions, strict=True):
        (error,) = standard_errors([sample], [fraction])
        if isinstance(error, NoInterval):
            return error
        low, high = max(q / 100 - error.value, 0.0), min(q / 100 + error.value, 1.0)
        low_ms, high_ms = (sample.whole.percentile(100 * end, column=column) for end in (low, high))
        slopes.append((high_ms - low_ms) / (high - low) if high > low else 0.0)

    def off(sections: Sequence[Sections]) -> np.ndarray:
        pairs = zip(slopes, fractions, sections, strict=True)
        a, b = (slope * (below.whole - below.of_sections([each])) for slope, below, each in pairs)
        return b - a

    return Statistic(off, 0.0)


def _symmetric(metric: Metric, samples: Sequence[Sample], error: StandardError, level: float) -> Interval:
    half = students_t(level, error.sections) * error.value
    values = [sample.whole.number(metric.key) for sample in samples]
    if len(values) == 2:
        return Interval(values[1] - values[0] - half, values[1] - values[0] + half)
    most = 1.0 if metric.kind is Kind.SHARE else math.inf
    return Interval(max(values[0] - half, 0.0), min(values[0] + half, most))


def percentile_of_all(sample: Sample, q: float, level: float, independent: float = INDEPENDENT) -> Interval:
    """Return the interval of a percentile of all requests, in which one not served is infinitely late."""
    if (reason := _too_short(sample, q)) is not None:
        return reason
    statistics = [_below(sample, LATENCY, each, of_all=True) for each in (q, 50)]
    error, of_median = standard_errors([sample], statistics)
    if isinstance(error, NoInterval):
        return error
    shares = [statistic.whole for statistic in statistics]
    return _of_percentile(sample, q, LATENCY, error, of_median, level, shares, independent)


def share_of_all(sample: Sample, limit_ms: float, level: float) -> Interval:
    """Return the interval of the fraction of all requests that are served within a limit, inf for none."""
    if (requests := int(sample.whole.totals.requests)) < REQUESTS * FEW:
        return NoInterval(f"needs at least {REQUESTS * FEW} requests, got {requests}")
    statistic = _within(sample, LATENCY, limit_ms, of_all=True)
    (error,) = standard_errors([sample], [statistic])
    if isinstance(error, NoInterval):
        return error
    share = statistic.whole
    return Interval(*binomial(share, effective(share, error.value, requests), error.sections, level))


def _below(sample: Sample, column: str, q: float, of_all: bool = False) -> Statistic:
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


def _of_percentile(
    sample: Sample, q: float, column: str, error: StandardError, of_median: StandardError | NoInterval,
    level: float, shares: Sequence[float] | None = None, needed: float = INDEPENDENT,
) -> Interval:  # fmt: skip
    """Return a percentile's interval from the standard errors of the fractions below it and the median.

    Of all requests: `shares` are these fractions. They differ from q where the percentile is infinite.
    """
    below, whole, of_all = q / 100, sample.whole, shares is not None
    most = int(whole.totals.requests) if of_all else whole.served
    share, half = shares or (below, 0.5)
    independent = effective(share, error.value, most)
    if not sample.replicated:
        # A short run that by luck has seen no burst of slow requests knows less of them than it shows. The
        # median tells more surely how many requests are worth one: a percentile knows no more.
        if isinstance(of_median, NoInterval):
            return of_median
        by_median = effective(half, of_median.value, most)
        independent = min(independent, by_median)
        beyond = (independent if of_all else by_median) * min(below, 1 - below)
        if beyond < needed:
            got = f"about {beyond:.1f}: neighbours are alike, take more of them"
            return NoInterval(
                f"needs at least {needed} independent requests beyond the percentile, got {got}"
            )
    unserved = "inf" if of_all else "ignore"
    ends = binomial(below, independent, error.sections, level)
    return Interval(*(whole.percentile(100 * end, unserved, column) for end in ends))


def effective(share: float, standard_error: float, most: int) -> float:
    """Return the number of independent requests that would know a share as well.

    The share of n independent ones has the variance p (1 - p) / n.
    """
    return min(share * (1 - share) / standard_error**2 if standard_error else math.inf, float(most))


def binomial(share: float, independent: float, sections: int, level: float) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a share of that many independent requests.

    Their number comes from the spread of a few sections, and is itself not certain: it is reduced by as much
    as Student's t is wider than the normal distribution.
    """
    from scipy.special import betaincinv

    independent *= (students_t(level, math.inf) / students_t(level, sections)) ** 2
    at, tail = independent * share, (1 - level) / 2
    low = float(betaincinv(at, independent - at + 1, tail)) if share > 0 else 0.0
    high = float(betaincinv(at + 1, independent - at, 1 - tail)) if share < 1 else 1.0
    return low, high


def students_t(level: float, sections: float) -> float:
    """Return Student's t for a two-sided interval from that many sections; inf for the normal's."""
    from scipy.special import ndtri, stdtrit

    upper = (1 + level) / 2
    return float(ndtri(upper) if math.isinf(sections) else stdtrit(sections - 1, upper))
