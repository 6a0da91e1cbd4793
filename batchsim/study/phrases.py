"""Settings, estimates and objectives in words, for explanations and reasons."""

import math
from collections.abc import Mapping
from typing import Any

from batchsim._format import number, rate
from batchsim.result import metrics
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.study.judgement import Estimate, Verdict
from batchsim.study.slo import Objective


def metric(key: str) -> tuple[str, str, float]:
    """Return a metric's label, its unit with the space before it, and how many of the unit are in 1.

    >>> metric("mean_latency_ms"), metric("loss")
    (('mean latency', ' ms', 1.0), ('loss', ' %', 100.0))
    """
    each = metrics.described(key)
    if key == "loss":
        return each.label, " %", 100.0
    return each.label, "/s" if each.unit == "per s" else each.unit and f" {each.unit}", 1.0


def estimated(key: str, estimate: Estimate) -> str:
    """Return a metric's value with its interval.

    >>> estimated("p99_ms", Estimate(17.58, 17.4, 17.73))
    'p99 17.58 ms (17.4 to 17.73)'
    """
    label, unit, scale = metric(key)
    value, low, high = (number(each * scale, 4) for each in estimate)
    interval = "" if math.isnan(estimate.low) or low == high else f" ({low} to {high})"
    return f"{label} {value}{unit}{interval}"


def difference(key: str, estimate: Estimate) -> str:
    """Return how far apart two values of a metric are, and the interval of that.

    >>> difference("p99_ms", Estimate(-2, -3, -1))
    'p99 2 ms (1 to 3)'
    """
    value, low, high = estimate if estimate.value >= 0 else (-estimate[0], -estimate[2], -estimate[1])
    label, unit, scale = metric(key)
    return f"{label} {number(value * scale)}{unit} ({number(low * scale)} to {number(high * scale)})"


def limit(objective: Objective) -> str:
    """Return an objective's limit with its unit."""
    _, unit, scale = metric(objective.key)
    return f"{number(objective.limit * scale, 6)}{unit}"


def finding(objective: Objective, estimate: Estimate, verdict: Verdict) -> str:
    """Return an estimate and its side of the limit."""
    missed, met = ("above", "below") if objective.at_most else ("below", "above")
    side = {Verdict.FAILS: missed, Verdict.MEETS: met, Verdict.UNCLEAR: "not clearly above or below"}
    clearly = "clearly " if verdict is Verdict.FAILS and math.isnan(estimate.low) else ""
    return f"{estimated(objective.key, estimate)}, {clearly}{side[verdict]} {limit(objective)}"


def against_limit(objective: Objective, estimate: Estimate) -> str:
    """Return an estimate and its side of the limit, whatever its interval."""
    side = "within" if objective.at_most else "at least"
    if objective.excess(estimate.value) > 1:
        side = "above" if objective.at_most else "below"
    return f"{estimated(objective.key, estimate)}, {side} the {limit(objective)} asked for"


def overload(scenario: Scenario) -> str:
    """Return a load that is too high, and the two rates behind it."""
    assert not isinstance(scenario.workload, ClosedLoop)
    offered, saturation = scenario.workload.offered_per_s, scenario.saturation_per_s
    return f"load {number(scenario.load, 4)}: {rate(offered, 4)}, saturation at {rate(saturation, 4)}"


def setting(knobs: Mapping[str, Any]) -> str:
    """Return knobs with their values."""
    return ", ".join(f"{name}={value!r}" for name, value in knobs.items())
