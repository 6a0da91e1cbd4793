"""Commands as dataclasses whose fields are options, their help, and the options that several share."""

import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ParameterInfo

from batchsim import _check
from batchsim.cli import values
from batchsim.scenario import Scenario
from batchsim.scenario.knobs import value_of

DEBUG = "batchsim debug"  # the key in Typer's context: print the traceback of an error
# The groups of the help, in order; it explains the rare ones only on request.
COMMON = ("Arguments", "Objective", "Workload", "Rule", "Service time", "Model", "Run", "Output", "Options")
RARE = ("Scenario", "Token generation", "Objective for tokens", "Continuous batching")
COLUMN = max(map(len, RARE))
_ALL = "batchsim help of all options"  # the key in Typer's context
METAVARS = {int: "N", Path: "FILE", str: "NAME", list[Path]: "FILE..."}
UNITS = {"_per_s": "PER_S", "_ms": "MS", "_s": "S"}  # by the end of an option's name


def _note_debug(ctx: typer.Context, wanted: bool) -> bool:
    ctx.meta[DEBUG] = wanted or ctx.meta.get(DEBUG, False)  # shared with the command around it
    return wanted


# Accepted before and after a command's name; its callback alone uses it.
DEBUG_OPTION: Any = typer.Option(
    False, "--debug", help="Print the traceback of an error.", callback=_note_debug, is_eager=True
)


class Command:
    """A command: a dataclass whose fields are its options, and whose docstring is its help.

    Options that several commands share are base classes. A command removes an inherited option by a field
    of that name with a plain default.
    """

    def run(self) -> None:
        """Run the command with the values of its fields."""
        raise NotImplementedError

    @classmethod
    def as_function(cls) -> Callable[..., None]:
        """Return the function that Typer registers: its parameters are the fields."""
        hints, options = get_type_hints(cls) | {"debug": bool}, {"debug": DEBUG_OPTION}
        # Every subclass is a dataclass.
        options |= {f.name: f.default for f in fields(cls) if isinstance(f.default, ParameterInfo)}  # type: ignore[arg-type]
        for name, option in options.items():
            kind = getattr(hints[name], "__args__", (hints[name],))[0]  # of `float | None`
            unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), None)
            option.metavar = option.metavar or METAVARS.get(kind) or unit
            if kind in (int, float) and option.parser is None:
                option.parser = _parser(values.whole if kind is int else values.number)

        def run(debug: bool, **given: Any) -> None:
            cls(**given).run()

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter(name, keyword, default=options[name]) for name in options]
        # Examples keep their lines.
        run.__doc__ = inspect.cleandoc(cls.__doc__ or "").replace("\n\nbatchsim ", "\n\n\b\nbatchsim ")
        run.__annotations__ = {name: hints[name] for name in options}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run


