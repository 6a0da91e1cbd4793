"""The explorer's controls: how a value is moved, what is refused, and whose service time it is."""

import html
import math
import re

import pytest

import batchsim as bs
from batchsim.view.explorer.services import AFFINE, MEASURE_HERE, PUBLISHED
from batchsim.view.explorer.state import DEFAULT, State

TABLE = bs.Table({1: 2.0, 8: 4.0, 16: 7.0})


@pytest.fixture
def panel():
    return bs.explore(requests=300)


@pytest.mark.parametrize(
    ("control", "value"),
    [
        ("max_batch_size", 4),
        ("max_wait_ms", 35.0),
        ("rate_per_s", 77.0),
        ("servers", 3),
        ("fixed_ms", 20.0),
        ("per_item_ms", 1.0),
        ("noise_cv", 1.0),
        ("padding", (8, 32, 64)),
        ("queue_limit", 3),
        ("timeout_ms", 3.0),
        ("objective_ms", 12.0),
        ("seed", 4),
        ("workload", "gamma"),
        ("workload", "closed"),
        ("workload", "onoff"),
        ("workload", "constant"),
        ("workload", "diurnal"),
        ("rule", "full_only"),
        ("rule", "at_least"),
        ("service", PUBLISHED + "nnunet/t4/fp16"),
    ],
)
def test_every_control_moves_the_picture_and_the_words(panel, control, value):
    frame, words = panel.screen.frame, panel.readout.value
    panel.controls[control].value = value
    assert panel.status.value == ""
    assert panel.screen.frame != frame
    assert panel.readout.value != words


@pytest.mark.parametrize(
    ("first", "control", "value"),
    [
        ({"workload": "gamma"}, "cv", 9),
        ({"workload": "onoff"}, "burst_factor", 12),
        ({"workload": "onoff"}, "mean_burst_s", 2),
        ({"workload": "diurnal"}, "peak_to_mean", 1.2),
        ({"workload": "diurnal"}, "period_s", 0.1),
        ({"workload": "closed"}, "clients", 5),
        ({"workload": "closed"}, "think_ms", 90),
        ({"rule": "at_least"}, "min_batch_size", 20),
        ({"servers": 4, "rate_per_s": 4000}, "sharing", 0.5),
    ],
)
def test_controls_that_matter_to_some_settings_only_are_seen_there_and_move_the_picture(
    first, control, value
):
    panel = bs.explore(requests=300)
    assert not panel.controls[control].shown
    panel.move_to(DEFAULT.replace(**first))
    assert panel.controls[control].shown
    words = panel.readout.value
    panel.controls[control].value = value
    assert panel.status.value == ""
    assert panel.readout.value != words


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
        ("rate_per_s", "1e99", "Arrival rate (per s) must be at most 1e+12, got 1e+99"),
        ("servers", "100", "Servers must be at most 64, got 100"),
        ("objective_ms", "0", "p99 objective (ms) must be greater than 0, got 0"),
        ("queue_limit", "0", "Queue limit must be at least 1, got 0"),
        ("padding", "8, 16", "batch_size must be at most the largest padded size, 16, got 17"),
        ("seed", "-1", "Seed must be at least 0, got -1"),
    ],
)
def test_nonsense_is_refused_where_it_is_typed_and_the_value_stays(panel, name, typed, message):
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


def test_a_value_that_the_others_make_senseless_is_refused_where_it_is_typed():
    panel = bs.explore(TABLE, requests=300)
    size = panel.controls["max_batch_size"]
    size.field.value = "17"
    assert "at most the Table&#x27;s largest size, 16, got 17" in size.refusal.value
    assert size.value == 16


def test_a_choice_that_makes_no_sense_with_the_others_says_why_and_can_be_mended():
    panel = bs.explore(requests=300, link="workload=closed&clients=8")
    frame = panel.screen.frame
    panel.controls["rule"].value = "full_only"
    assert "must have at least 32 clients" in panel.status.value
    assert panel.screen.frame == frame
    panel.controls["clients"].value = 20
    assert "must have at least 32 clients" in panel.status.value
    panel.controls["clients"].value = 40
    assert panel.status.value == ""
    assert panel.result.scenario.workload == bs.ClosedLoop(40)


def test_a_service_time_that_is_given_is_offered_first_and_bounds_the_batch():
    panel = bs.explore(TABLE, requests=300)
    assert panel.result.scenario.service == TABLE
    assert panel.controls["max_batch_size"].slider.max == 16
    assert not panel.controls["fixed_ms"].shown
    panel.controls["service"].value = AFFINE
    assert panel.controls["max_batch_size"].slider.max == 64
    assert panel.controls["fixed_ms"].shown


