"""Clients that wait for their answers, in the SimPy engine."""

import math

from by_hand import (
    BACKLOG,
    DRAIN,
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

import batchsim as bs


def run_clients(clients, requests, rule, service, **knobs):
    scenario = bs.Scenario(bs.ClosedLoop(clients), rule, service, **knobs)
    return bs.simulate(scenario, requests, engine="simpy")


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
