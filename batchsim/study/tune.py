"""From an objective to the setting that meets it."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from batchsim import _check, _format
from batchsim.result import Result
from batchsim.scenario import ClosedLoop, Poisson, Scenario
from batchsim.study import phrases
from batchsim.study.candidate import Candidate, Outcome
from batchsim.study.capacity import check, check_loss
from batchsim.study.explain import effects_of
from batchsim.study.frontier import frontier
from batchsim.study.grid import Grid
from batchsim.study.judgement import Estimate, Verdict, can_lose, estimate, judge, number
from batchsim.study.race import NUMBERS, Race, Run
from batchsim.study.recommendation import Recommendation
from batchsim.study.remedies import Remedy, longer, remedies, scaled
from batchsim.study.slo import SLO, Objective, key_of
from batchsim.study.tiebreak import preferred
from batchsim.study.traffic import Traffic, how_many

if TYPE_CHECKING:
    import pandas

    from batchsim.theory import Optimum

PREFER = ("cheapest", "fastest")
PERCENTILES = (50.0, 95.0, 99.0)  # to expect, besides those of the objective
NEAR = 4  # settings, besides the nearest, that are tried with one more server
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
    count = how_many(scenario, requests)
    seed = _check.whole("seed", seed, at_least=0, at_most=None)
    grid = Grid.of(scenario, over)
    candidates = _candidates(scenario, slo, grid)
    _check_throughput(scenario, slo)
    race = Race(slo, Traffic(scenario, count, seed), candidates)
    race.first_round()
    best, result = _search(race, prefer)
    met = best.verdict is Verdict.MEETS
    judgement = judge(result, slo)
    best.outcome, best.why = (Outcome.CHOSEN if met else Outcome.NEAREST), phrases.findings(judgement)
    simulated = race.traffic.simulated
    front = frontier(race, best, result)
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
        near = sorted((e for e in candidates if e.stable and e is not best), key=lambda e: e.rank)[:NEAR]
        others = [(e.knobs, e.scenario) for e in near if e.scenario is not None]
        helps = remedies(best.scenario, slo, race.traffic, others)
    optimum, no_optimum = _optimum(best, candidates)
    table = _table(grid, candidates, slo)
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
        frontier=table.loc[front].reset_index(drop=True),
        optimum=optimum,
        no_optimum=no_optimum,
        effects=effects,
        remedies=helps,
        requests_simulated=simulated,
        grid_requests=count * sum(candidate.stable for candidate in candidates),
        requests_explaining=race.traffic.simulated - simulated,
    )


# Who runs.


def _candidates(scenario: Scenario, slo: SLO, grid: Grid) -> list[Candidate]:
    """Return the grid's settings; raise where none can run, or the objective cannot be judged."""
    candidates, refusals = [], []
    for knobs in map(grid.knobs, range(len(grid))):
        try:
            point = scenario.replace(knobs)
        except ValueError as refusal:
            refusals.append(refusal)
            candidates.append(Candidate(knobs, None, Outcome.REFUSED, str(refusal)))
            continue
        if point.workload is not scenario.workload:
            names = ", ".join(axis.name for axis in grid.axes)
            raise ValueError(
                f"over must leave the workload as it is, got {names}: capacity() finds the highest rate, "
                "and sweep() varies anything"
            )
        check_loss(point, slo)
        candidates.append(Candidate(knobs, point))
    if len(refusals) == len(candidates):
        raise refusals[0]
    return candidates


def _check_throughput(scenario: Scenario, slo: SLO) -> None:
    if isinstance(scenario.workload, ClosedLoop) or slo.min_throughput_per_s is None:
        return
    offered = scenario.workload.offered_per_s
    if slo.min_throughput_per_s > offered * (1 + 1e-9):
        raise ValueError(
            f"min_throughput_per_s must be at most the {offered:,.6g}/s that the workload offers, "
            f"got {slo.min_throughput_per_s!r}"
        )


def _search(race: Race, prefer: str) -> Run:
    """Return the recommended setting, or the nearest, with its full run; all have outcomes then."""
    for group in _groups(race.candidates, prefer):
        fastest = race.fastest(group)
        if fastest is None:
            continue
        best, result = preferred(race, group, *fastest)
        for candidate in group:
            if candidate is not best:
                reason = f"{race.latency(candidate)}, {race.latency(best)} recommended"
                candidate.eliminate(Outcome.SLOWER, reason)
        servers = _format.counted(best.servers, "server")
        for candidate in race.candidates:
            if candidate is not best:
                reason = f"{servers} meet{'s' if best.servers == 1 else ''} the objective"
                candidate.eliminate(Outcome.DEARER, reason)
        return best, result
    return race.nearest()


def _groups(candidates: Sequence[Candidate], prefer: str) -> list[list[Candidate]]:
    """Return the settings in groups, of which the first that has an answer has the best."""
    able = [candidate for candidate in candidates if candidate.scenario is not None]
    if prefer == "fastest":
        return [able]
    return [
        [candidate for candidate in able if candidate.servers == servers]
        for servers in sorted({candidate.servers for candidate in able})
    ]


# What is said of them.


def _table(grid: Grid, candidates: Sequence[Candidate], slo: SLO) -> "pandas.DataFrame":
    import pandas

    key = slo.latency[0]
    columns: dict[str, Any] = dict(grid.columns())
    others = {
        "servers": [candidate.servers for candidate in candidates],
        "load": [candidate.load for candidate in candidates],
        "saturation_per_s": [candidate.saturation_per_s for candidate in candidates],
        "requests": [candidate.requests for candidate in candidates],
        key: [candidate.latency.value for candidate in candidates],
        f"{key}_low": [candidate.latency.low for candidate in candidates],
        f"{key}_high": [candidate.latency.high for candidate in candidates],
        **{name: [candidate.numbers.get(name, math.nan) for candidate in candidates] for name in NUMBERS},
        "outcome": [str(candidate.outcome) for candidate in candidates],
        "why": [candidate.why for candidate in candidates],
    }
    return pandas.DataFrame({**others, **columns})[
        [*columns, *(name for name in others if name not in columns)]
    ]


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


def _optimum(best: Candidate, candidates: Sequence[Candidate]) -> "tuple[Optimum | None, str]":
    """Return the best policy for the mean latency, up to the grid's largest batch, or why there is none."""
    from batchsim.theory import optimum

    scenario = best.scenario
    assert scenario is not None
    alike = [
        e.scenario for e in candidates if e.scenario is not None and e.scenario.service == scenario.service
    ]
    size = max(each.rule.max_batch_size for each in alike)
    if not isinstance(scenario.workload, Poisson):
        return None, f"the best policy is known for Poisson arrivals, got {scenario.workload!r}"
    if scenario.servers > 1:
        return None, f"the best policy is known for one server, got {scenario.servers}"
    if can_lose(scenario):
        return None, "the best policy is known where all requests are served, got a queue_limit or a timeout"
    if not scenario.stable:
        return None, f"an overloaded setting has no mean latency: {phrases.overload(scenario)}"
    if size > LARGEST:
        return None, f"the best policy is computed for batches of at most {LARGEST:,}, got {size:,}"
    service = scenario.service
    if scenario.slowdown is not None:
        service = scaled(service, scenario.slowdown[1], size)
    return optimum(scenario.workload.rate_per_s, service, size), ""
