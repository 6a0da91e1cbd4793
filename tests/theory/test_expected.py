"""Theory picks a scenario's model; its curve is its answer at each rate; or they say why not."""

import contextlib
import dataclasses
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from oracles.plans import TIMERS
from refusals import pattern, refusals, rows
from scipy import special

import batchsim as bs
from batchsim import theory
from batchsim.scenario import OpenLoop
from batchsim.scenario.lengths import Lengths
from batchsim.scenario.rules import RULES, RULES_OF_SIZES, Threshold
from batchsim.scenario.sized_time import SizedTime
from batchsim.study.surface import load_curve
from batchsim.theory import expected
from batchsim.theory.batch import solve_threshold
from batchsim.theory.expected import POINTS, theory_curve

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
        (scenario(rule=bs.AtLeast(3, 8), slowdown={1: 2}), theory.at_least(150, bs.Affine(10, 0.5), 3, 8)),
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


NOTHING = rows("""
scenario(bs.ClosedLoop(4)) -> arrivals must be Poisson, ... got ClosedLoop(clients=4
scenario(bs.OnOff(300, 10, 1, 1)) -> arrivals must be Poisson, ... got OnOff
scenario(bs.Trace([0.0, 1.0])) -> arrivals must be Poisson, ... got Trace
scenario(queue_limit=5) -> a queue_limit of 5
scenario(timeout_ms=50) -> a timeout of 50 ms
scenario(servers=2, slowdown={1: 1, 2: 1.5}) -> a slowdown must be the same ... got {1: 1, 2: 1.5}
scenario(service=SERVICE.with_noise(0.5), servers=2)
    -> 2 servers must have fixed or exponential ... got Noise
scenario(bs.Gamma(150, 40)) -> cv of arrivals must be at most 30 ... got 40
scenario(bs.Gamma(150, 2), servers=2) -> Poisson for several servers, got Gamma
scenario(bs.Gamma(150, 2), bs.SizeOrWait(8, 0)) -> arrivals must be Poisson for batches, got Gamma
scenario(rule=bs.SizeOrWait(8, 0), servers=2)
    -> batches of up to 8 are solved for one server only, got 2
scenario(rule=bs.SizeOrWait(8, 7.1)) -> max wait must be 0, inf, or at most the 7 ms ... got 7.1 ms
scenario(rule=bs.SizeOrWait(8, 5), service=EXPONENTIAL)
    -> max wait must be 0 or inf for noisy service, got 5 ms
scenario(servers=3000) -> M/D/c must have at most 2,048 servers to be solved, got 3,000
scenario(rule=bs.AtLeast(2, 8), service=SERVICE.with_noise(11))
    -> cv of lognormal noise must be at most 10, got 11
scenario(rule=bs.SizeOrWait(9000, 0), service=EXPONENTIAL)
    -> batches must stay below 8,192 for the chain to be solved
""")


@pytest.mark.parametrize(("asked", "why"), NOTHING)
def test_it_says_why_nothing_does(asked, why):
    answer = theory.expected(eval(asked))
    assert not answer
    assert isinstance(answer, theory.NoAnswer)
    assert re.search(pattern(why), repr(answer))
    assert repr(answer).startswith("no theory applies: ")


def test_a_rule_that_is_no_threshold_rule_has_no_theory():
    asked = scenario(rule=bs.PreferredSizes([2, 4], 4, 5))
    assert "threshold rule, got PreferredSizes" in theory.expected(asked).why


def test_the_textbook_rule_is_answered_under_another_name_too():
    class Mine(bs.SizeOrWait):
        pass

    asked, same = (theory.expected(scenario(rule=kind(8, 5))) for kind in (Mine, bs.SizeOrWait))
    assert (asked.model, asked.mean_latency_ms) == (same.model, same.mean_latency_ms)


@pytest.mark.parametrize("wait_s", [0.003, 0.02])
def test_a_timer_beside_a_minimum_batch_size_is_not_solved(wait_s):
    with pytest.raises(ValueError, match="minimum batch size of 2 is not solved"):
        solve_threshold(150, SERVICE, Threshold(wait_s, 2, 8))


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


