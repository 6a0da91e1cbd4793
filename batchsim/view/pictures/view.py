"""The base of all views of a run: a class that draws into axes once, and then follows new data."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Rectangle, StepPatch
from matplotlib.path import Path
from matplotlib.text import Annotation, Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from batchsim._format import duration, tick, tick_in, unit_of
from batchsim.view.pictures.cells import NOWHERE
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.picture import look

if TYPE_CHECKING:
    from batchsim.theory import Answer

Style = dict[str, Any]
Heights = tuple[np.ndarray, np.ndarray]  # of bars, and their edges
DASHED, DOTTED = (0, (4, 2)), (0, (1, 1))
LEAST = 0.01  # of the largest number: where a logarithmic axis begins in place of 0
# Texts some points from a place: in data, and in fractions of the axes.
FROM_DATA: Style = {"textcoords": "offset points", "annotation_clip": False}
FROM_AXES: Style = {"xycoords": "axes fraction"} | FROM_DATA


class Spot(NamedTuple):
    """The answer to a pointer: the view, a text, and the settings that a click changes.

    Without a `change` a click enlarges the view; `refused` is why this place cannot be chosen.
    """

    view: str
    text: str
    change: dict[str, Any] | None = None
    refused: str = ""


def span(ax: Axes, **style: Any) -> Rectangle:
    """Add a rectangle as high as axes: `ax.axvspan` of a Matplotlib before 3.9 (in Pyodide) makes none."""
    area = Rectangle((0, 0), 0, 1, transform=ax.get_xaxis_transform(), **style)
    ax.add_patch(area)
    return area


class View:
    """One subject of a picture: `draw` makes its artists in axes, and `update` gives them new data.

    Artists that `make` adds move with the data. What axes own (ticks, labels, limits) changes rarely: to set
    it makes all be drawn again, so `update` compares first, by `changed`, and a picture that is redrawn at
    every move draws the moving artists alone. Axes only grow until `release` lets them shrink: with new
    limits at every move, a falling curve would not look lower. A view that is not `large` leaves out numbers
    and explanations.
    """

    KEY: ClassVar[str]
    NAME: ClassVar[str]  # the title of the large view
    SHORT: ClassVar[str]  # and of the small one
    PANELS: ClassVar[tuple[float, ...]] = (1.0,)  # heights of its axes; a small view has only the first
    BESIDE: ClassVar[bool] = False  # whether its axes stand side by side where there is room
    NEEDS: ClassVar[str] = ""  # what the data must have for it to draw; else it says `LACKS`
    LACKS: ClassVar[str] = "only for rules\nwith a fast engine"
    WHOLE: ClassVar[bool] = False  # whether its horizontal axes count something
    RANK: ClassVar[int | None] = 9  # its place in `bs.plot`; None: it needs more than a result
    FRAMED: ClassVar[int] = 0  # the panel in which the request that the reader follows is framed
    legend_px: float | None = None  # the width for its legends, by default that of its axes
    server = 0  # the one whose steps are shown
    styled: Callable[[], AbstractContextManager[Any]] = nullcontext  # settings of what is made after `draw`

    def draw(self, axes: Axes | Sequence[Axes], data: ViewData, large: bool = True) -> Self:
        """Draw into axes, under the present settings of matplotlib; with fewer than `PANELS`, the first."""
        self.axes = [axes] if isinstance(axes, Axes) else list(axes)
        self.ax, self.large, self.look = self.axes[0], large, look()
        self.line_pt, self.em = rcParams["lines.linewidth"], rcParams["font.size"]
        self.fixed: list[Artist] = []  # what `make` adds and does not move
        self.known: dict[Any, Any] = {}
        self.rows = dict.fromkeys(self.axes, 0)  # of legends
        self.held: dict[Any, tuple[Any, tuple[float, float]]] = {}
        there = {artist for ax in self.axes for artist in ax.get_children()}
        for ax in self.axes:
            ax.set_autoscale_on(False)
            ax.xaxis.set_major_formatter(tick)
            ax.yaxis.set_major_formatter(tick)
            if ax.get_yscale() == "linear":
                ax.yaxis.set_major_locator(Ticks(5 if large else 4))
            if ax.get_xscale() == "linear":
                ax.xaxis.set_major_locator(Ticks(6 if large else 4, integer=self.WHOLE))
        self.now_style = self.style("now")
        self.heading = self.ax.set_title(self.NAME)
        self.legend_style: Style = {"fontsize": rcParams["legend.fontsize"], "labelcolor": self.look.ink}
        self.legend_style["frameon"] = False
        self.make()
        # The request that the reader follows: a frame over the height of the axes.
        frame: Style = {"fill": False, "edgecolor": self.look.vermilion, "linewidth": self.line_pt}
        self.frame = span(self.axes[min(self.FRAMED, len(self.axes) - 1)], zorder=6, **frame)
        self.lack = self.text(self.ax, color=self.look.soft, xycoords="axes fraction", va="top")
        there.update(self.fixed)
        every = (artist for ax in self.axes for artist in ax.get_children() if artist not in there)
        still = (Axes, Legend)  # what changes rarely
        self.moving = sorted((each for each in every if not isinstance(each, still)), key=Artist.get_zorder)
        for artist in self.moving:
            if not isinstance(artist, Text):
                artist.set_in_layout(False)  # it is within the axes, and to measure it would take long
        self.show(data)
        return self

    def make(self) -> None:
        """Make all artists, empty, in `self.axes`."""
        raise NotImplementedError

    def update(self, data: ViewData) -> None:
        """Give the artists new data."""
        raise NotImplementedError

    def describe(self, data: ViewData) -> list[str]:
        """Return a description of what the view shows, in sentences."""
        raise NotImplementedError

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        """Return what is at a place of one of its axes, in data coordinates; None for nothing."""
        return None

    def followed(self, data: ViewData) -> tuple[float, float] | None:
        """Return where the request that the reader follows is, from left to right; None for nowhere."""
        return None

    def show_intervals(self, data: ViewData) -> None:
        """Add the intervals that `bs.plot` shows."""

    def show_theory(self, answer: "Answer", data: ViewData) -> None:
        """Add what theory expects."""

    def title(self, data: ViewData) -> str:
        return self.NAME if self.large else self.SHORT

    def lacks(self, data: ViewData) -> bool:
        """Return whether the data lacks what this view draws."""
        return bool(self.NEEDS) and getattr(data, self.NEEDS) is None

    def show(self, data: ViewData) -> None:
        """Draw the data, or a line if they lack what is drawn."""
        lacks = self.lacks(data)
        if self.changed("lacks", lacks):
            for ax in self.axes:
                ax.axis("off" if lacks else "on")
                if (legend := ax.get_legend()) is not None:
                    legend.set_visible(not lacks)
            for artist in (*self.moving, *self.fixed):
                artist.set_visible(not lacks)
            self.write(self.lack, self.LACKS * lacks, 0, 1)
            self.lack.set_visible(lacks)
        if (title := self.title(data)) != self.heading.get_text():
            self.heading.set_text(title)
        if not lacks:
            self.update(data)
            found = None if math.isnan(data.followed_ms) else self.followed(data)
            left, right = found or (0.0, 0.0)
            self.frame.set(x=left, width=right - left, visible=found is not None)

    def release(self, data: ViewData) -> None:
        """Let axes shrink to the present data."""
        self.held.clear()
        self.show(data)

    def leave(self) -> None:
        """Leave the axes to their owner, who may change their scale."""
        for ax in self.axes:
            ax.relim(visible_only=True)  # as `set_data` does not
            leave(ax)

    # What views draw with.

    def style(self, colour: str, dashes: Any = "-", width: float = 1.0) -> Style:
        """Return the style of a line: a colour of the theme, and a multiple of the usual width."""
        return {"color": getattr(self.look, colour), "linestyle": dashes, "linewidth": width * self.line_pt}

    def other_style(self, data: ViewData) -> Style:
        """Return the style of the comparison: A, which is pinned, or the setting before."""
        if data.pinned is not None:
            return {"color": self.look.ink, "linestyle": "--", "linewidth": 0.6 * self.line_pt}
        return {"color": self.look.ghost, "linestyle": "-", "linewidth": 1.3 * self.line_pt}

    def text(self, ax: Axes, **look: Any) -> Annotation:
        """Return an empty text beside a place in data coordinates, which `write` fills."""
        found: Annotation = ax.annotate("", (0, 0), (0, 0), **FROM_DATA | {"zorder": 7} | look)
        found.set_in_layout(False)
        return found

    def reserve(self, ax: Axes, words: str, x: float, right: float) -> None:
        """Let the layout leave room right of `x`, a fraction of the width, for words that other data have."""
        at: Style = FROM_AXES | {"alpha": 0}
        self.fixed.append(ax.annotate(words, (x, 0.5), (right * self.em, 0), **at))

    def line(self, ax: Axes, zorder: float, **style: Any) -> Line2D:
        """Return a line, or marks, without a point yet."""
        return ax.plot([], [], zorder=zorder, **style)[0]

    def areas(self, ax: Axes, zorder: float, **style: Any) -> PathPatch:
        """Return an empty area: one artist for thousands of rectangles draws in the time of one."""
        found = PathPatch(NOWHERE, zorder=zorder, **style)
        ax.add_patch(found)
        return found

    def fill(self, areas: PathPatch, path: Path) -> None:
        """Give areas their path; they are hidden where it is empty, as a hatch takes time even so."""
        areas.set_path(path)
        areas.set_visible(path is not NOWHERE)

    def outlines(self, ax: Axes, zorder: float, **style: Any) -> StepPatch:
        """Return an empty outline of bars."""
        return ax.stairs([0], [0, 1], baseline=None, zorder=zorder, **style)

    def show_other(self, line: StepPatch, bars: Heights | None, data: ViewData) -> float:
        """Outline another setting's bars, or hide the outline; return the highest of them."""
        line.set_visible(bars is not None)
        if bars is None:
            return 0.0
        line.set_data(*bars)
        line.set(**self.other_style(data))
        return float(np.nanmax(bars[0], initial=0.0))

    def write(
        self, text: Annotation, words: str, x: float, y: float, right: float = 0, up: float = 0
    ) -> None:
        """Write words at a place, moved by so many ems; those of `self.fixed` rarely change."""
        if self.changed(text, (words, x, y, right, up)) or text.get_visible() != bool(words):
            text.set(text=words, visible=bool(words), position=(right * self.em, up * self.em))
            text.xy = (x, y)

    @property
    def em_px(self) -> float:
        return float(self.em / 72 * self.ax.figure.dpi)

    def apart(self, ax: Axes, places: Sequence[float], ems: float, up: bool = False) -> list[float]:
        """Return fractions of the width of axes, or of the height, moved so many ems apart within them."""
        least = ems * self.em_px / (ax.bbox.height if up else ax.bbox.width)
        return apart(places, least, least / 2, 1 - least / 2)

    def changed(self, what: Any, value: Any) -> bool:
        """Return whether a value is new."""
        new = what not in self.known or self.known[what] != value
        self.known[what] = value
        return new

    def limits(self, ax: Axes, kind: Any = None, **limits: tuple[float, float]) -> None:
        """Set the limits of axes, `x` and `y`, widened to those before if these are of the same `kind`."""
        for name, (first, last) in limits.items():
            before, ends = self.held.get((ax, name), (kind, (first, last)))
            if before == kind:
                grow = (min, max) if first <= last else (max, min)
                first, last = grow[0](ends[0], first), grow[1](ends[1], last)
            self.held[ax, name] = kind, (first, last)
            if min(first, last) <= 0 and getattr(ax, f"get_{name}scale")() == "log":
                first, last = (max(end, LEAST * max(first, last)) for end in (first, last))
            if self.changed((ax, name), (first, last)):
                ax.set(**{f"{name}lim": (first, last)})

    def label(self, axis: Any, label: str, upper_ms: float | None = None) -> None:
        """Label an axis; an axis of durations up to `upper_ms` has a suitable unit."""
        unit, ms = ("", 1.0) if upper_ms is None else unit_of(upper_ms)
        if self.changed((axis, "label"), (label, unit)):
            axis.set_major_formatter(tick_in(ms))
            axis.set_label_text(f"{label} ({unit})" if unit else label)

    def legend(self, ax: Axes, entries: Sequence[tuple[str, Style]]) -> None:
        """Show names with the style of their lines or areas, below the axes."""
        if not self.changed((ax, "legend"), [*entries]):
            return
        if (old := ax.get_legend()) is not None:
            old.remove()
        self.rows[ax] = 0
        if not entries:
            return
        areas = any("facecolor" in style for _, style in entries)  # else dashes tell lines apart
        options = self.legend_style | {"handlelength": 0.8 if areas else 1.8, "handletextpad": 0.5}
        with self.styled():
            handles = [
                Patch(label=name, **style) if "facecolor" in style else Line2D([], [], label=name, **style)
                for name, style in entries
            ]
            widest = max(len(name) for name, _ in entries)
            self.rows[ax] = below(ax, handles, widest, self.legend_px, labelspacing=0.25, **options)


