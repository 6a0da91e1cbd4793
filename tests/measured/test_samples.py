"""Repeated times: which are disturbed, how sure a median is, and how long what slows them down lasts."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import batchsim as bs
from batchsim.measured.samples import LAGS, autocorrelation, interval, lasting_noise, levels, quiet, summary


def drawn(count, seed=0, cv=0.03):
    return 2 * np.exp(cv * np.random.default_rng(seed).standard_normal(count))


def test_quiet_times_are_left_alone():
    kept = [quiet(drawn(100, seed)).mean() for seed in range(50)]
    assert np.mean(kept) > 0.98
    assert min(kept) > 0.9


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_the_median_is_that_of_the_quiet_times_however_many_are_disturbed(share):
    generator = np.random.default_rng(1)
    for seed in range(20):
        times = drawn(200, seed)
        disturbed = generator.random(200) < share
        times = np.where(disturbed, times * (1.5 + generator.exponential(1, 200)), times)
        found = summary(times)
        assert found.median_ms == pytest.approx(2, rel=0.03)
        assert found.disturbed / 200 == pytest.approx(share, abs=0.1)
        assert found.all_ms == np.median(times)


def test_of_a_few_times_none_is_disturbed():
    assert quiet([2.0] * 6 + [9.0]).all()


def test_equal_times_are_quiet_and_one_above_them_is_not():
    assert quiet([2.0] * 20).all()
    assert quiet([2.0] * 19 + [2.2]).tolist() == [True] * 19 + [False]


def test_differences_of_a_few_percent_do_not_matter():
    assert quiet([2.0] * 19 + [2.05]).all()
    assert levels([2.0, 2.05] * 10) is None


def test_two_levels_are_found_in_any_order():
    times = np.concatenate([drawn(12), 1.5 * drawn(18, 1)])
    for seed in range(5):
        found = levels(np.random.default_rng(seed).permutation(times))
        assert found.low == pytest.approx(2, rel=0.02)
        assert found.high == pytest.approx(3, rel=0.02)
        assert found.share == 0.4


def test_one_level_is_not_two():
    assert not any(levels(drawn(60, seed, cv)) for seed in range(100) for cv in (0.01, 0.3))


def test_a_few_outliers_are_no_level():
    assert levels([*drawn(40), 4.0, 4.0, 4.1]) is None


def test_the_interval_holds_the_median_as_often_as_it_says():
    generator = np.random.default_rng(2)
    for count in (6, 20, 101):
        held = 0
        for _ in range(1000):
            low, high = interval(generator.exponential(1, count))
            held += low <= math.log(2) <= high
        assert 930 <= held <= 990


def test_five_times_have_no_interval():
    assert np.isnan(interval([1, 2, 3, 4, 5])).all()
    assert math.isnan(summary([1, 2, 3, 4, 5]).half_width)


def test_times_that_grow_drift_and_others_do_not():
    assert summary(drawn(100)).drift == 0
    slower = np.concatenate([drawn(50), 1.1 * drawn(50, 1)])
    assert summary(slower).drift == pytest.approx(0.1, abs=0.02)
    assert summary(slower[::-1]).drift == pytest.approx(-0.09, abs=0.02)


# How long what slows a batch down lasts, as measured.


NOISE = bs.Noise(0.2, correlation=0.5, memory_batches=9)


def measured(runs, each, noise=NOISE, seed=5):
    """Runs of batches of random sizes, as a server with this noise takes them."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 17, (runs, each))
    factors = noise.draw(generator, runs * each).reshape(runs, each)
    return [(size, (2 + 0.3 * size) * factor) for size, factor in zip(sizes, factors, strict=True)]


def test_the_autocorrelation_is_that_of_the_noise_whatever_the_sizes():
    found = autocorrelation(measured(200, 100))
    expected = [0.5 * np.exp(-(lag - 1) / 9) for lag in LAGS]
    assert found == pytest.approx(expected, abs=0.03)


def test_what_is_fitted_is_the_noise_that_was_measured():
    correlation, memory_batches = lasting_noise(autocorrelation(measured(200, 100)))
    assert correlation == pytest.approx(0.5, abs=0.03)
    assert memory_batches == pytest.approx(9, rel=0.2)


def test_noise_that_does_not_last_is_found_to_be_such():
    assert lasting_noise(autocorrelation(measured(40, 100, bs.Noise(0.2))))[0] == 0
    for time_ms in (2.0, 1.1):
        assert autocorrelation([(np.ones(50), np.full(50, time_ms))]) == (0,) * len(LAGS)


def test_a_run_that_is_slower_as_a_whole_counts_as_lasting():
    runs = [(size, times * (1 + number % 2)) for number, (size, times) in enumerate(measured(20, 50))]
    assert autocorrelation(runs)[-1] > 0.5


def test_a_single_pause_is_no_variance():
    runs = measured(10, 100)
    runs[3][1][50] *= 1000
    assert autocorrelation(runs) == pytest.approx(autocorrelation(measured(10, 100)), abs=0.1)


def test_runs_shorter_than_a_lag_say_nothing_of_it():
    assert autocorrelation(measured(30, 10))[LAGS.index(16) :] == (0, 0)


@given(st.lists(st.lists(st.sampled_from([1e-6, 1.0, 1.1, 3.0, 1e6]), max_size=40), min_size=1, max_size=4))
def test_a_correlation_is_between_minus_one_and_one_however_short_the_runs(runs):
    assume(any(runs))
    found = autocorrelation([(np.ones(len(times)), np.array(times, float)) for times in runs])
    assert len(found) == len(LAGS)
    assert np.abs(found).max() <= 1


@pytest.mark.parametrize("memory", [1.5, 6, 40])
@pytest.mark.parametrize("correlation", [0.1, 0.4])
def test_a_fit_finds_what_an_exact_autocorrelation_was_made_of(correlation, memory):
    found = lasting_noise([correlation * np.exp(-(lag - 1) / memory) for lag in LAGS])
    assert found == pytest.approx((correlation, memory), rel=0.05)
    assert bs.Noise(0.3, "lognormal", *found)


def test_neighbours_that_alone_are_alike_are_fitted_as_far_as_noise_can_be():
    correlation, memory = lasting_noise([0.9, 0.1, 0, 0, 0, 0])
    assert correlation == pytest.approx(np.exp(-1 / memory))
    assert bs.Noise(0.3, "lognormal", correlation, memory).lasts
