"""A race of settings: short runs of all, longer runs of the best, then one full run with a fresh seed.

All settings meet the same traffic (common random numbers), so that even short runs order them well. Each
round is four or five times as long as the one before, and keeps about as much less of the settings
(successive halving: Jamieson and Talwalkar 2016, AISTATS). A setting is eliminated

- without a run, if its load is 1 or more;
- if it clearly fails, or is clearly slower than the best (paired difference), at the strict level of
  `batchsim.study.judgement`: a race makes hundreds of tests, and each may be wrong;
- if the round has no place left for it. That proves nothing, as its reason states.

A run that is too short for an interval eliminates nothing. The choice of a race is that of the luckiest, so
its own numbers tend to be too good. That it meets the objective rests on a full run with a fresh seed alone,
at the usual level. If that does not decide, or can only be too short, full runs get longer, up to ten times,
directly to the length that may suffice. If even ten times prove nothing, however early all requests are, no
run gets longer. Of several settings that run so, the first that passes is taken: the level of a test is not
corrected for that, and the more tests, the more its number tends to be too good. A trace has no other seed:
its full run replays all requests, of which the search ran windows.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from batchsim import _format
from batchsim._workers import Crew
from batchsim.result import Result
from batchsim.result.metrics import metric
from batchsim.result.run_length import rounded_up, run_length
from batchsim.result.value_columns import limits_of
from batchsim.scenario import Scenario
from batchsim.study import phrases
from batchsim.study.candidate import Candidate, Outcome
from batchsim.study.judgement import (
    STRICT,
    WARMUP,
    Estimate,
    Judgement,
    Missed,
    Verdict,
    estimate,
    fewest,
    judge,
    out_of_reach,
    recorded,
)  # fmt: skip
from batchsim.study.kinds import kind_of
from batchsim.study.paired import Bound, Values, better_by, column_of
from batchsim.study.slo import LEVEL, SLO, described
from batchsim.study.traffic import LONGEST, Job, Traffic, run_job


class Round(NamedTuple):
    """A round of a race: the length of its runs, and the latency in each."""

    requests: int
    latencies: Mapping[Candidate, Estimate]


# The rounds before the last: the fraction of the full length, of the settings, and the fewest settings.
ROUNDS = ((1 / 100, 1.0, 1), (1 / 20, 1 / 8, 8), (1 / 5, 1 / 32, 3))
MORE = 2  # settings of a round, where the one before is left out, as it is hardly longer than the first
NEAREST = 8  # settings that run longer, if all miss the objective
SHORTEST = 800  # requests: 16 windows of 50
FAR = 2  # times its limit: chance alone seldom does so much, so such a setting is not run longer
FINALS, LITTLE = 4, 1.1  # the most full runs, while the last one missed its limit by less than this factor
Run = tuple[Candidate, Result]
MEAN = "mean_latency_ms"
_IN_REACH = Missed(0.0, "")
_by_rank = attrgetter("rank")


class Numbers(NamedTuple):
    """What a race notes of a run; `paid`: the cost of a million requests."""

    judgement: Judgement
    latency: Estimate
    numbers: dict[str, float]
    values: dict[str, Values]
    paid: float


def numbers_of(
    result: Result,
    slo: SLO,
    scenario: Scenario,
    own: bool,
    level: float = STRICT,
    columns: Sequence[str] = (),
) -> Numbers:
    """Return the numbers of a run that represents a scenario; `own`: it is a run of that scenario itself."""
    return Numbers(
        judge(result, slo, None if own else scenario, level),
        estimate(result, slo.latency, scenario),
        {name: result.metrics.number(name) for name in kind_of(scenario).noted},
        {column: Values.of(result, column, scenario) for column in columns},
        math.nan if scenario.price_per_hour is None else result.metrics.number("cost_per_million"),
    )


def screened(job: Job, *args: Any) -> Numbers:
    """Run a job, and return its numbers."""
    return numbers_of(run_job(job), *args)


@dataclass(eq=False)
class Race:
    """The settings of a grid under the same traffic; see this module.

    `search`: the traffic of the rounds; `traffic`: that of full runs, under another seed; `asked`: the same
    before it was lengthened.
    """

    slo: SLO
    search: Traffic
    traffic: Traffic
    candidates: Sequence[Candidate]
    crew: Crew = field(default_factory=Crew)
    asked: Traffic = field(init=False)
    missed: dict[Candidate, Missed] = field(default_factory=dict)  # an objective that any run would miss
    out_of_reach: str = ""  # the objective that any run of any setting would miss
    unproven: tuple[Candidate, Traffic, Result] | None = None  # the best whose full run does not meet
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked = self.traffic
        latencies = [o.key for o in self.slo.objectives if o.of_requests or o.key == "mean_latency_ms"]
        # A setting that is slower by one latency may still be the only one that meets another objective.
        self.keys = tuple(dict.fromkeys([*latencies, self.slo.latency.key]))
        self.columns = tuple({column_of(key): None for key in (*self.keys, MEAN)})
        several = [Candidate({}, self.search.scenario), *self.candidates]
        self.long = any(each.metered or each.scenario.autoscale is not None for each in several)

    @property
    def short(self) -> list[int]:
        """The requests of each round."""
        return [requests for requests, _, _ in self._plan]

    @property
    def _plan(self) -> list[tuple[int, float, int]]:
        """The requests of each round, and the settings that run: their fraction, and the fewest."""
        full, more, plan = self.search.requests, 0, list[tuple[int, float, int]]()
        # Windows from a part of a day do not sample the day. A short run ends before an autoscaler acts, and
        # measures a cost roughly.
        for fraction, share, least in ROUNDS if self.search.whole and not self.long else ():
            requests = max(round(fraction * full), SHORTEST)
            if plan and requests < 2 * plan[-1][0]:
                more = MORE
            elif requests <= full / 2:
                plan.append((requests, share, least + more))
        return plan or [(full, 1.0, 1)]

    def first_round(self) -> None:
        """Run all settings that are stable and may meet the objective."""
        for candidate in self.candidates:
            if missed := out_of_reach(candidate.scenario, self.slo, self.search.seed):
                self.missed[candidate] = missed
                candidate.eliminate(Outcome.FAILS, missed.text)
            elif not candidate.scenario.stable:
                candidate.eliminate(Outcome.UNSTABLE, phrases.overload(candidate.scenario))
        alive = [each for each in self.candidates if each.outcome is None]
        self._round(alive, self.short[0], compare=False)
        for candidate in alive:
            candidate.first_ms = candidate.latency.value
            candidate.first_preference = candidate.preference
        if len(self.missed) == len(self.candidates):
            self.out_of_reach = min(self.missed.values()).text
            if not recorded(self.search.scenario):  # short runs suffice, as no run changes that
                few = self.short[-1]
                self.asked = self.traffic = self.traffic.resized(few) or self.traffic
                self.search = self.search.resized(few) or self.search

    def finalists(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Race some of them; return those left, in order."""
        self.traffic = self.asked
        count, alive = sum(candidate.requests > 0 for candidate in candidates), _in_order(candidates)
        for requests, share, least in self._plan[1:]:
            if len(alive) <= 1:
                break
            places = max(math.ceil(share * count), least)
            self._drop_slower(alive, min(each.requests for each in alive))
            alive = _fairly(_without_twins(_in_order(alive)))
            self._leave_behind(alive, places, count)
            alive = self._round(alive[:places], requests)
        return alive

    def confirm(self, candidates: Sequence[Candidate], group: Sequence[Candidate]) -> Run | None:
        """Run settings in full with a fresh seed, in order; return the first that is shown to meet.

        Those come first that a run of some length can show to meet. If only the proof is missing, the run
        gets longer; if even the longest does not prove it, no other setting is tried.
        """
        provable = [each for each in candidates if self._fewest(each) <= self._most]
        for candidate in (provable or candidates)[:FINALS]:
            self.traffic = self.asked
            short = self.asked.requests < self._fewest(candidate) <= self._most
            if short and candidate.judgement.excess <= 1:
                # A full run that is too short to prove anything would be wasted.
                easy = FAR * candidate.judgement.excess <= 1
                self._lengthen(self._fewest(candidate, easy), easy)
            result = self.run(candidate)
            if candidate.judgement.meets:
                return candidate, result
            if proven := self.longer([candidate]):
                return proven
            if candidate.judgement.too_short or candidate.judgement.excess >= LITTLE:
                break
        return self.longer(group)

    def longer(self, candidates: Sequence[Candidate]) -> Run | None:
        """Run the settings longer whose full run did not decide; return the first that proves to meet.

        Settings whose estimate meets the objective come first, starting with the one that seems to need the
        shortest run. If even the longest possible run does not prove it, no other setting is tried.
        """
        unclear = [each for each in candidates if each.outcome is Outcome.UNCLEAR]
        needs = {each: _needs(each) for each in unclear if each.judgement.excess <= FAR}
        full = self.traffic
        for candidate in sorted(needs, key=lambda each: (each.rank[0], needs[each], each.rank))[:FINALS]:
            if self._fewest(candidate) > self._most:
                break
            for requests in (needs[candidate], math.inf):
                self._lengthen(requests)
                if candidate.fresh == self.traffic.requests or not candidate.judgement.unclear:
                    continue
                candidate.outcome = None
                result = self.run(candidate)
                if candidate.judgement.meets:
                    return candidate, result
            if candidate.judgement.too_short or candidate.judgement.excess > LITTLE:
                break
        self.traffic = full
        return None

    @property
    def _most(self) -> int:
        """The most requests of a full run."""
        return LONGEST * self.asked.requests

    def _fewest(self, candidate: Candidate, easy: bool = True) -> float:
        """Return how many requests a full run needs at least to show that a setting meets the objective."""
        return fewest(candidate.scenario, self.slo, easy) / (1 - WARMUP)

    def _lengthen(self, needed: float, surely: bool = False) -> None:
        """Make full runs as long as needed, at most LONGEST times as long as requested.

        A need of more than half of that gets all of it, unless it is `surely` enough: otherwise a second,
        longer run might follow.
        """
        requests = rounded_up(needed) if needed <= self._most * (1 if surely else 0.5) else self._most
        if requests > self.traffic.requests:
            self.traffic = self.asked.resized(requests) or self.traffic

    def nearest(self) -> Run:
        """Return the setting that misses the objective by least, with a full run, once all are eliminated.

        Short runs may have been wrong: if its full run does not decide, a longer one may prove that it meets.
        """
        if self.unproven is not None and self.unproven[0].judgement.too_short:
            best, self.traffic, result = self.unproven
            return best, result
        ran = sorted((candidate for candidate in self.candidates if candidate.requests), key=_by_rank)
        if not ran:

            def order(each: Candidate) -> tuple[bool, Missed, float]:
                return not each.scenario.stable, self.missed.get(each, _IN_REACH), each.scenario.load

            best = min(self.candidates, key=order)
            return best, self.run(best)
        # A setting that clearly failed in a short run may miss by less than one that failed in a long run.
        near, longer = _fairly(ran)[:NEAREST], self.short[-1]
        self.screen([each for each in near if each.requests < longer], longer)
        best = min((candidate for candidate in ran if candidate.requests >= longer), key=_by_rank)
        if self.unproven is None or best is not self.unproven[0]:
            best.outcome = None
            result = self.run(best)
            if best.judgement.meets:
                return best, result
            if proven := self.longer([best]):
                return proven
        assert self.unproven is not None
        best, self.traffic, result = self.unproven
        return best, result

    def run(self, candidate: Candidate) -> Result:
        """Run a setting in full with a fresh seed, judge it, and eliminate it unless it meets."""
        result = self.traffic.run(candidate.scenario)
        candidate.fresh = self.traffic.requests
        self._note(
            candidate, self.traffic.requests, numbers_of(result, self.slo, candidate.scenario, True, LEVEL)
        )
        if not candidate.judgement.meets:
            fails = candidate.judgement.verdict is Verdict.FAILS
            outcome = Outcome.FAILS if fails else Outcome.UNCLEAR
            candidate.eliminate(outcome, phrases.finding(candidate.judgement))
            if self.unproven is None or candidate.rank <= self.unproven[0].rank:
                self.unproven = candidate, self.traffic, result
        return result

    def provisional(self, cheapest: bool) -> Run:
        """Return the best setting so far, with a run as long as its last.

        If none has run yet, it is the first that is not ruled out, with a short run. `cheapest`: of those
        that seem to meet the objective, one with the lowest cost.
        """
        ran = [each for each in self.candidates if each.requests]
        if not ran:
            first = next((each for each in self.candidates if each.outcome is None), self.candidates[0])
            requests, own = self.short[0], self.short[0] == self.search.requests
            numbers = numbers_of(self.search.run(first.scenario, requests), self.slo, first.scenario, own)
            self._note(first, requests, numbers)
            ran = [first]

        def order(each: Candidate) -> tuple[float, ...]:
            excess, beyond, *rest = each.rank
            return each.outcome is Outcome.FAILS, excess, beyond, each.cost if cheapest else 0, *rest

        best = min(ran, key=order)
        for each in self.candidates:
            each.eliminate(Outcome.BEHIND, "the search was interrupted")
        if best.fresh:  # maybe not as long as full runs are now
            return best, (self.traffic.resized(best.fresh) or self.traffic).run(best.scenario)
        return best, self.search.run(best.scenario, min(best.requests, self.search.requests))

    def screen(self, candidates: Sequence[Candidate], requests: int) -> None:
        """Run settings at this length in the traffic of the search, and eliminate those that clearly fail."""
        traffic = self.search if requests <= self.search.requests else self.search.resized(requests)
        assert traffic is not None
        missing = [each for each in candidates if requests not in each.runs]
        own = requests == traffic.requests
        jobs = (
            (traffic.job(each.scenario, requests), self.slo, each.scenario, own, STRICT, self.columns)
            for each in missing
        )
        for candidate, numbers in zip(missing, self.crew.map(screened, jobs), strict=True):
            candidate.runs[requests] = numbers.values
            if requests <= candidate.requests:
                continue
            self._note(candidate, requests, numbers)
            candidate.searched, candidate.mean_ms = numbers.judgement, numbers.numbers[MEAN]
            if numbers.judgement.verdict is Verdict.FAILS:
                candidate.eliminate(Outcome.FAILS, phrases.finding(numbers.judgement))

    def _note(self, candidate: Candidate, requests: int, ran: Numbers) -> None:
        candidate.requests = requests
        candidate.judgement, candidate.latency, candidate.numbers = ran.judgement, ran.latency, ran.numbers
        candidate.paid = ran.paid if math.isnan(candidate.paid) else candidate.paid

    def _round(self, candidates: Sequence[Candidate], requests: int, compare: bool = True) -> list[Candidate]:
        """Run some settings at this length; return the ones that stay in the race, in order."""
        self.crew.round(requests, len(candidates))
        self.screen(candidates, requests)
        if compare:
            self._drop_slower(_in_order(candidates), requests)
        self.rounds.append(Round(requests, {each: each.latency for each in candidates}))
        return _in_order(candidates)

    def _drop_slower(self, alive: Sequence[Candidate], requests: int) -> None:
        """Eliminate settings that are clearly slower than the first, by every latency of the objective."""
        if not alive or (len(self.keys) < len(self.slo.objectives) and alive[0].judgement.excess > 1):
            return
        leader = alive[0]
        for each in alive[1:]:
            # A run begins with an empty queue, which flatters settings near saturation.
            if not self.steady(requests, leader, each):
                continue
            if all(self.bound(leader, each, requests, key=key).most < 0 for key in self.keys):
                self.drop_slower(each, leader, self.bound(leader, each, requests))

    def bound(
        self, one: Candidate, other: Candidate, requests: int, level: float = STRICT, key: str = ""
    ) -> Bound:
        """Return by how much another setting is better than one, in runs of this length."""
        key = key or self.slo.latency.key
        column = column_of(key)
        return better_by(one.runs[requests][column], other.runs[requests][column], key, level)

    def steady(self, requests: int, *candidates: Candidate) -> bool:
        """Return whether runs of this length are long for the memory of these settings, or would be."""

        def steady(candidate: Candidate) -> bool:
            runs = {n: run[self.columns[0]] for n, run in candidate.runs.items()}
            if requests in runs:
                return runs[requests].steady
            return all(each.lasts(requests / n) for n, each in runs.items())

        return all(map(steady, candidates))

    def drop_slower(self, candidate: Candidate, than: Candidate, bound: Bound) -> None:
        """Eliminate a setting whose latency is clearly higher than another's."""
        label, unit, _ = described(self.slo.latency.key)
        by = f"{label} at least {_format.number(-bound.most)}{unit} higher"
        candidate.eliminate(Outcome.SLOWER, f"{by} than with {phrases.setting(than.knobs)}")

    def _leave_behind(self, alive: Sequence[Candidate], places: int, count: int) -> None:
        for place, candidate in enumerate(alive[places:], places + 1):
            after = f"{self.latency(candidate)} after {candidate.requests:,} requests"
            candidate.eliminate(Outcome.BEHIND, f"number {place} of {count}: {after}")

    def latency(self, candidate: Candidate) -> str:
        """Return the latency that settings are ranked by, as text."""
        return phrases.estimated(self.slo.latency.key, candidate.latency)


