"""The state of token generation: a scenario, a link and Python that say the same."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchsim as bs
from batchsim.scenario.tokens import Listed
from batchsim.view.explorer.kinds import CONTROLS, KINDS, relevant
from batchsim.view.explorer.state import DEFAULTS, State

FIRST = DEFAULTS["tokens"]
lengths = st.sampled_from([kind for kind in KINDS["tokens"].options["prompts"] if kind != "given"])
states = st.builds(
    FIRST.replace,
    workload=st.sampled_from(["poisson", "constant", "gamma", "diurnal"]),
    rate_per_s=st.floats(0.1, 100),
    prompts=lengths,
    prompt_mean=st.floats(1, 1e4),
    prompt_cv=st.floats(0, 2),
    prompt_most=st.none() | st.integers(1, 4096),
    outputs=lengths,
    output_mean=st.floats(1, 1e3),
    output_cv=st.floats(0, 2),
    output_most=st.none() | st.integers(1, 1024),
    batching=st.sampled_from([*KINDS["tokens"].options["batching"]]),
    max_batch_size=st.integers(8, 300),
    max_wait_ms=st.floats(0, 1e5),
    min_batch_size=st.integers(1, 8),
    max_num_seqs=st.integers(1, 512),
    max_num_batched_tokens=st.integers(1, 9000),
    kv_blocks=st.none() | st.integers(400, 9000),
    first=st.sampled_from(["decode", "prefill"]),
    chunked=st.sampled_from(["on", "off"]),
    reserve=st.sampled_from(["step", "life"]),
    limit=st.none() | st.integers(1, 9000),
    block_size=st.integers(1, 64),
    watermark_blocks=st.integers(0, 9),
    long_prefill_token_threshold=st.integers(0, 99),
    step=st.sampled_from([*KINDS["tokens"].options["step"]]),
    per_token_ms=st.floats(0, 1),
    noise_cv=st.just(0) | st.floats(0.01, 2),
    servers=st.integers(1, 8),
    queue_limit=st.none() | st.integers(1, 100),
    timeout_ms=st.none() | st.floats(0, 1e4),
    ttft_objective_ms=st.none() | st.floats(0.1, 1e4),
    seed=st.integers(0, 2**40),
)
WITH_ALL = bs.Scenario(
    bs.Gamma(3, 2),
    bs.Continuous(40, 512, first="prefill", reserve="life", kv_blocks=900, watermark_blocks=2),
    bs.StepTime(6, 9, 0.1, 2e-4, 1e-6).with_noise(0.2),
    servers=2, timeout_ms=9000,
    tokens=bs.Tokens(prompt=bs.Uniform(20, 601), output=90, limit=100),
)  # fmt: skip


@given(states)
def test_a_link_restores_the_state_to_the_last_bit_and_names_the_mode(state):
    assert state.to_link().startswith("mode=tokens")
    assert State.from_link(state.to_link()) == state


def test_a_link_of_the_mode_alone_is_where_it_begins():
    assert State.from_link("mode=tokens") == FIRST
    assert FIRST.to_link() == "mode=tokens"
    assert 0.5 < FIRST.scenario().load < 0.9


@given(states)
def test_a_scenario_comes_back_from_the_controls(state):
    scenario = state.scenario()
    again = State.of(scenario)
    assert again.scenario() == scenario
    assert State.of(scenario) == again


@settings(max_examples=10)
@given(states)
def test_its_python_makes_the_same_scenario(state):
    code, names = state.python(requests=20).partition("result =")[0], {}
    exec(code, names)
    assert names["scenario"] == state.scenario()


def test_its_python_runs_and_gives_the_same_result():
    names = {}
    exec(FIRST.replace(servers=2, reserve="life").python(requests=60).replace("print(result)", ""), names)
    same = bs.simulate(FIRST.replace(servers=2, reserve="life").scenario(), 60)
    assert names["result"].summary() == same.summary()


def test_its_python_names_a_published_step_and_says_what_differs_from_the_defaults():
    code = FIRST.replace(noise_cv=0.5, max_num_seqs=64).python(100)
    assert "rule=bs.Continuous(max_num_seqs=64, kv_blocks=2599)," in code
    assert """service=bs.published("llama-3.1-8b/rtx-4090").with_noise(0.5, 'lognormal'),""" in code


def test_a_whole_scenario_becomes_values():
    state = State.of(WITH_ALL, seed=3)
    assert (state.mode, state.step, state.prompts, state.outputs, state.seed) == (
        "tokens", "own", "uniform", "fixed", 3,
    )  # fmt: skip
    assert state.scenario() == WITH_ALL


def test_toml_carries_it():
    assert bs.Scenario.from_toml(State.of(WITH_ALL).scenario().to_toml()) == WITH_ALL


def test_measured_lengths_are_given():
    tokens = bs.Tokens.sample([(100, 5), (20, 12)], again=True)
    scenario = dataclasses.replace(WITH_ALL, tokens=tokens)
    state = State.of(scenario)
    assert (state.prompts, state.outputs) == ("given", "given")
    assert state.scenario(None, tokens) == scenario
    assert "prompt=tokens.prompt" in state.python(10, None, tokens)
    with pytest.raises(ValueError, match="must come with tokens"):
        state.scenario()
    one = dataclasses.replace(tokens, output=7)
    assert isinstance(
        State.of(dataclasses.replace(scenario, tokens=one)).scenario(None, one).tokens.prompt, Listed
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": bs.Continuous(8, 99, prefix_reuse=True)}, "a Continuous without prefix_reuse"),
        ({"rule": bs.servers.tgi()}, "the rule must be a Continuous"),
        ({"service": bs.StepTime(6, 9, 0.1, ragged=True)}, "must not be ragged"),
    ],
)
def test_what_the_controls_cannot_say_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        State.of(dataclasses.replace(WITH_ALL, **changes))


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("mode=token", "mode must be one of requests, tokens, got 'token'; did you mean 'tokens'"),
        ("mode=tokens&max_num_seqs=0", "max_num_seqs must be at least 1, got 0"),
        ("mode=tokens&prompt_mean=0", "prompt_mean must be at least 1, got 0"),
        ("mode=tokens&kv_blocks=1.5", "kv_blocks must be a whole number, got '1.5'"),
        ("mode=tokens&step=llama-3.1-8b", "step must be a known one, got 'llama-3.1-8b'"),
        ("mode=tokens&chunked=maybe", "chunked must be one of on, off"),
    ],
)
def test_a_link_that_makes_no_sense_is_refused_with_the_rule(link, message):
    with pytest.raises((TypeError, ValueError), match=message):
        State.from_link(link)


def test_controls_belong_to_one_mode_or_to_both():
    requests, tokens = (
        {name for name in CONTROLS if relevant(name, vars(DEFAULTS[mode]))} for mode in ("requests", "tokens")
    )
    assert {"max_batch_size", "max_wait_ms", "objective_ms", "priorities", "padding"} <= requests - tokens
    assert {"max_num_seqs", "kv_blocks", "prompt_mean", "ttft_objective_ms", "step"} <= tokens - requests
    assert {"mode", "rate_per_s", "servers", "queue_limit", "noise_cv", "seed"} <= requests & tokens


def test_a_control_of_tokens_matters_to_the_kinds_that_use_it():
    def seen(**changes):
        return {name for name in CONTROLS if relevant(name, vars(FIRST.replace(**changes)))}

    assert seen() - seen(outputs="geometric") == {"output_cv", "output_most"}
    assert seen(step="own") - seen() == {
        "fixed_ms", "weights_ms", "per_token_ms", "per_read_ms", "per_pair_ms",
    }  # fmt: skip
    assert seen(reserve="life") - seen() == {"limit"}
    of_continuous = {
        "max_num_seqs", "max_num_batched_tokens", "kv_blocks", "first", "chunked", "reserve", "block_size",
        "watermark_blocks", "long_prefill_token_threshold", "token_map",
    }  # fmt: skip
    for rule, own in {
        "whole": {"max_batch_size"},
        "size_or_wait": {"max_batch_size", "max_wait_ms"},
        "at_least": {"max_batch_size", "min_batch_size"},
    }.items():
        assert seen(batching=rule, reserve="life") ^ seen() == of_continuous | own


def test_each_rule_of_the_issue_is_one_of_the_list_and_comes_back_as_itself():
    rules = [bs.Continuous(9), bs.SizeOrWait(9, 250), bs.SizeOrWait(9, float("inf")), bs.AtLeast(4, 9)]
    kinds = [State.of(dataclasses.replace(WITH_ALL, rule=rule)).batching for rule in rules]
    assert kinds == ["continuous", "size_or_wait", "whole", "at_least"]
    link = "mode=tokens&batching=size_or_wait&max_batch_size=9&max_wait_ms=250"
    assert State.from_link(link).scenario().rule == rules[1]
    assert "rule=bs.SizeOrWait(max_batch_size=9, max_wait_ms=250)," in State.from_link(link).python(10)
