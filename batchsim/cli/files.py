"""The commands about files: `batchsim init` writes a scenario, `batchsim lint` checks a server's file."""

import os
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer

from batchsim._files import replacing
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, Command, JsonFlag, TrafficFlags, check_output
from batchsim.cli.scenario_flags import OTHER, Lacking, ScenarioFlags
from batchsim.scenario.toml import brief_tables, other_rules


@dataclass
class Init(Command):
    """Write a scenario in TOML to start from: a comment for every knob, and ready to run."""

    path: Path = typer.Argument(Path("scenario.toml"), help="The file to write.")
    force: bool = OUTPUT("Overwrite an existing file.", False, "--force")

    def run(self) -> None:
        check_output("The file", self.path)
        if self.path.is_file() and not self.force:
            raise ValueError(f"{self.path} already exists: choose another name, or --force")
        template = files("batchsim.cli").joinpath("scenario.toml").read_text(encoding="utf-8")
        text = template.replace(
            "# OTHER_RULES (`batchsim init` writes them here)\n", "\n".join(other_rules())
        )
        with replacing(self.path) as file:
            file.write(text.replace("THIS_FILE", os.fspath(self.path)).encode())
        output.echo(f"Wrote {self.path}. Next: batchsim simulate {self.path}")


@dataclass
class Lint(JsonFlag, TrafficFlags, ScenarioFlags):
    """Find settings of a server's configuration file that cost latency; exit code 1 if it finds one.

    batchsim lint config.pbtxt --rate-per-s 800 --measurement model.json
    batchsim lint app.py --rate-per-s 800 --fixed-ms 5 --per-item-ms 0.25
    batchsim lint config.properties --scenario scenario.toml

    Each finding has a number that proves it, and the change to make, in the server's own terms.
    """

    given: Path | None = typer.Argument(
        None, help="The server's file: config.pbtxt, app.py ...; - reads it.", metavar="CONFIG"
    )
    file: Path | None = OTHER("A scenario in TOML; options override it.", None, "--scenario")
    requests: int | None = RUN("Number of requests of each run (default: a whole trace, or 50,000).")
    cores: int | None = OTHER("Cores of the server's machine: TensorFlow Serving's default for threads.")

    # The server's file sets these.
    rule: Any = None
    max_batch_size: int | None = None
    max_batch_units: int | None = None
    units: str | None = None
    max_wait_ms: float | None = None
    servers: int | None = None
    queue_limit: int | None = None
    timeout_ms: float | None = None
    server_config: Path | None = None

    def run(self) -> None:
        from batchsim import servers
        from batchsim.servers.cards import with_memory

        if self.given is None:
            raise ValueError("a file of a server must be given, as config.pbtxt, got none")
        self.server_config = self.given
        config: Any = self.config
        self.config = replace(config, devices=None)  # `lint` itself judges how servers share devices
        try:
            scenario, tables = self.scenario()
        except Lacking:
            if not self.json_:
                output.print_text(f"{self.given}, not judged without traffic: {config!r}\n")
            raise
        config = with_memory(config, getattr(scenario.rule, "kv_blocks", None))
        findings = servers.lint(config, scenario, cores=self.cores, **self.settings(tables["simulate"]))
        if self.json_:
            scenario_tables = brief_tables(findings.scenario)
            output.print_json({"file": str(self.given), **findings.to_dict(), "scenario": scenario_tables})
        else:
            output.print_text(f"{self.given}: {findings!r}\n")
            output.print_frame("The settings, and each change:", findings.settings())
        if findings:
            raise typer.Exit(1)
