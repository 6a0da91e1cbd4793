"""The film's stage: requests flow from the left through the queue into the servers, and out on the right."""

from collections.abc import Iterable

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch, Rectangle

from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import COMPILING, COMPONENTS, LEAST_PX
from batchsim.view.film.captions import ABOVE, Captions
from batchsim.view.film.motion import Choreography, Crowd
from batchsim.view.film.places import Places, places_in
from batchsim.view.film.shapes import DIGITS, FadingBoxes, Flags, Gauge, RequestBoxes, fill_style
from batchsim.view.film.snapshot import Film, Snapshot, Stretch


class Stage(Tile):
    """The film of a run, in any box of a picture: a clock, the queue and the servers, and the rule's gauges.

    Boxes of requests are as large as the fullest moment of the stretch to which the stage is `fit` allows,
    and keep their size in all of it: each stands for one request, and none is left out as long as it can be
    seen at all.
    """

    def __init__(self, picture: Picture, box: Box) -> None:
        super().__init__(picture, box)
        self.em = em = max(picture.font_px, LEAST_PX)
        theme, left, right = self.theme, box.left + 0.8 * em, box.right - 0.8 * em
        self.coming = FadingBoxes(self, theme.soft, filled=False, zorder=2)
        self.bars = self.add(PathPatch(NOWHERE, facecolor=theme.blue, linewidth=0, zorder=2))
        self.waiting = RequestBoxes(self, em, zorder=2.5)
        self.finished = FadingBoxes(self, theme.blue, zorder=3)
        self.computing, self.held = (RequestBoxes(self, em, zorder=4) for _ in range(2))
        self.flags = Flags(self, zorder=4.4)
        self.lost = FadingBoxes(self, theme.vermilion, zorder=4.5)
        group = PathPatch(NOWHERE, facecolor="none", edgecolor=theme.ink, linewidth=1.2, zorder=5)
        self.group = self.add(group)
        style = fill_style(self, COMPILING)
        self.compiling = self.add(PathPatch(NOWHERE, linewidth=0, zorder=2.1, **style))
        style = fill_style(self, COMPONENTS["device_wait"])
        self.waits = self.add(PathPatch(NOWHERE, linewidth=0, zorder=2.1, **style))
        self.set_moving(self.bars, self.compiling, self.waits, self.group)
        self.captions = Captions(self, left, right, em)
        # From the bottom: the gauges, their names; from the top: the header, the parts' names.
        wide, low, high = (right - left - 1.6 * em) / 2, box.bottom - 1.1 * em, 0.6 * em
        self.size_gauge = Gauge(self, Box(left, low, wide, high))
        self.wait_gauge = Gauge(self, Box(right - wide, low, wide, high))
        self.enough = self.add(Rectangle((0, 0), 0, 1.5 * high, color=theme.ink, linewidth=0))
        top = box.top + self.captions.height_px + (1 + ABOVE) * em
        self.body = Box(box.left, top, box.width, max(low - 1.9 * em - top, em))
        self.frames: list[Artist] = []
        self.film: Film | None = None

    # What stands still.

    def fit(self, film: Film, stretch: Stretch | None = None) -> None:
        """Prepare for a stretch of a film, by default all of it: how large its boxes are, and where."""
        begin_s, until_s = stretch or film.stretch(requests=film.result.arrival_s.size)
        largest = film.largest_batch(begin_s, until_s)
        waiting = max(film.most_waiting(begin_s, until_s), largest)
        last_s = min(until_s, float(film.result.arrival_s[-1]))
        pace_s = (last_s - begin_s) / max(film.coming(begin_s, until_s).size, 1)
        self.film, self.digits = film, min(len(str(film.result.arrival_s.size - 1)), DIGITS)
        self.places = places = places_in(self.body, waiting, film.servers, largest, self.em)
        self.choreography = Choreography(film, places, max(pace_s, 1e-12))
        if self.hold("places", [places.queue_box, *(server.box for server in places.servers)]):
            self.remove(self.frames)
            with self.picture.styled():
                self.frames = self._put_up(places)

    def _put_up(self, places: Places) -> list[Artist]:
        """Add the banks of the queue, the servers' frames, and where the requests come from."""
        queue, lane, theme = places.queue_box, places.lane, self.theme
        banks = [[(lane.left, y), (queue.right, y)] for y in (queue.top - 2, queue.bottom + 2)]
        frames = rectangles(*_ends(server.box for server in places.servers))
        backs = rectangles(*_ends(server.bar for server in places.servers))
        name = "arrivals \u2192" if lane.width > 7 * self.em else "arrivals"
        style = {"color": theme.soft, "fontsize": self.em}
        return [
            self.add(LineCollection(banks, colors=theme.faint, linewidths=2)),
            self.add(PathPatch(frames, facecolor="none", edgecolor=theme.soft, linewidth=1)),
            self.add(PathPatch(backs, facecolor=theme.faint, linewidth=0)),
            self.add_text(self.captions.left, queue.top - ABOVE * self.em, name, **style),
        ]

    # What moves.

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment, and return the snapshot; a batch that left `within_s` ago still leaves."""
        now = film.snapshot(time_s)
        if film is not self.film:
            self.fit(film)
        crowds, component = self.choreography.at(now), "forming" if now.forming else "queueing"
        self.coming.show(crowds.coming)
        self.waiting.show(crowds.waiting, component, self.digits)
        self.computing.show(crowds.computing, "computing", self.digits)
        self.held.show(crowds.held, "device_wait", self.digits)
        seen = Crowd.join([crowds.coming, crowds.waiting, crowds.computing, crowds.held])
        self.flags.show(seen, film.turns.flags(seen.requests))
        self.finished.show(crowds.finished)
        self.lost.show(crowds.lost)
        self.group.set_path(rectangles(*_ends(crowds.groups)))
        self._show_bars(now)
        self._show_gauges(now, component)
        gauges = self.size_gauge.box, self.wait_gauge.box
        self.captions.show(now, within_s, film, self.places, gauges)
        return now

    def _show_bars(self, now: Snapshot) -> None:
        """Show how far each batch is, and what of that went to compiling its shape or to waiting."""
        fills, compiled, waited = [], [], []
        for place, batch in zip(self.places.servers, now.computing, strict=False):
            if batch is not None:
                share, ready, asked, begin = (
                    (time_s - batch.start_s) / (batch.finish_s - batch.start_s)
                    for time_s in (now.time_s, batch.ready_s, *batch.held_s)
                )
                left, wide = place.bar.left + place.bar.width * asked, min(share, begin) - asked
                waited.append(place.bar._replace(left=left, width=place.bar.width * wide))
                fills.append(place.bar._replace(width=place.bar.width * min(share, 1.0)))
                compiled.append(place.bar._replace(width=place.bar.width * min(share, ready, 1.0)))
        self.bars.set_path(rectangles(*_ends(fills)))
        for patch, bars in ((self.compiling, compiled), (self.waits, waited)):
            seen = [bar for bar in bars if bar.width > 0]
            patch.set_path(rectangles(*_ends(seen)))
            patch.set_visible(bool(seen))  # a hatch takes its time even on nothing

    def _show_gauges(self, now: Snapshot, component: str) -> None:
        """Show how near a batch is to leaving: by the number that waits, and the oldest's wait."""
        rule, gauge = now.rule, self.size_gauge.box
        self.size_gauge.show(now.waiting.size / rule.largest_batch, component)
        if self.hold("enough", rule.enough / rule.largest_batch):
            wide = 0.0 if rule.enough == rule.largest_batch else 0.17 * self.em
            x = gauge.left + gauge.width * rule.enough / rule.largest_batch - wide / 2
            self.enough.set(x=x, y=gauge.top - 0.15 * self.em, width=wide)
        limit_ms, waited_ms = rule.max_wait_ms, now.waited_ms
        # A wait of 0 ms is over at once.
        share = 0.0 if waited_ms is None else waited_ms / limit_ms if limit_ms else 1.0
        self.wait_gauge.show(share, component)


def _ends(boxes: Iterable[Box]) -> tuple[np.ndarray, np.ndarray]:
    """Return the opposite corners of boxes, each of shape (boxes, 2)."""
    edges = np.array([(box.left, box.top, box.right, box.bottom) for box in boxes]).reshape(-1, 4)
    return edges[:, :2], edges[:, 2:]
