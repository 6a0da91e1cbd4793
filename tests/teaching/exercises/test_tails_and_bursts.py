"""The exercises of lesson 05: typical wrong answers, and other ways to find what is right."""

import numpy as np
import pytest
from answers import said

import batchsim as bs
from batchsim.teaching import EXERCISES, SERVICE

pytestmark = pytest.mark.usefixtures("right_once")


def test_the_share_of_slow_pages_is_that_of_drawn_ones():
    slow = np.random.default_rng(1).random((100_000, 40)) > 0.99
    assert 100 * slow.any(axis=1).mean() == pytest.approx(EXERCISES["05.1"].right(), abs=0.5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_burst_at_random_times_ends_as_slowly(capsys, seed):
    scenario = bs.Scenario(bs.Poisson(7000), bs.SizeOrWait(32, 0), SERVICE)
    result = bs.simulate(scenario, 10_800, seed=seed)
    before_the_end = result.arrival_s <= 1.5
    assert result.latency_ms[before_the_end][-1] == pytest.approx(EXERCISES["05.2"].right(), rel=0.1)


def test_as_many_are_slow_as_paper_says(capsys):
    # Of the request that comes t after the start: 1.5 s - t, and 2 ms for each of those before it and itself.
    slow_s = (1.5 + 0.002 - 0.1) / (1 - 200 * 0.002)
    assert said(capsys, "05.3", 100 * slow_s / 60).startswith("Right: ")


def test_all_who_come_in_the_stall_are_slow(capsys):
    stalled = SERVICE.compiling(1500)
    users = bs.simulate(bs.Scenario(bs.Constant(200), bs.SizeOrWait(1, 0), stalled), 12_000)
    in_stall = users.arrival_s < users.start_s[0] + 1.5 - 1e-9
    assert (users.latency_ms[in_stall] > 100).all()
    slow = users.latency_ms > 100
    assert "Right: 3.9 %, 468 of 12,000 requests" in said(capsys, "05.3", 100 * slow.mean())
    assert f"{in_stall.sum()} of them arrived during the stall" in said(capsys, "05.3", 100 * slow.mean())


def test_a_closed_loop_sees_the_same_stall_once():
    asked = EXERCISES["05.3"]
    stalled = SERVICE.compiling(asked.stall_ms)
    scenario = bs.Scenario(bs.ClosedLoop(1, think_s=0.003), bs.SizeOrWait(1, 0), stalled)
    assert (bs.simulate(scenario, asked.requests).latency_ms > asked.slow_ms).sum() == 1
