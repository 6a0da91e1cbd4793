"""Repeated times of batches: which are quiet, how well their median is known, and how long noise lasts."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

FEWEST = 8  # samples: of fewer, none is called disturbed
FEWEST_OF_TWO = 12  # samples: of fewer, none are called two levels
LEAST_SHARE = 0.2  # of the samples, that each of two levels holds at least
APART = 4.0  # Ashman's D, from which two levels are two: halves of one normal distribution have 2.7
MATTERS = 0.05  # how far apart two levels are, or above the others a disturbed sample is, at least
FAR = 3.0  # standard deviations above the middle of the quiet samples, beyond which one is disturbed
# Where samples crowd is the shortest interval that holds this share of them. Half that interval, in standard
# deviations of a normal distribution; and by how much it is too short, being the shortest of many, times the
# number of samples. A quarter finds the crowd also where most are disturbed, but needs many samples.
HALF, QUARTER, ENOUGH = (0.5, 0.6745, 10), (0.25, 0.3186, 30), 40
NORMAL_95 = 1.96
CLIPPED = 1.0  # per cent of the times, the slowest: one pause of a second would be most of a variance


class Levels(NamedTuple):
    """Two levels at which samples gather: the median of each, and the share of samples in the lower."""

    low: float
    high: float
    share: float


def levels(samples: Sequence[float]) -> Levels | None:
    """Return the two levels at which samples gather, None where they do not.

    The split that leaves the least squares within both parts, of the times' logarithms; the parts are two
    levels if their means are far apart for their spreads (Ashman et al., 1994).

    >>> levels([2.0, 2.1, 2.0, 2.1, 2.0, 2.1, 4.0, 4.1, 4.2, 4.0, 4.2, 4.1])
    Levels(low=2.05, high=4.1, share=0.5)
    """
    times = np.sort(samples)
    least = max(math.ceil(LEAST_SHARE * times.size), 3)
    if times.size < FEWEST_OF_TWO:
        return None
    logs = np.log(times)
    count, total, squares = np.arange(1, times.size), np.cumsum(logs)[:-1], np.cumsum(logs**2)[:-1]
    others, rest, rest_squares = times.size - count, logs.sum() - total, (logs**2).sum() - squares
    within = (squares - total**2 / count) + (rest_squares - rest**2 / others)
    at = int(np.argmin(within[least - 1 : times.size - least])) + least
    low, high = logs[:at], logs[at:]
    spread = math.sqrt((low.var(ddof=1) + high.var(ddof=1)) / 2)
    apart = APART * (1 + 5 / times.size)  # chance splits few samples further
    if not high.mean() - low.mean() > max(apart * spread, math.log(1 + MATTERS)):
        return None
    return Levels(float(np.median(times[:at])), float(np.median(times[at:])), at / times.size)


def quiet(samples: Sequence[float]) -> np.ndarray:
    """Return which samples are quiet, shape (samples,).

    What disturbs a computation only makes it longer, so the quiet samples are those that crowd together
    below. Where samples gather at two levels these are the lower one's; of them, those no further above the
    middle of the shortest interval that holds a quarter of them (half, of fewer than 40) than three standard
    deviations, which that interval's length tells, as if they were normal (Rousseeuw and Leroy, 1988).

    >>> quiet([2.0, 2.1, 2.2, 2.0, 2.1, 9.0, 2.2, 2.1]).tolist()
    [True, True, True, True, True, False, True, True]
    """
    times = np.asarray(samples, dtype=float)
    if times.size < FEWEST:
        return np.ones(times.size, dtype=bool)
    found = levels(samples)
    crowd = np.sort(times)
    if found is not None:
        crowd = crowd[: round(found.share * times.size)]
    share, width, lack = QUARTER if crowd.size >= ENOUGH else HALF
    part = math.ceil(share * crowd.size)
    lengths = crowd[part - 1 :] - crowd[: crowd.size - part + 1]
    at = int(np.argmin(lengths))
    low, high = crowd[at], crowd[at + part - 1]
    middle, deviation = (low + high) / 2, (high - low) / 2 / width * (1 + lack / crowd.size)
    limit = max(middle + FAR * deviation, (1 + MATTERS) * middle)  # times that were rounded have no deviation
    return times <= min(limit, crowd[-1])


def interval(samples: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the median, from ranks; NaN for fewer than 6 samples.

    >>> interval([1, 2, 3, 4, 5, 6]), interval([1, 2])
    ((1.0, 6.0), (nan, nan))
    """
    count = len(samples)
    rank = math.floor((count + 1) / 2 - NORMAL_95 * math.sqrt(count) / 2)
    if rank < 1:
        return math.nan, math.nan
    times = np.sort(samples)
    return float(times[rank - 1]), float(times[count - rank])


