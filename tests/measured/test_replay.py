"""A scenario on the wall clock: nothing lost, nothing doubled; and how two servers share a device."""

import dataclasses
import signal
import sys
import threading
import time
from itertools import pairwise
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest

import batchsim as bs
from batchsim.device import Replay, load_model, measure_sharing, replay, sharing
from batchsim.engines.draws import draw
from batchsim.measured.replay import WallClock
from batchsim.result import storage
from batchsim.view.film.film import RequestFilm

SCENARIO = bs.Scenario(bs.Poisson(4000), bs.SizeOrWait(8, 1), bs.Affine(1, 0.1))
TEN = np.arange(10)


def doubled(batch):
    return batch * 2


def counts(result):
    return np.bincount(result.status, minlength=len(bs.Status)).tolist()


def test_requests_are_sent_at_the_times_of_a_simulation_with_the_same_seed():
    result = replay(SCENARIO, doubled, inputs=np.arange(200), requests=200, seed=3)
    simulated = bs.simulate(SCENARIO, 200, seed=3)
    assert np.array_equal(result.due_s, simulated.arrival_s)
    assert (result.late_ms >= 0).all()
    assert isinstance(result, bs.Result)
    assert result.engine == "replay on host"
    assert (result.requested, result.unsent, result.failed) == (200, 0, 0)


def test_there_is_a_request_for_each_input():
    assert replay(SCENARIO, doubled, inputs=TEN).outputs == (2 * TEN).tolist()


def test_the_saturation_rate_of_the_scenario_is_no_part_of_what_is_said():
    result = replay(SCENARIO, doubled, inputs=TEN)
    assert "load" not in repr(result)
    assert "load" in repr(bs.simulate(SCENARIO, 10))


def test_the_parts_of_a_latency_add_up():
    result = replay(SCENARIO, doubled, inputs=np.arange(300), requests=300)
    parts = result.forming_ms + result.queueing_ms + result.computing_ms
    assert parts == pytest.approx(result.latency_ms, abs=1e-6)
    assert (result.latency_ms > 0).all()
    assert 0 < result.model_ms < result.model_ms + result.own_ms
    assert result.reaction_ms >= 0


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("servers", [1, 2])
def test_of_10_000_requests_to_a_model_that_raises_and_is_interrupted_none_is_lost_or_doubled(servers):
    seen, lock, calls = [], threading.Lock(), 0

    def model(batch):
        nonlocal calls
        with lock:
            seen.extend(batch.tolist())
            calls += 1
            number = calls
        if number % 50 == 0:
            raise RuntimeError("one in fifty")
        if number == 333:  # Ctrl-C, as the main thread hears it
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return batch * 2

    # The last thousand would be sent a minute later: Ctrl-C is heard before, however busy the machine is.
    times_s = np.arange(10_000) / 20_000 + 60 * (np.arange(10_000) >= 9000)
    scenario = SCENARIO.replace({"workload": bs.Trace(times_s), "servers": servers})
    with pytest.warns(UserWarning, match="one in fifty.*stopped after"):
        result = replay(scenario, model, 10_000, inputs=np.arange(10_000), warm=False)
    served, failed = np.flatnonzero(result.status == bs.Status.SERVED), result.failed
    assert served.size + failed + result.unsent == 10_000
    assert served.size > 0
    assert failed > 0
    assert result.unsent > 0
    assert len(seen) == len(set(seen)), "a request was computed twice"
    assert [result.outputs[i] for i in served] == (2 * served).tolist()
    assert all(result.outputs[i] is None for i in np.flatnonzero(result.status == bs.Status.FAILED))
    assert set(served) <= set(seen)
    assert result.batches.batch_size.sum() == served.size
    assert np.isnan(result.latency_ms).sum() == failed
    assert result.summary()["served"] == served.size
    assert f"{failed:,} failed" in repr(result)
    assert "not sent" in repr(result)
    assert result.disturbed


