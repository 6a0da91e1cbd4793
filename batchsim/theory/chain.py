"""Embedded Markov chains of one server with Poisson arrivals: the number waiting at the end of a batch.

Poisson arrivals do not depend on the past, so at these instants the number waiting is the whole state (Bailey
1954; Neuts 1967). The queue has no limit, yet nothing is cut off. While it is long, every batch takes the
same number, and the distribution of a random walk's first passage below a threshold is known (`LongQueue`).
So the chain needs only the states below the threshold, and its equations are finite and exact.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy  # its linalg is loaded where it is used
from scipy import special

from batchsim._compat import bincount
from batchsim.scenario import Noise
from batchsim.theory.answer import UnsolvedError

# A Gaussian bell sampled at steps of a third of its width, until it is negligible. To the left, the integrand
# of the lognormal falls more slowly than a bell, so the steps reach further there.
STEP = 1 / 3
STEPS = np.arange(-45, 28) * STEP
LARGEST_CV = 10.0  # up to here these steps are exact to 1e-8
BLOCK = 1 << 14  # numbers of arrivals worked on at a time, to bound the memory
PIECE = 4.0  # the most arrivals on average between two edges of `split`


def squared_cv(noise: Noise | None) -> float:
    """Return the squared coefficient of variation of the service times; UnsolvedError where noise lasts."""
    if noise is not None and noise.lasts:
        raise UnsolvedError(f"service times must be independent of each other, got {noise}")
    return 0.0 if noise is None else float(noise.cv) ** 2


def second_moment(means: np.ndarray, noise: Noise | None) -> np.ndarray:
    """Return E[A^2] of the Poisson arrivals A during a service that sees `means` of them on average.

    E[A^2] = m + m^2 (1 + cv^2): given the service time, A is Poisson.
    """
    return means + means**2 * (1 + squared_cv(noise))


def poisson_at(n: np.ndarray | int, mean: np.ndarray | float) -> np.ndarray:
    """Return the Poisson probability of n. By logarithms: mean^n and n! overflow long before it does."""
    return np.exp(special.xlogy(n, mean) - mean - special.gammaln(n + 1))


def poisson(mean: np.ndarray, count: int) -> np.ndarray:
    """Return the Poisson probabilities of n < count, shape (*mean.shape, count).

    >>> poisson(np.array(1.0), 3)
    array([0.36787944, 0.36787944, 0.18393972])
    """
    return poisson_at(np.arange(count), mean[..., None])


def split(times_s: np.ndarray, rate_per_s: float) -> np.ndarray:
    """Return the times in order, with more between them, so that at most 4 arrive on average in between.

    Over such a piece a Poisson probability is, to full precision, a polynomial of low degree, which a
    few nodes integrate.
    """
    times = np.unique(times_s)
    times = times[np.append(np.diff(times) > 1e-12 * times[-1], True)]
    steps = np.maximum(1, np.ceil(rate_per_s * np.diff(times) / PIECE)).astype(np.int64)
    pieces = zip(times[:-1], times[1:], steps, strict=True)
    return np.concatenate([times[:1], *(np.linspace(low, high, k + 1)[1:] for low, high, k in pieces)])


def pmf(means: np.ndarray, noise: Noise | None, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return P(A = n) for n < count, shape (means, count), and P(A >= count), shape (means,).

    Poisson arrivals; a row for each mean number of arrivals during a service. The service time is
    fixed (then A is Poisson), exponential (A is geometric) or lognormal (a mixture of Poissons).

    >>> pmf(np.array([2.0]), Noise(1, "exponential"), 2)
    (array([[0.33333333, 0.22222222]]), array([0.44444444]))
    """
    if noise is None or noise.cv == 0:
        mass = poisson(means, count)
        tail = special.pdtrc(count - 1, means)
        # The logarithms of large n cost digits; scaling by the known sum restores them.
        return mass * ((1 - tail) / mass.sum(1))[:, None], tail
    if noise.shape == "exponential":
        log_more = -np.log1p(1 / means)  # of P(one more arrives before the service ends)
        mass = np.exp(np.arange(count) * log_more[:, None] - np.log1p(means)[:, None])
        return mass, np.exp(count * log_more)
    if noise.cv > LARGEST_CV:
        raise UnsolvedError(f"cv of lognormal noise must be at most {LARGEST_CV:g}, got {noise.cv:g}")
    variance = math.log1p(noise.cv**2)
    blocks = [np.arange(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK)]
    rows = [np.concatenate([_poisson_lognormal(float(m), variance, n) for n in blocks]) for m in means]
    mass = np.array(rows).reshape(-1, count)
    return mass, np.clip(1 - mass.sum(1), 0, None)