class Summary(NamedTuple):
    """What the times of one batch size say: of the quiet ones, but for `all_ms`, `spread_ms` and `samples`.

    `low_ms` and `high_ms` are the 95 % interval of the median, `spread_ms` is the interquartile range, `cv`
    the coefficient of variation, `drift` how much longer the median of the second half is than the first's,
    as a fraction, or 0 where their intervals overlap.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    mean_ms: float
    cv: float
    drift: float
    all_ms: float
    spread_ms: float
    samples: int
    disturbed: int
    levels: Levels | None

    @property
    def half_width(self) -> float:
        """Half the interval, over the median; NaN for fewer than 6 quiet samples."""
        return (self.high_ms - self.low_ms) / 2 / self.median_ms


def summary(samples: Sequence[float]) -> Summary:
    """Return what the times of one batch size, in the order of measuring, say.

    >>> found = summary([2.0, 2.1, 2.2, 2.0, 2.1, 9.0, 2.2, 2.1])
    >>> found.median_ms, found.disturbed, round(found.half_width, 3)
    (2.1, 1, 0.048)
    """
    times = np.asarray(samples, dtype=float)
    kept = times[quiet(samples)]
    first, second = kept[: kept.size // 2], kept[kept.size // 2 :]
    (first_low, first_high), (second_low, second_high) = interval(first), interval(second)
    apart = second_low > first_high or second_high < first_low  # not of NaN
    low, high = np.percentile(times, [25, 75])
    mean = float(kept.mean())
    return Summary(
        float(np.median(kept)), *interval(kept), mean, cv_of(kept),
        float(np.median(second) / np.median(first)) - 1 if apart else 0.0,
        float(np.median(times)), float(high - low), times.size, times.size - kept.size, levels(samples),
    )  # fmt: skip


def cv_of(times: np.ndarray) -> float:
    """Return the coefficient of variation, 0 of a single time."""
    return float(times.std(ddof=1) / times.mean()) if times.size > 1 else 0.0


def clipped(rows: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Return the times of each batch size, none further above its median than 99 in 100 of all sizes' are.

    >>> clipped({1: np.array([2.0, 2.0, 2.2]), 8: np.array([4.0, 4.0, 40.0])})[8].round(1).tolist()
    [4.0, 4.0, 38.2]
    """
    ratios = np.concatenate([row / np.median(row) for row in rows.values()])
    most = np.percentile(ratios, 100 - CLIPPED)
    return {size: np.minimum(row, most * np.median(row)) for size, row in rows.items()}


# How long noise lasts: the autocorrelation of the times of consecutive batches.


LAGS = (1, 2, 4, 8, 16, 32)  # batches from one to the other
NONE = 0.05  # a smaller correlation of neighbours is none: a measurement of 500 batches knows it to 0.05
MEMORIES = np.geomspace(1, 64, 80)  # batches, of which the nearest is taken


def autocorrelation(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, ...]:
    """Return how the times of batches correlate with those of the 1st, 2nd, 4th, ... 32nd batch after them.

    `runs` has, of each run, the batches' sizes and times in order. Logarithms are compared, relative to the
    mean of the size over all runs: where one run is slower than another, that lasts, too.

    >>> import numpy as np
    >>> times_ms = np.repeat([1.0, 2.0], 40)  # slow for the second half
    >>> [round(value, 2) for value in autocorrelation([(np.full(80, 4), times_ms)])][:3]
    [0.97, 0.95, 0.89]
    """
    sizes, times = (np.concatenate(each) for each in zip(*runs, strict=True))
    logs = np.log(times)
    for size in np.unique(sizes):
        logs[sizes == size] -= logs[sizes == size].mean()
    logs = np.clip(logs, *np.percentile(logs, [CLIPPED, 100 - CLIPPED]))
    if np.ptp(logs) < 1e-9:  # times that do not vary, but for rounding
        return (0.0,) * len(LAGS)
    each = np.split(logs, np.cumsum([len(run) for run, _ in runs])[:-1])
    return tuple(_at(lag, [run for run in each if run.size > lag]) for lag in LAGS)


def _at(lag: int, runs: Sequence[np.ndarray]) -> float:
    """Return the correlation of the pairs that lie in one run; 0 where there are none, or they do not vary.

    The variance is that of the pairs' own times, not of all times: of few pairs, as where runs are short, the
    quotient would not stay between -1 and 1.
    """
    if not runs:
        return 0.0
    earlier, later = np.concatenate([run[:-lag] for run in runs]), np.concatenate([run[lag:] for run in runs])
    scale = float(np.sqrt((earlier @ earlier) * (later @ later)))
    return min(max(float(earlier @ later) / scale, -1.0), 1.0) if scale else 0.0  # 1 + 2e-16 by rounding


def lasting_noise(values: Sequence[float]) -> tuple[float, float]:
    """Return the `correlation` and the `memory_batches` of the `Noise` nearest to an autocorrelation.

    The least squares of `correlation * exp(-(lag - 1) / memory_batches)`, each lag with a weight of 1 / lag,
    as a long one is seen in fewer places of a run that do not overlap; 0 where nothing lasts.

    >>> import numpy as np
    >>> [round(value, 1) for value in lasting_noise([0.4 * np.exp(-(lag - 1) / 8) for lag in LAGS])]
    [0.4, 8.2]
    """
    lags, measured = np.array(LAGS), np.array(values)
    best, correlation, memory_batches = np.inf, 0.0, 1.0
    for memory in MEMORIES:
        shape = np.exp(-(lags - 1) / memory)
        nearest = float(shape @ (measured / lags) / (shape @ (shape / lags)))
        nearest = min(max(nearest, 0.0), float(np.exp(-1 / memory)))
        miss = float(((nearest * shape - measured) ** 2 / lags).sum())
        if miss < best:
            best, correlation, memory_batches = miss, nearest, float(memory)
    return (correlation if correlation >= NONE else 0.0), memory_batches
