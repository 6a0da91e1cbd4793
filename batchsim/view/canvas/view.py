"""What all views of a run share: their place, their rows of names, and their numbers in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator

from batchsim._format import tick, tick_in, unit_of
from batchsim.result import Result
from batchsim.view.canvas.lettering import Lettering, Words, width_em
from batchsim.view.canvas.marks import SMALL, Marks
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

__all__ = ["BLACK", "BLUE", "GREEN", "GREY", "ORANGE", "PURPLE", "SKY", "VERMILION"]

# From so many milliseconds on, the unit in which a person reads them, and how many it has.
TITLE, ROWS, TOP = 1.45, (2.95, 4.3), 5.0  # baselines from the upper edge, and where the axes begin: in ems
LEFT, RIGHT, BOTTOM = 4.5, 1.8, 3.0  # room beside and below the axes
SWATCH, GAP, NEXT = 1.3, 0.35, 0.6  # of a row of names


@dataclass(frozen=True)
class Name:
    """A name in a view's rows, with what it names.

    `text` is what stands there, or the widest that ever does if `moves`. `mark` are the options of a line
    (`linestyle`, `marker` ...) or of a patch (`facecolor`, `hatch` ...).
    """

    text: str
    mark: tuple[tuple[str, Any], ...] = ()
    moves: bool = False

    @classmethod
    def of(cls, text: str, moves: bool = False, /, **mark: Any) -> "Name":
        return cls(text, tuple(mark.items()), moves)


class View(Tile):
    """One subject of the picture in its place: a title, two rows of names, and axes."""

    def __init__(self, picture: Picture, box: Box, title: str, line_px: float = 1.6) -> None:
        super().__init__(picture, box)
        self.em, self.line_px = picture.font_px, line_px
        self.title = self.add_text(
            box.left + self.em, box.top + TITLE * self.em, title, weight="bold", fontsize=1.05 * self.em
        )
        self.marks: list[Marks] = []
        self.swatches: list[Artist] = []
        self.slots: list[tuple[float, float]] = []  # where the names that move are
        self.told: list[str] = []
        self.still = Lettering(picture, SMALL * self.em, self.theme.ink)
        self.words = Lettering(picture, SMALL * self.em, self.theme.ink, zorder=7)
        self.fixed.append(self.still)
        self.moves(self.words)

    def frame(self, right: float = RIGHT, top: float = TOP, bottom: float = BOTTOM) -> Box:
        """Return where the view's axes are, with so much room around them in ems."""
        box, em = self.box, self.em
        return Box(
            box.left + LEFT * em,
            box.top + top * em,
            box.width - (LEFT + right) * em,
            box.height - (top + bottom) * em,
        )

    def add_frame(self, box: Box, across: str, up: str, **marks: Any) -> Axes:
        """Return axes in the look of all views, with `Marks` round them."""
        ax = self.add_axes(box)
        ax.set(xlabel=across, ylabel=up)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
            axis.set_major_formatter(tick)
        labels = self.box.left + 1.25 * self.em, box.bottom + 2.3 * self.em
        self.marks.append(Marks(self, ax, box, labels, **marks))
        return ax

    def refresh(self) -> None:
        for marks in self.marks:
            marks.refresh()

    # Names: what is still is written once, what moves has a fixed place.

    def name(
        self, names: Sequence[Name | None], values: Sequence[str] = (), besides: Sequence[Words] = ()
    ) -> None:
        """Write names into the two rows, and values for those that move; None begins the second.

        `besides` are words at other places, which move too.
        """
        names = tuple(names)
        if self.hold("names", names):
            self.remove(self.swatches)
            self.swatches, self.slots = [], []
            with self.picture.look():
                self._write_all(names)
        self.told = list(values)
        moving = [Words(text, *slot) for text, slot in zip(values, self.slots, strict=True)]
        self.words.show([*moving, *besides])

    def _write_all(self, names: Sequence[Name | None]) -> None:
        widths = [0.0 if name is None else self._width(name) for name in names]
        rows = self._rows(names, widths)
        longest = max(sum(widths[i] for i in row) for row in rows)
        shrink = min(1.0, self.room / longest) if longest else 1.0
        for lettering in (self.still, self.words):
            lettering.set_size(SMALL * self.em * shrink)
        still: list[Words] = []
        for row, down in zip(rows, ROWS, strict=False):
            x, y = self.box.left + self.em, self.box.top + down * self.em
            for index in row:
                name = names[index]
                assert name is not None
                if name.mark:
                    self.swatches.append(self.add(self._swatch(dict(name.mark), x, y, shrink * self.em)))
                begin = x + (shrink * self.em * (SWATCH + GAP) if name.mark else 0)
                if name.moves:
                    self.slots.append((begin, y))
                else:
                    still.append(Words(name.text, begin, y))
                x += widths[index] * shrink
        self.still.show(still)

    @property
    def room(self) -> float:
        """How long a row of names can be."""
        return self.box.width - 1.3 * self.em

    def _rows(self, names: Sequence[Name | None], widths: Sequence[float]) -> list[list[int]]:
        """Return which names are in each row: as many as there is room for are in the first."""
        rows: list[list[int]] = [[]]
        for index, name in enumerate(names):
            full = sum(widths[i] for i in [*rows[-1], index]) > self.room
            if name is None or (full and len(rows) < len(ROWS) and None not in names):
                rows.append([])
            if name is not None:
                rows[-1].append(index)
        return rows

    def _width(self, name: Name) -> float:
        return self.em * (SMALL * width_em(name.text) + NEXT + (SWATCH + GAP if name.mark else 0))

    def _swatch(self, mark: dict[str, Any], x: float, y: float, em: float) -> Artist:
        """Return what a name names, left of where it stands."""
        middle, wide = y - 0.33 * em, SWATCH * em
        if "facecolor" in mark:
            return Rectangle((x, middle - 0.38 * em), wide, 0.76 * em, **mark)
        if mark.get("linestyle") == "none":
            return Line2D([x + wide / 2], [middle], **mark)
        xs = [x, x + wide / 2, x + wide]
        return Line2D(xs, [middle] * 3, solid_capstyle="butt", markevery=[1], **mark)

    # Scales: they change in steps, so that they hold still while a slider moves a little.

    def limit(
        self, ax: Axes, x: tuple[float, float] | None = None, y: tuple[float, float] | None = None
    ) -> None:
        """Give axes their limits; nothing is drawn anew where these stay."""
        number = self.axes.index(ax)
        if x is not None and self.hold(f"x{number}", x):
            ax.set_xlim(x)
        if y is not None and self.hold(f"y{number}", y):
            ax.set_ylim(y)

    def in_time(self, axis: Any, label: str, upper_ms: float, name: str) -> None:
        """Let an axis of milliseconds speak in the unit that suits it."""
        unit, ms = unit_of(upper_ms)
        if self.hold(f"unit of {name}", (unit, label)):
            axis.set_major_formatter(tick_in(ms))
            axis.set_label_text(f"{label} ({unit})")


STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12)
COARSE, FINE = (1, 2, 5), (1, 1.5, 2, 3, 5, 7)  # of a logarithmic scale


def nice(value: float) -> float:
    """Return the next round number, so that axes hold still while a slider moves.

    >>> nice(17), nice(0.26)
    (20.0, 0.3)
    """
    if not 0 < value < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    step = next(step for step in STEPS if value <= step * power * (1 + 1e-12))
    return float(f"{step * power:.6g}")


def nice_span(low: float, high: float, digits: Sequence[float] = COARSE) -> tuple[float, float]:
    """Return the steps below and above, such as 1, 2 or 5 times a power of ten, for a logarithmic scale.

    >>> nice_span(7.1, 180), nice_span(3, 3)
    ((5.0, 200.0), (2.0, 5.0))
    """
    if not 0 < low <= high < math.inf:
        return 1.0, 100.0
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 3)
    steps = [float(f"{digit}e{power}") for power in powers for digit in digits]
    first = max(i for i, step in enumerate(steps) if step <= low * (1 + 1e-12))
    last = min(i for i, step in enumerate(steps) if step >= high * (1 - 1e-12))
    return steps[first], steps[max(last, first + 1)]


def log_ticks(axis: Any, low: float, high: float, most: int = 7, finest: Sequence[float] = COARSE) -> None:
    """Mark a logarithmic axis at the finest steps of which there are not too many."""
    powers = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    ticks: list[float] = []
    for digits in (finest, COARSE, (1, 3), (1,)):
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            break
    while len(ticks) > most:
        ticks = ticks[::2]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(FixedLocator([]))


def interval(result: Result, key: str) -> tuple[float, float]:
    """Return a number's interval, silently NaN where there is none."""
    return result.intervals([key])[key]


def overloaded(result: Result) -> bool:
    """Return whether the run has no steady state, so that its latencies say only how long it was."""
    return not result.scenario.stable
