"""From a scenario to everything that the picture shows: a run, its heat map, its load curve."""

import contextvars
import functools
import math
import os
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor
from typing import Any

import numpy as np

from batchsim._check import LARGEST
from batchsim._format import as_typed
from batchsim._workers import threads
from batchsim.scenario import ClosedLoop, Continuous, Scenario
from batchsim.scenario.full_batches import mean_seconds
from batchsim.scenario.knobs import RATE
from batchsim.scenario.lengths import Lengths
from batchsim.scenario.tokens import a_request
from batchsim.simulate import simulated
from batchsim.study.kinds import MEMORY, accepted
from batchsim.study.surface import (
    FEW_REQUESTS,
    Surface,
    load_curve,
    load_rates,
    map_requests,
    steady,
    surface,
)
from batchsim.theory.expected import theory_curve
from batchsim.view.pictures.data import ViewData
from batchsim.view.scales import nice

# Requests of each point of the load curve, and with replicas, if the beginning of the traffic is typical.
CURVE_REQUESTS = (50_000, 10_000)
COLUMNS = 12  # the most columns of the heat map, unless there are more powers of two
WAITS = (0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5)  # rows, as parts of the longest wait
# Requests of a run of tokens, its map and its curve while a slider moves, and in a browser of any map.
MOVING = 2000
TOKEN_AXES: dict[str, tuple[float, ...]] = {
    "max_num_seqs": (4, 8, 16, 24, 32, 48, 64, 96, 128, 256),
    "max_num_batched_tokens": (128, 256, 512, 768, 1024, 1536, 2048, 4096, 8192, 16_384),
    "max_batch_size": (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256),
    "min_batch_size": (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256),
    "max_wait_ms": (0, 100, 200, 500, 1000, 2000, 3000, 5000, 10_000, math.inf),
}
UNITS = "max_batch_units"
MEMORIES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 256)  # rows, as requests of mean length that fit


class Stored:
    """The heat maps and curves that an explorer computed last, as a slider goes back and forth."""

    LARGEST = 32

    def __init__(self) -> None:
        self.values: dict[Hashable, Any] = {}  # the least recently made first

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value of a key, made if it is missing."""
        if key not in self.values:
            made = make()
            while len(self.values) >= self.LARGEST:
                self.values.pop(next(iter(self.values)))
            self.values[key] = made
        return self.values[key]

    def begin(self, key: Hashable, make: Callable[[], Any]) -> Callable[[], Any]:
        """Begin to make a missing value on another thread; return what waits for it.

        Its loops release Python's lock, so the run itself is computed meanwhile. Not so the first time, when
        the loops are compiled.
        """
        if self.values and key not in self.values:
            make = thread("curve").submit(contextvars.copy_context().run, make).result
        return lambda: self.get(key, make)


def thread(work: str) -> Executor:
    """Return this process's thread for a kind of work."""
    return _thread(work, os.getpid())


@functools.cache
def _thread(work: str, _: int) -> Executor:
    """Return the thread of a process; after a fork, the parent's pool has no thread."""
    return threads(1, f"batchsim-{work}")


def standing_for(scenario: Scenario, knobs: Mapping[str, Any]) -> Scenario:
    """Return a scenario with knobs set, the same for all that differ only in them; as it is, if it refuses.

    Some refuse a load of 1, such as a batch size that needs more clients: their curve is for one load only.
    """
    one: Scenario | None = accepted(lambda: scenario.replace(knobs))
    return one or scenario


def lacks_others(scenario: Scenario) -> bool:
    """Return whether only the run itself is shown: others would take minutes, or lack a rate."""
    workload = scenario.workload
    has_rate = isinstance(workload, ClosedLoop) or 0 < workload.offered_per_s < math.inf
    too_large = scenario.tokens is None and not scenario.full_batches_per_s  # all exceed a limit in units
    return bool(scenario.uncovered) or not has_rate or too_large


def run(
    scenario: Scenario, requests: int, seed: int, stored: Stored, knobs: tuple[str, str] | None = None,
    moving: bool = False, metric: str = "latency", **objectives_ms: float | None,
) -> ViewData:  # fmt: skip
    """Run a scenario, its load curve, and its heat map over `knobs`, by default its rule's own.

    `metric`: of the map, "latency" or "joules". A run of tokens, and a new map, have fewer requests while
    `moving`. The objectives are fields of `ViewData`. ValueError if the scenario makes no sense.
    """
    workload, whole = scenario.workload, scenario.tokens is None
    if lacks_others(scenario):  # not long
        count = min(requests, FEW_REQUESTS) if whole else requests
        data = ViewData(simulated(scenario, count, seed)[0], **objectives_ms)  # type: ignore[arg-type]
    else:
        requests = min(requests, MOVING) if moving and not whole else requests
        is_long = whole and steady(workload)
        count = min(requests, CURVE_REQUESTS[scenario.replicas > 1]) if is_long else requests
        load = "clients" if isinstance(workload, ClosedLoop) else RATE
        key = "curve", standing_for(scenario, {load: 1}), count, seed
        curve = stored.begin(key, lambda: load_curve(scenario, count, seed))
        theory = None
        if whole and not isinstance(workload, ClosedLoop):
            rates, _ = load_rates(scenario)
            theory = theory_curve(scenario, np.union1d(rates, workload.offered_per_s))
        result, _ = simulated(scenario, requests, seed)
        found = heat_map(scenario, requests, seed, stored, knobs, moving, metric, objectives_ms)
        data = ViewData(result, curve=curve(), theory=theory, surface=found, **objectives_ms)  # type: ignore[arg-type]
    assert data.summary  # a loop that the numbers need is compiled before anything is drawn
    return data


