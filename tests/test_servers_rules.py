"""The rules of real servers: both engines and an independent spelling of each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import SERVERS_RULES, TIMERS, plans_with_ties, scenarios_at_random
from test_reference_engine import assert_same, naive_of
from test_rules import assert_equal, run

import batchsim as bs
from batchsim.engines import compiled, reference
from batchsim.engines.draws import draw
from batchsim.result import Result, Run


def assert_three_alike(plan):
    log = reference.run(plan)
    assert_equal(compiled.run(plan), log)
    assert_same(Result((Run(plan.scenario, log),), 0, ""), naive_of(plan))


@settings(max_examples=280)
@given(plans_with_ties(kinds=[*TIMERS, bs.LearnedCork]))
def test_both_engines_and_the_oracle_agree_where_everything_is_tied(plan):
    assert_three_alike(plan)


@settings(max_examples=100)
@given(scenarios_at_random(rules=SERVERS_RULES), st.integers(0, 99))
def test_both_engines_and_the_oracle_agree_on_random_traffic(scenario, seed):
    assert_three_alike(draw(scenario, 200, seed))


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


def test_a_request_that_comes_long_after_the_last_batch_leaves_at_once():
    assert run([0, 25, 30], bs.WaitSinceLast(8, 4)) == [
        (4, 1, "WAIT"), (25, 1, "ENOUGH"), (39, 1, "WAIT"),
    ]  # fmt: skip


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


def test_full_batches_of_the_cork_start_a_whole_number_of_looks_apart():
    scenario = bs.Scenario(bs.Poisson(5000), bs.LearnedCork(4), bs.Affine(1.8874, 0.1438))  # 2.46 ms a batch
    result = bs.simulate(scenario, 20_000)
    assert scenario.full_batches_per_s == pytest.approx(4 / 0.003)
    assert result.throughput_per_s == pytest.approx(4 / 0.003, rel=0.01)
