"""A knob: its slider, its field, and what is refused."""

import html
import math

import pytest
from hands import looked_at, slid, slide
from hypothesis import given
from hypothesis import strategies as st

import batchsim as bs
from batchsim.view.explorer.control import Slider
from batchsim.view.explorer.rows import CONTROLS

TABLE = bs.Table({1: 2.0, 8: 4.0, 16: 7.0})


def test_a_slider_moves_its_value_and_its_field(panel):
    knob = panel.controls["max_wait_ms"]
    slide(panel, "max_wait_ms", 12.5)
    assert (knob.value, knob.field.value) == (12.5, "12.5")
    assert panel.result.scenario.rule.max_wait_ms == 12.5


def test_what_is_typed_moves_the_value_and_the_slider_even_beyond_its_range(panel):
    knob = panel.controls["max_wait_ms"]
    knob.field.value = "250"
    assert (knob.value, slid(panel, "max_wait_ms"), knob.range.high) == (250, 250, 250)
    assert knob.slider.value == knob.slider.max
    assert panel.result.scenario.rule.max_wait_ms == 250


def test_a_step_from_a_typed_value_goes_to_the_next_place(panel):
    knob = panel.controls["objective_ms"]
    assert (knob.value, slid(panel, "objective_ms")) == (25, 25.1)
    knob.slider.value += 1
    assert (knob.value, knob.field.value) == (25.7, "25.7")


@pytest.mark.parametrize(
    ("name", "typed", "message"),
    [
        ("max_batch_size", "0", "Max batch size must be at least 1, got 0"),
        ("max_batch_size", "2.5", "Max batch size must be a whole number, got '2.5'"),
        ("max_wait_ms", "-3", "Max wait (ms) must be at least 0, got -3"),
        ("max_wait_ms", "", "Max wait (ms) must be a number, got ''"),
        ("max_wait_ms", "nan", "Max wait (ms) must be a number, got nan"),
        ("rate_per_s", "<b>", "Arrival rate (per s) must be a number, got '<b>'"),
        ("rate_per_s", "1e99", "Arrival rate (per s) must be at most 1e12, got 1e99"),
        ("servers", "100", "Servers must be at most 64, got 100"),
        ("objective_ms", "0", "p99 objective (ms) must be greater than 0, got 0"),
        ("queue_limit", "0", "Queue limit must be at least 1, got 0"),
        ("padding", "8, 16", "Pad to sizes must reach every batch size, got 16 at most"),
        ("seed", "-1", "Seed must be at least 0, got -1"),
    ],
)
def test_bad_values_are_refused_where_they_are_typed_and_the_value_stays(panel_again, name, typed, message):
    panel = panel_again
    looked_at(panel)
    knob, frame = panel.controls[name], panel.screen.frame
    value = knob.value
    knob.field.value = typed
    assert message in knob.refusal
    assert message in html.unescape(knob.field.description)
    assert "<b>" not in knob.field.description
    assert knob.field.value == typed
    assert knob.value == value
    assert panel.screen.frame == frame
    knob.field.value = {"padding": "8, 64", "queue_limit": "2"}.get(name, "31")
    assert knob.refusal == ""
    assert knob.field.description == f"<span>{html.escape(knob.spec.label)}</span>"


def test_a_refused_text_stays_while_other_controls_move(panel):
    size = panel.controls["max_batch_size"]
    size.field.value = "0"
    slide(panel, "rate_per_s", 500)
    assert (size.field.value, panel.state.max_batch_size) == ("0", 32)
    assert "must be at least 1" in size.field.description
    slide(panel, "max_batch_size", 8)
    assert (size.field.value, size.refusal) == ("8", "")


def test_a_value_that_contradicts_the_others_is_refused_where_it_is_typed():
    panel = bs.explore(TABLE, requests=300)
    size = panel.controls["max_batch_size"]
    size.field.value = "17"
    assert "at most the service time's largest, 16, got 17" in size.refusal
    assert size.value == 16


def test_a_slider_counts_steps_and_what_it_shows_is_no_move(panel):
    knob = panel.controls["rate_per_s"]
    before = panel.session.moves
    for rate_per_s in (500, 512.345, 0.01, 1e9):
        panel.move_to(panel.state.replace(rate_per_s=rate_per_s))
        assert isinstance(knob.slider.value, int)
        assert panel.state.rate_per_s == rate_per_s
    assert panel.session.moves == before + 4


