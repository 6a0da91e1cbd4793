"""What the animation is made of: requests as numbered boxes, and bars that fill."""

from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.canvas.theme import COMPONENTS

WIDE, HIGH, GAP = 2.8, 2.6, 0.35  # a request's box, and the room beside it, in ems
NOTHING = Path(np.empty((0, 2)))
CORNERS = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])


def fill_style(tile: Tile, component: str) -> dict[str, str]:
    """Return how a component of the latency fills a small shape: its hatch is twice as dense."""
    style = COMPONENTS[component]
    colour, background = getattr(tile.theme, style.colour), tile.theme.background
    return {"facecolor": colour, "edgecolor": background, "hatch": 2 * style.hatch}


class RequestBoxes:
    """Numbered requests in slots: each a box with a stripe in its component's colour and hatch."""

    def __init__(self, tile: Tile, slots: Sequence[tuple[float, float]], em: float) -> None:
        """`slots`: the left and the top of each, in pixels; the oldest request's first."""
        self.tile, self.em, self.slots = tile, em, slots
        self.outlines = outlines(slots, em)
        self.stripes = [
            Path([*corners, corners[0]], closed=True) for corners in outlines(slots, em, down=0.6)
        ]
        theme = tile.theme
        self.papers = tile.add(PolyCollection([], facecolor=theme.background, linewidth=0, zorder=2))
        # One path of all stripes: a hatch is drawn once a path, and takes longer than all else.
        self.bars = tile.add(PathPatch(NOTHING, linewidth=0, zorder=3))
        self.edges = tile.add(PolyCollection([], facecolor="none", edgecolor=theme.soft, zorder=4))
        self.numbers = Lettering(tile.picture, 0.9 * em, theme.ink)
        tile.set_moving(self.papers, self.bars, self.edges, self.numbers)

    def __len__(self) -> int:
        return len(self.slots)

    def show(self, requests: np.ndarray, component: str) -> None:
        """Show the first of these requests, as many as there are slots."""
        texts = [str(request) for request in requests[: len(self)].tolist()]
        for polygons in (self.papers, self.edges):
            polygons.set_verts(list(self.outlines[: len(texts)]))
        self.bars.set_path(Path.make_compound_path(*self.stripes[: len(texts)]) if texts else NOTHING)
        self.bars.set(**fill_style(self.tile, component))
        widest = 0.94 * WIDE * self.em / width_em("0" * max(map(len, texts), default=1))
        self.numbers.set_size(min(0.9 * self.em, widest))
        self.numbers.show(
            Label(text, x + WIDE * self.em / 2, y + 1.15 * self.em, "center")
            for text, (x, y) in zip(texts, self.slots, strict=False)
        )


def outlines(slots: Sequence[tuple[float, float]], em: float, down: float = 0.0) -> np.ndarray:
    """Return the corners of boxes, shape (slots, 4, 2), without the upper `down` of their height."""
    places = np.array(slots, dtype=float).reshape(-1, 1, 2)
    return places + (0, down * HIGH * em) + CORNERS * (WIDE * em, (1 - down) * HIGH * em)


def grid(left: float, top: float, columns: int, rows: int, em: float) -> list[tuple[float, float]]:
    """Return slots row by row, from the upper left one to the right."""
    return [
        (left + column * (WIDE + GAP) * em, top + row * (HIGH + GAP) * em)
        for row in range(rows)
        for column in range(columns)
    ]


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
