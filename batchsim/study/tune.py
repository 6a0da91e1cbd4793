"""From an objective to the setting that meets it."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from batchsim import _check, _format
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.scenario import ClosedLoop, Poisson, Scenario
from batchsim.simulate import check_requests
from batchsim.study import words
from batchsim.study.capacity import check, check_loss
from batchsim.study.explain import effects_of
from batchsim.study.grid import Grid
from batchsim.study.judgement import LEVEL, Estimate, Verdict, can_lose, estimate, judge, number
from batchsim.study.race import NUMBERS, Entrant, Fate, Race
from batchsim.study.recommendation import Recommendation
from batchsim.study.remedies import Remedy, longer, remedies, scaled
from batchsim.study.slo import SLO, Objective, key_of
from batchsim.study.traffic import Traffic

if TYPE_CHECKING:
    import pandas

    from batchsim.theory import Optimum

PREFER = ("cheapest", "fastest")
PERCENTILES = (50.0, 95.0, 99.0)  # to expect, besides those of the objective
NEAR = 4  # settings, besides the nearest, that are tried with one more server
FRONTIER = 24  # full runs at most, to draw the trade-off
LARGEST = 1024  # batches, of which theory finds the best policy in seconds


def tune(
    scenario: Scenario,
    slo: SLO,
    over: Mapping[str, Any],
    requests: int | None = None,
    seed: int = 0,
    prefer: str = "cheapest",
) -> Recommendation:
    """Return the setting that meets an objective, out of a grid of knobs.

    `over` is {knob: values}, as for `sweep`: knobs of the rule, the service and the servers. `prefer`:
    "cheapest" takes the fewest servers that meet the objective, and of their settings the one with the lowest
    latency: the highest percentile of `slo`, or its mean. "fastest" takes the lowest latency of all.
    `requests`: the length of a full run, a whole trace or 100,000; that is the precision of the answer.

    Settings race, in runs that grow (`batchsim.study.race`); they share the traffic of one seed. One is
    recommended only if the 95 % interval of a full run is within the objective. Where there is none,
    `met` is False, and the nearest setting comes with what would meet the objective, each checked by runs.

    An unknown knob, an empty axis, a NaN or a value of the wrong type raise, naming the place; so does a
    knob of the workload. A combination that the scenario refuses is a candidate with that fate.

    >>> from batchsim import Affine, SizeOrWait
    >>> scenario = Scenario(Poisson(rate_per_s=2000), SizeOrWait(), Affine(fixed_ms=5, per_item_ms=0.25))
    >>> over = {"servers": [1, 2, 3], "max_batch_size": [4, 8, 16, 32], "max_wait_ms": [0, 1, 2, 4, 8, 16]}
    >>> best = tune(scenario, SLO(p99_ms=15), over, requests=20_000)
    >>> best.met, best.scenario.servers, best.rule
    (True, 2, SizeOrWait(max_batch_size=16, max_wait_ms=4))
    >>> [round(ms, 1) for ms in best.expected["p99_ms"]]
    [12.5, 12.4, 12.5]
    """
    check(scenario, slo)
    if not isinstance(prefer, str) or prefer not in PREFER:
        raise ValueError(
            f"prefer must be one of {', '.join(PREFER)}, got {prefer!r}"
            + _check.nearest(prefer, PREFER, listed=True)
        )
    count = check_requests(scenario, requests)
    seed = _check.whole("seed", seed, at_least=0, at_most=None)
    grid = Grid.of(scenario, over)
    entrants = _entrants(scenario, slo, grid)
    _check_throughput(scenario, slo)
    race = Race(slo, Traffic(scenario, count, seed), entrants)
    race.begin()
    won = None
    for group in _groups(entrants, prefer):
        won = race.heat(group)
        if won is not None:
            break
    best, result = won if won is not None else race.nearest()
    for entrant in entrants:
        servers = _format.counted(best.servers, "server")
        entrant.leave(Fate.DEARER, f"{servers} meet{'s' if best.servers == 1 else ''} the objective")
    met = best.verdict is Verdict.MEETS
    judgement = judge(result, slo)
    best.fate, best.why = (Fate.CHOSEN if met else Fate.NEAREST), words.findings(judgement)
    simulated = race.traffic.simulated
    frontier = _frontier(race, best, result)
    assert best.scenario is not None
    expected = _expected(result, slo)
    effects = effects_of(result, slo, race.traffic) if best.scenario.stable else ()
    if met:
        helps: tuple[Remedy, ...] = ()
    elif judgement.too_short:
        workload = scenario.workload
        most = math.inf if isinstance(workload, ClosedLoop) else workload.max_requests or math.inf
        helps = longer(judgement, count, most)
    else:
        near = sorted((e for e in entrants if e.stable and e is not best), key=lambda e: e.rank)[:NEAR]
        others = [(e.knobs, e.scenario) for e in near if e.scenario is not None]
        helps = remedies(best.scenario, slo, race.traffic, others)
    optimum, no_optimum = _optimum(best, entrants)
    table = _table(grid, entrants, slo)
    return Recommendation(
        scenario=best.scenario,
        slo=slo,
        prefer=prefer,
        knobs=best.knobs,
        met=met,
        judgement=judgement,
        expected=expected,
        result=result,
        candidates=table,
        frontier=table.loc[frontier].reset_index(drop=True),
        optimum=optimum,
        no_optimum=no_optimum,
        effects=effects,
        remedies=helps,
        requests_simulated=simulated,
        grid_requests=count * sum(entrant.stable for entrant in entrants),
        requests_explaining=race.traffic.simulated - simulated,
    )


# Who runs.


def _entrants(scenario: Scenario, slo: SLO, grid: Grid) -> list[Entrant]:
    """Return the grid's settings; raise where none can run, or the objective cannot be judged."""
    entrants, refusals = [], []
    for knobs in map(grid.knobs, range(len(grid))):
        try:
            point = scenario.replace(knobs)
        except ValueError as refusal:
            refusals.append(refusal)
            entrants.append(Entrant(knobs, None, Fate.REFUSED, str(refusal)))
            continue
        if point.workload is not scenario.workload:
            names = ", ".join(axis.name for axis in grid.axes)
            raise ValueError(
                f"over must leave the workload as it is, got {names}: capacity() finds the highest rate, "
                "and sweep() varies anything"
            )
        check_loss(point, slo)
        entrants.append(Entrant(knobs, point))
    if len(refusals) == len(entrants):
        raise refusals[0]
    return entrants


