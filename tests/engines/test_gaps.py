import numpy as np

from batchsim.engines.gaps import BLOCK, GapFold, Gaps, in_blocks


def test_gaps_of_a_block_come_at_its_end():
    at_s = np.arange(2.5 * BLOCK)
    found = in_blocks(Gaps(at_s, np.full(at_s.size, 0.02), np.ones(at_s.size)))
    assert found.at_s.tolist() == [BLOCK - 1, 2 * BLOCK - 1, at_s[-1]]
    assert found.counts.tolist() == [BLOCK, BLOCK, BLOCK / 2]


def test_gaps_are_the_same_in_whatever_chunks_their_steps_come():
    generator = np.random.default_rng(1)
    server, finish_s = generator.integers(0, 3, 40), np.sort(generator.integers(1, 1000, 40) / 1000)
    count, late = generator.integers(0, 4, 40), np.array([[7, 20, 20, 33], [0, 0.01, 0.02, 0], [1, 2, 1, 5]])

    def folded(cuts):
        fold, found = GapFold(), []
        for first, end in zip([0, *cuts], [*cuts, 40], strict=True):
            own = (late[0] >= first) & (late[0] < end)
            some = slice(first, end)
            found.append(fold.gaps(first, finish_s[some], server[some], count[some], late[:, own]))
        return sorted(zip(*Gaps.joined(found), strict=True))

    whole = folded([])
    assert folded([1, 2, 13, 14, 30]) == folded([20]) == whole
    before_s = {}
    for at_s, number, several in zip(finish_s.tolist(), server.tolist(), count.tolist(), strict=True):
        assert not several or (at_s, round(at_s - before_s.get(number, 0.0), 9), several) in whole
        before_s[number] = at_s
