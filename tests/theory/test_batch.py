import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import policy as oracle
from refusals import refusals

import batchsim as bs
from batchsim import theory
from batchsim.scenario import Noise
from batchsim.theory import arrivals

V100 = bs.Affine(1.8874, 0.1438)  # ResNet-50, mixed precision, as fitted by Inoue 2021
P4 = bs.Affine(1.4284, 0.5833)  # ResNet-50, INT8


def at_load(load, service, size):
    return load * size / service(size)


# Oracles: golden numbers, each from an exact chain that shares no code with this one.


@pytest.mark.parametrize(
    ("service", "load", "latency_ms"),
    [
        (V100, 0.1, 3.14589),
        (V100, 0.3, 4.22480),
        (V100, 0.5, 5.90186),
        (V100, 0.9, 29.40842),
        (P4, 0.1, 2.42113),
        (P4, 0.5, 5.18456),
    ],
)
def test_uncapped_batches_of_resnet_50_take_as_long_as_inoues_chain_says(service, load, latency_ms):
    answer = theory.uncapped(load / service.per_item_ms * 1000, service)
    assert answer.mean_latency_ms == pytest.approx(latency_ms, abs=5e-6)
    assert answer.load == pytest.approx(load)


@pytest.mark.parametrize(
    ("size", "load", "latency_ms", "mean_batch", "utilisation"),
    [
        (1, 0.5, 3.04680, 1, 0.5),
        (8, 0.5, 3.63945, 3.1252, 0.985),
        (8, 0.9, 5.52249, 6.7880, 0.9999),
        (32, 0.3, 3.75071, 3.5859, 0.991),
        (32, 0.5, 4.57972, 7.2121, 0.9998),
        (64, 0.7, 7.03483, 18.1904, 1),
    ],
)
def test_capped_batches_are_baileys_queue(size, load, latency_ms, mean_batch, utilisation):
    answer = theory.capped(at_load(load, V100, size), V100, size)
    assert answer.mean_latency_ms == pytest.approx(latency_ms, abs=5e-6)
    assert answer.mean_batch_size == pytest.approx(mean_batch, abs=5e-5)
    # To the digits printed, but for 0.9999, which by its own row's mean batch is 0.99984 to 0.99985.
    assert answer.utilisation == pytest.approx(utilisation, abs=6e-5 if load >= 0.7 else 5e-4)
    assert answer.utilisation == pytest.approx(
        answer.rate_per_s / 1000 * (0.1438 + 1.8874 / answer.mean_batch_size)
    )


NEUTS = [((1.5, 1, 1, 2), 3.770070), ((3, 1, 1, 4), 3.552499), ((6, 1, 4, 8), 3.232252)]


@pytest.mark.parametrize(("parameters", "latency"), NEUTS)
def test_neuts_closed_form_and_the_chain_give_the_golden_numbers(parameters, latency):
    rate, mu, a, b = parameters
    closed = theory.neuts(rate * 1000, 1 / mu, a, b)
    chain = theory.at_least(rate * 1000, bs.Affine(1 / mu, 0).with_noise(1, "exponential"), a, b)
    assert closed.mean_latency_ms == pytest.approx(latency, abs=5e-7)
    assert chain.mean_latency_ms == pytest.approx(latency, abs=5e-7)


@settings(max_examples=40)
@given(load=st.floats(0.02, 0.995), b=st.integers(1, 48), share=st.floats(0, 1))
def test_the_chain_with_exponential_times_is_neuts_closed_form(load, b, share):
    a = 1 + round(share * (b - 1))
    service = bs.Affine(5, 0).with_noise(1, "exponential")
    rate = load * b / 0.005
    chain, closed = theory.at_least(rate, service, a, b), theory.neuts(rate, 5, a, b)
    assert chain.mean_latency_ms == pytest.approx(closed.mean_latency_ms, rel=1e-9)
    assert chain.mean_batch_size == pytest.approx(closed.mean_batch_size, rel=1e-9)
    assert chain.utilisation == pytest.approx(closed.utilisation, rel=1e-9)


@pytest.mark.parametrize(("a", "b", "load"), [(1, 256, 0.99), (200, 256, 0.99), (1, 32, 0.999)])
def test_the_chain_holds_at_large_batches_and_near_the_capacity(a, b, load):
    service, rate = bs.Affine(5, 0).with_noise(1, "exponential"), load * b / 0.005
    expected = theory.neuts(rate, 5, a, b).mean_latency_ms
    assert theory.at_least(rate, service, a, b).mean_latency_ms == pytest.approx(expected, rel=1e-9)


