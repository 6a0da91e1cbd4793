"""Repeated times of batches: quiet ones, how sure their median is, how long noise lasts, and other draws."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from batchsim._compat import repeat
from batchsim.scenario.noise import Noise

FEWEST = 8  # samples, to call any of them disturbed
FEWEST_OF_TWO = 12  # samples, to find two levels
LEAST_SHARE = 0.2  # the least share of the samples at each of two levels
APART = 4.0  # Ashman's D of two levels at least: halves of one normal distribution have 2.7
MATTERS = 0.05  # the least relative distance of two levels, or of a disturbed sample from the others
FAR = 3.0  # standard deviations above the middle of the quiet samples, beyond which one is disturbed
# The densest part is the shortest interval with this share of the samples. Then half its length, in standard
# deviations of a normal distribution; and how much too short it is as the shortest of many, times the number
# of samples. A quarter finds the densest part even if most samples are disturbed, but needs many of them.
HALF, QUARTER, ENOUGH = (0.5, 0.6745, 10), (0.25, 0.3186, 30), 40
NORMAL_95 = 1.96
CLIPPED = (
    1.0  # the percentage of extreme times that count as less: one pause of 1 s would dominate a variance
)


class Levels(NamedTuple):
    """Two levels at which samples gather: the median of each, and the share of samples in the lower."""

    low: float
    high: float
    share: float


def levels(samples: Sequence[float]) -> Levels | None:
    """Return the two levels at which samples gather, None if they do not.

    The split has the least squares within both parts, of the logarithms of the times; the parts are two
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
    apart = APART * (1 + 5 / times.size)  # chance splits few samples wider
    if not high.mean() - low.mean() > max(apart * spread, math.log(1 + MATTERS)):
        return None
    return Levels(float(np.median(times[:at])), float(np.median(times[at:])), at / times.size)


