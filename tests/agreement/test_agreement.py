"""Every engine, a plain loop that shares no code with them, and every summary: one truth, bit for bit.

Each example is one random scenario with all checks. `make fuzz` tries twenty times as many per round.

What is marked `plain` would compile a loop for each rule, with and without levels, which takes ten times as
long as to run it. So `make test` runs it as plain Python, and `make test-all` compiled. That the compiler
keeps the loops' meaning is claimed of each rule in tests/scenario/rules/test_rules.py, and here of one with
levels.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from oracles.agreement import (
    assert_columns_equal,
    assert_equal_to_naive,
    assert_requests_agree,
    assert_token_summary_agrees,
    assert_tokens_agree,
    naive_of,
)
from oracles.plans import RULES, SERVERS_RULES, TIMERS, plans_with_ties, scenarios_at_random
from oracles.size_plans import size_plans
from oracles.token_plans import crowded_plans, token_plans

import batchsim as bs
from batchsim._clock import on_grid
from batchsim.engines.compiled import engine as compiled
from batchsim.engines.draws import draw
from batchsim.engines.reference import engine as reference
from batchsim.engines.token_log import TokenPlan, draw_tokens

TEXTBOOK = (bs.SizeOrWait, bs.AtLeast, bs.PreferredSizes, bs.PreferredUntilLate)
OF_SERVERS = (*TIMERS, bs.LearnedCork, bs.LearnedSizes)
# One rule for each way to ask a rule; the loop of each is compiled for levels, too.
OF_LEVELS = (
    bs.SizeOrWait(4, 3.3), bs.SizeOrWait(8, 0), bs.AtLeast(2, 5), bs.PreferredUntilLate([2, 4], 8, 3.3),
    bs.PreferredUntilLate([3, 8], 8, 0), bs.PullThenWait(4, 3.3), bs.FrozenBatches(4, 3.3, max_ongoing=7),
    bs.FrozenBatches(8, 0), bs.SleepingPoll(4, 3.3), bs.CompetingWindows(4, 3.3),
)  # fmt: skip
CHUNKS, WARMUPS = st.sampled_from([1, 2, 3, 7, 64]), st.sampled_from([0, 0.2, 0.7])
TIED = st.one_of(
    plans_with_ties(TEXTBOOK),
    plans_with_ties(OF_SERVERS),
    plans_with_ties(tuple(dict.fromkeys(map(type, OF_LEVELS))), priorities=True),
)
FREE = st.one_of(
    scenarios_at_random(tuple(RULES)),
    scenarios_at_random(tuple(SERVERS_RULES)),
    scenarios_at_random(OF_LEVELS, priorities=True),
)


@pytest.mark.dear("hundreds of random scenarios go through six engines")
@pytest.mark.plain
@settings(max_examples=500)
@given(TIED, CHUNKS, WARMUPS)
def test_requests_agree_when_everything_is_tied(plan, chunk, warmup):
    event(f"{type(plan.scenario.workload).__name__}, {type(plan.scenario.rule).__name__}")
    assert_requests_agree(plan, chunk, warmup)


@pytest.mark.dear("the first test of all: it compiles the loops of requests")
@settings(max_examples=60)
@given(plans_with_ties((bs.FrozenBatches,), priorities=True), CHUNKS, WARMUPS)
def test_the_compiled_loop_of_a_rule_with_levels_agrees(plan, chunk, warmup):
    assert_requests_agree(plan, chunk, warmup)


@pytest.mark.dear("hundreds of random scenarios go through six engines")
@pytest.mark.plain
@settings(max_examples=150)
@given(FREE, st.integers(0, 99), CHUNKS, WARMUPS)
def test_requests_agree_on_random_traffic(scenario, seed, chunk, warmup):
    assert_requests_agree(draw(scenario, 200, seed), chunk, warmup)


@pytest.mark.plain
@settings(max_examples=200)
@given(size_plans(), CHUNKS, WARMUPS)
def test_requests_of_different_sizes_agree(plan, chunk, warmup):
    event(f"{type(plan.scenario.service).__name__}, {type(plan.scenario.rule).__name__}")
    assert_requests_agree(plan, chunk, warmup)


@pytest.mark.dear("hundreds of random scenarios, and the loops of tokens are compiled")
@settings(max_examples=600)
@given(token_plans(), st.integers(1, 50), st.integers(-1, 40), st.sampled_from([0.0, 0.3]))
def test_tokens_agree(plan, chunk, room, warmup):
    assert_tokens_agree(plan, chunk, room, warmup)


@settings(max_examples=100)
@given(crowded_plans())
def test_tokens_agree_when_victims_move_on_to_other_engines(plan):
    assert_tokens_agree(plan)


def test_sums_of_gaps_do_not_depend_on_the_pieces_in_which_steps_are_folded():
    prompts = [78, 1, 22, 71, 1, 78, 92, 64, 85, 57, 1, 8, 36, 57, 71, 92, 1, 71, 85]
    outputs = [13, 3, 11, 11, 12, 9, 1, 1, 3, 6, 9, 4, 9, 13, 1, 7, 5, 15, 15]
    rule = bs.Continuous(
        256, 1, first="prefill", kv_blocks=103, block_size=2, watermark_blocks=3,
        long_prefill_token_threshold=5,
    )  # fmt: skip
    step = bs.StepTime(100, 0, 0, captured=(1, 3, 7, 9, 16), beyond_ms=250)
    tokens = bs.Tokens(prompts, outputs)
    scenario = bs.Scenario(bs.ClosedLoop(7), rule, step, servers=3, tokens=tokens)
    assert_tokens_agree(draw_tokens(scenario, len(prompts), 8))


@pytest.mark.plain
@settings(max_examples=150)
@given(st.one_of(TIED, token_plans()), st.sampled_from([0.25, 0.5, 1, 2.3]), st.randoms())
def test_sources_with_a_limit_in_flight_agree(plan, times, chance):
    """Each request is due at a time of its own, and a client that is free sends it from then on."""
    tokens = isinstance(plan, TokenPlan)
    base = plan.base if tokens else plan
    assume(base.think_s is not None)
    unit_s = times * (plan.scenario.service.fixed_ms / 1000 if tokens else plan.service_s[1])
    gaps = chance.choices([0, 0, 1, 1, 2, 9], k=base.requests)
    base = dataclasses.replace(base, due_s=on_grid(np.cumsum(gaps) * unit_s))
    if tokens:
        assert_tokens_agree(dataclasses.replace(plan, base=base))
    else:
        log = compiled.run(base)
        assert (log.arrival_s >= base.due_s).all()
        assert_columns_equal(log, reference.run(base))
        assert_equal_to_naive(base.scenario, log, naive_of(base).run())


@settings(max_examples=80)
@given(token_plans(), st.sampled_from([0.0, 0.5]), st.integers(1, 30), st.sampled_from([0, 1, 2]))
def test_summaries_of_tokens_agree_in_windows_of_any_size(plan, warmup, chunk, seed):
    scenario = plan.scenario
    if isinstance(scenario.workload, bs.ClosedLoop) and scenario.workload.think_s:
        scenario = scenario.replace(think_s=0.3)
    assert_token_summary_agrees(scenario, plan.base.requests, seed, chunk, warmup)


@pytest.mark.parametrize("servers", [1, 3])
def test_requests_agree_on_long_runs(servers):
    scenario = bs.Scenario(bs.Poisson(1800), bs.SizeOrWait(6, 10), bs.Affine(5, 0.25), servers=servers)
    for workload in (
        bs.Gamma(900.0, cv=3.0),
        bs.OnOff(2000.0, 100.0, 0.05, 0.05),
        bs.ClosedLoop(7, think_s=0.004),
    ):
        assert_requests_agree(draw(scenario.replace(workload=workload), 2000, 5), chunk=277)
