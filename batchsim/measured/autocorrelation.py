"""How long what slows a batch down lasts: the autocorrelation of measured times, and such noise."""

from collections.abc import Sequence

import numpy as np

LAGS = (1, 2, 4, 8, 16, 32)  # batches from one to the other
NONE = 0.05  # a smaller correlation of neighbours is none: a measurement of 500 batches knows it to 0.05
CLIPPED = 1.0  # per cent of the logarithms at either end: one pause of a second would be most of a variance
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


def fitted(values: Sequence[float]) -> tuple[float, float]:
    """Return the `correlation` and the `memory_batches` of the `Noise` nearest to an autocorrelation.

    The least squares of `correlation * exp(-(lag - 1) / memory_batches)`, each lag with a weight of 1 / lag,
    as a long one is seen in fewer places of a run that do not overlap; 0 where nothing lasts.

    >>> import numpy as np
    >>> [round(value, 1) for value in fitted([0.4 * np.exp(-(lag - 1) / 8) for lag in LAGS])]
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
