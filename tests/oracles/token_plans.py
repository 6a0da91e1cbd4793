"""Random scenarios of token generation, from the memory of one request's need to plenty."""

import contextlib
import dataclasses
import math
import random

import numpy as np
from hypothesis import strategies as st
from oracles.naive_reuse import NaiveReuse
from oracles.naive_tokens import NaiveTokens
from oracles.naive_whole import NaiveWhole
from oracles.plans import ROUTINGS

import batchsim as bs
from batchsim.engines.token_log import PREEMPTIONS, draw_tokens

COSTS = [
    bs.StepTime(125, 0, 0),  # every time is a multiple of 1/8 s: all is tied
    bs.StepTime(2, 8, 0.1, 0.001, 0.00001),
    bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6).with_noise(0.5),
    bs.StepTime(0, 0, 1, 0.3, 0.07).with_noise(1, "exponential"),
    bs.StepTime(100, 0, 0),  # tied, too, though no float is 0.1
    # No step ends in the middle between two ticks of the clock, where the oracle rounds in another way.
    bs.StepTime(2, 8, 0.1, 0.001, 0.00001).speculative(3, 0.7, 4.3),
]


def with_captured(choose, service):
    """A step time with a random ladder of captured sizes, or with none and a time of launching."""
    ladder = choose([None, (1, 2, 4, 8), (1, 3, 7, 9, 16), (1, 5), (1,)])
    return dataclasses.replace(
        service, captured=ladder, captured_padding=choose([True, True, False]),
        captured_prompts=choose([True, False, False]), beyond_ms=choose([0, 11.3, 250]),
    )  # fmt: skip


@st.composite
def token_plans(draw_):
    """Plans of up to 20 requests: rules, memories, engines, clients, limits."""
    # All choices from one seed: several times as fast as one by one, and none is likelier than another.
    chance = random.Random(draw_(st.integers(0, 2**32 - 1)))
    choose, count = chance.choice, chance.randint(1, 20)
    scales = choose([(7, 1), (1, 1), (1, 3), (2, 3)])
    prompts, outputs = ([1 + chance.randrange(15) * scale for _ in range(count)] for scale in scales)
    limit = choose([None, None, max(outputs) + 5])
    service, kind = choose(COSTS), choose(["continuous"] * 6 + ["size or wait", "at least"])
    if kind == "continuous":
        rule = continuous(choose, prompts, outputs, limit)
    else:
        service = choose([service, bs.StepTime(20, 8, 0.1, 0.02, 0.001, ragged=True)])
        size = choose(range(1, 7))
        rule = bs.AtLeast(choose(range(1, size + 1)), size)
        if kind == "size or wait":
            rule = bs.SizeOrWait(size, choose([0, 0, 125, 250, 30, 100, 300, math.inf]))
    plain, service = service, with_captured(choose, service) if choose([True, False]) else service
    queue_limit = choose([None, None, None, None, 1, 3])
    if choose([True, False]):
        gap_s = {COSTS[0]: 0.125, COSTS[4]: 0.1}.get(plain) or choose([0.02, 0.3])
        workload = bs.Trace(np.cumsum(chance.choices([0, 0, 1, 1, 2, 5, 9], k=count)) * gap_s)
    else:
        think_s = choose([0, 0.5] if queue_limit is None else [0.5])
        workload = bs.ClosedLoop(rule.fewest_clients + choose(range(10)), think_s)
    scenario = bs.Scenario(
        workload, rule, service, servers=choose([1, 1, 2, 3]), queue_limit=queue_limit,
        timeout_ms=choose([None] * 5 + [0, 125, 400, 100]), tokens=bs.Tokens(prompts, outputs, limit),
    )  # fmt: skip
    return draw_tokens(scenario, count, choose(range(9)))


