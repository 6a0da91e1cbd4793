"""Arrival times, and sizes, read from a CSV, JSON lines or Parquet file.

A file is read as one column of text, because timestamps in nanoseconds have more digits than a float. The
unit of its numbers comes from the caller, the column's name, the file's format, or the numbers' size, if all
are times since 1970. Other evidence, such as a low rate of whole numbers, would fit seconds too, so it only
leads to a warning.
"""

import io
import json
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from batchsim import _check
from batchsim._files import TABLE_BYTES, File, csv_rows, json_lines, opened
from batchsim._format import brief, in_one_line, number, several
from batchsim.scenario.lengths import LONGEST

# Stricter than pandas, which also accepts truncated timestamps: a bare date, a single digit.
TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(?P<zone>Z|[+-]\d\d(:?\d\d)?)?", re.ASCII | re.IGNORECASE
)
# The number of each unit in a second, and its name.
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# Words for a unit in a column's name: long ones anywhere, short ones only as the last word.
LONG = {
    prefix + word: unit
    for unit, prefixes in {"s": [""], "ms": ["milli", "m"], "us": ["micro", "u"], "ns": ["nano", "n"]}.items()
    for prefix in prefixes for word in ("sec", "secs", "second", "seconds")
} | {"millis": "ms", "micros": "us", "nanos": "ns"}  # fmt: skip
SHORT = {**{unit: unit for unit in UNITS}, "\N{MICRO SIGN}s": "us", "\N{GREEK SMALL LETTER MU}s": "us"}
# Times since 1970, in seconds: the years 1973 to 2286, so that no two units overlap.
EPOCH_S = 1e8, 1e10
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
# In milliseconds by Mooncake's documentation. Qwen-Bailian's traces have the same keys, and seconds.
MOONCAKE = {"timestamp", "input_length", "output_length", "hash_ids"}
OF_QWEN = "chat_id"
# Words of a column's name that say that it has arrivals, the surest first, and words that say it has not.
ARRIVALS: tuple[set[str], ...] = (
    {"arrival", "arrivals", "arrived"},
    {"timestamp", "timestamps"},
    {
        "time", "times", "ts", "t", "at", "when", "date", "datetime", "epoch", "sent", "submitted",
        "received", "created", "start", "started", "begin", "began",
    },
)  # fmt: skip
OTHERS = {
    "end", "ended", "finish", "finished", "done", "completion", "completed", "latency", "duration", "elapsed",
    "wait", "response", "service", "execution", "processing", "compute", "ttft", "tpot", "last", "id", "ids",
    "index", "idx", "row", "number", "no", "count", "counter",
}  # fmt: skip
# Of Parquet, whose bytes may expand to gigabytes.
SMALL, ROWS_A_BYTE, PACKED = 2**20, 16, 2**28
SOME = 1000  # rows by which the column of arrivals is chosen
Name = str | None


class Column(NamedTuple):
    """A column of a file: its cells as text, the place of each, its name, and the format's unit."""

    cells: list[str]
    places: list[int]
    name: str
    unit: Name = None
    place: str = "line"


def read_times_s(
    path: File, kind: Name, column: Name, speedup: float, unit: Name, size_column: Name
) -> tuple[np.ndarray, np.ndarray | None, str]:
    """Return a column of a file in seconds, sorted, its requests' sizes, and a note on a guessed unit.

    `kind` is "csv", "jsonl", "parquet", or None: by the file's name.
    """
    if unit is not None:
        _check.one_of("unit", unit, UNITS)
    if column is not None and not isinstance(column, str):
        raise TypeError(f"column must be a name, got {brief(column)}")
    found, *others = _columns(path, kind, (column,) if size_column is None else (column, size_column))
    if not _is_number(found.cells[0]):
        if unit is not None and TIMESTAMP.fullmatch(found.cells[0]):
            raise ValueError(
                f"unit must be None for timestamps, got {brief(unit)} for {brief(found.cells[0])}"
            )
        times_s, note = _stamps_s(path, found), ""
    else:
        times_s, note = _numbers_s(path, found, speedup, unit)
    order = _order(path, found, times_s)
    return times_s[order], next((_sizes(path, each)[order] for each in others), None), note


def read_sizes(path: File, kind: Name, *columns: str) -> list[np.ndarray]:
    """Return columns of a file that have whole numbers from 1 on."""
    return [_sizes(path, each) for each in _columns(path, kind, columns)]


