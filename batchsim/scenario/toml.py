"""Scenarios as TOML: text that people write and programs keep.

    servers = 2

    [workload]
    kind = "Poisson"
    rate_per_s = 800

A key is a field, a `kind` the name of a class. Three kinds are only read, for what is kept elsewhere:
a Trace with `path` (and `column`, `speedup`) is a CSV file, "Measurement" with `path` is what
`bs.device.Measurement.save` wrote, and "published" has a `name`. Paths are relative to the TOML file.
"""

import dataclasses
import inspect
import json
import os
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

from batchsim import _check
from batchsim._files import replacing
from batchsim.scenario.published import published
from batchsim.scenario.rules import AtLeast, SizeOrWait
from batchsim.scenario.scenario import Scenario
from batchsim.scenario.service import Affine, Noise, Table
from batchsim.scenario.workload import ClosedLoop, Constant, Diurnal, Gamma, OnOff, Poisson, Trace


def _measured(path: Path, *, noise: Noise | None = None, padding: Any = None) -> Table:
    """Return `bs.device.Measurement.load(path).service`, without loading JAX."""
    try:
        saved = json.loads(path.read_bytes())
        if not isinstance(saved, dict):
            raise ValueError(f"it must be a JSON object, got {type(saved).__name__}")
        for key, value in (("format", "batchsim measurement"), ("version", 1)):
            if saved.get(key) != value:
                raise ValueError(f"{key} must be {value!r}, got {saved.get(key)!r}")
        repeats, points_ms = _check.whole("repeats", saved["repeats"]), []
        for size, row in zip(saved["batch_sizes"], saved["samples_ms"], strict=True):
            times_ms = [_check.real(f"a time of batch size {size}", ms, above=0) for ms in row]
            if len(times_ms) != repeats:
                raise ValueError(f"times of batch size {size} must be {repeats}, got {len(times_ms)}")
            points_ms.append((size, float(np.median(times_ms))))
        table = Table(points_ms)
    except KeyError as error:
        raise ValueError(f"{path} is not a saved measurement: it must have {error}") from None
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a saved measurement: {error}") from None
    return dataclasses.replace(table, noise=noise, padding=padding)


def _published(name: str, *, noise: Noise | None = None, padding: Any = None) -> Table:
    return dataclasses.replace(published(name), noise=noise, padding=padding)


Way = Callable[..., Any]  # its parameters are a table's keys


def _by_name(*classes: type) -> dict[str, tuple[Way, ...]]:
    return {cls.__name__: (cls,) for cls in classes}


# The ways to make each kind of a part; the first, where it is a class, is how it is written.
KINDS: dict[str, dict[str, tuple[Way, ...]]] = {
    "workload": _by_name(Poisson, Constant, Gamma, OnOff, Diurnal, ClosedLoop)
    | {"Trace": (Trace, Trace.from_csv)},
    "rule": _by_name(SizeOrWait, AtLeast),
    "service": _by_name(Affine, Table) | {"Measurement": (_measured,), "published": (_published,)},
}
PARTS = {"noise": Noise}  # tables of one kind, within another
BY_NUMBER = ("points_ms", "slowdown")  # tables whose keys are whole numbers


# From a scenario to text.


