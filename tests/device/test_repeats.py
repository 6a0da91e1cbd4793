"""The same arrivals many times: what differs between the repeats, and whether their interval holds."""

import numpy as np
import pytest
from validation import predicted

import batchsim as bs
from batchsim.device.fidelity import KEYS, SHARES, Repeats

SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(2, 0.5).with_noise(0.3))


def test_repeats_have_the_arrivals_of_the_run_and_noise_of_their_own():
    quiet = SCENARIO.replace(service=bs.Affine(2, 0.5))
    known = bs.simulate(quiet, 300, seed=4)
    repeats = Repeats.of(SCENARIO, [quiet.service] * 5, KEYS, 300, seed=4)
    for key in KEYS:
        assert repeats.numbers[key] == pytest.approx([known.metrics.number(key)] * 5, rel=0)
    assert np.array_equal(repeats.latency_ms[3], known.metrics.percentiles(SHARES))
    noisy = Repeats.of(SCENARIO, [SCENARIO.service] * 5, KEYS, 300, seed=4)
    assert np.unique(noisy.numbers["p99_ms"]).size == 5


def test_both_engines_repeat_alike():
    rule = bs.SizeOrWait(8, 5)

    class Slow(type(rule)):
        compiled = False

    services = [SCENARIO.service] * 3
    slow = SCENARIO.replace(rule=Slow(8, 5))
    fast, reference = (Repeats.of(each, services, KEYS, 200, 1) for each in (SCENARIO, slow))
    assert np.array_equal(fast.latency_ms, reference.latency_ms)


def test_a_warmup_is_left_out():
    every, late = (Repeats.of(SCENARIO, [SCENARIO.service], KEYS, 300, 1, warmup) for warmup in (0, 0.5))
    expected = bs.simulate(SCENARIO, 300, 1, warmup=0.5)
    assert every.median("mean_latency_ms") != late.median("mean_latency_ms")
    assert late.median("throughput_per_s") == pytest.approx(expected.throughput_per_s, rel=0.05)


@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_a_run_is_inside_the_interval_of_its_prediction_nearly_always(load):
    shares = predicted.coverage(load, experiments=10, requests=1500, repeats=40, rounds=20)
    inside = [share for share, _ in shares.values()]
    assert np.mean(inside) > 0.75  # of ten runs; of 80 it is 0.91 to 0.97
    assert min(inside) > 0.6
    widest = {0.5: 0.6, 0.8: 3.0, 0.9: 6.0}[load]
    assert all(0 < width < widest for _, width in shares.values()), "an interval of anything holds anything"


def test_a_run_of_another_server_is_outside():
    wrong = [
        predicted.experiment(0.5, seed, 1500, 40, 20, speed=1.25)["mean_latency_ms"] for seed in range(4)
    ]
    assert sum(low <= real <= high for low, high, real, _ in wrong) <= 1
