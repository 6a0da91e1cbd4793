import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from refusals import refusals

import batchsim as bs
from batchsim.engines.compiled import jit
from batchsim.measured import published
from batchsim.scenario.data_sheets import CARDS, Card, LanguageModel
from batchsim.scenario.step_time import StepCost, step_ms

REAL = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)


def cases(count=20_000):
    generator = np.random.default_rng(0)
    ladder = bs.StepTime(1, 1, 1, captured=range(8, 97, 8)).whole_cost()
    costs = (ladder._replace(**dict(zip(StepCost._fields, row, strict=True)), beyond_ms=row[0] * 9)
             for row in generator.random((count, 5)).tolist())  # fmt: skip
    numbers = generator.integers(0, [3000, 10**6, 10**9, 100], (count, 4)).tolist()
    return list(zip(costs, numbers, strict=True))


def fused(cost, tokens, reads, pairs, _):
    """The same with fused multiply-adds: rounded once for a product and its sum."""
    value = cost.fixed_ms + max(cost.weights_ms, cost.per_token_ms * tokens)
    for price, count in ((cost.per_read_ms, reads), (cost.per_pair_ms, pairs)):
        value = float(Fraction(price) * count + Fraction(value))
    return value


def test_numba_evaluates_a_step_as_python_does_and_fuses_nothing():
    loop = jit.compiled_uncached(step_ms)
    differ = 0
    for cost, (tokens, *numbers) in cases():
        captured = cost._replace(captures_prompts=bool(tokens % 3))
        for count in (tokens, numbers[2]):  # with prompts, and of decodes alone
            assert loop(captured, count, *numbers) == step_ms(captured, count, *numbers)
        cost, numbers = cost._replace(most_captured=0, beyond_ms=0.0), [tokens, *numbers]
        assert loop(cost, *numbers) == step_ms(cost, *numbers)
        differ += fused(cost, *numbers) != step_ms(cost, *numbers)
        drafting = captured._replace(draft=numbers[3] % 9, draft_ms=cost.fixed_ms, share=cost.weights_ms)
        assert loop(drafting, *numbers) == step_ms(drafting, *numbers)
    assert differ > 1000  # so that a fused one would show


def test_speculation_shares_a_step_among_its_tokens_and_leaves_prompts_as_they_are():
    step = bs.StepTime(2, 8, 0.1, 0.001, 0.00001)
    fast = step.speculative(draft=4, acceptance=0.5, draft_ms=3)
    made = 1 + 0.5 + 0.25 + 0.125 + 0.0625
    assert fast.tokens_a_step == pytest.approx(made)
    assert step.speculative(3, 1, 0).tokens_a_step == 4
    assert fast.ms(10, reads=1000, decodes=10) == pytest.approx((2 + 3 + 8 + 1) / made)
    assert fast.ms(100, reads=1000, decodes=100) == pytest.approx((2 + 3 + 50 + 1) / made)
    assert fast.ms(500, pairs=125_250) == step.ms(500, pairs=125_250)  # a prompt alone
    # A prompt of 490 tokens beside 10 decodes adds (490 + 50) * 0.1 - 8 to their weights.
    assert fast.ms(500, 1000, 125_250, 10) - fast.ms(10, 1000, 0, 10) == pytest.approx(46 + 1.2525)
    assert fast.scaled(2, 1).ms(10, 1000, 0, 10) == pytest.approx(2 * fast.ms(10, 1000, 0, 10))
    assert eval(repr(fast), {"StepTime": bs.StepTime}) == fast
    with pytest.raises(ValueError, match=r"acceptance must be at most 1, got 1.5"):
        step.speculative(4, 1.5, 0)
    with pytest.raises(ValueError, match="draft must be at least 1, got 0"):
        step.speculative(0, 0.5, 0)


def test_speculation_gains_with_few_requests_and_loses_at_saturation():
    # About the H100 of KubeCon's load test: EAGLE saturated at 73/s, and the same server without it at 106/s.
    # What it drafted and how much was accepted is not known; these numbers are chosen.
    step = bs.StepTime(2, 5, 0.024)
    tokens, rule = bs.Tokens(300, 66), bs.Continuous(128, 8192, chunked=False)
    plain = bs.Scenario(bs.Poisson(0.5), rule, step, tokens=tokens)
    fast = bs.Scenario(bs.Poisson(0.5), rule, step.speculative(4, 0.35, 3), tokens=tokens)
    tpot_ms = [bs.simulate(each, 200).summary()["mean_tpot_ms"] for each in (plain, fast)]
    assert tpot_ms[1] < tpot_ms[0]
    assert fast.saturation_per_s / plain.saturation_per_s == pytest.approx(73 / 106, rel=0.1)
    with pytest.raises(ValueError, match="must be without speculation"):
        bs.theory.request_alone(fast.service, tokens)


