"""`batchsim sweep`: a scenario at every point of a grid."""

import sys
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchsim import _check
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, GridFlags, JsonFlag, RunFlags
from batchsim.cli.scenario_flags import ScenarioFlags
from batchsim.scenario import Scenario
from batchsim.scenario.scenario import RATE, find_knob

if TYPE_CHECKING:
    import pandas

    from batchsim.view.pictures.chart import Chart

# Shown only where requests are lost: the other columns are of served requests alone.
LOSS = ("p99_all_ms", "loss")
SHOWN = (
    "mean_latency_ms", "p99_ms", *LOSS, "throughput_per_s", "utilisation", "device_utilisation",
    "mean_batch_size", "load",
)  # fmt: skip
OF_TOKENS = ("mean_ttft_ms", "ttft_p99_ms", "tpot_p99_ms", "output_tokens_per_s", "preempted_share")


@dataclass
class Sweep(JsonFlag, GridFlags, RunFlags, ScenarioFlags):
    """Run a scenario at every point of a grid of knobs, and print a row for each.

    batchsim sweep scenario.toml --over max_batch_size=1:32:x2 --over max_wait_ms=0:20:5 --plot map.png
    """

    workers: int | None = RUN.whole("Number of threads (default: one for each core).")
    out: Path | None = OUTPUT.option("Folder for finished points: a later call resumes there.")
    csv: bool = OUTPUT.option("Print all columns as CSV instead.", False, "--csv")
    plot: Path | None = OUTPUT.picture("Draw a curve of one axis, or a heat map of two")
    value: str = OUTPUT.option(
        "Column to draw; p99_all_ms counts lost requests as infinite.", "p99_all_ms", metavar="COLUMN"
    )
    objective: float | None = OUTPUT.number("LIMIT", "Limit to draw for that column.")

    def run(self) -> None:
        from batchsim.study.evaluate import columns_of
        from batchsim.study.sweep import sweep

        scenario, tables = self.scenario()
        axes = self.axes(tables["over"], scenario)
        if self.plot is not None and len(axes) > 2:
            raise ValueError(f"--plot must have one axis or two, got {', '.join(axes)}")
        if self.value not in (known := columns_of(scenario, axes)):
            hint = _check.nearest(self.value, known)
            raise ValueError(f"--value must be a column of numbers, got {self.value!r}{hint}")
        if self.csv and self.json_:
            raise ValueError("one of --csv and --json must be given, got both")
        settings = self.settings(tables["simulate"])
        progress = sys.stderr.isatty()
        frame = sweep(scenario, axes, **settings, out=self.out, workers=self.workers, progress=progress)
        if self.plot is not None:
            output.save_picture(self.plot, self._figure(frame, scenario, list(axes)))
        if self.csv:
            typer.echo(frame.to_csv(index=False), nl=False)
        elif self.json_:
            output.print_json({"scenario": output.scenario_tables(scenario), "points": frame})
        else:
            lossless = not (frame["loss"] > 0).any()
            names = SHOWN if "ttft_p99_ms" not in frame else OF_TOKENS + SHOWN
            left_out = {*axes, *(LOSS if lossless else ())}
            shown = (name for name in names if name in frame and name not in left_out)
            # An overloaded point has numbers, and its load: the reason in a word will do.
            reason = frame["infeasible"].where(frame["requests"].isna() | frame["stable"], "overloaded")
            columns = [*axes, *shown, "infeasible"]
            output.print_frame(f"Over {output.in_words(scenario)}", frame.assign(infeasible=reason)[columns])

    def _figure(self, frame: "pandas.DataFrame", scenario: Scenario, knobs: list[str]) -> "Chart":
        """Return a curve along one knob, or a heat map of two with the scenario's own setting marked."""
        if len(knobs) == 1:
            from batchsim.view.pictures.curves import capacity_curves

            return capacity_curves(frame, knobs[0], self.value, self.objective)
        from batchsim.view.pictures.sweep_map import heat_map

        x, y = knobs
        today = (_setting(scenario, x), _setting(scenario, y))
        return heat_map(frame, x, y, self.value, self.objective, today=today)


def _setting(scenario: Scenario, knob: str) -> Any:
    """Return a knob's value in a scenario, as a sweep's table has it."""
    if knob.split(".")[-1] == RATE:
        return getattr(scenario.workload, "offered_per_s", None)
    path = (knob,) if knob in vars(scenario) else find_knob(knob, vars(scenario))
    value = attrgetter(".".join(path))(scenario)
    return value if isinstance(value, (int, float)) else repr(value)
