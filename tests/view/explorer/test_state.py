"""The explorer's state: a scenario, a link and Python that mean the same."""

import dataclasses
import math
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refusals

import batchsim as bs
from batchsim.scenario.lengths import Listed
from batchsim.view.explorer.kinds import KINDS, relevant
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.state import DEFAULT, DEFAULTS, State

TOKENS = DEFAULTS["tokens"]
# What is typed as text, in a few forms.
TYPED = {
    "sizes": [(8,), (2, 8), (16, 32)], "levels": [((1, 0.2), (2, 0.8))], "watts": [((0, 60.0), (8, 300.5))],
    "points": [((1, 2.1), (8, 1 / 3), (64, 7.0))], "text": ["pixels", "a curve, of 1.0"],
    "rows": [((0, 64, 4096), (1, 2.5, 5.0), (64, 8.0, 1 / 3))],
}  # fmt: skip


def values_of(name, kind):
    """Return values that a control takes: what its bounds allow, within some powers of ten."""
    control = CONTROLS[name]
    if control.type == "choice":
        options = kind.options.get(name, control.bounds["options"])
        return st.sampled_from([each for each in options if each != "given"])
    if control.type in TYPED:
        return st.sampled_from(TYPED[control.type])
    above, most = control.bounds.get("above"), min(control.bounds.get("at_most", 1e5), 1e5)
    if control.type == "whole":
        found = st.integers(control.bounds.get("at_least", 1), int(most))
    elif above is None:
        found = st.floats(control.bounds["at_least"], most)
    else:
        found = st.floats(max(above, 1e-12), most, exclude_min=True)
    return found | st.none() if control.when_empty else found


@st.composite
def states(draw):
    """States of both kinds with a few controls moved."""
    kind = KINDS[draw(st.sampled_from([*KINDS]))]
    names = draw(st.sets(st.sampled_from([name for name in kind.controls if name != "server"]), max_size=6))
    return DEFAULTS[kind.name].replace(**{name: draw(values_of(name, kind)) for name in sorted(names)})


WITH_ALL = bs.Scenario(
    bs.Gamma(3, 2),
    bs.Continuous(40, 512, first="prefill", reserve="life", kv_blocks=900, watermark_blocks=2),
    bs.StepTime(6, 9, 0.1, 2e-4, 1e-6).with_noise(0.2),
    servers=2, timeout_ms=9000,
    tokens=bs.Tokens(prompt=bs.Uniform(20, 601), output=90, limit=100),
)  # fmt: skip


def makes_sense(state):
    try:
        state.scenario()
    except ValueError:
        return False
    return True


@given(states())
def test_a_link_restores_the_state_to_the_last_bit(state):
    assert State.from_link(state.to_link()) == state


@given(states())
def test_a_link_has_only_what_differs_and_is_one_line_without_spaces(state):
    link, first = state.to_link(), DEFAULTS[state.mode]
    assert not re.search(r"\s", link)
    named = {pair.split("=")[0] for pair in link.split("&") if pair}
    mode = set() if first is DEFAULT else {"mode"}
    assert named == mode | {name for name in CONTROLS if getattr(state, name) != getattr(first, name)}


@pytest.mark.parametrize("name", ["llama-3.0", "1.0", "none", ".0"])
def test_a_link_keeps_text_that_looks_like_a_number(name):
    assert State.from_link(State(curve_of=name).to_link()).curve_of == name


@pytest.mark.parametrize(
    ("link", "rule"),
    [
        ("rule=size_or_wait&max_wait_ms=5", bs.SizeOrWait(32, 5)),
        ("rule=full_only&max_batch_size=8", bs.SizeOrWait(8, math.inf)),
        ("rule=at_least&min_batch_size=4", bs.AtLeast(4, 32)),
        ("rule=preferred_sizes&preferred=4,8&max_batch_size=8", bs.PreferredSizes([4, 8], 8, 10)),
        ("max_wait_ms=inf", bs.SizeOrWait(32, math.inf)),
    ],
)
def test_a_link_names_a_rule_and_its_parameters(link, rule):
    assert State.from_link(link).scenario().rule == rule


def test_the_state_of_the_start_has_an_empty_link():
    assert DEFAULT.to_link() == ""
    assert State.from_link("") == DEFAULT


def test_a_link_may_be_a_whole_address():
    assert State.from_link(" http://127.0.0.1:8866/?servers=2&max_wait_ms=5 ") == State(
        servers=2, max_wait_ms=5
    )


@settings(max_examples=70)
@given(states().filter(makes_sense))
@example(State(size_unit="pixels"))  # without sizes
@example(State(noise_cv=1, noise_batches=7))  # without a correlation
def test_its_scenario_and_its_python_are_the_same(state):
    scenario, names = state.scenario(), {}
    exec(state.python(requests=50).partition("result =")[0], names)
    assert names["scenario"] == scenario
    assert State.of(scenario).scenario() == scenario
    assert State.of(scenario).needs == []


