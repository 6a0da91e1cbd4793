"""Which settings of a grid carry their traffic, of token generation: few of them are measured for it."""

import functools
import math
import os
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np

from batchsim.scenario import Scenario
from batchsim.scenario.saturation import load_to_tell

APART = 0.15  # by which no setting within a block exceeds all its corners, nor falls below them


def keeping_up(cells: Sequence[Scenario | None], columns: int, roughly: bool = False) -> np.ndarray:
    """Return which cells' queues stay finite, as `Scenario.stable` says, row by row; not those of None.

    A block of cells is taken as a whole where its corners agree by far, else in quarters. `roughly`: those
    within some 3 % of saturation may be wrong.
    """
    from batchsim.engines.compiled.grid_runs import in_threads  # Numba loads on first use

    rows = len(cells) // columns
    found = np.zeros((rows, columns), bool)
    loads: dict[tuple[int, int], float] = {}
    blocks = [(0, rows - 1, 0, columns - 1)]
    while blocks:
        corners = {(row, column) for *ends, left, right in blocks for row in ends for column in (left, right)}
        new = [(corner, cells[corner[0] * columns + corner[1]]) for corner in sorted(corners - loads.keys())]
        loads |= {corner: math.nan for corner, cell in new if cell is None}
        asked = [(corner, cell) for corner, cell in new if cell is not None]
        jobs = min(os.cpu_count() or 1, len(asked))
        parts = [asked[first::jobs] for first in range(jobs)]
        if asked:
            measured = in_threads(asked[0][1], functools.partial(_loads, roughly), parts)
            loads |= {corner: load for part in measured for corner, load in part}
        todo, blocks = blocks, []
        for top, bottom, left, right in todo:
            around = np.array([loads[corner] for corner in product((top, bottom), (left, right))])
            if bottom - top <= 1 and right - left <= 1:
                for corner in product((top, bottom), (left, right)):
                    found[corner] = loads[corner] < 1
            elif (around < 1 - APART).all() or (around > 1 + APART).all():
                found[top : bottom + 1, left : right + 1] = around[0] < 1
            else:
                halves = (pairwise(sorted({a, (a + b) // 2, b})) for a, b in ((top, bottom), (left, right)))
                quarters = ([*each] for each in halves)
                down, across = (
                    [*each] or [(end, end)] for each, end in zip(quarters, (top, left), strict=True)
                )
                blocks += [(*each, *other) for each, other in product(down, across)]
    given_at = np.array([cell is not None for cell in cells]).reshape(found.shape)
    return (found & given_at).ravel()


def _loads(
    roughly: bool, part: Sequence[tuple[tuple[int, int], Scenario]]
) -> list[tuple[tuple[int, int], float]]:
    return [(corner, load_to_tell(cell, roughly)) for corner, cell in part]
