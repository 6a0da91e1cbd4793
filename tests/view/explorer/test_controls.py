"""The controls: each moves the picture, and which of them matter."""

import json
import math
from typing import ClassVar

import comm
import pytest
from hands import is_shown, looked_at, slid, slide
from ipywidgets.widgets.widget import _instances

import batchsim as bs
from batchsim.view.explorer.kinds import KINDS, on_page, relevant
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.services import PUBLISHED
from batchsim.view.explorer.state import DEFAULTS


@pytest.fixture
def panel_of(request):
    """Return the panel of earlier tests of a mode, back at the beginning."""
    return lambda mode: request.getfixturevalue(
        {"requests": "panel_again", "tokens": "panel_of_tokens"}[mode]
    )


MOVED = {
    "requests": [
        ("max_batch_size", 4),
        ("max_wait_ms", 35.0),
        ("rate_per_s", 77.0),
        ("servers", 3),
        ("fixed_ms", 20.0),
        ("per_item_ms", 1.0),
        ("noise_cv", 1.0),
        ("padding", (8, 32, 64)),
        ("compile_ms", 800),
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
    "tokens": [
        ("rate_per_s", 6.0),
        ("prompt_mean", 300),
        ("prompts", "geometric"),
        ("prompt_cv", 0.5),
        ("prompt_most", 2000),
        ("output_mean", 200),
        ("outputs", "fixed"),
        ("output_cv", 1.5),
        ("output_most", 300),
        ("max_num_seqs", 8),
        ("max_num_batched_tokens", 256),
        ("kv_blocks", 400),
        ("first", "prefill"),
        ("token_map", "memory"),
        ("batching", "size_or_wait"),
        ("servers", 2),
        ("replicas", 2),
        ("step", "llama-2-7b/h100/vllm"),
        ("captured", (1, 64)),
        ("beyond_ms", 150.0),
        ("noise_cv", 0.5),
        ("ttft_objective_ms", 300),
        ("tpot_objective_ms", None),
        ("itl_objective_ms", 80.0),
        ("workload", "gamma"),
        ("workload", "closed"),
        ("seed", 4),
    ],
}


@pytest.mark.parametrize(
    ("mode", "control", "value"), [(mode, *each) for mode in MOVED for each in MOVED[mode]]
)
def test_every_control_moves_the_picture_and_the_words(panel_of, mode, control, value):
    panel = looked_at(panel_of(mode))
    frame, words = panel.screen.frame, panel.readout.value
    panel.controls[control].value = value
    assert panel.status.value == ""
    assert panel.screen.frame != frame
    assert panel.readout.value != words or control in ("prompt_most", "token_map")


# Settings with little memory, under which each parameter of these rules matters.
SGLANG = {"batching": "new_token_ratio", "kv_blocks": 400, "init_new_token_ratio": 0.7}
DELAYED = {"batching": "new_token_ratio", "prefill_delayer": "on", "queue_min_ratio": 0.5}
TGI = {"batching": "waiting_served_ratio", "chunked": "off", "prompt_most": 2048}
TENSORRT = {"batching": "batch_wait"}


MOVED_IN = {
    "requests": [
        ({"workload": "gamma"}, "cv", 9),
        ({"workload": "onoff"}, "burst_factor", 12),
        ({"workload": "onoff"}, "mean_burst_s", 2),
        ({"workload": "diurnal"}, "peak_to_mean", 1.2),
        ({"workload": "diurnal"}, "period_s", 0.1),
        ({"workload": "closed"}, "clients", 5),
        ({"workload": "closed"}, "think_ms", 90),
        ({"rule": "at_least"}, "min_batch_size", 20),
        ({"servers": 4, "rate_per_s": 4000}, "sharing", 0.5),
        ({"servers": 4, "rate_per_s": 4000, "devices": 2}, "host_ms", 2),
        ({"servers": 4, "rate_per_s": 4000, "devices": 2}, "contention", 1.5),
    ],
    "tokens": [
        ({"max_num_batched_tokens": 256}, "long_prefill_token_threshold", 64),
        ({"max_num_batched_tokens": 900, "prompt_most": 900, "kv_blocks": None}, "chunked", "off"),
        ({"kv_blocks": 400}, "reserve", "life"),
        ({"kv_blocks": 400, "reserve": "life"}, "limit", 1500),
        ({"kv_blocks": 400}, "block_size", 17),
        ({"kv_blocks": 400}, "watermark_blocks", 40),
        ({"rate_per_s": 40}, "queue_limit", 3),
        ({"rate_per_s": 40}, "timeout_ms", 900),
        (SGLANG, "max_prefill_tokens", 300),
        (SGLANG, "init_new_token_ratio", 0.2),
        (SGLANG, "min_new_token_ratio", 0.5),
        (SGLANG, "decay_steps", 3),
        (SGLANG, "mixed", "on"),
        (DELAYED | {"prefill_delayer": "off"}, "prefill_delayer", "on"),
        (DELAYED, "queue_min_ratio", 0.1),
        (DELAYED, "max_delay_ms", 20),
        (DELAYED, "token_usage_low_watermark", 0.9),
        (TENSORRT, "batch_wait_timeout_iters", 2),
        (TENSORRT, "batch_wait_max_tokens_ratio", 0.1),
        (TENSORRT, "batch_wait_timeout_ms", 40),
        (TENSORRT | {"batch_wait_timeout_ms": 40}, "overlap", "off"),
        (TGI, "waiting_served_ratio", 2),
        (TGI | {"waiting_served_ratio": 2}, "max_waiting_tokens", 2),
        ({"replicas": 2}, "routing", "least_tokens"),
        ({"step": "own"}, "fixed_ms", 12),
        ({"step": "own"}, "weights_ms", 20),
        ({"step": "own"}, "per_token_ms", 0.2),
        ({"step": "own"}, "per_read_ms", 0.001),
        ({"step": "own"}, "per_pair_ms", 0.00001),
    ],
}


@pytest.mark.parametrize(
    ("mode", "first", "control", "value"), [(mode, *each) for mode in MOVED_IN for each in MOVED_IN[mode]]
)
def test_controls_that_matter_to_some_settings_only_are_seen_there_and_move_the_words(
    panel_of, mode, first, control, value
):
    panel, state = panel_of(mode), DEFAULTS[mode]
    needed = relevant(control, vars(state.replace(**first))) > relevant(control, vars(state))
    assert is_shown(panel, control) != needed
    panel.move_to(state.replace(**first))
    assert is_shown(panel, control)
    words = panel.readout.value
    panel.controls[control].value = value
    assert panel.status.value == ""
    assert panel.readout.value != words


def test_every_control_of_tokens_is_among_those_that_are_moved_here():
    moved = {control for each in (MOVED, MOVED_IN) for *_, control, _ in each["tokens"]}
    own = {*KINDS["tokens"].controls} - {*KINDS["requests"].controls}
    assert {name for name in own if CONTROLS[name].page} <= moved | {"max_model_len"}  # it only refuses


def test_a_length_that_the_model_does_not_have_is_refused_in_the_field(panel_of_tokens):
    knob = panel_of_tokens.controls["max_model_len"]
    with pytest.raises(ValueError, match="must hold every prompt with its output"):
        knob.value = 4096
    knob.value = 5120
    assert panel_of_tokens.scenario.rule.max_model_len == 5120


@pytest.mark.parametrize(
    ("control", "value", "words"),
    [
        ("kv_blocks", 20, "must fit into the memory, 20 blocks"),
        ("chunked", "off", "must fit into the budget"),
    ],
)
def test_what_can_never_run_keeps_the_last_good_picture_and_says_why(panel_of_tokens, control, value, words):
    panel = looked_at(panel_of_tokens)
    frame, result = panel.screen.frame, panel.result
    panel.controls[control].value = value
    assert words in panel.status.value
    assert (panel.screen.frame, panel.result) == (frame, result)
    panel.controls[control].value = getattr(DEFAULTS["tokens"], control)
    assert panel.status.value == ""


def test_a_choice_that_makes_no_sense_with_the_others_says_why_and_can_be_mended():
    panel = bs.explore(requests=300, link="workload=closed&clients=8")
    looked_at(panel)
    frame = panel.screen.frame
    panel.controls["rule"].value = "full_only"
    assert "must be at least 32" in panel.status.value
    assert panel.screen.frame == frame
    panel.controls["clients"].value = 20
    assert "must be at least 32" in panel.status.value
    panel.controls["clients"].value = 40
    assert panel.status.value == ""
    assert panel.result.scenario.workload == bs.ClosedLoop(40)


def test_a_trace_can_be_explored_at_any_rate():
    panel = bs.explore(workload=bs.Trace([0.0, 0.1, 0.2, 0.5, 0.6]), requests=300)
    assert panel.status.value == ""
    assert panel.result.arrival_s.size == 5
    panel.controls["rate_per_s"].value = 50
    assert panel.result.scenario.workload.offered_per_s == pytest.approx(50)
    assert panel.status.value == ""


def test_a_min_batch_size_that_did_not_matter_is_never_above_the_max(panel):
    assert panel.state.min_batch_size > 4
    panel.controls["max_batch_size"].value = 4
    panel.controls["rule"].value = "at_least"
    assert panel.status.value == ""
    assert panel.result.scenario.rule == bs.AtLeast(4, 4)
    knob = panel.controls["min_batch_size"]
    assert (knob.value, knob.range.high, knob.field.value) == (4, 4, "4")
    assert knob.slider.value == knob.slider.max == 3  # steps from 1


def test_a_min_batch_size_is_kept_while_it_does_not_matter(panel):
    panel.controls["max_batch_size"].value = 4
    panel.controls["max_batch_size"].value = 32
    panel.controls["rule"].value = "at_least"
    assert panel.result.scenario.rule == bs.AtLeast(8, 32)


def test_a_max_batch_size_below_the_min_lowers_the_min():
    panel = bs.explore(bs.Scenario(bs.Poisson(300), bs.AtLeast(4, 4), bs.Affine(5, 1)), requests=300)
    panel.controls["max_batch_size"].field.value = "3"
    assert panel.controls["max_batch_size"].refusal == ""
    assert panel.result.scenario.rule == bs.AtLeast(3, 3)
    smallest = panel.controls["min_batch_size"]
    assert (smallest.value, slid(panel, "min_batch_size"), smallest.field.value) == (3, 3, "3")
    smallest.field.value = "4"
    assert "Min batch size must be at most Max batch size, 3, got 4" in smallest.refusal


@pytest.mark.parametrize("times_s", [[0.0], [0.0, 0.0]])
def test_a_trace_without_a_rate_has_no_slider_of_it(times_s):
    panel = bs.explore(workload=bs.Trace(times_s), requests=300)
    assert panel.result.scenario.workload == bs.Trace(times_s)
    assert not is_shown(panel, "rate_per_s")
    assert panel.data.curve is None


def test_bursts_sharper_than_the_control_allows_are_explored_as_given():
    traffic = bs.OnOff(on_rate_per_s=1e6, off_rate_per_s=0, mean_on_s=1e-3, mean_off_s=10)
    panel = bs.explore(workload=traffic, requests=300)
    assert panel.status.value == ""
    assert panel.controls["workload"].value == "given"
    assert panel.result.scenario.workload == traffic


def test_preferred_sizes_follow_a_smaller_max_batch_size(panel):
    panel.controls["rule"].value = "preferred_sizes"
    preferred = panel.controls["preferred"]
    assert is_shown(panel, "preferred")
    preferred.field.value = "4, 8"
    assert panel.scenario.rule == bs.PreferredSizes([4, 8], 32, 10)
    preferred.field.value = "4, 64"
    assert "Max batch size, 32, got 64" in preferred.refusal
    slide(panel, "max_batch_size", 6)
    assert panel.scenario.rule == bs.PreferredSizes([4], 6, 10)
    assert preferred.field.value == "4"
    assert preferred.refusal == ""


@pytest.mark.parametrize("rule", ["size_or_wait", "preferred_sizes"])
def test_an_infinite_wait_can_be_typed_and_its_slider_is_at_the_end(panel, rule):
    panel.controls["rule"].value = rule
    wait = panel.controls["max_wait_ms"]
    wait.field.value = "inf"
    assert panel.scenario.rule.max_wait_ms == math.inf
    assert (wait.field.value, wait.slider.value) == ("inf", wait.slider.max)
    slide(panel, "max_wait_ms", 5)
    assert panel.scenario.rule.max_wait_ms == 5


# What a page receives: a message for each widget that is made, and for each change of one.


class Counted(comm.DummyComm):
    """A connection without a page, which counts what it would send."""

    sent: ClassVar[list[int]] = []

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **_):
        self.sent.append(len(json.dumps(data)) + sum(len(bytes(each)) for each in buffers or ()))


