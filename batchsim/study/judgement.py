"""Whether a run shows that an objective is met: its numbers, their intervals, and a verdict."""

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from batchsim.result import Result
from batchsim.result.intervals import metric_intervals
from batchsim.result.metrics import LATENCY, metric, percentile_key
from batchsim.result.run_length import BEYOND, FEW, Periods, run_length
from batchsim.result.shares import percentile_of_all, share_of_all
from batchsim.result.standard_error import Sample
from batchsim.result.value_columns import limits_of
from batchsim.scenario import ClosedLoop, Scenario, Trace
from batchsim.study.slo import ROUNDING, SLO, Objective

LEVEL = 0.95
# A search judges many settings several times. To drop one takes this level, so that about one judgement in a
# thousand drops a setting wrongly.
STRICT = 0.999
# Independent requests that a percentile needs on its rarer side. Fewer than for an interval that is reported:
# here the objective is often far away, and a full run confirms the recommendation.
INDEPENDENT = 2


class Estimate(NamedTuple):
    """A value and its interval, whose ends are NaN where the run is too short for one."""

    value: float
    low: float
    high: float

    def columns(self, key: str) -> dict[str, float]:
        """Return the columns of a table that hold it."""
        return dict(zip((key, f"{key}_low", f"{key}_high"), self, strict=True))


class Verdict(Enum):
    """Whether a run shows that an objective is met."""

    MEETS = "meets"
    UNCLEAR = "unclear"
    FAILS = "fails"


@dataclass(frozen=True)
class Judgement:
    """The verdict on all objectives, the worst of them, and the estimates.

    `excess` is the largest ratio of an estimate to its limit: above 1, an objective is missed. Where it is
    infinite, as for a p99 when 2 % are lost, `beyond` is the largest fraction of requests late or lost under
    those objectives; else 0. `partial` says why a run stands for no more than a part of a day; else "".
    """

    verdict: Verdict
    excess: float
    worst: Objective
    estimates: dict[Objective, Estimate]
    beyond: float = 0.0
    partial: str = ""

    @property
    def meets(self) -> bool:
        return self.verdict is Verdict.MEETS

    @property
    def unclear(self) -> bool:
        return self.verdict is Verdict.UNCLEAR

    @property
    def too_short(self) -> bool:
        """Whether only a longer run could be sure: its estimates meet the objectives, or are of a part."""
        return self.unclear and (self.excess <= 1 or bool(self.partial))

    @property
    def longer(self) -> float:
        """How many times as long a run might tell; NaN where this one was too short for an interval."""
        value, low, high = self.estimates[self.worst]
        width = high - value if self.worst.at_most else value - low
        room = abs(self.worst.limit - value)
        if not 0 < width < math.inf:
            return math.nan
        # An interval is as wide as one over the root of the length; a fifth more, as its width varies too.
        return 1.2 * (width / room) ** 2 if room else math.inf


UNKNOWN = Estimate(math.nan, math.nan, math.nan)
UNJUDGED = Judgement(Verdict.UNCLEAR, math.inf, Objective("", math.nan), {})
OVERLOADED = replace(UNJUDGED, verdict=Verdict.FAILS)  # without a run


def judge(result: Result, slo: SLO, scenario: Scenario | None = None, level: float = LEVEL) -> Judgement:
    """Return whether a run shows that the objectives are met, each at this level of confidence.

    `scenario` is the one that the run stands for, if not its own; then a number without an interval proves
    nothing. Traffic that drifts has no intervals, because no section of it resembles the next. But a whole
    recorded trace, or a few whole days, are not a sample of anything: their numbers decide without an
    interval. A part of a day proves nothing.

    >>> from batchsim import Affine, Poisson, SizeOrWait, simulate
    >>> run = simulate(Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25)), 20_000, warmup=0.1)
    >>> judge(run, SLO(p99_ms=50)).verdict, judge(run, SLO(p99_ms=15)).verdict
    (<Verdict.MEETS: 'meets'>, <Verdict.FAILS: 'fails'>)
    """
    slo.check(result.scenario)
    subject = result.scenario if scenario is None else scenario
    exact = scenario is None and _whole(result)
    estimates = {objective: estimate(result, objective, subject, level) for objective in slo.objectives}
    excesses = {objective: objective.excess(each.value) for objective, each in estimates.items()}
    verdicts = {
        objective: _verdict(result, objective, each, level, exact) if subject.stable else Verdict.FAILS
        for objective, each in estimates.items()  # overloaded, it fails sooner or later
    }
    order = (Verdict.FAILS, Verdict.UNCLEAR, Verdict.MEETS)
    overall = next(verdict for verdict in order if verdict in verdicts.values())
    decisive = (objective for objective, verdict in verdicts.items() if verdict is overall)
    infinite = [objective for objective, excess in excesses.items() if math.isinf(excess)]
    beyond = max((_beyond(result, each, estimates[each].value) for each in infinite), default=0)
    worst = max(decisive, key=excesses.__getitem__)
    return Judgement(overall, max(excesses.values()), worst, estimates, beyond, result.sample.partial)


def _whole(result: Result) -> bool:
    """Return whether a run is a whole trace, or a few whole days, each long enough to forget the last."""
    workload, periods = result.scenario.workload, result.periods
    if isinstance(workload, Trace):
        return int(result.metrics.totals.requests) + result.sample.dropped >= workload.times_s.size
    if periods is None:
        return False
    return 0 < periods.whole < FEW and run_length(result.scenario).warmup <= periods.day.requests_a_period


