"""Service-level objectives: the numbers that a setting must keep within limits."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from batchsim import _check, _format
from batchsim._clock import ms_on_grid
from batchsim.result import metrics
from batchsim.result.shares import percentile_metric
from batchsim.result.value_columns import in_words, joint, limits_of
from batchsim.scenario import Scenario
from batchsim.scenario.lengths import longest_of

PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p95_ms": 95.0, "p99_ms": 99.0, "p99_9_ms": 99.9}
# For token generation, a field is named after its metric.
TOKEN_PERCENTILES = {f"{of}_p{q}_ms": float(q) for of in ("ttft", "tpot", "itl") for q in (50, 95, 99)}
TOKEN_PERCENTILES["stall_p99_ms"] = 99.0
BETWEEN = (metrics.TPOT, metrics.ITL, metrics.STALL)  # an answer of one token has none
OTHERS = {"mean_ms": "mean_latency_ms", "max_loss": "loss", "min_throughput_per_s": "throughput_per_s"}

LEVEL = 0.95  # of the intervals that objectives are tested with


class Objective(NamedTuple):
    """One number with its limit: the most, or the least for a throughput or a share.

    `key` is the number's name in a summary, or "loss"; `q` the percentile, if it is one.
    """

    key: str
    limit: float
    q: float | None = None

    @property
    def column(self) -> str:
        """The column of the requests for a percentile, as "latency_ms" or "ttft_ms"."""
        return self.key if limits_of(self.key) else metrics.metric(self.key).column

    @property
    def of_requests(self) -> bool:
        """Whether it is a percentile over requests: gaps between tokens (ITL) are of no single one."""
        return self.q is not None and self.column != metrics.ITL

    @property
    def at_most(self) -> bool:
        return self.key != "throughput_per_s" and not limits_of(self.key)

    @property
    def share(self) -> float | None:
        """The least fraction of all requests that must be served for it; None without such a limit."""
        if self.key == "loss":
            return 1 - self.limit
        if limits_of(self.key):
            return self.limit
        return None if self.q is None else self.q / 100

    @property
    def sees_loss(self) -> bool:
        """Whether it is missed when many requests are lost."""
        return self.share is not None

    def excess(self, value: float) -> float:
        """Return the ratio of a number to its limit, inverted for a least value: above 1 misses it.

        A mean or a percentile between two requests may be off by rounding: a duration is compared in whole
        nanoseconds, as the limit is, and another number to twelve digits.
        """
        if math.isnan(value):
            return math.inf
        value = float(ms_on_grid(value) if described(self.key)[1] == " ms" else f"{value:.12g}")
        above, below = (value, self.limit) if self.at_most else (self.limit, value)
        return above / below if below > 0 else math.inf if above > 0 else 0.0

    @property
    def limit_text(self) -> str:
        _, unit, scale = described(self.key)
        return f"{_format.number(self.limit * scale, 6)}{unit}"

    def __str__(self) -> str:
        return f"{described(self.key)[0]} at {'most' if self.at_most else 'least'} {self.limit_text}"


def described(key: str) -> tuple[str, str, float]:
    """Return a metric's label, its unit with the space before it, and the factor to that unit.

    >>> described("mean_latency_ms"), described("loss")
    (('mean latency', ' ms', 1.0), ('loss', ' %', 100.0))
    """
    if limits_of(key):
        return in_words(key), " %", 100.0
    each = metrics.described(key)
    if key == "loss":
        return each.label, " %", 100.0
    return each.label, "/s" if each.unit == "per s" else each.unit and f" {each.unit}", 1.0


@dataclass(frozen=True, repr=False)
class SLO:
    """A service-level objective: limits that a setting must keep, all of them.

    - `p50_ms`, `p90_ms`, `p95_ms`, `p99_ms`, `p99_9_ms`: this percentage of all requests is answered
      within the limit. A request that is rejected or times out counts as infinitely late.
    - `attainment` with `within_ms`: the same for any fraction of the requests, as 0.995 within 50 ms. Without
      `within_ms`, the fraction within the only percentile given.
    - `mean_ms`: the mean latency of the served requests. It ignores the others, so a scenario that can lose
      requests also needs `max_loss` or a percentile.
    - `max_loss`: at most this fraction of the requests is not served.
    - `ttft_p50_ms`, `ttft_p95_ms`, `ttft_p99_ms`, `tpot_p50_ms`, `tpot_p95_ms`, `tpot_p99_ms`: percentiles
      of the time to the first token, and of the time for each token after it. Only with tokens.
    - `itl_p50_ms`, `itl_p95_ms`, `itl_p99_ms`: percentiles of the times between two tokens, of all requests
      together; `stall_p99_ms`: of the longest of each request.
    - `attainment` with `ttft_ms` or `tpot_ms`, or both: this fraction of all requests is within both, and
      within `within_ms` too if given. The highest rate that attains it is often called the goodput.
    - `min_throughput_per_s`: at least this many answers a second. An open loop that serves every request
      answers at the rate it is offered.

    The 95 % interval of each number is tested: an objective is met if the whole interval is within the
    limit, and missed if the whole interval is beyond it (`batchsim.study.judgement`).

    Raises ValueError without an objective, or if one contradicts another.

    >>> SLO(p99_ms=50)
    SLO(p99_ms=50)
    >>> print(SLO(p99_ms=50, attainment=0.995, max_loss=0.001))
    p99 at most 50 ms, p99.5 at most 50 ms, loss at most 0.1 %
    >>> print(SLO(ttft_p99_ms=500, tpot_p99_ms=50))
    TTFT p99 at most 500 ms, TPOT p99 at most 50 ms
    >>> print(SLO(ttft_ms=500, tpot_ms=50, attainment=0.9))
    share within TTFT 500 ms and TPOT 50 ms at least 90 %
    """

    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p99_9_ms: float | None = None
    mean_ms: float | None = None
    within_ms: float | None = None
    attainment: float | None = None
    max_loss: float | None = None
    min_throughput_per_s: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p95_ms: float | None = None
    tpot_p99_ms: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    itl_p99_ms: float | None = None
    stall_p99_ms: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None

    def __post_init__(self) -> None:
        bounds: dict[str, dict[str, float]] = {"max_loss": {"at_least": 0}, "attainment": {"at_least": 0.001}}
        for name in self._given():
            _check.fix_real(self, name, **bounds.get(name, {"above": 0}))
            if name.endswith("_ms") and (ms := ms_on_grid(getattr(self, name))) != getattr(self, name):
                object.__setattr__(self, name, float(ms))
        for name, why in (("attainment", ": no run can prove all"), ("max_loss", "")):
            if (share := getattr(self, name)) is not None and share >= 1:
                raise ValueError(f"{name} must be a fraction less than 1, got {share!r}{why}")
        self._check_attainment()
        if not self.objectives:
            raise ValueError(f"an SLO must have an objective, as in SLO(p99_ms=50), got {self!r}")

    def _given(self) -> dict[str, float]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def _check_attainment(self) -> None:
        given = self._given()
        if self.attainment is None:
            if alone := [name for name in ("within_ms", "ttft_ms", "tpot_ms") if name in given]:
                raise ValueError(f"{alone[0]} needs an attainment, the fraction within it, got none")
            return
        if self.within_ms is not None or self._joint():
            return
        named = [name for name in PERCENTILES if name in given]
        if len(named) != 1:
            raise ValueError(f"an attainment needs within_ms, or exactly one percentile, got {len(named)}")
        already = PERCENTILES[named[0]] / 100
        if self.attainment < already:
            rule = f"an attainment of {named[0]} must be at least {already:g}, its percentile"
            raise ValueError(f"{rule}, got {self.attainment!r}; for another latency give within_ms")

    def _joint(self) -> dict[str, float]:
        """Return the limits that a fraction of the requests must all meet, if one is about tokens."""
        names = {"ttft_ms": self.ttft_ms, "tpot_ms": self.tpot_ms, "latency_ms": self.within_ms}
        limits = {name: ms for name, ms in names.items() if ms is not None}
        return {} if [*limits] in ([], ["latency_ms"]) else limits

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Each number with its limit; an attainment becomes a percentile."""
        given = self._given()
        limits_ms = {q: given[name] for name, q in PERCENTILES.items() if name in given}
        if self.attainment is not None and not self._joint():
            q = round(100 * self.attainment, 9)  # 100 * 0.995 is 99.5 only after rounding
            ms = next(iter(limits_ms.values())) if self.within_ms is None else self.within_ms
            limits_ms[q] = min(ms, limits_ms.get(q, ms))
        percentiles = [Objective(percentile_metric(q).key, ms, q) for q, ms in sorted(limits_ms.items())]
        percentiles += [Objective(key, given[key], q) for key, q in TOKEN_PERCENTILES.items() if key in given]
        if limits := self._joint():
            percentiles.append(Objective(joint(limits), given["attainment"]))
        others = [Objective(key, given[name]) for name, key in OTHERS.items() if name in given]
        return (*percentiles, *others)

    @property
    def latency(self) -> Objective:
        """The objective to rank settings by: the highest percentile of latency, else of TTFT, TPOT or stall.

        Without one, the mean latency if it has a limit, else the p99.
        """
        named = [objective for objective in self.objectives if objective.of_requests]
        named = [objective for objective in named if objective.column == named[0].column]
        other = ("p99_ms", math.inf, 99.0) if self.mean_ms is None else ("mean_latency_ms", self.mean_ms)
        return named[-1] if named else Objective(*other)

    def check(self, scenario: Scenario) -> None:
        """Raise ValueError for an objective about tokens, or the times between them, without any."""
        for objective in self.objectives:
            if scenario.kind != "tokens" and objective.column != metrics.LATENCY:
                raise ValueError(f"{objective.key} needs a scenario with tokens, got one without")
            if objective.column in BETWEEN and longest_of(scenario.tokens.output) == 1:  # type: ignore[union-attr]
                raise ValueError(f"{objective.key} needs answers of several tokens, got {scenario.tokens!r}")

    def __str__(self) -> str:
        return ", ".join(str(objective) for objective in self.objectives)

    def __repr__(self) -> str:
        return f"SLO({', '.join(f'{name}={value!r}' for name, value in self._given().items())})"