def test_noise_is_on_the_devices_part_of_times_that_depend_on_sizes():
    service = bs.PaddedTime(2, 0.5, 0.1).with_noise(0.8)
    asked = bs.Scenario(
        bs.Poisson(100).with_sizes(bs.Uniform(1, 40)), bs.SizeOrWait(1, 0), service, host_ms=1.5
    )
    ms = np.array([2.5 + 0.1 * size for size in range(1, 41)])
    square = (ms**2 + 0.8**2 * (ms - 1.5) ** 2).mean()
    wait_ms = 0.1 * square / (2 * (1 - 0.1 * ms.mean()))
    assert theory.expected(asked).mean_wait_ms == pytest.approx(wait_ms, rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "mass"),
    [
        (bs.Lognormal(80, 1.5, at_most=50_000), None), (bs.Lognormal(80, 3, at_most=20_000), None),
        (bs.Lognormal(12, 5, at_most=50_000), None), (bs.Lognormal(80, 5, at_most=300), None),
        (bs.Lognormal(7, 0), None), (bs.Uniform(3, 50_000), lambda n: ((n > 2) & (n <= 50_000)) / 49_998),
        (bs.Geometric(200), lambda n: (1 - 1 / 200) ** (n - 1) / 200), (bs.Geometric(1), lambda n: n == 1),
    ],
    ids=lambda each: repr(each) if isinstance(each, Lengths) else "",
)  # fmt: skip
def test_moments_of_sizes_are_those_of_the_lengths_that_are_drawn(sizes, mass):
    n = np.arange(1, 60_001)
    if mass is None:  # rounded, and cut
        deviation = math.sqrt(math.log1p(sizes.cv**2))
        logs = np.log(n + 0.5) - math.log(sizes.mean) + deviation**2 / 2
        above = special.ndtr(-logs / deviation) if deviation else (logs < 0).astype(float)
        above[n >= (sizes.at_most or 50_000)] = 0
        shares = -np.diff(above, prepend=1.0)
    else:
        shares = mass(n)
    table = bs.SizeTable([1], [9, 90, 60_000], [[1, 2, 9]])
    for service, ms in (
        (bs.PackedTime(0, 0, 0.01, 1e-6), 0.01 * n + 1e-6 * n**2),
        (table, np.array([1, 2, 9])[np.searchsorted([9, 90], n)]),
    ):
        mean, square = shares @ ms, shares @ ms**2
        asked = bs.Scenario(bs.Poisson(500 / mean).with_sizes(sizes), bs.SizeOrWait(1, 0), service)
        found = theory.expected(asked)
        assert found.mean_latency_ms - found.mean_wait_ms == pytest.approx(mean, rel=1e-6)
        assert found.mean_wait_ms == pytest.approx(square / mean / 2, rel=1e-6)


def test_moments_of_sizes_without_a_limit_are_those_of_the_lognormal():
    workload = bs.Poisson(10).with_sizes(bs.Lognormal(5000, 2))
    found = theory.expected(bs.Scenario(workload, bs.SizeOrWait(1, 0), bs.PackedTime(0, 0, 0.01)))
    assert found.mean_wait_ms == pytest.approx(0.5 * 50 * (1 + 2**2), rel=1e-3)  # cut to 10,000,000


# Every rule with every feature of a scenario: no answer, or one that a run confirms.


