"""The live heat map: a metric of a grid of settings, with the present one, the best one, and its ties."""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LogNorm, Normalize

from batchsim._format import counted, duration, number, percent, rate, tick_in, typed, typed_duration, unit_of
from batchsim.scenario import Continuous, Rule
from batchsim.study.kinds import GOODPUT, TTFT_P99
from batchsim.view.pictures.cells import COLOURS, GREENS, border, ends, on_white, squares
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import Spot, Style, Ticks, View
from batchsim.view.scales import FINE, TWO_DIGITS, log_ticks, nice, nice_span
from batchsim.view.theme import BLACK

OVERLOADED, REFUSED, LOSING = "cannot\nkeep up", "not\npossible", "too many\nlost"
ROOM = 0.12  # of the cells: a smaller region has no name
INSET = 0.12  # of a cell: how far inside it the frame of a tied one is


@dataclasses.dataclass(frozen=True)
class P99:
    """The p99 of a duration in every cell: green within its objective, white at it, brown beyond."""

    words: str
    limit: str  # the field of `ViewData` with the objective
    late: str = ""  # what else a cell is said to have
    fails = "serves 99 of 100 requests"  # after "none": in no cell
    meets = "meet the objective"
    alike = "differ significantly"  # after "do not"
    tie = "as good as the best"

    def limit_ms(self, data: ViewData) -> float | None:
        limit_ms: float | None = getattr(data, self.limit)
        return limit_ms

    def colours(self, values: np.ndarray, data: ViewData) -> tuple[Normalize, Colormap]:
        """Return the scale and its colours."""
        limit_ms = self.limit_ms(data)
        return LogNorm(*ends(values, limit_ms), clip=True), COLOURS if limit_ms else GREENS

    def within(self, data: ViewData) -> np.ndarray:
        """Return which cells are within the objective."""
        limit_ms = self.limit_ms(data)
        return np.asarray(data.surface.within(limit_ms) & (limit_ms is not None))

    def unit(self, most: float) -> tuple[str, float]:
        """Return the unit of the bar of colours, and its size in that of the values."""
        return unit_of(most)

    def said(self, surface: Any, cell: tuple[int, int]) -> str:
        """Return the number of a cell as a sentence has it."""
        ms = float(surface.values[cell])
        return "more than 1 % are lost" if math.isinf(ms) else f"{self.words} {duration(ms)}"


class Goodput(P99):
    """The goodput of every cell: the more, the stronger the colour.

    Cells are within the objective where 99 of 100 requests keep both.
    """

    fails = "serves a request within both objectives"
    meets = "keep both objectives for 99 of 100 requests"

    def colours(self, values: np.ndarray, data: ViewData) -> tuple[Normalize, Colormap]:
        return Normalize(0, nice(float(np.nanmax(values, initial=0.0))), clip=True), GREENS.reversed()

    def unit(self, most: float) -> tuple[str, float]:
        return "per s", 1.0

    def said(self, surface: Any, cell: tuple[int, int]) -> str:
        share = percent(float(surface.attainment[cell]))
        return f"goodput {rate(float(surface.values[cell]))}, {share} of the requests"


class Energy(P99):
    """The energy of every cell: the less, the stronger the colour, within the objective or not."""

    fails = "serves 99 of 100 requests in time"
    alike = "differ by more than 1 %"
    tie = "within 1 % of the best"

    def colours(self, values: np.ndarray, data: ViewData) -> tuple[Normalize, Colormap]:
        least, most = (float(of(values, initial=at)) for of, at in ((np.nanmin, math.inf), (np.nanmax, 0.0)))
        return Normalize(*nice_span(least, most, TWO_DIGITS), clip=True), GREENS

    def unit(self, most: float) -> tuple[str, float]:
        return self.words.replace("Energy", "J"), 1.0

    def said(self, surface: Any, cell: tuple[int, int]) -> str:
        joules, late_ms = float(surface.values[cell]), float(surface.latency_ms[cell])
        return f"{number(joules)} {self.unit(0)[0]}, {self.late} {duration(late_ms)}"


# By `Surface.metric`.
MEASURES = {
    "p99_ms": P99("p99", "objective_ms"), TTFT_P99: P99("p99 TTFT", "ttft_ms"),
    GOODPUT: Goodput("Goodput", "ttft_ms"),
    "joules_per_request": Energy("Energy per request", "objective_ms", "p99"),
    "joules_per_token": Energy("Energy per token", "ttft_ms", "p99 TTFT"),
}  # fmt: skip


def values_of(surface: Any) -> np.ndarray:
    """Return the number of each cell, NaN where it has no steady state."""
    return np.where(surface.overloaded | surface.refused, np.nan, surface.values)


