"""Settings, estimates and judgements as text, for explanations and reasons."""

import math
from collections.abc import Mapping
from typing import Any

from batchsim._format import counted, listed, number, rate
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.study.judgement import Estimate, Judgement, Verdict
from batchsim.study.slo import described


def estimated(key: str, estimate: Estimate, digits: int = 4) -> str:
    """Return a metric's value with its interval.

    >>> estimated("p99_ms", Estimate(17.58, 17.4, 17.73))
    'p99 17.58 ms (17.4 to 17.73)'
    """
    label, unit, scale = described(key)
    value, low, high = (number(each * scale, digits) for each in estimate)
    interval = "" if math.isnan(estimate.low) or low == high else f" ({low} to {high})"
    return f"{label} {value}{unit}{interval}"


def estimates(judgement: Judgement) -> str:
    """Return the estimate for each objective."""
    return listed([estimated(objective.key, each) for objective, each in judgement.estimates.items()])


def finding(judgement: Judgement) -> str:
    """Return the estimate for the worst objective, and its side of the limit."""
    worst, verdict = judgement.worst, judgement.verdict
    estimate = judgement.estimates[worst]
    missed, met = ("above", "below") if worst.at_most else ("below", "above")
    side = {Verdict.FAILS: missed, Verdict.MEETS: met, Verdict.UNCLEAR: "not clearly above or below"}
    clearly = "clearly " if verdict is Verdict.FAILS and math.isnan(estimate.low) else ""
    return f"{estimated(worst.key, estimate)}, {clearly}{side[verdict]} {worst.limit_text}"


def against_limits(judgement: Judgement) -> str:
    """Return each estimate and its side of the limit, without regard to its interval."""
    sides = []
    for objective, estimate in judgement.estimates.items():
        side = "within" if objective.at_most else "at least"
        if objective.excess(estimate.value) > 1:
            side = "above" if objective.at_most else "below"
        sides.append(f"{estimated(objective.key, estimate)}, {side} the {objective.limit_text} asked for")
    return "; ".join(sides)


def overload(scenario: Scenario) -> str:
    """Return a load that is too high, and the two rates behind it."""
    assert not isinstance(scenario.workload, ClosedLoop)
    offered, saturation = scenario.workload.offered_per_s, scenario.saturation_per_s
    return f"load {number(scenario.load, 4)}: {rate(offered, 4)}, saturation at {rate(saturation, 4)}"


def setting(knobs: Mapping[str, Any]) -> str:
    """Return knobs with their values."""
    return ", ".join(f"{name}={value!r}" for name, value in knobs.items())


def machines(scenario: Scenario) -> str:
    """Return the servers of a scenario, by replica if there are several.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(8, 5), Affine(5, 1), servers=2)
    >>> machines(scenario), machines(scenario.replace(replicas=3))
    ('2 servers', '3 replicas of 2 servers')
    """
    servers = counted(scenario.servers, "server")
    return servers if scenario.replicas == 1 else f"{scenario.replicas} replicas of {servers}"
