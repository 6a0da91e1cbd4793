import re
from datetime import UTC, datetime, timedelta

import jax
import numpy as np
import pytest

import batchsim as bs
from batchsim.device import Measurement, load_model, measure


class Recorder:
    """A model that writes down the batches that it gets."""

    def __init__(self):
        self.batches = []

    def __call__(self, batch):
        self.batches.append(batch)
        return batch.sum(axis=1)

    @property
    def sizes(self):
        return [len(batch) for batch in self.batches]


def refused(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


# What is measured.


@pytest.mark.parametrize("pad_to", [None, [1, 4]])
def test_a_model_is_measured_at_every_size(pad_to):
    model = load_model("mlp", width=8, pad_to=pad_to)
    measured = measure(model, [1, 2, 4], repeats=3, warmup=1)
    assert measured.model == "mlp"
    assert measured.device == model.device
    assert measured.platform == jax.default_backend()
    assert measured.jax_version == jax.__version__
    assert measured.batch_sizes == (1, 2, 4)
    assert measured.repeats == 3
    assert [len(row) for row in measured.samples_ms] == [3, 3, 3]
    assert all(ms > 0 for row in measured.samples_ms for ms in row)
    assert list(measured.compile_s) == [1, 2, 4]
    age = datetime.now(UTC) - datetime.fromisoformat(measured.measured_at)
    assert timedelta(0) <= age < timedelta(minutes=5)


def test_every_size_is_compiled_in_its_first_call_and_never_later():
    compiled = []

    def listen(event, duration, **_):
        if "backend_compile" in event:
            compiled.append(event)

    model = load_model("mlp", width=8)
    model(model.inputs(2))  # compiled before: measuring forgets it
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        measure(model, [1, 2], repeats=2, warmup=1)
        assert len(compiled) == 2
        model(model.inputs(2))  # and leaves the model warm
        assert len(compiled) == 2
    finally:
        jax.monitoring.clear_event_listeners()


def test_all_sizes_warm_up_then_every_round_has_every_size_once():
    recorder = Recorder()
    measure(recorder, [1, 4, 2], repeats=6, warmup=2, example=np.arange(3.0))
    assert recorder.sizes[:9] == [1] * 3 + [4] * 3 + [2] * 3
    rounds = np.reshape(recorder.sizes[9:], (6, 3)).tolist()
    assert all(sorted(each) == [1, 2, 4] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1


def test_the_seed_decides_the_order_of_the_rounds():
    first, second, other = Recorder(), Recorder(), Recorder()
    for recorder, seed in ((first, 1), (second, 1), (other, 2)):
        measure(recorder, repeats=3, warmup=0, example=[1.0], seed=seed)
    assert first.sizes == second.sizes
    assert first.sizes != other.sizes


def test_the_batch_of_a_callable_is_the_example_repeated():
    recorder = Recorder()
    measure(recorder, [3], repeats=1, warmup=0, example=[1, 2])
    np.testing.assert_array_equal(recorder.batches[0], [[1, 2]] * 3)


def test_a_model_can_be_measured_on_an_example():
    model = load_model("mlp", width=8)
    assert measure(model, [2], repeats=1, warmup=0, example=np.zeros(784)).batch_sizes == (2,)


def test_a_callable_that_is_not_jax_is_measured_on_the_cpu():
    measured = measure(Recorder(), [1], repeats=1, warmup=0, example=[1.0])
    assert measured.model == "Recorder"
    assert measured.platform == "cpu"
    assert measured.device.startswith("CPU")


def test_a_jitted_function_is_measured_where_its_output_is():
    @jax.jit
    def doubled(batch):
        return {"twice": batch * 2}

    measured = measure(doubled, [1, 2], repeats=2, warmup=0, example=[1.0])
    assert measured.model == "doubled"
    assert measured.platform == jax.default_backend()


def test_a_scenario_runs_on_what_was_measured():
    model = load_model("mlp", width=8)
    service = measure(model, [1, 4], repeats=3).service
    scenario = bs.Scenario(bs.Poisson(50), bs.SizeOrWait(4, 2.0), service)
    result = bs.simulate(scenario, requests=20, engine="simpy")
    assert np.isfinite(result.latency_ms).all()


def test_a_real_measurement_comes_back_exactly(tmp_path):
    measured = measure(Recorder(), [1, 2], repeats=4, example=[1.0])
    measured.save(tmp_path / "curve.json")
    assert Measurement.load(tmp_path / "curve.json") == measured


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_sizes": []}, ValueError, "batch_sizes must not be empty, got []"),
        ({"batch_sizes": 4}, TypeError, "batch_sizes must be a list of sizes, got 4"),
        ({"batch_sizes": [0]}, ValueError, "a size in batch_sizes must be at least 1, got 0"),
        ({"batch_sizes": [1, 1.5]}, TypeError, "a size in batch_sizes must be a whole number, got 1.5"),
        ({"batch_sizes": [2, 1, 2]}, ValueError, "batch_sizes must differ, got [2, 1, 2]"),
        ({"repeats": 0}, ValueError, "repeats must be at least 1, got 0"),
        ({"repeats": 2.5}, TypeError, "repeats must be a whole number, got 2.5"),
        ({"warmup": -1}, ValueError, "warmup must be at least 0, got -1"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        (
            {"example": None},
            TypeError,
            "example must be one item of a batch if model is a plain callable, got None",
        ),
        ({"model": 3}, TypeError, "model must be callable, got 3"),
    ],
)
def test_bad_arguments_are_refused_before_any_run(arguments, error, message):
    recorder = Recorder()
    with refused(error, message):
        measure(**{"model": recorder, "example": [1.0]} | arguments)
    assert recorder.sizes == []


def test_a_size_above_the_padding_is_refused():
    model = load_model("mlp", width=8, pad_to=[1, 2])
    with refused(ValueError, "a batch must be at most the largest of pad_to, 2, got 4"):
        measure(model, [1, 4])


def test_an_example_that_is_no_item_is_refused():
    with refused(ValueError, "a batch of mlp must have shape (batch, 784), got (1, 3)"):
        measure(load_model("mlp", width=8), [1], example=[1, 2, 3])


# Memory.


def test_a_batch_that_does_not_fit_in_the_devices_memory_is_a_memory_error():
    @jax.jit
    def vast(batch):
        return jax.numpy.zeros((len(batch) - 1, 10**7, 10**7)) + batch.sum()

    with pytest.raises(MemoryError, match=r"a batch of 2 must fit in the device's memory, got .*allocat"):
        measure(vast, [1, 2], repeats=1, example=[1.0])


def test_other_errors_of_a_model_are_its_own():
    def broken(batch):
        raise RuntimeError("of the model")

    with pytest.raises(RuntimeError, match=r"^of the model$"):
        measure(broken, [1], repeats=1, example=[1.0])


def test_weights_that_do_not_fit_are_a_memory_error(monkeypatch):
    def full(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")

    monkeypatch.setattr(jax, "device_put", full)
    with pytest.raises(MemoryError, match=r"mlp of width 8 and 3 layers must fit .* allocating 8 bytes"):
        load_model("mlp", width=8)