def test_the_other_controls_follow_a_service_time_of_another_scale():
    panel = bs.explore(bs.Table({1: 0.01, 64: 0.02}), requests=300)
    assert 0.1 < panel.scenario.load < 1
    assert panel.state.max_wait_ms < 1
    assert panel.controls["max_wait_ms"].slider.max < 1
    panel.controls["service"].value = AFFINE
    assert 0.1 < panel.scenario.load < 1
    assert panel.state.max_wait_ms > 1


@pytest.mark.parametrize("name", bs.published_names()[::12])
def test_published_tables_are_offered_and_say_their_source(panel, name):
    panel.controls["service"].value = PUBLISHED + name
    assert panel.status.value == ""
    assert panel.result.scenario.service == bs.published(name)
    assert "Not measured on this machine" in panel.origin.value


def test_every_published_table_can_be_chosen(panel):
    offered = {value.removeprefix(PUBLISHED) for _, value in panel.controls["service"].options}
    assert set(bs.published_names()) <= offered


def test_a_model_measured_from_the_panel_gives_its_service_time(panel):
    panel.controls["service"].value = next(name for name in MEASURE_HERE if "mlp" in name)
    assert panel.status.value == ""
    assert isinstance(panel.result.scenario.service, bs.Table)
    assert "this machine" in panel.origin.value


def test_a_curve_of_another_machine_says_whose_it_is():
    state = DEFAULT.replace(service="curve", curve=((1, 2.0), (32, 5.0)), curve_of="mlp on NVIDIA H100")
    panel = bs.explore(requests=300, link=state.to_link())
    assert "mlp on NVIDIA H100" in panel.controls["service"].value
    assert "That is another machine&#x27;s curve" in panel.origin.value


def test_a_trace_can_be_explored_at_any_rate():
    panel = bs.explore(workload=bs.Trace([0.0, 0.1, 0.2, 0.5, 0.6]), requests=300)
    assert panel.status.value == ""
    assert panel.result.arrival_s.size == 5
    panel.controls["rate_per_s"].value = 50
    assert panel.result.scenario.workload.offered_per_s == pytest.approx(50)
    assert panel.status.value == ""


def test_a_smallest_batch_size_that_did_not_matter_is_never_above_the_largest(panel):
    assert panel.state.min_batch_size > 4
    panel.controls["max_batch_size"].value = 4
    panel.controls["rule"].value = "at_least"
    assert panel.status.value == ""
    assert panel.result.scenario.rule == bs.AtLeast(4, 4)
    knob = panel.controls["min_batch_size"]
    assert (knob.value, knob.slider.value, knob.slider.max, knob.field.value) == (4, 4, 4, "4")


def test_a_smallest_batch_size_is_kept_while_it_does_not_matter(panel):
    panel.controls["max_batch_size"].value = 4
    panel.controls["max_batch_size"].value = 32
    panel.controls["rule"].value = "at_least"
    assert panel.result.scenario.rule == bs.AtLeast(8, 32)


def test_a_largest_batch_size_below_the_smallest_takes_it_along():
    panel = bs.explore(bs.Scenario(bs.Poisson(300), bs.AtLeast(4, 4), bs.Affine(5, 1)), requests=300)
    panel.controls["max_batch_size"].field.value = "3"
    assert panel.controls["max_batch_size"].refusal.value == ""
    assert panel.result.scenario.rule == bs.AtLeast(3, 3)
    smallest = panel.controls["min_batch_size"]
    assert (smallest.value, smallest.slider.value, smallest.field.value) == (3, 3, "3")
    smallest.field.value = "4"
    assert "Min batch size must be at most Max batch size, 3, got 4" in smallest.refusal.value


def test_a_service_time_that_cannot_be_had_leaves_the_choice_and_the_picture_as_they_were(panel):
    def fail(model):
        raise RuntimeError("there is no <compiler> here")

    panel.controls.measure = fail
    state, frame, number = panel.state, panel.screen.frame, panel.screen.number
    panel.controls["service"].value = next(iter(MEASURE_HERE))
    assert panel.controls["service"].value == AFFINE
    assert (panel.state, panel.screen.frame, panel.screen.number) == (state, frame, number)
    assert "RuntimeError: there is no &lt;compiler&gt; here" in panel.status.value
    assert 'role="alert"' in panel.status.value
    panel.controls["max_wait_ms"].value = 3
    assert panel.status.value == ""
    assert panel.result.scenario.service == bs.Affine(5, 0.25)