def heat_map(
    scenario: Scenario, requests: int, seed: int, stored: Stored, knobs: tuple[str, str] | None, moving: bool,
    metric: str, objectives_ms: Mapping[str, float | None],
) -> Surface | None:  # fmt: skip
    """Return the heat map; None if a limit in units is on it and requests have none."""
    x, y = knobs or scenario.rule.map_knobs
    options: dict[str, Any] = {
        "metric": metric if metric == "joules" and scenario.watts is not None else None
    }
    if scenario.tokens is None:
        requests = map_requests(scenario, requests)
        if scenario.workload.sizes is None and UNITS in (x, y):
            return None
    else:
        both = objectives_ms.get("ttft_ms"), objectives_ms.get("tpot_ms")
        ttft_ms, tpot_ms = (None, None) if None in both else both  # one alone is no goodput
        options |= {"ttft_objective_ms": ttft_ms, "tpot_objective_ms": tpot_ms, "roughly": moving}
    xs, ys = axis(scenario, x), axis(scenario, y)
    corner = standing_for(scenario, {x: xs[-1], y: ys[-1]})
    of = "map", corner, x, xs, y, ys, seed, *options.values()
    if moving and (*of, requests) not in stored.values:
        requests = min(requests, MOVING)
    new: Surface = stored.get(
        (*of, requests), lambda: surface(scenario, xs, ys, requests, seed, knobs=(x, y), **options)
    )
    return new


def usual_longest(sizes: Lengths) -> float:
    """Return the size that one in 1,000 requests exceeds."""
    return float(sizes.quantile(np.array([0.999]))[0])


def limits(of: Lengths) -> tuple[int, ...]:
    """Return the heat map's limits in units, from the size of a large request on.

    >>> from batchsim import Lognormal
    >>> limits(Lognormal(80, cv=1, at_most=512))
    (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)
    """
    return tuple(round(count * usual_longest(of)) for count in sizes(64))


# The heat map's axes.


def axis(scenario: Scenario, name: str) -> tuple[Any, ...]:
    """Return the heat map's values of a parameter of a scenario's rule, rising.

    >>> from batchsim import Poisson, StepTime, Tokens
    >>> scenario = Scenario(Poisson(8), Continuous(), StepTime(7, 10, 0.1), tokens=Tokens(512, 128))
    >>> axis(scenario, "kv_blocks")
    (400, 500, 800, 1000, 1500, 2000, 3000, 4000, 6000, 12000)
    """
    rule, service, tokens = scenario.rule, scenario.service, scenario.tokens
    if tokens is not None and name in TOKEN_AXES:
        return TOKEN_AXES[name]
    if tokens is not None and name == MEMORY and isinstance(rule, Continuous):
        blocks = a_request(tokens) / rule.block_size
        return tuple(sorted({max(int(nice(blocks * count)), 1) for count in MEMORIES}))
    if name == UNITS and scenario.workload.sizes is not None:
        return limits(scenario.workload.sizes)
    largest = int(min(service.largest_batch, max(64, rule.max_batch_size)))
    if name.endswith("batch_size"):
        return sizes(largest)
    parameter = rule.parameters()[name]
    if name.endswith("_ms"):
        slowest_s = mean_seconds(service, scenario.workload.sizes, min(largest, 64))[-1]
        longest_ms = min(nice(4000 * float(slowest_s)), LARGEST)
        return waits(longest_ms)[: None if parameter.may_be_inf else -1]
    if parameter.slider is None:
        raise ValueError(f"a parameter on a heat map must have a slider, got {name}")
    low, high, step = parameter.slider
    places = {round(part * (high - low) / step) for part in np.linspace(0, 1, COLUMNS)}
    values = (as_typed(low + place * step) for place in sorted(places))
    return tuple(int(value) if parameter.type == "whole" else value for value in values)


def sizes(largest: int) -> tuple[int, ...]:
    """Return the heat map's batch sizes: powers of two, and values between them if there is room.

    >>> sizes(64)
    (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    >>> sizes(100)
    (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100)
    """
    powers = [1 << n for n in range(largest.bit_length())]
    between = [3 << n for n in range(largest.bit_length()) if 1.25 * (3 << n) <= largest]
    room = max(COLUMNS - len({*powers, largest}), 0)
    return tuple(sorted({*powers, *between[max(len(between) - room, 0) :], largest}))


def waits(longest_ms: float) -> tuple[float, ...]:
    """Return the heat map's waits in ms, the last for full batches only.

    >>> waits(100)
    (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, inf)
    """
    return (*(float(f"{part * longest_ms:.6g}") for part in WAITS), float("inf"))
