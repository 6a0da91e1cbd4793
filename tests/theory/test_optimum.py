import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import policy as oracle
from refusals import refusals

import batchsim as bs
from batchsim import theory

V100 = bs.Affine(1.8874, 0.1438)
ODD = bs.Table({1: 5, 2: 3, 8: 9})  # one alone is slow, eight are hardly better than two
PADDED = V100.padded_to([1, 4, 8, 16])


def seconds_of(service, size):
    return [math.nan, *(service(k) for k in range(1, size + 1))]


def at_load(load, service, size):
    return load * max(k / service(k) for k in range(1, size + 1))


# Brute force.


@settings(max_examples=20)
@given(
    load=st.floats(0.05, 0.97),
    size=st.integers(1, 10),
    service=st.sampled_from(
        [V100, PADDED, V100.with_noise(0.7), bs.Affine(5, 0).with_noise(1, "exponential")]
    ),
)
def test_no_control_limit_is_better(load, size, service):
    rate = at_load(load, service, size)
    best = theory.optimum(rate, service, size)
    stable = [b for b in range(1, size + 1) if rate * service(b) < b * (1 - 1e-6)]
    every = {(a, b): theory.at_least(rate, service, a, b) for b in stable for a in range(1, b + 1)}
    least = min(every, key=lambda ab: every[ab].mean_latency_ms)
    assert best.mean_latency_ms <= every[least].mean_latency_ms * (1 + 1e-10)
    if best.control_limit is not None and service.padding is None:
        assert every[best.control_limit, size].mean_latency_ms == pytest.approx(
            best.mean_latency_ms, rel=1e-8
        )
        assert every[best.control_limit, size].mean_batch_size == pytest.approx(
            best.mean_batch_size, rel=1e-6
        )


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize(
    "service", [bs.Affine(3, 0.5), bs.Table({1: 3, 2: 3.2}), bs.Table({1: 1, 2: 2.2})], ids=repr
)
def test_it_is_the_least_of_all_policies_of_a_small_state_space(service, load):
    rate, seconds = at_load(load, service, 2), seconds_of(service, 2)
    numbers = {}
    for first, second, third, fourth, above in itertools.product((0, 1), *[(0, 1, 2)] * 3, (1, 2)):
        rule = [0, first, second, third, fourth, above]
        if rate * seconds[above] < above:
            numbers[tuple(rule)] = oracle.evaluate(rule, rate, seconds, states=160)[0]
    best = theory.optimum(rate, service, 2)
    assert best.mean_latency_ms == pytest.approx(min(numbers.values()) / rate * 1000, rel=1e-8)


@pytest.mark.parametrize(
    ("service", "size", "load", "cost", "weight"),
    [
        (V100, 6, 0.5, None, 1.0),
        (ODD, 8, 0.4, None, 1.0),
        (PADDED, 7, 0.5, None, 1.0),
        (V100, 6, 0.4, [0, 9, 10, 11, 12, 13, 14], 0.7),
        (V100, 4, 0.3, [0, 1, 6, 2, 9], 5.0),
        (bs.Affine(0, 1), 4, 0.5, None, 1.0),  # every size is equally fast
        (bs.Affine(0, 1), 4, 0.5, [0, 5, 5, 5, 5], 1.0),
    ],
    ids=str,
)
def test_relative_value_iteration_finds_the_same(service, size, load, cost, weight):
    rate, seconds = at_load(load, service, size), seconds_of(service, size)
    each = np.zeros(size + 1) if cost is None else np.array(cost) * weight / 1000
    least, rule = oracle.value_iteration(rate, seconds, each, states=60, tolerance=1e-7)
    best = theory.optimum(rate, service, size, cost, weight)
    assert best.objective == pytest.approx(least / rate * 1000, rel=1e-6)
    if len(set(rule[:10])) > 2:  # the policy itself, where it is the usual and not a tie
        common = np.arange(min(best.usual, 10))
        number, _ = oracle.evaluate([*best.taken(common).tolist(), *rule[len(common) :]], rate, seconds)
        assert number / rate * 1000 == pytest.approx(best.mean_latency_ms, rel=1e-6)


@pytest.mark.parametrize(("service", "size", "load"), [(ODD, 8, 0.4), (PADDED, 12, 0.7), (V100, 6, 0.6)])
def test_a_naive_simulation_of_the_policy_attains_it(service, size, load):
    rate = at_load(load, service, size)
    best = theory.optimum(rate, service, size)
    rule, seconds = best.policy.tolist(), seconds_of(service, size)
    # `make validate` simulates 100,000 of each.
    runs = np.array([oracle.simulate(rule, rate, seconds, 15_000, seed) for seed in range(8)])
    error = runs.std(0, ddof=1) / math.sqrt(len(runs))
    means = runs.mean(0) * [1000, 1]
    assert abs(means[0] - best.mean_latency_ms) < 4 * error[0] * 1000
    assert abs(means[1] - best.mean_batch_size) < 4 * error[1]


def test_the_simulator_attains_it_where_it_is_a_rule_and_no_setting_beats_it():
    rate, size = 2464.9, 32
    best = theory.optimum(rate, V100, size)
    assert best.control_limit == 3

    def latency_ms(rule):
        runs = bs.simulate(bs.Scenario(bs.Poisson(rate), rule, V100), 400_000, replications=8, keep="summary")
        means = np.array([run.mean_latency_ms for run in runs.replications])
        return means.mean(), means.std(ddof=1) / math.sqrt(8)

    mean, error = latency_ms(bs.AtLeast(3, 32))
    assert abs(mean - best.mean_latency_ms) < 4 * error
    for rule in (bs.SizeOrWait(32, 0), bs.SizeOrWait(32, 1), bs.SizeOrWait(16, 0.5), bs.AtLeast(8, 32)):
        mean, error = latency_ms(rule)
        assert mean > best.mean_latency_ms - 4 * error
        assert best.gap(mean) > -0.1