def leave(ax: Axes) -> None:
    """Leave axes to their owner: another scale, or what is drawn in addition, changes the present limits."""
    ax.update_datalim(ax.viewLim.get_points())
    ax.margins(0)
    ax.set_autoscale_on(True)


class Ticks(MaxNLocator):
    """At most so many round ticks, and fewer where their texts have no room."""

    def __init__(self, most: int, **options: Any) -> None:
        super().__init__(most, steps=[1, 2, 2.5, 5, 10], **options)
        self.most = most

    def __call__(self) -> Any:
        room: int = self.axis.get_tick_space()  # type: ignore[union-attr]
        self.set_params(nbins=max(min(self.most, room), 1))
        return super().__call__()


class MomentView(View):
    """A view of a part of a run, by the time from its beginning on."""

    def add_place(self) -> None:
        """Make room for the place of the moment, beside the name of the time axis."""
        self.axes[-1].set_xlabel("", loc="left" if self.large else "center")
        right: Style = {"ha": "right", "va": "baseline", "color": self.look.soft}
        self.place = self.text(self.axes[-1], xycoords="axes fraction", **right)

    def write_place(self, begin_s: float, server: str = "") -> None:
        self.write(self.place, f"from {duration(1000 * begin_s)} on{server}" * self.large, 1, 0, up=-2.75)