def test_a_batch_that_fails_takes_nothing_with_it():
    def model(batch):
        if 4 in batch:
            raise ValueError("not the 4")
        return batch

    scenario = SCENARIO.replace({"workload": bs.Trace(np.zeros(10)), "rule": bs.SizeOrWait(2, 0)})
    with pytest.warns(UserWarning, match="1 batch failed, the first by ValueError: not the 4"):
        result = replay(scenario, model, inputs=TEN, warm=False)
    assert 1 <= result.failed <= 2
    assert result.status[4] == bs.Status.FAILED
    assert counts(result)[bs.Status.SERVED] == 10 - result.failed
    assert result.to_frame().status[4] == "failed"
    film, end_s = RequestFilm(result), float(result.batches.finish_s.max())
    assert film.counts(end_s) == (10, 10 - result.failed, result.failed)
    assert film.waiting(end_s).tolist() == []
    assert bs.plot(result).axes


def test_a_model_that_raises_at_times_is_warmed_up_and_one_that_always_does_is_refused():
    calls = []

    def model(batch):
        calls.append(len(batch))
        if len(calls) in (1, 6):
            raise ValueError("at times")
        return batch

    result = replay(SCENARIO.replace(max_batch_size=3), model, inputs=TEN)
    assert calls[:6] == [1, 1, 2, 2, 3, 3]
    assert result.failed == 0

    def broken(batch):
        raise ValueError("always")

    with pytest.raises(ValueError, match="always"):
        replay(SCENARIO, broken, inputs=TEN)


def test_an_interrupt_inside_the_model_fails_its_batch_and_stops_all():
    def model(batch):
        if 3 in batch:
            raise KeyboardInterrupt
        return batch

    scenario = SCENARIO.replace({"workload": bs.Trace(np.zeros(10)), "rule": bs.SizeOrWait(2, np.inf)})
    with pytest.warns(UserWarning, match="stopped"):
        result = replay(scenario, model, inputs=TEN, warm=False)
    assert result.status[:4].tolist() == [bs.Status.SERVED] * 2 + [bs.Status.FAILED] * 2
    assert counts(result)[bs.Status.SERVED] == 2


def test_a_model_that_returns_too_few_outputs_has_failed():
    with pytest.warns(UserWarning, match="one output per input"):
        result = replay(SCENARIO, lambda batch: batch[1:], 10, inputs=TEN)
    assert result.failed == 10
    assert "10 failed" in repr(result)


def test_every_size_compiles_before_the_clock_starts_unless_the_start_is_cold(compilations):
    model = load_model("mlp", width=8)
    compilations.clear()  # JAX's very first array compiles, too
    scenario = SCENARIO.replace(max_batch_size=3)
    result = replay(scenario, model, 50)
    assert len(compilations) == 3
    assert result.engine == f"replay on {model.device}"
    assert result.outputs[0].shape == (10,)
    replay(scenario, model, 50)
    assert len(compilations) == 3
    cold = replay(scenario, model, 50, warm=False)
    assert len(compilations) == 3 + len(set(cold.batches.batch_size.tolist()))


def sent(result, late_s):
    """The replay as if each request had been sent so late, whatever else the machine did."""
    log = result.log
    rows = {name: getattr(log, name) + late_s for name in ("batch_start_s", "batch_finish_s")}
    moved = dataclasses.replace(log, **rows, arrival_s=result.due_s + late_s)
    return dataclasses.replace(result, runs=(dataclasses.replace(result.run, columns=moved),))


def test_sends_that_are_late_make_a_replay_no_evidence():
    result = replay(SCENARIO, doubled, 10, inputs=TEN)
    assert sent(result, 1e-4).disturbed == ""
    late = sent(result, 1.0)
    assert "late" in late.disturbed
    assert "DISTURBED" in repr(late)


@pytest.mark.filterwarnings("ignore:a model's outputs")
def test_a_replay_is_saved_and_loaded_with_what_was_measured(tmp_path):
    result = replay(SCENARIO, doubled, 10, inputs=TEN)
    result.save(tmp_path / "replay.npz")
    loaded = Replay.load(tmp_path / "replay.npz")
    assert np.array_equal(loaded.late_ms, result.late_ms)
    assert (loaded.model_ms, loaded.requested) == (result.model_ms, 10)
    assert loaded.summary() == result.summary()
    about = {"seed": 0, "engine": result.engine, "requested": 10, "others": 0.2}
    storage.save(result.runs, about, tmp_path / "earlier.npz")
    assert Replay.load(tmp_path / "earlier.npz").summary() == result.summary()


