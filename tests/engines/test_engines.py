"""Servers that share a device: a host part, then one batch at a time, in order of start."""

import dataclasses
import re

import numpy as np
import pytest
from refusals import refusals

import batchsim as bs
from batchsim import theory
from batchsim.device import sharing
from batchsim.engines.compiled import engine as compiled
from batchsim.engines.draws import draw
from batchsim.engines.reference import engine as reference
from batchsim.result.metrics import OF_DEVICES
from batchsim.study.surface import surface

SECOND = 1000.0
THREE = bs.Affine(3 * SECOND, 0)


def run_all(scenario, requests=None, seed=0):
    """The runs of both engines, which must be one."""
    simpy, fast = (bs.simulate(scenario, requests, seed, engine) for engine in ("simpy", "compiled"))
    for name in ("arrival_s", "start_s", "finish_s", "batch_index", "status"):
        assert np.array_equal(getattr(simpy, name), getattr(fast, name), equal_nan=True), name
    for name in ("start_s", "finish_s", "batch_size", "server", "trigger"):
        assert np.array_equal(getattr(simpy.batches, name), getattr(fast.batches, name)), name
    return fast


def one_by_one(times_s, service=THREE, **knobs):
    """The (server, start, finish) of each request, computed one by one, by both loops and SimPy."""
    scenario = bs.Scenario(bs.Trace(times_s), bs.SizeOrWait(1, 0), service, **knobs)
    result = run_all(scenario)
    general = bs.simulate(scenario.replace(queue_limit=10**6))  # from instant to instant
    assert np.array_equal(general.finish_s, result.finish_s)
    assert np.array_equal(general.batches.server, result.batches.server)
    return list(zip(result.batches.server, result.start_s, result.finish_s, strict=True))


def test_two_servers_overlap_their_host_part_and_wait_for_the_device():
    assert one_by_one([0, 0, 0, 9], servers=2, devices=1, host_ms=SECOND) == [
        (0, 0, 3),  # a second on the host, two on the device
        (1, 0, 5),  # ready for the device at 1, which is free at 3
        (0, 3, 7),  # ready at 4; the device is free at 5
        (0, 9, 12),  # ready at 10, and the device is free
    ]


def test_contention_is_paid_by_a_batch_that_finds_its_device_busy():
    assert one_by_one([0, 0, 0, 9], servers=2, devices=1, host_ms=SECOND, contention=1.5) == [
        (0, 0, 3),
        (1, 0, 6),  # 2 s times 1.5
        (0, 3, 9),
        (0, 9, 12),  # ready at 10: the device has been free since 9
    ]


def test_a_batch_that_is_ready_as_the_device_comes_free_has_not_waited():
    assert one_by_one([0, 2], servers=2, devices=1, host_ms=SECOND, contention=2) == [(0, 0, 3), (1, 2, 5)]


def test_server_i_computes_on_device_i_mod_devices():
    assert one_by_one([0, 0, 0], servers=3, devices=2) == [(0, 0, 3), (1, 0, 3), (2, 0, 6)]


def test_the_lowest_numbered_idle_server_takes_a_batch_though_its_device_is_busy():
    # At 1, servers 2 and 3 are idle: 2 shares the device that computes until 8, 3 the one that is free at 3.
    found = one_by_one([0, 0, 1], bs.Affine(8 * SECOND, 0), servers=4, devices=2)
    assert found == [(0, 0, 8), (1, 0, 8), (2, 1, 16)]


def test_noise_is_on_the_devices_part_alone():
    service = THREE.with_noise(0.5)
    scenario = bs.Scenario(bs.Trace([0, 9]), bs.SizeOrWait(1, 0), service, host_ms=SECOND)
    noise = draw(scenario, 2, 0).noise
    result = run_all(scenario)
    assert result.finish_s.tolist() == [round(1 + 2 * noise[0], 9), round(9 + 1 + 2 * noise[1], 9)]


def test_a_server_is_busy_from_start_to_finish():
    scenario = bs.Scenario(bs.Trace([0, 0]), bs.SizeOrWait(1, 0), THREE, servers=2, devices=1)
    result = bs.simulate(scenario)
    assert result.utilisation == (3 + 6) / (2 * 6)
    assert result.device_wait_ms.tolist() == [0, 3000]
    assert result.computing_ms.tolist() == [3000, 3000]
    assert result.device_utilisation == 1


