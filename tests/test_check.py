"""What is wrong is told in our own words, also where it is an array."""

from functools import cache

import numpy as np
import pandas
import pytest

import batchsim as bs
from batchsim import _check
from batchsim.scenario.noise import Noise
from batchsim.study.slo import SLO
from batchsim.study.surface import surface
from batchsim.theory import light_traffic_latency_ms

SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))


@cache
def run():
    return bs.simulate(SCENARIO, 100)


OVER, P99 = {"max_batch_size": [4, 8]}, SLO(p99_ms=50)
ONE_VALUE = {
    "requests": lambda value: bs.simulate(SCENARIO, value),
    "seed": lambda value: bs.simulate(SCENARIO, 100, seed=value),
    "engine": lambda value: bs.simulate(SCENARIO, 100, engine=value),
    "keep": lambda value: bs.simulate(SCENARIO, 100, keep=value),
    "warmup": lambda value: bs.simulate(SCENARIO, 100, warmup=value),
    "replications": lambda value: bs.simulate(SCENARIO, 100, replications=value),
    "warmup of a sweep": lambda value: bs.sweep(SCENARIO, OVER, 100, warmup=value, progress=False),
    "engine of a sweep": lambda value: bs.sweep(SCENARIO, OVER, 100, engine=value, progress=False),
    "prefer": lambda value: bs.tune(SCENARIO, P99, OVER, requests=100, prefer=value),
    "tolerance": lambda value: bs.capacity(SCENARIO, P99, requests=100, tolerance=value),
    "p99_ms": lambda value: SLO(p99_ms=value),
    "servers": lambda value: SCENARIO.replace(servers=value),
    "timeout_ms": lambda value: SCENARIO.replace(timeout_ms=value),
    "max_wait_ms": lambda value: bs.SizeOrWait(8, value),
    "rate_per_s": bs.Poisson,
    "cv": Noise,
    "shape": lambda value: Noise(1, value),
    "factor": lambda value: SCENARIO.service.scaled(value, 8),
    "changes": SCENARIO.replace,
    "q": lambda value: run().percentile(value),
    "unserved": lambda value: run().percentile(50, unserved=value),
    "timer": lambda value: light_traffic_latency_ms(SCENARIO.rule, SCENARIO.service, timer=value),
}
ARRAYS = [
    np.array([0.1, 0.2]), np.array([]), np.array(0.1), np.array(["auto", "auto"]), pandas.Series([1, 2]),
    pandas.DataFrame({"a": [1, 2]}),
]  # fmt: skip


@pytest.mark.parametrize("value", ARRAYS)
@pytest.mark.parametrize("name", ONE_VALUE)
def test_an_array_is_not_one_value(name, value):
    with pytest.raises((TypeError, ValueError), match=rf"^{name.split()[0]}.* must "):
        ONE_VALUE[name](value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda values: bs.sweep(SCENARIO, {"max_batch_size": values}, 100, progress=False),
        lambda values: surface(SCENARIO, values, [0, 1]),
        lambda values: bs.compare(run(), run(), values),
        lambda values: bs.batch_inference(list, values),
        lambda values: bs.simulate(SCENARIO, model_fn=list, inputs=values),
        SCENARIO.service.padded_to,
    ],
)
@pytest.mark.parametrize("values", [np.array(3), np.float64(3), 3])
def test_one_value_is_no_list(ask, values):
    with pytest.raises((TypeError, ValueError), match=r" must be a (list|sequence)"):
        ask(values)


def test_a_word_is_one_of_those_known():
    assert _check.one_of("colour", "red", ("red", "green")) == "red"
    with pytest.raises(
        ValueError, match=r"colour must be one of red, green, got 'reed'; did you mean 'red'\?"
    ):
        _check.one_of("colour", "reed", ("red", "green"))
