"""The choice of the theory that applies to a scenario."""

from batchsim.scenario import Constant, Gamma, Poisson, Scenario, Service, Table
from batchsim.scenario.rules import Threshold
from batchsim.theory import batch, single
from batchsim.theory.answer import Answer, NoAnswer, UnsolvedError, check_load


def expected(scenario: Scenario) -> Answer | NoAnswer:
    """Return the steady state that theory expects, or a NoAnswer with the reason why there is none.

    Raises ValueError for a scenario whose load is 1 or more: it has no steady state.

    >>> from batchsim import Affine, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> round(expected(scenario).mean_latency_ms, 4)
    9.9681
    >>> expected(scenario.replace(servers=2))
    no theory applies: batches of up to 32 are solved for one server only, got 2
    """
    if not isinstance(scenario, Scenario):
        raise TypeError(f"scenario must be a Scenario, got {scenario!r}")
    if not isinstance(scenario.workload, (Poisson, Gamma, Constant)):
        return NoAnswer(f"arrivals must be Poisson, Gamma or Constant, got {scenario.workload!r}")
    if scenario.queue_limit is not None:
        return NoAnswer(f"a queue_limit of {scenario.queue_limit} rejects requests")
    if scenario.timeout_ms is not None:
        return NoAnswer(f"a timeout of {scenario.timeout_ms:g} ms makes requests leave")
    # Asked of the rule itself, so that a rule which is the textbook's under another name is answered too.
    rule = scenario.rule.threshold
    if rule is None:
        return NoAnswer(f"the rule must be a threshold rule, got {scenario.rule!r}")
    slowdown, busy = scenario.slowdown, range(1, scenario.servers + 1)
    factors = set() if slowdown is None else {slowdown[servers] for servers in busy}
    if len(factors) > 1:
        return NoAnswer(f"a slowdown must be the same for any number of busy servers, got {slowdown}")
    service = scenario.service
    if factors and factors != {1.0}:
        service = _slowed(service, rule.largest, factors.pop())
    # Not scenario.saturation_per_s: with a long queue the rule takes full batches, even where a smaller
    # size would be faster.
    check_load(scenario.workload.offered_per_s, scenario.servers * rule.largest / service(rule.largest))
    try:
        return _one_by_one(scenario, service) if rule.largest == 1 else _batches(scenario, service, rule)
    except UnsolvedError as error:
        return NoAnswer(str(error))


def _slowed(service: Service, largest: int, factor: float) -> Service:
    sizes = range(1, largest + 1)
    return Table({size: service(size) * factor * 1000 for size in sizes}, noise=service.noise)


def _arrival_cv(workload: object) -> float:
    return workload.cv if isinstance(workload, Gamma) else 0.0 if isinstance(workload, Constant) else 1.0


def _one_by_one(scenario: Scenario, service: Service) -> Answer | NoAnswer:
    """Batches of one, which are full at once, whatever the rule's wait."""
    rate, servers = scenario.workload.offered_per_s, scenario.servers  # type: ignore[union-attr]
    ms, noise = service(1) * 1000, service.noise
    arrival_cv = _arrival_cv(scenario.workload)
    if arrival_cv != 1:
        if servers > 1:
            return NoAnswer(f"arrivals must be Poisson for more than one server, got {scenario.workload!r}")
        return single.kingman(rate, ms, arrival_cv, noise.cv if noise is not None else 0.0)
    if noise is None or noise.cv == 0:
        return single.md1(rate, ms) if servers == 1 else single.mdc(rate, ms, servers)
    if noise.shape == "exponential":
        return single.mmc(rate, ms, servers)
    if servers == 1:
        return single.mg1(rate, ms, noise.cv)
    return NoAnswer(f"{servers} servers must have fixed or exponential service times, got {noise}")


def _batches(scenario: Scenario, service: Service, rule: Threshold) -> Answer | NoAnswer:
    if _arrival_cv(scenario.workload) != 1:
        return NoAnswer(f"arrivals must be Poisson for batches, got {scenario.workload!r}")
    if scenario.servers > 1:
        largest, servers = rule.largest, scenario.servers
        return NoAnswer(f"batches of up to {largest} are solved for one server only, got {servers}")
    return batch.solve_threshold(scenario.workload.offered_per_s, service, rule)  # type: ignore[union-attr]
