"""The metrics of token generation from the times of its requests: those of a whole run, to the last bit."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from batchsim.result.sections import FINE, sums
from batchsim.result.value_columns import AtRanks, percentiles

if TYPE_CHECKING:
    from batchsim.engines.compiled.grid_runs import Times


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
    def _cuts(self) -> np.ndarray:
        return np.linspace(0, self.requests, FINE + 1).astype(int)

    @cached_property
    def window_s(self) -> float:
        """How long the run was, added up section by section as a result does."""
        edges_s = self.times.arrival_s[np.minimum(self._cuts, self.requests - 1)]
        edges_s[0], edges_s[-1] = 0.0, self.times.last_s
        return float(np.diff(np.minimum(edges_s, self.times.last_s)).sum())

    def per_s(self, count: int) -> float:
        return count / self.window_s if self.window_s > 0 else 0.0

    def mean_ms(self, column_ms: np.ndarray) -> float:
        """Return the mean of the served requests' values, added up as a result does."""
        count = np.count_nonzero(~np.isnan(column_ms))
        parts_s = sums(np.nan_to_num(column_ms) / 1000, self._cuts)
        # The latency is one of several columns of a result, which adds these up one section after the other.
        in_turn = column_ms is self.latency_ms
        whole_s = float(np.cumsum(parts_s)[-1] if in_turn else parts_s.sum())
        return whole_s / count * 1000 if count else float("nan")

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
