"""What pictures of studies share: their style, their axes or the caller's, scales and legends."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatter

from batchsim import _check
from batchsim.view.pictures.picture import Picture, styled
from batchsim.view.pictures.view import below
from batchsim.view.theme import LIGHT

FONT, SMALL, LINE = 11, 9, 1.3  # points
SIZE, DPI = (7.6, 5.2), 100  # inches, and pixels in one
STYLE: dict[str, Any] = LIGHT.rc(FONT, LINE) | {"figure.dpi": 80}
ROOM = 0.1  # part of the height for marks at the upper edge
WIDE = 20  # largest over smallest number: beyond, a scale is logarithmic


@contextmanager
def axes(ax: Axes | None) -> Iterator[tuple[Axes, Picture | Axes]]:
    """Yield axes to draw into, and what to return: the caller's axes twice, or new ones and their picture."""
    if ax is not None:
        _check.instance("ax", ax, Axes, "matplotlib Axes")
        yield ax, ax
        return
    with styled(LIGHT, SMALL, LINE):
        picture = Picture(figsize=SIZE, dpi=DPI, layout="constrained")
        yield picture.add_subplot(), picture


def panels(count: int, **options: Any) -> Picture:
    """Return a new picture with axes one below the other; `options` are those of `subplots`."""
    with styled(LIGHT, SMALL, LINE):
        picture = Picture(figsize=SIZE, dpi=DPI, layout="constrained")
        picture.subplots(count, 1, **options)
    return picture


def check_columns(frame: Any, *names: str) -> None:
    """Refuse anything but a DataFrame with these columns."""
    if not hasattr(frame, "columns"):
        raise TypeError(f"frame must be a DataFrame, as of a sweep, got {frame!r}")
    for name in names:
        if name not in frame.columns:
            hint = _check.nearest(name, frame.columns)
            raise ValueError(f"a column must be one of the frame's, got {name!r}{hint}")


def p99_of_all(*frames: Any) -> str:
    """Return the key of the p99 of all requests, or of the p99 if some of the frames do not have that."""
    every = all("p99_all_ms" in getattr(frame, "columns", ()) for frame in frames)
    return "p99_all_ms" if every else "p99_ms"


def of_served_alone(frame: Any, value: str) -> Any:
    """Return which rows, shape (rows,), lose requests and have a latency of the served ones alone."""
    if not value.endswith("_ms") or value == "p99_all_ms" or "loss" not in frame:
        return np.zeros(len(frame), dtype=bool)
    return (frame["loss"] > 0).to_numpy()


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values: numbers sorted, others in their order.

    >>> distinct([8, 2, 8]), distinct(["b", "a", "b"])
    ([2, 8], ['b', 'a'])
    """
    once = list(dict.fromkeys(values))
    return sorted(once) if all(isinstance(value, (int, float)) for value in once) else once


def texts(values: Iterable[Any]) -> list[str]:
    """Return values as the labels of an axis.

    >>> texts([8, 0.5, "a table"])
    ['8', '0.5', 'a table']
    """
    return [f"{value:g}" if isinstance(value, (int, float)) else str(value) for value in values]


def is_wide(numbers: Sequence[float]) -> bool:
    """Return whether numbers need a logarithmic scale."""
    return bool(len(numbers)) and 0 < min(numbers) < max(numbers) / WIDE


def plain_log(axis: Any) -> None:
    """Write the numbers of a logarithmic axis as 1000 instead of a power of ten."""
    axis.set_major_formatter(LogFormatter(labelOnlyBase=False))
    axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(3, 1)))


def scale(ax: Axes, numbers: Iterable[float]) -> None:
    """Give axes a linear or a logarithmic scale for the numbers."""
    if is_wide([float(number) for number in numbers if math.isfinite(number)]):
        ax.set_yscale("log")
        plain_log(ax.yaxis)
    else:
        ax.set_ylim(bottom=0)


def room_above(ax: Axes, highest: float) -> None:
    """Raise the upper limit of axes so that a tenth of the height is above a number."""
    scale = ax.yaxis.get_transform()
    low, high = scale.transform(np.array([ax.get_ylim()[0], highest]))
    if high > low:
        top = low + (high - low) / (1 - ROOM)
        ax.set_ylim(top=max(ax.get_ylim()[1], float(scale.inverted().transform(np.array([top]))[0])))


def show_legend(ax: Axes, handles: Sequence[Any]) -> None:
    """Put a legend below axes, in as many columns as the width allows."""
    if handles:
        widest = max(len(line) for each in handles for line in str(each.get_label()).splitlines())
        below(ax, handles, widest, frameon=False)
