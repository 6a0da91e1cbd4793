"""Rules of single servers, in the SimPy engine: a plain loop of each gives the same, step by step."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.naive_servers import NaiveSglang, NaiveTgi
from oracles.token_plans import columns_of, cost_of
from refusals import refusals

import batchsim as bs
from batchsim.engines.reference import token_engine
from batchsim.engines.token_log import draw_tokens
from batchsim.scenario.rules.continuous import NewTokenRatio, WaitingServedRatio

EASY = bs.StepTime(2, 8, 0.1, 0.001, 0.00001)
TIED = bs.StepTime(125, 0, 0)  # every time is a multiple of 1/8 s


def naive(plan):
    """The oracle's run of a plan."""
    scenario, rule = plan.scenario, plan.scenario.rule
    cost = cost_of(scenario.service)
    of = {
        "seats": rule.max_num_seqs, "budget": rule.max_num_batched_tokens, "chunked": rule.chunked,
        "kv_blocks": rule.kv_blocks, "block_size": rule.block_size,
    }  # fmt: skip
    if isinstance(rule, WaitingServedRatio):
        loop, more = (
            NaiveTgi,
            {"ratio": rule.waiting_served_ratio, "patience": rule.max_waiting_tokens, "reserve": "life"},
        )
    else:
        loop, more = NaiveSglang, {
            "ratio": rule.init_new_token_ratio, "least": rule.min_new_token_ratio, "decay": rule.decay_steps,
            "entry": rule.max_prefill_tokens, "mixed": rule.mixed,
        }  # fmt: skip
    lengths = (column.tolist() for column in (plan.prompts, plan.outputs, plan.limits))
    closed = isinstance(scenario.workload, bs.ClosedLoop)
    return loop(
        list(zip(*lengths, strict=True)), cost, of | more,
        arrivals_s=() if closed else plan.base.arrival_s.tolist(),
        clients=scenario.workload.clients if closed else 0,
        think_s=plan.base.think_s.tolist() if closed else None, servers=scenario.servers,
    )  # fmt: skip