def test_a_hand_may_go_back_at_once():
    panel = bs.explore(requests=300)
    panel.move_to(panel.state.replace(max_batch_size=16))
    slide(panel, "max_batch_size", 32)
    assert panel.state.max_batch_size == 32


@pytest.mark.parametrize("name", ["rate_per_s", "max_wait_ms", "max_batch_size"])
def test_no_place_is_sent_that_is_beyond_the_range_of_the_page(name, monkeypatch):
    panel = bs.explore(requests=300)
    slider, sent = panel.controls[name].slider, []
    page = {"max": slider.max, "value": slider.value}
    monkeypatch.setattr(slider, "_send", lambda message, buffers=None: sent.append(message["state"]))
    links = "service=curve&curve=1:900,24:9000&rate_per_s=0.5&max_wait_ms=700&max_batch_size=24", "seed=0"
    for link in links:
        panel.share.link.value = link
    for state in sent:
        page |= state
        assert 0 <= page["value"] <= page["max"]
    assert page == {"max": slider.max, "value": slider.value}


SLIDERS = {name: control for name, control in CONTROLS.items() if control.slider}


@pytest.mark.parametrize("name", SLIDERS)
def test_each_step_of_a_slider_is_another_value_that_has_its_place(name):
    spec, slider = SLIDERS[name], SLIDERS[name].slider
    values = [slider.value(place) for place in range(slider.steps + 1)]
    for place, value in enumerate(values):
        assert slider.place(value) == place
        assert spec.check(name, value) == value
    if slider.scale != "share":
        assert (values[0], values[-1]) == pytest.approx((slider.low, slider.high), rel=0.01)


@given(
    st.sampled_from(["linear", "log", "whole", "log whole"]), st.floats(0.6, 10), st.floats(11, 1000),
    st.sampled_from([0.01, 0.5, 1]), st.floats(0.001, 1e6),
)  # fmt: skip
def test_a_range_that_is_widened_has_a_place_for_the_value_and_its_ends(scale, low, high, step, value):
    if "whole" in scale:
        low, high, value = round(low), round(high), max(round(value), 1)
    slider = Slider(scale, low, high, 1 if scale == "whole" else step)
    wide = slider.covering(value)
    assert 0 <= wide.place(value) <= wide.steps
    assert wide.low <= min(low, value) <= max(high, value) <= wide.high
    assert slider.covering(math.inf) == slider
    assert slider.place(math.inf) == slider.steps


def test_reset_and_links_take_away_what_was_refused(panel):
    size, rate = panel.controls["max_batch_size"], panel.controls["rate_per_s"]
    size.field.value, rate.field.value = "0", "abc"
    assert size.refusal
    assert rate.refusal
    panel.share.buttons["Reset"].click()
    assert (size.field.value, size.refusal) == ("32", "")
    assert (rate.field.value, rate.refusal) == ("1000", "")


def test_a_value_is_shown_as_it_is_used(panel):
    rate = panel.controls["rate_per_s"]
    rate.field.value = "1e9"
    assert (rate.field.value, rate.value) == ("1e9", 1e9)
    for typed in ("1234567.891234", "0.30000000000000004"):
        rate.field.value = typed
        assert float(rate.field.value) == rate.value == float(typed)


@pytest.mark.parametrize(
    ("link", "name", "typed", "words"),
    [
        ("workload=closed", "queue_limit", "1", "needs Think time (ms) greater than 0"),
        ("workload=closed&clients=4", "max_wait_ms", "inf", "Clients must be at least 32"),
        ("workload=onoff", "rate_per_s", "1e12", "Burst rate (x mean) must be at most 1e12, got 5e12"),
        ("workload=onoff", "mean_burst_s", "1e12", "pause between bursts (s) must be at most 1e12, got 4e12"),
        ("", "preferred", "0", "Preferred sizes must be at least 1, got 0"),
    ],
)
def test_refusals_of_a_scenarios_parts_speak_of_the_controls(link, name, typed, words):
    panel = bs.explore(requests=50, link=link)
    panel.controls[name].field.value = typed
    assert words in panel.controls[name].refusal
