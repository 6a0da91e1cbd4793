"""A setting in the search: what its longest run says, what became of it, and when it is preferred."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from batchsim import _format
from batchsim.scenario import Scenario
from batchsim.study.judgement import UNJUDGED, UNKNOWN, Estimate, Judgement

SAME = "the same saturation rate and mean"  # and comes first in the grid
Order = tuple[float, float, float]
ADVANTAGES = (
    "more headroom (saturation {}/s, not {}/s)", "a lower mean latency ({} ms, not {})",
    "a shorter wait ({} ms, not {})",
)  # fmt: skip


class Outcome(StrEnum):
    """What became of a setting."""

    CHOSEN = "recommended"
    NEAREST = "nearest"  # none meets the objective, and this one misses it by least
    REFUSED = "refused"  # by the scenario, before any run
    UNSTABLE = "unstable"  # its load is 1 or more
    FAILS = "fails"
    UNCLEAR = "unclear"  # after a full run
    SLOWER = "slower"
    TIED = "tied"  # with the recommended one, which is preferred
    BEHIND = "behind"  # others were ahead, which proves nothing
    DEARER = "more servers"


class Tie(NamedTuple):
    """A setting whose latency no run tells from the recommended one's, and what that one has over it."""

    knobs: Mapping[str, Any]
    advantage: str


@dataclass(eq=False)
class Candidate:
    """A setting in the search, and what its longest run says."""

    knobs: dict[str, Any]
    scenario: Scenario
    outcome: Outcome | None = None
    why: str = ""
    requests: int = 0
    latency: Estimate = UNKNOWN
    judgement: Judgement = UNJUDGED
    numbers: dict[str, float] = field(default_factory=dict)
    # The first round is of the same length for all, so that its numbers can be compared.
    first_ms: float = math.nan
    first_preference: Order = (0.0, 0.0, 0.0)

    @property
    def servers(self) -> int:
        return self.scenario.servers

    @property
    def saturation_per_s(self) -> float:
        return self.scenario.saturation_per_s

    @property
    def preference(self) -> Order:
        """The order among settings of as many servers and the same latency."""
        mean_ms = self.numbers.get("mean_latency_ms", math.nan)
        return preference(self.saturation_per_s, mean_ms, self.scenario.rule.max_wait_ms)

    @property
    def rank(self) -> tuple[float, ...]:
        """The order of the race: what misses the objective by less, then what is faster, then preferred."""
        latency_ms = self.latency.value if self.requests else math.inf
        excess, beyond = max(self.judgement.excess, 1.0), self.judgement.beyond
        return excess, beyond, latency_ms, self.servers, *self.preference

    def eliminate(self, outcome: Outcome, why: str) -> None:
        """Take the setting out of the race, unless that is done."""
        if self.outcome is None:
            self.outcome, self.why = outcome, why

    def advantage(self, other: "Candidate") -> str:
        """Return why this setting is taken rather than another that ties with it."""
        if self.servers < other.servers:
            return f"fewer servers ({self.servers}, not {other.servers})"
        return advantage(self.preference, other.preference) or SAME


def preference(saturation_per_s: float, mean_latency_ms: float, max_wait_ms: float) -> Order:
    """Return the sort key of a setting among others of the same latency: the smallest is taken.

    Headroom comes first, because a latency met today is missed once the load nears saturation; then the
    mean latency, which every request pays; then the shorter wait. What agrees to four digits is equal, so
    that a float's rounding or a few requests at the end of a run decide nothing.

    >>> settings = {"of 4, 5 ms": (753, 6.4, 5), "of 32, no wait": (1421, 6.9, 0)}
    >>> min(settings, key=lambda name: preference(*settings[name]))
    'of 32, no wait'
    """
    mean_ms = math.inf if math.isnan(mean_latency_ms) else mean_latency_ms
    return -float(f"{saturation_per_s:.4g}"), float(f"{mean_ms:.4g}"), max_wait_ms


def advantage(chosen: Order, other: Order) -> str:
    """Return what the chosen setting has over another, given both sort keys; "" if nothing.

    >>> advantage(preference(1421, 6.9, 0), preference(753, 6.4, 5))
    'more headroom (saturation 1,421/s, not 753/s)'
    """
    for text, mine, others in zip(ADVANTAGES, chosen, other, strict=True):
        if mine != others:
            return text.format(_format.number(abs(mine), 4), _format.number(abs(others), 4))
    return ""
