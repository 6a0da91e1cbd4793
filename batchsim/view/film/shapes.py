"""What the animation is made of: requests as numbered boxes, and bars that fill."""

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import PathPatch, Rectangle

from batchsim.view.canvas.cells import CORNERS, NOWHERE, rectangles
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.canvas.theme import COMPONENTS

WIDE, HIGH, GAP = 2.8, 2.6, 0.35  # a request's box, and the room beside it, in ems
STRIPE = np.array([0, 0.6])  # of a box: where its stripe begins


def fill_style(tile: Tile, component: str) -> dict[str, str]:
    """Return how a component of the latency fills a small shape: its hatch is twice as dense."""
    style = COMPONENTS[component]
    colour, background = getattr(tile.theme, style.colour), tile.theme.background
    return {"facecolor": colour, "edgecolor": background, "hatch": 2 * style.hatch}


class RequestBoxes:
    """Numbered requests in slots: each a box with a stripe in its component's colour and hatch.

    `slots`: the left and the top of each, in pixels, shape (slots, 2); the oldest request's first.
    """

    def __init__(self, tile: Tile, slots: np.ndarray, em: float) -> None:
        self.tile, self.em, self.slots, theme = tile, em, slots, tile.theme
        self.outlines = outlines(slots, em)
        self.papers = tile.add(PolyCollection([], facecolor=theme.background, linewidth=0, zorder=2))
        # One path of all stripes: a hatch is drawn once a path, and takes longer than all else.
        self.bars = tile.add(PathPatch(NOWHERE, linewidth=0, zorder=3))
        self.edges = tile.add(PolyCollection([], facecolor="none", edgecolor=theme.soft, zorder=4))
        self.numbers = Lettering(tile.picture, 0.9 * em, theme.ink)
        tile.set_moving(self.papers, self.bars, self.edges, self.numbers)

    def __len__(self) -> int:
        return len(self.slots)

    def show(self, requests: np.ndarray, component: str) -> None:
        """Show the first of these requests, as many as there are slots."""
        em, texts = self.em, [str(request) for request in requests[: len(self)].tolist()]
        slots, box = self.slots[: len(texts)], np.array([WIDE, HIGH]) * self.em
        for polygons in (self.papers, self.edges):
            polygons.set_verts(list(self.outlines[: len(texts)]))
        self.bars.set_path(rectangles(slots + box * STRIPE, slots + box))
        self.bars.set(**fill_style(self.tile, component))
        widest = 0.94 * WIDE * em / width_em("0" * max(map(len, texts), default=1))
        self.numbers.set_size(min(0.9 * em, widest))
        self.numbers.show(
            Label(text, x + WIDE * em / 2, y + 1.15 * em, "center")
            for text, (x, y) in zip(texts, slots.tolist(), strict=True)
        )


def outlines(slots: np.ndarray, em: float) -> np.ndarray:
    """Return the corners of the boxes in slots, shape (slots, 4, 2)."""
    return slots[:, None] + CORNERS[:4] * (WIDE * em, HIGH * em)


def grid(left: float, top: float, columns: int, rows: int, em: float) -> np.ndarray:
    """Return slots, shape (rows, columns, 2), from the upper left one on."""
    xs, ys = left + np.arange(columns) * (WIDE + GAP) * em, top + np.arange(rows) * (HIGH + GAP) * em
    return np.stack(np.meshgrid(xs, ys), axis=-1)


class Gauge:
    """A bar, filled from the left."""

    def __init__(self, tile: Tile, box: Box) -> None:
        self.tile, self.box, corner = tile, box, (box.left, box.top)
        tile.add(Rectangle(corner, box.width, box.height, facecolor=tile.theme.faint, linewidth=0))
        self.fill = tile.add(Rectangle(corner, 0, box.height, linewidth=0, zorder=2))
        tile.set_moving(self.fill)

    def show(self, share: float, component: str = "computing") -> None:
        """Fill a share of it, at most all."""
        width = self.box.width * min(max(share, 0.0), 1.0)
        self.fill.set(width=width, **fill_style(self.tile, component))
