"""How sure a metric is: its interval, from the standard error of the run's sections.

Everything here is silent: it returns an interval, or a `NoInterval` with the reason; only `Result.interval`
and `compare` warn. It knows samples and metrics, not runs: a metric of another column, such as the time to a
first token, needs its line in `METRICS` and its column in `Run.measured`, and nothing here. A run too short
for its scenario gets none, whatever its sections say (`run_length`).

A mean or a rate is the whole's value plus and minus Student's t times its standard error; above a mean
latency, whose distribution has a long upper tail, the same in proportion rather than in ms. A mean wait
needs a run that saw enough jams (`jams`). A share is a binomial proportion
(`proportions`), and percentiles are read where shares are (`percentiles`).
"""

import math
from collections.abc import Sequence

import numpy as np

from batchsim.result import jams
from batchsim.result.metrics import METRICS, Kind, Metric
from batchsim.result.percentiles import Fractions, between_percentiles
from batchsim.result.proportions import (
    MANY_CLUMPS,
    clump_size,
    effective,
    expected_count,
    proportion,
    students_t,
)
from batchsim.result.run_length import EVENTS
from batchsim.result.sections import Sections
from batchsim.result.standard_error import (
    ROUNDING,
    Interval,
    NoInterval,
    Sample,
    StandardError,
    Statistic,
    standard_errors,
)

ACCIDENTS = 3


def metric_intervals(
    samples: Sequence[Sample], metrics: Sequence[Metric], level: float
) -> dict[str, Interval]:
    """Return the interval of each metric of a sample, or of how far it is higher in the second of two.

    Two are compared section by section: in runs of one seed these have the same traffic, whose luck cancels
    out in the difference.
    """
    intervals: dict[str, Interval] = {}
    means: dict[str, Statistic] = {}
    percentiles: dict[str, dict[str, float]] = {}  # by column
    for each in metrics:
        impossible = _impossible(each, samples)
        if impossible is not None:
            intervals[each.key] = impossible
        elif (rare := _of_events(each, samples, level)) is not None:
            intervals[each.key] = rare
        elif each.q is None:
            means[each.key] = _statistic(each, samples)
        else:
            percentiles.setdefault(each.column, {})[each.key] = each.q
    errors = dict(zip(means, standard_errors(samples, [*means.values()]), strict=True))
    waiting = [each for each in metrics if each.key in means and jams.matter(each, samples)]
    queueing = _queueing(samples) if waiting else []
    for each in (each for each in metrics if each.key in means):
        error, of_jams = errors[each.key], queueing if each in waiting else []
        if isinstance(error, NoInterval):
            intervals[each.key] = error
        else:
            intervals[each.key] = _of_mean(each, samples, error, level, of_jams)
    for column, qs in percentiles.items():
        fractions = [Fractions(sample, qs.values(), column) for sample in samples]
        for key, q in qs.items():
            first, *second = fractions
            intervals[key] = between_percentiles(fractions, q, level) if second else first.interval(q, level)
    if len(samples) == 2:
        return {each.key: _not_the_same(each, samples, intervals[each.key]) for each in metrics}
    return {each.key: intervals[each.key] for each in metrics}


def _impossible(metric: Metric, samples: Sequence[Sample]) -> NoInterval | None:
    """Return why a metric of these samples cannot have an interval, before anything is computed."""
    if any(sample.sections is None for sample in samples):
        return NoInterval("needs columns or replications, got one run with keep='summary'")
    if len(samples) == 1 and samples[0].drift:
        return NoInterval(samples[0].drift)  # no section stands for the others
    reasons = (reason for sample in samples if (reason := sample.partial or sample.too_short(metric)))
    reason = next(reasons, "")
    if not reason and not all(sample.whole.values_in(metric.column) for sample in samples):
        reason = "needs requests that have one, got none"  # a TPOT, of answers of one token
    return NoInterval(reason) if reason else None


