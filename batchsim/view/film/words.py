"""The film's texts: the moment in a sentence, and the stage's captions, each as long as fits."""

import math
from collections.abc import Mapping, Sequence

from batchsim._format import listed, number, typed
from batchsim.scenario.rules import Rule
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.film.motion import Places
from batchsim.view.film.pseudocode import acting, pseudocode
from batchsim.view.film.snapshot import Activity, Batch, Film, Snapshot
from batchsim.view.film.token_film import StepMoment, WholeMoment

FLAGGED = "\N{BLACK LOWER LEFT TRIANGLE}"


def describe(snapshot: Snapshot | StepMoment | WholeMoment, within_s: float = 0.0) -> str:
    """Return a moment in one sentence.

    >>> from batchsim import Affine, Scenario, SizeOrWait, Trace, simulate
    >>> from batchsim.view.film.snapshot import Film
    >>> film = Film(simulate(Scenario(Trace([0.000, 0.004, 0.012]), SizeOrWait(2, 20), Affine(9, 1))))
    >>> print(describe(film.snapshot(0.002)))
    At 2 ms: waiting for company; 1 waiting, the oldest for 2 ms; server idle; 1 arrived, 0 served, 0 lost.
    """
    if isinstance(snapshot, StepMoment | WholeMoment):
        return snapshot.said(within_s)
    parts = [activities(snapshot, within_s)[0]]
    if snapshot.waited_ms is not None:
        levels = [f"{count:,} of level {level}" for level, count in snapshot.levels.items() if count]
        waiting = f"{snapshot.waiting.size:,} waiting" + (f" ({listed(levels)})" if levels else "")
        parts.append(f"{waiting}, the oldest for {number(snapshot.waited_ms)} ms")
    busy, servers = sum(batch is not None for batch in snapshot.computing), len(snapshot.computing)
    one = "server busy" if busy else "server idle"
    compiling = (
        f", {'' if servers == 1 else f'{snapshot.compiling:,} '}compiling" if snapshot.compiling else ""
    )
    held = f", {snapshot.held:,} waiting for a device" if snapshot.held else ""
    parts.append((one if servers == 1 else f"{busy:,} of {servers:,} servers busy") + compiling + held)
    parts.append(f"{snapshot.arrived:,} arrived, {snapshot.served:,} served, {snapshot.lost:,} lost")
    return f"At {snapshot.time_s * 1000:,.7g} ms: {'; '.join(parts)}."


def activities(snapshot: Snapshot, within_s: float) -> tuple[str, ...]:
    """Return the state of the rule, and the reason."""
    activity = snapshot.activity(within_s)
    if activity is not Activity.LEAVING or snapshot.last is None:
        return (str(activity),)
    because = pseudocode(snapshot.scenario)[acting(snapshot, within_s)].because
    leaves = f"a batch of {snapshot.last.requests.size:,} leaves"
    return f"{leaves}: {because}", leaves


def queue_titles(waiting: int, component: str, levels: Mapping[int, int]) -> tuple[str, ...]:
    """Return the length of the queue, by level, and its reason; the first level has a flag."""
    if not waiting:
        return "queue: none waiting", "none waiting"
    by_level: tuple[str, ...] = ()
    if levels:
        counts = [f"{count:,} of level {level}" for level, count in levels.items()]
        text = ", ".join([f"{counts[0]} {FLAGGED}", *counts[1:]])
        by_level = f"queue: {text}, {component}", f"{text}, {component}", text
    return (
        *by_level,
        f"queue: {waiting:,} waiting, {component}",
        f"{waiting:,} waiting, {component}",
        f"{waiting:,} {component}",
    )


def server_titles(now: Snapshot, drawn: int) -> tuple[str, ...]:
    """Return the number of busy servers, and of servers that are not drawn."""
    servers, busy = len(now.computing), sum(batch is not None for batch in now.computing)
    if servers == 1:
        (batch,) = now.computing
        if batch is None:
            return ("server: idle",)
        text = f"server: batch of {batch.requests.size:,}"
        return (f"{text}, compiling", "server: compiling") if now.compiling else (text,)
    if drawn == servers:
        short = f"{busy:,} of {servers:,} busy"
        held = f"{short}, {now.held:,} waiting for a device"
        return (f"servers: {held}", held) * bool(now.held) + (f"servers: {short}", short)
    more = f"+ {servers - drawn:,} more"
    return (
        f"servers: {busy:,} of {servers:,} busy, {more} than drawn",
        f"{busy:,} of {servers:,} busy, {more}",
    )


def size_texts(waiting: int, rule: Rule) -> tuple[str, ...]:
    """Return the queue's share of the largest batch, and the size that is enough to leave."""
    largest, enough = rule.largest_batch, rule.enough
    text = f"largest batch: {min(waiting, largest):,} of {largest:,}"
    return (f"{text}, {enough:,} are enough",) * (enough != largest) + (text, f"{waiting:,} of {largest:,}")


def wait_texts(waited_ms: float | None, limit_ms: float, decimals: int) -> tuple[str, ...]:
    """Return the oldest request's wait, and its limit."""
    limit = "no max wait" if math.isinf(limit_ms) else f"max wait {typed(limit_ms)} ms"
    if waited_ms is None:
        return f"oldest: none, {limit}", limit, ""
    waited = f"{waited_ms:,.{decimals}f}"
    short = f"oldest: {waited} ms" if math.isinf(limit_ms) else f"oldest: {waited} of {typed(limit_ms)} ms"
    return (
        f"oldest: waited {waited} ms, {limit}",
        f"waited {waited} ms, {limit}",
        short,
        f"oldest: {waited} ms",
    )


