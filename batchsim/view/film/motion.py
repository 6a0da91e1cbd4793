"""Where the stage draws each request at a moment: in its slot, or on its way there.

A run is a sequence of instants, and requests do not move between them. For the eye, the film extends each
instant: a batch moves to its server during the first part of its computing, and the rest of the queue moves
up meanwhile. Motion is never early: a request moves to a server only after its batch has left. The exception
is an open loop's arrivals, which approach the queue before they arrive. (In a closed loop, they depend on
answers that do not exist yet.)

Each position is a function of time only, so a film can be played from any moment, in any order.
"""

import math
from typing import Any, NamedTuple, Self

import numpy as np

from batchsim.scenario import OpenLoop
from batchsim.view.canvas.picture import Box
from batchsim.view.film.snapshot import Batch, Film, Snapshot

LEAST_PX = 4  # the smallest visible side of a request
LARGEST = 2.8  # ems: the largest side, with room for a number
COMPACT = 3.2  # ems: servers below this height have no line of text


class Slots(NamedTuple):
    """Places of one size: their upper left corners in CSS pixels, shape (slots, 2), the oldest's first."""

    corners: np.ndarray
    side: float
    rows: int

    def at(self, index: np.ndarray) -> np.ndarray:
        """Return the corners of slots by number, or between two; numbers beyond the last share its corner."""
        last = len(self.corners) - 1
        low = np.minimum(np.floor(index).astype(int), last)
        begin, end = self.corners[low], self.corners[np.minimum(low + 1, last)]
        return begin + (end - begin) * (index - np.floor(index))[:, None]


def gap_px(side: float) -> float:
    """Return the gap between boxes of this side."""
    return 1.0 if side < 9 else 2.0 if side < 18 else 3.0


def slots(box: Box, count: int, largest_px: float, rows: int = 1) -> Slots:
    """Return slots in a box for `count` requests, or for as many as remain visible.

    They are in order column by column from the right, the servers' side, with at least `rows` rows if these
    fit. They are as large as possible, in whole pixels, so that they stay still and sharp.

    >>> slots(Box(0, 0, 100, 40), 3, 28).corners.tolist()
    [[72.0, 6.0], [41.0, 6.0], [10.0, 6.0]]
    >>> [(len(it.corners), it.side) for it in (slots(Box(0, 0, 100, 40), n, 28) for n in (20, 100, 10_000))]
    [(21, 12.0), (100, 4.0), (160, 4.0)]
    """
    for side in range(max(int(largest_px), LEAST_PX), LEAST_PX - 1, -1):
        pitch = side + gap_px(side)
        columns, most = (int((room + pitch - side) / pitch) for room in (box.width, box.height))
        if columns * most >= count:
            break
    columns, most = max(columns, 1), max(most, 1)
    rows = min(max(rows, math.ceil(count / columns)), most)
    columns = min(columns, math.ceil(count / rows))
    xs = round(box.right - side) - pitch * np.arange(columns)
    high = rows * pitch - pitch + side
    ys = round(box.top + (box.height - high) / 2) + pitch * np.arange(rows)
    return Slots(np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1).reshape(-1, 2), float(side), rows)


class ServerPlace(NamedTuple):
    """A server: its frame, the slots of its batch, its bar, and whether it has a line of text."""

    box: Box
    slots: Slots
    bar: Box
    has_text: bool


class Places(NamedTuple):
    """The stage's parts: requests come in through the lane, and go out on the right."""

    lane: Box
    queue_box: Box
    queue: Slots
    servers: tuple[ServerPlace, ...]
    right: float


def servers_in(box: Box, count: int, batch: int, queue: Slots, em: float) -> tuple[ServerPlace, ...]:
    """Return the servers that fit, column by column, with slots for a batch of that size.

    The slots match the queue's if there is room, so that a batch keeps its shape while it moves.
    """
    gap = 0.4 * em
    choices = []
    for columns in range(1, min(count, max(int(box.width / (2.2 * em)), 1)) + 1):
        rows = min(math.ceil(count / columns), max(int(box.height / (1.3 * em)), 1))
        wide, high = (box.width + gap) / columns - gap, (box.height + gap) / rows - gap
        boxes = [
            Box(box.left + x * (wide + gap), box.top + y * (high + gap), wide, high)
            for x, y in (divmod(number, rows) for number in range(min(count, columns * rows)))
        ]
        places = [_server(each, count, batch, queue, em) for each in boxes]
        choices.append((len(places), places[0].has_text, places[0].slots.side, -columns, tuple(places)))
    return max(choices, key=lambda choice: choice[:4])[-1]


