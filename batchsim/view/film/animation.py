"""The queue and the servers at one instant of a run, drawn fast enough to be played as a film."""

import math

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from batchsim._format import number, typed
from batchsim.result import Result
from batchsim.view.canvas.lettering import Label, Lettering
from batchsim.view.canvas.picture import Box, Picture, Tile
from batchsim.view.canvas.theme import SIZES, THEMES, named
from batchsim.view.film.pseudocode import acting, pseudocode
from batchsim.view.film.shapes import GAP, HIGH, WIDE, Gauge, RequestBoxes, grid, outlines
from batchsim.view.film.snapshot import Activity, Batch, Film, Snapshot

SLOTS = 24  # of the queue, at least, where there is room
SERVER_WIDE = 11  # the least width of a server beside another, in ems
SERVER_HIGH = 2.9  # the least height of a server, in ems: a line of text and a bar
ROOMY = 18  # the least width in which a server's text is not cut short


class Animation(Picture):
    """An animated picture of a run: requests enter the queue from the left, and leave it in batches.

    `theme` is "light" or "dark", `size` "page" or "projector"; the height follows from the width.
    """

    def __init__(
        self, width_px: int = 1200, ratio: float = 1.0, theme: str = "light", size: str = "page"
    ) -> None:
        em = self.em = named("size", size, SIZES).em_px(width_px)
        middle, top = round(0.64 * width_px), round(4 * em)
        columns = max(int((middle - 11 * em) / ((WIDE + GAP) * em)), 1)
        rows = min(math.ceil(SLOTS / columns), 4)
        height_px = round(top + (10.9 + rows * (HIGH + GAP)) * em)
        super().__init__(width_px, height_px, ratio, named("theme", theme, THEMES), font_px=em)
        self.film: Film | None = None
        self.shown: Result | Film | None = None
        with self.styled():
            self.header = Header(self, Box(0, 0, width_px, top))
            self.queue = Queue(self, Box(0, top, middle, height_px - top), columns, rows)
            self.servers = self._servers(1)

    def _servers(self, count: int) -> "Servers":
        box = self.queue.box
        return Servers(self, Box(box.right, box.top, self.width_px - box.right, box.height), count)

    def show(  # type: ignore[override]  # Figure.show is pyplot's
        self, run: Film | Result, time_s: float, within_s: float = 0.0
    ) -> Snapshot:
        """Show a run at a time, and return the snapshot; a batch that left `within_s` ago still leaves."""
        if run is not self.shown or self.film is None:
            self.film = run if isinstance(run, Film) else Film(run)
            self.shown = run
        now, decimals = self.film.snapshot(time_s), self.film.decimals
        if self.film.servers != self.servers.count:
            self.servers.remove([*self.servers.fixed, *self.servers.moving])
            self.tiles.remove(self.servers)
            with self.styled():
                self.servers = self._servers(self.film.servers)
        self.header.show(now, within_s, decimals)
        self.queue.show(now, decimals)
        self.servers.show(now)
        return now


class Header(Tile):
    """The clock and the counters, and what the rule does."""

    def __init__(self, animation: Animation, box: Box) -> None:
        super().__init__(animation, box)
        em, self.left, self.line = animation.em, 1.2 * animation.em, box.top + 1.7 * animation.em
        self.clock = Lettering(animation, 1.15 * em, self.theme.ink, "bold")
        self.texts = Lettering(animation, em, self.theme.ink)
        self.set_moving(self.clock, self.texts)
        self.rights = [box.right - self.left - left * em for left in (21, 10.5, 0)]  # of the counters

    def show(self, now: Snapshot, within_s: float, decimals: int) -> None:
        self.clock.show([Label(f"{now.time_s * 1000:,.{decimals}f} ms", self.left, self.line)])
        counters = (f"arrived {now.arrived:,}", f"served {now.served:,}", f"lost {now.lost:,}")
        labels = [Label(_activity(now, within_s), self.left, self.line + 1.7 * self.picture.font_px)]
        labels += [Label(text, x, self.line, "right") for text, x in zip(counters, self.rights, strict=True)]
        self.texts.show(labels)


