import math
import subprocess
import sys

import numpy as np
import pytest

import batchsim as bs
from batchsim import theory
from batchsim.scenario.rules import Threshold
from batchsim.theory.batch import solve_threshold

SERVICE = bs.Affine(5, 0.25)


def scenario(workload=None, rule=None, service=SERVICE, **others):
    return bs.Scenario(workload or bs.Poisson(150), rule or bs.SizeOrWait(1, 5), service, **others)


EXPONENTIAL = SERVICE.with_noise(1, "exponential")


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        (scenario(), theory.md1(150, 5.25)),
        (scenario(rule=bs.SizeOrWait(1, math.inf)), theory.md1(150, 5.25)),
        (scenario(rule=bs.AtLeast(1, 1)), theory.md1(150, 5.25)),
        (scenario(service=SERVICE.with_noise(0)), theory.md1(150, 5.25)),
        (scenario(service=EXPONENTIAL), theory.mm1(150, 5.25)),
        (scenario(service=SERVICE.with_noise(0.6)), theory.mg1(150, 5.25, 0.6)),
        (scenario(bs.Poisson(500), servers=3), theory.mdc(500, 5.25, 3)),
        (scenario(bs.Poisson(500), service=EXPONENTIAL, servers=3), theory.mmc(500, 5.25, 3)),
        (scenario(bs.Gamma(150, cv=2)), theory.gg1(150, 5.25, 2)),
        (scenario(bs.Gamma(150, cv=2), service=SERVICE.with_noise(0.5)), theory.gg1(150, 5.25, 2, 0.5)),
        (scenario(bs.Gamma(150, cv=1)), theory.md1(150, 5.25)),
        (scenario(bs.Constant(150), service=EXPONENTIAL), theory.gg1(150, 5.25, 0, 1, "exponential")),
        (scenario(slowdown={1: 1.2}), theory.md1(150, 6.3)),
        (scenario(bs.Poisson(300), servers=2, slowdown={1: 1.1, 2: 1.1}), theory.mdc(300, 5.775, 2)),
        (scenario(rule=bs.SizeOrWait(8, 0)), theory.capped(150, SERVICE, 8)),
        (scenario(rule=bs.SizeOrWait(8, 7)), theory.size_or_wait(150, SERVICE, 8, 7)),
        (scenario(rule=bs.SizeOrWait(8, math.inf)), theory.at_least(150, SERVICE, 8, 8)),
        (scenario(rule=bs.AtLeast(3, 8)), theory.at_least(150, SERVICE, 3, 8)),
        (scenario(rule=bs.AtLeast(3, 8), service=EXPONENTIAL), theory.at_least(150, EXPONENTIAL, 3, 8)),
        (
            scenario(rule=bs.AtLeast(3, 8), slowdown={1: 2}),
            theory.at_least(150, bs.Affine(10, 0.5), 3, 8),
        ),
    ],
    ids=repr,
)
def test_it_picks_what_applies(asked, same):
    answer = theory.expected(asked)
    assert answer.model == same.model
    assert answer.exact == same.exact
    assert answer.mean_latency_ms == pytest.approx(same.mean_latency_ms)
    assert (answer.cdf is None) == (same.cdf is None)
    if answer.cdf is not None:
        assert answer.percentile(99) == pytest.approx(same.percentile(99))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (scenario(bs.ClosedLoop(4)), r"arrivals must be Poisson, .* got ClosedLoop\(clients=4"),
        (scenario(bs.OnOff(300, 10, 1, 1)), "arrivals must be Poisson, .* got OnOff"),
        (scenario(bs.Trace([0.0, 1.0])), "arrivals must be Poisson, .* got Trace"),
        (scenario(queue_limit=5), "a queue_limit of 5"),
        (scenario(timeout_ms=50), "a timeout of 50 ms"),
        (scenario(servers=2, slowdown={1: 1, 2: 1.5}), "a slowdown must be the same .* got {1: 1, 2: 1.5}"),
        (
            scenario(service=SERVICE.with_noise(0.5), servers=2),
            "2 servers must have fixed or exponential .* got Noise",
        ),
        (scenario(bs.Gamma(150, 40)), "cv of arrivals must be at most 30 .* got 40"),
        (scenario(bs.Gamma(150, 2), servers=2), "Poisson for several servers, got Gamma"),
        (scenario(bs.Gamma(150, 2), bs.SizeOrWait(8, 0)), "arrivals must be Poisson for batches, got Gamma"),
        (
            scenario(rule=bs.SizeOrWait(8, 0), servers=2),
            "batches of up to 8 are solved for one server only, got 2",
        ),
        (
            scenario(rule=bs.SizeOrWait(8, 7.1)),
            "max wait must be 0, inf, or at most the 7 ms .* got 7.1 ms",
        ),
        (
            scenario(rule=bs.SizeOrWait(8, 5), service=EXPONENTIAL),
            "max wait must be 0 or inf for noisy service, got 5 ms",
        ),
        (scenario(servers=3000), "M/D/c must have at most 2,048 servers to be solved, got 3,000"),
        (
            scenario(rule=bs.AtLeast(2, 8), service=SERVICE.with_noise(11)),
            "cv of lognormal noise must be at most 10, got 11",
        ),
        (
            scenario(rule=bs.SizeOrWait(9000, 0), service=EXPONENTIAL),
            "batches must stay below 8,192 for the chain to be solved",
        ),
    ],
    ids=repr,
)
def test_it_says_why_nothing_does(asked, why):
    answer = theory.expected(asked)
    assert not answer
    assert isinstance(answer, theory.NoAnswer)
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(repr(answer))
    assert repr(answer).startswith("no theory applies: ")


