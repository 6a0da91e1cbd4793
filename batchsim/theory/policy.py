"""What a policy costs: exactly, for any "wait, or serve n" policy of one server."""

from dataclasses import dataclass

import numpy as np

from batchsim.scenario import Noise
from batchsim.theory import arrivals, chain


@dataclass(frozen=True)
class Evaluation:
    """The steady state under a policy; times in seconds, a cycle is from a batch's end to the next one's.

    `waiting` is the chain at a batch's end; `batch_size_pmf[k]` the fraction of batches of k.
    """

    waiting: chain.Stationary
    cycle_s: float
    busy_s: float
    mean_number: float
    computing_s: float
    batch_size_pmf: np.ndarray

    @property
    def mean_batch_size(self) -> float:
        return float(self.batch_size_pmf @ np.arange(self.batch_size_pmf.size))

    @property
    def utilisation(self) -> float:
        return self.busy_s / self.cycle_s


def at_least(min_batch_size: int, max_batch_size: int) -> np.ndarray:
    """Return the (a, b) rule as a policy.

    >>> at_least(2, 3)
    array([0, 0, 2, 3])
    """
    waiting = np.arange(max_batch_size + 1)
    return np.where(waiting < min_batch_size, 0, waiting)


def evaluate(policy: np.ndarray, rate_per_s: float, seconds: np.ndarray, noise: Noise | None) -> Evaluation:
    """Return the steady state of one server with Poisson arrivals under a policy.

    `policy[s]` of s waiting requests are taken, 0 for waiting until there is one more; the last entry
    holds for all s above. `seconds[k]` is the mean service time of a batch of k. The last entry's
    batches must keep up with the arrivals. Renewal reward over the cycles between batch ends.
    """
    threshold, top = len(policy) - 1, int(policy[-1])
    L = np.arange(threshold)
    # The number waiting at which a batch will leave, of each at a batch's end.
    serving = np.flatnonzero(policy)
    start = serving[np.searchsorted(serving, L)]
    taken = policy[start]
    left, service_s = start - taken, seconds[taken]
    means, top_mean = rate_per_s * service_s, float(rate_per_s * seconds[top])
    waiting = chain.stationary(left, means, top, top_mean, noise)

    def arriving(mean: np.ndarray | float) -> np.ndarray | float:
        # The time that those who arrive during a service spend in it, times the rate.
        return mean**2 * (1 + arrivals.squared_cv(noise)) / 2

    idle_s = (start - L) / rate_per_s
    # Area under the number in system: while idle L, L + 1, ... start - 1; then all of start, and arrivals.
    idling = (start - L) * (start + L - 1) / 2 / rate_per_s
    area = waiting.below @ (idling + start * service_s + arriving(means) / rate_per_s)
    area += (waiting.above_left + waiting.above * top) * seconds[top]
    area += waiting.above * arriving(top_mean) / rate_per_s
    busy_s = waiting.below @ service_s + waiting.above * seconds[top]
    cycle_s = busy_s + waiting.below @ idle_s
    sizes = np.bincount(taken, weights=waiting.below, minlength=max(top, taken.max(initial=0)) + 1)
    sizes[top] += waiting.above
    used = np.flatnonzero(sizes)
    per_batch = used * sizes[used]
    return Evaluation(
        waiting,
        float(cycle_s),
        float(busy_s),
        float(area / cycle_s),
        float(per_batch @ seconds[used] / per_batch.sum()),
        sizes,
    )
