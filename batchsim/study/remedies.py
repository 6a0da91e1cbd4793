"""What would meet an objective that a setting misses: less wait, less traffic, servers, a faster model."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchsim import _format
from batchsim.scenario import ClosedLoop, Scenario, Service, SizeOrWait, Table
from batchsim.study import phrases
from batchsim.study.bisection import edge, last_whole
from batchsim.study.capacity import capacity, sees_loss
from batchsim.study.judgement import Judgement, Verdict, judge
from batchsim.study.slo import SLO
from batchsim.study.traffic import Traffic

SERVERS = 8  # so many more are tried
FASTEST = 128  # times as fast as the model is
TOLERANCE = 0.02  # of a rate, and of a factor
HALVINGS = 6  # of a wait, before none is tried
WAIT_TOLERANCE = 0.1  # of a wait
LONGEST_MS = 1024  # the wait that is halved first, where a rule waits for ever
LONGER = (2, 10, 1000)  # times as long a run: at least, where there is no interval, and at most


@dataclass(frozen=True)
class Remedy:
    """One change with which a run shows that the objective is met; `value` is None if none was found.

    `knob` is "max_wait_ms", "rate_per_s" or "clients", "servers", or "service", whose value is how many times
    as fast the model must be. `text` says it, with the numbers that the run gives. `knobs` are those of
    another setting of the grid, where the change helps that one. Where a run was too short to tell, `knob`
    is "requests": how many might tell.
    """

    knob: str
    value: float | None
    text: str
    knobs: Mapping[str, Any] = field(default_factory=dict)


def remedies(
    scenario: Scenario,
    slo: SLO,
    traffic: Traffic,
    others: Sequence[tuple[Mapping[str, Any], Scenario]] = (),
) -> tuple[Remedy, ...]:
    """Return what would meet the objective with this setting, each change alone, checked by full runs.

    `others` are the knobs and scenarios of settings that miss it by little more, of which each is tried with
    one more server.
    """
    found = [*_wait(scenario, slo, traffic), *_traffic(scenario, slo, traffic)]
    servers = list(_servers(scenario, slo, traffic))
    most = next((remedy.value for remedy in servers if remedy.value is not None), math.inf)
    return (*found, *servers, *_other(others, slo, traffic, most), *_service(scenario, slo, traffic))


def longer(judgement: Judgement, requests: int, most: float) -> tuple[Remedy, ...]:
    """Return how long a run might be sure of what one of so many requests estimates; none above `most`.

    An interval is as wide as one over the root of the length.
    """
    least, unknown, at_most = LONGER
    times = float(unknown)
    value, low, high = judgement.estimates[judgement.worst]
    width = high - value if judgement.worst.at_most else value - low
    if 0 < width < math.inf:
        room = abs(judgement.worst.limit - value)
        times = min(max(1.2 * (width / room) ** 2, least), at_most) if room else at_most
    scale = 10 ** (len(str(round(requests * times))) - 1)
    count = math.ceil(requests * times / scale) * scale
    if count > most:
        return ()
    return (Remedy("requests", count, f"run longer: requests={count}"),)


def scaled(service: Service, factor: float, max_batch_size: int) -> Service:
    """Return a service time with every batch's time multiplied by a factor.

    >>> from batchsim import Affine
    >>> scaled(Affine(5, 0.25), 0.5, max_batch_size=2)
    Table({1: 2.625, 2: 2.75})
    """
    sizes = range(1, max_batch_size + 1)
    return Table({size: service(size) * 1000 * factor for size in sizes}, noise=service.noise)


def _run(scenario: Scenario, slo: SLO, traffic: Traffic) -> Judgement:
    return judge(traffic.run(scenario), slo)


def _numbers(judgement: Judgement) -> str:
    return _format.listed([phrases.estimated(o.key, found) for o, found in judgement.estimates.items()])


@dataclass
class _Tries:
    """Runs of changes, which may show that the objective is met, or be too short to tell."""

    slo: SLO
    traffic: Traffic
    too_short: bool = False

    def meets(self, scenario: Scenario) -> bool:
        if not scenario.stable:
            return False
        judgement = _run(scenario, self.slo, self.traffic)
        self.too_short |= judgement.too_short
        return judgement.verdict is Verdict.MEETS

    def none(self, knob: str, surely: str, what: str) -> Remedy:
        """Return that no change was found: that there is none, or that this cannot be told."""
        unknown = f"whether {what} would do with this setting cannot be told from runs of "
        length = _format.counted(self.traffic.requests, "request")
        return Remedy(knob, None, f"{unknown}{length}" if self.too_short else surely)


def _wait(scenario: Scenario, slo: SLO, traffic: Traffic) -> Iterator[Remedy]:
    rule, tries = scenario.rule, _Tries(slo, traffic)
    if type(rule) is not SizeOrWait or rule.max_batch_size == 1 or rule.max_wait_ms == 0:
        return
    if all(objective.key == "loss" for objective in slo.objectives):
        return

    def meets(wait_ms: float) -> bool:
        return tries.meets(scenario.replace(max_wait_ms=wait_ms))

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
    wait_ms = math.floor(inside * 10**digits) / 10**digits  # as it is said
    judgement = _run(scenario.replace(max_wait_ms=wait_ms), slo, traffic)
    if judgement.verdict is Verdict.MEETS:
        instead = "an infinite one" if rule.max_wait_ms == math.inf else _format.number(rule.max_wait_ms)
        text = f"a wait of {_format.number(wait_ms)} ms instead of {instead}"
        yield Remedy("max_wait_ms", wait_ms, f"{text}, with {_numbers(judgement)}")


def _traffic(scenario: Scenario, slo: SLO, traffic: Traffic) -> Iterator[Remedy]:
    workload = scenario.workload
    if isinstance(workload, ClosedLoop):
        yield _clients(scenario, workload.clients, slo, traffic)
        return
    if not any(objective.key == "mean_latency_ms" or sees_loss(objective) for objective in slo.objectives):
        return  # a throughput alone is no reason for fewer requests
    offered = workload.offered_per_s
    if not 0 < offered < math.inf:
        return
    found = capacity(scenario, slo, traffic.seed, traffic.requests, TOLERANCE)
    traffic.simulated += found.requests_simulated
    if not found.met:
        yield Remedy("rate_per_s", None, f"no rate meets it with this setting: {found.limited_by}")
        return
    if math.isnan(found.low_per_s):
        text = f"runs of {traffic.requests:,} requests are too short to say at which rate it is met"
        yield Remedy("rate_per_s", None, text)
        return
    most = _format.rate(found.low_per_s)
    if offered < found.lowest_per_s:
        least = found.lowest_per_s * (1 + TOLERANCE)
        few = f"at {_format.rate(offered)} {found.lowest_by}"
        yield Remedy("rate_per_s", least, f"more requests, from {_format.rate(least)} to {most} ({few})")
        return
    part = 1 - found.low_per_s / offered
    yield Remedy(
        "rate_per_s",
        found.low_per_s,
        f"{_format.percent(part)} fewer requests, {most} instead of {_format.rate(offered)}",
    )


def _clients(scenario: Scenario, clients: int, slo: SLO, traffic: Traffic) -> Remedy:
    tries = _Tries(slo, traffic)

    def meets(fewer: int) -> bool:
        try:
            return tries.meets(scenario.replace(clients=fewer))
        except ValueError:  # too few for a batch ever to gather
            return False

    fewer = 2 ** max(clients.bit_length() - 1, 0)
    fewer = fewer // 2 if fewer == clients else fewer
    outside = clients
    while fewer and not meets(fewer):
        outside, fewer = fewer, fewer // 2
    if not fewer:
        surely = "no smaller number of clients meets it with this setting"
        return tries.none("clients", surely, "fewer clients")
    fewer = last_whole(fewer, outside, meets)
    return Remedy("clients", fewer, f"{_format.counted(fewer, 'client')} instead of {clients:,}")


def _servers(scenario: Scenario, slo: SLO, traffic: Traffic) -> Iterator[Remedy]:
    least = scenario.servers + 1
    if not scenario.stable:
        least = max(least, math.floor(scenario.servers * scenario.load) + 1)
    tries, judgement = _Tries(slo, traffic), None
    for servers in range(least, least + SERVERS):
        try:
            more = scenario.replace(servers=servers)
        except ValueError as refusal:
            if judgement is None:
                yield Remedy("servers", None, f"more servers could not be tried: {refusal}")
            return
        if not more.stable:
            continue
        judgement = _run(more, slo, traffic)
        tries.too_short |= judgement.too_short
        if judgement.verdict is Verdict.MEETS:
            yield Remedy("servers", servers, f"{_more(scenario, servers)}, with {_numbers(judgement)}")
            return
    if judgement is not None:
        surely = f"no more servers, up to {servers}, would do with this setting: {_numbers(judgement)}"
        yield tries.none("servers", surely, f"more servers, up to {servers},")


def _more(scenario: Scenario, servers: int) -> str:
    where = ", taken to have a device each" if scenario.slowdown is None else ""
    return f"{_format.counted(servers, 'server')} instead of {scenario.servers}{where}"


def _other(
    others: Sequence[tuple[Mapping[str, Any], Scenario]], slo: SLO, traffic: Traffic, below: float
) -> Iterator[Remedy]:
    """Return the first other setting that meets the objective with one more server, if those are fewer."""
    for knobs, scenario in others:
        servers = scenario.servers + 1
        if servers >= below:
            continue
        try:
            more = scenario.replace(servers=servers)
        except ValueError:  # its slowdown is not known of so many
            continue
        judgement = _run(more, slo, traffic) if more.stable else None
        if judgement is not None and judgement.verdict is Verdict.MEETS:
            rest = {name: value for name, value in knobs.items() if name != "servers"}
            text = f"{_more(scenario, servers)}, with {phrases.setting(rest)}: {_numbers(judgement)}"
            yield Remedy("servers", servers, text, rest)
            return


def _service(scenario: Scenario, slo: SLO, traffic: Traffic) -> Iterator[Remedy]:
    def faster(times: float) -> Scenario:
        return scenario.replace(service=scaled(scenario.service, 1 / times, scenario.rule.max_batch_size))

    tries = _Tries(slo, traffic)

    def meets(times: float) -> bool:
        return tries.meets(faster(times))

    times = 2.0
    while not meets(times):
        times *= 2
        if times > FASTEST:
            surely = f"no faster model would do with this setting, not even {FASTEST} times as fast"
            yield tries.none("service", surely, "a faster model")
            return
    times, _ = edge(times, times / 2, meets, TOLERANCE)
    hundredths = math.ceil(times * 100)  # as it is said
    while not meets(hundredths / 100):  # a little faster may by chance be a little worse
        hundredths += 1
    times = hundredths / 100
    judgement = _run(faster(times), slo, traffic)
    yield Remedy("service", times, f"a model {times:g} times as fast, with {_numbers(judgement)}")
