"""What-if analysis of a choice: what other inputs do to it, and what would meet an objective that it misses.

A measurement and a trace are samples. Each draw replaces them by a bootstrap sample: service times that the
measurement allows (`measured.samples`), and blocks of the trace, drawn with replacement. The choice and its
nearest rivals run on each draw, briefly. Only the ratio to the median of all draws counts, and multiplies the
number of the long run: the median stands for the given inputs, and what all runs share cancels. The blocks
are fewer than the trace has, which spreads the ratios too far; their logarithms shrink by the root of the
fraction (the m-out-of-n bootstrap). The ratios also have the randomness of short runs, which widens the
range; dependence that is longer than a block is lost, which narrows it. The range is that of the draws, and
no confidence interval.

The remedies are a shorter wait, less traffic, more servers and a faster model, each alone.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from batchsim import _format
from batchsim.measured.measurement import Measured
from batchsim.measured.samples import services
from batchsim.result.run_length import Periods
from batchsim.scenario import ClosedLoop, Scenario, Trace
from batchsim.simulate import available
from batchsim.study.capacity import capacity, edge
from batchsim.study.grid import overload, setting
from batchsim.study.judgement import (
    WARMUP,
    Candidate,
    Judgement,
    Missed,
    by_rank,
    judge,
    out_of_reach,
    recorded,
)
from batchsim.study.search import LONGEST, Job, Search, Traffic, fewest, tried
from batchsim.study.slo import LEVEL, SLO, described

DRAWS = 20
COST = 0.5  # of the requests of the search, at most
RIVALS = 2  # other settings that are drawn as well, the best of the search
SHORTEST = 800  # requests of a draw
BLOCKS = 16  # of a trace, in a draw
SAME = 0.05  # of the latency: a rival may be better by this, as short runs err


@dataclass(frozen=True)
class InputUncertainty:
    """What `draws` of other inputs, bootstrap samples of the given ones, do to a choice.

    In `met` of them the estimates of the choice meet the objective; in `best` of them none of the `rivals`,
    the nearest settings, is better by more than `zone_ms`, 5 % of the latency.
    `low` and `high`: the least and the most of the metric `key` among the draws, in ms. `inputs`: what was
    drawn, such as "service times".
    """

    inputs: str
    draws: int
    met: int
    best: int
    rivals: int
    key: str
    low: float
    high: float
    zone_ms: float

    def __str__(self) -> str:
        label, unit, _ = described(self.key)
        low, high = (_format.number(each) for each in (self.low, self.high))
        drawn = f"with {self.draws} bootstrap samples of the {self.inputs}"
        text = f"{drawn}, {label} is {low} to {high}{unit}: it meets the objective in {self.met}"
        if self.rivals:
            near = f"{_format.number(self.zone_ms, 2)} ms of the best of {self.rivals + 1} settings"
            text += f", and stays within {near} in {self.best}"
        return text


def uncertainty(
    search: Search, chosen: Candidate, rivals: Sequence[Candidate], measurement: Measured | None, draws: int
) -> InputUncertainty | None:
    """Return what other inputs do to the choice; None if the inputs are no samples."""
    trace = isinstance(chosen.scenario.workload, Trace)
    kinds = [*(["service times"] if measurement else []), *(["traffic"] if trace else [])]
    if not kinds or not draws:
        return None
    near = by_rank(each for each in rivals if each.scenario.stable and each.full.requests)
    full, budget = search.traffic.requests, COST * search.traffic.simulated / (draws * len(kinds))
    several = [chosen, *near[: min(max(int(budget / SHORTEST) - 1, 0), RIVALS)]]
    requests = min(max(int(budget / len(several)), SHORTEST), full)
    if recorded(search.traffic.scenario) and not trace:  # a part of a day is like no other
        requests = full
    logs, excess = np.zeros((draws, len(several))), np.zeros(draws)
    search.crew.begin("bootstrap samples of the inputs", draws * len(several) * len(kinds))
    for kind in kinds:
        if kind == "traffic":
            jobs, shrink = _of_traffic(search, several, requests, draws), math.sqrt(requests / full)
        else:
            assert measurement is not None
            jobs, shrink = _of_service(search, several, requests, draws, measurement), 1.0
        points = [*jobs]
        found = [*search.crew.map(tried, ((job, search.slo, ()) for _, job in points))]
        search.traffic.count(requests * len(found))
        stable = [point.stable for point, _ in points]
        ms = [each.latency.value if steady else math.inf for each, steady in zip(found, stable, strict=True)]
        excesses = [each.judgement.excess for each in found]
        with np.errstate(divide="ignore", invalid="ignore"):  # of zero or infinity
            of_ms, of_excess = (np.log(np.array(each).reshape(draws, -1)) for each in (ms, excesses))
            logs += shrink * (of_ms - np.median(of_ms, axis=0))
            excess += shrink * (of_excess - np.median(of_excess, axis=0))[:, 0]
    value_ms = chosen.last.latency.value
    lower_ms = [0.0, *(search.bound(chosen, each, LEVEL).value for each in several[1:])]
    together = np.exp(logs) * (value_ms - np.nan_to_num(lower_ms))
    zone_ms = SAME * value_ms
    best = int((together[:, 0] <= together.min(axis=1) + zone_ms).sum())
    met = int((chosen.last.judgement.excess * np.exp(excess) <= 1).sum())
    drawn_ms = value_ms * np.exp(logs[:, 0])
    low, high, key = float(drawn_ms.min()), float(drawn_ms.max()), search.slo.latency.key
    return InputUncertainty(" and ".join(kinds), draws, met, best, len(several) - 1, key, low, high, zone_ms)


def _of_service(
    search: Search, several: Sequence[Candidate], requests: int, draws: int, measurement: Measured
) -> Iterator[tuple[Scenario, Job]]:
    """Yield runs with service times that the measurement allows."""
    workload = search.traffic.scenario.workload
    if isinstance(workload, Trace):
        starts = np.linspace(0, search.traffic.requests, BLOCKS, endpoint=False).astype(np.int64)
        workload, rate_per_s = _blocks(workload, starts, requests), workload.offered_per_s
        if all(0 < rate < math.inf for rate in (rate_per_s, workload.offered_per_s)):
            workload = workload.with_rate(rate_per_s)
    for service in services(measurement, draws, search.traffic.seed):
        for each in several:
            own = each.scenario.service
            noise = None if own.noise is None else service.noise
            point = each.scenario.replace(service=replace(service, noise=noise, padding=own.padding))
            yield point, search.traffic.job(point.replace(workload=workload), requests)


def _of_traffic(
    search: Search, several: Sequence[Candidate], requests: int, draws: int
) -> Iterator[tuple[Scenario, Job]]:
    """Yield runs with blocks of the trace, drawn with replacement."""
    generator = np.random.default_rng(np.random.SeedSequence(search.traffic.seed, spawn_key=(draws,)))
    last = search.traffic.requests - math.ceil(requests / BLOCKS)
    for _ in range(draws):
        drawn = _blocks(search.traffic.scenario.workload, generator.integers(last + 1, size=BLOCKS), requests)
        for each in several:
            yield each.scenario, search.traffic.job(each.scenario.replace(workload=drawn), requests)


def _blocks(trace: Any, starts: np.ndarray, requests: int) -> Trace:
    """Return so many requests of a trace, in blocks from some places on."""
    sizes = np.diff(np.linspace(0, requests, BLOCKS + 1).astype(np.int64))
    places = np.concatenate([start + np.arange(size) for start, size in zip(starts, sizes, strict=True)])
    gaps_s, of_sizes = np.diff(trace.times_s, prepend=0.0)[places], {}
    if trace.sizes_listed is not None:
        of_sizes = {"sizes": trace.sizes_listed[places]}
    return Trace(np.cumsum(gaps_s), **{**trace.of_requests, **of_sizes})


# Changes with which a run meets an objective.

SERVERS = 8  # the most to add
FASTEST = 128  # times the speed of the model
TOLERANCE = 0.02  # of a rate, and of a factor
NEAR = 0.9  # a rate with proof below this part of the highest calls for longer runs
HALVINGS = 6  # of a wait, before a wait of 0 is tried
WAIT_TOLERANCE = 0.1  # of a wait
LONGEST_MS = 1024  # the first wait to try, if a rule waits for ever
LONGER = (2.0, 10.0, 1000.0)  # factors for the length of a run: the least, without an interval, and the most


@dataclass(frozen=True)
class Remedy:
    """One change with which a run meets the objective; its `value`, or None if no value does.

    `knob` is "max_wait_ms", "rate_per_s", "clients", "servers", or "service" (the value: how many times as
    fast the model must be). `text` describes it, with the numbers of that run. `knobs`: those of another
    setting of the grid, if the change helps that one. If a run was too short, `knob` is "requests", and the
    value the length that may suffice.
    """

    knob: str
    value: float | None
    text: str
    knobs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What the change would do, in two words."""
        if self.knob == "requests":
            return "to tell"
        if self.value is not None:
            return "would do"
        return "unknown" if "cannot tell" in self.text else "would not"


