"""The rules of real servers: both engines and an independent spelling of each."""

import math

import numpy as np
import pytest
from by_hand import run
from oracles.agreement import assert_columns_equal
from oracles.arrivals import arrivals

import batchsim as bs
from batchsim.engines.compiled import engine
from batchsim.engines.draws import draw
from batchsim.engines.reference import engine as reference

V100 = bs.Affine(1.8874, 0.1438)


# One by one, as (start in ms, size, trigger); a batch is computed for 10 ms.


def test_the_servers_clock_starts_when_it_takes_a_request_however_long_that_has_waited():
    times = [0, 1, 9, 13]
    assert run(times, bs.PullThenWait(8, 4)) == [(4, 2, "WAIT"), (18, 2, "WAIT")]
    assert run(times, bs.SizeOrWait(8, 4)) == [(4, 2, "WAIT"), (14, 2, "BACKLOG")]


def test_a_wait_ends_as_soon_as_the_batch_is_full_and_the_rest_begins_another():
    assert run([0, 1, 1], bs.PullThenWait(2, 4)) == [(1, 2, "FULL"), (15, 1, "WAIT")]


def test_whoever_comes_after_all_have_timed_out_is_waited_with_anew():
    # The first is gone at 2; the wait that the second begins would end at 7, that of the first at 4.
    assert run([0, 3], bs.PullThenWait(8, 4), timeout_ms=2) == []


def test_nobody_joins_a_frozen_batch_however_long_it_waits():
    assert run([0, 3, 6, 9, 9, 9], bs.FrozenBatches(3, 2)) == [
        (2, 1, "WAIT"), (12, 1, "WAIT"), (22, 1, "WAIT"), (32, 3, "FULL"),
    ]  # fmt: skip


def test_the_next_batch_forms_as_one_starts_and_does_not_grow_without_sizes_too():
    assert run([0, 1, 2, 3, 15, 21], bs.PrefetchedBatches(2)) == [
        (0, 1, "WAIT"), (10, 1, "WAIT"), (20, 2, "FULL"), (30, 1, "BACKLOG"), (40, 1, "BACKLOG"),
    ]  # fmt: skip


def test_what_did_not_fit_opens_the_next_batch_whose_wait_is_over_when_the_loop_goes_on():
    assert run([0, 1, 1, 9], bs.StalledBatches(2, 3)) == [(1, 2, "FULL"), (11, 2, "FULL")]
    assert run([0, 1, 1], bs.StalledBatches(2, 3)) == [(1, 2, "FULL"), (11, 1, "WAIT")]
    assert run([0, 1, 1], bs.PullThenWait(2, 3)) == [(1, 2, "FULL"), (14, 1, "WAIT")]
    # Who comes while the loop stands still, and finds no batch open, is waited with when it goes on.
    assert run([0, 1, 9], bs.StalledBatches(2, 3)) == [(1, 2, "FULL"), (14, 1, "WAIT")]


def test_without_a_wait_those_who_did_not_fit_leave_before_those_who_came_since():
    times = [0, 1, 2, 3, 5, 12]
    assert run(times, bs.StalledBatches(2, 0)) == [
        (0, 1, "WAIT"), (10, 2, "FULL"), (20, 2, "FULL"), (30, 1, "BACKLOG"),
    ]  # fmt: skip
    assert run([0, 1, 2, 3, 12], bs.StalledBatches(2, 0))[2:] == [(20, 1, "BACKLOG"), (30, 1, "BACKLOG")]


def test_with_two_inside_the_third_waits_outside_and_its_clock_starts_when_it_is_let_in():
    rule = bs.FrozenBatches(4, 3, max_ongoing=2)
    assert run([0, 0, 1, 1], rule) == [(3, 2, "WAIT"), (16, 2, "WAIT")]


def test_a_lone_request_waits_for_the_end_of_the_window_in_which_it_comes():
    # Windows of 4 ms from 0 on; then from 14 on, when the batch is computed.
    assert run([0, 23], bs.RunningWindow(8, 4)) == [(4, 1, "WAIT"), (26, 1, "WAIT")]
    assert run([0, 23, 24], bs.RunningWindow(2, 4)) == [(4, 1, "WAIT"), (24, 2, "FULL")]