def test_by_default_there_are_ten_seconds_of_requests(monkeypatch):
    asked = []
    monkeypatch.setattr(
        sys.modules["batchsim.measured.replay"], "play", lambda *args: asked.append(args) or 1 / 0
    )
    model = load_model("mlp", width=8)
    for rate_per_s in (30, 1e9):
        with pytest.raises(ZeroDivisionError):
            replay(SCENARIO.replace(rate_per_s=rate_per_s), model)
    assert [args[3] for args in asked] == [300, 100_000]


GENERATING = bs.Scenario(bs.Poisson(5), bs.Continuous(), bs.StepTime(2, 8, 0.1), tokens=bs.Tokens(10, 5))


@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (ValueError, "an open workload", {"scenario": SCENARIO.replace(workload=bs.ClosedLoop(8))}),
        (ValueError, "while a server is idle", {"scenario": SCENARIO.replace(rule=bs.FrozenBatches(8, 1))}),
        (
            ValueError,
            "while a server is idle",
            {"scenario": SCENARIO.replace(rule=bs.LearnedCork(16, max_latency_ms=20))},
        ),
        (ValueError, "does not fill up", {"scenario": SCENARIO.replace(rule=bs.LearnedSizes())}),
        (ValueError, "without tokens", {"scenario": GENERATING}),
        (ValueError, "one item per request, 10, got 3", {"inputs": [1, 2, 3]}),
        (TypeError, "inputs", {"inputs": None}),
        (TypeError, "callable", {"model": 3}),
        (TypeError, "Scenario", {"scenario": "x"}),
        (ValueError, "requests", {"requests": 0}),
    ],
)
def test_what_cannot_be_replayed_is_refused(error, message, changes):
    given = {"scenario": SCENARIO, "model": doubled, "requests": 10, "inputs": TEN} | changes
    with pytest.raises(error, match=message):
        replay(**given)


def test_a_replay_sends_a_sequence_of_the_size_of_each_request():
    model = load_model("transformer", width=32, layers=1, lengths=[16, 64])
    workload = bs.Poisson(200).with_sizes(bs.Uniform(4, 60))
    scenario = bs.Scenario(workload, bs.SizeOrWait(4, 2, max_batch_units=128), bs.PaddedTime(1, 0.1, 0.01))
    result = replay(scenario, model, requests=40)
    assert np.array_equal(result.size, bs.simulate(scenario, 40).size)
    items = model.inputs(40, 0, result.size)
    for request in (0, 17, 39):
        alone = np.asarray(model(items[request][None]))[0]
        np.testing.assert_allclose(result.outputs[request], alone, atol=1e-4)
    for batch in range(result.batches.batch_size.size):
        sizes = result.size[result.batch_index == batch]
        assert len(sizes) == 1 or len(sizes) * sizes.max() <= 128
    with pytest.raises(ValueError, match="at most the rule's limit in units, 32, in a replay, got 6"):
        replay(scenario.replace(max_batch_units=32), model, requests=40)


# How two servers share a device, measured by models that share one in a known way.


ITEMS = np.arange(4.0)
REPLAY = "batchsim.measured.replay"  # where the function hides the module of its name


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


AT_ONCE = bs.Trace(np.zeros(10))
SERVICE = bs.Affine(1, 0.1)


def clock_of(model, rule, workload=AT_ONCE, **knobs):
    scenario = bs.Scenario(workload, rule, SERVICE, **knobs)
    count = workload.max_requests
    return WallClock(draw(scenario, count, seed=0), model, np.arange(count))


def run(model, rule, workload=AT_ONCE, **knobs):
    return clock_of(model, rule, workload, **knobs).run()


def triggers(log):
    return [bs.Trigger(trigger) for trigger in log.batch_trigger]


