"""Service-level objectives: the numbers that a setting must keep within limits."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from batchsim import _check, _format
from batchsim.result import metrics
from batchsim.result.value_columns import in_words, joint, limits_of
from batchsim.scenario import Scenario

PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p95_ms": 95.0, "p99_ms": 99.0, "p99_9_ms": 99.9}
# Of token generation: a field is named as its metric.
TOKEN_PERCENTILES = {f"{of}_p{q}_ms": float(q) for of in ("ttft", "tpot") for q in (50, 95, 99)}
OTHERS = {"mean_ms": "mean_latency_ms", "max_loss": "loss", "min_throughput_per_s": "throughput_per_s"}

# A wait of 10 ms and a batch of 6 ms are 16 ms, give or take a float's rounding, and within 16 ms.
ROUNDING = 1e-9


class Objective(NamedTuple):
    """One number that must stay within a limit: at most it, or at least it for a throughput.

    `key` is the number's name in a summary, or "loss"; `q` the percentile, if it is one.
    """

    key: str
    limit: float
    q: float | None = None

    @property
    def column(self) -> str:
        """The column of the requests that a percentile is taken from, as "latency_ms" or "ttft_ms"."""
        return self.key if limits_of(self.key) else metrics.metric(self.key).column

    @property
    def at_most(self) -> bool:
        return self.key != "throughput_per_s" and not limits_of(self.key)

    @property
    def share(self) -> float | None:
        """The least fraction of all requests that must be served for it, None for any."""
        if self.key == "loss":
            return 1 - self.limit
        if limits_of(self.key):
            return self.limit
        return None if self.q is None else self.q / 100

    @property
    def sees_loss(self) -> bool:
        """Whether it is missed when many requests are lost."""
        return self.share is not None

    @property
    def reach(self) -> float:
        """The limit, and what rounding may add to it."""
        return self.limit * (1 + ROUNDING if self.at_most else 1 - ROUNDING)

    def excess(self, value: float) -> float:
        """Return how many times its limit a number is (a throughput, the limit): above 1 it misses it."""
        if math.isnan(value):
            return math.inf
        above, below = (value, self.reach) if self.at_most else (self.reach, value)
        return above / below if below > 0 else math.inf if above > 0 else 0.0

    @property
    def limit_text(self) -> str:
        _, unit, scale = described(self.key)
        return f"{_format.number(self.limit * scale, 6)}{unit}"

    def __str__(self) -> str:
        return f"{described(self.key)[0]} at {'most' if self.at_most else 'least'} {self.limit_text}"


def described(key: str) -> tuple[str, str, float]:
    """Return a metric's label, its unit with the space before it, and how many of the unit are in 1.

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
      `within_ms` it is the fraction within the one percentile that is given.
    - `mean_ms`: the mean latency of the requests that are served. It does not see the others, so a
      scenario that can lose requests needs `max_loss`, or a percentile, beside it.
    - `max_loss`: at most this fraction of the requests is not served.
    - `ttft_p50_ms`, `ttft_p95_ms`, `ttft_p99_ms`, `tpot_p50_ms`, `tpot_p95_ms`, `tpot_p99_ms`: percentiles
      of the time to the first token, and of the time for each token after it. Only with tokens.
    - `attainment` with `ttft_ms` or `tpot_ms`, or both: this fraction of all requests is within both, and
      within `within_ms` too if that is given. The highest rate at which it is is often called the goodput.
    - `min_throughput_per_s`: at least this many answers a second. An open loop that serves every request
      answers at the rate it is offered.

    The 95 % interval of each number is tested: an objective is met once all of the interval is
    within the limit, and missed once none of it is (`batchsim.study.judgement`).

    Raises ValueError where there is no objective, or one contradicts another.

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
    ttft_ms: float | None = None
    tpot_ms: float | None = None

    def __post_init__(self) -> None:
        bounds: dict[str, dict[str, float]] = {"max_loss": {"at_least": 0}, "attainment": {"at_least": 0.001}}
        for name in self._given():
            _check.fix_real(self, name, **bounds.get(name, {"above": 0}))
        for name, why in (("attainment", ": no run can prove all"), ("max_loss", "")):
            if (share := getattr(self, name)) is not None and share >= 1:
                raise ValueError(f"{name} must be a fraction less than 1, got {share!r}{why}")
        self._check_attainment()
        if not self.objectives:
            raise ValueError(f"an SLO must have an objective, as in SLO(p99_ms=50), got {self!r}")

    def _given(self) -> dict[str, float]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def _check_attainment(self) -> None:
        if self.attainment is None:
            for name in ("within_ms", "ttft_ms", "tpot_ms"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs an attainment, the fraction within it, got {self!r}")
        if self.attainment is None or self.within_ms is not None or self._joint():
            return
        given = [name for name in PERCENTILES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"an attainment needs within_ms, or exactly one percentile, got {self!r}")
        already = PERCENTILES[given[0]] / 100
        if self.attainment < already:
            rule = f"an attainment of {given[0]} must be at least the {already:g} that this says already"
            raise ValueError(f"{rule}, got {self.attainment!r}; for another latency give within_ms")

    def _joint(self) -> dict[str, float]:
        """Return the limits within which a fraction of the requests must be, where any is about tokens."""
        of_tokens = {name: ms for name in ("ttft_ms", "tpot_ms") if (ms := getattr(self, name)) is not None}
        if of_tokens and self.within_ms is not None:
            of_tokens["latency_ms"] = self.within_ms
        return of_tokens

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Each number with its limit; an attainment is the percentile of that name."""
        given = self._given()
        limits_ms = {q: given[name] for name, q in PERCENTILES.items() if name in given}
        if self.attainment is not None and not self._joint():
            q = round(100 * self.attainment, 9)  # 100 * 0.995 is 99.5 only after rounding
            ms = next(iter(limits_ms.values())) if self.within_ms is None else self.within_ms
            limits_ms[q] = min(ms, limits_ms.get(q, ms))
        percentiles = [Objective(metrics.percentile_key(q), ms, q) for q, ms in sorted(limits_ms.items())]
        percentiles += [Objective(key, given[key], q) for key, q in TOKEN_PERCENTILES.items() if key in given]
        if limits := self._joint():
            percentiles.append(Objective(joint(limits), given["attainment"]))
        others = [Objective(key, given[name]) for name, key in OTHERS.items() if name in given]
        return (*percentiles, *others)

    @property
    def latency(self) -> Objective:
        """What settings are ranked by: the highest percentile of latency, else of TTFT, else of TPOT.

        Without one, the mean latency if that is limited, else the p99.
        """
        named = [objective for objective in self.objectives if objective.q is not None]
        named = [objective for objective in named if objective.column == named[0].column]
        other = ("p99_ms", math.inf, 99.0) if self.mean_ms is None else ("mean_latency_ms", self.mean_ms)
        return named[-1] if named else Objective(*other)

    def check(self, scenario: Scenario) -> None:
        """Raise ValueError where an objective is about tokens, and the scenario has none."""
        for objective in self.objectives:
            if scenario.tokens is None and objective.column != metrics.LATENCY:
                raise ValueError(
                    f"{objective.key} needs Scenario(..., tokens=...), got a scenario without tokens"
                )

    def __str__(self) -> str:
        return ", ".join(str(objective) for objective in self.objectives)

    def __repr__(self) -> str:
        return f"SLO({', '.join(f'{name}={value!r}' for name, value in self._given().items())})"
