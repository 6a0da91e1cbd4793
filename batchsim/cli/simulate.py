"""The commands that simulate: `batchsim simulate`, and of many scenarios `sweep`, `tune` and `capacity`."""

import contextlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from batchsim import _check
from batchsim._files import replacing
from batchsim._format import counted, decimals
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, GridFlags, JsonFlag, RunFlags, SLOFlags, TrafficFlags
from batchsim.cli.scenario_flags import ScenarioFlags
from batchsim.result import Result
from batchsim.result.metrics import METRICS, TOKENS, heading
from batchsim.scenario import Scenario
from batchsim.scenario.knobs import RATE, value_of
from batchsim.scenario.toml import brief_tables

if TYPE_CHECKING:
    import pandas

    from batchsim.study.recommendation import Recommendation

PRINTED = (
    "p50_ms", "p90_ms", "p95_ms", "p99_ms", "mean_latency_ms", "mean_forming_ms", "mean_queueing_ms",
    "mean_device_wait_ms", "mean_computing_ms", "throughput_per_s", "utilisation", "device_utilisation",
    "mean_batch_size",
)  # fmt: skip
# The lines of a printed Result that go below the table.
NOTES = ("requests", "throughput", "batches", "steps", "tokens", "DRIFTING")


@dataclass
class Simulate(JsonFlag, RunFlags, ScenarioFlags):
    """Run one scenario, and print its metrics with 95 % intervals.

    batchsim simulate --rate-per-s 800 --fixed-ms 5 --per-item-ms 0.25
    batchsim simulate scenario.toml --max-wait-ms 20 --plot run.png
    batchsim simulate --trace arrivals.csv --published resnet50/t4/mixed-fp16
    """

    save: Path | None = OUTPUT.file("Save the run for Result.load: a .npz file.", ".npz")
    plot: Path | None = OUTPUT.picture("Draw the run")
    keep: str = RUN(
        "summary: constant memory for any number of requests; percentiles to 0.1 %, no intervals. "
        "requests: no rows for steps of tokens.", "all", metavar="all|requests|summary",
    )  # fmt: skip

    def run(self) -> None:
        if self.keep == "summary" and (self.plot or self.save):
            option = "--plot" if self.plot else "--save"
            raise ValueError(f"{option} needs the columns of a run, got --keep summary")
        from batchsim.simulate import simulate
        from batchsim.theory import expected

        scenario, tables = self.scenario()
        # Only a picture or a file needs the steps of tokens.
        keep = "requests" if self.keep == "all" and not (self.plot or self.save) else self.keep
        result = simulate(scenario, **self.settings(tables["simulate"]), keep=keep)
        if self.save is not None:
            result.save(self.save)
        if self.plot is not None:
            from batchsim.view.pictures.plot import plot

            output.save_picture(self.plot, plot(result, theory=True))
        intervals = result.intervals(_printed(result))
        theory = None
        with contextlib.suppress(ValueError):  # no steady state
            theory = expected(scenario)
        if self.json_:
            output.print_json(_content(result, intervals, theory))
        else:
            _print(result, intervals, theory)


def _content(result: Result, intervals: dict[str, Any], theory: Any) -> dict[str, Any]:
    levels = _levels(result)
    about = {name: getattr(theory, name, None) for name in ("model", "exact", "source", "bounds")}
    return {
        "scenario": brief_tables(result.scenario),
        **{name: getattr(result, name) for name in ("seed", "engine", "warmup")},
        "replications": len(result.replications),
        "summary": result.summary(),
        "intervals": intervals,
        **({} if levels is None else {"by_priority": levels}),
        "theory": about | {"summary": theory.summary()} if theory else None,
    }


def _printed(result: Result) -> tuple[str, ...]:
    """Return `PRINTED`, and every other metric with an interval; with tokens, all that are about them."""
    others = (key for key, each in METRICS.items() if each.interval and key not in PRINTED)
    tokens = TOKENS if result.scenario.kind == "tokens" else ()
    return tuple(key for key in (*PRINTED, *others, *tokens) if key not in result.metrics.absent)


def _levels(result: Result) -> Any:
    """Return the metrics of each priority level, None without levels or columns."""
    return result.by_priority().reset_index() if result.scenario.levels and result.has_columns else None


