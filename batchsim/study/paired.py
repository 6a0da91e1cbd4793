"""Comparisons of settings: paired, with the best of many, and which to take of those that do not differ.

All settings of a search meet the same requests (common random numbers), so settings are compared section by
section of their runs: the randomness that they share cancels. The bounds here are one-sided, by Student's t
over 64, 32 or 16 sections (batch means), each at least as long as the memory of the queue, or half as many if
neighbours are alike.

A percentile is bounded by way of fractions, as in `result.shares.between_percentiles`: the fractions of
requests below both percentiles err, together in so far as the traffic is the same, and an ellipse holds the
pair of errors. The bound is the largest difference of the two percentiles on it. Where almost no request
differs, the spread of sections says nothing; then the bound is also that of an event that did not occur.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from batchsim import _format
from batchsim._compat import reduceat
from batchsim.result import Result
from batchsim.result.metrics import LATENCY, metric
from batchsim.result.run_length import CYCLES, TAIL
from batchsim.result.shares import students_t
from batchsim.result.standard_error import ONE_IN_FIVE, ROUNDING, Spread
from batchsim.scenario import Rule
from batchsim.study.slo import LEVEL, described

SECTIONS = (64, 32, 16)
DIRECTIONS = 64  # on an ellipse
TOP = 10  # times the values above a percentile: those that the ends of its interval may reach
MOST = 100_000  # of these values; of more, every second or third and so on: a search has many runs


@dataclass(frozen=True, eq=False)
class Values:
    """The numbers of a run that comparisons of a metric need: those of its sections and at a percentile.

    `memory`: the requests after which the scenario has forgotten its state; infinite if the sections of the
    run are not alike. `share`: that of a percentile; None for a mean. `sections`: the mean of each of 64
    sections, or the fraction of all values that are in it and up to the percentile, times 64. `top`: the
    highest of `count` sorted values, ten times the number above the percentile. A long run keeps only one in
    `every` two or three of them.
    """

    size: int
    memory: float
    share: float | None
    value: float
    sections: np.ndarray
    top: np.ndarray
    count: int
    every: int = 1

    @classmethod
    def of(cls, result: Result, key: str) -> Self:
        """Return those of a run, in which requests that were not served are infinitely late."""
        measured, skip = result.run.measured, result.run.warmup_requests
        ms, latency_ms = (measured[column][skip:] for column in (metric(key).column or LATENCY, LATENCY))
        length = result.sample.length
        assert length is not None
        memory = max(length.relaxation, length.cycle / CYCLES, length.peak, length.turnover or 0.0)
        unlike = result.sample.partial or result.sample.drift
        return cls.of_ms(np.where(np.isnan(latency_ms), math.inf, ms), math.inf if unlike else memory, key)

    @classmethod
    def of_ms(cls, ms: np.ndarray, memory: float, key: str) -> Self:
        """Return those of the values of requests in order, in ms; NaN for a request without one."""
        q, cuts = metric(key).q, np.linspace(0, ms.size, SECTIONS[0] + 1).astype(np.int64)[:-1]
        known = ms[~np.isnan(ms)]
        if ms.size < SECTIONS[0] or not known.size:
            return cls(0, memory, None, math.nan, np.empty(0), known, 0)
        if q is None:
            means = reduceat(np.add, ms, cuts) / np.diff(cuts, append=ms.size)
            return cls(ms.size, memory, None, float(ms.mean()), means, np.empty(0), ms.size)
        least = max(int((1 - TOP * (1 - q / 100)) * known.size), 0)
        top = np.sort(np.partition(known, least)[least:])
        value = float(top[_place(q / 100, known.size) - least])
        kept = reduceat(np.add, ms <= value, cuts) * (SECTIONS[0] / known.size)
        every = math.ceil(top.size / MOST)
        return cls(ms.size, memory, q / 100, value, kept, top[::-every][::-1].copy(), known.size, every)

    @property
    def steady(self) -> bool:
        """Whether the run has enough sections that are longer than its memory."""
        return self.size >= SECTIONS[-1] * max(self.memory, 1.0)

    def at(self, shares: Any) -> Any:
        """Return the least of the values that a share of them keeps."""
        above = self.count - 1 - _place(shares, self.count)
        return self.top[np.clip(self.top.size - 1 - above // self.every, 0, None)]


def _place(shares: Any, size: int) -> Any:
    """Return the place of the least of so many sorted values that a share of them keeps."""
    return np.clip(np.ceil(np.asarray(shares) * size - ROUNDING).astype(np.int64) - 1, 0, size - 1)


class Bound(NamedTuple):
    """By how much another setting is better than one, in ms: the estimate, and the most with confidence."""

    value: float
    most: float


def better_by(one: Values, other: Values, level: float) -> Bound:
    """Return by how much a metric of `other` is lower than that of `one`, with a one-sided bound.

    >>> rng = np.random.default_rng(1)
    >>> noise = rng.exponential(1, 20_000)
    >>> one, other = (Values.of_ms(ms + noise, 1, "p99_ms") for ms in (10, 10.2))
    >>> better_by(one, other, 0.95).most < 0 < better_by(other, one, 0.95).value
    True
    """
    from scipy.special import betaincinv, ndtr

    if one.size != other.size or not one.size:
        return Bound(math.nan, math.inf)
    memory, share = max(one.memory, other.memory, 1.0), one.share
    count = next((count for count in SECTIONS if one.size >= count * memory), SECTIONS[-1])
    first, second = (each.sections.reshape(count, -1).mean(axis=1) for each in (one, other))
    if share is None:
        if not math.isfinite(one.value + other.value):
            return Bound(math.nan, math.inf)
        apart_ms = one.value - other.value
        return Bound(apart_ms, apart_ms + _half(first - second, level))
    first, second = first - first.mean(), second - second.mean()
    both, spread = _independent(np.array([first, second]))
    first, second = both
    squares = math.sqrt(float((first**2).sum() * (second**2).sum()))
    together = float((first * second).sum()) / squares if squares else 0.0
    if np.array_equal(first, second):
        together = 1.0
    angles = np.linspace(0, 2 * math.pi, DIRECTIONS, endpoint=False)
    mixed = together * np.cos(angles) + math.sqrt(max(1 - together**2, 0)) * np.sin(angles)
    times, ends_ms = students_t(2 * level - 1, first.size), []
    widening = spread.widening[:, 0].tolist()
    for each, run, wider, deviations in zip(
        both, (one, other), widening, (np.cos(angles), mixed), strict=True
    ):
        error = float(each.std(ddof=1) * wider / math.sqrt(each.size))
        known = float(run.count if error == 0 else min(share * (1 - share) / error**2, run.count))
        known = min(known, run.count / memory) if 1 - share < TAIL else known
        fractions = betaincinv(known * share + 0.5, known * (1 - share) + 0.5, ndtr(times * deviations))
        ends_ms.append(run.at(fractions))
    least = -math.log1p(-level) / one.size
    with np.errstate(invalid="ignore"):  # both may be infinite
        apart = np.nan_to_num(ends_ms[0] - ends_ms[1], nan=math.inf, posinf=math.inf, neginf=-math.inf)
        value, unseen = np.subtract(one.value, [other.value, other.at(max(share - least, 0.0))])
    return Bound(float(value), max(float(apart.max()), float(unseen)))


def _independent(rows: np.ndarray) -> tuple[np.ndarray, Spread]:
    """Return rows of sections and their spread; of pairs of sections if neighbours in any row are alike."""
    spread = Spread.of(rows, [rows.shape[1]])
    if spread.resembles(ONE_IN_FIVE).any():
        rows = rows.reshape(len(rows), -1, 2).mean(axis=2)
        spread = Spread.of(rows, [rows.shape[1]])
    return rows, spread


def _half(sections: np.ndarray, level: float) -> float:
    """Return how far a mean may be above the mean of its sections, at a one-sided level."""
    rows, spread = _independent(sections[np.newaxis])
    error = float(rows.std(ddof=1) * spread.widening.item() / math.sqrt(rows.size))
    return students_t(2 * level - 1, rows.size) * error


@dataclass(frozen=True)
class Statement:
    """How far the chosen setting is above the best, with 95 % confidence for all comparisons together.

    The best has the lowest value of the metric `key` among `settings` settings, the chosen one included:
    those that cost as much (`servers`, or `per_million` requests, or `joules` a request; None for any) and
    that no run showed to miss another objective. `within_ms` bounds the difference. `screened` of these
    settings ran a tenth of the requests only, as that showed them to be slower. Nothing is stated about
    `left_out` more, whose bound is wide or unknown: any may be better. What the 95 % leave out:
    `batchsim.study.paired`.
    """

    key: str
    within_ms: float
    settings: int
    left_out: int = 0
    screened: int = 0
    servers: int | None = None
    level: float = LEVEL
    per_million: float | None = None
    joules: float | None = None

    def __str__(self) -> str:
        on = "" if self.servers is None else f" on {_format.counted(self.servers, 'server')}"
        if self.per_million is not None:
            on = f" at {_format.number(self.per_million)} per million requests"
        if self.joules is not None:
            on = f" at {_format.number(self.joules)} J a request"
        label = described(self.key)[0]
        few = f"{_format.counted(self.settings, 'setting')}{on}, {self.level:.0%} confidence"
        text = f"{label} is within {_format.number(self.within_ms, 2)} ms of the best of {few}"
        if self.settings < 2:
            text = f"the runs are too short to bound its distance to the best {label}{on}"
            return text if self.left_out else f"there is no other setting{on} to compare it with"
        if self.within_ms == 0:
            text = f"{label} is the lowest of {few}"
        notes = [f"a tenth of the requests screened {self.screened:,} of them"] if self.screened else []
        if self.left_out:
            notes.append(f"the runs are too short for such a bound of {self.left_out:,} more")
        return f"{text} ({'; '.join(notes)})" if notes else text


# Among settings that do not differ.

SAME = "the same saturation rate and mean"  # then the first in the grid is taken
Order = tuple[float, float, float]
ADVANTAGES = (
    "more headroom (saturation {}/s, not {}/s)", "a lower mean latency ({} ms, not {})",
    "a shorter wait ({} ms, not {})",
)  # fmt: skip
CELL_SECTIONS = 16  # of the runs of a map; its cells are compared by their counts in each
NEAR = 1.2  # times the lowest loss: cells above it are not compared


def preference(saturation_per_s: float, mean_latency_ms: float, max_wait_ms: float) -> Order:
    """Return the sort key of a setting among others of the same latency: the smallest is taken.

    Headroom comes first, because a latency met today is missed once the load nears saturation. The mean
    latency is next, because every request pays it, then the shorter wait. Values that agree to four digits
    are equal, so that neither rounding nor a few requests at the end of a run decide.

    >>> settings = {"of 4, 5 ms": (753, 6.4, 5), "of 32, no wait": (1421, 6.9, 0)}
    >>> min(settings, key=lambda name: preference(*settings[name]))
    'of 32, no wait'
    """
    mean_ms = math.inf if math.isnan(mean_latency_ms) else mean_latency_ms
    return -float(f"{saturation_per_s:.4g}"), float(f"{mean_ms:.4g}"), max_wait_ms


def advantage(chosen: Order, other: Order) -> str:
    """Return why the chosen setting is better than another, given both sort keys; "" if they are equal.

    >>> advantage(preference(1421, 6.9, 0), preference(753, 6.4, 5))
    'more headroom (saturation 1,421/s, not 753/s)'
    """
    for text, mine, others in zip(ADVANTAGES, chosen, other, strict=True):
        if mine != others:
            return text.format(_format.number(abs(mine), 4), _format.number(abs(others), 4))
    return ""


def settle(
    rules: Sequence[Rule | None], losses: np.ndarray,
    compare: Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]],
    saturation_per_s: Callable[[int], float],
) -> tuple[np.ndarray, int | None]:  # fmt: skip
    """Return which cells of a map tie with the one of the lowest loss, and which of them to take.

    `losses`: inf for a cell without a steady state. `compare(cells, loss)` returns, for some cells, how many
    requests of each section did worse than the loss, shape (cells, sections), and their mean latencies in ms.
    All cells met the same requests, so the differences are paired: two cells tie if the 95 % interval of
    their mean difference (Student's t over the sections) contains 0.
    """
    first = int(np.argmin(losses))
    if not losses[first] < math.inf:
        return np.empty(0, np.int64), None
    near = np.flatnonzero(losses <= NEAR * losses[first])
    worse, mean_ms = compare(near, float(losses[first]))
    difference = worse - worse[near == first]
    half = students_t(LEVEL, CELL_SECTIONS) * difference.std(axis=1, ddof=1) / math.sqrt(CELL_SECTIONS)
    tied = np.flatnonzero(np.abs(difference.mean(axis=1)) <= half)

    def order(place: int) -> Order:
        rule = rules[near[place]]
        assert rule is not None
        return preference(saturation_per_s(int(near[place])), float(mean_ms[place]), rule.max_wait_ms)

    return near[tied], int(near[min(tied.tolist(), key=order)])
