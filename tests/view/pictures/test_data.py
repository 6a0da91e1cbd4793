"""Latencies by rank are NumPy's, ties included."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import batchsim as bs
from batchsim.view.pictures.data import Ranked


@given(
    st.lists(st.sampled_from([0.0, 1.0, 1.0 + 1e-12, 2.5, 1e6]) | st.floats(0, 100), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_ranked_latencies_are_numpys(latencies_s, groups):
    latency_ms, count = 1000 * np.array(latencies_s), len(latencies_s)
    column = np.arange(count, dtype=float)
    sorted_groups = np.array_split(np.argsort(latency_ms, kind="stable"), groups)
    means = Ranked(latency_ms).group_means([column], groups)[0]
    np.testing.assert_allclose(means, [column[g].mean() if g.size else 0 for g in sorted_groups])
    edges = np.linspace(0, 1.1 * latency_ms.max() + 1e-9, 8)
    np.testing.assert_allclose(
        Ranked(latency_ms).shares(edges), 100 * np.histogram(latency_ms, edges)[0] / count, atol=1e-9
    )


def test_requests_that_were_not_served_have_no_rank():
    ranked = Ranked(np.array([np.nan, 3.0, np.nan, 1.0]))
    assert (ranked.count, ranked.fastest_ms, ranked.slowest_ms) == (2, 1, 3)
    column = np.array([9.0, 5.0, 9.0, 7.0])
    assert ranked.group_means([column], 2).tolist() == [[7, 5]]
    none = Ranked(np.full(3, np.nan))
    assert none.below(1) == none.shares([0, 1, 2]).sum() == none.group_means([np.zeros(3)], 1).sum() == 0


def test_latencies_of_one_value_have_one_bar():
    rule = bs.SizeOrWait(48, math.inf)
    result = bs.simulate(bs.Scenario(bs.ClosedLoop(64), rule, bs.Affine(5, 0.25)), 2000)
    values = set(result.latency_ms.round(6))
    assert values >= {17, 34}  # at which the axis has edges
    shares = Ranked(result.latency_ms).shares(np.linspace(0, 40, 61))
    assert np.count_nonzero(shares) == len(values)
