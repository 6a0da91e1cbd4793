import functools
import itertools
import re
import time
from datetime import UTC, datetime, timedelta

import jax
import numpy as np
import pytest

import batchsim as bs
from batchsim.device import Measurement, load_model
from batchsim.device import measure as measure_with_bar
from batchsim.measured.measuring import peak_rates
from batchsim.measured.sized_measurement import SizedMeasurement


def test_a_roofline_counts_each_operation_and_each_byte_that_is_read_or_written(monkeypatch):
    measured = peak_rates.__wrapped__  # without the cache
    monkeypatch.setitem(measured.__globals__, "_fastest_s", lambda *_, again: {100: 1.0, 1000: 0.001})
    assert measured() == (2 * 1000**3 / 0.001, 2 * 4 * 1000**2 / 0.001)


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


measure = functools.partial(measure_with_bar, progress=False, roofline=False)


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


def test_every_size_is_compiled_in_its_first_call_and_never_later(compilations):
    model = load_model("mlp", width=8)
    model(model.inputs(2))  # compiled before: measuring forgets it
    compilations.clear()
    measure(model, [1, 2], repeats=2, warmup=1)
    assert len(compilations) == 2
    model(model.inputs(2))  # and leaves the model warm
    assert len(compilations) == 2


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


@jax.jit
def doubled(batch):
    return {"twice": batch * 2}


@pytest.mark.parametrize(
    ("model", "name", "platform"),
    [(Recorder(), "Recorder", "cpu"), (doubled, "doubled", jax.default_backend())],
)
def test_a_callable_is_measured_where_its_output_is(model, name, platform):
    measured = measure(model, [1, 2], repeats=2, warmup=0, example=[1.0])
    assert (measured.model, measured.platform) == (name, platform)
    assert measured.device.startswith("CPU") == (platform == "cpu")


class Timed(Recorder):
    """A model whose calls take given milliseconds, of a clock that its calls alone move."""

    def __init__(self, monkeypatch, ms):
        super().__init__()
        self.now_s, self.ms = 0.0, ms
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)

    def __call__(self, batch):
        self.now_s += self.ms(len(batch), self.sizes.count(len(batch))) / 1000
        return super().__call__(batch)


def test_a_size_is_timed_until_its_median_is_known(monkeypatch):
    generator = np.random.default_rng(0)
    cv = {1: 0.2, 8: 0.01}
    model = Timed(monkeypatch, lambda size, _: size * np.exp(cv[size] * generator.standard_normal()))
    measured = measure(model, [1, 8], target=0.02, limit_s=10, example=[1.0])
    noisy, quiet = map(len, measured.samples_ms)
    assert quiet < 200 < noisy
    assert measured.repeats == quiet
    assert measured.target == 0.02
    assert not measured.notes
    low, high = measured.interval_ms[1]
    assert (high - low) / 2 / measured.median_ms[1] <= 0.02


def test_no_size_settles_within_the_first_tenth_of_the_time(monkeypatch):
    measured = measure(Timed(monkeypatch, lambda size, _: 1.0), [1, 2], limit_s=2, example=[1.0])
    assert 0.2 <= sum(map(sum, measured.samples_ms)) / 1000 < 0.23


def test_the_time_ends_all_sizes_and_the_result_says_what_is_not_known(monkeypatch):
    model = Timed(monkeypatch, lambda size, count: (5.6 if count % 2 else 2.9) if size == 1 else 4.0 * size)
    measured = measure(model, [1, 32], limit_s=1.5, example=[1.0])
    assert 1.5 <= sum(map(sum, measured.samples_ms)) / 1000 < 1.65
    assert ("two levels", 1) in [(note.key, note.batch_size) for note in measured.notes]


def test_every_size_has_a_sample_however_little_time_there_is(monkeypatch):
    measured = measure(Timed(monkeypatch, lambda *_: 900.0), [1, 2, 4], limit_s=0.1, example=[1.0])
    assert [len(row) for row in measured.samples_ms] == [1, 1, 1]


def test_no_size_has_more_samples_than_tell_anything(monkeypatch):
    model = Timed(monkeypatch, lambda size, count: 0.001 * (1 + count % 7))
    measured = measure(model, [1], target=1e-6, limit_s=1e6, example=[1.0])
    assert 1000 <= measured.repeats < 1200


