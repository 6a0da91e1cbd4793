"""What engines of token generation carry at most, against runs of which the queue stays finite or grows."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines.saturation import saturated
from batchsim.scenario import saturation
from batchsim.scenario.lengths import Listed
from batchsim.scenario.rules.continuous import NeverServed

STEP = bs.published("llama-3.1-8b/rtx-4090")
RAGGED = bs.StepTime(*STEP.cost, ragged=True)
SPREAD = bs.Tokens(bs.Lognormal(512, 1.0, 4096), bs.Lognormal(128, 0.8, 1024))
GEOMETRIC, ALIKE = bs.Tokens(bs.Geometric(300), bs.Geometric(100)), bs.Tokens(512, 128)
GENERATOR = np.random.default_rng(5)
MEASURED = bs.Tokens(
    Listed(GENERATOR.integers(50, 1500, 3000), again=True), Listed(GENERATOR.integers(10, 400, 3000), True)
)
EXPLORER = bs.Continuous(256, 2048, kv_blocks=2599)  # what its controls begin with


def scenario(rule, tokens=SPREAD, rate_per_s=1.0, step=STEP, servers=1):
    return bs.Scenario(bs.Constant(rate_per_s), rule, step, servers, tokens=tokens)


def left_waiting(one, load, requests, engine="auto"):
    """How many wait as the last request comes, at a load."""
    one = one.replace(rate_per_s=load * one.saturation_per_s)
    result = bs.simulate(one, requests, seed=3, engine=engine)
    return int((result.start_s > result.arrival_s[-1]).sum())


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(scenario(EXPLORER), id="the explorer's"),
        pytest.param(scenario(bs.Continuous(256, 2048, kv_blocks=2599, first="prefill")), id="prefill"),
        pytest.param(scenario(bs.Continuous(256, 2048, kv_blocks=2599, reserve="life")), id="life"),
        pytest.param(scenario(bs.Continuous(256, 2048)), id="ample memory"),
        pytest.param(scenario(bs.Continuous(256, 2048, kv_blocks=400)), id="nearly too little memory"),
        pytest.param(scenario(bs.Continuous(256, 256, kv_blocks=2599)), id="small budget"),
        pytest.param(scenario(bs.Continuous(48, 8192, chunked=False, kv_blocks=2599)), id="uncut"),
        pytest.param(scenario(bs.Continuous(64, 1024, first="prefill"), GEOMETRIC), id="geometric"),
        # Evenly spaced requests of one length never meet; those that come by chance do.
        pytest.param(
            scenario(bs.Continuous(64, 2048, kv_blocks=700), ALIKE).replace(workload=bs.Poisson(1)),
            id="fixed, memory short",
        ),
        pytest.param(scenario(bs.Continuous(64, 2048, kv_blocks=1500), MEASURED), id="listed"),
        pytest.param(
            scenario(bs.Continuous(256, 2048, kv_blocks=900, first="prefill"), GEOMETRIC, servers=3),
            id="sent from one to another",
        ),
        pytest.param(scenario(bs.SizeOrWait(8, 10), MEASURED), id="whole, listed"),
        pytest.param(scenario(bs.AtLeast(2, 16), GEOMETRIC, step=RAGGED), id="whole, ragged"),
    ],
)
def test_a_queue_stays_finite_just_below_saturation_and_grows_just_above(one):
    assert 0 <= one.saturation_error < 0.01
    requests = 30_000
    grown = 0.03 * requests
    assert left_waiting(one, 0.97, requests) < grown / 3
    assert left_waiting(one, 1.03, requests) > grown / 2


SMALL = bs.Tokens(bs.Uniform(50, 150), bs.Uniform(10, 30))


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_so_it_does_in_both_engines(engine):
    one = scenario(bs.Continuous(16, 256, kv_blocks=90), SMALL)
    assert left_waiting(one, 0.96, 3000, engine) < 40 < 80 < left_waiting(one, 1.04, 3000, engine)


@pytest.mark.parametrize(
    "rule",
    [
        bs.servers.tgi(max_batch_size=16, max_batch_prefill_tokens=256, max_batch_total_tokens=1440),
        bs.servers.sglang(max_running_requests=16, chunked_prefill_size=256, max_total_tokens=1440),
        bs.servers.sglang(
            max_running_requests=16,
            chunked_prefill_size=256,
            max_total_tokens=2880,
            enable_prefill_delayer=True,
            prefill_delayer_queue_min_ratio=0.5,
        ),
        bs.servers.tensorrt_llm(
            max_batch_size=16, max_num_tokens=400, max_tokens=2880, batch_wait_timeout_ms=50
        ),
        bs.servers.tensorrt_llm(
            max_batch_size=16,
            max_num_tokens=400,
            max_tokens=2880,
            batch_wait_timeout_ms=9,
            disable_overlap_scheduler=True,
            capacity_scheduler_policy="MAX_UTILIZATION",
        ),
        bs.servers.tensorrt_llm(
            max_batch_size=16,
            max_num_tokens=400,
            max_tokens=2880,
            batch_wait_timeout_iters=9,
            batch_wait_max_tokens_ratio=0.5,
        ),
    ],
    ids=["tgi", "sglang", "sglang, delayer", "tensorrt, ms", "tensorrt, ms, no overlap", "tensorrt, steps"],
)
def test_rules_that_the_compiled_engine_lacks_are_measured_on_the_other(rule):
    one = scenario(rule, SMALL)
    assert not rule.compiled
    assert 0 < one.saturation_error < 0.02
    assert left_waiting(one, 0.94, 2500) < 50 < 100 < left_waiting(one, 1.06, 2500)


CLOSED = [
    (bs.Continuous(32, 331, chunked=False), bs.Tokens(300, 100), STEP),
    (bs.Continuous(32, 331, chunked=False, first="prefill"), bs.Tokens(300, 100), STEP),
    (bs.Continuous(64, 600, chunked=False, reserve="life", kv_blocks=700), bs.Tokens(450, 60), STEP),
    (bs.Continuous(8, 600, chunked=False, kv_blocks=400), bs.Tokens(450, 60), STEP),
    (bs.Continuous(1, 600), bs.Tokens(450, 60), STEP),
    (bs.SizeOrWait(16, 5), bs.Tokens(450, 60), STEP),
    (bs.SizeOrWait(16, 5), MEASURED, STEP),
    (bs.AtLeast(2, 4), MEASURED, bs.StepTime(1, 8, 0.01, 1e-4, 1e-5)),
    (bs.AtLeast(2, 16), bs.Tokens(100, 60), RAGGED),
    (bs.AtLeast(2, 4), bs.Tokens(bs.Uniform(20, 200), bs.Uniform(20, 60)), bs.StepTime(1, 8, 1, ragged=True)),
    (bs.SizeOrWait(8, 5), bs.Tokens(bs.Uniform(20, 200), bs.Uniform(20, 60)), STEP),
]


@pytest.mark.parametrize(("rule", "tokens", "step"), CLOSED)
def test_where_there_is_a_formula_engines_carry_the_very_same(rule, tokens, step):
    one = scenario(rule, tokens, step=step)
    assert one.saturation_error == 0
    per_ms, _ = saturated(rule, tokens, bs.StepTime(0, 1, 0, ragged=step.ragged)).per_ms(step)
    assert 1000 * per_ms == pytest.approx(one.saturation_per_s, rel=5e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"max_num_batched_tokens": 700},  # two prompts a step
        {"chunked": True},
        {"output": 20},  # fewer steps than seats
        {"kv_blocks": 600, "max_num_batched_tokens": 400},
        {"long_prefill_token_threshold": 100},
        {"prompt": bs.Uniform(299, 301)},
    ],
)
def test_there_is_none_where_requests_do_not_turn_over_one_by_one(change):
    one = scenario(*CLOSED[0][:2]).replace(change)
    before = saturated.cache_info().misses
    assert 0 <= one.saturation_error < 0.02
    assert saturated.cache_info().misses == before + 1


def carried(one, requests=4000, seed=1):
    """Requests per second of an overloaded run, relative to saturation."""
    finish_s = np.sort(bs.simulate(one, requests, seed=seed).finish_s)
    low, high = int(0.3 * requests), int(0.85 * requests)
    return (high - low) / (finish_s[high] - finish_s[low]) / one.saturation_per_s


IN_PHASE = [  # what seats carry that a burst fills at once
    (bs.Continuous(32), bs.Tokens(100, 50), 0.87),
    (bs.Continuous(8), bs.Tokens(50, 10), 0.86),
    (bs.Continuous(32, first="prefill"), bs.Tokens(512, 128), 1.03),
]


@pytest.mark.parametrize(("rule", "tokens", "in_step"), IN_PHASE)
def test_fixed_lengths_carry_their_rate_in_random_phases_and_another_one_in_step(rule, tokens, in_step):
    one = scenario(rule, tokens).replace(workload=bs.Poisson(1))
    over = one.replace(rate_per_s=1.03 * one.saturation_per_s)
    assert np.mean([carried(over, seed=seed) for seed in range(4)]) == pytest.approx(1, abs=0.025)
    at_once = one.replace(workload=bs.Trace([0.0] * 4000))
    assert carried(at_once) == pytest.approx(in_step, abs=0.015)


def test_the_error_of_fixed_lengths_knows_how_phases_differ():
    one = scenario(bs.Continuous(32), bs.Tokens(100, 50))
    assert 0.002 < one.saturation_error < 0.01


@pytest.mark.parametrize(("largest", "per_s"), [(8, 8 / 0.007), (9, 9 / 0.009), (16, 16 / 0.009)])
def test_padded_sizes_carry_what_full_batches_do_which_a_smaller_one_may_exceed(largest, per_s):
    padded = bs.Affine(5, 0.25).padded_to([1, 4, 8, 16])
    one = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(largest, 5), padded)
    assert one.saturation_per_s == pytest.approx(per_s)
    left = [left_waiting(one, load, 30_000) for load in (0.97, 1.03)]
    assert left[0] < 300 < 450 < left[1]


def test_more_memory_never_carries_less():
    rates = [scenario(bs.Continuous(256, 2048, kv_blocks=blocks)).saturation_per_s for blocks in
             (320, 400, 500, 700, 1000, 1400, 2000, 2800, 4000, 8000)]  # fmt: skip
    assert (np.diff(rates) > -0.01 * np.array(rates[1:])).all()
    assert rates[-1] > 3 * rates[0]


def test_the_explorers_first_setting_does_not_carry_ten_a_second():
    one = scenario(EXPLORER, rate_per_s=10)
    assert one.saturation_per_s == pytest.approx(9.83, rel=0.01)
    assert saturation.estimate_per_s(one) > 10.5
    assert not one.stable
    result = bs.simulate(one, 2000)
    assert result.summary()["load"] > 1
    assert "UNSTABLE" in repr(result)


def test_engines_serve_the_same_whatever_a_step_takes_so_they_run_once():
    before = saturated.cache_info().misses
    rates = [
        scenario(bs.Continuous(77, 1024), step=bs.StepTime(fixed, 10, 0.1)).saturation_per_s
        for fixed in (1, 2, 4, 8)
    ]
    assert saturated.cache_info().misses == before + 1
    assert rates == sorted(rates, reverse=True)
    noisy = scenario(bs.Continuous(77, 1024), step=bs.StepTime(1, 10, 0.1).with_noise(0.5), servers=2)
    assert noisy.saturation_per_s == pytest.approx(2 * rates[0])
    assert saturated.cache_info().misses == before + 1


def test_requests_that_can_never_run_are_refused_as_before():
    one = scenario(bs.Continuous(kv_blocks=4), ALIKE)
    assert math.isnan(one.saturation_error)
    assert one.saturation_per_s > 0
    for ask in (lambda: bs.simulate(one, 10), lambda: bs.capacity(one, bs.SLO(p99_ms=1e5), requests=100)):
        with pytest.raises(NeverServed, match="of request 0"):
            ask()
    # Where only the longest cannot, the others are counted.
    some = scenario(bs.Continuous(64, kv_blocks=150), bs.Tokens(bs.Lognormal(512, 1.0), 60))
    assert 0 < some.saturation_error < 0.02


def test_more_at_once_than_is_worth_a_run_is_an_estimate_and_says_so():
    one = scenario(bs.Continuous(2**20, 2**20), bs.Tokens(10, 10))
    assert math.isnan(one.saturation_error)
    assert "of about" in repr(bs.simulate(one.replace(rate_per_s=100), 200))


def test_a_capacity_is_never_above_what_is_carried():
    one = scenario(bs.Continuous(16, 256, kv_blocks=90), SMALL)
    found = bs.capacity(one.replace(workload=bs.Poisson(1)), bs.SLO(p99_ms=1e6), requests=4000)
    assert 0.9 * one.saturation_per_s < found.rate_per_s < one.saturation_per_s
    assert saturation.estimate_per_s(one) > 1.03 * one.saturation_per_s


def test_whole_batches_that_no_run_measures_have_an_estimate(monkeypatch):
    monkeypatch.setitem(saturation.MEASURES, "tokens", lambda *_: None)
    one = scenario(
        bs.AtLeast(3, 77), bs.Tokens(bs.Geometric(41), bs.Geometric(29)), step=STEP.speculative(3, 0.7, 4)
    )
    assert one.saturation_per_s == saturation.estimate_per_s(one)
    assert math.isnan(one.saturation_error)