def test_full_batches_leave_in_order_of_arrival_and_the_end_drains_the_rest():
    log = run(np.negative, bs.SizeOrWait(4, float("inf")))
    assert log.batch_size.tolist() == [4, 4, 2]
    assert triggers(log) == [bs.Trigger.FULL, bs.Trigger.FULL, bs.Trigger.DRAIN]
    assert log.batch_index.tolist() == [0] * 4 + [1] * 4 + [2] * 2
    assert log.outputs == (-np.arange(10)).tolist()
    assert (log.batch_start_s[1:] >= log.batch_finish_s[:-1]).all()


@pytest.mark.parametrize("wait_ms", [0, 3])
@pytest.mark.parametrize("rule", [bs.SizeOrWait, bs.PullThenWait, lambda b, t: bs.PreferredSizes([2], b, t)])
def test_a_lone_request_leaves_when_its_wait_is_over_and_not_before(rule, wait_ms):
    log = run(np.negative, rule(4, wait_ms), bs.Trace([0.0]))
    assert triggers(log) == [bs.Trigger.WAIT]
    assert log.batch_start_s[0] >= log.arrival_s[0] + wait_ms / 1000


def test_who_was_due_while_the_server_computed_is_backlog():
    def model(batch):
        time.sleep(0.003)
        return batch

    log = run(model, bs.SizeOrWait(1000, 1), bs.Trace(np.linspace(0, 0.02, 10)))
    for batch in range(1, log.batch_size.size):
        due_s = log.arrival_s[log.batch_index == batch][0] + 0.001
        late = due_s < log.batch_finish_s[batch - 1]
        assert triggers(log)[batch] == (bs.Trigger.BACKLOG if late else bs.Trigger.WAIT)


def test_a_rule_that_learns_is_told_of_every_batch():
    told = []

    class Told(bs.LearnedCork):
        finished = staticmethod(lambda now_s, size, seconds, state, params: told.append((size, seconds > 0)))

    log = run(np.negative, Told(max_batch_size=4))
    assert told == [(size, True) for size in log.batch_size]


def test_servers_compute_at_the_same_time():
    both = threading.Barrier(2, timeout=300)  # broken, and so a failure, if a batch stays alone

    def model(batch):
        both.wait()
        return batch

    log = run(model, bs.SizeOrWait(1, 0), servers=2)
    assert (log.status == bs.Status.SERVED).all()
    assert sorted(log.batch_server.tolist()) == [0] * 5 + [1] * 5
    assert (np.diff(log.batch_start_s) >= 0).all()


def until_all_have_come(clock):
    def model(batch):
        while not clock.line.ended:
            time.sleep(0.0001)
        return batch

    return model


def test_a_full_queue_rejects():
    clock = clock_of(lambda batch: model(batch), bs.SizeOrWait(1, 0), queue_limit=2)
    model = until_all_have_come(clock)
    log = clock.run()
    counts = np.bincount(log.status, minlength=4)
    assert counts.sum() == 10
    assert 2 <= counts[bs.Status.SERVED] <= 3
    assert counts[bs.Status.REJECTED] == 10 - counts[bs.Status.SERVED]
    assert log.batch_size.tolist() == [1] * counts[bs.Status.SERVED]


def test_who_has_waited_too_long_leaves():
    clock = clock_of(lambda batch: model(batch), bs.SizeOrWait(1, 0), timeout_ms=0.001)
    model = until_all_have_come(clock)
    log = clock.run()
    counts = np.bincount(log.status, minlength=4)
    assert counts[bs.Status.SERVED] <= 1
    assert counts[bs.Status.TIMED_OUT] == 10 - counts[bs.Status.SERVED]


def test_an_error_of_the_rule_itself_is_raised():
    class Broken(bs.LearnedCork):
        def decide(now_s, waiting, idle, state, params):
            raise ArithmeticError("a rule with a mistake")

        decide = staticmethod(decide)

    with pytest.raises(ArithmeticError, match="a mistake"):
        run(np.negative, Broken(max_batch_size=4))


def test_no_thread_is_left_behind():
    before = threading.active_count()
    run(np.negative, bs.SizeOrWait(4, 1), servers=3)
    assert threading.active_count() == before