def _print(result: Result, intervals: dict[str, Any], theory: Any) -> None:
    summary, expected = result.summary(), theory.summary() if theory else {}
    columns = {"": "left", "value": "right", "95 % interval": "right"}
    if theory:
        columns["theory"] = "right"
    rows = []
    for key in _printed(result):
        low, high = intervals[key]
        interval = "" if math.isnan(low) else f"{output.cell(low)} to {output.cell(high)}"
        rows.append([heading(key), summary[key], interval, expected.get(key, math.nan)][: len(columns)])
    lines = result._rows()
    notes = [f"{name}: {lines[name]}" for name in NOTES if name in lines]
    if any(math.isnan(low) for low, _ in intervals.values()):
        why = "the run keeps no columns" if not result.has_columns else "the run is too short"
        notes.append(f"no interval: {why}")
    if (levels := _levels(result)) is not None:
        notes += [
            f"level {each.priority}: {counted(each.requests, 'request')}, "
            f"mean {decimals(each.mean_latency_ms)} ms, "
            f"p50 {decimals(each.p50_ms)}, p99 {decimals(each.p99_ms)}"
            for each in levels.itertuples()
        ]
    elif result.scenario.levels:
        notes.append("levels: a summary adds them up; --keep all has a line for each")
    if theory:
        notes.append(f"theory: {theory.model}, {theory.accuracy}")
    elif theory is not None:
        notes.append(repr(theory))
    output.print_table(repr(result.scenario), columns, rows, notes)


# Shown if requests are lost; the other columns count served requests only.
LOSS = ("p99_all_ms", "loss")
SHOWN = (
    "mean_latency_ms", "p99_ms", *LOSS, "throughput_per_s", "utilisation", "device_utilisation",
    "mean_batch_size", "load",
)  # fmt: skip
OF_TOKENS = ("mean_ttft_ms", "ttft_p99_ms", "tpot_p99_ms", "output_tokens_per_s", "preempted_share")


@dataclass
class Sweep(JsonFlag, GridFlags, RunFlags, ScenarioFlags):
    """Run a scenario at every point of a grid of knobs, and print a row for each.

    batchsim sweep scenario.toml --over max_batch_size=1:32:x2
    batchsim sweep scenario.toml --over rate_per_s=100:1600:x2 --csv
    batchsim sweep scenario.toml --over servers=1,2 --over max_wait_ms=0:20:5
    """

    workers: int | None = RUN("Number of threads (default: one for each core).")
    out: Path | None = OUTPUT("Folder for finished points: a later call resumes there.", metavar="FOLDER")
    csv: bool = OUTPUT("Print all columns as CSV instead.", False, "--csv")
    plot: Path | None = OUTPUT.picture("Draw a curve of one axis, or a heat map of two")
    value: str = OUTPUT(
        "Column to draw; p99_all_ms counts lost requests as infinite.", "p99_all_ms", metavar="COLUMN"
    )
    objective: float | None = OUTPUT("Limit to draw for that column.", metavar="LIMIT")

    def run(self) -> None:
        from batchsim.study.sweep import columns_of, sweep

        scenario, tables = self.scenario()
        axes = self.axes(tables["over"], scenario)
        if self.plot is not None and len(axes) > 2:
            raise ValueError(f"--plot must have one axis or two, got {', '.join(axes)}")
        if self.value not in (known := columns_of(scenario, axes)):
            hint = _check.nearest(self.value, known)
            raise ValueError(f"--value must be a column of numbers, got {self.value!r}{hint}")
        if self.csv and self.json_:
            raise ValueError("one of --csv and --json must be given, got both")
        settings = self.settings(tables["simulate"])
        progress = sys.stderr.isatty()
        frame = sweep(scenario, axes, **settings, out=self.out, workers=self.workers, progress=progress)
        if self.plot is not None:
            output.save_picture(self.plot, self._figure(frame, scenario, list(axes)))
        if self.csv:
            output.echo(frame.to_csv(index=False), nl=False)
        elif self.json_:
            output.print_json({"scenario": brief_tables(scenario), "points": frame})
        else:
            lossless = not (frame["loss"] > 0).any()
            names = SHOWN if "ttft_p99_ms" not in frame else OF_TOKENS + SHOWN
            left_out = {*axes, *(LOSS if lossless else ())}
            shown = (name for name in names if name in frame and name not in left_out)
            # An overloaded point has a column with its load, so one word is enough.
            reason = frame["infeasible"].where(frame["requests"].isna() | frame["stable"], "overloaded")
            columns = [*axes, *shown, "infeasible"]
            output.print_frame(f"Over {scenario!r}", frame.assign(infeasible=reason)[columns])

    def _figure(self, frame: "pandas.DataFrame", scenario: Scenario, knobs: list[str]) -> Any:
        """Return a curve along one knob, or a heat map of two with the scenario's own setting marked."""
        if len(knobs) == 1:
            from batchsim.view.pictures.curves import capacity_curves

            return capacity_curves(frame, knobs[0], self.value, self.objective)
        from batchsim.view.pictures.sweep_map import heat_map

        x, y = knobs
        today = tuple(_drawn(value_of(scenario, knob)) for knob in knobs)
        return heat_map(frame, x, y, self.value, self.objective, today=today)


