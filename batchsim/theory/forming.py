"""The textbook rule without noise: the chain of how many are in the system when a batch starts.

Those whom a batch leaves behind came before its start, and only a full batch leaves any. If the wait is
no longer than a full batch computes, they are ripe at its end, and the next batch starts at once.
Everyone else who waits at a batch's end came while it computed: given that the oldest came v before the
end, the others are Poisson. So all that must be known of a batch is how many it left.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from batchsim.theory import chain
from batchsim.theory.arrivals import poisson, split

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclass(frozen=True)
class Forming:
    """The steady state; `seconds[k]` of a batch of k <= b, and `wait_s` <= seconds[b].

    `starts` is the chain at a batch's start, its threshold b + 1 (0 does not occur); `unripe_s[n]` how
    late the oldest of those who come during n's batch must come, before its end, not to be ripe then.
    """

    rate: float
    seconds: np.ndarray
    wait_s: float
    starts: chain.Stationary
    unripe_s: np.ndarray
    shift: np.ndarray
    cycle_s: float
    area: float

    @property
    def cap(self) -> int:
        return self.seconds.size - 1

    @property
    def service_s(self) -> np.ndarray:
        """The service time of a batch that starts with n in the system, n <= b, shape (b + 1,)."""
        return np.append(self.seconds[1], self.seconds[1:])

    @property
    def batch_size_pmf(self) -> np.ndarray:
        sizes = self.starts.below.copy()
        sizes[0] = 0.0
        sizes[-1] += self.starts.above
        return sizes

    @property
    def mean_batch_size(self) -> float:
        return float(self.batch_size_pmf @ np.arange(self.cap + 1))

    @property
    def utilisation(self) -> float:
        return float(self.batch_size_pmf @ self.service_s) / self.cycle_s

    @property
    def mean_number(self) -> float:
        """The mean number in the system."""
        return self.area / self.cycle_s

    @property
    def computing_s(self) -> float:
        """The mean time that a request computes."""
        requests = self.batch_size_pmf * np.arange(self.cap + 1)
        return float(requests @ self.service_s / requests.sum())


def solve(rate_per_s: float, seconds: np.ndarray, wait_s: float) -> Forming:
    """Return the steady state, by renewal reward over the cycles between starts."""
    cap, n = seconds.size - 1, np.arange(seconds.size)
    service_s = np.append(seconds[1], seconds[1:])
    unripe_s = np.minimum(service_s, wait_s)
    shift = _shift(rate_per_s, service_s, unripe_s, wait_s)
    means, full_s = rate_per_s * service_s, float(seconds[cap])
    found = chain.stationary(np.zeros(cap + 1, dtype=int), means, cap, means[cap], None, shift)
    idle_s, idle_area = _until_start(rate_per_s, service_s, unripe_s, wait_s)
    area = found.below @ (n * service_s + means * service_s / 2 + idle_area)
    area += found.above * (cap + means[cap] / 2) * full_s + found.above_left * full_s
    cycle_s = found.below @ (service_s + idle_s) + found.above * full_s
    return Forming(rate_per_s, seconds, wait_s, found, unripe_s, shift, float(cycle_s), float(area))


def _shift(rate: float, service_s: np.ndarray, unripe_s: np.ndarray, wait_s: float) -> np.ndarray:
    """Return what waiting changes in the next number in system, against starting at the end at once.

    If the first comes unripe, or after the end, Poisson(rate * wait) come after it, up to b in all.
    """
    cap = service_s.size - 1
    unripe = np.exp(-rate * (service_s - unripe_s))[:, None]
    came = poisson(rate * unripe_s, cap)
    joined = poisson(np.array(rate * wait_s), cap)
    shift = np.zeros((cap + 1, cap + 1))
    shift[:, :-1] -= unripe * came
    shift[:, 1:-1] += unripe * joined[:-1]
    shift[:, -1] += unripe[:, 0] * (came.sum(1) - joined[:-1].sum())
    return shift


def _until_start(
    rate: float, service_s: np.ndarray, unripe_s: np.ndarray, wait_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean time from a batch's end to the next start, and the number in system over it.

    When the oldest has waited x there are 1 + Poisson(rate x), and the batch still forms if below b.
    """
    cap = service_s.size - 1
    empty_s = np.exp(-rate * service_s) / rate
    if wait_s == 0 or cap == 1:
        return empty_s, np.zeros(cap + 1)
    edges = split(np.append(unripe_s, [0.0, wait_s]), rate)
    half = np.diff(edges)[:, None] / 2
    x, weights = (edges[:-1, None] + half * (1 + NODES)).ravel(), (half * WEIGHTS).ravel()
    forms = special.pdtr(cap - 2, rate * x)
    number = forms + rate * x * (special.pdtr(cap - 3, rate * x) if cap > 2 else 0.0)
    # The chance that the server is free by then, and the oldest unripe when it became so.
    free = np.exp(-rate * (service_s[:, None] - np.minimum(x, unripe_s[:, None])))
    return empty_s + free @ (weights * forms), free @ (weights * number)
