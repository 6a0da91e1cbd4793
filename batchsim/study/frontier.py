"""The trade-off among settings: which ones no other beats in latency, saturation rate and servers alike."""

import math
import operator

from batchsim.result import Result
from batchsim.study.candidate import Candidate
from batchsim.study.choice import slower_by
from batchsim.study.judgement import LEVEL
from batchsim.study.race import Race

FULL_RUNS = 24  # at most, to draw the trade-off

Costs = tuple[float, ...]


def frontier(race: Race, best: Candidate, result: Result) -> list[Candidate]:
    """Return the settings on the frontier, by latency.

    All have full runs, because short ones flatter settings near saturation. Those that lead in the first
    round, which has one length for all, run in full; one that is behind then makes room for those it hid.
    The recommended one is always there, and stands for those of as many servers that no run tells from it.
    """
    full, room = race.traffic.requests, FULL_RUNS
    able = [each for each in race.candidates if math.isfinite(each.first_ms)]
    results = {best: result}
    while True:
        leading = _leading({each: _costs(each, each.first_ms) for each in able})
        short = [each for each in leading if each.requests < full]
        for each in short[:: math.ceil(max(len(short), 1) / room)] if room else ():
            results[each] = race.run(each, full, LEVEL)
            room -= 1
        if not room:
            able = [each for each in able if each.requests == full]
            leading = _leading({each: _costs(each, each.first_ms) for each in able})
        ran = {each: _costs(each, each.latency.value) for each in leading if each.requests == full}
        if best.scenario.stable:
            ran.setdefault(best, _costs(best, best.latency.value))
        front = [each for each in _leading(ran) if math.isfinite(each.latency.value) or each is best]
        results = {each: run for each, run in results.items() if each is best or each in front}
        behind = {each for each in leading if each in ran and each not in front}
        if not behind and all(each.requests == full for each in leading):
            break
        able = [each for each in able if each not in behind]  # ever fewer, so this ends
    shown = [best] if best.scenario.stable else []
    for each in sorted(front, key=lambda each: each.latency.value, reverse=True):
        if each is not best and not any(
            _stands_for(other, each, other is best) and not _apart(race, other, each, results)
            for other in shown
        ):
            shown.append(each)
    return sorted(shown, key=lambda each: (each.latency.value, each.servers))


def _costs(candidate: Candidate, latency_ms: float) -> Costs:
    return latency_ms, -candidate.saturation_per_s, candidate.servers


def _leading(costs: dict[Candidate, Costs]) -> list[Candidate]:
    """Return those that no other beats, by latency; of equals the first listed."""
    unique = {cost: candidate for candidate, cost in reversed(costs.items())}

    def beaten(cost: Costs) -> bool:
        return any(other != cost and all(map(operator.le, other, cost)) for other in unique)

    return [unique[cost] for cost in sorted(unique) if not beaten(cost)]


def _stands_for(one: Candidate, other: Candidate, recommended: bool) -> bool:
    """Return whether a setting would do instead of another, were their latencies the same."""
    if recommended and one.servers == other.servers:
        return True
    return one.servers <= other.servers and one.saturation_per_s >= other.saturation_per_s


def _apart(race: Race, one: Candidate, other: Candidate, results: dict[Candidate, Result]) -> bool:
    """Return whether two latencies clearly differ; where they have no interval, whether they differ."""
    a, b = (results.get(each) or race.run(each, race.traffic.requests, LEVEL) for each in (one, other))
    _, low, high = slower_by(b, a, race.slo.latency[0])
    if math.isnan(low):
        return one.latency.value != other.latency.value
    return not low <= 0 <= high