class StackedView(View):
    """A view of stacked bars, with the outline of another setting's total over them."""

    def add_bars(self, ax: Axes, fills: Mapping[Any, tuple[str, str]]) -> None:
        """Add bars from the bottom up: by key, a colour of the theme and a hatch where colours are alike."""
        edge = self.look.background
        self.styles: dict[Any, Style] = {
            key: {"facecolor": getattr(self.look, colour), "hatch": hatch, "edgecolor": edge}
            for key, (colour, hatch) in fills.items()
        }
        self.bars = {
            key: ax.stairs([0], [0, 1], baseline=[0], fill=True, linewidth=0, zorder=2, **style)
            for key, style in self.styles.items()
        }
        self.other_total = self.outlines(ax, 3)

    def show_bars(
        self, heights: np.ndarray, edges: np.ndarray, other: Heights | None, data: ViewData
    ) -> float:  # fmt: skip
        """Draw heights, shape (bars' keys, bars), and another setting's total; return the highest."""
        tops = np.cumsum(heights, axis=0)
        for bars, height, top in zip(self.bars.values(), heights, tops, strict=True):
            bars.set_visible(bool(height.any()))
            bars.set_data(top, edges, baseline=top - height)
        return max(float(tops.max()), self.show_other(self.other_total, other, data))


