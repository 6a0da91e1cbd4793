"""An answer's numbers: percentiles of a distribution with jumps, and how far off an approximation is."""

import math

import numpy as np
import pytest

from batchsim.theory.answer import Answer, check_load


def answer(**more):
    return Answer("two latencies", "nobody", 50, 100, 12.5, 2.5, 0.5, **more)


@pytest.mark.parametrize(("q", "ms"), [(10, 10), (75, 10), (75.001, 20), (99.9, 20), (100, math.inf)])
def test_a_percentile_is_the_least_latency_that_so_many_keep_even_exactly_as_many(q, ms):
    steps = answer(cdf=lambda ms: np.select([ms >= 20, ms >= 10], [1.0, 0.75], 0.0))
    assert steps.percentile(q) == pytest.approx(ms, rel=1e-14)


def test_bounds_that_are_too_far_apart_give_no_value_and_no_accuracy():
    found = answer(exact=False, bounds={"utilisation": (0.5, 0.54), "mean_latency_ms": (12.5, 14.0)})
    assert found.loose == ["mean_latency_ms"]
    assert found.accuracy == "an approximation, at most 8.0% off"
    assert found.summary().keys() >= {"utilisation", "load"}
    assert "mean_latency_ms" not in found.summary()


def test_an_arrival_rate_at_saturation_has_no_steady_state():
    check_load(99.9, 100)
    with pytest.raises(ValueError, match="the load must be below 1, got 1: 100/s"):
        check_load(100, 100)