@pytest.fixture
def sent(monkeypatch):
    """The sizes of the messages that are sent from now on."""
    monkeypatch.setattr(Counted, "sent", [])
    monkeypatch.setattr(comm, "create_comm", Counted)
    return Counted.sent


def test_an_explorer_opens_with_few_widgets_and_a_click_on_tokens_sends_few_messages(sent):
    before = len(_instances)
    panel = bs.explore(requests=300)
    assert len(_instances) - before <= 110
    assert len(sent) <= 130
    assert sum(sent) <= 300_000
    sent.clear()
    panel.controls["mode"].value = "tokens"
    assert 0 < len(sent) <= 40
    sent.clear()
    panel.controls["mode"].value = "requests"
    assert 0 < len(sent) <= 15  # no control is made again
    sent.clear()
    knob = panel.controls["max_wait_ms"]
    knob.slider.set_state({"value": knob.slider.value + 1})  # as a page does
    assert 0 < len(sent) <= 7


def test_controls_are_made_when_their_page_is_first_opened():
    panel = bs.explore(requests=300)
    assert "fixed_ms" not in panel.controls.made
    panel.share.link.value = "fixed_ms=7&padding=8,32"
    panel.share.buttons["Copy as Python"].click()
    assert "fixed_ms=7" in panel.session.python()
    assert not {"fixed_ms", "padding"} & {*panel.controls.made}
    panel.tabs.selected_index = panel.tabs.titles.index("Service")
    knob = panel.controls.made["fixed_ms"]
    assert knob.field in panel.controls.boxes["Service"].children
    assert (knob.field.value, slid(panel, "fixed_ms")) == ("7", 7)
    slide(panel, "fixed_ms", 9)
    panel.tabs.selected_index = 0
    panel.share.buttons["Reset"].click()
    assert panel.result.scenario.service == bs.Affine(5, 0.25)
    assert knob.field.value == "5"


