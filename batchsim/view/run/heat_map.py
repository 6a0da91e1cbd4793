"""The p99 of a whole grid of settings, as colours: the live heat map."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.ticker import FixedFormatter, FixedLocator

from batchsim._format import counted, duration, number, tick_in, typed, typed_duration, unit_of
from batchsim.scenario import Rule
from batchsim.view.canvas.cells import NOWHERE, border, squares
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.scales import FINE, log_ticks, nice_span
from batchsim.view.canvas.theme import BLACK, ORANGE, VERMILION
from batchsim.view.run.data import ViewData
from batchsim.view.run.view import NEW_ROW, Entry, Style, View

if TYPE_CHECKING:
    from batchsim.study.surface import Surface

OVERLOADED, REFUSED, LOSING, TIED = "overloaded", "not possible", "too many lost", "tied with the best"
BAR, BESIDE = 0.8, 4.6  # the colour bar: its width, and the room right of the axes, in ems
INSET = 0.12  # of a cell: how far inside it the frame of a tied one is
COLOURS = matplotlib.colormaps["cividis"].reversed()(np.arange(256), bytes=True)  # dark is slow


class HeatMapView(View):
    """The p99 of all requests over two parameters of the rule.

    A bold line surrounds the cells within the objective, a dashed frame marks each that cannot be told from
    the best, and a star the best itself: the one that `tune` would take among them.
    """

    NAME = "p99 of every setting at this load"

    def add_artists(self) -> None:
        theme, width = self.theme, self.line_px
        plot = self.plot_box = self.axes_box(right=BESIDE)
        ax = self.ax = self.add_plot(plot, "", "", grid="", ticks=False)
        ax.spines[:].set_visible(False)
        self.image = _image(ax, np.zeros((1, 1, 4), dtype=np.uint8), zorder=1)
        # Cells without a number, by why they have none.
        hatched: Style = {"facecolor": "none", "edgecolor": theme.grey, "linewidth": 0}
        hatches = {OVERLOADED: "////", REFUSED: "xx", LOSING: ".."}
        self.styles: dict[str, Style] = {name: hatched | {"hatch": each} for name, each in hatches.items()}
        self.styles[OVERLOADED]["facecolor"] = theme.faint
        self.cells = {name: PathPatch(NOWHERE, zorder=2, **style) for name, style in self.styles.items()}
        # All marks are white and a colour, to be seen on dark cells and on bright ones.
        self.border = [
            LineCollection([], colors=colour, linewidths=thick * width, capstyle="projecting", zorder=3)
            for colour, thick in (("white", 3.0), (BLACK, 1.4))
        ]
        frame: Style = {"facecolor": "none", "linewidth": 0.8 * width}
        dashed: Style = frame | {"edgecolor": BLACK, "linestyle": (0, (2, 1.5))}
        ties = frame | {"edgecolor": "white"}, dashed
        self.ties = [PathPatch(NOWHERE, zorder=4, **style) for style in ties]
        self.styles[TIED] = dashed | {"edgecolor": theme.ink}
        patches = *self.cells.values(), *self.border, *self.ties
        for artist in patches:
            ax.add_artist(artist)
        # Rings, through which their cells are seen; A's is larger, to be seen round the other.
        ring: Style = {"linestyle": "none", "markerfacecolor": "none", "markeredgewidth": 1.4 * width}
        self.now_style = ring | {"marker": "o", "markersize": 5.5 * width, "markeredgecolor": VERMILION}
        self.a_ring_style = ring | {"marker": "s", "markersize": 7.5 * width, "markeredgecolor": BLACK}
        self.now, self.a = self._ring(self.now_style, zorder=6), self._ring(self.a_ring_style, zorder=5)
        star: Style = {"linestyle": "none", "marker": "*", "color": ORANGE, "markeredgecolor": BLACK}
        self.star_style = star | {"markersize": 8 * width}
        (self.star,) = ax.plot([], [], zorder=5, **self.star_style)
        self.set_moving(self.image, *patches, *self.now, *self.a, self.star)
        self.shape = (0, 0)
        self._add_colour_bar(Box(plot.right + 0.7 * self.em, plot.top, BAR * self.em, plot.height))

    def _ring(self, style: Style, zorder: float) -> list[Line2D]:
        white = style | {"markeredgecolor": "white", "markeredgewidth": 2.6 * self.line_px}
        pair = ((white, zorder), (style, zorder + 0.1))
        return [self.ax.plot([], [], zorder=above, **each)[0] for each, above in pair]

    def _add_colour_bar(self, box: Box) -> None:
        bar = self.bar = self.add_plot(box, "", "", grid="", numbers="y", right=True)
        bar.spines[:].set_visible(False)
        bar.set_yscale("log")
        bar.xaxis.set_major_locator(FixedLocator([]))
        bar.set_xlim(0, 1)
        # An image in axes coordinates: the logarithmic scale would distort one in data coordinates.
        _image(bar, COLOURS[:, None], zorder=0.5).set_transform(bar.transAxes)
        below = box.left, box.bottom + 1.35 * self.em
        self.unit = self.add_text(*below, "ms", fontsize=0.9 * self.em, color=self.theme.soft)

    def update(self, data: ViewData) -> None:
        surface, refused = data.surface, data.surface.refused
        rows, columns = self.shape = surface.p99_ms.shape
        p99_ms = np.where(surface.overloaded | refused, np.nan, surface.p99_ms)
        finite = p99_ms[np.isfinite(p99_ms)]
        span = nice_span(float(finite.min()), float(finite.max()), FINE) if finite.size else (1.0, 100.0)
        self.image.set_data(colours(p99_ms, *span))
        self.image.set_extent((0, columns, 0, rows))
        overloaded, losing = surface.overloaded & ~refused, np.isinf(p99_ms)
        kinds = {OVERLOADED: overloaded, REFUSED: refused, LOSING: losing}
        for name, cells in kinds.items():
            self.cells[name].set_path(squares(cells))
        edges = border(p99_ms <= (math.nan if data.objective_ms is None else data.objective_ms))
        for lines in self.border:
            lines.set_segments(edges)
        best, ties = surface.best(), surface.ties()
        kinds[TIED] = ties if ties.sum() > 1 else np.zeros_like(ties)
        for frames in self.ties:
            frames.set_path(squares(kinds[TIED], INSET))
        _place([self.star], best and (best[1] + 0.5, best[0] + 0.5))
        for marks, each in ((self.now, data), (self.a, data.pinned)):
            _place(marks, None if each is None else position(surface, each.result.scenario.rule))
        self._scale(surface, span)
        entries = [*self._marks(surface, best, data.pinned is not None), NEW_ROW]
        if edges and data.objective_ms is not None:
            style = self.line_style("ink", "-", 1.4)
            entries.append(Entry(f"≤ {typed_duration(data.objective_ms)}", style))
        entries += [Entry(name, self.styles[name]) for name, cells in kinds.items() if cells.any()]
        self.show_legend(entries)

    def _scale(self, surface: "Surface", span: tuple[float, float]) -> None:
        if self.hold("grid", (surface.x, surface.y, surface.x_values, surface.y_values)):
            rows, columns = self.shape
            self.ax.set(xlim=(0, columns), ylim=(0, rows))
            horizontal = self.ax.xaxis, surface.x, surface.x_values, self.plot_box.width
            vertical = self.ax.yaxis, surface.y, surface.y_values, self.plot_box.height
            for axis, name, values, length in (horizontal, vertical):
                unit, texts = in_unit(name, values)
                axis.set_label_text(label_of(surface, name) + (f" ({unit})" if unit else ""))
                # Where the texts need more room than their cells have, every second or third is shown.
                room = 1.05 if name == surface.y else max(0.62 * len(text) + 0.4 for text in texts)
                step = math.ceil(room * self.em / (length / len(texts)))
                shown = range((len(texts) - 1) % step, len(texts), step)
                axis.set_major_locator(FixedLocator([i + 0.5 for i in shown]))
                axis.set_major_formatter(FixedFormatter([texts[i] for i in shown]))
        if self.hold("colours", span):
            unit, ms = unit_of(span[1])
            self.bar.set_ylim(*span)
            log_ticks(self.bar.yaxis, *span, finest=FINE)
            self.bar.yaxis.set_major_formatter(tick_in(ms))
            self.unit.set_text(unit)

    def _marks(self, surface: "Surface", best: tuple[int, int] | None, pinned: bool) -> list[Entry]:
        entries = [Entry("B" if pinned else "now", self.now_style)]
        if pinned:
            smaller = {"markersize": 6 * self.line_px, "markeredgecolor": self.theme.ink}
            entries.append(Entry("A", self.a_ring_style | smaller))
        if best is not None:
            at = ", ".join(values_of(surface, best).values())
            value = f"best {duration(float(surface.p99_ms[best]))} at {at}"
            style = self.star_style | {"markersize": 7 * self.line_px}
            entries.append(Entry("best 00.0 ms at 00, 00.0 ms", style, value))
        return entries

    def describe(self, data: ViewData) -> list[str]:
        surface = data.surface
        steady = ~(surface.overloaded | surface.refused)
        scope = f"Of {int((~surface.refused).sum())} settings, each run with {surface.requests:,} requests,"
        best = surface.best()
        if best is not None:
            setting = ", ".join(map(" ".join, values_of(surface, best).items()))
            text = f"{scope} the best is {setting}: p99 {number(surface.p99_ms[best])} ms"
            if tied := int(surface.ties().sum()) - 1:
                text += f"; {counted(tied, 'other')} {'is' if tied == 1 else 'are'} statistically the same"
            if data.objective_ms is not None:
                within = int((steady & (surface.p99_ms <= data.objective_ms)).sum())
                text += f"; {within} meet the objective"
        else:
            text = f"{scope} none {'serves 99 of 100 requests' if steady.any() else 'keeps up'}"
        if surface.overloaded.any() and steady.any():
            text += f"; {int(surface.overloaded.sum())} are overloaded"
        return [f"{text}."]

    def cell_at(self, x_px: float, y_px: float) -> tuple[int, int] | None:
        """Return the (row, column) of the cell at these CSS pixels of the picture, None beside the map."""
        rows, columns = self.shape
        across = (x_px - self.plot_box.left) / self.plot_box.width
        up = (self.plot_box.bottom - y_px) / self.plot_box.height
        inside = rows and 0 <= across < 1 and 0 <= up < 1
        return (int(up * rows), int(across * columns)) if inside else None


def _image(ax: Axes, pixels: np.ndarray, zorder: float) -> AxesImage:
    image = AxesImage(ax, interpolation="nearest", origin="lower", extent=(0, 1, 0, 1), zorder=zorder)
    image.set_data(pixels)
    ax.add_image(image)
    return image


def _place(marks: Sequence[Line2D], at: tuple[float, float] | None) -> None:
    for mark in marks:
        mark.set_data(*(([], []) if at is None else ([at[0]], [at[1]])))


def label_of(surface: "Surface", name: str) -> str:
    """Return what the rule calls one of its parameters, without the unit."""
    label = surface.scenario.rule.parameters()[name].label.removesuffix(" (ms)")
    return label[0].lower() + label[1:]


def values_of(surface: "Surface", cell: tuple[int, int]) -> dict[str, str]:
    """Return the setting of a cell in words: the value of each parameter by its label."""
    texts = {}
    for name, value in ((surface.x, surface.x_values[cell[1]]), (surface.y, surface.y_values[cell[0]])):
        write = typed_duration if name.endswith("_ms") and value < math.inf else level
        texts[label_of(surface, name)] = write(value)
    return texts


def level(value: float) -> str:
    """Return a parameter's value; an infinite wait is ∞: only full batches leave."""
    return "∞" if math.isinf(value) else typed(float(f"{value:.10g}"))


