"""Scenarios as TOML, and the registry of kinds: the names of workloads, rules, service times and noise.

    servers = 2

    [workload]
    kind = "Poisson"
    rate_per_s = 800

A key is a field, and a `kind` is a name in `KINDS`, which the shell and the explorer offer too. Four kinds
are only read, because their data is elsewhere: a Trace with `path` (and `column`, `speedup`, `unit`) is read
by `Trace.from_file`, [tokens] with `path` (and `prompt`, `output`, `again`) by `Tokens.from_csv`, a
"Measurement" has the `path` of a file that `bs.device.Measurement.save` wrote, and a "published" table has a
`name`. Paths are relative to the TOML file.
"""

import contextlib
import dataclasses
import inspect
import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from batchsim import _check
from batchsim._files import SCENARIO_BYTES, text_of
from batchsim._format import brief, several
from batchsim.scenario.autoscale import Autoscale
from batchsim.scenario.lengths import Geometric, Listed, Lognormal, Uniform
from batchsim.scenario.noise import Noise
from batchsim.scenario.prefixes import PREFIXES
from batchsim.scenario.routing import ROUTINGS
from batchsim.scenario.rules import RULES, RULES_OF_SIZES
from batchsim.scenario.rules.continuous import BatchWait, Continuous, NewTokenRatio, WaitingServedRatio
from batchsim.scenario.service import Affine, Table
from batchsim.scenario.sized_time import PackedTime, PaddedTime, SizeTable
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Tokens
from batchsim.scenario.trace import Trace
from batchsim.scenario.workload import WORKLOADS

if TYPE_CHECKING:
    import tomlkit

DEEPEST = 16  # parts of a key: a scenario has at most three
_DEEP = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{DEEPEST}}}")
Maker = Callable[..., Any]  # its parameters are the keys of a TOML table, and the arguments in the shell


def _by_name(*classes: type) -> dict[str, tuple[Maker, ...]]:
    return {cls.__name__: (cls,) for cls in classes}


# By the part of a scenario, then by name: the functions that make one. A kind whose first function is a class
# is also written.
KINDS: dict[str, dict[str, tuple[Maker, ...]]] = {
    "workload": _by_name(*WORKLOADS)
    | {"Trace": (Trace, Trace.from_file, Trace.from_csv, Trace.from_jsonl, Trace.from_parquet)},
    "rule": _by_name(*RULES, *RULES_OF_SIZES, Continuous, BatchWait, NewTokenRatio, WaitingServedRatio),
    "service": _by_name(
        Affine, Table, PaddedTime, PackedTime, SizeTable, StepTime
    ),  # `batchsim.measured` adds its own
    "noise": _by_name(Noise),
    "tokens": {"Tokens": (Tokens, Tokens.from_csv)},
    "routing": _by_name(*ROUTINGS),
    "prefixes": _by_name(*PREFIXES),
    "autoscale": _by_name(Autoscale),
    "length": _by_name(Lognormal, Geometric, Uniform, Listed),  # of prompts, and of outputs
}


def kind_of(part: str, value: Any) -> str:
    """Return the kind of a part of a scenario; TypeError if its class is not registered.

    >>> kind_of("noise", Noise(0.2))
    'Noise'
    """
    name = type(value).__name__
    # By identity: a subclass of a registered class, even one of the same name, would be read as another.
    if type(value) not in KINDS[part].get(name, ()):
        raise TypeError(f"{part} must be one of {', '.join(KINDS[part])} to be written, got {brief(value)}")
    return name


def keys_of(maker: Maker) -> dict[str, bool]:
    """Return a maker's parameters, and whether each is required.

    >>> keys_of(Lognormal)
    {'mean': True, 'cv': True, 'at_most': False}
    """
    parameters = inspect.signature(maker).parameters.values()
    return {parameter.name: parameter.default is parameter.empty for parameter in parameters}


# Tables whose keys are whole numbers; some of them may be one number for all.
BY_NUMBER = (
    "points_ms", "compile_ms", "slowdown", "priorities", "queue_limit", "timeout_ms", "timeout_action",
    "watts",
)  # fmt: skip
# A scenario's keys that are not parts.
TOP_LEVEL = (
    "servers", "queue_limit", "timeout_ms", "slowdown", "devices", "host_ms", "contention", "timeout_action",
    "oversize_action", "replicas", "routing", "stale_ms", "price_per_hour", "watts",
)  # fmt: skip
LENGTHS = ("prompt", "output", "sizes")  # each a number, or one of the kinds of lengths
# Keys whose default means "none", so that it is not written.
OMITTED = (
    "host_ms", "contention", "timeout_action", "correlation", "memory_batches", "oversize_action",
    "size_unit", "units", "replicas", "routing", "stale_ms", "draft", "acceptance", "draft_ms",
    "captured_padding", "captured_prompts", "beyond_ms",
)  # fmt: skip
OF_REQUESTS = ("priorities", "sizes", "size_unit")  # keys of any workload, that of a trace's file too
S = TypeVar("S")  # the class Scenario, which imports this module


