"""`simulate`: answers that theory knows, and what is refused."""

import math

import numpy as np
import pandas
import pytest
from by_hand import requests_of, rule, seconds
from refusals import refusals

import batchsim as bs

NAN = math.nan


# The answers of theory.


def long_run(scenario, requests, **how):
    """A run of the compiled engine, once its first 4,000 requests are the reference's to the bit.

    A shorter run is the beginning of a longer one, and the reference would take seconds for the rest.
    """
    begun = [bs.simulate(scenario, 4000, engine=engine, **how) for engine in ("simpy", "compiled")]
    assert requests_of(begun[0]) == requests_of(begun[1])
    return bs.simulate(scenario, requests, engine="compiled", **how)


def assert_mean_latency(expected_s, workload, rule, service, **knobs):
    """The mean over eight runs is the expected one, within four of its own standard errors."""
    scenario = bs.Scenario(workload, rule, service, **knobs)
    run = long_run(scenario, 400_000, warmup=0.1)
    others = [bs.simulate(scenario, 400_000, seed=seed, warmup=0.1, keep="summary") for seed in range(1, 8)]
    means_s = [result.mean_latency_ms / 1000 for result in (run, *others)]
    error = np.std(means_s, ddof=1) / math.sqrt(8)
    assert error < 0.01 * expected_s  # else the test would say nothing
    assert abs(np.mean(means_s) - expected_s) < 4 * error


EXPONENTIAL = seconds(1).with_noise(1, "exponential")


def test_m_m_1():
    assert_mean_latency(1 / (1 - 0.7), bs.Poisson(0.7), rule(1), EXPONENTIAL)


def test_m_d_1():
    assert_mean_latency(1 + 0.7 / (2 * 0.3), bs.Poisson(0.7), rule(1, wait_s=9), seconds(1))


@pytest.mark.parametrize(("servers", "queued"), [(2, 1.777778), (4, 0.745541)])
def test_m_m_c(servers, queued):
    assert_mean_latency(1 + queued, bs.Poisson(0.8 * servers), rule(1), EXPONENTIAL, servers=servers)


def test_m_g_1():
    cv = 0.7
    expected = 1 + 0.6 * (1 + cv**2) / (2 * 0.4)
    assert_mean_latency(expected, bs.Poisson(0.6), rule(1), seconds(1).with_noise(cv))


@pytest.mark.parametrize(
    ("rate", "a", "b", "latency"), [(1.5, 1, 2, 3.770070), (3, 1, 4, 3.552499), (6, 4, 8, 3.232252)]
)
def test_neuts_rule(rate, a, b, latency):
    assert_mean_latency(latency, bs.Poisson(rate), bs.AtLeast(a, b), EXPONENTIAL)


V100 = bs.Affine(1.8874, 0.1438)


@pytest.mark.parametrize(
    ("size", "load", "latency_ms", "batch", "busy"),
    [
        (1, 0.5, 3.04680, 1, 0.5),
        (8, 0.5, 3.63945, 3.1252, 0.985),
        (8, 0.9, 5.52249, 6.7880, 0.9999),
        (32, 0.3, 3.75071, 3.5859, 0.991),
        (32, 0.5, 4.57972, 7.2121, 0.9998),
    ],
)
def test_batches_of_what_waits_up_to_a_cap(size, load, latency_ms, batch, busy):
    scenario = bs.Scenario(bs.Poisson(load * size / V100(size)), bs.SizeOrWait(size, 0), V100)
    result = long_run(scenario, 150_000, seed=2, warmup=0.05)
    assert result.mean_latency_ms == pytest.approx(latency_ms, rel=0.02)
    assert result.mean_batch_size == pytest.approx(batch, rel=0.02)
    assert result.utilisation == pytest.approx(busy, abs=0.01)


def test_full_batches_only_form_for_half_their_span():
    scenario = bs.Scenario(bs.Poisson(100), bs.SizeOrWait(8, math.inf), bs.Affine(1, 0))
    result = long_run(scenario, 80_000)
    assert result.forming_ms.mean() == pytest.approx(1000 * 7 / (2 * 100), rel=0.02)


