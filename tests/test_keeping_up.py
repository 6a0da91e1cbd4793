"""Which settings of a grid carry their traffic, told by few of them."""

import itertools

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines.saturation import saturated
from batchsim.study.kinds import keeping_up

TOKENS = bs.Tokens(bs.Lognormal(512, 1.0, 4096), bs.Lognormal(128, 0.8, 1024))
SEATS, BUDGETS = (4, 8, 16, 24, 32, 48, 64), (128, 256, 512, 1024, 2048, 4096)


def cells(rate_per_s, **others):
    step = bs.published("llama-3.1-8b/rtx-4090")
    one = bs.Scenario(bs.Poisson(rate_per_s), bs.Continuous(kv_blocks=2000), step, tokens=TOKENS)
    knobs = ("max_num_batched_tokens", "max_num_seqs")
    pairs = itertools.product(BUDGETS, SEATS)
    return [one.replace({**dict(zip(knobs, pair, strict=True)), **others}) for pair in pairs]


@pytest.mark.parametrize("rate_per_s", [1.0, 6.0, 9.0, 30.0])
def test_it_is_as_each_cell_says_of_itself(rate_per_s):
    asked = cells(rate_per_s)
    found = keeping_up(asked, len(SEATS))
    assert found.tolist() == [cell.stable for cell in asked]


def test_where_the_traffic_is_far_from_what_they_carry_few_are_measured():
    saturated.cache_clear()
    before = saturated.cache_info().misses
    asked = cells(4.0, block_size=8)
    found = keeping_up(asked, len(SEATS), roughly=True)
    assert 0 < found.sum() < found.size
    assert saturated.cache_info().misses - before < found.size * 2 / 3


def test_cells_that_are_refused_do_not_keep_up_and_disturb_no_other():
    asked = cells(6.0)
    whole = keeping_up(asked, len(SEATS), roughly=True)
    gone = [0, 3, len(asked) - 1]
    for place in gone:
        asked[place] = None
    found = keeping_up(asked, len(SEATS), roughly=True)
    assert not found[gone].any()
    kept = np.delete(np.arange(len(asked)), gone)
    assert (found[kept] == whole[kept]).all()
    assert not keeping_up([None] * 4, 2).any()


def test_a_limited_queue_stays_finite_at_any_rate():
    assert keeping_up([cell.replace(queue_limit=9) for cell in cells(500.0)], len(SEATS), roughly=True).all()
