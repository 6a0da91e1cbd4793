"""A film's window: its arrays are those of the run, and its sentences those of a naive look at it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.naive import after
from oracles.naive_film import Moment
from oracles.plans import scenarios_at_random

import batchsim as bs
from batchsim._format import number
from batchsim.view.film.clip import Clip, moments, packed, request_lane
from batchsim.view.film.film import PlayRange, RequestFilm
from batchsim.view.film.token_film import TokenFilm

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


@settings(max_examples=60)
@given(scenarios_at_random(), st.integers(0, 99), st.floats(0, 0.1), st.lists(st.floats(0, 1), min_size=6))
def test_a_lane_has_whoever_is_in_the_system_during_its_stretch(scenario, seed, begin_s, shares):
    result = bs.simulate(scenario, 150, seed=seed)
    film, stretch = RequestFilm(result), PlayRange(begin_s, begin_s + 0.05)
    lane = request_lane(film, stretch)
    for time_s in (begin_s + 0.05 * share for share in shares):
        now = Moment(result, time_s)
        computing = {server: sorted(each) for server, each in enumerate(now.computing) if each}
        assert seen_by(lane, time_s) == (now.waiting, computing)


@settings(max_examples=30)
@given(scenarios_at_random(), st.floats(0, 0.1))
def test_the_counts_before_a_lane_are_of_those_who_left_the_system_before(scenario, begin_s):
    result = bs.simulate(scenario, 150)
    film = RequestFilm(result)
    lane = request_lane(film, PlayRange(begin_s, begin_s + 0.05))
    now, inside = Moment(result, begin_s), lane["done_s"] <= begin_s
    gone = {
        status: lane["before"][status.name.lower()] + np.count_nonzero(inside & (lane["status"] == status))
        for status in bs.Status
    }
    assert (gone[bs.Status.SERVED], sum(gone.values())) == (now.served, now.served + now.lost)
    assert gone[bs.Status.REJECTED] == (result.status[: now.arrived] == bs.Status.REJECTED).sum()
    assert lane["first"] + np.count_nonzero(lane["arrival_s"] <= begin_s) == now.arrived


def test_a_lane_names_levels_and_the_turn_of_those_who_overtake():
    plain = request_lane(RequestFilm(bs.simulate(PLAIN, 100)), PlayRange(0, 0.1))
    assert plain["levels"] == []
    assert "turn" not in plain
    two = PLAIN.replace(priorities={1: 0.3, 2: 0.7}, timeout_ms={2: 6}, timeout_action={2: "delay"})
    result = bs.simulate(two, 100)
    lane = request_lane(RequestFilm(result), PlayRange(0, 0.1))
    assert lane["levels"] == [1, 2]
    assert (np.array([1, 2])[lane["level"]] == result.priority[: lane["level"].size]).all()
    late_s = [
        after(arrival_s, 0.006) if level == 1 else math.inf
        for arrival_s, level in zip(lane["arrival_s"].tolist(), lane["level"], strict=True)
    ]
    assert lane["turn"]["late_s"].tolist() == late_s


def test_arrays_are_sent_as_bytes_of_a_type_that_a_page_knows():
    sent = packed({"a": np.array([1.5, np.inf]), "b": [np.array([True, False])], "c": np.array([1, -1])})
    assert (sent["a"]["dtype"], sent["b"][0]["dtype"], sent["c"]["dtype"]) == ("float64", "uint8", "int32")
    assert np.frombuffer(sent["a"]["bytes"]).tolist() == [1.5, np.inf]
    assert np.frombuffer(sent["c"]["bytes"], np.int32).tolist() == [1, -1]


def said_at(words, time_s):
    """Return the sentence of a moment as a page writes it."""
    words = words.replace("{t}", f"{1000 * time_s:,.1f}")
    begin, _, rest = words.partition("{since ")
    since_s, _, end = rest.partition("}")
    return begin + number(1000 * (time_s - float(since_s))) + end if rest else words


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("rule", [TOKENS.rule, bs.SizeOrWait(8, 500)], ids=["steps", "whole"])
def test_each_instant_of_a_server_has_its_line_and_a_sentence_that_holds_until_the_next(rule, servers):
    film = TokenFilm(bs.simulate(TOKENS.replace(rule=rule, servers=servers, rate_per_s=6.0 * servers), 150))
    stretch = PlayRange(*film.instants[[60, 160]].tolist())
    found = moments(film, stretch)
    assert found["at_s"][found["event"]].tolist() == film.instants[60:161].tolist()
    between_s = np.random.default_rng(7).uniform(*stretch, 300)
    for time_s in [*found["at_s"].tolist(), *between_s.tolist()]:
        at = int(found["at_s"].searchsorted(time_s, side="right")) - 1
        assert said_at(found["words"][at], time_s) == film.words(time_s)
        assert found["line"][at] == (-1 if film.line(time_s) is None else film.line(time_s))
        assert found["leaves"][at] == ("leaves:" in found["words"][at])


@pytest.mark.parametrize(
    ("more", "until_s", "said"),
    [({}, 0.9, "At 500 ms: idle."), ({}, 2, "At 0.500 s: idle."), ({"page_s": 0.2}, 2, "At 500 ms: idle.")],
)
def test_a_window_says_its_times_in_one_unit(more, until_s, said):
    def words(time_s, within_s):
        return f"At {1000 * time_s:g} ms: idle."

    window = Clip(PlayRange(0, until_s), np.array([0.5]), [{}], words, more=more)
    assert window.said(0.5, 0.0) == said
    assert window.message()["unit"][0] == said.split()[2].rstrip(":")
