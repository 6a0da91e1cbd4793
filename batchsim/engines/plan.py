"""What an engine is given and what it returns: plain arrays and a rule, nothing random."""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from batchsim.scenario import ClosedLoop, Scenario


class Status(IntEnum):
    """What became of a request."""

    SERVED = 0
    REJECTED = 1  # the queue was at its limit
    TIMED_OUT = 2  # it left the queue unserved


@dataclass(frozen=True)
class Plan:
    """A scenario with its randomness drawn.

    `arrival_s` is None for a closed loop, whose `think_s[i]` follows send i. `service_s[k]` is
    the mean time of a batch of k; `noise[j]`, if any, the factor of batch number j, and
    `slowdown[n]`, if any, the factor while n servers are busy.
    """

    scenario: Scenario
    requests: int
    arrival_s: np.ndarray | None
    think_s: np.ndarray | None
    service_s: np.ndarray
    noise: np.ndarray | None
    slowdown: np.ndarray | None

    @property
    def timeout_s(self) -> float:
        timeout_ms = self.scenario.timeout_ms
        return math.inf if timeout_ms is None else timeout_ms / 1000


@dataclass(frozen=True)
class Log:
    """What happened: a row a request in arrival order, and a row a batch in order of start."""

    arrival_s: np.ndarray
    batch_index: np.ndarray  # -1: not served
    status: np.ndarray
    batch_start_s: np.ndarray
    batch_finish_s: np.ndarray
    batch_size: np.ndarray
    batch_server: np.ndarray
    outputs: list[Any] | None = None


def draw(scenario: Scenario, requests: int, seed: int) -> Plan:
    """Draw a scenario's randomness: streams for arrivals, service noise and think times."""
    arrivals, noises, thoughts = np.random.SeedSequence(seed).spawn(3)
    workload, service = scenario.workload, scenario.service
    arrival_s = think_s = noise = slowdown = None
    if isinstance(workload, ClosedLoop):
        think_s = workload.thinking_s(thoughts, requests)
    else:
        arrival_s = workload.arrivals_s(arrivals, requests)
    if service.noise is not None:  # there are at most as many batches as requests
        noise = service.noise.draw(np.random.default_rng(noises), requests)
    if scenario.slowdown is not None:
        slowdown = np.array([math.nan] + [scenario.slowdown[n + 1] for n in range(scenario.servers)])
    table = service.table(scenario.rule.max_batch_size)
    return Plan(scenario, requests, arrival_s, think_s, table, noise, slowdown)
