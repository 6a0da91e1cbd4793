"""A point of a sweep: its row of numbers, and why it is infeasible."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from batchsim._format import rate
from batchsim.result.metrics import METRICS, OF_DEVICES, SHARES, TOKENS, Kind, Metric
from batchsim.scenario import Scenario
from batchsim.scenario.rules.continuous import NeverServed
from batchsim.simulate import check_replications, check_requests, simulated
from batchsim.study import phrases

Rows = tuple[np.ndarray, list[str]]


def _intervals(metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    return tuple(key for key, metric in metrics.items() if metric.interval)


def _columns(metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Return the numbers of a point, in order, with their dtypes.

    Counts are floats: those of a refused point are NaN.
    """
    return {
        name: "bool" if metric.kind is Kind.FLAG else "float64"
        for key, metric in metrics.items()
        for name in ((key, f"{key}_low", f"{key}_high") if metric.interval else (key,))
    }


PLAIN = {key: each for key, each in METRICS.items() if key not in OF_DEVICES}
INTERVALS, COLUMNS = _intervals(PLAIN), _columns(PLAIN)
DEVICE_INTERVALS, DEVICE_COLUMNS = _intervals(METRICS), _columns(METRICS)
OF_TOKENS = PLAIN | TOKENS
TOKEN_INTERVALS, TOKEN_COLUMNS = _intervals(OF_TOKENS), _columns(OF_TOKENS)


def columns_of(scenario: Scenario, knobs: Iterable[str]) -> dict[str, str]:
    """Return the columns of a sweep: also of tokens or devices, where it has them or they are a knob."""
    knobs = {*knobs}
    if scenario.tokens is not None or "tokens" in knobs:
        return TOKEN_COLUMNS
    return COLUMNS if scenario.devices is None and "devices" not in knobs else DEVICE_COLUMNS


def refused(columns: Mapping[str, str]) -> np.ndarray:
    """Return the numbers of a point that the scenario refuses."""
    return np.array([0.0 if dtype == "bool" else math.nan for dtype in columns.values()])


def compute(scenario: Scenario, points: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Rows:
    """Return the numbers of some points, shape (points, columns), and why each is infeasible or ""."""
    columns = columns_of(scenario, points[0])
    numbers, reasons = np.tile(refused(columns), (len(points), 1)), []
    for row, knobs in zip(numbers, points, strict=True):
        try:
            point = scenario.replace(knobs)
            check_requests(point, settings["requests"])
            check_replications(point, settings["replications"])
        except (TypeError, ValueError) as refusal:
            reasons.append(str(refusal))
            continue
        try:
            row[:] = _numbers(point, settings, columns)
        except NeverServed as refusal:  # known only once the lengths are drawn
            reasons.append(str(refusal))
            continue
        except Exception as error:
            error.add_note(f"at the point {dict(knobs)} of the sweep")
            raise
        reasons.append(_unstable(point))
    return numbers, reasons


def _numbers(point: Scenario, settings: Mapping[str, Any], columns: Mapping[str, str]) -> list[float]:
    result, _ = simulated(point, keep="requests", **settings)  # no warnings: there may be thousands
    numbers = dict.fromkeys([*SHARES.values(), "delayed"], 0.0) | result.summary()
    numbers |= {key: result.metrics.numbers[key] for key in OF_DEVICES}
    # Latencies are of the served requests: a queue that rejects many looks fast by them. These two see it.
    numbers["loss"] = 1 - numbers["served"] / numbers["requests"] if numbers["requests"] else math.nan
    numbers["p99_all_ms"] = result.percentile(99, unserved="inf")
    asked = INTERVALS if "device_utilisation" not in columns else DEVICE_INTERVALS
    asked = asked if point.tokens is None else TOKEN_INTERVALS
    for key, (low, high) in result.intervals(asked).items():
        numbers[f"{key}_low"], numbers[f"{key}_high"] = low, high
    return [numbers.get(name, math.nan) for name in columns]


def _unstable(point: Scenario) -> str:
    if point.stable:
        return ""
    offered = rate(point.workload.offered_per_s, 4)  # type: ignore[union-attr]  # a closed loop is stable
    if point.load < 1:  # a table in which larger batches are slower than several small ones
        carried = rate(point.full_batches_per_s, 4)
        return f"full batches of {point.rule.largest_batch} carry {carried}, and {offered} arrive"
    return phrases.overload(point)
