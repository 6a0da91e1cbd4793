"""The outlines of cells are complete."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsim.view.pictures.cells import border, squares


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=4))
def test_the_border_has_an_edge_for_each_pair_of_neighbours_that_differ(rows):
    within = np.array(rows)
    pairs = np.sum(within[1:] != within[:-1]) + np.sum(within[:, 1:] != within[:, :-1])
    path = border(within)
    edges = path.vertices.reshape(-1, 2, 2) if len(path.vertices) > 1 else []
    assert len(edges) == pairs
    assert all(math.dist(*edge) == 1 for edge in edges)
    for (x, y), end in np.array(edges, int):
        before = (y, x - 1) if end[0] == x else (y - 1, x)
        assert within[before] != within[y, x]
    for inset in (0, 0.25):
        corners = squares(within, inset).vertices
        assert len(corners) == max(5 * within.sum(), 1)
        if within.any():
            spans = np.ptp(corners.reshape(-1, 5, 2), axis=1)
            np.testing.assert_allclose(spans, 1 - 2 * inset)
