"""Token generation: formulas against golden numbers and against the simulator."""

import math
from itertools import pairwise

import numpy as np
import pytest
from oracles.golden_tokens import EASY, REAL, SMALL
from refusals import refusals

import batchsim as bs
from batchsim import theory
from batchsim.scenario import Limited
from batchsim.scenario.rules.continuous import BatchWait, NewTokenRatio
from batchsim.theory.tokens import bounds, decodes_ms, longest_cut, prompt_ms

EASY, REAL = bs.StepTime(*EASY), bs.StepTime(*REAL)
SATURATED = bs.Scenario(
    bs.ClosedLoop(40), bs.Continuous(32, 331, chunked=False), REAL, tokens=bs.Tokens(300, 100)
)
SLOTTED = bs.Scenario(
    bs.Poisson(500), bs.Continuous(10**6, 10**6), bs.StepTime(10, 0, 0), tokens=bs.Tokens(1, bs.Geometric(40))
)


# A request alone.


@pytest.mark.parametrize(("case", "cut"), [("G1", None), ("G2", 64)])
def test_a_request_alone_takes_the_steps_of_the_golden_cases(case, cut):
    alone = theory.request_alone(EASY, bs.Tokens(100, 5), cut)
    assert alone.mean_ttft_ms == pytest.approx(SMALL[case][3][0], rel=1e-9)
    assert alone.mean_latency_ms == pytest.approx(SMALL[case][4][0], rel=1e-9)


@pytest.mark.parametrize(
    "rule",
    [
        bs.Continuous(4, 7),
        bs.Continuous(4, 1),
        bs.Continuous(8, long_prefill_token_threshold=5),
        bs.SizeOrWait(4, 3),
    ],
)
def test_one_client_is_alone_whatever_the_rule(rule):
    lengths = bs.Tokens.sample([(1, 1), (7, 3), (8, 20), (50, 2), (64, 1)])
    scenario = bs.Scenario(bs.ClosedLoop(1, think_s=0.1), rule, EASY, tokens=lengths)
    expected, result = theory.expected(scenario), bs.simulate(scenario, 5)
    assert expected.exact
    assert result.ttft_ms.mean() == pytest.approx(expected.mean_ttft_ms, rel=1e-9)
    assert np.nanmean(result.tpot_ms) == pytest.approx(expected.mean_tpot_ms, rel=1e-9)
    assert result.latency_ms.mean() == pytest.approx(expected.mean_latency_ms, rel=1e-9)
    assert expected.rate_per_s == pytest.approx(1000 / (expected.mean_latency_ms + 100))


# Every seat filled.


def test_the_golden_period_of_full_seats():
    found = theory.seats_filled(REAL, 32, prompt=300, output=100)
    assert 32000 / found.saturation_per_s == pytest.approx(2602.79276, rel=1e-9)
    assert math.isnan(found.mean_latency_ms)  # without clients it grows without end


@pytest.mark.parametrize(("clients", "seats", "prompt", "output"), [(40, 32, 300, 100), (4, 3, 5, 3)])
def test_full_seats_are_as_simulated(clients, seats, prompt, output):
    rule = bs.Continuous(seats, prompt + seats - 1, chunked=False)
    scenario = SATURATED.replace(rule=rule, clients=clients, prompt=prompt, output=output)
    found, result = theory.expected(scenario), bs.simulate(scenario, 20 * clients)
    # Whole turns from the middle of the run: neither its beginning nor its end.
    middle = slice(8 * clients, 8 * clients + 6 * seats)
    for ours, column in ((found.mean_ttft_ms, result.ttft_ms), (found.mean_tpot_ms, result.tpot_ms),
                         (found.mean_latency_ms, result.latency_ms)):  # fmt: skip
        assert column[middle].mean() == pytest.approx(ours, rel=1e-8)
    turn_s = result.finish_s[middle.stop] - result.finish_s[middle.start]
    assert 6 * seats / turn_s == pytest.approx(found.rate_per_s, rel=1e-8)
    assert {"load", "offered_per_s"}.isdisjoint(found.summary())
    assert found.summary().keys() <= result.summary().keys()


# Memory.


