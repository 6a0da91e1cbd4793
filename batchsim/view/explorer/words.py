"""The picture in words: a line of text that says everything it shows, for eyes and for ears."""

import math

import numpy as np

from batchsim._format import counted, number, percent, signed
from batchsim.result import Result
from batchsim.scenario import ClosedLoop
from batchsim.scenario.rules import Trigger
from batchsim.study.surface import LoadCurve, Surface
from batchsim.view.run.scene import Scene

WHY = {
    Trigger.FULL: "they were full",
    Trigger.ENOUGH: "enough had come",
    Trigger.WAIT: "the wait was over",
    Trigger.BACKLOG: "a server became free",
    Trigger.DRAIN: "the run ended",
}


def describe(scene: Scene) -> str:
    """Return what the picture shows as sentences."""
    result = scene.result
    said = [_latency(scene)]
    if result.metrics.served:
        said += [_parts(result), _load(scene), _batches(result)]
    said += [*_curve(scene.curve), _first(result), _map(scene), *_beside(scene)]
    return " ".join(said)


def _latency(scene: Scene) -> str:
    result, objective_ms = scene.result, scene.objective_ms
    s = result.summary()
    if not s["stable"]:
        can = result.scenario.full_batches_per_s
        return (
            f"Overloaded: {number(s['offered_per_s'], 5)} arrive per s and {number(can, 5)} can be computed, "
            f"so the queue grows by {number(s['offered_per_s'] - can, 3)} requests a second and no latency "
            "is a lasting one."
        )
    if not result.metrics.served:
        return f"None of {s['requests']:,} requests is served."
    text = f"p50 {number(s['p50_ms'])} ms, p95 {number(s['p95_ms'])} ms, p99 {number(s['p99_ms'])} ms"
    lost = (s["rejected"] + s["timed_out"]) / s["requests"]
    if lost:
        text += f" of those served; {percent(lost)} are not"
    if objective_ms is not None:
        p99_ms = result.percentile(99, unserved="inf")
        verdict = "met" if p99_ms <= objective_ms else "missed"
        within = percent(result.metrics.within(objective_ms) / s["requests"])
        text += (
            f"; the objective, p99 within {objective_ms:g} ms, is {verdict}: "
            f"{within} of requests are within it"
        )
    if s["drifting"]:
        text += ". The arrival rate drifts: these numbers are of this run, and no steady state's"
    return text + "."


def _parts(result: Result) -> str:
    s = result.summary()
    where = "Of" if s["stable"] else "In this run, of"
    # To a nanosecond: what differences of times leave below it is no waiting.
    parts = [
        f"{part} {number(round(s[f'mean_{part}_ms'], 6), 3)}" for part in ("forming", "queueing", "computing")
    ]
    return f"{where} the mean {number(s['mean_latency_ms'])} ms: {', '.join(parts)}."


def _load(scene: Scene) -> str:
    result, s = scene.result, scene.result.summary()
    done = f"{number(s['throughput_per_s'])} are finished per s, utilisation {s['utilisation']:.2f}"
    workload, offered = result.scenario.workload, s["offered_per_s"]
    if isinstance(workload, ClosedLoop):
        return f"{counted(workload.clients, 'client')}: {done}."
    full = result.scenario.full_batches_per_s
    load = f"{number(100 * offered / full, 3)} % of saturation at {number(full)}"
    text = f"{number(offered)} arrive per s on average{_lately(result, offered)}, {load}: {done}"
    theory = scene.theory
    if theory is None:
        return f"{text}."
    if theory.reason:
        return f"{text}. No theory applies: {theory.reason.rstrip('.')}."
    mean_ms = theory.mean_ms[np.asarray(theory.rate_per_s) == offered]
    if not np.isfinite(mean_ms).any():
        return f"{text}."
    return f"{text}. Theory ({theory.model}) expects a mean of {number(mean_ms[0])} ms."


