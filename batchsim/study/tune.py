"""From an objective to the setting that meets it, of a grid, or of ranges by an adaptive search.

That search begins with a coarse sample, and takes steps around the best that shrink. It finds a local optimum
of noisy values, and states nothing about settings that it did not try.
"""

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check
from batchsim._workers import Crew
from batchsim.engines.draws import Streams
from batchsim.engines.estimates import check_memory, warn_if_large
from batchsim.engines.log import CANCELLED
from batchsim.measured.measurement import Measured
from batchsim.result import Result
from batchsim.result.metrics import LATENCY, metric
from batchsim.result.shares import percentile_metric
from batchsim.scenario import ClosedLoop, Poisson, Scenario, Trace
from batchsim.scenario.knobs import value_of
from batchsim.scenario.rules.continuous import check_lengths
from batchsim.scenario.sized_time import SizedTime
from batchsim.simulate import check_requests
from batchsim.study.capacity import check, check_loss
from batchsim.study.grid import Grid, Points, overload
from batchsim.study.judgement import Candidate, Estimate, Outcome, Tie, by_rank, estimate, number, percentile
from batchsim.study.kinds import kind_of
from batchsim.study.paired import Statement
from batchsim.study.recommendation import Recommendation, explain, neighbours, table
from batchsim.study.search import FRESH, LONGEST, Search, Traffic, fits
from batchsim.study.slo import SLO, Objective
from batchsim.study.what_if import DRAWS, InputUncertainty, Remedy, longer, remedies, uncertainty

if TYPE_CHECKING:
    import pandas

    from batchsim.theory import Optimum

PREFER = ("cheapest", "fastest", "greenest")
PERCENTILES = (50.0, 95.0, 99.0)  # to expect, in addition to those of the objective
NEAR = 4  # settings after the nearest that are tried with one more server
LARGEST = 1024  # batches: up to there theory finds the best policy in seconds


