"""A scene: all the numbers that one live picture shows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchsim.result import Result
from batchsim.result.comparison import Comparison

if TYPE_CHECKING:
    from batchsim.study.surface import LoadCurve, Surface
    from batchsim.theory.curve import TheoryCurve


@dataclass(frozen=True, eq=False)
class Scene:
    """A run, what other settings and other loads would give, and what it is held against.

    `objective_ms` is the p99 that is wanted. `pinned` is A, another scene that was put aside, while this one
    is B; `comparison` is then how far B is above A, in runs of the same traffic.
    """

    result: Result
    surface: "Surface"
    curve: "LoadCurve"
    theory: "TheoryCurve | None" = None
    objective_ms: float | None = None
    pinned: "Scene | None" = None
    comparison: Comparison | None = None