class Queue(Tile):
    """The waiting requests, and how near a batch is to leaving: by their number, and the oldest's wait."""

    def __init__(self, animation: Animation, box: Box, columns: int, rows: int) -> None:
        super().__init__(animation, box)
        em = self.em = animation.em
        left, right, top = 1.2 * em, box.right - 1.4 * em, box.top + 1.9 * em
        begin = right - (columns * (WIDE + GAP) - GAP) * em
        # The oldest stands next to the servers; each later one takes the next place to the left.
        slots = grid(begin, top, columns, rows, em)[:, ::-1].reshape(-1, 2)
        bottom = float(slots[-1, 1]) + HIGH * em
        self.title_at = begin, box.top + 1.2 * em
        self.more_at = begin - 0.9 * em, bottom - 1.0 * em
        self.add_text(begin - 0.9 * em, top + 1.6 * em, "arrivals \u2192", color=self.theme.soft, ha="right")
        self.add(PolyCollection(list(outlines(slots, em)), facecolor="none", edgecolor=self.theme.faint))
        self.boxes = RequestBoxes(self, slots, em)
        self.size_gauge, self.wait_gauge = (
            Gauge(self, Box(left, bottom + down * em, right - left, 0.9 * em)) for down in (2.5, 6.0)
        )
        self.enough = self.add(Rectangle((0, 0), 0, 1.5 * em, color=self.theme.ink, linewidth=0))
        self.title = Lettering(animation, em, self.theme.ink, "bold")
        self.texts = Lettering(animation, em, self.theme.ink)
        self.set_moving(self.title, self.texts)

    def show(self, now: Snapshot, decimals: int) -> None:
        component = "forming" if now.forming else "queueing"
        waiting, largest, enough = now.waiting.size, now.rule.largest_batch, now.rule.enough
        title = f"queue: {waiting:,} waiting{f', {component}' * bool(waiting)}"
        self.title.show([Label(title, *self.title_at)])
        self.boxes.show(now.waiting, component)
        self.size_gauge.show(waiting / largest, component)
        size_text = f"largest batch: {min(waiting, largest):,} of {largest:,}"
        size_text += "" if enough == largest else f", {enough:,} are enough"
        if self.hold("enough", enough / largest):
            gauge, wide = self.size_gauge.box, 0.0 if enough == largest else 0.17 * self.em
            x = gauge.left + gauge.width * enough / largest - wide / 2
            self.enough.set(x=x, y=gauge.top - 0.3 * self.em, width=wide)
        limit_ms, waited_ms = now.rule.max_wait_ms, now.waited_ms
        limit = "no max wait" if math.isinf(limit_ms) else f"max wait {typed(limit_ms)} ms"
        waited = "none" if waited_ms is None else f"waited {waited_ms:,.{decimals}f} ms"
        # A wait of 0 ms is over at once.
        share = 0.0 if waited_ms is None else waited_ms / limit_ms if limit_ms else 1.0
        self.wait_gauge.show(share, component)
        pairs = (size_text, self.size_gauge), (f"oldest: {waited}, {limit}", self.wait_gauge)
        labels = [Label(text, gauge.box.left, gauge.box.top - 0.6 * self.em) for text, gauge in pairs]
        if waiting > len(self.boxes):
            labels.append(Label(f"+ {waiting - len(self.boxes):,} more", *self.more_at, "right"))
        self.texts.show(labels)


class Servers(Tile):
    """What each server computes, and how much of it is done."""

    def __init__(self, animation: Animation, box: Box, count: int) -> None:
        super().__init__(animation, box)
        em, self.count = animation.em, count
        left, right = box.left + 0.2 * em, box.right - 1.2 * em
        top, bottom, gap = box.top + 1.9 * em, box.bottom - 1.0 * em, 0.5 * em
        most_rows = min(max(int((bottom - top + gap) / (SERVER_HIGH * em + gap)), 1), 4)
        most_columns = max(int((right - left + gap) / (SERVER_WIDE * em + gap)), 1)
        columns = min(math.ceil(count / most_rows), most_columns)
        rows = min(math.ceil(count / columns), most_rows)
        wide = (right - left - (columns - 1) * gap) / columns
        high = (bottom - top - (rows - 1) * gap) / rows
        places = [divmod(place, rows) for place in range(min(count, rows * columns))]  # column by column
        self.add_text(left, box.top + 1.2 * em, "server" if count == 1 else "servers", fontweight="bold")
        self.more_at = right, box.top + 1.2 * em
        self.more = Lettering(animation, em, self.theme.ink)
        self.texts = Lettering(animation, 0.92 * em, self.theme.ink)
        self.set_moving(self.more, self.texts)
        self.cells = [
            ServerCell(self, Box(left + x * (wide + gap), top + y * (high + gap), wide, high), number, em)
            for number, (x, y) in enumerate(places)
        ]

    def show(self, now: Snapshot) -> None:
        shown = zip(self.cells, now.computing, strict=False)
        self.texts.show([cell.show(batch, now.time_s) for cell, batch in shown])
        rest = now.computing[len(self.cells) :]
        busy = sum(batch is not None for batch in rest)
        more = f"+ {len(rest):,} more, {busy:,} busy"
        self.more.show([Label(more, *self.more_at, "right")] if rest else [])


