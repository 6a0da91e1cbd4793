"""The explorer works without a browser: move a control, read the text."""

import csv
import gc
import io
import math
import re
import threading
import unicodedata

import numpy as np
import pytest

import batchsim as bs
from batchsim._format import number, signed
from batchsim.view.explorer.pages.predict import FALLS, RISES, STAYS, outcome
from batchsim.view.explorer.pages.share import seed_of
from batchsim.view.explorer.runner import sizes, waits
from batchsim.view.explorer.services import PUBLISHED
from batchsim.view.explorer.state import DEFAULT, State
from batchsim.view.explorer.words import describe
from batchsim.view.run.live import LivePicture

PAGES = {"A and B": 3, "Predict": 4, "Play": 5, "Class": 6}


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def turn(panel, page):
    panel.tabs.selected_index = panel.tabs.titles.index(page)


def text(widget):
    return re.sub(r"<[^>]*>", "", widget.value)


def test_it_opens_with_a_picture_and_words_that_say_its_numbers(panel):
    assert panel.screen.frame.startswith(b"\x89PNG")
    assert panel.screen.alt == describe(panel.data) == text(panel.readout)
    assert f"p99 {number(panel.result.percentile(99))} ms" in panel.readout.value
    assert panel.status.value == ""


def test_the_picture_is_of_the_scenario_that_the_controls_say(panel):
    panel.controls["max_batch_size"].value = 4
    panel.controls["max_wait_ms"].value = 7
    panel.controls["servers"].value = 2
    panel.controls["rate_per_s"].value = 321
    assert panel.result.scenario == bs.Scenario(
        bs.Poisson(321), bs.SizeOrWait(4, 7), bs.Affine(5, 0.25), servers=2
    )
    fresh = LivePicture(panel.picture.width_px)
    fresh.show(panel.data)
    assert np.array_equal(fresh.pixels(), panel.picture.pixels())


def test_the_same_controls_give_the_same_words(panel):
    words = panel.readout.value
    panel.controls["max_wait_ms"].value = 50
    panel.controls["max_wait_ms"].value = 10
    assert panel.readout.value == words


def test_a_whole_scenario_can_be_explored():
    scenario = bs.Scenario(
        bs.Gamma(300, 2), bs.AtLeast(2, 8), bs.Affine(3, 1).padded_to([2, 8]), servers=2, timeout_ms=90
    )
    panel = bs.explore(scenario, requests=300, seed=5)
    assert panel.result.scenario == scenario
    assert panel.result.seed == 5


def test_when_a_run_fails_the_last_picture_stays_and_the_reason_stands_below(panel, monkeypatch):
    frame, words, result = panel.screen.frame, panel.readout.value, panel.result

    def fail(*_, **__):
        raise ValueError("the moon must be full, got <half>")

    monkeypatch.setattr("batchsim.view.explorer.runner.simulate", fail)
    panel.controls["max_wait_ms"].value = 33
    assert "the moon must be full, got &lt;half&gt;" in panel.status.value
    assert 'role="alert"' in panel.status.value
    assert (panel.screen.frame, panel.readout.value, panel.result) == (frame, words, result)
    monkeypatch.undo()
    panel.controls["max_wait_ms"].value = 34
    assert panel.status.value == ""


def test_moves_that_come_while_one_is_drawn_are_drawn_once_at_the_end(panel, monkeypatch):
    drawn, threads = [], []
    draw = panel.session.refresh

    def slow():
        drawn.append(panel.controls["max_wait_ms"].value)
        if len(drawn) == 1:  # two more moves arrive on other threads while this one is drawn
            for wait_ms in (21.0, 22.0):
                moves = panel.session.moves
                thread = threading.Thread(
                    target=setattr, args=(panel.controls["max_wait_ms"], "value", wait_ms)
                )
                thread.start()
                while panel.session.moves == moves:
                    pass
                threads.append(thread)
        draw()

    monkeypatch.setattr(panel.session, "refresh", slow)
    panel.controls["max_wait_ms"].value = 20.0
    for thread in threads:
        thread.join()
    assert drawn == [20.0, 22.0]
    assert panel.result.scenario.rule.max_wait_ms == 22.0


def test_moving_does_not_pile_up_artists_pictures_or_curves(panel):
    def count(kind):
        gc.collect()
        return sum(type(thing) is kind for thing in gc.get_objects())

    panel.controls["max_wait_ms"].value = 11
    artists, pictures = len(panel.picture.findobj()), count(LivePicture)
    for wait_ms in range(12, 52):
        panel.controls["max_wait_ms"].value = wait_ms
    assert len(panel.session.runner.stored) <= 32
    assert abs(len(panel.picture.findobj()) - artists) < 40  # ticks and legend entries come and go
    assert count(LivePicture) == pictures


