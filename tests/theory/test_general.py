"""GI/G/1, against closed forms, another formula for the mean, and the simulator."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

import batchsim as bs
from batchsim import theory

LOADS = st.floats(0.01, 0.99)


def spitzers_sum(load, cv):
    """The mean wait of GI/D/1 in service times: the sum over n of E[(n services - n gaps)^+] / n."""
    scale, shape = cv**2 / load, cv**-2
    n = np.arange(1, 300_001)
    waits = special.gammainc(n * shape, n / scale) - shape * scale * special.gammainc(
        n * shape + 1, n / scale
    )
    return float(waits.sum())


@pytest.mark.parametrize("cv", [0.2, 0.5, 1, 2, 5, 10])
@pytest.mark.parametrize("load", [0.002, 0.05, 0.5, 0.9])
def test_the_mean_wait_of_gi_d_1_is_spitzers_sum(load, cv):
    answer = theory.gg1(load * 1000, 1, cv)
    assert answer.mean_latency_ms == pytest.approx(1 + spitzers_sum(load, cv), rel=1e-6)


@given(load=LOADS, cv=st.floats(0.05, 8))
def test_with_poisson_arrivals_it_is_m_g_1(load, cv):
    # The integral, too: `expected` takes the closed form.
    answer = theory.gg1(load * 1000, 1, 1, cv)
    assert answer.mean_latency_ms == pytest.approx(theory.mg1(load * 1000, 1, cv).mean_latency_ms, rel=1e-6)


@given(load=LOADS)
def test_with_poisson_arrivals_and_exponential_service_it_is_m_m_1(load):
    answer, same = theory.gg1(load * 1000, 1, 1, 1, "exponential"), theory.mm1(load * 1000, 1)
    assert answer.mean_latency_ms == pytest.approx(same.mean_latency_ms)
    assert answer.percentile(99) == pytest.approx(same.percentile(99))


@given(load=LOADS, cv=st.just(0) | st.floats(0.001, 100))
def test_the_chance_to_wait_in_gi_m_1_solves_its_equation(load, cv):
    waits = theory.gg1(load * 1000, 1, cv, 1, "exponential").mean_wait_ms
    root = waits / (1 + waits)
    if cv == 0:
        gap = math.exp(-(1 - root) / load)
    else:
        gap = math.exp(-math.log1p((1 - root) * cv**2 / load) / cv**2)
    assert gap == pytest.approx(root, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    ("arrivals", "noise", "load"),
    [
        (10, None, 0.05),  # Kingman's approximation: 3.6 ms, where 22.7 is right
        (10, (1, "exponential"), 0.05),
        (3, (0.7,), 0.5),
        (2, (3,), 0.3),
        (0.3, (0.5,), 0.8),
        (0, (0.4,), 0.9),
        (0, (2,), 0.6),
        (0.5, None, 0.95),
    ],
    ids=str,
)
def test_simulation_agrees_within_its_own_error(arrivals, noise, load):
    service = bs.Affine(1, 0) if noise is None else bs.Affine(1, 0).with_noise(*noise)
    rate = load * 1000
    workload = bs.Gamma(rate, arrivals) if arrivals else bs.Constant(rate)
    scenario = bs.Scenario(workload, bs.SizeOrWait(1, 0), service)
    answer = theory.expected(scenario)
    assert answer.exact
    runs = bs.simulate(scenario, 200_000, warmup=0.05, replications=16, keep="summary").replications
    means = np.array([run.mean_latency_ms for run in runs])
    error = means.std(ddof=1) / math.sqrt(len(means))
    assert abs(means.mean() - answer.mean_latency_ms) < 4 * error
    assert error < 0.05 * answer.mean_latency_ms
    if answer.cdf is not None:
        shares = np.array([bs.simulate(scenario, 100_000, seed=s).latency_ms for s in range(1)])
        assert np.quantile(shares, 0.9) == pytest.approx(answer.percentile(90), rel=0.2)


def test_kingmans_approximation_is_as_far_off_as_it_says():
    def error(load, cv):
        rough, exact = theory.kingman(load * 1000, 1, cv, 0), theory.gg1(load * 1000, 1, cv)
        return rough.mean_latency_ms / exact.mean_latency_ms - 1

    assert error(0.05, 10) == pytest.approx(-0.84, abs=0.005)
    assert error(0.5, 10) == pytest.approx(-0.36, abs=0.005)
    assert all(abs(error(load, cv)) < 0.1 for load in (0.9, 0.95, 0.99) for cv in (0, 0.2, 0.5, 2, 5, 10))


def test_constant_gaps_and_fixed_service_never_wait():
    answer = theory.gg1(900, 1, 0)
    assert (answer.model, answer.mean_wait_ms) == ("D/D/1", 0)
    assert answer.percentile(99) == pytest.approx(1)


@pytest.mark.parametrize("spare", [1e-2, 1e-4, 1e-6])
def test_near_saturation_it_is_kingmans(spare):
    for cv, noise in ((3, 0.0), (0.5, 2.0), (0, 1.5)):
        load = 1 - spare
        exact, rough = theory.gg1(load * 1000, 1, cv, noise), theory.kingman(load * 1000, 1, cv, noise)
        assert exact.mean_latency_ms == pytest.approx(rough.mean_latency_ms, rel=3 * spare + 1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.gg1(1000, 1, 2), "the load must be below 1, got 1"),
        (lambda: theory.gg1(500, 1, -1), "arrival_cv must be at least 0, got -1"),
        (lambda: theory.gg1(500, 1, 2, 0.5, "exponential"), "cv of exponential noise must be 1, got 0.5"),
        (lambda: theory.gg1(500, 1, 2, 11), "that of service at most 10, got 2 and 11"),
        (lambda: theory.gg1(500, 1, 31), "cv of arrivals must be at most 30 .* got 31"),
        (lambda: theory.gg1(0.5, 1, 2), "the load must be at least 0.001 for GI/G/1, got 0.0005"),
        (lambda: theory.gg1(20, 1, 0, 1e-3), "must vary more for GI/G/1"),
    ],
)
def test_what_is_not_solved_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
