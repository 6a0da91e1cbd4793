"""Seats of a run are those of an engine that is watched at every step."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.token_plans import crowded_plans, token_plans
from oracles.watched import Watched
from refusals import refusals

import batchsim as bs
from batchsim.engines.compiled import token_engine
from batchsim.engines.token_log import draw_tokens
from batchsim.result import Result
from batchsim.result.seats import Seats, padding, seats
from batchsim.result.token_run import TokenRun
from batchsim.scenario.rules.continuous import BatchWait, NewTokenRatio, WaitingServedRatio

EASY = bs.StepTime(2, 8, 0.1, 0.001, 0.00001)
CARD = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)  # an 8B model on an RTX 4090


def watched(plan):
    """Return the seats of a plan's run, and what was noted of it."""
    engine = Watched(plan)
    log = engine.run()
    found = seats(Result((TokenRun(plan.scenario, log),), 0, ""))
    columns = found.request, found.server, found.begin_s, found.first_token_s, found.end_s, found.preempted
    return found, sorted(zip(*(column.tolist() for column in columns), strict=True)), sorted(engine.sittings)


def assert_seated(found):
    """Nobody shares a seat, and each has the lowest that is free."""
    for i in range(len(found)):
        here = found.server == found.server[i]
        taken = here & (found.begin_s <= found.begin_s[i]) & (found.end_s > found.begin_s[i])
        taken[i:] = False  # who sits down at once does so in order
        assert {*found.seat[taken].tolist()} >= {*range(found.seat[i])}
        assert found.seat[i] not in found.seat[taken]


@settings(max_examples=150, deadline=None)
@given(st.one_of(token_plans(), crowded_plans()))
def test_who_sits_where_is_what_the_engine_does(plan):
    found, told, seen = watched(plan)
    assert told == seen
    assert_seated(found)