def remedies(
    scenario: Scenario, slo: SLO, traffic: Traffic, others: Sequence[Candidate] = ()
) -> tuple[Remedy, ...]:
    """Return the changes that would meet the objective with this setting, each alone, checked by full runs.

    Each is the least that a bisection finds whose run shows it at 95 %: of many runs, the luckiest decides.
    `others`: settings that miss it by little more; each is tried with one more server.
    """
    trials = functools.partial(_Trials, scenario, slo, traffic)
    found = [*_shorter_wait(trials()), *_less_traffic(trials()), *_more_servers(trials())]
    servers = [remedy.value for remedy in found if remedy.knob == "servers" and remedy.value is not None]
    more = _other_setting(trials(), others, below=min(servers, default=math.inf))
    return (*found, *more, _faster_model(trials()))


def longer(judgement: Judgement, requests: int, scenario: Scenario, slo: SLO) -> tuple[Remedy, ...]:
    """Return the length of a run that may decide, if so many requests arrive."""
    periods = Periods.of(scenario.workload, requests)
    if judgement.partial and periods is not None:
        text = f"run a period of {periods.day.period_s:,g} s: requests={periods.enough()}"
        return (Remedy("requests", periods.enough(), text),)
    least, times, most = LONGER
    if not math.isnan(judgement.longer):
        times = max(judgement.longer, least)
    times = min(max(times, fewest(scenario, slo) / (1 - WARMUP) / requests), most)
    scale = 10 ** (len(str(round(requests * times))) - 1)
    count = math.ceil(requests * times / scale) * scale
    enough = available(scenario, count) == count
    return (Remedy("requests", count, f"run longer: requests={count}"),) if enough else ()


