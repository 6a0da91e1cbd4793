"""Services that a measurement leaves possible: what is uncertain, and by how much."""

import numpy as np
import pytest

import batchsim as bs
from batchsim.measured.measurement import Measurement
from batchsim.measured.resampled import level, services


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
    monkeypatch.setattr("batchsim.measured.resampled.level", lambda rows: (0.0, 1))  # means alone
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
