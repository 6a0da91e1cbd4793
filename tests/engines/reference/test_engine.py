"""The SimPy engine, by hand: when a batch leaves, who is in it, and where it is computed."""

import math

import numpy as np
import pytest
from by_hand import (
    BACKLOG,
    DRAIN,
    ENOUGH,
    FULL,
    REJECTED,
    SECOND,
    SERVED,
    TIMED_OUT,
    WAIT,
    batches_of,
    requests_of,
    rule,
    run_planned,
    seconds,
)
from oracles.plans import WORKLOADS

import batchsim as bs


def run_trace(times_s, rule, service, **knobs):
    return bs.simulate(bs.Scenario(bs.Trace(times_s), rule, service, **knobs), engine="simpy")


# When a batch leaves.


def test_a_lone_request_waits_out_its_timer():
    result = run_trace([0], rule(4, wait_s=2), seconds(1))
    assert requests_of(result) == [(0, 2, 3, 0, SERVED)]
    assert batches_of(result) == [(2, 3, 1, 0, WAIT)]


def test_a_full_batch_leaves_before_its_timer():
    result = run_trace([0, 1, 3], rule(2, wait_s=5), seconds(1))
    assert requests_of(result) == [(0, 1, 2, 0, SERVED), (1, 1, 2, 0, SERVED), (3, 8, 9, 1, SERVED)]
    assert batches_of(result) == [(1, 2, 2, 0, FULL), (8, 9, 1, 0, WAIT)]


def test_a_request_that_arrives_as_the_batch_starts_joins_it():
    result = run_trace([0, 2, 2.5], rule(4, wait_s=2), seconds(1))
    assert requests_of(result) == [(0, 2, 3, 0, SERVED), (2, 2, 3, 0, SERVED), (2.5, 4.5, 5.5, 1, SERVED)]
    assert batches_of(result) == [(2, 3, 2, 0, WAIT), (4.5, 5.5, 1, 0, WAIT)]


def test_a_request_that_arrives_as_a_batch_starts_stays_behind_if_there_is_no_room():
    result = run_trace([0, 1, 2, 2], rule(3, wait_s=2), seconds(4))
    assert requests_of(result) == [
        (0, 2, 6, 0, SERVED),
        (1, 2, 6, 0, SERVED),
        (2, 2, 6, 0, SERVED),
        (2, 6, 10, 1, SERVED),
    ]
    assert batches_of(result) == [(2, 6, 3, 0, FULL), (6, 10, 1, 0, BACKLOG)]


def test_a_request_that_arrives_as_the_server_is_released_is_in_the_next_batch():
    result = run_trace([0, 1, 2], rule(4), seconds(2))
    assert requests_of(result) == [(0, 0, 2, 0, SERVED), (1, 2, 4, 1, SERVED), (2, 2, 4, 1, SERVED)]
    assert batches_of(result) == [(0, 2, 1, 0, WAIT), (2, 4, 2, 0, BACKLOG)]


def test_simultaneous_arrivals_without_a_wait_are_one_batch_not_many():
    result = run_trace([0, 0, 0, 5, 5], rule(8), seconds(1))
    assert requests_of(result) == [(0, 0, 1, 0, SERVED)] * 3 + [(5, 5, 6, 1, SERVED)] * 2


def test_the_timer_that_ends_while_the_server_computes_acts_at_the_release():
    result = run_trace([0, 1, 1], rule(2, wait_s=0.5), seconds(3))
    assert batches_of(result) == [(0.5, 3.5, 1, 0, WAIT), (3.5, 6.5, 2, 0, FULL)]
    result = run_trace([0, 1, 6], rule(2, wait_s=0.5), seconds(3))
    assert batches_of(result) == [(0.5, 3.5, 1, 0, WAIT), (3.5, 6.5, 1, 0, BACKLOG), (6.5, 9.5, 1, 0, WAIT)]


