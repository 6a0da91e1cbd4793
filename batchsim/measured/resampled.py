"""How well a measurement is known: services that it might have given, drawn at random."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from batchsim.measured.measurement import Measurement, pooled
from batchsim.measured.samples import MEMORIES, autocorrelation, cv_of, lasting_noise
from batchsim.scenario.service import Noise, Table

STRETCHES = 8  # into which the rounds are divided, to see how the speed of the machine changes
FEWEST = 4  # stretches of two rounds each, of which that is seen at all


def services(measurement: Measurement, count: int, seed: int = 0) -> Iterator[Table]:
    """Yield `count` service times, with their noise, that a measurement leaves possible.

    Three things are uncertain, and each service draws them anew:

    - the mean time of each size, and how much times vary: rounds of the measurement are drawn with
      replacement, several in a row at once, since what slows a batch lasts (the moving-block bootstrap);
    - how fast the machine is while the service is used: it was not equally fast in all stretches of the
      measurement (see `level`), so it is in one stretch more, and not in their mean;
    - how much of the noise lasts, and how long: noise as it was measured is drawn and measured again.

    Of times that were not repeated nothing is known, and all services are alike.

    >>> times_ms = (2, 2.1, 1.9, 2, 2.2, 2, 1.8, 2)
    >>> measured = Measurement("net", "a GPU", "gpu", "", (1,), 8, (times_ms,), (), "2026-01-01")
    >>> [round(each.points_ms[0][1], 2) for each in services(measured, 3)]
    [1.94, 1.99, 1.91]
    """
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(len(measurement.batch_sizes),)))
    rows = measurement.times()
    rounds = max(row.size for row in rows.values())
    together = math.ceil(rounds ** (1 / 3))  # rounds: the order of length that errs least (Künsch, 1989)
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
        yield Table(points).with_noise(cv, "lognormal", *lasts)


def level(rows: list[np.ndarray]) -> tuple[float, int]:
    """Return by how much a machine's speed varies from stretch to stretch, and how well that is known.

    The rounds, one sample of each row, are divided into eight stretches. The variance of their mean
    logarithms, less what the rounds of a stretch differ anyway, is that of the speed: an analysis of
    variance. What differs between the halves, as between a measurement before a run and one after it, is
    alike in four stretches, which see half of it: half their difference is added. The root of both is
    returned, and its degrees of freedom; 0 where there are too few rounds.
    """
    count = min(row.size for row in rows)
    stretches = min(STRETCHES, count // 2)
    if stretches < FEWEST:
        return 0.0, 1
    rounds = np.mean([np.log(row[:count] / row[:count].mean()) for row in rows], axis=0)
    ends = np.linspace(0, count, stretches + 1).astype(int)
    each = [rounds[begin:end] for begin, end in pairwise(ends)]
    within = float(np.mean([part.var(ddof=1) / part.size for part in each]))
    means = np.array([part.mean() for part in each])
    drift = float(means[: stretches // 2].mean() - means[(stretches + 1) // 2 :].mean())
    between = float(means.var(ddof=1))
    return math.sqrt(max(between - within, 0.0) + drift**2 / 4), stretches - 1


def _lasting(
    noise: Noise, rows: dict[int, np.ndarray], generator: np.random.Generator
) -> tuple[float, float]:
    """Return a correlation and a memory from which noise as it was measured might have been drawn.

    By as much as a measurement of known noise misses it, on the other side (the basic bootstrap): a short
    one finds correlations too low.
    """
    sizes = np.repeat(np.arange(len(rows)), [row.size for row in rows.values()])
    factors = noise.draw(generator, sizes.size)
    found, memory_batches = lasting_noise(autocorrelation([(generator.permutation(sizes), factors)]))
    longest = MEMORIES[-1]
    memory_batches = float(np.clip(noise.memory_batches**2 / memory_batches, 1, longest))
    return min(max(2 * noise.correlation - found, 0.0), math.exp(-1 / memory_batches)), memory_batches
