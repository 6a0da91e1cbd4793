"""Traffic that covers whole periods of a day."""

import pytest

import batchsim as bs
from batchsim.study.search import Traffic

POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), bs.Affine(5, 0.25))


@pytest.mark.parametrize(
    ("requests", "whole"),
    [(54_000, 54_000), (50_000, 54_000), (6_000, 54_000), (140_000, 162_000), (5_000, 5_000)],
)
def test_traffic_of_a_day_is_whole_periods_unless_those_are_ten_times_too_many(requests, whole):
    traffic = Traffic(POISSON.replace(workload=bs.Diurnal(900, 1.8, 60)), requests)
    assert traffic.requests == whole
    assert traffic.whole is (whole > 5_000)


def test_the_requests_of_a_longer_run_and_of_its_beginning_are_counted_together():
    traffic = Traffic(POISSON, 300)
    longer = traffic.resized(900)
    for each in (traffic, longer):
        each.run(POISSON)
    assert traffic.simulated == longer.simulated == 1200