def test_the_timer_that_ends_as_the_server_is_released_is_a_timeout():
    result = run_trace([0, 1], rule(2, wait_s=0.5), seconds(1))
    assert batches_of(result) == [(0.5, 1.5, 1, 0, WAIT), (1.5, 2.5, 1, 0, WAIT)]


def test_after_a_full_batch_the_timer_is_the_next_oldest_requests():
    result = run_trace([0, 1, 1], rule(2, wait_s=3), seconds(1))
    assert requests_of(result) == [(0, 1, 2, 0, SERVED), (1, 1, 2, 0, SERVED), (1, 4, 5, 1, SERVED)]


def test_several_full_batches_leave_one_look():
    result = run_trace([0] * 5, rule(2, wait_s=1), seconds(3), servers=3)
    assert batches_of(result) == [(0, 3, 2, 0, FULL), (0, 3, 2, 1, FULL), (1, 4, 1, 2, WAIT)]


def test_a_batch_takes_the_oldest_and_the_rest_in_arrival_order():
    result = run_trace([0, 0.25, 0.5, 0.75, 1], rule(2), seconds(1))
    assert result.batch_index.tolist() == [0, 1, 1, 2, 2]
    assert batches_of(result) == [(0, 1, 1, 0, WAIT), (1, 2, 2, 0, FULL), (2, 3, 2, 0, FULL)]


@pytest.mark.parametrize("wait_ms", [0.1, 0.3, 0.7, 1.1, 3.3])
def test_the_start_at_a_deadline_is_exactly_arrival_plus_wait(wait_ms):
    times_s = np.arange(500) * 0.0123
    result = run_trace(times_s, bs.SizeOrWait(4, wait_ms), bs.Affine(0.05, 0))
    assert np.array_equal(result.start_s, (times_s + wait_ms / 1000).round(9))
    assert set(result.batches.trigger) == {WAIT}


# The end.


def test_the_last_partial_batch_waits_out_its_timer():
    result = run_trace([0, 0, 0], rule(2, wait_s=7), seconds(1))
    assert batches_of(result) == [(0, 1, 2, 0, FULL), (7, 8, 1, 0, WAIT)]


def test_an_infinite_wait_drains_at_the_last_arrival_if_a_server_is_idle():
    result = run_trace([0, 1, 2, 3, 4], rule(3, wait_s=math.inf), seconds(1))
    assert batches_of(result) == [(2, 3, 3, 0, FULL), (4, 5, 2, 0, DRAIN)]


def test_an_infinite_wait_drains_at_the_release_if_none_is():
    result = run_trace([0, 1, 2, 3, 4], rule(3, wait_s=math.inf), seconds(10))
    assert batches_of(result) == [(2, 12, 3, 0, FULL), (12, 22, 2, 0, DRAIN)]


def test_an_infinite_wait_drains_even_when_the_last_arrival_is_rejected():
    result = run_trace([0, 1, 2], rule(8, wait_s=math.inf), seconds(1), queue_limit=2)
    assert requests_of(result) == [(0, 2, 3, 0, SERVED), (1, 2, 3, 0, SERVED), (2, None, None, -1, REJECTED)]
    assert batches_of(result) == [(2, 3, 2, 0, DRAIN)]


def test_a_full_batch_at_the_last_arrival_is_full_not_drained():
    result = run_trace([0, 1], rule(2, wait_s=math.inf), seconds(1))
    assert batches_of(result) == [(1, 2, 2, 0, FULL)]


# Servers.


def test_the_lowest_numbered_idle_server_takes_the_batch():
    service = bs.Table({1: 2 * SECOND, 2: 5 * SECOND})
    # Servers 0 and 1 are given 5 s and 2 s; server 1 ends first and takes the next; at 5 both idle.
    result = run_trace([0, 0, 0, 2.5, 5], rule(2), service, servers=2)
    assert batches_of(result) == [
        (0, 5, 2, 0, FULL),
        (0, 2, 1, 1, WAIT),
        (2.5, 4.5, 1, 1, WAIT),
        (5, 7, 1, 0, WAIT),
    ]