def test_a_sleeping_loop_is_not_woken_and_takes_all_full_batches_at_once():
    # It sleeps until 4, takes two batches, and looks again at 24: a full one, no sleep.
    times = [0, 1, 2, 2, 2, 5, 6]
    assert run(times, bs.SleepingPoll(2, 4)) == [
        (4, 2, "FULL"), (14, 2, "FULL"), (24, 2, "FULL"), (38, 1, "WAIT"),
    ]  # fmt: skip


def test_idle_servers_collect_batches_of_their_own_from_requests_dealt_in_turn():
    # Both windows begin at 0; the first server holds two, the second one.
    assert run([1, 2, 3], bs.CompetingWindows(8, 4), servers=2) == [(4, 1, "WAIT"), (4, 2, "WAIT")]
    # Both are free again at 14: the first takes all that wait.
    assert run([1, 2, 3, 12, 13], bs.CompetingWindows(8, 4), servers=2)[2:] == [(18, 2, "WAIT")]
    assert run([1, 2, 3], bs.RunningWindow(8, 4), servers=2) == [(4, 3, "WAIT")]
    # A server that comes free takes all that waited meanwhile; a full batch leaves at once.
    assert run([0, 0, 1, 1, 1, 6, 6, 6], bs.CompetingWindows(3, 4), servers=2) == [
        (1, 3, "FULL"), (4, 2, "WAIT"), (11, 3, "FULL"),
    ]  # fmt: skip


def batches_of(times_ms, rule, servers):
    """The requests of each batch; a batch is computed for 10 ms."""
    trace = bs.Trace(np.array(times_ms) / 1000)
    result = bs.simulate(bs.Scenario(trace, rule, bs.Affine(10, 0), servers=servers))
    assert np.array_equal(result.start_s, result.batches.start_s[result.batch_index])
    return [np.flatnonzero(result.batch_index == k).tolist() for k in range(result.batches.start_s.size)]


def test_a_batch_holds_the_requests_that_its_server_was_dealt_and_not_the_oldest():
    assert batches_of([1, 2, 3], bs.CompetingWindows(8, 4), servers=2) == [[1], [0, 2]]
    assert batches_of([1, 2, 3, 3.5], bs.CompetingWindows(2, 4), servers=2) == [[0, 2], [1, 3]]


def test_a_server_that_polls_goes_behind_one_whose_poll_began_before():
    # The servers ask at 1 and 1.5 ms, and again 2 ms later: at 3.2 ms the second one has asked longer.
    often, once = (bs.CompetingWindows(8, 6, poll_ms) for poll_ms in (2, 9))
    assert batches_of([1, 1.5, 3.2], often, servers=2) == [[0], [1, 2]]
    assert batches_of([1, 1.5, 3.2], once, servers=2) == [[1], [0, 2]]


def test_in_mosec_a_request_wakes_the_next_worker_in_vain_which_then_asks_behind_the_others():
    rule = bs.servers.mosec(8, 4)
    # With two workers the first one stays ahead until its window is over; with three they take turns.
    assert batches_of([1, 2, 3, 4, 6, 7], rule, servers=2) == [[0, 1, 2, 3], [4, 5]]
    assert batches_of([1, 2, 3, 4], rule, servers=3) == [[0, 3], [1], [2]]


@pytest.mark.parametrize("rate", [20, 900, 5000])
@pytest.mark.parametrize("rule", [bs.servers.litserve(16, 0.003), bs.servers.mosec(16, 3)], ids=str)
def test_one_server_of_competing_windows_has_the_batches_of_the_simpler_rule(rule, rate):
    assert type(rule.alone) is {math.inf: bs.PullThenWait}.get(rule.poll_ms, bs.RunningWindow)
    for more in ({}, {"timeout_ms": 4}, {"queue_limit": 9}):
        scenario = bs.Scenario(bs.Poisson(rate), rule, V100, **more)
        ones, others = (bs.simulate(s, 5000) for s in (scenario, scenario.replace(rule=rule.alone)))
        assert scenario.in_order
        assert np.array_equal(ones.finish_s, others.finish_s, equal_nan=True)
        assert np.array_equal(ones.batches.trigger, others.batches.trigger)