def _of_events(metric: Metric, samples: Sequence[Sample], level: float) -> Interval | None:
    """Return the interval of a count of rare events; None for other metrics, and for a count of many.

    The difference of two has the ends of both intervals: rare events have little luck in common.
    """
    if metric.key not in EVENTS:
        return None
    found, many = [], True
    for sample in samples:
        assert sample.sections is not None
        counts, clump = sample.sections.numbers[metric.key], sample.clump(metric)
        if not clump:
            found.append((0.0, 0.0))
            continue
        total, size = float(counts.sum()), clump_size(counts, clump, level)
        many &= total > MANY_CLUMPS * size
        found.append(expected_count(total, size, level))
    if many and any(high for _, high in found):
        return None
    (low, high), *second = found
    return Interval(second[0][0] - high, second[0][1] - low) if second else Interval(low, high)


def _statistic(metric: Metric, samples: Sequence[Sample]) -> Statistic:
    """Return what to compute of each section for a metric, or for the difference of two samples in it."""

    def of_sections(sections: Sequence[Sections]) -> np.ndarray:
        first, last = sections[0].numbers[metric.key], sections[-1].numbers[metric.key]
        values = last - (first if len(sections) > 1 else 0.0)
        if metric.kind is Kind.COUNT:  # of which a section has its part
            requests = sections[0].totals.requests
            values = values * (requests.sum() / np.maximum(requests, 1))
        return values

    first, last = samples[0].whole.number(metric.key), samples[-1].whole.number(metric.key)
    widening = max(sample.widening(metric) for sample in samples)
    return Statistic(of_sections, last - (first if len(samples) > 1 else 0.0), widening)


def _queueing(samples: Sequence[Sample]) -> list[StandardError | NoInterval]:
    """Return the error of each sample's mean queueing time, which tells how skewed its jams make it."""
    each = METRICS["mean_queueing_ms"]
    return [standard_errors([sample], [_statistic(each, [sample])])[0] for sample in samples]


def _of_mean(
    metric: Metric, samples: Sequence[Sample], error: StandardError, level: float,
    queueing: Sequence[StandardError | NoInterval],
) -> Interval:  # fmt: skip
    t, moved_ms = students_t(level, error.sections), 0.0
    for sample, of_jams in zip(samples, queueing, strict=False):
        if isinstance(of_jams, NoInterval):
            return of_jams
        if (none := jams.too_few(metric, sample, error)) is not None:
            return none
        moved_ms = max(moved_ms, jams.moved_ms(sample, error, of_jams, t))
    half = t * error.value
    values = [sample.whole.number(metric.key) for sample in samples]
    if len(values) == 2:
        half += moved_ms  # whichever of the two saw too few
        return Interval(values[1] - values[0] - half, values[1] - values[0] + half)
    (value,) = values
    if metric.kind is Kind.SHARE:
        # Where every section says the same, as of a server that is never idle, rare batches may differ.
        if error.value < ROUNDING:
            independent = min(float(samples[0].whole.totals.batches), samples[0].independent())
        else:
            independent = effective(value, error, math.inf, level)
        low, high = proportion(value, independent, level)
        # Rare events may all be accidents, such as the idle time before the first request. Each server has
        # a batch at either end of the run that the window cuts.
        whole = samples[0].whole
        few = 0.0 if math.isinf(independent) else ACCIDENTS / independent
        few = max(few, 2 * whole.scenario.servers / max(float(whole.totals.batches), 1.0))
        return Interval(low if value >= few else 0.0, high if value <= 1 - few else 1.0)
    high = value * math.exp(half / value) if metric.unit == "ms" and value > 0 else value + half
    return Interval(max(value - half, 0.0), max(high, value + half + moved_ms))


def _not_the_same(metric: Metric, samples: Sequence[Sample], interval: Interval) -> Interval:
    """Return the interval of a difference, wider where two runs are the same, as longer ones might not be."""
    a, b = (sample.whole for sample in samples)
    scale = max(abs(a.number(metric.key)), abs(b.number(metric.key)))
    if not interval.high - interval.low <= ROUNDING * scale or a.scenario == b.scenario:
        return interval
    half = scale * ACCIDENTS / max(min(int(each.totals.batches) for each in (a, b)), 1)
    return Interval(interval.low - half, interval.high + half)