@st.composite
def crowded_plans(draw_):
    """Plans of three to five engines with the memory of about one request, so that victims move on."""
    chance = random.Random(draw_(st.integers(0, 2**32 - 1)))
    count = chance.randint(8, 20)
    prompts, outputs = ([1 + chance.randrange(most) for _ in range(count)] for most in (8, 30))
    blocks = max(-(-(prompt + output) // 2) for prompt, output in zip(prompts, outputs, strict=True))
    rule = bs.Continuous(chance.choice([3, 256]), chance.choice([7, 64]), kv_blocks=blocks, block_size=2)
    workload = bs.Trace(np.cumsum(chance.choices([0, 0, 1, 1], k=count)) * 0.125)
    servers, tokens = chance.choice([3, 4, 5]), bs.Tokens(prompts, outputs)
    return draw_tokens(bs.Scenario(workload, rule, COSTS[0], servers=servers, tokens=tokens), count, 0)


def with_replicas(plan, seed):
    """A plan of one queue as one of several replicas."""
    chance, count = random.Random(seed), plan.base.requests
    changes = {
        "replicas": chance.randint(2, 4), "stale_ms": chance.choice([0, 0, 1, 100, 125, 3.3]),
        "routing": chance.choice([*ROUTINGS, "least_tokens", "least_tokens"]),
    }  # fmt: skip
    if isinstance(plan.scenario.workload, bs.ClosedLoop):
        changes["clients"] = changes["replicas"] * plan.scenario.workload.clients
    scenario = plan.scenario.replace(changes)
    if chance.random() < 0.5:
        scaled = {
            "replicas": 1,
            "autoscale": autoscaler(chance.choice, plan),
            "workload": plan.scenario.workload,
        }
        with contextlib.suppress(
            ValueError
        ):  # it could not carry the traffic, or clients would wait for ever
            scenario = scenario.replace(scaled)
    plan = draw_tokens(scenario, count, chance.randrange(9))
    chances = np.array(chance.choices(range(12), k=2 * count)).reshape(count, 2) / 12
    return dataclasses.replace(plan, base=dataclasses.replace(plan.base, chances=chances))


def autoscaler(choose, plan):
    """An autoscaler whose evaluations meet arrivals, or steps that end."""
    gaps_s = np.diff(plan.base.arrival_s) if plan.base.arrival_s is not None else np.array([0.125])
    unit_s = max(choose([0.125, 0.02, *gaps_s[gaps_s > 0]]), 1e-3)
    signal, every_s, least = (
        choose(["utilisation", "queue", "p99"]),
        unit_s * choose([1, 2, 2.5]),
        choose([1, 2]),
    )
    target = choose(
        {"utilisation": [None, 0.1, 0.5, 0.9], "queue": [0.1, 0.5, 2], "p99": [30, 200, 1000]}[signal]
    )
    startup_s, hold_s = unit_s * choose(range(4)), every_s * choose(range(4))
    return bs.Autoscale(signal, target, least, least + choose([1, 2]), startup_s, every_s, hold_s)


def continuous(choose, prompts, outputs, limit):
    longest = max(prompt + output for prompt, output in zip(prompts, outputs, strict=True)) - 1
    reserve, memory = choose(["step", "step", "step", "life"]), choose([None, 1, 1, 1.3, 1.3, 2])
    most = longest if reserve == "step" or limit is None else max(prompts) + limit - 1
    chunked, watermark, size = choose([True, True, False]), choose([0, 0, 3]), choose([1, 2, 2, 16, 5000])
    return bs.Continuous(
        choose([1, 3, 256, 256]),
        choose([1, 7, 64, 2048]) if chunked else longest + choose([0, 9]),
        first=choose(["decode", "prefill"]),
        chunked=chunked,
        reserve=reserve,
        kv_blocks=None if memory is None else int(-(-most // size) * memory) + watermark,
        block_size=size,
        watermark_blocks=watermark,
        long_prefill_token_threshold=choose([0, 0, 5]),
    )


def cost_of(service):
    """The numbers of a step time in the oracle's words."""
    costs = dict(zip(("fixed", "weights", "per_token", "per_read", "per_pair"), service.cost, strict=True))
    costs |= {name: getattr(service, name) for name in ("draft", "draft_ms", "captured", "captured_prompts")}
    return costs | {
        "share": 1 / service.tokens_a_step, "padding": service.captured_padding, "beyond": service.beyond_ms,
    }  # fmt: skip


def lengths_of(plan):
    return list(zip(*(column.tolist() for column in (plan.prompts, plan.outputs, plan.limits)), strict=True))


def contents_of(plan):
    """The contents of the blocks that each request's prompt shares with others."""
    counts = plan.prefixes.counts(plan.paths, plan.prompts, getattr(plan.scenario.rule, "block_size", 1))
    return [
        [plan.prefixes.contents(path, block) for block in range(count)]
        for path, count in zip(plan.paths, counts, strict=True)
    ]


def naive(plan, replica=None):
    """The oracle's run of a plan, or one of its replicas, to which no request has come."""
    scenario, rule, service = plan.scenario, plan.scenario.rule, plan.scenario.service
    cost = cost_of(service)
    if isinstance(rule, bs.Continuous):
        of = {
            "seats": rule.max_num_seqs, "budget": rule.max_num_batched_tokens, "first": rule.first,
            "chunked": rule.chunked, "reserve": rule.reserve, "kv_blocks": rule.kv_blocks,
            "block_size": rule.block_size, "watermark": rule.watermark_blocks,
            "threshold": rule.long_prefill_token_threshold,
        }  # fmt: skip
    else:
        of = {"largest": rule.max_batch_size, "enough": rule.enough, "wait_s": rule.max_wait_ms / 1000,
              "ragged": service.ragged}  # fmt: skip
    draw, lengths, traffic = plan.noise(replica or 0), [], {}
    if replica is None:
        lengths = lengths_of(plan)
        if isinstance(scenario.workload, bs.ClosedLoop):
            traffic = {"clients": scenario.workload.clients, "think_s": plan.base.think_s.tolist()}
            traffic["due_s"] = None if plan.base.due_s is None else plan.base.due_s.tolist()
        else:
            traffic = {"arrivals_s": plan.base.arrival_s.tolist()}
    kind = NaiveWhole
    if isinstance(rule, bs.Continuous):
        kind = NaiveReuse if rule.reuses else NaiveTokens
    return kind(
        lengths, cost, of, **traffic, servers=scenario.servers, timeout_s=scenario.timeout_s,
        noise=draw and draw(20_000).tolist(),
        queue_limit=math.inf if scenario.queue_limit is None else scenario.queue_limit,
    )  # fmt: skip


STEPS = (
    "batch_start_s", "batch_finish_s", "batch_server", "batch_size", "step_tokens", "step_reads",
    "step_pairs", "step_running", "step_waiting", "step_blocks", "step_preempted",
)  # fmt: skip


def columns_of(naive_run):
    """The oracle's columns, by the names of a `TokenLog`."""
    columns = {"status": "status", "preemptions": "preemptions", "arrival_s": "arrival"}
    columns |= {f"preempted_{part}_s": part for part in ("before", "after")}
    columns = {name: np.array([getattr(r, of) for r in naive_run.all]) for name, of in columns.items()}
    columns |= dict(zip(PREEMPTIONS, np.array(naive_run.preemptions, int).reshape(-1, 4).T, strict=True))
    if naive_run.steps:
        columns |= dict(zip(STEPS, map(np.array, zip(*naive_run.steps, strict=True)), strict=True))
    return columns
