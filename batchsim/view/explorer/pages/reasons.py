"""Which way a number went between two runs, and why: what Predict reveals."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from batchsim._format import listed, number, percent, rate
from batchsim.result import Result
from batchsim.scenario import ClosedLoop

TOLERANCE = 0.02  # a smaller change counts as none
FALLS, STAYS, RISES = "falls", "stays", "rises"
# The requests round a percentile, as parts of the served ones from the fastest to the slowest.
ROUND = {"p50": ("the middle fifth", 0.4, 0.6), "p99": ("the slowest 2%", 0.98, 1.0)}
MEANS = {
    "forming": "the wait for company",
    "queueing": "the wait for a busy server",
    "device_wait": "the wait for a busy device",
    "computing": "the time of a batch",
}


class Outcome(NamedTuple):
    """Which way a number went, None if there is no telling; before and after in words; and why."""

    way: str | None
    words: str
    why: str


def outcome(key: str, before: Result, after: Result) -> Outcome:
    """Return what happened to "p50", "p99" or "throughput"."""
    why = _why_throughput(before, after) if key == "throughput" else _why_latency(key, before, after)
    return told(value(key, before), value(key, after), "per s" if key == "throughput" else "ms", why)


def told(old: float, new: float, unit: str, why: str) -> Outcome:
    """Return what happened to a number; infinite where there is no steady state."""
    if math.isnan(old) or math.isnan(new):
        return Outcome(None, "no value where no requests are served", "")
    if math.isinf(old) and math.isinf(new):
        return Outcome(None, "no steady state, before and after", why)
    if math.isinf(new):
        return Outcome(RISES, f"from {number(old)} {unit} it grows without end", why)
    if math.isinf(old):
        return Outcome(FALLS, f"it grew without end, and is {number(new)} {unit} now", why)
    words = f"{number(old)} \N{RIGHTWARDS ARROW} {number(new)} {unit}"
    if old == 0:
        return Outcome(RISES if new > 0 else STAYS, words, why)
    change = new / old - 1
    return Outcome(STAYS if abs(change) < TOLERANCE else RISES if change > 0 else FALLS, words, why)


def value(key: str, result: Result) -> float:
    """Return a number of a run; infinite for a latency without a steady state."""
    if key == "throughput":
        return result.throughput_per_s
    return result.percentile(int(key[1:])) if result.scenario.stable else math.inf


def _why_latency(key: str, before: Result, after: Result) -> str:
    if not after.scenario.stable:
        return f"Overloaded: {rates(after)}, so the queue grows as long as the run lasts."
    if not before.scenario.stable:
        return f"No longer overloaded: {rates(after)}."
    who, *span = ROUND[key]
    old, new = (_parts(result, *span) for result in (before, after))
    parts = {*before.metrics.components, *after.metrics.components}
    return because(who, old, new, {name: each for name, each in MEANS.items() if name in parts})


def because(
    who: str, old: Mapping[str, float] | None, new: Mapping[str, float] | None, means: Mapping[str, str]
) -> str:  # fmt: skip
    """Return which part of a time moved it, among the requests that `who` names; `means` explains parts."""
    if old is None or new is None:
        return ""
    changes = {name: new[name] - old[name] for name in means}
    most = max(changes, key=lambda name: abs(changes[name]))
    total = sum(changes.values())
    if abs(total) < TOLERANCE * max(sum(old.values()), 1e-12):
        if abs(changes[most]) < TOLERANCE * max(sum(old.values()), 1e-12):
            return f"In {who}, {listed([name.replace('_', ' ') for name in means])} all stayed."
        other = max(
            (name for name in means if changes[name] * changes[most] < 0), key=lambda name: abs(changes[name])
        )
        return f"In {who}, {moved(most, old, new)}; {moved(other, old, new)}: together nearly nothing."
    leading = max(means, key=lambda name: changes[name] * (1 if total > 0 else -1))
    return f"In {who}, {moved(leading, old, new)}: {means[leading]}."


def _parts(result: Result, begin: float, end: float) -> dict[str, float] | None:
    """Return the mean parts, in ms, of the latencies between two ranks; None where nobody is served."""
    chosen = between(result.latency_ms, begin, end)
    return None if chosen is None else {
        name: float(getattr(result, f"{name}_ms")[chosen].mean()) for name in MEANS
    }  # fmt: skip


def between(times_ms: np.ndarray, begin: float, end: float) -> np.ndarray | None:
    """Return the requests whose times, as far as they have any, are between two ranks; None without any."""
    served = np.flatnonzero(~np.isnan(times_ms))
    if not served.size:
        return None
    first, last = int(begin * served.size), max(math.ceil(end * served.size) - 1, 0)
    first = min(first, last)
    chosen: np.ndarray = served[np.argpartition(times_ms[served], [first, last])[first : last + 1]]
    return chosen


def moved(name: str, old: Mapping[str, float], new: Mapping[str, float]) -> str:
    """Return how a part of a time changed, in words."""
    verb = "grew" if new[name] > old[name] else "fell"
    return f"{name.replace('_', ' ')} {verb} from {number(old[name])} to {number(new[name])} ms"


def rates(result: Result) -> str:
    """Return what arrives and what can be served, in words."""
    summary = result.summary()
    offered, saturation = rate(summary["offered_per_s"]), rate(summary["saturation_per_s"])
    return f"{offered} arrive, and {saturation} can be served"


def _why_throughput(before: Result, after: Result) -> str:
    scenario = after.scenario
    if isinstance(scenario.workload, ClosedLoop):
        return (
            f"Each of {scenario.workload.clients:,} clients sends its next request after an answer: "
            "the sooner answers come, the more requests come."
        )
    lost = 1 - after.metrics.served / after.arrival_s.size
    if not scenario.stable:
        return f"Overloaded: {rate(scenario.saturation_per_s)} can be served, however many arrive."
    offered = scenario.workload.offered_per_s
    if lost > TOLERANCE:
        return f"Of the {rate(offered)} that arrive, {percent(lost)} are lost."
    same = before.scenario.stable and before.summary()["offered_per_s"] == offered
    rest = "which has not changed" if same else "however long each takes"
    return f"Below saturation throughput is the arrival rate, {rest}."


TTFT = {
    "waiting": "the wait for a seat, for memory or for a place in a step",
    "prefill": "the steps of the prompt",
    "preempted": "going back to the line for want of memory",
}
TPOT = {"decode": "the steps of its tokens", "preempted": "going back to the line for want of memory"}


def outcome_of_tokens(key: str, before: Result, after: Result) -> Outcome:
    """Return what happened to "ttft", "tpot", their p99, or to "tokens", the output tokens per second."""
    why = {"ttft": _why_ttft, "tpot": _why_tpot, "tokens": _why_tokens}[key](before, after)
    return told(_value(key, before), _value(key, after), "per s" if key == "tokens" else "ms", why)


def _value(key: str, result: Result) -> float:
    if key == "tokens":
        return float(result.summary()["output_tokens_per_s"])
    if key == "ttft" and not result.scenario.stable:
        return math.inf
    return result.percentile(99, column=f"{key}_ms")


def _why_ttft(before: Result, after: Result) -> str:
    if not after.scenario.stable:
        return f"Overloaded: {rates(after)}, so the line grows as long as the run lasts."
    if not before.scenario.stable:
        return f"No longer overloaded: {rates(after)}."
    return because("the slowest 2%", _parts_of_ttft(before), _parts_of_ttft(after), TTFT)


def _parts_of_ttft(result: Result) -> dict[str, float] | None:
    chosen = between(result.ttft_ms, 0.98, 1.0)
    if chosen is None:
        return None
    waiting = float((result.start_s - result.arrival_s)[chosen].mean() * 1000)
    prefill = float(result.prefill_ms[chosen].mean())
    return {
        "waiting": waiting, "prefill": prefill,
        "preempted": float(result.ttft_ms[chosen].mean()) - waiting - prefill,
    }  # fmt: skip


def _why_tpot(before: Result, after: Result) -> str:
    why = because("the slowest 2%", _parts_of_tpot(before), _parts_of_tpot(after), TPOT)
    old, new = (number(_rows(result)) for result in (before, after))
    then = ", as before" if old == new else f", {old} before"
    are = "1 request is in" if new == "1" else f"{new} requests share"
    return why and f"{why} On average {are} a step{then}."


def _parts_of_tpot(result: Result) -> dict[str, float] | None:
    chosen = between(result.tpot_ms, 0.98, 1.0)
    if chosen is None:
        return None
    tpot_ms, decode_ms = result.tpot_ms[chosen], result.decode_ms[chosen]
    decode = float((tpot_ms * decode_ms / (result.latency_ms - result.ttft_ms)[chosen]).mean())
    return {"decode": decode, "preempted": float(tpot_ms.mean()) - decode}


def _rows(result: Result) -> float:
    """Return how many rows a step has, as a moment of computing sees it."""
    steps = result.steps
    return float(np.average(steps.rows, weights=steps.finish_s - steps.start_s))


def _why_tokens(before: Result, after: Result) -> str:
    scenario = after.scenario
    if isinstance(scenario.workload, ClosedLoop):
        return (
            f"Each of {scenario.workload.clients:,} clients sends its next request after an answer: "
            "the sooner answers come, the more tokens are made."
        )
    if not scenario.stable:
        return f"Overloaded: {rates(after)}, so the tokens are those that full steps make."
    return "Below saturation they are the arrival rate times the mean output, however long each takes."