@pytest.mark.filterwarnings("ignore:requests must cover whole periods")  # 50 are a part of a day
@settings(max_examples=8)  # that the scenario is the same is tried above
@given(states().filter(makes_sense) | st.just(TOKENS.replace(servers=2, reserve="life")))
def test_its_python_runs_and_gives_the_same_result(state):
    names = {}
    exec(state.python(requests=50).replace("print(result)", ""), names)
    assert names["result"].percentile(99) == pytest.approx(
        bs.simulate(state.scenario(), 50, state.seed).percentile(99), nan_ok=True, rel=0
    )


@refusals
def test_a_link_that_makes_no_sense_is_refused_with_the_rule():
    """
    State.from_link("rate_per_s=fast") -> rate_per_s must be a number, got 'fast'
    State.from_link("rate_per_s=0") -> rate_per_s must be greater than 0, got 0
    State.from_link("rate_per_s=nan") -> rate_per_s must be a number, got nan
    State.from_link("rate_per_s=1_000") -> rate_per_s must be a number, got '1_000'
    State.from_link("max_batch_size=0") -> max_batch_size must be at least 1, got 0
    State.from_link("max_batch_size=2.5") -> max_batch_size must be a whole number, got '2.5'
    State.from_link("max_wait_ms=-1") -> max_wait_ms must be at least 0, got -1
    State.from_link("objective_ms=inf") -> objective_ms must be finite, got inf
    State.from_link("max_wait=3") -> a link must name the explorer's controls, got 'max_wait'; did you mean
    State.from_link("workload=poison") -> workload must be one of poisson, constant, gamma, onoff,
    State.from_link("published=nnunet/t4") -> published must be a known one, got 'nnunet/t4'; did you mean
    State.from_link("curve=1:2,8") -> a curve must be like 1:2.1,8:3.3 (batch size:ms), got '8'
    State.from_link("size_table=0:64.0,1:2.1") -> size_table must be a whole number, got '64.0'
    State.from_link("padding=4,2") -> padding must increase, got [4, 2]
    State.from_link("hello") -> a link must be like rate_per_s=900&servers=2, got 'hello'
    State.from_link("seed=-1") -> seed must be at least 0, got -1
    State.from_link("mode=token") -> mode must be one of requests, tokens, got 'token'; did you mean 'tokens'
    State.from_link("mode=tokens&max_num_seqs=0") -> max_num_seqs must be at least 1, got 0
    State.from_link("mode=tokens&prompt_mean=0") -> prompt_mean must be at least 1, got 0
    State.from_link("mode=tokens&kv_blocks=1.5") -> kv_blocks must be a whole number, got '1.5'
    State.from_link("mode=tokens&step=llama-3.1-8b") -> step must be a known one, got 'llama-3.1-8b'
    State.from_link("mode=tokens&chunked=maybe") -> chunked must be one of on, off
    State.from_link("servers=1&servers=2") -> a link must set each control once, got servers twice
    """


@pytest.mark.parametrize(
    "name", ["rate_per_s", "max_batch_size", "curve", "workload", "padding", "size_table"]
)
def test_a_refusal_of_a_long_link_is_short(name):
    with pytest.raises(ValueError, match="must") as error:
        State.from_link(f"{name}={'x' * 10**5}")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("name", ["curve", "priorities"])
def test_a_refusal_of_a_long_list_is_short(name):
    with pytest.raises(ValueError, match="must differ") as error:
        State.from_link(f"{name}={','.join(['8:0.5'] * 1000)}")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("name", ["queue_limit", "timeout_ms", "objective_ms"])
def test_an_empty_field_means_no_limit(name):
    assert CONTROLS[name].read(name, "") is None


def test_given_traffic_is_slid_to_the_rate():
    traffic = bs.Trace([0.0, 0.1, 0.3])
    state = State.of(State().scenario().replace(workload=traffic)).replace(rate_per_s=50)
    assert state.scenario().workload == traffic.with_rate(50)
    with pytest.raises(ValueError, match="must come with traffic"):
        State(workload="given").scenario()


def test_full_batches_only_is_an_infinite_wait():
    assert State(rule="full_only").scenario().rule == bs.SizeOrWait(32, math.inf)


def test_a_cold_start_is_of_the_service_time_and_warm_is_none():
    scenario = State(compile_ms=800, padding=(8, 64)).scenario()
    assert scenario.service.compile_ms == ((1, 800),)
    assert State.of(scenario).differences(State()) == {"compile_ms": 800, "padding": (8, 64)}
    assert State().scenario().service.compile_ms is None
    assert State.of(State().scenario().replace(compile_ms=0)).compile_ms == 0