@settings(max_examples=25)
@given(load=st.floats(0.05, 0.85), b=st.integers(1, 9), share=st.floats(0, 1), noisy=st.booleans())
def test_the_chain_is_the_one_cut_off_and_solved_naively(load, b, share, noisy):
    a = 1 + round(share * (b - 1))
    assume(load < 0.6 or not noisy)  # where a naive chain need not be cut off
    rate, seconds = at_load(load, P4, b), [math.nan, *(P4(k) for k in range(1, b + 1))]
    rule = [s if s >= a else 0 for s in range(b + 1)]
    how = {"arrivals": oracle.geometric, "squared_cv": 1.0} if noisy else {}
    number, size = oracle.evaluate(rule, rate, seconds, states=240 if noisy else 120, **how)
    service = P4.with_noise(1, "exponential") if noisy else P4
    answer = theory.at_least(rate, service, a, b)
    assert answer.mean_latency_ms == pytest.approx(number / rate * 1000, rel=1e-8)
    assert answer.mean_batch_size == pytest.approx(size, rel=1e-8)


@pytest.mark.parametrize("cv", [0.01, 0.3, 1, 3])
@pytest.mark.parametrize("mean", [0.001, 0.5, 30, 300])
def test_arrivals_in_a_lognormal_time_are_the_integral(cv, mean):
    mass, tail = arrivals.pmf(np.array([mean]), Noise(cv), 600)
    variance, steps = math.log1p(cv**2), 200_000
    x = np.linspace(-12, 12, steps + 1)
    log_mean = math.log(mean) + math.sqrt(variance) * x - variance / 2
    for n in (0, 1, 5, 100, 299, 599):
        log_mass = n * log_mean - np.exp(log_mean) - math.lgamma(n + 1) - x**2 / 2
        expected = np.exp(log_mass).sum() * (24 / steps) / math.sqrt(2 * math.pi)
        assert mass[0, n] == pytest.approx(expected, abs=1e-12)
    assert mass.sum() + tail.sum() == pytest.approx(1, abs=1e-11)


# Properties.


@settings(max_examples=30)
@given(load=st.floats(0.02, 0.99), size=st.integers(2, 40), cv=st.sampled_from([None, 0.3, 1.5]))
def test_less_load_is_less_latency(load, size, cv):
    service = V100 if cv is None else V100.with_noise(cv)
    assume(cv is None or size <= 16)  # where they are quick
    rates = at_load(load, V100, size) * np.array([0.8, 0.95, 1])
    latency = [theory.capped(rate, service, size).mean_latency_ms for rate in rates]
    assert latency == sorted(latency)


@given(load=st.floats(0.02, 0.98), b=st.integers(1, 40), share=st.floats(0, 1))
def test_an_answer_obeys_its_conservation_laws(load, b, share):
    a = 1 + round(share * (b - 1))
    rate = at_load(load, P4, b)
    answer = theory.at_least(rate, P4, a, b)
    sizes, seconds = np.arange(answer.batch_size_pmf.size), P4.table(b)
    seconds[0] = 0
    assert answer.batch_size_pmf.sum() == pytest.approx(1)
    assert (answer.batch_size_pmf[:a] == 0).all()
    assert answer.mean_batch_size == pytest.approx(answer.batch_size_pmf @ sizes)
    # What comes goes: the batches a second, of this size, are busy this much.
    busy = rate / answer.mean_batch_size * (answer.batch_size_pmf @ seconds)
    assert answer.utilisation == pytest.approx(busy, rel=1e-9)
    computing = (answer.batch_size_pmf * sizes) @ seconds / answer.mean_batch_size * 1000
    assert answer.mean_latency_ms - answer.mean_wait_ms == pytest.approx(computing)


@settings(max_examples=8)
@given(load=st.floats(0.02, 0.85))
def test_a_cap_that_is_never_reached_is_none(load):
    rate = load / V100.per_item_ms * 1000
    free, wide = theory.uncapped(rate, V100), theory.capped(rate, V100, 600)
    assert wide.mean_latency_ms == pytest.approx(free.mean_latency_ms, rel=1e-9)
    assert theory.capped(rate, V100, 60_000).mean_latency_ms == pytest.approx(free.mean_latency_ms, rel=1e-9)


@settings(max_examples=40)
@given(load=st.floats(0.02, 0.9), service=st.sampled_from([V100, P4, bs.Affine(10, 0.01), bs.Affine(0, 1)]))
def test_the_closed_form_bound_is_above_the_chain_and_within_a_tenth(load, service):
    rate = load / service.per_item_ms * 1000
    assume(rate * service.fixed_ms < 100_000)  # batches of a hundred: else the chain takes its time
    exact = theory.uncapped(rate, service).mean_latency_ms
    bound = theory.uncapped_bound(rate, service.fixed_ms, service.per_item_ms)
    assert exact * (1 - 1e-9) <= bound <= exact * 1.1


