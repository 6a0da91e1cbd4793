"""Predict, then reveal."""

import re

import pytest
from hands import looked_at

import batchsim as bs
from batchsim.view.explorer.pages.predict import in_words
from batchsim.view.explorer.reasons import FALLS, RISES, STAYS, of_requests
from batchsim.view.explorer.state import DEFAULT, State

PAGES = ["A and B", "Predict", "Film", "Share"]


def turn(panel, page):
    panel.tabs.selected_index = panel.tabs.titles.index(page)


def text(widget):
    return re.sub(r"<[^>]*>", "", widget.value)


def test_the_picture_is_covered_until_all_three_are_predicted_and_revealed(panel):
    looked_at(panel)
    page, frame = panel.predict, panel.screen.number
    page.predicting.value = True
    panel.controls["max_wait_ms"].value = 50
    assert panel.screen.cover
    assert panel.screen.number == frame
    assert panel.readout.value == panel.pseudocode.value == ""
    assert page.reveal.disabled
    page.reveal.click()
    assert panel.screen.cover
    for answer in page.answers.values():
        answer.value = RISES
    assert not page.reveal.disabled
    page.reveal.click()
    assert panel.screen.cover == ""
    assert panel.screen.number > frame
    assert "p99: you said it rises: right" in page.rows["p99"].value
    assert "throughput: you said it rises, but it " in page.rows["throughput"].value
    assert [answer.value for answer in page.answers.values()] == [RISES] * 3
    assert panel.picture.describe(panel.data) == text(panel.readout)


def test_a_hidden_picture_gives_nothing_away(panel):
    panel.predict.predicting.value = True
    panel.controls["max_wait_ms"].value = 50
    for page in PAGES:
        turn(panel, page)
        assert panel.readout.value == panel.pseudocode.value == ""
    panel.compare.pin.click()
    assert panel.session.pinned is None
    panel.share.buttons["Save CSV"].click()
    assert "Reveal the picture" in panel.status.value
    panel.screen._handle_custom_msg({"click": [0.9, 0.7]}, [])
    assert [part for part in panel._repr_mimebundle_() if "image/png" in part] == []
    assert panel.state.max_wait_ms == 50


def test_the_picture_is_shown_when_predicting_stops(panel):
    panel.predict.predicting.value = True
    panel.controls["max_wait_ms"].value = 50
    panel.predict.predicting.value = False
    assert panel.screen.cover == ""
    assert panel.picture.describe(panel.data) == text(panel.readout)


def test_a_move_that_changes_no_run_needs_no_prediction(panel):
    panel.predict.predicting.value = True
    panel.controls["objective_ms"].value = 30  # changes no run
    assert panel.screen.cover == ""


@pytest.mark.parametrize(
    ("before", "after", "way"),
    [
        ({"max_wait_ms": 0}, {"max_wait_ms": 40}, RISES),
        ({"max_wait_ms": 40}, {"max_wait_ms": 0}, FALLS),
        ({"max_batch_size": 64}, {"max_batch_size": 63}, STAYS),
        ({}, {"max_batch_size": 1}, RISES),
        ({"max_batch_size": 1}, {}, FALLS),
        ({"max_batch_size": 1}, {"max_batch_size": 2}, None),
    ],
)
def test_what_happened_to_p99(before, after, way):
    a, b = (bs.simulate(DEFAULT.replace(**changes).scenario(), 2000) for changes in (before, after))
    assert of_requests("p99", a, b)[0] == way


@pytest.mark.parametrize(
    ("before", "after", "ways"),
    [
        ({"timeout_ms": 0}, {}, (None, None, RISES)),
        ({}, {"timeout_ms": 0}, (None, None, FALLS)),
        ({"timeout_ms": 0}, {"timeout_ms": 0.1}, (None, None, STAYS)),
    ],
)
def test_latencies_go_no_way_where_nobody_is_served_and_throughput_does(before, after, ways):
    a, b = (bs.simulate(DEFAULT.replace(**changes).scenario(), 300) for changes in (before, after))
    told = [of_requests(key, a, b) for key in ("p50", "p99", "throughput")]
    assert tuple(each.way for each in told) == ways
    assert not any("nan" in each.words + each.why for each in told)