def to_tables(part: Any) -> dict[str, Any]:
    """Return a scenario, or a part of one, as TOML's values: text, numbers, lists, and dicts with text keys.

    A part whose class is not in `KINDS` raises TypeError.
    """
    # TOML cannot express None. Inherited fields, such as the noise, come last.
    tables = {}
    for item in sorted(dataclasses.fields(part), key=lambda item: bool(item.kw_only)):
        name, value = item.name, getattr(part, item.name)
        if value is not None and not (name in OMITTED and value == item.default):
            tables[name] = _plain(name, value)
    return tables


def document(scenario: Any) -> "tomlkit.TOMLDocument":
    """Return a scenario as a TOML document, to which comments can still be added."""
    import tomlkit  # it loads on first use

    def inline(value: Any) -> Any:
        if isinstance(value, dict):
            table = tomlkit.inline_table()
            table.update(value)
            return table
        # A list is added as text: adding items one by one takes quadratic time, 6 s for 10,000.
        return tomlkit.array(repr(value)) if isinstance(value, list) else value

    content = tomlkit.document()
    tables = to_tables(scenario)
    # Plain keys first: below the head of a table, they would belong to it.
    for key, value in sorted(tables.items(), key=lambda item: isinstance(item[1], dict)):
        content.add(key, tomlkit.table() if isinstance(value, dict) else value)
        for inner, each in value.items() if isinstance(value, dict) else ():
            content[key].add(inner, inline(each))
    return content


def _plain(name: str, value: Any) -> Any:
    if name in LENGTHS and not isinstance(value, int):
        return {"kind": kind_of("length", value)} | to_tables(value)
    if name in KINDS and not isinstance(value, str):  # a routing may be a name
        kind = {"kind": kind_of(name, value)} if len(KINDS[name]) > 1 else {}  # the only one needs no name
        return kind | to_tables(value)
    if name in BY_NUMBER and isinstance(value, (Mapping, tuple)):
        return {str(number): each for number, each in dict(value).items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain("", each) for each in value] if isinstance(value, tuple) else value