def test_servers_released_together_are_taken_in_their_order():
    result = run_trace([0, 0, 1, 1], rule(1), seconds(2), servers=2)
    assert batches_of(result) == [
        (0, 2, 1, 0, FULL),
        (0, 2, 1, 1, FULL),
        (2, 4, 1, 0, FULL),
        (2, 4, 1, 1, FULL),
    ]
    assert result.batch_index.tolist() == [0, 1, 2, 3]


def test_slowdown_counts_the_batch_itself():
    result = run_trace([0, 1, 2, 9], rule(1), seconds(4), servers=3, slowdown={1: 1, 2: 1.5, 3: 2})
    assert batches_of(result) == [
        (0, 4, 1, 0, FULL),
        (1, 7, 1, 1, FULL),
        (2, 10, 1, 2, FULL),
        (9, 15, 1, 0, FULL),  # server 2 still computes: two are busy
    ]


def test_slowdown_is_fixed_when_the_batch_starts():
    result = run_trace([0, 0], rule(1), seconds(4), servers=2, slowdown={1: 1, 2: 2})
    assert batches_of(result) == [(0, 4, 1, 0, FULL), (0, 8, 1, 1, FULL)]


def test_noise_goes_by_the_number_of_the_batch():
    scenario = bs.Scenario(
        bs.Trace([0, 0, 1, 3]), rule(1), seconds(1).with_noise(0.5), servers=2, slowdown={1: 1, 2: 2}
    )
    result = run_planned(scenario, 4, noise=[3, 0.5, 2, 7])
    # Batches 0 and 1 start at 0: 1 * 3 * 1 and 1 * 0.5 * 2 seconds.
    assert batches_of(result) == [
        (0, 3, 1, 0, FULL),
        (0, 1, 1, 1, FULL),
        (1, 5, 1, 1, FULL),
        (3, 17, 1, 0, FULL),
    ]


def test_finish_is_start_plus_the_tables_seconds_times_noise_times_slowdown():
    service = bs.Affine(0.7, 0.13).with_noise(0.4)
    slowdown = {1: 1.0, 2: 1.37}
    scenario = bs.Scenario(bs.Poisson(3000), bs.SizeOrWait(8, 1), service, servers=2, slowdown=slowdown)
    result = bs.simulate(scenario, 3000, seed=5, engine="simpy")
    noise = service.noise.draw(np.random.default_rng(np.random.SeedSequence(5).spawn(3)[1]), 3000)
    table, b = service.table(8), result.batches
    for j in range(len(b)):
        others = int(((b.start_s[:j] <= b.start_s[j]) & (b.finish_s[:j] > b.start_s[j])).sum())
        expected = b.start_s[j] + float(table[b.batch_size[j]]) * float(noise[j]) * slowdown[others + 1]
        assert b.finish_s[j] == round(expected, 9)


# Admission.


def test_an_arrival_that_finds_the_queue_at_its_limit_is_rejected():
    result = run_trace([0, 1, 1, 2, 3], rule(1), seconds(3), queue_limit=1)
    assert requests_of(result) == [
        (0, 0, 3, 0, SERVED),
        (1, 3, 6, 1, SERVED),
        (1, None, None, -1, REJECTED),
        (2, None, None, -1, REJECTED),
        (3, None, None, -1, REJECTED),  # arrivals enter before the server is released
    ]


def test_rejections_in_index_order():
    # All arrive before anyone looks, so that even an idle server does not make room for the third.
    result = run_trace([0, 0, 0, 0], rule(1), seconds(1), servers=4, queue_limit=2)
    assert requests_of(result) == [
        (0, 0, 1, 0, SERVED),
        (0, 0, 1, 1, SERVED),
        (0, None, None, -1, REJECTED),
        (0, None, None, -1, REJECTED),
    ]