def _sizes(path: File, found: Column) -> np.ndarray:
    good = (cell.isascii() and cell.isdigit() and len(cell) < 20 for cell in found.cells)
    sizes = np.array([int(cell) if fits else 0 for cell, fits in zip(found.cells, good, strict=True)], object)
    _refuse(path, found, (sizes < 1) | (sizes > LONGEST), f"must be a whole number from 1 to {LONGEST:,}")
    return sizes.astype(np.int64)


def _stamps_s(path: File, column: Column) -> np.ndarray:
    times_s = _since_first(column.cells)
    _check_zones(path, column)
    _refuse(path, column, ~np.isfinite(times_s), "must be a number of seconds or an ISO 8601 timestamp")
    return times_s


def _numbers_s(path: File, column: Column, speedup: float, unit: Name) -> tuple[np.ndarray, str]:
    times = np.array([float(cell) if _is_number(cell) else math.nan for cell in column.cells])
    _refuse(path, column, ~np.isfinite(times), "must be a number of seconds")
    note = doubt = ""
    if unit is None:
        unit, note, doubt = _unit_of(path, column, times, speedup)
    factor = UNITS[unit]
    far = np.abs(times) / factor > _check.LARGEST * speedup
    _refuse(path, column, far, f"must be {NAMES[unit]}, at most {_check.LARGEST:g} s from 0")
    if factor > 1:  # a float keeps 16 of 19 digits, so whole numbers are counted from the first
        try:
            whole = [int(cell) for cell in column.cells]
            times = np.array([each - whole[0] for each in whole], dtype=float)
        except (ValueError, OverflowError):
            times -= times[0]
    if doubt:
        _check.warn(doubt)
    return times / factor, note


# The unit.


def _unit_of(path: File, column: Column, times: np.ndarray, speedup: float) -> tuple[str, str, str]:
    """Return the unit of a column's numbers, a note on its source, and a warning if it is uncertain."""
    named, size = column.unit or unit_in(column.name), _unit_since_1970(times)
    if named and size and named != size:
        rule = f"{path}: the unit must be given, as unit={brief(size)} or unit={brief(named)}"
        by = f"column {brief(column.name)} says {NAMES[named]}, its numbers {NAMES[size]} since 1970"
        raise ValueError(f"{rule}, got none, and the {by}")
    unit = named or size
    if unit is not None:
        by, doubt = f"column {brief(column.name)}" if named else "since 1970", ""
        if unit != "s" and speedup == UNITS[unit]:
            doubt = f"{path} is read as {NAMES[unit]} ({by}), and then replayed {speedup:g} times faster: "
            doubt += "speedup need not convert the unit"
        return unit, f"read as {unit}: {by}", doubt
    if not (span := float(np.ptp(times))):
        return "s", "", ""  # a single instant is the same in every unit
    rate = (times.size - 1) / span
    doubt = f"{path}: unknown unit of column {brief(column.name)}, so seconds are assumed: {number(rate)}"
    doubt += f" requests a second, or {number(rate * 1000)} if milliseconds; pass unit=s or unit=ms"
    return "s", "read as s: assumed", doubt


def unit_in(name: str) -> str | None:
    """Return the unit in a column's name, None unless there is exactly one.

    >>> [unit_in(name) for name in ("timestamp_ms", "arrivalMillis", "Time (us)", "at_s", "items")]
    ['ms', 'ms', 'us', 's', None]
    """
    words = _words(name)
    found = {LONG[word] for word in words if word in LONG}
    if words and words[-1] in SHORT:
        found.add(SHORT[words[-1]])
    return found.pop() if len(found) == 1 else None


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", name)]


def _unit_since_1970(times: np.ndarray) -> str | None:
    (first, last), low, high = EPOCH_S, times.min(), times.max()
    return next((unit for unit, each in UNITS.items() if first <= low / each and high / each < last), None)


# The formats.


def _columns(path: File, kind: Name, names: Sequence[Name]) -> list[Column]:
    """Return the columns of these names, None for that of the arrivals; the file is read once."""
    place = _check.path("path", path)
    kind = kind or ENDINGS.get(place.suffix.lower(), "csv")
    return {"csv": _csv_columns, "jsonl": _jsonl_columns, "parquet": _parquet_columns}[kind](path, names)


