"""What all views of a run share: a title, a legend of two rows, axes, and the same picture in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.ticker import MaxNLocator

from batchsim._format import tick, tick_in, unit_of
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.marks import SMALL, Marks
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.run.data import ViewData

TITLE, ROWS, TOP = 1.45, (2.95, 4.3), 5.0  # baselines from the upper edge, and where the axes begin: in ems
LEFT, RIGHT, BOTTOM = 4.5, 1.8, 3.0  # room around the axes, in ems
SWATCH, GAP, NEXT = 1.3, 0.35, 0.6  # of a legend, in ems: a swatch, the gaps to its name and the next entry

Style = dict[str, Any]
Steps = tuple[np.ndarray, np.ndarray]  # heights, and the edges of their bars
AnyView = TypeVar("AnyView", bound="View")


@dataclass(frozen=True)
class Entry:
    """A name in a legend, with the style of what it names.

    `style` holds the options of a line (`linestyle`, `marker` ...) or of a patch (`facecolor`, `hatch` ...).
    An entry with a `value` shows that; its `text` is the widest value, for which room is kept.
    """

    text: str
    style: Style = field(default_factory=dict)
    value: str | None = field(default=None, compare=False)  # a new value leaves the legend where it is


NEW_ROW = Entry("\n")  # what follows begins the second row


class View(Tile):
    """One subject of the picture: `update` draws the data, and `describe` says in words what it shows."""

    NAME: ClassVar[str]

    def __init__(self, picture: Picture, box: Box, line_px: float) -> None:
        super().__init__(picture, box)
        self.em, self.line_px = picture.font_px, line_px
        left, top = box.left + self.em, box.top + TITLE * self.em
        self.title = self.add_text(left, top, self.NAME, weight="bold", fontsize=1.05 * self.em)
        self.marks: list[Marks] = []
        self.entries: tuple[Entry, ...] = ()
        self.swatches: list[Artist] = []
        self.slots: list[tuple[float, float]] = []  # where the values of the legend stand
        self.names = Lettering(picture, SMALL * self.em, self.theme.ink)
        self.values = Lettering(picture, SMALL * self.em, self.theme.ink, zorder=7)
        self.fixed.append(self.names)
        self.set_moving(self.values)
        # A, the pinned setting, and the objective look the same in every view.
        self.a_style: Style = {"color": self.theme.ink, "linestyle": "--", "linewidth": 0.8 * line_px}
        self.objective_style = self.line_style("orange", "-", 1.4)
        self.add_artists()

    def add_artists(self) -> None:
        """Make the axes and all artists, empty."""
        raise NotImplementedError

    def update(self, data: ViewData) -> None:
        raise NotImplementedError

    def describe(self, data: ViewData) -> list[str]:
        """Return what the view shows of the data, as sentences."""
        raise NotImplementedError

    def line_style(self, colour: str, linestyle: Any = "-", width: float = 1.0) -> Style:
        colour = getattr(self.theme, colour)
        return {"color": colour, "linestyle": linestyle, "linewidth": width * self.line_px}

    # Axes. Their limits change in steps, so that they hold still while a slider moves a little.

    def axes_box(self, right: float = RIGHT) -> Box:
        """Return where the view's axes are; `right` is the room beside them, in ems."""
        box, em = self.box, self.em
        width, height = box.width - (LEFT + right) * em, box.height - (TOP + BOTTOM) * em
        return Box(box.left + LEFT * em, box.top + TOP * em, width, height)

    def add_plot(self, box: Box, x_label: str, y_label: str, **marks: Any) -> Axes:
        """Return axes in the style of all views, with `Marks` round them."""
        ax = self.add_axes(box)
        ax.set(xlabel=x_label, ylabel=y_label)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
            axis.set_major_formatter(tick)
        label_at = self.box.left + 1.25 * self.em, self.box.bottom - 0.7 * self.em
        self.marks.append(Marks(self, ax, box, label_at, **marks))
        return ax

    def refresh(self) -> None:
        for marks in self.marks:
            marks.refresh()

    def set_limits(self, ax: Axes, **limits: tuple[float, float]) -> None:
        """Give axes their limits, `x` and `y`; nothing is drawn anew where these stay."""
        for name, ends in limits.items():
            if self.hold(f"{name}{self.axes.index(ax)}", ends):
                ax.set(**{f"{name}lim": ends})

    def set_label(self, axis: Any, label: str, upper_ms: float | None = None) -> None:
        """Label an axis; one of durations up to `upper_ms` has the unit that suits them."""
        unit, ms = ("", 1.0) if upper_ms is None else unit_of(upper_ms)
        if self.hold(f"label of {axis.axis_name}{self.axes.index(axis.axes)}", (label, unit)):
            axis.set_major_formatter(tick_in(ms))
            axis.set_label_text(f"{label} ({unit})" if unit else label)

    # The legend: names are written once, values have a fixed place.

    def show_legend(self, entries: Sequence[Entry], extra: Sequence[Label] = ()) -> None:
        """Show the entries in two rows; `extra` are moving labels elsewhere."""
        self.entries = tuple(entries)
        if self.hold("legend", self.entries):
            self.remove(self.swatches)
            self.swatches, self.slots = [], []
            with self.picture.styled():
                self._lay_out()
        values = [entry.value for entry in self.entries if entry.value is not None]
        labels = [Label(value, *slot) for value, slot in zip(values, self.slots, strict=True)]
        self.values.show([*labels, *extra])

    def _lay_out(self) -> None:
        room = self.box.width - 1.3 * self.em
        rows = self._rows(room)
        longest = max(sum(map(self._width, row)) for row in rows)
        shrink = min(1.0, room / longest) if longest else 1.0
        for lettering in (self.names, self.values):
            lettering.set_size(SMALL * self.em * shrink)
        names: list[Label] = []
        for row, down in zip(rows, ROWS, strict=False):
            x, y = self.box.left + self.em, self.box.top + down * self.em
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

    def _rows(self, room: float) -> list[list[Entry]]:
        """Return the entries of each row; without a `NEW_ROW` the first takes as many as fit."""
        if NEW_ROW in self.entries:
            cut = self.entries.index(NEW_ROW)
            return [list(self.entries[:cut]), list(self.entries[cut + 1 :])]
        rows: list[list[Entry]] = [[]]
        for entry in self.entries:
            if sum(map(self._width, [*rows[-1], entry])) > room and len(rows) < len(ROWS):
                rows.append([])
            rows[-1].append(entry)
        return rows

    def _width(self, entry: Entry) -> float:
        return self.em * (SMALL * width_em(entry.text) + NEXT + (SWATCH + GAP if entry.style else 0))


