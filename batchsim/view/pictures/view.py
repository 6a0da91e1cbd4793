"""The base of all views of a run: a title, axes that keep their limits, labels, a description in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from batchsim._format import tick, tick_in, unit_of
from batchsim.view.canvas.axes import Marks
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import PHASES
from batchsim.view.pictures.data import ViewData

if TYPE_CHECKING:
    from batchsim.theory import Answer

TITLE, NOTE, ROW = 1.45, 3.0, 1.4  # baselines from the upper edge, and between rows of a legend, in ems
SWATCH, GAP, NEXT = 1.3, 0.35, 0.8  # of a legend, in ems: a swatch, the gaps to its name and the next entry
TWO = 44  # the least width of a view with two axes side by side, in ems

Style = dict[str, Any]
Heights = tuple[np.ndarray, np.ndarray]  # of bars, and their edges


class Room(NamedTuple):
    """The room around the axes of a view, in ems."""

    left: float
    top: float
    right: float
    bottom: float


LARGE, SMALL = Room(3.6, 5.0, 1.2, 3.2), Room(2.9, 2.2, 1.0, 3.0)
SMALL_SWATCH, SMALL_ROW, SMALL_NEXT = 0.8, 1.3, 0.6  # the legend of a small view


class Spot(NamedTuple):
    """The answer to a pointer: the view, a text, and the settings that a click changes.

    Without a `change` a click enlarges the view; `refused` is why this place cannot be chosen.
    """

    view: str
    text: str
    change: dict[str, Any] | None = None
    refused: str = ""


@dataclass(frozen=True)
class Entry:
    """An entry of a legend: a swatch and a name, or a value.

    `style` holds the options of a line (`linestyle`, `marker` ...) or of a patch (`facecolor`, `hatch` ...);
    its `share` is the patch's part of the full height. An entry with a `value` shows it; its `text` is then
    the widest value, which determines the room.
    """

    text: str
    style: Style = field(default_factory=dict)
    value: str | None = field(default=None, compare=False)  # a new value leaves the legend where it is


class View(Tile):
    """One subject of a picture: `update` draws the data, and `describe` describes it in words.

    A large view has numbers, names and notes; a small one names its axes and what it draws. Axes only grow
    until `release` lets them shrink: with new limits at every move, a falling curve would not look lower.
    """

    KEY: ClassVar[str]
    NAME: ClassVar[str]  # the title of the large view
    SHORT: ClassVar[str]  # and of the small one
    ROOM, SMALL_ROOM = LARGE, SMALL  # around the axes of a large view, and of a small one
    ROWS, SMALL_ROWS = 1, 0  # of the legend of a large view, and of a small one, or for labels above its axes
    NEEDS: ClassVar[str] = ""  # what the data must have for it to draw; else it says `LACKS`
    LACKS: ClassVar[str] = "only for rules with a fast engine"
    RANK: ClassVar[int | None] = 9  # its place in `bs.plot`; None: it needs more than a result
    server = 0  # the one whose steps are shown
    plot_box: Box  # of the axes
    lack: Text | None = None  # the line of a view whose data lack what it draws
    hidden: Sequence[Artist] = ()  # meanwhile

    def __init__(self, picture: Picture, box: Box, line_px: float, large: bool = True) -> None:
        super().__init__(picture, box)
        self.em, self.line_px, self.large = picture.font_px, line_px, large
        left, top = box.left + 0.8 * self.em, box.top + TITLE * self.em
        title = self.NAME if large else self.SHORT
        size_px = min(1.1 if large else 1.0, (box.width / self.em - 1) / width_em(title, "bold")) * self.em
        self.title = self.add_text(left, top, title, weight="bold", fontsize=size_px)
        self.marks: list[Marks] = []
        self.entries: tuple[Entry, ...] = ()
        self.swatches: list[Artist] = []
        self.slots: list[tuple[float, float]] = []  # the places of the legend's values
        self.names = Lettering(picture, self.em, self.theme.ink)
        self.values = Lettering(picture, self.em, self.theme.ink, zorder=7)
        self.fixed.append(self.names)
        self.set_moving(self.values)
        self.held: dict[str, tuple[Any, tuple[float, float]]] = {}
        theme = self.theme  # styles that all views share
        self.now_style = self.line_style("now", "-", 1.4)
        self.objective_style = self.line_style("objective", "-", 1.2)
        self.other_styles: dict[bool, Style] = {  # whether it is A, which is pinned
            True: {"color": theme.ink, "linestyle": "--", "linewidth": 0.8 * line_px},
            False: {"color": theme.ghost, "linestyle": "-", "linewidth": 2.0 * line_px},
        }
        self.add_artists()
        # The request that the reader follows: a frame over the height of the axes.
        style: Style = {"edgecolor": theme.vermilion, "linewidth": 1.5 * line_px, "fill": False, "zorder": 6}
        ax = self.axes[0]
        self.frame = ax.add_patch(Rectangle((0, 0), 0, 1, transform=ax.get_xaxis_transform(), **style))
        self.set_moving(self.frame)

    def add_artists(self) -> None:
        """Make the axes and all artists, empty."""
        raise NotImplementedError

    def update(self, data: ViewData) -> None:
        raise NotImplementedError

    def followed(self, data: ViewData) -> tuple[float, float] | None:
        """Return where the request that the reader follows is, from left to right; None for nowhere."""
        return None

    def show_followed(self, data: ViewData) -> None:
        """Frame the request that the reader follows."""
        found = None if math.isnan(data.followed_ms) else self.followed(data)
        left, right = found or (0.0, 0.0)
        self.frame.set(x=left, width=right - left, visible=found is not None)

    def describe(self, data: ViewData) -> list[str]:
        """Return a description of what the view shows, in sentences."""
        raise NotImplementedError

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        """Return what is at these CSS pixels of the picture; None for nothing."""
        return None

    def across(self, x_px: float, y_px: float) -> float | None:
        """Return a place as a fraction of the width of the axes; None outside them."""
        box = self.plot_box
        across = (x_px - box.left) / box.width
        return across if 0 <= across < 1 and box.top <= y_px <= box.bottom else None

    def show_intervals(self, data: ViewData) -> None:
        """Add the intervals that `bs.plot` shows."""

    def show_theory(self, answer: "Answer", data: ViewData) -> None:
        """Add what theory expects."""

    def line_style(self, colour: str, linestyle: Any = "-", width: float = 1.0) -> Style:
        colour = getattr(self.theme, colour)
        return {"color": colour, "linestyle": linestyle, "linewidth": width * self.line_px}

    def add_preemptions(self, ax: Axes, edge: float = 0.5) -> Line2D:
        """Add marks of preemptions, and keep their style for the legend as `mark`."""
        colour = getattr(self.theme, PHASES["preempted"].colour)
        mark: Style = {"linestyle": "none", "marker": "v", "color": colour}
        self.mark = mark | {"markeredgecolor": self.theme.ink, "markeredgewidth": edge * self.line_px}
        return ax.plot([], [], zorder=4, markersize=4 * self.line_px, **self.mark)[0]

    def other_style(self, data: ViewData) -> Style:
        """Return the style of the comparison: A, or the setting before."""
        return self.other_styles[data.pinned is not None]

    # Axes.

    def axes_box(self, right: float = 0.0, top: float = 0.0) -> Box:
        """Return the box of the view's axes, with additional room `right` and `top`, in ems."""
        box, em, room = self.box, self.em, self.ROOM if self.large else self.SMALL_ROOM
        width = box.width - (room.left + room.right + right) * em
        top += room.top + (ROW * (self.ROWS - 1) if self.large else SMALL_ROW * self.SMALL_ROWS)
        height = box.height - (top + room.bottom) * em
        return Box(box.left + room.left * em, box.top + top * em, width, height)

    def two_boxes(self, beside: float, below: float) -> tuple[Box, Box]:
        """Return two boxes for axes, so many ems apart: side by side in a wide view, else below another."""
        whole, em = self.axes_box(), self.em
        if self.box.width >= TWO * em:
            width = (whole.width - beside * em) / 2
            return whole._replace(width=width), whole._replace(left=whole.right - width, width=width)
        height = (whole.height - below * em) / 2
        return whole._replace(height=height), whole._replace(top=whole.bottom - height, height=height)

    def add_plot(self, box: Box, x_label: str, y_label: str, **marks: Any) -> Axes:
        """Return axes in the style of all views, with `Marks` around them."""
        ax = self.add_axes(box)
        ax.set(xlabel=x_label, ylabel=y_label)
        ax.spines["left"].set_visible(False)
        for axis, length in ((ax.xaxis, box.width), (ax.yaxis, box.height)):
            most = max(min(int(length / (4.5 * self.em)), 5), 2)
            axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
            axis.set_major_formatter(tick)
        left = box.left if self.large else self.box.left + 0.8 * self.em
        self.marks.append(Marks(self, ax, box, left, **marks))
        return ax

    def refresh(self) -> None:
        for marks in self.marks:
            marks.refresh()

    def set_limits(self, ax: Axes, kind: Any = None, **limits: tuple[float, float]) -> None:
        """Set the limits of axes, `x` and `y`, widened to those before if these are of the same `kind`.

        Limits that stay the same make no tile stale.
        """
        for name, wanted in limits.items():
            what = f"{name}{self.axes.index(ax)}"
            before, ends = self.held.get(what, (None, wanted))
            if before == kind and what in self.held:
                wanted = self._grown(ends, wanted)
            self.held[what] = kind, wanted
            if self.hold(what, wanted):
                ax.set(**{f"{name}lim": wanted})

    def _grown(self, held: tuple[float, float], wanted: tuple[float, float]) -> tuple[float, float]:
        """Return limits that include both; those of an inverted axis fall."""
        if wanted[0] > wanted[1]:
            return max(held[0], wanted[0]), min(held[1], wanted[1])
        return min(held[0], wanted[0]), max(held[1], wanted[1])

    def lacks(self, data: ViewData) -> bool:
        """Return whether the data lacks what this view draws."""
        return bool(self.NEEDS) and getattr(data, self.NEEDS) is None

    def show(self, data: ViewData) -> None:
        """Draw the data, or a line if they lack what is drawn."""
        lacks = self.lacks(data)
        if self.hold("lacks", lacks):
            if lacks:
                shown = (each for each in (*self.axes, *self.fixed, *self.moving) if each is not self.title)
                self.hidden = [artist for artist in shown if artist.get_visible()]
                place = self.box.left + 0.8 * self.em, self.box.top + (TITLE + 1.6) * self.em
                self.lack = self.add_text(*place, self.LACKS, fontsize=self.em, color=self.theme.soft)
            elif self.lack is not None:
                self.remove([self.lack])
            for artist in self.hidden:
                artist.set_visible(not lacks)
        if not lacks:
            self.update(data)
            self.show_followed(data)

    def release(self, data: ViewData) -> None:
        """Let axes shrink to the present data."""
        self.held.clear()
        self.show(data)

    def set_label(self, axis: Any, label: str, upper_ms: float | None = None) -> None:
        """Label an axis; an axis of durations up to `upper_ms` has a suitable unit."""
        unit, ms = ("", 1.0) if upper_ms is None else unit_of(upper_ms)
        if self.hold(f"label of {axis.axis_name}{self.axes.index(axis.axes)}", (label, unit)):
            axis.set_major_formatter(tick_in(ms))
            axis.set_label_text(f"{label} ({unit})" if unit and label else label)
            if "(ms)" in self.SHORT and unit and not self.large:
                self.title.set_text(self.SHORT.replace("(ms)", f"({unit})"))

    def name_server(self, servers: int) -> None:
        """Name the server in the title of a small view, if there are several and the title has room."""
        if not self.large and self.hold("server", servers > 1):
            text = f"{self.SHORT}, server {self.server + 1:,}"
            fits = (1 + width_em(text, "bold")) * self.em <= self.box.width
            self.title.set_text(text if servers > 1 and fits else self.SHORT)

    # The legend: its names are fixed artists, its values are moving ones in fixed places.

    def show_legend(self, entries: Sequence[Entry], extra: Sequence[Label] = ()) -> None:
        """Show entries below the title, in a small view without values; `extra`: moving labels elsewhere."""
        self.entries = tuple(entry for entry in entries if self.large or entry.style)
        if self.hold("legend", self.entries):
            self.remove(self.swatches)
            self.swatches, self.slots = [], []
            with self.picture.styled():
                self._lay_out()
        values = [entry.value for entry in self.entries if entry.value is not None]
        labels = [Label(value, *slot) for value, slot in zip(values, self.slots, strict=self.large)]
        self.values.show([*labels, *extra])

    def _lay_out(self) -> None:
        """Place the entries in up to `ROWS` rows, and shrink them if they are still too wide."""
        names: list[Label] = []
        if not self.large:
            return self._lay_out_small()
        room, rows = self.box.width - 1.6 * self.em, [[]]  # type: tuple[float, list[list[Entry]]]
        for entry in self.entries:
            if len(rows) < self.ROWS and sum(map(self._width, [*rows[-1], entry])) > room:
                rows.append([])
            rows[-1].append(entry)
        shrink = min(1.0, room / max(*(sum(map(self._width, row)) for row in rows), 1))
        for lettering in (self.names, self.values):
            lettering.set_size(shrink * self.em)
        for number, row in enumerate(rows):
            x, y = self.box.left + 0.8 * self.em, self.box.top + (NOTE + ROW * number) * self.em
            for entry in row:
                begin = x
                if entry.style:
                    self.swatches.append(self.add(_swatch(entry.style, x, y, shrink * self.em)))
                    begin += shrink * self.em * (SWATCH + GAP)
                if entry.value is None:
                    names.append(Label(entry.text, begin, y))
                else:
                    self.slots.append((begin, y))
                x += self._width(entry) * shrink
        self.names.show(names)

    def _lay_out_small(self) -> None:
        """Place each entry in the first of `SMALL_ROWS` rows that has room, and leave out those without."""
        names, em = [], self.em
        ends = [self.box.left + 0.8 * em] * self.SMALL_ROWS
        for entry in self.entries:
            room = (SMALL_SWATCH + GAP + width_em(entry.text)) * em
            fit = [row for row, end in enumerate(ends) if end + room <= self.box.right - 0.3 * em]
            if fit:
                x, y = ends[fit[0]], self.box.top + (TITLE + SMALL_ROW * (fit[0] + 1)) * em
                self.swatches.append(self.add(_swatch(entry.style, x, y, em, SMALL_SWATCH)))
                names.append(Label(entry.text, x + (SMALL_SWATCH + GAP) * em, y))
                ends[fit[0]] += room + SMALL_NEXT * em
        self.names.show(names)

    def _width(self, entry: Entry) -> float:
        return self.em * (width_em(entry.text) + NEXT + (SWATCH + GAP if entry.style else 0))