def _poisson_lognormal(mean: float, variance: float, n: np.ndarray) -> np.ndarray:
    """Return P(A = n) of a Poisson whose mean is lognormal, shape of n.

    An integral over a standard normal x, for each n around the mode of its own integrand, in equal
    steps: for a smooth bell the trapezoidal rule converges faster than any power of the step. Gauss-Hermite
    nodes would be too sparse where the bell is narrow.
    """
    sigma = math.sqrt(variance)
    # With mu(x) = mean exp(sigma x - variance / 2), the mode solves d/dx [n log mu - mu - x^2 / 2] = 0. With
    # w = variance * mu that is w + log w = variance (n - 1/2) + log(mean variance), solved by Wright's omega.
    mu = special.wrightomega(variance * (n - 0.5) + math.log(mean * variance)).real / variance
    mode = sigma * (n - mu)
    width = 1 / np.sqrt(1 + variance * mu)
    log_peak = special.xlogy(n, mu) - mu - special.gammaln(n + 1) - mode**2 / 2
    offset = width[:, None] * STEPS
    # The log integrand minus its peak: the linear terms in x cancel, and expm1 keeps the digits of the rest
    # near the mode.
    growth = sigma * offset
    fall = -(offset**2) / 2 - mu[:, None] * (np.expm1(growth) - growth)
    return np.exp(log_peak) * width * np.exp(fall).sum(1) * (STEP / math.sqrt(2 * math.pi))


MOST_STATES = 8192
MOST_POINTS = 2**21
LOG_EPSILON = 37  # exp(-37) is below the rounding error of 1


