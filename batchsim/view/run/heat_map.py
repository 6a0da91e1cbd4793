"""The p99 of a whole grid of settings, as colours: the live heat map."""

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedFormatter, FixedLocator

from batchsim._format import duration, tick_in, typed_duration, unit_of
from batchsim.scenario import Scenario
from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.canvas.theme import BLACK, ORANGE, VERMILION
from batchsim.view.canvas.view import FINE, Name, View, log_ticks, nice_span

if TYPE_CHECKING:
    from batchsim.study.surface import Surface

OVERLOADED, REFUSED, LOSING = "overloaded", "refused", "too many lost"
BAR, BESIDE = 0.8, 4.6  # the bar of colours: its width, and the room right of the axes, in ems
COLOURS = matplotlib.colormaps["cividis"].reversed()(np.arange(256), bytes=True)  # dark is slow
LABELS = {"max_wait_ms": "longest wait", "min_batch_size": "smallest batch"}


class FieldView(View):
    """The p99 of all requests by batch size and wait, with the objective's border, today and the best."""

    def __init__(self, picture: Picture, box: Box, line_px: float = 1.6) -> None:
        super().__init__(picture, box, "p99 of every setting at this load", line_px)
        theme, width = self.theme, line_px
        place = self.place_px = self.frame(right=BESIDE)
        ax = self.ax = self.add_frame(place, "largest batch", "longest wait (ms)", grid="", ticks=False)
        ax.spines[:].set_visible(False)
        self.image = AxesImage(ax, interpolation="nearest", origin="lower", extent=(0, 1, 0, 1), zorder=1)
        self.image.set_data(np.zeros((1, 1, 4), dtype=np.uint8))
        ax.add_image(self.image)
        self.cells = {
            name: PathPatch(NOWHERE, facecolor=face, edgecolor=theme.grey, lw=0, hatch=hatch, zorder=2)
            for name, face, hatch in (
                (OVERLOADED, theme.faint, "////"), (REFUSED, "none", "xx"), (LOSING, "none", ".."),
            )
        }  # fmt: skip
        for cells in self.cells.values():
            ax.add_patch(cells)
        self.border = [
            LineCollection([], colors=colour, linewidths=thick * width, capstyle="projecting", zorder=3)
            for colour, thick in (("white", 3.0), (BLACK, 1.4))  # seen on dark cells and on bright ones
        ]
        for lines in self.border:
            ax.add_collection(lines, autolim=False)
        self.now = self._ring("o", VERMILION, 5.5, 6)
        self.a = self._ring("s", BLACK, 7.5, 5)  # round it, where both are at one place
        (self.star,) = ax.plot(
            [], [], "*", markersize=8 * width, color=ORANGE, markeredgecolor=BLACK, zorder=5
        )
        self.moves(self.image, *self.cells.values(), *self.border, *self.now, *self.a, self.star)
        self.shape = (0, 0)
        self._add_bar(Box(place.right + 0.7 * self.em, place.top, BAR * self.em, place.height))

    def _ring(self, marker: str, colour: str, size: float, above: float) -> list[Line2D]:
        """Return a mark through which its cell is seen, on dark and on bright ones."""
        scale = self.line_px
        look: dict[str, Any] = {"marker": marker, "markerfacecolor": "none", "linestyle": "none"}
        return [
            self.ax.plot(
                [],
                [],
                markersize=size * scale,
                markeredgecolor=edge,
                markeredgewidth=thick * scale,
                zorder=z,
                **look,
            )[0]
            for edge, thick, z in (("white", 2.6, above), (colour, 1.4, above + 0.1))
        ]

    def _add_bar(self, box: Box) -> None:
        bar = self.bar = self.add_frame(box, "", "", grid="", numbers="y", right=True)
        bar.spines[:].set_visible(False)
        bar.set_yscale("log")
        bar.xaxis.set_major_locator(FixedLocator([]))
        bar.set_xlim(0, 1)
        # As an image of the axes' whole place: a logarithmic axis would bend one of data.
        picture = AxesImage(bar, extent=(0, 1, 0, 1), origin="lower", interpolation="nearest", zorder=0.5)
        picture.set_data(COLOURS[:, None])
        picture.set_transform(bar.transAxes)
        bar.add_image(picture)
        self.unit = self.add_text(
            box.left, box.bottom + 1.35 * self.em, "ms", fontsize=0.9 * self.em, color=self.theme.soft
        )

    def update(
        self,
        surface: "Surface",
        scenario: Scenario,
        objective_ms: float | None = None,
        pinned: Scenario | None = None,
    ) -> None:
        """Show the surface and where the scenario is in it; `pinned` is A, held against it."""
        rows, columns = self.shape = surface.p99_ms.shape
        void = surface.overloaded | surface.refused
        p99_ms = np.where(void, np.nan, surface.p99_ms)
        lost = np.isinf(p99_ms)
        known = p99_ms[np.isfinite(p99_ms)]
        span = nice_span(float(known.min()), float(known.max()), FINE) if known.size else (1.0, 100.0)
        self.image.set_data(colours(p99_ms, *span))
        self.image.set_extent((0, columns, 0, rows))
        overloaded = surface.overloaded & ~surface.refused
        of_kind = {OVERLOADED: overloaded, REFUSED: surface.refused, LOSING: lost}
        for name, cells in of_kind.items():
            self.cells[name].set_path(squares(cells))
        within = p99_ms <= (math.inf if objective_ms is None else objective_ms)
        edges = [] if objective_ms is None else border(within & ~lost)
        for lines in self.border:
            lines.set_segments(edges)
        best = surface.best()
        self.star.set_data(*(([], []) if best is None else ([best[1] + 0.5], [best[0] + 0.5])))
        for marks, at in ((self.now, scenario), (self.a, pinned)):
            where = None if at is None else place(surface, at)
            for mark in marks:
                mark.set_data(*(([], []) if where is None else ([where[0]], [where[1]])))
        self._scale(surface, span)
        present = [name for name, cells in of_kind.items() if cells.any()]
        self._name(surface, best, present, objective_ms if edges else None, pinned is not None)

    def _scale(self, surface: "Surface", span: tuple[float, float]) -> None:
        if self.hold("grid", (surface.y, surface.x_values, surface.y_values)):
            rows, columns = self.shape
            ax = self.ax
            ax.set(xlim=(0, columns), ylim=(0, rows))
            across, up = self.place_px.width / columns / self.em, self.place_px.height / rows / self.em
            texts = [str(value) for value in surface.x_values]
            self._ticks(ax.xaxis, texts, max(0.62 * len(text) + 0.4 for text in texts) / across)
            unit, ms = self._unit(surface)
            ax.yaxis.set_label_text(LABELS[surface.y] + (f" ({unit})" if unit else ""))
            self._ticks(ax.yaxis, [level(value / ms) for value in surface.y_values], 1.05 / up)
        if self.hold("colours", span):
            unit, ms = unit_of(span[1])
            self.bar.set_ylim(*span)
            log_ticks(self.bar.yaxis, *span, finest=FINE)
            self.bar.yaxis.set_major_formatter(tick_in(ms))
            self.unit.set_text(unit)

    def _unit(self, surface: "Surface") -> tuple[str, float]:
        """Return the unit of the vertical axis, and how many of its values make one."""
        if not surface.y.endswith("_ms"):
            return "", 1.0
        return unit_of(max((value for value in surface.y_values if math.isfinite(value)), default=1.0))

    def _ticks(self, axis: Any, texts: list[str], crowd: float) -> None:
        """Label the cells, or every second or third: `crowd` is the room that a label needs, in cells."""
        shown = range((len(texts) - 1) % max(1, math.ceil(crowd)), len(texts), max(1, math.ceil(crowd)))
        axis.set_major_locator(FixedLocator([i + 0.5 for i in shown]))
        axis.set_major_formatter(FixedFormatter([texts[i] for i in shown]))

    def _name(
        self,
        surface: "Surface",
        best: tuple[int, int] | None,
        present: list[str],
        objective_ms: float | None,
        pinned: bool,
    ) -> None:
        theme, scale = self.theme, self.line_px
        ring: dict[str, Any] = {
            "linestyle": "none",
            "markerfacecolor": "none",
            "markeredgewidth": 1.4 * scale,
        }
        names: list[Name | None] = [
            Name.of(
                "B" if pinned else "now",
                marker="o",
                markersize=5.5 * scale,
                markeredgecolor=VERMILION,
                **ring,
            )
        ]
        told = []
        if pinned:
            look = ring | {"markeredgecolor": BLACK if theme.name == "light" else "white"}
            names.append(Name.of("A", marker="s", markersize=6 * scale, **look))
        star: dict[str, Any] = {"marker": "*", "markersize": 7 * scale, "markeredgecolor": BLACK}
        if best is not None:
            row, column = best
            names.append(Name.of("best 00.0 ms at 00, 00.0 ms", True, linestyle="none", color=ORANGE, **star))
            value, (unit, ms) = surface.y_values[row], self._unit(surface)
            y = level(value / ms) + (f" {unit}" if unit and math.isfinite(value) else "")
            told.append(f"best {duration(float(surface.p99_ms[best]))} at {surface.x_values[column]}, {y}")
        names.append(None)
        if objective_ms is not None:
            names.append(
                Name.of(
                    f"≤ {typed_duration(objective_ms)}", color=theme.ink, linestyle="-", linewidth=1.4 * scale
                )
            )
        for name in present:
            patch = self.cells[name]
            mark: dict[str, Any] = {
                "facecolor": patch.get_facecolor(),
                "edgecolor": theme.grey,
                "lw": 0,
                "hatch": patch.get_hatch(),
            }
            names.append(Name.of(name, **mark))
        self.name(names, told)

    def cell_at(self, x_px: float, y_px: float) -> tuple[int, int] | None:
        """Return the (row, column) of the cell there in the picture, in CSS pixels from the top left."""
        rows, columns = self.shape
        across = (x_px - self.place_px.left) / self.place_px.width
        up = (self.place_px.bottom - y_px) / self.place_px.height
        if not (rows and 0 <= across < 1 and 0 <= up < 1):
            return None
        return int(up * rows), int(across * columns)


