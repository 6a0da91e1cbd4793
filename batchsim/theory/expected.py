"""The choice of the theory that applies to a scenario."""

from dataclasses import replace

from batchsim import _check
from batchsim.scenario import OpenLoop, Scenario, Service, Table
from batchsim.theory import batch, general, single
from batchsim.theory.answer import Answer, NoAnswer, UnsolvedError, check_load
from batchsim.theory.expected_tokens import expected_of_tokens


def expected(scenario: Scenario) -> Answer | NoAnswer:
    """Return the steady state that theory expects, or a NoAnswer with the reason why there is none.

    Raises ValueError for a scenario whose load is 1 or more: it has no steady state. A cold start
    (`service.compiling`) is left out, and the answer's `model` says so: the steady state comes after it. With
    tokens the answer is a `TokenAnswer`, whose `bounds` say how far off an approximation can be. There is
    none for requests that can never be served, which `simulate` refuses.

    >>> from batchsim import Affine, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(32, 0), Affine(5, 0.25))
    >>> round(expected(scenario).mean_latency_ms, 4)
    9.9681
    >>> expected(scenario.replace(servers=2))
    no theory applies: batches of up to 32 are solved for one server only, got 2
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    if scenario.tokens is not None:
        return expected_of_tokens(scenario)
    if scenario.service.compile_ms is not None:
        answer = expected(scenario.replace({"service.compile_ms": None}))
        warm = "after the cold start"
        return replace(answer, model=f"{answer.model}, {warm}") if isinstance(answer, Answer) else answer
    workload, servers, service = scenario.workload, scenario.servers, scenario.service
    if not isinstance(workload, OpenLoop) or (arrival_cv := workload.gamma_cv) is None:
        return NoAnswer(f"arrivals must be Poisson, Gamma or Constant, got {workload!r}")
    if scenario.queue_limit is not None:
        return NoAnswer(f"a queue_limit of {scenario.queue_limit} rejects requests")
    if scenario.by_level:
        return NoAnswer("requests must be served in the order of their arrival, got priorities or a delay")
    if scenario.timeout_ms is not None:
        return NoAnswer(f"a timeout of {scenario.timeout_ms} ms makes requests leave")
    # Asked of the rule itself, so that a rule which is the textbook's under another name is answered too.
    rule = scenario.rule.threshold
    if rule is None:
        return NoAnswer(f"the rule must be a threshold rule, got {scenario.rule!r}")
    if (devices := scenario.device_count) < servers:
        return NoAnswer(f"each server must have a device of its own, got {servers} servers on {devices}")
    slowdown = scenario.slowdown
    factors = set() if slowdown is None else {slowdown[busy] for busy in range(1, servers + 1)}
    if len(factors) > 1:
        return NoAnswer(f"a slowdown must be the same for any number of busy servers, got {slowdown}")
    if factors and factors != {1.0}:
        factor, sizes = factors.pop(), range(1, rule.largest + 1)
        service = Table({size: service(size) * factor * 1000 for size in sizes}, noise=service.noise)
    # Not scenario.saturation_per_s: with a long queue the rule takes full batches, even where a smaller
    # size would be faster.
    check_load(workload.offered_per_s, servers * rule.largest / service(rule.largest))
    noise, host_ms = service.noise, scenario.host_ms
    if noise is not None and noise.lasts:
        return NoAnswer(f"service times must be independent of each other, got {noise}")
    try:
        # A host part and a device of one's own are the whole service time: only noise tells them apart.
        if host_ms > 0 and noise is not None and noise.cv > 0:
            if (rule.largest, servers, arrival_cv) != (1, 1, 1):
                return NoAnswer(f"noise must be on the whole service time, got a host_ms of {host_ms:g}")
            ms = service(1) * 1000
            return single.mg1(workload.offered_per_s, ms, noise.cv * (1 - host_ms / ms))
        if rule.largest == 1:
            return _one_by_one(scenario, service, arrival_cv)
        if arrival_cv != 1:
            return NoAnswer(f"arrivals must be Poisson for batches, got {workload!r}")
        if servers > 1:
            return NoAnswer(f"batches of up to {rule.largest} are solved for one server only, got {servers}")
        return batch.solve_threshold(workload.offered_per_s, service, rule)
    except UnsolvedError as error:
        return NoAnswer(str(error))


def _one_by_one(scenario: Scenario, service: Service, arrival_cv: float) -> Answer | NoAnswer:
    """Batches of one, which are full at once, whatever the rule's wait."""
    rate, servers = scenario.workload.offered_per_s, scenario.servers  # type: ignore[union-attr]
    ms, noise = service(1) * 1000, service.noise
    if arrival_cv != 1:
        if servers > 1:
            return NoAnswer(f"arrivals must be Poisson for more than one server, got {scenario.workload!r}")
        noise_cv, shape = (0.0, "lognormal") if noise is None else (noise.cv, noise.shape)
        return general.gg1(rate, ms, arrival_cv, noise_cv, shape)
    if noise is None or noise.cv == 0:
        return single.md1(rate, ms) if servers == 1 else single.mdc(rate, ms, servers)
    if noise.shape == "exponential":
        return single.mmc(rate, ms, servers)
    if servers == 1:
        return single.mg1(rate, ms, noise.cv)
    return NoAnswer(f"{servers} servers must have fixed or exponential service times, got {noise}")
