"""A's and B's goodput, and how sure the difference is."""

import dataclasses
import math

import pytest

import batchsim as bs
from batchsim.result.comparison import compare
from batchsim.view.explorer.state import DEFAULTS
from batchsim.view.explorer.tokens import goodput_difference
from batchsim.view.pictures.data import ViewData

SCENARIO = DEFAULTS["tokens"].scenario()


def data(requests, **changes):
    result = bs.simulate(SCENARIO.replace(**changes), requests)
    return ViewData(result, ttft_ms=400, tpot_ms=45)


def compared(a, b):
    comparison = compare(a.result, b.result, ["output_tokens_per_s"], silent=True)
    return goodput_difference(dataclasses.replace(b, pinned=a, comparison=comparison))


def test_it_is_that_of_each_run_and_their_difference_has_an_interval():
    a, b = data(20_000), data(20_000, max_num_batched_tokens=192)
    row = compared(a, b)
    assert (row.a, row.b) == (pytest.approx(a.goodput_per_s), pytest.approx(b.goodput_per_s))
    assert row.difference == row.b - row.a
    assert row.low < row.difference < row.high < 0


def test_two_that_are_the_same_do_not_differ():
    row = compared(data(20_000), data(20_000))
    assert (row.difference, row.low, row.high) == (0, 0, 0)


def test_a_run_that_is_too_short_has_no_interval_and_one_without_objectives_no_goodput():
    a, b = data(200), data(200, max_num_seqs=30)
    assert math.isnan(compared(a, b).low)
    assert goodput_difference(dataclasses.replace(b, pinned=a, ttft_ms=None, tpot_ms=None)) is None
