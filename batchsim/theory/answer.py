"""The answer of a theory: means, and the latency's distribution if the theory has one."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._format import percent
from batchsim.scenario import Service

LOOSE = 0.1  # relative
PERCENTILES = (50, 90, 95, 99)  # those of Result.summary()


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """A queueing model's steady state; NaN for a number that the model does not give.

    `model` is its name in Kendall's notation, `source` the publication; `exact` is False for an
    approximation. `mean_wait_ms` is the latency without computing. `batch_size_pmf[k]` is the
    fraction of batches that hold k requests, shape (largest + 1,). `cdf` takes latencies in ms, any
    shape, and returns the fraction of requests that are at least as fast; None if unknown. `bounds` of an
    approximation: the least and the greatest possible true mean, by metric.
    """

    model: str
    source: str
    rate_per_s: float
    saturation_per_s: float
    mean_latency_ms: float
    mean_wait_ms: float
    utilisation: float
    mean_batch_size: float = 1.0
    exact: bool = True
    batch_size_pmf: np.ndarray | None = None
    cdf: Callable[[Any], np.ndarray] | None = None
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def loose(self) -> list[str]:
        """The metrics whose bounds are too far apart to give a value: it could be off by more than 10 %."""
        return [name for name, (low, high) in self.bounds.items() if high - low > LOOSE * low]

    @property
    def accuracy(self) -> str:
        """Whether the answer is exact, or its largest possible error, as text."""
        known = [high / low - 1 for name, (low, high) in self.bounds.items() if name not in self.loose]
        within = f", at most {percent(max(known))} off" if known else ""
        return "exact" if self.exact else f"an approximation{within}"

    @property
    def load(self) -> float:
        return self.rate_per_s / self.saturation_per_s

    def percentile(self, q: float) -> float:
        """Return the least latency in ms that q % of the requests do not exceed; inf for 100.

        Raises ValueError if the model gives no distribution.
        """
        q = _check.real("q", q, above=0, at_most=100)
        if self.cdf is None:
            raise ValueError(f"percentiles need a model with a known distribution, got {self.model}")
        if q == 100:
            return math.inf
        low, high = 0.0, self.mean_latency_ms
        while self.cdf(high) < q / 100:
            low, high = high, 2 * high
            if high > 1e9 * self.mean_latency_ms:  # closer to 100 than the distribution is to 1
                return math.inf
        # A 64-fold search rather than a root finder: the distribution may jump across q, for example at the
        # latency of all requests that do not wait, and the cdf of 64 latencies costs little more than of one.
        while True:
            grid = np.linspace(low, high, 65)
            reached = 1 + int(np.argmax(np.append(self.cdf(grid[1:-1]) >= q / 100, True)))
            if high - low <= grid[reached] - grid[reached - 1] or grid[reached] == grid[reached - 1]:
                return high
            low, high = float(grid[reached - 1]), float(grid[reached])

    def summary(self) -> dict[str, float | bool]:
        """Return the numbers of this model, under the keys of `Result.summary()`."""
        distributed = self.below(np.array([self.mean_latency_ms])) is not None
        numbers = {
            "offered_per_s": self.rate_per_s, "saturation_per_s": self.saturation_per_s, "load": self.load,
            "stable": True, "throughput_per_s": self.rate_per_s, "utilisation": self.utilisation,
            "mean_latency_ms": self.mean_latency_ms,
            **({f"p{q}_ms": self.percentile(q) for q in PERCENTILES} if distributed else {}),
            "mean_computing_ms": self.mean_latency_ms - self.mean_wait_ms,
            "mean_batch_size": self.mean_batch_size,
        }  # fmt: skip
        return {
            key: number for key, number in numbers.items() if not math.isnan(number) and key not in self.loose
        }

    def below(self, latency_ms: np.ndarray) -> np.ndarray | None:
        """Return the fraction of requests up to each latency; None if the distribution is unknown."""
        try:
            return None if self.cdf is None else np.asarray(self.cdf(latency_ms))
        except UnsolvedError:
            return None

    def __repr__(self) -> str:
        return "\n  ".join((f"{self.model}, {self.accuracy} ({self.source})", *self._lines()))

    def _lines(self) -> list[str]:
        lines = [
            f"latency     mean {self.mean_latency_ms:.6g} ms, {self.mean_wait_ms:.6g} ms of it waiting",
            f"throughput  {self.rate_per_s:.6g}/s of {self.saturation_per_s:.6g}/s, load {self.load:.3g}",
            f"utilisation {self.utilisation:.6g}",
            f"batches     of {self.mean_batch_size:.6g} on average",
        ]
        return [line for line in lines if "nan" not in line]


@dataclass(frozen=True)
class NoAnswer:
    """The reason why no theory applies; false, so that `if answer:` tests for an answer.

    >>> NoAnswer("two rules are at work")
    no theory applies: two rules are at work
    """

    why: str

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"no theory applies: {self.why}"


class UnsolvedError(ValueError):
    """A well-defined model without a known solution, or one that is too large to compute."""


def checked(rate_per_s: float, service: Any) -> float:
    """Return the checked arrival rate of a queue with a service."""
    _check.instance("service", service, Service, "a service of batchsim")
    return _check.real("rate_per_s", rate_per_s, above=0)


def check_load(rate_per_s: float, saturation_per_s: float) -> None:
    """Raise ValueError unless the arrival rate is below saturation: otherwise the queue grows without end."""
    if not rate_per_s < saturation_per_s:
        got = f"{rate_per_s / saturation_per_s:.6g}: {rate_per_s:,.6g}/s"
        raise ValueError(f"the load must be below 1, got {got} with saturation at {saturation_per_s:,.6g}/s")
