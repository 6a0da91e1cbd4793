"""Whether a run shows that an objective is met: its numbers, their intervals, and a verdict."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from batchsim.result import Result
from batchsim.result.intervals import percentile_of_all, share_of_all
from batchsim.result.metrics import LATENCY
from batchsim.scenario import ClosedLoop, Diurnal, Scenario, Trace
from batchsim.study.slo import ROUNDING, SLO, Objective, key_of

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
    those objectives; else 0.
    """

    verdict: Verdict
    excess: float
    worst: Objective
    estimates: dict[Objective, Estimate]
    beyond: float = 0.0

    @property
    def too_short(self) -> bool:
        """Whether the estimates meet the objectives, but only a longer run could be sure."""
        return self.verdict is Verdict.UNCLEAR and self.excess <= 1


def judge(result: Result, slo: SLO, scenario: Scenario | None = None, level: float = LEVEL) -> Judgement:
    """Return whether a run shows that the objectives are met, each at this level of confidence.

    `scenario` is the one that the run stands for, if not its own; then a number without an interval proves
    nothing. Traffic that drifts has no intervals, because no section of it resembles the next. But a whole
    recorded trace, or a whole day, is not a sample of anything: its numbers decide without an interval.

    >>> from batchsim import Affine, Poisson, SizeOrWait, simulate
    >>> run = simulate(Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25)), 20_000, warmup=0.1)
    >>> judge(run, SLO(p99_ms=50)).verdict, judge(run, SLO(p99_ms=15)).verdict
    (<Verdict.MEETS: 'meets'>, <Verdict.FAILS: 'fails'>)
    """
    subject = result.scenario if scenario is None else scenario
    exact = scenario is None and recorded(subject)
    verdicts, excesses, estimates = [], [], {}
    for objective in slo.objectives:
        estimates[objective] = estimate(result, objective, subject, level)
        verdict = _verdict(objective, estimates[objective], exact)
        if verdict is not Verdict.MEETS and objective.q is not None:
            # The fraction within the limit shows a miss in runs too short for the percentile.
            share = share_within(result, objective.limit, level)
            verdict = Verdict.FAILS if share.high < objective.q / 100 else verdict
        verdicts.append(verdict)
        excesses.append(objective.excess(estimates[objective].value))
    if not subject.stable:
        verdicts = [Verdict.FAILS] * len(verdicts)  # sooner or later
    overall = next((each for each in (Verdict.FAILS, Verdict.UNCLEAR) if each in verdicts), Verdict.MEETS)
    places = [place for place, verdict in enumerate(verdicts) if verdict is overall]
    worst = max(places, key=lambda place: excesses[place])
    infinite = [o for o, excess in zip(slo.objectives, excesses, strict=True) if math.isinf(excess)]
    beyond = max(
        (_beyond(result, objective, estimates[objective].value) for objective in infinite), default=0
    )
    return Judgement(overall, max(excesses), slo.objectives[worst], estimates, beyond)


def _beyond(result: Result, objective: Objective, value: float) -> float:
    if objective.q is not None:
        return 1 - share_within(result, objective.limit).value
    return value if objective.key == "loss" else 1.0


def _verdict(objective: Objective, estimated: Estimate, exact: bool) -> Verdict:
    value, low, high = estimated
    if math.isnan(value) or (math.isnan(low) and not exact):
        return Verdict.UNCLEAR
    if math.isnan(low):
        low = high = value
    if not objective.at_most:
        low, high = -high, -low
    limit = objective.reach if objective.at_most else -objective.reach
    return Verdict.MEETS if high <= limit else Verdict.FAILS if low > limit else Verdict.UNCLEAR


def estimate(result: Result, objective: Objective, scenario: Scenario, level: float = LEVEL) -> Estimate:
    """Return the estimate of an objective's metric from a run that stands for a scenario."""
    if objective.q is not None:
        return percentile(result, objective.q, level)
    if objective.key == "mean_latency_ms":
        return number(result, objective.key, level)
    lost = Estimate(0.0, 0.0, 0.0)
    if can_lose(scenario):
        served = share_within(result, math.inf, level)
        lost = Estimate(1 - served.value, 1 - served.high, 1 - served.low)
    if objective.key == "loss":
        return lost
    if isinstance(scenario.workload, ClosedLoop):
        return number(result, objective.key, level)
    offered = scenario.workload.offered_per_s
    if not scenario.stable:
        offered = min(offered, scenario.saturation_per_s)
    return Estimate(*(offered * (1 - share) for share in (lost.value, lost.high, lost.low)))


def recorded(scenario: Scenario) -> bool:
    """Return whether the workload is one course of time, not a sample of steady traffic."""
    return isinstance(scenario.workload, (Trace, Diurnal))


def can_lose(scenario: Scenario) -> bool:
    """Return whether some requests may not be served."""
    return scenario.queue_limit is not None or scenario.timeout_ms is not None


def number(result: Result, key: str, level: float = LEVEL) -> Estimate:
    """Return a metric of a run with its interval."""
    (interval,) = result.intervals([key], level).values()
    return Estimate(result.metrics.number(key), *interval)


def percentile(result: Result, q: float, level: float = LEVEL) -> Estimate:
    """Return the latency in ms that q % of all requests do not exceed; one not served is infinitely late."""
    if not can_lose(result.scenario):
        estimated = number(result, key_of(q), level)
        if not math.isnan(estimated.low):
            return estimated
    # This interval counts lost requests, and is content with fewer independent ones.
    value = result.percentile(q, unserved="inf")
    return Estimate(value, *percentile_of_all(result.sample, q, level, INDEPENDENT))


def share_within(result: Result, limit_ms: float, level: float = LEVEL) -> Estimate:
    """Return the fraction of all requests that are served within a limit, with its interval."""
    metrics = result.metrics
    share = metrics.columns[LATENCY].within(limit_ms * (1 + ROUNDING)) / int(metrics.totals.requests)
    return Estimate(share, *share_of_all(result.sample, limit_ms, level))
