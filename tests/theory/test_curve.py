"""Theory's curve is theory's answer at each of its rates, or says why there is none."""

import math
import sys

import numpy as np
import pytest

import batchsim as bs
from batchsim.study.surface import load_curve
from batchsim.theory import expected
from batchsim.theory.expected import POINTS, theory_curve

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
        (
            {"workload": bs.Trace([0, 1.0])},
            "arrivals must be Poisson, Gamma or Constant, got",
        ),
        ({"max_batch_size": 65}, "batches must be at most 64"),
        (
            {"max_wait_ms": 30},
            "max wait must be 0, inf, or at most the 7 ms",
        ),
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


@pytest.mark.parametrize("rates", [[], [2, 1], [1, 1]])
def test_rates_must_rise(rates):
    with pytest.raises(ValueError, match="rates must rise, got"):
        theory_curve(SCENARIO, rates)


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_a_rate_must_be_one(rate):
    with pytest.raises(ValueError, match="a rate must be"):
        theory_curve(SCENARIO, [rate])
