"""One lane: a stretch of traffic under one rule, with its queue above and its batches below."""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from matplotlib.patches import PathPatch, Rectangle

from batchsim._format import INFINITE, duration
from batchsim.result.metrics import DEVICE_WAIT
from batchsim.servers.comparison import Group
from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.lettering import Label, width_em
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.canvas.theme import COMPONENTS
from batchsim.view.film.snapshot import Film, PlayRange

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