WIDE = 48  # ems: a wider stage has its header in one line
CLOCK, COUNTER = 8.5, 9.0  # ems: the least width of the clock, and that of a counter
ABOVE = 0.5  # ems, from the baseline of the parts' names to the parts


class Captions:
    """The moving texts of a stage, each as long as fits."""

    def __init__(self, tile: Tile, left: float, right: float, em: float) -> None:
        self.left, self.right, self.em, self.box = left, right, em, tile.box
        self.is_wide = tile.box.width >= WIDE * em
        self.height_px = (2.0 if self.is_wide else 3.4) * em
        ink = tile.theme.ink
        self.clock = Lettering(tile.picture, 1.1 * em, ink, "bold")
        self.titles = Lettering(tile.picture, em, ink, "bold")
        self.texts = Lettering(tile.picture, em, ink)
        tile.set_moving(self.clock, self.titles, self.texts)

    def show(
        self, now: Snapshot, within_s: float, film: Film, places: Places, gauges: tuple[Box, Box]
    ) -> None:
        decimals, size_box, wait_box = film.decimals, *gauges
        clock = Label(f"{now.time_s * 1000:,.{decimals}f} ms", self.left, self.box.top + 1.45 * self.em)
        self.clock.show([clock])
        self.titles.show(self._titles(now, places))
        self.texts.show(
            [
                *self._header(now, within_s, film.loses, clock),
                *self._servers(now, places),
                *self._undrawn(now.waiting.size - len(places.queue.corners), places),
                self._over(size_box, size_texts(now.waiting.size, now.rule)),
                self._over(wait_box, wait_texts(now.waited_ms, now.rule.max_wait_ms, decimals)),
            ]
        )

    def _header(self, now: Snapshot, within_s: float, loses: bool, clock: Label) -> list[Label]:
        em, line, texts = self.em, clock.y, activities(now, within_s)
        # The clock's largest width, so that the next text stays still.
        begin = self.left + max(CLOCK * em, 1.1 * em * width_em(clock.text, "bold") + em)
        counters = [f"lost {now.lost:,}"] * loses + [f"served {now.served:,}"]
        if self.is_wide or self.right - begin > COUNTER * em * (len(counters) + 1):
            counters.append(f"arrived {now.arrived:,}")
        labels = [
            Label(text, self.right - COUNTER * em * number, line, "right")
            for number, text in enumerate(counters)
        ]
        if self.is_wide:
            room = self.right - COUNTER * em * len(counters) - begin
            return [*labels, Label(self._fitting(texts, room), begin, line)]
        return [*labels, Label(self._fitting(texts, self.right - self.left), self.left, line + 1.5 * em)]

    def _titles(self, now: Snapshot, places: Places) -> list[Label]:
        em, above = self.em, places.queue_box.top - ABOVE * self.em
        queue, servers = places.queue_box.left + 0.3 * em, places.servers[0].box.left
        texts = queue_titles(now.waiting.size, "forming" if now.forming else "queueing", now.levels)
        labels = [Label(self._fitting(texts, servers - queue - em, "bold"), queue, above)]
        texts = server_titles(now, len(places.servers))
        labels.append(Label(self._fitting(texts, self.box.right - servers, "bold"), servers, above))
        if len(now.computing) > 1:
            labels += [
                Label(str(number), place.bar.left, place.box.top + 1.25 * em)
                for number, place in enumerate(places.servers)
                if place.has_text
            ]
        return labels

    def _servers(self, now: Snapshot, places: Places) -> list[Label]:
        """Return the size of each server's batch, next to its number if there are several servers."""
        number_px = 2 * self.em if len(now.computing) > 1 else 0.0
        return [
            Label(
                self._fitting(_size(batch, now.time_s), place.bar.width - number_px),
                place.bar.right, place.box.top + 1.25 * self.em, "right",
            )
            for place, batch in zip(places.servers, now.computing, strict=False)
            if place.has_text
        ]  # fmt: skip

    def _undrawn(self, count: int, places: Places) -> list[Label]:
        """Return the number of waiting requests that have no room on the stage."""
        number, y = f"+ {count:,}", places.queue_box.bottom - 0.5 * self.em
        x = max(places.queue_box.left, self.box.left + self.em * (0.2 + width_em(number)))
        lines = (number, y - 1.3 * self.em), ("more", y)
        return [Label(text, x, at, "right") for text, at in lines] if count > 0 else []

    def _over(self, box: Box, texts: Sequence[str]) -> Label:
        return Label(self._fitting(texts, box.width), box.left, box.top - 0.45 * self.em)

    def _fitting(self, texts: Sequence[str], room: float, weight: str = "normal") -> str:
        """Return the first of some texts that fits, or the last."""
        return next((text for text in texts if self.em * width_em(text, weight) <= room), texts[-1])


def _size(batch: Batch | None, now_s: float) -> tuple[str, ...]:
    if batch is None:
        return "idle", ""
    if now_s < batch.ready_s:
        return f"batch of {batch.requests.size:,}, compiling", "compiling", f"{batch.requests.size:,}"
    if batch.held(now_s):
        return f"batch of {batch.requests.size:,}, device busy", "device busy", f"{batch.requests.size:,}"
    return f"batch of {batch.requests.size:,}", f"{batch.requests.size:,}"
