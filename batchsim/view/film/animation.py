"""The queue and the servers at a moment of a run, drawn fast enough to be played."""

import math

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from batchsim._format import number, typed
from batchsim.result import Result
from batchsim.view.canvas.lettering import Lettering, Words
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import size_of, theme_of
from batchsim.view.film.pseudocode import acting, pseudocode
from batchsim.view.film.shapes import COMPUTING, FORMING, GAP, HIGH, QUEUEING, WIDE, Bar, Boxes, outlines
from batchsim.view.film.snapshot import Doing, Film, Job, Moment

SLOTS = 24  # of the queue, at least, where there is room
CELL = 11  # the least width of a server beside another, in ems
LOW = 2.9  # the least height of a server, in ems: a line of text and a bar
ROOMY = 18  # the least width in which a server's text is not cut short


class Stage(Picture):
    """An animated picture of a run: requests enter the queue from the left, and leave it in batches.

    `theme` is "light" or "dark", `size` "page" or "projector"; the height follows from the width.
    """

    def __init__(
        self, width_px: int = 1200, ratio: float = 1.0, theme: str = "light", size: str = "page"
    ) -> None:
        em = self.em = size_of(size).em_px(width_px)
        middle, top = round(0.64 * width_px), round(4 * em)
        columns = max(int((middle - 11 * em) / ((WIDE + GAP) * em)), 1)
        rows = min(math.ceil(SLOTS / columns), 4)
        height_px = round(top + (10.9 + rows * (HIGH + GAP)) * em)
        super().__init__(width_px, height_px, ratio, theme_of(theme), font_px=em)
        self.film: Film | None = None
        self.shown: Result | Film | None = None
        with self.look():
            self.header = Header(self, Box(0, 0, width_px, top))
            self.queue = Queue(self, Box(0, top, middle, height_px - top), columns, rows)
            self.servers = self._servers(1)

    def _servers(self, count: int) -> "Servers":
        box = self.queue.box
        return Servers(self, Box(box.right, box.top, self.width_px - box.right, box.height), count)

    def show(  # type: ignore[override]  # a Figure's own opens a window
        self, run: Film | Result, time_s: float, within_s: float = 0.0
    ) -> Moment:
        """Show a run at a time, and return that moment; a batch that left `within_s` ago still leaves."""
        if run is not self.shown or self.film is None:
            self.film = run if isinstance(run, Film) else Film(run)
            self.shown = run
        now, decimals = self.film.moment(time_s), self.film.decimals
        if self.film.servers != self.servers.count:
            self.servers.close()
            with self.look():
                self.servers = self._servers(self.film.servers)
        self.header.show(now, within_s, decimals)
        self.queue.show(now, decimals)
        self.servers.show(now)
        return now


class Header(Tile):
    """The clock and the counters, and what the rule does."""

    def __init__(self, stage: Stage, box: Box) -> None:
        super().__init__(stage, box)
        em, self.left, self.line = stage.em, 1.2 * stage.em, box.top + 1.7 * stage.em
        self.clock = Lettering(stage, 1.15 * em, self.theme.ink, "bold")
        self.words = Lettering(stage, em, self.theme.ink)
        self.moves(self.clock, self.words)
        right = box.right - self.left
        self.places = [right - (10.5 + 10.5) * em, right - 10.5 * em, right]
        self.below = self.line + 1.7 * em

    def show(self, now: Moment, within_s: float, decimals: int) -> None:
        self.clock.show([Words(f"{now.time_s * 1000:,.{decimals}f} ms", self.left, self.line)])
        counters = (f"arrived {now.arrived:,}", f"served {now.served:,}", f"lost {now.lost:,}")
        texts = [Words(_doing(now, within_s), self.left, self.below)]
        texts += [Words(*pair, self.line, "right") for pair in zip(counters, self.places, strict=True)]
        self.words.show(texts)