class StackedView(View):
    """A view of stacked bars, with the outline of another setting's total over them."""

    def add_bars(self, ax: Axes, colours: Mapping[Any, tuple[str, str]]) -> None:
        """Add bars from the bottom up: by key, a colour of the theme and a hatch."""
        self.styles: dict[Any, Style] = {}
        self.bars: dict[Any, StepPatch] = {}
        edge: Style = {"edgecolor": self.theme.background, "linewidth": 0}
        for key, (colour, hatch) in colours.items():
            style = self.styles[key] = edge | {"facecolor": getattr(self.theme, colour), "hatch": hatch}
            self.bars[key] = ax.stairs([0], [0, 1], baseline=[0], fill=True, zorder=2, **style)
        self.other_total = ax.stairs([0], [0, 1], baseline=None, zorder=3)
        self.set_moving(*self.bars.values(), self.other_total)

    def show_bars(self, heights: np.ndarray, edges: np.ndarray, other: Heights | None, style: Style) -> float:
        """Draw heights, shape (bars' keys, bars), and another setting's total; return the highest."""
        tops = np.cumsum(heights, axis=0)
        for bars, height, top in zip(self.bars.values(), heights, tops, strict=True):
            bars.set_visible(bool(height.any()))
            bars.set_data(top, edges, baseline=top - height)
        self.other_total.set_visible(other is not None)
        if other is not None:
            self.other_total.set_data(*other)
            self.other_total.set(**outline(style))
        return float(max(tops.max(), 0 if other is None else other[0].max()))


def outline(style: Style) -> Style:
    """Return the style of a line for the outline of bars."""
    return {"edgecolor": style["color"], **{key: style[key] for key in ("linestyle", "linewidth")}}


def _swatch(style: Style, x: float, y: float, em: float, wide_em: float = SWATCH) -> Artist:
    middle, wide = y - 0.33 * em, wide_em * em
    if "facecolor" in style:
        half = 0.38 * em * style.get("share", 1)
        rest = {name: value for name, value in style.items() if name != "share"}
        return Rectangle((x, middle - half), wide, 2 * half, **rest)
    xs = [x, x + wide / 2, x + wide]
    return Line2D(xs, [middle] * 3, solid_capstyle="butt", markevery=[1], **style)
