"""Which way a number of token generation went between two runs, and why."""

import math

import numpy as np

from batchsim._format import number
from batchsim.result import Result
from batchsim.scenario import ClosedLoop
from batchsim.view.explorer.pages.reasons import Outcome, because, between, rates, told

TTFT = {
    "waiting": "the wait for a seat, for memory or for a place in a step",
    "prefill": "the steps of the prompt",
    "preempted": "going back to the line for want of memory",
}
TPOT = {"decode": "the steps of its tokens", "preempted": "going back to the line for want of memory"}


def outcome(key: str, before: Result, after: Result) -> Outcome:
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