def test_a_bar_is_shown_and_goes(capfd):
    measure_with_bar(Recorder(), [1], repeats=2, example=[1.0], roofline=False)
    assert "measure" in capfd.readouterr().err
    measure(Recorder(), [1], repeats=2, example=[1.0])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("pad_to", [None, [4]])
def test_without_the_copy_the_batch_is_on_the_device_before(monkeypatch, pad_to):
    model, put = load_model("mlp", width=8, pad_to=pad_to), []
    real = jax.device_put

    def note(batch, *device, **options):
        put.append(batch.shape)
        return real(batch, *device, **options)

    monkeypatch.setattr(jax, "device_put", note)
    measured = measure(model, [1, 4], repeats=3, copy=False)
    assert put == [(1 if pad_to is None else 4, 784), (4, 784)]
    assert measured.copy is False
    assert "without the copy" in repr(measured)


def test_a_callable_gets_its_batch_on_the_device_without_the_copy():
    recorder = Recorder()
    measure(recorder, [2], repeats=1, copy=False, example=[1.0])
    assert all(isinstance(batch, jax.Array) for batch in recorder.batches)


def test_the_programs_operations_and_bytes_are_known_of_what_jax_compiled():
    model = load_model("mlp", width=64, layers=1)
    measured = measure(model, [1, 8], repeats=2, roofline=True)
    products = 2 * (784 * 64 + 64 * 10)
    for size, (flops, moved) in zip(measured.batch_sizes, measured.program, strict=True):
        assert size * products <= flops < 1.1 * size * products
        assert moved >= 4 * (model.parameters + size * 784)
    assert min(measured.roofline) > 1e6
    assert measured.bound_ms.keys() == {1, 8}
    assert measure(jax.jit(lambda batch: batch * 2), [1], repeats=1, example=[1.0], roofline=True).bound_ms
    assert measure(Recorder(), [1], repeats=1, example=[1.0], roofline=True).bound_ms == {}


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
        ({"target": 0}, ValueError, "target must be greater than 0, got 0"),
        ({"limit_s": -1}, ValueError, "limit_s must be greater than 0, got -1"),
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


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (lambda batch: batch[:1], "of shape (2, ...), got shape (1, 3)"),
        (lambda batch: batch.sum(), "of shape (2, ...), got shape ()"),
        (lambda batch: ["a", "b", "c"], "of shape (2, ...), got shape (3,)"),
        (lambda batch: {"logits": batch, "loss": batch.sum()}, "of shape (2, ...), got shape ()"),
        (jax.jit(lambda batch: batch.T), "of shape (2, ...), got shape (3, 2)"),
        (lambda batch: None, "of shape (2, ...), got None"),
        (lambda batch: [None, None], "of shape (2, ...), got [None, None]"),
    ],
)
def test_a_model_that_changes_the_first_dimension_is_refused(model, rule):
    with refused(ValueError, f"a model must return one output per item, {rule}"):
        measure(model, [2], example=[1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "model",
    [
        lambda batch: [f"of {len(item)}" for item in batch],
        lambda batch: (batch, {"sums": batch.sum(axis=1)}),
        lambda batch: [{"logits": item, "best": int(item.argmax())} for item in batch],
    ],
)
def test_one_output_an_item_may_be_a_list_or_arrays_in_containers(model):
    assert measure(model, [1, 3], repeats=1, example=[1.0, 2.0]).batch_sizes == (1, 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
def test_a_model_whose_output_is_nan_is_refused(dtype):
    @jax.jit
    def broken(batch):
        return (batch.at[-1, 0].set(jax.numpy.nan)).astype(dtype)

    with refused(ValueError, "a model's output must be numbers, got NaN in one of shape (4, 2)"):
        measure(broken, [4], example=[1.0, 2.0])


LATER = [
    (lambda batch: None, "a model's output must stay of type ndarray, got None"),
    (lambda batch: batch[:1], "of shape (2, ...), got shape (1, 2)"),
    (lambda batch: batch * np.nan, "a model's output must be numbers, got NaN in one of shape (2, 2)"),
    (lambda batch: batch * np.inf, "a model's output must stay finite"),
]


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize(("other", "rule"), LATER)
def test_a_model_that_changes_while_it_is_measured_is_refused(other, rule, served):
    calls = itertools.count()

    def model(batch):
        return batch if next(calls) < 7 else other(batch)

    said = f"({re.escape(rule)}.*, in a batch of 2 after [39] timed ones|one output per input, 2, got)"
    with pytest.raises(ValueError, match=said):
        measure(model, [2], repeats=9, example=[1.0, 2.0], served=served)


# Memory.


@jax.jit
def vast(batch):
    """A model that needs a moment for one item, and more memory than there is for two."""
    return jax.numpy.zeros((len(batch), (len(batch) - 1) * 10**7, 10**7)) + batch.sum()


def test_a_batch_that_does_not_fit_in_the_devices_memory_is_a_memory_error():
    with pytest.raises(MemoryError, match=r"a batch of 2 must fit in the device's memory, got .*allocat"):
        measure(vast, [2], repeats=1, example=[1.0])


def test_a_size_that_does_not_fit_is_reported_and_the_others_are_measured():
    measured = measure(vast, [1, 2, 3], repeats=2, example=[1.0])
    assert measured.batch_sizes == (1,)
    assert [size for size, _ in measured.not_fitting] == [2, 3]
    assert [note.batch_size for note in measured.notes if note.key == "memory"] == [2, 3]
    assert "a batch of 2 must fit in the device's memory" in repr(measured)


def test_a_size_that_stops_fitting_later_is_left_out():
    class Filling(Recorder):
        def __call__(self, batch):
            if len(batch) == 2 and self.sizes.count(2) == 3:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")
            return super().__call__(batch)

    measured = measure(Filling(), [1, 2], repeats=5, warmup=0, example=[1.0])
    assert measured.batch_sizes == (1,)
    assert measured.repeats == 5
    assert measured.not_fitting[0][0] == 2


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


def test_a_measurement_over_lengths_is_a_table_with_one_compilation_per_shape():
    model = load_model("transformer", width=32, layers=1, lengths=[8, 32, 128], pad_to=[1, 4])
    found = measure(model, [1, 4], lengths=[8, 32, 128], repeats=3, progress=False)
    assert (found.batch_sizes, found.lengths) == ((1, 4), (8, 32, 128))
    table = found.service
    assert (table.batch_sizes, table.lengths) == ((1, 4), (8, 32, 128))
    assert table([100, 5]) * 1000 == pytest.approx(found.median_ms[4, 128])
    assert [len(each.first_call_s) for each in found.measurements] == [2, 2, 2]
    fit = found.fit()
    for (size, length), error in fit.residuals.items():
        assert fit.service([length] * size) * 1000 == pytest.approx(
            (1 + error) * found.median_ms[size, length]
        )
    assert "128" in repr(found)
    with pytest.raises(ValueError, match="lengths need a model that has them"):
        measure(load_model("mlp", width=8), lengths=[8], progress=False)


def test_the_factors_of_a_fit_over_lengths_are_those_that_made_the_times():
    truth = bs.PaddedTime(2, 0.1, 0.004, 1e-5)

    def one(length):
        rows = [[1000 * truth([length] * size)] * 9 for size in (1, 4, 16)]
        return Measurement("m", "d", "cpu", "1", (1, 4, 16), 9, rows, (), "2026-01-01")

    fit = SizedMeasurement((16, 64, 256), tuple(map(one, (16, 64, 256)))).fit()
    for name in ("fixed_ms", "per_item_ms", "per_unit_ms", "per_pair_ms"):
        assert getattr(fit.service, name) == pytest.approx(getattr(truth, name), rel=1e-6)
    assert abs(fit.worst[1]) < 1e-9


def test_a_device_is_measured_once_a_process():
    found = peak_rates(jax.devices()[0])
    assert peak_rates(jax.devices()[0]) is found
    # Any processor of this century, and none of the next years.
    assert 1e8 < found.flop_per_s < 1e18
    assert 1e8 < found.bytes_per_s < 1e15
