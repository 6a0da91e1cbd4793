"""In which order those that wait go: by level, in a level the delayed ones last, then as they came."""

import math

import numpy as np

from batchsim._clock import later
from batchsim.result import Result


class Turns:
    """The order in the queue of a run, at any time; `in_order` where it is always that of the arrivals.

    `place` is the number of each request's level, 0 for the one that goes first, and `late_s` when a request
    is delayed, inf: never. `left_s` says when each left the queue.
    """

    def __init__(self, result: Result, left_s: np.ndarray) -> None:
        scenario, count = result.scenario, result.arrival_s.size
        self.in_order, self.levels, self.count = scenario.in_order, scenario.levels, count
        self.place = np.zeros(count, dtype=int)
        if result.priority is not None:
            self.place = np.searchsorted(self.levels, result.priority)
        delays_s = [limit.timeout_s if limit.delays else math.inf for limit in scenario.limits]
        self.late_s = later(result.arrival_s, np.array(delays_s)[self.place])
        self.batch = np.zeros(count, dtype=int)
        if (
            scenario.rule.freezes or not scenario.by_level
        ):  # whoever is in an earlier batch goes earlier, whoever comes meanwhile
            lost = np.searchsorted(result.batches.start_s, left_s)
            self.batch = np.where(result.batch_index < 0, lost, result.batch_index)

    def at(self, requests: np.ndarray, time_s: float | np.ndarray) -> np.ndarray:
        """Return a number for each of these requests: whoever has a lower one goes earlier, as it is then."""
        if self.in_order:
            return requests
        late = self.late_s[requests] <= time_s
        kind = 2 * self.place[requests] + late
        return (self.batch[requests] * 2 * max(len(self.levels), 1) + kind) * self.count + requests

    def counts(self, requests: np.ndarray) -> dict[int, int]:
        """Return how many of these requests are of each level; empty without several levels."""
        if len(self.levels) < 2:
            return {}
        found = np.bincount(self.place[requests], minlength=len(self.levels)).tolist()
        return dict(zip(self.levels, found, strict=True))

    def flags(self, requests: np.ndarray) -> np.ndarray:
        """Return how large a flag each of these requests has: 1 on the first level, 0 on the last."""
        last = len(self.levels) - 1
        return 1 - self.place[requests] / last if last > 0 else np.zeros(len(requests))