@dataclass
class _Trials:
    """Full runs of changes; any of them may be too short to show that the objective is met."""

    scenario: Scenario
    slo: SLO
    traffic: Traffic
    too_short: bool = False
    longest: int = 0

    def judge(self, scenario: Scenario) -> Judgement:
        traffic = self.traffic
        judgement = judge(traffic.run(scenario), self.slo)
        self.longest = max(self.longest, traffic.requests)
        if judgement.too_short and (longer := traffic.resized(LONGEST * traffic.requests)) is not None:
            judgement = judge(longer.run(scenario), self.slo)
            self.longest = longer.requests
        self.too_short |= judgement.too_short
        return judgement

    def out_of_reach(self, scenario: Scenario) -> Missed | None:
        return out_of_reach(scenario, self.slo, self.traffic.seed)

    def meets(self, scenario: Scenario) -> bool:
        return scenario.stable and not self.out_of_reach(scenario) and self.judge(scenario).meets

    def none(self, knob: str, surely: str, change: str) -> Remedy:
        """Return a remedy without a value: no change helps, or the runs cannot tell."""
        length = _format.counted(self.longest, "request")
        unknown = f"runs of {length} cannot tell whether {change} would do with this setting"
        return Remedy(knob, None, unknown if self.too_short else surely)


