import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import policy as oracle
from refusals import refusals

import batchsim as bs
from batchsim import theory
from batchsim.scenario import Noise
from batchsim.theory import chain

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
    mass, tail = chain.pmf(np.array([mean]), Noise(cv), 600)
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
