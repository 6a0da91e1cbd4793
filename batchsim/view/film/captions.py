"""The stage's texts: the clock, the counters, what the rule does, and the names of its parts."""

from collections.abc import Sequence

from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.film.places import Places
from batchsim.view.film.snapshot import Batch, Film, Snapshot
from batchsim.view.film.words import activities, queue_titles, server_titles, size_texts, wait_texts

WIDE = 48  # ems: a wider stage has its header in one line
CLOCK, COUNTER = 8.5, 9.0  # ems: the least width of the clock, and that of a counter
ABOVE = 0.5  # ems, from the baseline of the parts' names to the parts


class Captions:
    """All that moves of a stage's texts; each says as much as it has room for."""

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
        # As wide as the clock ever is, so that what follows stands still.
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
        """Return what each server computes, beside its number if there are several."""
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
        """Return how many of those that wait have no room on the stage."""
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
