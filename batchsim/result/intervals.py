"""How sure a metric is: its interval, from the standard error of the run's sections.

Everything here is silent: it returns an interval, or a `NoInterval` with the reason; only `Result.interval`
and `compare` warn. It knows samples and metrics, not runs. A run that is too short for its scenario has no
interval (`run_length`).

A mean or a rate: the whole's value plus and minus Student's t times its standard error. The upper end of a
mean latency adds that error in proportion, because the distribution of such a mean has a long upper tail.
A share is a binomial proportion, and percentiles are read at such shares (`shares`).

A mean wait also needs a run that saw enough jams. Requests wait in jams, while every server or seat is
taken, and the load does not determine how rare jams are: with more servers at the same load they are rarer.
So the run's own waits count them: the total wait of its requests over that of one jam (`RunLength.jam_s`).
This refuses the runs that saw too little waiting by luck. A test of skewness would accept exactly these.

The mean of a few jams is skewed: in most runs it is too low, and so is its error. The skewness of a sum of
clumps is proportional to its relative error, by a factor that depends on the clumps' shape (fitted to the
scenarios of `make coverage`). It moves the upper end of the interval (Hall, On the removal of skewness by
transformation, 1992). The lower end stays, because runs that saw too much waiting are rare.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from batchsim._format import number
from batchsim.result.metrics import METRICS, Metric, Metrics, Quantity
from batchsim.result.run_length import EVENTS, WAITS, rounded_up
from batchsim.result.sample import Sample
from batchsim.result.shares import (
    MANY_CLUMPS,
    Fractions,
    between_percentiles,
    clump_size,
    effective,
    expected_count,
    proportion,
    students_t,
)
from batchsim.result.standard_error import (
    ROUNDING,
    Interval,
    NoInterval,
    Series,
    StandardError,
    standard_errors,
)
from batchsim.scenario import Continuous
from batchsim.scenario.sized_time import SizedTime

ACCIDENTS = 3  # events of which none may occur by chance: the rule of three, for 95 %
JAMS = 15  # fewer make a mean so skewed that even a moved interval misses it too often (`make coverage`)
UNSEEN = 3  # jams to be expected at most in a run without one: the rule of three again
QUEUEING = "mean_queueing_ms"
SKEWNESS = 4  # of a sum of jams, over its relative error: `make coverage`


def metric_intervals(
    samples: Sequence[Sample], metrics: Sequence[Metric], level: float
) -> dict[str, Interval]:
    """Return the interval of each metric of a sample, or of how far it is higher in the second of two.

    Two are compared section by section: in runs of one seed these have the same traffic, whose luck cancels
    out in the difference.
    """
    sizes = {each.sections.size for each in samples if each.sections is not None}
    if len(sizes) > 1:  # those of a day, whose sections are whole periods, and those of another run
        samples = [
            replace(each, sections=each.sections and each.sections.grouped(min(sizes))) for each in samples
        ]
    if (none := _impossible(samples)) is not None:
        return {each.key: none for each in metrics}
    intervals: dict[str, Interval] = {}
    means: list[Metric] = []
    percentiles: dict[str, dict[str, float]] = {}  # by column
    for each in metrics:
        found = _too_short(each, samples) or _of_events(each, samples, level)
        if found is not None:
            intervals[each.key] = found
        elif each.q is None:
            means.append(each)
        else:
            percentiles.setdefault(each.column, {})[each.key] = each.q
    if means or percentiles:
        fractions = {
            column: [Fractions(sample, qs.values(), column) for sample in samples]
            for column, qs in percentiles.items()
        }
        intervals |= _of_means(means, samples, level, [each for pair in fractions.values() for each in pair])
        for column, qs in percentiles.items():
            (first, *second), of = fractions[column], [*qs.values()]
            ends = (
                [between_percentiles(fractions[column], q, level) for q in of]
                if second
                else first.intervals(of, level)
            )
            intervals |= dict(zip(qs, ends, strict=True))
    if len(samples) == 2:
        return {each.key: _not_the_same(each, samples, intervals[each.key]) for each in metrics}
    return {each.key: intervals[each.key] for each in metrics}


def _of_means(
    means: Sequence[Metric], samples: Sequence[Sample], level: float, fractions: Sequence[Fractions]
) -> dict[str, Interval]:
    """Return the intervals of means, and give fractions their errors.

    The errors of all are computed at once: a small array takes little more time than a number.
    """
    waiting = {each.key for each in means if _jams_matter(each, samples)}
    jams = [_series([METRICS[QUEUEING]], [each]) for each in samples] if waiting else []
    series = [_series(means, samples), *jams, *(each.series for each in fractions)]
    errors, *others = standard_errors(series, samples[0].counts)
    queueing = [of_jams for (of_jams,) in others[: len(jams)]]
    for each, found in zip(fractions, others[len(jams) :], strict=True):
        each.errors = found
    return {
        each.key: error
        if isinstance(error, NoInterval)
        else _of_mean(each, samples, error, level, queueing if each.key in waiting else [])
        for each, error in zip(means, errors, strict=True)
    }


def _impossible(samples: Sequence[Sample]) -> NoInterval | None:
    """Return why no metric of these samples can have an interval, before anything is computed."""
    if any(sample.sections is None for sample in samples):
        return NoInterval("needs columns or replications, got one run with keep='summary'")
    if len(samples) == 1 and samples[0].drift:
        return NoInterval(samples[0].drift)  # its sections have different rates
    return next((NoInterval(sample.partial) for sample in samples if sample.partial), None)


def _too_short(metric: Metric, samples: Sequence[Sample]) -> NoInterval | None:
    """Return why the runs are too short for an interval of a metric."""
    for sample in samples:
        if reason := sample.too_short(metric):
            return NoInterval(reason)
    if not all(sample.whole.values_in(metric.column) for sample in samples):
        return NoInterval("needs requests that have one, got none")  # a TPOT, of answers of one token
    return None


def _of_events(metric: Metric, samples: Sequence[Sample], level: float) -> Interval | None:
    """Return the interval of a count of rare events; None for other metrics, and for a count of many.

    The difference of two has the ends of both intervals: rare events have little luck in common.
    """
    if metric.key not in EVENTS:
        return None
    found, many, possible = [], True, False
    for sample in samples:
        assert sample.sections is not None
        counts, clump = sample.sections.numbers[metric.key], sample.clump(metric)
        requests = int(sample.whole.totals.requests)
        if lost := metric.key == "served":
            counts = sample.sections.totals.requests - counts
        low = high = 0.0
        if clump:
            total, size = float(counts.sum()), clump_size(counts, clump, level)
            many &= total > MANY_CLUMPS * size
            low, high = expected_count(total, size, level)
        found.append((max(requests - high, 0.0), requests - low) if lost else (low, high))
        possible |= bool(clump)
    if many and possible:
        return None
    (low, high), *second = found
    return Interval(second[0][0] - high, second[0][1] - low) if second else Interval(low, high)


def _series(metrics: Sequence[Metric], samples: Sequence[Sample]) -> Series:
    """Return the metrics of a sample, or how far they are higher in the second of two."""
    of, wholes = [each.grouped for each in samples], [each.whole for each in samples]
    requests = wholes[0].totals.requests / np.maximum(of[0].totals.requests, 1)
    values, whole = np.empty((len(metrics), sum(samples[0].counts))), np.empty(len(metrics))
    for row, each in enumerate(metrics):
        values[row], whole[row] = of[-1].numbers[each.key], wholes[-1].number(each.key)
        if len(samples) == 2:
            values[row] -= of[0].numbers[each.key]
            whole[row] -= wholes[0].number(each.key)
        if each.quantity is Quantity.COUNT:  # a section has its part of it
            values[row] *= requests
    widening = [max(each.widening(metric) for each in samples) for metric in metrics]
    return Series(values, whole, widening)


def _of_mean(
    metric: Metric, samples: Sequence[Sample], error: StandardError, level: float,
    queueing: Sequence[StandardError | NoInterval],
) -> Interval:  # fmt: skip
    t, moved_ms = students_t(level, error.sections), 0.0
    for sample, of_jams in zip(samples, queueing, strict=False):
        if isinstance(of_jams, NoInterval):
            return of_jams
        if (none := _too_few_jams(metric, sample, error)) is not None:
            return none
        moved_ms = max(moved_ms, _moved_by_jams_ms(sample, error, of_jams, t))
    half = t * error.value
    values = [sample.whole.number(metric.key) for sample in samples]
    if len(values) == 2:
        half += moved_ms  # either of the two may have seen too few
        return Interval(values[1] - values[0] - half, values[1] - values[0] + half)
    (value,) = values
    if half <= ROUNDING * abs(value):
        half = _accidents(metric, samples)
    if metric.quantity is Quantity.SHARE:
        # Equal sections, as of a server that is never idle, do not exclude rare batches that differ.
        if error.value < ROUNDING:
            independent = _batches(samples[0])
        else:
            independent = effective(value, error, math.inf, level)
        low, high = proportion(value, independent, level)
        # Rare events may all be accidents, such as the idle time before the first request. Each server has
        # a batch at either end of the run that the window cuts.
        whole = samples[0].whole
        few = ACCIDENTS / independent if independent else math.inf
        few = max(few, 2 * whole.scenario.all_servers / max(float(whole.totals.batches), 1.0))
        return Interval(low if value >= few else 0.0, high if value <= 1 - few else 1.0)
    high = value * math.exp(half / value) if metric.unit == "ms" and value > 0 else value + half
    return Interval(max(value - half, 0.0), max(high, value + half + moved_ms))


def _not_the_same(metric: Metric, samples: Sequence[Sample], interval: Interval) -> Interval:
    """Return the interval of a difference, wider where two runs are the same, as longer ones might not be."""
    a, b = (sample.whole for sample in samples)
    scale = max(abs(a.number(metric.key)), abs(b.number(metric.key)))
    if not interval.high - interval.low <= ROUNDING * scale or a.scenario == b.scenario:
        return interval
    half = _accidents(metric, samples)
    return Interval(interval.low - half, interval.high + half)


def _accidents(metric: Metric, samples: Sequence[Sample]) -> float:
    """Return how far rare events, of which none occurred, may move a metric that is the same all along."""
    return max(_accident(metric, each) * ACCIDENTS / max(_batches(each), 1.0) for each in samples)


def _batches(sample: Sample) -> float:
    return min(float(sample.whole.totals.batches), sample.independent())


def _accident(metric: Metric, sample: Sample) -> float:
    """Return how large a metric is, compared with what a rare event adds; 0 where the scenario gives it."""
    whole, scenario, rule = sample.whole, sample.whole.scenario, sample.whole.scenario.rule
    alone, at_once = rule.largest_batch == 1, rule.threshold is not None and rule.threshold.wait_s == 0
    plain = not isinstance(scenario.service, SizedTime) and scenario.service.noise is None
    given = {
        "requests": True,
        "served": not scenario.can_lose,
        "batches": alone and not scenario.can_lose,
        "mean_batch_size": alone,
        "mean_forming_ms": alone or at_once or _continuous(whole),
        "mean_computing_ms": alone and plain and scenario.plain_servers and scenario.slowdown is None,
        "mean_device_wait_ms": scenario.plain_servers,
        "mean_preempted_ms": getattr(rule, "kv_blocks", None) is None,
    }
    if given.get(metric.key) or (sample.length is not None and sample.length.certain):
        return 0.0
    value = abs(whole.number(metric.key))
    return max(value, whole.number("mean_latency_ms")) if metric.unit == "ms" else value


def _jams_matter(metric: Metric, samples: Sequence[Sample]) -> bool:
    """Return whether jams decide how sure a metric is."""
    lengths = (sample.length for sample in samples)
    return metric.key in WAITS and any(length is not None and length.jam_s for length in lengths)


def _too_few_jams(metric: Metric, sample: Sample, error: StandardError) -> NoInterval | None:
    """Return why a run that saw too few jams cannot have an interval; None where these add little."""
    if (seen := _jams_seen(sample)) >= JAMS:
        return None
    # Where seats are free, a request waits for a step to end. Compared with that wait and the error, even the
    # jams that the run may have missed can be negligible.
    whole, seen, jam_ms = sample.whole, max(seen, 0.0), _jam_ms(sample)
    most = seen + 3 * math.sqrt(seen) + UNSEEN
    if most * jam_ms <= _step_ms(whole) / 8 and math.sqrt(UNSEEN) * jam_ms <= error.value:
        return None
    requests = int(whole.totals.requests) // sample.replications
    enough, load = rounded_up(requests * JAMS / max(seen, 1)), whole.scenario.load
    each = " in each replication" if sample.replications > 1 else ""
    got = f"got {requests:,} with {seen:.1f}"
    return NoInterval(
        f"needs about {enough:,} requests{each} at load {number(load)} to see {JAMS} jams, {got}"
    )


def _moved_by_jams_ms(sample: Sample, error: StandardError, queueing: StandardError, t: float) -> float:
    """Return how much further up the upper end is, as the mean of a few jams is skewed.

    `queueing` is the error of the mean queueing time: jams are a part of this time only. One server that
    takes batches is judged by longer runs (`run_length.MEAN`); several have it as skewed as a lognormal mean.
    """
    whole, seen, waiting_ms = sample.whole, _jams_seen(sample), _waiting_ms(sample.whole)
    if not 0 < seen < math.inf or not queueing.value:
        return 0.0
    if _continuous(whole):
        skewness = SKEWNESS * queueing.value / waiting_ms
        return error.value * skewness * (2 * t**2 + 1) / 6 if seen >= JAMS else 0.0
    if whole.scenario.all_servers == 1:
        return 0.0
    half = t * queueing.value / waiting_ms
    return error.value * (math.expm1(half) / half - 1) * t


def _jams_seen(sample: Sample) -> float:
    jam_ms = _jam_ms(sample)
    return _waiting_ms(sample.whole) / jam_ms if jam_ms else math.inf


def _jam_ms(sample: Sample) -> float:
    """Return what one jam adds to the mean wait of a run."""
    if sample.length is None or sample.length.jam_s is None:
        return 0.0
    return sample.length.jam_s / sample.whole.served * 1000


def _waiting_ms(whole: Metrics) -> float:
    """Return the mean queueing time, under continuous batching beyond the wait for the first step to end."""
    first_ms = _step_ms(whole) / (whole.scenario.servers + 1) if _continuous(whole) else 0.0
    return whole.number("mean_queueing_ms") - first_ms


def _continuous(whole: Metrics) -> bool:
    return isinstance(whole.scenario.rule, Continuous)


def _step_ms(whole: Metrics) -> float:
    return float(whole.totals.busy_s / whole.totals.batches) * 1000
