"""A preempted request that finds its own blocks again: the engine, and an oracle of every block."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from oracles import token_plans
from oracles.naive_reuse import NaiveReuse

import batchsim as bs
from batchsim.engines.reference import token_engine

SHORT = token_plans.token_plans().filter(
    lambda plan: isinstance(plan.scenario.rule, bs.Continuous) and plan.scenario.rule.kv_blocks is not None
)


def reusing(plan):
    # Of three engines the oracle starts again from the lowest after a preemption, the engines go on first.
    servers = min(plan.scenario.servers, 2)
    scenario = plan.scenario.replace(prefix_reuse=True, reserve="step", servers=servers)
    return dataclasses.replace(plan, base=dataclasses.replace(plan.base, scenario=scenario))


@settings(max_examples=150)
@given(SHORT)
def test_it_is_equal_to_an_oracle_of_every_block(plan):
    plan = reusing(plan)
    log = token_engine.run(plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_plans, "NaiveTokens", NaiveReuse)
        oracle = token_plans.naive(plan)
    for name, column in token_plans.columns_of(oracle).items():
        assert np.array_equal(getattr(log, name), column), name


def test_nothing_changes_where_nobody_is_preempted():
    tokens = bs.Tokens(bs.Uniform(1, 90), bs.Uniform(1, 30))
    scenario = bs.Scenario(bs.Poisson(5), bs.Continuous(kv_blocks=900), bs.StepTime(2, 8, 0.1), tokens=tokens)
    plain = bs.simulate(scenario, 60)
    reused = bs.simulate(scenario.replace(prefix_reuse=True), 60)
    assert plain.preemptions.sum() == 0
    assert np.array_equal(plain.finish_s, reused.finish_s)
    assert np.array_equal(plain.steps.kv_blocks, reused.steps.kv_blocks)


def test_the_golden_preemption_computes_only_what_was_taken():
    # G6: three of 20 + 12 tokens in 9 blocks of 8. The third goes back with all its blocks; two stay untaken.
    rule = bs.Continuous(kv_blocks=9, block_size=8)
    scenario = bs.Scenario(
        bs.Trace([0.0] * 3), rule, bs.StepTime(2, 8, 0.1, 0.001, 0.00001), tokens=bs.Tokens(20, 12)
    )
    plain, reused = (bs.simulate(scenario.replace(prefix_reuse=reuse)) for reuse in (False, True))
    assert plain.preemptions.tolist() == reused.preemptions.tolist() == [0, 0, 1]
    again = [run.steps.tokens.sum() - 3 * 31 for run in (plain, reused)]
    assert again[0] - again[1] == 8  # a block found again
    assert reused.latency_ms[2] < plain.latency_ms[2]


def test_the_compiled_engine_refuses_it():
    rule = bs.Continuous(kv_blocks=900, prefix_reuse=True)
    scenario = bs.Scenario(bs.Poisson(5), rule, bs.StepTime(2, 8, 0.1), tokens=bs.Tokens(9, 9))
    with pytest.raises(ValueError, match="'compiled' does not cover the rule Continuous"):
        bs.simulate(scenario, 5, engine="compiled")
    assert bs.simulate(scenario, 5).engine == "simpy"
    assert bs.simulate(scenario.replace(kv_blocks=None), 5).engine == "compiled"
    with pytest.raises(TypeError, match="prefix_reuse must be True or False, got 1"):
        bs.Continuous(prefix_reuse=1)
