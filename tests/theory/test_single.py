"""Requests one at a time, GI/G/1 included: against closed forms, other formulas and the simulator."""

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals
from scipy import integrate, special

import batchsim as bs
from batchsim import theory

LOADS = st.floats(0.01, 0.99)


# Oracles: numbers computed elsewhere, closed forms written otherwise.


@pytest.mark.parametrize(
    ("servers", "waits", "wait"),
    [(1, 0.8, 4), (2, 0.711111, 1.777778), (4, 0.596432, 0.745541)],  # textbook values at load 0.8
)
def test_erlang_c_and_its_wait_are_the_textbooks(servers, waits, wait):
    assert theory.erlang_c(servers, 0.8 * servers) == pytest.approx(waits, abs=5e-7)
    answer = theory.mmc(0.8 * servers * 1000, mean_service_ms=1, servers=servers)
    assert answer.mean_wait_ms == pytest.approx(wait, abs=5e-7)


@given(servers=st.integers(1, 40), load=LOADS)
def test_erlang_c_is_its_sum(servers, load):
    offered = load * servers
    terms = [offered**k / math.factorial(k) for k in range(servers + 1)]
    last = terms[servers] * servers / (servers - offered)
    assert theory.erlang_c(servers, offered) == pytest.approx(last / (sum(terms[:-1]) + last), rel=1e-11)


def test_erlang_c_of_many_servers_neither_overflows_nor_vanishes():
    assert theory.erlang_c(10_000, 9_900) == pytest.approx(0.2239, abs=0.02)  # Halfin and Whitt: beta 1
    assert theory.erlang_c(1000, 1) == 0
    assert theory.erlang_c(3, 0) == 0


@given(load=LOADS)
def test_the_one_server_means_are_the_textbooks(load):
    rate = load * 100
    assert theory.mm1(rate, 10).mean_latency_ms == pytest.approx(1000 / (100 - rate))
    assert theory.md1(rate, 10).mean_wait_ms == pytest.approx(load * 10 / (2 * (1 - load)))
    assert theory.mg1(rate, 10, cv=1).mean_latency_ms == pytest.approx(theory.mm1(rate, 10).mean_latency_ms)
    assert theory.mg1(rate, 10, cv=0).mean_latency_ms == pytest.approx(theory.md1(rate, 10).mean_latency_ms)
    assert theory.mmc(rate, 10, 1).mean_latency_ms == theory.mm1(rate, 10).mean_latency_ms
    assert theory.mdc(rate, 10, 1).mean_latency_ms == pytest.approx(theory.md1(rate, 10).mean_latency_ms)
    assert theory.kingman(rate, 10, 1, 0.7).mean_latency_ms == pytest.approx(
        theory.mg1(rate, 10, 0.7).mean_latency_ms
    )


def erlangs_md1_wait(load, time):
    """P(wait <= time), in service times: Erlang's series, alternating, in 60 digits."""
    getcontext().prec = 60
    load, time = Decimal(load), Decimal(time)
    total = Decimal(0)
    for j in range(int(time) + 1):
        a = load * (j - time)
        total += a**j / math.factorial(j) * (-a).exp() if j else (-a).exp()
    return float((1 - load) * total)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.8, 0.95])
def test_the_distribution_of_m_d_1_is_erlangs(load):
    answer = theory.md1(load * 100, 10)
    waits = np.array([0.0, 0.1, 0.5, 0.999, 1.0, 1.5, 2.2, 5.0, 11.3, 30.7])
    expected = [erlangs_md1_wait(load, wait) for wait in waits]
    assert answer.cdf((1 + waits) * 10) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("servers", [2, 3, 8, 30])
def test_m_d_c_is_its_chain_written_out(servers):
    load, states = 0.85, 400
    mean = load * servers
    number = np.arange(states)
    poisson = np.exp(number * math.log(mean) - mean - np.cumsum(np.log(np.maximum(number, 1))))
    chain = np.zeros((states, states))
    for n in number:
        left = max(n - servers, 0)
        chain[n, left:] = poisson[: states - left]
    share = np.full(states, 1 / states)
    for _ in range(3000):
        share = share @ chain
    waiting = (share / share.sum()) @ np.maximum(number - servers, 0)
    answer = theory.mdc(load * servers * 100, 10, servers)
    assert answer.mean_wait_ms == pytest.approx(waiting / mean * 10, rel=1e-9)


