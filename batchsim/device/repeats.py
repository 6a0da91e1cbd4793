"""The same arrivals simulated many times: how much two runs of one scenario differ by chance."""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from batchsim.engines.draws import draw
from batchsim.result import Run
from batchsim.scenario import Scenario
from batchsim.scenario.service import Service

LEVEL = 0.95
SHARES = np.arange(0, 100.5, 0.5)  # per cent of the requests, at which latencies are kept


@dataclass(frozen=True, eq=False)
class Repeats:
    """What many runs of the same arrivals came to: `numbers` by metric, one a run.

    `latency_ms`, of shape (runs, shares), is within how long each share of a run's requests was answered.
    """

    numbers: Mapping[str, np.ndarray]
    latency_ms: np.ndarray

    @classmethod
    def of(
        cls, scenario: Scenario, services: Iterable[Service], keys: Sequence[str], requests: int, seed: int,
        warmup: float = 0.0,
    ) -> Self:  # fmt: skip
        """Simulate the arrivals of a scenario once with each service, and with noise of its own each time."""
        first = draw(scenario, requests, seed)

        def one(number: int, service: Service) -> tuple[list[float], np.ndarray]:
            plan = draw(scenario.replace(service=service), requests, seed, replication=number)
            plan = replace(plan, arrival_s=first.arrival_s, priority=first.priority)
            if scenario.rule.compiled:
                from batchsim.engines.compiled import engine

                log = engine.run(plan)
            else:
                from batchsim.engines.reference import engine as reference

                log = reference.run(plan)
            metrics = Run(plan.scenario, log, warmup=warmup, clock="wall").metrics
            return [metrics.number(key) for key in keys], metrics.percentiles(SHARES)

        every = list(services)
        with ThreadPoolExecutor(min(os.cpu_count() or 1, len(every))) as threads:
            found = list(threads.map(one, range(1, len(every) + 1), every))
        numbers, latency_ms = (np.array(part) for part in zip(*found, strict=True))
        return cls(dict(zip(keys, numbers.T, strict=True)), latency_ms)

    def median(self, key: str) -> float:
        return float(np.median(self.numbers[key]))

    def interval(self, key: str) -> tuple[float, float]:
        """Return the limits within which 95 of 100 runs are, as many outside on either side."""
        low, high = np.quantile(self.numbers[key], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)
