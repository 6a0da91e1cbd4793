"""A real model in the loop: its measured times move the simulated clock."""

import time

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines.draws import draw
from batchsim.engines.reference import engine
from batchsim.engines.stopwatch import Stopwatch

SCENARIO = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(4, 2), bs.Affine(1, 0.1))


class Recorder:
    """A model that takes 2 ms at least, and writes down the sizes of its batches."""

    def __init__(self):
        self.sizes = []

    def __call__(self, batch):
        self.sizes.append(len(batch))
        time.sleep(0.002)
        return batch * 10


class Told(Stopwatch):
    """A stopwatch that says a millisecond for the first item of the batch, two for the second, and so on."""

    def __call__(self, batch):
        self.seconds = 0.001 * (1 + batch[0])
        return batch


def measured(model, timing="measured", scenario=SCENARIO, requests=20):
    return bs.simulate(scenario, model_fn=model, inputs=np.arange(requests), timing=timing)


def test_a_batch_takes_as_long_as_the_model_really_took():
    result = measured(Recorder())
    assert (result.computing_ms >= 2).all()
    assert (result.computing_ms != 1000 * SCENARIO.service(1)).all()
    assert result.outputs == (np.arange(20) * 10).tolist()


def test_the_arrivals_are_those_of_any_other_simulation():
    assert np.array_equal(measured(Recorder()).arrival_s, bs.simulate(SCENARIO, 20).arrival_s)


def test_a_new_size_runs_twice_unless_the_start_is_cold():
    warm, cold = Recorder(), Recorder()
    sizes = measured(warm).batches.batch_size.tolist()
    assert len(warm.sizes) == len(sizes) + len(set(sizes))
    assert cold.sizes == measured(cold, "measured cold").batches.batch_size[: len(cold.sizes)].tolist()


@pytest.mark.parametrize(
    "rule", [bs.SizeOrWait(2, 1), bs.PreferredSizes([2], 2, 1), bs.FrozenBatches(2, 1)], ids=repr
)
def test_the_measured_time_stands_for_the_service_time_and_its_noise(rule):
    scenario = bs.Scenario(bs.Poisson(2000), rule, bs.Affine(1, 0.1).with_noise(0.5).compiling(9), servers=2)
    log = engine.run(draw(scenario, 100, seed=1), Told(np.negative), range(100))
    first = [np.flatnonzero(log.batch_index == batch)[0] for batch in range(log.batch_size.size)]
    took_s = log.batch_finish_s - log.batch_start_s
    assert took_s == pytest.approx(0.001 * (1 + np.array(first)), rel=1e-9)


def test_the_result_says_that_it_was_measured_and_on_what():
    result = measured(np.negative)
    assert result.engine == "simpy, measured on host"
    assert "not reproducible" in repr(result)
    assert "not reproducible" not in repr(bs.simulate(SCENARIO, 20))
    model = bs.device.load_model("mlp", width=8)
    assert bs.simulate(SCENARIO, model_fn=model, inputs=model.inputs(9), timing="measured").engine.endswith(
        f"measured on {model.device}"
    )
    jitted = bs.simulate(SCENARIO, model_fn=lambda b: model(b), inputs=model.inputs(9), timing="measured")
    assert jitted.engine == "simpy, measured on cpu"


def test_outputs_may_be_a_list_of_what_still_computes():
    model = bs.device.load_model("mlp", width=8)
    result = bs.simulate(
        SCENARIO, model_fn=lambda b: list(model(b)), inputs=model.inputs(9), timing="measured"
    )
    assert result.outputs[0].shape == (10,)
    assert result.engine == "simpy, measured on cpu"


def test_the_compiled_engine_refuses_a_model():
    with pytest.raises(ValueError, match="a model_fn"):
        bs.simulate(SCENARIO, engine="compiled", model_fn=np.negative, inputs=[1.0], timing="measured")


@pytest.mark.parametrize("timing", ["measured", "measured cold"])
def test_there_must_be_a_model_to_measure(timing):
    with pytest.raises(ValueError, match="model_fn"):
        bs.simulate(SCENARIO, 10, timing=timing)


def test_an_unknown_timing_is_refused():
    with pytest.raises(ValueError, match="did you mean 'measured'"):
        bs.simulate(SCENARIO, 10, timing="mesured")