def _drawn(value: Any) -> Any:
    """Return a knob's value as a sweep's table has it."""
    return value if isinstance(value, (int, float)) else repr(value)


ANSWER = ("met", "knobs", "frontier", "candidates", "requests_simulated")


@dataclass
class Tune(JsonFlag, GridFlags, SLOFlags, TrafficFlags, ScenarioFlags):
    """Find the setting that meets an objective, and explain why; exit code 1 if none does.

    batchsim tune scenario.toml --p99-ms 50
    batchsim tune scenario.toml --p99-ms 50 --over max_batch_size=4:64:x2
    batchsim tune --rate-per-s 99 --published resnet50/t4/mixed-fp16 --p99-ms 90

    Without --over, it tries 42 settings of the max batch size and the max wait, or those of continuous
    batching. `batchsim loadtest` and `batchsim compare` prove the answer on the real server.
    """

    usual: ClassVar[Mapping[str, Sequence[float]]] = {
        "max_batch_size": (1, 2, 4, 8, 16, 32, 64), "max_wait_ms": (0, 1, 2, 5, 10, 20),
        "max_num_seqs": (8, 16, 32, 64, 128, 256), "max_num_batched_tokens": (512, 1024, 2048, 4096, 8192),
    }  # fmt: skip

    prefer: str = RUN(
        "cheapest (without a price: fewest servers), fastest or greenest.", "cheapest", metavar="WORD"
    )
    inputs: int | None = RUN(
        "Draws of other inputs, for a --measurement (default: 20) or a trace (default: none)."
    )
    save: Path | None = OUTPUT.file("Write the scenario with the recommended setting as TOML.")
    plot: Path | None = OUTPUT.picture("Draw the Pareto frontier")
    write: str | None = OUTPUT(
        "Print the setting as that server's own file, or with --server-config as a diff of it, which "
        "alone goes for servers in Python; write those of all servers to --out.",
        metavar="SERVER|all",
    )  # fmt: skip
    out: Path | None = OUTPUT("The folder for --write: triton/config.pbtxt and so on.", metavar="FOLDER")
    force: bool = OUTPUT(
        "Write a setting that misses the objective, too, and overwrite existing files in --out.",
        False,
        "--force",
    )

    def run(self) -> None:
        from batchsim.study.tune import tune

        scenario, tables = self.scenario()
        self._check_write()
        slo = self.slo(tables["slo"])
        has_file = self.server_config is not None
        axes = self.axes(tables["over"], scenario, present=has_file)
        self._check_memory(scenario, axes)
        best = tune(
            scenario, slo, axes, **self.settings(tables["simulate"]), prefer=self.prefer,
            progress=sys.stderr.isatty(), measurement=self.measurement, inputs=self.inputs, stay=has_file,
        )  # fmt: skip
        if self.save is not None:
            best.scenario.to_toml(self.save)
        if self.plot is not None:
            from batchsim.view.pictures.curves import frontier

            output.save_picture(self.plot, frontier(best))
        written, refused, diffs = self._written(best)
        if self.json_:
            answer = {name: getattr(best, name) for name in ANSWER}
            expected = {key: estimate._asdict() for key, estimate in best.expected.items()}
            remedies = [vars(remedy) for remedy in best.remedies]
            more: dict[str, Any] = {"explain": best.explain(), "expected": expected, "remedies": remedies}
            more |= {"statement": best.statement and vars(best.statement), "provisional": best.provisional}
            more |= {"written": written, "refused": refused, "diff": diffs} if self.write else {}
            output.print_json(output.objective_tables(best.scenario, slo) | answer | more)
        else:
            output.print_text(best.explain() + "\n")
            key = slo.latency[0]
            cost = "cost_per_million" if "cost_per_million" in best.frontier else "servers"
            numbers = ["servers", cost, key, f"{key}_low", f"{key}_high", "saturation_per_s"]
            title = f"The Pareto frontier of latency, saturation rate and {cost.split('_')[0]}:"
            output.print_frame(title, best.frontier[list(dict.fromkeys([*best.knobs, *numbers, "outcome"]))])
            if self.out is None:
                output.echo("".join(diffs.values() or written.values()), nl=False)
        if self.write in refused:
            raise ValueError(refused[self.write])
        if best.provisional:
            raise typer.Exit(130)
        if not best.met:
            raise typer.Exit(1)

    def _check_memory(self, scenario: Scenario, axes: Mapping[str, Any]) -> None:
        """Refuse to recommend seats for a server whose memory nobody has given."""
        if self.lacks_memory(scenario) and not any(name.endswith("kv_blocks") for name in axes):
            known = "--kv-blocks, or a --published step time of a known model and card"
            raise ValueError(f"memory must be given by {known} (--kv-blocks unlimited ignores it), got none")

    def _check_write(self) -> None:
        if self.out is not None and self.write is None:
            raise ValueError("--out must come with --write, got none")
        if self.write is None:
            return
        from batchsim import servers

        _check.one_of(
            "--write", self.write, [*servers.SERVERS, *servers.SIZE_SERVERS, *servers.TOKEN_SERVERS, "all"]
        )
        if self.write == "all" and self.out is None and not self.json_:
            raise ValueError("--write all must come with --out, got none")
        if self.write not in ("all", getattr(self.config, "server", "")):
            servers.file_name(self.write)  # which refuses a server without one

    def _written(self, best: "Recommendation") -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """Return the requested files, the reasons for missing ones, and diffs; write the files to --out."""
        from batchsim import servers

        texts, refused, diffs, name = dict[str, str](), dict[str, str](), dict[str, str](), ""
        if self.write is not None and not best.met and not self.force:
            output.echo("Not written: it does not meet the objective (--force writes it)", err=True)
        elif self.write == "all":
            texts, refused = servers.write_all(best)
        elif self.write is not None:
            try:
                if self.config is not None and self.config.server == self.write:
                    path: Any = self.server_config
                    texts[self.write], diffs[self.write], _ = servers.edited(
                        self.config.text, best, self.server, self.which, path
                    )
                    name = path.name.strip("-")
                else:
                    texts[self.write] = servers.write(self.write, best)
            except ValueError as error:  # told when the answer of the search is printed
                refused[self.write] = str(error)
        for server, why in refused.items() if self.write == "all" else ():
            output.echo(f"Not written for {server}: {why}", err=True)
        for diff in diffs.values() if self.out is None else ():
            hint = f"{self.server_config} is as it was; --out FOLDER writes the new one to the folder."
            output.echo(hint if diff else f"{self.server_config} has this setting already.", err=True)
        for server, text in texts.items():
            if self.out is None:
                break
            path = self.out / server / (name or servers.file_name(server))
            if path.exists() and not self.force:
                raise ValueError(f"{path} already exists: choose another --out, or --force")
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(text.encode())
            output.echo(f"Wrote {path}.", err=True)
        return texts, refused, diffs


NUMBERS = ("met", "rate_per_s", "low_per_s", "high_per_s", "limited_by", "requests_simulated")


@dataclass
class Capacity(JsonFlag, SLOFlags, TrafficFlags, ScenarioFlags):
    """Find the highest rate within an objective; exit code 1 if even a low rate misses it.

    batchsim capacity scenario.toml --p99-ms 50
    batchsim capacity scenario.toml --p99-ms 50 --servers 2 --plot growth.png
    batchsim capacity --rate-per-s 99 --fixed-ms 5 --per-item-ms 0.25 --p99-ms 50

    The workload's own rate does not matter: the search rescales it.
    """

    tolerance: float = RUN("Relative accuracy of the rate.", 0.01, metavar="FRACTION")
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
            output.print_frame(f"Runs at other rates, of {scenario!r}", frame)
        if not answer.met:
            raise typer.Exit(1)
