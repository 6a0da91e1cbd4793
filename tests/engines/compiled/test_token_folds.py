"""The passes over folded steps, against NumPy's whole columns."""

import numpy as np
import pytest

from batchsim.engines.compiled.token_folds import note_blocks, note_ended
from batchsim.engines.totals import binned


@pytest.mark.parametrize("until_s", [0.4, 2.0])
def test_what_has_ended_by_each_arrival_is_the_sum_of_all_rows_until_then(until_s):
    rng = np.random.default_rng(0)
    ending = np.round(rng.random((3, 500)), 2)  # many rows end at one time
    arrival_s = np.sort(np.round(rng.random(200), 2) * min(until_s, 1.0))
    order, begun = np.argsort(ending[0], kind="stable"), np.array([3.0, 5.0])
    ended, before, last = begun.copy(), np.empty((2, 200)), np.empty(2)
    passed = note_ended(ending, order, arrival_s, until_s, ended, before, last)
    known = [begun + ending[1:, ending[0] <= by_s].sum(axis=1) for by_s in arrival_s]
    np.testing.assert_allclose(before, np.array(known).T, rtol=1e-12)
    np.testing.assert_allclose(ended, begun + ending[1:, ending[0] <= until_s].sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(last, begun + ending[1:].sum(axis=1), rtol=1e-12)
    assert passed == np.count_nonzero(ending[0] <= until_s)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 100])
def test_a_block_has_a_row_for_each_bin_with_the_sum_of_its_counts(rows):
    rng, block = np.random.default_rng(rows), 8
    at_s, gap_s = rng.random(rows), rng.choice([0.02, 0.020000001, 0.5, 0.0], rows)
    counts, order = rng.integers(1, 9, rows).astype(float), np.argsort(at_s, kind="stable")
    found = np.empty((3, rows))
    used = note_blocks(at_s, gap_s, counts, order, block, found)
    known = []
    for begin in range(0, rows, block):
        own = order[begin : begin + block]
        bins = binned(gap_s[own])
        known += [(at_s[own].max(), each, counts[own][bins == each].sum()) for each in np.unique(bins)]
    assert found[:, :used].T.tolist() == [list(row) for row in known]
