"""Intervals of shares, counts and percentiles: binomial and Poisson bounds of independent requests.

A section's own percentiles are biased, and their distribution is skewed. So a percentile's interval is made
from the fraction of requests below the whole's percentile, a mean of zeros and ones. The standard error of
that fraction gives the number of *independent* requests that would determine it as precisely (a burst of a
hundred slow requests may be worth one). With this number, the interval of the fraction is binomial; the
run's percentiles at its ends are the interval.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from batchsim._compat import kept
from batchsim.result.metrics import LATENCY, Metric, metric, percentile_key
from batchsim.result.run_length import BEYOND, FEW, REQUESTS, TAIL
from batchsim.result.sample import Sample
from batchsim.result.standard_error import (
    ROUNDING,
    Interval,
    NoInterval,
    Series,
    StandardError,
    standard_errors,
)

FEW_CLUMPS = 20  # fewer do not show how large they are
MANY_CLUMPS = 100  # more make a sum that is normal enough


def effective(share: float, error: StandardError, most: float, level: float) -> float:
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


DIRECTIONS = 64
MEDIAN = 50


class Fractions:
    """The fractions of a sample's requests that do not exceed its percentiles, and their standard errors.

    `of_all`: over all requests, the unserved infinitely late; else over the served ones.
    """

    def __init__(
        self, sample: Sample, qs: Iterable[float], column: str = LATENCY, of_all: bool = False
    ) -> None:
        self.sample, self.column, self.of_all = sample, column, of_all
        self._unserved = "inf" if of_all else "ignore"
        self._rows = {q: row for row, q in enumerate(dict.fromkeys([*qs, MEDIAN]))}
        limits_ms = sample.whole.percentiles(np.array([*self._rows]), self._unserved, column)
        widening = [sample.widening(percentile_metric(q, column)) for q in self._rows]
        self.series = _within(sample, column, limits_ms, of_all)._replace(widening=widening)

    @kept
    def errors(self) -> list[StandardError | NoInterval]:
        """The standard error of each fraction; whoever has several of these finds all errors at once."""
        return standard_errors([self.series], self.sample.counts)[0]

    def intervals(self, qs: Sequence[float], level: float, needed: float = BEYOND) -> list[Interval]:
        """Return the interval of each percentile."""
        known = [self.independent(q, level, needed) for q in qs]
        shares = [
            (math.nan, math.nan) if isinstance(each, NoInterval) else proportion(q / 100, each, level)
            for q, each in zip(qs, known, strict=True)
        ]
        there = ~np.isnan(ends := 100 * np.array(shares))
        ends[there] = self.sample.whole.percentiles(ends[there], self._unserved, self.column)
        return [
            each if isinstance(each, NoInterval) else Interval(*of)
            for each, of in zip(known, ends.tolist(), strict=True)
        ]

    def independent(self, q: float, level: float, needed: float = BEYOND) -> float | NoInterval:
        """Return how many independent requests know the fraction below a percentile as well as the sample."""
        error, of_median = (self.errors[self._rows[each]] for each in (q, MEDIAN))
        if isinstance(error, NoInterval):
            return error
        fraction, sample = q / 100, self.sample
        most = float(sample.whole.totals.requests) if self.of_all else sample.whole.values_in(self.column)
        if min(fraction, 1 - fraction) < TAIL:
            most = min(most, sample.independent(self.column))
        # Over all requests, fractions differ from q where the percentile is infinite.
        found = self.series.whole[[self._rows[q], self._rows[MEDIAN]]].tolist()
        share, half = found if self.of_all else (q / 100, MEDIAN / 100)
        independent = effective(share, error, most, level)
        if sample.replicated:
            return independent
        # A short run that by luck has seen no burst of slow requests knows less of them than it shows. The
        # median tells more surely how many requests are worth one: a percentile knows no more.
        if isinstance(of_median, NoInterval):
            return of_median
        by_median = effective(half, of_median, most, level)
        independent = min(independent, by_median)
        beyond = (independent if self.of_all else by_median) * min(fraction, 1 - fraction)
        if beyond < needed * (1 - ROUNDING):
            got = f"about {beyond:.1f}: neighbours are alike, take more of them"
            return NoInterval(
                f"needs at least {needed} independent requests beyond the percentile, got {got}"
            )
        return independent

    def off(self, q: float) -> np.ndarray:
        """Return how far the fraction of each section is from the whole's."""
        row, (fine, *longer) = self._rows[q], self.sample.counts
        sections = slice(fine, fine + longer[0]) if longer else slice(fine)
        return self.series.values[row, sections] - self.series.whole[row]


