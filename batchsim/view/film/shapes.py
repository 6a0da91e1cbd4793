"""What the film is made of: requests as boxes, with a number where there is room, and bars that fill."""

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import PathPatch, Rectangle

from batchsim.view.canvas.cells import CORNERS, NOWHERE, rectangles, triangles
from batchsim.view.canvas.lettering import Label, Lettering, width_em
from batchsim.view.canvas.picture import Box, Tile
from batchsim.view.canvas.theme import COMPONENTS, ComponentStyle
from batchsim.view.film.motion import Crowd

FLAG = 0.5  # of a box's side
STRIPE = np.array([0, 0.58])  # of a box with a number: where its stripe begins
DIGITS = 3  # the last ones are shown
HATCHED_PX = 8  # the least side in which a hatch can be seen


def fill_style(tile: Tile, style: ComponentStyle, dense: bool = True) -> dict[str, str]:
    """Return how a component of the latency fills a small shape: its hatch is twice as dense."""
    colour, background = getattr(tile.theme, style.colour), tile.theme.background
    return {"facecolor": colour, "edgecolor": background, "hatch": 2 * style.hatch if dense else ""}


class RequestBoxes:
    """Requests as boxes in their component's colour and hatch; those large enough have a number."""

    def __init__(self, tile: Tile, em: float, zorder: float = 2) -> None:
        self.tile, self.em, theme = tile, em, tile.theme
        # One path each for all boxes: a hatch is drawn once a path, and takes longer than all else.
        self.papers = tile.add(PathPatch(NOWHERE, facecolor=theme.background, linewidth=0, zorder=zorder))
        self.fills = tile.add(PathPatch(NOWHERE, linewidth=0, zorder=zorder + 0.1))
        self.edges = tile.add(PathPatch(NOWHERE, facecolor="none", edgecolor=theme.soft, linewidth=1))
        self.edges.set_zorder(zorder + 0.2)
        self.numbers = Lettering(tile.picture, em, theme.ink, zorder=zorder + 0.3)
        tile.set_moving(self.papers, self.fills, self.edges, self.numbers)

    def show(self, crowd: Crowd, component: str, digits: int) -> None:
        """Show these requests, each with the last digits of its number if these have room."""
        em, sides = self.em, crowd.sides[:, None]
        numbered = sides[:, 0] >= number_px(em, digits)
        begin, end = crowd.corners, crowd.corners + sides
        papers = rectangles(begin[numbered], end[numbered])
        self.papers.set_path(papers)
        self.edges.set_path(papers)
        self.fills.set_path(rectangles(begin + sides * np.where(numbered[:, None], STRIPE, 0), end))
        style = fill_style(self.tile, COMPONENTS[component], bool(sides.max(initial=0) >= HATCHED_PX))
        self.fills.set(visible=len(sides) > 0, **style)
        baseline = (STRIPE[1] * sides + 0.72 * em) / 2
        places = np.concatenate([begin + sides / 2 * [1, 0], begin + baseline], axis=1)[numbered]
        self.numbers.show(
            Label(last_digits(request, digits), x, y, "center")
            for request, (x, _, _, y) in zip(crowd.requests[numbered].tolist(), places.tolist(), strict=True)
        )


def last_digits(request: int, digits: int) -> str:
    """Return the end of a request's number.

    >>> last_digits(7, 3), last_digits(50_012, 3)
    ('7', '012')
    """
    return str(request)[-digits:]


def number_px(em: float, digits: int) -> float:
    """Return the least side of a box with a number of so many digits."""
    return max(digits * em * width_em("0") + 2, 1.9 * em)


class Flags:
    """A mark in the lower left corner of requests whose level goes before others, the larger the earlier."""

    def __init__(self, tile: Tile, zorder: float) -> None:
        theme = tile.theme
        self.shapes = tile.add(PathPatch(NOWHERE, facecolor=theme.ink, edgecolor=theme.background))
        self.shapes.set(zorder=zorder, visible=False)
        tile.set_moving(self.shapes)

    def show(self, crowd: Crowd, shares: np.ndarray) -> None:
        """Give each of these requests a share of the largest flag, none where it is 0."""
        flagged = shares > 0
        sides = crowd.sides[flagged]
        corners = crowd.corners[flagged] + np.stack([np.zeros(sides.size), sides], axis=-1)
        sizes = FLAG * sides * shares[flagged]
        self.shapes.set_path(triangles(corners, sizes))
        self.shapes.set(visible=bool(flagged.any()), linewidth=float(sides.max(initial=0) >= HATCHED_PX))


class FadingBoxes:
    """Requests of any opacity, without numbers."""

    def __init__(self, tile: Tile, colour: str, filled: bool = True, zorder: float = 3) -> None:
        self.colour, self.filled = np.array(to_rgba(colour)), filled
        self.boxes = tile.add(PolyCollection([], facecolor="none", edgecolor="none", zorder=zorder))
        self.boxes.set_linewidth(1.0)
        tile.set_moving(self.boxes)

    def show(self, crowd: Crowd) -> None:
        corners = crowd.corners[:, None] + CORNERS[:4] * crowd.sides[:, None, None]
        self.boxes.set_verts(list(corners))
        colours = np.tile(self.colour, (len(corners), 1))
        colours[:, 3] *= crowd.alphas
        self.boxes.set(**{"facecolor" if self.filled else "edgecolor": colours})


class Gauge:
    """A bar, filled from the left."""

    def __init__(self, tile: Tile, box: Box) -> None:
        self.tile, self.box, corner = tile, box, (box.left, box.top)
        back = Rectangle(corner, box.width, box.height, facecolor=tile.theme.faint, linewidth=0)
        self.back = tile.add(back)
        self.fill = tile.add(Rectangle(corner, 0, box.height, linewidth=0, zorder=2))
        tile.set_moving(self.fill)

    def show(self, share: float, component: str = "computing") -> None:
        """Fill a share of it, at most all."""
        width = self.box.width * min(max(share, 0.0), 1.0)
        # What is not seen is not drawn: a hatch takes its time even on nothing.
        self.fill.set(width=width, visible=width > 0, **fill_style(self.tile, COMPONENTS[component]))