# The heat map is a control.


def test_a_click_on_a_cell_moves_the_sliders_there(panel, monkeypatch):
    grid = panel.data.surface
    row, column = grid.y_values.index(2.0), grid.x_values.index(16)
    monkeypatch.setattr(panel.picture, "cell_at", lambda across, down: (row, column))
    panel.screen._handle_custom_msg({"click": [0.9, 0.9]}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(16, 2.0)
    assert (panel.controls["max_batch_size"].slider.value, panel.controls["max_wait_ms"].slider.value) == (
        16,
        2,
    )


def test_every_cell_is_hit_where_it_is_drawn(panel):
    hit = {
        panel.picture.cell_at(across, down)
        for across in np.linspace(0, 1, 200)
        for down in np.linspace(0, 1, 200)
    } - {None}
    assert hit == {(row, column) for row in range(12) for column in range(12)}


def test_a_click_beside_the_heat_map_moves_nothing(panel):
    frame = panel.screen.number
    panel.screen._handle_custom_msg({"click": [0.01, 0.01]}, [])
    assert panel.screen.number == frame


def test_arrows_step_through_the_heat_map_up_to_full_batches_only(panel):
    panel.screen._handle_custom_msg({"key": "left"}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 10)
    panel.screen._handle_custom_msg({"key": "up"}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 20)
    for _ in range(9):
        panel.screen._handle_custom_msg({"key": "up"}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(24, math.inf)
    assert panel.controls["rule"].value == "full_only"
    panel.screen._handle_custom_msg({"key": "down"}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 50)


def test_a_cell_that_makes_no_sense_is_refused_in_words():
    panel = bs.explore(requests=300, link="rule=at_least&min_batch_size=8&max_batch_size=8")
    panel.screen._handle_custom_msg({"key": "left"}, [])
    assert "crossed out" in panel.status.value
    assert panel.result.scenario.rule == bs.AtLeast(8, 8)


@pytest.mark.parametrize("arrow", ["left", "right", "up"])
def test_arrows_on_a_map_of_smallest_sizes_lead_out_of_full_batches_only(arrow):
    panel = bs.explore(requests=300, link="workload=closed&clients=8&rule=at_least&min_batch_size=2")
    panel.controls["rule"].value = "full_only"
    assert "got 8" in panel.status.value
    panel.screen._handle_custom_msg({"key": arrow}, [])
    assert panel.status.value == ""
    assert panel.controls["rule"].value == "at_least"


@pytest.mark.parametrize(
    ("clients", "rule", "arrow", "wait_ms"),
    [(8, "full_only", "down", 50), (4, "at_least", "up", 20), (4, "at_least", "down", 7)],
)
def test_arrows_lead_out_of_a_choice_that_makes_no_sense(clients, rule, arrow, wait_ms):
    panel = bs.explore(requests=300, link=f"workload=closed&clients={clients}")
    panel.controls["rule"].value = rule
    assert f"got {clients}" in panel.status.value
    panel.screen._handle_custom_msg({"key": arrow}, [])
    assert panel.status.value == ""
    assert panel.controls["rule"].value == "size_or_wait"
    assert panel.result.scenario.rule == bs.SizeOrWait(32, wait_ms)


def test_the_map_is_of_the_same_traffic_as_the_run(panel):
    grid = panel.data.surface
    row, column = grid.y_values.index(10.0), grid.x_values.index(32)
    assert grid.p99_ms[row, column] == panel.result.percentile(99)


def test_the_map_reaches_every_batch_size_that_the_service_time_has():
    assert sizes(1) == (1,)
    for largest in range(1, 300):
        found = sizes(largest)
        assert found[-1] == largest
        assert list(found) == sorted(set(found))
    assert waits(2.0)[-2:] == (1.0, math.inf)


# A against B.


def test_a_pinned_setting_is_compared_pair_by_pair():
    panel = bs.explore(requests=20_000)
    a = panel.result
    panel.compare.pin.click()
    panel.controls["max_wait_ms"].value = 0
    row = bs.compare(a, panel.result)["p99"]
    assert signed(row.difference) in panel.compare.table.value
    assert f"{signed(row.low)} to {signed(row.high)}" in panel.compare.table.value
    assert "differs" in panel.compare.table.value
    assert "p99 of B is" in panel.readout.value
    assert panel.data.pinned.result is a


def test_a_and_b_exchange_and_a_is_forgotten_when_it_is_unpinned(panel):
    panel.compare.pin.click()
    panel.controls["max_wait_ms"].value = 0
    panel.compare.swap.click()
    assert panel.state == DEFAULT
    assert panel.data.pinned.result.scenario.rule.max_wait_ms == 0
    panel.compare.unpin.click()
    assert panel.data.pinned is None
    assert "B is" not in panel.readout.value


def test_a_and_b_do_not_exchange_before_a_prediction_is_revealed(panel):
    panel.compare.pin.click()
    a = panel.session.pinned
    panel.controls["max_wait_ms"].value = 0
    panel.predict.predicting.value = True
    panel.controls["max_wait_ms"].value = 50
    panel.compare.swap.click()
    assert panel.state.max_wait_ms == 50
    assert panel.session.pinned is a
    panel.predict.predicting.value = False
    panel.compare.swap.click()
    assert panel.state == DEFAULT


def test_settings_of_different_traffic_are_shown_together_but_not_paired(panel):
    panel.compare.pin.click()
    panel.controls["seed"].value = 3
    assert panel.status.value == ""
    assert panel.data.comparison is None
    assert "got seeds 0 and 3" in panel.compare.table.value


def test_an_overloaded_b_has_no_lasting_numbers_to_compare(panel):
    panel.compare.pin.click()
    panel.controls["max_batch_size"].value = 1
    assert panel.status.value == ""
    assert "no steady state" in panel.compare.table.value


# Predict, then reveal.


def test_the_picture_is_covered_until_all_three_are_predicted_and_revealed(panel):
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
    assert "p99: you said it rises. Right" in page.verdict.value
    assert "throughput: you said it rises. Not this time: it " in page.verdict.value
    assert describe(panel.data) == text(panel.readout)


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
    assert panel.state.max_wait_ms == 50


def test_whoever_stops_predicting_sees_the_picture(panel):
    panel.predict.predicting.value = True
    panel.controls["max_wait_ms"].value = 50
    panel.predict.predicting.value = False
    assert panel.screen.cover == ""
    assert describe(panel.data) == text(panel.readout)


def test_a_move_back_to_where_one_was_needs_no_prediction_before_another(panel):
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
    assert outcome("p99", a, b)[0] == way


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
    told = [outcome(key, a, b) for key in ("p50", "p99", "throughput")]
    assert tuple(way for way, _ in told) == ways
    assert not any("nan" in words for _, words in told)


# Play.


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


# For the class.


def test_a_link_brings_another_panel_to_the_same_picture(panel):
    panel.move_to(DEFAULT.replace(workload="onoff", rule="at_least", servers=3, noise_cv=0.5, seed=9))
    turn(panel, "Class")
    other = bs.explore(requests=300)
    turn(other, "Class")
    other.share.link.value = panel.share.link.value
    assert other.state == panel.state
    assert other.screen.frame == panel.screen.frame


def test_a_link_may_be_pasted_before_the_page_was_ever_open(panel):
    panel.share.link.value = "max_wait_ms=3&servers=2"
    assert panel.share.refusal.value == panel.status.value == ""
    assert panel.state == DEFAULT.replace(max_wait_ms=3, servers=2)
    assert panel.result.scenario == panel.scenario


def test_the_link_and_the_python_follow_while_the_picture_is_hidden(panel):
    panel.predict.predicting.value = True
    turn(panel, "Class")
    for wait_ms in (50, 60):
        panel.controls["max_wait_ms"].value = wait_ms
        assert panel.screen.cover
        assert panel.share.link.value == f"max_wait_ms={wait_ms}"
        assert f"max_wait_ms={wait_ms})" in panel.share.python.value


@pytest.mark.parametrize(
    "link", ["max_batch_size=0", "hello", "rule=at_least&min_batch_size=40", "workload=given"]
)
def test_a_link_that_makes_no_sense_is_refused_beside_it_and_nothing_moves(panel, link):
    turn(panel, "Class")
    state, frame = panel.state, panel.screen.frame
    panel.share.link.value = link
    assert 'role="alert"' in panel.share.refusal.value
    assert (panel.state, panel.screen.frame) == (state, frame)
    panel.controls["max_wait_ms"].value = 3
    assert panel.status.value == ""


def test_reset_brings_every_control_back(panel):
    panel.move_to(DEFAULT.replace(workload="gamma", servers=2, queue_limit=5))
    panel.share.buttons["Reset"].click()
    assert panel.state == DEFAULT


def test_each_student_has_a_seed_and_so_a_traffic_of_their_own(panel):
    panel.share.student.value = "Ada"
    assert panel.controls["seed"].value == panel.result.seed == seed_of("ada")
    assert seed_of("Ada") != seed_of("Bob")


@pytest.mark.parametrize("name", ["Zoë", "Ångström", "Gisèle Müller", "김민준", "Nguyễn Thị Hồng"])
def test_a_name_has_one_seed_however_its_accents_are_encoded(name):
    composed, decomposed = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert seed_of(composed) == seed_of(decomposed)


def test_the_python_runs_and_gives_the_same_numbers(panel):
    turn(panel, "Class")
    panel.controls["service"].value = PUBLISHED + "nnunet/t4/fp16"
    names = {}
    exec(panel.share.python.value.replace("print(result)", ""), names)
    assert 'bs.published("nnunet/t4/fp16")' in panel.share.python.value
    assert names["result"].summary() == panel.result.summary()


def test_the_python_of_a_short_trace_asks_for_no_more_requests_than_it_has():
    trace = bs.Trace([0.0, 0.1, 0.2, 0.5, 0.6])
    panel = bs.explore(workload=trace, requests=300)
    turn(panel, "Class")
    names = {"traffic": trace}
    exec(panel.share.python.value.replace("print(result)", ""), names)
    assert names["result"].summary() == panel.result.summary()


def test_the_exports_are_what_they_say(panel, monkeypatch):
    files = {}
    monkeypatch.setattr(panel.screen, "download", lambda name, kind, content: files.update({name: content}))
    for kind in ("PNG", "SVG", "CSV"):
        panel.share.buttons[f"Save {kind}"].click()
    assert files["batchsim.png"].startswith(b"\x89PNG")
    assert b"<svg" in files["batchsim.svg"]
    rows = list(csv.DictReader(io.StringIO(files["batchsim.csv"].decode())))
    assert len(rows) == 300
    assert float(rows[7]["arrival_s"]) == panel.result.arrival_s[7]


def test_colours_follow_the_page_or_the_choice(panel):
    light = panel.screen.frame
    panel.screen.dark = True
    dark = panel.screen.frame
    assert dark != light
    panel.share.theme.value = "light"
    assert panel.screen.frame == light
    panel.share.theme.value = "auto"
    assert panel.screen.frame == dark


def test_the_projector_has_larger_letters(panel):
    font_px = panel.picture.font_px
    panel.share.size.value = "projector"
    assert panel.picture.font_px > font_px


def test_the_picture_is_as_wide_as_the_page(panel):
    panel.screen.width_px = 733
    assert panel.picture.width_px == 733


def test_it_prints_as_one_short_line(panel):
    assert re.search("Poisson arrivals.*Size or wait", repr(panel))
    assert "\n" not in repr(panel)
    assert len(repr(panel)) < 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"service": 3}, "service must be a Measurement, a service time or a Scenario, got 3"),
        ({"workload": 3}, "workload must be one of batchsim's, got 3"),
        ({"requests": 0}, "requests must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"link": "servers=0"}, "servers must be at least 1, got 0"),
        (
            {"service": State().scenario(), "workload": bs.Poisson(3)},
            "a Scenario must come without a workload",
        ),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        bs.explore(**arguments)


def test_the_students_name_goes_where_the_seed_is_anothers(panel):
    turn(panel, "Class")
    panel.share.student.value = "Ada"
    assert panel.state.seed == seed_of("Ada")
    panel.controls["max_wait_ms"].value = 3
    assert panel.share.student.value == "Ada"
    panel.share.buttons["Reset"].click()
    assert (panel.state.seed, panel.share.student.value) == (0, "")
    panel.share.student.value = "Ada"
    assert panel.state.seed == seed_of("Ada")


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


def test_a_and_b_are_named_by_what_differs():
    panel = bs.explore(requests=300, link="rate_per_s=500&service=curve&curve=1:2.4,32:6.7")
    panel.compare.pin.click()
    assert "A and B are one setting." in panel.compare.table.value
    panel.controls["max_wait_ms"].value = 3
    assert "A: <code>max_wait_ms=10</code><br>B: <code>max_wait_ms=3</code>" in panel.compare.table.value
    panel.move_to(DEFAULT)
    assert "rate_per_s=500" in panel.compare.table.value
    assert "rate_per_s=1000" in panel.compare.table.value


def test_a_prediction_that_has_no_answer_does_not_count(panel):
    panel.controls["rate_per_s"].value = 5000
    panel.predict.predicting.value = True
    panel.controls["rate_per_s"].value = 6000
    for answer in panel.predict.answers.values():
        answer.value = STAYS
    panel.predict.reveal.click()
    assert "that does not count" in panel.predict.verdict.value
    assert "So far 1 of 1 are right." in text(panel.predict.verdict)
