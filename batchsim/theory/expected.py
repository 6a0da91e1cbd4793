"""Which theory applies to a scenario."""

from batchsim.scenario import AtLeast, Constant, Gamma, Poisson, Scenario, Service, SizeOrWait, Table
from batchsim.theory import batch, single
from batchsim.theory.answer import Answer, NoAnswer, UnsolvedError, check_load
from batchsim.theory.arrivals import is_noisy


def expected(scenario: Scenario) -> Answer | NoAnswer:
    """Return what theory says of a scenario's steady state, or a NoAnswer that says why nothing does.

    Raises ValueError for a scenario whose load is 1 or more: it has no steady state.

    >>> from batchsim import Affine
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> round(expected(scenario).mean_latency_ms, 4)
    9.9681
    >>> expected(scenario.replace(servers=2))
    no theory applies: batches of up to 32 are solved for one server only, got 2
    """
    if not isinstance(scenario, Scenario):
        raise TypeError(f"scenario must be a Scenario, got {scenario!r}")
    if not isinstance(scenario.workload, (Poisson, Gamma, Constant)):
        return NoAnswer(
            f"arrivals must be Poisson, or Gamma or Constant one at a time, got {scenario.workload!r}"
        )
    if scenario.queue_limit is not None:
        return NoAnswer(f"a queue_limit of {scenario.queue_limit} turns requests away")
    if scenario.timeout_ms is not None:
        return NoAnswer(f"a timeout of {scenario.timeout_ms:g} ms makes requests leave")
    if type(scenario.rule) not in (SizeOrWait, AtLeast):
        return NoAnswer(f"the rule must be SizeOrWait or AtLeast, got {scenario.rule!r}")
    factors = (
        set() if scenario.slowdown is None else {scenario.slowdown[k + 1] for k in range(scenario.servers)}
    )
    if len(factors) > 1:
        return NoAnswer(
            f"a slowdown must be the same for any number of busy servers, got {scenario.slowdown}"
        )
    service, size = scenario.service, scenario.rule.max_batch_size
    if factors and factors != {1.0}:
        service = _slowed(service, size, factors.pop())
    # Not the scenario's own: a rule that takes all it can does not stop at a size that is faster.
    check_load(scenario.workload.offered_per_s, scenario.servers * size / service(size))
    try:
        return _one_by_one(scenario, service) if size == 1 else _batches(scenario, service)
    except UnsolvedError as error:
        return NoAnswer(str(error))


def _slowed(service: Service, max_batch_size: int, factor: float) -> Service:
    sizes = range(1, max_batch_size + 1)
    return Table({k: service(k) * factor * 1000 for k in sizes}, noise=service.noise)


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


def _batches(scenario: Scenario, service: Service) -> Answer | NoAnswer:
    rate, rule = scenario.workload.offered_per_s, scenario.rule  # type: ignore[union-attr]
    size = rule.max_batch_size
    if _arrival_cv(scenario.workload) != 1:
        return NoAnswer(f"arrivals must be Poisson for batches, got {scenario.workload!r}")
    if scenario.servers > 1:
        return NoAnswer(f"batches of up to {size} are solved for one server only, got {scenario.servers}")
    if isinstance(rule, AtLeast):
        return batch.at_least(rate, service, rule.min_batch_size, size)
    if 0 < rule.max_wait_ms < float("inf"):
        if is_noisy(service.noise):
            return NoAnswer(f"a wait of {rule.max_wait_ms:g} ms is solved for fixed service times only")
        if rule.max_wait_ms / 1000 > service(size):
            return NoAnswer(
                f"a wait must be 0, inf, or at most the {service(size) * 1000:g} ms that a full batch "
                f"computes, got {rule.max_wait_ms:g} ms"
            )
    return batch.size_or_wait(rate, service, size, rule.max_wait_ms)