def test_a_batch_never_ends_at_the_instant_at_which_it_starts():
    tiny = bs.Affine(1e-9, 0)
    for host_ms in (0, 1e-9, 5e-10):
        (_, start, finish), *_ = one_by_one([0, 4e6, 4e6], tiny, servers=2, devices=1, host_ms=host_ms)[1:]
        assert (start, finish) == (4e6, 4e6 + 1e-9)


RANDOM = bs.Scenario(
    bs.Poisson(1500), bs.SizeOrWait(8, 1), bs.Affine(2, 0.5).with_noise(0.5), servers=3, devices=2
)


def test_a_device_for_each_server_is_what_there_was_before_to_the_last_bit():
    before = bs.simulate(RANDOM.replace(devices=None), 5000)
    for knobs in ({"devices": 3}, {"devices": 3, "contention": 2.0}, {"devices": None, "contention": 2.0}):
        assert np.array_equal(run_all(RANDOM.replace(knobs), 5000).finish_s, before.finish_s)
    plain = RANDOM.replace(service=bs.Affine(2, 0.5), devices=None)
    host = run_all(plain.replace(host_ms=1.3), 5000)
    np.testing.assert_allclose(host.latency_ms, bs.simulate(plain, 5000).latency_ms, rtol=1e-9)


@pytest.mark.parametrize("rule", [bs.SizeOrWait(8, 1), bs.PreferredSizes([2, 8], 8, 1)], ids=repr)
@pytest.mark.parametrize("knobs", [{}, {"timeout_ms": 4}, {"workload": bs.ClosedLoop(20)}], ids=repr)
def test_many_settings_at_once_and_summaries_say_what_single_runs_do(rule, knobs):
    scenario = RANDOM.replace(rule=rule, host_ms=1.1, contention=1.2).replace(knobs)
    requests = 3000
    found = surface(scenario, [2, 8], [0, 1], requests)
    for row, column in np.ndindex(2, 2):
        one = scenario.replace(rule=found.rules[2 * row + column])
        assert found.p99_ms[row, column] == run_all(one, requests).percentile(99, unserved="inf")
    whole, sums = (bs.simulate(scenario, requests, keep=keep).summary() for keep in ("all", "summary"))
    assert sums.keys() == whole.keys() > {*OF_DEVICES}
    for name in ("mean_latency_ms", "utilisation", "throughput_per_s", "mean_batch_size", *OF_DEVICES):
        assert sums[name] == pytest.approx(whole[name], rel=1e-9)


def test_windows_do_not_matter():
    from batchsim.engines.compiled import summaries
    from batchsim.engines.draws import Streams

    for scenario in (RANDOM.replace(host_ms=0.7), RANDOM.replace(contention=1.4, queue_limit=40)):
        one, many = (
            summaries.summarise(scenario, 4000, Streams(scenario, 1), 70, chunk) for chunk in (4000, 111)
        )
        assert np.array_equal(one[1].counts, many[1].counts)


def saturated(scenario, batches):
    """The throughput between the first tenth and the last of the batches of a queue that never empties."""
    requests = batches * scenario.rule.max_batch_size
    result = bs.simulate(dataclasses.replace(scenario, workload=bs.Trace(np.zeros(requests))))
    finish_s, edge = np.sort(result.batches.finish_s), batches // 10
    return scenario.rule.max_batch_size * (batches - 2 * edge) / (finish_s[-edge - 1] - finish_s[edge - 1])