def _check_throughput(scenario: Scenario, slo: SLO) -> None:
    if isinstance(scenario.workload, ClosedLoop) or slo.min_throughput_per_s is None:
        return
    offered = scenario.workload.offered_per_s
    if slo.min_throughput_per_s > offered * (1 + 1e-9):
        raise ValueError(
            f"min_throughput_per_s must be at most the {offered:,.6g}/s that the workload offers, "
            f"got {slo.min_throughput_per_s!r}"
        )


def _groups(entrants: Sequence[Entrant], prefer: str) -> list[list[Entrant]]:
    """Return the settings in groups, of which the first that has an answer has the best."""
    able = [entrant for entrant in entrants if entrant.scenario is not None]
    if prefer == "fastest":
        return [able]
    return [
        [entrant for entrant in able if entrant.servers == servers]
        for servers in sorted({entrant.servers for entrant in able})
    ]


# What is said of them.


def _table(grid: Grid, entrants: Sequence[Entrant], slo: SLO) -> "pandas.DataFrame":
    import pandas

    key = slo.latency[0]
    columns: dict[str, Any] = dict(grid.columns())
    others = {
        "servers": [entrant.servers for entrant in entrants],
        "load": [entrant.load for entrant in entrants],
        "saturation_per_s": [entrant.saturation_per_s for entrant in entrants],
        "requests": [entrant.requests for entrant in entrants],
        key: [entrant.latency.value for entrant in entrants],
        f"{key}_low": [entrant.latency.low for entrant in entrants],
        f"{key}_high": [entrant.latency.high for entrant in entrants],
        **{name: [entrant.numbers.get(name, math.nan) for entrant in entrants] for name in NUMBERS},
        "fate": [str(entrant.fate) for entrant in entrants],
        "why": [entrant.why for entrant in entrants],
    }
    return pandas.DataFrame({**others, **columns})[
        [*columns, *(name for name in others if name not in columns)]
    ]


