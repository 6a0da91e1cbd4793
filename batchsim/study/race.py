"""A race of settings: short runs of all, longer ones of those that may win, a full one of the winner.

Every setting meets the same traffic (common random numbers), so that short runs order them well. Each
round is four or five times as long as the one before, for as much less of the settings (successive
halving: Jamieson and Talwalkar 2016, AISTATS). A setting leaves

- unsimulated, if its load is 1 or more;
- if it surely fails, or is surely slower than the best (its paired difference), at the strict level
  of `batchsim.study.judgement`, because every look at every setting is a chance to be wrong;
- if others are ahead of it, and the round has no place left. That is no proof, and is said so.

A run too short for an interval proves nothing, and drops nobody. What is recommended has won its place
by a full run alone, at the usual level.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import Scenario
from batchsim.study import words
from batchsim.study.judgement import (
    LEVEL,
    STRICT,
    Estimate,
    Verdict,
    can_lose,
    judge,
    number,
    percentile,
)
from batchsim.study.slo import SLO
from batchsim.study.traffic import Traffic

# The rounds before the last: their part of the full length, and of the settings, but at least so many.
ROUNDS = ((1 / 100, 1.0, 1), (1 / 20, 1 / 8, 4), (1 / 5, 1 / 32, 2))
FINALISTS = 1 / 128  # of the settings, but at least one
NEAREST = 8  # settings that run longer, where none meets the objective
SHORTEST = 800  # requests: 16 windows of 50
FINALS, LITTLE = 4, 1.1  # so many full runs, while the last one missed its limit by less than this factor
UNKNOWN = Estimate(math.nan, math.nan, math.nan)
NUMBERS = ("mean_latency_ms", "throughput_per_s", "utilisation", "mean_batch_size")


class Fate(StrEnum):
    """What became of a setting."""

    CHOSEN = "recommended"
    NEAREST = "nearest"
    REFUSED = "refused"
    UNSTABLE = "unstable"
    FAILS = "fails"
    UNCLEAR = "unclear"
    SLOWER = "slower"
    BEHIND = "behind"
    DEARER = "more servers"


@dataclass(eq=False)
class Entrant:
    """A setting in the race, and what its longest run says; no `scenario` if it is refused."""

    knobs: dict[str, Any]
    scenario: Scenario | None
    fate: Fate | None = None
    why: str = ""
    requests: int = 0
    latency: Estimate = UNKNOWN
    excess: float = math.inf
    beyond: float = 0.0
    verdict: Verdict = Verdict.UNCLEAR
    numbers: dict[str, float] = field(default_factory=dict)
    first_ms: float = math.nan  # the latency in the first round, which is of the same length for all

    @property
    def rank(self) -> tuple[float, float, float]:
        """The order of the race: first what misses the objective by less, then what is faster."""
        return max(self.excess, 1.0), self.beyond, self.latency.value if self.requests else math.inf

    @property
    def servers(self) -> int:
        """How many it needs; 0 if it is refused."""
        return 0 if self.scenario is None else self.scenario.servers

    @property
    def load(self) -> float:
        return math.nan if self.scenario is None else self.scenario.load

    @property
    def saturation_per_s(self) -> float:
        return math.nan if self.scenario is None else self.scenario.saturation_per_s

    @property
    def stable(self) -> bool:
        return self.scenario is not None and self.scenario.stable

    def leave(self, fate: Fate, why: str) -> None:
        """Leave the race, unless that is done."""
        if self.fate is None:
            self.fate, self.why = fate, why


@dataclass(eq=False)
class Race:
    """The settings of a grid before one traffic; see this module."""

    slo: SLO
    traffic: Traffic
    entrants: Sequence[Entrant]

    @property
    def lengths(self) -> list[int]:
        """The requests of each round; the last one's are all."""
        full = self.traffic.requests
        short = [max(round(part * full), SHORTEST) for part, _, _ in ROUNDS]
        return [*(length for length in short if length <= full / 2), full]

    def begin(self) -> None:
        """Run the first round: all settings that are stable."""
        for entrant in self.entrants:
            if entrant.scenario is None:
                continue
            if not entrant.stable:
                entrant.leave(Fate.UNSTABLE, words.overload(entrant.scenario))
                continue
            self.run(entrant, self.lengths[0])
            entrant.first_ms = entrant.latency.value

    def heat(self, entrants: Sequence[Entrant]) -> tuple[Entrant, Result] | None:
        """Race some of them to the end; return the best that a full run shows to meet the objective."""
        count, alive = sum(entrant.requests > 0 for entrant in entrants), _in_order(entrants)
        for requests, (_, share, least) in zip(self.lengths[1:-1], ROUNDS[1:], strict=False):
            if len(alive) <= 1:
                break
            places = max(math.ceil(share * count), least)
            alive = _fairly(_without_twins(alive))
            self._leave_behind(alive, places, count)
            alive = self._round(alive[:places], requests)
        best: tuple[Entrant, Result] | None = None
        for place, entrant in enumerate(alive):
            by_little = place > 0 and alive[place - 1].excess < LITTLE
            if place >= math.ceil(FINALISTS * count) and (best or place >= FINALS or not by_little):
                self._leave_behind(alive, place, count)
                break
            result = self.run(entrant, self.lengths[-1], LEVEL)
            if entrant.verdict is Verdict.MEETS and (best is None or entrant.rank < best[0].rank):
                best = entrant, result
        for entrant in alive:
            if best is not None and entrant is not best[0]:
                entrant.leave(Fate.SLOWER, f"{self._latency(entrant)}, {self._latency(best[0])} recommended")
        return best

    def nearest(self) -> tuple[Entrant, Result]:
        """Return the setting that misses the objective by least, with a full run, once all have left."""
        able = [entrant for entrant in self.entrants if entrant.scenario is not None]
        ran = sorted((entrant for entrant in able if entrant.requests), key=lambda entrant: entrant.rank)
        if not ran:
            best = min(able, key=lambda entrant: entrant.load)
            return best, self.run(best, self.lengths[-1], LEVEL)
        # Those that surely failed in a short run are not far behind those that failed in a long one.
        near, longer = _fairly(ran)[:NEAREST], self.lengths[-2:][0]
        for entrant in near:
            if entrant.requests < longer:
                self.run(entrant, longer)
        best = min(
            (entrant for entrant in ran if entrant.requests >= longer), key=lambda entrant: entrant.rank
        )
        return best, self.run(best, self.lengths[-1], LEVEL)

    def run(self, entrant: Entrant, requests: int, level: float = STRICT) -> Result:
        """Run a setting and note what the run says; after its final run, it leaves if that is no "meets"."""
        assert entrant.scenario is not None
        result = self.traffic.run(entrant.scenario, requests)
        full = requests == self.traffic.requests
        judgement = judge(result, self.slo, None if full else entrant.scenario, level)
        key, q = self.slo.latency
        entrant.latency = number(result, key) if q is None else percentile(result, q)
        entrant.numbers = {name: result.metrics.number(name) for name in NUMBERS}
        entrant.requests, entrant.verdict = requests, judgement.verdict
        entrant.excess, entrant.beyond = judgement.excess, judgement.beyond
        finding = words.finding(judgement.worst, judgement.estimates[judgement.worst], judgement.verdict)
        if judgement.verdict is Verdict.FAILS:
            entrant.leave(Fate.FAILS, finding)
        elif level == LEVEL and full and judgement.verdict is Verdict.UNCLEAR:
            entrant.leave(Fate.UNCLEAR, finding)
        return result

    def _round(self, entrants: Sequence[Entrant], requests: int) -> list[Entrant]:
        """Run some at this length, and return those that stay in the race, in order."""
        leader: tuple[Entrant, Result] | None = None  # two results at a time are in memory
        for entrant in entrants:
            result = self.run(entrant, requests)
            if entrant.fate is None and leader is not None:
                self._compare(*leader, entrant, result)
            if entrant.fate is None and (leader is None or entrant.rank < leader[0].rank):
                leader = entrant, result
        return _in_order(entrants)

    def _compare(self, leader: Entrant, leading: Result, entrant: Entrant, result: Result) -> None:
        """Let a setting leave that is surely slower than the leader, by every latency that is asked for."""
        keys = [o.key for o in self.slo.objectives if o.q is not None or o.key == "mean_latency_ms"]
        others = len(keys) < len(self.slo.objectives)
        if can_lose(result.scenario) or can_lose(leading.scenario) or (others and leader.excess > 1):
            return
        key = self.slo.latency[0]
        rows = compare(leading, result, list({*keys, key}), STRICT, silent=True).rows
        if all(row.low > 0 for row in rows.values()):
            slower = Estimate(*rows[key][2:])
            entrant.leave(Fate.SLOWER, f"{words.by(key, slower)} slower than {words.setting(leader.knobs)}")

    def _leave_behind(self, alive: Sequence[Entrant], places: int, count: int) -> None:
        for place, entrant in enumerate(alive[places:], places + 1):
            after = f"{self._latency(entrant)} after {entrant.requests:,} requests"
            entrant.leave(Fate.BEHIND, f"number {place} of {count}: {after}")

    def _latency(self, entrant: Entrant) -> str:
        return words.estimated(self.slo.latency[0], entrant.latency)