@pytest.mark.parametrize(
    ("servers", "devices", "host_ms", "contention", "cv"),
    [
        (2, 1, 0, 1, 0),
        (2, 1, 2, 1, 0),  # the device never rests
        (2, 1, 3, 1, 0),  # it is half the service time: none waits
        (2, 1, 4, 1, 0),
        (3, 2, 1, 1, 0),  # uneven: two servers on one, one on the other
        (5, 3, 4, 1.5, 0),
        (7, 2, 5, 3, 0),
        (2, 1, 0, 1.7, 0.5),  # all wait: noise counts by its mean
        (1, 1, 4, 2, 0.5),  # and so where none does
        (2, 1, 3, 1, 1),  # where some wait, it costs
        (5, 3, 4, 1.5, 0.5),
    ],
)
def test_the_saturation_rate_is_what_a_queue_that_never_empties_gets(
    servers, devices, host_ms, contention, cv
):
    service = bs.Affine(2, 0.5).with_noise(cv) if cv else bs.Affine(2, 0.5)  # 6 ms for 8
    scenario = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(8, 0), service.padded_to([8]), servers=servers)
    scenario = scenario.replace(devices=devices, host_ms=host_ms, contention=contention)
    expected = saturated(scenario, 200_000 if cv else 4_000)
    assert scenario.saturation_per_s == pytest.approx(expected, rel=6e-3 if cv else 1e-3)
    assert scenario.full_batches_per_s == scenario.saturation_per_s
    almost = scenario.replace(rate_per_s=0.95 * expected)
    assert almost.load == pytest.approx(0.95, rel=7e-3)
    assert almost.stable
    assert not scenario.replace(rate_per_s=1.05 * expected).stable


def test_a_faster_small_batch_counts_for_the_saturation_of_a_shared_device():
    service = bs.Table({1: 1, 2: 6, 4: 5})
    scenario = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(4, 0), service, servers=2, devices=1, host_ms=0.5)
    assert scenario.saturation_per_s == pytest.approx(2000)  # ones: the device computes half a millisecond
    assert scenario.full_batches_per_s == pytest.approx(4 / 0.0045)


# What is refused.


@refusals
def test_what_makes_no_sense_is_refused_with_both_numbers():
    """
    RANDOM.replace({"devices": 4}) -> devices must be at most the servers, 3, ... got 4
    RANDOM.replace({"devices": 0}) -> devices must be at least 1, got 0
    RANDOM.replace({"devices": 1.5}) -> TypeError: devices must be a whole number, got 1.5
    RANDOM.replace({"host_ms": 2.6}) -> host_ms must be at most the shortest service time, 2.5 ms, ... 2.6
    RANDOM.replace({"host_ms": -1}) -> host_ms must be at least 0, got -1
    RANDOM.replace({"host_ms": math.nan}) -> host_ms must be a number, got nan
    RANDOM.replace({"contention": 0.9}) -> contention must be at least 1, got 0.9
    RANDOM.replace({"contention": math.inf}) -> contention must be finite, got inf
    RANDOM.replace({"slowdown": {1: 1, 2: 1, 3: 1}}) -> slowdown ... got slowdown and devices=2
    RANDOM.replace({"servers": 1}) -> devices must be at most the servers, 1, ... got 2
    """


def test_a_host_part_may_be_the_whole_of_the_shortest_service_time():
    table = bs.Table({1: 0.3, 2: 0.7})
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(2, 1), table, servers=2, devices=1, host_ms=0.3)
    assert (run_all(scenario, 500).finish_s > 0).all()
    with pytest.raises(ValueError, match=r"at most the shortest service time, 0\.3 ms"):
        scenario.replace(host_ms=0.30001)
    with pytest.raises(ValueError, match=r"at most the shortest service time, 0\.2 ms"):
        scenario.replace(service=bs.Table({1: 0.3, 2: 0.2}))


# What theory says.


def test_theory_answers_for_a_device_of_ones_own_and_refuses_shared_ones():
    one = bs.Scenario(bs.Poisson(200), bs.SizeOrWait(8, 0), bs.Affine(2, 1), host_ms=1.5)
    plain = theory.expected(one.replace(host_ms=0))
    assert theory.expected(one).mean_latency_ms == plain.mean_latency_ms
    shared = theory.expected(one.replace(servers=3, devices=2, max_batch_size=1))
    assert not shared
    assert "got 3 servers on 2" in shared.why
    assert theory.expected(one.replace(servers=3, max_batch_size=1)).model == "M/D/3"


