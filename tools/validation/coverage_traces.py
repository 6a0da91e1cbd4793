"""Traces with bursts, and days, on which `make coverage` counts intervals.

Each seed has a trace of its own, drawn from a process whose long runs are the truth.
"""

from functools import partial

import numpy as np

import batchsim as bs
from validation.coverage import BATCH, SATURATION, Case, batched

LENGTHS = 10_000, 30_000, 300_000
RULE = bs.SizeOrWait(32, 0)


class Clusters(bs.Gamma):
    """Poisson arrivals in clusters of geometric size, 10 on average, within milliseconds."""

    def _gaps(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        last, gaps = generator.random(requests) < 0.1, generator.standard_exponential(requests)
        return np.where(last, 9.1, 0.1) * gaps


def traced(workload: bs.scenario.OpenLoop, requests: int, seed: int) -> bs.Scenario:
    """Return a scenario whose traffic is a trace of the workload."""
    times_s = np.concatenate([*workload.chunks_s(np.random.SeedSequence(seed), requests, requests)])
    return batched(bs.Trace(times_s), RULE)


def of_traces(workload: bs.scenario.OpenLoop) -> dict[int, Case]:
    """Return a case for each length, as a run takes all of its trace."""
    scenario = batched(workload, RULE)
    return {
        requests: Case(partial(traced, workload, requests), scenario, lengths=(requests,))
        for requests in LENGTHS
    }


PROCESSES = {
    "on/off of 0.2 s": bs.OnOff(6000, 600, 0.05, 0.15),
    "on/off of 20 ms, load 0.84": bs.OnOff(3500, 635, 0.01, 0.01),
    "Gamma cv 3, load 0.6": bs.Gamma(0.6 * SATURATION, 3),
    "clusters of 10, load 0.6": Clusters(0.6 * SATURATION, 1),
    "Poisson, load 0.8": bs.Poisson(0.8 * SATURATION),
}
TRACES = {
    f"trace of {name}, {requests:,}": case
    for name, workload in PROCESSES.items()
    for requests, case in of_traces(workload).items()
}

# A period of a day is 20,000 requests, and its peak is below or above the saturation rate.
DAYS = {
    f"a day of {mean:g}/s, peak {peak:g} times": Case.of(
        batched(bs.Diurnal(mean, peak, 20_000 / mean), RULE, BATCH),
        lengths=(20_000, 160_000, 640_000), true_requests=2_000_000,
    )
    for mean, peak in ((1000, 1.8), (1500, 1.5), (2000, 1.4))
}  # fmt: skip
