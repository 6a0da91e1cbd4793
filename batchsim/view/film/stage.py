"""The film's stage: requests flow from the left through the queue into the servers, and out on the right."""

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch, Rectangle

from batchsim.view.canvas.cells import NOWHERE, rectangles
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.film.motion import Choreography
from batchsim.view.film.places import Places, places_in
from batchsim.view.film.shapes import DIGITS, FadingBoxes, Gauge, RequestBoxes
from batchsim.view.film.snapshot import Film, Snapshot, Stretch
from batchsim.view.film.words import activities, queue_titles, server_titles, size_texts, wait_texts

LEAST_FONT_PX = 12
WIDE = 48  # ems: a wider stage has its header in one line


class Stage(Tile):
    """The film of a run, in any box of a picture: a clock, the queue and the servers, and the rule's gauges.

    Boxes are as large as the fullest moment of the `fit`ted stretch allows, and keep their size in all of it.
    """

    def __init__(self, picture: Picture, box: Box) -> None:
        super().__init__(picture, box)
        self.em = em = max(picture.font_px, LEAST_FONT_PX)
        self.film: Film | None = None
        self.left, self.right = box.left + 0.8 * em, box.right - 0.8 * em
        self.is_wide = box.width >= WIDE * em
        self.header_px = (2.0 if self.is_wide else 3.4) * em
        theme = self.theme
        self.coming = FadingBoxes(self, theme.soft, filled=False, zorder=2)
        self.waiting = RequestBoxes(self, em, zorder=2.5)
        self.finished = FadingBoxes(self, theme.blue, zorder=3)
        self.computing = RequestBoxes(self, em, zorder=4)
        self.lost = FadingBoxes(self, theme.vermilion, zorder=4.5)
        self.group = self.add(PathPatch(NOWHERE, facecolor="none", edgecolor=theme.ink, linewidth=1.2, zorder=5))
        self.bars = self.add(PathPatch(NOWHERE, facecolor=theme.blue, linewidth=0, zorder=2))
        self.clock = Lettering(picture, 1.1 * em, theme.ink, "bold")
        self.bold = Lettering(picture, em, theme.ink, "bold")
        self.texts = Lettering(picture, em, theme.ink)
        self.set_moving(self.group, self.bars, self.clock, self.bold, self.texts)
        room = (self.right - self.left - 1.6 * em) / 2
        top = box.bottom - 1.1 * em
        self.size_gauge, self.wait_gauge = (
            Gauge(self, Box(left, top, room, 0.6 * em)) for left in (self.left, self.right - room)
        )
        self.enough = self.add(Rectangle((0, 0), 0, 0.9 * em, color=theme.ink, linewidth=0))
        self.body = Box(
            box.left, box.top + self.header_px + 1.5 * em, box.width, 0.0
        )._replace(height=top - 1.9 * em - (box.top + self.header_px + 1.5 * em))
        self.frames: list[Artist] = []
        self.places: Places | None = None

    # What stands still.

    def fit(self, film: Film, stretch: Stretch | None = None) -> None:
        """Prepare for a film, or for a stretch of it: how large its boxes are, and where."""
        begin_s, until_s = stretch or film.stretch(requests=film.result.arrival_s.size)
        largest = film.largest_batch(begin_s, until_s)
        most = max(film.most_waiting(begin_s, until_s), largest)
        arrival_s = film.result.arrival_s
        come = len(film.coming(begin_s, until_s))
        pace_s = (min(until_s, float(arrival_s[-1])) - begin_s) / max(come, 1)
        self.film = film
        self.digits = min(len(str(arrival_s.size - 1)), DIGITS)
        places = places_in(self.body, most, film.servers, largest, self.em)
        self.choreography = Choreography(film, places, max(pace_s, 1e-12))
        if self.hold("places", (places.lane, places.queue_box, len(places.servers), places.servers[0].box, film.servers)):
            self._put_up(places)
        self.places = places

    def _put_up(self, places: Places) -> None:
        self.remove(self.frames)
        em, theme, above = self.em, self.theme, self.body.top - 0.5 * self.em
        box = places.queue_box
        with self.picture.styled():
            banks = [[(places.lane.left, y), (box.right, y)] for y in (box.top - 2, box.bottom + 2)]
            frames = rectangles(*_ends([server.box for server in places.servers]))
            backs = rectangles(*_ends([server.bar for server in places.servers]))
            self.frames = [
                self.add(LineCollection(banks, colors=theme.faint, linewidths=2)),
                self.add(PathPatch(frames, facecolor="none", edgecolor=theme.soft, linewidth=1)),
                self.add(PathPatch(backs, facecolor=theme.faint, linewidth=0)),
                self.add_text(self.left, above, "arrivals \u2192", color=theme.soft, fontsize=em),
            ]

    # What moves.

    def show(self, film: Film, time_s: float, within_s: float = 0.0) -> Snapshot:
        """Draw a moment, and return the snapshot; a batch that left `within_s` ago still leaves."""
        now = film.snapshot(time_s)
        if film is not self.film:
            self.fit(film)
        crowds = self.choreography.at(now)
        component = "forming" if now.forming else "queueing"
        self.coming.show(crowds.coming)
        self.waiting.show(crowds.waiting, component, self.digits)
        self.computing.show(crowds.computing, "computing", self.digits)
        self.finished.show(crowds.finished)
        self.lost.show(crowds.lost)
        self.group.set_path(rectangles(*_ends(crowds.groups)))
        self._show_servers(now)
        self._show_gauges(now, component)
        self._show_texts(now, within_s, component)
        return now

    def _show_servers(self, now: Snapshot) -> None:
        """Fill the servers' bars: how much of each batch is done."""
        assert self.places is not None
        fills = []
        for place, batch in zip(self.places.servers, now.computing, strict=False):
            if batch is not None:
                share = (now.time_s - batch.start_s) / (batch.finish_s - batch.start_s)
                fills.append(place.bar._replace(width=place.bar.width * min(share, 1.0)))
        self.bars.set_path(rectangles(*_ends(fills)))

    def _show_gauges(self, now: Snapshot, component: str) -> None:
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

    def _show_texts(self, now: Snapshot, within_s: float, component: str) -> None:
        assert self.film is not None
        assert self.places is not None
        em, decimals, line = self.em, self.film.decimals, self.box.top + 1.45 * self.em
        self.clock.show([Label(f"{now.time_s * 1000:,.{decimals}f} ms", self.left, line)])
        counters = [f"served {now.served:,}"] + [f"lost {now.lost:,}"] * self.film.loses
        beside, clock = self.left + 8.5 * em, self.clock.labels[0].text
        beside = max(beside, self.left + 1.1 * em * width_em(clock, "bold") + em)
        room = self.right - beside - (0 if not self.is_wide else 31 * em)
        if self.is_wide or room > 9 * em * (len(counters) + 1):
            counters.insert(0, f"arrived {now.arrived:,}")
        texts = [
            Label(text, self.right - 9 * em * index, line, "right") for index, text in enumerate(counters[::-1])
        ]
        if self.is_wide:
            texts.append(Label(self._fitting(activities(now, within_s), room), beside, line))
        else:
            down = line + 1.5 * em
            texts.append(Label(self._fitting(activities(now, within_s), self.right - self.left), self.left, down))
        above, servers = self.body.top - 0.5 * em, self.places.servers
        queue, begin = self.places.queue_box, servers[0].box.left
        room = begin - queue.left - 0.8 * em
        undrawn = now.waiting.size - len(self.places.queue.corners)
        titles = queue_titles(now.waiting.size, undrawn, component)
        bold = [Label(self._fitting(titles, room, "bold"), queue.left + 0.3 * em, above)]
        bold.append(Label(self._fitting(server_titles(now, len(servers)), self.box.right - begin, "bold"), begin, above))
        for number_, (place, batch) in enumerate(zip(servers, now.computing, strict=False)):
            if place.has_text:
                at = place.bar.left, place.box.top + 1.25 * em
                if len(now.computing) > 1:
                    bold.append(Label(f"{number_}", *at))
                sizes = ("idle", "") if batch is None else (f"batch of {batch.requests.size:,}", f"{batch.requests.size:,}")
                texts.append(Label(self._fitting(sizes, place.bar.width - 2 * em * (len(now.computing) > 1)), place.bar.right, at[1], "right"))
        for gauge, options in (
            (self.size_gauge, size_texts(now.waiting.size, now.rule)),
            (self.wait_gauge, wait_texts(now.waited_ms, now.rule.max_wait_ms, decimals)),
        ):
            text = self._fitting(options, gauge.box.width)
            texts.append(Label(text, gauge.box.left, gauge.box.top - 0.45 * em))
        self.bold.show(bold)
        self.texts.show(texts)

    def _fitting(self, texts: Sequence[str], room: float, weight: str = "normal") -> str:
        """Return the first of some texts that fits, or the last."""
        return next((text for text in texts if self.em * width_em(text, weight) <= room), texts[-1])


def _ends(boxes: Iterable[Box]) -> tuple[np.ndarray, np.ndarray]:
    """Return the opposite corners of boxes, each of shape (boxes, 2)."""
    edges = np.array([(box.left, box.top, box.right, box.bottom) for box in boxes]).reshape(-1, 4)
    return edges[:, :2], edges[:, 2:]
