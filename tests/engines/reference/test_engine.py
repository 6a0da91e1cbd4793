import dataclasses
import math

import numpy as np
import pandas
import pytest
from oracles.plans import WORKLOADS

import batchsim as bs
from batchsim.engines.draws import draw
from batchsim.engines.reference import engine as reference
from batchsim.result import Result, Run

NAN = math.nan
SECOND = 1000.0  # ms: whole seconds keep the hand-computed times exact
SERVED, REJECTED, TIMED_OUT = bs.Status.SERVED, bs.Status.REJECTED, bs.Status.TIMED_OUT
FULL, WAIT, BACKLOG = bs.Trigger.FULL, bs.Trigger.WAIT, bs.Trigger.BACKLOG
DRAIN, ENOUGH = bs.Trigger.DRAIN, bs.Trigger.ENOUGH


def seconds(fixed=1.0, per_item=0.0):
    return bs.Affine(fixed * SECOND, per_item * SECOND)


def rule(size, wait_s=0.0):
    return bs.SizeOrWait(size, wait_s * SECOND)


def requests_of(result):
    """The log, a row a request: (arrival, start, finish, batch, status)."""
    columns = (result.arrival_s, result.start_s, result.finish_s, result.batch_index, result.status)
    return [
        tuple(None if isinstance(x, float) and math.isnan(x) else x for x in row)
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]


def batches_of(result):
    """The log, a row a batch: (start, finish, size, server, trigger)."""
    b = result.batches
    columns = (b.start_s, b.finish_s, b.batch_size, b.server, b.trigger)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def run_trace(times_s, rule, service, **knobs):
    return bs.simulate(bs.Scenario(bs.Trace(times_s), rule, service, **knobs), engine="simpy")


def run_clients(clients, requests, rule, service, **knobs):
    scenario = bs.Scenario(bs.ClosedLoop(clients), rule, service, **knobs)
    return bs.simulate(scenario, requests, engine="simpy")


def run_planned(scenario, requests, **drawn):
    """A run whose drawn columns (think_s, noise) are given by hand."""
    plan = dataclasses.replace(
        draw(scenario, requests, 0), **{name: np.array(column, float) for name, column in drawn.items()}
    )
    return Result((Run(scenario, reference.run(plan)),), 0, "simpy")


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
    assert requests_of(result) == [
        (0, 2, 3, 0, SERVED),
        (2, 2, 3, 0, SERVED),
        (2.5, 4.5, 5.5, 1, SERVED),
    ]
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
    assert batches_of(result) == [
        (0.5, 3.5, 1, 0, WAIT),
        (3.5, 6.5, 1, 0, BACKLOG),
        (6.5, 9.5, 1, 0, WAIT),
    ]


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
    assert requests_of(result) == [
        (0, 2, 3, 0, SERVED),
        (1, 2, 3, 0, SERVED),
        (2, None, None, -1, REJECTED),
    ]
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
    assert requests_of(result) == [
        (0, 1, 5, 0, SERVED),
        (2, None, None, -1, TIMED_OUT),
        (3, 5, 9, 1, SERVED),
    ]
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
    assert batches_of(result) == [
        (1, 5, 2, 0, ENOUGH),
        (6, 10, 3, 0, FULL),
        (10, 14, 2, 0, BACKLOG),
    ]
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


# Clients that wait for their answers.


def test_answered_clients_send_after_the_next_batch_is_taken():
    # Four clients in lockstep: the batch of three leaves before the answered one sends again.
    result = run_clients(4, 12, rule(4), seconds(1, per_item=1))
    assert batches_of(result) == [
        (0, 2, 1, 0, WAIT),
        (2, 6, 3, 0, BACKLOG),
        (6, 8, 1, 0, BACKLOG),
        (8, 12, 3, 0, BACKLOG),
        (12, 14, 1, 0, BACKLOG),
        (14, 18, 3, 0, BACKLOG),
    ]
    assert requests_of(result)[:6] == [
        (0, 0, 2, 0, SERVED),
        (0, 2, 6, 1, SERVED),
        (0, 2, 6, 1, SERVED),
        (0, 2, 6, 1, SERVED),
        (2, 6, 8, 2, SERVED),
        (6, 8, 12, 3, SERVED),
    ]


