"""The page of the film in the explorer: it plays the run that is shown, in the large view."""

import pytest

import batchsim as bs


@pytest.fixture
def panel():
    panel = bs.explore(requests=1000)
    panel.turn_to(panel.play)
    return panel


def test_opening_the_page_makes_the_film_large(panel):
    assert panel.session.style.large == "timeline"
    assert panel.picture.stage is not None
    assert panel.play.player.film.result is panel.result
    panel.turn_to(panel.share)
    panel.screen.enlarge("latency")
    assert panel.picture.stage is None
    panel.turn_to(panel.play)
    assert panel.picture.stage is not None


def test_another_view_stops_the_film_and_play_brings_it_back(panel):
    player = panel.play.player
    player.play.value = True
    panel.screen.enlarge("latency")
    assert not player.playing
    player.play.value = True
    assert panel.session.style.large == "timeline"
    assert player.playing


def test_the_player_steps_from_event_to_event_and_says_what_happens(panel):
    player = panel.play.player
    player.time_ms = 1000 * panel.result.arrival_s[500]
    instants = player.film.instants()
    for _ in range(4):
        before_s = player.time_s
        player.next.click()
        assert player.time_s == instants[instants > before_s][0]
        arrived = int((panel.result.arrival_s <= player.time_s).sum())
        assert f"{arrived:,} arrived" in panel.play.words.value
        assert 'aria-current="step"' in panel.pseudocode.value
    player.previous.click()
    assert player.time_s == before_s


def test_the_line_that_acts_is_marked(panel):
    player = panel.play.player
    batch = player.film.largest_leaving(*player.stretch)
    player.time_ms = 1000 * batch.start_s
    marked = panel.pseudocode.value.partition('aria-current="step"')[2].partition("</div>")[0]
    assert "send" in marked
    assert player.moment.last.number == batch.number


def test_another_run_is_shown_anew_and_the_same_one_keeps_its_time(panel):
    player = panel.play.player
    player.time_ms = 1000 * player.stretch.until_s
    panel.screen.width_px, panel.screen.height_px = 900, 600
    assert player.time_s == player.stretch.until_s
    assert panel.picture.stage.stage.film is player.film
    panel.controls["rate_per_s"].value = 100
    assert player.film.result is panel.result
    assert player.stretch.begin_s < player.time_s < player.stretch.until_s
    assert player.untouched


def test_while_it_plays_another_run_is_played_from_its_beginning(panel):
    player = panel.play.player
    player.play.value = True
    panel.controls["rate_per_s"].value = 100
    assert player.playing
    assert player.time_s == player.stretch.begin_s
    assert player.film.result is panel.result


def test_nothing_is_played_before_a_prediction_is_revealed(panel):
    player = panel.play.player
    panel.predict.predicting.value = True
    panel.controls["max_batch_size"].value = 4
    before_s, code = player.time_s, panel.pseudocode.value
    assert all(control.disabled for control in player.controls)
    player.next.click()
    player.play.value = True
    assert (player.time_s, player.playing) == (before_s, False)
    assert panel.play.words.value.count("Predict") == 1
    assert "oldest 4" not in panel.pseudocode.value
    assert panel.pseudocode.value in ("", code)
    panel.predict.predicting.value = False
    player.next.click()
    assert "Predict" not in panel.play.words.value
    assert "oldest 4" in panel.pseudocode.value
    assert not any(control.disabled for control in player.controls)