class Queue(Tile):
    """Those that wait, and how near they are to leave: by how many they are, and by the oldest's wait."""

    def __init__(self, stage: Stage, box: Box, columns: int, rows: int) -> None:
        super().__init__(stage, box)
        em = self.em = stage.em
        left, right = 1.2 * em, box.right - 1.4 * em
        top, step = box.top + 1.9 * em, (WIDE + GAP) * em
        begin = right - columns * step + GAP * em
        # The oldest stands next to the servers; those that come take the next place to the left.
        slots = [
            (right - column * step - WIDE * em, top + row * (HIGH + GAP) * em)
            for row in range(rows)
            for column in range(columns)
        ]
        bottom = slots[-1][1] + HIGH * em
        self.title_at = begin, box.top + 1.2 * em
        self.more_at = begin - 0.9 * em, bottom - 1.0 * em
        self.add_text(begin - 0.9 * em, top + 1.6 * em, "arrivals \u2192", color=self.theme.soft, ha="right")
        empty = PolyCollection(list(outlines(slots, em)), facecolor="none", edgecolor=self.theme.faint)
        self.add(empty)
        self.boxes = Boxes(self, slots, em)
        self.size_bar, self.wait_bar = (
            Bar(self, Box(left, bottom + down * em, right - left, 0.9 * em)) for down in (2.5, 6.0)
        )
        self.enough = self.add(Rectangle((0, 0), 0, 1.5 * em, color=self.theme.ink, linewidth=0))
        self.title = Lettering(stage, em, self.theme.ink, "bold")
        self.words = Lettering(stage, em, self.theme.ink)
        self.moves(self.title, self.words)

    def show(self, now: Moment, decimals: int) -> None:
        look = FORMING if now.forming else QUEUEING
        waiting, size, enough = now.waiting.size, now.rule.max_batch_size, now.rule.enough
        part = f", {'forming' if now.forming else 'queueing'}" if waiting else ""
        self.title.show([Words(f"queue: {waiting:,} waiting{part}", *self.title_at)])
        self.boxes.show(now.waiting, look)
        self.size_bar.show(waiting / size, look)
        size_text = f"next batch: {min(waiting, size):,} of {size:,}"
        size_text += "" if enough == size else f", {enough:,} are enough"
        place = self.size_bar.place
        if self.hold("enough", enough / size):
            thick = 0.0 if enough == size else 0.17 * self.em
            x = place.left + place.width * enough / size - thick / 2
            self.enough.set(x=x, y=place.top - 0.3 * self.em, width=thick)
        limit_ms, waited_ms = now.rule.max_wait_ms, now.waited_ms
        limit = ", no limit" if math.isinf(limit_ms) else f", max_wait_ms = {typed(limit_ms)}"
        waited = "nobody waits" if waited_ms is None else f"{waited_ms:,.{decimals}f} ms"
        # A wait of 0 ms is over at once.
        share = 0.0 if waited_ms is None else waited_ms / limit_ms if limit_ms else 1.0
        self.wait_bar.show(share, look)
        texts = [
            Words(text, bar.place.left, bar.place.top - 0.6 * self.em)
            for text, bar in ((size_text, self.size_bar), (f"oldest: {waited}{limit}", self.wait_bar))
        ]
        if waiting > len(self.boxes):
            texts.append(Words(f"+ {waiting - len(self.boxes):,} more", *self.more_at, "right"))
        self.words.show(texts)


class Servers(Tile):
    """What each server computes, and how much of it is done."""

    def __init__(self, stage: Stage, box: Box, count: int) -> None:
        super().__init__(stage, box)
        em, self.count = stage.em, count
        left, right = box.left + 0.2 * em, box.right - 1.2 * em
        top, bottom, gap = box.top + 1.9 * em, box.bottom - 1.0 * em, 0.5 * em
        most_rows = min(max(int((bottom - top + gap) / (LOW * em + gap)), 1), 4)
        most_columns = max(int((right - left + gap) / (CELL * em + gap)), 1)
        columns = min(math.ceil(count / most_rows), most_columns)
        rows = min(math.ceil(count / columns), most_rows)
        wide = (right - left - (columns - 1) * gap) / columns
        high = (bottom - top - (rows - 1) * gap) / rows
        places = [
            Box(left + column * (wide + gap), top + row * (high + gap), wide, high)
            for column in range(columns)
            for row in range(rows)
        ]
        title = "server" if count == 1 else "servers"
        self.add_text(left, box.top + 1.2 * em, title, fontweight="bold")
        self.more_at = right, box.top + 1.2 * em
        self.more = Lettering(stage, em, self.theme.ink)
        self.texts = Lettering(stage, 0.92 * em, self.theme.ink)
        self.moves(self.more, self.texts)
        self.cells = [Cell(self, place, number, em) for number, place in enumerate(places[:count])]

    def show(self, now: Moment) -> None:
        self.texts.show(
            [cell.show(job, now.time_s) for cell, job in zip(self.cells, now.computing, strict=False)]
        )
        rest = now.computing[len(self.cells) :]
        busy = sum(job is not None for job in rest)
        self.more.show(
            [Words(f"+ {len(rest):,} more, {busy:,} busy", *self.more_at, "right")] if rest else []
        )

    def close(self) -> None:
        """Leave the picture."""
        for artist in (*self.fixed, *self.moving):
            artist.remove()
        self.picture.tiles.remove(self)