def test_sharing_slows_all_servers_evenly():
    assert State(servers=3, sharing=0.5).scenario().slowdown == {1: 1.0, 2: 1.5, 3: 2.0}


def test_devices_take_the_place_of_the_slowdown_and_are_at_most_the_servers():
    state = State(servers=3, devices=2, host_ms=1.5, contention=1.2, sharing=0.5)
    scenario = state.scenario()
    assert (scenario.devices, scenario.host_ms, scenario.contention) == (2, 1.5, 1.2)
    assert scenario.slowdown is None
    assert state.replace(servers=1).scenario().devices == 1
    alone = state.replace(devices=None).scenario()
    assert (alone.devices, alone.host_ms, alone.slowdown[2]) == (None, 0, 1.5)
    link = "servers=3&devices=2&host_ms=1.5&contention=1.2&sharing=0.5"
    assert state.to_link() == link


@pytest.mark.parametrize(("name", "usual"), [("host_ms", 0), ("contention", 1)])
def test_a_host_part_and_a_contention_without_shared_devices_are_shown_and_stay(name, usual):
    scenario = State(servers=3).scenario().replace({name: 1.5})
    state = State.of(scenario)
    assert (state.devices, state.given, state.scenario()) == (None, {}, scenario)
    assert State.from_link(state.to_link()).scenario() == scenario
    assert relevant(name, vars(state))
    assert not relevant(name, vars(state.replace(**{name: usual})))


def test_a_slowdown_stays_though_the_scenario_names_a_contention_of_devices():
    scenario = State(servers=2, sharing=0.4).scenario().replace(contention=1.3)  # which has no effect
    assert State.of(scenario).scenario().slowdown == {1: 1, 2: 1.4}


def test_a_state_names_the_parameter_and_cannot_be_changed():
    with pytest.raises(ValueError, match="max_batch_size must be at least 1, got 0"):
        State(max_batch_size=0)
    with pytest.raises(TypeError, match="max_batch"):
        State(max_batch=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        State().servers = 2


def test_the_batch_sizes_of_a_rule_are_fitted_to_the_largest():
    assert State(rule="preferred_sizes", preferred=[4, 8, 32], max_batch_size=16).fitted().preferred == (4, 8)
    assert State(rule="preferred_sizes", preferred=[8, 32], max_batch_size=6).fitted().preferred == (6,)
    assert State(rule="at_least", min_batch_size=8, max_batch_size=6).fitted().min_batch_size == 6
    assert State(rule="size_or_wait", min_batch_size=8, max_batch_size=6).fitted().min_batch_size == 8


# Token generation.


def test_a_link_of_the_mode_alone_is_where_it_begins():
    assert State.from_link("mode=tokens") == TOKENS
    assert TOKENS.to_link() == "mode=tokens"
    assert 0.5 < TOKENS.scenario().load < 0.9


def test_its_python_names_a_published_step_and_says_what_differs_from_the_defaults():
    code = TOKENS.replace(noise_cv=0.5, max_num_seqs=64).python(100)
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
    assert state.scenario() == scenario
    assert "prompt=tokens.prompt" in state.python(10)
    with pytest.raises(ValueError, match="must come with its scenario"):
        state.replace(given={}).scenario()
    one = dataclasses.replace(tokens, output=7)
    assert isinstance(State.of(dataclasses.replace(scenario, tokens=one)).scenario().tokens.prompt, Listed)


def test_controls_belong_to_one_mode_or_to_both():
    requests, tokens = (
        {name for name in CONTROLS if relevant(name, vars(DEFAULTS[mode]))} for mode in ("requests", "tokens")
    )
    assert {"max_batch_size", "max_wait_ms", "objective_ms", "priorities", "padding"} <= requests - tokens
    assert {"max_num_seqs", "kv_blocks", "prompt_mean", "ttft_objective_ms", "step"} <= tokens - requests
    assert {"mode", "rate_per_s", "servers", "queue_limit", "noise_cv", "seed"} <= requests & tokens


def test_a_control_of_tokens_matters_to_the_options_that_use_it():
    def seen(**changes):
        return {name for name in CONTROLS if relevant(name, vars(TOKENS.replace(**changes)))}

    assert seen() - seen(outputs="geometric") == {"output_cv"}
    assert seen(step="own") - seen() == {
        "fixed_ms", "weights_ms", "per_token_ms", "per_read_ms", "per_pair_ms",
    }  # fmt: skip
    assert seen(reserve="life") - seen() == {"limit"}
    of_continuous = {
        "max_num_seqs", "max_num_batched_tokens", "kv_blocks", "first", "chunked", "reserve", "block_size",
        "watermark_blocks", "long_prefill_token_threshold", "max_model_len", "token_map",
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
