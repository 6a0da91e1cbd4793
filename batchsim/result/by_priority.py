"""The metrics of each priority level by itself, with their intervals."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim._compat import bincount
from batchsim.result.intervals import metric_intervals
from batchsim.result.metrics import COMPONENTS, DEVICE_WAIT, LATENCY, METRICS, Metrics
from batchsim.result.run import Run
from batchsim.result.run_length import RunLength, run_length
from batchsim.result.sample import Sample
from batchsim.result.sections import Sections
from batchsim.result.value_columns import OrderStatistics
from batchsim.scenario import Scenario

if TYPE_CHECKING:
    import pandas

COUNTS = ("requests", "served", "rejected", "timed_out", "delayed")
# In the order of the summary; those with an interval have two more columns.
SHOWN = [
    METRICS[key]
    for key in METRICS
    if key in (*COUNTS, "throughput_per_s", "mean_latency_ms") or METRICS[key].q is not None
    or key in [f"mean_{part}_ms" for part in (*COMPONENTS, DEVICE_WAIT)]
]  # fmt: skip


def by_priority(runs: Sequence[Run], sample: Sample, level: float) -> "pandas.DataFrame":
    """Return a row for each priority level; `sample` is that of all requests."""
    import pandas

    levels = runs[0].scenario.levels
    if not levels:
        raise ValueError(f"a workload must have priorities, got {runs[0].scenario.workload!r}")
    if runs[0].columns is None:  # its sums are of all levels together
        rule = "levels need the columns of a run, keep='all', with fewer requests where memory is short"
        raise ValueError(f"{rule}, got keep='summary'")
    rows = [_row([_of_level(run, each) for run in runs], each, sample, level) for each in levels]
    return pandas.DataFrame(rows, index=pandas.Index(levels, name="priority"))


def _of_level(run: Run, level: int) -> tuple[Metrics, Sections] | None:
    """Return the metrics of a run's requests of a level, and those of sections; None without a request."""
    log, mine = run.log, np.asarray(run.log.priority) == level
    skip = int(np.count_nonzero(mine[: run.warmup_requests]))
    if np.count_nonzero(mine) == skip:
        return None
    index = log.batch_index[mine]
    sizes = bincount(index[index >= 0], minlength=log.batch_size.size)
    # The batches are those of all levels, and hold of each only its own.
    own = replace(
        log, arrival_s=log.arrival_s[mine], batch_index=index, status=log.status[mine], batch_size=sizes,
        priority=np.asarray(log.priority)[mine], outputs=None,
        size=None if log.size is None else log.size[mine],
        replica=None if log.replica is None else log.replica[mine],
    )  # fmt: skip
    latency_ms = run.latency_ms[mine]
    sections = Sections.of_log(run, own, skip, {LATENCY: latency_ms}, run.ends)
    kept_ms = latency_ms[skip:]
    served = OrderStatistics(kept_ms[~np.isnan(kept_ms)])
    return Metrics(run.scenario, sections.whole(), {LATENCY: served}), sections


def _row(
    found: Sequence[tuple[Metrics, Sections] | None], priority: int, sample: Sample, level: float
) -> dict[str, Any]:
    runs = [each for each in found if each is not None]
    if not runs:
        return dict.fromkeys([key for key in COUNTS if key not in sample.whole.absent], 0)
    whole = Metrics.pool([metrics for metrics, _ in runs])
    replicated = sample.replicated
    sections = Sections.of_runs([metrics for metrics, _ in runs]) if replicated else runs[0][1]
    share = dict(whole.scenario.workload.priorities or ())[priority]
    length = sample.length and _length(whole.scenario, priority)
    dropped = round(sample.dropped * share)
    own = replace(sample, whole=whole, sections=sections, length=length, dropped=dropped)
    shown = [each for each in SHOWN if each.key not in whole.absent]
    intervals = metric_intervals([own], [each for each in shown if each.interval], level)
    row = {}
    for each in shown:
        row[each.key] = each.plain(whole.number(each.key))
        if each.interval:
            row[f"{each.key}_low"], row[f"{each.key}_high"] = intervals[each.key]
    return row


def _length(scenario: Scenario, priority: int) -> RunLength:
    """Return the lengths that runs need for the metrics of a level, counted in its own requests.

    Its queue forgets as fast as one that holds no later level. Its flow is no steadier than that of as many
    requests by themselves.
    """
    shares = dict(scenario.workload.priorities or ())
    first = sum(share for level, share in shares.items() if level <= priority)
    length, own = run_length(scenario, first), shares[priority] / first
    return replace(
        length, relaxation=length.relaxation * own, cycle=length.cycle * own, noise=length.noise * own,
        peak=length.peak * own, jam_s=None,
    )  # fmt: skip