@st.composite
def plans(draw_):
    """Plans of up to 30 requests, from the memory of one request's need to plenty."""
    chance = random.Random(draw_(st.integers(0, 2**32 - 1)))
    choose, count = chance.choice, chance.randint(1, 30)
    prompts, outputs = ([1 + chance.randrange(15) * choose([1, 3]) for _ in range(count)] for _ in range(2))
    limit = choose([None, max(outputs), max(outputs) + 9])
    longest = max(map(sum, zip(prompts, outputs, strict=True))) if limit is None else max(prompts) + limit
    size, seats = choose([1, 1, 2, 16]), choose([2, 4, 256])
    memory = choose([None, 1, 1.3, 2, 4])
    blocks = None if memory is None else int(-(-longest // size) * memory)
    if choose([True, False]):
        chunked = choose([True, False])
        budget = choose([3, 20, 400]) if chunked else longest + choose([0, 9, 400])
        rule = WaitingServedRatio(
            seats, budget, chunked=chunked, kv_blocks=blocks, block_size=size,
            waiting_served_ratio=choose([0, 0.3, 1.2]), max_waiting_tokens=choose([0, 3, 20]),
        )  # fmt: skip
    else:
        rule = NewTokenRatio(
            seats, choose([3, 20, 400]), kv_blocks=blocks, block_size=size,
            max_prefill_tokens=choose([5, 40, 16_384]), init_new_token_ratio=choose([0.2, 0.7, 1]),
            min_new_token_ratio=choose([0, 0.098]), decay_steps=choose([1, 7, 600]),
            mixed=choose([False, False, True]),
        )  # fmt: skip
    service, workload = choose([TIED, EASY]), bs.ClosedLoop(choose([1, 3, 9]))
    if choose([True, True, False]):
        gap_s = 0.125 if service == TIED else 0.02
        workload = bs.Trace(np.cumsum(chance.choices([0, 0, 1, 1, 2, 5, 9], k=count)) * gap_s)
    scenario = bs.Scenario(
        workload, rule, service, servers=choose([1, 1, 2]), tokens=bs.Tokens(prompts, outputs, limit)
    )
    return draw_tokens(scenario, count, 0)


@settings(max_examples=300)
@given(plans())
def test_the_engine_is_equal_to_a_plain_loop(plan):
    log, oracle = token_engine.run(plan), naive(plan)
    for name, column in columns_of(oracle).items():
        if name != "step_blocks" or plan.scenario.rule.kv_blocks:
            assert np.array_equal(getattr(log, name), column), name
    assert (log.last_step >= 0).all()  # everyone is served
    # Every token is made once, and what went back was computed again.
    computed = sum(r.P + r.O - 1 + r.recomputed for r in oracle.all)
    assert log.step_tokens.sum() == computed


@pytest.mark.parametrize(
    ("rule", "arrivals_ms", "prompts", "outputs", "first_token_ms"),
    [
        # At 10 ms the second takes the whole chunk: nobody asks whether the third fits, and at 20 it does.
        (NewTokenRatio(9, 8, kv_blocks=20), (0, 5, 5), (4, 8, 2), (4, 2, 2), (10, 20, 30)),
        # At 30 ms the engine is empty, but not idle: the ratio, 0 by now, lets the third in at 40.
        (
            NewTokenRatio(9, 6, kv_blocks=12, init_new_token_ratio=1, min_new_token_ratio=0, decay_steps=1),
            (0, 5, 5), (2, 6, 2), (3, 5, 1), (10, 40, 50),
        ),
        # From 10 to 20 ms a token goes beside a prompt: the ratio stays 1, the third waits for memory.
        (
            NewTokenRatio(
                9, 8, kv_blocks=24, init_new_token_ratio=1, min_new_token_ratio=0, decay_steps=1, mixed=True
            ),
            (0, 5, 15), (4, 4, 3), (6, 4, 4), (10, 20, 60),
        ),
        # At 20 ms the engine runs empty right after the second joined: a new turn, the fourth joins at 35.
        (
            WaitingServedRatio(9, 8, chunked=True),
            (0, 5, 25, 30), (4, 2, 2, 2), (2, 1, 5, 3), (10, 20, 35, 45),
        ),
    ],
    ids=["SGLang: spent", "SGLang: not idle", "SGLang: mixed", "TGI: empty"],
)  # fmt: skip
def test_a_hand_made_case_gets_its_first_tokens_when_the_server_would_send_them(
    rule, arrivals_ms, prompts, outputs, first_token_ms
):
    workload = bs.Trace([ms / 1000 for ms in arrivals_ms])
    scenario = bs.Scenario(workload, rule, bs.StepTime(10, 0, 0), tokens=bs.Tokens(prompts, outputs))
    assert bs.simulate(scenario).first_token_s * 1000 == pytest.approx(first_token_ms)


@refusals
def test_what_a_server_does_not_have_is_refused():
    """
    NewTokenRatio(first="decode") -> first must be 'prefill' in a NewTokenRatio, got 'decode'
    NewTokenRatio(watermark_blocks=3) -> watermark_blocks must be 0
    NewTokenRatio(init_new_token_ratio=1.2) -> init_new_token_ratio must be at most 1
    NewTokenRatio(min_new_token_ratio=0.8) -> min_new_token_ratio must be at most 0.7
    WaitingServedRatio(reserve="step") -> reserve must be 'life'
    WaitingServedRatio(waiting_served_ratio=-1) -> waiting_served_ratio must be at least 0
    """


@pytest.mark.parametrize("rule", [NewTokenRatio(), WaitingServedRatio()], ids=repr)
def test_the_compiled_engine_does_not_have_them(rule, tmp_path):
    scenario = bs.Scenario(bs.Poisson(1), rule, EASY, tokens=bs.Tokens(9, 3))
    with pytest.raises(ValueError, match="'compiled' does not cover"):
        bs.simulate(scenario, 9, engine="compiled")
    assert bs.simulate(scenario, 9).engine == "simpy"
    scenario.to_toml(tmp_path / "it.toml")
    assert bs.Scenario.from_toml(tmp_path / "it.toml") == scenario
