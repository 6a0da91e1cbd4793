"""Recorded traffic: arrival times, from an array or from a CSV file."""

import csv
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import numpy as np

from batchsim import _check
from batchsim.scenario.workload import OpenLoop

# Stricter than pandas, which also accepts what is left of a truncated timestamp: a bare date, a single digit.
TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(?P<zone>Z|[+-]\d\d(:?\d\d)?)?", re.ASCII | re.IGNORECASE
)
# Of times since 1970: how many of them a second has. They are told apart between the years 1973 and 2286.
UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}
EPOCH_S = 1e8, 1e10


@dataclass(frozen=True, eq=False, repr=False)
class Trace(OpenLoop):
    """Real traffic: the arrival times in seconds, shifted to start at 0.

    >>> Trace([10.0, 10.5, 12.0]).times_s
    array([0. , 0.5, 2. ])
    """

    times_s: np.ndarray

    def __post_init__(self) -> None:
        try:
            given = np.asarray(self.times_s)
            if given.size and given.dtype.kind not in "iufO":  # a datetime64 is no number of seconds
                raise TypeError
            times = np.array(given, dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"times_s must be numbers of seconds, got {self.times_s!r}") from None
        if times.ndim != 1:
            raise ValueError(f"times_s must be one-dimensional, got shape {times.shape}")
        if times.size == 0:
            raise ValueError("times_s must not be empty, got []")
        for bad in np.flatnonzero(~np.isfinite(times)):
            raise ValueError(f"times_s must be finite, got {times[bad]} at index {bad}")
        for bad in np.flatnonzero(times[1:] < times[:-1]) + 1:
            wrong = f"{times[bad]} after {times[bad - 1]} at index {bad}"
            raise ValueError(f"times_s must be sorted, got {wrong}")
        for end in (times[0], times[-1]):
            if abs(end) > _check.LARGEST:
                raise ValueError(f"times_s must be at most {_check.LARGEST:g} s from 0, got {end:g}")
        times -= times[0]
        times.flags.writeable = False
        object.__setattr__(self, "times_s", times)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], column: str | None = None, speedup: float = 1.0) -> Self:
        """Read arrival times from a CSV file with a header line.

        `column` (default: the first) holds seconds, or ISO 8601 timestamps, read to the nanosecond.
        `speedup` divides the times: 1000 also reads milliseconds. A row that is truncated, is not a number,
        goes back in time, or has a time zone where others have none raises ValueError with its line; a
        missing column, with the columns there are.
        """
        speedup = _check.real("speedup", speedup, above=0)
        return cls(_read_times_s(path, column, speedup) / speedup)

    @property
    def max_requests(self) -> int:  # type: ignore[override]
        return self.times_s.size

    @property
    def offered_per_s(self) -> float:
        if self.times_s.size == 1:
            return 0.0
        span = float(self.times_s[-1])
        return (self.times_s.size - 1) / span if span > 0 else math.inf

    @property
    def dispersion(self) -> float:
        """As if the gaps were independent: no trace is long enough to show that of a long time."""
        gaps_s = np.diff(self.times_s)
        return float(gaps_s.var() / gaps_s.mean() ** 2) if 0 < self.offered_per_s < math.inf else 0.0

    def with_rate(self, rate_per_s: float) -> Self:
        _check.real("rate_per_s", rate_per_s, above=0)
        if not 0 < self.offered_per_s < math.inf:
            raise ValueError(f"a Trace must span some time to be scaled to a rate, got {self!r}")
        return type(self)(self.times_s * (self.offered_per_s / rate_per_s))

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        for begin in range(0, requests, size):
            yield self.times_s[begin : min(begin + size, requests)]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Trace) and np.array_equal(self.times_s, other.times_s)

    def __hash__(self) -> int:
        return hash(self.times_s.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.times_s,)  # copied and unpickled times are read-only, too

    def __repr__(self) -> str:
        return f"Trace({self.times_s.size:,} arrivals in {self.times_s[-1]:g} s, {self.offered_per_s:.6g}/s)"


# Reading a CSV file.