def test_seats_by_memory_are_those_that_a_simulation_fills():
    scenario = bs.Scenario(
        bs.Trace([0.0] * 60), bs.Continuous(reserve="life", kv_blocks=500), REAL, tokens=bs.Tokens(300, 100)
    )
    assert bs.simulate(scenario).steps.running.max() == theory.seats_by_memory(500, 300, 100) == 20
    taken_as_needed = bs.simulate(scenario.replace(reserve="step")).steps.running
    assert np.median(taken_as_needed[: taken_as_needed.size // 2]) == pytest.approx(
        theory.seats_by_memory(500, 300, 100, reserve="step"), abs=3
    )


# Steps of one length.


def test_the_slotted_queue_is_as_simulated():
    found, result = theory.expected(SLOTTED), bs.simulate(SLOTTED, 100_000, seed=2)
    running = result.steps.running[400:-400]
    assert found.mean_running == found.running_variance == pytest.approx(200, rel=1e-3)
    assert running.mean() == pytest.approx(found.mean_running, rel=0.01)
    assert running.var() == pytest.approx(found.running_variance, rel=0.15)
    assert result.ttft_ms.mean() == pytest.approx(found.mean_ttft_ms, rel=0.005)
    assert np.nanmean(result.tpot_ms) == pytest.approx(found.mean_tpot_ms)
    assert result.latency_ms.mean() == pytest.approx(found.mean_latency_ms, rel=0.005)


# Whole batches.


def test_the_useful_share_of_exponential_outputs_is_the_inverse_of_a_harmonic_number():
    shares = [theory.useful_share(bs.Geometric(5000), size) for size in (1, 2, 8, 32)]
    harmonic = [sum(1 / k for k in range(1, size + 1)) for size in (1, 2, 8, 32)]
    assert shares == pytest.approx([1 / each for each in harmonic], rel=1e-3)
    assert all(later < sooner for sooner, later in pairwise(shares))


def test_the_useful_share_is_that_of_simulated_rows():
    tokens = bs.Tokens(5, bs.Uniform(1, 60))
    scenario = bs.Scenario(bs.Trace([0.0] * 16_000), bs.SizeOrWait(16, 0), EASY, tokens=tokens)
    result = bs.simulate(scenario)
    made = result.output_tokens.sum() / result.steps.rows.sum()
    assert made == pytest.approx(theory.useful_share(bs.Uniform(1, 60), 16), rel=0.01)


@pytest.mark.parametrize(("rule", "clients"), [(bs.SizeOrWait(8, 0), 16), (bs.SizeOrWait(8, math.inf), 11),
                                               (bs.AtLeast(3, 8), 17)])  # fmt: skip
def test_full_whole_batches_are_as_simulated(rule, clients):
    scenario = SATURATED.replace(rule=rule, clients=clients)
    found, result = theory.expected(scenario), bs.simulate(scenario, 110 * clients)
    middle = slice(20 * clients, 20 * clients + 8 * clients)
    for ours, column in ((found.mean_ttft_ms, result.ttft_ms), (found.mean_tpot_ms, result.tpot_ms),
                         (found.mean_latency_ms, result.latency_ms)):  # fmt: skip
        assert column[middle].mean() == pytest.approx(ours, rel=1e-9)


# What applies.


@pytest.mark.parametrize(
    ("changes", "model", "exact"),
    [
        ({}, "every seat filled, one prompt a step", True),
        ({"clients": 1}, "one client", True),
        ({"rule": bs.SizeOrWait(8, 0)}, "full whole batches", True),
        ({"rule": bs.SizeOrWait(8, 0), "tokens": bs.Tokens(9, bs.Geometric(9))}, "full whole batches", False),
        ({"workload": bs.Poisson(0.3), "max_num_seqs": 1}, "M/D/1 of whole answers", True),
        ({"workload": bs.Poisson(0.005)}, "light load", False),
        ({"workload": bs.Poisson(5)}, "one at a time, for full seats and at light load", None),
        ({"clients": 20}, "more than the seats, got 20 clients and 32 seats", None),
        ({"chunked": True}, "each step must have one uncut prompt", None),
        ({"output": 20}, "each step must have one uncut prompt", None),
        ({"max_num_batched_tokens": 600}, "each step must have one uncut prompt", None),
        ({"kv_blocks": 799, "reserve": "life"}, "800 blocks, got 799", None),
        ({"servers": 2, "clients": 70}, "one server only, got 2", None),
        ({"think_s": 1}, "clients must not think", None),
        ({"rule": bs.SizeOrWait(32, 0)}, "fill every batch of 32, got 40 clients", None),
        ({"tokens": bs.Tokens(bs.Uniform(1, 9), 9)}, "must have fixed lengths", None),
        ({"workload": bs.Gamma(1, 2)}, "Poisson or a closed loop's, got Gamma", None),
        ({"rule": BatchWait(batch_wait_timeout_ms=1)}, "must not be held back, got BatchWait(", None),
        ({"rule": NewTokenRatio(prefill_delayer=True)}, "must not be held back, got NewTokenRatio(", None),
        ({"timeout_ms": 5}, "timeout of 5 ms", None),
        ({"workload": bs.Poisson(1), "queue_limit": 5}, "queue_limit of 5", None),
    ],
    ids=str,
)
def test_it_picks_what_applies_or_says_why_nothing_does(changes, model, exact):
    answer = theory.expected(SATURATED.replace(changes))
    if exact is None:
        assert isinstance(answer, theory.NoAnswer)
        assert model in answer.why
    else:
        assert (answer.model, answer.exact) == (model, exact)


def test_one_at_a_time_is_m_d_1_with_its_percentiles():
    scenario = SATURATED.replace(workload=bs.Poisson(2), max_num_seqs=1, output=15)
    found, result = theory.expected(scenario), bs.simulate(scenario, 20_000, seed=3)
    low, high = result.interval("mean_latency_ms")
    assert low < found.mean_latency_ms < high
    assert result.percentile(90) == pytest.approx(found.percentile(90), rel=0.05)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_num_batched_tokens": 256}, "must fit into the budget, 256, got 300 tokens"),
        ({"max_num_batched_tokens": 256, "max_num_seqs": 1}, "must fit into the budget, 256, got 300 tokens"),
        ({"kv_blocks": 24}, "must fit into the memory, 24 blocks of a server, got 399 tokens, 25 blocks"),
        ({"kv_blocks": 100}, "must fit into the budget, 331, got 399 tokens"),  # if it is computed again
        ({"kv_blocks": 24, "chunked": True, "max_num_seqs": 1}, "must fit into the memory, 24 blocks"),
        ({"tokens": bs.Tokens(300, 100, limit=99)}, "limit must be at least every output, got limit 99"),
        ({"tokens": bs.Tokens(bs.Uniform(1, 400), 100)}, "must fit into the budget, 331, got"),
    ],
)
@pytest.mark.parametrize("workload", [bs.Poisson(0.005), bs.ClosedLoop(1), bs.ClosedLoop(40)], ids=str)
def test_theory_refuses_what_simulate_refuses(changes, words, workload):
    scenario = SATURATED.replace(changes).replace(workload=workload)
    with pytest.raises(ValueError, match=words.partition(", got")[0]):
        bs.simulate(scenario, 200)
    answer = theory.expected(scenario)
    assert not answer
    assert words in answer.why