PADDED = bs.PaddedTime(2, 0.4, 0.02)
FEATURES = {
    "Gamma": {"workload": bs.Gamma(60, 1.7)}, "Constant": {"workload": bs.Constant(60)},
    "OnOff": {"workload": bs.OnOff(90, 15, 0.1, 0.1)},
    "Trace": {"workload": bs.Trace(np.arange(120_000) / 60)},
    "closed": {"workload": bs.ClosedLoop(12, 0.05)}, "day": {"workload": bs.Diurnal(60, 1.5, 10)},
    "sizes": {"sizes": bs.Lognormal(30, 1.5, at_most=100)}, "listed": {"sizes": [10, 20, 90, 1] * 30_000},
    "levels": {"priorities": {1: 0.5, 2: 0.5}}, "level": {"priorities": {1: 1.0}},
    "padded": {"service": PADDED}, "listed sizes": {"service": PADDED, "sizes": [10, 20, 90, 1] * 30_000},
    "edges": {"service": PADDED.padded_to([2, 8], lengths=[20, 60, 100])},
    "packed": {"service": bs.PackedTime(2, 0.4, 0.02, 0.0001)},
    "sizes in a table": {"service": bs.SizeTable([1, 4, 8], [16, 99], [[2, 3], [3, 9], [5, 15]])},
    "table": {"service": bs.Table({1: 8, 2: 6, 8: 16})},
    "steps": {"service": bs.Affine(6, 1).padded_to([2, 4, 8])},
    "noise": {"noise": (0.8,)}, "exponential": {"noise": (1, "exponential")}, "no noise": {"noise": (0,)},
    "lasting": {"noise": (0.5, "lognormal", 0.6, 8)}, "cold start": {"compile": 300},
    "servers": {"servers": 2}, "a device": {"servers": 2, "devices": 1, "contention": 1.4},
    "its own device": {"devices": 1, "contention": 1.5}, "own devices": {"servers": 2, "devices": 2},
    "host": {"host_ms": 1.5}, "host and noise": {"host_ms": 1.5, "noise": (0.8,)},
    "padded, host and noise": {"host_ms": 1.5, "noise": (0.8,), "service": PADDED},
    "slowdown": {"slowdown": {1: 1.3}}, "equal slowdown": {"servers": 2, "slowdown": {1: 1.3, 2: 1.3}},
    "another slowdown": {"servers": 2, "slowdown": {1: 1.0, 2: 1.6}},
    "padded, slowdown": {"slowdown": {1: 1.3}, "service": PADDED},
    "queue limit": {"queue_limit": 6}, "timeout": {"timeout_ms": 12},
    "truncate": {"oversize_action": "truncate"},
    "delay": {"timeout_ms": 8, "timeout_action": "delay"},
    "replicas": {"replicas": 2}, "routing": {"replicas": 2, "routing": "least_loaded", "stale_ms": 5},
    "autoscale": {"autoscale": bs.Autoscale("queue", 4, 1, 2, 1, 1)},
    "price": {"price_per_hour": 2.0, "watts": {0: 50, 8: 300}},
    "continuous": {"tokens": bs.Tokens(9, 9)},  # refused by these rules, and tested below
}  # fmt: skip
SOLVED = (
    bs.SizeOrWait(1, 4), bs.SizeOrWait(6, 0), bs.SizeOrWait(6, 9), bs.SizeOrWait(6, math.inf),
    bs.AtLeast(3, 6),
)  # fmt: skip
UNSOLVED = (
    bs.SizeOrWait(1, 4, max_batch_units=99), bs.SizeOrWait(6, 4, max_batch_units=99),
    bs.PreferredSizes([1], 1, 4), bs.PreferredSizes([2, 4], 6, 4), bs.PreferredUntilLate([1], 1, 4),
    bs.PreferredUntilLate([2, 4], 6, 4), bs.Buckets([50, 100], 1, 4), bs.Buckets([50, 100], 6, 4),
    bs.SortedWindow(1, 4, 8), bs.SortedWindow(6, 4, 8), bs.PrefetchedBatches(1), bs.PrefetchedBatches(6),
    bs.LearnedCork(1), bs.LearnedCork(6), bs.LearnedSizes(1, 20), bs.LearnedSizes(6, 20),
    *(kind(size, 4) for kind in TIMERS for size in (1, 6)),
)  # fmt: skip


def featured(rule, **given):
    """A scenario with a feature."""
    workload, service = given.pop("workload", bs.Poisson(60)), given.pop("service", bs.Affine(6, 1))
    noise, compile_ms = given.pop("noise", None), given.pop("compile", None)
    sizes, levels = given.pop("sizes", None), given.pop("priorities", None)
    service = service if noise is None else service.with_noise(*noise)
    service = service if compile_ms is None else service.compiling(compile_ms)
    if sizes is None and (rule.by_size or isinstance(service, SizedTime)):
        sizes = bs.Uniform(1, 90)
    workload = workload if sizes is None else workload.with_sizes(sizes)
    workload = workload if levels is None else workload.with_priorities(levels)
    return bs.Scenario(workload, rule, service, **given)


