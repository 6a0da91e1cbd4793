"""Where requests can stand on the stage: slots for as many as there are, as large as there is room for."""

import math
from typing import NamedTuple

import numpy as np

from batchsim.view.canvas.picture import Box

LEAST_PX = 4  # the side of a request that can still be seen
LARGEST = 2.8  # ems: there a number has room
COMPACT = 3.2  # ems: a lower server has no line of text


class Slots(NamedTuple):
    """Places of one size: their upper left corners in CSS pixels, shape (slots, 2), the oldest's first."""

    corners: np.ndarray
    side: float
    rows: int

    def at(self, index: np.ndarray) -> np.ndarray:
        """Return the corners of slots by number, or between two; those beyond the last one share it."""
        last = len(self.corners) - 1
        low = np.minimum(np.floor(index).astype(int), last)
        begin, end = self.corners[low], self.corners[np.minimum(low + 1, last)]
        return begin + (end - begin) * (index - np.floor(index))[:, None]


def gap_px(side: float) -> float:
    """Return the room between boxes of this side."""
    return 1.0 if side < 9 else 2.0 if side < 18 else 3.0


def slots(box: Box, count: int, largest_px: float, rows: int = 1) -> Slots:
    """Return slots for a number of requests, or for as many as can be seen; all fit into the box.

    They are filled column by column from the right, where the servers are; in at least so many rows, if that
    many fit. They are as large as there is room for, in whole pixels, so that they stand still and sharp.

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
    """Return as many servers as can be seen, column by column, with slots for a batch of that size.

    As in the queue, if there is room: then a batch keeps its shape on the way.
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
    # Of a single one the text stands above.
    has_text = count > 1 and box.height >= COMPACT * em and box.width >= 4 * em
    inset, thick = (0.2 * em, 0.3 * em) if count > 1 and not has_text else (0.5 * em, 0.5 * em)
    bar = Box(box.left + inset, box.bottom - inset - thick, box.width - 2 * inset, thick)
    top = box.top + (1.7 * em if has_text else inset)
    room = Box(bar.left, top, bar.width, max(bar.top - 0.25 * em - top, LEAST_PX))
    within = slots(room, batch, queue.side, queue.rows)
    free = float(within.corners[:, 0].min() - room.left)
    return ServerPlace(box, within._replace(corners=within.corners - [free // 2, 0]), bar, has_text)


def places_in(box: Box, waiting: int, servers: int, batch: int, em: float) -> Places:
    """Divide a box among arrivals, queue and servers, for the most that wait, and the largest batch."""
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