# Properties.


@pytest.mark.parametrize("load", [0.2, 0.6, 0.95])
def test_what_does_not_batch_better_is_served_one_by_one(load):
    best = theory.optimum(load * 1000, bs.Affine(0, 1), 8)
    assert best.mean_batch_size == pytest.approx(1)
    assert best.mean_latency_ms == pytest.approx(theory.md1(load * 1000, 1).mean_latency_ms)


@settings(max_examples=25)
@given(load=st.floats(0.05, 0.95))
def test_a_larger_batch_allowed_is_never_worse(load):
    rate = at_load(load, V100, 4)
    latency = [theory.optimum(rate, V100, size).mean_latency_ms for size in (4, 5, 8, 16)]
    assert all(later <= sooner * (1 + 1e-10) for sooner, later in itertools.pairwise(latency))


@settings(max_examples=20)
@given(load=st.floats(0.05, 0.9), noisy=st.booleans())
def test_a_dearer_batch_is_larger_and_the_frontier_is_convex(load, noisy):
    service = V100.with_noise(0.5) if noisy else V100
    rate, weights = at_load(load, V100, 8), [0.0, 0.2, 1.0, 5.0]
    found = [theory.optimum(rate, service, 8, lambda n: 10 + n, weight) for weight in weights]
    for less, more in itertools.pairwise(found):
        assert more.cost_per_request <= less.cost_per_request * (1 + 1e-9)
        assert more.mean_latency_ms >= less.mean_latency_ms * (1 - 1e-9)
        # Neither is improved by the other's policy under its own weight.
        assert more.objective <= less.mean_latency_ms + more.weight * less.cost_per_request + 1e-9
    assert found[0].mean_latency_ms == pytest.approx(theory.optimum(rate, service, 8).mean_latency_ms)


def test_a_cost_that_is_the_same_for_each_request_changes_nothing():
    rate = at_load(0.5, V100, 8)
    plain, priced = theory.optimum(rate, V100, 8), theory.optimum(rate, V100, 8, lambda n: 3 * n, 2.0)
    assert priced.mean_latency_ms == pytest.approx(plain.mean_latency_ms)
    assert priced.objective == pytest.approx(plain.mean_latency_ms + 6)


def test_the_cost_per_request_is_that_of_its_batches():
    best = theory.optimum(at_load(0.5, V100, 8), V100, 8, lambda n: 10.0)
    assert best.cost_per_request == pytest.approx(10 / best.mean_batch_size)


@pytest.mark.parametrize("load", [0.5, 0.99])
@pytest.mark.parametrize("size", [64, 256])
def test_large_batches_are_solved(size, load):
    rate = at_load(load, V100, size)
    best = theory.optimum(rate, V100, size)
    limits = [theory.at_least(rate, V100, a, size).mean_latency_ms for a in (1, 2, 3, 4, 6, 8)]
    assert min(limits) * 0.99 < best.mean_latency_ms <= min(limits) * (1 + 1e-9)


def test_taking_less_than_all_can_be_best():
    best = theory.optimum(at_load(0.7, PADDED, 12), PADDED, 12)
    assert best.control_limit is None
    assert best.taken(np.array([8, 9, 10])).tolist() == [8, 8, 8]  # 9 would cost what 16 do


# What it says, and refuses.


def test_it_says_its_policy_in_words():
    assert repr(theory.optimum(2464.9, V100, 32)).startswith(
        "Best possible: serve all that wait (at most 32) once 3 wait\n  latency     mean 4.57662 ms\n"
    )
    assert "(at most 32) as soon as the server is free" in repr(theory.optimum(100, V100, 32))
    words = repr(theory.optimum(at_load(0.7, PADDED, 12), PADDED, 12))
    assert "serve all of " in words
    assert "serve 8 of 9" in words
    assert "cost" in repr(theory.optimum(100, V100, 32, lambda n: 1.0))


def test_the_gap_is_in_percent_of_the_best():
    best = theory.optimum(2464.9, V100, 32)
    assert best.gap(best.mean_latency_ms) == pytest.approx(0)
    assert best.gap(1.5 * best.mean_latency_ms) == pytest.approx(50)
    priced = theory.optimum(2464.9, V100, 32, lambda n: 1.0, weight=2.0)
    assert priced.gap(priced.mean_latency_ms, priced.cost_per_request) == pytest.approx(0)


@refusals
def test_bad_input_and_overload_are_refused():
    """
    theory.optimum(9000, V100, 32)
        -> the load must be below 1, got 1.82503: 9,000/s with saturation at 4,931.42/s
    theory.optimum(0, V100, 32) -> rate_per_s must be greater than 0, got 0
    theory.optimum(9, V100, 0) -> max_batch_size must be at least 1, got 0
    theory.optimum(9, V100, 2000) -> max_batch_size must be at most 1,024, got 2000
    theory.optimum(9, 3.0, 2) -> TypeError: service must be a service of batchsim, got 3.0
    theory.optimum(9, V100, 2, [0, 1]) -> batch_cost must have 3 entries... got 2
    theory.optimum(9, V100, 2, [0, 1, -1]) -> cost of a batch of 2 must be at least 0, got -1
    theory.optimum(9, V100, 2, lambda n: math.nan) -> cost of a batch of 1 must be a number
    theory.optimum(9, V100, 2, 5) -> TypeError: batch_cost must be a function or a list, got 5
    theory.optimum(9, V100, 2, None, -1) -> weight must be at least 0, got -1
    theory.optimum(9, V100, 2).gap(0) -> mean_latency_ms must be greater than 0, got 0
    """
