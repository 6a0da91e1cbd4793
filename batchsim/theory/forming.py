"""The textbook rule without noise: the Markov chain of how many are in the system when a batch starts.

Only a full batch leaves requests behind, and they arrived before it started. If the max wait is no longer
than a full batch computes, their timer has expired when it ends, so the next batch starts at once. All other
requests that wait at a batch's end arrived while it computed: given that the oldest of them came v before the
end, the others are Poisson over v. So all that must be remembered of a batch is how many it left behind, and
no request's age. (A longer wait would need the ages: that is why it is not solved.)
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from batchsim.theory import chain
from batchsim.theory.arrivals import poisson, split

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclass(frozen=True)
class Forming(chain.SteadyState):
    """The steady state, with what the latency's distribution needs; its chain is at a batch's start.

    `seconds[k]` is the service time of k <= b, and `wait_s` <= seconds[b]. The chain's threshold is b + 1
    (0 does not occur). `unexpired_s[n]`: an arrival during a batch that starts with n in the system
    has an unexpired timer at the batch's end if it came within this time before it. `shift`: see `_shift`.
    """

    rate: float
    seconds: np.ndarray
    wait_s: float
    service_s: np.ndarray  # of a batch that starts with n in the system, n <= b, shape (b + 1,)
    unexpired_s: np.ndarray
    shift: np.ndarray


def solve(rate_per_s: float, seconds: np.ndarray, wait_s: float) -> Forming:
    """Return the steady state, by renewal reward over the cycles between starts."""
    largest, n = seconds.size - 1, np.arange(seconds.size)
    service_s = np.append(seconds[1], seconds[1:])  # none in the system: the next starts a batch of 1
    unexpired_s = np.minimum(service_s, wait_s)
    shift = _shift(rate_per_s, service_s, unexpired_s, wait_s)
    means, full_s = rate_per_s * service_s, float(seconds[largest])
    starts = chain.stationary(np.zeros(largest + 1, dtype=int), means, largest, means[largest], None, shift)
    idle_s, idle_area = _until_start(rate_per_s, service_s, unexpired_s, wait_s)
    area = starts.below @ (n * service_s + means * service_s / 2 + idle_area)
    area += starts.above * (largest + means[largest] / 2) * full_s + starts.above_left * full_s
    cycle_s = float(starts.below @ (service_s + idle_s) + starts.above * full_s)
    sizes = starts.below.copy()
    sizes[0] = 0.0
    sizes[-1] += starts.above
    requests = sizes * np.arange(largest + 1)
    return Forming(
        starts, cycle_s, utilisation=float(sizes @ service_s) / cycle_s, mean_number=float(area) / cycle_s,
        computing_s=float(requests @ service_s / requests.sum()), batch_size_pmf=sizes, rate=rate_per_s,
        seconds=seconds, wait_s=wait_s, service_s=service_s, unexpired_s=unexpired_s, shift=shift,
    )  # fmt: skip


def _shift(rate: float, service_s: np.ndarray, unexpired_s: np.ndarray, wait_s: float) -> np.ndarray:
    """Return the change that waiting makes to the chain, against starting a batch at once at every end.

    If the first arrival's timer is unexpired at the end, or it comes later, then Poisson(rate * wait)
    follow it, up to b in all.
    """
    largest = service_s.size - 1
    unexpired = np.exp(-rate * (service_s - unexpired_s))[:, None]  # nobody came early enough to expire
    at_once = poisson(rate * unexpired_s, largest)
    joined = poisson(np.array(rate * wait_s), largest)
    shift = np.zeros((largest + 1, largest + 1))
    shift[:, :-1] -= unexpired * at_once
    shift[:, 1:-1] += unexpired * joined[:-1]
    shift[:, -1] += unexpired[:, 0] * (at_once.sum(1) - joined[:-1].sum())
    return shift


def _until_start(
    rate: float, service_s: np.ndarray, unexpired_s: np.ndarray, wait_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean time from a batch's end to the next start, and the number in system over it.

    When the oldest has waited x there are 1 + Poisson(rate x), and the batch still forms if below b.
    """
    largest = service_s.size - 1
    empty_s = np.exp(-rate * service_s) / rate
    if wait_s == 0 or largest == 1:
        return empty_s, np.zeros(largest + 1)
    edges = split(np.append(unexpired_s, [0.0, wait_s]), rate)
    half = np.diff(edges)[:, None] / 2
    x, weights = (edges[:-1, None] + half * (1 + NODES)).ravel(), (half * WEIGHTS).ravel()
    forms = special.pdtr(largest - 2, rate * x)
    number = forms + rate * x * (special.pdtr(largest - 3, rate * x) if largest > 2 else 0.0)
    # The chance that the server is free by then, and the oldest had an unexpired timer when it became so.
    free = np.exp(-rate * (service_s[:, None] - np.minimum(x, unexpired_s[:, None])))
    return empty_s + free @ (weights * forms), free @ (weights * number)
