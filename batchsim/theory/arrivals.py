"""The distribution of the number of requests that arrive while a batch computes."""

import math

import numpy as np
from scipy import special

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
