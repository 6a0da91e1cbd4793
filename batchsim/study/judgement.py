"""How a setting is judged: by whether a run shows that it meets an objective, by its cost, and its rank.

A run meets an objective if the whole interval of its number is within the limit, and fails if the whole
interval is beyond it. A search tests many settings several times, and each test may be wrong, so it drops a
setting only at the level `STRICT`. A full run, judged at the usual `LEVEL`, confirms the recommendation.

A `Candidate` is a setting in a search, with the judgement of each of its runs, what it costs, how it ranks
among the others, and what became of it.
"""

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import numpy as np

from batchsim import _format
from batchsim.result import Result
from batchsim.result.intervals import metric_intervals
from batchsim.result.metrics import LATENCY, MILLION, metric
from batchsim.result.run_length import BEYOND, FEW, Periods, run_length
from batchsim.result.sample import Sample
from batchsim.result.shares import percentile_metric, percentile_of_all, share_of_all
from batchsim.result.value_columns import limits_of, part_of_limits
from batchsim.scenario import ClosedLoop, OpenLoop, Scenario, Trace
from batchsim.study.kinds import kind_of
from batchsim.study.paired import SAME, Order, Values, advantage, preference
from batchsim.study.slo import LEVEL, SLO, Objective, described

# Repeated tests on growing data reject far too often at the usual level (Armitage, McPherson and Rowe 1969).
# At this one, at most one test in a thousand drops a setting wrongly, nominally: short runs may err more
# often.
STRICT = 0.999
# Independent requests beyond a percentile that its interval needs. Fewer than for a reported one (BEYOND),
# because the limit is often far away, and a full run confirms the recommendation.
INDEPENDENT = 2
WARMUP = 0.1  # of each run; 0 for a trace or a day, whose start is part of the question
SURELY = 1.01  # times the limit: percentiles of many drawn lengths are less exact than that


class Estimate(NamedTuple):
    """A value and its interval, whose ends are NaN if the run is too short for one."""

    value: float
    low: float
    high: float

    def columns(self, key: str) -> dict[str, float]:
        """Return it as columns of a table."""
        return dict(zip((key, f"{key}_low", f"{key}_high"), self, strict=True))

    def in_words(self, key: str, digits: int = 4) -> str:
        """Return a metric's value with its interval.

        >>> Estimate(17.58, 17.4, 17.73).in_words("p99_ms")
        'p99 17.58 ms (17.4 to 17.73)'
        >>> Estimate(math.inf, 11.34, math.inf).in_words("p99_ms")
        'p99 ∞ (11.34 to ∞)'
        """
        label, unit, scale = described(key)
        value, low, high = (_format.number(each * scale, digits) for each in self)
        interval = "" if math.isnan(self.low) or low == high else f" ({low} to {high})"
        return f"{label} {value}{unit * math.isfinite(self.value)}{interval}"


class Verdict(Enum):
    """Whether a run shows that an objective is met."""

    MEETS = "meets"
    UNCLEAR = "unclear"
    FAILS = "fails"


@dataclass(frozen=True)
class Judgement:
    """The verdict on all objectives, the worst of them, and the estimates.

    `excess` is the largest ratio of an estimate to its limit: above 1, an objective is missed. If it is
    infinite, as for a p99 when 2 % are lost, `beyond` is the largest fraction of requests late or lost under
    those objectives; else 0. `partial`: why a run covers only a part of a day; else "".
    """

    verdict: Verdict
    excess: float
    worst: Objective
    estimates: dict[Objective, Estimate]
    beyond: float = 0.0
    partial: str = ""

    @property
    def meets(self) -> bool:
        return self.verdict is Verdict.MEETS

    @property
    def unclear(self) -> bool:
        return self.verdict is Verdict.UNCLEAR

    @property
    def too_short(self) -> bool:
        """Whether only a longer run could decide: the estimates meet the limits, or are of part of a day."""
        return self.unclear and (self.excess <= 1 or bool(self.partial))

    @property
    def longer(self) -> float:
        """How many times as long a run may have to be to decide; NaN if this one has no interval."""
        value, low, high = self.estimates[self.worst]
        width = high - value if self.worst.at_most else value - low
        room = abs(self.worst.limit - value)
        if not 0 < width < math.inf:
            return math.nan
        # The width falls with the root of the length. A fifth more, as the width varies too.
        return 1.2 * (width / room) ** 2 if room else math.inf

    @property
    def in_words(self) -> str:
        """The estimate for each objective."""
        return _format.listed([each.in_words(of.key) for of, each in self.estimates.items()])

    @property
    def finding(self) -> str:
        """The estimate for the worst objective, and its side of the limit."""
        worst, known = self.worst, self.estimates[self.worst]
        missed, met = ("above", "below") if worst.at_most else ("below", "above")
        side = {Verdict.FAILS: missed, Verdict.MEETS: met, Verdict.UNCLEAR: "not clearly above or below"}
        clearly = "clearly " if self.verdict is Verdict.FAILS and math.isnan(known.low) else ""
        return f"{known.in_words(worst.key)}, {clearly}{side[self.verdict]} {worst.limit_text}"

    @property
    def against_limits(self) -> str:
        """Each estimate and its side of the limit, without regard to its interval."""
        sides = []
        for of, known in self.estimates.items():
            side = "within" if of.at_most else "at least"
            if of.excess(known.value) > 1:
                side = "above" if of.at_most else "below"
            sides.append(f"{known.in_words(of.key)}, {side} the {of.limit_text} asked for")
        return "; ".join(sides)


