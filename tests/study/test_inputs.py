"""What a choice does with other inputs that the measurement, or the trace, allows."""

import numpy as np
import pytest

import batchsim as bs
from batchsim.measured.measurement import Measurement
from batchsim.study.slo import SLO
from batchsim.study.tune import tune

SIZES = (1, 4, 16, 32)
GRID = {"max_batch_size": [16, 32], "max_wait_ms": [0, 4]}


def measured(rounds, cv=0.2):
    rng = np.random.default_rng(1)
    rows = tuple(tuple((5 + 0.25 * size) * rng.lognormal(-(cv**2) / 2, cv, rounds)) for size in SIZES)
    return Measurement("net", "a GPU", "gpu", "", SIZES, rounds, rows, (), "2026-01-01")


def tuned(measurement, limit_ms=30, **more):
    scenario = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(), measurement.service_with_noise())
    return tune(scenario, SLO(p99_ms=limit_ms), GRID, 50_000, measurement=measurement, **more)


@pytest.fixture(scope="module")
def few():
    return tuned(measured(10))


def test_a_measurement_is_drawn_twenty_times_for_half_of_the_search_s_requests(few):
    drawn, plain = few.input_uncertainty, tuned(measured(10), inputs=0)
    assert (drawn.draws, drawn.inputs, drawn.rivals) == (20, "service times", 2)
    assert plain.input_uncertainty is None
    assert few.requests_simulated <= 1.5 * plain.requests_simulated
    assert few.knobs == plain.knobs
    assert drawn.low < few.expected["p99_ms"].value < drawn.high
    assert f"With 20 bootstrap samples of the service times, p99 is {drawn.low:.3g} to" in (few.explain())


def test_a_longer_measurement_leaves_less_uncertain(few):
    widths = [
        np.log(each.input_uncertainty.high / each.input_uncertainty.low)
        for each in (few, tuned(measured(400)))
    ]
    assert widths[1] < 0.75 * widths[0]


def test_a_limit_in_the_midst_of_the_range_is_met_by_some_of_the_draws_alone(few):
    value = few.expected["p99_ms"].value
    near = tuned(measured(10), limit_ms=1.06 * value)
    assert near.met
    assert 0 < near.input_uncertainty.met < 20


def test_blocks_of_a_trace_that_swings_make_its_latency_uncertain():
    rng = np.random.default_rng(2)
    swings = np.repeat(rng.lognormal(0, 0.4, 60), 500)
    widths = []
    for factors in (1.0, swings):
        trace = bs.Trace(np.cumsum(rng.exponential(1 / 1200, 30_000) * factors))
        scenario = bs.Scenario(trace, bs.SizeOrWait(), bs.Affine(5, 0.25))
        found = tune(scenario, SLO(p99_ms=200), GRID, inputs=20)
        drawn = found.input_uncertainty
        assert (drawn.inputs, drawn.met) == ("traffic", 20)
        widths.append(np.log(drawn.high / drawn.low))
        if factors is swings:
            continue
        gaps_s = rng.exponential(1 / 1200, (20, 30_000))
        fresh = [found.scenario.replace(workload=bs.Trace(np.cumsum(gaps))) for gaps in gaps_s]
        p99_ms = [bs.simulate(each).percentile(99) for each in fresh]
        # A draw has a 24th of the trace, but stands for the p99 of all of it, as other whole traces do.
        assert 0.5 < widths[0] / np.log(max(p99_ms) / min(p99_ms)) < 2
    assert widths[0] < widths[1]


def test_inputs_that_are_no_samples_are_not_drawn():
    scenario = bs.Scenario(bs.Poisson(1200), bs.SizeOrWait(), bs.Affine(5, 0.25))
    assert tune(scenario, SLO(p99_ms=50), GRID, 5000, inputs=0).input_uncertainty is None
    with pytest.raises(ValueError, match=r"inputs must be samples .* a measurement= or a Trace, got Poisson"):
        tune(scenario, SLO(p99_ms=50), GRID, 5000, inputs=20)


def test_a_measurement_refuses_an_axis_of_the_service_and_must_be_one():
    measurement = measured(10)
    with pytest.raises(ValueError, match="over must not change the service with a measurement of it"):
        tune(
            bs.Scenario(bs.Poisson(900), bs.SizeOrWait(), measurement.service), SLO(p99_ms=50),
            {"service": {"a": bs.Affine(5, 1)}}, measurement=measurement,
        )  # fmt: skip
    with pytest.raises(TypeError, match="measurement must be a Measurement"):
        tune(
            bs.Scenario(bs.Poisson(900), bs.SizeOrWait(), measurement.service),
            SLO(p99_ms=50),
            GRID,
            measurement=3,
        )
