"""A race of settings: short runs of all, longer ones of those that may win, full ones of the finalists.

Every setting meets the same traffic (common random numbers), so that short runs order them well. Each
round is four or five times as long as the one before, for as much less of the settings (successive
halving: Jamieson and Talwalkar 2016, AISTATS). A setting is eliminated

- unsimulated, if its load is 1 or more;
- if it clearly fails, or is clearly slower than the best (its paired difference), at the strict level
  of `batchsim.study.judgement`, because every look at every setting is a chance to be wrong;
- if others are ahead of it, and the round has no place left. That proves nothing, and the reason says so.

A run too short for an interval proves nothing, and eliminates nobody. A setting is recommended on the
evidence of a full run alone, at the usual level. Where a full run is known beforehand to be too short for any
proof, or does not tell, full runs get longer, up to ten times: straight to the length that may do.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from batchsim import _format
from batchsim.result import Result
from batchsim.result.metrics import metric
from batchsim.result.run_length import rounded_up, run_length
from batchsim.result.value_columns import limits_of
from batchsim.scenario import Scenario
from batchsim.study import phrases
from batchsim.study.floor import Missed, out_of_reach
from batchsim.study.judgement import (
    LEVEL,
    STRICT,
    UNJUDGED,
    UNKNOWN,
    Estimate,
    Judgement,
    Verdict,
    estimate,
    fewest,
    judge,
    recorded,
    slower_by,
)  # fmt: skip
from batchsim.study.slo import SLO
from batchsim.study.traffic import LONGEST, WARMUP, Traffic

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


# The rounds before the last: the fraction of the full length, of the settings, and the fewest settings.
ROUNDS = ((1 / 100, 1.0, 1), (1 / 20, 1 / 8, 4), (1 / 5, 1 / 32, 2))
FINALISTS = 1 / 128  # of the settings, but at least one
NEAREST = 8  # settings that run longer, where none meets the objective
SHORTEST = 800  # requests: 16 windows of 50
FAR = 2  # times its limit: an estimate above that is not run longer, as chance alone seldom does so much
FINALS, LITTLE = 4, 1.1  # the most full runs, while the last one missed its limit by less than this factor
NUMBERS = ("mean_latency_ms", "throughput_per_s", "utilisation", "mean_batch_size")
TOKEN_NUMBERS = ("mean_ttft_ms", "mean_tpot_ms", "output_tokens_per_s", "preempted_share")

Run = tuple[Candidate, Result]
_IN_REACH = Missed(0.0, "")
_by_rank = attrgetter("rank")


def numbers_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the metrics that are noted of each setting."""
    return NUMBERS if scenario.tokens is None else NUMBERS + TOKEN_NUMBERS