def _csv_columns(path: File, names: Sequence[Name]) -> list[Column]:
    rows = csv_rows(path)
    _, header = next(rows)
    if header[0].startswith("{"):
        raise ValueError(f"{path} must be CSV, got JSON lines: Trace.from_jsonl reads them")
    if None in names and (_is_number(header[0]) or TIMESTAMP.fullmatch(header[0])):
        raise ValueError(f"{path}, line 1: must name the columns, got {brief(','.join(header))}")
    head = list(islice(rows, SOME))
    first = [*zip(*(row for _, row in head), strict=True)]
    places = [_index(path, name, header, first) for name in names]
    wanted = ((line, *(row[place].strip() for place in places)) for line, row in chain(head, rows))
    lines, *columns = map(list, zip(*wanted, strict=True))
    return [Column(cells, lines, header[place]) for cells, place in zip(columns, places, strict=True)]


def _jsonl_columns(path: File, names: Sequence[Name]) -> list[Column]:
    lines: list[int] = []
    # Numbers as text: times since 1970 have more digits than a float.
    rows = json_lines(path, parse_float=str, parse_int=str, parse_constant=str)
    head = list(islice(rows, SOME))
    keys = list(head[0][1]) if head else []
    first = [[item.get(key) for _, item in head] for key in keys]
    names = [keys[_index(path, None, keys, first)] if name is None and keys else name for name in names]
    columns: list[list[str]] = [[] for _ in names]
    for place, item in chain(head, rows):
        for name, cells in zip(names, columns, strict=True):
            if name not in item:
                what = "a key" if name is None else f"the key {brief(name)}"
                got = several([*item], 20) or "none"
                raise ValueError(f"{path}, line {place}: must have {what}, got the keys {got}")
            cell = item[name]
            cells.append(cell.strip() if isinstance(cell, str) else json.dumps(cell))
        lines.append(place)
    if not lines:
        raise ValueError(f"{path} must have at least one line with an object, got none")

    def unit(name: Name, cells: list[str]) -> Name:
        if name != "timestamp" or not set(keys) >= MOONCAKE:
            return None
        fractions = any("." in cell or "e" in cell.lower() for cell in cells)
        return "s" if OF_QWEN in keys else None if fractions else "ms"

    found = zip(names, columns, strict=True)
    return [Column(cells, lines, str(name), unit(name, cells)) for name, cells in found]


def _parquet_columns(path: File, wanted: Sequence[Name]) -> list[Column]:
    import pyarrow  # slow to import
    from pyarrow import parquet

    with opened(path, TABLE_BYTES) as file:
        try:
            schema = parquet.ParquetFile(file).schema
            leaves = [schema.column(place).path for place in range(len(schema))]
            content = parquet.ParquetFile(file, read_dictionary=leaves)
            names = content.schema_arrow.names
            if (rows := content.metadata.num_rows) > max(SMALL, ROWS_A_BYTE * file.seek(0, io.SEEK_END)):
                raise ValueError(f"{path} must have at most {ROWS_A_BYTE} rows a byte, got {rows:,}")
            head = next(content.iter_batches(SOME), ()) if None in wanted else ()
            first = [_texts(path, cells).to_pylist() for cells in head] or [[]] * len(names)
            chosen = [names[_index(path, name, names, first)] for name in wanted]
            # As text, a number keeps its digits, and a timestamp becomes ISO 8601.
            table = content.read(chosen)
            columns = [_texts(path, table.column(name)).cast(pyarrow.string()).to_pylist() for name in chosen]
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # OSError: a damaged one
            rule = f"{path} must be a Parquet file of numbers or timestamps"
            raise ValueError(f"{rule}, got {in_one_line(str(error), 200)}") from None
    if not columns[0]:
        raise ValueError(f"{path} must have at least one row, got none")
    places = list(range(1, len(columns[0]) + 1))
    texts = [["" if cell is None else cell for cell in cells] for cells in columns]
    return [Column(cells, places, name, place="row") for cells, name in zip(texts, chosen, strict=True)]


def _texts(path: File, cells: Any) -> Any:
    """Return a column of Parquet, or refuse a long text that stands for many cells."""
    for part in getattr(cells, "chunks", [cells]):
        if hasattr(part, "dictionary"):
            longest = max(map(len, part.dictionary.to_pylist()), default=0)
            if longest * len(part) > PACKED:
                raise ValueError(
                    f"{path} must have short texts, got {len(part):,} of up to {longest:,} letters"
                )
    return cells