def test_clients_of_all_servers_send_in_client_order():
    # Two servers, batches of one: at 0 the first client's request is taken before the second sends.
    result = run_clients(3, 7, rule(1), seconds(2), servers=2)
    assert batches_of(result) == [
        (0, 2, 1, 0, FULL),
        (0, 2, 1, 1, FULL),
        (2, 4, 1, 0, FULL),  # client 2, who waited
        (2, 4, 1, 1, FULL),  # client 0 again; client 1 waits
        (4, 6, 1, 0, FULL),
        (4, 6, 1, 1, FULL),
        (6, 8, 1, 0, FULL),
    ]
    assert requests_of(result) == [
        (0, 0, 2, 0, SERVED),
        (0, 0, 2, 1, SERVED),
        (0, 2, 4, 2, SERVED),
        (2, 2, 4, 3, SERVED),
        (2, 4, 6, 4, SERVED),
        (4, 4, 6, 5, SERVED),
        (4, 6, 8, 6, SERVED),
    ]


def test_an_idle_server_with_no_wait_takes_the_first_client_alone():
    result = run_clients(2, 2, rule(8), seconds(1))
    assert batches_of(result) == [(0, 1, 1, 0, WAIT), (1, 2, 1, 0, BACKLOG)]


def test_with_a_wait_clients_in_lockstep_stay_one_batch():
    result = run_clients(4, 12, rule(4, wait_s=1), seconds(1))
    assert batches_of(result) == [(0, 1, 4, 0, FULL), (1, 2, 4, 0, FULL), (2, 3, 4, 0, FULL)]


def test_a_closed_loop_makes_exactly_the_requests_asked_for():
    for requests in (1, 2, 3, 4, 5, 11):
        result = run_clients(3, requests, rule(2, wait_s=1), seconds(1), servers=2)
        assert len(requests_of(result)) == requests
        assert set(result.status) == {SERVED}


def test_more_clients_than_requests_send_no_more_than_asked():
    result = run_clients(9, 2, rule(4, wait_s=3), seconds(1))
    assert requests_of(result) == [(0, 3, 4, 0, SERVED)] * 2


def test_a_closed_loops_infinite_wait_drains_at_the_last_send():
    result = run_clients(3, 8, rule(3, wait_s=math.inf), seconds(2))
    assert batches_of(result) == [(0, 2, 3, 0, FULL), (2, 4, 3, 0, FULL), (4, 6, 2, 0, DRAIN)]


def test_think_time_follows_the_send_of_the_same_number():
    scenario = bs.Scenario(bs.ClosedLoop(2, think_s=1), rule(1), seconds(2))
    result = run_planned(scenario, 5, think_s=[3, 0, 1, 9, 9])
    assert requests_of(result) == [
        (0, 0, 2, 0, SERVED),  # client 0, thinks 3
        (0, 2, 4, 1, SERVED),  # client 1, thinks 0
        (4, 4, 6, 2, SERVED),  # client 1, thinks 1
        (5, 6, 8, 3, SERVED),  # client 0, thinks 9
        (7, 8, 10, 4, SERVED),  # client 1
    ]


def test_a_think_that_ends_as_a_batch_ends_sends_after_the_release():
    scenario = bs.Scenario(bs.ClosedLoop(2, think_s=1), rule(2), seconds(2))
    result = run_planned(scenario, 5, think_s=[2, 0, 1, 1, 1])
    # At 4 client 0's thought and client 1's batch end together: client 0 is first, and alone.
    assert requests_of(result) == [
        (0, 0, 2, 0, SERVED),
        (0, 2, 4, 1, SERVED),
        (4, 4, 6, 2, SERVED),
        (4, 6, 8, 3, SERVED),
        (7, 8, 10, 4, SERVED),
    ]


def test_a_rejected_client_thinks_and_sends_again():
    scenario = bs.Scenario(bs.ClosedLoop(3, think_s=1), rule(1), seconds(4), queue_limit=1)
    result = run_planned(scenario, 6, think_s=[9, 9, 1, 4, 9, 9])
    assert requests_of(result) == [
        (0, 0, 4, 0, SERVED),  # client 0
        (0, 4, 8, 1, SERVED),  # client 1
        (0, None, None, -1, REJECTED),  # client 2, thinks 1
        (1, None, None, -1, REJECTED),  # client 2, thinks 4
        (5, 8, 12, 2, SERVED),  # client 2
        (13, 13, 17, 3, SERVED),  # client 0
    ]


def test_a_timed_out_client_thinks_and_sends_again():
    scenario = bs.Scenario(bs.ClosedLoop(2, think_s=1), rule(1), seconds(4), timeout_ms=1 * SECOND)
    result = run_planned(scenario, 5, think_s=[9, 2, 9, 9, 9])
    assert requests_of(result) == [
        (0, 0, 4, 0, SERVED),
        (0, None, None, -1, TIMED_OUT),  # at 1; thinks 2
        (3, 4, 8, 1, SERVED),
        (13, 13, 17, 2, SERVED),
        (17, 17, 21, 3, SERVED),
    ]


