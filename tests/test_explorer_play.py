"""The player: from event to event."""

import pytest

import batchsim as bs


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def turn(panel, page):
    panel.tabs.selected_index = panel.tabs.titles.index(page)


def test_the_player_steps_from_event_to_event_and_says_what_happens(panel):
    turn(panel, "Play")
    page = panel.play
    assert page.screen.frame.startswith(b"\x89PNG")
    page.next.click()
    assert page.time_s == panel.result.arrival_s[0]
    assert "1 arrived" in page.words.value
    page.next.click()
    assert page.time_s == panel.result.arrival_s[1]
    page.previous.click()
    assert page.time_s == panel.result.arrival_s[0]
    assert 'aria-current="step"' in panel.pseudocode.value


def test_the_player_ends_when_the_played_requests_are_done(panel):
    turn(panel, "Play")
    page = panel.play
    page.place.value = page.place.max
    assert page.time_s == page.until_s
    page.slowness.value = 1000
    assert page.time_s == pytest.approx(page.until_s)
    assert page.place.value == page.place.max


def test_another_run_is_played_from_its_beginning(panel):
    turn(panel, "Play")
    panel.play.place.value = 20
    panel.controls["rate_per_s"].value = 100
    assert panel.play.time_s == 0
    assert panel.play.result is panel.result


def test_nothing_is_played_before_a_prediction_is_revealed(panel):
    turn(panel, "Play")
    frame = panel.play.screen.frame
    panel.predict.predicting.value = True
    panel.controls["max_batch_size"].value = 4
    assert panel.play.screen.cover == "Predict first, then play."
    panel.play.next.click()
    assert panel.play.screen.frame == frame
    assert (panel.pseudocode.value, panel.play.words.value) == ("", "")
    panel.predict.predicting.value = False
    assert panel.play.screen.cover == ""
    assert "next batch" not in panel.play.words.value
    assert "of 4" in panel.pseudocode.value or "oldest 4" in panel.pseudocode.value
