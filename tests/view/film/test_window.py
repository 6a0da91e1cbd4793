"""A film's window: its arrays are those of the run, and its sentences those of a naive look at it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.naive import after
from oracles.plans import scenarios_at_random

import batchsim as bs
from batchsim._format import number
from batchsim.view.film.snapshot import EARLIER, REQUESTS, Film, PlayRange
from batchsim.view.film.token_film import StepFilm, WholeFilm
from batchsim.view.film.window import moments, packed, request_lane, request_window
from batchsim.view.film.words import describe

PLAIN = bs.Scenario(bs.Poisson(1800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
CARD = bs.published("llama-3.1-8b/rtx-4090")
TOKENS = bs.Scenario(bs.Poisson(6), bs.Continuous(8), CARD, tokens=bs.Tokens(200, bs.Geometric(60)))


def seen_by(lane, time_s):
    """Return who waits, and who is computed by which server, from a lane's arrays one by one."""
    waiting, computing = [], {}
    batches = lane["batches"]
    for at, arrival_s in enumerate(lane["arrival_s"].tolist()):
        number = lane["first"] + at
        if arrival_s <= time_s < lane["left_s"][at]:
            waiting.append(number)
        elif lane["left_s"][at] <= time_s < lane["done_s"][at]:
            batch = lane["batch"][at]
            assert batches["start_s"][batch] <= time_s < batches["finish_s"][batch]
            computing.setdefault(int(batches["server"][batch]), []).append(number)
    return waiting, computing


def run_at(result, time_s):
    """Return the same from the result's columns, request by request."""
    waiting, computing = [], {}
    limit_s = math.inf if result.scenario.timeout_ms is None else result.scenario.timeout_ms / 1000
    for request, (arrival_s, state) in enumerate(zip(result.arrival_s, result.status, strict=True)):
        left_s = {bs.Status.SERVED: result.start_s[request], bs.Status.TIMED_OUT: after(arrival_s, limit_s)}
        if arrival_s <= time_s < left_s.get(state, arrival_s):
            waiting.append(request)
        elif state == bs.Status.SERVED and result.start_s[request] <= time_s < result.finish_s[request]:
            server = int(result.batches.server[result.batch_index[request]])
            computing.setdefault(server, []).append(request)
    return waiting, computing


@settings(max_examples=60)
@given(scenarios_at_random(), st.integers(0, 99), st.floats(0, 0.1), st.lists(st.floats(0, 1), min_size=6))
def test_a_lane_has_whoever_is_in_the_system_during_its_stretch(scenario, seed, begin_s, shares):
    result = bs.simulate(scenario, 150, seed=seed)
    film, stretch = Film(result), PlayRange(begin_s, begin_s + 0.05)
    lane = request_lane(film, stretch)
    for time_s in (begin_s + 0.05 * share for share in shares):
        assert seen_by(lane, time_s) == run_at(result, time_s)


@settings(max_examples=30)
@given(scenarios_at_random(), st.floats(0, 0.1))
def test_the_counts_before_a_lane_are_of_those_who_left_the_system_before(scenario, begin_s):
    result = bs.simulate(scenario, 150)
    film = Film(result)
    lane = request_lane(film, PlayRange(begin_s, begin_s + 0.05))
    now, inside = film.snapshot(begin_s), lane["done_s"] <= begin_s
    for status in bs.Status:
        name = status.name.lower()
        there = np.count_nonzero(inside & (lane["status"] == status))
        assert lane["before"][name] + there == getattr(now, name)
    assert lane["first"] + np.count_nonzero(lane["arrival_s"] <= begin_s) == now.arrived


def test_a_lane_names_levels_and_the_turn_of_those_who_overtake():
    plain = request_lane(Film(bs.simulate(PLAIN, 100)), PlayRange(0, 0.1))
    assert plain["levels"] == []
    assert "turn" not in plain
    two = PLAIN.replace(priorities={1: 0.3, 2: 0.7}, timeout_ms={2: 6}, timeout_action={2: "delay"})
    result = bs.simulate(two, 100)
    lane = request_lane(Film(result), PlayRange(0, 0.1))
    assert lane["levels"] == [1, 2]
    assert (np.array([1, 2])[lane["level"]] == result.priority[: lane["level"].size]).all()
    late_s = [
        after(arrival_s, 0.006) if level == 1 else math.inf
        for arrival_s, level in zip(lane["arrival_s"].tolist(), lane["level"], strict=True)
    ]
    assert lane["turn"]["late_s"].tolist() == late_s


