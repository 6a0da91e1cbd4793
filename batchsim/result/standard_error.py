"""How far a statistic of a run may be off: its standard error, from the run's sections.

The requests of one run are not independent: one that waits long has neighbours that wait long, so that the
textbook's s / sqrt(n) over requests would be far too small. Therefore the run is cut into a few long
sections ("batch means"; here a batch is something else). The same statistic is computed of each section and
of the whole; the spread of the former around the latter is the standard error ("sectioning": Asmussen and
Glynn, Stochastic Simulation, 2007, III.5a). Centring on the whole rather than on the sections' mean keeps
the bias of short sections, as of a ratio or a percentile, out of the estimate.

Sections must be long enough to be nearly independent, and many enough for a spread:

- 16 are taken, as a t of 15 degrees of freedom is hardly wider than the normal's;
- 8, twice as long, if neighbours among the 16 still resemble each other by von Neumann's test;
- the resemblance that is left then widens the error, as in Skart (Tafazzoli, Steiger and Wilson 2011);
- where even 64 short sections resemble their neighbours strongly, the memory of the run is as long as a
  good part of it, and there is no standard error: a false one is worse than none.

Replications are sections too. They are independent by construction, so these tests are unnecessary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

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
from batchsim.scenario import Trace

MANY = 16  # sections: Student's t of 15 degrees of freedom is 2.13, hardly wider than the normal's 1.96
ENOUGH = 2.0  # times the length that a trace asks for: from there on its intervals are no wider
ROUNDING = 1e-9  # relative: sums of a billion floats differ by less, real differences are larger
TOO_ALIKE = 0.75  # the correlation of neighbours among the 64 at which even 8 sections are too short
ONE_IN_FIVE = 0.8416  # standard normal deviations: a test at 20 %, as to take 8 in vain costs little
COMPILING = 0.01  # of the time
MOST_ALIKE = 0.9  # of neighbours among the 16 or 8: with more, their error would be widened without end


class Interval(NamedTuple):
    """Two ends. The true value lies between them with the requested confidence."""

    low: float
    high: float


class NoInterval(Interval):
    """NaN ends, and why there is no interval."""

    reason: str

    def __new__(cls, reason: str) -> "NoInterval":
        none = super().__new__(cls, math.nan, math.nan)
        none.reason = reason
        return none


NO_NUMBER = NoInterval("needs a number from every part of the run, got none from some")
WHY_ALIKE = "the run is too short for its load, or it drifts (see over_time)"
ALIKE = NoInterval(f"needs sections that do not resemble their neighbours: {WHY_ALIKE}")


class StandardError(NamedTuple):
    """A standard error, and the number of sections that it comes from."""

    value: float
    sections: int


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

    @property
    def replications(self) -> int:
        return self.sections.size if self.replicated and self.sections is not None else 1

    @property
    def counts(self) -> tuple[int, ...]:
        """How many sections a standard error comes from: all, and of a single run fewer and longer ones."""
        assert self.sections is not None
        size = self.sections.size
        return (size,) if self.replicated else (size, min(MANY, size), FEW)

    @property
    def grouped(self) -> Sections:
        """The sections of all these counts, one after the other."""
        assert self.sections is not None
        return self.sections.grouped(*self.counts)

    def too_short(self, metric: Metric) -> str:
        """Return why the runs are too short for an interval of a metric, and what would do; "" if not."""
        rarer = 0.5 if metric.q is None else min(metric.q, 100 - metric.q) / 100
        if not rarer:
            return "cannot be given: the extremes of a longer run lie further out"
        whole, replications = self.whole, self.replications
        requests = int(whole.totals.requests) // replications
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


class Series(NamedTuple):
    """Statistics, a row each: of sections as in `Sample.grouped`, and of the whole. Errors are widened."""

    values: np.ndarray
    whole: np.ndarray
    widening: Sequence[float] | np.ndarray


def standard_errors(
    series: Sequence[Series], counts: Sequence[int]
) -> list[list[StandardError | NoInterval]]:  # fmt: skip
    """Return the standard errors of each series' statistics, or a `NoInterval` with the reason.

    `counts` are those of the sections: see `Sample.counts`.
    """
    values, whole, widening = (np.concatenate(columns) for columns in zip(*series, strict=True))

    def spread(values: np.ndarray) -> np.ndarray:
        count = values.shape[1]
        return np.sqrt(((values - whole[:, np.newaxis]) ** 2).sum(axis=1) / (count - 1) / count)

    fine = values[:, : counts[0]]
    known = np.isfinite(fine).all(axis=1) & np.isfinite(whole)
    alike, taken = np.zeros(whole.size, bool), np.full(whole.size, counts[0])
    if len(counts) == 1:
        errors = spread(fine)
    else:
        many, few = values[:, counts[0] : -counts[2]], values[:, -counts[2] :]
        alike, short = _correlation(fine) > TOO_ALIKE, dependent(many, ONE_IN_FIVE)
        errors = np.where(short, spread(few) * widen(few), spread(many) * widen(many))
        taken = np.where(short, counts[2], counts[1])
    found: list[StandardError | NoInterval] = [
        NO_NUMBER if not there else ALIKE if close else StandardError(error, count)
        for there, close, error, count in zip(
            *(column.tolist() for column in (known, alike, errors * widening, taken)), strict=True
        )
    ]
    ends = list(accumulate(each.whole.size for each in series))
    return [found[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _above(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how far values are above their mean, the sum of its squares, and whether it is not rounding."""
    above = values - np.add.reduce(values, axis=-1, keepdims=True) / values.shape[-1]
    square = np.add.reduce(above**2, axis=-1)
    return above, square, square > np.add.reduce(values**2, axis=-1) * 1e-20


def _correlation(values: np.ndarray) -> np.ndarray:
    """Return the correlation of neighbours along the last axis; 0 if all are the same but for rounding."""
    above, square, varies = _above(values)
    products = np.add.reduce(above[..., 1:] * above[..., :-1], axis=-1)
    return np.divide(products, square, out=np.zeros_like(square), where=varies)


def widen(values: np.ndarray) -> np.ndarray:
    """Return the factor by which the correlation of neighbours widens the error.

    The mean of an autoregressive series, whose neighbours correlate by r, has sqrt((1 + r) / (1 - r)) times
    the error of an independent one. Estimated from n values, r is too low by 1/n.
    """
    correlation = np.minimum(np.maximum(_correlation(values) + 1 / values.shape[-1], 0.0), MOST_ALIKE)
    return np.sqrt((1 + correlation) / (1 - correlation))


def dependent(values: np.ndarray, deviations: float) -> np.ndarray:
    """Return whether neighbours resemble each other too much to be independent, by von Neumann's ratio.

    The ratio is the sum of the squared steps from one value to the next over that of the squared deviations
    from the mean. For independent values it is 2 on average, with variance 4 (n - 2) / (n^2 - 1); it is
    less for neighbours that resemble each other, by `deviations` of the normal distribution.
    """
    count, (above, square, varies) = values.shape[-1], _above(values)
    steps = np.add.reduce((above[..., 1:] - above[..., :-1]) ** 2, axis=-1)
    least = 2 - deviations * math.sqrt(4 * (count - 2) / (count**2 - 1))
    return varies & (steps < least * square)


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
