"""Token generation: its lengths, what its scenario must have, and the longest request of a server."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import pattern, refusals, rows
from shell import refused

import batchsim as bs
from batchsim import servers
from batchsim.engines.draws import Streams

STEP = bs.StepTime(2, 8, 0.1)


def lengths(tokens, requests=20_000, seed=0):
    return Streams(bs.Scenario(bs.Poisson(1), bs.Continuous(), STEP, tokens=tokens), seed).lengths()(requests)


@pytest.mark.parametrize(
    ("kind", "mean", "deviation"),
    [
        (bs.Lognormal(300, 0.8), 300, 240),
        (bs.Geometric(200), 200, math.sqrt(200 * 199)),
        (bs.Uniform(20, 600), 310, 580 / math.sqrt(12)),
    ],
)
def test_lengths_have_the_mean_and_the_spread_that_were_asked_for(kind, mean, deviation):
    prompts, outputs, limits = lengths(bs.Tokens(kind, kind), 200_000)
    for drawn in (prompts, outputs):
        assert drawn.dtype == np.int64
        assert drawn.min() >= 1
        assert drawn.mean() == pytest.approx(mean, rel=0.01)
        assert drawn.std() == pytest.approx(deviation, rel=0.03)
    assert abs(np.corrcoef(prompts, outputs)[0, 1]) < 0.01
    assert np.array_equal(limits, outputs)


@pytest.mark.parametrize("kind", [bs.Lognormal(50, 1.5), bs.Geometric(50)], ids=repr)
@given(st.integers(0, 99), st.floats(1, 10))
def test_a_longer_mean_makes_no_request_shorter(kind, seed, factor):
    longer = type(kind)(**{**vars(kind), "mean": 50 * factor})
    (short, _, _), (long, _, _) = (lengths(bs.Tokens(each, 1), 50, seed) for each in (kind, longer))
    assert (short <= long).all()


def test_a_shorter_run_is_a_prefix_and_other_traffic_the_same_lengths():
    tokens = bs.Tokens(bs.Lognormal(300, 1), bs.Geometric(100))
    for short, long in zip(lengths(tokens, 10), lengths(tokens, 1000), strict=True):
        assert np.array_equal(short, long[:10])
    other = bs.Tokens(bs.Uniform(5, 9), bs.Geometric(100))
    assert np.array_equal(lengths(tokens)[1], lengths(other)[1])


def test_tokens_leave_the_arrivals_as_they_are():
    plain = bs.Scenario(bs.Poisson(9), bs.SizeOrWait(4, 10), bs.Affine(5, 1))
    with_tokens = plain.replace(service=STEP, tokens=bs.Tokens(10, 10))
    runs = [bs.simulate(scenario, 50, seed=3) for scenario in (plain, with_tokens)]
    assert np.array_equal(runs[0].arrival_s, runs[1].arrival_s)


def test_a_sample_is_taken_in_order_and_again_only_if_asked():
    pairs = [(7, 3), (9, 1), (5, 2)]
    assert [each.tolist() for each in lengths(bs.Tokens.sample(pairs), 2)[:2]] == [[7, 9], [3, 1]]
    assert lengths(bs.Tokens.sample(pairs, again=True), 5)[0].tolist() == [7, 9, 5, 7, 9]
    with pytest.raises(ValueError, match=r"a length for each of 4 requests, got 3"):
        lengths(bs.Tokens.sample(pairs), 4)
    scenario = bs.Scenario(bs.Poisson(1), bs.Continuous(), STEP, tokens=bs.Tokens.sample(pairs))
    assert len(bs.simulate(scenario).ttft_ms) == 3


def test_lengths_come_from_a_file(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,91,16\n1,2,1\n")
    assert bs.Tokens.from_csv(path) == bs.Tokens.sample([(91, 16), (2, 1)])
    with pytest.raises(ValueError, match=r"a column 'Context', .*; did you mean 'ContextTokens'"):
        bs.Tokens.from_csv(path, prompt="Context")


@pytest.mark.parametrize("piece", [512, 16, 64])
def test_the_tokens_of_a_hash_id_are_found_by_the_lengths_of_prompts(tmp_path, piece):
    path = tmp_path / "trace.jsonl"

    def write(wrong):
        lengths = np.random.default_rng(1).integers(600, 9000, 300)
        rows = [
            {"input_length": int(length), "output_length": 3, "hash_ids": [*range(-(-length // piece))]}
            for length in lengths
        ]
        for row in rows[5 : 5 + wrong]:
            row["hash_ids"] = [1]
        path.write_text("\n".join(map(json.dumps, rows)))

    write(0)
    assert bs.Tokens.from_jsonl(path).prefixes.piece_tokens == piece
    with pytest.warns(UserWarning, match=r"one for each 32 tokens of a prompt, got .* 300 of 300 prompts so"):
        assert bs.Tokens.from_jsonl(path, piece=32).prefixes.piece_tokens == 32
    write(2)
    with pytest.warns(
        UserWarning, match=rf"each {piece} tokens .* got 1 for .* at index 5, and 2 of 300 prompts"
    ):
        assert bs.Tokens.from_jsonl(path).prefixes.piece_tokens == piece
    write(9)
    with pytest.raises(
        ValueError, match=r"trace.jsonl: hash ids .* or piece be given, got 1 .* index 5, and 9 of"
    ):
        bs.Tokens.from_jsonl(path)


@refusals
def test_lengths_that_make_no_sense_are_refused():
    """
    bs.Tokens(0, 1) -> prompt must be at least 1, got 0
    bs.Tokens(1, math.nan) -> TypeError: output must be a whole number, got nan
    bs.Tokens(1, 2.5) -> TypeError: output must be a whole number, got 2.5
    bs.Tokens(1, 10_000_001) -> output must be at most 10,000,000
    bs.Tokens([1, 0], 1) -> got 0 at index 1
    bs.Tokens([], 1) -> list of whole numbers
    bs.Tokens.sample([(1, 2), (3,)]) -> index 1
    bs.Tokens.sample([(1, 2), (3, math.nan)]) -> TypeError: outputs at index 1
    bs.Tokens.sample([]) -> pairs must not be empty
    bs.Lognormal(0.5, 1) -> mean must be at least 1, got 0.5
    bs.Lognormal(5, math.nan) -> cv must be a number, got nan
    bs.Geometric(math.inf) -> mean must be
    bs.Uniform(5, 4) -> low must be at most high, 4, got 5
    lengths(bs.Tokens([5, 5], [10, 12], limit=10), 2) -> got limit 10 and 12 tokens of request 1
    """


# What a scenario of token generation must have, and what its engines carry.


REAL = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
TOKENS = bs.Tokens(300, 100)
SATURATED = bs.Scenario(bs.ClosedLoop(33), bs.Continuous(32, 331, chunked=False), REAL, tokens=TOKENS)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((bs.SizeOrWait(), REAL, None), "a StepTime needs tokens"),
        ((bs.Continuous(), bs.Affine(1, 1), None), "a Continuous needs tokens"),
        ((bs.Continuous(), bs.Affine(1, 1), TOKENS), "tokens need a StepTime"),
        ((bs.PreferredSizes([2], 4, 5), REAL, TOKENS), "tokens need Continuous, SizeOrWait or AtLeast"),
    ],
)
def test_a_missing_part_is_named(parts, words):
    rule, service, tokens = parts
    with pytest.raises(ValueError, match=words):
        bs.Scenario(bs.Poisson(1), rule, service, tokens=tokens)


def test_tokens_refuse_what_they_do_not_cover():
    with pytest.raises(TypeError, match="tokens must be a Tokens"):
        SATURATED.replace(tokens=5)
    with pytest.raises(ValueError, match="do not cover slowdown"):
        SATURATED.replace(slowdown={1: 2.0})
    with pytest.raises(ValueError, match="do not cover devices"):
        SATURATED.replace(devices=1)
    with pytest.raises(ValueError, match="model_fn cannot be used with tokens"):
        bs.simulate(SATURATED, model_fn=lambda x: x, inputs=[1])


NEVER = rows("""
bs.Continuous(kv_blocks=4, block_size=8), ([5, 20], [5, 14])
    -> 4 blocks ... 33 tokens, 5 blocks, of request 1
