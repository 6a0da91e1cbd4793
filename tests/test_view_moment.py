"""A moment is what a naive replay of the columns says, in every scenario."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import plans_with_ties, scenarios_at_random

import batchsim as bs
from batchsim.engines import compiled
from batchsim.result import Result, Run
from batchsim.view.film.snapshot import Doing, Film, moment


def result_of(plan):
    return Result((Run(plan.scenario, compiled.run(plan)),), 0, "")


def replay(result, time_s):
    """Follow every request and every batch on its own: no order is assumed, nothing is searched."""
    timeout_s = math.inf if result.scenario.timeout_ms is None else result.scenario.timeout_ms / 1000
    found = {"waiting": [], "computing": {}, "arrived": 0, "served": 0, "rejected": 0, "timed_out": 0}
    for request, (arrival_s, state) in enumerate(zip(result.arrival_s, result.status, strict=True)):
        if arrival_s > time_s:
            continue
        found["arrived"] += 1
        if state == bs.Status.REJECTED:
            found["rejected"] += 1
        elif state == bs.Status.TIMED_OUT and arrival_s + timeout_s <= time_s:
            found["timed_out"] += 1
        elif state == bs.Status.TIMED_OUT or time_s < result.start_s[request]:
            found["waiting"].append(request)
        elif result.finish_s[request] <= time_s:
            found["served"] += 1
        else:
            server = int(result.batches.server[result.batch_index[request]])
            found["computing"].setdefault(server, []).append(request)
    return found


def assert_is_the_replay(result, film, time_s):
    now, expected = film.moment(time_s), replay(result, time_s)
    assert now.waiting.tolist() == expected["waiting"]
    busy = {job.server: job.requests.tolist() for job in now.computing if job is not None}
    assert busy == expected["computing"]
    assert all(job is None or job.server == server for server, job in enumerate(now.computing))
    for count in ("arrived", "served", "rejected", "timed_out"):
        assert getattr(now, count) == expected[count], count
    assert now.forming == (len(busy) < result.scenario.servers)
    left = [number for number, start_s in enumerate(result.batches.start_s) if start_s <= time_s]
    assert (now.last is None) == (not left)
    if now.last is not None:
        assert now.last.number == left[-1]
        assert now.last.start_s == result.batches.start_s[left[-1]]
        assert now.last.finish_s == result.batches.finish_s[left[-1]]
        assert now.last.trigger == result.batches.trigger[left[-1]]
        assert now.last.requests.tolist() == np.flatnonzero(result.batch_index == left[-1]).tolist()
    assert now.oldest_s == (result.arrival_s[expected["waiting"][0]] if expected["waiting"] else None)


def times_around(result, film):
    """Return every instant, the floats beside it, and what lies between."""
    instants = film.instants()
    beside = [np.nextafter(instants, -1), np.nextafter(instants, math.inf)]
    times_s = np.unique(np.concatenate([[0.0], instants, *beside, (instants[1:] + instants[:-1]) / 2]))
    return times_s[times_s >= 0].tolist()


@settings(max_examples=120)
@given(plans_with_ties())
def test_a_moment_is_the_naive_replay_when_everything_is_tied(plan):
    result = result_of(plan)
    film = Film(result)
    for time_s in times_around(result, film):
        assert_is_the_replay(result, film, time_s)


@settings(max_examples=60)
@given(scenarios_at_random(), st.integers(0, 99), st.lists(st.floats(0, 0.3), min_size=12, max_size=12))
def test_a_moment_is_the_naive_replay_on_random_traffic(scenario, seed, times_s):
    result = bs.simulate(scenario, 150, seed=seed)
    film = Film(result)
    for time_s in times_s:
        assert_is_the_replay(result, film, time_s)


@settings(max_examples=120)
@given(plans_with_ties())
def test_each_request_so_far_waits_is_computed_or_is_done_with(plan):
    result = result_of(plan)
    film = Film(result)
    for time_s in times_around(result, film):
        now = film.moment(time_s)
        computed = sum(job.requests.size for job in now.computing if job is not None)
        assert now.arrived == now.waiting.size + computed + now.served + now.lost
    assert (now.waiting.size, computed, now.arrived) == (0, 0, result.arrival_s.size)


@settings(max_examples=120)
@given(plans_with_ties())
def test_between_two_instants_nothing_changes(plan):
    result = result_of(plan)
    film = Film(result)

    def state(time_s):
        now = film.moment(time_s)
        computing = [None if job is None else job.number for job in now.computing]
        return now.waiting.tolist(), computing, now.arrived, now.served, now.rejected, now.timed_out

    instants = film.instants().tolist()
    for begin_s, end_s in pairwise(instants):
        assert state(begin_s) == state(math.nextafter(end_s, 0))
    assert film.end_s == instants[-1]


@settings(max_examples=120)
@given(plans_with_ties())
def test_the_rule_does_what_the_columns_say_next(plan):
    result = result_of(plan)
    film = Film(result)
    starts_s = set(result.batches.start_s.tolist())
    for time_s in times_around(result, film):
        now = film.moment(time_s)
        doing = now.doing()
        assert (doing is Doing.LEAVING) == (time_s in starts_s)
        if doing is not Doing.LEAVING:
            assert (doing is Doing.NOTHING) == (now.waiting.size == 0)
        if doing is Doing.SERVER:
            assert None not in now.computing
        if doing is Doing.COMPANY:
            # Its wait is not over, or the batch would have left, and there are not yet enough.
            assert None in now.computing
            assert now.waiting.size < result.scenario.rule.enough
            assert time_s < now.deadline_s


def test_forming_and_queueing_add_up_to_what_the_result_says():
    scenario = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(6, 4), bs.Affine(3, 0.7), servers=2)
    result = bs.simulate(scenario, 400, seed=3)
    film = Film(result)
    instants = film.instants()
    waits_ms = {True: np.zeros(400), False: np.zeros(400)}
    for begin_s, end_s in pairwise(instants.tolist()):
        now = film.moment(begin_s)
        waits_ms[now.forming][now.waiting] += (end_s - begin_s) * 1000
    assert waits_ms[True] == pytest.approx(result.forming_ms, abs=1e-6)
    assert waits_ms[False] == pytest.approx(result.queueing_ms, abs=1e-6)
    assert waits_ms[True].max() > 3
    assert waits_ms[False].max() > 1


def test_a_run_by_hand():
    # Two of three make a full batch at 4 ms; the third waits 5 ms, to 17 ms.
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(2, 5), bs.Affine(9, 1))
    film = Film(bs.simulate(scenario))
    first, busy, forming = (film.moment(time_s) for time_s in (0.002, 0.013, 0.016))
    assert first.waited_ms == pytest.approx(2)
    assert first.deadline_s == 0.005
    assert first.doing() is Doing.COMPANY
    assert busy.doing() is Doing.SERVER
    assert busy.computing[0].requests.tolist() == [0, 1]
    assert forming.doing() is Doing.COMPANY
    assert film.moment(0.017).last.trigger is bs.Trigger.WAIT
    assert film.moment(0.020).doing() is Doing.NOTHING
    assert (
        film.moment(0.020).oldest_s is film.moment(0.020).deadline_s is film.moment(0.020).waited_ms is None
    )


def test_a_batch_that_left_a_while_ago_leaves_for_those_who_look_seldom():
    scenario = bs.Scenario(bs.Trace([0.0, 0.001, 0.003]), bs.SizeOrWait(2, 5), bs.Affine(9, 1))
    now = Film(bs.simulate(scenario)).moment(0.004)
    assert now.doing() is Doing.SERVER
    assert now.doing(within_s=0.0031) is Doing.LEAVING
    assert now.doing(within_s=0.0029) is Doing.SERVER


def test_infinite_waits_have_no_deadline():
    scenario = bs.Scenario(bs.Constant(100), bs.AtLeast(2, 4), bs.Affine(1, 0))
    assert Film(bs.simulate(scenario, 3)).moment(0.011).deadline_s == math.inf


@settings(max_examples=60)
@given(plans_with_ties(), st.integers(1, 45))
def test_the_first_requests_instants_reach_until_the_last_of_them_is_done_with(plan, requests):
    result = result_of(plan)
    film = Film(result)
    timeout_s = math.inf if result.scenario.timeout_ms is None else result.scenario.timeout_ms / 1000
    ends_s = [
        {
            bs.Status.SERVED: result.finish_s[request],
            bs.Status.REJECTED: result.arrival_s[request],
            bs.Status.TIMED_OUT: result.arrival_s[request] + timeout_s,
        }[bs.Status(result.status[request])]
        for request in range(min(requests, result.arrival_s.size))
    ]
    instants = film.instants(requests)
    assert instants[-1] == max(ends_s)
    assert np.array_equal(instants, film.instants()[: instants.size])


def test_a_moment_of_a_result_is_that_of_its_film():
    result = bs.simulate(bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25)), 100)
    assert repr(moment(result, 0.05)) == repr(Film(result).moment(0.05))
    assert "waiting=" in repr(moment(result, 0.05))


def test_a_film_refuses():
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
    film = Film(bs.simulate(scenario, 10))
    with pytest.raises(ValueError, match="time_s must be at least 0, got -1"):
        film.moment(-1)
    with pytest.raises(ValueError, match="time_s must be a number, got nan"):
        film.moment(math.nan)
    with pytest.raises(ValueError, match="requests must be at least 1, got 0"):
        film.instants(0)
    with pytest.raises(TypeError, match="result must be a Result, got 5"):
        Film(5)
    with pytest.raises(ValueError, match="a film must be of one run, got 2 replications"):
        Film(bs.simulate(scenario, 10, replications=2))
    with pytest.raises(ValueError, match="columns must be kept"):
        Film(bs.simulate(scenario, 10, keep="summary"))