@_check.refuses_removed
def tune(
    scenario: Scenario, slo: SLO, over: Mapping[str, Any], requests: int | None = None, seed: int = 0,
    prefer: str = "cheapest", *, measurement: Measured | None = None, inputs: int | None = None,
    stay: bool = False, executor: Executor | None = None, progress: bool = True,
) -> Recommendation:  # fmt: skip
    """Return the setting from a grid of knobs that meets an objective.

    `over` is {knob: values}, as for `sweep`: knobs of the rule, the service and the servers. With a
    `Range(1, 256, scale="log")` for some of the values, an adaptive search tries up to 400 settings
    (`batchsim.study.tune`); nothing is stated about those that it does not try. `prefer`:
    "cheapest" takes the lowest cost of a million requests that meets the objective, by the scenario's
    `price_per_hour`, or without one the fewest servers, of all replicas; and among the settings of that cost
    the lowest latency (the highest percentile of `slo`, or its mean). `costs` has what a percent of it costs.
    Clients, requests that get lost and autoscalers cost what a run says: costs in the same step of 1 % are
    equal. "greenest" takes the lowest energy of a request by the scenario's `watts`, which a run always says.
    "fastest" takes the lowest latency of all. Runs may not tell
    several settings from the fastest (`batchsim.study.search`): among these it takes the most headroom (the
    highest saturation rate), then the lower mean latency, then the shorter wait ("fastest" takes fewer
    servers first). With `stay` it takes the fewest changes of the scenario's own knobs before all of this but
    the servers. `requests`: the length of a full run (default: the whole trace, or 100,000), which
    determines the precision. If a full run does not decide, runs get up to ten times as long, where that can.

    All settings run in full, under the traffic of one seed (`batchsim.study.search`). The choice then runs in
    full with a fresh seed, a million above it, and is recommended only if the 95 % interval of that run is
    within the objective; if it is not by little, up to three more settings get such a run. The 95 % are of
    one test: they are not corrected for several settings, or for a longer run after a first one. A trace has
    no fresh seed: it runs whole. Otherwise `met` is False, and the nearest setting comes with changes that
    would meet the objective, each checked by runs. With tokens, an objective below the time of a request
    alone on an engine is missed without a long run. A search that would take more than half a minute begins
    with a tenth of the requests, and runs in full what that cannot exclude; `statement` says so.

    `statement` bounds how far the choice is above the best of the settings that it counts (multiple
    comparisons with the best, 95 % for all together; what that leaves out: `batchsim.study.paired`).
    With more `requests` it bounds more settings, and each more closely. `neighbours` tells what a step to
    either side of the choice changes.

    A `measurement` of the service times, and a trace, are samples. `inputs` bootstrap samples of them
    (default: 20 with a measurement, else 0) show how often the choice meets the objective and stays near the
    best of its two nearest rivals, and the range of its latency, in `input_uncertainty`
    (`batchsim.study.what_if`).

    `executor`: the runs are computed there, as in `sweep`, instead of by threads; the answer is the same.
    Ctrl-C returns the best so far, with `provisional` set, and `met` False unless its run with the fresh seed
    is finished.

    Raises for an unknown knob, an empty axis, a NaN, a value of the wrong type, a knob of the workload, the
    end of a range that the scenario refuses, and a trace whose requests all arrive at once. Another
    combination that the scenario refuses is a candidate with that outcome.

    >>> from batchsim import Affine, SizeOrWait
    >>> scenario = Scenario(Poisson(rate_per_s=2000), SizeOrWait(), Affine(fixed_ms=5, per_item_ms=0.25))
    >>> over = {"servers": [1, 2, 3], "max_batch_size": [4, 8, 16, 32], "max_wait_ms": [0, 1, 2, 4, 8, 16]}
    >>> best = tune(scenario, SLO(p99_ms=15), over, requests=20_000)
    >>> best.met, best.scenario.servers, best.rule
    (True, 2, SizeOrWait(max_batch_size=32, max_wait_ms=4))
    >>> [round(ms, 1) for ms in best.expected["p99_ms"]]
    [12.7, 12.4, 12.9]
    """
    check(scenario, slo)
    _check.one_of("prefer", prefer, PREFER)
    if prefer == "greenest" and scenario.watts is None:
        raise ValueError("prefer='greenest' needs watts, the power of a server, got none")
    count = check_requests(scenario, requests)
    check_memory(scenario, count)
    seed = _check.seed(seed)
    draws = _draws(inputs, measurement, over, scenario)
    ranges = has_ranges(over)
    grid: Grid | Points = Grid.of(scenario, ends_of(over))
    streams = [Streams(scenario, each) for each in (seed, seed + FRESH)]
    lengths = functools.cache(lambda: [each.lengths()(count) for each in streams])
    make = partial(_entry, slo=slo, lengths=lengths, stay=stay, prefer=prefer)
    entries = [make(scenario, grid.knobs(number)) for number in range(len(grid))]
    refusals = [entry for entry in entries if isinstance(entry, ValueError)]
    if len(refusals) == len(entries):
        raise refusals[0]
    check_ends(over, grid, entries)
    _check_throughput(scenario, slo)
    candidates = [entry for entry in entries if isinstance(entry, Candidate)]
    if scenario.load == math.inf and not any(each.scenario.stable for each in candidates):
        # Nothing keeps up with an infinite rate, so every setting would fail.
        raise ValueError(f"the traffic must span some time, got {scenario.workload!r}")
    points = [each.scenario for each in candidates]
    most, of_fresh = (kind_of(scenario).first_unserved(points, each, LONGEST * count) for each in streams)
    traffic = Traffic(scenario, count, seed, most)
    cancelled = CANCELLED if fits(scenario, (os.cpu_count() or 1) * count) else None
    with Crew(executor, progress, "tune", cancelled) as crew:
        search = Search(slo, traffic, traffic.fresh(of_fresh), candidates, prefer, crew)
        search.screen_if_long(TRIED if ranges else len(candidates))
        if executor is None:
            share = 1.0 if search.few is None else search.few.requests / count
            runs = share * (TRIED if ranges else len(candidates)) / (os.cpu_count() or 1)
            warn_if_large(scenario, count, runs=runs, held=1 if cancelled is None else os.cpu_count() or 1)
        statement: Statement | None = None
        drawn: InputUncertainty | None = None
        interrupted, attempted = "", Tried()
        try:
            if ranges:
                explored(over, search, partial(make, scenario), attempted)
            search.start()
            best, result, statement = search.recommended()
        except KeyboardInterrupt:
            interrupted = f"interrupted after {traffic.simulated:,} requests"
            best, result = search.provisional()
        if attempted:
            tried, several = zip(*attempted.values(), strict=True)
            grid, entries = Points.of(tried), [*several]
        judgement, simulated = best.last.judgement, traffic.simulated
        met = best.fresh.judgement.meets
        best.outcome = Outcome.RECOMMENDED if met else Outcome.NEAREST
        best.why = judgement.against_limits
        ranked = by_rank(search.candidates)
        ties = [Tie(each.knobs, best.advantage(each)) for each in ranked if each.outcome is Outcome.TIED]
        front, helps = [best], tuple[Remedy, ...]()
        near = table(slo.latency.key)
        try:
            if met and not interrupted:
                same = [each for each in search.candidates if each.cost == best.cost and each is not best]
                drawn = uncertainty(search, best, same, measurement, draws)
                simulated = traffic.simulated
            if not interrupted:
                front = search.frontier(best)
            if best.full.requests and not interrupted:
                near = neighbours(search, best, {} if ranges else over, make)
            if judgement.too_short:
                helps = longer(judgement, best.last.requests, best.scenario, slo)
            elif not judgement.meets and not interrupted:
                others = [each for each in ranked if each.scenario.stable and each is not best]
                helps = remedies(best.scenario, slo, search.fresh, others[:NEAR])
        except KeyboardInterrupt:  # the choice is made
            interrupted = f"interrupted after {traffic.simulated:,} requests"
    optimum, no_optimum = _optimum(best.scenario, search.candidates)
    settings = _settings(grid, entries, slo)
    found = Recommendation(
        best.scenario, slo, prefer, best.knobs, met, judgement, _expected(result, slo), result,
        candidates=settings, frontier=settings.loc[map(entries.index, front)].reset_index(drop=True),
        neighbours=near,
        ties=tuple(ties), optimum=optimum, no_optimum=no_optimum, remedies=helps,
        requests_simulated=simulated, requests_explaining=traffic.simulated - simulated,
        out_of_reach=search.out_of_reach, statement=statement, searched=best.searched.judgement,
        provisional=interrupted, input_uncertainty=drawn,
    )  # fmt: skip
    return replace(found, explanation=explain(found))


