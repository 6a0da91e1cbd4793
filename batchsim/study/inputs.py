"""What the uncertainty of the inputs does to a choice: a measurement and a trace are samples.

Each draw replaces them by a bootstrap sample: service times that the measurement allows
(`measured.resampled`), and blocks of the trace, drawn with replacement. The choice and its nearest rivals run
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

import numpy as np

from batchsim import _format
from batchsim.measured.measurement import Measured
from batchsim.measured.resampled import services
from batchsim.scenario import Scenario, Trace
from batchsim.study.candidate import Candidate
from batchsim.study.race import SHORTEST, Race, screened
from batchsim.study.slo import described
from batchsim.study.traffic import Job

DRAWS = 20
COST = 0.5  # of the requests of the search, at most
RIVALS = 2  # other settings that are drawn as well, the best of the race
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
    race: Race, chosen: Candidate, rivals: Sequence[Candidate], measurement: Measured | None, draws: int
) -> InputUncertainty | None:
    """Return what other inputs do to the choice; None if the inputs are no samples."""
    trace = isinstance(chosen.scenario.workload, Trace)
    kinds = [*(["service times"] if measurement else []), *(["traffic"] if trace else [])]
    if not kinds or not draws:
        return None
    near = [each for each in rivals if each.scenario.stable and each.runs]
    full, budget = race.search.requests, COST * race.search.simulated / (draws * len(kinds))
    rivals = sorted(near, key=lambda each: (-max(each.runs), each.rank))
    several = [chosen, *rivals[: min(max(int(budget / SHORTEST) - 1, 0), RIVALS)]]
    requests = min(max(int(budget / len(several)), SHORTEST), full)
    logs, excess = np.zeros((draws, len(several))), np.zeros(draws)
    for kind in kinds:
        if kind == "traffic":
            jobs, shrink = _of_traffic(race, several, requests, draws), math.sqrt(requests / full)
        else:
            assert measurement is not None
            jobs, shrink = _of_service(race, several, requests, draws, measurement), 1.0
        points = [*jobs]
        calls = ((job, race.slo, point, False) for point, job in points)
        found = [*race.crew.map(screened, calls)]
        stable = [point.stable for point, _ in points]
        ms = [each.latency.value if steady else math.inf for each, steady in zip(found, stable, strict=True)]
        worst = [
            each.judgement.excess if steady else math.inf for each, steady in zip(found, stable, strict=True)
        ]
        with np.errstate(divide="ignore", invalid="ignore"):
            of_ms, of_excess = (np.log(np.reshape(each, (draws, -1))) for each in (ms, worst))
            logs += shrink * (of_ms - np.median(of_ms, axis=0))
            excess += shrink * (of_excess - np.median(of_excess, axis=0))[:, 0]
    key, lower_ms = race.slo.latency.key, [0.0]
    for each in several[1:]:
        common = max(n for n in chosen.runs if n in each.runs)
        lower_ms.append(race.bound(chosen, each, common).value)
    raced = np.exp(logs) * (chosen.latency.value - np.nan_to_num(lower_ms))
    zone_ms = SAME * chosen.latency.value
    best = int((raced[:, 0] <= raced.min(axis=1) + zone_ms).sum())
    met = int((chosen.judgement.excess * np.exp(excess) <= 1).sum())
    drawn_ms = chosen.latency.value * np.exp(logs[:, 0])
    low, high = float(drawn_ms.min()), float(drawn_ms.max())
    return InputUncertainty(" and ".join(kinds), draws, met, best, len(several) - 1, key, low, high, zone_ms)


def _of_service(
    race: Race, several: Sequence[Candidate], requests: int, draws: int, measurement: Measured
) -> Iterator[tuple[Scenario, Job]]:
    """Yield runs with service times that the measurement allows."""
    for service in services(measurement, draws, race.search.seed):
        for each in several:
            own = each.scenario.service
            noise = None if own.noise is None else service.noise
            point = each.scenario.replace(service=replace(service, noise=noise, padding=own.padding))
            yield point, race.search.job(point, requests)


def _of_traffic(
    race: Race, several: Sequence[Candidate], requests: int, draws: int
) -> Iterator[tuple[Scenario, Job]]:
    """Yield runs with blocks of the trace, drawn with replacement."""
    generator = np.random.default_rng(np.random.SeedSequence(race.search.seed, spawn_key=(draws,)))
    for _ in range(draws):
        traffic = race.search.redrawn(requests, generator)
        for each in several:
            yield each.scenario, traffic.job(each.scenario, requests)