def test_theory_knows_that_a_host_part_has_no_noise():
    noisy = bs.Scenario(bs.Poisson(200), bs.SizeOrWait(1, 0), bs.Affine(2, 1).with_noise(1, "exponential"))
    answer = theory.expected(noisy.replace(host_ms=2))
    assert answer.mean_wait_ms == pytest.approx(0.6 * 3 * (1 + 1 / 9) / 2 / 0.4)
    result = bs.simulate(noisy.replace(host_ms=2), 400_000, warmup=0.05)
    assert result.mean_latency_ms == pytest.approx(answer.mean_latency_ms, rel=0.02)
    for knobs in ({"max_batch_size": 4}, {"servers": 2}, {"workload": bs.Constant(200)}):
        assert "host_ms of 2" in theory.expected(noisy.replace(host_ms=2).replace(knobs)).why


def test_tune_names_no_best_policy_for_noise_on_a_part():
    scenario = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(8, 0), bs.Affine(2, 1).with_noise(0.3), host_ms=1)
    over = {"max_batch_size": [4, 8]}
    found = bs.tune(scenario, bs.SLO(p99_ms=30), over, requests=5_000)
    assert found.optimum is None
    assert bs.tune(scenario.replace(host_ms=0), bs.SLO(p99_ms=30), over, requests=5_000).optimum


# How two servers share a device, from two throughputs.


SERVICE = bs.Affine(2, 1)  # 10 ms for 8: 800/s


@pytest.mark.parametrize(
    ("two_per_s", "host_ms", "contention"),
    [
        (1600, 5, 1),  # twice as much: half of it overlaps
        (1800, 5, 1),  # more counts as twice
        (1250, 3.6, 1),
        (1000, 2, 1),
        (800, 0, 1),  # no more than one
        (640, 0, 1.25),
        (400, 0, 2),
    ],
)
def test_the_throughputs_that_calibrate_it_come_back(two_per_s, host_ms, contention):
    service = SERVICE.padded_to([8])
    found = sharing(800, two_per_s, service, batch_size=8)
    assert (found.host_ms, found.contention) == pytest.approx((host_ms, contention))
    scenario = bs.Scenario(bs.ClosedLoop(60), bs.SizeOrWait(8, 0), service, servers=2, devices=1, **found)
    assert scenario == bs.Scenario(
        bs.ClosedLoop(60), bs.SizeOrWait(8, 0), service, servers=2, devices=1
    ).replace(found)
    assert scenario.saturation_per_s == pytest.approx(min(two_per_s, 1600))
    assert saturated(scenario, 2_000) == pytest.approx(min(two_per_s, 1600), rel=1e-3)


def test_only_the_ratio_of_the_throughputs_counts_and_the_batches_may_be_a_mean():
    assert sharing(8, 10, SERVICE, 8) == sharing(800, 1000, SERVICE, 8)
    assert sharing(8, 10, SERVICE, 5.5).host_ms == pytest.approx(7.5 * 0.2)


def test_what_it_finds_reads_as_python():
    found = sharing(800, 640, SERVICE, 8)
    assert repr(found) == "Sharing(host_ms=0.0, contention=1.25)"
    assert dict(found) == {"host_ms": 0, "contention": 1.25}
    assert len(found) == 2


@refusals
def test_a_calibration_is_refused_where_it_makes_no_sense():
    """
    sharing(800, 1600, SERVICE, 8) -> at most the shortest service time, 3 ms, got 5 ... 2 times
    sharing(0, 1, SERVICE, 8) -> one_per_s must be greater than 0, got 0
    sharing(1, math.nan, SERVICE, 8) -> two_per_s must be a number, got nan
    sharing(1, 1, 5, 8) -> TypeError: service must be a service of batchsim, got 5
    sharing(1, 1, SERVICE, 0.5) -> batch_size must be at least 1, got 0.5
    sharing(1, 1, bs.Table({4: 1}), 8) -> at most the Table's largest size, 4
    """