class LongQueue:
    """The queue while `threshold` or more wait, so that every batch takes `top` of them.

    It is a random walk that falls by at most `top` in a batch, so it returns below the threshold in one of
    the `top` states just below. `returns[x]` is the distribution over these states from threshold + x.

    Theory: let A be the arrivals during a batch, and Q(z) the polynomial whose roots are those of z^top =
    E[z^A] in the closed unit disc. At each root, z^x is a martingale of the walk. So the probabilities from
    state x are the coefficients of z^(x - threshold + top) modulo Q(z). `above`: the number of states from
    the threshold up that are distinguished.
    """

    def __init__(self, top: int, top_mean: float, noise: Noise | None, threshold: int, above: int) -> None:
        self.top, self.threshold = top, threshold
        first = first_passage(top, top_mean, noise)
        # From one state higher the walk returns one state higher; if that is the threshold itself, it
        # continues from there. This recursion adds products of probabilities, so no digits cancel.
        self.returns = np.empty((above, top))
        self.returns[0] = first
        for x in range(1, above):
            lower = self.returns[x - 1]
            self.returns[x, 0] = 0.0
            self.returns[x, 1:] = lower[:-1]
            self.returns[x] += lower[-1] * first

    def matrix(self, left: np.ndarray, kinds: np.ndarray, mass: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """Return the distribution of the next state below the threshold, shape (rows, threshold).

        Each row starts a batch that leaves `left` behind. During a batch of its kind n requests arrive with
        probability mass[kind, n], and threshold + above or more (the columns of mass) with tail[kind].
        """
        size, above = self.threshold, len(self.returns)
        matrix, over = np.zeros((len(left), size)), np.zeros((len(left), above))
        for row, (r, kind) in enumerate(zip(left, kinds, strict=True)):
            matrix[row, r:] = mass[kind, : size - r]
            over[row] = mass[kind, size - r : size - r + above]
            over[row, -1] += mass[kind, size - r + above :].sum() + tail[kind]
        matrix[:, size - self.top :] += over @ self.returns
        return matrix


def first_passage(top: int, mean: float, noise: Noise | None) -> np.ndarray:
    """Return where a walk with steps A - top that starts at `top` first lands below it, shape (top,).

    Computes the factor Q of z^top - E[z^A] by Cauchy integrals of its logarithm on a circle just inside the
    unit circle, and doubles the points until the result no longer changes.
    """
    if top == 1:
        return np.ones(1)
    points = 1 << (64 * top - 1).bit_length()
    result = None
    while True:
        mass, tail = pmf(np.array([mean]), noise, points)
        overflow = mass[0, top:].sum() + tail[0]  # the weight of an error in the result
        if overflow < 1e-17:  # the walk never rises: its first step decides
            return mass[0, :top] / mass[0, :top].sum()
        previous, result = result, _factor(top, mass[0])
        error = math.inf if previous is None else float(np.abs(result - previous).max()) * overflow
        points *= 2
        if error < 1e-14 or (error < 1e-11 and points > MOST_POINTS):
            return result
        if points > MOST_POINTS:
            rule = "batches must fill often, or almost never, for the chain to be solved"
            raise UnsolvedError(f"{rule}, got batches of {top} that see {mean:.6g} arrivals")


def _factor(top: int, mass: np.ndarray) -> np.ndarray:
    """Return the first passage's distribution from that of the arrivals, with as many points on the circle.

    A Wiener-Hopf factorisation: split the logarithm of the transform into positive and negative powers of z;
    the negative powers contain the roots inside the disc.
    """
    points = mass.size
    # So little inside the unit circle that aliasing, radius^points, equals the rounding error.
    radius = np.exp(-LOG_EPSILON / points)
    turn = np.arange(points // 2 + 1)
    z = radius * np.exp(-2j * np.pi * turn / points)
    transform = np.fft.rfft(mass * radius ** np.arange(points))
    # The known root at 1 is divided out, and the scale prevents winding about 0. Otherwise there would be no
    # continuous logarithm.
    values = (1 - transform / z**top) / (1 - 1 / z)
    logarithm = np.log(np.abs(values)) + 1j * np.unwrap(np.angle(values))
    powers = np.fft.irfft(logarithm, points)
    powers[: points // 2 + 1] = 0
    factor = np.fft.irfft(np.exp(np.fft.rfft(powers)), points)
    # The coefficient of z^-i, i < top, is the probability to land below top - i.
    below = np.append(factor[-np.arange(top) % points] * radius ** np.arange(top), 0.0)
    chance = np.clip(below[:-1] - below[1:], 0, None)[::-1]
    return chance / chance.sum()


def resolved_arrivals(mean: float, noise: Noise | None, top: int) -> int:
    """Return how many arrivals must be distinguished; `mean` is the largest mean of any batch."""
    poisson = int(mean + 10 * np.sqrt(mean) + 40)
    if not squared_cv(noise):
        return poisson
    # Above that many batches, the walk's landing no longer depends on its start.
    batches = 40 * max(1.0, np.sqrt(squared_cv(noise)))
    return max(poisson, int(min(LOG_EPSILON * (1 + mean), batches * top)) + 40)


@dataclass(frozen=True)
class Stationary:
    """The stationary distribution of the number waiting at the end of a batch.

    `below[L]` is the probability of L below the threshold, `above` that of the threshold or more, and
    `above_left` the mean number left behind by the next batch from there, times `above`.
    """

    below: np.ndarray
    above: float
    above_left: float


@dataclass(frozen=True)
class SteadyState:
    """One server in the long run, with its chain; times in seconds. A cycle lasts from batch to batch.

    `computing_s` is the mean computing time of a request; `batch_size_pmf[k]` the fraction of batches that
    hold k requests.
    """

    chain: Stationary
    cycle_s: float
    utilisation: float
    mean_number: float  # in the system, waiting or computing
    computing_s: float
    batch_size_pmf: np.ndarray

    @property
    def mean_batch_size(self) -> float:
        return float(self.batch_size_pmf @ np.arange(self.batch_size_pmf.size))


def stationary(
    left: np.ndarray, means: np.ndarray, top: int, top_mean: float, noise: Noise | None,
    shift: np.ndarray | float = 0.0,
) -> Stationary:  # fmt: skip
    """Solve the chain L' = left[L] + A(means[L]) below the threshold len(left), L - top + A above it.

    `shift`, shape (threshold, threshold), is added to its transition probabilities.
    """
    threshold = len(left)
    if threshold > MOST_STATES:
        raise UnsolvedError(f"the chain must have at most {MOST_STATES:,} states, got {threshold:,}")
    above = resolved_arrivals(float(max(means.max(), top_mean)), noise, top)
    long_queue = LongQueue(top, top_mean, noise, threshold, above)
    matrix = np.zeros((threshold, threshold)) + shift
    L = np.arange(threshold)
    # In the steady state the means of L and of L^2 are the same from batch to batch. The states below the
    # threshold change them by `change` and `squares`, so the states above must reverse that. These two
    # balances give the probability and the mean above without a sum over infinitely many states.
    change = left + means - L + matrix @ L
    squares = left**2 + 2 * left * means + second_moment(means, noise) - L**2 + matrix @ L**2
    top_square = float(second_moment(np.array(top_mean), noise))
    unique, kinds = np.unique(means, return_inverse=True)
    mass, tail = pmf(unique, noise, threshold + above)
    below = stationary_distribution(matrix + long_queue.matrix(left, kinds, mass, tail))
    above_share = max(0.0, float(below @ change) / (top - top_mean))
    above_left = float(below @ squares + above_share * (top_square - top**2)) / (2 * (top - top_mean))
    total = 1 + above_share
    return Stationary(below / total, above_share / total, max(0.0, above_left) / total)


def stationary_distribution(matrix: np.ndarray) -> np.ndarray:
    """Return the stationary distribution of a stochastic matrix, shape (states,)."""
    equations = matrix.T - np.eye(len(matrix))
    equations[-1] = 1  # in place of one that follows from the others: the probabilities sum to 1
    answer = scipy.linalg.solve(equations, np.append(np.zeros(len(matrix) - 1), 1.0), check_finite=False)
    answer = np.clip(answer, 0, None)
    return answer / answer.sum()


def evaluate(policy: np.ndarray, rate_per_s: float, seconds: np.ndarray, noise: Noise | None) -> SteadyState:
    """Return the exact steady state under any policy of the kind "wait, or serve n", for Poisson arrivals.

    `policy[s]` of s waiting requests are taken, 0 to wait for one more; the last entry holds for all s
    above, and batches of that size must keep up with the arrivals. `seconds[k]` is the mean service time
    of a batch of k. Uses renewal reward over the cycles between the ends of batches.
    """
    threshold, top = len(policy) - 1, int(policy[-1])
    L = np.arange(threshold)
    # From each number waiting at a batch's end, the number at which the next batch leaves.
    serving = np.flatnonzero(policy)
    start = serving[np.searchsorted(serving, L)]
    taken = policy[start]
    left, service_s = start - taken, seconds[taken]
    means, top_mean = rate_per_s * service_s, float(rate_per_s * seconds[top])
    waiting = stationary(left, means, top, top_mean, noise)

    def arriving(mean: np.ndarray | float) -> np.ndarray | float:
        # The waiting time, during a service, of the requests that arrive in it, times the rate.
        return mean**2 * (1 + squared_cv(noise)) / 2

    idle_s = (start - L) / rate_per_s
    # The area under the number in system: L, L + 1, ... start - 1 while idle; then `start`, and the arrivals.
    idling = (start - L) * (start + L - 1) / 2 / rate_per_s
    area = waiting.below @ (idling + start * service_s + arriving(means) / rate_per_s)
    area += (waiting.above_left + waiting.above * top) * seconds[top]
    area += waiting.above * arriving(top_mean) / rate_per_s
    busy_s = waiting.below @ service_s + waiting.above * seconds[top]
    cycle_s = busy_s + waiting.below @ idle_s
    sizes = bincount(taken, weights=waiting.below, minlength=max(top, taken.max(initial=0)) + 1)
    sizes[top] += waiting.above
    used = np.flatnonzero(sizes)
    per_batch = used * sizes[used]
    return SteadyState(
        waiting, float(cycle_s), utilisation=float(busy_s) / float(cycle_s),
        mean_number=float(area / cycle_s), batch_size_pmf=sizes,
        computing_s=float(per_batch @ seconds[used] / per_batch.sum()),
    )  # fmt: skip


# The textbook rule without noise, with a timer: the chain of the number in system at the start of a batch.
#
# Only a full batch leaves requests behind, and those arrived before it started. If the max wait is at most
# the time of a full batch, their timer has expired at its end, so the next batch starts at once. All other
# requests that wait at a batch's end arrived during it. Given that the oldest of them arrived v before the
# end, the others are Poisson over v. So the chain only needs to know how many a batch left behind, and no
# request's age. A longer wait would need the ages, so it has no solution here.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclass(frozen=True)
class Forming(SteadyState):
    """The steady state, as the latency's distribution needs it; its chain is at the start of a batch.

    `seconds[k]` is the service time of k <= b, and `wait_s` <= seconds[b]. The chain's threshold is b + 1
    (0 does not occur). `unexpired_s[n]`: if a request arrives within this time before the end of a batch
    that started with n in the system, its timer has not expired at the end. `shift`: see `_shift`.
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
    starts = stationary(np.zeros(largest + 1, dtype=np.int64), means, largest, means[largest], None, shift)
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
    """Return the change of the transition probabilities by waiting, instead of starting at every end.

    If the timer of the first arrival has not expired at the end, or it arrives later, then
    Poisson(rate * wait) requests follow it, up to b in total.
    """
    largest = service_s.size - 1
    unexpired = np.exp(-rate * (service_s - unexpired_s))[:, None]  # no arrival early enough to expire
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
    """Return the mean time from a batch's end to the next start, and the integral of the number in system.

    When the oldest has waited x there are 1 + Poisson(rate x), and the batch still forms if fewer than b.
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
    # The probability that the server is free by then, and that the timer of the oldest has not expired.
    free = np.exp(-rate * (service_s[:, None] - np.minimum(x, unexpired_s[:, None])))
    return empty_s + free @ (weights * forms), free @ (weights * number)