def test_a_timed_out_client_without_think_time_sends_at_that_instant():
    result = run_clients(2, 4, rule(1), seconds(5), timeout_ms=2 * SECOND)
    assert requests_of(result) == [
        (0, 0, 5, 0, SERVED),
        (0, None, None, -1, TIMED_OUT),
        (2, None, None, -1, TIMED_OUT),
        (4, 5, 10, 1, SERVED),
    ]


def test_clients_with_a_timeout_of_zero_use_up_their_sends():
    # Nothing starts at once (the rule waits), so that every send times out at its own instant.
    result = run_clients(2, 7, rule(4, wait_s=1), seconds(1), timeout_ms=0)
    assert requests_of(result) == [(0, None, None, -1, TIMED_OUT)] * 7


def test_a_send_with_a_timeout_of_zero_leaves_before_time_goes_on():
    scenario = bs.Scenario(bs.ClosedLoop(3, think_s=1), rule(1), seconds(4), queue_limit=1, timeout_ms=0)
    result = run_planned(scenario, 5, think_s=[9, 9, 0, 5, 9])
    assert requests_of(result) == [
        (0, 0, 4, 0, SERVED),  # client 0
        (0, None, None, -1, TIMED_OUT),  # client 1
        (0, None, None, -1, REJECTED),  # client 2, sends again at once
        (0, None, None, -1, TIMED_OUT),  # and so does not see the release at 4
        (5, 5, 9, 1, SERVED),
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


# The answers of theory.


def long_run(scenario, requests, **how):
    """A run of the compiled engine, once its first 4,000 requests are the reference's to the bit.

    A shorter run is the beginning of a longer one, and the reference would take seconds for the rest.
    """
    begun = [bs.simulate(scenario, 4000, engine=engine, **how) for engine in ("simpy", "compiled")]
    assert requests_of(begun[0]) == requests_of(begun[1])
    return bs.simulate(scenario, requests, engine="compiled", **how)


def assert_mean_latency(expected_s, workload, rule, service, **knobs):
    """The mean over eight runs is the expected one, within four of its own standard errors."""
    scenario = bs.Scenario(workload, rule, service, **knobs)
    run = long_run(scenario, 400_000, warmup=0.1)
    others = [bs.simulate(scenario, 400_000, seed=seed, warmup=0.1, keep="summary") for seed in range(1, 8)]
    means_s = [result.mean_latency_ms / 1000 for result in (run, *others)]
    error = np.std(means_s, ddof=1) / math.sqrt(8)
    assert error < 0.01 * expected_s  # else the test would say nothing
    assert abs(np.mean(means_s) - expected_s) < 4 * error


EXPONENTIAL = seconds(1).with_noise(1, "exponential")


def test_m_m_1():
    assert_mean_latency(1 / (1 - 0.7), bs.Poisson(0.7), rule(1), EXPONENTIAL)


def test_m_d_1():
    assert_mean_latency(1 + 0.7 / (2 * 0.3), bs.Poisson(0.7), rule(1, wait_s=9), seconds(1))


@pytest.mark.parametrize(("servers", "queued"), [(2, 1.777778), (4, 0.745541)])
def test_m_m_c(servers, queued):
    assert_mean_latency(1 + queued, bs.Poisson(0.8 * servers), rule(1), EXPONENTIAL, servers=servers)


def test_m_g_1():
    cv = 0.7
    expected = 1 + 0.6 * (1 + cv**2) / (2 * 0.4)
    assert_mean_latency(expected, bs.Poisson(0.6), rule(1), seconds(1).with_noise(cv))


@pytest.mark.parametrize(
    ("rate", "a", "b", "latency"), [(1.5, 1, 2, 3.770070), (3, 1, 4, 3.552499), (6, 4, 8, 3.232252)]
)
def test_neuts_rule(rate, a, b, latency):
    assert_mean_latency(latency, bs.Poisson(rate), bs.AtLeast(a, b), EXPONENTIAL)


V100 = bs.Affine(1.8874, 0.1438)


@pytest.mark.parametrize(
    ("size", "load", "latency_ms", "batch", "busy"),
    [
        (1, 0.5, 3.04680, 1, 0.5),
        (8, 0.5, 3.63945, 3.1252, 0.985),
        (8, 0.9, 5.52249, 6.7880, 0.9999),
        (32, 0.3, 3.75071, 3.5859, 0.991),
        (32, 0.5, 4.57972, 7.2121, 0.9998),
    ],
)
def test_batches_of_what_waits_up_to_a_cap(size, load, latency_ms, batch, busy):
    scenario = bs.Scenario(bs.Poisson(load * size / V100(size)), bs.SizeOrWait(size, 0), V100)
    result = long_run(scenario, 150_000, seed=2, warmup=0.05)
    assert result.mean_latency_ms == pytest.approx(latency_ms, rel=0.02)
    assert result.mean_batch_size == pytest.approx(batch, rel=0.02)
    assert result.utilisation == pytest.approx(busy, abs=0.01)


def test_full_batches_only_form_for_half_their_span():
    scenario = bs.Scenario(bs.Poisson(100), bs.SizeOrWait(8, math.inf), bs.Affine(1, 0))
    result = long_run(scenario, 80_000)
    assert result.forming_ms.mean() == pytest.approx(1000 * 7 / (2 * 100), rel=0.02)


def test_hardly_any_traffic_waits_for_the_timer_alone():
    scenario = bs.Scenario(bs.Poisson(0.01), bs.SizeOrWait(8, 20), bs.Affine(3, 1))
    assert bs.simulate(scenario, 2000, engine="simpy").mean_latency_ms == pytest.approx(24, rel=1e-3)


def test_littles_law():
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(16, 5), bs.Affine(5, 0.25), servers=2)
    result = bs.simulate(scenario, 20_000, engine="simpy")
    events = np.concatenate([result.arrival_s, result.finish_s])
    steps = np.concatenate([np.ones(20_000), -np.ones(20_000)])
    order = np.argsort(events, kind="stable")
    held_s = float((np.cumsum(steps[order])[:-1] * np.diff(events[order])).sum())
    assert held_s == pytest.approx(result.latency_ms.sum() / 1000, rel=1e-9)


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