UNKNOWN = Estimate(math.nan, math.nan, math.nan)
UNJUDGED = Judgement(Verdict.UNCLEAR, math.inf, Objective("", math.nan), {})
OVERLOADED = replace(UNJUDGED, verdict=Verdict.FAILS)  # without a run


def judge(result: Result, slo: SLO, level: float = LEVEL) -> Judgement:
    """Return whether a run shows that the objectives are met, each at this level of confidence.

    Traffic that drifts has no intervals, because no section of it resembles the next. But a whole recorded
    trace, or a few whole days, are not a sample: their numbers decide without an interval. A part of a day
    proves nothing.

    >>> from batchsim import Affine, Poisson, SizeOrWait, simulate
    >>> run = simulate(Scenario(Poisson(800), SizeOrWait(32, 10), Affine(5, 0.25)), 20_000, warmup=0.1)
    >>> judge(run, SLO(p99_ms=50)).verdict, judge(run, SLO(p99_ms=15)).verdict
    (<Verdict.MEETS: 'meets'>, <Verdict.FAILS: 'fails'>)
    """
    slo.check(result.scenario)
    exact, stable = _whole(result), result.scenario.stable
    estimates = {objective: estimate(result, objective, level) for objective in slo.objectives}
    excesses = {objective: objective.excess(each.value) for objective, each in estimates.items()}
    verdicts = {
        objective: _verdict(result, objective, each, level, exact) if stable else Verdict.FAILS
        for objective, each in estimates.items()  # overloaded, it fails sooner or later
    }
    order = (Verdict.FAILS, Verdict.UNCLEAR, Verdict.MEETS)
    overall = next(verdict for verdict in order if verdict in verdicts.values())
    decisive = (objective for objective, verdict in verdicts.items() if verdict is overall)
    infinite = [objective for objective, excess in excesses.items() if math.isinf(excess)]
    beyond = max((_beyond(result, each, estimates[each].value) for each in infinite), default=0)
    worst = max(decisive, key=excesses.__getitem__)
    return Judgement(overall, max(excesses.values()), worst, estimates, beyond, result.sample.partial)


def _whole(result: Result) -> bool:
    """Return whether a run is a whole trace, or a few whole days, each longer than the queue's memory."""
    workload, periods = result.scenario.workload, result.periods
    if isinstance(workload, Trace):
        return int(result.metrics.totals.requests) + result.sample.dropped >= workload.times_s.size
    if periods is None:
        return False
    return 0 < periods.whole < FEW and run_length(result.scenario).warmup <= periods.day.requests_a_period


def _beyond(result: Result, objective: Objective, value: float) -> float:
    if objective.q is not None:
        return 1 - share_within(result, objective.limit, column=objective.column).value
    return value if objective.key == "loss" else 1.0


def _verdict(result: Result, objective: Objective, known: Estimate, level: float, exact: bool) -> Verdict:
    value, low, high = known
    if exact and math.isnan(low):
        low = high = value
    best, worst = (low, high) if objective.at_most else (high, low)
    if objective.excess(worst) <= 1:
        return Verdict.MEETS
    if not math.isnan(best) and objective.excess(best) > 1:
        return Verdict.FAILS
    if objective.q is None:
        return Verdict.UNCLEAR
    # If the limit is far from the percentile, the fraction within the limit decides even in a run that is too
    # short for an interval of the percentile: that fraction is a mean, not an order statistic of the tail.
    within = share_within(result, objective.limit, level, objective.column)
    if within.low >= objective.q / 100:
        return Verdict.MEETS
    return Verdict.FAILS if within.high < objective.q / 100 else Verdict.UNCLEAR