def _shorter_wait(trials: _Trials) -> Iterator[Remedy]:
    scenario, rule = trials.scenario, trials.scenario.rule
    if "max_wait_ms" not in rule.parameters() or rule.max_batch_size == 1 or rule.max_wait_ms == 0:
        return
    if all(objective.key == "loss" for objective in trials.slo.objectives):
        return

    def meets(wait_ms: float) -> bool:
        return trials.meets(scenario.replace(max_wait_ms=wait_ms))

    outside = rule.max_wait_ms if rule.max_wait_ms < math.inf else float(2 * LONGEST_MS)
    inside = outside / 2
    for _ in range(HALVINGS):
        if meets(inside):
            inside, _ = edge(inside, outside, meets, WAIT_TOLERANCE)
            break
        outside, inside = inside, inside / 2
    else:
        inside = 0.0
    digits = 1 - math.floor(math.log10(inside)) if inside else 0
    wait_ms = math.floor(inside * 10**digits) / 10**digits  # as printed
    judgement = trials.judge(scenario.replace(max_wait_ms=wait_ms))
    if judgement.meets:
        instead = "an infinite one" if rule.max_wait_ms == math.inf else _format.number(rule.max_wait_ms)
        text = f"a wait of {_format.number(wait_ms)} ms instead of {instead}"
        yield Remedy("max_wait_ms", wait_ms, f"{text}, with {judgement.in_words}")


def _less_traffic(trials: _Trials) -> Iterator[Remedy]:
    scenario, slo, traffic = trials.scenario, trials.slo, trials.traffic
    if isinstance(scenario.workload, ClosedLoop):
        yield _fewer_clients(trials, scenario.workload.clients)
        return
    offered = scenario.workload.offered_per_s
    limits = any(o.key == "mean_latency_ms" or o.sees_loss for o in slo.objectives)
    if not limits or not 0 < offered < math.inf:  # fewer requests do not raise a throughput
        return
    found = capacity(scenario, slo, traffic.seed, traffic.requests, TOLERANCE)
    traffic.count(found.requests_simulated)
    unproven, longest = found.met and not found.low_per_s > NEAR * found.rate_per_s, traffic.requests
    if unproven and (longer := traffic.resized(LONGEST * traffic.requests)) is not None:
        longest = longer.requests
        found = capacity(scenario, slo, traffic.seed, longest, TOLERANCE)
        traffic.count(found.requests_simulated)
    value, most = None, _format.rate(found.low_per_s)
    if math.isnan(found.rate_per_s):
        text = f"it is not known at which rate it is met: {found.limited_by}"
    elif not found.met:
        text = f"no rate meets it with this setting: {found.limited_by}"
    elif math.isnan(found.low_per_s):
        text = f"runs of {longest:,} requests are too short to say at which rate it is met"
    else:
        value = found.low_per_s
        change = f"{_format.percent(1 - value / offered)} fewer" if value < offered else "more"
        text = f"{change} requests, {most} instead of {_format.rate(offered)}"
    yield Remedy("rate_per_s", value, text)


def _fewer_clients(trials: _Trials, clients: int) -> Remedy:
    def meets(fewer: int) -> bool:
        try:
            return trials.meets(trials.scenario.replace(clients=fewer))
        except ValueError:  # too few for a batch ever to fill
            return False

    fewer, outside = 1 << (clients - 1).bit_length() >> 1, clients  # the power of two below
    while fewer and not meets(fewer):
        outside, fewer = fewer, fewer // 2
    if not fewer:
        surely = "no smaller number of clients meets it with this setting"
        return trials.none("clients", surely, "fewer clients")
    fewer = last_whole(fewer, outside, meets)
    return Remedy("clients", fewer, f"{_format.counted(fewer, 'client')} instead of {clients:,}")