def _parser(parser: Callable[[str], Any]) -> Callable[[Any], Any]:
    def parse(text: Any) -> Any:
        if not isinstance(text, str):
            return text  # a default, which Typer passes too
        try:
            return parser(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None  # Typer adds the option's name

    return parse


@dataclass(frozen=True)
class Panel:
    """A panel of the help: call it, or one of its methods, for an option in it."""

    title: str

    def __call__(
        self, about: str, default: Any = None, *names: str, parser: Callable[[str], Any] | None = None,
        **more: Any,
    ) -> Any:  # fmt: skip
        """Return an option; `parser` reads its text, by default as the field's type."""
        read = parser and _parser(parser)
        return typer.Option(default, *names, parser=read, help=about, rich_help_panel=self.title, **more)

    def file(self, about: str, *suffixes: str) -> Any:
        """Return an option that is a file to write, with one of the suffixes."""

        def check(param: typer.CallbackParam, value: Path | None) -> Path | None:
            check_output(param.opts[0], value, suffixes)
            return value

        return self(about, callback=check)

    def picture(self, about: str) -> Any:
        """Return an option that is a picture to write."""
        return self.file(f"{about}: .png, .svg or .pdf.", ".png", ".svg", ".pdf")

    def part(self, about: str) -> Any:
        """Return an option that is a part of a scenario, written as in Python."""
        return self(about, metavar="PART", parser=values.value)


RUN, OBJECTIVE, OUTPUT = Panel("Run"), Panel("Objective"), Panel("Output")
TOKENS_OBJECTIVE = Panel("Objective for tokens")


# The other tables of a scenario's file, which options override.


@dataclass(frozen=True)
class FileTable:
    """A table of a file that is not part of the scenario, and its place, such as "s.toml, [slo]"."""

    place: str
    content: Mapping[str, Any]

    def refuse_others(self, known: Collection[str]) -> None:
        """Refuse a key that is not known."""
        for key in self.content:
            if key not in known:
                raise ValueError(f"{self.place}: there is no key {key!r}" + _check.nearest(key, known))

    def overridden(self, options: Mapping[str, Any], build: Callable[..., Any]) -> dict[str, Any]:
        """Return the table's values, replaced by those of the given options (not None).

        `build` checks them. Its error gets the table's place if the wrong value came from the file.
        """
        given = {key: value for key, value in options.items() if value is not None}
        merged = {**self.content, **given}
        try:
            build(**merged)
        except (TypeError, ValueError) as error:
            # An error names the wrong value first.
            key = next((word for word in re.findall(r"[\w.]+", str(error)) if word in merged), "")
            if key in self.content and key not in given:
                raise ValueError(f"{self.place} {error}") from None
            raise
        return merged


# Shared options.


@dataclass
class TrafficFlags(Command):
    """How much traffic is simulated."""

    requests: int | None = RUN("Number of requests (default: the whole trace, or 100,000).")
    seed: int | None = RUN("The same seed gives the same traffic (default: 0).")

    def settings(self, table: FileTable) -> dict[str, Any]:
        """Return `simulate`'s arguments that the command has, from options and the file's [simulate]."""
        from batchsim.study.sweep import check_settings

        options = {f.name: getattr(self, f.name, None) for f in fields(RunFlags)}
        table.refuse_others(options)
        # Keys that this command does not use are not checked either.
        own = {name: value for name, value in table.content.items() if hasattr(self, name)}
        return FileTable(table.place, own).overridden(
            options, functools.partial(check_settings, requests=None)
        )


@dataclass
class RunFlags(TrafficFlags):
    """How a scenario is simulated."""

    warmup: Any = RUN(
        "Fraction of the requests to leave out of the numbers (default: 0); auto: found by MSER-5.",
        metavar="auto|FRACTION", parser=lambda text: text if text == "auto" else values.number(text),
    )  # fmt: skip
    replications: int | None = RUN("Number of independent runs, on all cores (default: 1).")
    engine: str | None = RUN("Simulation engine (default: auto).", metavar="auto|compiled|simpy")


@dataclass
class SLOFlags(Command):
    """The objective: the fields of `SLO`."""

    p50_ms: float | None = OBJECTIVE("Limit on the median latency.")
    p90_ms: float | None = OBJECTIVE("Limit on the 90th percentile of latency.")
    p95_ms: float | None = OBJECTIVE("Limit on the 95th percentile.")
    p99_ms: float | None = OBJECTIVE("Limit on the 99th percentile.")
    p99_9_ms: float | None = OBJECTIVE("Limit on the 99.9th percentile.")
    mean_ms: float | None = OBJECTIVE("Limit on the mean latency.")
    attainment: float | None = OBJECTIVE("Fraction of requests within --within-ms.", metavar="FRACTION")
    within_ms: float | None = OBJECTIVE("Limit for --attainment (default: the percentile's).")
    max_loss: float | None = OBJECTIVE("Largest fraction of requests that may be lost.", metavar="FRACTION")
    min_throughput_per_s: float | None = OBJECTIVE("Lowest throughput, requests per second.")
    ttft_p50_ms: float | None = TOKENS_OBJECTIVE("Limit on the median time to the first token.")
    ttft_p95_ms: float | None = TOKENS_OBJECTIVE("Limit on its 95th percentile.")
    ttft_p99_ms: float | None = TOKENS_OBJECTIVE("Limit on its 99th percentile.")
    tpot_p50_ms: float | None = TOKENS_OBJECTIVE("Limit on the median time for each token after it.")
    tpot_p95_ms: float | None = TOKENS_OBJECTIVE("Limit on its 95th percentile.")
    tpot_p99_ms: float | None = TOKENS_OBJECTIVE("Limit on its 99th percentile.")
    itl_p50_ms: float | None = TOKENS_OBJECTIVE("Limit on the median time between two tokens.")
    itl_p95_ms: float | None = TOKENS_OBJECTIVE("Limit on its 95th percentile.")
    itl_p99_ms: float | None = TOKENS_OBJECTIVE("Limit on its 99th percentile.")
    stall_p99_ms: float | None = TOKENS_OBJECTIVE("Limit on the p99 of each request's longest such time.")
    ttft_ms: float | None = TOKENS_OBJECTIVE("Limit on the time to the first token, for --attainment.")
    tpot_ms: float | None = TOKENS_OBJECTIVE("Limit on the time for each token after it, likewise.")

    def slo(self, table: FileTable) -> Any:
        """Return the `SLO`, from options and the file's [slo]."""
        from batchsim.study.slo import SLO

        options = {f.name: getattr(self, f.name) for f in fields(SLOFlags)}
        table.refuse_others(options)
        if not table.content and all(value is None for value in options.values()):
            raise ValueError("an objective must be given, as --p99-ms 50 or by the file's [slo], got none")
        return SLO(**table.overridden(options, SLO))


@dataclass
class GridFlags(Command):
    """The axes of a grid of scenarios."""

    usual: ClassVar[Mapping[str, Sequence[float]]] = {}  # the axes if none is given: those that the rule has

    over: list[str] | None = RUN(
        "An axis: max_batch_size=1,2,4, or max_wait_ms=0:20:5 (first:last:step), or "
        "rate_per_s=100:1600:x2 (first:last:factor). Repeatable.",
        metavar="KNOB=VALUES",
    )

    def axes(self, table: FileTable, scenario: Scenario, present: bool = False) -> dict[str, Any]:
        """Return the axes: those of the file's [over], replaced by those of options.

        Without any, the usual ones; `present`: each with the scenario's own value.
        """
        from batchsim.study.grid import Grid

        options: dict[str, Any] = {}
        for name, listed in map(values.axis, self.over or ()):
            if name in options:
                raise ValueError(f"--over must name a knob once, got {name!r} twice")
            options[name] = listed
        own = {
            name: values.values_of(f"{table.place} {name}", listed) if isinstance(listed, str) else listed
            for name, listed in table.content.items()
            if name not in options
        }
        if not own | options:
            largest, known = getattr(scenario.service, "largest_batch", math.inf), scenario.rule.parameters()
            options = {name: listed for name, listed in self.usual.items() if name in known}
            if "max_batch_size" in options:
                options["max_batch_size"] = [size for size in options["max_batch_size"] if size <= largest]
            if present:
                options = {name: sorted({*each, value_of(scenario, name)}) for name, each in options.items()}
        if not own | options:
            example = "--over max_batch_size=1,2,4 or by the file's [over]"
            raise ValueError(f"an axis must be given, as {example}, got none")
        return FileTable(table.place, own).overridden(options, lambda **grid: Grid.of(scenario, grid))


@dataclass
class JsonFlag(Command):
    """How the answer is printed."""

    json_: bool = OUTPUT("Print one JSON object instead of tables.", False, "--json")


def check_output(option: str, path: Path | None, suffixes: Collection[str] = ()) -> None:
    """Refuse a file to write, before anything runs, if its name or folder is wrong."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)}, got {path}")
    if path.is_dir() or not path.parent.is_dir():
        what = "a file" if path.is_dir() else "in a folder that exists"
        raise ValueError(f"{option} must be {what}, got {path}")


class GroupedCommand(TyperCommand):
    """A command whose help shows the common options in groups, and names the others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_ALL] = "--help-all" in args
        return super().parse_args(ctx, ["--help"] if ctx.meta[_ALL] else args)

    def get_short_help_str(self, limit: int = 45) -> str:
        return (self.help or "").partition("\n\n")[0]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[Any]] = {}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                title = "Options"
                if param.param_type_name == "argument":
                    title, record = "Arguments", (str(param.metavar), record[1])
                groups.setdefault(getattr(param, "rich_help_panel", None) or title, []).append(
                    (param, record)
                )
        rare = [] if ctx.meta.get(_ALL) else [title for title in RARE if title in groups]
        for title in sorted(groups.keys() - set(rare), key=[*COMMON, *RARE].index):
            with formatter.section(title):
                formatter.write_dl([record for _, record in groups[title]])
        if rare:
            with formatter.section("More options, which --help-all explains"):
                for title in rare:
                    names = ", ".join(param.opts[0] for param, _ in groups[title])
                    lines = wrap(names, formatter.width - COLUMN - 4, break_on_hyphens=False)
                    rows = zip_longest([f"{title:{COLUMN}}"], lines, fillvalue=" " * COLUMN)
                    formatter.write_dl([*rows])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (TypeError, ValueError) as error:
            text, params = str(error), [each for each in self.get_params(ctx) if each.opts[0][:2] == "--"]
            typed = " ".join([*(ctx.params.get("over") or ()), *(ctx.params.get("set_") or ())])
            names = {str(each.name): each.opts[0] for each in params if f"{each.name}=" not in typed}
            if any(name in text and ctx.params.get(name) is not None for name in names):
                text = _in_options(text, names)
            raise type(error)(text) from error


def _in_options(text: str, options: Mapping[str, str]) -> str:
    """Return an error with the names of options instead of their Python names."""
    knob = re.match(r"a knob must be one of the scenario's, got '(\w+)'", text)
    if knob and knob[1] in options:
        return f"{options[knob[1]]} has no effect on this scenario: its workload, rule or service lacks it"
    if knob or ".toml" in text:  # where these names are the right ones
        return text
    for name, option in options.items():
        own = rf"(?<![-\w.'=(\[]){name}(?![\w=.(])" if "_" in name else rf"^{name}(?= must )"
        text = re.sub(own, option, text)
    return text