def _index(path: File, column: Name, names: list[str], head: Iterable[Any]) -> int:
    """Return the place of a column, by default of the one that has the arrivals; `head` begins each."""
    if column is None and names:
        return _arrivals(path, names, [[str(cell).strip() for cell in cells] for cells in head])
    if column not in names:
        got = several(names, 20) + _check.nearest(column, names, listed=True)
        raise ValueError(f"{path} must have a column {brief(column)}, got the columns {got}")
    if names.count(column) > 1:
        raise ValueError(f"{path} must have one column {brief(column)}, got {names.count(column)}")
    return names.index(column)


def _arrivals(path: File, names: list[str], columns: list[list[str]]) -> int:
    """Return the place of the column whose name says that it has arrivals; else the first, if it may be."""
    ranks: dict[int, list[int]] = {}
    for place, (name, cells) in enumerate(zip(names, columns or [[]] * len(names), strict=True)):
        words = set(_words(name))
        is_time = any(_is_number(cell) or TIMESTAMP.fullmatch(cell) for cell in cells)
        rank = next((rank for rank, known in enumerate(ARRIVALS) if words & known), len(ARRIVALS))
        if is_time and not words & OTHERS and (rank < len(ARRIVALS) or unit_in(name)):
            ranks.setdefault(rank, []).append(place)
    best = ranks[min(ranks)] if ranks else []
    best = [place for place in best if columns and _may_be_times(columns[place])] or best
    if len(best) == 1 or (best and best[0] == 0):
        return best[0]
    if not best and not set(_words(names[0])) & OTHERS and (len(names) == 1 or _may_be_times(columns[0])):
        return 0
    got = several([names[place] for place in best] or names, 20)
    raise ValueError(f"{path}: column must name the arrivals, got none, and the columns {got}")


def _may_be_times(cells: list[str]) -> bool:
    """Return whether numbers never go back, and are no counter; what is no number is refused by its line."""
    if not all(map(_is_number, cells)):
        return True
    pairs = list(pairwise(map(float, cells)))
    is_counter = len(pairs) > 1 and all(other - one == 1 for one, other in pairs)
    return not is_counter and all(one <= other for one, other in pairs)


# Checks, and timestamps.


def _refuse(path: File, column: Column, bad: np.ndarray, rule: str) -> None:
    for row in np.flatnonzero(bad):
        got = f"got {brief(column.cells[row])}"
        raise ValueError(f"{path}, {column.place} {column.places[row]}: {rule}, {got}")


def _order(path: File, column: Column, times: np.ndarray) -> Any:
    """Return what sorts the times, as an index; if they go back, warn with the first line that does."""
    back = np.flatnonzero(np.diff(times) < 0) + 1
    if not back.size:
        return slice(None)
    row = back[0]
    got = f"{brief(column.cells[row])} after {brief(column.cells[row - 1])}"
    rows = f"{back.size:,} of {times.size:,} times go back, the first in {column.place} {column.places[row]}"
    _check.warn(f"{path}: {rows} ({got}), so all are sorted; lengths of `Tokens` keep the file's order")
    return np.argsort(times, kind="stable")


def _is_number(cell: str) -> bool:
    if not cell.isascii() or "_" in cell:  # float() accepts "1_000", which is not a number in a file
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _check_zones(path: File, column: Column) -> None:
    """Refuse timestamps with a time zone among others without: these would silently be UTC."""
    cells, lines = column.cells, column.places
    zones = [stamp["zone"] is not None for cell in cells if (stamp := TIMESTAMP.fullmatch(cell))]
    if len(zones) == len(cells) and len(set(zones)) > 1:
        row = zones.index(not zones[0])
        rule = "have a time zone" if zones[0] else "have no time zone"
        where = f"{path}, {column.place} {lines[row]}"
        raise ValueError(f"{where}: must {rule}, as {column.place} {lines[0]}, got {brief(cells[row])}")


def _since_first(cells: list[str]) -> np.ndarray:
    """Return the seconds since the first timestamp, NaN for other text."""
    import pandas

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about cells that become NaN
        stamps = pandas.to_datetime(pandas.Series(cells), format="ISO8601", utc=True, errors="coerce")
    # 64 bits hold only the nanoseconds of the years 1678 to 2261; other years would wrap around.
    complete = np.array([TIMESTAMP.fullmatch(cell) is not None for cell in cells])
    good = stamps.dt.year.between(1678, 2261) & complete
    usable = stamps.where(good, pandas.Timestamp(0, tz="UTC"))
    nanoseconds = usable.dt.as_unit("ns").astype("int64").to_numpy()
    return np.where(good, (nanoseconds - nanoseconds[0]) / 1e9, math.nan)
