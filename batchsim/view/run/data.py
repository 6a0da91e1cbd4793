"""What a picture of a run shows, and what several of its views derive from it."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from batchsim.result import Result
from batchsim.result.comparison import Comparison
from batchsim.view.run.ranked import Ranked

if TYPE_CHECKING:
    from batchsim.study.surface import LoadCurve, Surface
    from batchsim.theory.curve import TheoryCurve


@dataclass(frozen=True, eq=False)
class ViewData:
    """A run, what other settings and other loads would give, and what it is compared with.

    `objective_ms` is for the p99. `pinned` is A, the data of an earlier setting, to which this one is B;
    `comparison` then holds the differences B - A, in runs of the same traffic. What is derived is computed
    once, also for A, which stays the same while B moves.
    """

    result: Result
    surface: "Surface" = None  # type: ignore[assignment]  # a still picture has neither
    curve: "LoadCurve" = None  # type: ignore[assignment]
    theory: "TheoryCurve | None" = None
    objective_ms: float | None = None
    pinned: "ViewData | None" = None
    comparison: Comparison | None = None

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.result.summary()

    @cached_property
    def ranked(self) -> Ranked:
        return Ranked(self.result.latency_ms)

    @property
    def overloaded(self) -> bool:
        """Whether the run has no steady state: its latencies only say how long the run was."""
        return not self.result.scenario.stable

    @property
    def loss(self) -> float:
        """The fraction of the requests that were rejected or timed out."""
        return 1 - self.summary["served"] / self.summary["requests"]
