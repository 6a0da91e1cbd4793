"""The choice after the race: the setting to take among ties, its distance to the best, and the frontier.

Runs may not tell several settings from the fastest. That proves no equality: it may be a lack of power, so
their estimates must also be within 2 %. `Candidate.preference` then decides as an engineer would. Saturation
rates need no run, so the most preferred settings are tried first, in runs that grow: a clearly slower one
costs little. Ties that the budget leaves no run for are not found.

How far the chosen setting may be above the best is bounded by multiple comparisons with the best
(`batchsim.study.paired`) in the runs of the search. Every setting counts with the least bound of its runs.
One whose runs are short for the memory of its queue has no bound: the statement leaves it out, and says so.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from batchsim.result import Result
from batchsim.study import phrases
from batchsim.study.candidate import Candidate, Outcome
from batchsim.study.judgement import STRICT, slower_by
from batchsim.study.kinds import kind_of
from batchsim.study.paired import Bound, Statement
from batchsim.study.race import FAR, MEAN, Race
from batchsim.study.slo import LEVEL
from batchsim.study.surface import map_requests

TRIED = 4  # the most that the tie-break may cost, in runs of the last round
FULL_RUNS = 24  # at most, to draw the frontier
NEARLY = 0.02  # of the latency: a tie is not only what a short run cannot separate
WIDE = 0.1  # of the latency: a wider bound tells little
NONE = Bound(math.nan, math.inf)


def preferred(race: Race, candidates: Sequence[Candidate], fastest: Candidate) -> list[Candidate]:
    """Return the settings that runs do not tell from the fastest, of those tried; the one to take first."""
    tied, length = [fastest], race.short[-1]
    limit = race.search.simulated + TRIED * length
    rivals = [each for each in candidates if _may_tie(each) and each is not fastest]
    for rival in _in_turn(rivals, tied, fastest):
        if race.search.simulated + length > limit:
            break
        if _ties(race, rival, fastest):
            tied.append(rival)
    for each in sorted(tied, key=lambda each: each.mean_ms):  # of means that hardly differ, the lowest
        lowest = min((other for other in tied if _headroom(other) == _headroom(each)), key=_mean_ms)
        if each is lowest:
            continue
        if 0 <= race.bound(lowest, each, length, (1 + LEVEL) / 2, MEAN).most < math.inf:
            each.mean_ms = lowest.mean_ms
    return sorted(tied, key=lambda each: (each.servers, *each.preference))


def mark(race: Race, tied: Sequence[Candidate], chosen: Candidate) -> None:
    """Give the ties of the chosen setting their outcome, with the reason."""
    for each in tied if chosen in tied else ():
        if each is not chosen:
            same = f"{race.latency(each)}, no run tells it from {phrases.setting(chosen.knobs)}"
            each.eliminate(Outcome.TIED, f"{same}, which has {chosen.advantage(each)}")


def _may_tie(candidate: Candidate) -> bool:
    return candidate.outcome in (None, Outcome.BEHIND) and math.isfinite(candidate.first_ms)


def _in_turn(
    rivals: Sequence[Candidate], tied: Sequence[Candidate], fastest: Candidate
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


def _ties(race: Race, rival: Candidate, fastest: Candidate) -> bool:
    """Return whether a setting may meet the objective, and is not clearly slower.

    Like the race, it grows the runs and drops a setting at the strict level. Only the last run decides at the
    usual level.
    """
    rival.outcome, meets = None, fastest.judgement.excess <= 1
    for requests in race.short:
        if requests < min(rival.requests, race.short[-1]):
            continue
        race.screen([rival, fastest], requests)
        last = requests == race.short[-1]
        bound = race.bound(fastest, rival, requests, (1 + LEVEL) / 2 if last else STRICT)
        steady = race.steady(requests, rival, fastest)
        if rival.outcome is None and bound.most < 0 and (steady or last):
            race.drop_slower(rival, fastest, bound)
        if rival.outcome is not None:
            return False
    latency = fastest.latency.value
    slower = (math.isinf(bound.most) or not steady) and rival.latency.value > latency
    slower |= rival.latency.value > (1 + NEARLY) * fastest.latency.value
    if slower or (meets and rival.judgement.excess > 1):
        rival.eliminate(Outcome.BEHIND, f"{race.latency(rival)}, {race.latency(fastest)} at best")
        return False
    return True


def compared(race: Race, chosen: Candidate, rivals: Sequence[Candidate]) -> dict[Candidate, Bound]:
    """Return by how much each rival is better than the chosen setting, all bounds together with 95 %.

    Each length at which a rival may be compared has its share of the confidence, so the least bound holds.
    A rival without a run of a steady length has none: its bound is infinite.
    """
    bounds = {}
    level = 1 - (1 - LEVEL) / (len(race.short) * max(len(rivals), 1))
    for rival in rivals:
        both = [n for n in chosen.runs if n in rival.runs]
        steady = [n for n in both if race.steady(n, chosen, rival)]
        found = [race.bound(chosen, rival, n, level) for n in sorted(steady)]
        bounds[rival] = Bound(found[-1].value, min(each.most for each in found)) if found else NONE
    return bounds


def rivals_of(race: Race, chosen: Candidate, group: Sequence[Candidate]) -> list[Candidate]:
    """Return the other settings that might be the best: stable, and not shown to miss another objective."""
    key = race.slo.latency.key

    def misses(each: Candidate) -> bool:
        return each.outcome is Outcome.FAILS and (each in race.missed or each.judgement.worst.key != key)

    return [each for each in group if each is not chosen and each.scenario.stable and not misses(each)]


def statement_of(race: Race, chosen: Candidate, group: Sequence[Candidate], some: bool) -> Statement:
    """Return how far the chosen setting is above the best, and note the bound of each rival.

    The statement leaves wide bounds out, and counts those settings.
    """
    rivals = rivals_of(race, chosen, group)
    bounds = compared(race, chosen, rivals)
    for each, bound in bounds.items():
        each.better_by_ms = bound.most
    known = {each: bound for each, bound in bounds.items() if bound.most <= WIDE * chosen.latency.value}
    unstable = sum(not each.scenario.stable for each in group)
    within_ms = max([0.0, *(bound.most for bound in known.values())])
    screened = len(rivals) - len(known)
    settings = 1 + len(known) + unstable if known or not rivals else 1
    return Statement(
        race.slo.latency.key, within_ms, settings, screened,
        chosen.servers if some and not chosen.metered else None,
        per_million=chosen.cost_per_million if some and chosen.metered else None,
    )  # fmt: skip


def alike(race: Race, chosen: Candidate) -> list[Candidate]:
    """Return the settings whose p99 is not clearly above the lowest: those that a map of their rules frames.

    They differ from the chosen one in the rule alone. Runs, traffic and test are those of
    `batchsim.study.surface`. None, where a map shows another metric, or costs too much.
    """
    scenario, kind = chosen.scenario, kind_of(chosen.scenario)
    if scenario.uncovered or not kind.mapped or kind.metric(None) != race.slo.latency.key:
        return []
    same = [
        each for each in race.candidates
        if type(each.scenario.rule) is type(scenario.rule)
        and each.first_ms <= FAR * chosen.first_ms
        and replace(each.scenario, rule=scenario.rule) == scenario
    ]  # fmt: skip
    requests = map_requests(scenario, race.asked.requests)
    race.search.count(requests * len(same))
    rules = [each.scenario.rule for each in same]
    if not rules:
        return []
    cells = kind.cells(scenario, rules, len(rules), requests, race.search.seed, None, roughly=False)
    return [same[place] for place in cells.settle()[0].tolist()]


def frontier(race: Race, best: Candidate, result: Result) -> list[Candidate]:
    """Return the frontier, by latency: no other setting beats these in latency, saturation rate and cost.

    All have full runs, because short ones flatter settings near saturation. The leaders of the first round,
    whose length is the same for all, run in full. If one of them turns out to be behind, it makes room for
    settings that it hid. The frontier always includes the recommended setting, which represents all settings
    of the same cost whose latency does not clearly differ.
    """
    full = race.traffic.requests
    room = max(FULL_RUNS * race.asked.requests // full, 1)
    able = [each for each in race.candidates if math.isfinite(each.first_ms)]
    results = {best: result}
    while True:
        leading = _leading(able, _first_ms)
        short = [each for each in leading if each.fresh < full]
        for each in short[:: math.ceil(max(len(short), 1) / room)] if room else ():
            results[each] = race.run(each)
            room -= 1
        if not room:
            able = [each for each in able if each.fresh >= full]
            leading = _leading(able, _first_ms)
        ran = [each for each in leading if each.fresh >= full]
        if best.scenario.stable and best not in ran:
            ran.append(best)
        front = [each for each in _leading(ran, _full_ms) if math.isfinite(_full_ms(each)) or each is best]
        results = {each: run for each, run in results.items() if each is best or each in front}
        behind = {each for each in leading if each in ran and each not in front}
        if not behind and all(each.fresh >= full for each in leading):
            break
        able = [each for each in able if each not in behind]  # ever fewer, so this ends
    shown = [best] if best.scenario.stable else []
    for each in sorted(front, key=_full_ms, reverse=True):
        like = [other for other in shown if _represents(other, each, other is best)]
        if each is not best and all(_apart(race, other, each, results) for other in like):
            shown.append(each)
    return sorted(shown, key=lambda each: (_full_ms(each), each.cost))


_mean_ms: Callable[[Candidate], float] = operator.attrgetter("mean_ms")
_first_ms: Callable[[Candidate], float] = operator.attrgetter("first_ms")
_full_ms: Callable[[Candidate], float] = operator.attrgetter("latency.value")


def _leading(candidates: Sequence[Candidate], latency_ms: Callable[[Candidate], float]) -> list[Candidate]:
    """Return the settings that no other beats, by latency; the first of several equal ones."""
    costs = {(latency_ms(each), -each.saturation_per_s, each.cost): each for each in reversed(candidates)}

    def beaten(cost: tuple[float, ...]) -> bool:
        return any(other != cost and all(map(operator.le, other, cost)) for other in costs)

    return [costs[cost] for cost in sorted(costs) if not beaten(cost)]


def _represents(one: Candidate, other: Candidate, recommended: bool) -> bool:
    """Return whether a setting could represent another with the same latency."""
    as_good = one.cost <= other.cost and one.saturation_per_s >= other.saturation_per_s
    return as_good or (recommended and one.cost == other.cost)


def _apart(race: Race, one: Candidate, other: Candidate, results: Mapping[Candidate, Result]) -> bool:
    """Return whether two latencies clearly differ; without an interval, whether they differ at all."""
    a, b = (results.get(each) or race.run(each) for each in (one, other))
    _, low, high = slower_by(b, a, race.slo.latency.key)
    return _full_ms(one) != _full_ms(other) if math.isnan(low) else not low <= 0 <= high
