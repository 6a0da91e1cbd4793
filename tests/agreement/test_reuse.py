"""A prefix cache: both engines, and an oracle of every block."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from oracles import token_plans
from oracles.naive_reuse import NaiveReuse
from oracles.reuse_plans import plans

import batchsim as bs
from batchsim.engines.compiled import token_engine as compiled_engine
from batchsim.engines.reference import token_engine


@settings(max_examples=150)
@given(plans(most_servers=2))
def test_it_is_equal_to_an_oracle_of_every_block(plan):
    # Of three engines the oracle starts again from the lowest after a preemption, the engines go on first.
    log = token_engine.run(plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NaiveReuse, "shared", token_plans.contents_of(plan))
        oracle = token_plans.naive(plan)
    for name, column in token_plans.columns_of(oracle).items():
        assert np.array_equal(getattr(log, name), column), name


@settings(max_examples=200)
@given(plans())
def test_both_engines_are_equal(plan):
    log, same = token_engine.run(plan), compiled_engine.run(plan)
    for field in dataclasses.fields(log):
        one, other = getattr(log, field.name), getattr(same, field.name)
        assert np.array_equal(one, other, equal_nan=field.name.endswith("_s")), field.name


@settings(max_examples=30)
@given(plans())
def test_sums_over_windows_are_those_of_the_run(plan):
    scenario, count = plan.scenario, plan.base.requests
    whole = bs.simulate(scenario, count, seed=3, keep="requests").summary()
    sums = bs.simulate(scenario, count, seed=3, keep="summary").summary()
    for name in ("mean_latency_ms", "mean_ttft_ms", "preemptions", "throughput_per_s"):
        assert sums.get(name) == pytest.approx(whole.get(name), nan_ok=True), name


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


def test_a_prompt_computes_what_no_other_prompt_has_computed():
    # 100 requests of one group, 10 tokens after 160 common ones: in memory, or computed once.
    tokens = bs.Tokens(170, 5, prefixes=bs.PrefixGroups(1, 160))
    for kv_blocks in (None, 600):
        rule = bs.Continuous(kv_blocks=kv_blocks, prefix_reuse=True)
        scenario = bs.Scenario(bs.Poisson(5), rule, bs.StepTime(2, 8, 0.1), tokens=tokens)
        result = bs.simulate(scenario, 100)
        assert result.steps.tokens.sum() == 160 + 100 * (10 + 4)
        assert result.steps.kv_blocks.max() <= 10 + result.steps.running.max()
    alone = bs.simulate(scenario.replace(prefix_reuse=False), 100)
    assert alone.steps.tokens.sum() == 100 * 174
    # A prompt that is in memory as a whole computes its last block again.
    same = scenario.replace(tokens=bs.Tokens(160, 1, prefixes=bs.PrefixGroups(1, 160)))
    assert bs.simulate(same, 100).steps.tokens.sum() == 160 + 99 * 16


def test_hash_ids_of_a_trace_are_read(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = ['{"input_length": 1100, "output_length": 9, "hash_ids": [0, 1, 2]}',
             '{"input_length": 1500, "output_length": 3, "hash_ids": [0, 1, 5]}']  # fmt: skip
    path.write_text("\n".join(lines))
    tokens = bs.Tokens.from_jsonl(path)
    rule = bs.Continuous(max_num_batched_tokens=8192, prefix_reuse=True)
    scenario = bs.Scenario(bs.Trace([0.0, 9.0]), rule, bs.StepTime(2, 8, 0.1), tokens=tokens)
    assert bs.simulate(scenario).steps.tokens.max() == 1100
    assert bs.simulate(scenario).steps.tokens[9] == 1500 - 1024
    path.write_text(lines[0] + "\n{}")
    with pytest.raises(ValueError, match="line 2: must have the key 'input_length', got the keys none"):
        bs.Tokens.from_jsonl(path)
    with pytest.raises(ValueError, match="a multiple of block_size, got 512 and 48"):
        scenario.replace(block_size=48)


def test_wrong_prefixes_are_refused():
    with pytest.raises(ValueError, match="groups must be at least 1, got 0"):
        bs.PrefixGroups(0, 9)
    with pytest.raises(ValueError, match=r"list of whole numbers each, got .* at index 1"):
        bs.HashIds([[1], [1.5]])
    with pytest.raises(TypeError, match="prefixes must be PrefixGroups or HashIds, got 3"):
        bs.Tokens(9, 9, prefixes=3)
    tokens = bs.Tokens(9, 9, prefixes=bs.HashIds([[1]]))
    scenario = bs.Scenario(
        bs.Poisson(5), bs.Continuous(prefix_reuse=True), bs.StepTime(2, 8, 0.1), tokens=tokens
    )
    with pytest.raises(ValueError, match=r"hash ids for each of 2 requests, got 1|at most 1"):
        bs.simulate(scenario, 2)
    with pytest.raises(TypeError, match="prefix_reuse must be True or False, got 1"):
        bs.Continuous(prefix_reuse=1)
