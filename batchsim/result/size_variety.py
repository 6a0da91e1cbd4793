"""How much the sizes of requests vary the times of batches: a pilot run of the scenario measures it.

The rule decides which requests share a batch, so no formula covers all rules. The pilot run has no noise, and
its sizes are evenly spaced quantiles in a fixed random order. Most of the fourth moment of heavy-tailed sizes
lies beyond the largest of these: an integral over the tail replaces the batch that holds it.
"""

import functools
import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from batchsim.engines.kinds import KINDS
from batchsim.engines.log import Log
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.scenario.lengths import Lengths, Listed
from batchsim.scenario.sized_time import SizedTime, extra_s
from batchsim.scenario.trace import FEWEST, GROWN

PILOT, SLOW = 1 << 16, 1 << 12  # requests, and those of a rule that only SimPy runs
MOST = 1 << 20  # requests with listed sizes
SPAN_S = 4e6  # of a pilot run, for which the clock is exact
NODES = 256  # of the integral, from a chance of 1 / requests to the last one that floats tell from 0
LEAST = 1.2e-16


class SizeVariety(NamedTuple):
    """What sizes add to the variety of batches; by default nothing."""

    requests: float = 0.0  # in a batch
    dispersion: float = 0.0  # the variance of the work of many requests, over their number
    squared_cv: float = 0.0  # of the time of a batch
    surprise: float = 0.0  # the squared cv of its square
    run: float = 0.0  # requests in a run of alike sizes; 0 if neighbours are independent


@functools.lru_cache(maxsize=64)
def size_variety(scenario: Scenario) -> SizeVariety:
    """Return the variety of the batches of one replica.

    >>> from batchsim import Lognormal, PackedTime, Poisson, SizeOrWait
    >>> traffic = Poisson(20).with_sizes(Lognormal(1000, cv=1))
    >>> found = size_variety(Scenario(traffic, SizeOrWait(1, 0), PackedTime(0, 0, 0.02)))
    >>> round(found.squared_cv, 2), round(found.surprise)  # as of lognormal noise: 1 and 2**4 - 1
    (1.0, 15)
    """
    sizes, rule = scenario.workload.sizes, scenario.rule
    if sizes is None or not (isinstance(scenario.service, SizedTime) or rule.by_size):
        return SizeVariety()
    log = _pilot(scenario, sizes)
    if not log.batch_size.size:
        return SizeVariety()
    counts, seconds, weights = _with_tail(scenario, sizes, log)
    mean = functools.partial(np.average, weights=weights)
    # Batches of few requests are shorter, which is no variety. But a rule that reads sizes makes these of
    # large requests.
    of_request_s = mean(seconds) / mean(counts)
    times, usual_s = seconds, counts * of_request_s
    if not rule.by_size:
        usual_s = scenario.mean_s(int(counts.max()))[counts - 1]
        times = seconds / usual_s
    squares = times * times
    squared_cv, surprise = (
        mean(squares) / mean(times) ** 2 - 1,
        mean(squares * squares) / mean(squares) ** 2 - 1,
    )
    work = (seconds - usual_s) / of_request_s
    work -= counts * (mean(work) / mean(counts))
    dispersion, run = mean(work * work) / mean(counts), 0.0
    if isinstance(sizes, Listed):
        together, run = _in_runs(work, counts)
        dispersion = max(dispersion, together)
    return SizeVariety(float(mean(counts)), float(dispersion), float(squared_cv), float(surprise), run)


def _pilot(scenario: Scenario, sizes: Lengths) -> Log:
    """Return the log of one replica, with service times that nothing but sizes changes."""
    workload, compiled = scenario.workload, not scenario.one.uncovered
    if isinstance(workload, ClosedLoop):
        workload = replace(workload, clients=-(-workload.clients // scenario.most_replicas))
        per_s = workload.clients / workload.think_s if workload.think_s else math.inf
    else:
        per_s = workload.offered_per_s
    per_s = min(per_s, scenario.saturation_per_s)
    requests = max(PILOT, sizes.values.size) if isinstance(sizes, Listed) else PILOT
    limits = MOST if compiled else SLOW, workload.max_requests or MOST, 1 + int(min(SPAN_S * per_s, MOST))
    requests = min(requests, *limits)
    if not isinstance(sizes, Listed):
        spaced = np.random.default_rng(0).permutation(requests)
        sizes = Listed(sizes.quantile((spaced + 0.5) / requests), again=True)
    pilot = replace(
        scenario.one, workload=replace(workload, sizes=sizes), slowdown=None, devices=None, host_ms=0.0,
        contention=1.0, service=replace(scenario.service, noise=None, compile_ms=None),
    )  # fmt: skip
    kind = KINDS["requests"]
    return kind.run("compiled" if compiled else "simpy", kind.draw(pilot, requests, 0))


def _with_tail(
    scenario: Scenario, sizes: Lengths, log: Log
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return the number of requests of each batch, its seconds, and its weight.

    The batch with the largest request has the weight 0: others stand for it, with larger ones in its place.
    """
    counts, seconds = log.batch_size, log.batch_finish_s - log.batch_start_s
    weights = np.ones(counts.size)
    service, requests = scenario.service, log.arrival_s.size
    if isinstance(sizes, Listed) or not isinstance(service, SizedTime):
        return counts, seconds, weights
    assert log.size is not None
    computed = np.where(log.batch_index >= 0, scenario.cut(log.size), 0)
    place = int(log.batch_index[np.argmax(computed)])
    own = computed[log.batch_index == place]
    count, longest = own.size, int(own.max())
    total, squares = int(own.sum()) - longest, int((own**2).sum()) - longest**2
    chances = np.geomspace(1 / requests, LEAST, NODES + 1)
    larger = sizes.quantile(1 - np.sqrt(chances[1:] * chances[:-1]))
    larger = np.clip(larger, longest, max(scenario.longest, longest)).tolist()
    count_s, cost = service.count_s(count)[count], service.unit_cost(count)
    tail_s = [count_s + extra_s(count, s, total + s, squares + s * s, cost) for s in larger]
    weights[place] = 0.0
    return (
        np.append(counts, np.full(NODES, count)), np.append(seconds, tail_s),
        np.append(weights, -np.diff(chances) * requests),
    )  # fmt: skip


def _in_runs(work: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Return the dispersion of the work of batches one after the other, and the requests of a run of them.

    As the dispersion of a trace's arrivals: the variance over the number grows until a window holds whole
    runs.
    """
    found = [(0.0, 0.0)]
    while work.size >= FEWEST:
        surely = 1 + math.sqrt(2 / (work.size - 1))
        found.append((float(work.var() / counts.mean() / surely), float(counts.mean())))
        even = work.size // 2 * 2
        work, counts = (each[:even].reshape(-1, 2).sum(axis=1) for each in (work, counts))
    indices, requests = np.transpose(found)
    reached = int(np.argmax(indices >= GROWN * indices.max()))
    return float(indices.max()), float(requests[reached]) if reached > 1 else 0.0
