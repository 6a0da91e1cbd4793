"""The commands about what was measured: service times, and load tests of a real server.

`batchsim measure` and `published` have service times; `loadtest`, `compare` and `calibrate` prove a setting
on a real server.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import typer

import batchsim as bs
from batchsim._format import listed
from batchsim.cli import output, values
from batchsim.cli.flags import OUTPUT, RUN, JsonFlag, Panel
from batchsim.cli.scenario_flags import OTHER, ScenarioFlags
from batchsim.measured.load_commands import MODEL, URL
from batchsim.measured.published import alike, published_names, published_source, published_watts
from batchsim.scenario.step_time import StepCost
from batchsim.scenario.toml import brief_tables

OF_MODEL = Panel("Model")
FEW = 10  # with more tables, their sources are not printed


@dataclass
class Measure(JsonFlag):
    """Time a real JAX model on batches of each size, on this machine: on a GPU if JAX finds one.

    batchsim measure --model transformer --save transformer.json
    """

    model: str = OF_MODEL("Which model.", "transformer", metavar="mlp|convnet|transformer")
    width: int | None = OF_MODEL("Width of its layers (default: the model's own).")
    layers: int | None = OF_MODEL("Number of layers (default: the model's own).")
    batch_sizes: Any = OF_MODEL("Batch sizes (default: 1,2,4,8,16,32).", metavar="SIZES", parser=values.sizes)
    target: float = OF_MODEL("Stop when each median's half-interval is below this.", 0.02, metavar="FRACTION")
    limit_s: float = OF_MODEL("Stop after this time, whether or not the target is met.", 5.0)
    repeats: int | None = OF_MODEL("Time each size this many times instead, however long it takes.")
    copy: bool = OF_MODEL("Include the copy of the inputs to the device.", True, "--copy/--no-copy")
    served: bool = OF_MODEL("Time a whole server, with its batcher and a sending thread.", False, "--served")
    save: Path | None = OUTPUT.file("Save it as JSON, for --measurement.")

    def run(self) -> None:
        from batchsim import device

        model = device.load_model(self.model, width=self.width, layers=self.layers)
        measured = device.measure(
            model, self.batch_sizes or [1, 2, 4, 8, 16, 32], target=self.target, limit_s=self.limit_s,
            repeats=self.repeats, copy=self.copy, served=self.served, progress=sys.stderr.isatty(),
        )  # fmt: skip
        if self.save is not None:
            measured.save(self.save)
        frame = measured.to_frame()
        if self.json_:
            names = ("model", "device", "platform", "measured_at", "copy", "served", "target", "not_fitting")
            about = {name: getattr(measured, name) for name in (*names, "knee")}
            notes = [note._asdict() for note in measured.notes]
            output.print_json(about | {"rows": frame, "notes": notes})
        else:
            copy = f"{'with' if measured.copy else 'without'} the copy to the device"
            title = (
                f"{measured.model} on {measured.device}, {'as a server gives it' if self.served else copy}"
            )
            output.print_frame(title, frame, [*measured.remarks, f"knee: {measured.knee}"])


@dataclass
class Published(JsonFlag):
    """List the service times and the power that others measured and published, each with its source."""

    match: str | None = typer.Argument(None, metavar="WORD", help="Words of the name, such as gpunet-175ms.")

    def run(self) -> None:
        tables: list[Any] = [published_source(name) for name in published_names(self.match)]
        steps: list[Any] = [published_source(name) for name in published_names(self.match, tokens=True)]
        power: list[Any] = [published_watts(name) for name in published_names(self.match, watts=True)]
        if not tables and not steps and not power:
            known = [*published_names(), *published_names(tokens=True)]
            hint = alike(self.match or "", known) or "; without a word, all are listed"
            raise ValueError(f"no published name has {self.match!r}{hint}")
        if self.json_:
            listed = [{**vars(table), "service": dict(table.service.points_ms)} for table in tables]
            costs = [{**vars(each), "service": each.service.cost._asdict()} for each in steps]
            every = {"tables": listed, "steps": costs, "watts": [vars(each) for each in power]}
            output.print_json({kind: found for kind, found in every.items() if found})
            return
        if tables:
            stats = " or ".join(sorted({table.stat for table in tables}))
            title = f"Published service times: the {stats} latency of a batch"
            rows = [_ends(table.service.points_ms) for table in tables]
            _print(title, ["batch sizes", "ms"], tables, rows)
        if steps:
            title = "Published times of a step of token generation, in ms: five fitted numbers"
            headings = [name.removesuffix("_ms").replace("_", " ") for name in StepCost._fields]
            rows = [[*(f"{ms:g}" for ms in each.service.cost), f"{each.mean_error:.1%}"] for each in steps]
            _print(title, [*headings, "error"], steps, rows)
        if power:
            title = "Published power of a server while it computes, and the energy of a token or an image"
            rows = [
                [*_ends([(n, each.watts[n], each.joules[n]) for n in each.watts]), each.per] for each in power
            ]
            _print(title, ["batch sizes", "W", "J", "per"], power, rows)


def _ends(points: Sequence[tuple[float, ...]]) -> list[str]:
    """Return the first and the last of each column."""
    return [f"{column[0]:g} to {column[-1]:g}" for column in zip(*points, strict=True)]


def _print(title: str, headings: list[str], sources: list[Any], rows: list[list[str]]) -> None:
    """Print a table, a row for each source, and below it where the numbers are from."""
    columns = {"name": "left", **dict.fromkeys(headings, "right"), "backend": "left"}
    how = "name fewer, as `batchsim published nnunet` does, or use --json"
    notes = [f"{len(sources)} tables. To see their sources, {how}."]
    if len(sources) <= FEW:
        notes = [f"{each.name}: {each.source_url}, {each.licence}" for each in sources]
    cells = [[each.name, *row, each.backend] for each, row in zip(sources, rows, strict=True)]
    output.print_table(title, columns, cells, notes)


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
