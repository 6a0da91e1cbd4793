"""Files of measured times: batchsim's JSON, CSV, and the reports of NVIDIA's perf_analyzer."""

import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from batchsim import _check
from batchsim._files import MEASUREMENT_BYTES, File, bytes_of, csv_rows, json_of, naming
from batchsim._format import brief, several
from batchsim.scenario.trace_files import UNITS, unit_in

HEADER = {"format": "batchsim measurement", "version": 1}  # the beginning of the JSON
SIZES = ("batchsize", "batch", "size")  # names of the column of batch sizes, letters alone
# Times of a batch in the server: copying its inputs in, computing it, copying its outputs out.
PARTS = ("Server Compute Input", "Server Compute Infer", "Server Compute Output")
M = TypeVar("M")  # the class Measurement, which imports this module


def load(path: File, *kinds: type[M]) -> M:
    """Return the measurement in a JSON file, of one of these kinds; any other file raises ValueError.

    The first field of a kind tells it from the others; a file without any is of the first kind.
    """
    path = _check.path("path", path)
    try:
        values = _read(bytes_of(path, MEASUREMENT_BYTES))
        of_it: Any = (each for each in kinds if fields(each)[0].name in values)  # type: ignore[arg-type]
        return made(next(of_it, kinds[0]), values)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)} is not a saved measurement: {error}") from None


def _read(text: bytes) -> dict[str, Any]:
    """Return the fields in a saved file's bytes, or raise ValueError."""
    values = json_of(text, "it")
    if not isinstance(values, dict):
        raise ValueError(f"it must be a JSON object, got {type(values).__name__}")
    for key, value in HEADER.items():
        got = values.pop(key, None)
        if got != value or type(got) is not type(value):  # True == 1, but it is no version
            raise ValueError(f"{key} must be {brief(value)}, got {brief(got)}")
    return values


def made(kind: type[M], values: Mapping[str, Any]) -> M:
    """Return a measurement of these fields, or raise ValueError or TypeError."""
    known: Any = fields(kind)  # type: ignore[arg-type]
    keys = [field.name for field in known]
    for key in values:
        if key not in keys:
            raise ValueError(f"there is no key {brief(key)}" + _check.nearest(key, keys))
    needed = [field.name for field in known if field.default is MISSING]
    if missing := [key for key in needed if key not in values]:
        raise ValueError(
            f"it must have the key {brief(missing[0])}, got {several([*values], 20) or 'no keys'}"
        )
    return kind(**values)


# The values in it.


def list_of(length: int | None, name: str, values: Any) -> Any:
    """Return a list of this length, or of any length if None, or raise."""
    _check.instance(name, values, (list, tuple), "a list")
    if length is not None and len(values) != length:
        raise ValueError(f"{name} must hold {length} values, got {len(values)}")
    return values


def times(length: int | None, name: str, values: Any) -> tuple[float, ...]:
    """Return positive numbers as a tuple of this length, of at least one if None, or raise."""
    if not list_of(length, name, values) and length is None:
        raise ValueError(f"{name} must not be empty, got []")
    return tuple(_check.real(f"a time in {name}", value, above=0) for value in values)


def rates(length: int, name: str, values: Any) -> tuple[float, ...]:
    """Return positive numbers of any size as a tuple of this length, or raise."""
    number = f"a number in {name}"
    checked = (_check.real(number, value, above=0, at_most=1e24) for value in list_of(length, name, values))
    return tuple(checked)


def pairs(length: int, name: str, values: Any) -> tuple[tuple[float, ...], ...]:
    """Return pairs of such numbers as tuples, or raise."""
    return tuple(rates(2, f"a pair in {name}", pair) for pair in list_of(length, name, values))


def correlations(values: Any, length: int) -> tuple[float, ...]:
    """Return `length` correlations, or none, or raise."""
    checked = list_of(length if values else None, "autocorrelation", values)
    return tuple(
        _check.real("a number in autocorrelation", value, at_least=-1, at_most=1) for value in checked
    )


def reasons(name: str, values: Any) -> tuple[tuple[int, str], ...]:
    """Return pairs of a batch size and a text as tuples, or raise."""
    found = []
    for pair in list_of(None, name, values):
        size, why = list_of(2, f"a pair in {name}", pair)
        _check.instance(f"a reason in {name}", why, str, "text")
        found.append((_check.whole(f"a size in {name}", size), why))
    return tuple(found)


# CSV.


def from_csv(
    cls: type[M], path: File, column: str | None, unit: str | None, *, model: str | None, device: str
) -> M:
    """Return the measurement in a CSV file of batch sizes and times."""
    if unit is not None:
        _check.one_of("unit", unit, UNITS)
    header, rows = _table(path)
    sizes = _column_of_sizes(header)
    if sizes is None:
        raise _lacks(path, "a column 'batch_size'", header)
    column = _column_of_times(path, header, column, unit)
    unit = unit or unit_in(column)
    if unit is None:
        rule = f"{path}: the unit of column {column!r} must be in its name, such as 'ms', or be given as unit"
        raise ValueError(f"{rule}, got neither")
    samples_ms: dict[int, list[float]] = {}
    for line, row in rows:
        size, ms = _size(path, line, row[sizes]), number_of(path, line, row[column]) / UNITS[unit] * 1000
        samples_ms.setdefault(size, []).append(ms)
    return _measurement(cls, path, samples_ms, model, device, copy=None)