def test_no_seat_is_counted_in_memory_that_holds_no_whole_request():
    assert theory.seats_by_memory(24, 300, 100) == theory.seats_by_memory(24, 300, 100, reserve="step") == 0
    assert theory.seats_by_memory(25, 300, 100, reserve="step") == 1


# Light load.

VARIED = bs.Tokens(bs.Lognormal(400, 1.0, 4000), bs.Geometric(80))
LISTED = bs.Tokens.sample([(7, 30), (900, 1), (40, 200), (300, 60)], again=True)
LIGHT = {  # rule, lengths, servers, how many are in the system by their own times
    "seats": (bs.Continuous(), bs.Tokens(300, 100), 1, 0.1),
    "varied": (bs.Continuous(), VARIED, 1, 0.05),
    "listed": (bs.Continuous(64, 512), LISTED, 1, 0.2),
    "prompts first": (bs.Continuous(64, 8192, first="prefill"), VARIED, 1, 0.1),
    "two servers": (bs.Continuous(64, 512), VARIED, 2, 0.3),
    "uncut": (bs.Continuous(64, 4500, chunked=False), VARIED, 1, 0.1),
    "a long prompt in pieces": (bs.Continuous(64, 256), bs.Tokens(3000, 40), 1, 0.03),
    "the whole budget": (bs.Continuous(64, 512), bs.Tokens(512, 40), 1, 0.03),
    "memory": (bs.Continuous(64, kv_blocks=1500), VARIED, 1, 0.03),
    "one seat": (bs.Continuous(1), VARIED, 1, 0.02),
    "a full budget": (bs.Continuous(8, 300, chunked=False), bs.Tokens(300, 20), 1, 0.02),
    "life": (bs.Continuous(8, reserve="life", kv_blocks=320), VARIED, 1, 0.01),
    "whole batches": (bs.SizeOrWait(8, 5), bs.Tokens(300, 100), 1, 0.03),
    "padded": (bs.SizeOrWait(8, 0), bs.Tokens(bs.Uniform(1, 300), bs.Uniform(20, 60)), 1, 0.02),
}
TIMES = {"mean_ttft_ms": "ttft_ms", "mean_tpot_ms": "tpot_ms", "mean_latency_ms": "latency_ms"}


