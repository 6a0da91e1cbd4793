"""A race of settings: short runs of all, longer runs of the best, full runs of the finalists.

All settings meet the same traffic (common random numbers), so that even short runs order them well. Each
round is four or five times as long as the one before, and keeps about as much less of the settings
(successive halving: Jamieson and Talwalkar 2016, AISTATS). A setting is eliminated

- without a run, if its load is 1 or more;
- if it clearly fails, or is clearly slower than the best (paired difference), at the strict level of
  `batchsim.study.judgement`: a race makes hundreds of tests, and each may be wrong;
- if the round has no place left for it. That proves nothing, as its reason states.

A run that is too short for an interval eliminates nothing. The recommendation rests on a full run alone, at
the usual level. If a full run does not decide, or can only be too short, full runs get longer, up to ten
times, directly to the length that may suffice.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from batchsim.result import Result
from batchsim.result.metrics import metric
from batchsim.result.run_length import rounded_up, run_length
from batchsim.result.value_columns import limits_of
from batchsim.scenario import Scenario
from batchsim.study import phrases
from batchsim.study.judgement import (
    STRICT,
    UNJUDGED,
    UNKNOWN,
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
    slower_by,
)  # fmt: skip
from batchsim.study.kinds import kind_of
from batchsim.study.preference import SAME, Order, advantage, preference
from batchsim.study.slo import LEVEL, SLO
from batchsim.study.traffic import LONGEST, Traffic


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
    """A setting in the search, with the numbers of its longest run."""

    knobs: dict[str, Any]
    scenario: Scenario
    outcome: Outcome | None = None
    why: str = ""
    requests: int = 0
    latency: Estimate = UNKNOWN
    judgement: Judgement = UNJUDGED
    numbers: dict[str, float] = field(default_factory=dict)
    # From the first round, whose length is the same for all, so that they can be compared.
    first_ms: float = math.nan
    first_preference: Order = (0.0, 0.0, 0.0)

    @property
    def servers(self) -> int:
        return self.scenario.all_servers

    @property
    def saturation_per_s(self) -> float:
        return self.scenario.saturation_per_s

    @property
    def preference(self) -> Order:
        """The order among settings with the same number of servers and the same latency."""
        mean_ms = self.numbers.get("mean_latency_ms", math.nan)
        return preference(self.saturation_per_s, mean_ms, self.scenario.rule.max_wait_ms)

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


# The rounds before the last: the fraction of the full length, of the settings, and the fewest settings.
ROUNDS = ((1 / 100, 1.0, 1), (1 / 20, 1 / 8, 4), (1 / 5, 1 / 32, 2))
FINALISTS = 1 / 128  # of the settings, but at least one
NEAREST = 8  # settings that run longer, if all miss the objective
SHORTEST = 800  # requests: 16 windows of 50
FAR = 2  # times its limit: chance alone seldom does so much, so such a setting is not run longer
FINALS, LITTLE = 4, 1.1  # the most full runs, while the last one missed its limit by less than this factor
Run = tuple[Candidate, Result]
_IN_REACH = Missed(0.0, "")
_by_rank = attrgetter("rank")


@dataclass(eq=False)
class Race:
    """The settings of a grid under the same traffic; see this module."""

    slo: SLO
    traffic: Traffic
    candidates: Sequence[Candidate]
    asked: Traffic = field(init=False)  # the traffic of a full run, unless that has to be longer
    missed: dict[Candidate, Missed] = field(default_factory=dict)  # an objective that any run would miss
    out_of_reach: str = ""  # the objective that any run of any setting would miss
    longest: tuple[Candidate, Traffic, Result] | None = None  # the best whose longer run proved nothing

    def __post_init__(self) -> None:
        self.asked = self.traffic

    @property
    def lengths(self) -> list[int]:
        """The requests of each round; the last round has all."""
        full = self.traffic.requests
        if not self.traffic.whole:  # windows from a part of a day do not sample the day
            return [full]
        short = [max(round(fraction * full), SHORTEST) for fraction, _, _ in ROUNDS]
        return [*(length for length in short if length <= full / 2), full]

    def first_round(self) -> None:
        """Run all settings that are stable and may meet the objective."""
        for candidate in self.candidates:
            if missed := out_of_reach(candidate.scenario, self.slo, self.traffic.seed):
                self.missed[candidate] = missed
                candidate.eliminate(Outcome.FAILS, missed.text)
            elif candidate.scenario.stable:
                self.run(candidate, self.lengths[0])
                candidate.first_ms = candidate.latency.value
                candidate.first_preference = candidate.preference
            else:
                candidate.eliminate(Outcome.UNSTABLE, phrases.overload(candidate.scenario))
        if len(self.missed) == len(self.candidates):
            self.out_of_reach = min(self.missed.values()).text
            if not recorded(self.traffic.scenario):  # short runs suffice, as no run changes that
                self.asked = self.traffic = self.traffic.resized(self.lengths[-2:][0]) or self.traffic

    def fastest(self, candidates: Sequence[Candidate]) -> Run | None:
        """Race some of them to the end; return the fastest that a full run shows to meet the objective."""
        self.traffic = self.asked
        count, alive = sum(candidate.requests > 0 for candidate in candidates), _in_order(candidates)
        for requests, (_, share, least) in zip(self.lengths[1:-1], ROUNDS[1:], strict=False):
            if len(alive) <= 1:
                break
            places = max(math.ceil(share * count), least)
            alive = _fairly(_without_twins(alive))
            self._leave_behind(alive, places, count)
            alive = self._round(alive[:places], requests)
        if alive and alive[0].judgement.excess <= 1:
            # A full run that is too short to prove anything would be wasted.
            needed = fewest(alive[0].scenario, self.slo) / (1 - WARMUP)
            self._lengthen(needed if needed <= LONGEST * self.asked.requests else 0)
        fastest: Run | None = None
        for place, candidate in enumerate(alive):
            by_little = place > 0 and alive[place - 1].judgement.excess < LITTLE
            if place >= math.ceil(FINALISTS * count) and (fastest or place >= FINALS or not by_little):
                self._leave_behind(alive, place, count)
                break
            result = self.run(candidate, self.lengths[-1], LEVEL)
            if candidate.judgement.meets and (fastest is None or candidate.rank < fastest[0].rank):
                fastest = candidate, result
        return fastest

    def longer(self, candidates: Sequence[Candidate]) -> Run | None:
        """Run the settings longer whose full run did not decide; return the first that proves to meet.

        Settings whose estimate meets the objective come first, starting with the one that seems to need the
        shortest run. If even the longest possible run does not prove it, no other setting is tried.
        """
        unclear = [each for each in candidates if each.outcome is Outcome.UNCLEAR]
        needs = {each: _needs(each) for each in unclear if each.judgement.excess <= FAR}
        full = self.traffic
        for candidate in sorted(needs, key=lambda each: (each.rank[0], needs[each], each.rank))[:FINALS]:
            for requests in (needs[candidate], math.inf):
                self._lengthen(requests)
                if candidate.requests == self.traffic.requests or not candidate.judgement.unclear:
                    continue
                candidate.outcome = None
                result = self.run(candidate, self.traffic.requests, LEVEL)
                if candidate.judgement.meets:
                    return candidate, result
                if self.longest is None or candidate.rank <= self.longest[0].rank:
                    self.longest = candidate, self.traffic, result
            if candidate.judgement.too_short or candidate.judgement.excess > LITTLE:
                break
        self.traffic = full
        return None

    def _lengthen(self, needed: float) -> None:
        """Make full runs as long as needed, at most LONGEST times as long as requested.

        A need of more than half of that gets all of it: otherwise a second, longer run might follow.
        """
        most = LONGEST * self.asked.requests
        requests = rounded_up(needed) if needed <= most / 2 else most
        if requests > self.traffic.requests:
            self.traffic = self.asked.resized(requests) or self.traffic

    def nearest(self) -> Run:
        """Return the setting that misses the objective by least, with a full run, once all are eliminated.

        Short runs may have been wrong: if its full run does not decide, a longer one may prove that it meets.
        """
        if self.longest is not None and self.longest[0].judgement.too_short:
            best, self.traffic, result = self.longest
            return best, result
        ran = sorted((candidate for candidate in self.candidates if candidate.requests), key=_by_rank)
        if not ran:

            def order(each: Candidate) -> tuple[bool, Missed, float]:
                return not each.scenario.stable, self.missed.get(each, _IN_REACH), each.scenario.load

            best = min(self.candidates, key=order)
            return best, self.run(best, self.lengths[-1], LEVEL)
        # A setting that clearly failed in a short run may miss by less than one that failed in a long run.
        near, longer = _fairly(ran)[:NEAREST], self.lengths[-2:][0]
        for candidate in near:
            if candidate.requests < longer:
                self.run(candidate, longer)
        best = min((candidate for candidate in ran if candidate.requests >= longer), key=_by_rank)
        if self.longest is None or best is not self.longest[0]:
            best.outcome = None
            result = self.run(best, self.lengths[-1], LEVEL)
            if proven := self.longer([best]):
                return proven
        if self.longest is not None and self.longest[0].rank <= best.rank:
            best, self.traffic, result = self.longest
        return best, result

    def run(self, candidate: Candidate, requests: int, level: float = STRICT) -> Result:
        """Run a setting, judge it and eliminate it if it fails, or if its full run does not meet."""
        result = self.traffic.run(candidate.scenario, requests)
        full = requests == self.traffic.requests
        judgement = judge(result, self.slo, None if full else candidate.scenario, level)
        candidate.requests, candidate.judgement = requests, judgement
        candidate.latency = estimate(result, self.slo.latency, candidate.scenario)
        candidate.numbers = {name: result.metrics.number(name) for name in kind_of(candidate.scenario).noted}
        fails = judgement.verdict is Verdict.FAILS
        if fails or (level == LEVEL and full and not judgement.meets):
            candidate.eliminate(Outcome.FAILS if fails else Outcome.UNCLEAR, phrases.finding(judgement))
        return result

    def _round(self, candidates: Sequence[Candidate], requests: int) -> list[Candidate]:
        """Run some settings at this length; return the ones that stay in the race, in order."""
        leader: Run | None = None  # so that only two results are in memory
        for candidate in candidates:
            result = self.run(candidate, requests)
            if candidate.outcome is None and leader is not None:
                self._compare(*leader, candidate, result)
            if candidate.outcome is None and (leader is None or candidate.rank < leader[0].rank):
                leader = candidate, result
        return _in_order(candidates)

    def _compare(self, leader: Candidate, leading: Result, candidate: Candidate, result: Result) -> None:
        """Eliminate a setting that is clearly slower than the leader, by every latency of the objective."""
        # A setting that is slower by one latency may still be the only one that meets another objective.
        keys = [o.key for o in self.slo.objectives if o.q is not None or o.key == "mean_latency_ms"]
        if len(keys) < len(self.slo.objectives) and leader.judgement.excess > 1:
            return
        latency = self.slo.latency.key
        slower = {key: slower_by(result, leading, key, STRICT) for key in {*keys, latency}}
        if all(each.low > 0 for each in slower.values()):
            self.drop_slower(candidate, leader, slower[latency])

    def drop_slower(self, candidate: Candidate, than: Candidate, slower: Estimate) -> None:
        """Eliminate a setting whose latency is clearly higher than another's."""
        by = phrases.estimated(self.slo.latency.key, slower, digits=3)
        candidate.eliminate(Outcome.SLOWER, f"{by} slower than {phrases.setting(than.knobs)}")

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
