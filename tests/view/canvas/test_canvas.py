"""Scales hold their numbers, and the outlines of cells are complete."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from batchsim.view.canvas.axes import log_ticks, nice, nice_span
from batchsim.view.canvas.cells import border, squares


@given(st.floats(1e-6, 1e9), st.floats(1, 1e6))
def test_a_logarithmic_scale_holds_its_numbers_and_ends_on_a_tick(low, ratio):
    begin, end = nice_span(low, low * ratio)
    assert begin <= low * (1 + 1e-9)
    assert end >= low * ratio * (1 - 1e-9)
    assert begin < end
    axis = Figure().add_subplot().yaxis
    log_ticks(axis, begin, end)
    assert 1 <= len(axis.get_majorticklocs()) <= 7


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=4))
def test_the_border_has_an_edge_for_each_pair_of_neighbours_that_differ(rows):
    within = np.array(rows)
    pairs = np.sum(within[1:] != within[:-1]) + np.sum(within[:, 1:] != within[:, :-1])
    edges = border(within)
    assert len(edges) == pairs
    assert all(math.dist(*edge) == 1 for edge in edges)
    for inset in (0, 0.25):
        corners = squares(within, inset).vertices
        assert len(corners) == max(5 * within.sum(), 1)
        if within.any():
            spans = np.ptp(corners.reshape(-1, 5, 2), axis=1)
            np.testing.assert_allclose(spans, 1 - 2 * inset)


def test_axes_hold_still_while_a_number_moves_a_little():
    assert [nice(value) for value in (16, 17, 18, 19)] == [20, 20, 20, 20]
    assert nice(20) == 20
    assert nice(math.inf) == nice(0) == nice(5e-324) == 1
