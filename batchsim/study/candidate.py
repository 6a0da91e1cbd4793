"""A setting in a search: its numbers, what it costs, and what became of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from batchsim.result.metrics import MILLION
from batchsim.scenario import OpenLoop, Scenario
from batchsim.study.judgement import UNJUDGED, UNKNOWN, Estimate, Judgement
from batchsim.study.paired import Values
from batchsim.study.preference import SAME, Order, advantage, preference

STEP = 1.01  # between measured costs that differ


class Outcome(StrEnum):
    """What became of a setting."""

    CHOSEN = "recommended"
    NEAREST = "nearest"  # all miss the objective, this one by least
    REFUSED = "refused"  # by the scenario, before any run
    UNSTABLE = "unstable"  # its load is 1 or more
    FAILS = "fails"
    UNCLEAR = "unclear"  # after a full run
    SLOWER = "slower"
    TIED = "tied"  # with the recommended one, which is preferred
    BEHIND = "behind"  # the round had no place for it, which proves nothing
    DEARER = "more servers"


class Tie(NamedTuple):
    """A setting whose latency does not differ from the recommended one's, and the advantage of that one."""

    knobs: Mapping[str, Any]
    advantage: str


@dataclass(eq=False)
class Candidate:
    """A setting in the search, with the numbers of its last run.

    `fresh`: the requests of its run with a fresh seed. `searched`: the judgement of its last run in the race;
    `runs`: the values of its runs there, by length and column. `paid`: what a million requests cost in the
    first of them, NaN without a price.
    """

    knobs: dict[str, Any]
    scenario: Scenario
    outcome: Outcome | None = None
    why: str = ""
    requests: int = 0
    fresh: int = 0
    latency: Estimate = UNKNOWN
    judgement: Judgement = UNJUDGED
    searched: Judgement = UNJUDGED
    numbers: dict[str, float] = field(default_factory=dict)
    mean_ms: float = math.nan  # of its last run in the race; that of another from which it hardly differs
    runs: dict[int, dict[str, Values]] = field(default_factory=dict, repr=False)
    paid: float = math.nan
    # From the first round, whose length is the same for all, so that they can be compared.
    first_ms: float = math.nan
    better_by_ms: float = math.nan  # the most that it may be better than the chosen one
    first_preference: Order = (0.0, 0.0, 0.0)

    @property
    def servers(self) -> int:
        return self.scenario.all_servers

    @property
    def cost_per_million(self) -> float:
        """What a million requests cost if it keeps up; NaN without a price, or before a run that tells it."""
        scenario = self.scenario
        if scenario.price_per_hour is None or self.metered or not isinstance(scenario.workload, OpenLoop):
            return self.paid
        return scenario.price_per_hour / 3600 * self.servers / scenario.workload.offered_per_s * MILLION

    @property
    def cost(self) -> float:
        """What "cheapest" minimises: the cost of a million requests, or without a price the servers.

        Costs that only a run tells are equal in steps of 1 %.
        """
        if self.scenario.price_per_hour is None:
            return self.servers
        if not self.metered:
            return self.cost_per_million
        if not self.paid > 0:
            return 0.0 if self.paid == 0 else math.inf  # not run
        return float(STEP ** round(math.log(self.paid, STEP)))

    @property
    def metered(self) -> bool:
        """Whether only a run tells what requests cost: they are lost, clients wait, or replicas change."""
        scenario = self.scenario
        fixed = (
            isinstance(scenario.workload, OpenLoop) and not scenario.can_lose and scenario.autoscale is None
        )
        return scenario.price_per_hour is not None and not fixed

    @property
    def saturation_per_s(self) -> float:
        return self.scenario.saturation_per_s

    @property
    def preference(self) -> Order:
        """The order among settings of the same cost and the same latency."""
        return preference(self.saturation_per_s, self.mean_ms, self.scenario.rule.max_wait_ms)

    @property
    def rank(self) -> tuple[float, ...]:
        """The order of the race: by how much the objective is missed, then by latency, then by preference."""
        latency_ms = self.latency.value if self.requests else math.inf
        excess, beyond = max(self.judgement.excess, 1.0), self.judgement.beyond
        return excess, beyond, latency_ms, self.servers, *self.preference

    def eliminate(self, outcome: Outcome, why: str) -> None:
        """Take the setting out of the race, unless it is out already."""
        if self.outcome is None:
            self.outcome, self.why = outcome, why

    def advantage(self, other: "Candidate") -> str:
        """Return why this setting is preferred to another that ties with it."""
        if self.servers < other.servers:
            return f"fewer servers ({self.servers}, not {other.servers})"
        return advantage(self.preference, other.preference) or SAME