def _draws(
    inputs: int | None, measurement: Measured | None, over: Mapping[str, Any], scenario: Scenario
) -> int:  # fmt: skip
    if measurement is None:
        draws = 0 if inputs is None else _check.whole("inputs", inputs, at_least=0)
        if draws and not isinstance(scenario.workload, Trace):
            sampled = f"a measurement= or a Trace, got {scenario.workload!r}"
            raise ValueError(f"inputs must be samples to be drawn again: {sampled}")
        return draws
    _check.instance("measurement", measurement, Measured, "a Measurement")
    if varied := next((name for name in over if name.split(".")[0] == "service"), None):
        raise ValueError(f"over must not change the service with a measurement of it, got {varied}")
    return DRAWS if inputs is None else _check.whole("inputs", inputs, at_least=0)


def _entry(
    scenario: Scenario,
    knobs: dict[str, Any],
    slo: SLO,
    lengths: Callable[[], list[Any]],
    stay: bool,
    prefer: str,
) -> Candidate | ValueError:
    """Return a setting as a candidate, or the scenario's error if that refuses it."""
    try:
        point = scenario.replace(knobs)
    except ValueError as refusal:
        return refusal
    for part in ("workload", "tokens"):
        if getattr(point, part) is not getattr(scenario, part):
            rule = f"over must not change the {part}, got {', '.join(knobs)}"
            raise ValueError(f"{rule}: capacity finds the highest rate, and sweep varies anything")
    try:
        check_lengths(point, lengths)  # a rule of requests refuses no length
    except ValueError as refusal:
        return refusal
    check_loss(point, slo)
    changes = sum(value_of(scenario, name) != value_of(point, name) for name in knobs) if stay else 0
    return Candidate(knobs, point, changes, prefer)


def _check_throughput(scenario: Scenario, slo: SLO) -> None:
    least = slo.min_throughput_per_s
    if isinstance(scenario.workload, ClosedLoop) or least is None:
        return
    if least > (offered := scenario.workload.offered_per_s) * (1 + 1e-9):
        rule = f"min_throughput_per_s must be at most the {offered:,.6g}/s that the workload offers"
        raise ValueError(f"{rule}, got {least!r}")