def to_tables(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as TOML's own values: text, numbers, lists, and dicts with text as keys.

    A part of a class that is not in `KINDS` is refused with TypeError.
    """
    return {
        name: {"kind": _kind(name, value)} | _plain_fields(value) if name in KINDS else _plain(name, value)
        for name, value in _given(scenario)
    }


def document(scenario: Scenario) -> tomlkit.TOMLDocument:
    """Return a scenario as a TOML document, which can still be given comments."""
    content = tomlkit.document()
    tables = to_tables(scenario)
    for key in sorted(tables, key=lambda key: isinstance(tables[key], dict)):  # a table ends at the next
        if not isinstance(tables[key], dict):
            content.add(key, tables[key])
            continue
        table = tomlkit.table()
        for inner, value in tables[key].items():
            table.add(inner, _inline(value))
        content.add(key, table)
    return content


def write_toml(scenario: Scenario, path: str | os.PathLike[str] | None = None) -> str:
    """Return a scenario as TOML text, and write it to `path` if there is one."""
    text = document(scenario).as_string()
    if path is not None:
        with replacing(path) as file:
            file.write(text.encode())
    return text


def _kind(name: str, part: Any) -> str:
    kind = type(part).__name__
    if type(part) not in KINDS[name].get(kind, ()):
        raise TypeError(f"{name} must be one of {', '.join(KINDS[name])} to be written, got {part!r}")
    return kind


def _given(part: Any) -> list[tuple[str, Any]]:
    """Return a dataclass's fields that are not None, those of its own class first."""
    names = [f.name for f in sorted(dataclasses.fields(part), key=lambda f: bool(f.kw_only))]
    return [(name, getattr(part, name)) for name in names if getattr(part, name) is not None]


def _plain_fields(part: Any) -> dict[str, Any]:
    return {name: _plain(name, value) for name, value in _given(part)}


def _plain(name: str, value: Any) -> Any:
    if name in PARTS:
        return _plain_fields(value)
    if name in BY_NUMBER:
        return {str(number): each for number, each in dict(value).items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _inline(value: Any) -> Any:
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        return table
    # A list goes in as text: item by item tomlkit takes 6 s for 10,000, with the square of their number.
    return tomlkit.array(repr(value)) if isinstance(value, list) else value


# From text to a scenario.


def read_toml(
    path_or_text: str | os.PathLike[str], extra: Collection[str] = ()
) -> tuple[Scenario, dict[str, dict[str, Any]]]:
    """Return the scenario of a TOML file, or of TOML text, and those of the tables `extra` that it has.

    Text has more than one line; any other string is a path. What a file says wrongly raises
    ValueError with the place; a file that cannot be opened raises OSError.
    """
    if not isinstance(path_or_text, (str, os.PathLike)):
        raise TypeError(f"path_or_text must be a path or text, got {path_or_text!r}")
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        source, place, text, folder = "the text", "", path_or_text, Path()
    else:
        if not os.fspath(path_or_text):
            raise ValueError(f"path_or_text must not be empty, got {path_or_text!r}")
        path = Path(path_or_text)
        source, place, folder = f"{path}", f"{path}, ", path.parent
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{source} must be a TOML text file, got {error}") from None
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} must be TOML: {error}") from None
    try:
        _check_keys("the top level", tables, [Scenario], "Scenario", also=extra)
        others = {name: _table(f"[{name}]", tables.pop(name)) for name in extra if name in tables}
        return from_tables(tables, folder), others
    except ValueError as error:
        raise ValueError(f"{place}{error}") from None


def from_tables(tables: Mapping[str, Any], folder: Path = Path()) -> Scenario:
    """Return the scenario that `to_tables` gave, or a person wrote; `folder` is where paths start.

    Whatever is wrong raises ValueError, as "[rule] max_batch_size must be at least 1, got 0".
    """
    _check_keys("the top level", tables, [Scenario], "Scenario")
    parts = {
        name: _part(name, value, folder) if name in KINDS else _value(f"[{name}]", name, value, folder)
        for name, value in tables.items()
    }
    try:
        return Scenario(**parts)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _part(name: str, table: Any, folder: Path) -> Any:
    place, kinds = f"[{name}]", KINDS[name]
    known = ", ".join(kinds)
    if "kind" not in _table(place, table):
        raise ValueError(f"{place} must have a kind, one of {known}, got {_listed(table)}")
    kind = table["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(
            f"{place} kind must be one of {known}, got {kind!r}" + _check.nearest(kind, kinds, listed=True)
        )
    return _made(place, {key: table[key] for key in table if key != "kind"}, kinds[kind], kind, folder)


def _made(place: str, table: Mapping[str, Any], ways: Collection[Way], what: str, folder: Path) -> Any:
    way = _check_keys(place, table, ways, what)
    values = {key: _value(place, key, value, folder) for key, value in table.items()}
    try:
        return way(**values)
    except OSError as error:
        raise ValueError(f"{place} path must be a file that can be read, got {error}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place} {error}") from None


def _value(place: str, key: str, value: Any, folder: Path) -> Any:
    """Return what a constructor takes for what stands in the file."""
    if key in PARTS:
        inner = f"{place[:-1]}.{key}]"
        return _made(inner, _table(inner, value), [PARTS[key]], PARTS[key].__name__, folder)
    if key in BY_NUMBER and isinstance(value, Mapping):
        inner = place if place == f"[{key}]" else f"{place} {key}:"
        return {_whole(inner, number): each for number, each in value.items()}
    if key == "path":
        if not isinstance(value, str) or not value:
            raise ValueError(f"{place} path must be a file's name, got {value!r}")
        return folder / value
    return value


def _whole(place: str, key: str) -> int:
    try:
        if str(int(key)) == key:  # so that no two keys are one number
            return int(key)
    except ValueError:
        pass
    raise ValueError(f"{place} a key must be a whole number, got {key!r}" + _misplaced(key))


def _table(place: str, table: Any) -> Any:
    if not isinstance(table, Mapping):
        raise ValueError(f"{place} must be a table, got {table!r}")
    return table


def _check_keys(
    place: str, table: Mapping[str, Any], ways: Collection[Way], what: str, also: Collection[str] = ()
) -> Way:
    """Return the way that takes most of the table's keys, once the table has all that it needs."""
    way = max(ways, key=lambda way: len(_keys(way).keys() & table.keys()))
    known = [*also, *(key for each in ways for key in _keys(each))]
    for key in table:
        if key in known and key not in _keys(way) and key not in also:
            beside = next(other for other in table if other in _keys(way))
            raise ValueError(f"{place}: {key!r} must not stand beside {beside!r}, got both")
        if key not in known:
            hint = _misplaced(key) or _check.nearest(key, known)
            raise ValueError(f"{place}: a key must be one of {what}'s, got {key!r}" + hint)
    for key, needed in _keys(way).items():
        if needed and key not in table:
            raise ValueError(f"{place} must have {key!r} for {what}, got {_listed(table)}")
    return way


def _keys(way: Way) -> dict[str, bool]:
    """Return the keys that a table of this kind can have, and whether each is needed."""
    parameters = inspect.signature(way).parameters.values()
    return {parameter.name: parameter.default is parameter.empty for parameter in parameters}


def _misplaced(key: str) -> str:
    """Return a hint for a key of the top level that stands below the head of a table."""
    return "; it must stand above the first [table]" if key in _keys(Scenario) and key not in KINDS else ""


def _listed(table: Mapping[str, Any]) -> str:
    return ", ".join(table) or "no keys"
