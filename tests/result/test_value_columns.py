"""Values by rank: of every kind as of the plain column."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchsim.result.value_columns import AtRanks, OrderStatistics, Weighted

ROWS = st.lists(st.tuples(st.sampled_from([0.5, 1, 2, 2.5, 7]), st.integers(1, 4)), min_size=1, max_size=9)


@given(ROWS, ROWS)
def test_each_kind_has_the_values_of_the_sorted_column_and_counts_those_up_to_a_limit(rows, more):
    parts = [tuple(map(np.array, zip(*each, strict=True))) for each in (rows, more)]
    plain = np.sort(np.concatenate([np.repeat(*part) for part in parts]).astype(float))
    weighted = [Weighted(values.astype(float), counts) for values, counts in parts]
    ordered = [OrderStatistics(np.repeat(*part).astype(float)) for part in parts]
    ranks = np.arange(plain.size)
    for column in (weighted[0] + weighted[1], ordered[0] + ordered[1]):
        assert column.at_ranks_ms(ranks).tolist() == plain.tolist()
        for limit_ms in (0.4, 0.5, 2, 2.2, 7, 8):  # with those that are exactly the limit
            assert column.within(limit_ms) == np.count_nonzero(plain <= limit_ms)
    assert AtRanks(plain[::-1].copy()).at_ranks_ms(ranks).tolist() == plain.tolist()
