"""The uncertainty of a measurement: random service times that are consistent with it."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from batchsim._compat import repeat
from batchsim.measured.measurement import Measured, pooled
from batchsim.measured.samples import MEMORIES, autocorrelation, cv_of, lasting_noise
from batchsim.scenario.noise import Noise

STRETCHES = 8  # parts of the rounds, to estimate how the speed of the machine changes
FEWEST = 4  # stretches of two rounds each that this needs


def services(measurement: Measured, count: int, seed: int = 0) -> Iterator[Any]:
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
    if stretches < FEWEST:
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
