"""The cells of a grid: their rectangles, the borders between them, and the colours of their values."""

from functools import cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.path import Path
from matplotlib.patheffects import AbstractPathEffect, Normal, Stroke

from batchsim.view.scales import FINE, nice_span

NOWHERE = Path(np.zeros((1, 2)))
RECTANGLE = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]


def rectangles(left: np.ndarray, right: np.ndarray, first: Any, last: Any) -> Path:
    """Return rectangles as one path: from `left` to `right`, and upright from `first` to `last`.

    One artist for thousands of rectangles draws in the time of one; a patch each takes ten times as long.
    """
    left, right, first, last = np.broadcast_arrays(left, right, first, last)
    x, y = np.stack([left, right, right, left, left], -1), np.stack([first, first, last, last, first], -1)
    return Path(np.stack([x.ravel(), y.ravel()], -1), RECTANGLE * left.size) if left.size else NOWHERE


def squares(cells: np.ndarray, inset: float = 0.0) -> Path:
    """Return a square in each of these cells, bool of shape (rows, columns), as one path.

    `inset` is the distance from the cell's edges, as a fraction of the cell.
    """
    row, column = np.nonzero(cells)
    return rectangles(column + inset, column + 1 - inset, row + inset, row + 1 - inset)


def border(within: np.ndarray) -> Path:
    """Return the edges between cells that are within and others: bool, shape (rows, columns).

    The line follows the edges of cells because values between two of the grid's are unknown.

    >>> border(np.array([[True, False]])).vertices.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    ends = [[(c + 1, r), (c + 1, r + 1)] for r, c in np.argwhere(within[:, 1:] != within[:, :-1])]
    ends += [[(c, r + 1), (c + 1, r + 1)] for r, c in np.argwhere(within[1:] != within[:-1])]
    return Path(np.reshape(ends, (-1, 2)), [Path.MOVETO, Path.LINETO] * len(ends)) if ends else NOWHERE


@cache
def on_white(width: float) -> list[AbstractPathEffect]:
    """Return the path effects of a mark on a white line: it is visible on dark cells and on bright ones."""
    solid = {"dash_offset": 0, "dash_list": None}
    return [Stroke(linewidth=width, foreground="white", dashes=solid), Normal()]


FACTOR = 4.0  # the colours end at this multiple of the objective, and at the objective over it
# From green, far below the objective, over white to brown: a colour-blind reader tells these apart.
COLOURS = ListedColormap(matplotlib.colormaps["BrBG_r"](np.linspace(0.06, 0.94, 256), bytes=True) / 255)
GREENS = ListedColormap(COLOURS(np.arange(128)))  # without an objective there is no middle


def ends(values: np.ndarray, objective: float | None) -> tuple[float, float]:
    """Return the ends of the scale: anchored to the objective, otherwise the values' range, rounded out.

    >>> ends(np.array([3.0, 90.0]), 25.0), ends(np.array([3.0, 90.0]), None)
    ((6.25, 100.0), (3.0, 100.0))
    """
    if objective:
        return objective / FACTOR, objective * FACTOR
    finite = values[np.isfinite(values) & (values > 0)]
    return nice_span(float(finite.min()), float(finite.max()), FINE) if finite.size else (1.0, 100.0)