class Cell:
    """A server: its batch's requests as far as there is room for them, and a bar of its progress."""

    def __init__(self, tile: Tile, place: Box, number: int, em: float) -> None:
        frame = Rectangle((place.left, place.top), place.width, place.height, linewidth=1)
        tile.add(frame).set(facecolor="none", edgecolor=tile.theme.soft)
        left, right, line = place.left + 0.6 * em, place.right - 0.6 * em, place.top + 1.25 * em
        self.roomy = place.width > ROOMY * em
        self.text_at = right, line
        name = f"server {number}" if self.roomy else str(number)
        tile.add_text(left, line, name, fontweight="bold", fontsize=0.92 * em)
        thick = 0.9 * em if place.height > 4.5 * em else 0.6 * em
        self.bar = Bar(tile, Box(left, place.bottom - 0.5 * em - thick, right - left, thick))
        room = self.bar.place.top - line - 0.9 * em
        columns = int((right - left + GAP * em) / ((WIDE + GAP) * em))
        rows = int((room + GAP * em) / ((HIGH + GAP) * em))
        slots = [
            (left + column * (WIDE + GAP) * em, line + 0.6 * em + row * (HIGH + GAP) * em)
            for row in range(rows)
            for column in range(columns)
        ]
        self.boxes = Boxes(tile, slots, em)

    def show(self, job: Job | None, time_s: float) -> Words:
        """Show what is computed, and return its text."""
        if job is None:
            self.boxes.show(np.empty(0, dtype=int), COMPUTING)
            self.bar.show(0.0)
            return Words("idle", *self.text_at, "right")
        self.boxes.show(job.requests, COMPUTING)
        self.bar.show((time_s - job.start_s) / (job.finish_s - job.start_s))
        first, last = job.requests[0], job.requests[-1]
        which = f"{first} to {last}" if last > first else f"{first}"
        return Words(
            f"{'batch of ' if self.roomy else ''}{job.requests.size:,}: {which}", *self.text_at, "right"
        )


def describe(moment: Moment, within_s: float = 0.0) -> str:
    """Return a moment in one sentence, for those who do not see the picture.

    >>> from batchsim import Affine, Scenario, SizeOrWait, Trace, simulate
    >>> film = Film(simulate(Scenario(Trace([0.000, 0.004, 0.012]), SizeOrWait(2, 20), Affine(9, 1))))
    >>> print(describe(film.moment(0.002)))
    At 2 ms: waiting for company; 1 waits, the oldest 2 ms; no server computes; 1 arrived, 0 served, 0 lost.
    """
    waiting, servers = moment.waiting.size, len(moment.computing)
    parts = [_doing(moment, within_s)]
    if moment.waited_ms is not None:
        wait = "waits" if waiting == 1 else "wait"
        parts.append(f"{waiting:,} {wait}, the oldest {number(moment.waited_ms)} ms")
    busy = sum(job is not None for job in moment.computing)
    who = {0: "no server computes", servers: "every server computes"}
    parts.append(
        who.get(busy, f"{busy:,} of {servers:,} servers compute")
        if servers > 1 or not busy
        else "the server computes"
    )
    parts.append(f"{moment.arrived:,} arrived, {moment.served:,} served, {moment.lost:,} lost")
    return f"At {moment.time_s * 1000:.7g} ms: {'; '.join(parts)}."


def _doing(moment: Moment, within_s: float) -> str:
    """Return what the rule does, and why."""
    doing = moment.doing(within_s)
    if doing is Doing.LEAVING and moment.last is not None:
        because = pseudocode(moment.rule)[acting(moment, within_s)].because
        return f"a batch of {moment.last.requests.size:,} leaves: {because}"
    return str(doing)
