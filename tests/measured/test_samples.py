"""Repeated times: which are disturbed, how sure a median is, how long noise lasts, and their other draws."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import batchsim as bs
from batchsim.measured.measurement import Measurement
from batchsim.measured.samples import (
    LAGS,
    autocorrelation,
    interval,
    lasting_noise,
    level,
    levels,
    quiet,
    services,
    summary,
)


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


def timed(runs, each, noise=NOISE, seed=5):
    """Runs of batches of random sizes, as a server with this noise takes them."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 17, (runs, each))
    factors = noise.draw(generator, runs * each).reshape(runs, each)
    return [(size, (2 + 0.3 * size) * factor) for size, factor in zip(sizes, factors, strict=True)]


def test_the_autocorrelation_is_that_of_the_noise_whatever_the_sizes():
    found = autocorrelation(timed(200, 100))
    expected = [0.5 * np.exp(-(lag - 1) / 9) for lag in LAGS]
    assert found == pytest.approx(expected, abs=0.03)


def test_what_is_fitted_is_the_noise_that_was_measured():
    correlation, memory_batches = lasting_noise(autocorrelation(timed(200, 100)))
    assert correlation == pytest.approx(0.5, abs=0.03)
    assert memory_batches == pytest.approx(9, rel=0.2)


def test_noise_that_does_not_last_is_found_to_be_such():
    assert lasting_noise(autocorrelation(timed(40, 100, bs.Noise(0.2))))[0] == 0
    for time_ms in (2.0, 1.1):
        assert autocorrelation([(np.ones(50), np.full(50, time_ms))]) == (0,) * len(LAGS)


def test_a_run_that_is_slower_as_a_whole_counts_as_lasting():
    runs = [(size, times * (1 + number % 2)) for number, (size, times) in enumerate(timed(20, 50))]
    assert autocorrelation(runs)[-1] > 0.5


def test_a_single_pause_is_no_variance():
    runs = timed(10, 100)
    runs[3][1][50] *= 1000
    assert autocorrelation(runs) == pytest.approx(autocorrelation(timed(10, 100)), abs=0.1)


def test_runs_shorter_than_a_lag_say_nothing_of_it():
    assert autocorrelation(timed(30, 10))[LAGS.index(16) :] == (0, 0)


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


def measured(times_ms, **given):
    rows = tuple(map(tuple, times_ms))
    sizes = tuple(range(1, len(rows) + 1))
    return Measurement(
        "known", "nowhere", "cpu", "", sizes, len(rows[0]), rows, (), "2026-01-01", served=True, **given
    )


def noisy(rounds, sizes=4, cv=0.1, seed=0):
    noise = bs.Noise(cv).draw(np.random.default_rng(seed), sizes * rounds).reshape(sizes, rounds)
    return noise * np.arange(2, sizes + 2)[:, None]


def means(measurement, count=300):
    return np.array([[ms for _, ms in each.points_ms] for each in services(measurement, count)])


def test_the_mean_of_each_size_is_uncertain_by_its_standard_error():
    times_ms = noisy(400)
    found = means(measured(times_ms))
    errors = times_ms.std(axis=1, ddof=1) / np.sqrt(400)
    assert found.mean(axis=0) == pytest.approx(times_ms.mean(axis=1), rel=0.01)
    assert found.std(axis=0) == pytest.approx(errors, rel=0.5)


def test_times_of_one_round_are_drawn_together():
    rounds = np.random.default_rng(1).lognormal(0, 0.2, 200)
    found = means(measured([rounds, 2 * rounds]))
    assert found[:, 1] == pytest.approx(2 * found[:, 0])


def test_what_lasts_makes_a_mean_less_certain_than_what_does_not(monkeypatch):
    monkeypatch.setattr("batchsim.measured.samples.level", lambda rows: (0.0, 1))  # means alone
    slow = np.repeat(np.random.default_rng(2).lognormal(0, 0.2, 50), 4)
    shuffled = np.random.default_rng(3).permutation(slow)
    lasting, not_lasting = (means(measured([each]), 500).std() for each in (slow, shuffled))
    assert lasting > 1.3 * not_lasting


def test_a_machine_whose_speed_changes_is_in_no_stretch_for_sure():
    speeds = np.exp(0.1 * np.random.default_rng(4).standard_normal(8))
    rows = list(noisy(160, cv=0.02) * np.repeat(speeds, 20))
    spread, freedom = level(rows)
    logs = np.log(speeds)
    drift = logs[:4].mean() - logs[4:].mean()
    assert spread == pytest.approx(np.sqrt(logs.var(ddof=1) + drift**2 / 4), rel=0.1)
    assert freedom == 7
    found = means(measured(rows), 1000).mean(axis=1)
    low, high = np.quantile(found / found.mean(), [0.025, 0.975])
    assert high / low > np.exp(2 * spread)


def test_of_a_machine_of_one_speed_no_change_is_found_but_by_chance():
    assert np.median([level(list(noisy(160, seed=seed)))[0] for seed in range(20)]) < 0.01


def test_of_few_rounds_no_speeds_are_told():
    assert level(list(noisy(7))) == (0.0, 1)
    assert level(list(noisy(8)))[1] == 3


def test_noise_is_drawn_and_measured_again():
    given = measured(noisy(100, cv=0.2), autocorrelation=(0.5, 0.45, 0.36, 0.24, 0.1, 0.02))
    noise = given.service_with_noise().noise
    again = [each.noise for each in services(given, 200)]
    for name in ("cv", "correlation", "memory_batches"):
        values = [getattr(each, name) for each in again]
        assert np.quantile(values, 0.2) < getattr(noise, name) < np.quantile(values, 0.8)
    assert all(each.correlation <= np.exp(-1 / each.memory_batches) for each in again)


def test_the_same_seed_draws_the_same_services():
    given = measured(noisy(20))
    assert list(services(given, 3, seed=5)) == list(services(given, 3, seed=5))
    assert list(services(given, 3, seed=5)) != list(services(given, 3, seed=6))


def test_of_times_that_were_not_repeated_nothing_is_known():
    given = measured([[2.0], [3.0]])
    assert set(services(given, 5)) == {given.service_with_noise()}


def test_sizes_that_were_left_out_early_are_drawn_from_their_own_times():
    given = Measurement("known", "nowhere", "cpu", "", (1, 2), 3, ((1.0,) * 3, (5.0,) * 30), (), "2026-01-01")
    assert means(given, 20) == pytest.approx(np.tile([1.0, 5.0], (20, 1)))
