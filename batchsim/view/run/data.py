"""What a picture of a run shows, and what several of its views derive from it."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim.result import Result
from batchsim.result.comparison import Comparison
from batchsim.result.metrics import DEVICE_WAIT, LATENCY
from batchsim.view.run.ranked import Ranked
from batchsim.view.run.window import Window, window

if TYPE_CHECKING:
    from batchsim.study.surface import LoadCurve, Surface
    from batchsim.theory.expected import TheoryCurve


@dataclass(frozen=True, eq=False)
class ViewData:
    """A run, what other settings and other loads would give, and what it is compared with.

    `objective_ms` is for the p99. `before` is the data before the last move. `pinned` is A, the data of an
    earlier setting, to which this one is B; `comparison` then holds the differences B - A, in runs of the
    same traffic. What is derived is computed once, also for A, which stays the same while B moves.
    """

    result: Result
    surface: "Surface" = None  # type: ignore[assignment]  # a still picture has neither
    curve: "LoadCurve" = None  # type: ignore[assignment]
    theory: "TheoryCurve | None" = None
    objective_ms: float | None = None
    before: "ViewData | None" = None
    pinned: "ViewData | None" = None
    comparison: Comparison | None = None

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.result.summary()

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals of what the headline shows, NaN where the run is too short for one."""
        if self.overloaded or not self.summary["served"]:
            return {}
        return dict(self.result.intervals(["p50_ms", "p99_ms", "throughput_per_s"]))

    def percentile_of_all(self, q: float, column: str = LATENCY) -> float:
        """Return a percentile of the latency in ms in which a request not served is infinitely late."""
        return self.result.percentile(q, unserved="inf", column=column)

    def part_ms(self, part: str) -> np.ndarray:
        """Return how long each request was in a part of its latency."""
        return np.asarray(getattr(self.result, f"{part}_ms"))

    def has(self, part: str) -> bool:
        """Return whether latencies have such a part: where servers share devices, a wait for them."""
        return part != DEVICE_WAIT or part in self.result.metrics.components

    def mean_ms(self, part: str) -> float:
        """Return the mean of a part of the latency over the served requests."""
        return float(self.summary[f"mean_{part}_ms"])

    @cached_property
    def levels_ms(self) -> dict[int, tuple[float, float]]:
        """The p50 and p99 of each priority level, as `percentile_of_all`; empty without several levels.

        Infinite where the level does not keep up, because it and those before it bring too much.
        """
        result, scenario = self.result, self.result.scenario
        if len(scenario.levels) < 2 or result.priority is None:
            return {}
        kept = slice(result.warmup_requests, None)
        latency_ms, levels = result.latency_ms[kept], result.priority[kept]
        brought, found = 0.0, {}
        for level, share in scenario.workload.priorities or ():
            brought += share * scenario.load
            own_ms, grows = np.sort(latency_ms[levels == level]), self.overloaded and brought >= 1
            found[level] = (math.inf, math.inf) if grows else (_of_all(own_ms, 0.5), _of_all(own_ms, 0.99))
        return found

    @cached_property
    def window(self) -> Window:
        """The moment of the run that the timeline shows."""
        return window(self.result)

    @cached_property
    def ranked(self) -> Ranked:
        return Ranked(self.result.latency_ms)

    @property
    def other(self) -> "ViewData | None":
        """What a view draws beside the present data: A if it is pinned, else what was there before."""
        return self.before if self.pinned is None else self.pinned

    @property
    def overloaded(self) -> bool:
        """Whether the run has no steady state: its latencies only say how long the run was."""
        return not self.result.scenario.stable

    @property
    def loss(self) -> float:
        """The fraction of the requests that were rejected or timed out."""
        return 1 - self.summary["served"] / self.summary["requests"]


def _of_all(ordered_ms: np.ndarray, share: float) -> float:
    """Return a percentile of sorted latencies, of which those not served, NaN, are last: infinitely late."""
    place = share * (ordered_ms.size - 1)
    if place < 0:
        return math.nan
    low, high = ordered_ms[math.floor(place)], ordered_ms[math.ceil(place)]
    return math.inf if math.isnan(high) else float(low + (high - low) * (place - math.floor(place)))
