"""A sample of a scenario: the metrics of a whole result and of its sections, which intervals are made from.

It knows how long its runs must be (`run_length`), and whether they are like longer ones of their scenario.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchsim._compat import kept
from batchsim._format import number
from batchsim.result.metrics import LATENCY, Metric, Metrics
from batchsim.result.run import Run
from batchsim.result.run_length import (
    BEYOND,
    FEW,
    REQUESTS,
    Periods,
    RunLength,
    rounded_up,
    run_length,
    unscaled,
)
from batchsim.result.sections import Sections
from batchsim.result.standard_error import MANY, ROUNDING
from batchsim.scenario import Trace

ENOUGH = 2.0  # times the length that a trace asks for: from there on its intervals are no wider
COMPILING = 0.01  # of the time


@dataclass(frozen=True, eq=False)
class Sample:
    """The metrics of a whole result and of its sections: intervals are made from these.

    `sections` are the replications if there are several; None for one run without columns. `drift` is the
    reason why the sections of one run differ from each other, `partial` the reason why a run does not
    represent its scenario; else "".
    `length` is how long the runs must be, None where that is not asked; `dropped` the requests that each
    leaves out.
    """

    whole: Metrics
    sections: Sections | None
    replicated: bool
    drift: str = ""
    partial: str = ""
    length: RunLength | None = None
    dropped: int = 0

    @kept
    def replications(self) -> int:
        return self.sections.size if self.replicated and self.sections is not None else 1

    @kept
    def requests(self) -> int:
        """The requests of each replication."""
        return int(self.whole.totals.requests) // self.replications

    @kept
    def counts(self) -> tuple[int, ...]:
        """How many sections a standard error comes from: all, and of a single run fewer and longer ones."""
        assert self.sections is not None
        size = self.sections.size
        return (size,) if self.replicated else (size, min(MANY, size), FEW)

    @kept
    def grouped(self) -> Sections:
        """The sections of all these counts, one after the other."""
        assert self.sections is not None
        return self.sections.grouped(*self.counts)

    def too_short(self, metric: Metric) -> str:
        """Return why the runs are too short for an interval of a metric, and what would do; "" if not."""
        rarer = 0.5 if metric.q is None else min(metric.q, 100 - metric.q) / 100
        if not rarer:
            return "cannot be given: the extremes of a longer run lie further out"
        whole, replications, requests = self.whole, self.replications, self.requests
        sections = replications if self.replicated else FEW
        least = max(REQUESTS, math.ceil(BEYOND / rarer - ROUNDING))  # requests of each section
        if self.length is not None:
            needed = self.length.needed(metric, replications, self.dropped)
            needed = max(needed, least * sections / replications)
            if requests < needed * (1 - ROUNDING):
                load = whole.scenario.load
                if needed == math.inf:
                    return f"needs a queue that stays finite, got load {number(load)}"
                each = " in each replication" if replications > 1 else ""
                at = "" if math.isnan(load) else f" at load {number(load)}"
                return f"needs about {rounded_up(needed):,} requests{each}{at}, got {requests:,}"
        for what, per_section, got in (
            ("served requests", least, whole.served), ("batches", BEYOND, whole.totals.batches),
        ):  # fmt: skip
            if got < per_section * sections:
                return f"needs at least {per_section * sections:,} {what}, got {got:,}"
        return ""

    def clump(self, metric: Metric) -> float:
        """Return how many events of a metric occur together, on average; 0 for impossible events."""
        scenario = self.whole.scenario
        limits, refuses = scenario.limits, scenario.rule.refuses or scenario.refuses_sizes
        possible = {
            "served": scenario.can_lose,  # or else all are
            "rejected": refuses or any(each.queue is not None for each in limits),
            "timed_out": any(each.timeout_s < math.inf and not each.delays for each in limits),
            "delayed": any(each.delays for each in limits),
            "oversized": scenario.has_oversized,
        }
        if not possible[metric.key]:
            return 0.0
        queued = scenario.rule.refuses or any(
            each.queue is not None or each.timeout_s < math.inf for each in limits
        )
        return 1.0 if metric.key == "oversized" or not queued or self.length is None else self.length.clump

    def widening(self, metric: Metric) -> float:
        """Return by how much the error of a metric is to be widened: of a trace that is hardly long enough.

        The necessary length is estimated from the trace itself. A trace that happens to be quiet yields a
        short length, and narrow intervals.
        """
        if self.length is None or not isinstance(self.whole.scenario.workload, Trace):
            return 1.0
        needed = self.length.needed(metric)
        enough = float(self.whole.totals.requests) / needed if needed else math.inf
        return max(ENOUGH + 1 - enough, 1.0)

    def independent(self, column: str = LATENCY) -> float:
        """Return how many independent requests these know as much as of rare events, at most."""
        requests, auto = float(self.whole.totals.requests), self.whole.scenario.autoscale
        most = requests
        if auto is not None and auto.least < auto.most:  # late ones come while replicas are too few
            most = float(self.whole.totals.cycles)
        return most if self.length is None else min(most, self.length.independent(requests, column))


def sample_of(
    runs: Sequence[Run], whole: Metrics, periods: Periods | None, rate_range_per_s: tuple[float, float] | None
) -> Sample:
    """Return the sample of some runs, whose metrics together are `whole`.

    `periods` are those of each run, and `rate_range_per_s` is how far the rate drifts along it, if it does.
    """
    partial, drift, sections = "", "", None
    if periods is not None:
        partial, drift = periods.partial, periods.few
    elif rate_range_per_s is not None:
        got = "a rate that drifts from {:.4g}/s to {:.4g}/s".format(*rate_range_per_s)
        drift = f"needs traffic that stays the same, got {got}: see over_time"
    replicated = len(runs) > 1
    if replicated:
        sections, drift = Sections.of_runs([run.metrics for run in runs]), ""
    elif runs[0].columns is not None:
        sections = runs[0].alike
    dropped = dropped_of(whole, runs)
    partial = partial or _unlike(whole, len(runs)) or unscaled(whole, len(runs), dropped, periods)
    return Sample(whole, sections, replicated, drift, partial, run_length(whole.scenario), dropped)


def _unlike(whole: Metrics, replications: int) -> str:
    """Return why some runs are unlike any longer ones of their scenario, and what would do; else ""."""
    scenario, totals = whole.scenario, whole.totals
    if not scenario.rule.forgets and replications == 1 and not scenario.can_lose:
        name = type(scenario.rule).__name__
        return f"needs replications, as {name} keeps for good what it learns in a run, got one run"
    if scenario.service.compile_ms is None or not scenario.plain_servers:
        return ""
    compiling_s, ran_s = float(totals.off_device_s), float(totals.window_s) * scenario.most_replicas
    if not compiling_s > COMPILING * ran_s:
        return ""
    most = f"at most {COMPILING:.0%} of the time is spent on compiling"
    return f"needs a warm-up, or a run, such that {most}, got {compiling_s:.3g} s of {ran_s:.3g} s"


def dropped_of(whole: Metrics, runs: Sequence[Run]) -> int:
    """Return how many requests each run leaves out."""
    kept, warmup = int(whole.totals.requests) / len(runs), runs[0].warmup
    return round(kept * warmup / (1 - warmup))
