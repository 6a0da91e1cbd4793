"""`batchsim capacity`: the highest rate within an objective."""

from dataclasses import dataclass
from pathlib import Path

import typer

from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, JsonFlag, SLOFlags, TrafficFlags
from batchsim.cli.scenario_flags import ScenarioFlags
from batchsim.scenario.scenario import RATE

NUMBERS = ("met", "rate_per_s", "low_per_s", "high_per_s", "lowest_per_s", "limited_by", "requests_simulated")


@dataclass
class Capacity(JsonFlag, SLOFlags, TrafficFlags, ScenarioFlags):
    """Find the highest rate within an objective; exit code 1 if there is none.

    The workload's own rate does not matter: the search rescales it.

    batchsim capacity scenario.toml --p99-ms 50
    """

    tolerance: float = RUN.number("FRACTION", "Relative accuracy of the rate.", 0.01)
    plot: Path | None = OUTPUT.picture("Draw latency against rate")

    def run(self) -> None:
        from batchsim.study.capacity import capacity

        scenario, tables = self.scenario()
        slo = self.slo(tables["slo"])
        answer = capacity(scenario, slo, **self.settings(tables["simulate"]), tolerance=self.tolerance)
        frame = answer.to_frame()
        if self.plot is not None:
            from batchsim.view.pictures.curves import capacity_curves

            first = slo.objectives[0]
            output.save_picture(self.plot, capacity_curves(answer, RATE, first.key, first.limit))
        if self.json_:
            numbers = {name: getattr(answer, name) for name in NUMBERS}
            output.print_json(output.objective_tables(scenario, slo) | numbers | {"probes": frame})
        else:
            output.print_text(f"{answer!r}\n")
            output.print_frame(f"Runs at other rates, of {output.in_words(scenario)}", frame)
        if not answer.met:
            raise typer.Exit(1)
