"""What is drawn before a run: for maps and curves, whose draws are shared, it is the same as for a run."""

from dataclasses import fields

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines.draws import draw, draw_cached
from batchsim.scenario import Limited
from batchsim.simulate import simulated

PLAIN = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(4, 2), bs.Affine(5, 0.25).with_noise(0.3).compiling(9))
WORKLOADS = [
    bs.Poisson(900).with_priorities({1: 0.3, 2: 0.7}).with_sizes(bs.Uniform(1, 90)), bs.Constant(900),
    bs.Gamma(900, cv=2), bs.OnOff(2000, 100, 0.01, 0.01), bs.Diurnal(900, 1.5, 1),
    bs.Trace(np.arange(99) / 900),
    bs.ClosedLoop(5, 0.01), Limited(5, 0.01, times_s=tuple(np.arange(99) / 900)),
]  # fmt: skip


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("knobs", [{}, {"replicas": 3, "routing": "random"}], ids=["one", "three"])
def test_shared_draws_are_those_of_a_run_and_each_run_has_its_own(workload, knobs):
    scenario = PLAIN.replace(knobs | {"workload": workload})
    one, shared = draw(scenario, 99, 3), draw_cached(scenario, 99, 3, 4)
    for each in fields(one):
        mine, theirs = getattr(one, each.name), getattr(shared, each.name)
        if isinstance(mine, np.ndarray) or mine is None:
            np.testing.assert_array_equal(mine, theirs, each.name)
    first_s = one.first_s.copy()
    one.first_s[:] = -1.0  # as the engines do that note when clients send
    for again in (draw(scenario, 99, 3), shared):
        np.testing.assert_array_equal(again.first_s, first_s)


def test_each_replication_has_draws_of_its_own():
    first_s = [draw(PLAIN, 9, 3, replication).arrival_s[0] for replication in range(4)]
    assert len({*first_s}) == 4


@pytest.mark.parametrize("knobs", [{}, {"replicas": 3, "routing": "two_choices"}], ids=["one", "three"])
@pytest.mark.parametrize(
    "rule", [bs.SizeOrWait(4, 2), bs.PreferredSizes([2, 4], 4, 2)], ids=["plain", "general"]
)
def test_runs_that_share_their_arrivals_do_not_write_to_them(knobs, rule):
    scenario = PLAIN.replace(
        knobs | {"workload": bs.Poisson(901).with_priorities({1: 0.3, 2: 0.7}), "rule": rule}
    )
    first_s = draw(scenario, 99, 3).arrival_s
    shared = draw(scenario, 99, 3, shared=True).arrival_s
    result, _ = simulated(scenario, 99, 3, keep="requests", shared=True)
    assert result.summary()["served"] == 99
    assert shared is draw(scenario, 99, 3, shared=True).arrival_s
    for each in (shared, result.arrival_s):
        np.testing.assert_array_equal(each, first_s)