# Properties.


@given(load=LOADS, servers=st.integers(1, 20))
def test_less_load_is_less_latency_and_fixed_times_wait_less(load, servers):
    rate = load * servers * 100
    tiny = 1e-9  # of the service time: rounding, where next to nobody waits
    for model in (theory.mmc, theory.mdc):
        assert model(rate * 0.9, 10, servers).mean_wait_ms <= model(rate, 10, servers).mean_wait_ms + tiny
    assert theory.mdc(rate, 10, servers).mean_wait_ms <= theory.mmc(rate, 10, servers).mean_wait_ms + tiny


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_the_distribution_of_m_m_c_has_its_mean_and_grows_from_0_to_1(servers, load):
    answer = theory.mmc(load * servers * 100, 10, servers)
    grid = np.linspace(0, 60 * answer.mean_latency_ms, 2000)
    values = answer.cdf(grid)
    assert values[0] == 0
    assert values[-1] == pytest.approx(1)
    assert (np.diff(values) >= 0).all()
    mean = integrate.quad(lambda x: 1 - float(answer.cdf(x)), 0, grid[-1], limit=400)[0]
    assert mean == pytest.approx(answer.mean_latency_ms, rel=1e-6)


def test_m_m_c_where_service_and_wait_end_at_the_same_rate():
    rate = 1.0  # per ms, two servers: 2 mu - rate = mu
    answer = theory.mmc(rate * 1000, 1, 2)
    nearby = theory.mmc(rate * 1000 * (1 - 1e-9), 1, 2)
    assert answer.cdf([0.5, 2, 9]) == pytest.approx(nearby.cdf([0.5, 2, 9]), abs=1e-8)


@given(load=LOADS, q=st.floats(1, 99.9))
def test_a_percentile_is_where_the_distribution_reaches_it(load, q):
    for answer in (theory.mm1(load * 100, 10), theory.md1(load * 100, 10)):
        latency = answer.percentile(q)
        assert answer.cdf(latency) >= q / 100
        assert answer.cdf(latency * (1 - 1e-9)) <= q / 100 + 1e-7 or latency == 10
    assert theory.mm1(load * 100, 10).percentile(q) == pytest.approx(
        -math.log(1 - q / 100) * theory.mm1(load * 100, 10).mean_latency_ms
    )


def test_a_percentile_at_a_jump_is_the_jump():
    assert theory.md1(30, 10).percentile(50) == pytest.approx(10, rel=1e-14)
    assert theory.md1(30, 10).percentile(100) == math.inf


@given(load=LOADS, servers=st.integers(1, 9), q=st.floats(0, 99.99))
def test_the_percentile_of_the_wait_in_m_m_c_is_that_of_its_tail(load, servers, q):
    wait = theory.mmc_wait_percentile_ms(q, load * servers * 100, 10, servers)
    spare = (servers - load * servers) / 10
    later = theory.erlang_c(servers, load * servers) * math.exp(-spare * wait)
    assert later == pytest.approx(1 - q / 100) if wait > 0 else later <= 1 - q / 100 + 1e-12


# Against the simulator.


@pytest.mark.parametrize(
    ("answer", "noise", "servers"),
    [
        (theory.mdc(320, 10, 4), None, 4),
        (theory.mmc(320, 10, 4), "exponential", 4),
        (theory.md1(70, 10), None, 1),
        (theory.mm1(70, 10), "exponential", 1),
    ],
    ids=["M/D/4", "M/M/4", "M/D/1", "M/M/1"],
)
def test_simulation_agrees_within_its_own_error(answer, noise, servers):
    service = bs.Affine(10, 0) if noise is None else bs.Affine(10, 0).with_noise(1, noise)
    scenario = bs.Scenario(bs.Poisson(answer.rate_per_s), bs.SizeOrWait(1, 5), service, servers=servers)
    runs = bs.simulate(scenario, 400_000, warmup=0.05, replications=8, keep="summary").replications
    means = np.array([run.mean_latency_ms for run in runs])
    assert abs(means.mean() - answer.mean_latency_ms) < 4 * means.std(ddof=1) / math.sqrt(len(means))


