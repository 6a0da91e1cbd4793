import numpy as np
import pytest

from batchsim.measured.measurement import doubts
from batchsim.measured.samples import summary


def keys(samples, target=0.02):
    points = {size: summary(row) for size, row in samples.items()}
    return [(note.batch_size, note.key) for note in doubts(points, target)]


def near(ms, count=100, cv=0.01, seed=0):
    return ms * np.exp(cv * np.random.default_rng(seed).standard_normal(count))


def test_quiet_times_that_rise_raise_no_doubt():
    assert keys({1: near(2.0), 2: near(2.5), 4: near(2.49, seed=1)}) == []


def test_a_busy_machine_is_said():
    generator = np.random.default_rng(0)
    busy = np.concatenate([near(2.0, 120), 2.0 * (1 + generator.exponential(0.3, 80))])
    assert keys({1: generator.permutation(busy)}) == [(1, "disturbed")]


def test_repeats_at_two_levels_are_said():
    both = np.random.default_rng(0).permutation(np.concatenate([near(2.9, 50), near(5.6, 50)]))
    assert keys({1: both}) == [(1, "two levels")]


def test_a_machine_that_changed_is_said():
    assert keys({8: np.concatenate([near(2.0, cv=0.03), near(2.1, cv=0.03)])}) == [(8, "drift")]


def test_an_interval_beyond_the_target_is_said():
    wide = {1: near(2.0, cv=0.2), 2: near(3.0, cv=0.2)}
    assert keys(wide) == [(1, "wide"), (2, "wide")]
    assert keys(wide, target=0.2) == []
    assert keys({1: near(2.0, cv=0.1)}, target=None) == []  # 5 % where none was asked for


def test_a_curve_that_falls_by_more_than_its_intervals_is_said():
    assert keys({2: near(2.9), 1: near(5.6)}) == [(2, "falls")]
    assert keys({1: near(3.0, cv=0.5), 2: near(2.9, cv=0.5)}, target=1) == []


def test_a_fall_is_from_the_highest_smaller_size():
    points = {size: summary(near(ms)) for size, ms in {1: 2.0, 8: 9.0, 9: 6.0, 16: 7.0}.items()}
    found = doubts(points, 0.02)
    assert [note.batch_size for note in found] == [9, 16]
    assert all("one of 8," in note.text for note in found)


def test_single_values_fall_if_they_differ_by_more_than_the_limit():
    assert keys({1: [3.0], 2: [2.9]}, target=None) == [(1, "few"), (2, "few")]
    assert (2, "falls") in keys({1: [3.0], 2: [2.8]}, target=None)


def test_a_batch_that_takes_longer_than_its_items_in_smaller_ones_is_said():
    assert keys({1: near(2.5), 2: near(3.6), 4: near(16.8), 8: near(20.8)}) == [(4, "jumps"), (8, "jumps")]
    assert keys({1: near(2.0), 2: near(4.1), 32: near(66.0)}) == []
    assert keys({1: near(2.0, cv=0.5), 2: near(4.8)}, target=1) == []


@pytest.mark.parametrize("count", [1, 5])
def test_few_samples_are_said(count):
    assert keys({1: [2.0] * count}) == [(1, "few")]


def test_a_doubt_about_several_sizes_is_one_text():
    found = doubts({1: summary([2.0]), 2: summary([3.0])}, None)
    assert len({note.text for note in found}) == 1
