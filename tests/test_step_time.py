import math
from fractions import Fraction

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines import kernels_jit
from batchsim.scenario.step_time import StepCost, step_ms

REAL = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)


def cases(count=20_000):
    generator = np.random.default_rng(0)
    costs = (StepCost(*row) for row in generator.random((count, 5)).tolist())
    numbers = generator.integers(0, [3000, 10**6, 10**9], (count, 3)).tolist()
    return list(zip(costs, numbers, strict=True))


def fused(cost, tokens, reads, pairs):
    """The same with fused multiply-adds: rounded once for a product and its sum."""
    value = cost.fixed_ms + max(cost.weights_ms, cost.per_token_ms * tokens)
    for price, count in ((cost.per_read_ms, reads), (cost.per_pair_ms, pairs)):
        value = float(Fraction(price) * count + Fraction(value))
    return value


def test_numba_evaluates_a_step_as_python_does_and_fuses_nothing():
    loop = kernels_jit.compiled_anew(step_ms)
    differ = 0
    for cost, numbers in cases():
        assert loop(cost, *numbers) == step_ms(cost, *numbers)
        differ += fused(cost, *numbers) != step_ms(cost, *numbers)
    assert differ > 1000  # so that a fused one would show


def test_a_step_takes_the_longer_of_weights_and_arithmetic():
    step = bs.StepTime(2, 8, 0.1, 0.001, 0.00001)
    assert step.ms(1) == step.ms(80) == 10
    assert step.ms(100) == 12
    assert step.ms(100, reads=10, pairs=5050) == pytest.approx(12.0605)


def test_noise_is_kept_and_written():
    assert REAL.with_noise(0.2).noise == bs.Noise(0.2)
    assert repr(REAL.with_noise(0.2)).endswith("with_noise(0.2, 'lognormal')")
    assert "ragged=True" in repr(bs.StepTime(1, 1, 1, ragged=True))


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda: bs.StepTime(0, 0, 0, 1, 1), ValueError, "longer than 0 ms"),
        (lambda: bs.StepTime(-1, 0, 1), ValueError, "fixed_ms must be at least 0, got -1"),
        (lambda: bs.StepTime(1, math.nan, 1), ValueError, "weights_ms must be a number, got nan"),
        (lambda: bs.StepTime(1, 1, math.inf), ValueError, "per_token_ms must be"),
        (lambda: bs.StepTime(1, 1, 1, ragged=1), TypeError, "ragged must be True or False, got 1"),
        (lambda: REAL.padded_to([1, 2]), ValueError, "padded sizes need a service time by batch size"),
        (lambda: REAL(4), TypeError, "batch_size=4"),
    ],
)
def test_a_step_time_that_makes_no_sense_is_refused(wrong, error, words):
    with pytest.raises(error, match=words):
        wrong()