def _curve(curve: LoadCurve) -> list[str]:
    """Return the ends of the load curve, as far as it is steady."""
    known = np.flatnonzero(~curve.overloaded & np.isfinite(curve.p99_ms))
    if not known.size:
        return []
    first, last = known[0], known[-1]
    unit = "clients" if curve.x == "clients" else "per s"
    ends = (
        f"{name} {number(values[first])} to {number(values[last])} ms"
        for name, values in (("mean", curve.mean_ms), ("p99", curve.p99_ms))
    )
    span = f"{number(curve.x_values[first])} to {number(curve.x_values[last])} {unit}"
    return [f"Along the load, from {span}: {', '.join(ends)}."]


def _lately(result: Result, offered: float) -> str:
    """Return the arrival rate of the run where it is another than what is offered in the long run."""
    spanned_s = float(result.arrival_s[-1] - result.arrival_s[0])
    if result.arrival_s.size < 2 or not spanned_s:
        return ""
    came_per_s = (result.arrival_s.size - 1) / spanned_s
    return "" if abs(came_per_s / offered - 1) < 0.1 else f" and {number(came_per_s)} in this run"


def _batches(result: Result) -> str:
    left = sorted(((share, name) for name, share in result.metrics.shares().items()), reverse=True)
    words = {f"{trigger.name.lower()}_share": why for trigger, why in WHY.items()}
    if result.scenario.rule.max_wait_ms == 0:
        words["wait_share"] = "a server was idle"
    shares = ", ".join(f"{percent(share)} as {words[name]}" for share, name in left)
    return f"Batches hold {result.mean_batch_size:.3g} on average; they left: {shares}."


def _first(result: Result) -> str:
    count = min(30, result.arrival_s.size)
    batch = result.batch_index[:count]
    served = batch >= 0
    if not served.any():
        return f"None of the first {count} requests is served."
    last_ms = 1000 * float(np.nanmax(result.finish_s[:count]))
    batches = np.unique(batch[served]).size
    rode = f"{'rides' if served.sum() == 1 else 'ride'} in {batches} {'batch' if batches == 1 else 'batches'}"
    who = f"The first {count} requests" if served.all() else f"{served.sum()} of the first {count} requests"
    return f"{who} {rode}, the last done at {number(last_ms)} ms."


def setting(surface: Surface, row: int, column: int) -> str:
    """Return a cell of the heat map in words."""
    y = surface.y_values[row]
    if surface.y == "min_batch_size":
        return f"batches of {y:g} to {surface.x_values[column]}"
    wait = "full batches only" if math.isinf(y) else f"wait {y:g} ms"
    return f"batch size {surface.x_values[column]}, {wait}"


def _map(scene: Scene) -> str:
    grid = scene.surface
    steady = ~(grid.overloaded | grid.refused)
    text = f"Of {int((~grid.refused).sum())} settings under {grid.requests:,} requests of this traffic "
    best = grid.best()
    if best is not None:
        text += f"the lowest p99 is {number(grid.p99_ms[best])} ms, at {setting(grid, *best)}"
        if scene.objective_ms is not None:
            text += f"; {int((steady & (grid.p99_ms <= scene.objective_ms)).sum())} meet the objective"
    elif steady.any():
        text += "none serves 99 of 100 requests"
    else:
        text += "none keeps up"
    if grid.overloaded.any() and steady.any():
        text += f"; {int(grid.overloaded.sum())} are overloaded"
    return text + "."


def _beside(scene: Scene) -> list[str]:
    if scene.pinned is None:
        return []
    if not scene.result.metrics.served or not scene.pinned.result.metrics.served:
        return ["A and B cannot be compared: one serves nobody."]
    if scene.comparison is None:
        return ["A and B cannot be compared pair by pair: one is overloaded, or their traffic differs."]
    a = scene.pinned.result.summary()
    said = [
        f"A has p50 {number(a['p50_ms'])} ms, p99 {number(a['p99_ms'])} ms, a mean of "
        f"{number(a['mean_latency_ms'])} ms and batches of {a['mean_batch_size']:.3g}"
    ]
    for key, name, unit in (("p99_ms", "p99", " ms"), ("throughput_per_s", "throughput", " per s")):
        row = scene.comparison[key]
        sure = (
            "no interval: the run is too short, drifts, or loses too many"
            if math.isnan(row.low)
            else f"95 % interval {signed(row.low)} to {signed(row.high)}"
        )
        said.append(f"{name} of B is {signed(row.difference)}{unit} against A ({sure})")
    return [f"{'; '.join(said)}."]
