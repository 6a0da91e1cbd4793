"""`batchsim tune`: the setting that meets an objective."""

from dataclasses import dataclass
from pathlib import Path

import typer

from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, GridFlags, JsonFlag, SLOFlags, TrafficFlags
from batchsim.cli.scenario_flags import ScenarioFlags

ANSWER = ("met", "knobs", "frontier", "candidates", "requests_simulated")


@dataclass
class Tune(JsonFlag, GridFlags, SLOFlags, TrafficFlags, ScenarioFlags):
    """Find the setting that meets an objective, and explain why; exit code 1 if none does.

    batchsim tune scenario.toml --p99-ms 50 --over max_batch_size=4:64:x2 --over max_wait_ms=0,2,5,10
    """

    prefer: str = RUN.option("Fewest servers, or lowest latency.", "cheapest", metavar="cheapest|fastest")
    save: Path | None = OUTPUT.file("Write the scenario with the recommended setting as TOML.")
    plot: Path | None = OUTPUT.picture("Draw the Pareto frontier")

    def run(self) -> None:
        from batchsim.study.tune import tune

        scenario, tables = self.scenario()
        slo = self.slo(tables["slo"])
        axes = self.axes(tables["over"], scenario)
        best = tune(scenario, slo, axes, **self.settings(tables["simulate"]), prefer=self.prefer)
        if self.save is not None:
            best.scenario.to_toml(self.save)
        if self.plot is not None:
            from batchsim.view.charts.curves import frontier

            output.save_picture(self.plot, frontier(best))
        if self.json_:
            answer = {name: getattr(best, name) for name in ANSWER}
            expected = {key: estimate._asdict() for key, estimate in best.expected.items()}
            remedies = [vars(remedy) for remedy in best.remedies]
            more = {"explain": best.explain(), "expected": expected, "remedies": remedies}
            output.print_json(output.objective_tables(best.scenario, slo) | answer | more)
        else:
            output.print_text(best.explain() + "\n")
            key = slo.latency[0]
            numbers = ["servers", key, f"{key}_low", f"{key}_high", "saturation_per_s"]
            title = "Settings that no other beats in latency, saturation rate and servers alike:"
            output.print_frame(title, best.frontier[list(dict.fromkeys([*best.knobs, *numbers, "outcome"]))])
        if not best.met:
            raise typer.Exit(1)
