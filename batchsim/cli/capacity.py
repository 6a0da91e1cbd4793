"""`batchsim capacity`: the highest rate within an objective."""

from dataclasses import dataclass
from pathlib import Path

import typer

from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, PICTURES, RUN, JsonFlag, SLOFlags, TrafficFlags, check_output
from batchsim.cli.scenario_flags import ScenarioFlags
from batchsim.scenario.scenario import RATE

NUMBERS = ("rate_per_s", "low_per_s", "high_per_s", "lowest_per_s", "limited_by")


@dataclass
class Capacity(JsonFlag, SLOFlags, TrafficFlags, ScenarioFlags):
    """Find the highest rate within an objective; exit code 1 if there is none.

    The workload may have any rate: it is scaled to others.

    batchsim capacity scenario.toml --p99-ms 50
    """

    tolerance: float = RUN.number("FRACTION", "Relative accuracy of the rate.", 0.01)
    plot: Path | None = OUTPUT.option("Draw latency against rate: .png, .svg or .pdf.")

    def run(self) -> None:
        from batchsim.study.capacity import capacity

        scenario, tables = self.scenario()
        slo = self.slo(tables["slo"])
        check_output("--plot", self.plot, PICTURES)
        answer = capacity(scenario, slo, **self.settings(tables["simulate"]), tolerance=self.tolerance)
        frame = answer.to_frame()
        if self.plot is not None:
            from batchsim.view.charts.curves import capacity_curves

            first = slo.objectives[0]
            output.save_picture(self.plot, capacity_curves(answer, RATE, first.key, first.limit))
        if self.json_:
            output.print_json(
                {
                    "met": answer.met,
                    "objective": output.limits(slo),
                    "scenario": output.scenario_tables(scenario),
                    **{name: getattr(answer, name) for name in NUMBERS},
                    "probes": frame,
                    "requests_simulated": answer.requests_simulated,
                }
            )
        else:
            output.print_text(f"{answer!r}\n")
            output.print_frame(f"Runs at other rates, of {output.in_words(scenario)}", frame)
        if not answer.met:
            raise typer.Exit(1)
