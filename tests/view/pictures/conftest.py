"""Fixtures of several files."""

import pytest
from pictures import BASE, data_of
from token_pictures import GRIDS, LIMITS, TOKENS, token_data_of

import batchsim as bs
from batchsim.study.surface import surface


@pytest.fixture(scope="session")
def cases():
    plain = data_of(BASE)
    return {
        "plain": plain,
        "slower": data_of(BASE.replace(rate_per_s=300, max_wait_ms=60, max_batch_size=32), objective_ms=None),
        "overloaded": data_of(BASE.replace(rate_per_s=3000)),
        "pinned": data_of(BASE.replace(max_wait_ms=0), pinned=plain),
        "moved": data_of(BASE.replace(max_batch_size=32, max_wait_ms=2), before=plain),
        "both overloaded": data_of(
            BASE.replace(rate_per_s=3000), pinned=data_of(BASE.replace(rate_per_s=3500))
        ),
        "at least": data_of(BASE.replace(rule=bs.AtLeast(4, 16))),
        "closed": data_of(BASE.replace(workload=bs.ClosedLoop(40, 0.005))),
        "losing": data_of(BASE.replace(rate_per_s=3000, queue_limit=20)),
        "late": data_of(BASE.replace(rate_per_s=3000, timeout_ms=8)),
        "nobody": data_of(BASE.replace(timeout_ms=0)),
    }


@pytest.fixture(scope="session")
def token_cases():
    objectives = {"ttft_objective_ms": 300.0, "tpot_objective_ms": 20.0}
    GRIDS[:] = [surface(TOKENS, (2, 8), (32, 64), 100, **given) for given in ({}, objectives)]
    plain = token_data_of(TOKENS, **LIMITS)
    return {
        "plain": plain,
        "free": token_data_of(TOKENS.replace(kv_blocks=None, rate_per_s=4)),
        "overloaded": token_data_of(TOKENS.replace(rate_per_s=60), **LIMITS),
        "moved": token_data_of(TOKENS.replace(max_num_batched_tokens=32), before=plain, **LIMITS),
        "pinned": token_data_of(TOKENS.replace(max_num_seqs=6), pinned=plain, **LIMITS),
        "short": token_data_of(TOKENS.replace(kv_blocks=40, rate_per_s=14), **LIMITS),
        "two": token_data_of(TOKENS.replace(servers=2, kv_blocks=32, max_num_seqs=256), ttft_ms=100.0),
        "whole": token_data_of(TOKENS.replace(rule=bs.SizeOrWait(6, 100)), **LIMITS),
        "single": token_data_of(TOKENS.replace(tokens=bs.Tokens(bs.Uniform(2, 90), 1)), tpot_ms=10.0),
        "closed": token_data_of(TOKENS.replace(workload=bs.ClosedLoop(10, 0.1))),
        "losing": token_data_of(TOKENS.replace(rate_per_s=60, queue_limit=3), **LIMITS),
        "nobody": token_data_of(TOKENS.replace(rule=bs.SizeOrWait(6, 100), timeout_ms=0), 5, **LIMITS),
    }
