"""The lanes of a comparison: each rule's queue and batches, under a legend and over one time axis."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator

from batchsim._format import INFINITE, duration, tick_in, typed, typed_duration, unit_of
from batchsim.result.metrics import DEVICE_WAIT
from batchsim.scenario import Rule, Scenario
from batchsim.servers.comparison import REQUESTS, Group, ServerComparison
from batchsim.view.canvas.axes import Marks
from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import COMPONENTS, Theme, in_words
from batchsim.view.film.snapshot import Film, PlayRange, Snapshot

BATCHES = 0.32  # of a lane's height


class Steps(NamedTuple):
    """The number of waiting requests from each instant on, and whether a server is idle."""

    times_s: np.ndarray
    waiting: np.ndarray
    idle: np.ndarray


class LaneFilm(Film):
    """A film with the length of its queue over time."""

    @cached_property
    def steps(self) -> Steps:
        times_s, batches = self.instants(), self.result.batches
        arrived, started, left = (
            np.searchsorted(np.sort(each), times_s, side="right")
            for each in (self.result.arrival_s, batches.start_s, self._left_s)
        )
        ended = np.searchsorted(np.sort(batches.finish_s), times_s, side="right")
        return Steps(times_s, arrived - left, started - ended < self.servers)

    def within(self, stretch: PlayRange) -> Steps:
        """Return the steps of a stretch, the first at its beginning and one more at its end."""
        steps, (begin_s, until_s) = self.steps, stretch
        first, last = np.searchsorted(steps.times_s, [begin_s, until_s], side="right").tolist()
        at = slice(max(first - 1, 0), last)
        times_s = np.append(np.maximum(steps.times_s[at], begin_s), until_s)
        # The queue is empty before the first instant.
        return Steps(times_s, steps.waiting[at], steps.idle[at])


class Lane:
    """One rule: the length of its queue, forming or queueing, above its batches."""

    def __init__(
        self, tile: Tile, group: Group, box: Box, names: Box, x_px: Callable[[np.ndarray], np.ndarray]
    ) -> None:  # fmt: skip
        self.tile, self.group, self.box, self.x_px = tile, group, box, x_px
        self.film, self.em = LaneFilm(group.result), tile.picture.font_px
        theme, em = tile.theme, self.em
        self.split_px = box.bottom - BATCHES * box.height
        self.parts = {
            name: tile.add(PathPatch(NOWHERE, linewidth=0, facecolor=getattr(theme, style.colour), zorder=2))
            for name, style in COMPONENTS.items()
        }
        for name, style in COMPONENTS.items():
            self.parts[name].set(hatch=style.hatch, edgecolor=theme.background)
        self.parts[DEVICE_WAIT].set_zorder(2.1)  # over the batch, which is drawn as computing
        self.frames = tile.add(
            PathPatch(NOWHERE, facecolor="none", edgecolor=theme.ink, linewidth=1, zorder=3)
        )
        self.paper = tile.add(Rectangle((0, 0), 0, 0, facecolor=theme.background, linewidth=0, zorder=4))
        tile.set_moving(*self.parts.values(), self.frames, self.paper)
        self._write_names(names, em)

    def _write_names(self, names: Box, em: float) -> None:
        """Write the names of the rules, and the p99 of the whole run."""
        room = int((names.height - 1.6 * em) / (1.3 * em))
        wanted = list(self.group.names)
        if len(wanted) > room:
            wanted = [*wanted[: room - 1], f"+ {len(wanted) - room + 1} more"]
        y = names.top + 1.4 * em
        for name in wanted:
            while self.em * width_em(name, "bold") > names.width and len(name) > 2:
                name = name[:-2] + "\N{HORIZONTAL ELLIPSIS}"
            self.tile.add_text(names.left, y, name, weight="bold", fontsize=em)
            y += 1.3 * em
        result = self.group.result
        p99 = duration(result.percentile(99)) if self.group.stable else INFINITE
        self.tile.add_text(names.left, y, f"p99 {p99}", color=self.tile.theme.soft, fontsize=em)

    def most_waiting(self, stretch: PlayRange) -> int:
        return int(self.film.within(stretch).waiting.max(initial=0))

    def show(self, stretch: PlayRange, until_s: float, scale: float) -> list[Label]:
        """Draw the lane until a time, and return its labels."""
        box, em = self.box, self.em
        steps = self.film.within(PlayRange(stretch.begin_s, min(until_s, stretch.until_s)))
        x, high = self.x_px(steps.times_s), self.split_px - box.top - 0.2 * em
        tops = self.split_px - high * np.minimum(steps.waiting / scale, 1)
        begin = np.stack([x[:-1], tops], axis=-1)
        end = np.stack([x[1:], np.full(tops.size, self.split_px)], axis=-1)
        drawn = (steps.waiting > 0) & (x[1:] > x[:-1])
        for name, which in (("forming", steps.idle), ("queueing", ~steps.idle)):
            self.parts[name].set_path(rectangles(begin[drawn & which], end[drawn & which]))
            self.parts[name].set_visible(bool((drawn & which).any()))
        most = int(steps.waiting.max(initial=0))
        labels, text = [], f"{most:,} wait"
        self.paper.set_visible(most > scale)
        if most > scale:  # the number that is cut off, on paper, as a hatch would make it unreadable
            left, wide = box.left + 0.5 * em, (width_em(text) + 0.6) * em
            self.paper.set_bounds(left, box.top + 0.3 * em, wide, 1.5 * em)
            labels.append(Label(text, left + 0.3 * em, box.top + 1.4 * em))
        return labels + self._show_batches(stretch, until_s)

    def _show_batches(self, stretch: PlayRange, until_s: float) -> list[Label]:
        em, servers = self.em, self.film.servers
        batches = self.film.result.batches
        last_s = min(until_s, stretch.until_s)
        seen = np.flatnonzero((batches.start_s <= last_s) & (batches.finish_s > stretch.begin_s))
        rows = batches.server[seen]
        pitch = (self.box.bottom - self.split_px - 0.2 * em) / servers
        top = self.split_px + 0.2 * em + pitch * rows
        ends_s = np.minimum(batches.finish_s[seen], stretch.until_s)
        left, right = self.x_px(np.maximum(batches.start_s[seen], stretch.begin_s)), self.x_px(ends_s)
        done = np.minimum(right, self.x_px(np.array([last_s])))
        bottom = top + pitch - min(1.0, 0.2 * pitch)
        corners = np.stack([left, top], axis=-1)
        self.frames.set_path(rectangles(corners, np.stack([right, bottom], axis=-1)))
        self.frames.set_linewidth(min(1.0, 0.15 * pitch))
        self.parts["computing"].set_path(rectangles(corners, np.stack([done, bottom], axis=-1)))
        self.parts["computing"].set_visible(bool(seen.size))
        held_s = self.film.result.run.device_time
        begin, end = (np.clip(self.x_px(each[seen]), left, done) for each in (held_s.asked_s, held_s.begin_s))
        self.parts[DEVICE_WAIT].set_path(
            rectangles(
                np.stack([begin, top], axis=-1)[end > begin], np.stack([end, bottom], axis=-1)[end > begin]
            )
        )
        self.parts[DEVICE_WAIT].set_visible(bool((end > begin).any()))
        if pitch < 1.2 * em:
            return []
        # A number appears once its bar is long enough.
        return [
            Label(text, (low + high) / 2, y + pitch / 2 + 0.36 * em, "center")
            for text, low, high, now, y in zip(
                map(str, batches.batch_size[seen]), left, right, done, top, strict=True
            )
            if high - low > (width_em(text) + 0.4) * em and now >= (low + high) / 2 + width_em(text) * em / 2
        ]  # fmt: skip


MOST_WAITING = 1.25  # times the longest queue of the second fullest lane: longer ones are cut off
LANE, HEAD, FOOT, ROW = 6.5, 5.2, 3.2, 1.5  # heights in ems; a row of the legend more or less
NAMES, NARROW = 10.0, 7.5  # ems: the column of names, and that of a narrow picture
NARROW_EM = 50  # a picture that is less wide is narrow


class Entry(NamedTuple):
    """A part of the legend: its name and its swatch's style; `outline` is the shape of a mark 1 em high."""

    text: str
    style: dict[str, Any]
    outline: np.ndarray | None = None


