"""The data that a picture of a run shows, and the numbers that several views derive from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim.result import Result
from batchsim.result.comparison import Comparison
from batchsim.result.metrics import DEVICE_WAIT, LATENCY, TPOT, TTFT
from batchsim.scenario import Scenario
from batchsim.view.pictures.moments import Moment, Window, moment, window

if TYPE_CHECKING:
    from batchsim.theory.expected import TheoryCurve


LEAST_MS = 1e-300  # the least spread by which one can divide


class Ranked:
    """The served requests of a run by rising latency, sorted only as far as needed.

    A redraw needs counts below 60 edges and the means of 20 groups. So requests are put into 65,536 buckets
    of equal width, whose numbers NumPy sorts by radix, and only buckets that contain an edge or a group's end
    are sorted. For 100,000 requests that takes 1.2 ms; `np.argsort` takes 5.0 ms, a stable one 9.5 ms (NumPy
    2.4, AVX-512).

    >>> ranked = Ranked(np.array([7.0, 5.0, np.nan, 6.0]))
    >>> ranked.count, ranked.below(6.5), ranked.shares([0, 6, 8])
    (3, 2, array([33.33333333, 66.66666667]))
    """

    BUCKETS = 65_536

    def __init__(self, latency_ms: np.ndarray) -> None:
        """`latency_ms`: of every request, NaN where it was not served; shape (requests,)."""
        self.requests = latency_ms.size
        self.served = np.flatnonzero(~np.isnan(latency_ms))
        served_ms = latency_ms[self.served]
        self.count = served_ms.size
        self.fastest_ms = float(served_ms.min()) if self.count else 0.0
        self.slowest_ms = float(served_ms.max()) if self.count else 0.0
        spread_ms = self.slowest_ms - self.fastest_ms
        self.scale = (self.BUCKETS - 1) / spread_ms if spread_ms > LEAST_MS else 0.0
        bucket = ((served_ms - self.fastest_ms) * self.scale).astype(np.uint16)
        self.order = np.argsort(bucket, kind="stable")
        self.latency_ms = served_ms[self.order]  # by rising bucket, within a bucket in order of arrival
        self.ends = np.cumsum(np.bincount(bucket, minlength=self.BUCKETS))

    def _span(self, bucket: int) -> slice:
        return slice(int(self.ends[bucket - 1]) if bucket else 0, int(self.ends[bucket]))

    def below(self, edge_ms: float) -> int:
        """Return how many latencies are less than `edge_ms`."""
        if not self.count or edge_ms <= self.fastest_ms:
            return 0
        span = self._span(min(int((edge_ms - self.fastest_ms) * self.scale), self.BUCKETS - 1))
        return span.start + int(np.count_nonzero(self.latency_ms[span] < edge_ms))

    def shares(self, edges_ms: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the percentage of the served between each edge and the next; the last bar has the tail."""
        # Latencies that differ by rounding share a bar, even at an edge.
        least = 1e-9 * float(edges_ms[-1])
        counts = np.array([self.below(float(edge) - least) for edge in edges_ms[:-1]] + [self.count])
        return 100 * np.diff(counts) / max(self.count, 1)

    def group_means(self, columns: Sequence[np.ndarray], groups: int) -> np.ndarray:
        """Return the means of columns, a row a request, over groups of equal size, fastest first.

        Shape (columns, groups); 0 for an empty group.
        """
        sizes = np.full(groups, self.count // groups)
        sizes[: self.count % groups] += 1  # as numpy.array_split
        cuts = np.concatenate([[0], np.cumsum(sizes)])
        order = self.order
        for cut in cuts[1:-1]:  # sort each bucket that two groups share
            if cut < self.count:
                span = self._span(int(np.searchsorted(self.ends, cut, side="right")))
                order[span] = order[span][np.argsort(self.latency_ms[span], kind="stable")]
                self.latency_ms[span].sort()
        means, filled = np.zeros((len(columns), groups)), sizes > 0
        if self.count:
            requests = order if self.count == self.requests else self.served[order]
            for mean, column in zip(means, columns, strict=True):
                mean[filled] = np.add.reduceat(column[requests], cuts[:-1][filled]) / sizes[filled]
        return means


NAMED = {TTFT: "TTFT", TPOT: "TPOT", LATENCY: "answer"}  # the durations that may have an objective

# The percentiles at which a curve has its points: in the tail ten times as many.
AT = np.concatenate([np.arange(0.0, 99.0), np.linspace(99, 100, 11)])
# What only some runs have: others have no view of it.
PARTS = ("sizes", "by_replica")
# The headline's metrics that have an interval.
HEADLINE = {
    "requests": ["p50_ms", "p99_ms", "throughput_per_s"],
    "tokens": ["ttft_p99_ms", "tpot_p99_ms", "output_tokens_per_s"],
}


@dataclass(frozen=True, eq=False)
class ViewData:
    """A run, what other settings and other loads would give, and what it is compared with.

    `objective_ms` is for the p99 of the latency; token generation also has limits on TTFT and TPOT, `ttft_ms`
    and `tpot_ms`. `before` is the data before the last move. `pinned` is A, the data of an earlier setting;
    the present one is B, and `comparison` holds the differences B - A in runs of the same traffic. Derived
    values are computed once, also for A, which stays the same while B moves. `followed` is the number of the
    request that the film follows.
    """

    result: Result
    surface: Any = None  # a Surface; a still picture has neither this nor a curve
    curve: Any = None  # a LoadCurve
    theory: "TheoryCurve | None" = None
    objective_ms: float | None = None
    before: "ViewData | None" = None
    pinned: "ViewData | None" = None
    comparison: Comparison | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    followed: int | None = None

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.result.summary()

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals of the headline's metrics, NaN where the run is too short for one."""
        if self.overloaded or not self.summary["served"]:
            return {}
        return dict(self.result.intervals(HEADLINE[self.result.scenario.kind]))

    def percentile_of_all(self, q: float, column: str = LATENCY) -> float:
        """Return a percentile of a duration in ms; requests not served count as infinitely late."""
        return self.result.percentile(q, unserved="inf", column=column)

    def part_ms(self, part: str) -> np.ndarray:
        """Return how long each request was in a part of its latency, in ms."""
        if part == "waiting":  # token generation does not divide it into forming and queueing
            return (self.result.start_s - self.result.arrival_s) * 1000
        return np.asarray(getattr(self.result, f"{part}_ms"))

    def has(self, part: str) -> bool:
        """Return whether latencies have such a part: a wait for the device needs shared devices."""
        return part != DEVICE_WAIT or part in self.result.metrics.components

    def mean_ms(self, part: str) -> float:
        """Return the mean of a part of the latency over the served requests."""
        if part == "waiting":
            return self.mean_ms("forming") + self.mean_ms("queueing")
        return float(self.summary[f"mean_{part}_ms"])

    @cached_property
    def levels_ms(self) -> dict[int, tuple[float, float]]:
        """The p50 and p99 of each priority level, as `percentile_of_all`; empty without several levels.

        Infinite if the server cannot keep up with this level and those before it.
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
        """The part of the run that the timeline shows."""
        return window(self.result)

    @cached_property
    def ranked(self) -> Ranked:
        return Ranked(self.result.latency_ms)

    @property
    def other(self) -> "ViewData | None":
        """The comparison that a view draws: A if it is pinned, else the data before the last move."""
        return self.before if self.pinned is None else self.pinned

    @property
    def followed_ms(self) -> float:
        """The latency of the request that the film follows; NaN if there is none, or it was lost."""
        latency_ms, request = self.result.latency_ms, self.followed
        return math.nan if request is None or request >= latency_ms.size else float(latency_ms[request])

    @property
    def sizes(self) -> np.ndarray | None:
        """The sizes of the requests, None if they have none."""
        return self.result.size

    @cached_property
    def by_replica(self) -> Mapping[str, np.ndarray] | None:
        """The columns of `Result.by_replica`, None without several replicas."""
        if self.result.scenario.most_replicas == 1:
            return None
        return {str(name): column.to_numpy() for name, column in self.result.by_replica().items()}

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of `PARTS` that the run has."""
        return parts_of(self.result.scenario)

    @property
    def overloaded(self) -> bool:
        """Whether the run has no steady state: its latencies then depend on its length."""
        return not self.result.scenario.stable

    @property
    def loss(self) -> float:
        """The fraction of the requests that were rejected or timed out."""
        return 1 - self.summary["served"] / self.summary["requests"]

    # Token generation.

    @cached_property
    def limits_ms(self) -> dict[str, float]:
        """The given objectives, by their column."""
        limits = {TTFT: self.ttft_ms, TPOT: self.tpot_ms, LATENCY: self.objective_ms}
        return {column: limit_ms for column, limit_ms in limits.items() if limit_ms is not None}

    @cached_property
    def shares(self) -> dict[str, float]:
        """The fraction of the requests within each given objective."""
        return {
            column: self.result.attainment(**_as_argument({column: limit_ms}))
            for column, limit_ms in self.limits_ms.items()
        }

    @cached_property
    def attainment(self) -> float:
        """The fraction of the requests within all objectives; 1 without any."""
        return self.result.attainment(**_as_argument(self.limits_ms)) if self.limits_ms else 1.0

    @cached_property
    def goodput_per_s(self) -> float:
        """The requests per second that were served within all objectives."""
        limits = _as_argument(self.limits_ms)
        return self.result.goodput_per_s(**limits) if limits else float(self.summary["throughput_per_s"])

    @cached_property
    def curves(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Times in ms, rising, and the fraction of all requests that is within each, by column.

        It counts as `Result.attainment` does: an answer of one token has no TPOT, so it meets any limit on
        it.
        """
        metrics, found = self.result.metrics, {}
        requests = int(metrics.totals.requests)
        for column in NAMED:
            several = metrics.all_in(column)
            times_ms = metrics.percentiles(AT, "inf", column)
            there = np.isfinite(times_ms)
            found[column] = times_ms[there], (1 - (1 - AT / 100) * several / requests)[there]
        return found

    @cached_property
    def _moments(self) -> dict[int, Moment | None]:
        return {}

    def moment(self, server: int = 0) -> Moment | None:
        """Return the steps of a server that are shown; None if it has no step."""
        if server not in self._moments:
            self._moments[server] = moment(self.result, server=server)
        return self._moments[server]


def parts_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of `PARTS` that runs of a scenario have."""
    has = scenario.workload.sizes is not None, scenario.most_replicas > 1
    return tuple(name for name, there in zip(PARTS, has, strict=True) if there)


def _of_all(ordered_ms: np.ndarray, share: float) -> float:
    """Return a percentile of sorted latencies; NaN at the end are requests not served: infinitely late."""
    place = share * (ordered_ms.size - 1)
    if place < 0:
        return math.nan
    low, high = ordered_ms[math.floor(place)], ordered_ms[math.ceil(place)]
    return math.inf if math.isnan(high) else float(low + (high - low) * (place - math.floor(place)))


def _as_argument(limits_ms: dict[str, float]) -> dict[str, float]:
    return {"objective_ms" if column == LATENCY else column: ms for column, ms in limits_ms.items()}
