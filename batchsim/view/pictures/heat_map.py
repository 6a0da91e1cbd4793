"""The live heat map: a metric of a grid of settings, with the present one, the best one, and its ties."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from batchsim._format import counted, duration, percent, rate, tick, tick_in, typed, typed_duration, unit_of
from batchsim.scenario import Continuous, Rule
from batchsim.study.kinds import GOODPUT, TTFT_P99
from batchsim.view.canvas.axes import FINE, log_ticks, nice
from batchsim.view.canvas.cells import NOWHERE, border, colours, ends, shades, squares
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.theme import BLACK, ORANGE
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import LARGE, SMALL, Entry, Spot, Style, View

OVERLOADED, REFUSED, LOSING, TIED = "overloaded", "not possible", "too many lost", "tied with the best"
BEYOND = "too slow"
BAR, BESIDE = 0.8, 4.2  # the colour bar: its width, and the room right of the axes, in ems
MOST = 0.99  # of the requests: a setting where these keep both objectives is within them
INSET = 0.12  # of a cell: how far inside it the frame of a tied one is


@dataclasses.dataclass(frozen=True)
class P99:
    """The p99 of a duration in every cell: green within its objective, white at it, brown beyond."""

    words: str
    column: str  # of the surface
    limit: str  # the field of `ViewData` with the objective
    fails = "serves 99 of 100 requests"  # after "none": in no cell
    meets = "meet the objective"

    def limit_ms(self, data: ViewData) -> float | None:
        limit_ms: float | None = getattr(data, self.limit)
        return limit_ms

    def values(self, surface: Any) -> np.ndarray:
        """Return the number of each cell, NaN where it has no steady state."""
        return np.where(surface.overloaded | surface.refused, np.nan, getattr(surface, self.column))

    def colours(self, values: np.ndarray, data: ViewData) -> np.ndarray:
        """Return the cells' colours; transparent where there is no finite number."""
        return colours(values, self.limit_ms(data))

    def within(self, values: np.ndarray, data: ViewData) -> np.ndarray:
        """Return which cells are within the objective."""
        limit_ms = self.limit_ms(data)
        return np.asarray(values <= (math.nan if limit_ms is None else limit_ms))

    def has_beyond(self, data: ViewData) -> bool:
        """Return whether cells beyond the objective have dots."""
        return self.limit_ms(data) is not None

    def show_scale(self, view: "HeatMapView", bar: Axes, values: np.ndarray, data: ViewData) -> None:
        """Give the colour bar its scale: logarithmic, anchored to the objective."""
        objective_ms = self.limit_ms(data)
        low, high = ends(values, objective_ms)
        if not view.hold("colours", (low, high, objective_ms)):
            return
        unit, ms = unit_of(high)
        bar.set_yscale("log")
        bar.set_ylim(low, high)
        view.scale.set_data(colours(np.geomspace(low, high, 256)[:, None], objective_ms, (low, high)))
        if objective_ms is None:
            log_ticks(bar.yaxis, low, high, finest=FINE)
        else:
            bar.yaxis.set_major_locator(FixedLocator([low, objective_ms, high]))
            bar.yaxis.set_minor_locator(FixedLocator([]))
        bar.yaxis.set_major_formatter(tick_in(ms))
        view.unit.set_text(unit)

    def figure(self, surface: Any, cell: tuple[int, int]) -> str:
        """Return the number of a cell as the legend has it."""
        return duration(float(getattr(surface, self.column)[cell]))

    def said(self, surface: Any, cell: tuple[int, int]) -> str:
        """Return the number of a cell as a sentence has it."""
        lost = math.isinf(getattr(surface, self.column)[cell])
        return "more than 1 % are lost" if lost else f"{self.words} {self.figure(surface, cell)}"


class Goodput(P99):
    """The goodput of every cell: the more, the stronger the colour.

    Cells are within the objective where 99 of 100 requests keep both.
    """

    fails = "serves a request within both objectives"
    meets = "keep both objectives for 99 of 100 requests"

    def colours(self, values: np.ndarray, data: ViewData) -> np.ndarray:
        return shades(values, _highest(values))

    def within(self, values: np.ndarray, data: ViewData) -> np.ndarray:
        return np.asarray(data.surface.attainment >= MOST)

    def has_beyond(self, data: ViewData) -> bool:
        return False  # one colour, whose shade is the number

    def show_scale(self, view: "HeatMapView", bar: Axes, values: np.ndarray, data: ViewData) -> None:
        if view.hold("colours", highest := _highest(values)):
            bar.set_yscale("linear")
            bar.set_ylim(0, highest)
            view.scale.set_data(shades(np.linspace(0, highest, 256)[:, None], highest))
            bar.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
            bar.yaxis.set_minor_locator(FixedLocator([]))
            bar.yaxis.set_major_formatter(tick)
            view.unit.set_text("per s")

    def figure(self, surface: Any, cell: tuple[int, int]) -> str:
        return f"{rate(float(surface.goodput_per_s[cell]))} ({percent(float(surface.attainment[cell]))})"

    def said(self, surface: Any, cell: tuple[int, int]) -> str:
        share = percent(float(surface.attainment[cell]))
        return f"goodput {rate(float(surface.goodput_per_s[cell]))}, {share} of the requests"


