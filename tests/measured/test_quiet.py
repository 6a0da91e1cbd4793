import math

import numpy as np
import pytest

from batchsim.measured.samples import interval, levels, quiet, summary


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
