"""What figures of studies and lessons share: style, axes, scales, legends, a name at each line and bar."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon

from batchsim import _check, _format
from batchsim.view.pictures.picture import Picture, is_light, styled
from batchsim.view.pictures.view import FROM_AXES, FROM_DATA, apart, below, leave
from batchsim.view.scales import FINE, log_ticks
from batchsim.view.theme import COMPONENTS, LIGHT

if TYPE_CHECKING:
    import pandas

FONT, SMALL, LINE = 11, 9, 1.3  # points
SIZE, DPI = (7.6, 5.2), 100  # inches, and pixels in one
STYLE: dict[str, Any] = LIGHT.rc(FONT, LINE) | {"figure.dpi": 80}
WIDE = 20  # largest over smallest number: beyond, a scale is logarithmic


@contextmanager
def panels(count: int, **options: Any) -> Iterator[Picture]:
    """Yield a new picture with axes one below the other; `options` are those of `subplots`."""
    with styled(LIGHT, SMALL, LINE):
        picture = Picture(figsize=SIZE, dpi=DPI, layout="constrained")
        picture.subplots(count, 1, **options)
        yield picture


@contextmanager
def axes(ax: Axes | None) -> Iterator[tuple[Axes, Any]]:
    """Yield axes to draw into, and what to return: the caller's axes twice, or new ones and their picture."""
    if ax is not None:
        _check.instance("ax", ax, Axes, "matplotlib Axes")
    with panels(1) if ax is None else nullcontext(ax) as found:
        drawn_on: Any = found
        ax = drawn_on.axes[0] if ax is None else ax
        yield ax, drawn_on
    leave(ax)


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


def is_wide(numbers: Any, wide: float = WIDE) -> bool:
    """Return whether numbers need a logarithmic scale."""
    return bool(0 < np.min(numbers) < np.max(numbers) / wide < math.inf)


def scale(ax: Axes, wide: float = WIDE) -> None:
    """Give axes a linear or a logarithmic scale for what is drawn."""
    if is_wide(ax.dataLim.intervaly, wide):
        ax.set_yscale("log")
        log_ticks(ax.yaxis, finest=FINE)
    elif ax.get_yscale() == "linear":
        ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter("{x:,g}")


def show_legend(ax: Axes, handles: Sequence[Any]) -> None:
    """Put a legend below axes, each name once, in as many columns as the width allows."""
    if named := {str(each.get_label()): each for each in handles}:
        widest = max(len(line) for name in named for line in name.splitlines())
        below(ax, [*named.values()], widest, frameon=False)


FAINT = 0.598  # the brightness from which letters are faint on white
FULL = 0.8  # of the width: the name of a line that ends before stands at its end
APART = 1.5  # the distance of two lines of names, in heights of their letters; of longer names a little more
FAR, CUT = 5, 1.5  # a bar so many times as long as the second is cut off at so many times that length
TORN = np.array([(0, -0.4), (1, -0.4), (0.96, -0.2), (1, 0), (0.96, 0.2), (1, 0.4), (0, 0.4)])
SEEN = 0.09  # of the longest bar: the least width that holds the name of a part


def name_lines(ax: Axes, answer: str = "") -> None:
    """Write the name of each line at its end, in its colour; `answer` is the one to highlight."""
    ax.figure.figure.draw_without_rendering()  # the whole, also of axes in a part: now scales are known
    ends: tuple[list[Any], list[Any]] = [], []  # of lines that end before the edge, and at it
    drawn: list[Any] = ax.get_legend_handles_labels()[0]
    for handle in drawn:
        name, is_line = handle.get_label(), isinstance(handle, Line2D)
        points = handle.get_transform().transform(handle.get_path().vertices)
        points = ax.transAxes.inverted().transform(points[np.isfinite(points).all(axis=1)])
        if not len(points):
            continue  # there is nothing to name
        if name == answer and is_line:
            handle.set(linewidth=1.7 * handle.get_linewidth(), zorder=4)
        x, y = points[points[:, 0].argmax()].tolist()
        # A grey for areas, and where letters of the line's colour would be faint.
        faint = not is_line or is_light(handle.get_color(), FAINT)
        style: dict[str, Any] = {"color": LIGHT.soft if faint else handle.get_color()}
        style["weight"] = "bold" if name == answer else "normal"
        if not is_line or (len(points) > 1 and not np.ptp(points[:, 0])):  # upright
            ax.annotate(name, (x, 1), (4, -4), **FROM_AXES, va="top", **style)
        else:
            size = handle.get_markersize() if x < FULL else 0
            beside = max(7, size / 2 + 3)  # not over a large mark
            ends[x >= FULL].append((style, name, x if x < FULL else 1, min(max(y, 0), 1), beside))
    height = ax.get_window_extent().height
    for group in ends:
        lines = (name.count("\n") for _, name, *_ in group)
        sizes = [APART * FONT * (1 + more + 0.4 * bool(more)) for more in lines]
        places = apart([y * height for *_, y, _ in group], sizes, 0, height)
        for (style, name, x, _, beside), place in zip(group, places, strict=True):
            ax.annotate(name, (x, place / height), (beside, 0), **FROM_AXES, va="center", **style)


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