def test_real_speculation_takes_as_long_as_its_mean():
    """Requests that generate alone, token by token accepted or not, against the mean step by step."""
    step, draft, acceptance, generator = bs.StepTime(2, 8, 0.1), 4, 0.7, np.random.default_rng(1)
    fast = step.speculative(draft, acceptance, 1.5)
    for seats in (1, 64):
        output, left, took_ms = 4000, np.full(seats, 4000 - 1), 0.0
        while (left > 0).any():
            running = int((left > 0).sum())
            accepted = (generator.random((seats, draft)) < acceptance).cumprod(axis=1).sum(axis=1)
            left -= 1 + accepted
            took_ms += 2 + 1.5 + max(8, 0.1 * running * (1 + draft))
        tokens = bs.Tokens(1, output)
        at_once = bs.Scenario(bs.Trace([0.0] * seats), bs.Continuous(seats), fast, tokens=tokens)
        assert bs.simulate(at_once).latency_ms.max() == pytest.approx(took_ms, rel=0.03)


def test_a_step_takes_the_longer_of_weights_and_arithmetic():
    step = bs.StepTime(2, 8, 0.1, 0.001, 0.00001)
    assert step.ms(1) == step.ms(80) == 10
    assert step.ms(100) == 12
    assert step.ms(100, reads=10, pairs=5050) == pytest.approx(12.0605)


def test_noise_is_kept_and_written():
    assert REAL.with_noise(0.2).noise == bs.Noise(0.2)
    assert repr(REAL.with_noise(0.2)).endswith("with_noise(0.2, 'lognormal')")
    assert "ragged=True" in repr(bs.StepTime(1, 1, 1, ragged=True))


# Captured sizes.


EIGHTS = (1, 2, 4, *range(8, 257, 8))


def test_a_step_of_decodes_takes_the_time_of_the_next_captured_size():
    plain, step = bs.StepTime(2, 8, 0.1, 0.001), bs.StepTime(2, 8, 0.1, 0.001, captured=EIGHTS, beyond_ms=70)
    for size, padded in {1: 1, 3: 4, 95: 96, 96: 96, 97: 104, 100: 104, 256: 256}.items():
        assert step.ms(size, reads=500 * size, decodes=size) == plain.ms(padded, reads=500 * size)
    assert step.ms(257, decodes=257) == 70
    assert step.ms(9000, decodes=9000) == plain.ms(9000)  # it takes longer than its launches
    # With prompts, each kernel is launched.
    assert step.ms(97, reads=96, pairs=3, decodes=95) == 70
    every = dataclasses.replace(step, captured_prompts=True)
    assert every.ms(97, reads=96, pairs=3, decodes=95) == plain.ms(104, reads=96)
    assert every.ms(257, reads=96, pairs=3, decodes=95) == 70


def test_without_padding_only_the_sizes_themselves_are_captured():
    step = bs.StepTime(2, 8, 0.1, captured=(1, 2, 4, 96), captured_padding=False, beyond_ms=30)
    assert [step.ms(size, decodes=size) for size in (2, 3, 4, 95, 96)] == [
        10,
        30,
        10,
        30,
        pytest.approx(11.6),
    ]
    assert step.padded_decodes(range(6)).tolist() == [0, 1, 2, 0, 4, 0]


def test_without_captured_sizes_every_step_is_launched():
    step = bs.StepTime(2, 8, 0.1, beyond_ms=30)
    assert (step.ms(1, decodes=1), step.ms(400, pairs=80200)) == (30, 42)
    assert step.padded_decodes([0, 1, 300]).tolist() == [0, 0, 0]


def test_sizes_above_the_seats_are_not_captured():
    step = bs.StepTime(2, 8, 0.1, captured=EIGHTS, beyond_ms=70)
    assert step.padded_decodes([95, 96, 97, 100], seats=100).tolist() == [96, 96, 0, 0]
    assert step.padded_decodes([95, 96, 97, 100], seats=104).tolist() == [96, 96, 104, 104]
    by_tokens = dataclasses.replace(step, captured_prompts=True)
    assert by_tokens.padded_decodes([97], seats=100).tolist() == [104]