class HeatMapView(View):
    """The metric of a surface over two parameters of the rule, as colours.

    A bold line surrounds the cells within the objective, dashed frames mark the cells that do not differ
    significantly from the best, and a star marks the best: the one that `tune` would choose among them.
    """

    KEY, NEEDS = "map", "surface"
    RANK = None
    NAME, SHORT = "Every setting at this load", "By setting"

    def name(self, surface: Any, name: str) -> str:
        """Return the name of an axis, without its unit: of `Continuous`, the servers' own."""
        if isinstance(surface.scenario.rule, Continuous):
            return name
        label: str = surface.scenario.rule.parameters()[name].label.removesuffix(" (ms)")
        return label[0].lower() + label[1:]

    def title(self, data: ViewData) -> str:
        name, of = super().title(data), "of " * self.large
        lacks = self.lacks(data)
        return name if lacks else f"{MEASURES[data.surface.metric].words} {of}{name[0].lower()}{name[1:]}"

    def make(self) -> None:
        ax = self.ax
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        # As colours before they are enlarged, which is fast.
        cells: Style = {"origin": "lower", "aspect": "auto", "interpolation_stage": "rgba", "zorder": 1}
        self.image = self.put("image", partial(ax.imshow, np.zeros((1, 1)), interpolation="nearest", **cells))
        self.bar: Axes | None = None
        if self.large:
            self.bar = ax.inset_axes((1.015, 0, 0.025, 1))
            ax.figure.colorbar(self.image, cax=self.bar).outline.set_visible(False)
            self.reserve(ax, "100.000", 1.04, right=0.6)

    def update(self, data: ViewData) -> None:
        surface = data.surface
        measure, refused, values = MEASURES[surface.metric], surface.refused, values_of(surface)
        rows, columns = refused.shape
        (norm, colour_map), limit_ms = measure.colours(values, data), measure.limit_ms(data)
        if self.changed("colours", (measure.words, norm.vmin, norm.vmax, limit_ms)):
            self.image.set(norm=norm, cmap=colour_map)
            if self.bar is not None:
                self._mark_bar(self.bar, measure, norm, limit_ms)
        self.put("image", lambda: self.image).set_data(np.ma.masked_invalid(values))
        if self.changed("extent", (rows, columns)):
            self.image.set_extent((0, columns, 0, rows))
        # Cells without a number, by the reason: hatches are light, as colour alone cannot tell them apart.
        hatched: Style = {"facecolor": self.look.background, "edgecolor": self.look.ghost, "linewidth": 0}
        reasons = {
            OVERLOADED: (surface.overloaded & ~refused, {"facecolor": self.look.faint}),
            REFUSED: (refused, {"hatch": "xx"}), LOSING: (np.isinf(values), {"hatch": ".."}),
        }  # fmt: skip
        for name, (cells, style) in reasons.items():
            self.area(name, squares(cells), **hatched | style | {"zorder": 2})
            if self.large and cells.mean() > ROOM:
                row, column = np.argwhere(cells).mean(axis=0)
                room = cells[int(row), int(column)]
                middle: Style = {"ha": "center", "va": "center", "color": self.look.soft}
                self.annotate(("name", name), name * bool(room), column + 0.5, row + 0.5, **middle)
        best, ties = surface.best(limit_ms), surface.ties(limit_ms)
        tied = bool(ties.sum() > 1)
        width, line = self.line_pt / 1.4, Style(facecolor="none", edgecolor=BLACK)
        edge = line | {"linewidth": 1.4 * width, "capstyle": "projecting", "zorder": 3}
        self.area("border", border(measure.within(data)), path_effects=on_white(3.0 * width), **edge)
        if self.large and tied:
            frame = line | {"linewidth": 0.8 * width, "linestyle": (0, (2, 1.5)), "zorder": 4}
            self.area("ties", squares(ties, INSET), path_effects=on_white(0.8 * width), **frame)
        self._mark(data, best, columns)
        self._scale(surface, rows, columns, f", dashed: {measure.tie}" * (self.large and tied))

    def _mark_bar(self, bar: Axes, measure: P99, norm: Normalize, limit_ms: float | None) -> None:
        """Give the bar of the colours its ticks and its unit."""
        logarithmic, (low, high) = isinstance(norm, LogNorm), bar.get_ylim()
        unit, size = measure.unit(high)
        above: Style = {"loc": "left", "pad": 0.7 * self.em}
        bar.set_title(unit, size=self.em, weight="normal", color=self.look.soft, **above)
        if not logarithmic:
            bar.yaxis.set_major_locator(Ticks(5))
        elif limit_ms is None:
            log_ticks(bar.yaxis, finest=FINE)
        else:
            bar.set_yticks([low, limit_ms, high])
        bar.minorticks_off()
        bar.yaxis.set_major_formatter(tick_in(size))

    def _mark(self, data: ViewData, best: tuple[int, int] | None, columns: int) -> None:
        """Mark settings; name the marks, right or left of each, but not where another one is as near."""
        width, pinned = self.line_pt / 1.4, data.pinned is not None
        ring: Style = {"markerfacecolor": "none", "markeredgewidth": 1.8 * width}
        ring["path_effects"] = on_white(2.6 * width)
        now = self.mark("o", 4, "ink", zorder=6, **ring) | {"color": BLACK}
        other = self.mark("s", 4.6, "before", zorder=5, **ring)
        star = self.mark("*", 5.7, "orange", zorder=5, markeredgecolor=BLACK, markeredgewidth=0.6 * width)
        at = position(data.surface, data.result.scenario.rule)
        of_other = None if data.other is None else position(data.surface, data.other.result.scenario.rule)
        marks = {
            "now": (at, "B" if pinned else "now", now), "other": (of_other, "A" * pinned, other),
            "best": (best and (best[1] + 0.5, best[0] + 0.5), "best", star),
        }  # fmt: skip
        taken: list[tuple[float, float]] = []
        for mark, (place, name, look) in marks.items():
            if place is None:
                continue
            self.plot(mark, [place[0]], [place[1]], **look)
            if name and all(abs(place[0] - x) > 0.3 * columns or abs(place[1] - y) > 1 for x, y in taken):
                taken.append(place)
                left = place[0] > 0.7 * columns
                halo: Style = {"bbox": self.halo | {"facecolor": "white", "alpha": 0.75}, "color": BLACK}
                side, ems = ("right", -0.7) if left else ("left", 0.7)
                self.annotate(("name", mark), name, *place, ems, ha=side, va="center", **halo)

    def _scale(self, surface: Any, rows: int, columns: int, note: str) -> None:
        if self.changed("grid", (surface.x, surface.y, surface.x_values, surface.y_values, note)):
            self.ax.set(xlim=(0, columns), ylim=(0, rows))
            box = self.ax.bbox
            for axis, name, values, length in (
                (self.ax.xaxis, surface.x, surface.x_values, box.width),
                (self.ax.yaxis, surface.y, surface.y_values, box.height),
            ):
                unit, texts = in_unit(name, values)
                label = self.name(surface, name) + (f" ({unit})" if unit else "")
                if axis is self.ax.xaxis:
                    label += note
                axis.set_label_text(label)
                # If the texts need more room than their cells, only every second or third is shown.
                room = 1.15 if axis is self.ax.yaxis else max(0.62 * len(text) + 0.4 for text in texts)
                step = math.ceil(room * self.em_px / (length / len(texts)))
                shown = range((len(texts) - 1) % step, len(texts), step)
                axis.set_ticks([i + 0.5 for i in shown], [texts[i] for i in shown])

    def setting(self, surface: Any, cell: tuple[int, int]) -> dict[str, str]:
        """Return the value of each parameter of a cell by its label."""
        texts = {}
        for name, value in ((surface.x, surface.x_values[cell[1]]), (surface.y, surface.y_values[cell[0]])):
            write = typed_duration if name.endswith("_ms") and value < math.inf else level
            texts[self.name(surface, name)] = write(value)
        return texts

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        surface, cell = data.surface, (int(y), int(x))
        if ax is not self.ax or not (0 <= x < surface.refused.shape[1] and 0 <= y < surface.refused.shape[0]):
            return None
        setting = ", ".join(f"{name} {value}" for name, value in self.setting(surface, cell).items())
        if surface.refused[cell]:
            return Spot(self.KEY, f"{setting}: not possible", refused="This setting makes no sense here.")
        said = "overloaded" if surface.overloaded[cell] else MEASURES[surface.metric].said(surface, cell)
        # The map's rule: the state's may be another, whose run was refused.
        change = {"rule": surface.rules[cell[0] * len(surface.x_values) + cell[1]]}
        return Spot(self.KEY, f"{setting}: {said}. Click to try this setting.", change)

    def describe(self, data: ViewData) -> list[str]:
        surface, measure = data.surface, MEASURES[data.surface.metric]
        steady = ~(surface.overloaded | surface.refused)
        settings, each = int((~surface.refused).sum()), counted(surface.requests, "request")
        text = f"{counted(settings, 'setting')}, each run with {each}:"
        best = surface.best(measure.limit_ms(data))
        if best is None:
            text += f" none {measure.fails if steady.any() else 'keeps up'}"
        else:
            setting = ", ".join(map(" ".join, self.setting(surface, best).items()))
            text += f" the best is {setting}: {measure.said(surface, best)}"
            if tied := int(surface.ties(measure.limit_ms(data)).sum()) - 1:
                text += f"; {counted(tied, 'other')} {'does' if tied == 1 else 'do'} not {measure.alike}"
            if measure.limit_ms(data) is not None:
                text += f"; {int(measure.within(data).sum()) or 'none'} {measure.meets}"
        if surface.overloaded.any() and steady.any():
            text += f"; {int(surface.overloaded.sum())} are overloaded"
        return [f"{text}."]


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
