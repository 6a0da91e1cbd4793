"""A film in a cell: its time, its steps and its words in Python, and what a page receives."""

import base64
import re

import numpy as np
import pytest
from refusals import refusals

import batchsim as bs
from batchsim.view.explorer.player import Player
from batchsim.view.film.clip import request_clip
from batchsim.view.film.film import REQUESTS, RequestFilm

PLAIN = bs.Scenario(bs.Poisson(1000), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


@pytest.fixture
def player():
    return bs.film(PLAIN, requests=100)


def sent_by(player):
    """Collect what the page is sent from now on."""
    sent = []
    player.send = lambda content, buffers=None: sent.append(content)
    return sent


def report(player, time_s, playing, number=None):
    """Report a moment as a page does that has obeyed an order, by default the last."""
    number = player.moment[0] if number is None else number
    player._handle_custom_msg({"moment": [number, time_s, playing]}, [])


def column(found):
    """Return an array that a page unpacks."""
    return np.frombuffer(found["bytes"], found["dtype"])


COMPARED = bs.Scenario(bs.Poisson(2000), bs.SizeOrWait(32, 10), bs.Affine(1.9, 0.14))


@pytest.mark.parametrize(
    "film",
    [
        lambda: bs.film(PLAIN, requests=100),
        lambda: bs.film(bs.simulate(PLAIN, 2000), requests=50),
        lambda: bs.film(bs.compare_servers(COMPARED, requests=500)),
    ],
    ids=["whole", "a part", "lanes"],
)
def test_a_film_begins_at_its_first_event_and_goes_on_to_the_next(film):
    player = film()
    first, second = player.clip.instants[player.clip.instants >= player.stretch.begin_s][:2]
    assert player.time_s == player.film["start"]["time_s"] == first
    player.next()
    assert player.time_s == second


def test_the_explorers_film_begins_as_the_largest_batch_of_its_middle_leaves_and_says_so():
    result = bs.simulate(PLAIN, 100)
    film, batches = RequestFilm.of(result), result.batches
    window = request_clip(film, (0.0, float(result.arrival_s[-1])))
    time_s, within_s = window.start_s
    last = batches.start_s.searchsorted(time_s) - 1
    start_s, finish_s = batches.start_s[last], batches.finish_s[last]
    assert start_s < time_s < 0.9 * start_s + 0.1 * finish_s
    assert f"a batch of {batches.batch_size[last]} leaves" in window.words(time_s, within_s)
    assert "leaves" not in window.words(time_s, 0.0)


def test_it_works_without_a_page(player):
    player.time_ms = 12.5
    assert player.time_ms == 12.5
    assert player.words.startswith("At 12.50 ms:")
    instants = player.clip.instants
    later = instants[instants > 0.0125].tolist()
    for time_s in later[:3]:
        player.next()
        assert player.time_s == time_s
    player.previous()
    assert player.time_s == later[1]
    assert player.words == RequestFilm(bs.simulate(PLAIN, 100)).words(later[1])
    assert player.line is not None


def test_the_events_end_at_the_films_ends(player):
    begin_ms, until_ms = (1000 * time_s for time_s in player.stretch)
    player.time_ms = until_ms
    player.next()
    assert player.time_ms == until_ms
    assert "100 served" in player.words
    player.time_ms = begin_ms
    player.previous()
    assert player.time_ms == begin_ms


def test_a_time_outside_the_film_is_refused_and_nothing_moves(player):
    before = player.time_ms
    for value in (-1, 1e6, float("nan")):
        with pytest.raises(ValueError, match="time_ms must be"):
            player.time_ms = value
    assert player.time_ms == before


def test_a_page_is_told_where_to_go_and_when_to_play(player):
    sent = sent_by(player)
    player.time_ms = 12.5
    player.play()
    player.next()
    assert sent == [{"play": True}, {"play": False}]
    number, time_s, _ = player.moment
    assert (number, time_s) == (3, player.time_s)  # the film, 12.5 ms, and the next event


def test_what_a_page_reports_is_the_films_time(player):
    report(player, 0.02, True)
    assert (player.time_ms, player.playing) == (20.0, True)
    assert player.words.startswith("At 20.00 ms:")


def test_another_window_that_comes_while_a_film_plays_is_played_from_its_beginning(player):
    other = bs.film(PLAIN.replace(rate_per_s=100), requests=50).clip
    report(player, 0.02, True)
    player.load(other)
    assert player.time_s == other.stretch.begin_s
    report(player, None, False)
    assert player.time_s == other.start_s[0]


def test_a_page_that_reports_before_an_order_has_arrived_is_ignored(player):
    other, number = bs.film(PLAIN.replace(rate_per_s=100), requests=50).clip, player.moment[0]
    player.load(other)
    report(player, 0.02, False, number)
    assert player.time_s == other.start_s[0]
    player.go_to(other.stretch.until_s)
    report(player, other.stretch.begin_s, True, number + 1)
    assert (player.time_s, player.playing) == (other.stretch.until_s, False)


def test_a_film_that_looks_the_same_keeps_its_time(player):
    player.time_ms = 12.5
    player.load(bs.film(PLAIN, requests=100).clip)
    assert player.time_ms == 12.5


def test_a_page_gets_arrays_and_no_frames(player):
    (lane,) = player.film["lanes"]
    assert column(lane["arrival_s"]).tolist() == bs.simulate(PLAIN, 100).arrival_s.tolist()
    columns = [each for each in [*lane.values(), *lane["batches"].values()] if isinstance(each, dict)]
    size = sum(len(each["bytes"]) for each in columns if "bytes" in each)
    assert size < 10_000
    assert "class Film" in Player._esm
    assert Player._esm.count("export default") == 1


def test_the_notebook_keeps_a_timeline_with_its_description(player):
    bundle, metadata = player._repr_mimebundle_()
    assert metadata["image/png"]["alt"].startswith("The timeline shows")
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert len(bundle["image/png"]) < 200_000
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert re.fullmatch(r"Film of 100 requests, at \d+\.\d\d ms", repr(player))  # as the clock says it


def test_the_notebook_keeps_the_lanes_of_several_rules():
    film = bs.film(PLAIN, rules={"small": bs.SizeOrWait(4, 2), "large": bs.SizeOrWait(16, 20)})
    _, metadata = film._repr_mimebundle_()
    assert metadata["image/png"]["alt"].startswith("The same ")
    assert "small: p99" in metadata["image/png"]["alt"]
    assert repr(film).startswith("Film of 2 servers, at ")


def test_of_a_result_some_requests_from_its_middle_are_played():
    result = bs.simulate(PLAIN, 5000)
    player = bs.film(result)
    begin_s, until_s = player.stretch
    coming = np.count_nonzero((result.arrival_s > begin_s) & (result.arrival_s <= until_s))
    assert REQUESTS <= coming + 1 <= 1.2 * REQUESTS
    assert result.arrival_s[2000] < begin_s < until_s < result.arrival_s[3000]


@refusals
def test_a_film_refuses():
    """
    bs.film(3) -> TypeError: film takes a Scenario, a Result or what compare_servers returns, got 3
    bs.film(PLAIN, requests=0) -> requests must be at least 1, got 0
    bs.film(bs.simulate(PLAIN, 100, replications=2)) -> a film must be of one run, got 2 replications
    bs.film(bs.simulate(PLAIN, 1000, keep="summary")) -> columns
    bs.film(bs.simulate(PLAIN, 100), rules={"a": bs.SizeOrWait()})
        -> rules must come with a scenario, got a result
    bs.film(PLAIN, names=[1, 2]) -> TypeError: names must be a list of text, got [1, 2]
    bs.film(PLAIN, rules={"small": bs.SizeOrWait(4, 2)}, names=["Ann"])
        -> names must be of the requests of one run without tokens, got ['Ann']
    """