def quiet(samples: Sequence[float]) -> np.ndarray:
    """Return which samples are quiet, shape (samples,).

    Disturbances only lengthen a computation, so the quiet samples are the dense ones at the bottom. If
    samples gather at two levels, only the lower counts. Samples are quiet up to three standard deviations
    above the middle of the shortest interval that holds a quarter of them (half, if fewer than 40); its
    length gives the standard deviation of a normal distribution (Rousseeuw and Leroy, 1988).

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
    """Statistics of one batch size's quiet times; `all_ms`, `spread_ms` and `samples` are those of all times.

    `low_ms` and `high_ms` are the 95 % interval of the median, `spread_ms` is the interquartile range, `cv`
    the coefficient of variation. `drift` is the relative difference of the second half's median from the
    first's, 0 if their intervals overlap.
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
    """Return the statistics of one batch size's times, given in the order of measuring.

    >>> found = summary([2.0, 2.1, 2.2, 2.0, 2.1, 9.0, 2.2, 2.1])
    >>> found.median_ms, found.disturbed, round(found.half_width, 3)
    (2.1, 1, 0.048)
    """
    times = np.asarray(samples, dtype=float)
    kept = times[quiet(samples)]
    first, second = kept[: kept.size // 2], kept[kept.size // 2 :]
    (first_low, first_high), (second_low, second_high) = interval(first), interval(second)
    apart = second_low > first_high or second_high < first_low  # False for NaN
    low, high = np.percentile(times, [25, 75])
    mean = float(kept.mean())
    return Summary(
        float(np.median(kept)), *interval(kept), mean, cv_of(kept),
        float(np.median(second) / np.median(first)) - 1 if apart else 0.0,
        float(np.median(times)), float(high - low), times.size, times.size - kept.size, levels(samples),
    )  # fmt: skip


def cv_of(times: np.ndarray) -> float:
    """Return the coefficient of variation, 0 for a single time."""
    return float(times.std(ddof=1) / times.mean()) if times.size > 1 else 0.0


def pooled(cvs: Mapping[int, float]) -> float:
    """Return one coefficient of variation for all sizes: the root mean square.

    >>> pooled({1: 0.3, 8: 0.4})
    0.3535533905932738
    """
    return math.sqrt(float(np.mean(np.square(list(cvs.values())))))


def clipped(rows: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Return the times of each batch size, relative to its median at most the 99th percentile of all sizes.

    >>> clipped({1: np.array([2.0, 2.0, 2.2]), 8: np.array([4.0, 4.0, 40.0])})[8].round(1).tolist()
    [4.0, 4.0, 38.2]
    """
    ratios = np.concatenate([row / np.median(row) for row in rows.values()])
    most = np.percentile(ratios, 100 - CLIPPED)
    return {size: np.minimum(row, most * np.median(row)) for size, row in rows.items()}


# How long noise lasts: the autocorrelation of the times of consecutive batches.


LAGS = (1, 2, 4, 8, 16, 32)  # batches
NONE = 0.05  # smaller correlations of neighbours count as 0: 500 batches determine them to 0.05
MEMORIES = np.geomspace(1, 64, 80)  # candidates, in batches


def autocorrelation(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, ...]:
    """Return how the times of batches correlate with those of the 1st, 2nd, 4th, ... 32nd batch after them.

    `runs` has the batches' sizes and times of each run, in order. It compares logarithms, relative to the
    mean of the size over all runs, so a run that is slower than another counts as correlation.

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
    if np.ptp(logs) < 1e-9:  # the times vary only by rounding
        return (0.0,) * len(LAGS)
    each = np.split(logs, np.cumsum([len(run) for run, _ in runs])[:-1])
    return tuple(_at(lag, [run for run in each if run.size > lag]) for lag in LAGS)


def _at(lag: int, runs: Sequence[np.ndarray]) -> float:
    """Return the correlation of the pairs within each run; 0 without pairs or variance.

    The variance is that of the pairs' own times: with the variance of all times, the correlation of few
    pairs, as in short runs, could leave the range from -1 to 1.
    """
    if not runs:
        return 0.0
    earlier, later = np.concatenate([run[:-lag] for run in runs]), np.concatenate([run[lag:] for run in runs])
    scale = float(np.sqrt((earlier @ earlier) * (later @ later)))
    return min(max(float(earlier @ later) / scale, -1.0), 1.0) if scale else 0.0  # rounding gives 1 + 2e-16


def lasting_noise(values: Sequence[float]) -> tuple[float, float]:
    """Return the `correlation` and the `memory_batches` of the `Noise` nearest to an autocorrelation.

    Least squares of `correlation * exp(-(lag - 1) / memory_batches)`, with weights 1 / lag, because a run has
    fewer separate pairs at long lags. The correlation is 0 if nothing lasts.

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


# The uncertainty of a measurement: random service times that are consistent with it.


STRETCHES, LEAST = 8, 4  # parts of the rounds that tell how the speed of the machine changes; the fewest


def services(measurement: Any, count: int, seed: int = 0) -> Iterator[Any]:
    """Yield `count` service times, with their noise, that are consistent with a measurement.

    Each service draws three uncertain properties:

    - the mean time of each size (and length), and the variance: rounds of the measurement are drawn with
      replacement, several consecutive ones at once, because disturbances last (the moving-block bootstrap);
    - the speed of the machine while the service is used: it differed between stretches of the measurement
      (see `level`), so it is that of one more stretch, not their mean;
    - the correlation and the duration of noise: noise as measured is drawn and measured again.

    Without repeats the uncertainty is unknown, and all services are equal.

    >>> from batchsim.measured.measurement import Measurement
    >>> times_ms = (2, 2.1, 1.9, 2, 2.2, 2, 1.8, 2)
    >>> measured = Measurement("net", "a GPU", "gpu", "", (1,), 8, (times_ms,), (), "2026-01-01")
    >>> [round(each.points_ms[0][1], 2) for each in services(measured, 3)]
    [1.94, 1.99, 1.91]
    """
    rows = measurement.times()
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(len(rows),)))
    rounds = max(row.size for row in rows.values())
    together = math.ceil(rounds ** (1 / 3))  # rounds: the best order of length (Künsch, 1989)
    spread, freedom = level(list(rows.values()))
    noise = measurement.service_with_noise().noise
    for _ in range(count):
        begins = generator.integers(rounds, size=math.ceil(rounds / together))
        drawn = (begins[:, None] + np.arange(together)).ravel()[:rounds]
        again = {size: row[drawn[: row.size] % row.size] for size, row in rows.items()}
        speed = math.exp(spread * generator.standard_t(freedom)) if spread else 1.0
        cv = pooled({size: cv_of(row) for size, row in again.items()})
        lasts = _lasting(noise, rows, generator) if noise is not None and measurement.autocorrelation else ()
        points = {size: speed * float(row.mean()) for size, row in again.items()}
        yield measurement.table(points).with_noise(cv, "lognormal", *lasts)


def level(rows: list[np.ndarray]) -> tuple[float, int]:
    """Return the standard deviation of a machine's speed between stretches, and its degrees of freedom.

    The rounds, one sample of each row, are divided into eight stretches. The variance of their mean
    logarithms, minus that from differences within stretches, is that of the speed: an analysis of variance. A
    difference between the halves, as between measurements before and after a run, shows only by half within
    them: half of it is added. 0 if there are too few rounds.
    """
    count = min(row.size for row in rows)
    stretches = min(STRETCHES, count // 2)
    if stretches < LEAST:
        return 0.0, 1
    rounds = np.mean([np.log(row[:count] / row[:count].mean()) for row in rows], axis=0)
    ends = np.linspace(0, count, stretches + 1).astype(np.int64)
    each = [rounds[begin:end] for begin, end in pairwise(ends)]
    within = float(np.mean([part.var(ddof=1) / part.size for part in each]))
    means = np.array([part.mean() for part in each])
    drift = float(means[: stretches // 2].mean() - means[(stretches + 1) // 2 :].mean())
    between = float(means.var(ddof=1))
    return math.sqrt(max(between - within, 0.0) + drift**2 / 4), stretches - 1


def _lasting(
    noise: Noise, rows: dict[Any, np.ndarray], generator: np.random.Generator
) -> tuple[float, float]:
    """Return a correlation and a memory that may have produced the measured noise.

    A measurement of known noise gives the error; it is subtracted (the basic bootstrap), since short
    measurements underestimate correlations.
    """
    sizes = repeat(np.arange(len(rows)), [row.size for row in rows.values()])
    factors = noise.draw(generator, sizes.size)
    found, memory_batches = lasting_noise(autocorrelation([(generator.permutation(sizes), factors)]))
    longest = MEMORIES[-1]
    memory_batches = float(np.clip(noise.memory_batches**2 / memory_batches, 1, longest))
    return min(max(2 * noise.correlation - found, 0.0), math.exp(-1 / memory_batches)), memory_batches