def _settings(
    grid: Grid | Points, entries: Sequence[Candidate | ValueError], slo: SLO
) -> "pandas.DataFrame":  # fmt: skip
    import pandas

    key, rows = slo.latency.key, []
    for entry in entries:
        if isinstance(entry, ValueError):
            rows.append({"servers": 0, "requests": 0, "outcome": str(Outcome.REFUSED), "why": str(entry)})
            continue
        ran = entry.searched if entry.searched.requests else entry.fresh
        noted = dict.fromkeys(kind_of(entry.scenario).noted, math.nan) | ran.numbers
        if entry.scenario.price_per_hour is not None:
            noted["cost_per_million"] = entry.cost_per_million if entry.scenario.stable else math.nan
        rows.append({
            "servers": entry.servers, "load": entry.scenario.load, "saturation_per_s": entry.saturation_per_s,
            "requests": ran.requests, **ran.latency.columns(key), **noted, "better_by_ms": entry.better_by_ms,
            "outcome": str(entry.outcome), "why": entry.why,
        })  # fmt: skip
    frame, knobs = pandas.DataFrame(rows), grid.columns()
    return pandas.DataFrame({**knobs, **{name: frame[name] for name in frame if name not in knobs}})


def _expected(result: Result, slo: SLO) -> dict[str, Estimate]:
    kind = kind_of(result.scenario)
    limited = (each.q for each in slo.objectives if each.q is not None and each.column == LATENCY)
    latencies = {percentile_metric(q).key: q for q in [*PERCENTILES, *limited]}
    expected = {"mean_latency_ms": number(result, "mean_latency_ms")}
    for key, q in {**latencies, **kind.percentiles}.items():
        expected[key] = percentile(result, q, column=metric(key).column)
    expected |= {name: number(result, name) for name in kind.noted if name not in expected}
    if result.scenario.can_lose:
        expected["loss"] = estimate(result, Objective("loss", 1.0))
    return expected


def _optimum(scenario: Scenario, candidates: Sequence[Candidate]) -> "tuple[Optimum | None, str]":
    """Return the policy with the least mean latency, up to the grid's largest batch, or why it is unknown."""
    from batchsim.theory import optimum

    if why := kind_of(scenario).no_optimum:
        return None, why
    workload, service = scenario.workload, scenario.service
    rules = [each.scenario.rule for each in candidates if each.scenario.service == service]
    size = max(rule.max_batch_size for rule in rules)
    by_size = any(rule.by_size for rule in rules)
    if not isinstance(workload, Poisson):
        return None, f"the best policy needs Poisson arrivals, got {workload!r}"
    for needed, missing, got in (
        ("one queue", scenario.replicas > 1, f"{scenario.replicas} replicas"),
        ("one server", scenario.servers > 1, scenario.servers),
        ("a fixed number of servers", scenario.autoscale is not None, "an autoscaler"),
        ("a service time that ignores sizes", isinstance(service, SizedTime), repr(service)),
        ("batches limited by their number of requests alone", by_size, "a rule that reads sizes"),
        ("all requests to be served", scenario.can_lose, "a queue_limit or a timeout"),
        ("one priority level", scenario.by_level, "priorities or a delay"),
        ("a load below 1", not scenario.stable, overload(scenario)),
        (f"batches of at most {LARGEST:,}", size > LARGEST, f"{size:,}"),
        ("no host part with noise", scenario.host_ms > 0 and service.noise is not None, "both"),
    ):
        if missing:
            return None, f"the best policy needs {needed}, got {got}"
    if scenario.slowdown is not None:
        service = service.scaled(scenario.slowdown[1], size)
    return optimum(workload.rate_per_s, service, size), ""


# Ranges.

STEPS = 64  # of a range, at most: the finest step
COARSE = 16  # steps between the values of the first sample
SAMPLE = 64  # settings of the first sample, at most
AROUND = 3  # of the best settings, each is stepped from
TRIED = 400  # settings, at most
SCALES = ("linear", "log")


@dataclass(frozen=True)
class Range:
    """All values of a knob from `low` to `high`, whole numbers if both are; "log" has even ratios.

    >>> [Range(1, 256, scale="log").at(step) for step in (0, 16, 32, 64)]
    [1, 4, 16, 256]
    """

    low: float
    high: float
    scale: str = "linear"

    def __post_init__(self) -> None:
        _check.one_of("scale", self.scale, SCALES)
        low = _check.real("low", self.low)
        _check.real("high", self.high, above=low)
        if self.scale == "log":
            _check.real("low of a log range", self.low, above=0)

    def at(self, step: int) -> float:
        """Return the value at a step, 0 for the lowest and 64 for the highest."""
        part = step / STEPS
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** part
        else:
            value = self.low + (self.high - self.low) * part
        if isinstance(self.low, int) and isinstance(self.high, int):
            return round(value)
        return self.low if step == 0 else self.high if step == STEPS else float(f"{value:.3g}")


