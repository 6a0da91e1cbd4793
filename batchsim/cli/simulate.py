"""`batchsim simulate`: one scenario."""

import math
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from batchsim.cli import output as show
from batchsim.cli.flags import OUTPUT, PICTURES, RUN, Json, RunFlags, check_output
from batchsim.cli.scenario_flags import ScenarioFlags
from batchsim.result import Result

INTERVALS = (
    "mean_latency_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "throughput_per_s", "utilisation",
    "mean_batch_size",
)  # fmt: skip
NAMES = {
    "p50_ms": "latency p50, ms",
    "p90_ms": "p90, ms",
    "p95_ms": "p95, ms",
    "p99_ms": "p99, ms",
    "mean_latency_ms": "mean, ms",
    "mean_forming_ms": "  of which forming, ms",
    "mean_queueing_ms": "  queueing, ms",
    "mean_computing_ms": "  computing, ms",
    "throughput_per_s": "throughput, 1/s",
    "utilisation": "utilisation",
    "mean_batch_size": "mean batch size",
}


def simulate(
    asked: ScenarioFlags,
    how: RunFlags,
    json_: Json = False,
    save: Annotated[
        Path | None, Option(help="Keep the run, for Result.load: a .npz file.", rich_help_panel=OUTPUT)
    ] = None,
    plot: Annotated[
        Path | None, Option(help="Draw the run: .png, .svg or .pdf.", rich_help_panel=OUTPUT)
    ] = None,
    keep: Annotated[
        str,
        Option(
            metavar="all|summary",
            rich_help_panel=RUN,
            help="summary: any number of requests in the same memory, percentiles to 0.1 %, no intervals.",
        ),
    ] = "all",
) -> None:
    """Run one scenario, and print its numbers with 95 % intervals.

    batchsim simulate --rate-per-s 800 --max-wait-ms 10 --fixed-ms 5 --per-item-ms 0.25
    """
    check_output("--save", save, [".npz"])
    check_output("--plot", plot, PICTURES)
    if keep == "summary" and (plot or save):
        raise ValueError(f"--{'plot' if plot else 'save'} needs the columns of a run, got --keep summary")
    from batchsim.simulate import simulate

    scenario, tables = asked.scenario()
    result = simulate(scenario, **how.settings(tables["simulate"]), keep=keep)
    if save is not None:
        result.save(save)
    if plot is not None:
        from batchsim.view.run.plot import plot as drawn

        show.save_picture(plot, lambda: drawn(result, theory=True))
    intervals = result.intervals(INTERVALS)
    theory = _theory(result)
    if json_:
        show.print_json(_content(result, intervals, theory))
        return
    _print(result, intervals, theory)


def _theory(result: Result) -> Any:
    """Return the Answer of theory, or its NoAnswer; None where there is no steady state."""
    from batchsim.theory import expected

    try:
        return expected(result.scenario)
    except ValueError:
        return None


def _content(result: Result, intervals: dict[str, Any], theory: Any) -> dict[str, Any]:
    return {
        "scenario": show.scenario_tables(result.scenario),
        "seed": result.seed,
        "engine": result.engine,
        "warmup": result.warmup,
        "replications": len(result.replications),
        "summary": result.summary(),
        "intervals": intervals,
        "theory": {
            "model": theory.model,
            "exact": theory.exact,
            "source": theory.source,
            "summary": theory.summary(),
        }
        if theory
        else None,
    }


def _print(result: Result, intervals: dict[str, Any], theory: Any) -> None:
    numbers, expected = result.summary(), theory.summary() if theory else {}
    columns = {"": "left", "value": "right", "95 % interval": "right"}
    if theory:
        columns["theory"] = "right"
    rows = []
    for key, name in NAMES.items():
        low, high = intervals.get(key, (math.nan, math.nan))
        between = "" if math.isnan(low) else f"{show.figure_text(low)} to {show.figure_text(high)}"
        rows.append([name, numbers[key], between, expected.get(key, math.nan)][: len(columns)])
    show.print_table(show.in_words(result.scenario), columns, rows, _notes(result, intervals, theory))


def _notes(result: Result, intervals: dict[str, Any], theory: Any) -> list[str]:
    rows = result._rows()
    notes = [
        f"{what}: {rows[what]}" for what in ("requests", "throughput", "batches", "DRIFTING") if what in rows
    ]
    if any(math.isnan(low) for low, _ in intervals.values()):
        why = "the run keeps no columns" if not result.has_columns else "the run is too short for it"
        notes.append(f"no interval: {why}")
    if theory is not None:
        notes.append(
            f"theory: {theory.model}, {'exact' if theory.exact else 'approximate'}"
            if theory
            else repr(theory)
        )
    return notes