def test_a_speculating_step_is_captured_with_the_drafts_of_its_sequences():
    step = bs.StepTime(2, 1, 0.1, captured=(1, 8), beyond_ms=50)
    fast = step.speculative(4, 1, 0)  # a step makes 5 tokens
    assert fast.ms(3, decodes=3) == pytest.approx((2 + 0.1 * 8 * 5) / 5)
    assert fast.ms(9, decodes=9) == pytest.approx(50 / 5)
    # A prompt makes the step one without a graph: what it adds to the decodes counts in full.
    alone_ms = 2 + 0.1 * 3 * 5
    assert fast.ms(13, pairs=55, decodes=3) == pytest.approx(alone_ms / 5 + (50 - alone_ms))


def test_captured_sizes_are_kept_by_a_factor_and_in_files_and_words():
    step = bs.StepTime(2, 8, 0.1, captured=[1, 2, 4], captured_padding=False, beyond_ms=30).with_noise(0.2)
    assert eval(repr(step), {"StepTime": bs.StepTime}) == step
    assert step.scaled(2, 8).ms(3, decodes=3) == 60
    scenario = bs.Scenario(bs.Poisson(1), bs.Continuous(4), step, tokens=bs.Tokens(8, 8))
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
    assert scenario.replace(captured=(1, 4)).service.captured == (1, 4)
    assert "captured" not in scenario.replace(service=REAL).to_toml()


def test_saturation_is_that_of_captured_steps_and_formulas_refuse_them():
    step, tokens = bs.StepTime(2, 8, 0.1, captured=(1, 2, 4, 8), beyond_ms=80), bs.Tokens(2, 1000)
    eight = bs.Scenario(bs.Poisson(1), bs.Continuous(8, 8192), step, tokens=tokens)
    assert eight.saturation_per_s == pytest.approx(8 / 10, rel=0.1)
    assert eight.replace(max_num_seqs=9).saturation_per_s == pytest.approx(9 / 80, rel=0.02)
    assert eight.replace(max_num_seqs=9, rate_per_s=0.3).stable is False
    assert eight.replace(rate_per_s=0.3).stable is True
    with pytest.raises(ValueError, match="without speculation and captured sizes, got StepTime"):
        bs.theory.request_alone(step, tokens)
    assert "captured sizes" in bs.theory.expected(eight).why
    with pytest.raises(ValueError, match="without speculation and captured sizes"):
        step.errors({"tokens": [1], "reads": [1], "pairs": [0]}, [10])


# Fitted to measured steps.

RUN = bs.Scenario(
    bs.Poisson(1.5), bs.Continuous(64, 512), REAL,
    tokens=bs.Tokens(bs.Lognormal(600, 0.8, at_most=4096), bs.Geometric(150)),
)  # fmt: skip


def test_a_fit_to_the_steps_of_a_run_finds_what_made_them():
    steps = bs.simulate(RUN, 300).steps
    found = bs.StepTime.fit(steps)
    assert found.cost == pytest.approx(REAL.cost, rel=1e-3)
    assert np.abs(found.errors(steps)).max() < 1e-4


def test_a_fit_to_noisy_steps_is_as_near_as_the_noise_lets_it():
    steps = bs.simulate(RUN.replace(service=REAL.with_noise(0.05)), 300).steps
    found = bs.StepTime.fit(steps)
    ms = [REAL.ms(*row) for row in zip(steps.tokens, steps.reads, steps.pairs, strict=True)]
    assert np.abs(found.errors(steps, ms)).mean() < 0.01
    assert found.fixed_ms + found.weights_ms == pytest.approx(16.877, rel=0.01)


def test_a_fit_reads_frames_and_what_only_several_steps_were_measured_for():
    steps = bs.simulate(RUN, 100).steps
    frame = steps.to_frame().assign(ms=lambda it: 2000 * (it.finish_s - it.start_s))
    assert bs.StepTime.fit(frame).cost == pytest.approx([2 * ms for ms in REAL.cost], rel=1e-3)
    parts = [frame[row : row + 5] for row in range(0, len(frame), 5)]
    sums = [part.ms.sum() / 2 for part in parts]
    found = bs.StepTime.fit(parts, sums)
    assert np.abs(found.errors(parts, sums)).max() < 1e-3
    assert np.abs(found.errors(steps)).max() < 1e-2