class StackedView(View):
    """A view of bars on top of each other, with the outline of A's total over them."""

    def add_bars(self, ax: Axes, colours: Mapping[Any, tuple[str, str]]) -> None:
        """Add bars from the bottom up, each by its key: a colour of the theme and a hatch."""
        self.styles: dict[Any, Style] = {}
        self.bars: dict[Any, StepPatch] = {}
        edge: Style = {"edgecolor": self.theme.background, "linewidth": 0}
        for key, (colour, hatch) in colours.items():
            style = self.styles[key] = edge | {"facecolor": getattr(self.theme, colour), "hatch": hatch}
            self.bars[key] = ax.stairs([0], [0, 1], baseline=[0], fill=True, zorder=2, **style)
        self.a_total = ax.stairs([0], [0, 1], baseline=None, zorder=3, **self.a_style)
        self.set_moving(*self.bars.values(), self.a_total)

    def show_bars(self, heights: np.ndarray, edges: np.ndarray, a: Steps | None) -> float:
        """Draw heights, shape (bars' keys, bars), and A's total; return the highest."""
        tops = np.cumsum(heights, axis=0)
        for bars, height, top in zip(self.bars.values(), heights, tops, strict=True):
            bars.set_visible(bool(height.any()))
            bars.set_data(top, edges, baseline=top - height)
        self.a_total.set_visible(a is not None)
        if a is not None:
            self.a_total.set_data(*a)
        return float(max(tops.max(), 0 if a is None else a[0].max()))


def _swatch(style: Style, x: float, y: float, em: float) -> Artist:
    middle, wide = y - 0.33 * em, SWATCH * em
    if "facecolor" in style:
        return Rectangle((x, middle - 0.38 * em), wide, 0.76 * em, **style)
    xs = [x, x + wide / 2, x + wide]
    return Line2D(xs, [middle] * 3, solid_capstyle="butt", markevery=[1], **style)


class RunPicture(Picture):
    """A picture made of views of one run, row by row."""

    views: tuple[View, ...] = ()

    def add_views(self, kinds: Sequence[type[View]], columns: int, row_px: int, line_px: float) -> None:
        edges = list(pairwise(round(self.width_px * edge / columns) for edge in range(columns + 1)))
        boxes = (Box(x, row * row_px, end - x, row_px) for row in range(len(kinds)) for x, end in edges)
        with self.styled():
            self.views = tuple(kind(self, box, line_px) for kind, box in zip(kinds, boxes, strict=False))

    def view(self, kind: type[AnyView]) -> AnyView:
        return next(view for view in self.views if isinstance(view, kind))

    def show(self, data: ViewData) -> None:  # type: ignore[override]  # Figure.show is pyplot's
        for view in self.views:
            view.update(data)

    def describe(self, data: ViewData) -> str:
        """Return what the picture shows, in sentences: the same information for the ear as for the eye."""
        return " ".join(sentence for view in self.views for sentence in view.describe(data))
