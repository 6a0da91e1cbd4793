"""A server's time for a batch: which batches are timed, what counts, and what becomes of errors."""

import functools
import time

import numpy as np
import pytest

import batchsim as bs
from batchsim.device import Measurement, load_model
from batchsim.device import measure as measure_anything
from batchsim.engines.draws import draw
from batchsim.measured.measuring import InTurn, ServedRounds
from batchsim.measured.replay import WallClock

measure = functools.partial(
    measure_anything, served=True, roofline=False, progress=False, example=np.float32(1)
)


class Recorder:
    """A model that keeps the sizes of its batches."""

    def __init__(self):
        self.sizes = []

    def __call__(self, batch):
        self.sizes.append(len(batch))
        return batch


def test_batches_leave_in_the_given_sizes_and_order():
    sizes = (3, 1, 4, 1)
    scenario = bs.Scenario(bs.Poisson(5000), InTurn(sizes), bs.Affine(1, 0))
    log = WallClock(draw(scenario, 9, seed=0), np.negative, np.arange(9)).run()
    assert log.batch_size.tolist() == list(sizes)
    assert log.batch_index.tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 3]
    ready_s = log.arrival_s[[2, 3, 7, 8]]
    assert (log.batch_start_s >= ready_s).all()


def test_every_round_has_each_size_once_in_an_order_of_its_own():
    model = Recorder()
    measured = measure(model, [1, 2, 3, 4, 5, 6], repeats=4, warmup=1)
    compiled_and_warm, thrown_away = 12, 6
    rounds = np.reshape(model.sizes[compiled_and_warm + thrown_away :], (4, 6))
    assert (np.sort(rounds) == [1, 2, 3, 4, 5, 6]).all()
    assert len(np.unique(rounds, axis=0)) > 1
    assert [len(row) for row in measured.samples_ms] == [4] * 6
    assert measured.repeats == 4


def test_a_time_holds_the_model_and_no_time_is_counted_twice():
    def model(batch):
        time.sleep(0.002)
        return batch

    begin_s = time.perf_counter()
    measured = measure(model, [1, 4], repeats=5)
    passed_s = time.perf_counter() - begin_s
    assert min(map(min, measured.samples_ms)) >= 2
    assert sum(map(sum, measured.samples_ms)) / 1000 < passed_s


def test_the_sum_of_times_is_that_of_a_server_that_never_rests(monkeypatch):
    class AtOnce(WallClock):  # all requests are there when the first batch starts
        def send(self):
            self.due_s = [0.0] * len(self.due_s)
            with self.changed:
                super().send()

    monkeypatch.setattr("batchsim.measured.measuring.WallClock", AtOnce)
    logs = []
    run = WallClock.run
    monkeypatch.setattr(WallClock, "run", lambda clock: logs.append(run(clock)) or logs[-1])
    measured = measure(Recorder(), [1, 2, 3], repeats=3)
    assert sum(map(sum, measured.samples_ms)) / 1000 == pytest.approx(
        sum(log.batch_finish_s[-1] - log.arrival_s[log.batch_size[0] - 1] for log in logs[1:])
    )


@pytest.mark.parametrize("busy", [0.3, 0.8])
def test_requests_come_so_fast_that_a_server_is_as_busy_as_it_is_asked_to_be(busy, monkeypatch):
    rates_per_s = []

    def noted(self, order, rate_per_s, generator):
        rates_per_s.append(rate_per_s)
        return np.full(order.size, 0.004 * order / 5)  # 4 and 0.8 ms

    monkeypatch.setattr(ServedRounds, "served", noted)
    asked = []
    measure(Recorder(), [1, 5], repeats=3, busy=busy)
    measure(Recorder(), [1, 5], repeats=3, busy=lambda service: asked.append(service) or busy)
    # Of a round of 6 requests and 4.8 ms.
    assert rates_per_s[1] == rates_per_s[-1] == pytest.approx(busy * 6 / 0.0048)
    assert asked[0] == asked[-1] == bs.Table({1: 0.8, 5: 4.0})


def test_no_server_is_measured_busier_than_a_slow_minute_allows():
    rounds = ServedRounds(np.negative, {}, True, lambda service: 1.4)
    assert rounds.load({1: [2.0, 3.0]}) == 0.9
    with pytest.raises(ValueError, match="busy must be"):
        measure(Recorder(), [1], busy=1)


def test_it_says_that_it_is_a_servers_and_is_saved_so(tmp_path):
    model = load_model("mlp", width=8)
    measured = measure_anything(model, [1, 2], served=True, repeats=2, roofline=False, progress=False)
    assert measured.served
    assert "as a server gives it" in repr(measured)
    assert list(measured.compile_s) == [1, 2]
    measured.save(tmp_path / "served.json")
    assert Measurement.load(tmp_path / "served.json") == measured
    alone = measure_anything(model, [1], repeats=2, roofline=False, progress=False)
    assert not alone.served
    assert "as a server gives it" not in repr(alone)


def test_it_ends_with_the_time_however_little_there_is():
    measured = measure(Recorder(), [1, 2], limit_s=1e-6)
    assert measured.repeats >= 1


def test_it_ends_once_every_size_is_known_well_enough(monkeypatch):
    class Recorded(Recorder):
        def __call__(self, batch):
            assert len(self.sizes) < 10**6, "it goes on"
            return super().__call__(batch)

    monkeypatch.setattr("batchsim.measured.measuring.SETTLING", 0)  # of a limit that is never reached
    measured = measure(Recorded(), [1, 2], target=100, limit_s=1e9)
    assert measured.repeats >= 20
    assert measured.target == 100


def test_a_size_that_does_not_fit_is_reported_and_the_others_are_measured():
    def model(batch):
        if len(batch) > 4:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return batch

    measured = measure(model, [1, 4, 8], repeats=2)
    assert measured.batch_sizes == (1, 4)
    assert [size for size, _ in measured.not_fitting] == [8]


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_what_the_model_raises_ends_the_measurement(error):
    calls = []

    def model(batch):
        calls.append(1)
        if len(calls) > 9:
            raise error
        return batch

    with pytest.raises(type(error)):
        measure(model, [1, 2], repeats=10)


def test_a_server_has_its_inputs_in_the_hosts_memory():
    with pytest.raises(ValueError, match="copy must be True"):
        measure(Recorder(), [1], copy=False)
