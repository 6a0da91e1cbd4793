"""A heat map: one metric of a sweep over two of its knobs."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle

from batchsim._format import fixed
from batchsim.result.metrics import better, heading
from batchsim.view.pictures import figures
from batchsim.view.pictures.cells import COLOURS, GREENS, border, ends, on_white, squares
from batchsim.view.pictures.picture import Picture, is_light
from batchsim.view.scales import FINE, log_ticks
from batchsim.view.theme import BLACK, GREY, ORANGE, VERMILION

if TYPE_CHECKING:
    import pandas


MANY = 200  # cells: with more, their numbers are left out
HATCHED: dict[str, Any] = {"edgecolor": GREY, "linewidth": 0}
UNSTABLE = HATCHED | {"facecolor": "#eeeeee", "hatch": "///", "label": "overloaded: no steady state"}
LOSING = HATCHED | {"facecolor": "white", "hatch": "...", "label": "infinite: too many requests are lost"}
REFUSED = HATCHED | {"facecolor": "white", "hatch": "xxx", "label": "not possible, or no number"}
TODAY: dict[str, Any] = {"fill": False, "edgecolor": VERMILION, "linewidth": 3, "label": "today"}
STAR: dict[str, Any] = {
    "markersize": 13, "color": ORANGE, "markeredgecolor": BLACK, "linestyle": "none", "zorder": 5
}  # fmt: skip
# Over the colour of a latency of the served requests alone.
PARTIAL: dict[str, Any] = {"fill": False, "edgecolor": VERMILION, "linewidth": 0, "hatch": "\\\\\\"}


def heat_map(
    frame: "pandas.DataFrame", x: str = "max_batch_size", y: str = "max_wait_ms", value: str | None = None,
    objective: float | None = None, today: tuple[Any, Any] | None = None, ax: Axes | None = None,
) -> Picture | Axes:  # fmt: skip
    """Return a picture of a metric of a sweep over two of its knobs, a cell a point.

    `frame` is what `sweep` returned, with one row for each pair: select rows of a sweep over more knobs.
    Cells without a steady state, and those that the scenario refuses, are hatched. The colours are those of
    the explorer's map: green within `objective`, white at it, brown beyond. A line surrounds the cells within
    it, for a throughput those of at least `objective`. A star marks the best cell, and a frame `today`, the
    values (x, y) of the present setting. By default `value` is the p99 of all requests, where a lost request
    counts as infinitely late. Other latencies ignore lost requests: cells that lose some are hatched, and
    neither best nor within the objective. With `ax` it is drawn into these axes, which are returned.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> from batchsim.study.sweep import sweep
    >>> scenario = Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> over = {"max_batch_size": [4, 8, 16], "max_wait_ms": [0, 5, 10]}
    >>> heat_map(sweep(scenario, over, 2000, progress=False), objective=16)
    <Picture size 760x520 with 2 Axes>
    """
    value = figures.p99_of_all(frame) if value is None else value
    figures.check_columns(frame, x, y, value, "infeasible", "requests")
    columns, rows = figures.distinct(frame[x]), figures.distinct(frame[y])
    if frame.duplicated([x, y]).any():
        rule = f"a heat map must have one row for each {x} and {y}"
        got = f"{len(frame)} rows for {len(frame[[x, y]].drop_duplicates())}"
        raise ValueError(f"{rule}, got {got}: choose among the other knobs")
    infeasible = (frame["infeasible"] != "").to_numpy()

    def on_grid(column: Any, missing: Any) -> np.ndarray:
        """Return a column, a row a point, as an array of shape (rows, columns)."""
        cells = np.full((len(rows), len(columns)), missing)
        cells[list(map(rows.index, frame[y])), list(map(columns.index, frame[x]))] = column
        return cells

    numbers = on_grid(np.where(infeasible, math.nan, frame[value].to_numpy(float)), math.nan)
    unstable = on_grid(infeasible & frame["requests"].notna().to_numpy(), False)  # these ran all the same
    partial = on_grid(figures.of_served_alone(frame, value) & ~infeasible, False)
    losing = np.isinf(numbers)
    rated = np.where(partial | losing, math.nan, numbers)  # what can be best, or within the objective
    finite = numbers[np.isfinite(numbers)]

    with figures.axes(ax) as (ax, drawn_on):
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        handles: list[Any] = []
        if finite.size:
            norm, colour_map = _colours(finite, value, objective)
            cells = np.ma.masked_invalid(numbers)
            ax.pcolormesh(cells, norm=norm, cmap=colour_map, edgecolors="white", linewidth=0.5)
            colours = ScalarMappable(norm, colour_map)
            extend = "neither" if objective is None else "both"
            bar = ax.figure.colorbar(colours, ax=ax, label=heading(value), extend=extend)
            bar.outline.set_visible(False)
            if isinstance(norm, LogNorm):
                log_ticks(bar.ax.yaxis, finest=FINE)
            bar.ax.yaxis.set_major_formatter("{x:,g}")
            within, higher = np.zeros(numbers.shape, dtype=bool), better(value) == "higher"
            if objective is not None:
                within = rated >= objective if higher else rated <= objective  # NaN is neither
                condition = f"{heading(value)} {'≥' if higher else '≤'} {objective:g}"
                handles += _show_border(ax, within, condition)
            best = _best(rated, value)
            if numbers.size <= MANY:
                bold = within.copy()
                bold[best or (slice(0), slice(0))] = True  # the answer
                _write_numbers(ax, numbers, bold, colours)
            if best is not None:
                at = ", ".join(figures.texts([columns[best[1]], rows[best[0]]]))
                label = f"{'highest' if higher else 'lowest'}: {rated[best]:.3g} at {at}"
                handles += ax.plot(best[1] + 0.85, best[0] + 0.8, "*", label=label, **STAR)
        lost = PARTIAL | {"label": f"some requests are lost: {heading(value)} of the others"}
        refused = ~np.isfinite(numbers) & ~unstable & ~losing
        for hatched, style in ((unstable, UNSTABLE), (losing, LOSING), (refused, REFUSED), (partial, lost)):
            if hatched.any():
                handles.append(ax.add_patch(PathPatch(squares(hatched), **style)))
        if today is not None and today[0] in columns and today[1] in rows:
            corner = columns.index(today[0]), rows.index(today[1])
            handles.append(ax.add_patch(Rectangle(corner, 1, 1, zorder=4, **TODAY)))
        ax.set(xlim=(0, len(columns)), ylim=(0, len(rows)), xlabel=heading(x), ylabel=heading(y))
        ax.set_xticks(np.arange(len(columns)) + 0.5, figures.texts(columns))
        ax.set_yticks(np.arange(len(rows)) + 0.5, figures.texts(rows))
        ax.tick_params(length=0)
        ax.set_title(f"{heading(value)} by {heading(x)} and {heading(y)}")
        figures.show_legend(ax, handles)
    return drawn_on


def _colours(finite: np.ndarray, value: str, objective: float | None) -> tuple[Normalize, Colormap]:
    """Return the scale and the colours: green within the objective, white at it, brown beyond it.

    Without an objective there is no middle: the better a number, the stronger the green.
    """
    low, high = float(finite.min()), float(finite.max())
    colours = GREENS if objective is None else COLOURS
    if better(value) == "higher":
        colours = colours.reversed()
    if objective is None:
        return (LogNorm if figures.is_wide(finite) else Normalize)(low, high), colours
    if value.endswith("_ms") and objective > 0:
        return LogNorm(*ends(finite, objective), clip=True), colours
    far = max(abs(low - objective), abs(high - objective)) or 1.0
    return Normalize(objective - far, objective + far), colours


def _show_border(ax: Axes, within: np.ndarray, condition: str) -> list[Any]:
    if not within.any():
        return [Line2D([], [], linestyle="none", label=f"none has {condition}")]
    edge: dict[str, Any] = {"edgecolor": BLACK, "linewidth": 2.5, "capstyle": "projecting"}
    ax.add_patch(PathPatch(border(within), fill=False, zorder=3, path_effects=on_white(5), **edge))
    return [Line2D([], [], color=BLACK, linewidth=2.5, label=f"bold, within the line: {condition}")]


def _write_numbers(ax: Axes, numbers: np.ndarray, bold: np.ndarray, colours: ScalarMappable) -> None:
    size = 9 if max(numbers.shape) <= 10 else 7
    for row, column in np.argwhere(np.isfinite(numbers)):
        number, weight = numbers[row, column], "bold" if bold[row, column] else "normal"
        ink, at = BLACK if is_light(colours.to_rgba(number)) else "white", (column + 0.5, row + 0.5)
        ax.text(*at, fixed(number), ha="center", va="center", fontsize=size, color=ink, weight=weight)


def _best(numbers: np.ndarray, value: str) -> tuple[int, int] | None:
    """Return the row and the column of the best number; None if there is none, or no better and worse."""
    if better(value) is None or np.isnan(numbers).all():
        return None
    best = np.nanargmax if better(value) == "higher" else np.nanargmin
    row, column = np.unravel_index(best(numbers), numbers.shape)
    return int(row), int(column)