Place = tuple[int, ...]
Tried = dict[str, tuple[dict[str, Any], Candidate | ValueError]]


def explored(
    over: Mapping[str, Any], search: Search, make: Callable[[dict[str, Any]], Candidate | ValueError],
    tried: Tried,
) -> None:  # fmt: skip
    """Try settings of some ranges; add each to `tried`, with its knobs.

    `make` returns the candidate of some knobs, or an error if the scenario refuses them.
    """
    axes = {name: each if isinstance(each, Range) else list(each) for name, each in over.items()}
    tops = [STEPS if isinstance(each, Range) else len(each) - 1 for each in axes.values()]
    places: dict[Candidate, Place] = {}

    def knobs(place: Place) -> dict[str, Any]:
        pairs = zip(axes.items(), place, strict=True)
        return {name: each.at(at) if isinstance(each, Range) else each[at] for (name, each), at in pairs}

    def attempt(some: Sequence[Place]) -> None:
        new = []
        for place in some:
            setting = knobs(place)
            if (key := repr(setting)) in tried or len(tried) >= TRIED:
                continue
            candidate = make(setting)
            tried[key] = setting, candidate
            if isinstance(candidate, Candidate):
                places[candidate] = place
                new.append(candidate)
        search.candidates = [*places]
        search.run([each for each in new if each.scenario.stable], search.few)

    def best() -> list[Candidate]:
        def order(each: Candidate) -> tuple[float, ...]:
            excess, *rest = each.rank
            return excess, 0 if search.prefer == "fastest" else each.cost, *rest

        return sorted((each for each in places if each.searched.requests), key=order)[:AROUND]

    attempt(_sample(axes, tops, search.traffic.seed))
    step = COARSE // 2
    while step and len(tried) < TRIED:
        before = best()[:1]
        attempt([near for each in best() for near in _around(places[each], tops, [*axes.values()], step)])
        if best()[:1] == before:
            step //= 2


def _sample(axes: Mapping[str, Any], tops: Sequence[int], seed: int) -> list[Place]:
    """Return coarse places: all of them, or a random sample in which each axis is even."""
    coarse = [
        list(range(0, top + 1, COARSE if isinstance(each, Range) else 1))
        for each, top in zip(axes.values(), tops, strict=True)
    ]
    if math.prod(map(len, coarse)) <= SAMPLE:
        return [*itertools.product(*coarse)]
    generator = np.random.default_rng(seed)
    columns = [generator.permutation(np.resize(each, SAMPLE)).tolist() for each in coarse]
    return [*zip(*columns, strict=True)]


def _around(place: Place, tops: Sequence[int], axes: Sequence[Any], step: int) -> Iterator[Place]:
    for axis, (at, top) in enumerate(zip(place, tops, strict=True)):
        by = step if isinstance(axes[axis], Range) else 1
        for other in (at - by, at + by):
            if 0 <= other <= top:
                yield (*place[:axis], other, *place[axis + 1 :])


def ends_of(over: Any) -> Any:
    """Return the axes with the ends of each range instead of it."""
    if not has_ranges(over):
        return over
    return {name: [each.low, each.high] if isinstance(each, Range) else each for name, each in over.items()}


def check_ends(over: Any, grid: Grid | Points, entries: Sequence[Candidate | ValueError]) -> None:
    """Raise if the scenario refuses an end of a range with all values of the other knobs."""
    for name, each in over.items():
        for end in (each.low, each.high) if isinstance(each, Range) else ():
            of_end = [entries[place] for place in range(len(grid)) if grid.knobs(place)[name] == end]
            if all(isinstance(entry, ValueError) for entry in of_end):
                rule = f"both ends of a range of {name} must be possible, got {each.low!r} to {each.high!r}"
                raise ValueError(f"{rule}: {of_end[0]}")


def has_ranges(over: Any) -> bool:
    """Return whether any of the axes is a range."""
    return isinstance(over, Mapping) and any(isinstance(each, Range) for each in over.values())