@st.composite
def reusing_plans(draw_):
    """Plans of tight memory, under rules that the SimPy engine alone has."""
    chance = random.Random(draw_(st.integers(0, 2**32 - 1)))
    choose, count = chance.choice, chance.randint(1, 30)
    prompts, outputs = ([1 + chance.randrange(15) * choose([1, 3]) for _ in range(count)] for _ in range(2))
    limit = choose([None, max(outputs) + 9])
    longest = max(map(sum, zip(prompts, outputs, strict=True))) if limit is None else max(prompts) + limit
    size, seats_ = choose([1, 2, 16]), choose([2, 4, 256])
    blocks = int(-(-longest // size) * choose([1, 1.3, 2, 4]))
    kind = choose(["sglang", "sglang", "tgi", "vllm", "tensorrt"])
    if kind == "tgi":
        rule = WaitingServedRatio(seats_, longest, kv_blocks=blocks, block_size=size)
    elif kind == "tensorrt":
        rule = BatchWait(
            seats_, 400, kv_blocks=blocks, block_size=size, batch_wait_timeout_iters=choose([2, 9]),
            batch_wait_max_tokens_ratio=choose([0.05, 1]), batch_wait_timeout_ms=choose([0, 30]),
        )  # fmt: skip
    elif kind == "vllm":
        rule = bs.Continuous(seats_, 400, kv_blocks=blocks, block_size=size, prefix_reuse=True)
    else:
        rule = NewTokenRatio(
            seats_, choose([3, 20, 400]), kv_blocks=blocks, block_size=size,
            mixed=choose([False, False, True]), init_new_token_ratio=choose([0.2, 0.7]),
            prefill_delayer=choose([False, True]), queue_min_ratio=0.5,
        )  # fmt: skip
    workload = bs.Trace(np.cumsum(chance.choices([0, 0, 1, 1, 2, 5, 9], k=count)) * 0.02)
    tokens = bs.Tokens(prompts, outputs, limit)
    return draw_tokens(bs.Scenario(workload, rule, EASY, servers=choose([1, 1, 2]), tokens=tokens), count, 0)


@settings(max_examples=100, deadline=None)
@given(reusing_plans())
def test_so_it_is_under_the_rules_of_single_servers(plan):
    found, told, seen = watched(plan)
    assert told == seen
    assert_seated(found)


def run(rule, count=2000, rate_per_s=3.0, **knobs):
    tokens = bs.Tokens(bs.Lognormal(500, 1, at_most=4000), bs.Geometric(200))
    scenario = bs.Scenario(bs.Poisson(rate_per_s), rule, CARD, tokens=tokens)
    return bs.simulate(scenario.replace(**knobs), count)


def test_a_whole_batch_keeps_every_seat_until_its_longest_answer_ends():
    result = run(bs.SizeOrWait(8, 500), 200)
    found = seats(result)
    assert found.request.tolist() == [*range(200)]
    last = found.last_token_s < found.end_s
    assert 0.7 < last.mean() < 0.95
    for batch in range(3):
        members = np.flatnonzero(result.batch_index == result.batch_index[found.request[8 * batch]])
        assert {*found.seat[members]} == {*range(members.size)}
        longest = members[result.log.output_tokens[members].argmax()]
        assert found.last_token_s[longest] == found.end_s[longest]
    # A step a token: the first at the end of the prompts' step.
    steps = result.steps.finish_s
    made = np.searchsorted(steps, found.last_token_s) - np.searchsorted(steps, found.first_token_s) + 1
    assert np.array_equal(made, result.log.output_tokens)


def test_the_useful_share_is_what_is_neither_padded_nor_computed_again():
    whole, ample, short = (
        seats(run(rule))
        for rule in (bs.SizeOrWait(8, math.inf), bs.Continuous(64), bs.Continuous(64, kv_blocks=500))
    )
    assert ample.useful_share == 1
    assert 0.95 < short.useful_share < 1
    # Of eight geometric answers the longest is 1 + 1/2 + ... + 1/8 times as long as the mean.
    telling = (whole.last_token_s - whole.first_token_s).sum() / (whole.end_s - whole.first_token_s).sum()
    assert telling == pytest.approx(1 / sum(1 / k for k in range(1, 9)), rel=0.05)
    assert telling < whole.useful_share < telling + 0.1  # with the prompts


def test_what_is_computed_again_is_wasted_however_the_sitting_ends():
    # A request sits for 4 s; it sits again for 4 s, of which its tokens are computed again in 2.
    begin_s, first_s, end_s = np.array([[0.0, 5.0], [1.0, 7.0], [4.0, 9.0]])
    no, again = np.zeros(2, bool), np.array([False, True])
    zeros = np.zeros(2, int)
    found = Seats(zeros, zeros, zeros, begin_s, first_s, end_s, end_s, ~again, again)
    assert found.useful_share == Seats(**vars(found) | {"preempted": no}).useful_share == 0.75


def test_a_stretch_has_the_sittings_that_touch_it():
    found = seats(run(bs.Continuous(64), 100))
    within = found.within(5.0, 6.0)
    assert 0 < len(within) < len(found)
    assert (within.begin_s < 6).all()
    assert (within.end_s > 5).all()


REQUESTS = bs.Scenario(bs.Poisson(9), bs.SizeOrWait(), bs.Affine(5, 1))


@refusals
def test_what_has_no_seats_is_refused():
    """
    seats(3) -> TypeError: must be a Result
    seats(bs.simulate(REQUESTS, 9)) -> tokens
    seats(bs.simulate(run(bs.Continuous(4), 9).scenario, 9, replications=2)) -> one run
    seats(bs.simulate(run(bs.Continuous(4), 9).scenario, 9, keep="summary")) -> columns
    """


@settings(max_examples=60)
@given(token_plans())
def test_padding_fills_each_step_up_to_its_captured_size_in_the_lowest_empty_seats(plan):
    scenario = plan.scenario
    result = Result((TokenRun(scenario, token_engine.run(plan)),), 0, "")
    found, log = seats(result), result.log
    end_s = float(log.batch_finish_s.max(initial=0)) + 1
    more = padding(result, found, 0.0, end_s, {server: server for server in range(scenario.servers)})
    captured = scenario.service.captured or ()
    for step in range(log.steps):
        begin_s, server, rows = log.batch_start_s[step], log.batch_server[step], int(log.batch_size[step])
        taken, computed = (
            {
                *each.seat[
                    (each.server == server) & (each.begin_s <= begin_s) & (each.end_s > begin_s)
                ].tolist()
            }
            for each in (found, more)
        )
        usable = captured if scenario.service.captured_prompts else (
            [size for size in captured if size <= scenario.rule.largest_batch]
        )  # fmt: skip
        fits = [
            size for size in usable if size >= rows and (scenario.service.captured_padding or size == rows)
        ]
        alone = log.step_tokens[step] == rows
        room = scenario.rule.largest_batch - len(taken)
        assert len(computed) == (min(min(fits) - rows, room) if alone and fits else 0)
        empty = [seat for seat in range(200) if seat not in taken]
        assert sorted(computed) == empty[: len(computed)]
