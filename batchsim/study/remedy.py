"""What would meet an objective that a setting misses: less traffic, more servers, a faster model."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from batchsim.scenario import ClosedLoop, Scenario, Service, Table
from batchsim.study import words
from batchsim.study.capacity import capacity, sees_loss
from batchsim.study.evidence import Judgement, Verdict, judge
from batchsim.study.search import edge, last_whole
from batchsim.study.slo import SLO
from batchsim.study.traffic import Traffic

SERVERS = 8  # so many more are tried
FASTEST = 128  # times as fast as the model is
TOLERANCE = 0.02  # of a rate, and of a factor


@dataclass(frozen=True)
class Remedy:
    """One change with which a run shows that the objective is met; `value` is None if none was found.

    `knob` is "rate_per_s" or "clients", "servers", or "service", whose value is how many times as fast the
    model must be. `text` says it, with the numbers that the run gives.
    """

    knob: str
    value: float | None
    text: str


def remedies(scenario: Scenario, slo: SLO, traffic: Traffic) -> tuple[Remedy, ...]:
    """Return what would meet the objective with this setting, each change alone, checked by full runs."""
    return tuple(remedy for of in (_traffic, _servers, _service) for remedy in of(scenario, slo, traffic))


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
    return words.listed([words.estimated(o.key, found) for o, found in judgement.estimates.items()])


def _meets(scenario: Scenario, slo: SLO, traffic: Traffic) -> bool:
    return scenario.stable and _run(scenario, slo, traffic).verdict is Verdict.MEETS


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
    most = words.per_s(found.low_per_s)
    if offered < found.lowest_per_s:
        least = found.lowest_per_s * (1 + TOLERANCE)
        few = f"at {words.per_s(offered)} they wait too long for company"
        yield Remedy("rate_per_s", least, f"more requests, from {words.per_s(least)} to {most} ({few})")
        return
    part = 1 - found.low_per_s / offered
    yield Remedy(
        "rate_per_s", found.low_per_s, f"{part:.0%} fewer requests, {most} instead of {words.per_s(offered)}"
    )


def _clients(scenario: Scenario, clients: int, slo: SLO, traffic: Traffic) -> Remedy:
    def meets(fewer: int) -> bool:
        try:
            return _meets(scenario.replace(clients=fewer), slo, traffic)
        except ValueError:  # too few for a batch ever to gather
            return False

    fewer = 2 ** max(clients.bit_length() - 1, 0)
    fewer = fewer // 2 if fewer == clients else fewer
    outside = clients
    while fewer and not meets(fewer):
        outside, fewer = fewer, fewer // 2
    if not fewer:
        return Remedy("clients", None, "no smaller number of clients meets it with this setting")
    fewer = last_whole(fewer, outside, meets)
    return Remedy("clients", fewer, f"{words.counted(fewer, 'client')} instead of {clients:,}")


def _servers(scenario: Scenario, slo: SLO, traffic: Traffic) -> Iterator[Remedy]:
    least = scenario.servers + 1
    if not scenario.stable:
        least = max(least, math.floor(scenario.servers * scenario.load) + 1)
    judgement = None
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
        if judgement.verdict is Verdict.MEETS:
            text = f"{words.counted(servers, 'server')} instead of {scenario.servers}"
            yield Remedy("servers", servers, f"{text}, with {_numbers(judgement)}")
            return
    if judgement is not None:
        yield Remedy("servers", None, f"no more servers, up to {servers}, would do: {_numbers(judgement)}")


def _service(scenario: Scenario, slo: SLO, traffic: Traffic) -> Iterator[Remedy]:
    def faster(times: float) -> Scenario:
        return scenario.replace(service=scaled(scenario.service, 1 / times, scenario.rule.max_batch_size))

    def meets(times: float) -> bool:
        return _meets(faster(times), slo, traffic)

    times = 2.0
    while not meets(times):
        times *= 2
        if times > FASTEST:
            text = f"no faster model would do, not even {FASTEST} times as fast"
            yield Remedy("service", None, text)
            return
    times, _ = edge(times, times / 2, meets, TOLERANCE)
    times = math.ceil(times * 100) / 100  # as it is said
    judgement = _run(faster(times), slo, traffic)
    yield Remedy("service", times, f"a model {times:g} times as fast, with {_numbers(judgement)}")
