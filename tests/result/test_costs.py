"""Energy and cost by batch size: the curves are full batches without a pause."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim.result.costs import costs_of

WATTS = {0: 60, 1: 100, 8: 240, 32: 300}
PAID = bs.Scenario(bs.Poisson(300), bs.SizeOrWait(16, 5), bs.Affine(5, 0.25), watts=WATTS, price_per_hour=3)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_full_batches_without_a_pause_are_on_the_curves(size):
    full = bs.SizeOrWait(size, math.inf)
    result = bs.simulate(PAID.replace({"workload": bs.ClosedLoop(size), "rule": full}), 100 * size)
    found = costs_of(result)
    assert found.sizes[-1] == size
    assert found.ms[-1] == pytest.approx(5 + 0.25 * size)
    for kind, key in (("energy", "joules_per_request"), ("cost", "cost_per_million")):
        assert found.run[kind] == pytest.approx(result.summary()[key])
        assert found.each[kind][-1] == pytest.approx(found.run[kind], rel=1e-9)


def test_engines_with_all_seats_taken_are_on_the_curves_of_tokens():
    step = bs.StepTime(fixed_ms=2, weights_ms=8, per_token_ms=0.1, per_read_ms=0.001)
    scenario = bs.Scenario(
        bs.ClosedLoop(8), bs.Continuous(8), step, tokens=bs.Tokens(1, 300), watts=WATTS, price_per_hour=3
    )
    result = bs.simulate(scenario, 80)
    found = costs_of(result)
    assert found.unit == "token"
    for kind in ("energy", "cost"):
        assert found.each[kind][-1] == pytest.approx(found.run[kind], rel=0.005)
    assert found.ms[-1] == pytest.approx(np.diff(result.steps.finish_s).mean() * 1000, rel=0.005)


def test_a_captured_size_above_the_seats_is_not_on_the_curves_of_tokens():
    step = bs.StepTime(2, 8, 0.1, captured=(1, 2, 4, 8), beyond_ms=60)
    scenario = bs.Scenario(
        bs.ClosedLoop(6), bs.Continuous(6), step, tokens=bs.Tokens(1, 300), watts=WATTS, price_per_hour=3
    )
    result = bs.simulate(scenario, 60)
    found = costs_of(result)
    assert found.ms.tolist() == pytest.approx([10, 10, 10, 10, 60, 60])
    assert found.ms[-1] == pytest.approx(np.diff(result.steps.finish_s).mean() * 1000, rel=0.005)