def test_one_of_at_least_one_is_m_g_1():
    for cv in (0.2, 1.7):
        answer = theory.at_least(70, bs.Affine(10, 0).with_noise(cv), 1, 1)
        assert answer.mean_latency_ms == pytest.approx(theory.mg1(70, 10, cv).mean_latency_ms, rel=1e-12)
    assert theory.capped(70, bs.Affine(10, 0), 1).mean_latency_ms == pytest.approx(
        theory.md1(70, 10).mean_latency_ms, rel=1e-12
    )


@pytest.mark.parametrize("b", [1, 4, 20])
def test_noise_that_vanishes_is_none(b):
    rate = at_load(0.8, V100, b)
    none = theory.capped(rate, V100, b).mean_latency_ms
    assert theory.capped(rate, V100.with_noise(0), b).mean_latency_ms == pytest.approx(none, rel=1e-12)
    assert theory.capped(rate, V100.with_noise(1e-5), b).mean_latency_ms == pytest.approx(none, rel=1e-8)


def test_padded_and_measured_services_are_solved_too():
    padded = V100.padded_to([1, 4, 16])
    table = bs.Table({k: padded(k) * 1000 for k in range(1, 13)})
    rate = at_load(0.7, padded, 12)
    assert theory.capped(rate, padded, 12).mean_latency_ms == pytest.approx(
        theory.capped(rate, table, 12).mean_latency_ms, rel=1e-12
    )
    assert theory.uncapped(100, bs.Table({1: 2, 64: 9})).mean_latency_ms == pytest.approx(
        theory.capped(100, bs.Table({1: 2, 64: 9}), 64).mean_latency_ms, rel=1e-12
    )


# Against the simulator.


@pytest.mark.parametrize(
    ("service", "a", "b", "load"),
    [
        (V100, 1, 8, 0.8),
        (V100, 5, 32, 0.4),
        (V100, 16, 16, 0.7),
        (V100.with_noise(0.5), 1, 16, 0.6),
        (P4.with_noise(1.2), 3, 8, 0.5),
        (P4.with_noise(1, "exponential"), 2, 8, 0.6),
        (V100.padded_to([1, 4, 8]), 1, 8, 0.7),
        (bs.Table({1: 5, 2: 3, 8: 9}), 2, 8, 0.5),
    ],
    ids=repr,
)
def test_simulation_agrees_within_its_own_error(service, a, b, load):
    rate = at_load(load, service, b)
    answer = theory.at_least(rate, service, a, b)
    scenario = bs.Scenario(bs.Poisson(rate), bs.AtLeast(a, b), service)
    runs = bs.simulate(scenario, 500_000, warmup=0.05, replications=8, keep="summary", seed=1).replications
    for name in ("mean_latency_ms", "mean_batch_size", "utilisation"):
        values = np.array([getattr(run, name) for run in runs])
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - getattr(answer, name)) < 4 * error + 1e-9


# What they refuse.


@refusals
def test_bad_input_and_unstable_queues_are_refused():
    """
    theory.capped(1000, bs.Affine(5, 1), 4)
        -> the load must be below 1, got 2.25: 1,000/s with saturation at 444.444/s
    theory.at_least(500, bs.Affine(2, 0), 1, 1) -> got 1: 500/s with saturation at 500/s
    theory.uncapped(1000, bs.Affine(5, 1)) -> got 1: 1,000/s with saturation at 1,000/s
    theory.uncapped_bound(2000, 5, 1) -> got 2: 2,000/s with saturation at 1,000/s
    theory.neuts(2000, 1, 1, 2) -> got 1: 2,000/s with saturation at 2,000/s
    theory.uncapped(999, bs.Affine(5, 1)) -> batches must stay below 8,192
    theory.uncapped(900, bs.Table({1: 2, 4: 4})) -> must have a service time, got none above 4
    theory.uncapped(9, V100.with_noise(1)) -> a service without noise, got Affine
    theory.capped(9, V100.with_noise(1), 9000) -> batches must stay below 8,192
    theory.at_least(9, V100, 3, 2) -> min_batch_size must be at most max_batch_size, 2, got 3
    theory.at_least(9, V100, 0, 2) -> min_batch_size must be at least 1, got 0
    theory.capped(9, V100, 2.5) -> TypeError: max_batch_size must be a whole number, got 2.5
    theory.capped(9, 2.0, 2) -> TypeError: service must be a service of batchsim, got 2.0
    theory.capped(-9, V100, 2) -> rate_per_s must be greater than 0, got -9
    theory.capped(9, bs.Table({1: 2}), 2) -> at most the Table's largest size, 1, got 2
    theory.capped(9, V100.with_noise(1), 2).percentile(9) -> got M/G^(1,2)/1
    """
