"""Paired comparisons of settings, and multiple comparisons with the best.

All settings of a search meet the same requests (common random numbers), so settings are compared section by
section of their runs: the randomness that they share cancels. The bounds here are one-sided, by Student's t
over 64, 32 or 16 sections (batch means), each at least as long as the memory of the queue, or half as many if
neighbours are alike.

A percentile is bounded by way of fractions, as in `result.shares.between_percentiles`: the fractions of
requests below both percentiles err, together in so far as the traffic is the same, and an ellipse holds the
pair of errors. The bound is the largest difference of the two percentiles on it. Where almost no request
differs, the spread of sections says nothing; then the bound is also that of a count of which none was seen.

Multiple comparisons with the best (MCB: Hsu 1984; under common random numbers, Nelson and Matejcik 1995):
if each of k - 1 bounds holds with probability 1 - a / (k - 1), all hold together with 1 - a (Bonferroni),
whatever their dependence. The largest bounds how far the chosen setting is above the best. That holds for a
choice that the same runs made: only the comparisons with the true best can break it (Hsu). Three things make
the 95 % nominal. Sections of one run are right for long runs, not exactly for any run. Which settings are
left out, as their bounds are wide, depends on the runs too, and is not corrected for. And a setting that a
test at 99.9 % showed to miss another objective is no rival. `make selection` counts how often the statement
holds. It is about the simulation: the model, its service times and its workload count as exact.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from batchsim import _format
from batchsim.result import Result
from batchsim.result.metrics import LATENCY, metric
from batchsim.result.run_length import CYCLES, TAIL, run_length
from batchsim.result.shares import students_t
from batchsim.result.standard_error import ONE_IN_FIVE, ROUNDING, dependent, widen
from batchsim.scenario import Scenario
from batchsim.study.slo import LEVEL, described

SECTIONS = (64, 32, 16)
DIRECTIONS = 64  # on an ellipse


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a run's requests in order, in ms: infinite if not served, NaN without a value.

    `memory`: the requests after which the scenario that the run represents has forgotten its state; infinite
    if the sections of the run are not alike.
    """

    ms: np.ndarray
    memory: float

    @property
    def steady(self) -> bool:
        """Whether the run has enough sections that are longer than its memory."""
        return self.lasts(1) and self.memory < math.inf

    def lasts(self, times: float) -> bool:
        """Return whether a run so many times as long would have enough such sections, or may have them."""
        memory = max(self.memory, 1.0) if self.memory < math.inf else 1.0
        return self.ms.size * times >= SECTIONS[-1] * memory

    @classmethod
    def of(cls, result: Result, column: str, scenario: Scenario) -> Self:
        """Return the values of a column, such as "latency_ms"."""
        measured, skip = result.run.measured, result.run.warmup_requests
        ms, latency_ms = (measured[column][skip:] for column in (column, LATENCY))
        ms = np.where(np.isnan(latency_ms), math.inf, ms)
        length = run_length(scenario)
        memory = max(length.relaxation, length.cycle / CYCLES, length.peak, length.turnover or 0.0)
        unlike = result.sample.partial or result.sample.drift
        return cls(ms, math.inf if unlike else memory)


def column_of(key: str) -> str:
    """Return the column that a metric is made of."""
    return metric(key).column or LATENCY


class Bound(NamedTuple):
    """By how much another setting is better than one, in ms: the estimate, and the most with confidence."""

    value: float
    most: float


