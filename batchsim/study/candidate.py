"""A setting in the search, what its longest run says, and what became of it."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from batchsim.scenario import Scenario
from batchsim.study.choice import Order, preference
from batchsim.study.judgement import Estimate, Verdict

UNKNOWN = Estimate(math.nan, math.nan, math.nan)


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


@dataclass(eq=False)
class Candidate:
    """A setting in the search, and what its longest run says."""

    knobs: dict[str, Any]
    scenario: Scenario
    outcome: Outcome | None = None
    why: str = ""
    requests: int = 0
    latency: Estimate = UNKNOWN
    excess: float = math.inf
    beyond: float = 0.0
    verdict: Verdict = Verdict.UNCLEAR
    numbers: dict[str, float] = field(default_factory=dict)
    # The first round is of the same length for all, so that its numbers can be compared.
    first_ms: float = math.nan
    first_mean_ms: float = math.nan

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
    def first_preference(self) -> Order:
        """The same, by the first round."""
        return preference(self.saturation_per_s, self.first_mean_ms, self.scenario.rule.max_wait_ms)

    @property
    def rank(self) -> tuple[float, ...]:
        """The order of the race: what misses the objective by less, then what is faster, then preferred."""
        latency_ms = self.latency.value if self.requests else math.inf
        return max(self.excess, 1.0), self.beyond, latency_ms, self.servers, *self.preference

    def eliminate(self, outcome: Outcome, why: str) -> None:
        """Take the setting out of the race, unless that is done."""
        if self.outcome is None:
            self.outcome, self.why = outcome, why
