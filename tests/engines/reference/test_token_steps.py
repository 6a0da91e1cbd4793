"""Rules of single servers, in the SimPy engine: a plain loop of each gives the same, step by step."""

import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.naive_servers import NaiveSglang, NaiveTensorrt, NaiveTgi
from oracles.token_plans import columns_of, cost_of, token_plans
from refusals import refusals

import batchsim as bs
from batchsim.engines.log import Status
from batchsim.engines.reference import token_engine
from batchsim.engines.token_log import draw_tokens
from batchsim.scenario.rules.continuous import BatchWait, NewTokenRatio, WaitingServedRatio

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
    if isinstance(rule, BatchWait):
        loop, more = NaiveTensorrt, {
            "iters": rule.batch_wait_timeout_iters, "ratio": rule.batch_wait_max_tokens_ratio,
            "ms": rule.batch_wait_timeout_ms, "overlap": rule.overlap, "drafts": scenario.service.draft,
            "reserve": rule.reserve, "watermark": rule.watermark_blocks,
            "threshold": rule.long_prefill_token_threshold,
        }  # fmt: skip
    elif isinstance(rule, WaitingServedRatio):
        loop, more = (
            NaiveTgi,
            {"ratio": rule.waiting_served_ratio, "patience": rule.max_waiting_tokens, "reserve": "life"},
        )
    else:
        loop, more = NaiveSglang, {
            "ratio": rule.init_new_token_ratio, "least": rule.min_new_token_ratio, "decay": rule.decay_steps,
            "entry": rule.max_prefill_tokens, "mixed": rule.mixed, "delays": rule.prefill_delayer,
            "delayer": (rule.queue_min_ratio, rule.max_delay_ms / 1000, rule.token_usage_low_watermark),
        }  # fmt: skip
    lengths = (column.tolist() for column in (plan.prompts, plan.outputs, plan.limits))
    closed, draw = isinstance(scenario.workload, bs.ClosedLoop), plan.noise(0)
    return loop(
        list(zip(*lengths, strict=True)), cost, of | more,
        arrivals_s=() if closed else plan.base.arrival_s.tolist(),
        clients=scenario.workload.clients if closed else 0,
        think_s=plan.base.think_s.tolist() if closed else None, servers=scenario.servers,
        due_s=None if plan.base.due_s is None else plan.base.due_s.tolist(), timeout_s=scenario.timeout_s,
        noise=draw and draw(20_000).tolist(),
        queue_limit=math.inf if scenario.queue_limit is None else scenario.queue_limit,
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
            mixed=choose([False, False, True]), **(delays(choose, blocks) if choose([True, False]) else {}),
        )  # fmt: skip
    service, workload = choose([TIED, EASY]), bs.ClosedLoop(choose([1, 3, 9]))
    if choose([True, True, False]):
        gap_s = 0.125 if service == TIED else 0.02
        workload = bs.Trace(np.cumsum(chance.choices([0, 0, 1, 1, 2, 5, 9], k=count)) * gap_s)
    scenario = bs.Scenario(
        workload, rule, service, servers=choose([1, 1, 2]), tokens=bs.Tokens(prompts, outputs, limit)
    )
    return draw_tokens(scenario, count, 0)


def delays(choose, blocks):
    """The settings of a prefill delayer."""
    return {
        "prefill_delayer": True, "queue_min_ratio": choose([0, 0.3, 0.5, 1, 2]),
        "max_delay_ms": choose([0, 20, 125, 375, 5000]),
        "token_usage_low_watermark": choose([0, 0.3, min(choose(range(1, 9)) / blocks, 1)]) if blocks else 0,
    }  # fmt: skip


