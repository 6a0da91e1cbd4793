"""How two servers share a device, measured by models that share one in a known way."""

import sys
import threading
import time
from itertools import pairwise
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest

import batchsim as bs
from batchsim.device import measure_sharing, sharing

ITEMS = np.arange(4.0)
REPLAY = "batchsim.device.replay"  # where the function hides the module of its name


@pytest.fixture
def played(monkeypatch):
    """What is replayed, in order."""
    results, play = [], sys.modules[REPLAY].play
    monkeypatch.setattr(sys.modules[REPLAY], "play", lambda *what: results.append(play(*what)) or results[-1])
    return results


def overlapping(result):
    """How many batches begin before the one before them ends."""
    begin_s, finish_s = result.batches.start_s, result.batches.finish_s
    return sum(begin_s[after] < finish_s[before] for before, after in pairwise(range(begin_s.size)))


def test_one_server_and_two_are_replayed_in_turn_and_their_median_throughputs_compared(played):
    found = measure_sharing(np.negative, 4, seconds=0.05, rounds=3, inputs=ITEMS)
    _, *rounds = played  # the first says how many batches make a round
    assert [result.scenario.servers for result in rounds] == [1, 2] * 3
    assert len({result.requested for result in rounds}) == 1
    assert {batch for result in rounds for batch in result.batches.batch_size} == {4}
    one_per_s, two_per_s = (median(result.throughput_per_s for result in rounds[of::2]) for of in (0, 1))
    assert found == sharing(one_per_s, two_per_s, bs.Table({4: 4000 / one_per_s}), 4)


@pytest.mark.parametrize(("host_ms", "contention"), [(0, 1), (1.5, 1), (3.2, 1), (0, 1.4)])
def test_a_device_that_is_shared_in_a_known_way_is_found_to_be(monkeypatch, host_ms, contention):
    known = {"service": bs.Affine(3, 0.25), "devices": 1, "host_ms": host_ms, "contention": contention}

    def simulated(scenario, model, items, count):
        result = bs.simulate(scenario.replace(known), count)
        return SimpleNamespace(throughput_per_s=result.throughput_per_s, error="")

    monkeypatch.setattr(sys.modules[REPLAY], "play", simulated)
    found = measure_sharing(np.negative, 4, inputs=ITEMS)
    expected_ms = min(host_ms, 2)  # where more than half is on the host, two never meet
    assert found.host_ms == pytest.approx(expected_ms, abs=0.02)
    assert found.contention == pytest.approx(contention, abs=0.01)


def test_two_that_exclude_each_other_carry_no_more_than_the_device_does(played):
    device = threading.Lock()

    def model(batch):
        with device:
            time.sleep(0.004)
        return batch

    measure_sharing(model, 4, seconds=0.2, rounds=1, inputs=ITEMS)
    assert max(result.throughput_per_s for result in played) < 4 / 0.004


def test_two_compute_at_the_same_time_and_one_never(played):
    def model(batch):
        time.sleep(0.004)
        return batch

    measure_sharing(model, 4, seconds=0.2, rounds=1, inputs=ITEMS)
    _, one, two = played
    assert overlapping(one) == 0
    assert overlapping(two) > 0


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
