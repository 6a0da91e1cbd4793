"""The standard error of a statistic, from the sections of a run."""

import math

import numpy as np
import pytest

from batchsim.engines.totals import grouped
from batchsim.result.standard_error import NoInterval, Series, dependent, standard_errors


def standard_error(values, replicated=False):
    counts = (64,) if replicated else (64, 16, 8)
    sections = grouped(np.reshape(values, (64, -1)).mean(axis=1), counts) / np.repeat(
        64 // np.array(counts), counts
    )
    ((error,),) = standard_errors(
        [Series(sections[np.newaxis], np.mean(values, keepdims=True), [1.0])], counts
    )
    return error


def autoregressive(r, size=64_000, seed=0):
    noise = np.random.default_rng(seed).normal(size=size)
    values = np.empty(size)
    values[0] = noise[0] / math.sqrt(1 - r * r)
    for place in range(1, size):
        values[place] = r * values[place - 1] + noise[place]
    return values


@pytest.mark.parametrize("r", [0, 0.9, 0.99])
def test_the_error_of_a_mean_is_that_of_its_series(r):
    # The mean of n values of an autoregressive series has the variance 1 / (1 - r)^2 / n.
    known = 1 / (1 - r) / math.sqrt(64_000)
    found = np.array([standard_error(autoregressive(r, seed=seed)).value for seed in range(20)])
    assert math.sqrt((found**2).mean()) == pytest.approx(known, rel=0.3)


def test_a_series_that_remembers_most_of_itself_has_none():
    error = standard_error(autoregressive(0.99995))
    assert isinstance(error, NoInterval)
    assert "resemble" in error.reason


def test_16_sections_are_taken_of_independent_values():
    sections = [standard_error(autoregressive(0, 6400, seed)).sections for seed in range(50)]
    assert set(sections) == {8, 16}
    assert 0.1 <= sections.count(8) / 50 <= 0.35  # von Neumann's test, at 20 %


def test_replications_are_independent_however_they_are_listed():
    values = np.sort(np.random.default_rng(0).normal(size=64))
    error = standard_error(values, replicated=True)
    assert error == pytest.approx((values.std(ddof=1) / 8, 64))
    assert isinstance(standard_error(values), NoInterval)


def test_a_section_without_a_number_leaves_none():
    values = np.random.default_rng(0).normal(size=64)
    values[3] = math.nan
    assert "got none from some" in standard_error(values).reason


def test_values_that_differ_by_rounding_have_no_error():
    assert standard_error(16 + np.random.default_rng(0).choice([0, 4e-15], 64)).value < 1e-14


def test_no_interval_unpacks_as_nan_ends():
    low, high = NoInterval("too short")
    assert math.isnan(low)
    assert math.isnan(high)
    assert NoInterval("too short").reason == "too short"


@pytest.mark.parametrize("count", [8, 16, 96])
def test_von_neumanns_test_at_20_percent_finds_one_in_five_of_independent_series(count):
    series = np.random.default_rng(1).normal(size=(4000, count))
    assert dependent(series, 0.8416).mean() == pytest.approx(0.2, abs=0.03)
    assert dependent(np.sort(series), 0.8416).all()
    assert not dependent(np.ones(count), 0.8416)
    assert dependent(np.array([0, 1, 1, 1]), 0.8416)  # a ratio of 4 / 3, below 2 - 0.8416 (8 / 15)^0.5