@st.composite
def batch_waits(draw_):
    """Plans of `token_plans` with the waits of TensorRT-LLM: also noise, clients, limits and timeouts."""
    plan = draw_(token_plans().filter(lambda plan: getattr(plan.scenario.rule, "first", "") == "decode"))
    choose = random.Random(draw_(st.integers(0, 2**32 - 1))).choice
    fields = {field.name for field in dataclasses.fields(bs.Continuous)}
    given_ = {name: getattr(plan.scenario.rule, name) for name in fields if name != "_"}
    few = choose(range(1, 25)) / given_["max_num_batched_tokens"]  # tokens
    rule = BatchWait(
        **given_, batch_wait_timeout_iters=choose([0, 1, 2, 5, 20, 20]),
        batch_wait_max_tokens_ratio=choose([0, 0.5, 1, 1, min(few, 1), min(few, 1), min(few, 1)]),
        batch_wait_timeout_ms=choose([0, 0, 1, 20, 125, 250, 300]), overlap=choose([True, False]),
    )  # fmt: skip
    return dataclasses.replace(
        plan, base=dataclasses.replace(plan.base, scenario=plan.scenario.replace(rule=rule))
    )


def assert_equal_to_the_plain_loop(plan):
    log, oracle = token_engine.run(plan), naive(plan)
    for name, column in columns_of(oracle).items():
        if name != "step_blocks" or plan.scenario.rule.kv_blocks:
            assert np.array_equal(getattr(log, name), column), name
    assert ((log.last_step >= 0) == (log.status == Status.SERVED)).all()  # nobody is forgotten
    return log, oracle


@settings(max_examples=100, deadline=None)
@given(batch_waits())
def test_the_waits_are_those_of_a_plain_loop(plan):
    assert_equal_to_the_plain_loop(plan)


@pytest.mark.rare("the same, in ten times as many scenarios")
@pytest.mark.dear("a thousand scenarios, of the waits and of the other rules")
@settings(max_examples=1000, deadline=None)
@given(st.one_of(batch_waits(), plans()))
def test_so_they_are_in_a_thousand_scenarios(plan):
    assert_equal_to_the_plain_loop(plan)


@settings(max_examples=300)
@given(plans())
def test_the_engine_is_equal_to_a_plain_loop(plan):
    log, oracle = assert_equal_to_the_plain_loop(plan)
    # Every token is made once, and what went back was computed again.
    computed = sum(r.P + r.O - 1 + r.recomputed for r in oracle.all)
    assert log.step_tokens.sum() == computed


# A rule that waits holds, or waits, for as long as its limits say: seen in a run's log, without a model.


@st.composite
def ample(draw_, rule_of):
    """Plans of a server that has memory and a budget for all: only the rule's wait keeps them back."""
    chance = random.Random(draw_(st.integers(0, 2**32 - 1)))
    choose, count = chance.choice, chance.randint(1, 30)
    prompts, outputs = ([1 + chance.randrange(most) for _ in range(count)] for most in (40, 25))
    gap_s = 0.125 if (service := choose([TIED, EASY])) == TIED else 0.02
    arrivals = bs.Trace(np.cumsum(chance.choices([0, 0, 1, 1, 2, 5, 9], k=count)) * gap_s)
    return draw_tokens(
        bs.Scenario(arrivals, rule_of(choose), service, tokens=bs.Tokens(prompts, outputs)), count, 0
    )


def begun(plan):
    """Return the log of a plan, and each step's begin, those who begin in it, go on, and still wait."""
    log, moments = token_engine.run(plan), []
    for step, begin_s in enumerate(log.batch_start_s):
        here = log.batch_index == step
        wait = (plan.base.arrival_s <= begin_s) & (log.batch_index > step)
        goes_on = (log.batch_index < step) & (log.last_step >= step)
        moments.append((begin_s, here, goes_on, wait))
    return log, moments


