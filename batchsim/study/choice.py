"""The choice by full runs after the race: the setting to take among ties, and the frontier.

Several settings may be statistically as fast as the fastest. `Candidate.preference` then decides as an
engineer would. Full runs of all settings would cost as much as the whole grid. But saturation rates need no
run, so the most preferred settings are tried first, in runs that grow: a clearly slower one costs little.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from batchsim.result import Result
from batchsim.study import phrases
from batchsim.study.judgement import STRICT, slower_by
from batchsim.study.race import Candidate, Outcome, Race, Run
from batchsim.study.slo import LEVEL

# The most that the tie-break may cost: the larger of both.
COST = 4, 1 / 20  # (full runs, fraction of full runs of the whole grid)
FULL_RUNS = 24  # at most, to draw the frontier


def preferred(race: Race, candidates: Sequence[Candidate], fastest: Candidate, result: Result) -> Run:
    """Return the setting to take with its full run; the other ties get their outcome, with the reason."""
    tied, leading = {fastest: result}, {race.traffic.requests: result}
    runs, fraction = COST
    stable = sum(each.scenario.stable for each in race.candidates)
    limit = race.traffic.simulated + max(runs, fraction * stable) * race.traffic.requests
    # Without intervals only equal latencies tie, and the race has put the preferred one first.
    paired = not fastest.scenario.can_lose
    rivals = [each for each in candidates if paired and _may_tie(each) and each is not fastest]
    for rival in _in_turn(rivals, tied, fastest):
        if race.traffic.simulated + race.traffic.requests > limit:
            break
        if (run := _tie(race, rival, fastest, leading)) is not None:
            tied[rival] = run
    chosen = min(tied, key=lambda each: (each.servers, *each.preference))
    for each in tied:
        if each is not chosen:
            same = f"{race.latency(each)}, statistically the same as {phrases.setting(chosen.knobs)}"
            each.eliminate(Outcome.TIED, f"{same}, which has {chosen.advantage(each)}")
    return chosen, tied[chosen]


def _may_tie(candidate: Candidate) -> bool:
    open_ = candidate.outcome in (None, Outcome.BEHIND) and math.isfinite(candidate.first_ms)
    return open_ and not candidate.scenario.can_lose


def _in_turn(
    rivals: Sequence[Candidate], tied: Mapping[Candidate, Result], fastest: Candidate
) -> Iterator[Candidate]:
    """Yield the settings to try. The caller adds each that ties to `tied` before it asks for the next.

    From the most headroom down, the two likeliest settings of each headroom, until one ties: the one with the
    lowest mean latency in the first round, and the one that came furthest. Then, until another ties, the
    others of that headroom with a lower mean in the first round or a shorter wait, by that mean.
    """
    chosen = fastest
    for headroom, group in groupby(sorted(rivals, key=_by_first), _headroom):
        if headroom >= _headroom(fastest):
            break
        settings = list(group)
        likeliest = dict.fromkeys((settings[0], min(settings, key=lambda each: (-each.requests, each.rank))))
        yield from likeliest
        if found := [rival for rival in likeliest if rival in tied]:
            chosen = found[0]
            break
    _, mean_ms, wait_ms = chosen.first_preference
    same = [each for each in rivals if _headroom(each) == _headroom(chosen) and _may_tie(each)]
    for rival in sorted(same, key=_by_first):
        _, least_ms, shortest_ms = rival.first_preference
        if rival not in tied and (least_ms < mean_ms or shortest_ms < wait_ms):
            yield rival
            if rival in tied:
                return


def _by_first(candidate: Candidate) -> tuple[float, ...]:
    return candidate.servers, *candidate.first_preference


def _headroom(candidate: Candidate) -> tuple[float, ...]:
    return _by_first(candidate)[:2]


def _tie(race: Race, rival: Candidate, fastest: Candidate, leading: dict[int, Result]) -> Result | None:
    """Return the full run of a setting if it meets the objective and is not clearly slower, else None.

    Like the race, it grows the runs and drops a setting at the strict level. Only the full run decides at the
    usual level.
    """
    full, rival.outcome = race.traffic.requests, None
    for requests in race.lengths[1:] or race.lengths:
        if requests <= rival.requests < full:
            continue
        level = LEVEL if requests == full else STRICT
        run = race.run(rival, requests, level)
        if rival.outcome is not None:
            return None
        if requests not in leading:
            leading[requests] = race.traffic.run(fastest.scenario, requests)
        slower = slower_by(run, leading[requests], race.slo.latency.key, level)
        if slower.low > 0:
            race.drop_slower(rival, fastest, slower)
            return None
    if math.isnan(slower.low) and rival.latency.value > fastest.latency.value:
        rival.eliminate(Outcome.SLOWER, f"{race.latency(rival)}, {race.latency(fastest)} at best")
        return None
    return run


def frontier(race: Race, best: Candidate, result: Result) -> list[Candidate]:
    """Return the frontier, by latency: no other setting beats these in latency, saturation rate and servers.

    All have full runs, because short ones flatter settings near saturation. The leaders of the first round,
    whose length is the same for all, run in full. If one of them turns out to be behind, it makes room for
    settings that it hid. The frontier always includes the recommended setting, which represents all settings
    with as many servers whose latency does not clearly differ.
    """
    full = race.traffic.requests
    room = max(FULL_RUNS * race.asked.requests // full, 1)
    able = [each for each in race.candidates if math.isfinite(each.first_ms)]
    results = {best: result}
    while True:
        leading = _leading(able, _first_ms)
        short = [each for each in leading if each.requests < full]
        for each in short[:: math.ceil(max(len(short), 1) / room)] if room else ():
            results[each] = race.run(each, full, LEVEL)
            room -= 1
        if not room:
            able = [each for each in able if each.requests >= full]
            leading = _leading(able, _first_ms)
        ran = [each for each in leading if each.requests >= full]
        if best.scenario.stable and best not in ran:
            ran.append(best)
        front = [each for each in _leading(ran, _full_ms) if math.isfinite(_full_ms(each)) or each is best]
        results = {each: run for each, run in results.items() if each is best or each in front}
        behind = {each for each in leading if each in ran and each not in front}
        if not behind and all(each.requests >= full for each in leading):
            break
        able = [each for each in able if each not in behind]  # ever fewer, so this ends
    shown = [best] if best.scenario.stable else []
    for each in sorted(front, key=_full_ms, reverse=True):
        like = [other for other in shown if _represents(other, each, other is best)]
        if each is not best and all(_apart(race, other, each, results) for other in like):
            shown.append(each)
    return sorted(shown, key=lambda each: (_full_ms(each), each.servers))


_first_ms: Callable[[Candidate], float] = operator.attrgetter("first_ms")
_full_ms: Callable[[Candidate], float] = operator.attrgetter("latency.value")


def _leading(candidates: Sequence[Candidate], latency_ms: Callable[[Candidate], float]) -> list[Candidate]:
    """Return the settings that no other beats, by latency; the first of several equal ones."""
    costs = {(latency_ms(each), -each.saturation_per_s, each.servers): each for each in reversed(candidates)}

    def beaten(cost: tuple[float, ...]) -> bool:
        return any(other != cost and all(map(operator.le, other, cost)) for other in costs)

    return [costs[cost] for cost in sorted(costs) if not beaten(cost)]


def _represents(one: Candidate, other: Candidate, recommended: bool) -> bool:
    """Return whether a setting could represent another with the same latency."""
    as_good = one.servers <= other.servers and one.saturation_per_s >= other.saturation_per_s
    return as_good or (recommended and one.servers == other.servers)


def _apart(race: Race, one: Candidate, other: Candidate, results: Mapping[Candidate, Result]) -> bool:
    """Return whether two latencies clearly differ; without an interval, whether they differ at all."""
    a, b = (results.get(each) or race.run(each, race.traffic.requests, LEVEL) for each in (one, other))
    _, low, high = slower_by(b, a, race.slo.latency.key)
    return _full_ms(one) != _full_ms(other) if math.isnan(low) else not low <= 0 <= high