def _frontier(race: Race, best: Entrant, result: Result) -> list[int]:
    """Return the places of the settings of which none other is better in latency, capacity and servers alike.

    All have full runs, because short ones flatter settings near their capacity. Those that lead in the first
    round, which has one length for all, run in full; one that is behind then makes room for those it hid.
    The recommended one is always there, and stands for those of as many servers that no run tells from it.
    """
    full, room = race.traffic.requests, FRONTIER
    able = [entrant for entrant in race.entrants if math.isfinite(entrant.first_ms)]
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
        if best.stable:
            ran.setdefault(best, _costs(best, best.latency.value))
        front = [each for each in _leading(ran) if math.isfinite(each.latency.value) or each is best]
        results = {each: run for each, run in results.items() if each is best or each in front}
        behind = {each for each in leading if each in ran and each not in front}
        if not behind and all(each.requests == full for each in leading):
            break
        able = [each for each in able if each not in behind]  # and it ends, as there is ever less
    shown = [best] if best.stable else []
    for each in sorted(front, key=lambda each: each.latency.value, reverse=True):
        if not any(
            _stands_for(other, each, other is best) and not _told_apart(race, other, each, results)
            for other in shown
        ):
            shown += [each] if each is not best else []
    shown.sort(key=lambda each: (each.latency.value, each.servers))
    return [race.entrants.index(each) for each in shown]


def _costs(entrant: Entrant, latency_ms: float) -> tuple[float, ...]:
    return latency_ms, -entrant.saturation_per_s, entrant.servers


def _leading(costs: dict[Entrant, tuple[float, ...]]) -> list[Entrant]:
    """Return those that none other beats, by latency; of equals the first listed."""
    unique = {cost: entrant for entrant, cost in reversed(costs.items())}
    front = [cost for cost in unique if not any(_better(other, cost) for other in unique)]
    return [unique[cost] for cost in sorted(front)]


def _better(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(mine <= other for mine, other in zip(a, b, strict=True))


def _stands_for(one: Entrant, other: Entrant, recommended: bool) -> bool:
    """Return whether a setting would do instead of another, were their latencies the same."""
    if recommended and one.servers == other.servers:
        return True
    return one.servers <= other.servers and one.saturation_per_s >= other.saturation_per_s


def _told_apart(race: Race, one: Entrant, other: Entrant, results: Mapping[Entrant, Result]) -> bool:
    """Return whether two latencies surely differ; where they have no interval, whether they differ."""
    a, b = (results.get(each) or race.run(each, race.traffic.requests, LEVEL) for each in (one, other))
    low = high = math.nan
    if not (can_lose(a.scenario) or can_lose(b.scenario)):
        low, high = compare(a, b, [race.slo.latency[0]], LEVEL, silent=True)[race.slo.latency[0]][3:]
    if math.isnan(low):
        return one.latency.value != other.latency.value
    return not low <= 0 <= high


def _expected(result: Result, slo: SLO) -> dict[str, Estimate]:
    asked = [objective for objective in slo.objectives if objective.q is not None]
    percentiles = {o.key: o for o in [*(Objective(key_of(q), math.inf, q) for q in PERCENTILES), *asked]}
    expected = {"mean_latency_ms": number(result, "mean_latency_ms")}
    for key, objective in percentiles.items():
        expected[key] = estimate(result, objective, result.scenario)
    expected |= {name: number(result, name) for name in NUMBERS if name not in expected}
    if can_lose(result.scenario):
        expected["loss"] = estimate(result, Objective("loss", 1.0), result.scenario)
    return expected


def _optimum(best: Entrant, entrants: Sequence[Entrant]) -> "tuple[Optimum | None, str]":
    """Return the best policy for the mean latency, up to the grid's largest batch, or why there is none."""
    from batchsim.theory import optimum

    scenario = best.scenario
    assert scenario is not None
    alike = [
        e.scenario for e in entrants if e.scenario is not None and e.scenario.service == scenario.service
    ]
    size = max(each.rule.max_batch_size for each in alike)
    if not isinstance(scenario.workload, Poisson):
        return None, f"the best policy is known for Poisson arrivals, got {scenario.workload!r}"
    if scenario.servers > 1:
        return None, f"the best policy is known for one server, got {scenario.servers}"
    if can_lose(scenario):
        return None, "the best policy is known where all requests are served, got a queue_limit or a timeout"
    if not scenario.stable:
        return None, f"an overloaded setting has no mean latency: {words.overload(scenario)}"
    if size > LARGEST:
        return None, f"the best policy is computed for batches of at most {LARGEST:,}, got {size:,}"
    service = scenario.service
    if scenario.slowdown is not None:
        service = scaled(service, scenario.slowdown[1], size)
    return optimum(scenario.workload.rate_per_s, service, size), ""
