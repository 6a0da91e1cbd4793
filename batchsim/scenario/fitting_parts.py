"""Whether the parts of a scenario fit each other."""

import dataclasses
import math
from typing import Any

import numpy as np

from batchsim import _check
from batchsim.scenario.rules import AtLeast, SizeOrWait
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.sized_time import SizedTime
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Tokens
from batchsim.scenario.workload import ClosedLoop

# The fields that token generation does not cover.
UNCOVERED = ("slowdown", "devices", "host_ms", "contention", "timeout_action", "oversize_action")


def check_parts(scenario: Any) -> None:
    """Raise ValueError if a scenario's parts, each of which is right, do not fit each other."""
    if isinstance(scenario.workload, ClosedLoop):
        _check_closed_loop(scenario, scenario.workload)
    _check_tokens(scenario)
    if scenario.tokens is None:
        _check_sizes(scenario)
        seconds = scenario.service.count_s(scenario.rule.max_batch_size)  # raises if it does not cover a size
        _check_devices(scenario, float(np.fmin.reduce(seconds)))


def _check_devices(scenario: Any, shortest_s: float) -> None:
    if scenario.devices is not None and scenario.devices > scenario.servers:
        rule = f"devices must be at most the servers, {scenario.servers:,}"
        raise ValueError(f"{rule}, as each server computes on one, got {scenario.devices:,}")
    if scenario.host_ms / 1000 > shortest_s:
        rule = f"host_ms must be at most the shortest service time, {shortest_s * 1000:.6g} ms"
        raise ValueError(f"{rule}, which includes it, got {scenario.host_ms!r}")
    shared = {"devices": scenario.devices, "host_ms": scenario.host_ms or None}
    if scenario.slowdown is not None and (given := [name for name in shared if shared[name] is not None]):
        both = "slowdown and devices, host_ms and contention are two ways to describe one thing: give one"
        raise ValueError(f"{both}, got slowdown and {given[0]}={shared[given[0]]}")


def _check_sizes(scenario: Any) -> None:
    rule, service, sizes = scenario.rule, scenario.service, scenario.workload.sizes
    for part in (service, rule):
        if sizes is None and (isinstance(part, SizedTime) or getattr(part, "by_size", False)):
            example = "Poisson(900).with_sizes(Lognormal(80, cv=1))"
            needs = f"{part!r} needs the sizes of the requests, as {example}"
            raise ValueError(f"{needs}, got {scenario.workload!r}")
    if rule.by_size and scenario.by_level:
        order = "priorities" if scenario.levels else "a timeout that delays"
        raise ValueError(f"{rule!r} must serve requests in order of arrival, got {order}")
    _check.at_most("the largest size", scenario.longest, rule.covers, "the last edge of the buckets")
    if isinstance(service, SizedTime):
        if rule.computed_as is not None:
            needs = f"a {type(rule).__name__} pads with copies, and needs a time by batch size alone"
            raise ValueError(f"{needs}, got {service!r}")
        service.cold_start(1)  # raises if it has no shapes
        _check.at_most("the largest size", scenario.longest, service.longest, "the service's largest length")


def _check_tokens(scenario: Any) -> None:
    rule, service, tokens = scenario.rule, scenario.service, scenario.tokens
    if tokens is None:
        for part in (service, rule):
            if isinstance(part, (StepTime, Continuous)):
                raise ValueError(f"a {type(part).__name__} needs tokens=Tokens(prompt, output), got none")
        return
    _check.instance("tokens", tokens, Tokens, "a Tokens of batchsim")
    if not isinstance(service, StepTime):
        raise ValueError(f"tokens need a StepTime as service, got {service!r}")
    if not isinstance(rule, (Continuous, SizeOrWait, AtLeast)) or rule.by_size:
        raise ValueError(f"tokens need Continuous, SizeOrWait or AtLeast by number as rule, got {rule!r}")
    service.check_seats(rule.largest_batch)
    if isinstance(rule, Continuous):
        rule.check_tokens(tokens)
    if scenario.workload.priorities is not None:
        raise ValueError(f"tokens do not cover priorities, got {scenario.workload!r}")
    if scenario.workload.sizes is not None:
        raise ValueError(f"tokens have lengths of their own instead of sizes, got {scenario.workload!r}")
    defaults = {field.name: field.default for field in dataclasses.fields(scenario)}
    for name in UNCOVERED:
        if (value := getattr(scenario, name)) != defaults[name]:
            raise ValueError(f"tokens do not cover {name}, got {name}={value!r}")


def _check_closed_loop(scenario: Any, workload: ClosedLoop) -> None:
    limits = [limit.queue for limit in scenario.limits if limit.queue is not None]
    limited = {  # no more than all clients wait
        "a queue_limit below the clients": min(limits, default=math.inf) < workload.clients,
        repr(scenario.rule): scenario.rule.refuses or scenario.refuses_sizes,
    }
    for name, rejects in limited.items():
        if rejects and workload.think_s == 0:
            why = "a rejected client would send again at once"
            raise ValueError(f"{name} on a ClosedLoop needs think_s greater than 0 ({why}), got 0")
    # At each replica, all but one of those that a batch needs may wait.
    fewest = scenario.most_replicas * (scenario.rule.fewest_clients - 1) + 1
    if workload.clients < fewest:
        rule = f"a ClosedLoop must have at least {fewest} clients to gather a batch of {scenario.rule.enough}"
        raise ValueError(f"{rule}, got {workload.clients}")