def last_whole(inside: int, outside: int, holds: Callable[[int], bool]) -> int:
    """Return the last whole number that holds, between `inside`, which holds, and `outside`, which does not.

    >>> last_whole(0, 100, lambda value: value <= 42)
    42
    """
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside


def _more_servers(trials: _Trials) -> Iterator[Remedy]:
    scenario, judgement = trials.scenario, None
    if missed := trials.out_of_reach(scenario):
        yield Remedy("servers", None, f"more servers would not meet it with this setting: {missed.text}")
        return
    least = scenario.servers + 1
    if not scenario.stable:
        least = max(least, math.floor(scenario.servers * scenario.load) + 1)
    for servers in range(least, least + SERVERS):
        try:
            more = scenario.replace(servers=servers)
        except ValueError as refusal:
            if judgement is None:
                yield Remedy("servers", None, f"more servers could not be tried: {refusal}")
            return
        if not more.stable:
            continue
        judgement = trials.judge(more)
        if judgement.meets:
            text = f"{_instead(scenario, servers)}, with {judgement.in_words}"
            yield Remedy("servers", servers, text)
            return
    if scenario.devices is not None or scenario.slowdown is not None:
        return  # they share what is busy, so nobody expects it of them
    if judgement is not None:
        surely = f"even {servers} servers would not meet it with this setting: {judgement.in_words}"
        yield trials.none("servers", surely, f"more servers, up to {servers},")
    else:
        yield Remedy("servers", None, f"even {servers} servers would not keep up: {overload(more)}")


def _on_the_same(scenario: Scenario) -> str:
    devices = scenario.devices
    which = "device" if devices == 1 else f"{devices} devices"
    return "" if devices is None else f" on the same {which}"


def _instead(scenario: Scenario, servers: int) -> str:
    own = scenario.slowdown is None and scenario.devices is None
    where = ", taken to have a device each" if own else _on_the_same(scenario)
    return f"{_format.counted(servers, 'server')} instead of {scenario.servers}{where}"


def _other_setting(trials: _Trials, others: Sequence[Candidate], below: float) -> Iterator[Remedy]:
    """Return the first other setting that meets the objective with one more server, if that is fewer."""
    for other in others:
        servers = other.scenario.servers + 1
        try:
            more = other.scenario.replace(servers=servers)
        except ValueError:  # its slowdown does not cover so many
            continue
        if trials.out_of_reach(more):
            continue
        if servers < below and more.stable and (judgement := trials.judge(more)).meets:
            rest = {name: value for name, value in other.knobs.items() if name != "servers"}
            text = f"{_instead(other.scenario, servers)}, with {setting(rest)}"
            yield Remedy("servers", servers, f"{text}: {judgement.in_words}", rest)
            return


def _faster_model(trials: _Trials) -> Remedy:
    scenario = trials.scenario

    def faster(times: float) -> Scenario:
        return scenario.replace(service=scenario.service.scaled(1 / times, scenario.rule.max_batch_size))

    def meets(times: float) -> bool:
        return trials.meets(faster(times))

    times = 2.0
    while not meets(times):
        times *= 2
        if times > FASTEST:
            surely = f"even a model {FASTEST} times as fast would not meet it with this setting"
            return trials.none("service", surely, "a faster model")
    times, _ = edge(times, times / 2, meets, TOLERANCE)
    hundredths = math.ceil(times * 100)  # as printed
    while not meets(hundredths / 100):  # by chance, a little faster may be a little worse
        hundredths += 1
    times = hundredths / 100
    numbers = trials.judge(faster(times)).in_words
    return Remedy("service", times, f"a model {times:g} times as fast, with {numbers}")