def toml_of(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text, or raise ValueError."""
    if deep := _DEEP.search(text):  # tomllib would take gigabytes
        line = text.count("\n", 0, deep.start()) + 1
        raise ValueError(f"{source} must be TOML: line {line}: a key must have at most {DEEPEST} parts")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} must be TOML: {error}") from None


def read_toml(
    kind: type[S], path_or_text: str | os.PathLike[str], extra: Collection[str] = ()
) -> tuple[S, dict[str, dict[str, Any]]]:
    """Return the scenario of a TOML file, or of TOML text, and its tables of the names in `extra`.

    Text has more than one line; any other string is a path. Wrong content raises ValueError with its place;
    a file that cannot be opened raises OSError.
    """
    _check.instance("path_or_text", path_or_text, (str, os.PathLike), "a path or text")
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        source, place, text, folder = "the text", "", path_or_text, Path()
    else:
        if not os.fspath(path_or_text):
            raise ValueError(f"path_or_text must not be empty, got {brief(path_or_text)}")
        path = Path(path_or_text)
        source, place, folder = f"{path}", f"{path}, ", path.parent
        text = text_of(path, SCENARIO_BYTES)
    tables = toml_of(text, source)
    try:
        others = {name: _table(f"[{name}]", tables.pop(name)) for name in extra if name in tables}
        return from_tables(kind, tables, folder, extra), others
    except ValueError as error:
        raise ValueError(f"{place}{error}") from None


def from_tables(
    kind: type[S], tables: Mapping[str, Any], folder: Path = Path(), extra: Collection[str] = ()
) -> S:
    """Return the scenario of `to_tables`, or of a person's tables; paths are relative to `folder`.

    Wrong content raises ValueError, such as "[rule] max_batch_size must be at least 1, got 0". The names in
    `extra` only improve the hint for an unknown key.
    """
    _choose("the top level", tables, [kind], "a scenario", extra)
    parts = {name: _value(f"[{name}]", name, value, folder) for name, value in tables.items()}
    try:
        return kind(**parts)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _value(place: str, key: str, value: Any, folder: Path) -> Any:
    if key in KINDS and not (key == "routing" and isinstance(value, str)):
        return _part(place if place == f"[{key}]" else f"{place[:-1]}.{key}]", key, value, folder)
    if key in LENGTHS and isinstance(value, Mapping):
        return _part(f"{place[:-1]}.{key}]", "length", value, folder)
    if key in BY_NUMBER and isinstance(value, Mapping):
        inner = place if place == f"[{key}]" else f"{place} {key}:"
        return {_whole(inner, number): each for number, each in value.items()}
    if key == "path":
        if not isinstance(value, str) or not value:
            raise ValueError(f"{place} path must be the name of a file, got {brief(value)}")
        return folder / value
    return value


def _part(place: str, name: str, table: Any, folder: Path) -> Any:
    table, kinds = dict(_table(place, table)), KINDS[name]
    kind = next(iter(kinds))
    if len(kinds) > 1:
        if "kind" not in table:
            got = several([*table], 20) or "no keys"
            raise ValueError(f"{place} must have a kind, one of {', '.join(kinds)}, got {got}")
        kind = table.pop("kind")
        _check.one_of(f"{place} kind", kind, kinds)
    own = {key: table.pop(key) for key in OF_REQUESTS if key in table} if name == "workload" else {}
    maker = _choose(place, table, kinds[kind], kind)
    values = {key: _value(place, key, value, folder) for key, value in table.items()}
    try:
        part = maker(**values)
        if not own:
            return part
        return dataclasses.replace(
            part, **{key: _value(place, key, value, folder) for key, value in own.items()}
        )
    except OSError as error:
        raise ValueError(f"{place} path must be a file that can be read, got {error}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place} {error}") from None


def _choose(
    place: str, table: Mapping[str, Any], makers: Collection[Maker], what: str, also: Collection[str] = ()
) -> Maker:
    """Return the maker with most of the table's keys, or raise if a key is unknown or missing."""
    maker = max(makers, key=lambda maker: len(keys_of(maker).keys() & table.keys()))
    keys, known = keys_of(maker), [*also, *(key for each in makers for key in keys_of(each))]
    for key in table:
        if key not in known:
            hint = _misplaced(key) or _check.nearest(key, known)
            raise ValueError(f"{place}: {what} has no key {brief(key)}{hint}")
        if key not in keys and key not in also:
            other = next(each for each in table if each in keys)
            raise ValueError(f"{place} must have {brief(other)} or {brief(key)}, got both")
    for key, required in keys.items():
        if required and key not in table:
            raise ValueError(
                f"{place} must have {brief(key)} for {what}, got {several([*table], 20) or 'no keys'}"
            )
    return maker


def _whole(place: str, key: str) -> int:
    with contextlib.suppress(ValueError):
        if str(int(key)) == key:  # "1" and "01" must not both be 1
            return int(key)
    raise ValueError(f"{place} a key must be a whole number, got {brief(key)}" + _misplaced(key))


def _table(place: str, table: Any) -> Any:
    if not isinstance(table, Mapping):
        raise ValueError(f"{place} must be a table, got {brief(table)}")
    return table


def _misplaced(key: str) -> str:
    """Return a hint for a key of the top level that was written below the head of a table."""
    return "; it belongs above the first [table]" if key in TOP_LEVEL else ""


def other_rules() -> Iterator[str]:
    """Yield the other rules as commented-out tables, described by their own docstrings and parameters."""
    for rule in (*RULES[1:], *RULES_OF_SIZES):
        rows = [(f'kind = "{rule.__name__}"', (rule.__doc__ or "").partition("\n")[0].rstrip("."))]
        for name, parameter in rule.parameters().items():
            if (value := parameter.usual) is None:
                continue
            usual = json.dumps(value) if parameter.type in ("sizes", "word") else f"{value:g}"
            rows.append((f"{name} = {usual}", parameter.about))
        yield "# [rule]"
        yield from (f"# {key:<23} # {about[:1].lower()}{about[1:]}" for key, about in rows)
        yield ""


def brief_tables(scenario: Any) -> dict[str, Any]:
    """Return a scenario as in its TOML; a trace only by its length and rate."""
    if not isinstance(scenario.workload, Trace):
        return to_tables(scenario)
    trace = scenario.workload
    about = {"kind": "Trace", "requests": trace.times_s.size, "offered_per_s": trace.offered_per_s}
    tables = to_tables(scenario.replace(workload=trace.first))
    listed = ("kind", "times_s") if trace.sizes_listed is None else ("kind", "times_s", "sizes")
    others = {name: value for name, value in tables["workload"].items() if name not in listed}
    return tables | {"workload": about | others}
