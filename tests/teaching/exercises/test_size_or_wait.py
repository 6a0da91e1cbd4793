"""The exercises of lesson 04: typical wrong answers, and simulations that agree with what is right."""

import numpy as np
import pytest

import batchsim as bs
from batchsim.teaching import EXERCISES, SERVICE

pytestmark = pytest.mark.usefixtures("right_once")


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
