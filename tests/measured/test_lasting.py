"""How long what slows a batch down lasts, as measured."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import batchsim as bs
from batchsim.measured.samples import LAGS, autocorrelation, lasting_noise

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