# What they say, and refuse.


def test_an_answer_prints_what_it_is_and_where_from():
    text = repr(theory.md1(80, 10))
    assert text.startswith("M/D/1, exact (Pollaczek 1930, Khinchine 1932)")
    assert "mean 30 ms, 20 ms of it waiting" in text
    assert repr(theory.kingman(80, 10, 2, 1)).startswith("G/G/1, an approximation (Kingman 1961)")


def test_a_summary_has_the_names_of_a_results():
    result = bs.simulate(bs.Scenario(bs.Poisson(80), bs.SizeOrWait(1, 0), bs.Affine(10, 0)), 1000)
    summary = theory.md1(80, 10).summary()
    assert set(summary) <= set(result.summary())
    assert summary["p99_ms"] == theory.md1(80, 10).percentile(99)
    assert summary["load"] == pytest.approx(0.8)
    assert "p99_ms" not in theory.mg1(80, 10, 0.5).summary()
    with pytest.raises(ValueError, match="percentiles need"):
        theory.mg1(80, 10, 0.5).percentile(99)


@refusals
def test_bad_input_and_unstable_queues_are_refused():
    """
    theory.md1(1000, 1.25) -> the load must be below 1, got 1.25: 1,000/s with saturation at 800/s
    theory.mm1(100, 10) -> got 1: 100/s with saturation at 100/s
    theory.mmc(500, 10, 4) -> got 1.25: 500/s with saturation at 400/s
    theory.mdc(500, 10, 4) -> got 1.25: 500/s with saturation at 400/s
    theory.mg1(200, 10, 0.5) -> got 2: 200/s with saturation at 100/s
    theory.kingman(200, 10, 1, 1) -> got 2: 200/s with saturation at 100/s
    theory.erlang_c(2, 2.0) -> offered_load must be below the 2 servers, got 2.0
    theory.erlang_c(0, 0.5) -> servers must be at least 1, got 0
    theory.mmc(1, 1, 1.5) -> TypeError: servers must be a whole number, got 1.5
    theory.mdc(1, 1, 8193) -> at most 2,048 servers to be solved, got 8,193
    theory.mg1(1, 1, -0.1) -> cv must be at least 0, got -0.1
    theory.md1(math.nan, 1) -> rate_per_s must be a number, got nan
    theory.md1(0, 1) -> rate_per_s must be greater than 0, got 0
    theory.md1(1, math.inf) -> mean_service_ms must be finite, got inf
    theory.md1("1", 1) -> TypeError: rate_per_s must be a number, got '1'
    theory.md1(1, 1).percentile(0) -> q must be greater than 0, got 0
    theory.md1(1, 1).percentile(101) -> q must be at most 100, got 101
    """


@pytest.mark.parametrize("answer", [theory.mm1(80, 10), theory.mmc(160, 10, 2), theory.md1(80, 10)])
def test_sooner_or_later_all_are_answered(answer):
    assert float(answer.cdf(np.inf)) == pytest.approx(1, abs=1e-14)


# GI/G/1, against closed forms, another formula for the mean, and the simulator.


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
def test_simulation_of_gi_g_1_agrees_within_its_own_error(arrivals, noise, load):
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


@refusals
def test_what_is_not_solved_is_refused():
    """
    theory.gg1(1000, 1, 2) -> the load must be below 1, got 1
    theory.gg1(500, 1, -1) -> arrival_cv must be at least 0, got -1
    theory.gg1(500, 1, 2, 0.5, "exponential") -> cv of exponential noise must be 1, got 0.5
    theory.gg1(500, 1, 2, 11) -> that of service at most 10, got 2 and 11
    theory.gg1(500, 1, 31) -> cv of arrivals must be at most 30 ... got 31
    theory.gg1(0.5, 1, 2) -> the load must be at least 0.001 for GI/G/1, got 0.0005
    theory.gg1(20, 1, 0, 0.001) -> must vary more for GI/G/1
    """