def from_perf_analyzer(
    cls: type[M], files: File | Mapping[int, File], batch_size: int, *, concurrency: int, copy: bool,
    model: str | None, device: str,
) -> M:  # fmt: skip
    """Return the measurement in files of perf_analyzer."""
    concurrency = _check.whole("concurrency", concurrency)
    _check.instance("copy", copy, bool, "True or False")
    given = files if isinstance(files, Mapping) else {batch_size: files}
    if not given:
        raise ValueError("files must not be empty, got {}")
    samples_ms: dict[int, list[float]] = {}
    for given_size, path in given.items():
        of_file = _check.whole("batch_size", given_size)
        for size, ms in _computed(path, of_file, concurrency, copy):
            if size in samples_ms:
                raise ValueError(f"{path}: batch sizes must differ, got {size} twice")
            samples_ms[size] = [ms]
    return _measurement(cls, next(iter(given.values())), samples_ms, model, device, copy=copy)


def _computed(path: File, batch_size: int, concurrency: int, copy: bool) -> list[tuple[int, float]]:
    """Return the batch size and the milliseconds of each row with this concurrency."""
    header, rows = _table(path)
    plain = {re.sub(r"\s*\(.*\)$", "", name): name for name in header}  # reports have "Server Queue (ms)"
    if "Concurrency" not in plain:
        hint = ", as of perf_analyzer with --concurrency-range"
        raise _lacks(path, "a column 'Concurrency'" + hint, header)
    if missing := [name for name in PARTS if name not in plain]:
        raise _lacks(path, f"a column {brief(missing[0])}", header)
    sizes, parts = _column_of_sizes(header), PARTS if copy else PARTS[1:2]
    found, others = [], []
    for line, row in rows:
        clients = number_of(path, line, row[plain["Concurrency"]])
        if clients != concurrency:
            others.append(f"{clients:g}")
            continue
        ms = sum(
            number_of(path, line, row[plain[name]], or_zero=True) / UNITS[unit_in(plain[name]) or "us"] * 1000
            for name in parts
        )
        found.append((batch_size if sizes is None else _size(path, line, row[sizes]), ms))
    if not found:
        rule = f"{path} must have a row with a concurrency of {concurrency}"
        raise ValueError(f"{rule}, got {several([*dict.fromkeys(others)], 20)}")
    return found


def _measurement(
    cls: type[M], path: File, samples_ms: Mapping[int, list[float]], model: str | None, device: str, *,
    copy: bool | None,
) -> M:  # fmt: skip
    file, sizes = Path(path), sorted(samples_ms)
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    with naming(path):
        return cls(
            model=file.stem if model is None else model, device=device, platform="", jax_version="",
            batch_sizes=sizes, repeats=min(map(len, samples_ms.values())),
            samples_ms=[samples_ms[size] for size in sizes],
            first_call_s=(), measured_at=written.isoformat(timespec="seconds"), copy=copy,
        )  # type: ignore[call-arg]  # fmt: skip


def _table(path: File) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Return a CSV file's columns, and its rows by column with the line of each."""
    rows = csv_rows(path)
    _, header = next(rows)
    if len(set(header)) < len(header):
        raise ValueError(f"{path}: columns must differ, got {several(header, 20)}")
    return header, [(line, dict(zip(header, row, strict=True))) for line, row in rows]


def _column_of_sizes(header: list[str]) -> str | None:
    found = {re.sub(r"[^a-z]", "", name.lower()): name for name in reversed(header)}
    return next((found[name] for name in SIZES if name in found), None)


def _column_of_times(path: File, header: list[str], column: str | None, unit: str | None) -> str:
    """Return the column of times: the given one, or the only possible one."""
    if column is not None:
        if column not in header:
            raise _lacks(path, f"a column {brief(column)}", header)
        return column
    known = [name for name in header if unit_in(name)]
    if len(known) > 1:
        bare = [name for name in known if name.lower() in UNITS]  # such as "ms"
        if len(bare) != 1:
            raise ValueError(f"{path}: column must name the times, got {several(known, 20)}")
        known = bare
    others = [name for name in header if name != _column_of_sizes(header)]
    if not known and unit is not None and len(others) == 1:
        return others[0]
    if not known:
        raise _lacks(path, "a column of times with its unit, such as 'ms'", header)
    return known[0]


def _lacks(path: File, what: str, header: list[str]) -> ValueError:
    return ValueError(f"{path} must have {what}, got the columns {several(header, 20)}")


def _size(path: File, line: int, cell: str) -> int:
    number = number_of(path, line, cell)
    if number != int(number):
        raise ValueError(f"{path}, line {line}: a batch size must be a whole number, got {brief(cell)}")
    return int(number)


def number_of(path: File, line: int, cell: str, or_zero: bool = False) -> float:
    """Return a cell of a file as a number, or raise."""
    place = f"{path}, line {line}: a number"
    try:
        value = float(cell)
    except ValueError:
        raise ValueError(f"{place} must be a number, got {brief(cell)}") from None
    return float(_check.real(place, value, at_least=0) if or_zero else _check.real(place, value, above=0))