def test_another_formula_is_not_offered_as_the_one_that_was_given():
    panel = bs.explore(bs.Affine(3, 1), requests=300)
    given = panel.controls["service"].value
    assert "Affine(fixed_ms=3, per_item_ms=1)" in given
    panel.move_to(panel.state.replace(fixed_ms=9))
    assert panel.controls["service"].value == AFFINE
    panel.move_to(panel.state.replace(fixed_ms=3))
    assert panel.controls["service"].value == given
    panel.share.link.value = "fixed_ms=3&per_item_ms=0.5"
    assert panel.controls["service"].value == AFFINE
    panel.controls["per_item_ms"].value = 1
    assert panel.controls["service"].value == given
    panel.controls["fixed_ms"].value = 9
    assert panel.controls["service"].value == AFFINE


@pytest.mark.parametrize("service", [bs.Affine(5, 0.25), bs.Table({1: 0.01, 64: 0.02})], ids=repr)
@pytest.mark.parametrize("traffic", [bs.Poisson(100), bs.Trace([0.0, 0.1, 0.2, 0.5, 0.6])], ids=repr)
def test_given_traffic_keeps_its_rate_beside_a_given_service_time(service, traffic):
    panel = bs.explore(service, traffic, requests=300)
    assert panel.scenario.workload == traffic.with_rate(traffic.offered_per_s)
    assert panel.scenario.service == service


@pytest.mark.parametrize("scale", [0.01, 1, 100])
def test_without_traffic_the_rate_is_brought_to_the_scale_of_the_service_time(scale):
    panel = bs.explore(bs.Affine(5 * scale, 0.25 * scale), requests=300)
    assert 0.25 < panel.scenario.load < 1


def test_bursts_that_cannot_come_at_the_rate_of_full_batches_have_a_load_curve_all_the_same():
    # A cycle of 1.5 ms sees too few arrivals below 0.67 per s; full batches of 32 do 0.64 per s.
    link = "workload=onoff&mean_burst_s=0.0003&rate_per_s=2000&fixed_ms=50000&per_item_ms=5"
    panel = bs.explore(requests=300, link=link)
    assert panel.status.value == ""
    curve = panel.data.curve
    assert curve.saturation < curve.x_values[0]
    with pytest.raises(ValueError, match=re.escape("must see at least 0.001 arrivals")):
        panel.scenario.workload.with_rate(curve.saturation)


@pytest.mark.parametrize("times_s", [[0.0], [0.0, 0.0]])
def test_a_trace_without_a_rate_is_refused(times_s):
    with pytest.raises(ValueError, match="a Trace must span some time to be scaled to a rate"):
        bs.explore(workload=bs.Trace(times_s), requests=300)


def test_bursts_that_are_sharper_than_the_control_says_can_be_explored_as_given():
    traffic = bs.OnOff(on_rate_per_s=1e6, off_rate_per_s=0, mean_on_s=1e-3, mean_off_s=10)
    panel = bs.explore(workload=traffic, requests=300)
    assert panel.status.value == ""
    assert panel.controls["workload"].value == "given"
    assert panel.result.scenario.workload == traffic


def test_bursts_of_which_no_load_can_come_say_so():
    link = "workload=onoff&mean_burst_s=0.0003&rate_per_s=2000&fixed_ms=500000&per_item_ms=5"
    panel = bs.explore(requests=300, link=link)
    assert "an on and an off state must see at least 0.001 arrivals, got" in panel.status.value


# What a page says of a slider: a hand's move, or the echo of what it was told, rounded to the slider's step.


def test_an_echo_of_what_a_slider_was_told_before_is_no_move():
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


def test_a_hand_may_go_back_at_once():
    panel = bs.explore(requests=300)
    knob = panel.controls["max_batch_size"]
    panel.move_to(panel.state.replace(max_batch_size=16))
    knob.slider.value = 32
    assert panel.state.max_batch_size == 32


@pytest.mark.parametrize("name", ["rate_per_s", "max_wait_ms", "max_batch_size"])
def test_a_page_is_told_of_a_slider_once_and_of_its_range_first(name, monkeypatch):
    panel = bs.explore(requests=300)
    slider, told = panel.controls[name].slider, []
    monkeypatch.setattr(slider, "_send", lambda message, buffers=None: told.append(list(message["state"])))
    panel.move_to(
        State.from_link("service=curve&curve=1:900,24:9000&rate_per_s=0.5&max_wait_ms=700&max_batch_size=24")
    )
    (keys,) = told
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
