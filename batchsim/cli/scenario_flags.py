"""The scenario that flags, a TOML file, or a file with flags over it ask for."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import batchsim as bs
from batchsim.cli import values
from batchsim.cli.flags import FileTable, number, parsed, whole
from batchsim.scenario.toml import KINDS, read_toml

TABLES = ("simulate", "slo", "over")  # of a file, beside the scenario
WORKLOAD, RULE, SERVICE, OTHER = "Workload", "Rule", "Service time", "Scenario"  # panels of the help
KNOBS = (
    "rate_per_s", "clients", "max_batch_size", "max_wait_ms", "fixed_ms", "per_item_ms",
    "servers", "queue_limit", "timeout_ms",
)  # fmt: skip


@dataclass
class ScenarioFlags:
    """What is asked, named as in Python."""

    file: Annotated[
        Path | None,
        Argument(help="A scenario as TOML (`batchsim init` writes one). Flags override what it says."),
    ] = None

    rate_per_s: Annotated[
        float | None,
        number(
            "--rate-per-s", "PER_S", "Mean arrival rate: Poisson, or any workload scaled to it.", WORKLOAD
        ),
    ] = None
    workload: Annotated[
        Any,
        parsed(
            "--workload", "PART", values.value,
            "As in Python: 'Gamma(800, cv=2)', 'OnOff(2000, 200, 10, 30)', 'ClosedLoop(8, think_s=0.1)'.",
            WORKLOAD,
        ),
    ] = None  # fmt: skip
    clients: Annotated[
        int | None, whole("--clients", "A closed loop: each client waits for its answer.", WORKLOAD)
    ] = None
    trace: Annotated[
        Path | None,
        Option(help="Real traffic: a CSV file of arrival times, seconds or ISO.", rich_help_panel=WORKLOAD),
    ] = None
    column: Annotated[
        str | None, Option(help="The trace's column; else the first.", rich_help_panel=WORKLOAD)
    ] = None
    speedup: Annotated[
        float | None, number("--speedup", "FACTOR", "Replay the trace so many times as fast.", WORKLOAD)
    ] = None

    max_batch_size: Annotated[
        int | None,
        whole(
            "--max-batch-size", "The most requests in a batch; else 32, or a smaller table's largest.", RULE
        ),
    ] = None
    max_wait_ms: Annotated[
        float | None,
        number("--max-wait-ms", "MS", "How long the oldest waits for company; inf: for ever; else 10.", RULE),
    ] = None
    rule: Annotated[
        Any, parsed("--rule", "PART", values.value, "Another rule, as in Python: 'AtLeast(4, 8)'.", RULE)
    ] = None

    fixed_ms: Annotated[
        float | None, number("--fixed-ms", "MS", "What every batch costs; else 0.", SERVICE)
    ] = None
    per_item_ms: Annotated[
        float | None, number("--per-item-ms", "MS", "What each request adds to its batch; else 0.", SERVICE)
    ] = None
    table: Annotated[
        Any,
        parsed(
            "--table", "SIZE=MS,...", values.pairs, "Measured by batch size: 1=2.08,2=2.65,8=3.29.", SERVICE
        ),
    ] = None
    published: Annotated[
        str | None,
        Option(help="Published, as resnet50/t4/fp16: `batchsim published`.", rich_help_panel=SERVICE),
    ] = None
    measurement: Annotated[
        Path | None, Option(help="A file that `batchsim measure` saved.", rich_help_panel=SERVICE)
    ] = None
    service: Annotated[
        Any,
        parsed(
            "--service", "PART", values.value, "As in Python: 'Affine(5, 0.25).with_noise(0.1)'.", SERVICE
        ),
    ] = None

    servers: Annotated[
        int | None, whole("--servers", "Model instances, each one batch at a time; else 1.", OTHER)
    ] = None
    queue_limit: Annotated[
        int | None, whole("--queue-limit", "An arrival that finds so many waiting is rejected.", OTHER)
    ] = None
    timeout_ms: Annotated[
        float | None,
        number("--timeout-ms", "MS", "A request not started by then leaves the queue.", OTHER),
    ] = None
    set_: Annotated[
        list[str] | None,
        Option(
            "--set", metavar="KNOB=VALUE", rich_help_panel=OTHER,
            help="Any knob by name: workload.cv=2, 'slowdown={1: 1, 2: 1.8}'; may be repeated.",
        ),
    ] = None  # fmt: skip

    def scenario(self) -> tuple[bs.Scenario, dict[str, FileTable]]:
        """Return the scenario, and the tables `TABLES` of its file, empty ones where it has none."""
        base, there = (None, {}) if self.file is None else read_toml(self.file, TABLES)
        tables = {name: FileTable(f"{self.file}, [{name}]", there.get(name, {})) for name in TABLES}
        knobs = self._knobs()
        parts = {
            "workload": self._workload(base, knobs),
            "rule": self.rule,
            "service": self._service(base, knobs),
        }
        changes = {name: part for name, part in parts.items() if part is not None}
        if base is None:
            for name, ways in (
                ("workload", "--rate-per-s, --workload, --trace or --clients"),
                ("service", "--fixed-ms, --table, --published, --measurement or --service"),
            ):
                if name not in changes:
                    raise ValueError(f"a {name} must be given: by a TOML file, {ways}")
            if "rule" not in changes:
                fields = [f.name for f in dataclasses.fields(bs.SizeOrWait)]
                wanted = {f: knobs.pop(f) for f in fields if f in knobs}
                changes["rule"] = bs.SizeOrWait(**{"max_batch_size": _largest(changes["service"])} | wanted)
            base, changes = bs.Scenario(**changes), {}
        return base.replace(changes | knobs), tables

    def _knobs(self) -> dict[str, Any]:
        """Return the knobs that have a flag of their own, and those of --set."""
        knobs = {name: getattr(self, name) for name in KNOBS if getattr(self, name) is not None}
        for text in self.set_ or ():
            name, value = values.setting(text)
            if name in knobs:
                raise ValueError(f"{name} must be given once, got it again by --set {text}")
            knobs[name] = value
        return knobs

    def _workload(self, base: bs.Scenario | None, knobs: dict[str, Any]) -> Any:
        """Return the workload, if another is asked for; what it uses up of the knobs is taken out."""
        _once("workload", {"--workload": self.workload, "--trace": self.trace, "--clients": self.clients})
        if self.trace is not None:
            speedup = 1.0 if self.speedup is None else self.speedup
            return bs.Trace.from_csv(self.trace, self.column, speedup)
        if not (self.column is None and self.speedup is None):
            raise ValueError("--column and --speedup must come with --trace, got none")
        if self.workload is not None:
            return self.workload
        looped = base is not None and isinstance(base.workload, bs.ClosedLoop)
        if self.clients is not None and not looped:
            return bs.ClosedLoop(knobs.pop("clients"))
        if base is None and self.rate_per_s is not None:
            return bs.Poisson(knobs.pop("rate_per_s"))
        return None

    def _service(self, base: bs.Scenario | None, knobs: dict[str, Any]) -> Any:
        """Return the service time, as `_workload` does."""
        affine = self.fixed_ms if self.fixed_ms is not None else self.per_item_ms
        _once(
            "service",
            {
                "--service": self.service, "--table": self.table, "--published": self.published,
                "--measurement": self.measurement, "--fixed-ms or --per-item-ms": affine,
            },
        )  # fmt: skip
        if self.table is not None:
            return bs.Table(self.table)
        if self.published is not None:
            return bs.published(self.published)
        if self.measurement is not None:
            (load,) = KINDS["service"]["Measurement"]
            return load(self.measurement)
        if affine is not None and not (base is not None and isinstance(base.service, bs.Affine)):
            return bs.Affine(knobs.pop("fixed_ms", 0), knobs.pop("per_item_ms", 0))
        return self.service


def _largest(service: Any) -> int:
    """Return the most requests in a batch where nobody said: 32, or what a table ends with."""
    usual = bs.SizeOrWait().max_batch_size
    return int(min(usual, service.largest_batch)) or usual


def _once(what: str, ways: dict[str, Any]) -> None:
    given = [option for option, value in ways.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"a {what} must be given once, got {' and '.join(given)}")
