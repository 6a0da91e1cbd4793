"""Which way a number went between two runs, and why: what Predict reveals."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from batchsim._format import listed, number, percent, rate
from batchsim.result import Result
from batchsim.scenario import ClosedLoop

TOLERANCE = 0.02  # a smaller relative change counts as none
FALLS, STAYS, RISES = "falls", "stays", "rises"
# The requests around a percentile, by rank among the served ones, from the fastest to the slowest.
MIDDLE, SLOWEST = ("the middle fifth", 0.4, 0.6), ("the slowest 2%", 0.98, 1.0)
LATENCY = {
    "forming": "the wait for company",
    "queueing": "the wait for a busy server",
    "device_wait": "the wait for a busy device",
    "computing": "the time of a batch",
}
TTFT = {
    "waiting": "the wait for a seat, for memory or for a place in a step",
    "prefill": "the steps of the prompt",
    "preempted": "the return to the queue for lack of memory",
}
TPOT = {"decode": "the steps of its tokens", "preempted": "the return to the queue for lack of memory"}


class Outcome(NamedTuple):
    """Which way a number went, None if unknown; its values before and after in words; and why."""

    way: str | None
    words: str
    why: str


def of_requests(key: str, before: Result, after: Result) -> Outcome:
    """Return the change of "p50", "p99" or "throughput"."""
    if key == "throughput":
        rates = before.throughput_per_s, after.throughput_per_s
        return change(*rates, "per s", _why_throughput(before, after))
    why = _why_overloaded(before, after)
    if why is None:
        who, begin, end = MIDDLE if key == "p50" else SLOWEST
        parts = {*before.metrics.components, *after.metrics.components}
        means = {name: meaning for name, meaning in LATENCY.items() if name in parts}
        why = because(who, means, _latency_ms(before, begin, end), _latency_ms(after, begin, end))
    both = before, after
    old, new = (each.percentile(int(key[1:])) if each.scenario.stable else math.inf for each in both)
    return change(old, new, "ms", why)


def of_tokens(key: str, before: Result, after: Result) -> Outcome:
    """Return the change of the p99 of "ttft" or "tpot", or of "tokens", the output tokens per second."""
    both = before, after
    if key == "tokens":
        old, new = (float(result.summary()["output_tokens_per_s"]) for result in both)
        return change(old, new, "per s", _why_tokens(after))
    old, new = (result.percentile(99, column=f"{key}_ms") for result in both)
    if key == "tpot":
        return change(old, new, "ms", _why_tpot(before, after))
    old, new = (
        value if result.scenario.stable else math.inf for value, result in zip((old, new), both, strict=True)
    )
    why = _why_overloaded(before, after)
    if why is None:
        why = because(SLOWEST[0], TTFT, _ttft_ms(before), _ttft_ms(after))
    return change(old, new, "ms", why)


def change(old: float, new: float, unit: str, why: str) -> Outcome:
    """Return the change of a number, which is infinite without a steady state."""
    if math.isnan(old) or math.isnan(new):
        return Outcome(None, "no value without served requests", "")
    if math.isinf(old) and math.isinf(new):
        return Outcome(None, "no steady state, before and after", why)
    if math.isinf(new):
        return Outcome(RISES, f"from {number(old)} {unit} it grows without end", why)
    if math.isinf(old):
        return Outcome(FALLS, f"it grew without end, and is now {number(new)} {unit}", why)
    words = f"{number(old)} \N{RIGHTWARDS ARROW} {number(new)} {unit}"
    if old == 0:
        return Outcome(RISES if new > 0 else STAYS, words, why)
    relative = new / old - 1
    return Outcome(STAYS if abs(relative) < TOLERANCE else RISES if relative > 0 else FALLS, words, why)


def _why_overloaded(before: Result, after: Result) -> str | None:
    """Return why a latency does not stay or come down; None if both runs have a steady state."""
    if not after.scenario.stable:
        return f"Overloaded: {_rates(after)}, so the queue grows as long as the run lasts."
    return None if before.scenario.stable else f"No longer overloaded: {_rates(after)}."


def because(
    who: str, means: Mapping[str, str], old: Mapping[str, float] | None, new: Mapping[str, float] | None
) -> str:  # fmt: skip
    """Return which part of a time moved it, among the requests that `who` names; `means` explains parts."""
    if old is None or new is None:
        return ""
    changes = {name: new[name] - old[name] for name in means}
    most = max(changes, key=lambda name: abs(changes[name]))
    total, least = sum(changes.values()), TOLERANCE * max(sum(old.values()), 1e-12)
    if abs(total) >= least:
        leading = max(means, key=lambda name: math.copysign(1, total) * changes[name])
        return f"In {who}, {_moved(leading, old, new)}: {means[leading]}."
    if abs(changes[most]) < least:
        return f"In {who}, {listed([name.replace('_', ' ') for name in means])} stayed the same."
    opposite = [name for name in means if changes[name] * changes[most] < 0]
    other = max(opposite, key=lambda name: abs(changes[name]))
    return f"In {who}, {_moved(most, old, new)}; {_moved(other, old, new)}: these cancel out."


def _moved(name: str, old: Mapping[str, float], new: Mapping[str, float]) -> str:
    verb = "grew" if new[name] > old[name] else "fell"
    return f"{name.replace('_', ' ')} {verb} from {number(old[name])} to {number(new[name])} ms"


def _rates(result: Result) -> str:
    summary = result.summary()
    offered, saturation = rate(summary["offered_per_s"]), rate(summary["saturation_per_s"])
    return f"{offered} arrive, and {saturation} can be served"


# The mean parts of a time, in ms, over the requests between two ranks; None without served requests.


def between(times_ms: np.ndarray, begin: float, end: float) -> np.ndarray | None:
    """Return the served requests whose times are between two ranks; None without any."""
    served = np.flatnonzero(~np.isnan(times_ms))
    if not served.size:
        return None
    first, last = int(begin * served.size), max(math.ceil(end * served.size) - 1, 0)
    first = min(first, last)
    chosen: np.ndarray = served[np.argpartition(times_ms[served], [first, last])[first : last + 1]]
    return chosen


def _latency_ms(result: Result, begin: float, end: float) -> dict[str, float] | None:
    chosen = between(result.latency_ms, begin, end)
    return None if chosen is None else {
        name: float(getattr(result, f"{name}_ms")[chosen].mean()) for name in LATENCY
    }  # fmt: skip


def _ttft_ms(result: Result) -> dict[str, float] | None:
    chosen = between(result.ttft_ms, *SLOWEST[1:])
    if chosen is None:
        return None
    waiting = float((result.start_s - result.arrival_s)[chosen].mean() * 1000)
    prefill = float(result.prefill_ms[chosen].mean())
    preempted = float(result.ttft_ms[chosen].mean()) - waiting - prefill
    return {"waiting": waiting, "prefill": prefill, "preempted": preempted}


def _tpot_ms(result: Result) -> dict[str, float] | None:
    chosen = between(result.tpot_ms, *SLOWEST[1:])
    if chosen is None:
        return None
    tpot_ms, decode_ms = result.tpot_ms[chosen], result.decode_ms[chosen]
    decode = float((tpot_ms * decode_ms / (result.latency_ms - result.ttft_ms)[chosen]).mean())
    return {"decode": decode, "preempted": float(tpot_ms.mean()) - decode}


def _why_tpot(before: Result, after: Result) -> str:
    why = because(SLOWEST[0], TPOT, _tpot_ms(before), _tpot_ms(after))
    old, new = (number(_rows(result)) for result in (before, after))
    then = ", as before" if old == new else f", {old} before"
    are = "1 request is in" if new == "1" else f"{new} requests share"
    return why and f"{why} On average {are} a step{then}."


def _rows(result: Result) -> float:
    """Return the mean number of rows of a step over the time of computing."""
    steps = result.steps
    return float(np.average(steps.rows, weights=steps.finish_s - steps.start_s))


# Why a throughput changed.


def _of_clients(workload: ClosedLoop, things: str) -> str:
    who = f"Each of {workload.clients:,} clients" if workload.clients > 1 else "The client"
    return f"{who} sends its next request after an answer: faster answers mean more {things}."


def _why_throughput(before: Result, after: Result) -> str:
    scenario = after.scenario
    if isinstance(scenario.workload, ClosedLoop):
        return _of_clients(scenario.workload, "requests")
    if not scenario.stable:
        return f"Overloaded: {rate(scenario.saturation_per_s)} can be served, however many arrive."
    offered, lost = scenario.workload.offered_per_s, 1 - after.metrics.served / after.arrival_s.size
    if lost > TOLERANCE:
        return f"{percent(lost)} of the {rate(offered)} that arrive are lost."
    same = before.scenario.stable and before.summary()["offered_per_s"] == offered
    rest = "which has not changed" if same else "however long each takes"
    return f"Below saturation, throughput is the arrival rate, {rest}."


def _why_tokens(after: Result) -> str:
    scenario = after.scenario
    if isinstance(scenario.workload, ClosedLoop):
        return _of_clients(scenario.workload, "tokens")
    if not scenario.stable:
        return f"Overloaded: {_rates(after)}, so full steps determine the number of tokens."
    return "Below saturation, it is the arrival rate times the mean output, however long each takes."
