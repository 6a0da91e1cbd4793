"""The player of films: its clock, its steps, and a film that stands alone."""

import base64
from itertools import pairwise

import pytest

import batchsim as bs
from batchsim.view.explorer import player as module
from batchsim.view.explorer.player import ECHO_S, LEAP_S, SLOWNESS, comfortable
from batchsim.view.film.motion import WAY
from batchsim.view.film.snapshot import REQUESTS, Film

PLAIN = bs.Scenario(bs.Poisson(1000), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


class Clock:
    """The seconds of a clock that a test turns."""

    def __init__(self):
        self.now_s = 100.0

    def perf_counter(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module.time, "perf_counter", clock.perf_counter)
    return clock


@pytest.fixture
def player():
    return bs.film(PLAIN, requests=100)


def sent_by(player):
    """Collect what the screen is sent from now on."""
    sent = []
    player.screen.send = lambda content, buffers=None: sent.append((content, buffers))
    return sent


def tick(player):
    player.screen._handle_custom_msg({"tick": True}, [])


def test_a_film_shows_a_batch_that_just_leaves_and_says_so(player):
    moment, film = player.moment, player.film
    batch = moment.last
    share = (player.time_s - batch.start_s) / (batch.finish_s - batch.start_s)
    assert 0 < share < WAY
    assert f"a batch of {batch.requests.size} leaves" in player.words
    assert player.text.value.count(player.words) == 1
    assert player.screen.frame.startswith(b"\x89PNG")
    assert player.screen.alt == player.words
    begin_s, end_s = player.picture.stage.timeline.window_s
    assert begin_s <= player.time_s <= end_s
    assert batch.number == film.largest_leaving(begin_s, end_s).number


def test_it_works_without_a_page(player):
    player.time_ms = 12.5
    assert player.time_ms == 12.5
    assert player.words.startswith("At 12.5 ms:")
    instants = player.film.instants()
    later = instants[instants > 0.0125].tolist()
    for time_s in later[:3]:
        player.next.click()
        assert player.time_s == time_s
    player.previous.click()
    assert player.time_s == later[1]
    assert f"{player.film.snapshot(later[1]).arrived} arrived" in player.words
    assert player.place.value == pytest.approx(1000 * later[1])
    assert f"{1000 * later[1]:,.2f} ms" in player.readout.value


def test_the_events_end_at_the_films_ends(player):
    begin_ms, until_ms = (1000 * time_s for time_s in player.stretch)
    player.time_ms = until_ms
    player.next.click()
    assert player.time_ms == until_ms
    assert "100 served" in player.words
    player.time_ms = begin_ms
    player.previous.click()
    assert player.time_ms == begin_ms


def test_a_film_that_is_first_seen_at_its_end_goes_from_event_to_event_from_its_beginning():
    scenario = bs.Scenario(bs.Poisson(2000), bs.SizeOrWait(32, 10), bs.Affine(1.9, 0.14))
    film = bs.film(bs.compare_servers(scenario, requests=500))
    assert film.time_s == film.stretch.until_s
    film.next.click()
    assert film.time_s == film.stretch.begin_s
    film.next.click()
    instants = film.film.instants()
    assert film.time_s == instants[instants > film.stretch.begin_s][0]


def test_a_time_outside_the_film_is_refused_and_nothing_moves(player):
    before = player.time_ms
    for value in (-1, 1e6, float("nan")):
        with pytest.raises(ValueError, match="time_ms must be"):
            player.time_ms = value
    assert player.time_ms == before


def test_the_slider_moves_the_film_and_its_echo_does_not(player, clock):
    player.place.value = 20.0
    assert player.time_ms == 20.0
    player.time_ms = 31.23
    player.place.value = 31.2  # what a page makes of it
    assert player.time_ms == 31.23
    clock.now_s += 2 * ECHO_S
    player.place.value = 31.0
    player.place.value = 31.2  # a hand
    assert player.time_ms == 31.2


def test_it_plays_by_the_clock_from_the_beginning_and_stops_at_the_end(player, clock):
    sent = sent_by(player)
    slower = player.slowness.value
    player.play.value = True
    assert player.time_s == player.stretch.begin_s
    assert sent[-1][0] == {"film": True}
    for _ in range(10):
        clock.now_s += 0.04
        tick(player)
    assert player.time_s == pytest.approx(0.4 / slower)
    assert player.time_s == player.moment.time_s
    frames = [buffers[0] for content, buffers in sent if "patch" in content]
    assert len(frames) == 11
    assert all(one != other for one, other in pairwise(frames))
    clock.now_s += 3600  # a page that was hidden goes on where it was
    tick(player)
    assert player.time_s == pytest.approx((0.4 + LEAP_S) / slower)
    player.slowness.value = SLOWNESS[0]
    clock.now_s += 0.1
    tick(player)
    assert not player.playing
    assert player.time_s == player.stretch.until_s
    assert sent[-2][0] == {"film": False}
    assert "100 served" in player.text.value
    count = len(sent)
    tick(player)
    assert len(sent) == count, "a page that asks after the end gets nothing"
    player.play.value = True
    assert player.time_s == player.stretch.begin_s


def test_a_film_that_was_moved_is_played_from_there(player, clock):
    player.time_ms = 40
    player.play.value = True
    assert player.time_ms == 40
    clock.now_s += 0.1
    tick(player)
    assert player.time_ms == pytest.approx(40 + 100 / player.slowness.value)
    player.next.click()
    assert not player.playing
    assert player.time_s in player.film.instants()


def test_what_is_read_changes_only_while_it_stands_still(player, clock):
    player.play.value = True
    clock.now_s += 0.1
    tick(player)
    assert player.text.value == ""
    player.play.value = False
    assert player.words in player.text.value


def test_a_page_has_its_own_width_and_colours(player):
    player.time_ms = 25
    frame = player.screen.frame
    player.screen.dark = True
    player.screen.width_px = 640
    assert player.picture.width_px == 640
    assert player.picture.theme.background != "#FFFFFF"
    assert player.screen.frame != frame
    assert player.time_ms == 25


def test_the_notebook_keeps_a_picture(player):
    bundle, metadata = player._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == player.words != ""
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert len(bundle["image/png"]) < 200_000
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "100 requests" in repr(player)


def test_of_a_result_some_requests_from_its_middle_are_played():
    result = bs.simulate(PLAIN, 5000)
    player = bs.film(result)
    begin_s, until_s = player.stretch
    assert REQUESTS <= player.film.coming(begin_s, until_s).size + 1 <= 1.2 * REQUESTS
    assert result.arrival_s[2000] < begin_s < until_s < result.arrival_s[3000]
    assert player.film.result is result


def test_the_slowness_suits_the_traffic_and_the_batches():
    for rate_per_s in (1, 30, 1000, 1e5):
        for fixed_ms in (0.05, 5, 500):
            scenario = bs.Scenario(bs.Poisson(rate_per_s), bs.SizeOrWait(8, 1), bs.Affine(fixed_ms, 0))
            film = Film(bs.simulate(scenario, 200))
            times = comfortable(film, film.stretch())
            gap_s, batch_s = times / rate_per_s, times * fixed_ms / 1000
            assert gap_s < 4, "nothing happens"
            assert batch_s < 6
            assert batch_s > 0.2 or gap_s > 1


def test_a_film_refuses():
    with pytest.raises(TypeError, match="a Scenario, a Result or what compare_servers returns, got 3"):
        bs.film(3)
    with pytest.raises(ValueError, match="requests must be at least 1, got 0"):
        bs.film(PLAIN, requests=0)
    with pytest.raises(ValueError, match="one run, got 2"):
        bs.film(bs.simulate(PLAIN, 100, replications=2))
    with pytest.raises(ValueError, match="columns"):
        bs.film(bs.simulate(PLAIN, 1000, keep="summary"))