def test_the_features_are_all_that_a_scenario_has_and_the_rules_are_all():
    named = {name for given in FEATURES.values() for name in given} - {
        "sizes",
        "priorities",
        "noise",
        "compile",
    }
    assert named | {"rule"} == {field.name for field in dataclasses.fields(bs.Scenario)}
    assert {type(rule) for rule in (*SOLVED, *UNSOLVED)} == {*RULES, *RULES_OF_SIZES}


@pytest.mark.parametrize("rule", UNSOLVED, ids=repr)
def test_a_rule_without_a_threshold_has_no_theory_whatever_its_scenario(rule):
    for given in FEATURES.values():
        with contextlib.suppress(ValueError, TypeError):  # what is no scenario
            assert not theory.expected(featured(rule, **given))


@pytest.mark.parametrize("rule", SOLVED, ids=repr)
def test_what_theory_says_of_a_scenario_is_what_a_run_has(rule):
    answered = 0
    for name, given in FEATURES.items():
        try:
            asked = featured(rule, **given)
        except (ValueError, TypeError):
            continue
        if isinstance(asked.workload, OpenLoop) and not isinstance(asked.workload, bs.Trace):
            asked = asked.replace(rate_per_s=0.3 * asked.full_batches_per_s)
        if not (answer := theory.expected(asked)):
            continue
        answered += 1
        run = bs.simulate(asked, 120_000, seed=2, warmup=0.02, engine="compiled")
        found, sections_ms = run.summary(), np.array_split(run.latency_ms[2400:], 25)
        deviation = np.array([section.mean() for section in sections_ms]).std(ddof=1)
        near = deviation / found["mean_latency_ms"] + 0.002
        assert near < 0.05, name  # five standard errors: a mean that is 5 % off is seen
        for key, value in answer.summary().items():
            wide = 3 * near if key[0] == "p" else near
            assert found[key] == pytest.approx(value, rel=wide, abs=1e-9), (name, key)
    assert answered > 10


def test_theory_loads_nothing_heavy_but_scipy():
    program = (
        "import sys, batchsim.theory as theory\n"
        "theory.md1(1, 1).percentile(99), theory.optimum\n"
        "print([name for name in 'jax numba matplotlib pandas ipywidgets'.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Theory's curve is theory's answer at each of its rates, or says why there is none.


SCENARIO = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 0), bs.Affine(5, 0.25))


@pytest.mark.parametrize(
    "scenario",
    [
        SCENARIO,
        SCENARIO.replace(max_wait_ms=math.inf),
        SCENARIO.replace(max_wait_ms=3),
        SCENARIO.replace(rule=bs.AtLeast(2, 8)),
        SCENARIO.replace(max_batch_size=1, servers=3),
        SCENARIO.replace(max_batch_size=1, workload=bs.Gamma(100, 2)),
        SCENARIO.replace(slowdown={1: 1.5}),
    ],
    ids=lambda scenario: f"{scenario.workload}, {scenario.rule}",
)
def test_each_point_is_what_is_expected_there(scenario):
    rates = [load * scenario.full_batches_per_s for load in (0.1, 0.5, 0.95)]
    found = theory_curve(scenario, rates)
    assert found.rate_per_s.tolist() == rates
    answers = [expected(scenario.replace(rate_per_s=rate)) for rate in rates]
    assert found.mean_ms.tolist() == [answer.mean_latency_ms for answer in answers]
    assert (found.model, found.reason) == (answers[0].model, "")


def test_it_goes_through_the_simulated_means():
    simulated = load_curve(SCENARIO, 200_000)
    theory = theory_curve(SCENARIO, simulated.x_values)
    at = np.searchsorted(simulated.x_values, theory.rate_per_s)
    apart = theory.mean_ms / simulated.mean_ms[at] - 1
    steady = theory.rate_per_s < 0.95 * simulated.saturation
    assert steady.sum() >= 5
    assert np.abs(apart[steady]).max() < 0.02