def below(ax: Axes, handles: Sequence[Any], widest: int, wide_px: float | None = None, **options: Any) -> int:
    """Put a legend below axes and the name of their scale; return its number of rows.

    `widest` is the number of letters of a column.
    """
    figure = ax.figure
    em = FontProperties(size=options.get("fontsize", rcParams["legend.fontsize"])).get_size_in_points()
    wide_px = ax.bbox.width if wide_px is None else wide_px
    columns = min(max(int(72 * wide_px / figure.dpi / (em * (0.56 * widest + 3))), 1), len(handles))
    rows = 1 + max((text.get_text().count("\n") for text in ax.get_xticklabels()), default=0)
    pads = rcParams["xtick.major.size"] + rcParams["xtick.major.pad"]
    pads += rcParams["axes.labelpad"] if ax.get_xlabel() else 0
    down = (pads + (1.25 * (rows + bool(ax.get_xlabel())) + 0.1) * rcParams["font.size"]) / 72
    place = ax.transAxes + ScaledTranslation(0, -down, figure.dpi_scale_trans)
    ax.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=place, borderpad=0.1,
        ncols=columns, columnspacing=1.2, borderaxespad=0.1, **options,
    )  # fmt: skip
    return math.ceil(len(handles) / columns)


def apart(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Return places moved as little as possible, in the same order, each at least `least` from the next.

    It separates the labels of lines that end near each other, and keeps them from `low` to `high` if they
    fit.

    >>> apart([10, 12, 40], 8, 0, 44)
    [7.0, 15.0, 40.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    # Labels that would overlap form a group, centred on the mean of its members' places; that is where the
    # sum of their squared moves is least. A group that reaches the one before it merges with it.
    groups: list[tuple[float, int]] = []  # the middle, and the number of labels
    for i in order:
        groups.append((places[i], 1))
        while len(groups) > 1:
            (one, some), (two, more) = groups[-2:]
            if two - more * least / 2 >= one + some * least / 2:
                break
            groups[-2:] = [((one * some + two * more) / (some + more), some + more)]
    flat = [middle + (place - (n - 1) / 2) * least for middle, n in groups for place in range(n)]
    # Up from the lower limit, then down from the upper one, which wins where there is too little room.
    for rank, place in enumerate(flat):
        flat[rank] = max(place, flat[rank - 1] + least if rank else low)
    for rank in reversed(range(len(flat))):
        flat[rank] = min(flat[rank], flat[rank + 1] - least if rank < len(flat) - 1 else high)
    moved = [0.0] * len(places)
    for rank, i in enumerate(order):
        moved[i] = float(flat[rank])
    return moved
