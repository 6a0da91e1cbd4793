"""The commands that prove a setting on a real server: `batchsim loadtest`, `compare` and `calibrate`."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import typer

import batchsim as bs
from batchsim._format import listed
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, JsonFlag
from batchsim.cli.scenario_flags import OTHER, ScenarioFlags
from batchsim.measured.load_commands import MODEL, URL

METRICS = {
    "tpot_ms": "TPOT (ms)", "ttft_ms": "TTFT (ms)", "ttft_p99_ms": "TTFT p99 (ms)",
    "latency_ms": "latency (ms)", "latency_p99_ms": "latency p99 (ms)", "served_per_s": "served (per s)",
}  # fmt: skip


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
            output.print_json({"command": command, "scenario": output.scenario_tables(scenario)})
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

    def results(self) -> bs.LoadTest:
        if not self.given:
            raise ValueError("result files of a load test must be given, as result.json, got none")
        return bs.load_test(*self.given)

    def lengths(self, scenario: bs.Scenario) -> Any:
        """Return the lengths that options give; by default the result files tell them."""
        return (
            scenario.tokens if (self.tokens, self.prompt_tokens, self.output_tokens) != (None,) * 3 else None
        )

    def show(
        self, found: "bs.Calibration", more: Mapping[str, Any] = MappingProxyType({}), *notes: str
    ) -> None:
        """Print each number of each load, measured and simulated."""
        frame = found.to_frame()
        if self.json_:
            about = {"tool": found.test.tool, "warnings": found.test.warnings, "service": found.service}
            output.print_json(about | {"client_ms": found.client_ms} | {**more} | {"stages": frame})
            return
        fitted = any(found.fitted)
        rows = [
            [row["load"], label, *(row[f"{key}{end}"] for end in ("", "_simulated", "_low", "_high")),
             f"{row[f'{key}_error']:+.1%}", *["fitted" if row["fitted"] else "held out"] * fitted]
            for row in frame.to_dict("records") for key, label in METRICS.items() if row[key] > 0
        ]  # fmt: skip
        columns = ["measured", "simulated", "95%_low", "95%_high", "error", *[" "] * fitted]
        heads = {"load": "left", "": "left", **dict.fromkeys(columns, "right")}
        output.print_table(f"{found.test!r}".partition("\n")[0], heads, rows, [*notes, *found.test.warnings])


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
        if self.given and all(path.suffix == ".npz" for path in self.given):
            if len(self.given) != 2:
                raise ValueError(f"two saved runs must be given, got {len(self.given)}")
            one, other = map(bs.Result.load, self.given)
            found = bs.compare(one, other)
            frame = found.to_frame().reset_index(names="metric")
            if self.json_:
                output.print_json({"metrics": frame})
            else:
                output.print_text(f"{found!r}\n")
            return
        test, (scenario, _) = self.results(), self.scenario()
        self.show(bs.predict(test, scenario, self.client_ms or 0, tokens=self.lengths(scenario)))


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
        from batchsim.study.calibration import tokens_of

        test, (scenario, _) = self.results(), self.scenario()
        prior, tokens = self._service(None, self._knobs()), self.lengths(scenario)
        found = bs.calibrate(
            test, scenario.rule, hold_out=[*map(_load, self.hold_out or [])], tokens=tokens, like=scenario,
            seed=1 if self.seed is None else self.seed, prior=prior,
        )  # fmt: skip
        if self.save is not None:
            last = test.stages[-1]
            closed = last.asked_per_s != last.asked_per_s
            workload = bs.ClosedLoop(round(last.concurrency)) if closed else bs.Poisson(last.asked_per_s)
            lengths = tokens_of(last, found.service, tokens)
            replace(scenario, workload=workload, service=found.service, tokens=lengths).to_toml(self.save)
            output.echo(f"Wrote {self.save}. Its client adds {found.client_ms:.4g} ms: --client-ms", err=True)
        more = {name: getattr(found, name) for name in ("parameters", "unidentified", "from_prior")}
        notes = [f"service: {found.service!r}; client: {output.cell(found.client_ms)} ms"]
        untold = [
            ("cannot be told from these loads", found.unidentified),
            ("from the prior", found.from_prior),
        ]
        notes += [f"{what}: {listed([*names])}" for what, names in untold if names]
        self.show(found, more, *notes)


def _load(text: str) -> str | float:
    with suppress(ValueError):
        return float(text)
    return text
