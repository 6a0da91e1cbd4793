"""`batchsim simulate`: one scenario."""

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchsim._format import counted, decimals
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, JsonFlag, RunFlags
from batchsim.cli.scenario_flags import ScenarioFlags
from batchsim.result import Result
from batchsim.result.metrics import METRICS, TOKENS, heading
from batchsim.scenario.toml import brief_tables

PRINTED = (
    "p50_ms", "p90_ms", "p95_ms", "p99_ms", "mean_latency_ms", "mean_forming_ms", "mean_queueing_ms",
    "mean_device_wait_ms", "mean_computing_ms", "throughput_per_s", "utilisation", "device_utilisation",
    "mean_batch_size",
)  # fmt: skip
# The lines of a printed Result that go below the table.
NOTES = ("requests", "throughput", "batches", "steps", "tokens", "DRIFTING")


@dataclass
class Simulate(JsonFlag, RunFlags, ScenarioFlags):
    """Run one scenario, and print its metrics with 95 % intervals.

    batchsim simulate --rate-per-s 800 --fixed-ms 5 --per-item-ms 0.25
    batchsim simulate scenario.toml --max-wait-ms 20 --plot run.png
    batchsim simulate --trace arrivals.csv --published resnet50/t4/mixed-fp16
    """

    save: Path | None = OUTPUT.file("Save the run for Result.load: a .npz file.", ".npz")
    plot: Path | None = OUTPUT.picture("Draw the run")
    keep: str = RUN(
        "summary: constant memory for any number of requests; percentiles to 0.1 %, no intervals. "
        "requests: no rows for steps of tokens.", "all", metavar="all|requests|summary",
    )  # fmt: skip

    def run(self) -> None:
        if self.keep == "summary" and (self.plot or self.save):
            option = "--plot" if self.plot else "--save"
            raise ValueError(f"{option} needs the columns of a run, got --keep summary")
        from batchsim.simulate import simulate
        from batchsim.theory import expected

        scenario, tables = self.scenario()
        # Only a picture or a file needs the steps of tokens.
        keep = "requests" if self.keep == "all" and not (self.plot or self.save) else self.keep
        result = simulate(scenario, **self.settings(tables["simulate"]), keep=keep)
        if self.save is not None:
            result.save(self.save)
        if self.plot is not None:
            from batchsim.view.pictures.plot import plot

            output.save_picture(self.plot, plot(result, theory=True))
        intervals = result.intervals(_printed(result))
        theory = None
        with contextlib.suppress(ValueError):  # no steady state
            theory = expected(scenario)
        if self.json_:
            output.print_json(_content(result, intervals, theory))
        else:
            _print(result, intervals, theory)


def _content(result: Result, intervals: dict[str, Any], theory: Any) -> dict[str, Any]:
    levels = _levels(result)
    about = {name: getattr(theory, name, None) for name in ("model", "exact", "source", "bounds")}
    return {
        "scenario": brief_tables(result.scenario),
        **{name: getattr(result, name) for name in ("seed", "engine", "warmup")},
        "replications": len(result.replications),
        "summary": result.summary(),
        "intervals": intervals,
        **({} if levels is None else {"by_priority": levels}),
        "theory": about | {"summary": theory.summary()} if theory else None,
    }


def _printed(result: Result) -> tuple[str, ...]:
    """Return `PRINTED`, and every other metric with an interval; with tokens, all that are about them."""
    others = (key for key, each in METRICS.items() if each.interval and key not in PRINTED)
    tokens = TOKENS if result.scenario.kind == "tokens" else ()
    return tuple(key for key in (*PRINTED, *others, *tokens) if key not in result.metrics.absent)


def _levels(result: Result) -> Any:
    """Return the metrics of each priority level, None without levels or columns."""
    return result.by_priority().reset_index() if result.scenario.levels and result.has_columns else None


def _print(result: Result, intervals: dict[str, Any], theory: Any) -> None:
    summary, expected = result.summary(), theory.summary() if theory else {}
    columns = {"": "left", "value": "right", "95 % interval": "right"}
    if theory:
        columns["theory"] = "right"
    rows = []
    for key in _printed(result):
        low, high = intervals[key]
        interval = "" if math.isnan(low) else f"{output.cell(low)} to {output.cell(high)}"
        rows.append([heading(key), summary[key], interval, expected.get(key, math.nan)][: len(columns)])
    lines = result._rows()
    notes = [f"{name}: {lines[name]}" for name in NOTES if name in lines]
    if any(math.isnan(low) for low, _ in intervals.values()):
        why = "the run keeps no columns" if not result.has_columns else "the run is too short"
        notes.append(f"no interval: {why}")
    if (levels := _levels(result)) is not None:
        notes += [
            f"level {each.priority}: {counted(each.requests, 'request')}, "
            f"mean {decimals(each.mean_latency_ms)} ms, "
            f"p50 {decimals(each.p50_ms)}, p99 {decimals(each.p99_ms)}"
            for each in levels.itertuples()
        ]
    elif result.scenario.levels:
        notes.append("levels: a summary adds them up; --keep all has a line for each")
    if theory:
        notes.append(f"theory: {theory.model}, {theory.accuracy}")
    elif theory is not None:
        notes.append(repr(theory))
    output.print_table(repr(result.scenario), columns, rows, notes)
