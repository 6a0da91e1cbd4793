"""A point of a sweep: the numbers that a table has of it, and why it is infeasible."""

import contextlib
import math
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from batchsim.result import Result
from batchsim.result.intervals import intervals
from batchsim.scenario import OpenLoop, Scenario
from batchsim.scenario.rules import Trigger
from batchsim.simulate import simulate

SHARES = tuple(f"{trigger.name.lower()}_share" for trigger in Trigger)
# Latencies are of the served requests: a queue that turns many away looks fast by them. These two see it.
LOSS, P99_OF_ALL = "loss", "p99_all_ms"
SUMMARY = (
    "requests", "served", "rejected", "timed_out", LOSS, "offered_per_s", "saturation_per_s", "load",
    "stable", "drifting", "throughput_per_s", "utilisation", "mean_latency_ms", "p50_ms", "p90_ms", "p95_ms",
    "p99_ms", P99_OF_ALL, "mean_forming_ms", "mean_queueing_ms", "mean_computing_ms", "batches",
    "mean_batch_size", *SHARES,
)  # fmt: skip
INTERVALS = (
    "mean_latency_ms", "p50_ms", "p95_ms", "p99_ms", "throughput_per_s", "utilisation", "mean_batch_size",
)  # fmt: skip
# The numbers of a point, in order, with their dtypes. Counts are floats: those of a refused point are NaN.
COLUMNS = {
    name: "bool" if key in ("stable", "drifting") else "float64"
    for key in SUMMARY
    for name in ((key, f"{key}_low", f"{key}_high") if key in INTERVALS else (key,))
}
REFUSED = np.array([0.0 if dtype == "bool" else math.nan for dtype in COLUMNS.values()])

Rows = tuple[np.ndarray, list[str]]


def compute(scenario: Scenario, points: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Rows:
    """Return the numbers of some points, shape (points, columns), and why each is infeasible or ""."""
    numbers, reasons = np.tile(REFUSED, (len(points), 1)), []
    with quiet():
        for row, knobs in zip(numbers, points, strict=True):
            try:
                point = scenario.replace(knobs)
                check_trace(point, settings["requests"])
            except (TypeError, ValueError) as refusal:
                reasons.append(str(refusal))
                continue
            try:
                result = simulate(point, **settings)
                row[:] = _numbers(result)
            except Exception as error:
                error.add_note(f"at the point {dict(knobs)} of the sweep")
                raise
            reasons.append(_unstable(point))
    return numbers, reasons


def _numbers(result: Result) -> list[float]:
    found = dict.fromkeys(SHARES, 0.0) | result.summary()
    found[LOSS] = 1 - found["served"] / found["requests"] if found["requests"] else math.nan
    found[P99_OF_ALL] = result.percentile(99, unserved="inf")
    for key, (low, high) in intervals(result, INTERVALS).items():
        found[f"{key}_low"], found[f"{key}_high"] = low, high
    return [found[name] for name in COLUMNS]


def _unstable(point: Scenario) -> str:
    if point.stable:
        return ""
    offered_per_s, saturation_per_s = point.workload.offered_per_s, point.saturation_per_s  # type: ignore[union-attr]
    if point.load < 1:  # a table in which larger batches are faster
        full_per_s, size = point.full_batches_per_s, point.rule.max_batch_size
        return f"full batches of {size} compute {_per_s(full_per_s)}, and {_per_s(offered_per_s)} come"
    return f"load {point.load:.4g}: {_per_s(offered_per_s)} of a capacity of {_per_s(saturation_per_s)}"


def _per_s(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 1000 else f"{rate:.4g}/s"


class _Quiet:
    """Warnings of runs too short for an interval or a warm-up, silenced while anyone in any thread wants it.

    `warnings.catch_warnings` alone is for one thread: of two, the first to leave would bring back
    what the second had replaced.
    """

    def __init__(self) -> None:
        self.lock, self.inside, self.catching = threading.Lock(), 0, contextlib.ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.catching.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", "an interval for |a warm-up must end", UserWarning)
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.catching.close()


_QUIET = _Quiet()


def quiet() -> _Quiet:
    """Return what silences, within `with`, warnings of runs too short."""
    return _QUIET


def check_trace(scenario: Scenario, requests: int | None) -> None:
    """Refuse more requests than a trace holds."""
    most = scenario.workload.max_requests if isinstance(scenario.workload, OpenLoop) else None
    if requests is not None and most is not None and requests > most:
        raise ValueError(f"requests must be at most the trace's {most:,}, got {requests:,}")