def _read_times_s(path: str | PathLike[str], column: str | None, speedup: float) -> np.ndarray:
    """Return one column of a CSV file as seconds, or, of timestamps, as seconds since the first."""
    cells, lines = _read_column(path, column)
    if _is_number(cells[0]):
        kind = "a number of seconds"
        times_s = np.array([float(cell) if _is_number(cell) else math.nan for cell in cells])
    else:
        kind, times_s = "a number of seconds or an ISO 8601 timestamp", _since_first(cells)
        _check_zones(path, cells, lines)
    for row in np.flatnonzero(~np.isfinite(times_s)):
        raise ValueError(f"{path}, line {lines[row]}: must be {kind}, got {cells[row]!r}")
    for row in np.flatnonzero(np.abs(times_s) > _check.LARGEST * speedup):
        rule = f"{path}, line {lines[row]}: must be seconds, at most {_check.LARGEST:g} from 0"
        raise ValueError(f"{rule}, got {cells[row]!r}{_unit(abs(times_s[row]))}")
    for row in np.flatnonzero(np.diff(times_s) < 0) + 1:
        rule = f"{path}, line {lines[row]}: times must be sorted"
        raise ValueError(f"{rule}, got {cells[row]!r} after {cells[row - 1]!r}")
    return times_s


def _read_column(path: str | PathLike[str], column: str | None) -> tuple[list[str], list[int]]:
    """Return the column's cells, and the line number of each."""
    if column is not None and not isinstance(column, str):
        raise TypeError(f"column must be a name, got {column!r}")
    try:
        with _check.path("path", path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            if not header:
                raise ValueError(f"{path} must have a header line, got an empty line or file")
            if column is None and (_is_number(header[0]) or TIMESTAMP.fullmatch(header[0])):
                raise ValueError(f"{path}, line 1: must name the columns, got {','.join(header)!r}")
            if column is not None and column not in header:
                got = ", ".join(header) + _check.nearest(column, header, listed=True)
                raise ValueError(f"{path} must have a column {column!r}, got the columns {got}")
            if column is not None and header.count(column) > 1:
                raise ValueError(f"{path} must have one column {column!r}, got {header.count(column)}")
            index = 0 if column is None else header.index(column)
            cells, lines = [], []
            for row in reader:
                if not row:
                    continue  # a blank line, for instance at the end of the file
                if len(row) != len(header):
                    rule = f"{path}, line {reader.line_num}: must have {len(header)} fields"
                    raise ValueError(f"{rule}, got {len(row)}")
                cells.append(row[index].strip())
                lines.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a CSV text file, got {error}") from None
    if not cells:
        raise ValueError(f"{path} must have at least one row below its header, got none")
    return cells, lines


def _is_number(cell: str) -> bool:
    if not cell.isascii() or "_" in cell:  # float() accepts "1_000", which no file means as a number
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _unit(time: float) -> str:
    """Return the unit in which a time is one since 1970, as a hint, or ""."""
    first, last = EPOCH_S
    units = (each for each in UNITS if first <= time / each < last)
    return "".join(f": are these {UNITS[each]} since 1970? speedup={each:.0f} reads them" for each in units)


def _check_zones(path: str | PathLike[str], cells: list[str], lines: list[int]) -> None:
    """Refuse timestamps with a time zone among others without: these would silently be UTC."""
    zones = [stamp["zone"] is not None for cell in cells if (stamp := TIMESTAMP.fullmatch(cell))]
    if len(zones) == len(cells) and len(set(zones)) > 1:
        row = zones.index(not zones[0])
        rule = "have a time zone" if zones[0] else "have no time zone"
        raise ValueError(f"{path}, line {lines[row]}: must {rule}, as line {lines[0]}, got {cells[row]!r}")


def _since_first(cells: list[str]) -> np.ndarray:
    """Return the seconds since the first timestamp, NaN for what is none."""
    import pandas

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cells that become NaN here
        stamps = pandas.to_datetime(pandas.Series(cells), format="ISO8601", utc=True, errors="coerce")
    # 64 bits hold the nanoseconds of the years 1678 to 2261 alone; other years would wrap around.
    complete = np.array([TIMESTAMP.fullmatch(cell) is not None for cell in cells])
    good = stamps.dt.year.between(1678, 2261) & complete
    usable = stamps.where(good, pandas.Timestamp(0, tz="UTC"))
    nanoseconds = usable.dt.as_unit("ns").astype("int64").to_numpy()
    return np.where(good, (nanoseconds - nanoseconds[0]) / 1e9, math.nan)