NOWHERE = Path(np.zeros((1, 2)))


def level(value: float) -> str:
    """Write a value of the vertical axis; an endless wait is ∞: full batches only."""
    return "∞" if math.isinf(value) else f"{float(f'{value:.10g}'):.10g}"


def colours(p99_ms: np.ndarray, low_ms: float, high_ms: float) -> np.ndarray:
    """Return the colours of latencies on a logarithmic scale, uint8 RGBA; of no number, none.

    >>> colours(np.array([[1.0, np.nan]]), 1, 100)[0].tolist()
    [[253, 231, 55, 255], [0, 0, 0, 0]]
    """
    seen = np.isfinite(p99_ms)
    part = np.log(np.where(seen, p99_ms, low_ms) / low_ms) / math.log(high_ms / low_ms)
    found = COLOURS[np.clip(part * 255, 0, 255).round().astype(int)]
    found[~seen] = 0
    return found


def squares(cells: np.ndarray) -> Path:
    """Return the outlines of cells, bool of shape (rows, columns), as one path."""
    where = np.argwhere(cells)[:, ::-1]
    if not where.size:
        return NOWHERE
    corners = where[:, None] + np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]])
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(corners.reshape(-1, 2).astype(float), codes * len(where))


def border(within: np.ndarray) -> list[list[tuple[int, int]]]:
    """Return the edges between cells that are within and others: bool, shape (rows, columns).

    Along the cells' edges: nothing says what a value between two of the grid's would give.

    >>> border(np.array([[True, False]]))
    [[(1, 0), (1, 1)]]
    """
    edges = [[(c + 1, r), (c + 1, r + 1)] for r, c in np.argwhere(within[:, 1:] != within[:, :-1]).tolist()]
    edges += [[(c, r + 1), (c + 1, r + 1)] for r, c in np.argwhere(within[1:] != within[:-1]).tolist()]
    return edges


def place(surface: "Surface", scenario: Scenario) -> tuple[float, float] | None:
    """Return where a scenario's setting is on the map, in cells, also between two values of the grid."""
    rule = scenario.rule
    if not {surface.x, surface.y} <= {field.name for field in fields(rule)}:  # type: ignore[arg-type]
        return None
    return tuple(
        _between(getattr(rule, name), values)
        for name, values in ((surface.x, surface.x_values), (surface.y, surface.y_values))
    )  # type: ignore[return-value]


def _between(value: float, values: tuple[float, ...]) -> float:
    if math.isinf(value):
        return len(values) - 0.5
    finite = [each for each in values if math.isfinite(each)]
    return float(np.interp(value, finite, np.arange(len(finite)))) + 0.5