def filled(colour: str, background: str, hatch: str = "", **more: Any) -> dict[str, Any]:
    """Return the style of an area: its colour, and a hatch in the background's."""
    return {"facecolor": colour, "hatch": hatch, "edgecolor": background, "linewidth": 0} | more


class LanesView(Tile):
    """The lanes of a comparison, with the arrivals above them; `show` draws them until a time.

    It is both stage and timeline of its film, and shows the whole `stretch` that is played.
    """

    film: Any  # of all lanes, with `describe`
    shown, simulated = 60, REQUESTS  # requests in a window, and in a run
    noun = "server"  # whose lanes they are
    answers_last = False  # whether an answer takes longer than the gap between requests
    is_staged = True  # whether a film of one run has a stage instead of a lane
    least_scale = 1  # the shortest queue that fills the height

    def __init__(self, picture: Picture, comparison: ServerComparison, stretch: PlayRange) -> None:
        super().__init__(picture, Box(0, 0, picture.width_px, picture.height_px))
        em = self.em = picture.font_px
        wide = self.box.width / em
        self.comparison, self.stretch = comparison, stretch
        side, self.rows = self.side_em(wide) * em, self.legend_rows(comparison, stretch, self.theme, wide)
        left, top = self.box.left + side + 0.8 * em, self.box.top + self.head_em(len(self.rows)) * em
        self.plot = Box(left, top, self.box.width - left - 1.2 * em, self.box.height - top - FOOT * em)
        heights = self.heights_em(comparison, stretch)
        boxes, px = [], self.plot.height / sum(heights)  # an em, as the whole picture is rounded to pixels
        for height in heights:
            boxes.append(Box(left, top + 0.35 * em, self.plot.width, height * px - 0.7 * em))
            top += height * px
        names = [Box(0.8 * em, box.top, side - 0.8 * em, box.height) for box in boxes]
        self._add_fixed(boxes)
        self.lanes = self.lanes_in(boxes, names)
        self.numbers = Lettering(picture, em, self.theme.background, zorder=6)
        self.counts = Lettering(picture, em, self.theme.ink, zorder=6)
        # It begins at the arrivals, above the axes.
        high = 1 + 1.2 * em / self.plot.height
        cursor = self.axes[0].axvline(0, 0, high, clip_on=False, color=self.theme.ink, linewidth=1.2)
        cursor.set(visible=False, zorder=5)
        self.cursors = [cursor]
        self.set_moving(self.numbers, self.counts, cursor)
        most = sorted(lane.most_waiting(stretch) for lane in self.lanes)
        second = most[-2] if len(most) > 1 else most[-1]
        self.scale = max(min(most[-1], MOST_WAITING * max(second, 1)), self.least_scale)
        self.film = self.film_of()
        self.draw_until(stretch.until_s)

    # What a subclass may replace.

    @staticmethod
    def usual_rules(scenario: Scenario) -> dict[str, Rule]:
        """Return the rules to compare if none are given, by name; ValueError if there are no usual ones."""
        raise ValueError("rules must be given with a scenario, as {name: rule}, got none")

    @classmethod
    def side_em(cls, wide: float) -> float:
        """Return the width of the column of names in a picture of this width, in ems."""
        return NARROW if wide < NARROW_EM else NAMES

    @classmethod
    def heights_em(cls, comparison: ServerComparison, stretch: PlayRange) -> list[float]:
        """Return the height of each lane."""
        return [LANE] * len(comparison.groups)

    @classmethod
    def entries(cls, comparison: ServerComparison, stretch: PlayRange, theme: Theme) -> list[Entry]:
        """Return the parts of the legend."""
        names = {part for group in comparison.groups for part in group.result.metrics.components}
        return [
            Entry(
                "waiting, forming" if name == "forming" else in_words(name),
                filled(getattr(theme, style.colour), theme.background, style.hatch),
            )
            for name, style in COMPONENTS.items()
            if name in names
        ]

    def lanes_in(self, boxes: Sequence[Box], names: Sequence[Box]) -> Sequence[Any]:
        """Return the lanes, each in its box, with a box for its name."""
        return [
            Lane(self, *each, self.x_px) for each in zip(self.comparison.groups, boxes, names, strict=True)
        ]

    def film_of(self) -> Film:
        """Return the film for a player."""
        return SideBySide(self.comparison, self.lanes)

    @property
    def words(self) -> str:
        """A description of the picture."""
        parts = []
        for lane in self.lanes:
            names, result = ", ".join(lane.group.names), lane.group.result
            p99 = duration(result.percentile(99)) if lane.group.stable else INFINITE
            parts.append(f"{names}: p99 {p99}, at most {lane.most_waiting(self.stretch):,} wait")
        return self.title + ". " + ". ".join(parts) + "."

    @property
    def title(self) -> str:
        span_ms = 1000 * (self.stretch.until_s - self.stretch.begin_s)
        return f"The same {typed_duration(float(f'{span_ms:.6g}'))} of traffic under each rule"

    @classmethod
    def height_em(
        cls, comparison: ServerComparison, stretch: PlayRange, theme: Theme, wide: float
    ) -> float:  # fmt: skip
        """Return the height of a picture of this width, in ems."""
        rows = len(cls.legend_rows(comparison, stretch, theme, wide))
        return cls.head_em(rows) + FOOT + sum(cls.heights_em(comparison, stretch))

    @staticmethod
    def head_em(rows: int) -> float:
        return HEAD + ROW * (rows - 1)

    @classmethod
    def legend_rows(
        cls, comparison: ServerComparison, stretch: PlayRange, theme: Theme, wide: float
    ) -> list[list[Entry]]:
        """Return the legend, wrapped into rows."""
        rows: list[list[Entry]] = [[]]
        x = 0.8
        for entry in cls.entries(comparison, stretch, theme):
            room = 1.65 + width_em(entry.text)
            if rows[-1] and x + room > wide - 0.8:
                rows, x = [*rows, []], 0.8
            rows[-1].append(entry)
            x += room + 1.0
        return rows

    @property
    def timeline(self) -> "LanesView":
        return self

    @property
    def window_s(self) -> tuple[float, float]:
        return self.stretch

    def x_px(self, times_s: np.ndarray) -> np.ndarray:
        begin_s, until_s = self.stretch
        return self.plot.left + self.plot.width * (times_s - begin_s) / (until_s - begin_s)

    def _add_fixed(self, boxes: list[Box]) -> None:
        """Add the title, the legend, the arrivals, the time axis, and the lines between the lanes."""
        em, theme, plot, (begin_s, until_s) = self.em, self.theme, self.plot, self.stretch
        span_ms = 1000 * (until_s - begin_s)
        left = 0.8 * em
        size = min(1.1, (self.box.width / em - 1.6) / width_em(self.title, "bold")) * em
        self.add_text(left, 1.45 * em, self.title, weight="bold", fontsize=size)
        for number, row in enumerate(self.rows):
            x, y = left, (3.0 + ROW * number) * em
            for text, style, outline in row:
                path = rectangles(np.array([[x, y - 0.7 * em]]), np.array([[x + 1.3 * em, y + 0.1 * em]]))
                if outline is not None:
                    path = Path(np.array([x + 0.65 * em, y - 0.3 * em]) + 0.9 * em * outline)
                self.add(PathPatch(path, **style))
                self.add_text(x + 1.65 * em, y, text, fontsize=em)
                x += (1.65 + width_em(text) + 1.0) * em
        ax = self.add_axes(plot)
        unit, unit_ms = unit_of(span_ms)
        since = f" from {typed(float(f'{begin_s:.6g}'))} s on" if begin_s else ""
        ax.set(xlim=(0, span_ms), ylim=(0, 1), xlabel=f"time ({unit}){since}")
        ax.xaxis.set_major_formatter(tick_in(unit_ms))
        ax.yaxis.set_major_locator(FixedLocator([]))
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.patch.set_visible(False)
        self.marks = Marks(self, ax, plot, self.box.bottom - 0.7 * em, grid="x", numbers="x")
        for box in boxes:
            ends = [[(left, box.bottom + 0.35 * em), (plot.right, box.bottom + 0.35 * em)]]
            self.add(LineCollection(ends, colors=theme.faint, linewidths=1))
        arrival_s = self.comparison.groups[0].result.arrival_s
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
        """Draw the lanes until a moment."""
        (cursor,) = self.cursors
        cursor.set_visible(True)
        cursor.set_xdata([1000 * (time_s - self.stretch.begin_s)] * 2)
        self.draw_until(time_s)
        return film.snapshot(time_s)


class SideBySide(LaneFilm):
    """The film of the first lane, with the events of all lanes."""

    def __init__(self, comparison: ServerComparison, lanes: Sequence[Lane]) -> None:
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