def test_engines_agree_on_random_scenarios_that_share_devices():
    """A small sample of what the oracle is held against in test_reference_engine, with long queues."""
    generator = np.random.default_rng(7)
    for seed in range(60):
        servers = int(generator.integers(2, 6))
        unit_ms = float(generator.choice([1, 0.1, 125]))
        times = generator.integers(1, 5, 6) * unit_ms
        service = bs.Table({k + 1: float(ms) for k, ms in enumerate(times)})
        service = service.with_noise(0.6) if seed % 3 == 0 else service
        scenario = bs.Scenario(
            bs.Trace(np.cumsum(generator.integers(0, 2, 300)) * unit_ms / 1000 * generator.integers(1, 3)),
            bs.SizeOrWait(int(generator.integers(1, 7)), float(generator.integers(0, 4) * unit_ms)),
            service,
            servers=servers,
            devices=int(generator.integers(1, servers)),
            host_ms=float(generator.integers(0, 2) * times.min() * generator.choice([0.5, 1])),
            contention=float(generator.choice([1, 1.5, 2])),
            timeout_ms=float(9 * unit_ms) if seed % 4 == 0 else None,
        )
        logs = [engine.run(draw(scenario, 300, seed)) for engine in (reference, compiled)]
        for field in dataclasses.fields(logs[0]):
            ours, theirs = (getattr(log, field.name) for log in logs)
            assert field.name == "outputs" or np.array_equal(ours, theirs), (field.name, scenario)


def test_it_is_said_where_servers_share():
    found = bs.tune(RANDOM, bs.SLO(p99_ms=500), {"max_batch_size": [8]}, requests=5_000)
    assert re.search(r"3 servers share 2 devices", found.explain())
    alone = bs.tune(RANDOM.replace(devices=None), bs.SLO(p99_ms=500), {"max_batch_size": [8]}, requests=5_000)
    assert "`devices`" in alone.explain()


def test_a_scenario_and_a_result_are_kept_with_their_devices(tmp_path):
    scenario = RANDOM.replace(host_ms=0.5, contention=1.25)
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
    assert "devices = 2\nhost_ms = 0.5\ncontention = 1.25\n" in scenario.to_toml()
    assert "host_ms" not in RANDOM.replace(devices=None).to_toml()
    result = bs.simulate(scenario, 300)
    result.save(tmp_path / "run.npz")
    again = bs.Result.load(tmp_path / "run.npz")
    assert again.scenario == scenario
    assert np.array_equal(again.finish_s, result.finish_s)


def test_a_sweep_over_devices_and_their_numbers_has_a_row_for_each():
    over = {"devices": [1, 3], "contention": [1, 2]}
    frame = bs.sweep(RANDOM, over, requests=300, progress=False)
    assert frame.contention.tolist() == [1, 2, 1, 2]
    one, two, free, free_too = frame.p99_ms
    assert one < two
    assert one > free == free_too
    assert (frame.mean_device_wait_ms > 0).tolist() == [True, True, False, False]
    assert (frame.device_utilisation > frame.utilisation).tolist() == [True, True, False, False]
    assert "device_utilisation_low" in frame


# Waiting for a device is a component of its own.


def test_four_servers_on_one_device_at_half_its_rate():
    scenario = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(1, 0), bs.Affine(1, 0), servers=4, devices=1)
    result = bs.simulate(scenario, 50_000)
    low, high = result.interval("device_utilisation")
    assert low < 0.5 < high
    np.testing.assert_allclose(result.computing_ms, 1, atol=1e-6)
    assert result.summary()["mean_computing_ms"] == pytest.approx(1, abs=1e-9)
    # One after the other on one device: all waits together are those of an M/D/1 queue.
    waits_ms = result.forming_ms + result.queueing_ms + result.device_wait_ms
    assert waits_ms.mean() == pytest.approx(
        theory.expected(scenario.replace(servers=1, devices=None)).mean_wait_ms, rel=0.03
    )


@pytest.mark.parametrize(
    "knobs", [{}, {"timeout_ms": 3}, {"service": RANDOM.service.compiling(20), "host_ms": 1}], ids=repr
)
def test_the_four_parts_sum_to_the_latency_and_a_story_tells_them(knobs):
    result = bs.simulate(RANDOM.replace(knobs), 2000)
    parts = ("forming", "queueing", "device_wait", "computing")
    columns = {part: getattr(result, f"{part}_ms") for part in parts}
    np.testing.assert_allclose(sum(columns.values()), result.latency_ms, atol=1e-6)
    assert (columns["device_wait"] > 0).any()
    served = np.flatnonzero(result.status == bs.Status.SERVED)
    for request in served[::37]:
        story = result.story(request)
        assert all(begin < end for _, begin, end in story)  # nothing that takes no time
        assert [end for *_, end in story[:-1]] == pytest.approx([begin for _, begin, _ in story[1:]])
        for part in parts:
            told_ms = sum(1000 * (end - begin) for name, begin, end in story if name == part)
            assert told_ms == pytest.approx(columns[part][request], abs=1e-6)
    summary = result.summary()
    for part in parts:
        assert summary[f"mean_{part}_ms"] == pytest.approx(columns[part][served].mean())
        assert f"{part}_ms" in result.to_frame()