def _server(box: Box, count: int, batch: int, queue: Slots, em: float) -> ServerPlace:
    # The text of a single server is above it.
    has_text = count > 1 and box.height >= COMPACT * em and box.width >= 4 * em
    inset, thick = (0.2 * em, 0.3 * em) if count > 1 and not has_text else (0.5 * em, 0.5 * em)
    bar = Box(box.left + inset, box.bottom - inset - thick, box.width - 2 * inset, thick)
    top = box.top + (1.7 * em if has_text else inset)
    room = Box(bar.left, top, bar.width, max(bar.top - 0.25 * em - top, LEAST_PX))
    within = slots(room, batch, queue.side, queue.rows)
    free = float(within.corners[:, 0].min() - room.left)
    return ServerPlace(box, within._replace(corners=within.corners - [free // 2, 0]), bar, has_text)


def places_in(box: Box, waiting: int, servers: int, batch: int, em: float) -> Places:
    """Divide a box among arrivals, queue and servers, for the longest queue and the largest batch."""
    lane = Box(box.left, box.top, max(5 * em, 0.11 * box.width), box.height)
    wide = (0.36 if servers <= 4 else 0.42) * box.width
    right = box.right - 2.6 * em
    queue_right = right - wide - 1.8 * em
    queue = Box(lane.right, box.top, queue_right - lane.right, box.height)
    inner = Box(queue.left + 0.3 * em, queue.top + 0.3 * em, queue.width - 0.6 * em, queue.height - 0.6 * em)
    places = slots(inner, waiting, LARGEST * em)
    beside = servers_in(Box(right - wide, box.top, wide, box.height), servers, batch, places, em)
    there = beside[0].slots
    if there.side == places.side and there.rows > places.rows:  # the same shape in both
        places = slots(inner, waiting, places.side, there.rows)
    return Places(lane, queue, places, beside, box.right)


WAY = 0.15  # the share of its computing in which a batch moves to its server
FADE = 2  # ways: how long finished or lost requests stay visible
AHEAD = 4  # mean times between arrivals in which a request is visible before it arrives
ENTERING = 5  # the same, in which it moves to its place in the queue
MOST_COMING = 60
SPREAD = (5**0.5 - 1) / 2  # the golden ratio: neighbours enter at different heights


class Crowd(NamedTuple):
    """Requests of one look: their numbers, corners (shape (requests, 2)), sides and opacities."""

    requests: np.ndarray
    corners: np.ndarray
    sides: np.ndarray
    alphas: np.ndarray

    @classmethod
    def of(
        cls,
        requests: np.ndarray,
        corners: np.ndarray,
        side: float | np.ndarray,
        alpha: float | np.ndarray = 1.0,
    ) -> Self:
        count = len(requests)
        return cls(requests, corners, np.broadcast_to(side, count), np.broadcast_to(alpha, count))

    @classmethod
    def join(cls, crowds: "list[Crowd]") -> "Crowd":
        empty = Crowd.of(np.empty(0, dtype=int), np.empty((0, 2)), 0.0)
        return Crowd(*(np.concatenate(columns) for columns in zip(empty, *crowds, strict=True)))


class Crowds(NamedTuple):
    """Everything visible at a moment; `groups` are the frames of moving batches."""

    coming: Crowd
    waiting: Crowd
    computing: Crowd
    held: Crowd  # by a device that is busy
    finished: Crowd
    lost: Crowd
    groups: list[Box]


def ease(share: Any) -> Any:
    """Return a share of a way with a slow beginning and end."""
    share = np.clip(share, 0.0, 1.0)
    return share * share * (3 - 2 * share)


def between(begin: np.ndarray, end: np.ndarray, share: np.ndarray | float) -> np.ndarray:
    """Return points between others, shape (requests, 2)."""
    return begin + (end - begin) * np.reshape(share, (-1, 1))


def before(batch: Batch) -> float:
    """Return a time just before a batch left, before any request is delayed at that instant."""
    return math.nextafter(batch.start_s, 0)


class Choreography:
    """The ways of a film's requests over a stage's places; `pace_s` is the mean time between arrivals."""

    def __init__(self, film: Film, places: Places, pace_s: float) -> None:
        self.film, self.places = film, places
        self.arrival_s = film.result.arrival_s
        self.way_s = WAY * film.batch_s
        # Dense arrivals enter faster: otherwise none would ever reach the queue.
        self.entry_s = min(self.way_s, ENTERING * pace_s)
        is_open = isinstance(film.result.scenario.workload, OpenLoop)
        self.ahead_s = AHEAD * pace_s if is_open else 0.0

    def at(self, now: Snapshot) -> Crowds:
        """Return where all requests are at a moment."""
        batches = [batch for batch in now.computing if batch is not None]
        crowds = [self._computing(batch, now) for batch in batches]
        moving = [crowd for batch, crowd in zip(batches, crowds, strict=True) if self._share(batch, now) < 1]
        computing, held = (
            Crowd.join(
                [crowds[place] for place, batch in enumerate(batches) if batch.held(now.time_s) is held]
            )
            for held in (False, True)
        )
        return Crowds(
            self._coming(now.time_s), self._waiting(now, batches), computing, held,
            Crowd.join([self._finished(batch, now.time_s) for batch in self._just_finished(now.time_s)]),
            self._lost(now), [_around(crowd) for crowd in moving],
        )  # fmt: skip

    def _share(self, batch: Batch, now: Snapshot) -> float:
        """Return the share of its way to its server that a batch has moved."""
        return (now.time_s - batch.start_s) / (WAY * (batch.finish_s - batch.start_s))

    def _heights(self, requests: np.ndarray) -> np.ndarray:
        """Return the height at which each request comes in."""
        lane, side = self.places.queue_box, self.places.queue.side
        return lane.top + (lane.height - side) * (requests * SPREAD % 1)

    def _entries(self, requests: np.ndarray) -> np.ndarray:
        """Return where each request enters the queue."""
        x = self.places.lane.right - self.places.queue.side
        return np.stack([np.full(len(requests), x), self._heights(requests)], axis=-1)

    def _coming(self, time_s: float) -> Crowd:
        requests = self.film.coming(time_s, time_s + self.ahead_s)[:MOST_COMING]
        share = 1 - (self.arrival_s[requests] - time_s) / max(self.ahead_s, 1e-300)
        begin, end = self.places.lane.left, self._entries(requests)
        corners = np.stack([begin + (end[:, 0] - begin) * share, end[:, 1]], axis=-1)
        return Crowd.of(requests, corners, self.places.queue.side, np.minimum(3 * share, 1))

    def _in_queue(self, requests: np.ndarray, corners: np.ndarray, time_s: float) -> np.ndarray:
        """Return the corners of requests that have these places in the queue, or are on their way there."""
        share = ease((time_s - self.arrival_s[requests]) / self.entry_s)
        return between(self._entries(requests), corners, share)

    def _given_up(self, requests: np.ndarray, time_s: float) -> np.ndarray:
        """Return the places ahead of each request that are still closing after requests gave up."""
        if not self.film.loses:
            return np.zeros(len(requests))
        lost = self.film.lost(time_s - self.way_s, time_s)
        done_s, turns = self.film.done_s(lost), self.film.order
        ahead = turns.at(lost, time_s) < turns.at(requests, time_s)[:, None]
        ahead &= self.arrival_s[requests][:, None] <= done_s
        ahead &= done_s > self.arrival_s[lost]  # rejected requests had no place
        return np.sum(ahead * (1 - ease((time_s - done_s) / self.way_s)), axis=1)

    def _ahead(self, others: np.ndarray, requests: np.ndarray, time_s: float) -> np.ndarray:
        """Return how many `others` in the queue were ahead of each of these requests at a time.

        The number is fractional while requests make room for one that arrived later but goes earlier, or
        while a delayed request moves back. If two do so at once, one may be off by a place.
        """
        turns = self.film.order
        own, theirs = turns.at(requests, time_s), np.sort(turns.at(others, time_s))
        ahead = np.searchsorted(theirs, own)
        if turns.in_order:
            return ahead
        new = others[self.arrival_s[others] > time_s - self.entry_s]
        passes = turns.at(new, time_s) < own[:, None]
        passes &= self.arrival_s[new] > self.arrival_s[requests][:, None]
        ahead = ahead - np.sum(passes * (1 - ease((time_s - self.arrival_s[new]) / self.entry_s)), axis=1)
        every = np.union1d(others, requests)
        late_s = turns.late_s[every]
        for late in every[(late_s <= time_s) & (late_s > time_s - self.way_s)]:
            left = 1 - ease((time_s - turns.late_s[late]) / self.way_s)
            was, now = (
                turns.at(np.array([late]), when_s)[0]
                for when_s in (math.nextafter(turns.late_s[late], 0), time_s)
            )
            there = np.sort(turns.at(others[self.arrival_s[others] < turns.late_s[late]], time_s))
            falls = np.subtract(*np.searchsorted(there, [was, now]))
            rises = (was < own) & (own < now) & np.isin(late, others)
            ahead = ahead + left * np.where(requests == late, falls, rises)
        return ahead

    def _waiting(self, now: Snapshot, batches: list[Batch]) -> Crowd:
        requests, queue = now.queue, self.places.queue
        index = self._ahead(requests, requests, now.time_s) + self._given_up(requests, now.time_s)
        corners = queue.at(index)
        for batch in batches:  # the requests behind it move up
            if (share := self._share(batch, now)) < 1:
                stood = self.arrival_s[requests] <= batch.start_s
                ahead = np.where(stood, self._ahead(batch.requests, requests, before(batch)), 0)
                corners = corners + (1 - ease(share)) * (queue.at(index + ahead) - queue.at(index))
        return Crowd.of(requests, self._in_queue(requests, corners, now.time_s), queue.side)

    def _slots(self, batch: Batch) -> Slots | None:
        """Return the slots of a batch's server; None if the server is not drawn."""
        servers = self.places.servers
        return servers[batch.server].slots if batch.server < len(servers) else None

    def _computing(self, batch: Batch, now: Snapshot) -> Crowd:
        requests, slots, queue = batch.requests, self._slots(batch), self.places.queue
        share = self._share(batch, now)
        if slots is None or share >= 1:
            return Crowd.of(*_seen(requests, slots))
        index = np.arange(len(requests))
        # They start from their places in the queue, among the requests that stay.
        stood = now.waiting[self.arrival_s[now.waiting] <= batch.start_s]
        place = self._ahead(np.concatenate([requests, stood]), requests, before(batch))
        place = place + self._given_up(requests, batch.start_s)
        begin = self._in_queue(requests, queue.at(place), batch.start_s)
        part = ease(share)
        corners = between(begin, slots.at(index), part)
        shown = index < max(len(slots.corners), len(queue.corners))
        side = queue.side + (slots.side - queue.side) * part
        return Crowd.of(requests[shown], corners[shown], side)

    def _just_finished(self, time_s: float) -> list[Batch]:
        return self.film.finished(time_s - FADE * self.way_s, time_s)

    def _finished(self, batch: Batch, time_s: float) -> Crowd:
        requests, corners, side = _seen(batch.requests, self._slots(batch))
        share = (time_s - batch.finish_s) / (FADE * self.way_s)
        aside = ease(share) * (self.places.right - self.places.servers[-1].box.right)
        return Crowd.of(requests, corners + np.array([float(aside), 0.0]), side, 1 - share)

    def _lost(self, now: Snapshot) -> Crowd:
        """Return the requests that were just rejected or gave up: they fall out of the queue."""
        time_s, queue = now.time_s, self.places.queue
        requests = self.film.lost(time_s - FADE * self.way_s, time_s)[-MOST_COMING:]
        done_s = self.film.done_s(requests)
        rejected = done_s == self.arrival_s[requests]
        turns = self.film.order
        slot = queue.at(np.searchsorted(turns.at(now.queue, time_s), turns.at(requests, time_s)))
        corners = np.where(rejected[:, None], self._entries(requests), slot)
        share = (time_s - done_s) / (FADE * self.way_s)
        down = (self.places.queue_box.bottom - queue.side - corners[:, 1]) * share
        return Crowd.of(
            requests, corners + np.stack([np.zeros(len(requests)), down], -1), queue.side, 1 - share
        )


def _seen(requests: np.ndarray, slots: Slots | None) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the requests of a batch that have a slot, with their corners and their side."""
    if slots is None:
        return np.empty(0, dtype=int), np.empty((0, 2)), 0.0
    requests = requests[: len(slots.corners)]
    return requests, slots.corners[: len(requests)], slots.side


def _around(crowd: Crowd) -> Box:
    if not len(crowd.requests):
        return Box(0, 0, 0, 0)
    (left, top), (right, bottom) = crowd.corners.min(axis=0), crowd.corners.max(axis=0)
    side = float(crowd.sides[0])
    return Box(left - 2, top - 2, right - left + side + 4, bottom - top + side + 4)
