import numpy as np

from batchsim.engines.gaps import BLOCK, Gaps, in_blocks


def test_gaps_of_a_block_come_at_its_end():
    at_s = np.arange(2.5 * BLOCK)
    found = in_blocks(Gaps(at_s, np.full(at_s.size, 0.02), np.ones(at_s.size)))
    assert found.at_s.tolist() == [BLOCK - 1, 2 * BLOCK - 1, at_s[-1]]
    assert found.counts.tolist() == [BLOCK, BLOCK, BLOCK / 2]
