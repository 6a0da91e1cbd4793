"""What the uncertainty of the inputs does to a choice: a measurement and a trace are samples.

Each draw replaces them by a bootstrap sample: service times that the measurement allows
(`measured.samples`), and blocks of the trace, drawn with replacement. The choice and its nearest rivals run
on each draw, briefly. Only the ratio to the median of all draws counts, and multiplies the
number of the long run: the median stands for the given inputs, and what all runs share cancels. The blocks
are fewer than the trace has, which spreads the ratios too far; their logarithms shrink by the root of the
fraction (the m-out-of-n bootstrap). The ratios also have the randomness of short runs, which widens the
range; dependence that is longer than a block is lost, which narrows it. The range is that of the draws, and
no confidence interval.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim import _format
from batchsim.measured.measurement import Measured
from batchsim.measured.samples import services
from batchsim.scenario import Scenario, Trace
from batchsim.study.candidate import Candidate, by_rank
from batchsim.study.judgement import recorded
from batchsim.study.search import Job, Search, tried
from batchsim.study.slo import LEVEL, described

DRAWS = 20
COST = 0.5  # of the requests of the search, at most
RIVALS = 2  # other settings that are drawn as well, the best of the search
SHORTEST = 800  # requests of a draw
BLOCKS = 16  # of a trace, in a draw
SAME = 0.05  # of the latency: a rival may be better by this, as short runs err


@dataclass(frozen=True)
class InputUncertainty:
    """What `draws` of other inputs, bootstrap samples of the given ones, do to a choice.

    In `met` of them the estimates of the choice meet the objective; in `best` of them none of the `rivals`,
    the nearest settings, is better by more than `zone_ms`, 5 % of the latency.
    `low` and `high`: the least and the most of the metric `key` among the draws, in ms. `inputs`: what was
    drawn, such as "service times".
    """

    inputs: str
    draws: int
    met: int
    best: int
    rivals: int
    key: str
    low: float
    high: float
    zone_ms: float

    def __str__(self) -> str:
        label, unit, _ = described(self.key)
        low, high = (_format.number(each) for each in (self.low, self.high))
        drawn = f"with {self.draws} bootstrap samples of the {self.inputs}"
        text = f"{drawn}, {label} is {low} to {high}{unit}: it meets the objective in {self.met}"
        if self.rivals:
            near = f"{_format.number(self.zone_ms, 2)} ms of the best of {self.rivals + 1} settings"
            text += f", and stays within {near} in {self.best}"
        return text


def uncertainty(
    search: Search, chosen: Candidate, rivals: Sequence[Candidate], measurement: Measured | None, draws: int
) -> InputUncertainty | None:
    """Return what other inputs do to the choice; None if the inputs are no samples."""
    trace = isinstance(chosen.scenario.workload, Trace)
    kinds = [*(["service times"] if measurement else []), *(["traffic"] if trace else [])]
    if not kinds or not draws:
        return None
    near = by_rank(each for each in rivals if each.scenario.stable and each.full.requests)
    full, budget = search.traffic.requests, COST * search.traffic.simulated / (draws * len(kinds))
    several = [chosen, *near[: min(max(int(budget / SHORTEST) - 1, 0), RIVALS)]]
    requests = min(max(int(budget / len(several)), SHORTEST), full)
    if recorded(search.traffic.scenario) and not trace:  # a part of a day is like no other
        requests = full
    logs, excess = np.zeros((draws, len(several))), np.zeros(draws)
    search.crew.begin("bootstrap samples of the inputs", draws * len(several) * len(kinds))
    for kind in kinds:
        if kind == "traffic":
            jobs, shrink = _of_traffic(search, several, requests, draws), math.sqrt(requests / full)
        else:
            assert measurement is not None
            jobs, shrink = _of_service(search, several, requests, draws, measurement), 1.0
        points = [*jobs]
        found = [*search.crew.map(tried, ((job, search.slo, ()) for _, job in points))]
        search.traffic.count(requests * len(found))
        stable = [point.stable for point, _ in points]
        ms = [each.latency.value if steady else math.inf for each, steady in zip(found, stable, strict=True)]
        excesses = [each.judgement.excess for each in found]
        with np.errstate(divide="ignore", invalid="ignore"):  # of zero or infinity
            of_ms, of_excess = (np.log(np.array(each).reshape(draws, -1)) for each in (ms, excesses))
            logs += shrink * (of_ms - np.median(of_ms, axis=0))
            excess += shrink * (of_excess - np.median(of_excess, axis=0))[:, 0]
    value_ms = chosen.last.latency.value
    lower_ms = [0.0, *(search.bound(chosen, each, LEVEL).value for each in several[1:])]
    together = np.exp(logs) * (value_ms - np.nan_to_num(lower_ms))
    zone_ms = SAME * value_ms
    best = int((together[:, 0] <= together.min(axis=1) + zone_ms).sum())
    met = int((chosen.last.judgement.excess * np.exp(excess) <= 1).sum())
    drawn_ms = value_ms * np.exp(logs[:, 0])
    low, high, key = float(drawn_ms.min()), float(drawn_ms.max()), search.slo.latency.key
    return InputUncertainty(" and ".join(kinds), draws, met, best, len(several) - 1, key, low, high, zone_ms)


def _of_service(
    search: Search, several: Sequence[Candidate], requests: int, draws: int, measurement: Measured
) -> Iterator[tuple[Scenario, Job]]:
    """Yield runs with service times that the measurement allows."""
    workload = search.traffic.scenario.workload
    if isinstance(workload, Trace):
        starts = np.linspace(0, search.traffic.requests, BLOCKS, endpoint=False).astype(np.int64)
        workload, rate_per_s = _blocks(workload, starts, requests), workload.offered_per_s
        if all(0 < rate < math.inf for rate in (rate_per_s, workload.offered_per_s)):
            workload = workload.with_rate(rate_per_s)
    for service in services(measurement, draws, search.traffic.seed):
        for each in several:
            own = each.scenario.service
            noise = None if own.noise is None else service.noise
            point = each.scenario.replace(service=replace(service, noise=noise, padding=own.padding))
            yield point, search.traffic.job(point.replace(workload=workload), requests)


def _of_traffic(
    search: Search, several: Sequence[Candidate], requests: int, draws: int
) -> Iterator[tuple[Scenario, Job]]:
    """Yield runs with blocks of the trace, drawn with replacement."""
    generator = np.random.default_rng(np.random.SeedSequence(search.traffic.seed, spawn_key=(draws,)))
    last = search.traffic.requests - math.ceil(requests / BLOCKS)
    for _ in range(draws):
        drawn = _blocks(search.traffic.scenario.workload, generator.integers(last + 1, size=BLOCKS), requests)
        for each in several:
            yield each.scenario, search.traffic.job(each.scenario.replace(workload=drawn), requests)


def _blocks(trace: Any, starts: np.ndarray, requests: int) -> Trace:
    """Return so many requests of a trace, in blocks from some places on."""
    sizes = np.diff(np.linspace(0, requests, BLOCKS + 1).astype(np.int64))
    places = np.concatenate([start + np.arange(size) for start, size in zip(starts, sizes, strict=True)])
    gaps_s, of_sizes = np.diff(trace.times_s, prepend=0.0)[places], {}
    if trace.sizes_listed is not None:
        of_sizes = {"sizes": trace.sizes_listed[places]}
    return Trace(np.cumsum(gaps_s), **{**trace.of_requests, **of_sizes})
