"""Comparisons of settings: bounds of paired differences, and the order of those that do not differ."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsim.study import paired
from batchsim.study.paired import Values, advantage, better_by, preference

# Bounds of paired differences.


@pytest.mark.parametrize("key", ["p99_ms", "p50_ms", "mean_latency_ms"])
def test_a_bound_holds_as_often_as_it_says_under_common_random_numbers(key):
    # Two exponential latencies that share half of their randomness; the second has nine tenths of the scale.
    rng, level, truth = np.random.default_rng(7), 0.9, {"p99_ms": math.log(100), "p50_ms": math.log(2)}
    gap, held, runs = 0.1 * truth.get(key, 1.0), 0, 200
    for _ in range(runs):
        shared, other = rng.exponential(size=(2, 4000))
        one = Values.of_ms(shared, 1, key)
        two = Values.of_ms(0.9 * np.where(rng.random(4000) < 0.5, shared, other), 1, key)
        held += better_by(one, two, level).most >= gap
    assert held / runs >= level - 0.045  # two standard errors


def test_the_bound_of_a_mean_is_one_sided():
    ms = np.random.default_rng(0).normal([[20], [18]], 3, (2, 4000))
    bound = better_by(*(Values.of_ms(each, 1, "mean_latency_ms") for each in ms), 0.9)
    # Student's t of few sections is a little above the normal distribution's 1.28; two-sided it is 1.64.
    error_ms = (ms[0] - ms[1]).std() / math.sqrt(4000)
    assert 1.28 < (bound.most - bound.value) / error_ms < 1.5


def test_a_bound_of_percentiles_on_an_atom_knows_that_they_are_equal():
    slower = np.where(np.arange(6400) % 10 < 9, 5.0, 20.0)
    faster = np.where(np.arange(6400) % 20 < 19, 5.0, 20.0)
    bound = better_by(*(Values.of_ms(each, 1, "p50_ms") for each in (slower, faster)), 0.95)
    assert bound == (0, 0)


def test_runs_that_do_not_differ_may_still_differ_by_what_no_request_showed():
    ms = np.random.default_rng(0).exponential(size=1000)
    bound = better_by(*[Values.of_ms(ms, 1, "p99_ms")] * 2, 0.95)
    assert bound.value == 0
    # Of 1,000 requests none differed: at 95 % fewer than 3 of 1,000 do (the rule of three).
    assert bound.most == pytest.approx(np.percentile(ms, 99) - np.percentile(ms, 98.7), rel=0.2)


@pytest.mark.parametrize("key", ["p50_ms", "p90_ms", "p99_ms"])
def test_a_long_run_keeps_few_values_and_its_bounds(monkeypatch, key):
    ms = np.random.default_rng(0).exponential(size=(2, 50_000))
    runs = [Values.of_ms(each, 1, key) for each in ms]
    monkeypatch.setattr(paired, "MOST", 3000)
    few = [Values.of_ms(each, 1, key) for each in ms]
    assert all(each.top.size <= 3000 for each in few)
    for one, other in (few, few[::-1]):
        exact = better_by(*(runs if one is few[0] else runs[::-1]), 0.95)
        assert better_by(one, other, 0.95) == pytest.approx(exact, abs=0.02)


def test_a_run_that_is_short_for_its_memory_has_no_steady_values():
    assert Values.of_ms(np.zeros(1600), 100, "p99_ms").steady
    assert not Values.of_ms(np.zeros(1600), 101, "p99_ms").steady
    assert not Values.of_ms(np.zeros(10**6), math.inf, "p99_ms").steady


# The order.


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.01, 1e4), st.floats(0, 100)), min_size=1, max_size=8)
)
def test_the_preferred_has_most_headroom_then_the_lowest_mean_then_the_shortest_wait(settings):
    rate, mean_ms, wait_ms = min(settings, key=lambda each: preference(*each))
    alike = [each for each in settings if each[0] >= rate * (1 + 1e-3)]
    assert not alike
    alike = [each for each in settings if each[0] == rate and each[1] <= mean_ms * (1 - 1e-3)]
    assert not alike
    alike = [each for each in settings if each[:2] == (rate, mean_ms)]
    assert wait_ms == min(each[2] for each in alike)


def test_what_agrees_to_four_digits_is_equal():
    assert preference(1000, 18.392856, 0) < preference(1000, 18.392855, 5)
    assert preference(1000 + 1e-9, 20, 0) > preference(1000, 10, 0)


def test_a_mean_that_is_not_known_comes_last():
    assert preference(1000, math.nan, 0) > preference(1000, 1e9, 5)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ((753, 6, 0), "more headroom (saturation 1,421/s, not 753/s)"),
        ((1421, 8, 0), "a lower mean latency (7 ms, not 8)"),
        ((1421, 7, 5), "a shorter wait (2 ms, not 5)"),
        ((1421, 7, 2), ""),
    ],
)
def test_an_advantage_is_the_first_that_counts(other, expected):
    assert advantage(preference(1421, 7, 2), preference(*other)) == expected
