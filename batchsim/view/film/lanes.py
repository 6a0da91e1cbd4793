"""One stretch of traffic under several rules: a lane each, over one time axis."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator

from batchsim import _check
from batchsim._format import tick_in, unit_of
from batchsim.scenario import Rule, Scenario
from batchsim.servers.comparison import Group, ServerComparison
from batchsim.view.canvas.axes import Marks
from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import LIGHT, PAGE, THEMES, Theme, fill_style, named
from batchsim.view.film.lane_kinds import KINDS, comparison_of, since, stretch_of, title_of
from batchsim.view.film.snapshot import PlayRange
from batchsim.view.film.window import Lane

WIDTH_PX = 960
HEAD, FOOT, ROW = 5.2, 3.2, 1.5  # heights in ems; a row of the legend more or less
NARROW_EM = 50  # a picture that is less wide is narrow
MOST_WAITING = 1.25  # times the longest queue of the second fullest lane: longer ones are cut off
DOWN = np.array([[-0.5, -0.55], [0.5, -0.55], [0, 0.45], [-0.5, -0.55]])  # the mark of a preemption


class Lanes(Picture):
    """A comparison of servers as lanes over one time axis, with the arrivals above them."""

    def __init__(
        self, comparison: ServerComparison, stretch: PlayRange, width_px: int = WIDTH_PX, theme: Theme = LIGHT
    ) -> None:  # fmt: skip
        self.comparison, self.stretch, groups = comparison, stretch, comparison.groups
        self.kind = kind = KINDS[comparison.scenario.kind]
        self.lanes = [kind.lane(group, stretch) for group in groups]
        em, heights = PAGE.em_px(width_px), [kind.height_em(lane) for lane in self.lanes]
        wide = width_px / em
        rows = _wrapped(kind.legend(groups, self.lanes), wide)
        head = HEAD + ROW * (len(rows) - 1)
        super().__init__(width_px, round((head + FOOT + sum(heights)) * em), 1.0, theme, em)
        side, left = kind.sides[wide < NARROW_EM] * em, 0.8 * em
        self.plot = Box(side + left, head * em, width_px - side - left - 1.2 * em, sum(heights) * em)
        with self.styled():
            self.tile = Tile(self, Box(0, 0, width_px, self.height_px))
            self.texts_px: list[Lettering] = []
            self._add_head(rows)
            most = sorted(self.most_waiting(lane) for lane in self.lanes)
            self.scale = max(min(most[-1], MOST_WAITING * max(most[-2:][0], 1)), kind.least_scale)
            top = self.plot.top
            for group, lane, height in zip(groups, self.lanes, heights, strict=True):
                self._add_lane(
                    lane, Box(self.plot.left, top + 0.35 * em, self.plot.width, (height - 0.7) * em)
                )
                self._write_names(group, lane, Box(left, top + 0.35 * em, side - left, (height - 0.7) * em))
                top += height * em

    @property
    def title(self) -> str:
        return title_of(self.stretch)

    @property
    def words(self) -> str:
        """A description of the picture."""
        parts = []
        for group, lane in zip(self.comparison.groups, self.lanes, strict=True):
            numbers = self.kind.numbers(group)
            said = [f"{name} {text}" for name, text in numbers.items() if "p99" in name]
            if "useful" in numbers:
                said += [
                    f"{numbers['tokens/s']} tokens/s",
                    f"{numbers['useful']} of the seats' time is useful",
                ]
                stays = lane["stays"]
                back = int((stays["preempted"] & (stays["end_s"] <= self.stretch.until_s)).sum())
                said += [f"{back:,} preempted in this stretch"] * bool(back)
            else:
                said.append(f"at most {self.most_waiting(lane):,} wait")
            parts.append(f"{', '.join(group.names)}: {', '.join(said)}")
        return f"{self.title}. {'. '.join(parts)}."

    def most_waiting(self, lane: Lane) -> int:
        """Return the longest queue of a lane."""
        times_s, count, _ = self.kind.waiting(lane)
        first, last = times_s.searchsorted(self.stretch, side="right")
        return int(count[max(first - 1, 0) : last].max(initial=0))

    def x_px(self, times_s: np.ndarray) -> np.ndarray:
        """Return where times are drawn; those outside the stretch are at its ends."""
        begin_s, until_s = self.stretch
        share = (np.clip(times_s, begin_s, until_s) - begin_s) / (until_s - begin_s)
        return self.plot.left + self.plot.width * share

    # What a lane draws with.

    def put(
        self, name: str, left: np.ndarray, right: np.ndarray, top: np.ndarray, bottom: np.ndarray
    ) -> None:  # fmt: skip
        """Add areas of a fill."""
        some = (right > left) & (bottom > top)
        if some.any():
            begin, end = np.stack([left, top], -1)[some], np.stack([right, bottom], -1)[some]
            self.tile.add(PathPatch(rectangles(begin, end), zorder=2, **fill_style(self.theme, name)))

    def outline(self, path: Path, width: float) -> None:
        style = {"facecolor": "none", "edgecolor": self.theme.ink, "linewidth": width}
        self.tile.add(PathPatch(path, zorder=3, **style))

    def paper(self, path: Path) -> None:
        self.tile.add(PathPatch(path, facecolor=self.theme.background, linewidth=0, zorder=2))

    def mark(self, x: np.ndarray, y: np.ndarray) -> None:
        """Mark preemptions by triangles that point down."""
        vertices = np.stack([x, y], -1)[:, None] + 0.7 * self.font_px * DOWN
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
        style = {"facecolor": self.theme.vermilion, "edgecolor": self.theme.ink, "linewidth": 0.8}
        path = Path(vertices.reshape(-1, 2), codes * x.size) if x.size else NOWHERE
        self.tile.add(PathPatch(path, zorder=3, **style))

    def write_in(
        self, numbers: np.ndarray, left: np.ndarray, right: np.ndarray, y: np.ndarray, margin: float
    ) -> None:  # fmt: skip
        """Write a number into each bar that has room for it."""
        em = self.font_px
        self._letter([
            Label(text, (begin + end) / 2, at + 0.36 * em, "center")
            for text, begin, end, at in zip(map(str, numbers), left, right, y, strict=True)
            if end - begin > (width_em(text) + margin) * em
        ], self.theme.background)  # fmt: skip

    def _letter(self, labels: Sequence[Label], colour: str) -> None:
        lettering = Lettering(self, self.font_px, colour, zorder=6)
        lettering.show(labels)
        self.tile.fixed.append(lettering)
        self.texts_px.append(lettering)

    # The parts.

    def _add_lane(self, lane: Lane, box: Box) -> None:
        em, (share, ems) = self.font_px, self.kind.split
        split = box.top + share * box.height + ems * em
        times_s, count, fills = self.kind.waiting(lane)
        x, top = (
            self.x_px(np.append(times_s, self.stretch.until_s)),
            split - (split - box.top) * np.minimum(count / self.scale, 1),
        )
        for name in np.unique(fills):
            its = fills == name
            self.put(str(name), x[:-1][its], x[1:][its], top[its], np.full(its.sum(), split))
        self.kind.draw(self, lane, Box(box.left, split + 0.2 * em, box.width, box.bottom - split - 0.2 * em))
        if (
            most := self.most_waiting(lane)
        ) > self.scale:  # the number that is cut off, on paper: a hatch is below
            text, left = f"{most:,} wait", box.left + 0.5 * em
            ends = (
                np.array([[left, box.top + 0.2 * em]]),
                np.array([[left + (width_em(text) + 0.6) * em, box.top + 1.6 * em]]),
            )
            self.tile.add(
                PathPatch(rectangles(*ends), facecolor=self.theme.background, linewidth=0, zorder=4)
            )
            self._letter([Label(text, left + 0.3 * em, box.top + 1.3 * em)], self.theme.ink)
        line = [[(0.8 * em, box.bottom + 0.35 * em), (self.plot.right, box.bottom + 0.35 * em)]]
        self.tile.add(LineCollection(line, colors=self.theme.faint, linewidths=1))

    def _write_names(self, group: Group, lane: Lane, box: Box) -> None:
        em, notes, y = self.font_px, self.kind.notes(group, lane), box.top + 1.1 * self.font_px
        room = max(int((box.height / em - 1.6) / 1.3) - len(notes) + 1, 1)
        names = list(group.names)
        if len(names) > room:
            names = [*names[: room - 1], f"+ {len(names) - room + 1} more"]
        for name in names:
            while em * width_em(name, "bold") > box.width and len(name) > 2:
                name = name[:-2] + "\N{HORIZONTAL ELLIPSIS}"
            self.tile.add_text(box.left, y, name, weight="bold", fontsize=em)
            y += 1.3 * em
        for texts in notes:
            text = next((text for text in texts if em * width_em(text) <= box.width), texts[-1])
            self.tile.add_text(box.left, y, text, color=self.theme.soft, fontsize=em)
            y += 1.3 * em

    def _add_head(self, rows: Sequence[Sequence[tuple[str, str, float]]]) -> None:
        """Add the title, the legend, the arrivals and the time axis."""
        em, theme, plot, tile, (begin_s, until_s) = (
            self.font_px,
            self.theme,
            self.plot,
            self.tile,
            self.stretch,
        )
        left, span_ms = 0.8 * em, 1000 * (until_s - begin_s)
        size = min(1.1, (self.width_px / em - 1.6) / width_em(self.title, "bold")) * em
        tile.add_text(left, 1.45 * em, self.title, weight="bold", fontsize=size)
        for number, row in enumerate(rows):
            x, y = left, (3.0 + ROW * number) * em
            for name, text, share in row:
                if name == "preempted":
                    self.mark(np.array([x + 0.65 * em]), np.array([y - 0.3 * em]))
                else:
                    low, high = (np.array([y - (0.3 + way * 0.4 * share) * em]) for way in (-1, 1))
                    self.put(name, np.array([x]), np.array([x + 1.3 * em]), high, low)
                tile.add_text(x + 1.65 * em, y, text, fontsize=em)
                x += (1.65 + width_em(text) + 1.0) * em
        ax, (unit, unit_ms) = tile.add_axes(plot), unit_of(span_ms)
        ax.set(xlim=(0, span_ms), ylim=(0, 1), xlabel=f"time ({unit}){since(begin_s)}")
        ax.xaxis.set_major_formatter(tick_in(unit_ms))
        ax.yaxis.set_major_locator(FixedLocator([]))
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.patch.set_visible(False)
        Marks(tile, ax, plot, self.height_px - 0.7 * em, grid="x", numbers="x").refresh()
        arrival_s = self.comparison.groups[0].result.arrival_s
        seen = self.x_px(arrival_s[(arrival_s >= begin_s) & (arrival_s <= until_s)])
        ticks = [[(at, plot.top - 1.2 * em), (at, plot.top - 0.3 * em)] for at in seen]
        tile.add(LineCollection(ticks, colors=theme.soft, linewidths=1))
        tile.add_text(plot.left, plot.top - 0.4 * em, "", color=theme.soft, fontsize=em)
        tile.add_text(left, plot.top - 0.4 * em, "arrivals", color=theme.soft, fontsize=em)


def _wrapped(entries: Sequence[tuple[str, str, float]], wide: float) -> list[list[tuple[str, str, float]]]:
    """Return the legend in rows."""
    rows: list[list[tuple[str, str, float]]] = [[]]
    x = 0.8
    for entry in entries:
        room = 1.65 + width_em(entry[1])
        if rows[-1] and x + room > wide - 0.8:
            rows, x = [*rows, []], 0.8
        rows[-1].append(entry)
        x += room + 1.0
    return rows


def lanes(
    what: ServerComparison | Scenario, rules: Mapping[str, Rule] | None = None, begin_s: float | None = None,
    length_s: float | None = None, width_px: int = WIDTH_PX, theme: str = "light",
) -> Lanes:  # fmt: skip
    """Return a picture of one stretch of traffic under several rules, a lane each.

    `what` is the return value of `compare_servers`, or a scenario with the `rules` to compare, by name. A
    lane shows the length of the queue (forming while a server is idle, otherwise queueing), and below it the
    batches with their sizes. The stretch begins at `begin_s` and lasts `length_s`, by default about 60
    requests from the middle. `words` describes the picture.

    With tokens a lane has a row for each seat. A prompt fills the height of its row; a step that makes one
    token is lower. Seats are hatched if they are empty while others compute, or if they belong to a whole
    batch and their answer is complete. The numbers of the whole run are on the left. Without `rules`, the
    lanes compare whole batches, size or wait, and continuous batching.

    >>> from batchsim import Affine, FrozenBatches, Poisson, Scenario, SizeOrWait
    >>> scenario = Scenario(Poisson(80), SizeOrWait(), Affine(47, 3.6))
    >>> lanes(scenario, {"grows": SizeOrWait(32, 50), "frozen": FrozenBatches(32, 60)}, length_s=1)
    <Lanes size 960x265 with 1 Axes>
    """
    if not isinstance(what, (ServerComparison, Scenario)):
        raise TypeError(f"lanes takes a Scenario or what compare_servers returns, got {what!r}")
    compared = comparison_of(what, rules)
    _check.whole("width_px", width_px, at_least=320)
    stretch = stretch_of(compared, begin_s, length_s)
    return Lanes(compared, stretch, width_px, named("theme", theme, THEMES))
