"""`batchsim sweep`, `tune` and `capacity`: many scenarios, and the one to take."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from batchsim import _check
from batchsim.cli import output as show
from batchsim.cli.flags import (
    OUTPUT,
    PICTURES,
    RUN,
    Json,
    Over,
    RunFlags,
    SLOFlags,
    TrafficFlags,
    axes,
    check_output,
    number,
    whole,
)
from batchsim.cli.scenario_flags import ScenarioFlags
from batchsim.scenario import Scenario
from batchsim.scenario.scenario import RATE, find_knob

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from batchsim.study.slo import SLO

LOST = ("p99_all_ms", "loss")  # shown where requests are lost: the others see only what is served
SHOWN = ("mean_latency_ms", "p99_ms", *LOST, "throughput_per_s", "utilisation", "mean_batch_size", "load")
CAPACITY = ("rate_per_s", "low_per_s", "high_per_s", "lowest_per_s", "limited_by")


def sweep(
    asked: ScenarioFlags,
    how: RunFlags,
    over: Over = None,
    workers: Annotated[int | None, whole("--workers", "Threads; else one for each core.", RUN)] = None,
    out: Annotated[
        Path | None,
        Option(
            help="A folder that keeps finished points: a later call goes on there.", rich_help_panel=OUTPUT
        ),
    ] = None,
    csv: Annotated[
        bool, Option("--csv", help="Print all columns as CSV instead.", rich_help_panel=OUTPUT)
    ] = False,
    json_: Json = False,
    plot: Annotated[
        Path | None,
        Option(help="Draw a curve of one axis, or a map of two: .png, .svg or .pdf.", rich_help_panel=OUTPUT),
    ] = None,
    value: Annotated[
        str,
        Option(
            metavar="NUMBER",
            help="The number that is drawn; p99_ms is of the served.",
            rich_help_panel=OUTPUT,
        ),
    ] = "p99_all_ms",
    objective: Annotated[
        float | None, number("--objective", "LIMIT", "A limit of that number, drawn too.", OUTPUT)
    ] = None,
) -> None:
    """Run a scenario at every point of a grid of knobs: a row a point.

    batchsim sweep scenario.toml --over max_batch_size=1:32:x2 --over max_wait_ms=0:20:5 --plot map.png
    """
    from batchsim.study.evaluate import COLUMNS
    from batchsim.study.sweep import sweep

    scenario, tables = asked.scenario()
    grid = axes(over, tables["over"], scenario)
    check_output("--plot", plot, PICTURES)
    if plot is not None and len(grid) > 2:
        raise ValueError(f"--plot must have one axis or two, got {', '.join(grid)}")
    if value not in COLUMNS:
        hint = _check.nearest(value, COLUMNS)
        raise ValueError(f"--value must be a number of the table, got {value!r}{hint}")
    if csv and json_:
        raise ValueError("one of --csv and --json must be given, got both")
    settings = how.settings(tables["simulate"])
    frame = sweep(scenario, grid, **settings, out=out, workers=workers, progress=sys.stderr.isatty())
    show.save_picture(plot, lambda: _drawn(frame, scenario, list(grid), value, objective))
    if csv:
        typer.echo(frame.to_csv(index=False), nl=False)
    elif json_:
        show.print_json({"scenario": show.scenario_tables(scenario), "points": show.records(frame)})
    else:
        lossless = not (frame["loss"] > 0).any()
        shown = (name for name in SHOWN if name not in grid and not (lossless and name in LOST))
        columns = [*grid, *shown, "infeasible"]
        short = frame["infeasible"].where(frame["requests"].isna() | frame["stable"], "overloaded")
        show.print_frame(f"Over {show.in_words(scenario)}", frame.assign(infeasible=short)[columns])


def tune(
    asked: ScenarioFlags,
    wanted: SLOFlags,
    how: TrafficFlags,
    over: Over = None,
    prefer: Annotated[
        str,
        Option(metavar="cheapest|fastest", help="Fewest servers, or lowest latency.", rich_help_panel=RUN),
    ] = "cheapest",
    json_: Json = False,
    save: Annotated[
        Path | None,
        Option(help="Write the scenario with the recommended setting as TOML.", rich_help_panel=OUTPUT),
    ] = None,
    plot: Annotated[
        Path | None, Option(help="Draw the Pareto frontier: .png, .svg or .pdf.", rich_help_panel=OUTPUT)
    ] = None,
) -> None:
    """Find the setting that meets an objective, and say why; exit code 1 if none does.

    batchsim tune scenario.toml --p99-ms 50 --over max_batch_size=4:64:x2 --over max_wait_ms=0,2,5,10
    """
    from batchsim.study.tune import tune

    scenario, tables = asked.scenario()
    slo = wanted.slo(tables["slo"])
    grid = axes(over, tables["over"], scenario)
    check_output("--plot", plot, PICTURES)
    check_output("--save", save)
    found = tune(scenario, slo, grid, **how.settings(tables["simulate"]), prefer=prefer)
    if save is not None:
        found.scenario.to_toml(save)
    if plot is not None:
        from batchsim.view.charts.curves import frontier

        show.save_picture(plot, lambda: frontier(found))
    if json_:
        show.print_json(
            {
                "met": found.met,
                "objective": _limits(slo),
                "knobs": found.knobs,
                "scenario": show.scenario_tables(found.scenario),
                "expected": {key: estimate._asdict() for key, estimate in found.expected.items()},
                "explain": found.explain(),
                "remedies": [vars(remedy) for remedy in found.remedies],
                "frontier": show.records(found.frontier),
                "candidates": show.records(found.candidates),
                "requests_simulated": found.requests_simulated,
            }
        )
    else:
        show.print_text(found.explain() + "\n")
        key = slo.latency[0]
        columns = [*found.knobs, "servers", key, f"{key}_low", f"{key}_high", "saturation_per_s", "outcome"]
        title = "Settings of which none other is better in latency, capacity and servers alike:"
        show.print_frame(title, found.frontier[list(dict.fromkeys(columns))])
    if not found.met:
        raise typer.Exit(1)


def capacity(
    asked: ScenarioFlags,
    wanted: SLOFlags,
    how: TrafficFlags,
    tolerance: Annotated[
        float, number("--tolerance", "FRACTION", "How closely the rate is found.", RUN)
    ] = 0.01,
    json_: Json = False,
    plot: Annotated[
        Path | None,
        Option(help="Draw the latency over the rate: .png, .svg or .pdf.", rich_help_panel=OUTPUT),
    ] = None,
) -> None:
    """Find the highest rate within an objective; exit code 1 if there is none.

    The workload may have any rate: it is stretched to others.

    batchsim capacity scenario.toml --p99-ms 50
    """
    from batchsim.study.capacity import capacity

    scenario, tables = asked.scenario()
    slo = wanted.slo(tables["slo"])
    check_output("--plot", plot, PICTURES)
    found = capacity(scenario, slo, **how.settings(tables["simulate"]), tolerance=tolerance)
    frame = found.to_frame()
    if plot is not None:
        from batchsim.view.charts.curves import capacity_curves

        first = slo.objectives[0]
        show.save_picture(plot, lambda: capacity_curves(found, RATE, first.key, first.limit))
    if json_:
        show.print_json(
            {
                "met": found.met,
                "objective": _limits(slo),
                "scenario": show.scenario_tables(scenario),
                **{name: getattr(found, name) for name in CAPACITY},
                "probes": show.records(frame),
                "requests_simulated": found.requests_simulated,
            }
        )
    else:
        show.print_text(f"{found!r}\n")
        show.print_frame(f"Runs of {show.in_words(scenario)}, at other rates", frame)
    if not found.met:
        raise typer.Exit(1)


def _limits(slo: "SLO") -> dict[str, float]:
    return {name: limit for name, limit in vars(slo).items() if limit is not None}


def _drawn(
    frame: "pandas.DataFrame", scenario: Scenario, knobs: list[str], value: str, objective: float | None
) -> "Figure":
    """Return a sweep's picture: a curve along one knob, or a map of two with the scenario's own setting."""
    if len(knobs) == 1:
        from batchsim.view.charts.curves import capacity_curves

        return capacity_curves(frame, knobs[0], value, objective)
    from batchsim.view.charts.heat_map import heat_map

    x, y = knobs
    return heat_map(frame, x, y, value, objective, today=(_own(scenario, x), _own(scenario, y)))


def _own(scenario: Scenario, knob: str) -> Any:
    """Return a knob's value in a scenario, as a sweep's table has it."""
    if knob.split(".")[-1] == RATE:
        return getattr(scenario.workload, "offered_per_s", None)
    value: Any = scenario
    parts = vars(scenario)
    for step in (knob,) if knob in parts else find_knob(knob, parts):
        value = getattr(value, step)
    return value if isinstance(value, (int, float)) else repr(value)
