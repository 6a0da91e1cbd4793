"""Short runs that stand for long ones."""

import numpy as np
import pytest

import batchsim as bs
from batchsim.study.traffic import WINDOWS, Traffic

POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), bs.Affine(5, 0.25))


@pytest.mark.parametrize(
    "workload", [bs.Poisson(900), bs.OnOff(2000, 200, 5, 5), bs.Diurnal(900, 1.8, 60)], ids=repr
)
def test_a_short_run_is_windows_of_the_long_one_at_its_mean_rate(workload):
    scenario = POISSON.replace(workload=workload)
    traffic = Traffic(scenario, 54_000, seed=3)
    whole = bs.simulate(scenario, 54_000, seed=3).arrival_s
    short = traffic.run(scenario, 1_600)
    assert short.scenario.workload.offered_per_s == pytest.approx(54_000 / whole[-1])
    gaps_s, scale = np.diff(short.arrival_s), None  # rounded to nanoseconds, twice
    for window in range(WINDOWS):
        begin = window * 54_000 // WINDOWS
        there = np.diff(whole)[begin : begin + 99]
        found = gaps_s[window * 100 : window * 100 + 99]
        scale = found.sum() / there.sum() if scale is None else scale
        assert found == pytest.approx(scale * there, rel=1e-7, abs=3e-9)
    assert traffic.simulated == 1_600
    assert np.array_equal(traffic.run(scenario).arrival_s, whole)


@pytest.mark.parametrize(
    ("requests", "whole"),
    [(54_000, 54_000), (50_000, 54_000), (6_000, 54_000), (140_000, 162_000), (5_000, 5_000)],
)
def test_traffic_of_a_day_is_whole_periods_unless_those_are_ten_times_too_many(requests, whole):
    traffic = Traffic(POISSON.replace(workload=bs.Diurnal(900, 1.8, 60)), requests)
    assert traffic.requests == whole
    assert traffic.whole is (whole > 5_000)
