"""Among the settings that no run tells from the fastest, the one that an engineer would take.

The order is that of `batchsim.study.choice`. To run all settings in full would cost as much as the whole
grid; but saturation rates are known before any run, so settings are tried in an order that finds the one
to take early, in runs that grow, so that one that is clearly slower costs little.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from batchsim.result import Result
from batchsim.study import phrases
from batchsim.study.candidate import Candidate, Outcome
from batchsim.study.choice import Tie, advantage, slower_by
from batchsim.study.judgement import LEVEL, STRICT, can_lose
from batchsim.study.race import Race, Run

# What this may cost: so many full runs, or that fraction of full runs of the whole grid if that is more.
COST = 4, 1 / 20


def preferred(race: Race, candidates: Sequence[Candidate], fastest: Candidate, result: Result) -> Run:
    """Return the setting to take with its full run, and say of the others that tie why it is not them."""
    tied, leading = {fastest: result}, {race.traffic.requests: result}
    runs, fraction = COST
    stable = sum(each.scenario.stable for each in race.candidates)
    limit = race.traffic.simulated + max(runs, fraction * stable) * race.traffic.requests
    # Without intervals only equal latencies tie, and of those the race has put the preferred first.
    rivals = [each for each in candidates if _may_tie(each) and each is not fastest]
    if can_lose(fastest.scenario):
        rivals = []
    for rival in _in_turn(rivals, tied, fastest):
        if race.traffic.simulated + race.traffic.requests > limit:
            break
        run = _tie(race, rival, fastest, leading)
        if run is not None:
            tied[rival] = run
    chosen = min(tied, key=lambda each: (each.servers, *each.preference))
    for each in tied:
        if each is not chosen:
            same = f"{race.latency(each)}, statistically the same as {phrases.setting(chosen.knobs)}"
            each.eliminate(Outcome.TIED, f"{same}, which has {_advantage(chosen, each)}")
    return chosen, tied[chosen]


def _may_tie(candidate: Candidate) -> bool:
    open_ = candidate.outcome in (None, Outcome.BEHIND) and math.isfinite(candidate.first_ms)
    return open_ and not can_lose(candidate.scenario)


def _in_turn(
    rivals: Sequence[Candidate], tied: Mapping[Candidate, Result], fastest: Candidate
) -> Iterator[Candidate]:
    """Yield the settings to try; one that ties is in `tied` when the next is asked for.

    From the most headroom down, the two likeliest of each, until one ties: that with the lowest mean latency
    in the first round, and that which came furthest. Then, until another ties, the others of that headroom
    that had a lower mean than the one that tied, or have a shorter wait, by their mean in the first round.
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
    alike = [each for each in rivals if _headroom(each) == _headroom(chosen) and _may_tie(each)]
    for rival in sorted(alike, key=_by_first):
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
    """Return the full run of a setting that meets the objective and is not clearly slower, else None."""
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
        slower = slower_by(run, leading[requests], race.slo.latency[0], level)
        if slower.low > 0:
            by = phrases.difference(race.slo.latency[0], slower)
            rival.eliminate(Outcome.SLOWER, f"{by} slower than {phrases.setting(fastest.knobs)}")
            return None
    if math.isnan(slower.low) and rival.latency.value > fastest.latency.value:
        rival.eliminate(Outcome.SLOWER, f"{race.latency(rival)}, {race.latency(fastest)} at best")
        return None
    return run


def ties(best: Candidate, candidates: Sequence[Candidate]) -> tuple[Tie, ...]:
    """Return the settings that tie with the recommended one, the fastest first."""
    tied = [each for each in candidates if each.outcome is Outcome.TIED]
    return tuple(Tie(each.knobs, _advantage(best, each)) for each in sorted(tied, key=lambda each: each.rank))


def _advantage(chosen: Candidate, other: Candidate) -> str:
    fewer = f"fewer servers ({chosen.servers}, not {other.servers})"
    return fewer if chosen.servers < other.servers else advantage(chosen.preference, other.preference)
