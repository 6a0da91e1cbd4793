"""What stands on the stage: requests as numbered boxes, and bars that fill."""

from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from batchsim.view.canvas.lettering import Lettering, Words, width_em
from batchsim.view.canvas.picture import Box, Tile

WIDE, HIGH, GAP = 2.8, 2.6, 0.35  # a request's box, and the room beside it, in ems
NOTHING = Path(np.empty((0, 2)))
CORNERS = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
Look = tuple[str, str]  # colour and hatch
FORMING, QUEUEING = ("orange", "////"), ("purple", "\\\\\\\\")
COMPUTING = ("blue", "")


class Boxes:
    """Numbered requests in slots: each a box with a stripe of its part's colour and hatch."""

    def __init__(self, tile: Tile, slots: Sequence[tuple[float, float]], em: float) -> None:
        """`slots`: the left and the top of each, in pixels; the first request's first."""
        theme = self.theme = tile.theme
        self.em, self.slots = em, slots
        self.outlines = outlines(slots, em)
        self.stripes = [
            Path([*corners, corners[0]], closed=True) for corners in outlines(slots, em, down=0.6)
        ]
        self.papers = tile.add(PolyCollection([], facecolor=theme.background, linewidth=0, zorder=2))
        # One path of all stripes: a hatch is drawn once a path, and takes longer than all else.
        self.bars = tile.add(PathPatch(NOTHING, edgecolor=theme.background, linewidth=0, zorder=3))
        self.edges = tile.add(PolyCollection([], facecolor="none", edgecolor=theme.soft, zorder=4))
        self.numbers = Lettering(tile.picture, 0.9 * em, theme.ink)
        tile.moves(self.papers, self.bars, self.edges, self.numbers)

    def __len__(self) -> int:
        return len(self.slots)

    def show(self, requests: np.ndarray, look: Look) -> None:
        """Show the first of these requests, as many as there are slots."""
        colour, hatch = look
        texts = [str(request) for request in requests[: len(self)].tolist()]
        for polygons in (self.papers, self.edges):
            polygons.set_verts(list(self.outlines[: len(texts)]))
        self.bars.set_path(Path.make_compound_path(*self.stripes[: len(texts)]) if texts else NOTHING)
        self.bars.set(facecolor=getattr(self.theme, colour), hatch=hatch)
        widest = 0.94 * WIDE * self.em / width_em("0" * max(map(len, texts), default=1))
        self.numbers.set_size(min(0.9 * self.em, widest))
        self.numbers.show(
            Words(text, x + WIDE * self.em / 2, y + 1.15 * self.em, "center")
            for text, (x, y) in zip(texts, self.slots, strict=False)
        )


def outlines(slots: Sequence[tuple[float, float]], em: float, down: float = 0.0) -> np.ndarray:
    """Return the corners of boxes without their upper part, shape (slots, 4, 2)."""
    places = np.array(slots, dtype=float).reshape(-1, 1, 2)
    return places + (0, down * HIGH * em) + CORNERS * (WIDE * em, (1 - down) * HIGH * em)


class Bar:
    """A gauge, filled from the left."""

    def __init__(self, tile: Tile, place: Box) -> None:
        self.place, self.theme, corner = place, tile.theme, (place.left, place.top)
        tile.add(Rectangle(corner, place.width, place.height, facecolor=tile.theme.faint, linewidth=0))
        self.fill = tile.add(Rectangle(corner, 0, place.height, linewidth=0, zorder=2))
        tile.moves(self.fill)

    def show(self, share: float, look: Look = COMPUTING) -> None:
        """Fill a share of it, at most all."""
        colour, hatch = look
        width = self.place.width * min(max(share, 0.0), 1.0)
        colours = {"facecolor": getattr(self.theme, colour), "edgecolor": self.theme.background}
        self.fill.set(width=width, hatch=hatch, linewidth=0, **colours)
