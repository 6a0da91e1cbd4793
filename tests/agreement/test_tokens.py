"""Token generation: two engines and a plain loop agree, and so do formulas and golden values."""

import threading

import numpy as np
import pytest
from oracles.agreement import assert_columns_equal
from oracles.golden_tokens import CLIENTS, LARGE, SMALL, traffic
from oracles.token_plans import naive

import batchsim as bs
from batchsim.engines.compiled import token_engine
from batchsim.engines.compiled.token_columns import SEGMENTS
from batchsim.engines.reference import token_engine as reference_tokens
from batchsim.engines.token_log import draw_tokens

ENGINES = {"compiled": token_engine, "simpy": reference_tokens}


def golden_run(cost, rule, case, engine):
    if "enough" in rule:
        the_rule = bs.SizeOrWait(rule["largest"], rule["wait_s"] * 1000)
    else:
        names = {"seats": "max_num_seqs", "budget": "max_num_batched_tokens"}
        the_rule = bs.Continuous(**{names.get(name, name): value for name, value in rule.items()})
    if isinstance(case, int):
        workload, lengths = bs.ClosedLoop(case), CLIENTS
    else:
        arrivals_s, lengths = traffic(*case) if isinstance(case[0], int) else case
        workload = bs.Trace(arrivals_s)
    scenario = bs.Scenario(workload, the_rule, bs.StepTime(*cost), tokens=bs.Tokens.sample(lengths))
    return bs.simulate(scenario, len(lengths), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", SMALL)
def test_golden_values_of_small_cases(case, engine):
    *given_, ttft_ms, answer_ms, steps, preemptions = SMALL[case]
    result = golden_run(*given_, engine)
    assert result.ttft_ms == pytest.approx(ttft_ms, rel=1e-9)
    assert result.latency_ms == pytest.approx(answer_ms, rel=1e-9)
    assert (len(result.steps), result.preemptions.sum()) == (steps, preemptions)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", LARGE)
def test_golden_values_of_large_cases(case, engine):
    if (case, engine) == ("G19", "simpy"):
        pytest.skip("a minute in SimPy, equal to the compiled engine")
    *given_, ttft_ms, tpot_ms, answer_ms, end_s, steps, preemptions, recomputed = LARGE[case]
    result = golden_run(*given_, engine)
    means = result.ttft_ms.mean(), np.nanmean(result.tpot_ms), result.latency_ms.mean(), result.finish_s.max()
    # Step by step rounded to whole nanoseconds, which the golden values are not.
    assert means == pytest.approx((ttft_ms, tpot_ms, answer_ms, end_s), rel=1e-7)
    again = result.steps.tokens.sum() - (result.prompt_tokens + result.output_tokens - 1).sum()
    assert (len(result.steps), result.preemptions.sum(), again) == (steps, preemptions, recomputed)


@pytest.mark.parametrize(("seats", "padded"), [(100, (96, 96, 0, 0)), (104, (96, 96, 104, 104))])
@pytest.mark.parametrize("whole", [True, False])
def test_a_step_under_multiples_of_eight_costs_what_the_table_says(seats, padded, whole):
    step = bs.StepTime(2, 1, 0.25, captured=(1, 2, 4, *range(8, 257, 8)), beyond_ms=300)
    for size, captured in zip((95, 96, 97, 100), padded, strict=True):
        rule = bs.SizeOrWait(seats, 0) if whole else bs.Continuous(seats)
        scenario = bs.Scenario(bs.Trace([0.0] * size), rule, step, tokens=bs.Tokens(2, 3))
        plan = draw_tokens(scenario, size, 0)
        oracle = naive(plan)
        took_ms = [1000 * (finish_s - start_s) for start_s, finish_s, *_ in oracle.steps]
        for engine in ENGINES.values():
            log = engine.run(plan)
            took_ms += list((log.batch_finish_s - log.batch_start_s) * 1000)
        prompts_ms, *decodes_ms = np.reshape(took_ms, (3, 3)).T
        assert prompts_ms == pytest.approx(300)  # each kernel is launched
        assert np.ravel(decodes_ms) == pytest.approx(2 + 0.25 * captured if captured else 300)


@pytest.mark.plain  # as the compiler does not look whether there is such a segment
@pytest.mark.parametrize("servers", [1, 2])
def test_more_requests_join_one_by_one_than_there_are_segments_of_gaps(servers):
    scenario = bs.Scenario(
        bs.Constant(100 * servers), bs.Continuous(64), bs.StepTime(9.5, 0, 0).with_noise(0.1), servers,
        tokens=bs.Tokens(20, bs.Uniform(40, 60)),
    )  # fmt: skip
    fast, plain = (bs.simulate(scenario, 4 * SEGMENTS, engine=engine) for engine in ENGINES)
    assert fast.steps.running.max() > SEGMENTS
    np.testing.assert_array_equal(fast.stall_ms, plain.stall_ms)


def test_a_cancelled_run_is_given_up_at_its_next_slice(monkeypatch):
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(InterruptedError):
        token_engine.run(draw_tokens(AT_ONCE.replace(rule=bs.Continuous()), 10, 0), cancelled)


# Invariants.


COST = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
AT_ONCE = bs.Scenario(bs.Trace([0.0] * 24), bs.SizeOrWait(24, 0), COST, tokens=bs.Tokens(70, 30))


@pytest.mark.parametrize("engine", ENGINES)
def test_equal_lengths_at_once_are_one_batch_under_either_rule(engine):
    scenario = AT_ONCE.replace(service=COST.with_noise(0.3))
    whole = bs.simulate(scenario, engine=engine, seed=4).log
    continuous = bs.simulate(scenario.replace(rule=bs.Continuous()), engine=engine, seed=4).log
    # A whole batch has no blocks, and leaves for a reason.
    assert_columns_equal(whole, continuous, but=("outputs", "step_blocks", "batch_trigger"))


def test_time_running_is_littles_law():
    tokens = bs.Tokens(bs.Lognormal(300, 1), bs.Geometric(80))
    scenario = bs.Scenario(bs.Poisson(9), bs.Continuous(40, 512), COST.with_noise(0.2), tokens=tokens)
    for first in ("decode", "prefill"):
        result = bs.simulate(scenario.replace(first=first), 3000)
        steps = result.steps
        in_steps = ((steps.finish_s - steps.start_s) * steps.running).sum()
        assert in_steps == pytest.approx((result.finish_s - result.start_s).sum(), rel=1e-9)


def test_constant_steps_without_limits_are_the_slotted_m_g_infinity_queue():
    d_s, rate_per_s, mean = 0.010, 500.0, 40.0
    tokens = bs.Tokens(1, bs.Geometric(mean))
    scenario = bs.Scenario(
        bs.Poisson(rate_per_s), bs.Continuous(10**6, 10**6), bs.StepTime(10, 0, 0), tokens=tokens
    )
    result = bs.simulate(scenario, 1_000_000, seed=1)
    running = result.steps.running[1000:-1000]  # neither its beginning nor its end
    expected = rate_per_s * d_s * mean  # Poisson, whatever the distribution of the lengths
    assert running.mean() == pytest.approx(expected, rel=0.005)
    assert running.var() == pytest.approx(expected, rel=0.1)
    assert result.ttft_ms.mean() == pytest.approx(15, rel=0.005)
    assert np.nanmean(result.tpot_ms) == pytest.approx(10)