def _needs(candidate: Candidate) -> float:
    """Return how many requests might prove what a run only estimates; inf if unknown."""
    times, key = candidate.judgement.longer, candidate.judgement.worst.key
    if not math.isnan(times):
        return times * candidate.requests
    length = run_length(candidate.scenario)  # the run had no interval
    if key == "loss" or limits_of(key):
        return math.inf
    needed = length.needed(metric(key)) / (1 - WARMUP)
    return needed if needed > candidate.requests else math.inf


def _in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted((candidate for candidate in candidates if candidate.outcome is None), key=_by_rank)


def _without_twins(alive: Sequence[Candidate]) -> list[Candidate]:
    """Keep two of several settings whose runs were the same: the preferred, and the lowest saturation rate.

    If no batch fills, larger ones make no difference. In a longer run these two settings may differ.
    """
    twins: dict[tuple[float, ...], list[Candidate]] = {}
    for candidate in alive:  # in order: the preferred one of each group comes first
        excess, beyond = candidate.judgement.excess, candidate.judgement.beyond
        run = (excess, beyond, candidate.latency.value, *candidate.numbers.values())
        twins.setdefault(run, []).append(candidate)
    for first, *others in twins.values():
        smallest = min([first, *others], key=lambda each: each.saturation_per_s)
        for other in others:
            if other is not smallest:
                same = f"no different from {phrases.setting(first.knobs)} in {other.requests:,} requests"
                other.eliminate(Outcome.BEHIND, same)
    return [candidate for candidate in alive if candidate.outcome is None]


def _fairly(alive: Sequence[Candidate]) -> list[Candidate]:
    """Return settings in order: the best of each saturation rate, then the second of each, and so on.

    A run begins with an empty queue, which flatters settings near saturation, the more so the shorter it is.
    Settings with the same saturation rate are flattered equally.
    """
    turns: dict[float, Iterator[int]] = defaultdict(itertools.count)
    return sorted(alive, key=lambda candidate: next(turns[candidate.saturation_per_s]))
