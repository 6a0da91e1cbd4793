"""A search: every setting in a full run of the same traffic, and the choice once more under a fresh seed.

All settings meet the same requests (common random numbers), so their differences are paired. A setting is
eliminated

- without a run, if its load is 1 or more, or if no run of it can meet the objective;
- if its run clearly fails, at the strict level of `batchsim.study.judgement`: a search makes many tests.

The choice of many is that of the luckiest, so its own numbers tend to be too good. That it meets the
objective rests on a full run with a fresh seed alone, at the usual level. If that does not decide, the run
gets longer, up to ten times, where such a run can decide. The first setting that passes is taken: the level
of a test is not corrected for several. A trace has no other seed.

Runs may not tell several settings from the fastest. That proves no equality: it may be a lack of power, so
their estimates must also be within 2 %. `Candidate.preference` then decides as an engineer would. How far the
choice may be above the best is bounded by multiple comparisons with the best (`batchsim.study.paired`). A
setting whose run is short for the memory of its queue has no bound: the statement leaves it out, and says so.

A search that would take more than half a minute begins with one round of screening: a tenth of the requests.
A setting goes on unless that run clearly fails, or paired bounds show it to be slower than another that costs
as much, at the strict level. A trace, a day, an autoscaler, and costs that only a run tells have no such
round, as the beginning of the run does not represent the whole.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from batchsim import _format
from batchsim._workers import Crew
from batchsim.engines.estimates import check_memory, run_s
from batchsim.result import Result
from batchsim.result.metrics import metric
from batchsim.result.run_length import Periods, rounded_up, run_length
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.simulate import available, simulated
from batchsim.study.grid import overload, setting
from batchsim.study.judgement import (
    STRICT,
    WARMUP,
    Candidate,
    Missed,
    Outcome,
    Ran,
    Verdict,
    by_rank,
    out_of_reach,
    recorded,
)
from batchsim.study.paired import Bound, Statement, better_by
from batchsim.study.slo import LEVEL, SLO

LONGEST = 10  # times the requested length, if only a longer run can decide
FRESH = 1_000_000  # from the seed of a search to that of the run which confirms its choice
Job = tuple[Scenario, int, int, float]  # a run: its scenario, requests, seed and warm-up


@dataclass
class Traffic:
    """The first `requests` of a scenario's workload under one seed; it counts what is simulated of it.

    For a day, the nearest number that covers whole periods, if that is not too many: see `whole`.
    """

    scenario: Scenario
    requests: int
    seed: int = 0
    most: float = math.inf  # requests: the next one can never be served
    _counts: list[int] = field(default_factory=list, repr=False)  # shared with a longer Traffic

    def __post_init__(self) -> None:
        periods = Periods.of(self.scenario.workload, self.requests)
        if (
            periods is not None
            and (enough := periods.enough()) <= LONGEST * self.requests
            and fits(self.scenario, enough)
        ):
            self.requests = enough

    @property
    def whole(self) -> bool:
        """Whether it covers whole periods; a part of one proves nothing."""
        periods = Periods.of(self.scenario.workload, self.requests)
        return periods is None or periods.whole > 0

    @property
    def simulated(self) -> int:
        """The requests simulated so far."""
        return sum(self._counts)

    def count(self, requests: int) -> None:
        """Add to the requests simulated so far."""
        self._counts.append(requests)

    def fresh(self, most: float = math.inf) -> "Traffic":
        """Return as many requests of the same workload under another seed."""
        return replace(self, seed=self.seed + FRESH, most=most)

    def run(self, scenario: Scenario) -> Result:
        """Run a scenario with this traffic, and count it."""
        self.count(self.requests)
        return run_job(self.job(scenario))

    def job(self, scenario: Scenario, requests: int | None = None) -> Job:
        """Return such a run before it runs, or the beginning of it."""
        requests = self.requests if requests is None else requests
        return scenario, requests, self.seed, 0.0 if recorded(self.scenario) else WARMUP

    def resized(self, requests: int) -> "Traffic | None":
        """Return so many requests of the same traffic; None if the workload or the memory ends before.

        Fewer if one of them can never be served, as a run would end there.
        """
        requests = int(min(requests, self.most))
        fit = available(self.scenario, requests) == requests and fits(self.scenario, requests)
        if not fit or not self.whole:
            return None
        return Traffic(self.scenario, requests, self.seed, self.most, self._counts)


def run_job(job: Job) -> Result:
    """Return the result of a run."""
    scenario, requests, seed, warmup = job
    return simulated(scenario, requests, seed, warmup=warmup, keep="requests")[0]


def fits(scenario: Scenario, requests: int) -> bool:
    """Return whether the columns of so many requests fit in memory."""
    try:
        check_memory(scenario, requests)
    except MemoryError:
        return False
    return True


def fewest(scenario: Scenario, slo: SLO, easy: bool = True) -> float:
    """Return how many requests a run needs at least, after its warm-up, to prove that objectives are met.

    Even if all are in time, a shorter run has too few bursts, or too few independent requests. If the
    objectives are not `easy`, some are late, and a percentile needs its own interval.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> round(fewest(Scenario(Poisson(900), SizeOrWait(1, 0), Affine(1, 0)), SLO(p99_ms=30)))
    73408
    """
    if recorded(scenario):
        return 0.0
    length, needed = run_length(scenario), 0.0
    for objective in slo.objectives:
        key, share = objective.key, objective.share
        if share is None:
            if key == "mean_latency_ms" or isinstance(scenario.workload, ClosedLoop):
                needed = max(needed, length.needed(metric(key)))
        elif key != "loss" or scenario.can_lose:
            # If n of n independent requests are within the limit, Clopper and Pearson's lower end is
            # (alpha / 2)^(1 / n), which must reach the share.
            independent = math.log((1 - LEVEL) / 2) / math.log(share) if 0 < share < 1 else math.inf
            of_share = max(length.cycle, length.rare, independent * length.relaxation)
            of_percentile = of_share if objective.q is None else length.needed(metric(key))
            needed = max(needed, min(of_share, of_percentile) if easy else of_percentile)
    return needed


LONG_S = 60  # of processor time, about half a minute on two cores: then a round of screening comes first
TENTH = 10  # the part of a run that screens
FEW = 5  # the part of a run that tells by how much an objective out of reach is missed
FINALS, LITTLE = 4, 1.1  # the most settings confirmed, while the last one missed its limit by less than this
NEARLY = 0.02  # of the latency: a tie is not only what a run cannot separate
WIDE = 0.1  # of the latency: a wider bound tells little
SIDE = (1 + LEVEL) / 2  # of one side of an interval
NONE = Bound(math.nan, math.inf)
MEAN = "mean_latency_ms"
Confirmed = tuple[Candidate, Result]  # a setting, and the run that its numbers are of


def tried(job: Job, slo: SLO, keys: Iterable[str]) -> Ran:
    """Run a job, and return its numbers."""
    return Ran.of(run_job(job), slo, True, keys)


@dataclass(eq=False)
class Search:
    """Settings under the same traffic, and under that of a fresh seed; see this module.

    `few`: the traffic of the round of screening; None without one.
    """

    slo: SLO
    traffic: Traffic
    fresh: Traffic
    candidates: Sequence[Candidate]
    prefer: str = "cheapest"
    crew: Crew = field(default_factory=Crew)
    few: Traffic | None = None
    missed: dict[Candidate, Missed] = field(default_factory=dict)  # an objective that any run would miss
    out_of_reach: str = ""  # the objective that any run of any setting would miss
    unproven: Confirmed | None = None  # the best whose run with the fresh seed does not meet

    def __post_init__(self) -> None:
        latencies = [o.key for o in self.slo.objectives if o.of_requests or o.key == MEAN]
        # A setting that is slower by one latency may still be the only one that meets another objective.
        self.latencies = tuple(dict.fromkeys([*latencies, self.slo.latency.key]))
        self.keys = tuple(dict.fromkeys([*self.latencies, MEAN]))

    def screen_if_long(self, settings: int) -> None:
        """Have a round of screening if full runs of so many settings, like the candidates, take long."""
        alive = [each for each in self.candidates if each.scenario.stable]
        if not alive or recorded(self.traffic.scenario):
            return
        if any(each.metered or each.scenario.autoscale is not None for each in alive):
            return
        seconds = [run_s(each.scenario, self.traffic.requests) for each in alive]
        if sum(seconds) / len(seconds) * settings > LONG_S:
            self.few = self.traffic.resized(self.traffic.requests // TENTH)

    # Runs.

    def start(self) -> None:
        """Run all settings that are stable and may meet the objective."""
        for each in self.candidates:
            if missed := out_of_reach(each.scenario, self.slo, self.traffic.seed):
                self.missed[each] = missed
                each.eliminate(Outcome.FAILS, missed.text)
            elif not each.scenario.stable:
                each.eliminate(Outcome.UNSTABLE, overload(each.scenario))
        if len(self.missed) == len(self.candidates):
            self.out_of_reach = min(self.missed.values()).text
            if not recorded(self.traffic.scenario):  # a short run suffices, as no run changes that
                self.fresh = self.fresh.resized(self.traffic.requests // FEW) or self.fresh
        alive = [each for each in self.candidates if each.outcome is None]
        if self.few is not None:
            self.run(alive, self.few)
            self._drop_slower()
        self.run([each for each in alive if each.outcome is None])

    def run(self, candidates: Sequence[Candidate], traffic: Traffic | None = None) -> None:
        """Run settings in full, or in other traffic, unless they did so; eliminate those that fail."""
        traffic = traffic or self.traffic
        missing = [each for each in candidates if each.searched.requests < traffic.requests]
        about = "screening" if traffic is self.few else "full runs"
        self.crew.begin(f"{about} of {traffic.requests:,} requests", len(missing))
        # Those of another rule compile other loops, one after the other.
        first = [*{type(each.scenario.rule): each for each in missing}.values()]
        missing = [*first, *(each for each in missing if each not in first)]
        jobs = ((traffic.job(each.scenario), self.slo, self.keys) for each in missing)
        for each, ran in zip(missing, self.crew.map(tried, jobs, len(first)), strict=True):
            if traffic is self.few:
                each.screened = ran
            else:
                each.full = ran
            traffic.count(traffic.requests)
            each.mean_ms = ran.numbers[MEAN]
            if ran.judgement.verdict is Verdict.FAILS:
                each.eliminate(Outcome.FAILS, ran.judgement.finding)

    def _drop_slower(self) -> None:
        """Eliminate settings that are slower than the first of their cost, by every latency asked for."""
        groups: dict[float, list[Candidate]] = {}
        for each in by_rank(each for each in self.candidates if each.outcome is None):
            groups.setdefault(0 if self.prefer == "fastest" else each.cost, []).append(each)
        for leader, *others in groups.values():
            if len(self.latencies) < len(self.slo.objectives) and leader.last.judgement.excess > 1:
                continue
            for each in others:
                bounds = [self.bound(leader, each, STRICT, key) for key in self.latencies]
                if self.steady(leader, each) and all(bound.most < 0 for bound in bounds):
                    why = f"{self.latency(each)}, clearly slower than with {setting(leader.knobs)}"
                    each.eliminate(Outcome.SLOWER, f"{why} in {each.searched.requests:,} requests")

    def confirm(self, candidates: Sequence[Candidate]) -> Confirmed | None:
        """Run settings with a fresh seed, in order; return the first that is shown to meet.

        Those come first that a run of some length can show to meet, and their runs get longer if only the
        proof is missing. If even the longest does not prove it, no other setting is tried.
        """
        most = LONGEST * self.fresh.requests
        provable = [each for each in candidates if self._fewest(each) <= most]
        for candidate in (provable or candidates)[:FINALS]:
            longer: Traffic | None = self.fresh
            if provable and candidate.searched.judgement.excess <= 1:  # a shorter run would be wasted
                needed = max(rounded_up(self._fewest(candidate)), self.fresh.requests)
                longer = self.fresh.resized(needed) or self.fresh
            while longer is not None:
                result, judgement = self._confirmed(candidate, longer), candidate.fresh.judgement
                longer = self._longer(candidate) if provable and judgement.unclear else None
            if judgement.meets:
                return candidate, result
            if judgement.too_short or judgement.excess >= LITTLE:
                break
        return None

    def _longer(self, candidate: Candidate) -> Traffic | None:
        """Return traffic that may decide where a run did not, at most ten times what was asked for."""
        ran, most = candidate.fresh, LONGEST * self.fresh.requests
        needed = ran.judgement.longer * ran.requests
        needed = self._fewest(candidate, easy=False) if math.isnan(needed) else needed
        # A need of more than half of the most gets all of it: otherwise another run might follow.
        longer = self.fresh.resized(rounded_up(needed) if ran.requests < needed <= most / 2 else most)
        return longer if longer is not None and longer.requests > ran.requests else None

    def _fewest(self, candidate: Candidate, easy: bool = True) -> float:
        """Return how many requests a run needs at least to show that a setting meets the objective."""
        return fewest(candidate.scenario, self.slo, easy) / (1 - WARMUP)

    def _confirmed(self, candidate: Candidate, traffic: Traffic) -> Result:
        """Run a setting with a fresh seed, judge it, and eliminate it unless it meets."""
        result = traffic.run(candidate.scenario)
        candidate.fresh, candidate.outcome = Ran.of(result, self.slo), None
        judgement = candidate.fresh.judgement
        if not judgement.meets:
            outcome = Outcome.FAILS if judgement.verdict is Verdict.FAILS else Outcome.UNCLEAR
            candidate.eliminate(outcome, judgement.finding)
            if self.unproven is None or candidate.rank <= self.unproven[0].rank:
                self.unproven = candidate, result
        return result

    # The recommendation.

    def recommended(self) -> tuple[Candidate, Result, Statement | None]:
        """Return the recommended setting, or the nearest, with its run; give all settings their outcomes."""
        # Unless by latency alone, in groups by the cost: the first group with an answer has the best.
        green = self.prefer == "greenest"
        groups: list[float | None] = (
            [None] if self.prefer == "fastest" else [*sorted({each.cost for each in self.candidates})]
        )
        for cost in groups:
            group = [each for each in self.candidates if cost in (None, each.cost)]
            alive = by_rank(each for each in group if each.outcome is None)
            tied = self.preferred(alive) if alive else []
            found = self.confirm([*dict.fromkeys([*tied[:1], *alive])])
            if found is None:
                continue
            best, result = found
            best.outcome = Outcome.RECOMMENDED
            statement = self.statement(best, group, len(groups) > 1)
            for each in tied if best in tied else ():
                same = f"{self.latency(each)}, no run tells it from {setting(best.knobs)}"
                each.eliminate(Outcome.TIED, f"{same}, which has {best.advantage(each)}")
            for each in group:
                each.eliminate(
                    Outcome.SLOWER, f"{self.latency(each)}, above {self.latency(best)} of the choice"
                )
            fewer = f"{_format.counted(best.servers, 'server')} meet{'s' if best.servers == 1 else ''}"
            if green:
                fewer = f"one at {_format.number(best.joules_per_request)} J a request meets"
            elif best.metered:
                fewer = f"one at {_format.number(best.cost_per_million)} per million meets"
            for each in self.candidates:
                each.eliminate(Outcome.HUNGRIER if green else Outcome.DEARER, f"{fewer} the objective")
            return best, result, statement
        return *self.nearest(), None

    def preferred(self, alive: Sequence[Candidate]) -> list[Candidate]:
        """Return the settings that runs do not tell from the fastest, the one to take first."""
        fastest = alive[0]
        tied = [each for each in alive if each is fastest or self._ties(each, fastest)]
        for each in sorted(tied, key=lambda each: each.mean_ms):  # of means that hardly differ, the lowest
            headroom = each.servers, each.preference[0]
            same = [other for other in tied if (other.servers, other.preference[0]) == headroom]
            lowest = min(same, key=lambda other: other.mean_ms)
            if each is not lowest and 0 <= self.bound(lowest, each, SIDE, MEAN).most < math.inf:
                each.mean_ms = lowest.mean_ms
        return sorted(tied, key=lambda each: (each.servers, each.changes, *each.preference))

    def _ties(self, rival: Candidate, fastest: Candidate) -> bool:
        ms, lowest_ms = rival.full.latency.value, fastest.full.latency.value
        if ms > (1 + NEARLY) * lowest_ms or fastest.full.judgement.excess <= 1 < rival.full.judgement.excess:
            return False
        bound = self.bound(fastest, rival, SIDE)
        if math.isinf(bound.most) or not self.steady(rival, fastest):
            return ms <= lowest_ms
        return bound.most >= 0

    def nearest(self) -> Confirmed:
        """Return the setting that misses the objective by least, with a run of the fresh seed."""
        ran = by_rank(each for each in self.candidates if each.searched.requests)
        if self.unproven is None and ran and (proven := self.confirm(ran[:1])):
            return proven
        if self.unproven is not None:
            return self.unproven

        def order(each: Candidate) -> tuple[bool, Missed, float]:
            return not each.scenario.stable, self.missed.get(each, Missed(0.0, "")), each.scenario.load

        best = min(self.candidates, key=order)
        return best, self._confirmed(best, self.fresh)

    def provisional(self) -> Confirmed:
        """Return the best setting so far, with its last run.

        If none has run yet, it is the first that is not ruled out, with a short run.
        """
        if not any(each.last.requests for each in self.candidates):
            first = next((each for each in self.candidates if each.outcome is None), self.candidates[0])
            few = self.traffic.resized(self.traffic.requests // TENTH) or self.traffic
            first.screened = Ran.of(few.run(first.scenario), self.slo, True, self.keys)

        def order(each: Candidate) -> tuple[float, ...]:
            excess, beyond, *rest = each.rank
            cost = 0 if self.prefer == "fastest" else each.cost
            return each.outcome is Outcome.FAILS, excess, beyond, cost, *rest

        best = min((each for each in self.candidates if each.last.requests), key=order)
        for each in self.candidates:
            each.eliminate(Outcome.LEFT, "the search was interrupted")
        traffic = self.fresh if best.fresh.requests else self.traffic
        return best, (traffic.resized(best.last.requests) or traffic).run(best.scenario)

    # Comparisons.

    def bound(self, one: Candidate, other: Candidate, level: float, key: str = "") -> Bound:
        """Return by how much another setting is better than one, in the longest traffic that both met."""
        key = key or self.slo.latency.key
        mine, others = _common(one, other)
        return better_by(mine.values[key], others.values[key], level) if mine.values else NONE

    def steady(self, one: Candidate, other: Candidate) -> bool:
        """Return whether the runs that are compared are long for the memory of their queues."""
        runs = _common(one, other)
        return all(run.values and run.values[self.slo.latency.key].steady for run in runs)

    def statement(self, chosen: Candidate, group: Sequence[Candidate], some: bool) -> Statement:
        """Return how far the chosen setting is above the best, and note the bound of each rival.

        All bounds hold together; with a round of screening there are two looks, each with its share of the
        confidence. Wide bounds, and those of runs that are short for their queues, are left out.
        """
        key, green = self.slo.latency.key, self.prefer == "greenest"

        def misses(each: Candidate) -> bool:
            """Whether another objective than the latency's is shown to be missed."""
            worst = each.last.judgement.worst.key
            return each.outcome is Outcome.FAILS and (each in self.missed or worst != key)

        rivals = [each for each in group if each is not chosen and each.scenario.stable and not misses(each)]
        level = 1 - (1 - LEVEL) / ((1 if self.few is None else 2) * max(len(rivals), 1))
        for each in rivals:
            each.better_by_ms = (self.bound(chosen, each, level) if self.steady(chosen, each) else NONE).most
        widest = WIDE * chosen.last.latency.value
        known = [each for each in rivals if each.better_by_ms <= widest]
        settings = 1 + len(known) + sum(not each.scenario.stable for each in group)
        return Statement(
            key, max([0.0, *(each.better_by_ms for each in known)]),
            settings if known or not rivals else 1, len(rivals) - len(known),
            sum(not each.full.requests for each in known),
            chosen.servers if some and not chosen.metered else None,
            per_million=chosen.cost_per_million if some and chosen.metered and not green else None,
            joules=chosen.joules_per_request if some and green else None,
        )  # fmt: skip

    def latency(self, candidate: Candidate) -> str:
        """Return the latency that settings are compared by, in the traffic that all met, as text."""
        return candidate.searched.latency.in_words(self.slo.latency.key)

    # The frontier.

    def frontier(self, best: Candidate) -> list[Candidate]:
        """Return the settings that no other beats in latency, saturation rate and cost, by latency.

        The recommended setting represents all of its cost from which it does not clearly differ.
        """
        ran = [each for each in self.candidates if math.isfinite(each.searched.latency.value)]
        self.run(_unbeaten(ran))  # some were screened out
        shown = [best] if best.scenario.stable else []
        for each in reversed(_unbeaten(each for each in ran if each.full.requests)):
            if each is not best and not any(self._represents(one, each, one is best) for one in shown):
                shown.append(each)
        return sorted(shown, key=lambda each: (each.searched.latency.value, each.cost))

    def _represents(self, one: Candidate, other: Candidate, recommended: bool) -> bool:
        """Return whether a setting is as good as another whose latency does not clearly differ."""
        as_good = one.cost <= other.cost and one.saturation_per_s >= other.saturation_per_s
        if not one.full.requests or not (as_good or (recommended and one.cost == other.cost)):
            return False
        better, worse = self.bound(one, other, SIDE), self.bound(other, one, SIDE)
        if math.isinf(better.most) or not self.steady(one, other):
            return one.full.latency.value == other.full.latency.value
        return min(better.most, worse.most) >= 0


def _common(one: Candidate, other: Candidate) -> tuple[Ran, Ran]:
    """Return the runs of two settings in the same traffic, the longest if there are several."""
    if one.full.requests and other.full.requests:
        return one.full, other.full
    return one.screened, other.screened


def _unbeaten(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the settings that no other beats, by latency; the first of several equal ones."""
    costs = {
        (each.searched.latency.value, -each.saturation_per_s, each.cost): each
        for each in reversed([*candidates])
    }

    def beaten(cost: tuple[float, ...]) -> bool:
        return any(other != cost and all(map(operator.le, other, cost)) for other in costs)

    return [costs[cost] for cost in sorted(costs) if not beaten(cost)]
