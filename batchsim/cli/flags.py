"""Groups of options that commands share: each is a dataclass, and `flags` makes options of its fields."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Option

from batchsim import _check
from batchsim.cli import values
from batchsim.scenario import ClosedLoop, Scenario

RUN, OBJECTIVE, OUTPUT = "Run", "Objective", "Output"  # panels of the help
PICTURES = (".png", ".svg", ".pdf")


def flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are dataclasses are replaced by their fields, as options."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters[name] = hints[name], parameter.default
            continue
        inner = get_type_hints(groups[name], include_extras=True)
        parameters.update({field.name: (inner[field.name], field.default) for field in fields(groups[name])})

    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})  # type: ignore[operator]
        command(**given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {name: annotation for name, (annotation, _) in parameters.items()}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in parameters.items()
        ]
    )
    return run


def parsed(name: str, metavar: str, parser: Callable[[str], Any], about: str, panel: str) -> Any:
    """Return an option whose text a parser reads; its ValueError is told with the option's name."""

    def parse(text: Any) -> Any:
        if not isinstance(text, str):
            return text  # a default, which Typer parses too
        try:
            return parser(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return Option(name, metavar=metavar, parser=parse, help=about, rich_help_panel=panel)


def number(name: str, unit: str, about: str, panel: str) -> Any:
    """Return an option that is a number."""
    return parsed(name, unit, values.number, about, panel)


def whole(name: str, about: str, panel: str) -> Any:
    """Return an option that is a whole number."""
    return parsed(name, "N", values.whole, about, panel)


@dataclass(frozen=True)
class FileTable:
    """A table that a file has beside its scenario, and where that is: "s.toml, [slo]"."""

    place: str
    content: Mapping[str, Any]

    def under(self, flags: Mapping[str, Any]) -> dict[str, Any]:
        """Return what flags say, and where they say nothing (None), what the table does."""
        for key in self.content:
            if key not in flags:
                hint = _check.nearest(key, flags)
                raise ValueError(f"{self.place}: a key must be a known one, got {key!r}" + hint)
        return {**self.content, **_said(flags)}

    def check(self, flags: Mapping[str, Any], rule: Callable[[dict[str, Any]], Any]) -> Any:
        """Return what a rule makes of flags and table, its error told with the place if it is the table's.

        It is the flags' own where they alone are refused for the same reason.
        """
        said = _said(flags)
        try:
            return rule({**self.content, **said})
        except (TypeError, ValueError) as error:
            if self.content.keys() <= said.keys() or (said and _refusal(rule, said) == str(error)):
                raise
            raise ValueError(f"{self.place} {error}") from None


def _said(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in flags.items() if value is not None}


def _refusal(rule: Callable[[dict[str, Any]], Any], given: dict[str, Any]) -> str:
    try:
        rule(given)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _check_run(given: Mapping[str, Any]) -> None:
    from batchsim.study.sweep import check_settings

    check_settings(**{"requests": None} | dict(given))


@dataclass
class RunFlags:
    """How long, how often, and how a scenario is run."""

    requests: Annotated[
        int | None, whole("--requests", "How many requests arrive; else a whole trace, or 100,000.", RUN)
    ] = None
    seed: Annotated[int | None, whole("--seed", "Fixes all randomness; else 0.", RUN)] = None
    warmup: Annotated[
        str | None,
        Option(
            metavar="auto|FRACTION",
            help="The part of the requests that the numbers leave out; auto: found by MSER-5; else 0.",
            rich_help_panel=RUN,
        ),
    ] = None
    replications: Annotated[
        int | None, whole("--replications", "Independent runs, on all cores; else 1.", RUN)
    ] = None
    engine: Annotated[
        str | None,
        Option(metavar="auto|compiled|simpy", help="Which engine; else auto.", rich_help_panel=RUN),
    ] = None

    def settings(self, table: FileTable) -> dict[str, Any]:
        """Return `simulate`'s arguments, from flags and from the file's table [simulate]."""
        flags = dict(vars(self))
        if self.warmup not in (None, "auto"):
            flags["warmup"] = values.named("--warmup", values.number, self.warmup)
        given = table.under(flags)
        table.check(flags, _check_run)
        return given


@dataclass
class TrafficFlags:
    """How much of the traffic is simulated."""

    requests: Annotated[
        int | None, whole("--requests", "The length of a full run; else a whole trace, or 100,000.", RUN)
    ] = None
    seed: Annotated[int | None, whole("--seed", "Fixes all randomness; else 0.", RUN)] = None

    def settings(self, table: FileTable) -> dict[str, Any]:
        """Return `requests` and `seed`, from flags and from the file's table [simulate]."""
        given = table.under(dict.fromkeys(f.name for f in fields(RunFlags)) | vars(self))
        used = {name: given[name] for name in vars(self) if name in given}
        there = {name: value for name, value in table.content.items() if name in used}
        FileTable(table.place, there).check(vars(self), _check_run)
        return used


def _limit(name: str, unit: str, about: str) -> Any:
    return number(name, unit, about, OBJECTIVE)


@dataclass
class SLOFlags:
    """What must hold of a setting: the fields of `SLO`."""

    p50_ms: Annotated[float | None, _limit("--p50-ms", "MS", "At most this median latency.")] = None
    p90_ms: Annotated[float | None, _limit("--p90-ms", "MS", "90 % of the requests within it.")] = None
    p95_ms: Annotated[float | None, _limit("--p95-ms", "MS", "95 % of the requests within it.")] = None
    p99_ms: Annotated[float | None, _limit("--p99-ms", "MS", "99 % of the requests within it.")] = None
    p99_9_ms: Annotated[float | None, _limit("--p99-9-ms", "MS", "99.9 % of the requests within it.")] = None
    mean_ms: Annotated[float | None, _limit("--mean-ms", "MS", "At most this mean latency.")] = None
    attainment: Annotated[
        float | None, _limit("--attainment", "FRACTION", "This fraction of the requests within --within-ms.")
    ] = None
    within_ms: Annotated[
        float | None, _limit("--within-ms", "MS", "What --attainment is about; else the one percentile.")
    ] = None
    max_loss: Annotated[
        float | None, _limit("--max-loss", "FRACTION", "At most this fraction is not served.")
    ] = None
    min_throughput_per_s: Annotated[
        float | None, _limit("--min-throughput-per-s", "PER_S", "At least so many answers a second.")
    ] = None

    def slo(self, table: FileTable) -> Any:
        """Return the `SLO`, from flags and from the file's table [slo]."""
        from batchsim.study.slo import SLO

        if not table.under(vars(self)):
            raise ValueError("an objective must be given, as --p99-ms 50 or by the file's [slo], got none")
        return table.check(vars(self), lambda given: SLO(**given))


Over = Annotated[
    list[str] | None,
    Option(
        metavar="KNOB=VALUES",
        help="An axis: max_batch_size=1,2,4, or max_wait_ms=0:20:5 (first:last:step), or "
        "rate_per_s=100:1600:x2 (by a factor). May be repeated.",
        rich_help_panel=RUN,
    ),
]

Json = Annotated[
    bool, Option("--json", help="Print one JSON object instead of tables.", rich_help_panel=OUTPUT)
]


def axes(over: Sequence[str] | None, table: FileTable, scenario: Scenario) -> dict[str, Any]:
    """Return the axes of a grid: those of the file's table [over], and over them those of flags."""
    from batchsim.study.grid import Grid

    given: dict[str, Any] = {}
    for text in over or ():
        name, listed = values.axis(text)
        if name in given:
            raise ValueError(f"--over must name a knob once, got {name!r} twice")
        given[name] = listed
    kept = {
        name: values.values_of(f"{table.place} {name}", listed) if isinstance(listed, str) else listed
        for name, listed in table.content.items()
        if name not in given
    }
    if not kept | given:
        raise ValueError(
            "an axis must be given, as --over max_batch_size=1,2,4 or by the file's [over], got none"
        )

    def rule(grid: dict[str, Any]) -> None:
        _check_looped(grid, scenario)
        Grid.of(scenario, grid)

    FileTable(table.place, kept).check(given, rule)
    return kept | given


def _check_looped(grid: Mapping[str, Any], scenario: Scenario) -> None:
    """Refuse knobs of a closed loop where there is none, and say how to have one."""
    if isinstance(scenario.workload, ClosedLoop) or "workload" in grid:
        return
    for knob in grid:
        if knob.split(".")[-1] in (f.name for f in fields(ClosedLoop)):
            raise ValueError(
                f"{knob} must be of a closed loop, got {scenario.workload!r}: start from --clients N"
            )


def check_output(option: str, path: Path | None, suffixes: Collection[str] = ()) -> None:
    """Refuse, before anything runs, a file that cannot be written for its name or its folder."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)}, got {path}")
    if path.is_dir() or not path.parent.is_dir():
        what = "a file" if path.is_dir() else "in a folder that exists"
        raise ValueError(f"{option} must be {what}, got {path}")
