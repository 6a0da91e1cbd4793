"""A recommendation in sentences, computed from its run."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchsim import _format
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import AtLeast, ClosedLoop, SizeOrWait
from batchsim.scenario.rules import Rule
from batchsim.study import phrases
from batchsim.study.evaluate import quiet
from batchsim.study.judgement import LEVEL, Estimate, can_lose, estimate
from batchsim.study.slo import SLO, Objective
from batchsim.study.traffic import Traffic

if TYPE_CHECKING:
    from batchsim.study.recommendation import Recommendation

SEEN = 0.005  # the share of batches from which a reason is told
MATTERS = 0.02  # a change of the latency by less than this part of it does not


@dataclass(frozen=True)
class Effect:
    """What another value of a knob does to the latency: the difference in ms, in the same traffic.

    `what` says the value in words, as "twice the wait, 4 ms,".
    """

    knob: str
    value: float
    what: str
    key: str
    difference: Estimate


def effects_of(result: Result, slo: SLO, traffic: Traffic) -> tuple[Effect, ...]:
    """Return what twice and half the wait would change, or for AtLeast the least batch size."""
    rule = result.scenario.rule
    tried: list[tuple[str, float, str]] = []
    if type(rule) is SizeOrWait and rule.max_batch_size > 1 and rule.max_wait_ms < math.inf:
        wait = rule.max_wait_ms
        tried = [
            ("max_wait_ms", wait * 2, "twice the wait, {} ms,"),
            ("max_wait_ms", wait / 2, "half of it, {} ms,"),
        ]
        if wait == 0:  # as long as a request alone computes, to two digits
            tried = [("max_wait_ms", float(f"{result.scenario.service(1) * 1000:.2g}"), "a wait of {} ms")]
    elif type(rule) is AtLeast:
        least, most = rule.min_batch_size, rule.max_batch_size
        others = (min(least * 2, most), "a larger one, {},"), (least // 2, "half of it, {},")
        tried = [("min_batch_size", value, what) for value, what in others if 1 <= value != least]
    key, q = slo.latency
    objective = Objective(key, math.inf, q)
    effects = []
    for knob, value, what in tried:
        other = traffic.run(result.scenario.replace({knob: value}))
        before, after = (estimate(run, objective, run.scenario).value for run in (result, other))
        low = high = math.nan
        if not can_lose(result.scenario):
            with quiet():
                low, high = compare(result, other, [key], LEVEL)[key][3:]
        what = what.format(_format.number(value))
        effects.append(Effect(knob, value, what, key, Estimate(after - before, low, high)))
    return tuple(effects)


def explain(found: "Recommendation") -> str:
    """Return a paragraph about a recommendation."""
    sentences = [
        *_setting(found), *_cheaper(found), *_load(found), *_batches(found), *_optimum(found),
        *_servers(found), *_remedies(found), *_doubts(found), *_search(found),
    ]  # fmt: skip
    return " ".join(sentences)


def _setting(found: "Recommendation") -> Iterator[str]:
    setting = phrases.setting(found.knobs)
    where = "" if "servers" in found.knobs else f" on {_format.counted(found.scenario.servers, 'server')}"
    numbers = "; ".join(_asked(*each) for each in found.judgement.estimates.items())
    if found.met:
        yield f"Take {setting}{where}: {numbers}."
    elif found.judgement.too_short:
        requests = _format.counted(found.result.arrival_s.size, "request")
        yield f"No setting surely meets the objective. The nearest is {setting}{where}: {numbers}."
        yield f"A run of {requests} is too short to be sure of it."
    else:
        yield f"No setting meets the objective. The nearest is {setting}{where}: {numbers}."


def _cheaper(found: "Recommendation") -> Iterator[str]:
    """Say that fewer servers might do, where a full run of them could not tell."""
    frame = found.candidates
    if not found.met or found.prefer != "cheapest" or "servers" not in frame:
        return
    maybe = frame[(frame["outcome"] == "unclear") & (frame["servers"] < found.scenario.servers)]
    if len(maybe):
        best = maybe.sort_values(["servers", found.slo.latency[0]]).iloc[0]
        servers = _format.counted(int(best["servers"]), "server")
        yield f"{servers} might do: {best['why']}; a longer run would tell."


def _asked(objective: Objective, found: Estimate) -> str:
    where = "within" if objective.at_most else "at least"
    if objective.excess(found.value) > 1:
        where = "above" if objective.at_most else "below"
    return f"{phrases.estimated(objective.key, found)}, {where} the {phrases.limit(objective)} asked for"


def _load(found: "Recommendation") -> Iterator[str]:
    scenario, expected = found.scenario, found.expected
    size, capacity = (
        _format.number(expected["mean_batch_size"].value),
        _format.rate(scenario.saturation_per_s),
    )
    if isinstance(scenario.workload, ClosedLoop):
        clients = _format.counted(scenario.workload.clients, "client")
        answers = f"{_format.rate(expected['throughput_per_s'].value)} of a capacity of {capacity}"
        yield f"With {clients} it answers {answers}, in batches of {size} on average."
    elif not scenario.stable:
        yield f"It is overloaded, {phrases.overload(scenario)}, so that its queue grows without end."
    else:
        who = "The server is" if scenario.servers == 1 else "The servers are"
        busy = _format.percent(expected["utilisation"].value)
        yield (
            f"{who} busy {busy} of the time with batches of {size} on average; "
            f"full ones would carry {capacity}, so the load is {_format.percent(scenario.load)}."
        )


def _batches(found: "Recommendation") -> Iterator[str]:
    shares = sorted(found.result.metrics.shares().items(), key=lambda item: -item[1])
    reasons = _reasons(found.rule)
    first, *others = [f"{_format.percent(share)} {reasons[name]}" for name, share in shares if share >= SEEN]
    why = "; ".join([first.replace("% ", "% of the batches ", 1), *others])
    effects = [effect for effect in found.effects if not any(map(math.isnan, effect.difference))]
    if not effects:
        yield f"{why}."
        return
    what = "least batch size" if isinstance(found.rule, AtLeast) else "wait"
    value = found.expected[effects[0].key].value
    little = all(_little(effect, value) for effect in effects)
    workload = found.scenario.workload
    at = "" if isinstance(workload, ClosedLoop) else f" at {_format.rate(workload.offered_per_s)}"
    yield f"The {what} {'hardly matters' if little else 'matters'}{at}: {why}."
    name, changes = phrases.metric(effects[0].key)[0], [_change(effect) for effect in effects]
    text = "; ".join(changes).replace(" by ", f" would change {name} by ", 1)
    yield f"{text[0].upper()}{text[1:]}."


def _reasons(rule: Rule) -> dict[str, str]:
    waited = f"leave because their oldest request has waited {_format.number(rule.max_wait_ms)} ms"
    return {
        "full_share": "are full",
        "wait_share": "leave at once, to an idle server" if rule.max_wait_ms == 0 else waited,
        "backlog_share": "leave because a server became free",
        "enough_share": f"leave because {rule.enough} wait for an idle server",
        "drain_share": "leave at the end of the run",
    }


def _little(effect: Effect, value: float) -> bool:
    difference, low, high = effect.difference
    return abs(difference) <= MATTERS * value or low <= 0 <= high


def _change(effect: Effect) -> str:
    value, low, high = (_format.signed(number) for number in effect.difference)
    interval = "" if math.isnan(effect.difference.low) else f" ({low} to {high})"
    return f"{effect.what} by {value} ms{interval}"


def _optimum(found: "Recommendation") -> Iterator[str]:
    gap = found.optimum_gap
    if gap is None or found.optimum is None:
        return
    _, low, high = found.expected["mean_latency_ms"]
    best, most = found.optimum.mean_latency_ms, found.optimum.max_batch_size
    least = (
        f"No policy with batches of at most {most} has a lower mean latency than {_format.number(best)} ms"
    )
    if math.isnan(low):
        return  # it is not known how far it is
    if low <= best <= high or gap <= 0:
        yield f"{least}, and this one's cannot be told from it."
    else:
        yield f"{least}; this one's is {_format.number(gap, 2)} % above it."


def _servers(found: "Recommendation") -> Iterator[str]:
    servers, slowdown = found.scenario.servers, found.scenario.slowdown
    if servers == 1:
        return
    if slowdown is None:
        yield (
            f"The {servers} servers were taken to have a device each: "
            "on one device they would slow each other down, which `slowdown` describes."
        )
    else:
        times = f"{_format.number(slowdown[servers] / slowdown[1])} times as long as alone"
        yield f"The {servers} servers share a device: when all compute, each takes {times}."


def _remedies(found: "Recommendation") -> Iterator[str]:
    if found.judgement.too_short:
        for remedy in found.remedies:
            yield f"{remedy.text[0].upper()}{remedy.text[1:]} might be sure of it."
        return
    would = [remedy.text for remedy in found.remedies if remedy.value is not None and not remedy.knobs]
    if would:
        *first, last = would
        ways = f"{'; '.join(first)}; or {last}" if first else last
        yield f"With this setting the objective would be met by {ways}."
    for remedy in found.remedies:
        if remedy.knobs:
            yield f"{'It would also' if would else 'The objective would'} be met by {remedy.text}."
        if remedy.value is None:
            yield f"{remedy.text[0].upper()}{remedy.text[1:]}."


def _doubts(found: "Recommendation") -> Iterator[str]:
    drift = found.result.rate_range_per_s
    if drift is not None:
        low, high = (_format.rate(rate) for rate in drift)
        yield f"The traffic drifts between {low} and {high}: the numbers are of all of it together."
    if can_lose(found.scenario) and "loss" in found.expected:
        loss = found.expected["loss"].value
        yield (
            f"{_format.number(loss * 100)} % of the requests are not served."
            if loss
            else "All requests are served."
        )


def _search(found: "Recommendation") -> Iterator[str]:
    part = found.grid_requests / max(found.requests_simulated, 1)
    settings = _format.counted(len(found.candidates), "setting")
    less = f", 1/{part:.0f} of what full runs of all would take" if part >= 2 else ""
    yield f"The search among {settings} simulated {found.requests_simulated:,} requests{less}."