def _highest(values: np.ndarray) -> float:
    return nice(float(np.nanmax(values, initial=0.0)))


# By `Surface.metric`.
MEASURES = {
    "p99_ms": P99("p99", "p99_ms", "objective_ms"),
    TTFT_P99: P99("p99 TTFT", TTFT_P99, "ttft_ms"),
    GOODPUT: Goodput("Goodput", GOODPUT, "ttft_ms"),
}


class HeatMapView(View):
    """The p99 of all requests over two parameters of the rule, as colours.

    A bold line surrounds the cells within the objective, dashed frames mark the cells that do not differ
    significantly from the best, and a star marks the best: the one that `tune` would choose among them.
    """

    KEY, NEEDS = "map", "surface"
    RANK = None
    ROOM, ROWS, SMALL_ROWS = LARGE._replace(left=4.2), 2, 1
    NAME, SHORT = "p99 of every setting at this load", "p99 by setting"
    BEST = "best 00.0 ms at 00, 00.0 ms"  # the widest text of the best setting in the legend

    def label(self, surface: Any, name: str) -> str:
        """Return the name of an axis, without its unit."""
        label: str = surface.scenario.rule.parameters()[name].label.removesuffix(" (ms)")
        return label[0].lower() + label[1:]

    def add_artists(self) -> None:
        theme, width = self.theme, self.line_px
        plot = self.plot_box = self.axes_box(right=BESIDE if self.large else 0)
        ax = self.ax = self.add_plot(plot, "", "", grid="", ticks=False)
        ax.spines[:].set_visible(False)
        self.image = _image(ax, np.zeros((1, 1, 4), dtype=np.uint8), zorder=1)
        # Cells without a number, by the reason.
        hatched: Style = {"facecolor": "none", "edgecolor": theme.grey, "linewidth": 0}
        hatches = {OVERLOADED: "////", REFUSED: "xx", LOSING: ".."}
        self.styles: dict[str, Style] = {name: hatched | {"hatch": each} for name, each in hatches.items()}
        self.styles[OVERLOADED]["facecolor"] = theme.faint
        # Without hue, green and brown far from the objective are equally dark: dots mark the brown ones.
        self.styles[BEYOND] = hatched | {"hatch": ".", "edgecolor": "#4D4D4D"}
        self.cells = {name: PathPatch(NOWHERE, zorder=2, **style) for name, style in self.styles.items()}
        # Each mark has a white and a coloured line, so that it is visible on dark cells and on bright ones.
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
        # Rings leave their cells visible; A's is larger, so that it is visible around the other.
        ring: Style = {"linestyle": "none", "markerfacecolor": "none", "markeredgewidth": 1.8 * width}
        self.ring_style = ring | {"marker": "o", "markersize": 5.5 * width, "markeredgecolor": BLACK}
        other = ring | {"marker": "s", "markersize": 6.5 * width, "markeredgecolor": theme.before}
        self.now, self.other = self._ring(self.ring_style, zorder=6), self._ring(other, zorder=5)
        star: Style = {"linestyle": "none", "marker": "*", "color": ORANGE, "markeredgecolor": BLACK}
        self.star_style = star | {"markersize": 8 * width}
        (self.star,) = ax.plot([], [], zorder=5, **self.star_style)
        self.set_moving(self.image, *patches, *self.now, *self.other, self.star)
        if not self.large:
            self.mark_names = Lettering(self.picture, self.em, BLACK, zorder=7, halo="white")
            self.set_moving(self.mark_names)
        self.shape = (0, 0)
        self.bar: Axes | None = None
        if self.large:
            self._add_colour_bar(Box(plot.right + 0.7 * self.em, plot.top, BAR * self.em, plot.height))

    def _ring(self, style: Style, zorder: float) -> list[Line2D]:
        white = style | {"markeredgecolor": "white", "markeredgewidth": 2.6 * self.line_px}
        pair = ((white, zorder), (style, zorder + 0.1))
        return [self.ax.plot([], [], zorder=above, **each)[0] for each, above in pair]

    def _add_colour_bar(self, box: Box) -> None:
        bar = self.bar = self.add_plot(box, "", "", grid="", numbers="y", right=True)
        bar.spines[:].set_visible(False)
        bar.xaxis.set_major_locator(FixedLocator([]))
        bar.set_xlim(0, 1)
        # An image in axes coordinates: the logarithmic scale would distort one in data coordinates.
        self.scale = _image(bar, np.zeros((1, 1, 4), dtype=np.uint8), zorder=0.5)
        self.scale.set_transform(bar.transAxes)
        below = box.left, box.bottom + 1.35 * self.em
        self.unit = self.add_text(*below, "ms", fontsize=self.em, color=self.theme.soft)

    def update(self, data: ViewData) -> None:
        surface = data.surface
        measure = MEASURES[surface.metric]
        if self.hold("measure", measure.words):
            of = "of every setting at this load" if self.large else "by setting"
            self.title.set_text(f"{measure.words} {of}")
        refused, values = surface.refused, measure.values(surface)
        rows, columns = self.shape = refused.shape
        self.image.set_data(measure.colours(values, data))
        self.image.set_extent((0, columns, 0, rows))
        overloaded, losing = surface.overloaded & ~refused, np.isinf(values)
        kinds = {OVERLOADED: overloaded, REFUSED: refused, LOSING: losing}
        within = measure.within(values, data)
        kinds[BEYOND] = np.isfinite(values) & ~within & (values > 0) & measure.has_beyond(data)
        for name, cells in kinds.items():
            self.cells[name].set_path(squares(cells))
            self.cells[name].set_visible(bool(cells.any()))  # a hatch takes time even without an area
        edges = border(within)
        for lines in self.border:
            lines.set_segments(edges)
        best, ties = surface.best(), surface.ties()
        kinds[TIED] = ties if ties.sum() > 1 else np.zeros_like(ties)
        for frames in self.ties:
            frames.set_visible(self.large and bool(kinds[TIED].any()))
            frames.set_path(squares(kinds[TIED], INSET))
        _place([self.star], best and (best[1] + 0.5, best[0] + 0.5))
        for marks, each in ((self.now, data), (self.other, data.other)):
            _place(marks, None if each is None else position(surface, each.result.scenario.rule))
        self._scale(surface)
        if not self.large:
            self._name_marks(data.pinned is not None)
        if self.bar is not None:
            measure.show_scale(self, self.bar, values, data)
        if self.large:
            entries = self._marks(data, best, data.other is not None and data.pinned is not None)
            entries += [Entry(name, self.styles[name]) for name, cells in kinds.items() if cells.any()]
            self.show_legend(entries)

    def _name_marks(self, pinned: bool) -> None:
        """Name the marks of a small view next to them: where no other mark or name is."""
        (rows, columns), box, em = self.shape, self.plot_box, self.em
        radius, high = 0.7 * em, 0.8 * em
        marks = {"B" if pinned else "now": self.now[0], "A" if pinned else "before": self.other[0]}
        spots = {}
        for name, mark in (marks | {"best": self.star}).items():
            for x, y in np.asarray(mark.get_data(), dtype=float).T:
                spots[name] = box.left + box.width * x / columns, box.bottom - box.height * y / rows
        taken = [Box(x - radius, y - radius, 2 * radius, 2 * radius) for x, y in spots.values()]
        labels = []
        for name, (x, y) in spots.items():
            wide = width_em(name) * em
            top = min(
                max(y - high / 2, box.top), box.bottom - high
            )  # within the map, next to a mark at its edge
            left = min(max(x - wide / 2, box.left), box.right - wide)
            beside = [(x + radius, top), (x - radius - wide, top)]
            beside += [(left, y + radius), (left, y - radius - high)]
            for place in (Box(left, top, wide, high) for left, top in beside):
                within = box.left <= place.left and place.right <= box.right
                inside = within and box.top <= place.top and place.bottom <= box.bottom
                if inside and not any(place.overlaps(each) for each in taken):
                    taken.append(place)
                    labels.append(Label(name, place.left, place.bottom))
                    break
        self.mark_names.show(labels)

    def _scale(self, surface: Any) -> None:
        if not self.hold("grid", (surface.x, surface.y, surface.x_values, surface.y_values)):
            return
        rows, columns = self.shape
        self.ax.set(xlim=(0, columns), ylim=(0, rows))
        horizontal = self.ax.xaxis, surface.x, surface.x_values, self.plot_box.width
        vertical = self.ax.yaxis, surface.y, surface.y_values, self.plot_box.height
        for axis, name, values, length in (horizontal, vertical):
            unit, texts = in_unit(name, values)
            label = self.label(surface, name) + (f" ({unit})" if unit else "")
            axis.set_label_text(label)
            # If the texts need more room than their cells, only every second or third is shown.
            room = 1.15 if name == surface.y else max(0.62 * len(text) + 0.4 for text in texts)
            step = math.ceil(room * self.em / (length / len(texts)))
            shown = range((len(texts) - 1) % step, len(texts), step)
            axis.set_major_locator(FixedLocator([i + 0.5 for i in shown]))
            axis.set_major_formatter(FixedFormatter([texts[i] for i in shown]))

    def _marks(self, data: ViewData, best: tuple[int, int] | None, pinned: bool) -> list[Entry]:
        entries = [Entry("B" if pinned else "now", self.ring_style | {"markeredgecolor": self.theme.ink})]
        if best is not None:
            at = ", ".join(self.setting(data.surface, best).values())
            style = self.star_style | {"markersize": 7 * self.line_px}
            figure = MEASURES[data.surface.metric].figure(data.surface, best)
            entries.append(Entry(self.BEST, style, f"best {figure} at {at}"))
        return entries

    def setting(self, surface: Any, cell: tuple[int, int]) -> dict[str, str]:
        """Return the value of each parameter of a cell by its label."""
        texts = {}
        for name, value in ((surface.x, surface.x_values[cell[1]]), (surface.y, surface.y_values[cell[0]])):
            write = typed_duration if name.endswith("_ms") and value < math.inf else level
            texts[self.label(surface, name)] = write(value)
        return texts

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        cell = self.cell_at(x_px, y_px)
        if cell is None:
            return None
        surface = data.surface
        setting = ", ".join(f"{name} {value}" for name, value in self.setting(surface, cell).items())
        if surface.refused[cell]:
            return Spot(self.KEY, f"{setting}: not possible", refused="This setting makes no sense here.")
        said = "overloaded" if surface.overloaded[cell] else MEASURES[surface.metric].said(surface, cell)
        # The map's rule: the state's may be another, whose run was refused.
        change = {"rule": surface.rules[cell[0] * self.shape[1] + cell[1]]}
        return Spot(self.KEY, f"{setting}: {said}. Click to try this setting.", change)

    def describe(self, data: ViewData) -> list[str]:
        surface, measure = data.surface, MEASURES[data.surface.metric]
        steady = ~(surface.overloaded | surface.refused)
        text = f"Of {int((~surface.refused).sum())} settings, each run with {surface.requests:,} requests,"
        best = surface.best()
        if best is None:
            text += f" none {measure.fails if steady.any() else 'keeps up'}"
        else:
            setting = ", ".join(map(" ".join, self.setting(surface, best).items()))
            text += f" the best is {setting}: {measure.said(surface, best)}"
            if tied := int(surface.ties().sum()) - 1:
                text += f"; {counted(tied, 'other')} {'does' if tied == 1 else 'do'} not differ significantly"
            if measure.limit_ms(data) is not None:
                text += f"; {int(measure.within(measure.values(surface), data).sum())} {measure.meets}"
        if surface.overloaded.any() and steady.any():
            text += f"; {int(surface.overloaded.sum())} are overloaded"
        return [f"{text}."]

    def cell_at(self, x_px: float, y_px: float) -> tuple[int, int] | None:
        """Return the (row, column) of the cell at these CSS pixels of the picture, None outside the map."""
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


