"""How much of a run to leave out, until it no longer remembers how it started, and what then is unsteady."""

import math
from typing import NamedTuple

import numpy as np

from batchsim._format import number
from batchsim.engines.log import warmup_requests
from batchsim.result.metrics import metric
from batchsim.result.result import Result
from batchsim.result.run_length import Periods, rounded_up, run_length
from batchsim.scenario import Trace

BLOCK = 5


class Warmup(NamedTuple):
    """How many leading requests to drop, and what is wrong with that number, "" if nothing is."""

    requests: int
    warning: str = ""


def mser5(latency_ms: np.ndarray) -> Warmup:
    """Return how many leading requests to drop as warm-up, by the rule MSER-5.

    That start of the run, in blocks of 5 requests, without which the mean of the rest has the
    least standard error (White, Cobb and Spratt 1997). In one run under a heavy load it may mistake a busy
    spell for the start-up, and then the mean of the rest is low. The mean course of many replications has
    no such spells. NaN, not served, does not count. With a warning, 0 for a run too short
    for the rule, and half of a run that reaches no steady state.

    >>> mser5(np.array([90.0] * 20 + [10.0, 11.0] * 100)).requests
    20
    """
    blocks = latency_ms[: latency_ms.size // BLOCK * BLOCK].reshape(-1, BLOCK)
    counts = (~np.isnan(blocks)).sum(axis=1)
    kept = np.flatnonzero(counts)
    if kept.size < 2 * BLOCK:
        needed = f"{2 * BLOCK**2} served requests, got {np.count_nonzero(~np.isnan(latency_ms))}"
        return Warmup(0, f"a warm-up by MSER-5 needs at least {needed}: none is dropped")
    means = np.nansum(blocks[kept], axis=1) / counts[kept]
    means -= means.mean()  # the sums of squares below lose no digits
    left = np.arange(kept.size, 0, -1)
    sums, squares = (np.cumsum(powers[::-1])[::-1] for powers in (means, means**2))
    # The last blocks are left out: a mean of two or three has an accidentally small error.
    error = ((squares - sums**2 / left) / left**2)[: -2 * BLOCK + 1]
    drop = int(np.argmin(error))
    if drop <= kept.size // 2:
        return Warmup(int(kept[drop]) * BLOCK)
    reason = "no steady state was reached: take more requests, or look at the run over time"
    warning = f"a warm-up must end within half of the run, got later (MSER-5): {reason}"
    return Warmup(int(kept[kept.size // 2]) * BLOCK, warning)


def drop_warmup(result: Result) -> tuple[Result, str]:
    """Return a result without the start that MSER-5 drops from each of its runs, and a warning or "".

    The start is estimated from the mean course of the replications. In a single run the rule would choose a
    start that happens to have no busy spell. So it may drop no more than the queue needs to forget that it
    was empty, and nothing from a run too short to be steady at its load. For a day it drops whole periods.
    """
    scenario, columns_ms, most = result.scenario, [run.latency_ms for run in result.runs], math.inf
    requests, length = columns_ms[0].size, run_length(scenario)
    if len(columns_ms) == 1 and 0 < length.relaxation < math.inf:
        if requests < (needed := length.needed(metric("mean_latency_ms"))):
            others = "" if isinstance(scenario.workload, Trace) else ", or replications"
            got = f"at load {number(scenario.load)}{others}, got {requests:,}: none is dropped"
            return result.with_warmup(
                0.0
            ), f"a warm-up by MSER-5 needs about {rounded_up(needed):,} requests {got}"
        # The first batches resemble each other whatever the queue: add some of them.
        most = math.ceil(length.warmup) + BLOCK * 2 * scenario.rule.largest_batch * scenario.all_servers
    with np.errstate(invalid="ignore"):  # 0 / 0: a request that no replication served
        course_ms = np.nansum(columns_ms, axis=0) / (~np.isnan(columns_ms)).sum(axis=0)
    warmup = mser5(course_ms)
    drop, periods = min(warmup.requests, most), Periods.of(scenario.workload, requests)
    if periods is not None:
        a_period = periods.day.requests_a_period
        drop = round(min(round(drop / a_period), periods.whole - 1) * a_period) if periods.whole else 0
    return result.with_warmup(drop / requests), "" if periods is not None else warmup.warning


def doubts(result: Result, count: int, columns: bool, found_warmup: bool) -> tuple[str, str]:
    """Return why the metrics may not be those of a steady state: parts of a day, and cold starts."""
    dropped, scenario = warmup_requests(result.warmup, count), result.scenario
    periods = Periods.of(scenario.workload, count - dropped, dropped)
    partial = "" if periods is None else periods.warning(columns)
    cold = ""
    if len(result.runs) > 1 and scenario.service.compile_ms is not None and not dropped:
        cold = f"the metrics include a cold start in each of {len(result.runs)} replications"
        cold += "" if found_warmup else ": warmup='auto' estimates the steady state"
    return partial, cold