def test_timeout_equal_to_the_wait_is_served():
    result = run_trace([0, 1], rule(4, wait_s=3), seconds(1), timeout_ms=3 * SECOND)
    assert requests_of(result) == [(0, 3, 4, 0, SERVED), (1, 3, 4, 0, SERVED)]


def test_a_timeout_below_the_wait_leaves_before_the_batch():
    result = run_trace([0, 1], rule(4, wait_s=3), seconds(1), timeout_ms=2.5 * SECOND)
    assert requests_of(result) == [(0, None, None, -1, TIMED_OUT), (1, None, None, -1, TIMED_OUT)]
    assert len(result.batches) == 0


def test_who_times_out_leaves_and_the_others_timer_counts_from_their_own_arrival():
    # The first leaves the queue at 4 (server busy until 5); the second was due at 3 + 1.
    result = run_trace([0, 2, 3], rule(4, wait_s=1), seconds(4), timeout_ms=2 * SECOND)
    assert requests_of(result) == [(0, 1, 5, 0, SERVED), (2, None, None, -1, TIMED_OUT), (3, 5, 9, 1, SERVED)]
    assert batches_of(result) == [(1, 5, 1, 0, WAIT), (5, 9, 1, 0, BACKLOG)]


def test_a_release_at_the_very_timeout_still_serves():
    result = run_trace([0, 1], rule(1), seconds(3), timeout_ms=2 * SECOND)
    assert requests_of(result) == [(0, 0, 3, 0, SERVED), (1, 3, 6, 1, SERVED)]


def test_a_timeout_of_zero_serves_only_what_starts_at_once():
    result = run_trace([0, 0, 1, 2, 2], rule(1), seconds(2), timeout_ms=0)
    assert requests_of(result) == [
        (0, 0, 2, 0, SERVED),
        (0, None, None, -1, TIMED_OUT),
        (1, None, None, -1, TIMED_OUT),
        (2, 2, 4, 1, SERVED),
        (2, None, None, -1, TIMED_OUT),
    ]


def test_a_timed_out_request_makes_room_only_after_its_instants_arrivals():
    # At 2 the waiting request (expiry 2) still holds the only place when the third arrives.
    result = run_trace([0, 1, 2, 2.5], rule(1), seconds(9), queue_limit=1, timeout_ms=1 * SECOND)
    assert result.status.tolist() == [SERVED, TIMED_OUT, REJECTED, TIMED_OUT]


# The (a, b) rule.


def test_at_least_serves_when_enough_wait():
    result = run_trace([0, 1, 2, 6, 6, 6, 6], bs.AtLeast(2, 3), seconds(4))
    assert batches_of(result) == [(1, 5, 2, 0, ENOUGH), (6, 10, 3, 0, FULL), (10, 14, 2, 0, BACKLOG)]
    assert result.batch_index.tolist() == [0, 0, 1, 1, 1, 2, 2]


def test_at_least_drains_what_is_too_few():
    result = run_trace([0, 1, 2], bs.AtLeast(2, 4), seconds(1))
    assert batches_of(result) == [(1, 2, 2, 0, ENOUGH), (2, 3, 1, 0, DRAIN)]


def test_at_least_one_serves_whatever_waits():
    result = run_trace([0, 1, 2, 3, 9], bs.AtLeast(1, 2), seconds(4))
    assert batches_of(result) == [
        (0, 4, 1, 0, ENOUGH),
        (4, 8, 2, 0, FULL),
        (8, 12, 1, 0, BACKLOG),
        (12, 16, 1, 0, BACKLOG),
    ]


# Cold starts, in both engines.


def test_the_first_batch_of_each_shape_compiles_whatever_its_server():
    service = bs.Affine(10, 0).padded_to([1, 2]).compiling({1: 1000, 2: 3000})
    arrivals = bs.Trace([0, 0, 0.05, 2.5, 2.5, 6, 6, 9])
    scenario = bs.Scenario(arrivals, bs.SizeOrWait(2, 20), service, servers=2)
    for engine in ("simpy", "compiled"):
        batches = bs.simulate(scenario, engine=engine).batches
        assert batches.batch_size.tolist() == [2, 1, 2, 2, 1]
        assert batches.server.tolist() == [0, 1, 1, 0, 0]
        took_ms = 1000 * (batches.finish_s - batches.start_s)
        assert took_ms == pytest.approx([3010, 1010, 510, 10, 10])  # the third waits for the first's program