def in_unit(name: str, values: Sequence[Any]) -> tuple[str, list[str]]:
    """Return the unit of a parameter's axis, "" for none, and the texts of the values in it.

    >>> in_unit("max_wait_ms", (0.0, 500.0, 2000.0, math.inf)), in_unit("max_batch_size", (8, 16))
    (('s', ['0', '0.5', '2', '∞']), ('', ['8', '16']))
    """
    longest = max(filter(math.isfinite, values), default=1.0)
    unit, ms = unit_of(longest) if name.endswith("_ms") else ("", 1.0)
    return unit, [level(value / ms) for value in values]


def colours(p99_ms: np.ndarray, low_ms: float, high_ms: float) -> np.ndarray:
    """Return the colours of latencies on a logarithmic scale, uint8 RGBA; transparent for NaN and infinity.

    >>> colours(np.array([[1.0, np.nan]]), 1, 100)[0].tolist()
    [[253, 231, 55, 255], [0, 0, 0, 0]]
    """
    finite = np.isfinite(p99_ms)
    share = np.log(np.where(finite, p99_ms, low_ms) / low_ms) / math.log(high_ms / low_ms)
    rgba = COLOURS[np.clip(share * 255, 0, 255).round().astype(int)]
    rgba[~finite] = 0
    return rgba


def position(surface: "Surface", rule: Rule) -> tuple[float, float] | None:
    """Return where a rule is on the map, in cells, also between two values of the grid; None for another."""
    if not {surface.x, surface.y} <= rule.parameters().keys():
        return None
    axes = (surface.x, surface.x_values), (surface.y, surface.y_values)
    x, y = (np.interp(getattr(rule, name), values, np.arange(len(values))) for name, values in axes)
    return float(x) + 0.5, float(y) + 0.5