def between_percentiles(pair: Sequence[Fractions], q: float, level: float) -> Interval:
    """Return the interval of how far a percentile of the second of two samples is above that of the first.

    Both fractions below the percentiles err, together in so far as the traffic is the same. An ellipse
    holds the pair of errors with that confidence, and the ends are the pairs on it at which the
    two percentiles are farthest apart, either way. For percentiles linear in the fraction, that is the
    difference plus and minus a multiple of its standard error; in a tail they are far from linear.
    """
    from scipy.special import betaincinv, ndtr

    below_q, counts = q / 100, []
    for each in pair:
        # In a search, which asks no length of a run, it asks no number beyond the percentile either.
        independent = each.independent(q, level, 0 if each.sample.length is None else BEYOND)
        if isinstance(independent, NoInterval):
            return independent
        counts.append(independent)
    first, second = (each.off(q) for each in pair)
    squares = [float((each**2).sum()) for each in (first, second)]
    together = float((first * second).sum()) / math.sqrt(squares[0] * squares[1]) if all(squares) else 0.0
    angles = np.linspace(0, 2 * math.pi, DIRECTIONS, endpoint=False)
    normal = np.cos(angles), together * np.cos(angles) + math.sqrt(max(1 - together**2, 0)) * np.sin(angles)
    ends_ms = []
    for each, count, deviations in zip(pair, counts, normal, strict=True):
        chances = ndtr(students_t(level, math.inf) * deviations)
        fractions = betaincinv(count * below_q + 0.5, count * (1 - below_q) + 0.5, chances)
        ends_ms.append(each.sample.whole.percentiles(100 * fractions, column=each.column))
    apart_ms = ends_ms[1] - ends_ms[0]
    return Interval(float(apart_ms.min()), float(apart_ms.max()))


def percentile_of_all(
    sample: Sample, q: float, level: float, independent: float = BEYOND, column: str = LATENCY
) -> Interval:
    """Return the interval of a percentile of all requests; unserved ones are infinitely late."""
    if reason := sample.partial or sample.drift or sample.too_short(percentile_metric(q, column)):
        return NoInterval(reason)
    return Fractions(sample, [q], column, of_all=True).intervals([q], level, independent)[0]


def percentile_metric(q: float, column: str = LATENCY) -> Metric:
    """Return the metric of a percentile of a column.

    >>> percentile_metric(99.95).key, percentile_metric(99, "ttft_ms").key
    ('p99.95_ms', 'ttft_p99_ms')
    """
    return metric(percentile_key(q, column))


def share_of_all(sample: Sample, limit_ms: float, level: float, column: str = LATENCY) -> Interval:
    """Return the interval of the fraction of all requests that are served within a limit, inf for none."""
    if reason := sample.partial or sample.drift:
        return NoInterval(reason)
    requests, length = int(sample.whole.totals.requests), sample.length
    least = REQUESTS * FEW
    if length is not None:
        least = max(least, math.ceil(length.cycle), math.ceil(length.rare))
    if requests < least:
        return NoInterval(f"needs at least {least:,} requests, got {requests:,}")
    series = _within(sample, column, [limit_ms], of_all=True)
    ((error,),) = standard_errors([series], sample.counts)
    if isinstance(error, NoInterval):
        return error
    share = float(series.whole[0])
    independent = effective(share, error, min(requests, sample.independent(column)), level)
    return Interval(*proportion(share, independent, level))


def _within(
    sample: Sample, column: str, limits_ms: Sequence[float] | np.ndarray, of_all: bool = False
) -> Series:
    """Return the fractions of the requests that are within each limit."""
    longer, fine = sample.grouped, sample.counts[0]
    counts, among = longer.within(limits_ms, column), (longer.all_in if of_all else longer.values_in)(column)
    whole, of = counts[:fine].sum(axis=0), among[:fine].sum()
    shares = whole / of if of else np.full(whole.size, math.nan)
    # Numbers are added in the order of memory, which must be that of the rows of other series.
    values = np.divide(counts.T, np.maximum(among, 1), order="C")
    return Series(values, shares, np.ones(whole.size))
