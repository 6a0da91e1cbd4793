"""The data that a picture of a run shows, and the numbers that several views derive from it."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim._compat import kept
from batchsim.result import Result
from batchsim.result.comparison import Comparison
from batchsim.result.distributions import Ranking, percentile
from batchsim.result.metrics import DEVICE_WAIT, ITL, LATENCY, TPOT, TTFT
from batchsim.result.moments import Moment, Window, moment, window
from batchsim.scenario import Scenario
from batchsim.view.theme import COMPONENTS, PHASES

if TYPE_CHECKING:
    from batchsim.theory import Answer
    from batchsim.theory.expected import TheoryCurve


# The durations that may have an objective; a gap is between two tokens, and no request's own.
NAMED = {TTFT: "TTFT", TPOT: "TPOT", ITL: "gap", LATENCY: "answer"}

# The percentiles at which a curve has its points: in the tail ten times as many.
AT = np.concatenate([np.arange(0.0, 99.0), np.linspace(99, 100, 11)])
GROUPS = 20  # of ever slower requests
# What only some runs have: others have no view of it.
PARTS = ("sizes", "by_replica", "paid")
# The headline's metrics that have an interval.
HEADLINE = {
    "requests": ["p50_ms", "p99_ms", "throughput_per_s"],
    "tokens": ["ttft_p99_ms", "tpot_p99_ms", "output_tokens_per_s"],
}


@dataclass(frozen=True, eq=False)
class ViewData:
    """A run, what other settings and other loads would give, and what it is compared with.

    `objective_ms` is for the p99 of the latency; token generation also has limits on TTFT and TPOT, `ttft_ms`
    and `tpot_ms`, and an objective for the p99 of the gaps, `itl_ms`. `before` is the data before the last
    move. `pinned` is A, the data of an earlier setting; the present one is B, and `comparison` holds the
    differences B - A in runs of the same traffic. Derived values are computed once, also for A, which stays
    the same while B moves. `followed` is the number of the request that the film follows. A still picture has
    the intervals of percentiles, and `answer`, what theory expects.
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
    itl_ms: float | None = None
    followed: int | None = None
    answer: "Answer | None" = None
    is_still: bool = False

    @kept
    def summary(self) -> dict[str, Any]:
        return self.result.summary()

    @kept
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

    @kept
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
            p50, p99 = (math.inf if grows else percentile(own_ms, q, math.inf) for q in (50, 99))
            found[level] = p50, p99
        return found

    @kept
    def window(self) -> Window:
        """The part of the run that the timeline shows."""
        return window(self.result)

    @kept
    def ranked(self) -> Ranking:
        return Ranking(self.result.latency_ms)

    @property
    def other(self) -> "ViewData | None":
        """The comparison that a view draws: A if it is pinned, else the data before the last move."""
        return self.before if self.pinned is None else self.pinned

    @kept
    def group_means(self) -> dict[str, np.ndarray]:
        """The means of the latency and of each of its parts over groups of ever slower requests."""
        parts = [
            "latency",
            *filter(self.has, PHASES if self.result.scenario.kind == "tokens" else COMPONENTS),
        ]
        groups = min(max(self.ranked.count, 1), GROUPS)
        return dict(zip(parts, self.ranked.group_means([*map(self.part_ms, parts)], groups), strict=True))

    @property
    def followed_ms(self) -> float:
        """The latency of the request that the film follows; NaN if there is none, or it was lost."""
        latency_ms, request = self.result.latency_ms, self.followed
        return math.nan if request is None or request >= latency_ms.size else float(latency_ms[request])

    @property
    def sizes(self) -> np.ndarray | None:
        """The sizes of the requests, None if they have none."""
        return self.result.size

    @kept
    def by_replica(self) -> Any:
        """The columns of `Result.by_replica`, None without several replicas."""
        if self.result.scenario.most_replicas == 1:
            return None
        return {str(name): column.to_numpy() for name, column in self.result.by_replica().items()}

    @property
    def paid(self) -> bool | None:
        """Whether servers have a price or watts; None if they have neither."""
        return True if _is_paid(self.result.scenario) else None

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of `PARTS` that the run has."""
        return parts_shown(self.result.scenario)

    @property
    def overloaded(self) -> bool:
        """Whether the run has no steady state: its latencies then depend on its length."""
        return not self.result.scenario.stable

    @property
    def loss(self) -> float:
        """The fraction of the requests that were rejected or timed out."""
        return 1 - self.summary["served"] / self.summary["requests"]

    # Token generation.

    @kept
    def limits_ms(self) -> dict[str, float]:
        """The given objectives that a request meets or not, by their column."""
        limits = {TTFT: self.ttft_ms, TPOT: self.tpot_ms, LATENCY: self.objective_ms}
        return {column: limit_ms for column, limit_ms in limits.items() if limit_ms is not None}

    @property
    def all_limits_ms(self) -> dict[str, float]:
        """The given objectives, that of the gaps too."""
        return self.limits_ms | ({} if self.itl_ms is None else {ITL: self.itl_ms})

    @kept
    def shares(self) -> dict[str, float]:
        """The fraction of the requests, or of the gaps, within each given objective."""
        found = {
            column: self.result.attainment(**_as_argument({column: limit_ms}))
            for column, limit_ms in self.limits_ms.items()
        }
        if self.itl_ms is not None:
            gaps = self.result.metrics.columns[ITL]
            found[ITL] = gaps.within(self.itl_ms) / max(gaps.within(math.inf), 1)
        return found

    @kept
    def attainment(self) -> float:
        """The fraction of the requests within all objectives; 1 without any."""
        return self.result.attainment(**_as_argument(self.limits_ms)) if self.limits_ms else 1.0

    @kept
    def goodput_per_s(self) -> float:
        """The requests per second that were served within all objectives."""
        limits = _as_argument(self.limits_ms)
        return self.result.goodput_per_s(**limits) if limits else float(self.summary["throughput_per_s"])

    @kept
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
            of = max(several, 1) if column == ITL else requests
            found[column] = times_ms[there], (1 - (1 - AT / 100) * several / of)[there]
        return found

    @kept
    def _moments(self) -> dict[int, Moment | None]:
        return {}

    def moment(self, server: int = 0) -> Moment | None:
        """Return the steps of a server that are shown; None if it has no step."""
        if server not in self._moments:
            self._moments[server] = moment(self.result, server=server)
        return self._moments[server]


def parts_shown(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of `PARTS` that runs of a scenario have."""
    has = scenario.workload.sizes is not None, scenario.most_replicas > 1, _is_paid(scenario)
    return tuple(name for name, there in zip(PARTS, has, strict=True) if there)


def _is_paid(scenario: Scenario) -> bool:
    return bool(scenario.price_per_hour) or scenario.watts is not None


def _as_argument(limits_ms: dict[str, float]) -> dict[str, float]:
    return {"objective_ms" if column == LATENCY else column: ms for column, ms in limits_ms.items()}
