"""A setting in a search: its runs, what it costs, and what became of it."""

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from batchsim.result import Result
from batchsim.result.metrics import MILLION
from batchsim.scenario import OpenLoop, Scenario
from batchsim.study.judgement import STRICT, UNJUDGED, UNKNOWN, Estimate, Judgement, estimate, judge
from batchsim.study.kinds import kind_of
from batchsim.study.paired import SAME, Order, Values, advantage, preference
from batchsim.study.slo import SLO

STEP = 1.01  # between measured costs that differ


class Outcome(StrEnum):
    """What became of a setting."""

    RECOMMENDED = "recommended"
    NEAREST = "nearest"  # all miss the objective, this one by least
    REFUSED = "refused"  # by the scenario, before any run
    UNSTABLE = "unstable"  # its load is 1 or more
    FAILS = "fails"
    UNCLEAR = "unclear"  # after the run with a fresh seed
    SLOWER = "slower"
    TIED = "tied"  # with the recommended one, which is preferred
    LEFT = "not run"  # or not to the end, as the search was interrupted
    DEARER = "more servers"
    HUNGRIER = "more energy"


class Tie(NamedTuple):
    """A setting whose latency does not differ from the recommended one's, and the advantage of that one."""

    knobs: Mapping[str, Any]
    advantage: str


class Ran(NamedTuple):
    """The numbers of a run that a search keeps: `values`, by metric, are compared with other settings'."""

    requests: int
    judgement: Judgement
    latency: Estimate
    numbers: dict[str, float]
    values: dict[str, Values]

    @classmethod
    def of(cls, result: Result, slo: SLO, strict: bool = False, keys: Iterable[str] = ()) -> "Ran":
        """Return the numbers of a run; `strict`: it fails at the strict level alone."""
        scenario, judgement = result.scenario, judge(result, slo)
        latency = judgement.estimates.get(slo.latency) or estimate(result, slo.latency)
        if strict and judgement.excess > 1:  # otherwise it cannot fail
            judgement = judge(result, slo, STRICT)
        noted = (
            *kind_of(scenario).noted,
            *(() if scenario.price_per_hour is None else ("cost_per_million",)),
            *(() if scenario.watts is None else ("joules_per_request",)),
        )
        return cls(
            result.arrival_s.size,
            judgement,
            latency,
            {name: result.metrics.number(name) for name in noted},
            {key: Values.of(result, key) for key in keys},
        )


NOT_RUN = Ran(0, UNJUDGED, UNKNOWN, {}, {})


@dataclass(eq=False)
class Candidate:
    """A setting in the search, with its runs: of screening, in full, and with the fresh seed."""

    knobs: dict[str, Any]
    scenario: Scenario
    changes: int = 0  # of its knobs from their present values, if that counts
    prefer: str = "cheapest"
    outcome: Outcome | None = None
    why: str = ""
    screened: Ran = field(default=NOT_RUN, repr=False)
    full: Ran = field(default=NOT_RUN, repr=False)
    fresh: Ran = field(default=NOT_RUN, repr=False)
    mean_ms: float = math.nan  # that of another from which it hardly differs
    better_by_ms: float = math.nan  # the most that it may be better than the chosen one

    @property
    def searched(self) -> Ran:
        """The longest run in the traffic that all settings met."""
        return self.full if self.full.requests else self.screened

    @property
    def last(self) -> Ran:
        return self.fresh if self.fresh.requests else self.searched

    @property
    def servers(self) -> int:
        return self.scenario.all_servers

    @property
    def cost_per_million(self) -> float:
        """What a million requests cost if it keeps up; NaN without a price, or before a run that tells it."""
        scenario = self.scenario
        if scenario.price_per_hour is None or not (fixed_per_s := self._fixed_per_s):
            return self._told("cost_per_million")
        return scenario.price_per_hour / 3600 * self.servers / fixed_per_s * MILLION

    @property
    def joules_per_request(self) -> float:
        """What a request takes; NaN without watts, or before a run that tells it."""
        return self._told("joules_per_request")

    def _told(self, key: str) -> float:
        """Return a metric of its longest run, NaN before one."""
        told = self.searched if self.searched.requests else self.fresh
        return told.numbers.get(key, math.nan)

    @property
    def cost(self) -> float:
        """What "cheapest" minimises: the cost of a million requests, or without a price the servers.

        With "greenest" it is the energy of a request. Costs that only a run tells are equal in steps of 1 %.
        """
        green = self.prefer == "greenest"
        if self.scenario.price_per_hour is None and not green:
            return self.servers
        if not self.metered:
            return self.cost_per_million
        if not (paid := self.joules_per_request if green else self.cost_per_million) > 0:
            return 0.0 if paid == 0 else math.inf  # not run
        return float(STEP ** round(math.log(paid, STEP)))

    @property
    def metered(self) -> bool:
        """Whether only a run tells what "cheapest" or "greenest" minimises, as it always tells the energy."""
        is_priced = self.scenario.price_per_hour is not None
        return self.prefer == "greenest" or (is_priced and not self._fixed_per_s)

    @property
    def _fixed_per_s(self) -> float:
        """The rate of requests if it keeps up; 0 if they are lost, clients wait, or replicas change."""
        scenario = self.scenario
        is_known = not scenario.can_lose and scenario.autoscale is None
        return (
            scenario.workload.offered_per_s if isinstance(scenario.workload, OpenLoop) and is_known else 0.0
        )

    @property
    def saturation_per_s(self) -> float:
        return self.scenario.saturation_per_s

    @property
    def preference(self) -> Order:
        """The order among settings of the same cost and the same latency."""
        return preference(self.saturation_per_s, self.mean_ms, self.scenario.rule.max_wait_ms)

    @property
    def rank(self) -> tuple[float, ...]:
        """The order by its last run: by how much the objective is missed, by latency, by preference."""
        judgement, latency_ms = self.last.judgement, self.last.latency.value
        latency_ms = math.inf if math.isnan(latency_ms) else latency_ms
        return max(judgement.excess, 1.0), judgement.beyond, latency_ms, self.servers, *self.preference

    def eliminate(self, outcome: Outcome, why: str) -> None:
        """Take the setting out, unless it is out already."""
        if self.outcome is None:
            self.outcome, self.why = outcome, why

    def advantage(self, other: "Candidate") -> str:
        """Return why this setting is preferred to another that ties with it."""
        if self.servers < other.servers:
            return f"fewer servers ({self.servers}, not {other.servers})"
        if self.changes < other.changes:
            return f"fewer changes ({self.changes}, not {other.changes})"
        return advantage(self.preference, other.preference) or SAME


def by_rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return settings in the order of their last runs."""
    return sorted(candidates, key=operator.attrgetter("rank"))
