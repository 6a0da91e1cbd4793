"""`batchsim tune`: the setting that meets an objective."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from batchsim import _check
from batchsim._files import replacing
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, GridFlags, JsonFlag, SLOFlags, TrafficFlags
from batchsim.cli.scenario_flags import ScenarioFlags

if TYPE_CHECKING:
    from batchsim.study.recommendation import Recommendation

ANSWER = ("met", "knobs", "frontier", "candidates", "requests_simulated")


@dataclass
class Tune(JsonFlag, GridFlags, SLOFlags, TrafficFlags, ScenarioFlags):
    """Find the setting that meets an objective, and explain why; exit code 1 if none does.

    batchsim tune scenario.toml --p99-ms 50 --over max_batch_size=4:64:x2 --over max_wait_ms=0,2,5,10
    """

    prefer: str = RUN.option("Fewest servers, or lowest latency.", "cheapest", metavar="cheapest|fastest")
    save: Path | None = OUTPUT.file("Write the scenario with the recommended setting as TOML.")
    plot: Path | None = OUTPUT.picture("Draw the Pareto frontier")
    write: str | None = OUTPUT.option(
        "Print the setting as that server's own file, or write those of all servers to --out.",
        metavar="SERVER|all",
    )  # fmt: skip
    out: Path | None = OUTPUT.option("The folder for --write: triton/config.pbtxt and so on.")

    def run(self) -> None:
        from batchsim.study.tune import tune

        self._check_write()
        scenario, tables = self.scenario()
        slo = self.slo(tables["slo"])
        axes = self.axes(tables["over"], scenario)
        best = tune(scenario, slo, axes, **self.settings(tables["simulate"]), prefer=self.prefer)
        if self.save is not None:
            best.scenario.to_toml(self.save)
        if self.plot is not None:
            from batchsim.view.pictures.curves import frontier

            output.save_picture(self.plot, frontier(best))
        written, refused = self._written(best)
        if self.json_:
            answer = {name: getattr(best, name) for name in ANSWER}
            expected = {key: estimate._asdict() for key, estimate in best.expected.items()}
            remedies = [vars(remedy) for remedy in best.remedies]
            more = {"explain": best.explain(), "expected": expected, "remedies": remedies}
            more |= {"written": written, "refused": refused} if self.write else {}
            output.print_json(output.objective_tables(best.scenario, slo) | answer | more)
        else:
            output.print_text(best.explain() + "\n")
            key = slo.latency[0]
            numbers = ["servers", key, f"{key}_low", f"{key}_high", "saturation_per_s"]
            title = "Settings that no other beats in latency, saturation rate and servers alike:"
            output.print_frame(title, best.frontier[list(dict.fromkeys([*best.knobs, *numbers, "outcome"]))])
            if self.out is None:
                typer.echo("".join(written.values()), nl=False)
        if not best.met:
            raise typer.Exit(1)

    def _check_write(self) -> None:
        if self.out is not None and self.write is None:
            raise ValueError("--out must come with --write, got none")
        if self.write is None:
            return
        from batchsim import servers

        _check.one_of("--write", self.write, [*servers.SERVERS, *servers.TOKEN_SERVERS, "all"])
        if self.write == "all" and self.out is None and not self.json_:
            raise ValueError("--write all must come with --out, got none")

    def _written(self, best: "Recommendation") -> tuple[dict[str, str], dict[str, str]]:
        """Return the text for each server that is asked for, and write it to the folder if there is one."""
        if self.write is None:
            return {}, {}
        from batchsim import servers

        refused: dict[str, str] = {}
        if self.write == "all":
            texts, refused = servers.write_all(best)
        else:
            texts = {self.write: servers.write(self.write, best)}
        for server, why in refused.items():
            typer.echo(f"Not written for {server}: {why}", err=True)
        if self.out is not None:
            for server, text in texts.items():
                path = self.out / server / servers.file_name(server)
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file:
                    file.write(text.encode())
        return texts, refused
