"""What pictures draw as numbers is NumPy's: ranks, histograms, queues, and the latency by size."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchsim as bs
from batchsim.result.distributions import Ranking, bar_edges, by_trigger, latency_by_size, queue_length


@given(
    st.lists(st.sampled_from([0.0, 1.0, 1.0 + 1e-12, 2.5, 1e6]) | st.floats(0, 100), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_ranked_latencies_are_numpys(latencies_s, groups):
    latency_ms, count = 1000 * np.array(latencies_s), len(latencies_s)
    column = np.arange(count, dtype=float)
    sorted_groups = np.array_split(np.argsort(latency_ms, kind="stable"), groups)
    means = Ranking(latency_ms).group_means([column], groups)[0]
    np.testing.assert_allclose(means, [column[g].mean() if g.size else 0 for g in sorted_groups])
    edges = np.linspace(0, 1.1 * latency_ms.max() + 1e-9, 8)
    np.testing.assert_allclose(
        Ranking(latency_ms).shares(edges), 100 * np.histogram(latency_ms, edges)[0] / count, atol=1e-9
    )
    assert Ranking(latency_ms).below(2500.0) == np.count_nonzero(latency_ms < 2500)


def test_requests_that_were_not_served_have_no_rank():
    ranked = Ranking(np.array([np.nan, 3.0, np.nan, 1.0]))
    assert (ranked.count, ranked.slowest_ms) == (2, 3)
    column = np.array([9.0, 5.0, 9.0, 7.0])
    assert ranked.group_means([column], 2).tolist() == [[7, 5]]
    none = Ranking(np.full(3, np.nan))
    assert none.below(1) == none.shares([0, 1, 2]).sum() == none.group_means([np.zeros(3)], 1).sum() == 0


def test_latencies_of_one_value_have_one_bar():
    rule = bs.SizeOrWait(48, math.inf)
    result = bs.simulate(bs.Scenario(bs.ClosedLoop(64), rule, bs.Affine(5, 0.25)), 2000)
    values = set(result.latency_ms.round(6))
    assert values >= {17, 34}  # at which the axis has edges
    shares = Ranking(result.latency_ms).shares(np.linspace(0, 40, 61))
    assert np.count_nonzero(shares) == len(values)


@given(st.integers(1, 100_000))
def test_bars_are_at_most_64_of_one_width_and_hold_every_size(largest):
    edges = bar_edges(largest)
    assert 1 <= edges.size - 1 <= 64
    assert edges[0] == 0.5
    assert edges[-2] < largest < edges[-1]
    assert len(set(np.diff(edges))) == 1


SCENARIO = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(8, 4), bs.Affine(5, 0.25), servers=2)


@pytest.mark.parametrize("largest", [8, 100])
def test_the_shares_of_sizes_by_trigger_are_counted(largest):
    result = bs.simulate(SCENARIO.replace(max_batch_size=largest, rate_per_s=4000), 2000)
    edges, batches = bar_edges(largest), result.batches
    found = by_trigger(result, edges)
    assert found.sum() == pytest.approx(100)
    for trigger in bs.Trigger:
        counts, _ = np.histogram(batches.batch_size[batches.trigger == trigger], edges)
        np.testing.assert_allclose(found[trigger], 100 * counts / len(batches))


TOKENS = bs.Scenario(
    bs.Poisson(60), bs.Continuous(4), bs.StepTime(2, 8, 0.1), tokens=bs.Tokens(60, bs.Geometric(30))
)  # fmt: skip


@pytest.mark.parametrize("scenario", [SCENARIO.replace(rate_per_s=4000), TOKENS], ids=["requests", "tokens"])
def test_the_queue_is_who_has_arrived_and_not_begun(scenario):
    result = bs.simulate(scenario, 800)
    waiting, end_s = queue_length(result)
    assert end_s == result.arrival_s[-1]
    times_s = np.linspace(0, end_s, waiting.size)
    assert waiting.tolist() == [np.sum((result.arrival_s <= t) & (result.start_s > t)) for t in times_s]


# Requests with sizes.

RULE, PADDED = bs.SizeOrWait(16, 20), bs.PaddedTime(5, 0.25, 0.01)


def run(rule=RULE, sizes=None, requests=2000):
    sizes = bs.Lognormal(80, cv=1, at_most=512) if sizes is None else sizes
    return bs.simulate(bs.Scenario(bs.Poisson(150).with_sizes(sizes), rule, PADDED), requests)


def test_the_latency_by_size_is_that_of_the_requests_between_two_sizes():
    result = run(bs.SizeOrWait(16, 20, max_batch_units=600))  # none is too large
    found, shares, units = latency_by_size(result, (50, 99))
    kept = slice(result.warmup_requests, None)
    size, latency_ms = result.size[kept], result.latency_ms[kept]
    assert shares[0] == 0
    assert shares[-1] == 100
    assert len(units) == found.shape[1] + 1 == 11
    for at in range(found.shape[1]):
        some = (size > units[at] if at else size >= units[at]) & (size <= units[at + 1])
        np.testing.assert_allclose(found[:, at], np.percentile(latency_ms[some], [50, 99]))


def test_equal_sizes_are_one_bin_and_requests_too_large_have_no_percentile():
    found, shares, units = latency_by_size(run(sizes=bs.Uniform(64, 64), requests=500), (50, 99))
    assert shares.tolist() == [0, 100]
    assert units.tolist() == [64, 64]
    found, _, units = latency_by_size(run(bs.SizeOrWait(16, 20, max_batch_units=64)), (50, 99))
    assert np.isnan(found[:, -1]).all()
    assert np.isfinite(found[:, 0]).all()
