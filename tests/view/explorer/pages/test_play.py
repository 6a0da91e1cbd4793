"""The page of the film in the explorer: it covers the large view with the run that is shown."""

import pytest
from hands import is_hidden

import batchsim as bs


@pytest.fixture
def panel():
    panel = bs.explore(requests=1000)
    panel.turn_to(panel.play)
    return panel


def test_opening_the_page_makes_the_film_large(panel):
    assert panel.session.style.large == "timeline"
    assert panel.play.player.shown
    panel.session.enlarge("latency")
    assert not panel.play.player.shown
    assert not is_hidden(panel.play.back)
    panel.play.back.click()
    assert panel.play.player.shown
    assert is_hidden(panel.play.back)


def test_another_page_shows_the_view_before_the_film_and_a_folded_column_keeps_the_film(panel):
    panel.tabs.selected_index = None
    assert panel.play.player.shown
    panel.turn_to(panel.share)
    assert not panel.play.player.shown
    assert panel.session.style.large == panel.large.value == "latency"
    panel.turn_to(panel.play)
    assert panel.play.player.shown
    panel.session.enlarge("load")
    panel.turn_to(panel.share)
    assert panel.session.style.large == "load"


def test_the_film_lies_over_the_large_view(panel):
    left, top, width, height = panel.play.player.place
    part, whole = panel.picture.parts["timeline"].bbox, panel.picture.figure.bbox
    assert (left * whole.width, width * whole.width) == pytest.approx((part.x0, part.width))
    assert (top * whole.height, height * whole.height) == pytest.approx((whole.height - part.y1, part.height))
    panel.screen.dark = True
    assert panel.play.player.theme == "dark"


def test_another_view_stops_the_film(panel):
    player, sent = panel.play.player, []
    player.moment = (*player.moment[:2], True)
    player.send = lambda content, buffers=None: sent.append(content)
    panel.session.enlarge("latency")
    assert sent == [{"play": False}]


def test_the_player_steps_from_event_to_event_and_marks_the_acting_line(panel):
    player = panel.play.player
    player.time_ms = 1000 * panel.result.arrival_s[500]
    instants = player.clip.instants
    for _ in range(4):
        before_s = player.time_s
        player.next()
        assert player.time_s == instants[instants > before_s][0]
        arrived = int((panel.result.arrival_s <= player.time_s).sum())
        assert f"{arrived:,} arrived" in player.words
        assert 'aria-current="step"' in panel.pseudocode.value
    player.previous()
    assert player.time_s == before_s


def test_the_line_that_sends_a_batch_is_marked_as_it_leaves(panel):
    marked = panel.pseudocode.value.partition('aria-current="step"')[2].partition("</div>")[0]
    assert "send" in marked
    starts_s = panel.result.batches.start_s
    now_s, within_s = panel.play.player.clip.start_s
    assert ((starts_s <= now_s) & (starts_s >= now_s - within_s)).sum() == 1


def test_another_run_is_loaded_and_the_same_one_keeps_its_time(panel):
    player = panel.play.player
    player.time_ms = 1000 * player.stretch.until_s
    window = player.clip
    panel.screen.width_px, panel.screen.height_px = 900, 600
    assert player.clip is window
    assert player.time_s == player.stretch.until_s
    panel.controls["rate_per_s"].value = 100
    assert player.clip is not window
    assert player.stretch.begin_s < player.time_s < player.stretch.until_s
    arrived = int((panel.result.arrival_s <= player.time_s).sum())
    assert f"{arrived:,} arrived" in player.words


def test_nothing_of_a_run_is_shown_before_a_prediction_is_revealed(panel):
    player = panel.play.player
    window, code = player.clip, panel.pseudocode.value
    panel.predict.predicting.value = True
    panel.controls["max_batch_size"].value = 4
    assert not player.shown
    assert player.clip is window
    assert panel.play.hint.value.count("Predict") == 1
    assert panel.pseudocode.value in ("", code)
    panel.predict.predicting.value = False
    assert player.shown
    assert player.clip is not window
    assert "Predict" not in panel.play.hint.value
    assert "oldest 4" in panel.pseudocode.value


def test_a_server_without_a_step_has_no_film():
    tokens = bs.Tokens(prompt=10, output=5)
    scenario = bs.Scenario(bs.Constant(1), bs.Continuous(4), bs.StepTime(1, 0, 0), tokens=tokens, servers=2)
    panel = bs.explore(scenario, requests=200, play=True)
    assert panel.play.player.shown
    panel.server.value = 1
    assert panel.play.player.shown == (panel.data.moment(1) is not None)


def test_the_film_stays_while_the_reader_turns_to_tokens_and_back(panel):
    for mode, large in (("tokens", "seats"), ("requests", "timeline")):
        panel.controls["mode"].value = mode
        assert panel.session.style.large == panel.large.value == large
        assert panel.play.player.shown
        assert panel.play.player.words
