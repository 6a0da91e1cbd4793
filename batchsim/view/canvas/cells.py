"""Rectangles, triangles, and outlines on a grid of cells, as paths."""

import numpy as np
from matplotlib.path import Path

NOWHERE = Path(np.zeros((1, 2)))
CORNERS = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]])
TRIANGLE = np.array([[0, 0], [1, 0], [0, -1], [0, 0]])
RECTANGLE = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]


def rectangles(begin: np.ndarray, end: np.ndarray) -> Path:
    """Return rectangles as one path; their opposite corners have shape (count, 2)."""
    vertices = begin[:, None] + (end - begin)[:, None] * CORNERS
    return Path(vertices.reshape(-1, 2), RECTANGLE * len(begin)) if len(begin) else NOWHERE


def triangles(corners: np.ndarray, sides: np.ndarray) -> Path:
    """Return triangles up and to the right of corners, of shape (count, 2), as one path."""
    vertices = corners[:, None] + sides[:, None, None] * TRIANGLE
    return (
        Path(vertices.reshape(-1, 2), [Path.MOVETO, *RECTANGLE[2:]] * len(corners))
        if len(corners)
        else NOWHERE
    )


def squares(cells: np.ndarray, inset: float = 0.0) -> Path:
    """Return a square in each of these cells, bool of shape (rows, columns), as one path.

    `inset` is the distance from the cell's edges, as a fraction of the cell.
    """
    corners = np.argwhere(cells)[:, ::-1]
    return rectangles(corners + inset, corners + 1 - inset)


def border(within: np.ndarray) -> list[list[tuple[int, int]]]:
    """Return the edges between cells that are within and others: bool, shape (rows, columns).

    Along the cells' edges: nothing says what a value between two of the grid's would give.

    >>> border(np.array([[True, False]]))
    [[(1, 0), (1, 1)]]
    """
    edges = [[(c + 1, r), (c + 1, r + 1)] for r, c in np.argwhere(within[:, 1:] != within[:, :-1]).tolist()]
    edges += [[(c, r + 1), (c + 1, r + 1)] for r, c in np.argwhere(within[1:] != within[:-1]).tolist()]
    return edges
