"""Numbers and settings as people read them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from batchsim.scenario import ClosedLoop, Scenario
from batchsim.study.evidence import Estimate, Judgement, Verdict
from batchsim.study.slo import Objective

UNITS = {"_ms": " ms", "_per_s": "/s"}


def plain(value: float, digits: int = 3) -> str:
    """Return a number with so many digits that count.

    >>> plain(17.5778), plain(1398.2), plain(0.04), plain(math.inf)
    ('17.6', '1,398', '0.04', 'infinite')
    """
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    whole = len(str(int(abs(value))))
    text = f"{value:,.{max(digits - whole, 0)}f}" if abs(value) >= 1 else f"{value:.{digits}g}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def signed(value: float) -> str:
    """Return a difference with its sign.

    >>> signed(0.0312), signed(-2.5), signed(0)
    ('+0.031', '-2.5', '0')
    """
    text = plain(value, 2 if abs(value) < 1 else 3)
    return f"+{text}" if value > 0 else text


def percent(share: float) -> str:
    """Return a fraction in percent, and no 100% of what is less, nor 0% of what is more.

    >>> percent(0.934), percent(0.9996), percent(1), percent(0.0026)
    ('93%', '99.96%', '100%', '0.3%')
    """
    if 0 < share < 0.005:
        return f"{plain(share * 100, 1)}%"
    digits = 0 if not 0.995 <= share < 1 else 1 if share < 0.9995 else 2
    return f"{min(share, 0.9999) if share < 1 else share:.{digits}%}"


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
    text = f"{called(key)} {plain(value * scale, 4)}{of}"
    if not interval or math.isnan(low) or low == high:
        return text
    return f"{text} ({plain(low * scale, 4)} to {plain(high * scale, 4)})"


def limit(objective: Objective) -> str:
    """Return an objective's limit with its unit."""
    scale, of = (100, " %") if objective.key == "loss" else (1, unit(objective.key))
    return f"{plain(objective.limit * scale, 6)}{of}"


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
    return f"{called(key)} {plain(value)}{of} ({plain(low)} to {plain(high)})"


def per_s(rate: float, digits: int = 3) -> str:
    """Return a rate.

    >>> per_s(1400.2), per_s(12.345)
    ('1,400/s', '12.3/s')
    """
    return f"{plain(rate, digits)}/s"


def overload(scenario: Scenario) -> str:
    """Return by how much a scenario's load is too high."""
    assert not isinstance(scenario.workload, ClosedLoop)
    offered, capacity = scenario.workload.offered_per_s, scenario.capacity_per_s
    return f"load {plain(scenario.load)}: {per_s(offered)} of a capacity of {per_s(capacity)}"


def setting(knobs: Mapping[str, Any]) -> str:
    """Return knobs with their values."""
    return ", ".join(f"{name}={value!r}" for name, value in knobs.items())


def counted(count: int, noun: str) -> str:
    """Return so many of something.

    >>> counted(1, "server"), counted(2400, "setting")
    ('1 server', '2,400 settings')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Return parts as a sentence lists them.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *first, end = parts
    return f"{', '.join(first)} {last} {end}" if first else end