def test_a_model_compiles_on_the_host_and_later_batches_wait_for_the_device_behind_it():
    service = bs.Affine(10, 0).compiling({1: 1000})
    scenario = bs.Scenario(
        bs.Trace([0, 0.1]), bs.SizeOrWait(1, 0), service, servers=2, devices=1, host_ms=4, contention=2
    )
    for engine in ("simpy", "compiled"):
        batches = bs.simulate(scenario, engine=engine).batches
        assert batches.finish_s == pytest.approx([1.01, 1.01 + 0.012])


@pytest.mark.parametrize("workload", WORKLOADS, ids=repr)
def test_the_same_seed_gives_the_same_run(workload):
    scenario = bs.Scenario(workload, bs.SizeOrWait(4, 2), bs.Affine(1, 0.5).with_noise(0.5), servers=2)
    first, again, other = (bs.simulate(scenario, 500, seed=seed, engine="simpy") for seed in (7, 7, 8))
    assert requests_of(first) == requests_of(again)
    if workload != bs.Constant(1000.0):
        assert requests_of(first) != requests_of(other)


# The real batcher, with a real model.


def test_a_model_computes_the_very_batches_of_the_run():
    inputs = np.arange(300.0).reshape(100, 3)
    sizes = []

    def model(batch):
        assert batch.shape[1:] == (3,)
        sizes.append(len(batch))
        return batch.sum(axis=1)

    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 1), servers=2)
    result = bs.simulate(scenario, seed=3, model_fn=model, inputs=inputs)
    assert result.outputs == inputs.sum(axis=1).tolist()
    assert sizes == result.batches.batch_size.tolist()
    assert requests_of(result) == requests_of(bs.simulate(scenario, 100, seed=3, engine="simpy"))


def test_an_unserved_request_has_no_output():
    scenario = bs.Scenario(bs.Trace([0, 0, 0]), rule(2), seconds(1), queue_limit=2)
    result = bs.simulate(scenario, model_fn=lambda batch: batch * 2, inputs=[1, 2, 3])
    assert result.outputs == [2, 4, None]
    assert bs.simulate(scenario).outputs is None


def test_the_model_also_runs_under_the_a_b_rule_and_in_a_closed_loop():
    scenario = bs.Scenario(bs.ClosedLoop(4), bs.AtLeast(2, 3), seconds(1))
    result = bs.simulate(scenario, model_fn=lambda batch: batch + 1, inputs=np.arange(10))
    assert result.outputs == list(range(1, 11))


class OutOfMemory(Exception):
    """An error that cannot be made again from its args."""

    def __init__(self, *, needed):
        super().__init__(f"needed {needed}")
        self.needed = needed


def test_a_model_that_raises_comes_out_as_its_own_error():
    error = OutOfMemory(needed=3)
    error.__cause__ = OSError("device lost")

    def model(batch):
        raise error

    scenario = bs.Scenario(bs.Trace([0, 0]), rule(2), seconds(1))
    with pytest.raises(OutOfMemory, match="needed 3") as caught:
        bs.simulate(scenario, model_fn=model, inputs=[1, 2])
    assert caught.value is error
    assert isinstance(error.__cause__, OSError)


def test_a_model_with_too_few_outputs_is_refused():
    scenario = bs.Scenario(bs.Trace([0, 0]), rule(2), seconds(1))
    with pytest.raises(ValueError, match="model_fn must return one output per input, 2, got 1"):
        bs.simulate(scenario, model_fn=lambda batch: batch[:1], inputs=[1, 2])
