"""The longest request that a server takes: a scenario with longer ones is refused before any run."""

import numpy as np
import pytest
from shell import refused

import batchsim as bs
from batchsim import servers

STEP = bs.StepTime(2, 8, 0.1)
COMMANDS = {
    "vllm serve m --max-model-len 4096": "vllm",
    "sglang serve --model-path m --context-length 4096": "sglang",
    "text-generation-launcher --model-id m --max-total-tokens 4096": "tgi",
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_takes_no_such_lengths_is_refused_before_any_run(command):
    config = servers.parse(command)
    assert (config.server, config.rule.max_model_len, config.unused) == (COMMANDS[command], 4096, {})
    tail = bs.Tokens(bs.Lognormal(800, 1.2), bs.Geometric(200))
    message = (
        "max_model_len, 4,096 tokens, .* got up to .*: at_most=3277 of the prompt and at_most=819 of the"
    )
    with pytest.raises(ValueError, match=message):
        config.scenario(bs.Poisson(1), STEP, tail)
    fits = bs.Tokens(bs.Lognormal(800, 1.2, at_most=3277), bs.Geometric(200, at_most=819))
    scenario = config.scenario(bs.Poisson(1), STEP, fits)
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
    assert "4096" in servers.write(config.server, config)


def test_tensorrt_llm_has_it_too():
    assert servers.tensorrt_llm(max_seq_len=99).max_model_len == 99


@pytest.mark.parametrize(
    ("tokens", "would"),
    [
        (bs.Tokens(90, bs.Geometric(20)), "at_most=10 of the output would do"),
        (bs.Tokens(bs.Lognormal(20, 1, at_most=60), bs.Geometric(20)), "at_most=40 of the output would do"),
        (bs.Tokens(bs.Lognormal(20, 1), 10, limit=30), "at_most=70 of the prompt would do"),
        (bs.Tokens(90, 11), "got up to 101: max_model_len=101 would do"),
        (bs.Tokens([50, 90], [50, 11]), "max_model_len=101 would do"),
        (bs.Tokens(bs.Uniform(1, 90), bs.Uniform(1, 20)), "max_model_len=110 would do"),
    ],
)
def test_the_error_names_lengths_that_would_do(tokens, would):
    with pytest.raises(ValueError, match=would):
        bs.Scenario(bs.Poisson(1), bs.Continuous(max_model_len=100), STEP, tokens=tokens)


def test_pairs_that_fit_are_taken_even_if_the_longest_of_each_would_not():
    tokens = bs.Tokens([90, 10], [10, 90])
    scenario = bs.Scenario(bs.Trace([0.0, 1.0]), bs.Continuous(max_model_len=100), STEP, tokens=tokens)
    plain = bs.simulate(scenario.replace(max_model_len=None))
    np.testing.assert_array_equal(bs.simulate(scenario).finish_s, plain.finish_s)


def test_no_draw_is_longer_than_the_longest_length():
    for lengths, longest in ((bs.Uniform(3, 9), 9), (bs.Geometric(20, at_most=50), 50), (bs.Geometric(1), 1)):
        assert lengths.longest == longest
        assert lengths.quantile(np.linspace(0, 1, 1000, endpoint=False)).max() <= longest
    assert repr(bs.Geometric(20)) == "Geometric(mean=20)"
    assert repr(bs.Geometric(20, at_most=50)) == "Geometric(mean=20, at_most=50)"


def test_the_shell_says_it_in_a_line():
    base = [
        "--rate-per-s",
        9,
        "--fixed-ms",
        5,
        "--weights-ms",
        8,
        "--prompt-tokens",
        90,
        "--max-model-len",
        100,
    ]
    assert "at_most=10 of the output" in refused("simulate", *base, "--output-tokens", "Geometric(20)")