def test_steps_of_one_kind_give_a_fit_of_their_time():
    decodes = {"tokens": [8] * 4, "reads": [100, 1000, 4000, 9000], "pairs": [0] * 4}
    ms = [11 + 0.002 * reads for reads in decodes["reads"]]
    found = bs.StepTime.fit(decodes, ms)
    assert np.abs(found.errors(decodes, ms)).max() < 1e-9
    assert found.per_pair_ms == 0


def test_the_error_is_relative():
    steps = {"tokens": [1, 1000], "reads": [10, 0], "pairs": [0, 500_500]}
    assert bs.StepTime(10, 0, 0.1).errors(steps, [8, 220]) == pytest.approx([10.1 / 8 - 1, -0.5])


@refusals
def test_what_are_no_measured_steps_is_refused():
    """
    bs.StepTime.fit({"tokens": [1], "reads": [1]}, [1]) -> TypeError: got dict without pairs
    bs.StepTime.fit(5, [1]) -> TypeError: got int without tokens
    bs.StepTime.fit({"tokens": [0], "reads": [1], "pairs": [0]}, [1]) -> tokens of a step must be at least 1
    bs.StepTime.fit({"tokens": [1], "reads": [1], "pairs": [0]}, [0]) -> ms must be above 0, got 0.0
    bs.StepTime.fit({"tokens": [1], "reads": [1], "pairs": [0]}, [1, 2]) -> a time for each of 1, got shape
    bs.StepTime.fit({"tokens": [1, 2], "reads": [1], "pairs": [0]}, [1]) -> columns of one length
    bs.StepTime.fit({"tokens": [], "reads": [], "pairs": []}, []) -> steps must not be empty
    bs.StepTime.fit([{"tokens": [1], "reads": [1], "pairs": [0]}], None) -> ms must be given
    """


# From data sheets.


def test_the_roofline_of_data_sheets():
    guess = bs.StepTime.roofline("llama-3.1-8b", "rtx-4090", 1.0, bandwidth_share=0.95, flops_share=0.5)
    assert guess.weights_ms == pytest.approx(16.77, rel=1e-3)  # 16.06 GB
    assert guess.per_token_ms == pytest.approx(2 * 8.03e9 / 82.5e12 * 1000)
    assert guess.per_read_ms == pytest.approx(131_072 / (0.95 * 1008e9) * 1000)
    assert guess.per_pair_ms == pytest.approx(4 * 32 * 32 * 128 / 82.5e12 * 1000)
    # What a profile of that card says of decodes: 16.97 ms + 1.405e-4 ms a key.
    assert guess.ms(1) == pytest.approx(16.97, rel=0.06)
    assert guess.per_read_ms == pytest.approx(1.405e-4, rel=0.05)


@pytest.mark.parametrize(("gpu", "tokens"), [("h100", 295), ("a100-80gb", 153)])
def test_arithmetic_takes_over_where_flops_over_bandwidth_says(gpu, tokens):
    guess = bs.StepTime.roofline("llama-2-7b", gpu, 0, bandwidth_share=1, flops_share=1)
    assert guess.weights_ms / guess.per_token_ms == pytest.approx(tokens, rel=0.01)


