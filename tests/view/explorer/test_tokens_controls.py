"""Each control of token generation moves the picture, and refuses what makes no sense."""

import pytest
from hands import is_shown, looked_at, slide

from batchsim.view.explorer.kinds import KINDS
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.state import DEFAULTS

FIRST = DEFAULTS["tokens"]


@pytest.fixture
def panel(panel_of_tokens):
    return panel_of_tokens


@pytest.mark.parametrize(
    ("control", "value"),
    [
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
)
def test_every_control_moves_the_picture(panel, control, value):
    looked_at(panel)
    frame = panel.screen.frame
    panel.controls[control].value = value
    assert panel.status.value == ""
    assert panel.screen.frame != frame


# Settings with little memory, under which each parameter of these rules matters.
SGLANG = {"batching": "new_token_ratio", "kv_blocks": 400, "init_new_token_ratio": 0.7}
DELAYED = {"batching": "new_token_ratio", "prefill_delayer": "on", "queue_min_ratio": 0.5}
TGI = {"batching": "waiting_served_ratio", "chunked": "off", "prompt_most": 2048}
TENSORRT = {"batching": "batch_wait"}


@pytest.mark.parametrize(
    ("first", "control", "value"),
    [
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
)
def test_controls_that_matter_to_some_settings_move_the_words_there(panel, first, control, value):
    panel.move_to(FIRST.replace(**first))
    assert is_shown(panel, control)
    words = panel.readout.value
    panel.controls[control].value = value
    assert panel.status.value == ""
    assert panel.readout.value != words


def test_every_control_of_tokens_is_among_those_that_are_moved_here():
    moved = {
        mark.args[1][i][-2]
        for test in (test_every_control_moves_the_picture,
                     test_controls_that_matter_to_some_settings_move_the_words_there)
        for mark in test.pytestmark
        for i in range(len(mark.args[1]))
    }  # fmt: skip
    of_tokens = {
        name
        for name in KINDS["tokens"].controls
        if CONTROLS[name].page and name not in KINDS["requests"].controls
    }
    assert of_tokens <= moved | {"max_model_len"}  # it only refuses


def test_a_length_that_the_model_does_not_have_is_refused_in_the_field(panel):
    panel.move_to(FIRST)
    with pytest.raises(ValueError, match="must hold every prompt with its output"):
        panel.controls["max_model_len"].value = 4096
    panel.controls["max_model_len"].value = 5120
    assert panel.scenario.rule.max_model_len == 5120


@pytest.mark.parametrize(
    ("control", "value", "words"),
    [
        ("kv_blocks", 20, "must fit into the memory, 20 blocks"),
        ("chunked", "off", "must fit into the budget"),
    ],
)
def test_what_can_never_run_keeps_the_last_good_picture_and_says_why(panel, control, value, words):
    looked_at(panel)
    frame, result = panel.screen.frame, panel.result
    panel.controls[control].value = value
    assert words in panel.status.value
    assert (panel.screen.frame, panel.result) == (frame, result)
    panel.controls[control].value = getattr(FIRST, control)
    assert panel.status.value == ""


@pytest.mark.parametrize(
    ("control", "typed", "words"),
    [
        ("max_num_seqs", "0", "max_num_seqs must be at least 1, got 0"),
        ("max_num_batched_tokens", "many", "max_num_batched_tokens must be a whole number"),
        ("prompt_mean", "0", "Mean prompt (tokens) must be at least 1, got 0"),
    ],
)
def test_a_typed_value_that_makes_no_sense_is_refused_beside_its_field(panel, control, typed, words):
    looked_at(panel)
    knob, frame = panel.controls[control], panel.screen.frame
    knob.field.value = typed
    assert words in knob.refusal
    assert panel.screen.frame == frame


def test_a_slider_of_whole_numbers_on_a_log_scale_gives_whole_numbers(panel):
    slide(panel, "kv_blocks", 10**3.303)
    assert panel.state.kv_blocks == 2000
    assert isinstance(panel.state.kv_blocks, int)
