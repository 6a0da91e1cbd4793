"""A film says of any time what a naive replay says, which has the order of the queue."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.naive_film import Moment
from oracles.plans import RULES, plans_with_ties, scenarios_at_random
from refusals import refusals

import batchsim as bs
from batchsim.engines.reference import engine
from batchsim.result import Result, Run
from batchsim.view.film.film import EARLIER, REQUESTS, RequestFilm

PLAIN = bs.Scenario(bs.Poisson(1800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
BUSY = PLAIN.replace(max_batch_size=8, rate_per_s=2500)
KINDS = bs.SizeOrWait, bs.AtLeast, bs.PreferredSizes, bs.PreferredUntilLate, bs.FrozenBatches


def assert_is_the_replay(film, time_s, within_s=0.0):
    now = Moment(film.result, time_s)
    assert film.waiting(time_s).tolist() == now.waiting
    assert film.running(time_s).tolist() == sorted(now.members)
    assert film.counts(time_s) == (now.arrived, now.served, now.lost)
    assert film.forming(time_s) == now.forming
    assert film.words(time_s, within_s) == now.words(film.lines, within_s)
    line = film.lines[film.line(time_s, within_s)]
    left = film.batches.trigger[now.left[-1]] if now.leaves(within_s) else None
    assert (line.trigger, line.activity) == (left, "" if left is not None else now.state(within_s))


def assert_taken_in_turn(result):
    """A batch is what stood at the head: whoever is in it stood before all who stay."""
    starts_s = result.batches.start_s
    for batch, start_s in enumerate(starts_s.tolist()):
        if np.count_nonzero(starts_s == start_s) > 1:  # of two at once each had its turn
            continue
        before, now = Moment(result, math.nextafter(start_s, 0)), Moment(result, start_s)
        taken = {*np.flatnonzero(result.batch_index == batch).tolist()} & {*before.waiting}
        stood = before.in_turn(taken | ({*now.waiting} & {*before.waiting}))  # not who gave up then
        assert {*stood[: len(taken)]} == taken


@settings(max_examples=60)
@given(plans_with_ties(kinds=KINDS, priorities=True))
def test_a_film_is_the_naive_replay_when_everything_is_tied(plan):
    film = RequestFilm(Result((Run(plan.scenario, engine.run(plan)),), 0, ""))
    for begin_s, end_s in pairwise(film.instants.tolist()):
        assert_is_the_replay(film, begin_s)
        middle_s, last_s = (begin_s + end_s) / 2, math.nextafter(end_s, 0)
        assert_is_the_replay(film, middle_s)
        # Between two instants nothing changes.
        assert film.waiting(begin_s).tolist() == film.waiting(last_s).tolist()
        assert film.running(begin_s).tolist() == film.running(last_s).tolist()
        assert film.counts(begin_s) == film.counts(last_s)
    assert_taken_in_turn(film.result)


@settings(max_examples=60)
@given(
    scenarios_at_random(rules=[*RULES, bs.FrozenBatches(8, 0)], priorities=True), st.integers(0, 99),
    st.sampled_from([0, 0.004]), st.lists(st.floats(0, 0.3), min_size=12, max_size=12),
)  # fmt: skip
def test_a_film_is_the_naive_replay_on_random_traffic(scenario, seed, within_s, times_s):
    film = RequestFilm(bs.simulate(scenario, 80, seed=seed, engine="simpy"))
    for time_s in times_s:
        assert_is_the_replay(film, time_s, within_s)
    assert_taken_in_turn(film.result)


@pytest.mark.parametrize(
    "knobs",
    [
        {"replicas": 4, "routing": "fill_first", "servers": 2, "priorities": {1: 0.2, 4: 0.5, 9: 0.3}},
        {"replicas": 12, "rate_per_s": 6000},
        {"servers": 3, "devices": 1, "host_ms": 0.5, "rate_per_s": 4000, "queue_limit": 30},
        {"service": bs.Affine(5, 0.25).compiling(60), "servers": 2},
    ],
    ids=str,
)
def test_replicas_devices_and_compiling_are_said_as_the_columns_have_them(knobs):
    film = RequestFilm(bs.simulate(BUSY.replace(knobs), 700, seed=1))
    for time_s in film.instants[::17].tolist():
        assert_is_the_replay(film, time_s)


@pytest.mark.parametrize("rule", [bs.servers.litserve(8, 0.005), bs.servers.mosec(8, 5)], ids=str)
def test_a_batch_that_was_dealt_is_what_stood_at_the_head(rule):
    scenario = PLAIN.replace(rule=rule, servers=3, rate_per_s=1900, service=bs.Affine(3, 0.1))
    assert not scenario.in_order
    assert_taken_in_turn(bs.simulate(scenario, 500))


def test_forming_and_queueing_add_up_to_what_the_result_says():
    scenario = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(6, 4), bs.Affine(3, 0.7), servers=2)
    result = bs.simulate(scenario, 400, seed=3)
    film = RequestFilm(result)
    waits_ms = {True: np.zeros(400), False: np.zeros(400)}
    for begin_s, end_s in pairwise(film.instants.tolist()):
        waits_ms[film.forming(begin_s)][film.waiting(begin_s)] += (end_s - begin_s) * 1000
    assert waits_ms[True] == pytest.approx(result.forming_ms, abs=1e-6)
    assert waits_ms[False] == pytest.approx(result.queueing_ms, abs=1e-6)
    assert waits_ms[True].max() > 3
    assert waits_ms[False].max() > 1


def test_a_run_by_hand():
    # Two of three make a full batch at 4 ms; the third waits 5 ms, to 17 ms.
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(2, 5), bs.Affine(9, 1))
    film = RequestFilm(bs.simulate(scenario))
    for time_s, said in {
        0.002: "2.0 ms: waiting for company; 1 waiting, the oldest for 2 ms; server idle; 1 arrived",
        0.004: "4.0 ms: a batch of 2 leaves: 2 requests have gathered, a full batch; server busy; 2",
        0.013: "13.0 ms: waiting for a server; 1 waiting, the oldest for 1 ms; server busy; 3 arrived",
        0.017: "17.0 ms: a batch of 1 leaves: the oldest has waited 5 ms; server busy; 3 arrived, 2 served",
        9: "9,000.0 ms: no request waits; server idle; 3 arrived, 3 served, 0 lost.",
    }.items():
        assert film.words(time_s).startswith(f"At {said}")
    assert film.lines[film.line(0.017)].trigger is bs.Trigger.WAIT
    # Who looks seldom sees a batch leave that left a while ago.
    assert "leaves" in film.words(0.005, within_s=0.0011)
    assert film.lines[film.line(0.005, within_s=0.0011)].text.endswith("send the oldest 2")
    assert "leaves" not in film.words(0.005, within_s=0.0009)


@refusals
def test_a_film_refuses():
    """
    RequestFilm(bs.simulate(PLAIN, 10)).words(-1) -> time_s must be at least 0, got -1
    RequestFilm(bs.simulate(PLAIN, 10)).words(math.nan) -> time_s must be a number, got nan
    RequestFilm(5) -> TypeError: result must be a Result, got 5
    RequestFilm(bs.simulate(PLAIN, 10, replications=2)) -> a film must be of one run, got 2 replications
    RequestFilm(bs.simulate(PLAIN, 10, keep="summary")) -> columns must be kept
    """


def test_some_requests_are_played_around_a_period_and_a_short_run_whole():
    film = RequestFilm(bs.simulate(PLAIN, 3000))
    arrival_s, end_s = film.arrival_s, float(film.instants[-1])
    begin_s, until_s = film.stretch(float(arrival_s[1000]), float(arrival_s[1020]))
    assert begin_s == arrival_s[1000 - EARLIER]
    assert until_s == arrival_s[1000 - EARLIER + REQUESTS]
    assert film.stretch(float(arrival_s[10]), float(arrival_s[20])).begin_s == 0
    assert film.stretch(0.0, float(arrival_s[2000])).until_s >= arrival_s[2000]
    assert film.stretch(end_s - 0.01, end_s) == (pytest.approx(end_s, rel=0.1), end_s)
    short = RequestFilm(bs.simulate(PLAIN, REQUESTS))
    assert short.stretch(0.05, 0.1) == (0, short.instants[-1])