@pytest.mark.parametrize("warmup", [0, 0.3])
@pytest.mark.parametrize(
    "knobs", [{}, {"host_ms": 1.5, "contention": 1.3}, {"devices": 3, "host_ms": 2}], ids=repr
)
def test_the_devices_utilisation_is_their_busy_time_in_the_window(knobs, warmup):
    scenario = RANDOM.replace(knobs)
    result = bs.simulate(scenario, 3000, warmup=warmup)
    begin_s = result.arrival_s[result.warmup_requests] if warmup else 0.0
    end_s, busy_s, free_s = result.finish_s.max(), 0.0, [0.0] * scenario.devices
    for start_s, finish_s, server in zip(
        result.batches.start_s, result.batches.finish_s, result.batches.server, strict=True
    ):
        device_s = max(start_s + scenario.host_ms / 1000, free_s[server % scenario.devices])
        free_s[server % scenario.devices] = finish_s
        busy_s += max(finish_s - max(device_s, begin_s), 0.0)
    expected = busy_s / (end_s - begin_s) / scenario.devices
    assert result.device_utilisation == pytest.approx(expected, rel=1e-9)
    sums = bs.simulate(scenario, 3000, warmup=warmup, keep="summary")
    assert sums.device_utilisation == pytest.approx(expected, rel=1e-9)
    if not warmup:
        windows = result.over_time(0.1)
        lengths_s = windows.end_s - windows.begin_s
        assert (windows.device_utilisation * lengths_s).sum() / end_s == pytest.approx(expected)


def test_without_devices_nothing_is_said_of_them():
    result = bs.simulate(RANDOM.replace(devices=None), 5000)
    assert not {*OF_DEVICES} & result.summary().keys()
    assert "device" not in repr(result)
    assert "device_wait_ms" not in result.to_frame()
    assert not any(
        "device" in name for name in bs.sweep(result.scenario, {"servers": [1]}, requests=50, progress=False)
    )
    assert result.device_utilisation == result.utilisation
    assert (result.device_wait_ms == 0).all()
    assert not any("device" in key for key in bs.compare(result, result).rows)


def test_a_result_prints_and_compares_what_its_devices_do():
    one, two = (bs.simulate(RANDOM.replace(devices=devices, rate_per_s=700), 20_000) for devices in (1, 2))
    assert "device wait" in repr(one)
    assert f"devices {one.device_utilisation:.3f}" in repr(one)
    wait, busy = (bs.compare(one, two)[key] for key in ("mean_device_wait_ms", "device_utilisation"))
    assert wait.high < 0
    assert busy.high < 0


def test_a_summary_is_kept_with_its_devices_and_refused_without(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    result = bs.simulate(RANDOM, 500, keep="summary")
    result.save(path)
    assert bs.Result.load(path).summary() == result.summary()
    with np.load(path) as arrays:
        before = {name: column for name, column in arrays.items() if "device" not in name}
    np.savez_compressed(path, **before)
    with pytest.raises(ValueError, match="device_wait_s must be there with devices"):
        bs.Result.load(path)


def test_a_real_run_does_not_know_who_had_the_device():
    result = bs.simulate(RANDOM, 500)
    real = dataclasses.replace(result, runs=(dataclasses.replace(result.run, clock="wall"),))
    assert not {*OF_DEVICES} & real.summary().keys()
    np.testing.assert_allclose(real.computing_ms, (real.finish_s - real.start_s) * 1000)
    assert "device" not in repr(real)
    assert {name for name, *_ in real.story(100)} <= {"forming", "queueing", "computing"}