def values_of(name):
    """Return typical values of a control: its options, the ends of its slider, and none."""
    spec = CONTROLS[name]
    found = [*spec.bounds["options"]] if spec.type == "choice" else []
    if spec.slider and spec.slider.scale != "share":
        found += [spec.slider.value(place) for place in (0, spec.slider.steps)]
    return [each for each in found if each != "given"] + [None] * bool(spec.when_empty)


@pytest.mark.parametrize("mode", KINDS)
def test_a_hand_makes_no_other_control_come_or_go_above_its_own(mode):
    """Otherwise a page would make the control under the hand again, and the hand would lose it."""
    first = DEFAULTS[mode]
    own = [name for name in KINDS[mode].controls if CONTROLS[name].page]
    lists = [name for name in own if CONTROLS[name].type == "choice"]
    choices = [(name, value) for name in lists for value in values_of(name)
        if value in KINDS[mode].options.get(name, CONTROLS[name].bounds["options"])]  # fmt: skip
    states = [first.replace(**first.kind.changes(first, *choice)) for choice in choices]
    for before in [first, *states]:
        for name in own:
            names = on_page(CONTROLS[name].page)
            above = names[: names.index(name) + 1]
            there = [relevant(each, vars(before)) for each in above]
            for value in values_of(name) if there[-1] else []:
                if value in KINDS[mode].options.get(name, [value]):
                    after = before.replace(**before.kind.changes(before, name, value))
                    assert [relevant(each, vars(after)) for each in above] == there, (name, value)
