"""What figures of studies and lessons share: style, axes, scales, legends, a name at each line and bar."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.ticker import LogFormatter

from batchsim import _check, _format
from batchsim.view.pictures.picture import Picture, is_light, styled
from batchsim.view.pictures.view import FROM_AXES, FROM_DATA, apart, below, leave
from batchsim.view.theme import COMPONENTS, LIGHT

if TYPE_CHECKING:
    import pandas

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
    else:
        with styled(LIGHT, SMALL, LINE):
            picture = Picture(figsize=SIZE, dpi=DPI, layout="constrained")
            ax = picture.add_subplot()
            yield ax, picture
    leave(ax)


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
    elif ax.get_yscale() == "linear":
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


FAINT = 0.598  # the brightness from which letters are faint on white
FULL = 0.8  # of the width: the name of a line that ends before stands at its end
APART = 1.5  # the least distance of two lines of names, in heights of their letters
FAR, CUT = 5, 1.5  # a bar so many times as long as the second is cut off at so many times that length
TORN = np.array([(0, -0.4), (1, -0.4), (0.96, -0.2), (1, 0), (0.96, 0.2), (1, 0.4), (0, 0.4)])
SEEN = 0.09  # of the longest bar: the least width that holds the name of a part


def name_lines(ax: Axes, answer: str = "") -> None:
    """Write the name of each line at its end, in its colour; `answer` is the one to highlight."""
    ax.figure.figure.draw_without_rendering()  # the whole, also of axes in a part: now scales are known
    ends: tuple[list[Any], list[Any]] = [], []  # of lines that end before the edge, and at it
    for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
        if isinstance(handle, Line2D) and not np.isfinite(np.asarray(handle.get_ydata(), dtype=float)).any():
            continue  # there is nothing to name
        if name == answer and isinstance(handle, Line2D):
            handle.set(linewidth=1.7 * handle.get_linewidth(), zorder=4)
        x, y = _end(ax, handle)
        style: dict[str, Any] = {"color": _colour(handle), "weight": "bold" if name == answer else "normal"}
        if math.isnan(y):  # a vertical line or area
            top = ax.get_xaxis_transform()
            ax.annotate(name, (x, 1), (4, -4), **FROM_DATA | {"xycoords": top}, va="top", **style)
        else:
            size = handle.get_markersize() if x < FULL and isinstance(handle, Line2D) else 0
            beside = max(7, size / 2 + 3)  # not over a large mark
            ends[x >= FULL].append((style, name, x if x < FULL else 1, y, beside))
    height = ax.get_window_extent().height
    for group in ends:
        lines = max((name.count("\n") + 1 for _, name, *_ in group), default=1)
        places = apart([y * height for *_, y, _ in group], APART * FONT * lines, 0, height)
        for (style, name, x, _, beside), place in zip(group, places, strict=True):
            ax.annotate(name, (x, place / height), (beside, 0), **FROM_AXES, va="center", **style)


def _end(ax: Axes, handle: Any) -> tuple[float, float]:
    """Return where a line ends, as a fraction of the axes; of a vertical one its x in data, and NaN."""
    if not isinstance(handle, Line2D):
        return float(np.max(handle.get_window_extent().transformed(ax.transData.inverted()).x1)), math.nan
    points = np.column_stack([np.asarray(values, dtype=float) for values in handle.get_data()])
    points = points[np.isfinite(points).all(axis=1)]
    if handle.get_transform() == ax.get_xaxis_transform() and handle.get_linestyle() != "None":
        return float(points[0, 0]), math.nan
    last = handle.get_transform().transform(points[np.argmax(points[:, 0])])
    x, y = ax.transAxes.inverted().transform(last)
    return float(x), float(np.clip(y, 0, 1))


def _colour(handle: Any) -> Any:
    """Return a line's colour; a grey for areas, and where letters of the line's colour would be faint."""
    colour = handle.get_color() if isinstance(handle, Line2D) else LIGHT.soft
    return LIGHT.soft if is_light(colour, FAINT) else colour


def draw_parts(ax: Axes, rows: Mapping[str, Mapping[str, float]], answer: str = "") -> None:
    """Draw a bar for each row, divided into the parts of its latency, each named in its widest place.

    `rows` maps a row's name to its parts in ms; `answer` is the row to highlight.
    """
    parts = ("forming", "queueing", "computing")
    lengths = {part: np.array([row[part] for row in rows.values()], dtype=float) for part in parts}
    total, left = sum(lengths.values()), np.zeros(len(rows))
    for part in parts:
        look, length = COMPONENTS[part], lengths[part]
        fill: dict[str, Any] = {"color": getattr(LIGHT, look.colour), "edgecolor": "white"}
        bars = ax.barh(range(len(rows)), length, 0.62, left, label=part, **fill)
        names = [""] * len(rows)
        if length.max() > SEEN * np.max(total):
            names[int(np.argmax(length))] = part
        ax.bar_label(bars, names, label_type="center", bbox={"color": "white", "pad": 1.5})
        left += length
    ax.set_yticks(range(len(rows)), list(rows))
    totals = ax.bar_label(bars, [f"{ms:,.2f} ms" for ms in left], padding=6)
    for name, *labels in zip(rows, ax.get_yticklabels(), totals, strict=True):
        for label in labels:
            label.set_fontweight("bold" if name == answer else "normal")
    ax.grid(visible=False, axis="y")
    ax.margins(x=0.15)
    ax.set_xlim(left=0)
    ax.invert_yaxis()


def draw_table(table: "pandas.DataFrame", columns: Sequence[str], answer: str = "") -> Picture:
    """Return a picture of some columns of a table side by side; `answer` is the row to highlight.

    >>> import pandas
    >>> draw_table(pandas.DataFrame({"p99 (ms)": [34, 23]}, index=["today", "no wait"]), ["p99 (ms)"])
    <Picture size 800x158 with 1 Axes>
    """
    with style.context(STYLE):
        chart = Picture(figsize=(8, 0.9 + 0.34 * len(table)), dpi=100, layout="constrained")
        places = chart.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        for ax, column in zip(places, columns, strict=True):
            numbers = table[column].astype(str).str.replace(",", "").astype(float)
            colours = [LIGHT.blue if name == answer else LIGHT.grey for name in table.index]
            bars = ax.barh(range(len(table)), numbers, 0.62, color=colours, label=column)
            second, longest = np.sort(np.append(numbers, 0.0))[-2:]
            cut = CUT * second if 0 < FAR * second < longest else longest
            decimals = max(len(_format.number(number).partition(".")[2]) for number in numbers)
            for place, (number, bar) in enumerate(zip(numbers, bars, strict=True)):
                weight, at = "bold" if table.index[place] == answer else "normal", (min(number, cut), place)
                ax.annotate(f"{number:,.{decimals}f}", at, (5, 0), va="center", weight=weight, **FROM_DATA)
                if number > cut:  # a torn end, as the others would be too short to compare
                    bar.set_clip_path(Polygon(TORN * (cut, 1) + (0, place), transform=ax.transData))
            ax.set(title=column.replace(" (", "\n("), xlim=(0, 1.35 * cut))
            ax.grid(visible=False)
            ax.xaxis.set_visible(False)
            ax.spines["bottom"].set_visible(False)
        chart.axes[0].set_yticks(range(len(table)), list(table.index))
        chart.axes[0].invert_yaxis()
    return chart