def level(value: float) -> str:
    """Return a parameter's value as text; infinity is ∞."""
    return "∞" if math.isinf(value) else typed(float(f"{value:.10g}"))


def in_unit(name: str, values: Sequence[Any]) -> tuple[str, list[str]]:
    """Return the unit of a parameter's axis, "" for none, and the texts of the values in it.

    >>> in_unit("max_wait_ms", (0.0, 500.0, 2000.0, math.inf)), in_unit("max_batch_size", (8, 16))
    (('s', ['0', '0.5', '2', '∞']), ('', ['8', '16']))
    """
    longest = max(filter(math.isfinite, values), default=1.0)
    unit, ms = unit_of(longest) if name.endswith("_ms") else ("", 1.0)
    return unit, [level(value / ms) for value in values]


def position(surface: Any, rule: Rule) -> tuple[float, float] | None:
    """Return the place of a rule on the map, in cells, interpolated; None for a rule of another kind."""
    places = []
    for name, values in ((surface.x, surface.x_values), (surface.y, surface.y_values)):
        if name not in (field.name for field in dataclasses.fields(rule)):  # type: ignore[arg-type]
            return None
        value = getattr(rule, name)  # None: unlimited
        places.append(float(np.interp(math.inf if value is None else value, values, np.arange(len(values)))))
    return places[0] + 0.5, places[1] + 0.5


class TokenHeatMapView(HeatMapView):
    """Over two knobs of `Continuous`: goodput, where both objectives are set, else the p99 of TTFT."""

    NAME, SHORT = "Goodput of every setting at this load", "Goodput by setting"
    SMALL_ROOM = SMALL._replace(left=3.7)  # for budgets of five digits
    BEST = "best 00.0/s (00.0%) at 000, 00000"

    def label(self, surface: Any, name: str) -> str:
        if isinstance(surface.scenario.rule, Continuous):
            return name  # the servers' own
        return super().label(surface, name)