def assert_no_idle_moment(plan, log, moments, ready_s=lambda step, present_s: -math.inf):
    """Check that each step begins once the last one is over, someone is there, and `ready_s` is past."""
    arrival_s = plan.base.arrival_s
    for step, (begin_s, here, goes_on, wait) in enumerate(moments):
        over_s = log.batch_finish_s[step - 1] if step else -math.inf
        present_s = -math.inf if goes_on.any() else arrival_s[here | wait].min()
        assert begin_s == pytest.approx(max(over_s, present_s, ready_s(step, present_s)), abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(ample(lambda choose: BatchWait(
    choose([2, 256]), 4096, batch_wait_timeout_iters=0, batch_wait_timeout_ms=choose([0, 1, 20, 125, 300]),
    overlap=choose([True, False]),
)))  # fmt: skip
def test_a_batch_wait_idles_only_for_its_time_and_until_its_seats_have_new_requests(plan):
    (log, moments), rule = begun(plan), plan.scenario.rule

    def ready_s(step, present_s):
        if not rule.batch_wait_timeout_ms:
            return -math.inf
        last = (log.batch_start_s if rule.overlap else log.batch_finish_s)[step - 1] if step else -math.inf
        seen_s = log.batch_start_s[step - 1] if step else -math.inf
        unseen_s = plan.base.arrival_s[plan.base.arrival_s > seen_s][rule.max_num_seqs - 1 :]
        return min(max(last, present_s) + rule.batch_wait_timeout_ms / 1000, *unseen_s[:1], math.inf)

    assert_no_idle_moment(plan, log, moments, ready_s)


@settings(max_examples=100, deadline=None)
@given(ample(lambda choose: BatchWait(
    256, 4096, batch_wait_timeout_iters=choose([1, 2, 5, 20]),
    batch_wait_max_tokens_ratio=choose([*range(1, 60), 4096]) / 4096,
)))  # fmt: skip
def test_a_batch_wait_holds_prompts_until_it_has_tokens_or_has_held_them_long_enough(plan):
    (log, moments), rule, held = begun(plan), plan.scenario.rule, 0
    assert_no_idle_moment(plan, log, moments)
    for _, here, goes_on, wait in moments:
        if not goes_on.any() or not (here | wait).any():
            assert not wait.any()  # nobody waits where there is nothing to wait beside
            continue
        tokens = plan.prompts[here | wait].sum() + goes_on.sum()
        enough = tokens >= rule.batch_wait_max_tokens_ratio * rule.max_num_batched_tokens
        due = enough or held == rule.batch_wait_timeout_iters
        assert (wait.any(), here.any()) == (not due, due)
        held = 0 if due else held + 1


@settings(max_examples=100, deadline=None)
@given(ample(lambda choose: NewTokenRatio(
    choose([6, 256]), 4096, max_prefill_tokens=4096, prefill_delayer=True, mixed=choose([True, False]),
    queue_min_ratio=choose([0, 0.3, 0.5, 1, 2]), max_delay_ms=choose([0, 20, 125, 375, 5000]),
)))  # fmt: skip
def test_a_prefill_delayer_holds_prompts_until_enough_wait_or_its_time_is_over(plan):
    (log, moments), rule, most, since_s = begun(plan), plan.scenario.rule, 0, math.nan
    assert_no_idle_moment(plan, log, moments)
    for begin_s, here, goes_on, wait in moments:
        runs, queued = goes_on.sum(), (here | wait).sum()
        if runs < rule.max_num_seqs and queued:
            few = queued < min(int(runs * rule.queue_min_ratio), most)
            over = begin_s >= since_s + rule.max_delay_ms / 1000 - 1e-9
            due = not (few and not over) and rule.max_num_seqs - runs >= most
            if not here.any():
                assert not due  # what is due does not wait
                since_s = begin_s if math.isnan(since_s) else since_s
            else:
                assert due or math.isnan(since_s)  # what has been held back does not start before
                since_s = math.nan
        else:
            since_s = math.nan
        most = max(most, here.sum())


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
        # At 10 ms the third of the three that are there may not wait, as the first no of all is a yes. From
        # 30 on the fifth does, with fewer than three in the queue; at 60 it has been held back for 30 ms.
        (
            NewTokenRatio(9, 99, prefill_delayer=True, queue_min_ratio=1, max_delay_ms=25),
            (0, 0, 0, 5, 25), (4, 4, 4, 4, 4), (12, 12, 12, 12, 3), (10, 10, 10, 20, 70),
        ),
        # At 80 ms one of four seats is free, but two prompts have shared a step: the fifth waits for two.
        (
            NewTokenRatio(4, 99, prefill_delayer=True),
            (0, 0, 5, 15, 25), (4, 4, 4, 4, 4), (6, 8, 9, 9, 9), (10, 10, 20, 30, 110),
        ),
        # The second has three steps to wait, and the third comes meanwhile.
        (
            BatchWait(9, 99, batch_wait_timeout_iters=3, batch_wait_max_tokens_ratio=0.5),
            (0, 5, 15), (4, 4, 4), (9, 1, 1), (10, 50, 50),
        ),
        # At 20 ms the step has 9 tokens, enough; a third prompt, without an answer that runs, does not wait.
        (
            BatchWait(9, 90, batch_wait_timeout_iters=3, batch_wait_max_tokens_ratio=0.1),
            (0, 5, 15, 45), (4, 4, 4, 2), (3, 1, 1, 1), (10, 30, 30, 55),
        ),
        # Each number has an effect only with the other.
        (BatchWait(9, 99, batch_wait_timeout_iters=3), (0, 5, 15), (4, 4, 4), (9, 1, 1), (10, 20, 30)),
        (BatchWait(9, 99, batch_wait_max_tokens_ratio=1), (0, 5, 15), (4, 4, 4), (9, 1, 1), (10, 20, 30)),
        # The engine waits for 25 ms before each step, and the last one's 10 ms count only with `overlap`.
        (BatchWait(9, 99, batch_wait_timeout_ms=25), (0, 5, 30), (4, 4, 4), (3, 1, 1), (35, 35, 60)),
        (
            BatchWait(9, 99, batch_wait_timeout_ms=25, overlap=False),
            (0, 5, 30), (4, 4, 4), (3, 1, 1), (35, 35, 70),
        ),
        # It waits no longer once as many requests have come as there are seats.
        (BatchWait(2, 99, batch_wait_timeout_ms=25), (0, 5, 5), (4, 4, 4), (1, 1, 1), (15, 15, 40)),
    ],
    ids=[
        "SGLang: spent", "SGLang: not idle", "SGLang: mixed", "TGI: empty", "SGLang: few wait",
        "SGLang: few seats", "TensorRT-LLM: steps", "TensorRT-LLM: tokens", "TensorRT-LLM: steps alone",
        "TensorRT-LLM: a ratio alone", "TensorRT-LLM: ms", "TensorRT-LLM: ms, no overlap",
        "TensorRT-LLM: enough",
    ],
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
    NewTokenRatio(queue_min_ratio=-0.1) -> queue_min_ratio must be at least 0, got -0.1
    NewTokenRatio(max_delay_ms=-1) -> max_delay_ms must be at least 0, got -1
    NewTokenRatio(token_usage_low_watermark=2, kv_blocks=9) -> must be at most 1, got 2
    NewTokenRatio(token_usage_low_watermark=0.5) -> memory must be limited with token_usage_low_watermark, got
    NewTokenRatio(prefill_delayer=1) -> TypeError: prefill_delayer must be True or False, got 1
    BatchWait(first="prefill") -> first must be 'decode' in a BatchWait, got 'prefill'
    BatchWait(prefix_reuse=True) -> prefix_reuse must be False in a BatchWait, got True
    BatchWait(batch_wait_timeout_iters=-1) -> batch_wait_timeout_iters must be at least 0, got -1
    BatchWait(batch_wait_max_tokens_ratio=1.5) -> must be at most 1, got 1.5
    BatchWait(batch_wait_timeout_ms=-1) -> batch_wait_timeout_ms must be at least 0, got -1
    BatchWait(overlap="no") -> TypeError: overlap must be True or False, got 'no'
    WaitingServedRatio(reserve="step") -> reserve must be 'life'
    WaitingServedRatio(waiting_served_ratio=-1) -> waiting_served_ratio must be at least 0
    """


@pytest.mark.parametrize("rule", [BatchWait(), NewTokenRatio(), WaitingServedRatio()], ids=repr)
def test_the_compiled_engine_does_not_have_them(rule, tmp_path):
    scenario = bs.Scenario(bs.Poisson(1), rule, EASY, tokens=bs.Tokens(9, 3))
    with pytest.raises(ValueError, match="'compiled' does not cover"):
        bs.simulate(scenario, 9, engine="compiled")
    assert bs.simulate(scenario, 9).engine == "simpy"
    scenario.to_toml(tmp_path / "it.toml")
    assert bs.Scenario.from_toml(tmp_path / "it.toml") == scenario