def test_hardly_any_traffic_waits_for_the_timer_alone():
    scenario = bs.Scenario(bs.Poisson(0.01), bs.SizeOrWait(8, 20), bs.Affine(3, 1))
    assert bs.simulate(scenario, 2000, engine="simpy").mean_latency_ms == pytest.approx(24, rel=1e-3)


def test_littles_law():
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(16, 5), bs.Affine(5, 0.25), servers=2)
    result = bs.simulate(scenario, 20_000, engine="simpy")
    events = np.concatenate([result.arrival_s, result.finish_s])
    steps = np.concatenate([np.ones(20_000), -np.ones(20_000)])
    order = np.argsort(events, kind="stable")
    held_s = float((np.cumsum(steps[order])[:-1] * np.diff(events[order])).sum())
    assert held_s == pytest.approx(result.latency_ms.sum() / 1000, rel=1e-9)


# What simulate refuses.


OK = bs.Scenario(bs.Poisson(10), bs.SizeOrWait(2, 1), bs.Affine(1, 1))


@refusals
def test_simulate_refuses():
    """
    bs.simulate(OK, requests=0) -> requests must be at least 1, got 0
    bs.simulate(OK, requests=-3) -> requests must be at least 1, got -3
    bs.simulate(OK, requests=2.0) -> TypeError: requests must be a whole number, got 2.0
    bs.simulate(OK, requests=True) -> TypeError: requests must be a whole number, got True
    bs.simulate(OK, seed=-1) -> seed must be at least 0, got -1
    bs.simulate(OK, seed=None) -> TypeError: seed must be a whole number, got None
    bs.simulate(OK, engine="warp") -> engine must be one of ...simpy..., got 'warp'
    bs.simulate(OK, warmup=1) -> warmup must be less than 1, got 1
    bs.simulate(OK, warmup=-0.1) -> warmup must be at least 0, got -0.1
    bs.simulate(OK, warmup=NAN) -> warmup must be a number, got nan
    bs.simulate(OK, warmup="half") -> TypeError: warmup must be a number, got 'half'
    bs.simulate(OK, model_fn=len) -> must be given together, got no inputs
    bs.simulate(OK, inputs=[1]) -> must be given together, got no model_fn
    bs.simulate(OK, inputs=[1], model_fn=5) -> TypeError: model_fn must be callable, got 5
    bs.simulate(OK, inputs=[], model_fn=len) -> requests must be at least 1, got 0
    bs.simulate(OK, inputs=[1], model_fn=len, requests=2) -> one item a request, 2, got 1
    """


def test_simulate_refuses_what_is_no_scenario():
    with pytest.raises(TypeError, match="scenario must be a Scenario, got 5"):
        bs.simulate(5)


def test_simulate_refuses_more_than_a_trace_holds():
    scenario = OK.replace(workload=bs.Trace(np.arange(1200)))
    assert bs.simulate(scenario).arrival_s.size == 1200
    assert bs.simulate(scenario, 7, engine="simpy").arrival_s.tolist() == list(range(7))
    with pytest.raises(ValueError, match="requests must be at most the trace's 1,200, got 1,201"):
        bs.simulate(scenario, 1201)


def test_simulate_runs_100_000_requests_when_not_told():
    assert bs.simulate(OK.replace(rate_per_s=100)).arrival_s.size == 100_000


@pytest.mark.parametrize("inputs", [5, "abc", {"a": 1}])
def test_inputs_that_are_no_sequence_of_items_are_refused(inputs):
    scenario = bs.Scenario(bs.Poisson(800), rule(2), seconds())
    with pytest.raises(TypeError, match="inputs must be a sequence of items, got"):
        bs.simulate(scenario, model_fn=np.negative, inputs=inputs)


def test_inputs_are_taken_by_position_whatever_they_are_kept_in():
    scenario = bs.Scenario(bs.Poisson(800), rule(2), seconds())
    for inputs in (iter([1.0, 2.0]), pandas.Series([1.0, 2.0], index=[7, 8])):
        assert bs.simulate(scenario, model_fn=np.negative, inputs=inputs).outputs == [-1, -2]


def test_a_seed_sequence_is_a_seed():
    of_child = [
        bs.simulate(OK, 100, np.random.SeedSequence(3).spawn(2)[at]).mean_latency_ms for at in (0, 0, 1)
    ]
    assert of_child[0] == of_child[1] != of_child[2]
