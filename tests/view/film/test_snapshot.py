"""A snapshot is what a naive replay says, and those that wait stand in the order in which they are taken."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.naive import after
from oracles.plans import plans_with_ties, scenarios_at_random

import batchsim as bs
from batchsim.engines.compiled import engine
from batchsim.engines.log import Log
from batchsim.engines.reference import engine as reference
from batchsim.result import Result, Run
from batchsim.view.film.pseudocode import pseudocode
from batchsim.view.film.snapshot import Activity, Film
from batchsim.view.film.words import describe
from batchsim.view.pictures.moments import window


def result_of(plan):
    return Result((Run(plan.scenario, engine.run(plan)),), 0, "")


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
        elif state == bs.Status.TIMED_OUT and after(arrival_s, timeout_s) <= time_s:
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
    now, expected = film.snapshot(time_s), replay(result, time_s)
    assert now.waiting.tolist() == expected["waiting"]
    busy = {batch.server: batch.requests.tolist() for batch in now.computing if batch is not None}
    assert busy == expected["computing"]
    assert all(batch is None or batch.server == server for server, batch in enumerate(now.computing))
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


def deadline_s(snapshot):
    return after(snapshot.oldest_s, snapshot.rule.max_wait_ms / 1000)


def times_around(result, film):
    """Return every instant, the floats beside it, and what lies between."""
    instants = film.instants
    beside = [np.nextafter(instants, -1), np.nextafter(instants, math.inf)]
    times_s = np.unique(np.concatenate([[0.0], instants, *beside, (instants[1:] + instants[:-1]) / 2]))
    return times_s[times_s >= 0].tolist()


@settings(max_examples=40)
@given(plans_with_ties())
def test_a_snapshot_is_the_naive_replay_when_everything_is_tied(plan):
    result = result_of(plan)
    film = Film(result)
    for time_s in times_around(result, film):
        assert_is_the_replay(result, film, time_s)


@settings(max_examples=40)
@given(scenarios_at_random(), st.integers(0, 99), st.lists(st.floats(0, 0.3), min_size=12, max_size=12))
def test_a_snapshot_is_the_naive_replay_on_random_traffic(scenario, seed, times_s):
    result = bs.simulate(scenario, 150, seed=seed)
    film = Film(result)
    for time_s in times_s:
        assert_is_the_replay(result, film, time_s)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_a_snapshot_is_the_naive_replay_when_requests_overtake(seed, servers):
    """Each batch takes any of those that wait, as under a rule with priorities; some time out."""
    rng = np.random.default_rng(seed)
    arrival_ms = np.cumsum(rng.integers(0, 3, 30))
    batch_index, status = np.full(30, -1), np.full(30, bs.Status.TIMED_OUT, np.uint8)
    free_ms, start_ms, finish_ms, size, server = np.zeros(servers, int), [], [], [], []
    while free_ms.min() < arrival_ms[-1] + 8:
        now, idle = free_ms.min(), int(free_ms.argmin())
        waiting = np.flatnonzero((batch_index < 0) & (arrival_ms <= now) & (now <= arrival_ms + 8))
        free_ms[idle] += rng.integers(1, 5)
        if not waiting.size:
            continue
        taken = rng.choice(waiting, rng.integers(1, waiting.size + 1), replace=False)
        batch_index[taken], status[taken] = len(start_ms), bs.Status.SERVED
        for column, value in (
            (start_ms, now),
            (finish_ms, free_ms[idle]),
            (size, taken.size),
            (server, idle),
        ):
            column.append(value)
    times_s, counts = (
        (np.array(start_ms) / 1000, np.array(finish_ms) / 1000),
        (np.array(size), np.array(server)),
    )
    trigger = np.full(len(start_ms), bs.Trigger.ENOUGH, np.uint8)
    arrival_s = arrival_ms / 1000
    log = Log(arrival_s, batch_index, status, *times_s, *counts, trigger)
    scenario = bs.Scenario(
        bs.Trace(arrival_s),
        bs.SizeOrWait(30, 0),
        bs.Affine(1, 0),
        servers=servers,
        timeout_ms=8,
    )
    result = Result((Run(scenario, log),), 0, "")
    film = Film(result)
    for time_s in times_around(result, film):
        assert_is_the_replay(result, film, time_s)


@settings(max_examples=40)
@given(plans_with_ties())
def test_each_request_so_far_waits_is_computed_or_is_done_with(plan):
    result = result_of(plan)
    film = Film(result)
    for time_s in times_around(result, film):
        now = film.snapshot(time_s)
        computed = sum(batch.requests.size for batch in now.computing if batch is not None)
        assert now.arrived == now.waiting.size + computed + now.served + now.lost
    assert (now.waiting.size, computed, now.arrived) == (0, 0, result.arrival_s.size)


@settings(max_examples=120)
@given(plans_with_ties())
def test_between_two_instants_nothing_changes(plan):
    result = result_of(plan)
    film = Film(result)

    def state(time_s):
        now = film.snapshot(time_s)
        computing = [None if batch is None else batch.number for batch in now.computing]
        return now.waiting.tolist(), computing, now.arrived, now.served, now.rejected, now.timed_out

    instants = film.instants.tolist()
    for begin_s, end_s in pairwise(instants):
        assert state(begin_s) == state(math.nextafter(end_s, 0))


@settings(max_examples=120)
@given(plans_with_ties())
def test_the_rule_does_what_the_columns_say_next(plan):
    result = result_of(plan)
    film = Film(result)
    starts_s = set(result.batches.start_s.tolist())
    for time_s in times_around(result, film):
        now = film.snapshot(time_s)
        activity = now.activity()
        assert (activity is Activity.LEAVING) == (time_s in starts_s)
        if activity is not Activity.LEAVING:
            assert (activity is Activity.IDLE) == (now.waiting.size == 0)
        if activity is Activity.QUEUEING:
            assert None not in now.computing
        if activity is Activity.FORMING:
            # Its wait is not over, or the batch would have left, and there are not yet enough.
            assert None in now.computing
            assert now.waiting.size < result.scenario.rule.enough
            assert time_s < deadline_s(now)


def test_forming_and_queueing_add_up_to_what_the_result_says():
    scenario = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(6, 4), bs.Affine(3, 0.7), servers=2)
    result = bs.simulate(scenario, 400, seed=3)
    film = Film(result)
    instants = film.instants
    waits_ms = {True: np.zeros(400), False: np.zeros(400)}
    for begin_s, end_s in pairwise(instants.tolist()):
        now = film.snapshot(begin_s)
        waits_ms[now.forming][now.waiting] += (end_s - begin_s) * 1000
    assert waits_ms[True] == pytest.approx(result.forming_ms, abs=1e-6)
    assert waits_ms[False] == pytest.approx(result.queueing_ms, abs=1e-6)
    assert waits_ms[True].max() > 3
    assert waits_ms[False].max() > 1


def test_a_run_by_hand():
    # Two of three make a full batch at 4 ms; the third waits 5 ms, to 17 ms.
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(2, 5), bs.Affine(9, 1))
    film = Film(bs.simulate(scenario))
    first, busy, forming = (film.snapshot(time_s) for time_s in (0.002, 0.013, 0.016))
    assert first.waited_ms == pytest.approx(2)
    assert deadline_s(first) == 0.005
    assert first.activity() is Activity.FORMING
    assert busy.activity() is Activity.QUEUEING
    assert busy.computing[0].requests.tolist() == [0, 1]
    assert forming.activity() is Activity.FORMING
    assert film.snapshot(0.017).last.trigger is bs.Trigger.WAIT
    assert film.snapshot(0.020).activity() is Activity.IDLE
    last = film.snapshot(0.020)
    assert last.oldest_s is last.waited_ms is None


def test_a_batch_that_left_a_while_ago_leaves_for_those_who_look_seldom():
    scenario = bs.Scenario(bs.Trace([0.0, 0.001, 0.003]), bs.SizeOrWait(2, 5), bs.Affine(9, 1))
    now = Film(bs.simulate(scenario)).snapshot(0.004)
    assert now.activity() is Activity.QUEUEING
    assert now.activity(within_s=0.0031) is Activity.LEAVING
    assert now.activity(within_s=0.0029) is Activity.QUEUEING


def test_a_film_refuses():
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
    film = Film(bs.simulate(scenario, 10))
    with pytest.raises(ValueError, match="time_s must be at least 0, got -1"):
        film.snapshot(-1)
    with pytest.raises(ValueError, match="time_s must be a number, got nan"):
        film.snapshot(math.nan)
    with pytest.raises(TypeError, match="result must be a Result, got 5"):
        Film(5)
    with pytest.raises(ValueError, match="a film must be of one run, got 2 replications"):
        Film(bs.simulate(scenario, 10, replications=2))
    with pytest.raises(ValueError, match="columns must be kept"):
        Film(bs.simulate(scenario, 10, keep="summary"))


# In the film those that wait stand in the order in which they are taken.


TWO = {1: 0.2, 2: 0.8}
SHARED = bs.Scenario(bs.Poisson(1900).with_priorities(TWO), bs.SizeOrWait(8, 5), bs.Affine(3, 0.1))
THREE = SHARED.replace(priorities={1: 0.2, 4: 0.5, 9: 0.3})
SLOW = bs.Scenario(bs.Constant(1100).with_priorities(TWO), bs.SizeOrWait(4, 1), bs.Affine(3.5, 0.1))
SCENARIOS = {
    "two levels": SHARED,
    "three levels, overloaded": THREE.replace(rate_per_s=2300),
    # One after the other: of those who are delayed at once, one may be off by a place.
    "delays": SLOW.replace(timeout_ms={2: 6}, timeout_action={2: "delay"}),
    "delays without levels": SLOW.replace(priorities=None, timeout_ms=6, timeout_action="delay"),
    "losing": THREE.replace(queue_limit={4: 5}, timeout_ms={9: 6}),
    "frozen": SHARED.replace(rule=bs.FrozenBatches(8, 3)),
    "dealt": SHARED.replace(priorities=None, rule=bs.servers.litserve(8, 0.005), servers=2),
}
# Of each way to take requests: from the queue, or in batches that wait as they are.
RULES = [bs.SizeOrWait(4, 3.3), bs.PreferredUntilLate([2, 4], 8, 3.3), bs.FrozenBatches(8, 0)]
KINDS = list(dict.fromkeys(type(rule) for rule in RULES))


@cache
def film_of(name):
    return Film(bs.simulate(SCENARIOS[name], 1500))


def assert_taken_in_turn(result):
    """Whoever is in a batch stood before all who stay, and whoever was taken stood as they were taken."""
    film = Film(result)
    for number, start_s in enumerate(result.batches.start_s.tolist()):
        taken, left = film.batch(number).requests.tolist(), film.snapshot(start_s).waiting.tolist()
        queue = film.snapshot(math.nextafter(start_s, 0)).queue.tolist()
        queue = [request for request in queue if request in taken or request in left]  # not who gave up then
        stood = [request for request in queue if request in taken]
        assert queue[: len(stood)] == stood
        assert stood == [request for request in taken if request in queue]


@settings(max_examples=60)
@given(plans_with_ties(kinds=KINDS, priorities=True))
def test_a_batch_is_what_stood_at_the_head_when_everything_is_tied(plan):
    result = Result((Run(plan.scenario, reference.run(plan)),), 0, "")
    if np.unique(result.batches.start_s).size == len(result.batches):  # of two at once each had its turn
        assert_taken_in_turn(result)


@settings(max_examples=40)
@given(scenarios_at_random(rules=RULES, priorities=True), st.integers(0, 99))
def test_a_batch_is_what_stood_at_the_head_on_random_traffic(scenario, seed):
    result = bs.simulate(scenario, 80, seed=seed, engine="simpy")
    if np.unique(result.batches.start_s).size == len(result.batches):
        assert_taken_in_turn(result)


def test_the_queue_stands_by_level_and_in_a_level_as_they_came():
    film = film_of("three levels, overloaded")
    seen = set()
    for time_s in film.instants.tolist():
        now = film.snapshot(time_s)
        levels = film.result.priority[now.queue].tolist()
        assert list(zip(levels, now.queue.tolist(), strict=True)) == sorted(
            zip(levels, now.queue.tolist(), strict=True)
        )
        assert now.levels == {level: levels.count(level) for level in (1, 4, 9)}
        seen.update(levels)
    assert seen == {1, 4, 9}


def test_the_delayed_stand_at_the_end_of_their_level():
    film = film_of("delays without levels")
    moments = [film.snapshot(time_s) for time_s in film.instants.tolist()]
    late = [film.result.arrival_s[now.queue] + 0.006 <= now.time_s for now in moments]
    assert all((np.diff(each.astype(int)) >= 0).all() for each in late)
    assert sum(each.any() and not each.all() for each in late) > 20


@pytest.mark.parametrize("rule", [bs.servers.litserve(8, 0.005), bs.servers.mosec(8, 5)], ids=str)
def test_a_batch_that_was_dealt_is_what_stood_at_the_head(rule):
    scenario = SHARED.replace(priorities=None, rule=rule, servers=3)
    assert not scenario.in_order
    assert_taken_in_turn(bs.simulate(scenario, 500))


def test_the_queue_of_each_level_is_counted_in_words():
    film = film_of("two levels")
    now = next(now for t in film.instants.tolist() if min((now := film.snapshot(t)).levels.values()) >= 2)
    assert f"({now.levels[1]} of level 1 and {now.levels[2]} of level 2)" in describe(now)


def test_the_pseudocode_says_who_goes_first():
    texts = {name: [line.text for line in pseudocode(it)] for name, it in SCENARIOS.items()}
    assert texts["two levels"][0] == "while requests wait, level 1 first:"
    assert texts["two levels"][2].endswith("send the first 8")
    assert "the oldest has waited 5 ms" in texts["two levels"][3]  # the timer is of the oldest of any level
    assert texts["delays"][0] == "while requests wait, level 1 first, in a level the delayed last:"
    assert texts["delays without levels"][0] == "while requests wait, the delayed last:"
    assert pseudocode(SHARED.replace(priorities={1: 1.0})) == pseudocode(SHARED.rule)


def test_the_timeline_shows_batches_one_below_the_other():
    result = film_of("three levels, overloaded").result
    seen = window(result)
    batches = result.batch_index[seen.requests]
    assert (np.diff(batches) >= 0).all()
    assert np.unique(batches).tolist() == list(range(seen.first, seen.last + 1))
    assert seen.begin_s <= result.batches.start_s[seen.first]
