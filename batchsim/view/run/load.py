"""Latency and throughput against load, with the present setting's point on the curves."""

from collections.abc import Sequence

import numpy as np

from batchsim._format import counted, number, percent
from batchsim.result import Result
from batchsim.scenario import ClosedLoop
from batchsim.view.run.by_load import DASHED, SOLID, Curve, LoadPanels, Panel, describe_ends
from batchsim.view.run.data import ViewData

ENDS = {"mean": "mean_ms", "p99": "p99_ms"}


class LoadView(LoadPanels):
    """Mean and p99 latency above, throughput below, against the arrival rate or the number of clients."""

    NAME, SHORT = "Latency and throughput by load", "Latency by load (ms)"
    PANELS = (
        Panel("latency", 0.62, (
            Curve("p99", "p99_ms", SOLID, "p99 about {}"), Curve("mean", "mean_ms", DASHED, "mean {}"),
        )),
        Panel("throughput (per s)", 0.38, (Curve("", "throughput_per_s", SOLID),), durations=False),
    )  # fmt: skip

    def heights(self, data: ViewData) -> dict[str, float]:
        result = data.result
        return {
            "p99_ms": result.percentile(99), "mean_ms": result.mean_latency_ms,
            "throughput_per_s": result.throughput_per_s,
        }  # fmt: skip

    def objectives(self, data: ViewData) -> Sequence[float | None]:
        return (data.objective_ms,)

    def describe(self, data: ViewData) -> list[str]:
        return [*_describe_point(data), *describe_ends(data.curve, ENDS)]


def _describe_point(data: ViewData) -> list[str]:
    result, s, theory = data.result, data.summary, data.theory
    if not s["served"]:
        return []
    workload, offered = result.scenario.workload, s["offered_per_s"]
    output = f"throughput {number(s['throughput_per_s'])}/s, utilisation {percent(s['utilisation'])}"
    if "device_utilisation" in s:
        output += f", devices {percent(s['device_utilisation'])}"
    if isinstance(workload, ClosedLoop):
        return [f"{counted(workload.clients, 'client')}: {output}."]
    saturation = result.scenario.full_batches_per_s
    load = f"{number(100 * offered / saturation)}% of the saturation rate, {number(saturation)}/s"
    sentences = [f"Arrival rate {number(offered)}/s{_observed(result, offered)}, {load}: {output}."]
    if theory is not None and theory.reason:
        sentences.append(f"No theory applies: {theory.reason.rstrip('.')}.")
    elif theory is not None:
        mean_ms = theory.mean_ms[np.asarray(theory.rate_per_s) == offered]
        if np.isfinite(mean_ms).any():
            sentences.append(f"Theory ({theory.model}) expects a mean latency of {number(mean_ms[0])} ms.")
    return sentences


def _observed(result: Result, offered: float) -> str:
    """Return the run's own arrival rate, where it differs from the long-run rate by a tenth or more."""
    spanned_s = float(result.arrival_s[-1] - result.arrival_s[0])
    if not spanned_s:
        return ""
    observed = (result.arrival_s.size - 1) / spanned_s
    return "" if abs(observed / offered - 1) < 0.1 else f" on average, {number(observed)}/s in this run"
