"""The exercises of lesson 04: typical wrong answers, and simulations that agree with what is right."""

import numpy as np
import pytest
from answers import said

import batchsim as bs
from batchsim.teaching import EXERCISES, SERVICE

pytestmark = pytest.mark.usefixtures("right_once")


def run(rate_per_s, rule, requests=40_000, seed=1):
    return bs.simulate(bs.Scenario(bs.Poisson(rate_per_s), rule, SERVICE), requests, seed=seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_of_any_seed_gives_the_share_of_batches_that_a_free_server_took(capsys, seed):
    triggers = run(1000, bs.SizeOrWait(4, 2), seed=seed).batches.trigger
    assert said(capsys, "04.1", 100 * (triggers == bs.Trigger.BACKLOG).mean()).startswith("Right: ")


@pytest.mark.parametrize("apart_ms", [0.3, 0.84, 0.86, 1.5])
def test_two_photos_of_a_page_take_as_long_as_a_simulation_says(apart_ms):
    pages_s = np.arange(50) * 0.1
    trace = bs.Trace(np.sort(np.concatenate([pages_s, pages_s + apart_ms / 1000])))
    mean_ms = [
        bs.simulate(bs.Scenario(trace, bs.SizeOrWait(32, wait_ms), SERVICE)).mean_latency_ms
        for wait_ms in (0, apart_ms + 1e-6)
    ]
    asked = EXERCISES["04.2"]
    assert mean_ms == pytest.approx([asked.alone_ms(apart_ms), asked.together_ms(apart_ms)], abs=1e-4)
    assert (mean_ms[1] < mean_ms[0]) == (apart_ms < asked.right())


def test_the_photos_may_be_as_far_apart_as_paper_says():
    # d + 2.15 - d / 2 = (2 + 4 - d) / 2
    assert EXERCISES["04.2"].right() == pytest.approx(0.85, abs=1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_the_right_wait_a_run_of_any_seed_computes_half_of_the_time(seed):
    asked = EXERCISES["04.3"]
    result = run(1000, bs.SizeOrWait(32, asked.right()), seed=seed)
    assert result.utilisation == pytest.approx(0.5, abs=0.005)