def test_some_requests_are_played_around_a_period_and_a_short_run_whole():
    film = Film(bs.simulate(PLAIN, 3000))
    arrival_s, instants = film.result.arrival_s, film.instants
    begin_s, until_s = film.stretch(float(arrival_s[1000]), float(arrival_s[1020]))
    assert begin_s == arrival_s[1000 - EARLIER]
    assert until_s == arrival_s[1000 - EARLIER + REQUESTS]
    assert film.stretch(float(arrival_s[10]), float(arrival_s[20])).begin_s == 0
    assert film.stretch(0.0, float(arrival_s[2000])).until_s >= arrival_s[2000]
    end_s = float(instants[-1])
    assert film.stretch(end_s - 0.01, end_s) == (pytest.approx(end_s, rel=0.1), end_s)
    short = Film(bs.simulate(PLAIN, REQUESTS))
    assert short.stretch(0.05, 0.1) == (0, short.instants[-1])


def test_arrays_are_sent_as_bytes_of_a_type_that_a_page_knows():
    sent = packed({"a": np.array([1.5, np.inf]), "b": [np.array([True, False])], "c": np.array([1, -1])})
    assert (sent["a"]["dtype"], sent["b"][0]["dtype"], sent["c"]["dtype"]) == ("float64", "uint8", "int32")
    assert np.frombuffer(sent["a"]["bytes"]).tolist() == [1.5, np.inf]
    assert np.frombuffer(sent["c"]["bytes"], np.int32).tolist() == [1, -1]


@pytest.mark.parametrize(
    ("rule", "kind"), [(TOKENS.rule, StepFilm), (bs.SizeOrWait(8, 500), WholeFilm)], ids=["steps", "whole"]
)
def test_each_instant_of_a_server_has_its_sentence_and_its_line(rule, kind):
    film = kind(bs.simulate(TOKENS.replace(rule=rule), 100))
    instants = film.instants
    stretch = PlayRange(float(instants[40]), float(instants[140]))
    found = moments(film, stretch)
    events = found["at_s"][found.pop("event")]
    assert events.tolist() == instants[40:141].tolist()
    for at, words, line, leaves in zip(*found.values(), strict=True):
        now = film.snapshot(at)
        assert words.startswith("At {t} ms: ")
        told = words.replace("{t}", f"{1000 * at:,.1f}")
        before, _, rest = told.partition("the oldest for {since ")
        if rest:
            waited_ms = 1000 * (at - float(rest.partition("}")[0]))
            assert now.said().startswith(before)
            assert f"the oldest for {number(waited_ms)} ms{rest.partition('} ms')[2]}" in now.said()
        else:
            assert told == now.said()
        assert line == (-1 if now.acting() is None else now.acting())
        assert leaves == ("leaves:" in words)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(
    ("rule", "kind"), [(TOKENS.rule, StepFilm), (bs.SizeOrWait(8, 500), WholeFilm)], ids=["steps", "whole"]
)
def test_the_sentence_of_a_server_holds_until_the_next_one(rule, kind, servers):
    film = kind(bs.simulate(TOKENS.replace(rule=rule, servers=servers, rate_per_s=6.0 * servers), 150))
    stretch = PlayRange(float(film.instants[60]), float(film.instants[160]))
    found = moments(film, stretch)
    for time_s in np.random.default_rng(7).uniform(*stretch, 300).tolist():
        words = found["words"][int(found["at_s"].searchsorted(time_s, side="right")) - 1]
        words = words.replace("{t}", f"{1000 * time_s:,.1f}")
        begin, _, rest = words.partition("{since ")
        if rest:
            since_s, _, rest = rest.partition("}")
            words = begin + number(1000 * (time_s - float(since_s))) + rest
        assert words == film.snapshot(time_s).said()


def test_the_window_of_a_run_describes_its_moments():
    film = Film(bs.simulate(PLAIN, 3000))
    window = request_window(film, (0.5, 0.6))
    for time_s in np.linspace(*window.stretch, 20).tolist():
        assert window.words(time_s, 0.0) == describe(film.snapshot(time_s))
    assert "leaves" in window.words(*window.start_s)


# In words.


def assert_says(text, *parts):
    at = [text.index(part) for part in parts]
    assert at == sorted(at)


def test_a_snapshot_in_words():
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(2, 20), bs.Affine(9, 1))
    film = Film(bs.simulate(scenario))
    because = scenario.rule.steps[0].because
    assert_says(describe(film.snapshot(0.004)), "4 ms", "batch of 2 leaves", because, "busy", "2 arrived")
    assert_says(describe(film.snapshot(0.013)), "13 ms", "waiting for a server", "1 waiting", "1 ms", "busy")
    assert_says(describe(film.snapshot(9)), "9,000 ms", "no request waits", "idle", "3 served, 0 lost")


def test_several_servers_and_losses_in_words():
    scenario = PLAIN.replace(max_batch_size=1, servers=3, queue_limit=1, rate_per_s=100)
    scenario = scenario.replace(workload=bs.Trace([0, 0.001, 0.0010, 0.0011, 0.0012, 0.0013]))
    film = Film(bs.simulate(scenario))
    assert "1 of 3 servers busy" in describe(film.snapshot(0.0005))
    assert_says(describe(film.snapshot(0.002)), "3 of 3 servers busy", "6 arrived, 0 served, 2 lost.")
