"""One and the same stretch of traffic under several rules: a lane each, over one time axis."""

from collections.abc import Mapping

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.ticker import FixedLocator

from batchsim import _check
from batchsim._format import number, tick_in, typed, typed_duration, unit_of
from batchsim.scenario import Rule, Scenario
from batchsim.servers.comparison import REQUESTS, ServerComparison, compare_servers
from batchsim.view.canvas.cells import rectangles
from batchsim.view.canvas.lettering import Lettering, width_em
from batchsim.view.canvas.marks import Marks
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.scales import nice
from batchsim.view.canvas.theme import COMPONENTS, LIGHT, PAGE, THEMES, Theme, named
from batchsim.view.film.lane import Lane, LaneFilm
from batchsim.view.film.snapshot import Film, Snapshot, Stretch

SHOWN = 60  # requests in a window, unless it is given
MOST_WAITING = 1.25  # times as many as in the second fullest lane: what is more is cut off
WIDTH_PX, LANE, HEAD, FOOT = 960, 6.5, 5.2, 3.2  # heights in ems
NAMES, NARROW = 10.0, 7.5  # ems: the column of names, and that of a narrow picture


class LanesView(Tile):
    """The lanes of a comparison, with the arrivals above them; `show` draws them until a time.

    It stands in for a film's stage and its timeline: `stretch` is both what is played and what is seen.
    """

    def __init__(self, picture: Picture, comparison: ServerComparison, stretch: Stretch) -> None:
        super().__init__(picture, Box(0, 0, picture.width_px, picture.height_px))
        em = self.em = picture.font_px
        narrow = picture.width_px < 50 * em
        side, self.stretch = (NARROW if narrow else NAMES) * em, stretch
        left, top = self.box.left + side + 0.8 * em, self.box.top + HEAD * em
        self.plot = Box(left, top, self.box.width - left - 1.2 * em, self.box.height - top - FOOT * em)
        groups = comparison.groups
        pitch = self.plot.height / len(groups)
        boxes = [
            Box(left, top + pitch * n + 0.35 * em, self.plot.width, pitch - 0.7 * em)
            for n in range(len(groups))
        ]
        names = [Box(0.8 * em, box.top, side - 0.8 * em, box.height) for box in boxes]
        self.lanes = [Lane(self, *each, self.x_px) for each in zip(groups, boxes, names, strict=True)]
        self._add_fixed(comparison, boxes)
        self.numbers = Lettering(picture, em, self.theme.background, zorder=6)
        self.counts = Lettering(picture, em, self.theme.ink, zorder=6)
        # From the arrivals on, which are above the axes.
        top = 1 + 1.2 * em / self.plot.height
        self.cursor = self.axes[0].axvline(0, 0, top, clip_on=False, color=self.theme.ink, linewidth=1.2)
        self.cursor.set(visible=False, zorder=5)
        self.set_moving(self.numbers, self.counts, self.cursor)
        most = sorted(lane.most_waiting(stretch) for lane in self.lanes)
        second = most[-2] if len(most) > 1 else most[-1]
        self.scale = max(min(most[-1], MOST_WAITING * max(second, 1)), 1)
        self.film = SideBySide(comparison, self.lanes)
        self.draw_until(stretch.until_s)

    @property
    def timeline(self) -> "LanesView":
        return self

    @property
    def window_s(self) -> tuple[float, float]:
        return self.stretch

    def x_px(self, times_s: np.ndarray) -> np.ndarray:
        begin_s, until_s = self.stretch
        return self.plot.left + self.plot.width * (times_s - begin_s) / (until_s - begin_s)

    def _add_fixed(self, comparison: ServerComparison, boxes: list[Box]) -> None:
        """Add the title, the legend, the arrivals, the time axis, and the lines between the lanes."""
        em, theme, plot, (begin_s, until_s) = self.em, self.theme, self.plot, self.stretch
        span_ms = 1000 * (until_s - begin_s)
        left = 0.8 * em
        title = f"The same {typed_duration(float(f'{span_ms:.6g}'))} of traffic under each rule"
        size = min(1.1, (self.box.width / em - 1.6) / width_em(title, "bold")) * em
        self.add_text(left, 1.45 * em, title, weight="bold", fontsize=size)
        x, y = left, 3.0 * em
        for name, style in COMPONENTS.items():
            patch = PathPatch(
                rectangles(np.array([[x, y - 0.7 * em]]), np.array([[x + 1.3 * em, y + 0.1 * em]])),
                facecolor=getattr(theme, style.colour), hatch=style.hatch, edgecolor=theme.background, lw=0,
            )  # fmt: skip
            self.add(patch)
            text = {"forming": "waiting, forming", "queueing": "queueing", "computing": "computing"}[name]
            self.add_text(x + 1.65 * em, y, text, fontsize=em)
            x += (1.65 + width_em(text) + 1.0) * em
        ax = self.add_axes(plot)
        unit, unit_ms = unit_of(span_ms)
        ax.set(
            xlim=(0, span_ms), ylim=(0, 1), xlabel=f"time ({unit}) from {typed(float(f'{begin_s:.6g}'))} s on"
        )
        ax.xaxis.set_major_formatter(tick_in(unit_ms))
        ax.yaxis.set_major_locator(FixedLocator([]))
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.patch.set_visible(False)
        self.marks = Marks(self, ax, plot, self.box.bottom - 0.7 * em, grid="x", numbers="x")
        for box in boxes:
            ends = [[(left, box.bottom + 0.35 * em), (plot.right, box.bottom + 0.35 * em)]]
            self.add(LineCollection(ends, colors=theme.faint, linewidths=1))
        arrival_s = comparison.groups[0].result.arrival_s
        seen = self.x_px(arrival_s[(arrival_s >= begin_s) & (arrival_s <= until_s)])
        ticks = [[(at, plot.top - 1.2 * em), (at, plot.top - 0.3 * em)] for at in seen]
        self.add(LineCollection(ticks, colors=theme.soft, linewidths=1))
        self.add_text(left, plot.top - 0.4 * em, "arrivals", color=theme.soft, fontsize=em)

    def refresh(self) -> None:
        self.marks.refresh()

    def draw_until(self, time_s: float) -> None:
        """Draw all lanes until a time."""
        labels = [label for lane in self.lanes for label in lane.show(self.stretch, time_s, self.scale)]
        self.numbers.show(label for label in labels if label.align == "center")
        self.counts.show(label for label in labels if label.align != "center")

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment: what has happened until then."""
        self.cursor.set_visible(True)
        self.cursor.set_xdata([1000 * (time_s - self.stretch.begin_s)] * 2)
        self.draw_until(time_s)
        return film.snapshot(time_s)


class SideBySide(LaneFilm):
    """The film of the first lane, with what happens in the others, too."""

    def __init__(self, comparison: ServerComparison, lanes: list[Lane]) -> None:
        super().__init__(comparison.groups[0].result)
        self.lanes = lanes

    def instants(self, requests: int | None = None) -> np.ndarray:
        return np.unique(np.concatenate([lane.film.instants(requests) for lane in self.lanes]))

    def describe(self, time_s: float) -> str:
        """Return a moment in one sentence."""
        parts = []
        for lane in self.lanes:
            now = lane.film.snapshot(time_s)
            sizes = [str(batch.requests.size) for batch in now.computing if batch is not None]
            computes = f"computing {' and '.join(sizes)}" if sizes else "idle"
            parts.append(f"{', '.join(lane.group.names)}: {now.waiting.size:,} waiting, {computes}")
        return f"At {time_s * 1000:,.7g} ms: {'; '.join(parts)}."


class Lanes(Picture):
    """A comparison of servers as lanes over one time axis; `stage` draws it until a moment."""

    def __init__(
        self, comparison: ServerComparison, stretch: Stretch, width_px: int = WIDTH_PX, ratio: float = 1.0,
        theme: Theme = LIGHT,
    ) -> None:  # fmt: skip
        em = PAGE.em_px(width_px)
        height = HEAD + FOOT + LANE * len(comparison.groups)
        super().__init__(width_px, round(height * em), ratio, theme, em)
        self.comparison = comparison
        with self.styled():
            self.stage = LanesView(self, comparison, stretch)

    @property
    def words(self) -> str:
        begin_s, until_s = self.stage.stretch
        parts = [
            f"{', '.join(lane.group.names)}: {lane.words(self.stage.stretch)}" for lane in self.stage.lanes
        ]
        return f"Lanes from {number(begin_s, 5)} to {number(until_s, 5)} s. {'. '.join(parts)}."


def stretch_of(
    comparison: ServerComparison, begin_s: float | None, length_s: float | None, requests: int = SHOWN
) -> Stretch:
    """Return the stretch to show: by default some requests from the middle of the trace."""
    arrival_s = comparison.groups[0].result.arrival_s
    first = min(arrival_s.size // 2, max(arrival_s.size - requests, 0))
    begin = float(arrival_s[first]) if begin_s is None else float(_check.real("begin_s", begin_s, at_least=0))
    if length_s is None:
        last = min(int(arrival_s.searchsorted(begin)) + requests, arrival_s.size - 1)
        length_s = nice(max(float(arrival_s[last]) - begin, 1e-3))
    length = float(_check.real("length_s", length_s, above=0))
    return Stretch(begin, begin + length)


def lanes(
    what: ServerComparison | Scenario, rules: Mapping[str, Rule] | None = None, begin_s: float | None = None,
    length_s: float | None = None, width_px: int = WIDTH_PX, theme: str = "light",
) -> Lanes:  # fmt: skip
    """Return a picture of one stretch of traffic under several rules, a lane each.

    `what` is the answer of `compare_servers`, or a scenario, with the `rules` to compare by name. Above, how
    many wait: forming while a server is idle, queueing while none is; below, the batches, with their sizes.
    The stretch begins at `begin_s` and lasts `length_s`, by default some 60 requests from the middle.

    >>> from batchsim import Affine, FrozenBatches, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(80), SizeOrWait(), Affine(47, 3.6))
    >>> lanes(scenario, {"grows": SizeOrWait(32, 50), "frozen": FrozenBatches(32, 60)}, length_s=1)
    <Lanes size 960x265 with 1 Axes>
    """
    if isinstance(what, Scenario):
        if rules is None:
            raise ValueError("rules must be given with a scenario, as {name: rule}, got none")
        what = compare_servers(what, rules, requests=REQUESTS)
    elif not isinstance(what, ServerComparison):
        raise TypeError(f"lanes takes what compare_servers returns, or a Scenario, got {what!r}")
    elif rules is not None:
        raise ValueError("rules must come with a scenario, got a comparison, which has its own")
    _check.whole("width_px", width_px, at_least=320)
    return Lanes(what, stretch_of(what, begin_s, length_s), width_px, theme=named("theme", theme, THEMES))
