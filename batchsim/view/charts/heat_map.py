"""A heat map: one number of a sweep over two of its knobs."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from batchsim.view.canvas.theme import BLACK, GREY, ORANGE, VERMILION
from batchsim.view.charts.chart import (
    Chart,
    axis_label,
    check_columns,
    different,
    is_wide,
    of_served_alone,
    p99_of_all,
    plain_log,
    show_legend,
    texts,
)

if TYPE_CHECKING:
    import pandas

MORE = "throughput_per_s"  # of this more is better; of the others, less
MANY = 200  # cells, from which their numbers are left out
HATCHED: dict[str, Any] = {"edgecolor": GREY, "linewidth": 0}
UNSTABLE = HATCHED | {"facecolor": "#eeeeee", "hatch": "///", "label": "overloaded: no steady state"}
LOSING = HATCHED | {"facecolor": "white", "hatch": "...", "label": "infinite: too many requests are lost"}
# Over the colour of a latency that is of the others alone.
PARTIAL = {"fill": False, "edgecolor": VERMILION, "linewidth": 0, "hatch": "\\\\\\"}
REFUSED = HATCHED | {"facecolor": "white", "hatch": "xxx", "label": "refused, or no number"}


def heat_map(
    frame: "pandas.DataFrame",
    x: str,
    y: str,
    value: str | None = None,
    objective: float | None = None,
    today: tuple[Any, Any] | None = None,
) -> Chart:
    """Return a picture of a sweep's number over two of its knobs, a cell a point.

    `frame` is what `sweep` returned, with one row for each pair: choose where there were more knobs. Cells
    without a steady state, and those that the scenario refuses, are hatched and take no part in the
    colours. A line surrounds the cells within `objective`: at most it, at least it for a throughput. A star
    marks the best, a frame `today`, the values (x, y) of the setting in use. By default `value` is the p99 of
    all requests, in which one that is not served is infinitely late. Other latencies are of the served: cells
    that lose requests are hatched, and neither best nor within the objective.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.study.sweep import sweep
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> over = {"max_batch_size": [4, 8, 16], "max_wait_ms": [0, 5, 10]}
    >>> heat_map(sweep(scenario, over, 2000, progress=False), "max_batch_size", "max_wait_ms", objective=16)
    <Chart size 760x520 with 2 Axes>
    """
    value = p99_of_all(frame) if value is None else value
    check_columns(frame, x, y, value, "infeasible", "requests")
    columns, rows = different(frame[x]), different(frame[y])
    if frame.duplicated([x, y]).any():
        raise ValueError(
            f"a heat map must have one row for each {x} and {y}, got {len(frame)} rows for "
            f"{len(frame[[x, y]].drop_duplicates())}: choose among the other knobs"
        )
    numbers = np.full((len(rows), len(columns)), math.nan)
    unstable, losing, partial = (np.zeros(numbers.shape, dtype=bool) for _ in range(3))
    for (_, point), part in zip(frame.iterrows(), of_served_alone(frame, value), strict=True):
        place = rows.index(point[y]), columns.index(point[x])
        numbers[place] = math.nan if point["infeasible"] else point[value]
        unstable[place] = point["infeasible"] and not math.isnan(point["requests"])  # it ran, all the same
        losing[place], partial[place] = math.isinf(numbers[place]), part and not point["infeasible"]
    good = np.where(partial, math.nan, numbers)  # what can be praised
    known = numbers[np.isfinite(numbers)]

    chart = Chart()
    ax = chart.add_subplot()
    handles: list[Any] = []
    if known.size:
        norm = LogNorm if is_wide(known) else Normalize
        colours = ScalarMappable(norm(known.min(), known.max()), "cividis")
        ax.pcolormesh(
            np.ma.masked_invalid(numbers),
            norm=norm(known.min(), known.max()),
            cmap="cividis",
            edgecolors="white",
            linewidth=0.5,
        )
        bar = chart.colorbar(colours, ax=ax, label=axis_label(value))
        if norm is LogNorm:
            plain_log(bar.ax.yaxis)
        handles += _show_border(ax, good, value, objective)
        if numbers.size <= MANY:
            _write(ax, numbers, good, value, objective, colours)
        handles += _show_best(ax, good, value)
    lost = PARTIAL | {"label": f"some requests are not served: {axis_label(value)} of the others"}
    refused = ~np.isfinite(numbers) & ~unstable & ~losing
    for cells, look in ((unstable, UNSTABLE), (losing, LOSING), (refused, REFUSED), (partial, lost)):
        for row, column in np.argwhere(cells):
            ax.add_patch(Rectangle((column, row), 1, 1, **look))
        handles += [Patch(**look)] if cells.any() else []
    if today is not None and today[0] in columns and today[1] in rows:
        corner = columns.index(today[0]), rows.index(today[1])
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=VERMILION, linewidth=3, zorder=4))
        handles.append(Patch(fill=False, edgecolor=VERMILION, linewidth=3, label="today"))
    ax.set(xlim=(0, len(columns)), ylim=(0, len(rows)), xlabel=axis_label(x), ylabel=axis_label(y))
    ax.set_xticks(np.arange(len(columns)) + 0.5, texts(columns))
    ax.set_yticks(np.arange(len(rows)) + 0.5, texts(rows))
    ax.tick_params(length=0)
    ax.set_title(f"{axis_label(value)} by {axis_label(x)} and {axis_label(y)}", fontsize="medium")
    show_legend(chart, handles)
    return chart


def _meets(numbers: Any, value: str, objective: float) -> Any:
    return numbers >= objective if value == MORE else numbers <= objective


def _show_border(ax: Axes, numbers: np.ndarray, value: str, objective: float | None) -> list[Any]:
    """Draw the border between the cells within the objective and the others.

    Along their edges: nothing says what a knob's value between two of the grid's would give.
    """
    if objective is None:
        return []
    within = _meets(numbers, value, objective)  # NaN is not
    name = f"{axis_label(value)} {'≥' if value == MORE else '≤'} {objective:g}"
    if not within.any():
        return [Line2D([], [], linestyle="none", label=f"none has {name}")]
    edges = [[(c + 1, r), (c + 1, r + 1)] for r, c in np.argwhere(within[:, 1:] != within[:, :-1])]
    edges += [[(c, r + 1), (c + 1, r + 1)] for r, c in np.argwhere(within[1:] != within[:-1])]
    for colour, width in (("white", 5), (BLACK, 2.5)):  # seen on dark cells and on bright ones
        look: dict[str, Any] = {"colors": colour, "linewidths": width, "capstyle": "projecting", "zorder": 3}
        ax.add_collection(LineCollection(edges, **look))
    return [Line2D([], [], color=BLACK, linewidth=2.5, label=f"bold, within the line: {name}")]


def _write(
    ax: Axes,
    numbers: np.ndarray,
    good: np.ndarray,
    value: str,
    objective: float | None,
    colours: ScalarMappable,
) -> None:
    """Write each cell's number into it, bold where it is good and within the objective."""
    size = 9 if max(numbers.shape) <= 10 else 7
    for (row, column), number in np.ndenumerate(numbers):
        if not math.isfinite(number):
            continue
        red, green, blue, _ = colours.to_rgba(number)
        bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
        bold = objective is not None and _meets(good[row, column], value, objective)
        text = f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"
        look: dict[str, Any] = {"color": BLACK if bright else "white", "weight": "bold" if bold else "normal"}
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=size, **look)


def _show_best(ax: Axes, numbers: np.ndarray, value: str) -> list[Any]:
    """Mark the best cell, where it is known which is better."""
    finite = np.isfinite(numbers)
    if (value != MORE and not value.endswith("_ms")) or not finite.any():
        return []
    numbers = np.where(finite, numbers, math.nan)
    best, label = (np.nanargmax, "highest") if value == MORE else (np.nanargmin, "lowest")
    row, column = np.unravel_index(best(numbers), numbers.shape)
    look: dict[str, Any] = {"markersize": 13, "color": ORANGE, "markeredgecolor": BLACK, "linestyle": "none"}
    return list(ax.plot(column + 0.85, row + 0.8, "*", zorder=5, label=label, **look))