def test_two_idle_workers_of_mosec_fill_one_batch_at_a_time():
    rule = bs.servers.mosec(16, 5)
    both = bs.Scenario(bs.Poisson(900), rule, V100, servers=2)
    ones, others = (bs.simulate(s, 5000) for s in (both, both.replace(rule=rule.alone)))
    assert np.array_equal(ones.finish_s, others.finish_s)


# Runs of the servers themselves: mosec 0.9.8 and LitServe 0.2.19, with three workers that sleep for 40 ms and
# 4 ms a request, batches of at most 8, and windows of 100 ms. Latency is from the send to the answer's end.
MEASURED = [
    ("mosec", 15, 131.7, 161.1, 1.58),
    ("mosec", 50, 125.0, 173.0, 3.63),
    ("litserve", 50, 108.3, 185.3, 2.75),
]


@pytest.mark.parametrize(("server", "rate_per_s", "mean_ms", "p99_ms", "size"), MEASURED)
def test_three_workers_are_as_measured_however_the_scenario_is_spelled(
    server, rate_per_s, mean_ms, p99_ms, size
):
    wait = {"mosec": {"max_wait_time": 100}, "litserve": {"batch_timeout": 0.1}}[server]
    workers = {"mosec": {"num": 3}, "litserve": {"workers_per_device": 3}}[server]
    workload, service = bs.Poisson(rate_per_s), bs.Affine(40, 4)
    config = bs.servers.config(server, max_batch_size=8, **wait, **workers)
    result = bs.simulate(config.scenario(workload, service), 20_000)
    assert result.mean_latency_ms == pytest.approx(mean_ms, rel=0.03)
    assert result.percentile(99) == pytest.approx(p99_ms, rel=0.05)
    assert result.mean_batch_size == pytest.approx(size, rel=0.06)
    rule = getattr(bs.servers, server)(max_batch_size=8, **wait)
    scenario = bs.Scenario(workload, rule, service, servers=3)
    compared = bs.compare_servers(scenario, [server], 8, 100, requests=20_000)
    for other in (bs.simulate(scenario, 20_000), compared.results[server]):
        assert np.array_equal(other.latency_ms, result.latency_ms)
    one_at_a_time = bs.simulate(scenario.replace(rule=rule.alone), 20_000)
    assert one_at_a_time.mean_batch_size > 1.4 * size


@pytest.mark.parametrize(
    ("wait_ms", "rate_per_s", "mean_ms", "p99_ms", "size"),
    [(10, 300, 304.8, 518.9, 2.2), (10, 2000, 425.8, 729.6, 14), (2, 2000, 182.5, 299.9, 4.67)],
)
def test_two_workers_of_litserve_are_as_measured(wait_ms, rate_per_s, mean_ms, p99_ms, size):
    """VALIDATION.md's runs of its own code, which took 40 times as long, but for its polls."""
    rule = bs.servers.litserve(max_batch_size=32, batch_timeout=40 * wait_ms / 1000)
    workload, service = bs.Poisson(rate_per_s / 40), bs.Affine(40 * 1.8874, 40 * 0.1438)
    result = bs.simulate(bs.Scenario(workload, rule, service, servers=2), 100_000)
    assert result.mean_latency_ms == pytest.approx(mean_ms, rel=0.03)
    assert result.percentile(99) == pytest.approx(p99_ms, rel=0.05)
    assert result.mean_batch_size == pytest.approx(size, rel=0.06)


def test_a_summary_of_dealt_batches_is_that_of_the_columns():
    for rule in (bs.servers.mosec(8, 5), bs.servers.litserve(8, 0.005)):
        scenario = bs.Scenario(bs.Poisson(900), rule, V100, servers=3, timeout_ms=7)
        columns, summary = (bs.simulate(scenario, 5000, keep=keep).summary() for keep in ("all", "summary"))
        for name in (
            "mean_latency_ms",
            "mean_forming_ms",
            "mean_queueing_ms",
            "mean_batch_size",
            "timed_out",
        ):
            assert summary[name] == pytest.approx(columns[name], rel=1e-9), name


