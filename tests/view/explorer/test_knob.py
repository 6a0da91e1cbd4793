"""A knob: its slider, its field, what is refused, and the echoes of a page."""

import html
import math

import pytest

import batchsim as bs
from batchsim.view.explorer.state import State

TABLE = bs.Table({1: 2.0, 8: 4.0, 16: 7.0})


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def test_a_slider_moves_its_value_and_its_field(panel):
    knob = panel.controls["max_wait_ms"]
    knob.slider.value = 12.5
    assert (knob.value, knob.field.value) == (12.5, "12.5")
    assert panel.result.scenario.rule.max_wait_ms == 12.5


def test_what_is_typed_moves_the_value_and_the_slider_even_beyond_its_range(panel):
    knob = panel.controls["max_wait_ms"]
    knob.field.value = "250"
    assert (knob.value, knob.slider.value, knob.slider.max) == (250, 250, 250)
    assert panel.result.scenario.rule.max_wait_ms == 250


def test_a_page_that_rounds_the_slider_does_not_move_the_value(panel):
    knob = panel.controls["objective_ms"]
    assert knob.value == 25
    knob.slider.value = 10**1.40  # the slider's step that is nearest to 25
    assert (knob.value, knob.field.value) == (25, "25")
    knob.slider.value = 10**1.41
    assert knob.value == 25.7


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
    knob, frame = panel.controls[name], panel.screen.frame
    value = knob.value
    knob.field.value = typed
    assert message in html.unescape(knob.refusal.value)
    assert "<b>" not in knob.refusal.value
    assert 'role="alert"' in knob.refusal.value
    assert knob.value == value
    assert panel.screen.frame == frame
    knob.field.value = {"padding": "8, 64", "queue_limit": "2"}.get(name, "31")
    assert knob.refusal.value == ""


def test_a_value_that_contradicts_the_others_is_refused_where_it_is_typed():
    panel = bs.explore(TABLE, requests=300)
    size = panel.controls["max_batch_size"]
    size.field.value = "17"
    assert "at most the service time&#x27;s largest, 16, got 17" in size.refusal.value
    assert size.value == 16


def test_an_echo_of_an_earlier_value_is_no_move():
    panel = bs.explore(requests=300)
    knob = panel.controls["rate_per_s"]
    panel.move_to(panel.state.replace(rate_per_s=500))
    panel.move_to(panel.state.replace(rate_per_s=400))
    knob.slider.value = 10 ** round(math.log10(500), 2)
    assert panel.state.rate_per_s == 400
    knob.slider.value = 10 ** round(math.log10(500), 2) * 1.0001  # once is an echo, twice a hand
    assert panel.state.rate_per_s == 501


def test_an_echo_that_a_narrower_range_cut_off_is_no_move():
    panel = bs.explore(requests=300, link="fixed_ms=50&max_wait_ms=100")
    panel.move_to(panel.state.replace(fixed_ms=0.05, per_item_ms=0.003, max_wait_ms=0.1))
    knob = panel.controls["max_wait_ms"]
    assert knob.slider.max < 100
    panel.move_to(panel.state.replace(max_wait_ms=0.2))
    knob.slider.value = 0.1 + knob.slider.step / 4
    assert panel.state.max_wait_ms == 0.2


def test_what_a_page_shows_still_rounded_to_a_new_step_is_no_move():
    panel = bs.explore(requests=300, link="fixed_ms=50&max_wait_ms=20")
    knob = panel.controls["max_wait_ms"]
    knob.fit(0, 1800, 9)
    knob.slider.value = 18  # as the page rounds it
    knob.fit(0, 1500, 7.5)
    knob.slider.value = 15  # as it rounds that, before 20 has arrived
    assert panel.state.max_wait_ms == 20
    knob.slider.value = 30  # a hand
    assert panel.state.max_wait_ms == 30


def test_a_hand_may_go_back_at_once():
    panel = bs.explore(requests=300)
    knob = panel.controls["max_batch_size"]
    panel.move_to(panel.state.replace(max_batch_size=16))
    knob.slider.value = 32
    assert panel.state.max_batch_size == 32


@pytest.mark.parametrize("name", ["rate_per_s", "max_wait_ms", "max_batch_size"])
def test_a_page_is_sent_a_slider_once_and_its_range_first(name, monkeypatch):
    panel = bs.explore(requests=300)
    slider, sent = panel.controls[name].slider, []
    monkeypatch.setattr(slider, "_send", lambda message, buffers=None: sent.append(list(message["state"])))
    panel.move_to(
        State.from_link("service=curve&curve=1:900,24:9000&rate_per_s=0.5&max_wait_ms=700&max_batch_size=24")
    )
    (keys,) = sent
    assert {"max", "value"} <= set(keys)
    assert keys[-1] == "value"


def test_reset_and_links_take_away_what_was_refused(panel):
    size, rate = panel.controls["max_batch_size"], panel.controls["rate_per_s"]
    size.field.value, rate.field.value = "0", "abc"
    assert size.refusal.value
    assert rate.refusal.value
    panel.share.buttons["Reset"].click()
    assert (size.field.value, size.refusal.value) == ("32", "")
    assert (rate.field.value, rate.refusal.value) == ("1000", "")


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
    assert words in html.unescape(panel.controls[name].refusal.value)