def estimate(result: Result, objective: Objective, level: float = LEVEL) -> Estimate:
    """Return the estimate of an objective's metric from a run."""
    key, scenario, workload = objective.key, result.scenario, result.scenario.workload
    if objective.q is not None:
        return percentile(result, objective.q, level, objective.column)
    if key == "mean_latency_ms":
        return number(result, key, level)
    if limits_of(key):
        return share_within(result, 1.0, level, key)
    lost = Estimate(0.0, 0.0, 0.0)
    if scenario.can_lose:
        served = share_within(result, math.inf, level)
        lost = Estimate(1 - served.value, 1 - served.high, 1 - served.low)
    if key == "loss":
        return lost
    if isinstance(workload, ClosedLoop):
        return number(result, key, level)
    offered = workload.offered_per_s
    if not scenario.stable:
        offered = min(offered, scenario.saturation_per_s)
    return Estimate(*(offered * (1 - share) for share in (lost.value, lost.high, lost.low)))


class Missed(NamedTuple):
    """An objective that no run can meet: by which factor it is missed at least, and a sentence."""

    excess: float
    text: str


def out_of_reach(scenario: Scenario, slo: SLO, seed: int = 0) -> Missed | None:
    """Return the objective that every run of a scenario misses by most; None without such a one.

    A request of tokens that is alone on an engine has the least latency, TTFT and TPOT. Steps with noise have
    no such bound.

    >>> from batchsim import Continuous, Poisson, StepTime, Tokens
    >>> tokens = Tokens(prompt=1000, output=100)
    >>> light = Scenario(Poisson(0.1), Continuous(), StepTime(2, 8, 0.1), tokens=tokens)
    >>> out_of_reach(light, SLO(ttft_p99_ms=50)).text
    'TTFT p99 is at least 102 ms, as of a request alone on an engine, above 50 ms'
    >>> out_of_reach(light, SLO(ttft_p99_ms=150)) is None
    True
    """
    if not scenario.saturation_per_s:
        limit = f"{scenario.rule.largest_size:,} units"
        return Missed(math.inf, f"each request is rejected for its size, above {limit}: none is served")
    columns, missed = kind_of(scenario).least_ms(scenario, seed, WARMUP), []
    for objective in slo.objectives if columns else ():
        best = _best(objective, columns, scenario.can_lose)
        if best is None or (excess := objective.excess(best)) < SURELY:
            continue
        label, unit, scale = described(objective.key)
        side, than = ("least", "above") if objective.at_most else ("most", "below")
        value = f"{_format.number(best * scale, 4)}{unit}, as of a request alone on an engine"
        missed.append(Missed(excess, f"{label} is at {side} {value}, {than} {objective.limit_text}"))
    return max(missed, default=None)


def _best(objective: Objective, columns: Mapping[str, np.ndarray], can_lose: bool) -> float | None:
    """Return the best possible value of an objective's number; None if unknown."""
    if objective.q is not None:
        values = columns.get(objective.column, np.empty(0))
        values = values[~np.isnan(values)]
        return float(np.percentile(values, objective.q)) if values.size else None
    if limits_of(objective.key):
        return float((part_of_limits(columns, objective.key) <= 1).mean())
    if objective.key == "mean_latency_ms" and not can_lose:
        return float(columns[LATENCY].mean())
    return None


def recorded(scenario: Scenario) -> bool:
    """Return whether the workload is a course of time (a trace, a day), not a sample of steady traffic."""
    return isinstance(scenario.workload, Trace) or Periods.of(scenario.workload, 1) is not None


def number(result: Result, key: str, level: float = LEVEL) -> Estimate:
    """Return a metric of a run with its interval."""
    (interval,) = metric_intervals([_sample(result, level)], [metric(key)], level).values()
    return Estimate(result.metrics.number(key), *interval)


def _sample(result: Result, level: float) -> Sample:
    """Return the sample that intervals are made of; a search skips its tests of length and drift."""
    return result.sample if level < STRICT else replace(result.sample, length=None, drift="")


def percentile(result: Result, q: float, level: float = LEVEL, column: str = LATENCY) -> Estimate:
    """Return the latency (or another column's value) in ms that q % of all requests do not exceed.

    A request that is not served is infinitely late.
    """
    if not result.scenario.can_lose:
        estimated = number(result, percentile_metric(q, column).key, level)
        if not math.isnan(estimated.low) or level < STRICT:
            return estimated
    # This interval counts lost requests, and needs fewer independent ones in a search.
    value, needed = result.metrics.percentile(q, "inf", column), INDEPENDENT if level >= STRICT else BEYOND
    return Estimate(value, *percentile_of_all(_sample(result, level), q, level, needed, column))


def share_within(result: Result, limit_ms: float, level: float = LEVEL, column: str = LATENCY) -> Estimate:
    """Return the fraction of all requests that are served within a limit, with its interval."""
    metrics = result.metrics
    among = metrics.all_in(column)  # none, as where all answers of a run have one token
    share = metrics.columns[column].within(limit_ms) / among if among else math.nan
    return Estimate(share, *share_of_all(_sample(result, level), limit_ms, level, column))


# A setting in a search.

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
        """Whether the cost to minimise is known from a run alone, as energy always is."""
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
