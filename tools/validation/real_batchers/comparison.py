"""What a real batcher did beside what its preset says, and whether the machine let the two be compared."""

from dataclasses import dataclass

import numpy as np

# What is allowed between the two, of the simulated: the mean latency and the mean batch size; p99.
MEAN, P99 = 0.05, 0.10
# The machine has disturbed a run, of which nothing can be said then, if longer calls, by what calls were
# too long and requests late on average, change the mean of a long simulation by more than this; or if 1 of
# 1,000 requests or calls was late by more than this share of the mean latency: one stall makes a p99.
SHIFT, LATE = 0.02, 0.10
SAME_S = 1e-4  # starts that differ by less are the same


@dataclass(frozen=True)
class Numbers:
    """Latencies in ms, and batch sizes."""

    mean_ms: float
    p99_ms: float
    batch_size: float

    @classmethod
    def of(cls, latency_ms, sizes):
        p99 = np.nanpercentile(latency_ms, 99)
        return cls(float(np.nanmean(latency_ms)), float(p99), float(np.mean(sizes)))

    def __str__(self):
        return f"{self.mean_ms:.4g} / {self.p99_ms:.4g} / {self.batch_size:.3g}"


@dataclass(frozen=True)
class Comparison:
    """`apart`: the largest difference between the two distributions of batch sizes, 0 to 1.

    `same`: the share of requests that start at the same time in both, or in neither. `shift`: by how much the
    machine's lateness changes the mean latency, as a simulation says; `late`: the lateness that 1 of 1,000
    exceed, of the mean latency.
    """

    real: Numbers
    simulated: Numbers
    apart: float
    same: float
    shift: float = 0.0
    late: float = 0.0

    @property
    def errors(self):
        """The simulated numbers' relative errors: mean, p99 and batch size."""
        pairs = ((getattr(each, key) for each in (self.simulated, self.real)) for key in _KEYS)
        return tuple(ours / theirs - 1 for ours, theirs in pairs)

    @property
    def verdict(self):
        if self.shift > SHIFT or self.late > LATE:
            return "disturbed"
        mean, p99, size = (abs(error) for error in self.errors)
        return "agrees" if mean <= MEAN and p99 <= P99 and size <= MEAN else "differs"


_KEYS = ("mean_ms", "p99_ms", "batch_size")


def compare(desk, result, shifted=lambda late_ms: 0.0):
    """Compare what a desk saw with the result of a simulation of the same requests.

    `shifted(late_ms)`: by how much calls that are longer by that change the mean.
    """
    late_s = np.concatenate([desk.late_s, desk.overrun_s])
    late_ms = 1000 * float(np.mean(desk.late_s) + np.mean(desk.overrun_s))
    sizes = result.batches.batch_size
    real = Numbers.of(desk.latency_ms, desk.sizes)
    return Comparison(
        real, Numbers.of(result.latency_ms, sizes), distance(desk.sizes, sizes),
        float(np.mean(np.isclose(desk.start_s, result.start_s, rtol=0, atol=SAME_S, equal_nan=True))),
        shifted(late_ms), 1000 * float(np.percentile(late_s, 99.9)) / real.mean_ms,
    )  # fmt: skip


def distance(ones, others):
    """The largest difference between two distribution functions of whole numbers (Kolmogorov's distance)."""
    largest = max(*ones, *others)
    one, other = (
        np.cumsum(np.bincount(sizes, minlength=largest + 1)) / len(sizes) for sizes in (ones, others)
    )
    return float(np.max(np.abs(one - other)))
