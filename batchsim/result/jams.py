"""Mean waits: how many jams a run saw, and how skewed the mean of a few is.

Requests wait in jams, while every server or seat is taken, and the load alone does not tell how rare these
are: with more servers at the same load they are rarer. So they are counted in the run itself: all the waiting
of its requests over that of one jam (`RunLength.jam_s`). A run that by luck saw too little waiting is the one
that is refused, while a test of how skewed or clumped its waits are would let it pass.

The mean of a few jams is skewed: it lies too low in most runs, and with it its error. The skewness of a sum
of clumps is proportional to its relative error, with a factor that depends on their shape alone (measured on
the scenarios of `make coverage`). It moves the upper end of the interval (Hall, On the removal of skewness by
transformation, 1992); the lower end stays, as runs that saw too much are rare.
"""

import math
from collections.abc import Sequence

from batchsim.result.metrics import Metric, Metrics
from batchsim.result.run_length import WAITS, rounded_up
from batchsim.result.standard_error import NoInterval, Sample, StandardError
from batchsim.scenario import Continuous

JAMS = 15  # that a run must see
UNSEEN = 3  # to be expected at most, where none is seen: the rule of three, for 95 %
SKEWNESS = 4  # of a sum of jams, over its relative error


def matter(metric: Metric, samples: Sequence[Sample]) -> bool:
    """Return whether jams decide how sure a metric is."""
    lengths = (sample.length for sample in samples)
    return metric.key in WAITS and any(length is not None and length.jam_s for length in lengths)


def too_few(metric: Metric, sample: Sample, error: StandardError) -> NoInterval | None:
    """Return why a run that saw too few jams cannot have an interval; None where these add little."""
    if (seen := _seen(sample)) >= JAMS:
        return None
    # Where seats are free a request waits for a step to end. Beside that, and the error, even the jams that
    # the run may have missed can be too little to matter.
    whole, seen, jam_ms = sample.whole, max(seen, 0.0), _jam_ms(sample)
    most = seen + 3 * math.sqrt(seen) + UNSEEN
    if most * jam_ms <= _step_ms(whole) / 8 and math.sqrt(UNSEEN) * jam_ms <= error.value:
        return None
    requests = int(whole.totals.requests) // sample.replications
    enough, load = rounded_up(requests * JAMS / max(seen, 1)), whole.scenario.load
    each = " in each replication" if sample.replications > 1 else ""
    got = f"got {requests:,} with {seen:.1f}"
    return NoInterval(f"needs about {enough:,} requests{each} at load {load:.3g} to see {JAMS} jams, {got}")


def moved_ms(sample: Sample, error: StandardError, queueing: StandardError, t: float) -> float:
    """Return how much further up the upper end is, as the mean of a few jams is skewed.

    `queueing` is the error of the mean queueing time, of which alone the jams are a part. One server that
    takes batches is judged by longer runs (`run_length.MEAN`); several have it as skewed as a lognormal mean.
    """
    whole, seen, waiting_ms = sample.whole, _seen(sample), _waiting_ms(sample.whole)
    if not 0 < seen < math.inf or not queueing.value:
        return 0.0
    if _continuous(whole):
        skewness = SKEWNESS * queueing.value / waiting_ms
        return error.value * skewness * (2 * t**2 + 1) / 6 if seen >= JAMS else 0.0
    if whole.scenario.servers == 1:
        return 0.0
    half = t * queueing.value / waiting_ms
    return error.value * (math.expm1(half) / half - 1) * t


def _seen(sample: Sample) -> float:
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