def at_light_load(name, noise=0.0):
    rule, tokens, servers, present = LIGHT[name]
    scenario = bs.Scenario(bs.ClosedLoop(1), rule, REAL.with_noise(noise), servers, tokens=tokens)
    return scenario.replace(workload=bs.Poisson(present * 1000 / theory.expected(scenario).mean_latency_ms))


def excess(result):
    """How much longer than alone requests take in a run, on average, with the standard error; by metric."""
    scenario = result.scenario
    prompts, outputs = (each.astype(float) for each in (result.prompt_tokens, result.output_tokens))
    first_ms = prompt_ms(REAL, prompts, longest_cut(scenario.rule))
    later_ms = decodes_ms(REAL, prompts, outputs)
    wait_ms = 0 if isinstance(scenario.rule, bs.Continuous) else scenario.rule.max_wait_ms
    alone = {"mean_ttft_ms": first_ms + wait_ms, "mean_latency_ms": first_ms + later_ms + wait_ms}
    alone["mean_tpot_ms"] = later_ms / np.maximum(outputs - 1, 1)
    for name, column in TIMES.items():
        over = getattr(result, column) - alone[name]
        parts = np.nanmean(over[: over.size // 40 * 40].reshape(40, -1), axis=1)
        yield name, parts.mean(), parts.std(ddof=1) / math.sqrt(40)


@pytest.mark.parametrize("name", LIGHT)
def test_at_light_load_means_are_within_their_bounds(name):
    scenario = at_light_load(name)
    wait_ms = 5.0 if name == "whole batches" else 0.0
    alone, found = (bounds(one, wait_ms) for one in (scenario.replace(rate_per_s=1e-9), scenario))
    result = bs.simulate(scenario, 16_000, seed=1)
    for metric, over, error in excess(result):
        low, high = (bound - alone[metric][0] for bound in found[metric])
        assert low - 4 * error - 1e-6 <= over <= high + 4 * error + 1e-6
    summary = result.summary()
    for metric in ("utilisation", "mean_batch_size", "mean_computing_ms"):
        low, high = found[metric]
        assert 0.97 * low < summary[metric] < 1.03 * high


def test_bounds_hold_for_noisy_steps():
    scenario = at_light_load("seats", noise=1.0)
    found, result = bounds(scenario, 0.0), bs.simulate(scenario, 30_000)
    for metric in TIMES:
        low, high = found[metric]
        assert 0.98 * low < result.summary()[metric] < 1.02 * high
    lasting = REAL.with_noise(0.5, correlation=0.5)
    assert "independent from step to step" in theory.expected(scenario.replace(service=lasting)).why


@pytest.mark.parametrize("name", ["seats", "varied", "memory", "uncut"])
def test_where_seats_and_memory_are_ample_ttft_and_tpot_are_known(name):
    scenario = at_light_load(name)
    answer = theory.expected(scenario.replace(rate_per_s=scenario.workload.rate_per_s / 5))
    assert answer.model == "light load"
    assert not answer.exact
    assert answer.loose == []
    for metric, (low, high) in answer.bounds.items():
        assert 0 < low <= answer.summary()[metric] * (1 + 1e-9) <= high * (1 + 1e-9) <= 1.1 * low * (1 + 1e-9)


def test_a_mean_that_could_be_far_off_is_left_out_and_its_bounds_say_why():
    tokens, rule = bs.Tokens(10, 300), bs.SizeOrWait(8, 0)
    scenario = bs.Scenario(bs.Poisson(0.002), rule, REAL, tokens=tokens)
    answer, result = theory.expected(scenario), bs.simulate(scenario, 8000)
    assert result.ttft_ms.mean() > 2 * answer.bounds["mean_ttft_ms"][0]
    assert result.ttft_ms.mean() < answer.bounds["mean_ttft_ms"][1]
    assert math.isnan(answer.mean_ttft_ms)
    assert "mean_ttft_ms" in answer.loose
    assert "mean_ttft_ms" not in answer.summary()
    assert answer.mean_latency_ms == pytest.approx(result.mean_latency_ms, rel=0.02)
    assert "left out" in repr(answer)
    assert "nan" not in repr(answer)
    busier = theory.expected(scenario.replace(rate_per_s=0.02))
    assert "must be within 10%, got mean_ttft_ms" in busier.why


def test_memory_that_may_preempt_has_no_bounds():
    scenario = at_light_load("memory").replace(kv_blocks=320)
    assert "some may be preempted" in theory.expected(scenario).why
    enough = at_light_load("seats").replace(kv_blocks=400, rate_per_s=0.01)
    assert theory.expected(enough).model == "light load"
    assert "some may be preempted" in theory.expected(enough.replace(watermark_blocks=350)).why


def test_slots_that_are_idle_now_and_then_say_how_far_off_they_are():
    rate = 5 / 0.01 / 40
    answer = theory.expected(SLOTTED.replace(rate_per_s=rate))
    summary = bs.simulate(SLOTTED.replace(rate_per_s=rate), 100_000, seed=1).summary()
    assert not answer.exact
    for metric, (low, high) in answer.bounds.items():
        assert 0.995 * low < summary[metric] < 1.005 * high
        assert high / low < 1.03


def test_batches_that_begin_at_some_of_the_listed_lengths_only_have_no_answer():
    tokens = bs.Tokens.sample([(10, 5), (10, 5), (10, 90), (10, 90)], again=True)
    scenario = bs.Scenario(bs.ClosedLoop(40), bs.SizeOrWait(2, 0), REAL, tokens=tokens)
    assert "got 4 and 2, which share 2" in theory.expected(scenario).why


@refusals
def test_what_makes_no_sense_is_refused():
    """
    theory.seats_filled(REAL, 32, 300, 31) -> at least the seats ... got 31 and 32
    theory.seats_filled(REAL, 32, 300, 99, clients=32) -> more than the seats, 32
    theory.seats_filled(5, 32, 300, 99) -> TypeError: service must be a StepTime, got 5
    theory.seats_by_memory(5, 4, 4, reserve="all") -> reserve must be
    theory.request_alone(REAL, 5) -> TypeError: tokens must be a Tokens, got 5
    theory.useful_share(5, 0) -> batch_size must be at least 1, got 0
    theory.slotted(5, 10, output=40) -> busy 99% of the time or more, got 2 at a step
    theory.expected(SATURATED.replace(workload=bs.Poisson(20))) -> the load must be below 1, got ...: 20/s
    """


def test_lengths_whose_tail_quantiles_miss_have_no_theory():
    light = bs.Scenario(
        bs.Poisson(0.001), bs.Continuous(), bs.StepTime(2, 8, 0.1), tokens=bs.Tokens(100, bs.Lognormal(40, 3))
    )
    assert "lengths must vary less" in theory.expected(light).why
    assert theory.expected(light.replace({"tokens.output": bs.Lognormal(40, 1.2)}))


def test_a_limit_of_requests_in_flight_has_no_theory():
    one = bs.Scenario(
        Limited(1, times_s=(0.0, 9.0)), bs.Continuous(), bs.StepTime(2, 8, 0.1), tokens=bs.Tokens(9, 9)
    )
    assert "in flight" in theory.expected(one).why
