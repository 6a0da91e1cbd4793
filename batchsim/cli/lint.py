"""`batchsim lint`: what a server's configuration file costs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchsim.cli import output
from batchsim.cli.flags import RUN, JsonFlag, TrafficFlags, argument
from batchsim.cli.scenario_flags import OTHER, ScenarioFlags

if TYPE_CHECKING:
    from batchsim.servers import ServerConfig


@dataclass
class Lint(JsonFlag, TrafficFlags, ScenarioFlags):
    """Find what costs latency in a server's configuration file; exit code 1 if there is something.

    Each finding has the number that proves it, and the change to make in the server's own words.

    batchsim lint config.pbtxt --rate-per-s 800 --measurement x.json
    """

    config: Path | None = argument("The file of the server: config.pbtxt, model-config.yaml, app.py ...")
    file: Path | None = OTHER.option("A scenario in TOML; options override it.", None, "--scenario")
    requests: int | None = RUN.whole("Number of requests of each run (default: 50,000).")
    cores: int | None = OTHER.option(
        "Cores of the server's machine: TensorFlow Serving's threads unless it says."
    )

    # What the server's file says is no option.
    rule: Any = None
    max_batch_size: int | None = None
    max_wait_ms: float | None = None
    servers: int | None = None
    queue_limit: int | None = None
    timeout_ms: float | None = None
    server_config: Path | None = None

    def read_config(self) -> "ServerConfig | None":
        config = super().read_config()  # how its servers share devices is for `lint` to say
        return config and replace(config, devices=None)

    def run(self) -> None:
        from batchsim import servers

        if self.config is None:
            raise ValueError("a file of a server must be given, as config.pbtxt, got none")
        config = servers.read(self.config, self.server, self.which)
        self.server_config = self.config  # whose servers may share --devices
        scenario, tables = self.scenario()
        findings = servers.lint(config, scenario, cores=self.cores, **self.settings(tables["simulate"]))
        if self.json_:
            scenario_tables = output.scenario_tables(findings.scenario)
            output.print_json({"file": str(self.config), **findings.to_dict(), "scenario": scenario_tables})
        else:
            output.print_text(f"{self.config}: {findings!r}\n")
        if findings:
            raise typer.Exit(1)
