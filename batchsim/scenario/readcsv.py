"""Arrival times from a CSV file, every fault named by its line."""

import csv
import re
import warnings
from os import PathLike

import numpy as np

from batchsim import _check

# Stricter than pandas, which also takes what a cut-off timestamp leaves behind: a bare date, one digit.
TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII | re.IGNORECASE
)


def read_times_s(path: str | PathLike[str], column: str | None = None) -> np.ndarray:
    """Return one column of a CSV file as seconds, shape (rows,).

    Plain numbers are taken as they are; ISO 8601 timestamps become seconds since the first.
    """
    cells, lines = _read_column(path, column)
    if _is_number(cells[0]):
        times_s = _numbers(cells, lines, path)
    else:
        since_first = _nanoseconds(cells, lines, path)
        times_s = (since_first - since_first[0]) / 1e9
    back = np.flatnonzero(np.diff(times_s) < 0)
    if back.size:
        row = int(back[0]) + 1
        raise ValueError(
            f"{path}, line {lines[row]}: times must be sorted, got {cells[row]!r} after {cells[row - 1]!r}"
        )
    return times_s


def _read_column(path: str | PathLike[str], column: str | None) -> tuple[list[str], list[int]]:
    """Return the column's cells and the line that each stands on."""
    if column is not None and not isinstance(column, str):
        raise TypeError(f"column must be a name, got {column!r}")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            if not header:
                raise ValueError(f"{path} must have a header line, got an empty line or file")
            if column is None and (_is_number(header[0]) or TIMESTAMP.fullmatch(header[0])):
                raise ValueError(f"{path}, line 1: must name the columns, got {','.join(header)!r}")
            if column is not None and column not in header:
                raise ValueError(
                    f"{path} must have a column {column!r}, got the columns {', '.join(header)}"
                    + _check.nearest(column, header, listed=True)
                )
            if column is not None and header.count(column) > 1:
                raise ValueError(f"{path} must have one column {column!r}, got {header.count(column)}")
            index = 0 if column is None else header.index(column)
            cells, lines = [], []
            for row in reader:
                if not row:
                    continue  # a blank line, as at the end of a file
                if len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: must have {len(header)} fields, got {len(row)}"
                    )
                cells.append(row[index].strip())
                lines.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a CSV text file, got {error}") from None
    if not cells:
        raise ValueError(f"{path} must have at least one row below its header, got none")
    return cells, lines


def _is_number(cell: str) -> bool:
    if not cell.isascii() or "_" in cell:  # Python's own spellings, not a file's
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: list[str], lines: list[int], path: object) -> np.ndarray:
    for cell, line in zip(cells, lines, strict=True):
        if not _is_number(cell) or not np.isfinite(float(cell)):
            raise ValueError(f"{path}, line {line}: must be a number of seconds, got {cell!r}")
    return np.array(cells, dtype=float)


def _nanoseconds(cells: list[str], lines: list[int], path: object) -> np.ndarray:
    import pandas

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of what we refuse below
        stamps = pandas.to_datetime(pandas.Series(cells), format="ISO8601", utc=True, errors="coerce")
    # What nanoseconds in 64 bits can hold: the years 1678 to 2261.
    held = stamps.dt.year.between(1678, 2261)
    for cell, line, good in zip(cells, lines, held, strict=True):
        if not good or not TIMESTAMP.fullmatch(cell):
            raise ValueError(
                f"{path}, line {line}: must be a number of seconds or an ISO 8601 timestamp, got {cell!r}"
            )
    return stamps.dt.as_unit("ns").astype("int64").to_numpy()
