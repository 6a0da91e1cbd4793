"""Commands as dataclasses whose fields are options, and the options that several commands share."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from batchsim import _check
from batchsim.cli import values
from batchsim.scenario import Scenario

DEBUG = "batchsim debug"  # in Typer's context: whether an error is to be printed in full


def _note_debug(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[DEBUG] = True


Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Print the traceback of an error.",
        callback=_note_debug,
        expose_value=False,
        is_eager=True,
    ),
]  # before or after a command's name; no command reads it


class Command:
    """A command: a dataclass whose fields are its options, and whose docstring is its help.

    Options that commands share are dataclasses too, from which commands inherit.
    """

    def run(self) -> None:
        """Do what the command is for."""
        raise NotImplementedError

    @classmethod
    def as_function(cls) -> Callable[..., None]:
        """Return the function that Typer registers: its parameters are the fields."""
        hints, kind = get_type_hints(cls), inspect.Parameter.KEYWORD_ONLY
        # Every subclass is a dataclass; a command may take an option back by a plain field of that name.
        options = [f for f in fields(cls) if "option" in f.metadata]  # type: ignore[arg-type]
        types = {f.name: Annotated[hints[f.name], f.metadata["option"]] for f in options} | {"debug": Debug}
        defaults = {f.name: f.default for f in options} | {"debug": False}
        parameters = [
            inspect.Parameter(name, kind, default=defaults[name], annotation=types[name]) for name in types
        ]

        def run(debug: bool, **given: Any) -> None:
            cls(**given).run()

        run.__doc__ = cls.__doc__
        run.__annotations__ = types
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run


@dataclass(frozen=True)
class Panel:
    """A panel of the help. Its methods return dataclass fields, which become the options in it."""

    title: str

    def option(self, about: str, default: Any = None, *names: str, parser: Any = None, **more: Any) -> Any:
        """Return an option, named as its field unless `names` are given; `parser` reads its text."""
        read = parser and _parser(parser)
        option = typer.Option(*names, parser=read, help=about, rich_help_panel=self.title, **more)
        return field(default=default, metadata={"option": option})

    def number(self, unit: str, about: str, default: Any = None) -> Any:
        """Return an option that is a number."""
        return self.option(about, default, metavar=unit, parser=values.number)

    def whole(self, about: str, default: Any = None) -> Any:
        """Return an option that is a whole number."""
        return self.option(about, default, metavar="N", parser=values.whole)

    def file(self, about: str, *suffixes: str) -> Any:
        """Return an option that is a file to write, with one of the suffixes."""

        def check(param: typer.CallbackParam, value: Path | None) -> Path | None:
            check_output(param.opts[0], value, suffixes)
            return value

        return self.option(about, callback=check)

    def picture(self, about: str) -> Any:
        """Return an option that is a picture to write."""
        return self.file(f"{about}: .png, .svg or .pdf.", ".png", ".svg", ".pdf")

    def part(self, about: str) -> Any:
        """Return an option that is a part of a scenario, in Python's words."""
        return self.option(about, metavar="PART", parser=values.value)


def argument(about: str, default: Any = None) -> Any:
    """Return a dataclass field for an argument without a name."""
    return field(default=default, metadata={"option": typer.Argument(help=about)})