# What simulate refuses.

OK = bs.Scenario(bs.Poisson(10), bs.SizeOrWait(2, 1), bs.Affine(1, 1))


@pytest.mark.parametrize(
    ("knobs", "error", "message"),
    [
        ({"requests": 0}, ValueError, "requests must be at least 1, got 0"),
        ({"requests": -3}, ValueError, "requests must be at least 1, got -3"),
        ({"requests": 2.0}, TypeError, "requests must be a whole number, got 2.0"),
        ({"requests": True}, TypeError, "requests must be a whole number, got True"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": None}, TypeError, "seed must be a whole number, got None"),
        ({"engine": "warp"}, ValueError, "engine must be one of .*simpy.*, got 'warp'"),
        ({"warmup": 1}, ValueError, "warmup must be less than 1, got 1"),
        ({"warmup": -0.1}, ValueError, "warmup must be at least 0, got -0.1"),
        ({"warmup": NAN}, ValueError, "warmup must be a number, got nan"),
        ({"warmup": "half"}, TypeError, "warmup must be a number, got 'half'"),
        ({"model_fn": len}, ValueError, "must be given together, got no inputs"),
        ({"inputs": [1]}, ValueError, "must be given together, got no model_fn"),
        ({"inputs": [1], "model_fn": 5}, TypeError, "model_fn must be callable, got 5"),
        ({"inputs": [], "model_fn": len}, ValueError, "requests must be at least 1, got 0"),
        ({"inputs": [1], "model_fn": len, "requests": 2}, ValueError, "one item a request, 2, got 1"),
    ],
)
def test_simulate_refuses(knobs, error, message):
    with pytest.raises(error, match=message):
        bs.simulate(OK, **knobs)


def test_simulate_refuses_what_is_no_scenario():
    with pytest.raises(TypeError, match="scenario must be a Scenario, got 5"):
        bs.simulate(5)


def test_simulate_refuses_more_than_a_trace_holds():
    scenario = OK.replace(workload=bs.Trace(np.arange(1200)))
    assert bs.simulate(scenario).arrival_s.size == 1200
    assert bs.simulate(scenario, 7, engine="simpy").arrival_s.tolist() == list(range(7))
    with pytest.raises(ValueError, match="requests must be at most the trace's 1,200, got 1,201"):
        bs.simulate(scenario, 1201)


def test_simulate_runs_100_000_requests_when_not_told():
    assert bs.simulate(OK.replace(rate_per_s=100)).arrival_s.size == 100_000


@pytest.mark.parametrize("inputs", [5, "abc", {"a": 1}])
def test_inputs_that_are_no_sequence_of_items_are_refused(inputs):
    scenario = bs.Scenario(bs.Poisson(800), rule(2), seconds())
    with pytest.raises(TypeError, match="inputs must be a sequence of items, got"):
        bs.simulate(scenario, model_fn=np.negative, inputs=inputs)


def test_inputs_are_taken_by_position_whatever_they_are_kept_in():
    scenario = bs.Scenario(bs.Poisson(800), rule(2), seconds())
    for inputs in (iter([1.0, 2.0]), pandas.Series([1.0, 2.0], index=[7, 8])):
        assert bs.simulate(scenario, model_fn=np.negative, inputs=inputs).outputs == [-1, -2]