class ServerCell:
    """A server: the requests of its batch as far as there is room, and a gauge of its progress."""

    def __init__(self, tile: Tile, box: Box, number: int, em: float) -> None:
        frame = Rectangle((box.left, box.top), box.width, box.height, linewidth=1)
        tile.add(frame).set(facecolor="none", edgecolor=tile.theme.soft)
        left, right, line = box.left + 0.6 * em, box.right - 0.6 * em, box.top + 1.25 * em
        self.roomy = box.width > ROOMY * em
        self.text_at = right, line
        name = f"server {number}" if self.roomy else str(number)
        tile.add_text(left, line, name, fontweight="bold", fontsize=0.92 * em)
        thick = 0.9 * em if box.height > 4.5 * em else 0.6 * em
        self.gauge = Gauge(tile, Box(left, box.bottom - 0.5 * em - thick, right - left, thick))
        room = self.gauge.box.top - line - 0.9 * em
        columns = int((right - left + GAP * em) / ((WIDE + GAP) * em))
        rows = int((room + GAP * em) / ((HIGH + GAP) * em))
        slots = grid(left, line + 0.6 * em, columns, rows, em).reshape(-1, 2)
        self.boxes = RequestBoxes(tile, slots, em)

    def show(self, batch: Batch | None, time_s: float) -> Label:
        """Show what is computed, and return its label."""
        self.boxes.show(np.empty(0) if batch is None else batch.requests, "computing")
        if batch is None:
            self.gauge.show(0.0)
            return Label("idle", *self.text_at, "right")
        self.gauge.show((time_s - batch.start_s) / (batch.finish_s - batch.start_s))
        first, last, size = batch.requests[0], batch.requests[-1], batch.requests.size
        numbers = f"{first} to {last}" if last > first else f"{first}"
        return Label(f"{'batch of ' * self.roomy}{size:,}: {numbers}", *self.text_at, "right")


def describe(snapshot: Snapshot, within_s: float = 0.0) -> str:
    """Return a snapshot in one sentence, for those who do not see the picture.

    >>> from batchsim import Affine, Scenario, SizeOrWait, Trace, simulate
    >>> film = Film(simulate(Scenario(Trace([0.000, 0.004, 0.012]), SizeOrWait(2, 20), Affine(9, 1))))
    >>> print(describe(film.snapshot(0.002)))
    At 2 ms: waiting for company; 1 waiting, the oldest for 2 ms; server idle; 1 arrived, 0 served, 0 lost.
    """
    parts = [_activity(snapshot, within_s)]
    if snapshot.waited_ms is not None:
        parts.append(f"{snapshot.waiting.size:,} waiting, the oldest for {number(snapshot.waited_ms)} ms")
    busy, servers = sum(batch is not None for batch in snapshot.computing), len(snapshot.computing)
    one = "server busy" if busy else "server idle"
    parts.append(one if servers == 1 else f"{busy:,} of {servers:,} servers busy")
    parts.append(f"{snapshot.arrived:,} arrived, {snapshot.served:,} served, {snapshot.lost:,} lost")
    return f"At {snapshot.time_s * 1000:.7g} ms: {'; '.join(parts)}."


def _activity(snapshot: Snapshot, within_s: float) -> str:
    activity = snapshot.activity(within_s)
    if activity is Activity.LEAVING and snapshot.last is not None:
        because = pseudocode(snapshot.rule)[acting(snapshot, within_s)].because
        return f"a batch of {snapshot.last.requests.size:,} leaves: {because}"
    return str(activity)
