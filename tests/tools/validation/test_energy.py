"""Energy by batch size: what is simulated at a size that the model lacks, beside what was measured there."""

from statistics import median

import numpy as np
import pytest
from validation import energy

import batchsim as bs

LLAMA = bs.published_watts("llama-3.1-8b/h100")


def test_a_simulated_size_is_interpolated_between_its_neighbours():
    by_hand_w = np.interp(96, [64, 128], [LLAMA.watts[64], LLAMA.watts[128]])
    seconds = np.interp(96, [64, 128], [n * LLAMA.joules[n] / LLAMA.watts[n] for n in (64, 128)])
    assert energy.joules(LLAMA, 96, lacks=96) == pytest.approx(by_hand_w * seconds / 96, rel=1e-6)
    assert energy.joules(LLAMA, 96) == pytest.approx(LLAMA.joules[96], rel=1e-6)


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_held_out_sizes_are_within_5_percent_in_the_median_of_the_curves(gpu):
    errors = []
    for curve in energy.curves("token", gpu):
        ours, theirs, _ = energy.typical(curve)
        errors.append(abs(ours / theirs - 1))
    assert len(errors) >= 10
    assert median(errors) < energy.SURE


def test_at_least_20_curves_are_compared():
    assert sum(len(energy.curves("token", gpu)) for gpu in ("a100", "h100", "b200")) >= 20


def test_the_line_by_throughput_finds_a_line():
    watts = {8: 100 + 2 * 50, 16: 100 + 2 * 80, 32: 100 + 2 * 120, 64: 100 + 2 * 150}
    per_s = dict(zip(watts, (50, 80, 120, 150), strict=True))
    joules = {size: drawn / per_s[size] for size, drawn in watts.items()}
    curve = bs.published_watts("llama-3.1-8b/h100").__class__("x", watts, joules, "token", "", "", "")
    assert max(energy.watts_errors(curve, energy.by_throughput)) < 1e-9
    assert max(energy.watts_errors(curve, energy.by_size)) > 0.01
