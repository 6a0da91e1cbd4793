"""Servers in their own words: what they mean, and the table of what the same two numbers do."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.closed_batches import closed_batches
from refusals import refusals

import batchsim as bs
from batchsim import servers

V100 = bs.Affine(1.8874, 0.1438)


def triton(size, wait_ms):
    return servers.triton(size, wait_ms * 1000)


def tf_serving(size, wait_ms):
    return servers.tf_serving(size, wait_ms * 1000)


def ray(size, wait_ms, **handler):
    return servers.ray_serve(size, wait_ms / 1000, **handler)


def litserve(size, wait_ms):
    return servers.litserve(size, wait_ms / 1000)


# Wait in ms and requests per second; then by column (mean, p99) in ms; None: unstable.
TABLE = [
    (10, 20, (11.2, 12.3), (11.3, 13.5), (11.2, 12.3), (7.3, 13.6), (7.3, 13.6)),
    (10, 2000, (10.3, 15.7), (13.5, 22.0), (10.3, 15.7), (13.5, 22.0), (17.6, 29.6)),
    (2, 1000, (3.8, 5.1), (5.0, 7.7), (3.9, 5.2), (5.0, 7.7), (5.0, 7.7)),
    (2, 2000, (4.3, 6.3), (6.4, 10.1), None, (6.4, 10.0), (6.4, 10.0)),
]
COLUMNS = [
    (triton, tf_serving, servers.textbook),
    (servers.torchserve, servers.mosec, servers.kserve),
    (ray,),
    (litserve,),
    (servers.batched,),
    (lambda b, t: ray(b, t, handler="blocking"),),
]


@pytest.mark.dear("the loops of three servers' rules are compiled")
@pytest.mark.parametrize(("wait_ms", "rate", "cells"), [(row[0], row[1], row[2:]) for row in TABLE])
def test_the_same_two_numbers_mean_as_many_things_as_the_table_says(wait_ms, rate, cells):
    # A handler that blocks makes Ray Serve like those that pull, unless batches are often full.
    for presets, cell in zip(COLUMNS, (*cells, cells[1]), strict=True):
        (rule,) = {preset(32, wait_ms).alone for preset in presets}  # of all servers of a column
        scenario = bs.Scenario(bs.Poisson(rate), rule, V100)
        assert scenario.stable == (cell is not None)
        if cell is not None:
            result = bs.simulate(scenario, 300_000)
            # The table is to a tenth of a ms, the figures within 2 %.
            assert result.mean_latency_ms == pytest.approx(cell[0], rel=0.02, abs=0.05)
            assert result.percentile(99) == pytest.approx(cell[1], rel=0.02, abs=0.05)


# Ray Serve's frozen batches.


def test_frozen_batches_keep_up_above_t_min_and_not_below():
    least_ms = bs.theory.frozen_wait_min_ms(2000, 1.8874, 0.1438, max_batch_size=32)
    assert least_ms == pytest.approx(2.149, abs=0.001)
    for wait_ms in (2.1, 2.2):
        scenario = bs.Scenario(bs.Poisson(2000), ray(32, wait_ms), V100)
        result = bs.simulate(scenario, 400_000)
        half = result.latency_ms.size // 2
        first, second = result.latency_ms[:half].mean(), result.latency_ms[half:].mean()
        assert scenario.stable == result.summary()["stable"] == (wait_ms > least_ms)
        if wait_ms > least_ms:
            assert result.mean_latency_ms == pytest.approx(8, rel=0.15)
        else:
            assert second > 1.5 * first > 30


@pytest.mark.parametrize("size", [1, 2, 3, 8, 32])
@pytest.mark.parametrize("wait_ms", [0, 0.5, 2, 30, math.inf])
def test_stable_is_what_theory_says_of_the_load_of_frozen_batches(size, wait_ms):
    for rate in (100, 450, 900, 2000, 4000):
        load = bs.theory.frozen_load(rate, V100, size, wait_ms)
        rule = bs.FrozenBatches(size, wait_ms)
        scenario = bs.Scenario(bs.Poisson(rate), rule, V100)
        assert scenario.load == pytest.approx(load, rel=1e-9)
        assert scenario.stable == (load < 1)
        assert bs.Scenario(bs.Poisson(rate), rule, V100, servers=3).stable == (load < 3)


def test_the_load_of_frozen_batches_is_the_share_of_time_that_servers_compute():
    scenario = bs.Scenario(bs.Poisson(1500), bs.FrozenBatches(8, 3), V100, servers=2)
    result = bs.simulate(scenario, 100_000)
    assert scenario.load == pytest.approx(result.utilisation, rel=0.01)
    assert result.summary()["load"] == scenario.load > 1500 / (2 * 8 / V100(8))


@pytest.mark.parametrize(("ongoing", "carried"), [(5, 396.6), (10, 3008), (20, 3008)])
def test_with_few_ongoing_requests_the_size_is_never_reached_and_less_is_carried(ongoing, carried):
    # 5 wait 10 ms and are computed for 2.6 ms; of 10 each full batch leaves at once.
    config = servers.config("ray_serve", max_ongoing_requests=ongoing)
    scenario = config.scenario(bs.Poisson(10_000), V100)
    result = bs.simulate(scenario, 20_000)
    assert scenario.rule.largest_batch == result.batches.batch_size.max() == min(ongoing, 10)
    assert not scenario.stable
    assert scenario.full_batches_per_s == pytest.approx(carried, rel=1e-3)
    assert result.throughput_per_s == pytest.approx(carried, rel=0.01)


def test_the_load_curve_of_frozen_batches_ends_beyond_the_rate_that_they_carry():
    from batchsim.study.surface import LOADS, load_curve

    scenario = bs.Scenario(bs.Poisson(300), bs.FrozenBatches(32, 2), V100)
    curve = load_curve(scenario, 1000)
    assert scenario.replace(rate_per_s=0.999 * curve.saturation).stable
    assert not scenario.replace(rate_per_s=1.001 * curve.saturation).stable
    assert curve.overloaded.sum() == sum(load > 1 for load in LOADS)


def test_the_heat_map_tells_which_waits_are_too_short():
    from batchsim.study.surface import surface

    found = surface(bs.Scenario(bs.Poisson(2000), ray(32, 2), V100), [16, 32], [1, 2.1, 2.2, 5], 2000)
    assert found.overloaded[:, 1].tolist() == [True, True, False, False]


# What a server's words mean.


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        (servers.triton(8), bs.SizeOrWait(8, 0)),
        (servers.triton(8, 2500), bs.SizeOrWait(8, 2.5)),
        (servers.triton(8, 2500, [8]), bs.SizeOrWait(8, 2.5)),
        (servers.triton(32, 5000, [32, 8]), bs.PreferredUntilLate([8, 32], 32, 5)),
        (servers.tf_serving(), bs.SizeOrWait(1000, 0)),
        (servers.torchserve(), bs.PullThenWait(1, 100)),
        (servers.kserve(), bs.PullThenWait(32, 5000)),
        (servers.mosec(8), bs.CompetingWindows(8, 10, math.inf)),
        (servers.mosec(8, 1), bs.CompetingWindows(8, 1, math.inf)),
        (servers.ray_serve(), bs.FrozenBatches(10, 10)),
        (servers.ray_serve(handler="blocking"), bs.StalledBatches(10, 10)),
        (servers.bentoml(), bs.LearnedCork(100, max_latency_ms=60_000)),
        (servers.bentoml(8, 50), bs.LearnedCork(8, max_latency_ms=50)),
        (servers.litserve(), bs.CompetingWindows(1, 0, 1)),
        (servers.batched(), bs.SleepingPoll(32, 5)),
        (servers.clipper(16), bs.SizeOrWait(16, 0)),
        (servers.clipper(slo_micros=2500), bs.LearnedSizes(128, 2.5)),
        (servers.textbook(), bs.SizeOrWait(32, 50)),
        (servers.tei(8, 64), bs.PrefetchedBatches(8, max_batch_units=8, units="summed")),
    ],
    ids=repr,
)
def test_a_preset_is_the_rule_that_it_says(rule, meant):
    assert rule == meant


@pytest.mark.parametrize(
    "rule", [servers.triton(32, 2000), servers.tf_serving(32, 2000), servers.clipper(32)]
)
def test_a_preset_that_means_the_textbooks_rule_takes_its_fast_loop(rule):
    assert rule.threshold is not None


@refusals
def test_what_a_server_does_not_accept_is_refused_with_its_range():
    """
    servers.torchserve(8, maxBatchDelay=-1) -> maxBatchDelay must be at least 0
    servers.triton(0) -> Triton's max_batch_size must be at least 1, got 0
    servers.triton(8, 0.5) -> TypeError: microseconds must be a whole number, got 0.5
    servers.triton(8, 0, [16]) -> at most max_batch_size, 8, got 16
    servers.triton(8, 0, [4, 4]) -> preferred_batch_size must differ
    servers.ray_serve(0) -> Ray Serve's max_batch_size must be at least 1
    servers.ray_serve(handler="asink") -> did you mean 'async'
    servers.ray_serve(max_ongoing_requests=2.5) -> TypeError: must be a whole number, got 2.5
    bs.FrozenBatches(8, math.inf, 5) -> at least max_batch_size, 8, without
    servers.ray_serve(8, math.inf) -> batch_wait_timeout_s must be finite
    servers.litserve(8, -1) -> batch_timeout must be at least 0
    servers.config("tritn") -> did you mean 'triton'
    servers.config("triton", max_batchsize=8) -> did you mean 'max_batch_size'
    servers.config("triton", max_batch_size=8, count=0) -> count must be at least 1
    servers.config("tf_serving", max_batch_size=8, allowed_batch_sizes=[2, 4])
        -> must end with max_batch_size, 8
    servers.config("tf_serving", max_batch_size=8, allowed_batch_sizes=[4, 2, 8]) -> must increase
    """


@pytest.mark.parametrize("server", servers.SERVERS)
def test_each_server_runs_with_its_defaults_and_says_what_it_ignores(server):
    given = {"max_batch_size": 8} if server == "triton" else {}
    ignored = dict.fromkeys(servers.SERVERS[server].ignored, 1)
    found = servers.config(server, **given, **ignored)
    assert (found.server, found.unused, found.settings) == (server, ignored, given | ignored)
    assert found == servers.config(server, **given, **ignored)
    scenario = found.scenario(bs.Poisson(200), bs.Affine(2, 0.1))
    assert scenario.rule == found.rule
    assert bs.simulate(scenario, 2000).metrics.served > 0


def test_a_config_makes_a_scenario_of_servers_limits_and_padding():
    found = servers.config("tf_serving", max_batch_size=8, num_batch_threads=2, allowed_batch_sizes=[2, 4, 8])
    scenario = found.apply(bs.Scenario(bs.Poisson(100), bs.SizeOrWait(), V100, timeout_ms=5))
    assert (scenario.servers, scenario.queue_limit, scenario.timeout_ms) == (2, 80, None)
    assert scenario.service(3) == V100(4)
    late = servers.config("triton", max_batch_size=8, default_timeout_microseconds=7000, max_queue_size=9)
    assert (late.timeout_ms, late.queue_limit) == (7, 9)
    delayed = servers.config(
        "triton", max_batch_size=8, default_timeout_microseconds=7000, timeout_action="DELAY"
    )
    assert (delayed.timeout_ms, delayed.timeout_action, delayed.unused) == (7, "delay", {})


@refusals
def test_tritons_levels_and_policies_have_its_ranges():
    """
    servers.config("triton", max_batch_size=8, priority_levels=2)
        -> default_priority_level must be from 1 to priority_levels, 2, got 0
    servers.config("triton", max_batch_size=8, priority_levels=2, default_priority_level=3)
        -> from 1 to priority_levels, 2, got 3
    servers.config("triton", max_batch_size=8, priority_levels=1, default_priority_level=1,
        priority_queue_policy={2: {}})
        -> priority_queue_policy must be from 1 to priority_levels, 1, got 2
    servers.config("triton", max_batch_size=8, priority_levels=1, default_priority_level=1,
        priority_queue_policy={1: {"max_queue": 1}})
        -> did you mean 'max_queue_size'
    servers.config("triton", max_batch_size=8, timeout_action="DROP") -> one of REJECT, DELAY
    servers.config("triton", max_batch_size=8, priority_levels=2, default_priority_level=2,
        preserve_ordering=True)
        -> at most 1 with preserve_ordering, got 2
    servers.config("triton", max_batch_size=8, timeout_action="DELAY", preserve_ordering=True)
        -> must be REJECT with preserve_ordering
    """


def test_tritons_queue_policies_hold_for_the_levels_that_the_workload_has():
    found = servers.config(
        "triton", max_batch_size=8, priority_levels=3, default_priority_level=2, max_queue_size=50,
        default_timeout_microseconds=4000, timeout_action="DELAY",
        priority_queue_policy={1: {"max_queue_size": 9, "default_timeout_microseconds": 1500}, 3: {}},
    )  # fmt: skip
    assert found.unused == {}
    assert (found.queue_limit, found.timeout_ms) == ({1: 9, 2: 50}, {1: 1.5, 2: 4})
    assert found.timeout_action == {1: "reject", 2: "delay", 3: "reject"}
    all_three = {1: 0.1, 2: 0.3, 3: 0.6}
    scenario = found.scenario(bs.Poisson(9).with_priorities(all_three), V100)
    assert [tuple(limits) for limits in scenario.limits] == [
        (9, 0.0015, False), (50, 0.004, True), (None, math.inf, False),
    ]  # fmt: skip
    # A level that Triton does not know is its default one, and so is that of a request without.
    two = found.scenario(bs.Poisson(9).with_priorities({1: 0.5, 9: 0.5}), V100)
    assert two.workload == bs.Poisson(9).with_priorities({1: 0.5, 2: 0.5})
    plain = found.scenario(bs.Poisson(9), V100)
    assert (plain.queue_limit, plain.timeout_ms, plain.timeout_action) == (50, 4, "delay")
    for scenario in (two, plain):
        assert bs.simulate(scenario, 500).metrics.served > 0


def test_a_server_without_levels_serves_all_in_order_of_arrival():
    workload = bs.Poisson(9).with_priorities({1: 0.5, 2: 0.5})
    for server, words in (("tf_serving", {}), ("triton", {"max_batch_size": 8})):
        assert servers.config(server, **words).scenario(workload, V100).workload == bs.Poisson(9)
    unused = servers.config("triton", max_batch_size=8, default_priority_level=1).unused
    assert unused == {"default_priority_level": 1}


@pytest.mark.parametrize(
    ("delay_us", "in_advance", "limited"),
    [(5000, [2, 5, 3], [2, 6, 2]), (50_000, [2, 5, 2, 1], [2, 4, 4]), (0, [2, 2, 4, 2], [2, 4, 4])],
)
def test_tritons_preferred_sizes_count_until_the_oldest_is_late(delay_us, in_advance, limited):
    # Two are computed until 10 ms. Meanwhile a batch of 4 forms, with one more; two and one more form until
    # 11 ms. Without a delay, a batch closes at 2; the next has 1, and does not grow, as two batches for one
    # instance wait, until the first starts: then 3 join. With a limit, six wait at 10 ms, and are late.
    times = bs.Trace(np.array([0, 0, 1, 2, 3, 4, 5, 6, 10.5, 11]) / 1000)
    scenario = bs.Scenario(times, servers.triton(8, delay_us, [2, 4]), bs.Affine(10, 0))
    assert bs.simulate(scenario).batches.batch_size.tolist() == in_advance
    assert bs.simulate(scenario.replace(queue_limit=99)).batches.batch_size.tolist() == limited


@settings(max_examples=150)
@given(st.data())
def test_tf_servings_closed_batches_are_the_textbooks_rule_with_a_queue_limit(data):
    size, threads, most = (data.draw(st.integers(1, high)) for high in (4, 3, 3))
    unit_s = data.draw(st.sampled_from([0.125, 0.001]))
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=40))
    wait, costs = data.draw(st.integers(0, 4)), data.draw(st.lists(st.integers(1, 7), min_size=4, max_size=4))
    # Whole units, so that much is due at one instant.
    found = servers.config(
        "tf_serving", max_batch_size=size, batch_timeout_micros=round(wait * unit_s * 1e6),
        num_batch_threads=threads, max_enqueued_batches=most,
    )  # fmt: skip
    service = bs.Table({k: costs[k - 1] * unit_s * 1000 for k in range(1, size + 1)})
    scenario = found.scenario(bs.Trace(np.cumsum([0, *gaps[1:]]) * unit_s), service)
    result = bs.simulate(scenario)
    wait_s = scenario.rule.max_wait_ms / 1000
    batches, refused = closed_batches(
        result.arrival_s.tolist(), service.table(size).tolist(),
        size=size, wait_s=wait_s, threads=threads, most=most,
    )  # fmt: skip
    members = [np.flatnonzero(result.batch_index == number).tolist() for number in range(len(result.batches))]
    ours = zip(result.batches.start_s.tolist(), members, result.batches.server.tolist(), strict=True)
    assert list(ours) == batches
    assert np.flatnonzero(result.status == bs.Status.REJECTED).tolist() == refused


def test_a_full_file_of_enqueued_batches_is_as_many_requests_as_tf_serving_refuses():
    found = servers.config("tf_serving", max_batch_size=4, max_enqueued_batches=2)
    burst = bs.Trace([0.0] * 4 + [0.001] * 20)  # one batch is computed, 20 come meanwhile
    result = bs.simulate(found.scenario(burst, bs.Affine(10, 0)))
    assert result.metrics.served == 4 + 8
