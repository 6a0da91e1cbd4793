"""What a study of token generation computes for itself: which settings keep up, and metrics from times."""

import functools
import math
import os
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim.engines.log import Status
from batchsim.engines.totals import TokenTotals
from batchsim.result.metrics import values
from batchsim.result.sections import begin_fold
from batchsim.result.value_columns import AtRanks, percentiles
from batchsim.scenario import Scenario
from batchsim.scenario.saturation import load_to_tell

if TYPE_CHECKING:
    from batchsim.engines.compiled.grid_runs import Times


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


class TokenTimes:
    """What the requests' times say of a run; NaN where there is nothing to average."""

    def __init__(self, times: "Times") -> None:
        self.times = times
        self.requests = times.arrival_s.size
        self.is_served = ~np.isnan(times.finish_s)
        self.served = int(np.count_nonzero(self.is_served))

    @cached_property
    def ttft_ms(self) -> np.ndarray:
        return (self.times.token_s - self.times.arrival_s) * 1000

    @cached_property
    def tpot_ms(self) -> np.ndarray:
        times = self.times
        with np.errstate(invalid="ignore", divide="ignore"):
            later = np.where(times.outputs > 1, times.outputs - 1, np.nan)
            return (times.finish_s - times.token_s) * 1000 / later

    @cached_property
    def latency_ms(self) -> np.ndarray:
        return (self.times.finish_s - self.times.arrival_s) * 1000

    @cached_property
    def totals(self) -> TokenTotals:
        """The sums that follow from these times, as a result adds them up; the others are 0."""
        from batchsim.engines.compiled.fold import Answers  # Numba loads with it

        times, lost = self.times, int(Status.REJECTED)
        status = np.where(self.is_served, int(Status.SERVED), lost).astype(np.uint8)
        none_s, none = np.zeros(self.requests), np.zeros(self.requests, int)
        came_s, token_s, finish_s = times.arrival_s, times.token_s, times.finish_s
        fold, cuts = begin_fold(TokenTotals, came_s, times.last_s, 1)
        fold.add_answers(
            Answers(came_s, came_s, token_s, finish_s, none_s, none_s, none_s, times.outputs, status, none),
            cuts,
        )
        fold.add_finished(finish_s[self.is_served], np.ones(self.served, int))
        fold.add_finished(finish_s[self.is_served], times.outputs[self.is_served], "output_tokens")
        return fold.totals.merged(1).part(0)

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The metrics of these sums."""
        return values(self.totals, 1, 1)

    def per_s(self, count: int) -> float:
        return count / self.totals.window_s if self.totals.window_s > 0 else 0.0

    def percentiles_ms(self, column_ms: np.ndarray, *qs: float, of_all: bool = False) -> np.ndarray:
        """Return percentiles of the requests that have a value; `of_all`: the others are infinitely late."""
        values = column_ms[~np.isnan(column_ms)]
        count = values.size + self.requests - self.served if of_all else values.size
        if not values.size:
            return np.full(len(qs), np.inf if count else np.nan)
        return percentiles(AtRanks(values), np.array(qs, float), values.size, count)

    def meeting(self, ttft_ms: float, tpot_ms: float) -> np.ndarray:
        """Return which requests were served within both limits; one of a single token keeps any on TPOT."""
        return (self.ttft_ms <= ttft_ms) & ~(self.tpot_ms > tpot_ms)
