"""A film says of any time what a naive replay says, and those that wait stand in the order of the queue."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.naive import after
from oracles.naive_film import Moment
from oracles.plans import plans_with_ties, scenarios_at_random

import batchsim as bs
from batchsim.engines.compiled import engine
from batchsim.engines.log import Log
from batchsim.engines.reference import engine as reference
from batchsim.result import Result, Run
from batchsim.view.film.film import EARLIER, REQUESTS, QueueFilm, RequestFilm
from batchsim.view.film.pseudocode import FORMING, IDLE, QUEUEING

PLAIN = bs.Scenario(bs.Poisson(1800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
BUSY = PLAIN.replace(max_batch_size=8, rate_per_s=2500)


def result_of(plan):
    return Result((Run(plan.scenario, engine.run(plan)),), 0, "")


def assert_is_the_replay(film, time_s, within_s=0.0):
    now, batches = Moment(film.result, time_s), film.batches
    assert film.waiting(time_s).tolist() == now.waiting
    assert film.running(time_s).tolist() == sorted(now.members)
    assert film.counts(time_s) == (now.arrived, now.served, now.lost)
    assert film.forming(time_s) == now.forming
    assert film.words(time_s, within_s) == now.words(film.lines, within_s)
    line = film.lines[film.line(time_s, within_s)]
    if now.leaves(within_s):
        assert line.trigger == batches.trigger[now.left[-1]]
    else:
        assert line.activity == now.state(within_s)


def times_around(film):
    """Return every instant, the floats beside it, and what lies between."""
    instants = film.instants
    beside = [np.nextafter(instants, -1), np.nextafter(instants, math.inf)]
    times_s = np.unique(np.concatenate([[0.0], instants, *beside, (instants[1:] + instants[:-1]) / 2]))
    return times_s[times_s >= 0].tolist()


@settings(max_examples=40)
@given(plans_with_ties(priorities=True))
def test_a_film_is_the_naive_replay_when_everything_is_tied(plan):
    film = RequestFilm(result_of(plan))
    for time_s in times_around(film):
        assert_is_the_replay(film, time_s)
    assert film.waiting(time_s).size == film.running(time_s).size == 0


@settings(max_examples=40)
@given(
    scenarios_at_random(priorities=True), st.integers(0, 99), st.sampled_from([0, 0.004]),
    st.lists(st.floats(0, 0.3), min_size=12, max_size=12),
)  # fmt: skip
def test_a_film_is_the_naive_replay_on_random_traffic(scenario, seed, within_s, times_s):
    film = RequestFilm(bs.simulate(scenario, 150, seed=seed))
    for time_s in times_s:
        assert_is_the_replay(film, time_s, within_s)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_a_film_is_the_naive_replay_when_requests_overtake(seed, servers):
    """Each batch takes any of those that wait, as under a rule with priorities; some time out."""
    rng = np.random.default_rng(seed)
    arrival_ms = np.cumsum(rng.integers(0, 3, 30))
    batch_index, status = np.full(30, -1), np.full(30, bs.Status.TIMED_OUT, np.uint8)
    free_ms, rows = np.zeros(servers, int), []
    while free_ms.min() < arrival_ms[-1] + 8:
        now, idle = free_ms.min(), int(free_ms.argmin())
        waiting = np.flatnonzero((batch_index < 0) & (arrival_ms <= now) & (now <= arrival_ms + 8))
        free_ms[idle] += rng.integers(1, 5)
        if waiting.size:
            taken = rng.choice(waiting, rng.integers(1, waiting.size + 1), replace=False)
            batch_index[taken], status[taken] = len(rows), bs.Status.SERVED
            rows.append((now / 1000, free_ms[idle] / 1000, taken.size, idle, bs.Trigger.FULL))
    arrival_s, columns = arrival_ms / 1000, map(np.array, zip(*rows, strict=True))
    limits = {"servers": servers, "timeout_ms": 8}
    scenario = bs.Scenario(bs.Trace(arrival_s), bs.SizeOrWait(30, 0), bs.Affine(1, 0), **limits)
    log = Log(arrival_s, batch_index, status, *columns)
    film = RequestFilm(Result((Run(scenario.replace(rule=bs.SizeOrWait(30, 5)), log),), 0, ""))
    for time_s in times_around(film):
        assert_is_the_replay(film, time_s)


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


@settings(max_examples=120)
@given(plans_with_ties())
def test_between_two_instants_nothing_changes(plan):
    film = RequestFilm(result_of(plan))

    def state(time_s):
        return film.waiting(time_s).tolist(), film.running(time_s).tolist(), film.counts(time_s)

    for begin_s, end_s in pairwise(film.instants.tolist()):
        assert state(begin_s) == state(math.nextafter(end_s, 0))


@settings(max_examples=120)
@given(plans_with_ties())
def test_the_rule_does_what_the_columns_say_next(plan):
    film = RequestFilm(result_of(plan))
    starts_s, rule = set(film.batches.start_s.tolist()), film.rule
    for time_s in times_around(film):
        state, waiting = film.state(time_s)[0], film.waiting(time_s)
        assert ("leaves" in state) == (time_s in starts_s)
        if "leaves" not in state:
            assert (state == IDLE) == (waiting.size == 0)
        if state == QUEUEING:
            assert film.running(time_s).size == film.servers
        if state == FORMING:
            # Its wait is not over, or the batch would have left, and there are not yet enough.
            assert film.running(time_s).size < film.servers
            assert waiting.size < rule.enough
            assert time_s < after(film.arrival_s[waiting[0]], rule.max_wait_ms / 1000)


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
    film = RequestFilm(
        bs.simulate(bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(2, 5), bs.Affine(9, 1)))
    )
    because = film.rule.steps[0].because
    for time_s, parts in {
        0.002: [": waiting for company; 1 waiting, the oldest for 2 ms; server idle; 1 arrived, 0 served"],
        0.004: ["At 4 ms: a batch of 2 leaves: ", because, "; server busy; 2 arrived"],
        0.013: ["At 13 ms: waiting for a server; 1 waiting, the oldest for 1 ms; server busy; 3 arrived"],
        0.016: [": waiting for company; ", "; server idle"],
        0.017: [": a batch of 1 leaves: the oldest has waited 5 ms"],
        9: ["At 9,000 ms: no request waits; server idle; 3 arrived, 3 served, 0 lost."],
    }.items():
        assert all(part in film.words(time_s) for part in parts)
    assert film.lines[film.line(0.017)].trigger is bs.Trigger.WAIT
    # Who looks seldom sees a batch leave that left a while ago.
    assert "leaves" in film.words(0.005, within_s=0.0011)
    assert film.lines[film.line(0.005, within_s=0.0011)].text.endswith("send the oldest 2")
    assert "leaves" not in film.words(0.005, within_s=0.0009)


def test_a_film_refuses():
    scenario = PLAIN.replace(max_batch_size=8)
    film = RequestFilm(bs.simulate(scenario, 10))
    with pytest.raises(ValueError, match="time_s must be at least 0, got -1"):
        film.words(-1)
    with pytest.raises(ValueError, match="time_s must be a number, got nan"):
        film.words(math.nan)
    with pytest.raises(TypeError, match="result must be a Result, got 5"):
        RequestFilm(5)
    with pytest.raises(ValueError, match="a film must be of one run, got 2 replications"):
        RequestFilm(bs.simulate(scenario, 10, replications=2))
    with pytest.raises(ValueError, match="columns must be kept"):
        RequestFilm(bs.simulate(scenario, 10, keep="summary"))


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


def test_the_largest_batch_of_a_period_leaves_within_it():
    film = RequestFilm(bs.simulate(PLAIN, 1000))
    batch, start_s = film.largest_leaving(0.1, 0.3), film.batches.start_s
    within = (start_s >= 0.1) & (start_s < 0.3)
    assert within[batch]
    assert film.batches.batch_size[batch] == film.batches.batch_size[within].max()
    assert film.largest_leaving(0.1, 0.1) is None


def test_a_lane_says_how_many_wait_and_what_each_server_computes():
    film = QueueFilm(bs.simulate(PLAIN.replace(servers=3, rate_per_s=5000), 600))
    for time_s in film.instants[::9].tolist():
        now = Moment(film.result, time_s)
        sizes = [str(len(each)) for each in now.computing if each]
        computes = f"computing {' and '.join(sizes)}" if sizes else "idle"
        assert film.words(time_s) == f"{len(now.waiting)} waiting, {computes}"


# The order of the queue, which `film.js` is compared with: a batch is what stands at its head.


TWO = {1: 0.2, 2: 0.8}
SHARED = bs.Scenario(bs.Poisson(1900).with_priorities(TWO), bs.SizeOrWait(8, 5), bs.Affine(3, 0.1))
# Of each way to take requests: from the queue, or in batches that wait as they are.
RULES = [bs.SizeOrWait(4, 3.3), bs.PreferredUntilLate([2, 4], 8, 3.3), bs.FrozenBatches(8, 0)]
KINDS = list(dict.fromkeys(type(rule) for rule in RULES))


def assert_taken_in_turn(result):
    """Whoever is in a batch stood before all who stay."""
    for batch, start_s in enumerate(result.batches.start_s.tolist()):
        before, now = Moment(result, math.nextafter(start_s, 0)), Moment(result, start_s)
        taken = np.flatnonzero(result.batch_index == batch).tolist()
        stood = before.in_turn(set(before.waiting) & {*taken, *now.waiting})  # not who gave up then
        assert {*stood[: len(set(taken) & {*stood})]} <= {*taken}


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


@pytest.mark.parametrize("rule", [bs.servers.litserve(8, 0.005), bs.servers.mosec(8, 5)], ids=str)
def test_a_batch_that_was_dealt_is_what_stood_at_the_head(rule):
    scenario = SHARED.replace(priorities=None, rule=rule, servers=3)
    assert not scenario.in_order
    assert_taken_in_turn(bs.simulate(scenario, 500))