def _in_order(entrants: Sequence[Entrant]) -> list[Entrant]:
    return sorted((entrant for entrant in entrants if entrant.fate is None), key=lambda each: each.rank)


def _without_twins(alive: Sequence[Entrant]) -> list[Entrant]:
    """Leave two of those whose runs were the same: the first listed, and the one that can carry most.

    As batches that are never filled do not tell how large they may be.
    """
    twins: dict[Any, list[Entrant]] = {}
    for entrant in alive:
        twins.setdefault((entrant.rank, *entrant.numbers.values()), []).append(entrant)
    for first, *others in twins.values():
        for other in sorted(others, key=lambda each: each.scenario.saturation_per_s)[:-1]:  # type: ignore[union-attr]
            other.leave(
                Fate.BEHIND, f"no different from {words.setting(first.knobs)} in {other.requests:,} requests"
            )
    return [entrant for entrant in alive if entrant.fate is None]


def _fairly(alive: Sequence[Entrant]) -> list[Entrant]:
    """Return settings in order, the best of each capacity first, then the second of each, and so on.

    A run begins with an empty queue, which flatters those near their capacity, the more the shorter it is;
    those of one capacity are flattered alike.
    """
    seen: dict[float, int] = {}
    places = []
    for entrant in alive:
        places.append(seen.get(entrant.saturation_per_s, 0))
        seen[entrant.saturation_per_s] = places[-1] + 1
    return [entrant for _, entrant in sorted(zip(places, alive, strict=True), key=lambda pair: pair[0])]
