"""Sizes that vary much, and sizes of traces in runs, on which `make coverage` counts intervals.

The rules: one by one, padded batches, a limit in units, a queue for each range of sizes, a sorted window.
"""

from functools import partial
from typing import Any

import numpy as np

import batchsim as bs
from batchsim.scenario.lengths import Listed
from validation.coverage import Case, Pair

LENGTHS = 10_000, 100_000, 400_000
PACKED = bs.PackedTime(0.2, 0, 0.02)
PADDED = bs.PaddedTime(0.2, 0.05, 0.002)
BUCKETS = bs.Buckets((64, 256, 1024, 20_000), 8, 5)


def sized(cv: float, rule: Any, service: Any, load: float, most: int = 20_000) -> bs.Scenario:
    """Return Poisson traffic of requests of mean size 80, at a load."""
    traffic = bs.Poisson(100).with_sizes(bs.Lognormal(80, cv, at_most=most))
    scenario = bs.Scenario(traffic, rule, service)
    return scenario.replace(rate_per_s=load * scenario.saturation_per_s)


ALONE, BATCHES = bs.SizeOrWait(1, 0), bs.SizeOrWait(8, 2)
UNITS = bs.SizeOrWait(8, 2, max_batch_units=20_000)
SCENARIOS = {
    "one by one, cv 1, load 0.9": sized(1, ALONE, PACKED, 0.9),
    "one by one, cv 2, load 0.8": sized(2, ALONE, PACKED, 0.8),
    "one by one, cv 3, load 0.5": sized(3, ALONE, PACKED, 0.5),
    "one by one, cv 5, load 0.8": sized(5, ALONE, PACKED, 0.8),
    "padded, cv 1, load 0.9": sized(1, BATCHES, PADDED, 0.9),
    "padded, cv 3, load 0.8": sized(3, BATCHES, PADDED, 0.8),
    "packed, cv 2, noise cv 1, load 0.8": sized(2, BATCHES, PACKED.with_noise(1), 0.8),
    "a limit in units, cv 2, load 0.9": sized(2, UNITS, PADDED, 0.9),
    "a limit in units, cv 5, load 0.5": sized(5, UNITS, PADDED, 0.5),
    "buckets, cv 2, load 0.8": sized(2, BUCKETS, PADDED, 0.8),
    "buckets, cv 5, load 0.8": sized(5, BUCKETS, PADDED, 0.8),
    "a sorted window, cv 2, load 0.8": sized(2, bs.SortedWindow(8, 5, 64), PADDED, 0.8),
    "a sorted window, cv 3, load 0.9": sized(3, bs.SortedWindow(8, 5, 64), PADDED, 0.9),
}


def in_runs(requests: int, seed: int, run: int) -> np.ndarray:
    """Return sizes of 40 or 360, in runs of geometric length, `run` on average."""
    random = np.random.default_rng([seed, run])
    lengths = random.geometric(1 / run, 2 * requests // run + 100)
    return np.repeat(random.choice([40, 360], lengths.size, p=[0.75, 0.25]), lengths)[:requests]


def heavy(requests: int, seed: int, run: int) -> np.ndarray:
    """Return independent sizes of cv 2; `run` is 1."""
    return bs.Lognormal(80, 2, at_most=20_000).quantile(np.random.default_rng([seed, run]).random(requests))


def traced(
    sizes: Any, run: int, rule: Any, service: Any, rate_per_s: float, requests: int, seed: int
) -> bs.Scenario:
    """Return a scenario whose traffic is a trace."""
    times_s = np.cumsum(np.random.default_rng([seed, 1]).exponential(1 / rate_per_s, requests))
    return bs.Scenario(bs.Trace(times_s).with_sizes(sizes(requests, seed, run)), rule, service)


def of_traces(sizes: Any, run: int, rule: Any, service: Any, load: float) -> dict[int, Case]:
    listed = Listed(sizes(4_000_000, 99, run), again=True)
    whole = bs.Scenario(bs.Poisson(100).with_sizes(listed), rule, service)
    whole = whole.replace(rate_per_s=load * whole.saturation_per_s)
    per_s = whole.workload.offered_per_s
    return {
        requests: Case(
            partial(traced, sizes, run, rule, service, per_s, requests), whole, lengths=(requests,)
        )
        for requests in LENGTHS
    }


TRACES = {
    f"trace, {name}, {requests:,}": case
    for name, which in {
        "sizes in runs of 20, one by one, load 0.8": (in_runs, 20, ALONE, PACKED, 0.8),
        "sizes in runs of 200, one by one, load 0.6": (in_runs, 200, ALONE, PACKED, 0.6),
        "sizes in runs of 100, padded, load 0.8": (in_runs, 100, BATCHES, PADDED, 0.8),
        "sizes of cv 2, one by one, load 0.7": (heavy, 1, ALONE, PACKED, 0.7),
    }.items()
    for requests, case in of_traces(*which).items()
}  # fmt: skip
CASES = {name: Case.of(each, lengths=LENGTHS) for name, each in SCENARIOS.items()}

_ONE, _PADDED = SCENARIOS["one by one, cv 2, load 0.8"], SCENARIOS["padded, cv 1, load 0.9"]
_UNITS, _SORTED = SCENARIOS["a limit in units, cv 2, load 0.9"], SCENARIOS["a sorted window, cv 2, load 0.8"]
PAIRS = {name: Pair(*each) for name, each in {
    "sizes of cv 2 at 0.8, then 0.78": (
        _ONE, _ONE.replace(rate_per_s=0.78 * _ONE.saturation_per_s), 200_000,
    ),
    "padded, then packed": (_PADDED, _PADDED.replace(service=bs.PackedTime(0.2, 0.05, 0.002)), 100_000),
    "20,000 units, then 10,000": (_UNITS, _UNITS.replace(max_batch_units=10_000), 200_000),
    "a window of 64, then 16": (_SORTED, _SORTED.replace(window=16), 200_000),
    "a wait of 5 ms, then none, in buckets": (
        SCENARIOS["buckets, cv 2, load 0.8"],
        SCENARIOS["buckets, cv 2, load 0.8"].replace(max_wait_ms=0), 200_000,
    ),
}.items()}  # fmt: skip