def test_it_says_nothing_from_saturation_on():
    found = theory_curve(SCENARIO, [500, SCENARIO.full_batches_per_s, 5000])
    assert np.isnan(found.mean_ms).tolist() == [False, True, True]
    assert found.reason == ""


def test_of_many_rates_it_takes_the_first_the_last_and_some_between():
    rates = np.linspace(0.02, 1.2, 40) * SCENARIO.full_batches_per_s
    steady = rates[rates < SCENARIO.full_batches_per_s]
    found = theory_curve(SCENARIO, rates)
    known = found.rate_per_s[np.isfinite(found.mean_ms)]
    assert known.size == POINTS
    assert known[[0, -1]].tolist() == steady[[0, -1]].tolist()
    assert set(known) <= set(steady)
    assert found.rate_per_s[POINTS:].tolist() == rates[steady.size :].tolist()


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"servers": 2}, "batches of up to 8 are solved for one server only, got 2"),
        ({"queue_limit": 4}, "a queue_limit of 4"),
        ({"workload": bs.ClosedLoop(3)}, "arrivals must be Poisson, Gamma or Constant, got"),
        ({"workload": bs.Trace([0, 1.0])}, "arrivals must be Poisson, Gamma or Constant, got"),
        ({"max_batch_size": 65}, "batches must be at most 64"),
        ({"max_wait_ms": 30}, "max wait must be 0, inf, or at most the 7 ms"),
    ],
    ids=repr,
)
def test_where_theory_says_nothing_it_says_why(knobs, reason):
    found = theory_curve(SCENARIO.replace(**knobs), [100, 200])
    assert np.isnan(found.mean_ms).all()
    assert found.reason.startswith(reason)
    assert found.model == ""


def test_where_every_rate_is_too_high_it_says_so():
    found = theory_curve(SCENARIO, [2000, 3000])
    assert np.isnan(found.mean_ms).all()
    assert found.reason == "a rate must be below 1,142.86/s for a mean, got 2,000/s"


def test_what_was_worked_out_is_kept(monkeypatch):
    first = theory_curve(SCENARIO, [300, 400])
    monkeypatch.setattr(sys.modules[theory_curve.__module__], "expected", None)
    assert theory_curve(SCENARIO.replace(rate_per_s=5), [300, 400]).mean_ms.tolist() == first.mean_ms.tolist()


# Two would be served at 667/s, but where eight wait, all eight are taken, at 400/s.
TAKES_ALL, SLOW = bs.SizeOrWait(8, 0), bs.Table({1: 5, 2: 3, 8: 20})


@refusals
def test_what_has_no_steady_state_or_makes_no_sense_is_refused():
    """
    theory.expected(scenario(bs.Poisson(2000), bs.SizeOrWait(1, 0)))
        -> load must be below 1, got ...: 2,000/s with
    theory.expected(scenario(bs.Poisson(2000), bs.SizeOrWait(8, 5)))
        -> load must be below 1, got ...: 2,000/s with
    theory.expected(scenario(bs.Poisson(2000), bs.AtLeast(2, 8)))
        -> load must be below 1, got ...: 2,000/s with
    theory.expected(scenario(bs.Poisson(500), TAKES_ALL, SLOW)) -> 500/s with saturation at 400/s
    theory.expected(5) -> TypeError: scenario must be a Scenario, got 5
    theory_curve(SCENARIO, []) -> rates must rise, got []
    theory_curve(SCENARIO, [2, 1]) -> rates must rise, got
    theory_curve(SCENARIO, [1, 1]) -> rates must rise, got
    theory_curve(SCENARIO, [0]) -> a rate must be greater than 0
    theory_curve(SCENARIO, [-1]) -> a rate must be greater than 0
    theory_curve(SCENARIO, [math.nan]) -> a rate must be a number
    theory_curve(SCENARIO, [math.inf]) -> a rate must be finite
    """