def test_requests_that_arrive_at_one_instant_all_count_for_the_queue_limit_although_servers_are_idle():
    at_once = bs.Scenario(
        bs.Trace([0, 0, 0]), bs.SizeOrWait(1, 0), bs.Affine(10, 0), servers=3, queue_limit=1
    )
    assert (bs.simulate(at_once).status == bs.Status.REJECTED).tolist() == [False, True, True]
    one_by_one = at_once.replace(workload=bs.Trace([0, 1e-6, 2e-6]))
    assert not bs.simulate(one_by_one).status.any()


def test_more_idle_servers_than_collect_do_no_harm():
    scenario = bs.Scenario(bs.Poisson(3000), bs.CompetingWindows(4, 5), V100, servers=80)
    plan = draw(scenario, 2000, 0)
    assert_columns_equal(engine.run(plan), reference.run(plan))
    # So the 65th of requests that each find a server idle is the second of the first collector.
    times, rule = np.arange(65) / 100, bs.CompetingWindows(2, 9, poll_ms=9)
    assert batches_of(times, rule, servers=80)[0] == [0, 64]


def test_the_cork_holds_nothing_until_it_has_learned_that_batches_wait():
    # But two of its training: the tenth batch waits for a second request, the next for a third, while that
    # costs no more than 3 and 4 requests do on a line through what batches of one took: 15 and 20 ms.
    calm = run([20 * n for n in range(30)], bs.LearnedCork(8))
    alone = [(20 * n, 1, "ENOUGH") for n in range(30)]
    assert calm == [*alone[:9], (195, 1, "WAIT"), (221, 2, "WAIT"), *alone[12:]]
    busy = bs.simulate(bs.Scenario(bs.Poisson(2000), bs.LearnedCork(100), bs.Affine(1.8874, 0.1438)), 50_000)
    held = busy.batches.trigger == bs.Trigger.WAIT
    assert not held[:9].any()
    assert 0 < held.mean() < 0.2


def test_the_cork_looks_every_ms_so_that_a_free_server_waits_for_the_next_look():
    times = [20 * n for n in range(11)] + [500, 500.3, 513.7]
    assert run(times, bs.LearnedCork(8))[-3:] == [
        (500, 1, "ENOUGH"),
        (510.3, 1, "BACKLOG"),
        (520.7, 1, "BACKLOG"),
    ]


@pytest.mark.parametrize(("size", "service"), [
    (4, bs.Affine(1.8874, 0.1438)),  # 2.46 ms a batch
    (6, bs.Affine(0.6, 0.4)),  # 3 ms, or as floats 3.0000000000000005
])  # fmt: skip
def test_full_batches_of_the_cork_start_a_whole_number_of_looks_apart(size, service):
    scenario = bs.Scenario(bs.Poisson(5000), bs.LearnedCork(size), service)
    result = bs.simulate(scenario, 20_000)
    assert scenario.full_batches_per_s == pytest.approx(size / 0.003)
    assert result.throughput_per_s == pytest.approx(size / 0.003, rel=0.01)


def test_the_cork_refuses_the_oldest_while_all_that_wait_would_be_late():
    scenario = bs.Scenario(bs.Poisson(6000), bs.LearnedCork(32, max_latency_ms=20), V100)
    assert scenario.can_lose
    assert scenario.stable
    # The real dispatcher refuses the same 919: tools/validation/real_batchers.
    times_s = arrivals(bs.Poisson(6000), 4000)
    result = bs.simulate(scenario.replace(workload=bs.Trace(times_s - times_s[0])))
    s = result.summary()
    assert (s["rejected"], s["timed_out"]) == (919, 0)
    assert s["p99_ms"] == pytest.approx(22.406, abs=0.001)


def test_without_a_limit_the_cork_refuses_none_and_is_not_asked_while_the_server_computes():
    plain = bs.LearnedCork(8)
    assert not plain.refuses
    assert not plain.asked_while_busy
    runs = [bs.simulate(bs.Scenario(bs.Poisson(1500), rule, V100), 20_000)
            for rule in (plain, bs.LearnedCork(8, max_latency_ms=60_000))]  # fmt: skip
    assert np.array_equal(runs[0].finish_s, runs[1].finish_s)


