"""How two servers share a device, measured by models that share one in a known way."""

import threading
import time

import numpy as np
import pytest

import batchsim as bs
from batchsim.device import measure_sharing

ITEMS = np.arange(4.0)


def test_two_that_exclude_each_other_share_one_device():
    device = threading.Lock()

    def model(batch):
        with device:
            time.sleep(0.004)
        return batch

    found = measure_sharing(model, 4, seconds=0.4, rounds=1, inputs=ITEMS)
    one_ms = bs.Affine(4, 0)(1) * 1000
    assert found.host_ms < one_ms / 2
    assert found.contention < 1.5


def test_two_that_never_meet_have_a_host_part_as_long_as_all():
    def model(batch):
        time.sleep(0.004)
        return batch

    found = measure_sharing(model, 4, seconds=0.4, rounds=1, inputs=ITEMS)
    assert found.contention == 1
    assert found.host_ms > 1


def test_what_is_found_are_knobs_of_a_scenario():
    found = measure_sharing(np.negative, 2, seconds=0.05, rounds=1, inputs=ITEMS)
    scenario = bs.Scenario(
        bs.Poisson(10), bs.SizeOrWait(2, 0), bs.Affine(50, 0), servers=2, devices=1, **found
    )
    assert scenario.host_ms == found.host_ms


def test_a_model_that_fails_is_not_calibrated():
    def model(batch):
        if len(seen := calls) > 5:
            raise RuntimeError("no more")
        seen.append(1)
        return batch

    calls = []
    with pytest.raises(RuntimeError, match="no more"):
        measure_sharing(model, 2, seconds=0.05, rounds=1, inputs=ITEMS)


def test_a_plain_callable_needs_inputs():
    with pytest.raises(TypeError, match="inputs"):
        measure_sharing(np.negative, 2)
