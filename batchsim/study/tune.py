"""From an objective to the setting that meets it."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from batchsim import _check
from batchsim.comparison import compare
from batchsim.result import Result
from batchsim.scenario import AtLeast, ClosedLoop, Poisson, Scenario, SizeOrWait
from batchsim.study import words
from batchsim.study.capacity import check, check_loss
from batchsim.study.evidence import LEVEL, Estimate, Verdict, can_lose, estimate, judge, number
from batchsim.study.explain import Effect
from batchsim.study.grid import Grid
from batchsim.study.point import quiet
from batchsim.study.race import NUMBERS, Entrant, Fate, Race
from batchsim.study.recommendation import Recommendation
from batchsim.study.remedy import remedies, scaled
from batchsim.study.slo import SLO, Objective, key_of
from batchsim.study.traffic import Traffic, how_many

if TYPE_CHECKING:
    import pandas

    from batchsim.theory import Optimum

PREFER = ("cheapest", "fastest")
PERCENTILES = (50.0, 95.0, 99.0)  # to expect, besides those of the objective
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

    >>> from batchsim import Affine
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
    count = how_many(scenario, requests)
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
        servers = words.counted(best.servers, "server")
        entrant.leave(Fate.DEARER, f"{servers} meet{'s' if best.servers == 1 else ''} the objective")
    met = best.verdict is Verdict.MEETS
    judgement = judge(result, slo)
    best.fate, best.why = (Fate.CHOSEN if met else Fate.NEAREST), words.findings(judgement)
    frontier = _frontier(race, best)
    simulated = race.traffic.simulated
    assert best.scenario is not None
    expected = _expected(result, slo)
    effects = _effects(result, slo, race.traffic) if best.scenario.stable else ()
    helps = () if met else remedies(best.scenario, slo, race.traffic)
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
        "capacity_per_s": [entrant.capacity_per_s for entrant in entrants],
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


def _frontier(race: Race, best: Entrant) -> list[int]:
    """Return the places of the settings of which none other is better in latency, capacity and servers alike.

    By the first round, which has one length for all; then by longer runs of these few. The recommended one
    is always there.
    """
    first = {e: _costs(e, e.first_ms) for e in race.entrants if math.isfinite(e.first_ms)}
    unique = {costs: entrant for entrant, costs in reversed(first.items())}  # of equals the first listed
    front = [e for costs, e in unique.items() if not any(_better(other, costs) for other in unique)]
    longer = race.lengths[min(1, len(race.lengths) - 1)]
    for entrant in front[: len(first) * race.lengths[0] // longer]:
        if entrant.requests < longer:
            race.run(entrant, longer)
    front += [best] if best not in front and best.stable else []
    shown = {entrant: _costs(entrant, entrant.latency.value) for entrant in front}
    return [
        race.entrants.index(entrant)
        for entrant in sorted(front, key=lambda each: (each.latency.value, each.servers))
        if entrant is best or not any(_better(other, shown[entrant]) for other in shown.values())
    ]


def _costs(entrant: Entrant, latency_ms: float) -> tuple[float, ...]:
    return latency_ms, -entrant.capacity_per_s, entrant.servers


def _better(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(mine <= other for mine, other in zip(a, b, strict=True))


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


def _effects(result: Result, slo: SLO, traffic: Traffic) -> tuple[Effect, ...]:
    """Return what twice and half the wait would change, or for AtLeast the least batch size."""
    rule = result.scenario.rule
    tried: list[tuple[str, float, str]] = []
    if type(rule) is SizeOrWait and rule.max_batch_size > 1 and rule.max_wait_ms < math.inf:
        wait = rule.max_wait_ms
        tried = [
            ("max_wait_ms", wait * 2, "twice the wait, {} ms,"),
            ("max_wait_ms", wait / 2, "half of it, {} ms,"),
        ]
        if wait == 0:  # as long as a request alone computes, to two digits
            tried = [("max_wait_ms", float(f"{result.scenario.service(1) * 1000:.2g}"), "a wait of {} ms")]
    elif type(rule) is AtLeast:
        least, most = rule.min_batch_size, rule.max_batch_size
        others = (min(least * 2, most), "a larger one, {},"), (least // 2, "half of it, {},")
        tried = [("min_batch_size", value, what) for value, what in others if 1 <= value != least]
    key, q = slo.latency
    objective = Objective(key, math.inf, q)
    effects = []
    for knob, value, what in tried:
        other = traffic.run(result.scenario.replace({knob: value}))
        before, after = (estimate(run, objective, run.scenario).value for run in (result, other))
        low = high = math.nan
        if not can_lose(result.scenario):
            with quiet():
                low, high = compare(result, other, [key], LEVEL)[key][3:]
        what = what.format(words.plain(value))
        effects.append(Effect(knob, value, what, key, Estimate(after - before, low, high)))
    return tuple(effects)


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
