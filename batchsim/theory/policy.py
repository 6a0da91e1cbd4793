"""The exact steady state of one server under any policy of the kind "wait, or serve n"."""

import numpy as np

from batchsim.scenario import Noise
from batchsim.theory import arrivals, chain


def evaluate(
    policy: np.ndarray, rate_per_s: float, seconds: np.ndarray, noise: Noise | None
) -> chain.SteadyState:
    """Return the steady state with Poisson arrivals; its chain is at a batch's end.

    Of s waiting requests `policy[s]` are taken, 0 to wait for one more; the last entry holds for all s
    above, and batches of that size must keep up with the arrivals. `seconds[k]` is the mean service
    time of a batch of k. By renewal reward over the cycles between batch ends.
    """
    threshold, top = len(policy) - 1, int(policy[-1])
    L = np.arange(threshold)
    # From each number waiting at a batch's end, the number at which the next batch leaves.
    serving = np.flatnonzero(policy)
    start = serving[np.searchsorted(serving, L)]
    taken = policy[start]
    left, service_s = start - taken, seconds[taken]
    means, top_mean = rate_per_s * service_s, float(rate_per_s * seconds[top])
    waiting = chain.stationary(left, means, top, top_mean, noise)

    def arriving(mean: np.ndarray | float) -> np.ndarray | float:
        # The time that the arrivals of a service spend waiting during it, times the rate.
        return mean**2 * (1 + arrivals.squared_cv(noise)) / 2

    idle_s = (start - L) / rate_per_s
    # The area under the number in system: L, L + 1, ... start - 1 while idle; then all of start, and the
    # arrivals.
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
    return chain.SteadyState(
        chain=waiting,
        cycle_s=float(cycle_s),
        utilisation=float(busy_s) / float(cycle_s),
        mean_number=float(area / cycle_s),
        computing_s=float(per_batch @ seconds[used] / per_batch.sum()),
        batch_size_pmf=sizes,
    )