def _beyond(result: Result, objective: Objective, value: float) -> float:
    if objective.q is not None:
        return 1 - share_within(result, objective.limit, column=objective.column).value
    return value if objective.key == "loss" else 1.0


def _verdict(result: Result, objective: Objective, known: Estimate, level: float, exact: bool) -> Verdict:
    value, low, high = known
    if exact and math.isnan(low):
        low = high = value
    if not objective.at_most:
        low, high = -high, -low
    limit = objective.reach if objective.at_most else -objective.reach
    if high <= limit:
        return Verdict.MEETS
    if low > limit:
        return Verdict.FAILS
    if objective.q is None:
        return Verdict.UNCLEAR
    # The fraction within the limit tells in runs too short for the percentile, where that is far from it.
    within = share_within(result, objective.limit, level, objective.column)
    if within.low >= objective.q / 100:
        return Verdict.MEETS
    return Verdict.FAILS if within.high < objective.q / 100 else Verdict.UNCLEAR


def fewest(scenario: Scenario, slo: SLO) -> float:
    """Return how many requests a run needs, at least, besides its warm-up, to prove that objectives are met.

    Even if none is late: fewer hold too few bursts, or too few independent requests for such a fraction.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> round(fewest(Scenario(Poisson(900), SizeOrWait(1, 0), Affine(1, 0)), SLO(p99_ms=30)))
    73408
    """
    if recorded(scenario):
        return 0.0
    length, needed = run_length(scenario), 0.0
    for objective in slo.objectives:
        key, share = objective.key, objective.share
        if share is None:
            if key == "mean_latency_ms" or isinstance(scenario.workload, ClosedLoop):
                needed = max(needed, length.needed(metric(key)))
        elif key != "loss" or can_lose(scenario):
            # Clopper and Pearson's lower end, where all of so many independent requests are within the limit.
            independent = math.log((1 - LEVEL) / 2) / math.log(share) if 0 < share < 1 else math.inf
            needed = max(needed, length.cycle, length.rare, independent * length.relaxation)
    return needed


def estimate(result: Result, objective: Objective, scenario: Scenario, level: float = LEVEL) -> Estimate:
    """Return the estimate of an objective's metric from a run that stands for a scenario."""
    key, workload = objective.key, scenario.workload
    if objective.q is not None:
        return percentile(result, objective.q, level, objective.column)
    if key == "mean_latency_ms":
        return number(result, key, level)
    if limits_of(key):
        return share_within(result, 1.0, level, key)
    lost = Estimate(0.0, 0.0, 0.0)
    if can_lose(scenario):
        served = share_within(result, math.inf, level)
        lost = Estimate(1 - served.value, 1 - served.high, 1 - served.low)
    if key == "loss":
        return lost
    if isinstance(workload, ClosedLoop):
        return number(result, key, level)
    offered = workload.offered_per_s
    if not scenario.stable:
        offered = min(offered, scenario.saturation_per_s)
    return Estimate(*(offered * (1 - share) for share in (lost.value, lost.high, lost.low)))


def recorded(scenario: Scenario) -> bool:
    """Return whether the workload is one course of time, not a sample of steady traffic."""
    return isinstance(scenario.workload, Trace) or Periods.of(scenario.workload, 1) is not None


def can_lose(scenario: Scenario) -> bool:
    """Return whether some requests may not be served."""
    return scenario.can_lose


def number(result: Result, key: str, level: float = LEVEL) -> Estimate:
    """Return a metric of a run with its interval."""
    (interval,) = metric_intervals([_sample(result, level)], [metric(key)], level).values()
    return Estimate(result.metrics.number(key), *interval)


def _sample(result: Result, level: float) -> Sample:
    """Return what intervals are made from; a search takes what a run too short, or one that drifts, has."""
    return result.sample if level < STRICT else replace(result.sample, length=None, drift="")


def percentile(result: Result, q: float, level: float = LEVEL, column: str = LATENCY) -> Estimate:
    """Return the latency in ms that q % of all requests do not exceed; one not served is infinitely late.

    Or another column's value, such as the time to the first token.
    """
    if not can_lose(result.scenario):
        estimated = number(result, percentile_key(q, column), level)
        if not math.isnan(estimated.low) or level < STRICT:
            return estimated
    # This interval counts lost requests, and a search is content with fewer independent ones.
    value, needed = result.metrics.percentile(q, "inf", column), INDEPENDENT if level >= STRICT else BEYOND
    return Estimate(value, *percentile_of_all(_sample(result, level), q, level, needed, column))


def share_within(result: Result, limit_ms: float, level: float = LEVEL, column: str = LATENCY) -> Estimate:
    """Return the fraction of all requests that are served within a limit, with its interval."""
    metrics = result.metrics
    share = metrics.columns[column].within(limit_ms * (1 + ROUNDING)) / metrics.all_in(column)
    return Estimate(share, *share_of_all(_sample(result, level), limit_ms, level, column))


def slower_by(result: Result, than: Result, key: str, level: float = LEVEL) -> Estimate:
    """Return how much higher a latency is than in another run of the same traffic, with its interval.

    The comparison is paired, request by request. It is NaN where requests can be lost, because a difference
    is of those served; its interval is NaN where runs are too short for one. It serves to search: a setting
    dropped by mistake is one that hardly differs from the one that is kept.
    """
    if can_lose(result.scenario) or can_lose(than.scenario):
        return UNKNOWN
    each, samples = metric(key), [_sample(run, STRICT) for run in (than, result)]
    (interval,) = metric_intervals(samples, [each], level).values()
    return Estimate(result.metrics.number(each.key) - than.metrics.number(each.key), *interval)
