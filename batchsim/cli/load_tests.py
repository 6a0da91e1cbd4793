"""The commands that prove a setting on a real server: `batchsim loadtest`, `compare` and `calibrate`."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import typer

import batchsim as bs
from batchsim._format import listed
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, JsonFlag
from batchsim.cli.scenario_flags import OTHER, ScenarioFlags
from batchsim.measured.load_commands import MODEL, URL
from batchsim.scenario.toml import brief_tables

SHOWN = ("service", "client_ms", "parameters", "unidentified", "from_prior")


@dataclass
class Loadtest(JsonFlag, ScenarioFlags):
    """Print the command line of a load generator that sends a scenario's traffic to a real server.

    batchsim loadtest scenario.toml --model resnet50 --url localhost:8000
    batchsim loadtest serve.sh --rate-per-s 2 --tokens 'Tokens(400, 150)'
    batchsim loadtest scenario.toml --tool perf_analyzer | sh

    Its result file is what `batchsim compare` and `batchsim calibrate` read.
    """

    tool: str | None = RUN("vllm bench serve (default, with tokens), aiperf profile or perf_analyzer.")
    url: str = RUN("The server's address.", URL, metavar="URL")
    free: ClassVar[tuple[str, ...]] = ("service",)
    model: str | None = RUN("The model's name there (default: that of a server's file).")
    requests: int | None = RUN("Number of requests (default: 5 minutes of them; 1,000 of clients).")

    def run(self) -> None:
        scenario, _ = self.scenario()
        named = {**self.config.unused, **self.config.settings} if self.config else {}
        model = self.model or str(named.get("model") or named.get("name") or MODEL)
        command = bs.load_command(scenario, self.tool, self.requests, self.url, model)
        if self.json_:
            output.print_json({"command": command, "scenario": brief_tables(scenario)})
        else:
            output.echo(command)


@dataclass
class _Results(JsonFlag, ScenarioFlags):
    """A server, and result files of load tests of it, whose traffic replaces the scenario's."""

    given: list[Path] | None = typer.Argument(
        None, help="Result files of one tool, or their folder.", metavar="RESULT..."
    )
    file: Path | None = OTHER(
        "A scenario in TOML, or a server's file; options override it.", None, "--scenario"
    )

    # The result files set these.
    rate_per_s: float | None = None
    clients: int | None = None
    trace: Path | None = None
    column: str | None = None
    unit: str | None = None
    speedup: float | None = None

    def read(self) -> tuple[bs.LoadTest, bs.Scenario, Any]:
        """Return the load test, the server, and the lengths that options give; None: as the files tell."""
        if not self.given:
            raise ValueError("result files of a load test must be given, as result.json, got none")
        test, (scenario, _) = bs.load_test(*self.given), self.scenario()
        is_told = any(each is not None for each in (self.tokens, self.prompt_tokens, self.output_tokens))
        return test, scenario, scenario.tokens if is_told else None

    def show(self, found: "bs.Calibration") -> None:
        """Print each number of each load, measured and simulated."""
        test = found.test
        about = {"tool": test.tool, "warnings": test.warnings}
        about |= {name: getattr(found, name) for name in SHOWN}
        if self.json_:
            output.print_json(about | {"stages": found.to_frame()})
            return
        notes = [f"service: {found.service!r}; client: {output.cell(found.client_ms)} ms"]
        for what, names in (("cannot tell", found.unidentified), ("are mostly prior for", found.from_prior)):
            notes += [f"these loads {what} {listed([*names])}"] if names else []
        output.print_frame(repr(test).partition("\n")[0], found.compared(), [*notes, *test.warnings])


@dataclass
class Compare(_Results):
    """Compare what load tests measured with what a scenario predicts, or two runs that were saved.

    batchsim compare result.json --scenario scenario.toml
    batchsim compare result.json --scenario serve.sh --weights-ms 8
    batchsim compare before.npz after.npz
    """

    client_ms: float | None = RUN("What the client itself adds to each latency (default: 0).")
    free: ClassVar[tuple[str, ...]] = ("workload", "tokens")

    def run(self) -> None:
        if not self.given or any(path.suffix != ".npz" for path in self.given):
            test, scenario, tokens = self.read()
            self.show(bs.predict(test, scenario, self.client_ms or 0, tokens=tokens))
            return
        if len(self.given) != 2:
            raise ValueError(f"two saved runs must be given, got {len(self.given)}")
        one, other = map(bs.Result.load, self.given)
        found = bs.compare(one, other)
        if self.json_:
            output.print_json({"metrics": found.to_frame().reset_index(names="metric")})
        else:
            output.print_text(f"{found!r}\n")


@dataclass
class Calibrate(_Results):
    """Fit a service time to load tests, so that predictions are those of your server.

    batchsim calibrate stages/ --server-config serve.sh --save mine.toml
    batchsim calibrate a.json b.json c.json --max-batch-size 16 --max-wait-ms 2
    batchsim calibrate stages/ --scenario serve.sh --hold-out 20/s

    A service time that is given, as --published, is a prior: it tells what the tests cannot.
    """

    hold_out: list[str] | None = RUN(
        "A load to predict, not to fit: 20/s, or its file. Repeatable.", metavar="LOAD"
    )
    seed: int | None = RUN("Seed of the simulated tests (default: 1).")
    save: Path | None = OUTPUT.file("Save it as a scenario in TOML, with the traffic of the highest load.")
    free: ClassVar[tuple[str, ...]] = ("workload", "service", "tokens")

    def run(self) -> None:
        test, scenario, tokens = self.read()
        found = bs.calibrate(
            test, scenario.rule, hold_out=[*map(_load, self.hold_out or [])], tokens=tokens, like=scenario,
            seed=1 if self.seed is None else self.seed, prior=self._service(None, self._knobs()),
        )  # fmt: skip
        if self.save is not None:
            found.scenario(scenario).to_toml(self.save)
            output.echo(f"Wrote {self.save}. Its client adds {found.client_ms:.4g} ms: --client-ms", err=True)
        self.show(found)


def _load(text: str) -> str | float:
    with suppress(ValueError):
        return float(text)
    return text