def _parser(parser: Callable[[str], Any]) -> Callable[[Any], Any]:
    def parse(text: Any) -> Any:
        if not isinstance(text, str):
            return text  # a default, which Typer passes too
        try:
            return parser(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None  # Typer adds the option's name

    return parse


RUN, OBJECTIVE, OUTPUT = Panel("Run"), Panel("Objective"), Panel("Output")


# A file's tables beside its scenario, which options override.


@dataclass(frozen=True)
class FileTable:
    """A table that a file has beside its scenario, and its place, such as "s.toml, [slo]"."""

    place: str
    content: Mapping[str, Any]

    def refuse_others(self, known: Collection[str]) -> None:
        """Refuse a key that is not known."""
        for key in self.content:
            if key not in known:
                raise ValueError(f"{self.place}: there is no key {key!r}" + _check.nearest(key, known))

    def merged(self, options: Mapping[str, Any], build: Callable[..., Any]) -> dict[str, Any]:
        """Return the table's values, replaced by those of options that are given (not None).

        `build` checks them; where the file is to blame for its error, the error says so.
        """
        merged = {**self.content, **{key: value for key, value in options.items() if value is not None}}
        try:
            build(**merged)
        except (TypeError, ValueError) as error:
            # An error names the wrong value first; it is the file's unless an option gave it.
            key = next((word for word in re.findall(r"[\w.]+", str(error)) if word in merged), "")
            if key in self.content and options.get(key) is None:
                raise ValueError(f"{self.place} {error}") from None
            raise
        return merged


# Shared options.


@dataclass
class TrafficFlags(Command):
    """How much traffic is simulated."""

    requests: int | None = RUN.whole("Number of requests (default: the whole trace, or 100,000).")
    seed: int | None = RUN.whole("The same seed gives the same traffic (default: 0).")

    def settings(self, table: FileTable) -> dict[str, Any]:
        """Return `simulate`'s arguments that the command has, from options and the file's [simulate]."""
        from batchsim.study.sweep import check_settings

        options = {f.name: getattr(self, f.name, None) for f in fields(RunFlags)}
        table.refuse_others(options)
        # Keys of the table that this command has no use for are neither used nor checked.
        own = {name: value for name, value in table.content.items() if hasattr(self, name)}
        return FileTable(table.place, own).merged(options, functools.partial(check_settings, requests=None))


@dataclass
class RunFlags(TrafficFlags):
    """How a scenario is simulated."""

    warmup: Any = RUN.option(
        "Fraction of the requests to leave out of the numbers (default: 0); auto: found by MSER-5.",
        metavar="auto|FRACTION", parser=values.warmup,
    )  # fmt: skip
    replications: int | None = RUN.whole("Number of independent runs, on all cores (default: 1).")
    engine: str | None = RUN.option("Simulation engine (default: auto).", metavar="auto|compiled|simpy")


@dataclass
class SLOFlags(Command):
    """The objective: the fields of `SLO`."""

    p50_ms: float | None = OBJECTIVE.number("MS", "Limit on the median latency.")
    p90_ms: float | None = OBJECTIVE.number("MS", "Limit on the 90th percentile of latency.")
    p95_ms: float | None = OBJECTIVE.number("MS", "Limit on the 95th percentile.")
    p99_ms: float | None = OBJECTIVE.number("MS", "Limit on the 99th percentile.")
    p99_9_ms: float | None = OBJECTIVE.number("MS", "Limit on the 99.9th percentile.")
    mean_ms: float | None = OBJECTIVE.number("MS", "Limit on the mean latency.")
    attainment: float | None = OBJECTIVE.number("FRACTION", "Fraction of requests served within --within-ms.")
    within_ms: float | None = OBJECTIVE.number("MS", "Limit for --attainment (default: the percentile's).")
    max_loss: float | None = OBJECTIVE.number("FRACTION", "Largest fraction of requests that may be lost.")
    min_throughput_per_s: float | None = OBJECTIVE.number("PER_S", "Lowest throughput, requests per second.")
    ttft_p50_ms: float | None = OBJECTIVE.number("MS", "Limit on the median time to the first token.")
    ttft_p95_ms: float | None = OBJECTIVE.number("MS", "Limit on its 95th percentile.")
    ttft_p99_ms: float | None = OBJECTIVE.number("MS", "Limit on its 99th percentile.")
    tpot_p50_ms: float | None = OBJECTIVE.number("MS", "Limit on the median time for each token after it.")
    tpot_p95_ms: float | None = OBJECTIVE.number("MS", "Limit on its 95th percentile.")
    tpot_p99_ms: float | None = OBJECTIVE.number("MS", "Limit on its 99th percentile.")
    ttft_ms: float | None = OBJECTIVE.number("MS", "Limit on the time to the first token, for --attainment.")
    tpot_ms: float | None = OBJECTIVE.number("MS", "Limit on the time for each token after it, likewise.")

    def slo(self, table: FileTable) -> Any:
        """Return the `SLO`, from options and the file's [slo]."""
        from batchsim.study.slo import SLO

        options = {f.name: getattr(self, f.name) for f in fields(SLOFlags)}
        table.refuse_others(options)
        if not table.content and all(value is None for value in options.values()):
            raise ValueError("an objective must be given, as --p99-ms 50 or by the file's [slo], got none")
        return SLO(**table.merged(options, SLO))


@dataclass
class GridFlags(Command):
    """The axes of a grid of scenarios."""

    over: list[str] | None = RUN.option(
        "An axis: max_batch_size=1,2,4, or max_wait_ms=0:20:5 (first:last:step), or "
        "rate_per_s=100:1600:x2 (first:last:factor). Repeatable.",
        metavar="KNOB=VALUES",
    )

    def axes(self, table: FileTable, scenario: Scenario) -> dict[str, Any]:
        """Return the axes: those of the file's [over], replaced by those of options."""
        from batchsim.study.grid import Grid

        options: dict[str, Any] = {}
        for text in self.over or ():
            name, listed = values.axis(text)
            if name in options:
                raise ValueError(f"--over must name a knob once, got {name!r} twice")
            options[name] = listed
        own = {
            name: values.values_of(f"{table.place} {name}", listed) if isinstance(listed, str) else listed
            for name, listed in table.content.items()
            if name not in options
        }
        if not own | options:
            example = "--over max_batch_size=1,2,4 or by the file's [over]"
            raise ValueError(f"an axis must be given, as {example}, got none")
        return FileTable(table.place, own).merged(options, lambda **grid: Grid.of(scenario, grid))


@dataclass
class JsonFlag(Command):
    """How the answer is printed."""

    json_: bool = OUTPUT.option("Print one JSON object instead of tables.", False, "--json")


def check_output(option: str, path: Path | None, suffixes: Collection[str] = ()) -> None:
    """Refuse, before anything runs, a file whose name or folder will not do."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)}, got {path}")
    if path.is_dir() or not path.parent.is_dir():
        what = "a file" if path.is_dir() else "in a folder that exists"
        raise ValueError(f"{option} must be {what}, got {path}")