def better_by(one: Values, other: Values, key: str, level: float) -> Bound:
    """Return by how much a metric of `other` is lower than that of `one`, with a one-sided bound.

    >>> rng = np.random.default_rng(1)
    >>> noise = rng.exponential(1, 20_000)
    >>> one, other = (Values(ms + noise, 1) for ms in (10, 10.2))
    >>> better_by(one, other, "p99_ms", 0.95).most < 0 < better_by(other, one, "p99_ms", 0.95).value
    True
    """
    from scipy.special import betaincinv, ndtr

    size, memory = one.ms.size, max(one.memory, other.memory, 1.0)
    if size != other.ms.size or size < SECTIONS[-1]:
        return Bound(math.nan, math.inf)
    count = next((count for count in SECTIONS if size >= count * memory), SECTIONS[-1])
    q, cuts = metric(key).q, np.linspace(0, size, count + 1).astype(int)[:-1]
    if q is None:
        if not (np.isfinite(one.ms).all() and np.isfinite(other.ms).all()):
            return Bound(math.nan, math.inf)
        apart = one.ms - other.ms
        sections = np.add.reduceat(apart, cuts) / np.diff(cuts, append=apart.size)
        return Bound(float(apart.mean()), float(apart.mean()) + _half(sections, level))
    mine, theirs = (np.sort(ms[~np.isnan(ms)]) for ms in (one.ms, other.ms))
    if not mine.size or not theirs.size:
        return Bound(math.nan, math.inf)
    least, errors, share = -math.log1p(-level) / size, [], q / 100
    for each, values in ((one, mine), (other, theirs)):
        limit_ms = _percentile(values, share)
        keeps = np.add.reduceat(each.ms <= limit_ms, cuts) * (count / values.size)
        errors.append(keeps - keeps.mean())
    if any(dependent(each, ONE_IN_FIVE) for each in errors):
        errors = [each.reshape(-1, 2).mean(axis=1) for each in errors]
    first, second = errors
    spreads = [math.sqrt(float((each**2).sum())) for each in errors]
    together = float((first * second).sum()) / (spreads[0] * spreads[1]) if all(spreads) else 0.0
    if np.array_equal(first, second):
        together = 1.0
    angles = np.linspace(0, 2 * math.pi, DIRECTIONS, endpoint=False)
    mixed = together * np.cos(angles) + math.sqrt(max(1 - together**2, 0)) * np.sin(angles)
    times, ends_ms = students_t(2 * level - 1, first.size), []
    for each, values, deviations in ((first, mine, np.cos(angles)), (second, theirs, mixed)):
        error = float(each.std(ddof=1) * widen(each) / math.sqrt(each.size))
        known = float(values.size if error == 0 else min(share * (1 - share) / error**2, values.size))
        known = min(known, values.size / memory) if 1 - share < TAIL else known
        fractions = betaincinv(known * share + 0.5, known * (1 - share) + 0.5, ndtr(times * deviations))
        ends_ms.append(_percentile(values, fractions))
    with np.errstate(invalid="ignore"):  # both may be infinite
        apart_ms = np.nan_to_num(ends_ms[0] - ends_ms[1], nan=math.inf, posinf=math.inf, neginf=-math.inf)
    value = float(_percentile(mine, share) - _percentile(theirs, share))
    unseen = float(_percentile(mine, share) - _percentile(theirs, max(share - least, 0.0)))
    return Bound(value, max(float(apart_ms.max()), unseen))


def _percentile(values: np.ndarray, shares: Any) -> Any:
    """Return the least of the sorted values that a share of them keeps."""
    places = np.ceil(np.asarray(shares) * values.size - ROUNDING).astype(int) - 1
    return values[np.clip(places, 0, values.size - 1)]


def _half(sections: np.ndarray, level: float) -> float:
    """Return how far a mean may be above the mean of its sections, at a one-sided level."""
    if dependent(sections, ONE_IN_FIVE):
        sections = sections.reshape(sections.size // 2, 2).mean(axis=1)
    spread = float(sections.std(ddof=1) * widen(sections) / math.sqrt(sections.size))
    return students_t(2 * level - 1, sections.size) * spread


@dataclass(frozen=True)
class Statement:
    """How far the chosen setting is above the best, with 95 % confidence for all comparisons together.

    The best has the lowest value of the metric `key` among `settings` settings, the chosen one included:
    those that cost as much (with so many `servers`, or `per_million` requests; None for any) and that no run
    showed to miss another objective. `within_ms` bounds the difference. `screened` more settings left the
    race in runs that bound it widely or not at all, and nothing is stated about them: any may be better. What
    the 95 % leave out: `batchsim.study.paired`.
    """

    key: str
    within_ms: float
    settings: int
    screened: int = 0
    servers: int | None = None
    level: float = LEVEL
    per_million: float | None = None

    def __str__(self) -> str:
        on = "" if self.servers is None else f" on {_format.counted(self.servers, 'server')}"
        if self.per_million is not None:
            on = f" at {_format.number(self.per_million)} per million requests"
        label = described(self.key)[0]
        few = f"{_format.counted(self.settings, 'setting')}{on}, {self.level:.0%} confidence"
        text = f"{label} is within {_format.number(self.within_ms, 2)} ms of the best of {few}"
        if self.settings < 2:
            text = f"the runs are too short to bound its distance to the best {label}{on}"
            text = text if self.screened else f"there is no other setting{on} to compare it with"
        elif self.within_ms == 0:
            text = f"{label} is the lowest of {few}"
        if self.screened and self.settings > 1:
            text += f" (short runs screened {self.screened:,} more, without such a bound)"
        return text
