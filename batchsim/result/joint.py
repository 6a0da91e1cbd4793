"""Limits on several columns at once: how far each request is within them, as a column of its own."""

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

COLUMNS = ("latency_ms", "ttft_ms", "tpot_ms")
_NAME = re.compile("within" + "".join(rf"(?:_{name.removesuffix('_ms')}_([\d.e+-]+))?" for name in COLUMNS))


def joint(limits_ms: Mapping[str, float]) -> str:
    """Return the name of the column that says of each request which part of its limits it takes.

    >>> joint({"ttft_ms": 500, "tpot_ms": 40.5})
    'within_ttft_500_tpot_40.5'
    """
    limits = (f"_{name.removesuffix('_ms')}_{limits_ms[name]!r}" for name in COLUMNS if name in limits_ms)
    return "within" + "".join(limits)


def limits_of(name: str) -> dict[str, float]:
    """Return the limits that a column's name says; none for another column.

    >>> limits_of("within_ttft_500_tpot_40.5")
    {'ttft_ms': 500.0, 'tpot_ms': 40.5}
    """
    found = _NAME.fullmatch(name)
    limits = zip(COLUMNS, found.groups() if found else (), strict=False)
    return {column: float(limit) for column, limit in limits if limit is not None}


def in_words(name: str) -> str:
    """Return a column's name as people say it.

    >>> in_words("within_ttft_500_tpot_40.5")
    'share within TTFT 500 ms and TPOT 40.5 ms'
    """
    words = {"latency_ms": "latency", "ttft_ms": "TTFT", "tpot_ms": "TPOT"}
    return "share within " + " and ".join(f"{words[of]} {ms:g} ms" for of, ms in limits_of(name).items())


def part_of_limits(columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return the largest part that each request takes of a limit: up to 1 it keeps all of them.

    NaN of one column, as the TPOT of an answer of one token, leaves it to the others; of all, not served.
    """
    limits_ms = limits_of(name)
    if not limits_ms:
        raise KeyError(name)
    parts = [columns[column] / limit_ms for column, limit_ms in limits_ms.items()]
    return np.fmax.reduce(parts)


class Columns(dict[str, Any]):
    """Columns by name; one that is not there is made when it is asked for."""

    def __init__(self, known: Mapping[str, Any], make: Callable[[str], Any]) -> None:
        super().__init__(known)
        self._make = make

    def __missing__(self, name: str) -> Any:
        self[name] = self._make(name)
        return self[name]


def pooled(runs: Sequence[Mapping[str, Any]]) -> Columns:
    """Return the columns of several runs together."""

    def add(name: str) -> Any:
        return functools.reduce(operator.add, (columns[name] for columns in runs))

    return Columns({name: add(name) for name in runs[0]}, add)