def prompt_ms(step, prompt):
    return step.ms(prompt, pairs=prompt * (prompt + 1) // 2)


ON_ONE_CARD = [name for name in published.step_tables() if name.split("/")[1] in CARDS | {"a100": None}]


@pytest.mark.parametrize("name", ON_ONE_CARD)
def test_the_rooflines_prompts_take_about_as_long_as_published_ones(name):
    step, (model, gpu, *_) = bs.published(name), name.split("/")
    guess = bs.StepTime.roofline(model, gpu, step.fixed_ms)
    ratios = [prompt_ms(guess, prompt) / prompt_ms(step, prompt) for prompt in (512, 1024, 2048)]
    bound = 1.1 if gpu == "rtx-4090" else 2.1
    assert 1 / bound < min(ratios) <= max(ratios) < bound


def test_every_card_with_published_steps_is_compared():
    assert {name.split("/")[1] for name in ON_ONE_CARD} == {"a100", "h100", "rtx-4090"}


def test_no_rate_of_a_card_is_that_of_sparse_products():
    dense = {"rtx-4090": 165, "l40s": 362, "a100-40gb": 312, "a100-80gb": 312, "h100": 989.5, "h200": 989.5}
    assert {card.name: card.tera_flops for card in CARDS.values()} == dense


def test_a_roofline_of_several_gpus_says_that_communication_is_missing():
    step = bs.published("llama-3-70b/4xh100/vllm")
    with pytest.warns(UserWarning, match="communication of 4 gpus is not included.*: add it to fixed_ms"):
        guess = bs.StepTime.roofline("llama-3-70b", "h100", 2, gpus=4)
    assert 1.25 < step.ms(1) / guess.ms(1) < 1.4
    assert 2.0 < prompt_ms(step, 2048) / prompt_ms(guess, 2048) < 2.3


@pytest.mark.filterwarnings("ignore:the communication")
def test_several_gpus_share_a_model():
    one, four = (bs.StepTime.roofline("llama-3.1-70b", "h100", 2, gpus=gpus) for gpus in (1, 4))
    assert four.fixed_ms == one.fixed_ms == 2
    assert [4 * ms for ms in four.cost[1:]] == pytest.approx(one.cost[1:])


def test_sheets_of_ones_own():
    model = LanguageModel("mine", layers=32, heads=32, kv_heads=8, head_size=128, parameters=8.03e9)
    card = Card("mine", memory_gib=80, gigabytes_per_s=3350, tera_flops=989.5)
    named = bs.StepTime.roofline("llama-3.1-8b", "h100", 2)
    assert bs.StepTime.roofline(model, card, 2) == named
    eight_bits = bs.StepTime.roofline(model, card, 2, weight_bytes=1, kv_bytes=1)
    assert eight_bits.weights_ms == pytest.approx(named.weights_ms / 2)
    assert eight_bits.per_read_ms == pytest.approx(named.per_read_ms / 2)


@refusals
def test_a_roofline_of_nothing_is_refused():
    """
    bs.StepTime.roofline("llama-3.1-8", "h100", 2) -> did you mean 'llama-3.1-8b'
    bs.StepTime.roofline("llama-3.1-8b", "h1000", 2) -> did you mean 'h100'
    bs.StepTime.roofline(5, "h100", 2) -> TypeError: model must be a name
    bs.StepTime.roofline("llama-3.1-8b", "h100", 2, flops_share=1.1) -> at most 1
    bs.StepTime.roofline("llama-3.1-8b", "h100", 2, gpus=0) -> gpus must be at least
    bs.StepTime.roofline("llama-3.1-8b", "h100", 2, kv_bytes=0) -> kv_bytes must
    """


def seated(seats):
    step = bs.StepTime(1, 1, 1, captured=(8, 16))
    return bs.Scenario(bs.Poisson(1), bs.Continuous(seats), step, tokens=bs.Tokens(1, 1))


@refusals
def test_a_step_time_that_makes_no_sense_is_refused():
    """
    bs.StepTime(0, 0, 0, 1, 1) -> longer than 0 ms
    bs.StepTime(-1, 0, 1) -> fixed_ms must be at least 0, got -1
    bs.StepTime(1, math.nan, 1) -> weights_ms must be a number, got nan
    bs.StepTime(1, 1, math.inf) -> per_token_ms must be
    bs.StepTime(1, 1, 1, ragged=1) -> TypeError: ragged must be True or False, got 1
    bs.StepTime(1, 1, 1, captured=[]) -> captured must not be empty, got []
    bs.StepTime(1, 1, 1, captured=[4, 2]) -> captured must increase, got [4, 2]
    bs.StepTime(1, 1, 1, captured=[0, 2]) -> a size in captured must be at least 1, got 0
    bs.StepTime(1, 1, 1, captured=[1, 10**7]) -> a size in captured must be at most
    bs.StepTime(1, 1, 1, captured="8") -> TypeError: captured must be a list of sizes, got '8'
    bs.StepTime(1, 1, 1, captured=8) -> TypeError: captured must be a list of sizes, got 8
    bs.StepTime(1, 1, 1, beyond_ms=-3) -> beyond_ms must be at least 0, got -3
    bs.StepTime(1, 1, 1, captured_padding=0) -> TypeError: captured_padding must be True or False, got 0
    seated(7) -> the smallest size in captured must be at most the number of seats, 7, got 8
    REAL.padded_to([1, 2]) -> padded sizes need a service time by batch size
    REAL(4) -> TypeError: batch_size=4
    """
