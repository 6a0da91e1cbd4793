"""An edge is found between a value that holds and one that does not."""

from hypothesis import given
from hypothesis import strategies as st

from batchsim.study.bisection import edge, last_whole


@given(inside=st.floats(1e-3, 1e3), truth=st.floats(1, 100), tolerance=st.floats(1e-3, 0.5))
def test_an_edge_is_found_within_the_tolerance(inside, truth, tolerance):
    at = inside * truth
    left, right = edge(inside, inside * 100.001, lambda value: value <= at, tolerance)
    assert left <= at <= right <= left * (1 + tolerance) * (1 + 1e-12)
    right, left = edge(inside * 100.001, inside * 0.99, lambda value: value > at, tolerance)
    assert left <= at <= right <= left * (1 + tolerance) * (1 + 1e-12)


@given(truth=st.integers(0, 999))
def test_the_last_whole_number_is_found(truth):
    assert last_whole(0, 1000, lambda value: value <= truth) == truth