bs.Continuous(kv_blocks=5, watermark_blocks=1, block_size=8), ([5, 20], [5, 14]) -> 4 blocks ... request 1
bs.Continuous(kv_blocks=5, block_size=8, reserve="life"), (20, 14, 40)
    -> 59 tokens, 8 blocks, of request 0
bs.Continuous(max_num_batched_tokens=10, chunked=False), ([5, 20], 5) -> 10, got 20 tokens of request 1
bs.Continuous(max_num_batched_tokens=22, chunked=False, kv_blocks=40, block_size=1), (20, 5) -> 24 tokens
""")  # the last could be preempted late, and would have so many to compute at once


@pytest.mark.parametrize(("setting", "words"), NEVER)
@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_request_that_can_never_run_is_refused_with_its_index_and_both_numbers(setting, words, engine):
    rule, lengths = eval(setting)
    scenario = bs.Scenario(bs.Poisson(1), rule, bs.StepTime(1, 1, 1), tokens=bs.Tokens(*lengths))
    with pytest.raises(ValueError, match=pattern(words)):
        bs.simulate(scenario, 2, engine=engine)


def test_one_that_just_fits_runs():
    rule = bs.Continuous(max_num_batched_tokens=24, chunked=False, kv_blocks=24, block_size=1)
    scenario = bs.Scenario(bs.Trace([0, 0, 0]), rule, bs.StepTime(1, 1, 1), tokens=bs.Tokens(20, 5))
    assert (bs.simulate(scenario).status == bs.Status.SERVED).all()


@pytest.mark.parametrize("first", ["decode", "prefill"])
def test_the_saturation_rate_of_fixed_lengths_is_what_a_full_engine_carries(first):
    # Clients that answer at once fill the seats, staggered: one prompt comes every so many steps.
    scenario = SATURATED.replace(first=first)
    if first == "decode":
        assert 32 / scenario.saturation_per_s == pytest.approx(2.60279276, rel=1e-9)
    lengths = bs.Tokens.sample([(300, 3 * i + 4) for i in range(32)] + [(300, 100)] * 3200)
    result = bs.simulate(scenario.replace(workload=bs.Trace([0.0] * 3232), tokens=lengths))
    finish_s = result.finish_s[32:-64]
    rate_per_s = 32 * 90 / (finish_s[-65] - finish_s[-65 - 32 * 90])
    # A step's end is rounded to a nanosecond, of some 26 ms.
    assert rate_per_s == pytest.approx(scenario.saturation_per_s, rel=2e-8)


@pytest.mark.parametrize("ragged", [False, True])
def test_the_saturation_rate_of_whole_batches_is_what_they_carry(ragged):
    service = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6, ragged=ragged)
    tokens = bs.Tokens(bs.Lognormal(300, 0.5), bs.Geometric(100))
    scenario = bs.Scenario(bs.Trace([0.0] * 8000), bs.SizeOrWait(8, 0), service, tokens=tokens)
    result = bs.simulate(scenario)
    assert result.throughput_per_s == pytest.approx(scenario.saturation_per_s, rel=0.03)


def test_overload_runs_and_says_by_how_much_the_queue_grows():
    scenario = SATURATED.replace(workload=bs.Poisson(20))
    assert not scenario.stable
    assert scenario.load > 1
    text = repr(bs.simulate(scenario, 200))
    grows = (20 - scenario.saturation_per_s) * 399
    assert f"{grows:,.0f} tokens/s" in text
    assert "UNSTABLE" not in repr(bs.simulate(scenario.replace(rate_per_s=5), 200))


def test_every_knob_is_found_by_its_name():
    scenario = SATURATED.replace(tokens=bs.Tokens(bs.Lognormal(300, 1), bs.Geometric(9)), kv_blocks=4000)
    changed = scenario.replace(
        {"prompt.mean": 200, "reserve": "life", "chunked": True, "per_token_ms": 0.2, "prompt.at_most": 5000}
    )
    assert changed.tokens.prompt == bs.Lognormal(200, 1, 5000)
    assert (changed.rule.reserve, changed.service.per_token_ms) == ("life", 0.2)
    with pytest.raises(ValueError, match="'mean' is ambiguous"):
        scenario.replace(mean=5)
    frame = bs.sweep(changed, {"max_num_seqs": [1, 8]}, requests=50, progress=False)
    assert frame.mean_latency_ms[1] < frame.mean_latency_ms[0]


# The longest request that a server takes: a scenario with longer ones is refused before any run.


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