def test_a_prediction_that_has_no_answer_does_not_count(panel):
    panel.controls["rate_per_s"].value = 5000
    panel.predict.predicting.value = True
    panel.controls["rate_per_s"].value = 6000
    for answer in panel.predict.answers.values():
        answer.value = STAYS
    panel.predict.reveal.click()
    assert "does not count" in panel.predict.rows["p99"].value
    assert "So far 1 of 1 are right." in text(panel.predict.verdict)


def test_what_was_seen_before_stays_below_the_cover_and_is_the_ghost_after(panel):
    looked_at(panel)
    before, frame = panel.result, panel.screen.frame
    panel.predict.predicting.value = True
    for wait_ms in (30, 50):
        panel.controls["max_wait_ms"].value = wait_ms
    assert panel.screen.frame == frame
    panel.screen.set_state({"width_px": 800, "height_px": 500})  # drawn anew, and of what was seen
    assert panel.picture.data.result is before
    for answer in panel.predict.answers.values():
        answer.value = RISES
    panel.predict.reveal.click()
    assert panel.data.before.result is before


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({}, {"max_wait_ms": 40}, {"p99": "forming grew", "throughput": "not changed"}),
        ({}, {"max_batch_size": 1}, {"p99": "190/s can be served", "throughput": "190/s can be served"}),
        ({}, {"rate_per_s": 2300}, {"p99": "queueing grew", "throughput": "the arrival rate"}),
        ({}, {"fixed_ms": 10}, {"p50": "computing grew"}),
        ({}, {"queue_limit": 1}, {"throughput": "are lost"}),
        ({"workload": "closed"}, {"workload": "closed", "clients": 8}, {"throughput": "8 clients"}),
        ({"workload": "closed"}, {"workload": "closed", "clients": 1}, {"throughput": "The client sends"}),
    ],
)
def test_why_is_read_off_the_runs(before, after, why):
    a, b = (bs.simulate(DEFAULT.replace(**changes).scenario(), 5000) for changes in (before, after))
    for key, words in why.items():
        assert words in of_requests(key, a, b).why


def test_the_verdict_has_a_sign_the_numbers_and_the_reason():
    panel = bs.explore(requests=20_000)
    panel.predict.predicting.value = True
    panel.controls["max_wait_ms"].value = 40
    for answer, way in zip(panel.predict.answers.values(), (RISES, FALLS, STAYS), strict=True):
        answer.value = way
    panel.predict.reveal.click()
    p50, p99, throughput = (text(row) for row in panel.predict.rows.values())
    right, wrong = "\N{HEAVY CHECK MARK}", "\N{HEAVY BALLOT X}"
    assert [row[0] for row in (p50, p99, throughput)] == [right, wrong, right]
    assert re.search(r"[\d.]+ \N{RIGHTWARDS ARROW} [\d.]+ ms", p99)
    assert "forming grew from" in p99


def test_a_class_counts_different_moves_apart_however_long_their_words_are():
    assert in_words(DEFAULT, DEFAULT) == "No control moves"
    both = "Servers go from 1 to 2 and Seed goes from 0 to 7"
    assert in_words(DEFAULT, State(servers=2, seed=7)) == both
    assert in_words(DEFAULT, State(timeout_ms=80)) == "Timeout goes from none to 80 ms"
    assert in_words(State(rate_per_s=500), State(rate_per_s=500, servers=2)).endswith(
        "with Arrival rate (per s) = 500"
    )
    curves = [tuple((size, 1.0 + size) for size in range(1, last)) for last in (100, 101)]
    moves = [in_words(DEFAULT, State(service="curve", curve=curve)) for curve in curves]
    assert moves[0] != moves[1]
    assert all(len(move) < 320 for move in moves)
