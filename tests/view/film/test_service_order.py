"""In the film those that wait stand in the order in which they are taken."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import plans_with_ties, scenarios_at_random

import batchsim as bs
from batchsim.engines.reference import engine
from batchsim.result import Result, Run
from batchsim.view.film.pseudocode import pseudocode
from batchsim.view.film.snapshot import Film
from batchsim.view.film.words import describe
from batchsim.view.pictures.moments import window

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
    result = Result((Run(plan.scenario, engine.run(plan)),), 0, "")
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
