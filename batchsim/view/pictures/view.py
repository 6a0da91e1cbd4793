"""The base of all views of a run: a class that draws data into axes, and then other data."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Rectangle, StepPatch
from matplotlib.path import Path
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import IdentityTransform, ScaledTranslation

from batchsim._format import duration, tick, tick_in, unit_of
from batchsim.view.pictures.cells import NOWHERE
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.picture import look

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


class View:
    """One subject of a picture: `draw` begins in axes, and `update` draws data there by methods like theirs.

    Each artist has a key: `self.plot("p99", x, y, **style)` makes a line at its first use and moves it later.
    What an `update` does not draw is hidden. The axes' own (ticks, labels, limits, legend) changes rarely: to
    set it makes all be drawn again, so `limits`, `label` and `legend` compare first, by `changed`, and a
    picture that is redrawn at every move draws the moving artists alone. Axes only grow until `release` lets
    them shrink: with new limits at every move, a falling curve would not look lower. A view that is not
    `large` leaves out numbers and explanations.
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
    is_animated = False  # whether its moving artists are drawn apart from their figure

    def draw(self, axes: Axes | Sequence[Axes], data: ViewData, large: bool = True) -> Self:
        """Draw into axes, under the present settings of matplotlib; with fewer than `PANELS`, the first."""
        self.axes = [axes] if isinstance(axes, Axes) else list(axes)
        self.ax, self.large, self.look = self.axes[0], large, look()
        self.line_pt, self.em = rcParams["lines.linewidth"], rcParams["font.size"]
        self.artists: dict[Any, Artist] = {}
        self.styles: dict[Any, Style] = {}
        self.shown: dict[Any, Any] = {}  # the artists of the present data, in the order of drawing
        self.known: dict[Any, Any] = {}
        self.rows = dict.fromkeys(self.axes, 0)  # of legends
        self.held: dict[Any, tuple[Any, tuple[float, float]]] = {}
        for ax in self.axes:
            ax.set_autoscale_on(False)
            ax.xaxis.set_major_formatter(tick)
            ax.yaxis.set_major_formatter(tick)
            if ax.get_yscale() == "linear":
                ax.yaxis.set_major_locator(Ticks(5 if large else 4))
            if ax.get_xscale() == "linear":
                ax.xaxis.set_major_locator(Ticks(6 if large else 4, integer=self.WHOLE))
        self.now_style = self.style("now")
        # Behind a text, where a line or an area may pass.
        self.halo: Style = {"facecolor": self.look.background, "alpha": 0.8, "linewidth": 0, "pad": 0.5}
        self.heading = self.ax.set_title(self.NAME)
        self.legend_style: Style = {"fontsize": rcParams["legend.fontsize"], "labelcolor": self.look.ink}
        self.legend_style["frameon"] = False
        self.make()
        self.show(data)
        return self

    def make(self) -> None:
        """Prepare `self.axes`: what does not depend on data."""

    def update(self, data: ViewData) -> None:
        """Draw data."""
        raise NotImplementedError

    @property
    def moving(self) -> list[Artist]:
        """The artists that move, from the lowest to the highest."""
        moving = (artist for artist in self.shown.values() if artist.get_animated())
        return sorted(moving, key=Artist.get_zorder)

    def describe(self, data: ViewData) -> list[str]:
        """Return a description of what the view shows, in sentences."""
        raise NotImplementedError

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        """Return what is at a place of one of its axes, in data coordinates; None for nothing."""
        return None

    def followed(self, data: ViewData) -> tuple[float, float] | None:
        """Return where the request that the reader follows is, from left to right; None for nowhere."""
        return None

    def title(self, data: ViewData) -> str:
        return self.NAME if self.large else self.SHORT

    def lacks(self, data: ViewData) -> bool:
        """Return whether the data lacks what this view draws."""
        return bool(self.NEEDS) and getattr(data, self.NEEDS) is None

    def show(self, data: ViewData) -> None:
        """Draw the data, or a line if they lack what is drawn; hide what is not drawn anew."""
        lacks, before, self.shown = self.lacks(data), self.shown, {}
        if self.changed("lacks", lacks):
            for ax in self.axes:
                ax.axis("off" if lacks else "on")
                if (legend := ax.get_legend()) is not None:
                    legend.set_visible(not lacks)
        if (title := self.title(data)) != self.heading.get_text():
            self.heading.set_text(title)
        if lacks:
            line: Style = {"color": self.look.soft, "xycoords": "axes fraction", "va": "top"}
            self.annotate("lacks", self.LACKS, 0, 1, **line)
        else:
            self.update(data)
            if not math.isnan(data.followed_ms) and (ends := self.followed(data)) is not None:
                frame: Style = {"fill": False, "edgecolor": self.look.vermilion, "linewidth": self.line_pt}
                ax = self.axes[min(self.FRAMED, len(self.axes) - 1)]
                self.span("followed", *ends, ax, zorder=6, **frame)
        for key in before.keys() - self.shown.keys():
            self.artists[key].set_visible(False)

    def release(self, data: ViewData) -> None:
        """Let axes shrink to the present data."""
        self.held.clear()
        self.show(data)

    def leave(self) -> None:
        """Leave the axes to their owner, who may change their scale."""
        for ax in self.axes:
            ax.relim(visible_only=True)  # as `set_data` does not
            leave(ax)

    def stack(
        self, styles: Mapping[Any, Style], heights: np.ndarray, edges: np.ndarray, other: Heights | None,
        data: ViewData,
    ) -> float:  # fmt: skip
        """Draw heights, shape (styles, bars), as stacked bars, and the outline of another setting's total.

        Return the highest.
        """
        tops = np.cumsum(heights, axis=0)
        for (key, style), height, top in zip(styles.items(), heights, tops, strict=True):
            if height.any():
                self.stairs(key, top, edges, top - height, **style)
        return max(float(tops.max()), self.outline(other, data))

    def outline(
        self, bars: Heights | None, data: ViewData, key: Any = "other", ax: Axes | None = None
    ) -> float:
        """Outline another setting's bars, if there are any; return the highest of them."""
        if bars is None:
            return 0.0
        self.stairs(key, *bars, ax=ax, **self.other_style(data) | {"zorder": 3})
        return float(np.nanmax(bars[0], initial=0.0))

    def filled(self, colour: str, hatch: str = "") -> Style:
        """Return the style of an area: a colour of the theme, and a hatch where colours are alike."""
        fill = {"facecolor": getattr(self.look, colour), "edgecolor": self.look.background}
        return fill | {"hatch": hatch, "linewidth": 0, "zorder": 2}

    def note(
        self, key: Any, words: str, x: float = 1, y: float = 1, right: float = 0, up: float = -0.2,
        ax: Axes | None = None, **style: Any,
    ) -> None:  # fmt: skip
        """Write an explanation into a corner of a large view's axes, by fractions of them."""
        look: Style = {"xycoords": "axes fraction", "ha": "right", "va": "top", "color": self.look.soft}
        if self.large:
            self.annotate(key, words, x, y, right, up, ax, **look | style)

    def names(
        self, ends: Mapping[Any, tuple[str, float, float]], ems: float, across: bool, ax: Axes | None = None,
        right: float = 0, up: float = 0, colours: Mapping[Any, str] | None = None, **style: Any,
    ) -> None:  # fmt: skip
        """Write names at points, by their keys, moved so many ems apart from each other: `across`, or up."""
        ax = ax or self.ax
        axis, length = (ax.xaxis, ax.bbox.width) if across else (ax.yaxis, ax.bbox.height)
        scale = axis.get_transform()
        low, high = scale.transform(np.array(axis.get_view_interval()))
        least = ems * self.em_px / length * (high - low)
        at = scale.transform(np.array([x if across else y for _, x, y in ends.values()])).tolist()
        at = apart(at, [least] * len(at), low + least / 2, high - least / 2)
        places = scale.inverted().transform(np.array(at))
        for (key, (words, x, y)), place in zip(ends.items(), places.tolist(), strict=True):
            x, y = (place, y) if across else (x, place)
            colour = {"color": (colours or {}).get(key, self.look.ink)}
            self.annotate(("name", key), words, x, y, right, up, ax, **colour | style)

    # What views draw with: methods as those of axes, with a key for each artist.

    def put(
        self, key: Any, make: Callable[..., Any], ax: Axes | None = None, still: bool = False, **style: Any
    ) -> Any:
        """Return the artist of a key with a style: made at its first use, and shown."""
        found = self.artists.get(key)
        if found is None:
            with self.styled():
                found = self.artists[key] = make(**style)
            found.set_animated(self.is_animated and not still)
            found.set_in_layout(False)  # it is within the axes, and to measure it would take long
            if found.axes is None:
                (ax or self.ax).add_artist(found)
        elif style != (old := self.styles[key]):
            found.set(**{name: value for name, value in style.items() if old.get(name) != value})
        self.styles[key], self.shown[key] = style, found
        found.set_visible(True)
        return found

    def plot(self, key: Any, x: Any, y: Any, ax: Axes | None = None, **style: Any) -> None:
        """Draw a line, or marks."""
        self.put(key, partial(Line2D, [], []), ax, **style).set_data(x, y)

    def stairs(
        self, key: Any, heights: np.ndarray, edges: np.ndarray, base: Any = None, ax: Axes | None = None,
        **style: Any,
    ) -> None:  # fmt: skip
        """Draw bars from a base on, or without one their outline."""
        make = partial(StepPatch, heights, edges, baseline=base)
        self.put(key, make, ax, **{"fill": base is not None} | style).set_data(heights, edges, base)

    def area(self, key: Any, path: Path, ax: Axes | None = None, **style: Any) -> None:
        """Draw a path, unless it is empty; one of thousands of rectangles draws in the time of one."""
        if path is not NOWHERE or style.get("label"):
            self.put(key, partial(PathPatch, path), ax, **style).set_path(path)

    def span(self, key: Any, left: float, right: float, ax: Axes | None = None, **style: Any) -> None:
        """Draw a rectangle as high as the axes."""
        make = partial(Rectangle, (0, 0), 0, 1, transform=(ax or self.ax).get_xaxis_transform())
        self.put(key, make, ax, **style).set_bounds(left, 0, right - left, 1)

    def annotate(
        self, key: Any, words: str, x: float, y: float, right: float = 0, up: float = 0,
        ax: Axes | None = None, still: bool = False, **style: Any,
    ) -> None:  # fmt: skip
        """Write words, if there are any, so many ems from a place; what is `still` rarely changes."""
        if words:
            whole: Style = FROM_DATA | {"transform": IdentityTransform(), "clip_on": False}
            make = partial(Annotation, "", (0, 0), (0, 0), **whole)
            found = self.put(key, make, ax, still, **{"zorder": 7} | style)
            if self.changed(("text", key), (words, x, y, right, up)):
                found.set(text=words, position=(right * self.em, up * self.em))
                found.xy = (x, y)

    def style(self, colour: str, dashes: Any = "-", width: float = 1.0) -> Style:
        """Return the style of a line: a colour of the theme, and a multiple of the usual width."""
        return {"color": getattr(self.look, colour), "linestyle": dashes, "linewidth": width * self.line_pt}

    def mark(self, marker: str, size: float, colour: str, edge: str = "", **more: Any) -> Style:
        """Return the style of marks: colours of the theme, and a multiple of the usual width as the size."""
        look: Style = {"linestyle": "none", "marker": marker, "markersize": size * self.line_pt, "zorder": 4}
        look["color"] = getattr(self.look, colour)
        if edge:
            look["markeredgecolor"] = getattr(self.look, edge)
        return look | more

    def other_style(self, data: ViewData) -> Style:
        """Return the style of the comparison: A, which is pinned, or the setting before."""
        if data.pinned is not None:
            return {"color": self.look.ink, "linestyle": "--", "linewidth": 0.6 * self.line_pt}
        return {"color": self.look.ghost, "linestyle": "-", "linewidth": 1.3 * self.line_pt}

    def reserve(self, ax: Axes, words: str, x: float, right: float) -> None:
        """Let the layout leave room right of `x`, a fraction of the width, for words that other data have."""
        at: Style = FROM_AXES | {"alpha": 0}
        ax.annotate(words, (x, 0.5), (right * self.em, 0), **at)

    @property
    def em_px(self) -> float:
        return float(self.em / 72 * self.ax.figure.dpi)

    def changed(self, what: Any, value: Any) -> bool:
        """Return whether a value is new."""
        new = what not in self.known or self.known[what] != value
        self.known[what] = value
        return new

    def limits(self, ax: Axes, of: Any = None, **limits: tuple[float, float]) -> None:
        """Set the limits of axes, `x` and `y`, widened to those before if these were `of` the same."""
        for name, (first, last) in limits.items():
            before, ends = self.held.get((ax, name), (of, (first, last)))
            if before == of:
                grow = (min, max) if first <= last else (max, min)
                first, last = grow[0](ends[0], first), grow[1](ends[1], last)
            self.held[ax, name] = of, (first, last)
            if min(first, last) <= 0 and getattr(ax, f"get_{name}scale")() == "log":
                first, last = (max(end, LEAST * max(first, last)) for end in (first, last))
            if self.changed((ax, name), (first, last)):
                ax.set(**{f"{name}lim": (first, last)})

    def label(self, axis: Any, label: str, upper_ms: float | None = None, form: Any = None) -> None:
        """Label an axis, whose numbers have a form; one of durations up to `upper_ms` has a suitable unit."""
        unit, ms = ("", 1.0) if upper_ms is None else unit_of(upper_ms)
        if self.changed((axis, "label"), (label, unit)):
            axis.set_major_formatter(form or tick_in(ms))
            axis.set_label_text(f"{label} ({unit})" if unit else label)

    def legend(self, ax: Axes | None = None, most: int | None = None) -> None:
        """Show the labels of what is drawn below axes, at most so many."""
        ax = ax or self.ax
        labels = {key: self.styles[key].get("label") for key in self.shown}
        labels = {key: label for key, label in labels.items() if label}
        if not self.changed((ax, "legend"), [*labels.items()]):
            return
        if (old := ax.get_legend()) is not None:
            old.remove()
        handles, self.rows[ax] = [self.shown[key] for key in labels][:most], 0
        if handles:
            areas = any(isinstance(each, Patch) for each in handles)  # else dashes tell lines apart
            options = self.legend_style | {"handlelength": 0.8 if areas else 1.8, "handletextpad": 0.5}
            widest = max(len(each.get_label()) for each in handles)
            with self.styled():
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

    def make(self) -> None:
        self.axes[-1].set_xlabel("", loc="left" if self.large else "center")

    def write_place(self, begin_s: float, server: str = "") -> None:
        """Write where the moment is, beside the name of the time axis."""
        place = f"from {duration(1000 * begin_s)} on{server}"
        self.note("place", place, y=0, up=-2.75, ax=self.axes[-1], va="baseline")


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


def apart(places: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Return the places of labels of these sizes, moved as little as possible so that none overlap.

    They keep their order, and stay from `low` to `high` if there is room. It separates the labels of lines
    that end near each other.

    >>> apart([10, 12, 40], [8, 8, 8], 0, 44)
    [7.0, 15.0, 40.0]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    stack = [0.0]  # their places if the first is at 0 and each is beside the one before
    for one, other in pairwise(order):
        stack.append(stack[-1] + (sizes[one] + sizes[other]) / 2)
    # The least sum of squared moves: labels that would overlap form a group at the mean of its members'
    # places, each measured from its place in the stack. A group that reaches the one before merges with it.
    groups: list[tuple[float, int]] = []
    for i, down in zip(order, stack, strict=False):
        groups.append((places[i] - down, 1))
        while len(groups) > 1 and groups[-1][0] <= groups[-2][0]:
            (one_at, some), (other_at, more) = groups[-2:]
            groups[-2:] = [((one_at * some + other_at * more) / (some + more), some + more)]
    starts = [min(max(at, low), high - stack[-1]) for at, count in groups for _ in range(count)]
    moved = dict(zip(order, map(sum, zip(starts, stack, strict=False)), strict=True))
    return [moved[i] for i in range(len(places))]
