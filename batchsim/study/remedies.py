"""Changes that would meet an objective: a shorter wait, less traffic, more servers, a faster model."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchsim import _format
from batchsim.result.run_length import Periods
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.simulate import available
from batchsim.study.candidate import Candidate
from batchsim.study.capacity import capacity, edge
from batchsim.study.grid import overload, setting
from batchsim.study.judgement import WARMUP, Judgement, Missed, fewest, judge, out_of_reach
from batchsim.study.search import LONGEST, Traffic
from batchsim.study.slo import SLO

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
