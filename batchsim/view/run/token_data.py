"""What a picture of a run of token generation shows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchsim.result.metrics import LATENCY, TPOT, TTFT
from batchsim.view.run.data import ViewData
from batchsim.view.run.moment import Moment, moment

NAMED = {TTFT: "TTFT", TPOT: "TPOT", LATENCY: "answer"}  # what objectives may be about, in words

# The percentiles at which a curve has its points: in the tail ten times as many.
AT = np.concatenate([np.arange(0.0, 99.0), np.linspace(99, 100, 11)])


@dataclass(frozen=True, eq=False)
class TokenViewData(ViewData):
    """A run of token generation, with up to three objectives.

    `ttft_ms`, `tpot_ms` and `objective_ms`, of the whole answer, are limits as `Result.attainment` has them.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    @cached_property
    def limits_ms(self) -> dict[str, float]:
        """The objectives that are given, by their column."""
        limits = {TTFT: self.ttft_ms, TPOT: self.tpot_ms, LATENCY: self.objective_ms}
        return {column: limit_ms for column, limit_ms in limits.items() if limit_ms is not None}

    @cached_property
    def shares(self) -> dict[str, float]:
        """The fraction of the requests within each objective that is given."""
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

        As `Result.attainment` counts them: an answer of one token, which has no TPOT, keeps any limit on it.
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
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals of what the headline shows, NaN where the run is too short for one."""
        if self.overloaded or not self.summary["served"]:
            return {}
        return dict(self.result.intervals(["ttft_p99_ms", "tpot_p99_ms", "output_tokens_per_s"]))

    @cached_property
    def _moments(self) -> dict[int, Moment | None]:
        return {}

    def moment(self, server: int = 0) -> Moment | None:
        """Return the steps in a row that are shown of a server; None where it has none."""
        if server not in self._moments:
            self._moments[server] = moment(self.result, server=server)
        return self._moments[server]

    def part_ms(self, part: str) -> np.ndarray:
        if part == "waiting":  # for company or for a server: of tokens it is one part
            return (self.result.start_s - self.result.arrival_s) * 1000
        return super().part_ms(part)

    def mean_ms(self, part: str) -> float:
        if part == "waiting":
            return super().mean_ms("forming") + super().mean_ms("queueing")
        return super().mean_ms(part)


def of_tokens(data: ViewData) -> TokenViewData:
    """Return the data, which must be of token generation."""
    if not isinstance(data, TokenViewData):
        raise TypeError(f"a picture of tokens must be shown a TokenViewData, got {type(data).__name__}")
    return data


def _as_argument(limits_ms: dict[str, float]) -> dict[str, float]:
    return {"objective_ms" if column == LATENCY else column: ms for column, ms in limits_ms.items()}
