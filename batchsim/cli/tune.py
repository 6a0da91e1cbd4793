"""`batchsim tune`: the setting that meets an objective."""

from dataclasses import dataclass
from pathlib import Path

import typer

from batchsim.cli import output
from batchsim.cli.flags import (
    OUTPUT,
    PICTURES,
    RUN,
    GridFlags,
    JsonFlag,
    SLOFlags,
    TrafficFlags,
    check_output,
)
from batchsim.cli.scenario_flags import ScenarioFlags


@dataclass
class Tune(JsonFlag, GridFlags, SLOFlags, TrafficFlags, ScenarioFlags):
    """Find the setting that meets an objective, and explain why; exit code 1 if none does.

    batchsim tune scenario.toml --p99-ms 50 --over max_batch_size=4:64:x2 --over max_wait_ms=0,2,5,10
    """

    prefer: str = RUN.option("Fewest servers, or lowest latency.", "cheapest", metavar="cheapest|fastest")
    save: Path | None = OUTPUT.option("Write the scenario with the recommended setting as TOML.")
    plot: Path | None = OUTPUT.option("Draw the Pareto frontier: .png, .svg or .pdf.")

    def run(self) -> None:
        from batchsim.study.tune import tune

        scenario, tables = self.scenario()
        slo = self.slo(tables["slo"])
        axes = self.axes(tables["over"], scenario)
        check_output("--plot", self.plot, PICTURES)
        check_output("--save", self.save)
        best = tune(scenario, slo, axes, **self.settings(tables["simulate"]), prefer=self.prefer)
        if self.save is not None:
            best.scenario.to_toml(self.save)
        if self.plot is not None:
            from batchsim.view.charts.curves import frontier

            output.save_picture(self.plot, frontier(best))
        if self.json_:
            output.print_json(
                {
                    "met": best.met,
                    "objective": output.limits(slo),
                    "knobs": best.knobs,
                    "scenario": output.scenario_tables(best.scenario),
                    "expected": {key: estimate._asdict() for key, estimate in best.expected.items()},
                    "explain": best.explain(),
                    "remedies": [vars(remedy) for remedy in best.remedies],
                    "frontier": best.frontier,
                    "candidates": best.candidates,
                    "requests_simulated": best.requests_simulated,
                }
            )
        else:
            output.print_text(best.explain() + "\n")
            key = slo.latency[0]
            numbers = ["servers", key, f"{key}_low", f"{key}_high", "saturation_per_s"]
            title = "Settings that no other beats in latency, saturation rate and servers alike:"
            output.print_frame(title, best.frontier[list(dict.fromkeys([*best.knobs, *numbers, "outcome"]))])
        if not best.met:
            raise typer.Exit(1)
