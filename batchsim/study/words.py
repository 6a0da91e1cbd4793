"""Numbers and settings as people read them."""

import math
from collections.abc import Mapping
from typing import Any

from batchsim._format import listed, number, rate
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.study.judgement import Estimate, Judgement, Verdict
from batchsim.study.slo import Objective

UNITS = {"_ms": " ms", "_per_s": "/s"}


def called(key: str) -> str:
    """Return a summary number's name without its unit.

    >>> called("mean_latency_ms"), called("p99_ms")
    ('mean latency', 'p99')
    """
    return key.removesuffix("_ms").removesuffix("_per_s").replace("_", " ")


def unit(key: str) -> str:
    """Return the unit of a summary number, with the space before it."""
    return next((text for suffix, text in UNITS.items() if key.endswith(suffix)), "")


def estimated(key: str, found: Estimate, interval: bool = True) -> str:
    """Return a number with its interval.

    >>> estimated("p99_ms", Estimate(17.58, 17.4, 17.73))
    'p99 17.58 ms (17.4 to 17.73)'
    """
    value, low, high = found
    scale, of = (100, " %") if key == "loss" else (1, unit(key))
    text = f"{called(key)} {number(value * scale, 4)}{of}"
    if not interval or math.isnan(low) or low == high:
        return text
    return f"{text} ({number(low * scale, 4)} to {number(high * scale, 4)})"


def limit(objective: Objective) -> str:
    """Return an objective's limit with its unit."""
    scale, of = (100, " %") if objective.key == "loss" else (1, unit(objective.key))
    return f"{number(objective.limit * scale, 6)}{of}"


def finding(objective: Objective, found: Estimate, verdict: Verdict) -> str:
    """Return a number and where it is from its limit."""
    beyond, within = ("above", "below") if objective.at_most else ("below", "above")
    where = {Verdict.FAILS: beyond, Verdict.MEETS: within, Verdict.UNCLEAR: "not surely to either side of"}
    surely = "surely " if verdict is Verdict.FAILS and math.isnan(found.low) else ""
    return f"{estimated(objective.key, found)}, {surely}{where[verdict]} {limit(objective)}"


def findings(judgement: Judgement) -> str:
    """Return all numbers of a judgement, each with where it is from its limit."""
    parts = []
    for objective, found in judgement.estimates.items():
        verdict = Verdict.MEETS if objective.excess(found.value) <= 1 else Verdict.FAILS
        parts.append(finding(objective, found._replace(low=found.value, high=found.value), verdict))
    return listed(parts)


def by(key: str, difference: Estimate) -> str:
    """Return a difference without its sign, as "by 0.3 ms"."""
    value, low, high = (
        difference if difference.value >= 0 else (-difference[0], -difference[2], -difference[1])
    )
    of = unit(key)
    return f"{called(key)} {number(value)}{of} ({number(low)} to {number(high)})"


def overload(scenario: Scenario) -> str:
    """Return by how much a scenario's load is too high."""
    assert not isinstance(scenario.workload, ClosedLoop)
    offered, capacity = scenario.workload.offered_per_s, scenario.saturation_per_s
    return f"load {number(scenario.load)}: {rate(offered)} of a capacity of {rate(capacity)}"


def setting(knobs: Mapping[str, Any]) -> str:
    """Return knobs with their values."""
    return ", ".join(f"{name}={value!r}" for name, value in knobs.items())
