"""The textbook rule, with and without a wait: its means, and the latency's distribution."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusals
from scipy import optimize, stats

import batchsim as bs
from batchsim import theory
from batchsim.theory import distribution

SLOW_START = bs.Affine(5, 0.25)
V100 = bs.Affine(1.8874, 0.1438)
ODD = bs.Table({1: 6, 2: 3, 8: 7})  # two compute faster than one


def at_load(load, service, size):
    return load * size / service(size)


def waits(service, size):
    """Waits that are solved: up to what a full batch computes."""
    return st.floats(0, service(size) * 1000)


# Against the simulator: other code, other mathematics.


@pytest.mark.parametrize(
    ("service", "size", "wait_ms", "rate"),
    [
        (SLOW_START, 32, 0, 900),
        (SLOW_START, 32, 10, 900),
        (SLOW_START, 32, 13, 2000),
        (SLOW_START, 3, 5.75, 400),
        (SLOW_START, 32, 2, 300),
        (V100, 2, 2, 400),
        (V100, 1, 3, 300),
        (ODD, 8, 5, 700),
        (ODD, 8, 7, 300),
    ],
    ids=str,
)
def test_simulation_agrees_within_its_own_error(service, size, wait_ms, rate):
    answer = theory.size_or_wait(rate, service, size, wait_ms)
    scenario = bs.Scenario(bs.Poisson(rate), bs.SizeOrWait(size, wait_ms), service)
    runs = bs.simulate(scenario, 200_000, replications=8, seed=2).replications
    names = ("mean_latency_ms", "mean_batch_size", "utilisation")
    measured = np.array([[getattr(run, name) for name in names] for run in runs])
    error = measured.std(0, ddof=1) / math.sqrt(len(runs))
    expected = [getattr(answer, name) for name in names]
    assert (np.abs(measured.mean(0) - expected) < 4 * error + 1e-4 * np.abs(expected)).all()
    # The distribution at each 2 %, a rounding above any jump.
    latency_ms = np.quantile(runs[0].latency_ms, np.arange(0.02, 1, 0.02)) + 1e-6
    shares = (
        np.array([np.searchsorted(np.sort(run.latency_ms), latency_ms, "right") for run in runs]) / 200_000
    )
    error = shares.std(0, ddof=1) / math.sqrt(len(runs))
    assert (np.abs(shares.mean(0) - answer.cdf(latency_ms)) < 5 * error + 2e-4).all()


# Properties.


def mean_ms_of(latency):
    """The mean of the distribution. The chain gives it too, by another way: a check of both."""
    edges, integrals, total, shift_s = latency._tables
    areas = np.polynomial.chebyshev.chebint(integrals, lbnd=-1, axis=2) * np.diff(edges)[:, None, None] / 2
    at_s, jump = latency._jumps
    until, end = latency._tail_from_s, edges[-1]
    if until == math.inf:
        return 1000 * float((total * (end + shift_s) - areas.sum((0, 2))).sum() + jump @ at_s)
    # The area below the distribution until the tail begins, column by column; then that above the tail.
    below = jump @ np.clip(until - at_s, 0, None)
    for column in np.flatnonzero(shift_s < until):
        w = until - shift_s[column]
        piece = min(int(np.searchsorted(edges, w, side="right")) - 1, edges.size - 2)
        at = 2 * (min(w, end) - edges[piece]) / (edges[piece + 1] - edges[piece]) - 1
        below += areas[:piece, column].sum() + np.polynomial.chebyshev.chebval(at, areas[piece, column])
        below += total[column] * max(w - end, 0)
    late = 1 - float(latency.cdf(until * 1000))
    return 1000 * float(until - below + late / (latency.rate * (latency._pole - 1)))


@settings(max_examples=30)
@given(data=st.data(), size=st.integers(1, 24), load=st.floats(0.01, 0.97))
def test_the_distributions_mean_is_the_chains(data, size, load):
    service = data.draw(
        st.sampled_from([SLOW_START, V100, bs.Affine(0, 1), SLOW_START.padded_to([1, 4, 8, 24])])
    )
    wait_ms = data.draw(waits(service, size))
    answer = theory.size_or_wait(at_load(load, service, size), service, size, wait_ms)
    assert mean_ms_of(answer.cdf.__self__) == pytest.approx(answer.mean_latency_ms, rel=1e-9)


@settings(max_examples=30)
@given(data=st.data(), size=st.integers(1, 24), load=st.floats(0.01, 0.97))
def test_the_distribution_grows_from_0_to_1(data, size, load):
    answer = theory.size_or_wait(at_load(load, V100, size), V100, size, data.draw(waits(V100, size)))
    shortest = min(V100(1), V100(size)) * 1000
    grid = np.concatenate([np.linspace(0, 5 * answer.mean_latency_ms, 300), [100 * answer.mean_latency_ms]])
    values = answer.cdf(grid)
    assert (np.diff(values) > -1e-11).all()
    assert (values[grid < shortest] == 0).all()
    assert values[-1] == pytest.approx(1, abs=1e-9)


def test_the_area_above_the_distribution_is_the_mean():
    # Not by the tables' own integrals; the jumps, at tau(1) + 10 ms and so on, between the points.
    answer = theory.size_or_wait(900, SLOW_START, 32, 10)
    x = (np.arange(60_000) + 0.5) * 1e-3
    assert (1 - answer.cdf(x)).sum() * 1e-3 == pytest.approx(answer.mean_latency_ms, rel=5e-5)


@pytest.mark.parametrize("size", [1, 2, 7, 32])
@pytest.mark.parametrize("load", [0.2, 0.8])
def test_a_wait_that_vanishes_is_none(size, load):
    rate = at_load(load, V100, size)
    none, short = theory.size_or_wait(rate, V100, size, 0), theory.size_or_wait(rate, V100, size, 1e-7)
    assert short.mean_latency_ms == pytest.approx(none.mean_latency_ms, rel=1e-6)
    # An oldest of 2 may be in the crowd, so that the probabilities differ by what comes in 1e-7 ms.
    grid = np.linspace(1, 20, 77)
    assert short.cdf(grid + 1e-6) == pytest.approx(none.cdf(grid + 1e-6), abs=1e-5)


@pytest.mark.parametrize("wait_ms", [1, 5, 12])
def test_few_requests_wait_alone_for_the_whole_wait(wait_ms):
    answer = theory.size_or_wait(1e-3, SLOW_START, 32, wait_ms)
    alone_ms = theory.light_traffic_latency_ms(bs.SizeOrWait(32, wait_ms), SLOW_START)
    assert answer.mean_latency_ms == pytest.approx(alone_ms, rel=1e-4)
    assert answer.percentile(50) == pytest.approx(alone_ms)


def test_one_is_always_full_whatever_the_wait():
    for wait_ms in (0, 1, 100, math.inf):
        answer = theory.size_or_wait(100, SLOW_START, 1, wait_ms)
        assert answer.mean_latency_ms == pytest.approx(theory.md1(100, 5.25).mean_latency_ms)
        assert answer.percentile(90) == pytest.approx(theory.md1(100, 5.25).percentile(90))


def test_an_infinite_wait_is_full_batches_only():
    assert theory.size_or_wait(900, SLOW_START, 8, math.inf).mean_latency_ms == pytest.approx(
        theory.at_least(900, SLOW_START, 8, 8).mean_latency_ms
    )


@pytest.mark.parametrize("load", [0.995, 0.9999])
@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_the_distribution_holds_near_the_capacity(size, load):
    answer = theory.capped(at_load(load, V100, size), V100, size)
    assert mean_ms_of(answer.cdf.__self__) == pytest.approx(answer.mean_latency_ms, rel=1e-8)
    # Far out the latency falls by the least pole: z^b = E[z^A], e^(-rate (z - 1) x).
    p99, p999 = answer.percentile(99), answer.percentile(99.9)
    means = answer.rate_per_s * V100(size)
    low, high = 1 + 1e-9, 2.0
    for _ in range(200):
        z = (low + high) / 2
        low, high = (z, high) if size * math.log(z) > means * (z - 1) else (low, z)
    assert p999 - p99 == pytest.approx(math.log(10) / (answer.rate_per_s / 1000 * (z - 1)), rel=1e-3)


@pytest.mark.parametrize("spare", [1e-2, 1e-4, 1e-6])
def test_the_tail_of_m_d_1_is_its_asymptote_however_near_the_capacity(spare):
    # P(wait > t) is (1 - load) / (load z - 1) e^(-rate (z - 1) t), z > 1 with log(z) = load (z - 1).
    load = 1 - spare
    more = optimize.brentq(lambda x: math.log1p(x) - load * x, spare, 9, xtol=1e-300)
    for q in (50, 99, 99.99):
        wait = math.log(spare / (load * (1 + more) - 1) / (1 - q / 100)) / (load * more)
        assert theory.md1(load * 100, 10).percentile(q) == pytest.approx((1 + wait) * 10, rel=1e-8)


@pytest.mark.parametrize("wait_ms", [0, 2])
def test_the_tail_goes_on_where_the_whole_distribution_would(monkeypatch, wait_ms):
    args = at_load(0.99, V100, 4), V100, 4, wait_ms
    whole, answer = theory.size_or_wait(*args), theory.size_or_wait(*args)
    assert answer.cdf.__self__._tail_from_s < answer.percentile(99) / 1000
    monkeypatch.setattr(whole.cdf.__self__, "_has_tail", False)
    grid = np.linspace(0, 2 * answer.percentile(99.9), 2000)
    assert np.abs(answer.cdf(grid) - whole.cdf(grid)).max() < 1e-11


def test_a_percentile_near_the_capacity_needs_few_coefficients():
    # 14 million of them, and 80 seconds, if all of the tail is computed.
    latency = theory.md1(99.99, 10).cdf.__self__
    assert latency._tables[1].size < 10_000
    assert math.isfinite(latency._tail_from_s)


def test_the_work_of_large_batches_grows_with_their_square(monkeypatch):
    numbers, poisson = [], distribution.poisson

    def counted(mean, count):
        numbers.append(np.size(mean) * count)
        return poisson(mean, count)

    monkeypatch.setattr(distribution, "poisson", counted)
    work = []
    for size in (40, 80, 160):
        numbers.clear()
        assert 0 < theory.capped(at_load(0.9, SLOW_START, size), SLOW_START, size).cdf(20) < 1
        work.append(sum(numbers))
    assert work[1] < 5 * work[0]
    assert work[2] < 5 * work[1]


@pytest.mark.parametrize("wait_ms", [0, 3])
def test_those_ahead_are_those_left_behind_and_those_who_came_since(wait_ms):
    latency = theory.size_or_wait(at_load(0.9, SLOW_START, 8), SLOW_START, 8, wait_ms).cdf.__self__
    below, seconds = latency.state.chain.below, latency.seconds
    w = np.random.default_rng(1).uniform(0, seconds[8], 50)
    ahead = latency._ahead(w)
    for row, wait_s in zip(ahead, w, strict=True):
        expected = np.zeros(ahead.shape[1] + 200)
        for size in np.flatnonzero(seconds > wait_s):
            left = np.array([below[size]]) if size < 8 else np.append(below[8], latency._left_behind[1:])
            came = stats.poisson(latency.rate * (seconds[size] - wait_s)).pmf(np.arange(150))
            both = np.convolve(left, came)
            expected[: both.size] += both[: expected.size]
        assert row == pytest.approx(expected[: row.size] / latency.state.cycle_s, abs=1e-10)


def test_a_cdf_takes_any_shape():
    answer = theory.capped(900, SLOW_START, 8)
    assert answer.cdf(12.0).shape == ()
    assert answer.cdf([[8.0, 9.0, 10.0]]).shape == (1, 3)
    assert answer.cdf(np.array([8.0, 9.0]))[1] == answer.cdf(9.0)
    assert answer.cdf(np.array([-1.0, 0.0])).tolist() == [0, 0]


# What is refused.


@refusals
def test_what_is_not_solved_is_refused():
    """
    theory.size_or_wait(900, SLOW_START, 32, 13.1) -> at most the 13 ms ... got 13.1 ms
    theory.size_or_wait(90, SLOW_START.with_noise(1), 32, 5) -> noisy service, got 5 ms
    theory.size_or_wait(9000, SLOW_START, 32, 10) -> the load must be below 1
    theory.size_or_wait(900, SLOW_START, 32, -1) -> max_wait_ms must be at least 0, got -1
    """


def test_a_distribution_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(distribution, "LARGEST", 1000)
    with pytest.raises(ValueError, match=r"at most 1,000 coefficients, got .* in batches of up to 32"):
        theory.capped(900, SLOW_START, 32).percentile(9)
