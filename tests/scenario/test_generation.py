"""What a scenario of token generation must have, and what its engines carry."""

import pytest

import batchsim as bs

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


@pytest.mark.parametrize(
    ("rule", "lengths", "words"),
    [
        (
            {"kv_blocks": 4, "block_size": 8},
            ([5, 20], [5, 14]),
            "4 blocks .* 33 tokens, 5 blocks, of request 1",
        ),
        (
            {"kv_blocks": 5, "watermark_blocks": 1, "block_size": 8},
            ([5, 20], [5, 14]),
            "4 blocks .* request 1",
        ),
        (
            {"kv_blocks": 5, "block_size": 8, "reserve": "life"},
            (20, 14, 40),
            "59 tokens, 8 blocks, of request 0",
        ),
        ({"max_num_batched_tokens": 10, "chunked": False}, ([5, 20], 5), "10, got 20 tokens of request 1"),
        # It could be preempted late, and would have so many to compute at once.
        (
            {"max_num_batched_tokens": 22, "chunked": False, "kv_blocks": 40, "block_size": 1},
            (20, 5),
            "24 tokens",
        ),
    ],
)
@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_request_that_can_never_run_is_refused_with_its_index_and_both_numbers(
    rule, lengths, words, engine
):
    rule, tokens = bs.Continuous(**rule), bs.Tokens(*lengths)
    scenario = bs.Scenario(bs.Poisson(1), rule, bs.StepTime(1, 1, 1), tokens=tokens)
    with pytest.raises(ValueError, match=words):
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