def test_a_rule_that_is_no_threshold_rule_has_no_theory():
    asked = scenario(rule=bs.PreferredSizes([2, 4], 4, 5))
    assert "threshold rule, got PreferredSizes" in theory.expected(asked).why


def test_the_textbook_rule_is_answered_under_another_name_too():
    class Mine(bs.SizeOrWait):
        pass

    asked, same = (theory.expected(scenario(rule=kind(8, 5))) for kind in (Mine, bs.SizeOrWait))
    assert (asked.model, asked.mean_latency_ms) == (same.model, same.mean_latency_ms)


@pytest.mark.parametrize(("enough", "wait_s"), [(2, 0.003), (2, 0.02)])
def test_a_timer_beside_a_minimum_batch_size_is_not_solved(enough, wait_s):
    with pytest.raises(ValueError, match="minimum batch size of 2 is not solved"):
        solve_threshold(150, SERVICE, Threshold(wait_s, enough, 8))


@pytest.mark.parametrize("rule", [bs.SizeOrWait(1, 0), bs.SizeOrWait(8, 5), bs.AtLeast(2, 8)])
def test_an_unstable_scenario_has_no_steady_state(rule):
    with pytest.raises(ValueError, match=r"the load must be below 1, got .*: 2,000/s with"):
        theory.expected(scenario(bs.Poisson(2000), rule))


def test_a_rule_that_takes_all_it_can_has_the_capacity_of_its_largest_batch():
    # Two would be served at 667/s, but where eight wait, eight are taken, at 400/s.
    with pytest.raises(ValueError, match="500/s with saturation at 400/s"):
        theory.expected(scenario(bs.Poisson(500), bs.SizeOrWait(8, 0), bs.Table({1: 5, 2: 3, 8: 20})))


def test_batches_of_one_with_sizes_are_m_g_1_with_the_moments_of_the_sizes():
    service = bs.PaddedTime(2, 0.5, 0.1, 0.01)
    one = bs.Scenario(bs.Poisson(20).with_sizes(bs.Uniform(1, 40)), bs.SizeOrWait(1, 0), service)
    ms = np.array([2.5 + 0.1 * size + 0.01 * size**2 for size in range(1, 41)])
    for scenario, factor in ((one, 1), (one.replace(service=service.with_noise(0.5)), 1.25)):
        wait_ms = 0.02 * factor * (ms**2).mean() / (2 * (1 - 0.02 * ms.mean()))
        assert theory.expected(scenario).mean_latency_ms == pytest.approx(ms.mean() + wait_ms, rel=1e-3)
    equal = one.replace(sizes=bs.Uniform(7, 7))
    plain = one.replace(sizes=None, service=bs.Affine(2 + 0.7 + 0.49, 0.5))
    assert theory.expected(equal).mean_wait_ms == pytest.approx(theory.expected(plain).mean_wait_ms)
    for change, why in (
        ({"max_batch_size": 8}, "batches must be of one"),
        ({"servers": 2}, "Poisson arrivals at one server"),
        ({"sizes": [1, 2, 3]}, "must be independent, got a list"),
    ):
        assert why in repr(theory.expected(one.replace(change)))


def test_only_a_scenario_is_asked_of():
    with pytest.raises(TypeError, match="scenario must be a Scenario, got 5"):
        theory.expected(5)


def test_theory_loads_nothing_heavy_but_scipy():
    program = (
        "import sys, batchsim.theory as theory\n"
        "theory.md1(1, 1).percentile(99), theory.optimum\n"
        "print([name for name in 'jax numba matplotlib pandas ipywidgets'.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
