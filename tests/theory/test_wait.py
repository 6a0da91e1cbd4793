import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refusals

import batchsim as bs
from batchsim import theory

SERVICE = bs.Affine(5, 0.25)


@pytest.mark.parametrize("wait_ms", [0, 5, 10, 40])
def test_a_lone_request_waits_as_the_simulator_says(wait_ms):
    scenario = bs.Scenario(bs.Poisson(0.01), bs.SizeOrWait(32, wait_ms), SERVICE)
    alone_ms = theory.light_traffic_latency_ms(scenario.rule, SERVICE)
    assert alone_ms == wait_ms + 5.25
    assert bs.simulate(scenario, 500).mean_latency_ms == pytest.approx(alone_ms, rel=1e-3)


def test_a_free_window_is_half_over_on_average():
    assert theory.light_traffic_latency_ms(10, SERVICE, timer="free") == 10.25
    assert theory.light_traffic_latency_ms(10, SERVICE) == 15.25


def test_a_rule_of_one_does_not_wait_and_at_least_two_waits_for_ever():
    assert theory.light_traffic_latency_ms(bs.SizeOrWait(1, 10), SERVICE) == 5.25
    assert theory.light_traffic_latency_ms(bs.AtLeast(1, 8), SERVICE) == 5.25
    assert theory.light_traffic_latency_ms(bs.AtLeast(2, 8), SERVICE) == math.inf
    assert theory.light_traffic_latency_ms(bs.SizeOrWait(2, math.inf), SERVICE) == math.inf


@pytest.mark.parametrize("size", [1, 2, 8, 32])
def test_full_batches_form_as_long_as_the_simulator_says(size):
    rate = 1.0  # a batch is done long before the next is full
    scenario = bs.Scenario(bs.Poisson(rate), bs.SizeOrWait(size, math.inf), SERVICE)
    runs = bs.simulate(scenario, 100_000, replications=8, keep="summary").replications
    waits = np.array([run.mean_latency_ms - SERVICE(size) * 1000 for run in runs])
    expected = theory.full_batch_forming_ms(rate, size)
    assert abs(waits.mean() - expected) < 4 * waits.std(ddof=1) / math.sqrt(8) + 0.02


@given(rate=st.floats(1, 5000), size=st.integers(1, 64), wait_ms=st.floats(0, 100))
def test_the_sizes_of_frozen_batches_are_a_distribution(rate, size, wait_ms):
    pmf = theory.frozen_batch_size_pmf(rate, size, wait_ms)
    assert pmf.shape == (size + 1,)
    assert pmf[0] == 0
    assert pmf.sum() == pytest.approx(1)
    draws = np.minimum(np.random.default_rng(0).poisson(rate * wait_ms / 1000, 20_000), size - 1) + 1
    error = draws.std() / math.sqrt(draws.size)
    assert abs(theory.frozen_mean_batch_size(rate, size, wait_ms) - draws.mean()) < 5 * error + 2e-3


def test_an_infinite_wait_freezes_full_batches():
    assert theory.frozen_batch_size_pmf(100, 3, math.inf).tolist() == [0, 0, 0, 1]


def test_t_min_is_what_the_condition_says():
    # 1 + rate * T > rate * fixed / (1 - rate * per_item), in ms
    assert theory.frozen_wait_min_ms(1000, 5, 0.25) == pytest.approx(5 / 0.75 - 1)
    assert theory.frozen_wait_min_ms(10, 5, 0.25) == 0


ROUNDING = 2e-15  # in a load near 1, some roundings of float64


# At the edge: a hair below, or above, the rate that full batches of this size carry.
@example(rate=2399.9999999999995, size=30)
@example(rate=799.9999999999999, size=5)
@example(rate=1241.3793103448274, size=9)
@example(rate=363.6363636363636, size=2)
@given(rate=st.floats(100, 2400), size=st.integers(1, 64))
def test_at_t_min_the_load_of_the_frozen_batcher_is_1(rate, size):
    # SERVICE(size) without rounding. What full batches leave idle is all that a longer wait can gain.
    full_load = Fraction(rate) * (5 + Fraction(size, 4)) / (1000 * size)
    idle = float(1 - full_load)
    if idle <= -ROUNDING:
        with pytest.raises(ValueError, match="the load must be below 1"):
            theory.frozen_wait_min_ms(rate, 5, 0.25, size)
        return
    try:
        wait_ms = theory.frozen_wait_min_ms(rate, 5, 0.25, size)
    except ValueError:
        assert idle < ROUNDING
        return
    load = theory.frozen_load(rate, SERVICE, size, wait_ms)
    assert load == pytest.approx(1, rel=1e-9) if wait_ms > 0 else load <= 1 + ROUNDING
    assert wait_ms >= theory.frozen_wait_min_ms(rate, 5, 0.25) * (1 - 1e-9)  # a cap only costs
    # Another millisecond gains at least this: D = E[(B - 1 - N)+], N ~ Poisson(rate T), is what the mean
    # batch lacks to be full, and dD/dT = -rate P(N < B - 1) <= -rate D / (B - 1).
    gained = idle * -math.expm1(-rate / 1000 / max(1, size - 1))
    assert theory.frozen_load(rate, SERVICE, size, wait_ms + 1) <= 1 - gained + ROUNDING


@pytest.mark.parametrize(
    ("rate", "fixed_ms", "per_item_ms", "size"),
    [(247.55213210871042, 7, 0.53955317, 2), (208.33333333333334, 14, 2.8, 7)],
)
def test_there_is_a_t_min_where_rounding_asks_for_more_than_full_batches(rate, fixed_ms, per_item_ms, size):
    wait_ms = theory.frozen_wait_min_ms(rate, fixed_ms, per_item_ms, size)
    load = theory.frozen_load(rate, bs.Affine(fixed_ms, per_item_ms), size, wait_ms)
    assert load == pytest.approx(1, rel=ROUNDING)


def test_t_min_parts_a_frozen_batcher_that_keeps_up_from_one_that_does_not():
    # Lindley's recursion over frozen batches: the backlog after 200,000 batches grows or does not.
    rate, generator = 1000, np.random.default_rng(3)
    least_ms = theory.frozen_wait_min_ms(rate, 5, 0.25)
    for wait_ms, grows in ((0.95 * least_ms, True), (1.05 * least_ms, False)):
        joined = generator.poisson(rate * wait_ms / 1000, 200_000)
        gap_s = wait_ms / 1000 + generator.exponential(1 / rate, 200_000)  # from close to close
        drift = np.cumsum((5 + 0.25 * (1 + joined)) / 1000 - gap_s)
        backlog_s = drift[-1] - min(0, drift.min())
        assert (backlog_s > 10) == grows


@refusals
def test_bad_input_is_refused():
    """
    theory.light_traffic_latency_ms(-1, SERVICE) -> wait in ms must be at least 0, got -1
    theory.light_traffic_latency_ms(1, SERVICE, "fre")
        -> timer must be one of oldest, free, got 'fre'; did you mean 'free'?
    theory.light_traffic_latency_ms(1, 5) -> TypeError: service must be a service of batchsim, got 5
    theory.full_batch_forming_ms(0, 2) -> rate_per_s must be greater than 0, got 0
    theory.full_batch_forming_ms(1, 0) -> max_batch_size must be at least 1, got 0
    theory.frozen_wait_min_ms(5000, 5, 0.25) -> got 1.25: 5,000/s with saturation at 4,000/s
    theory.frozen_wait_min_ms(100, -5, 0.25) -> fixed_ms must be at least 0, got -5
    theory.frozen_mean_batch_size(100, 8, math.nan) -> max_wait_ms must be a number
    """
