"""Scales hold their numbers."""

import math

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from batchsim.view.scales import log_ticks, nice, nice_span


@given(st.floats(1e-6, 1e9), st.floats(1, 1e6))
def test_a_logarithmic_scale_holds_its_numbers_and_ends_on_a_tick(low, ratio):
    begin, end = nice_span(low, low * ratio)
    assert begin <= low * (1 + 1e-9)
    assert end >= low * ratio * (1 - 1e-9)
    assert begin < end
    axis = Figure().add_subplot().yaxis
    axis.axes.set(yscale="log", ylim=(begin, end))
    log_ticks(axis)
    assert 1 <= len(axis.get_majorticklocs()) <= 7


def test_axes_hold_still_while_a_number_moves_a_little():
    assert [nice(value) for value in (16, 17, 18, 19)] == [20, 20, 20, 20]
    assert nice(20) == 20
    assert nice(math.inf) == nice(0) == nice(5e-324) == 1
