"""Replicas: both engines and a plain loop that shares no code with them agree, bit for bit.

What is marked `plain` is run without the compiler by `make test`: see tests/agreement/test_agreement.py.
"""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from oracles.agreement import assert_replicas_agree, assert_token_replicas_agree, assert_token_summary_agrees
from oracles.plans import RULES, plans_with_replicas, plans_with_ties, scenarios_at_random
from oracles.reuse_plans import plans as reusing_plans
from oracles.size_plans import size_plans
from oracles.token_plans import crowded_plans, token_plans, with_replicas

import batchsim as bs
from batchsim.engines.draws import draw

# One rule for each way to ask a rule: a loop is compiled for each.
KINDS = (bs.SizeOrWait, bs.AtLeast, bs.PreferredSizes, bs.PullThenWait, bs.LearnedCork, bs.LearnedSizes)
BY_LEVEL = (bs.SizeOrWait, bs.FrozenBatches)
TIED = plans_with_replicas(
    st.one_of(plans_with_ties(KINDS), plans_with_ties(KINDS), plans_with_ties(BY_LEVEL, priorities=True))
)
FREE = plans_with_replicas(
    scenarios_at_random((*RULES[:4], bs.PullThenWait(4, 3.3), bs.LearnedSizes(8, 6))).map(
        lambda scenario: draw(scenario, 150, 0)
    )
)
SIZED = plans_with_replicas(size_plans())


@pytest.mark.plain
@settings(max_examples=250)
@given(TIED, st.integers(1, 50))
def test_replicas_agree_when_everything_is_tied(plan, chunk):
    event(f"{type(plan.scenario.workload).__name__}, {plan.scenario.router.name}")
    assert_replicas_agree(plan, chunk)


@pytest.mark.dear("the routed loop is compiled")
@settings(max_examples=60)
@given(plans_with_replicas(plans_with_ties((bs.SizeOrWait,))), st.integers(1, 50))
def test_the_compiled_loop_of_replicas_agrees(plan, chunk):
    assert_replicas_agree(plan, chunk)


@pytest.mark.plain
@settings(max_examples=100)
@given(FREE, st.integers(1, 200))
def test_replicas_agree_on_random_traffic(plan, chunk):
    assert_replicas_agree(plan, chunk)


@pytest.mark.dear("the routed loop of tokens is compiled")
@settings(max_examples=200)
@given(
    st.one_of(token_plans(), token_plans(), crowded_plans(), reusing_plans(most_servers=2)),
    st.integers(0, 2**32 - 1), st.integers(1, 50),
)  # fmt: skip
def test_replicas_that_generate_tokens_agree(plan, seed, chunk):
    plan = with_replicas(plan, seed)
    event(f"{type(plan.scenario.workload).__name__}, {plan.scenario.router.name}")
    assert_token_replicas_agree(plan, chunk)


@settings(max_examples=80)
@given(
    token_plans().filter(lambda plan: isinstance(plan.scenario.workload, bs.Trace)),
    st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from([0.0, 0.5]),
)  # fmt: skip
def test_summaries_of_replicas_that_generate_tokens_agree(plan, seed, chunk, warmup):
    scenario = with_replicas(plan, seed).scenario
    assert_token_summary_agrees(scenario, plan.base.requests, seed % 3, chunk, warmup)


@pytest.mark.plain
@settings(max_examples=100)
@given(SIZED, st.integers(1, 50))
def test_replicas_of_requests_of_different_sizes_agree(plan, chunk):
    assert_replicas_agree(plan, chunk)
