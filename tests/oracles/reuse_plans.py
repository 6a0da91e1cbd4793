"""Plans of token generation with a prefix cache, and with prompts that begin alike."""

import dataclasses
import random

from hypothesis import strategies as st
from oracles import token_plans

import batchsim as bs
from batchsim.engines.token_log import draw_tokens

SHORT = token_plans.token_plans().filter(
    lambda plan: isinstance(plan.scenario.rule, bs.Continuous) and plan.scenario.rule.kv_blocks is not None
)


def reusing(plan, chance):
    """The plan with a prefix cache, and with prompts that begin alike."""
    scenario, choose = plan.scenario.replace(prefix_reuse=True, reserve="step"), chance.choice
    count, size = plan.base.requests, scenario.rule.block_size
    ids = [[chance.randrange(2) for _ in range(chance.randrange(5))] for _ in range(count)]
    prefixes = choose([
        None, bs.PrefixGroups(choose([1, 2, 5]), choose([1, 3, 8, 40]) * choose([1, size]), choose([0, 1])),
        bs.HashIds(ids, choose([1, 2, 6]) * size),
    ])  # fmt: skip
    scenario = scenario.replace(tokens=dataclasses.replace(scenario.tokens, prefixes=prefixes))
    return draw_tokens(scenario, count, 3)


def plans(most_servers=3):
    # All choices from one seed, as in `token_plans`.
    def made(plan, seed):
        servers = min(plan.scenario.servers, most_servers)
        base = dataclasses.replace(plan.base, scenario=plan.scenario.replace(servers=servers))
        return reusing(dataclasses.replace(plan, base=base), random.Random(seed))

    return st.builds(made, SHORT, st.integers(0, 2**32 - 1))