def test_clients_that_are_refused_must_think_before_they_send_again():
    clients = bs.ClosedLoop(40, think_s=0.002)
    scenario = bs.Scenario(clients, bs.LearnedCork(4, max_latency_ms=10), V100)
    assert bs.simulate(scenario, 3000).summary()["rejected"] > 500
    with pytest.raises(ValueError, match="think_s greater than 0"):
        scenario.replace(think_s=0)


def test_learned_sizes_try_larger_batches_until_one_takes_as_long_as_there_is():
    # A request in 100 ms, so that each batch but the copies holds one: 0.92 of 20 ms is what it may take.
    calm = bs.Scenario(bs.Constant(10), bs.LearnedSizes(1024, 20), bs.Affine(2, 1))
    batches = bs.simulate(calm, 200).batches
    as_many = np.rint((batches.finish_s - batches.start_s) * 1000 - 2).astype(int)
    assert set(batches.batch_size) == {1}
    # Each size five times, the next one larger by one, from ten on by a tenth; 17 take 19 ms: then alone.
    assert as_many[:90].tolist() == [size for size in range(2, 17) for _ in range(5)] + [17] + [1] * 14
    # Once they are known, as many leave as can be computed in the time that is left.
    times = np.append(np.arange(90) / 10, np.full(30, 10.0))
    found = bs.simulate(calm.replace(workload=bs.Trace(times), deadline_ms=20)).batches
    assert found.batch_size[90:].tolist() == [16, 1, *[1] * 13]
    assert bs.Trigger(found.trigger[90]) == bs.Trigger.ENOUGH


def test_learned_sizes_end_where_they_may_not_be_larger():
    scenario = bs.Scenario(bs.Constant(100), bs.LearnedSizes(4, 100), bs.Affine(2, 1))
    batches = bs.simulate(scenario, 40).batches
    as_many = np.rint((batches.finish_s - batches.start_s) * 1000 - 2).astype(int)
    assert as_many.tolist() == [2] * 5 + [3] * 5 + [4] * 5 + [1] * 25


def test_learned_sizes_stay_below_what_would_be_late_by_three_deviations_and_engines_agree_on_many():
    calm = np.arange(300) / 20  # in which it learns
    bursts = 15 + (np.arange(4000) // 250) / 5  # of 250 at once, of which 175 take 36.8 ms
    trace = bs.Trace(np.concatenate([calm, bursts]))
    noisy = bs.Scenario(trace, bs.LearnedSizes(400, 40), bs.Affine(1.8, 0.2).with_noise(0.05), timeout_ms=40)
    plan = draw(noisy, 4300, 0)
    log = engine.run(plan)
    assert_columns_equal(reference.run(plan), log)
    first = log.batch_start_s == np.unique(bursts).reshape(-1, 1)
    took_s = log.batch_finish_s - log.batch_start_s
    sizes, took_s = (column[first.any(axis=0)] for column in (log.batch_size, took_s))
    assert sizes.size == 16
    assert (sizes > 150).all()
    assert (sizes < 172).all()
    assert (took_s < 0.04).all()


def test_learned_sizes_do_not_recover_from_a_queue_that_is_always_nearly_late():
    # Half of what full batches carry, at once: it begins with small ones, and then has no time for others.
    learned = bs.Scenario(bs.Poisson(3000), bs.LearnedSizes(128, 20), V100, timeout_ms=20)
    assert learned.load < 0.5
    assert bs.simulate(learned, 20_000).summary()["timed_out"] > 10_000
    assert bs.simulate(learned.replace(rate_per_s=300), 20_000).summary()["timed_out"] == 0


def test_learned_sizes_carry_what_can_be_computed_in_time():
    scenario = bs.Scenario(
        bs.Poisson(1000), bs.LearnedSizes(128, 10), V100
    )  # 50 take 9.08 ms, 51 more than 9.2
    assert scenario.full_batches_per_s == pytest.approx(50 / 0.0090774)
    assert scenario.replace(deadline_ms=0).full_batches_per_s == pytest.approx(1 / 0.0020312)