@dataclass(eq=False)
class Race:
    """The settings of a grid under the same traffic; see this module."""

    slo: SLO
    traffic: Traffic
    candidates: Sequence[Candidate]
    asked: Traffic = field(init=False)  # the traffic of a full run, unless that has to be longer
    missed: dict[Candidate, Missed] = field(default_factory=dict)  # by whatever run
    out_of_reach: str = ""  # the objective that all settings miss so
    longest: tuple[Candidate, Traffic, Result] | None = None  # the best whose longer run proved nothing

    def __post_init__(self) -> None:
        self.asked = self.traffic

    @property
    def lengths(self) -> list[int]:
        """The requests of each round; the last one's are all."""
        full = self.traffic.requests
        if not self.traffic.whole:  # windows of a part of a day are no sample of the day
            return [full]
        short = [max(round(fraction * full), SHORTEST) for fraction, _, _ in ROUNDS]
        return [*(length for length in short if length <= full / 2), full]

    def first_round(self) -> None:
        """Run all settings that are stable, and that may meet the objective."""
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
            if not recorded(self.traffic.scenario):  # no run changes that: short ones will do
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
            # A full run too short to prove anything would be in vain.
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
        """Run those longer whose full run did not tell; return the first that is shown to meet the objective.

        Those come first whose estimate meets it, and of these the one that seems to need the shortest run. It
        has the longest if it must; if that does not prove it either, no other is tried. Then full runs are
        of its length. Nothing is run longer than its workload or the memory allows.
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
        """Make full runs as long as is needed, but at most LONGEST times as long as was asked.

        What seems to need more than half of that gets all of it, as it might be run again otherwise.
        """
        most = LONGEST * self.asked.requests
        requests = rounded_up(needed) if needed <= most / 2 else most
        if requests > self.traffic.requests:
            self.traffic = self.asked.resized(requests) or self.traffic

    def nearest(self) -> Run:
        """Return the setting that misses the objective by least, with a full run, once all are eliminated.

        Short runs may have been wrong about it: where its full run does not tell, a longer one may prove it.
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
        # Those that clearly failed in a short run are not far behind those that failed in a long one.
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
        """Run a setting and note what the run says; one is eliminated unless its full run meets."""
        result = self.traffic.run(candidate.scenario, requests)
        full = requests == self.traffic.requests
        judgement = judge(result, self.slo, None if full else candidate.scenario, level)
        candidate.requests, candidate.judgement = requests, judgement
        candidate.latency = estimate(result, self.slo.latency, candidate.scenario)
        candidate.numbers = {name: result.metrics.number(name) for name in numbers_of(candidate.scenario)}
        fails = judgement.verdict is Verdict.FAILS
        if fails or (level == LEVEL and full and not judgement.meets):
            candidate.eliminate(Outcome.FAILS if fails else Outcome.UNCLEAR, phrases.finding(judgement))
        return result

    def _round(self, candidates: Sequence[Candidate], requests: int) -> list[Candidate]:
        """Run some at this length, and return those that stay in the race, in order."""
        leader: Run | None = None  # two results at a time are in memory
        for candidate in candidates:
            result = self.run(candidate, requests)
            if candidate.outcome is None and leader is not None:
                self._compare(*leader, candidate, result)
            if candidate.outcome is None and (leader is None or candidate.rank < leader[0].rank):
                leader = candidate, result
        return _in_order(candidates)

    def _compare(self, leader: Candidate, leading: Result, candidate: Candidate, result: Result) -> None:
        """Eliminate a setting that is clearly slower than the leader, by every latency of the objective."""
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
        """Return the latency that settings are ranked by, in words."""
        return phrases.estimated(self.slo.latency.key, candidate.latency)


def _needs(candidate: Candidate) -> float:
    """Return how many requests might prove what a run only estimates; inf if nothing is known of that."""
    times, key = candidate.judgement.longer, candidate.judgement.worst.key
    if not math.isnan(times):
        return times * candidate.requests
    length = run_length(candidate.scenario)  # without an interval, what one takes
    if key == "loss" or limits_of(key):
        return math.inf
    needed = length.needed(metric(key)) / (1 - WARMUP)
    return needed if needed > candidate.requests else math.inf


def _in_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted((candidate for candidate in candidates if candidate.outcome is None), key=_by_rank)


def _without_twins(alive: Sequence[Candidate]) -> list[Candidate]:
    """Of settings whose runs were the same, keep the preferred one and the one of the lowest saturation rate.

    Batches that never fill say nothing about how large they may be; a longer run may tell these two apart.
    """
    twins: dict[tuple[float, ...], list[Candidate]] = {}
    for candidate in alive:  # in order, so that of each group the preferred comes first
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
    """Return settings in order, the best of each saturation rate first, then the second of each, and so on.

    A run begins with an empty queue, which flatters those near saturation, the more the shorter it is;
    those of one saturation rate are flattered alike.
    """
    turns: dict[float, Iterator[int]] = defaultdict(itertools.count)
    return sorted(alive, key=lambda candidate: next(turns[candidate.saturation_per_s]))
