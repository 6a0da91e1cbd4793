"""Gamma or constant arrivals, one request at a time on one server: GI/G/1, exactly.

The wait W is the largest sum that steps X = service - gap reach. With phi(s) = E[exp(s X)], the factor of
1 - phi that is analytic on the left half-plane is 1 / E[exp(s W)] up to a constant (Wiener and Hopf). An
integral along the imaginary axis separates its logarithm from the other factor's; its slope at 0 is -E[W].
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy  # its optimize is loaded where it is used: that takes a quarter of a second

from batchsim import _check
from batchsim.scenario import Noise
from batchsim.theory.answer import Answer, UnsolvedError, check_load

POLLACZEK = "Pollaczek 1952, Spitzer 1957"
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
LARGEST_CV, LARGEST_NOISE_CV, LEAST_LOAD = 30.0, 10.0, 1e-3
FIXED = 1e-6  # a smaller cv is none, to all digits shown
MOST_POINTS = 1 << 17  # of the integrand: a second
FAR = 2000.0  # turns of fixed service times: over those beyond, the logarithm is 0 on average
BLOCK = 1 << 13  # points worked on at a time, to bound the memory
X = np.arange(-72, 129) / 8  # steps over a standard normal variable; more of the right, where long times are


def gg1(
    rate_per_s: float, mean_service_ms: float, arrival_cv: float, service_cv: float = 0.0,
    shape: str = "lognormal",
) -> Answer:  # fmt: skip
    """Return GI/G/1: gaps between arrivals that are gamma distributed, or constant for a cv of 0; one server.

    Service times are fixed for a cv of 0, else lognormal, or exponential, as the noise of a service. Exact,
    with the latency's distribution for exponential service (GI/M/1: Takacs 1962). Otherwise the mean is an
    integral; raises ValueError where that takes too long or has too few digits: for a load below 0.001, a cv
    of arrivals above 30 or of service above 10, and gaps and service times that hardly vary.

    >>> answer = gg1(rate_per_s=50, mean_service_ms=1, arrival_cv=10)
    >>> round(answer.load, 3), round(answer.mean_latency_ms, 4)
    (0.05, 22.662)
    """
    rate = _check.real("rate_per_s", rate_per_s, above=0)
    service_s = _check.real("mean_service_ms", mean_service_ms, above=0) / 1000
    arrival_cv = _check.real("arrival_cv", arrival_cv, at_least=0, at_most=1e3)
    noise = Noise(service_cv, shape)
    arrival_cv, service_cv = (cv if cv >= FIXED else 0.0 for cv in (arrival_cv, float(noise.cv)))
    check_load(rate, 1 / service_s)
    load, cdf, source = rate * service_s, None, POLLACZEK
    arrivals, letter = "GI" if arrival_cv else "D", "D"
    if service_cv and shape == "exponential":
        spare = _spare(load, arrival_cv)
        wait, letter, source = (1 - spare) / spare, "M", "Takacs 1962"
        cdf = partial(_exponential, mean_ms=mean_service_ms / spare)
    elif arrival_cv == service_cv == 0:
        wait = 0.0
        cdf = partial(_at_once, service_ms=mean_service_ms)
    else:
        letter = "G" if service_cv else "D"
        if arrival_cv > LARGEST_CV or service_cv > LARGEST_NOISE_CV:
            most = f"at most {LARGEST_CV:g} and that of service at most {LARGEST_NOISE_CV:g}"
            raise UnsolvedError(f"cv of arrivals must be {most}, got {arrival_cv:g} and {service_cv:g}")
        if load < LEAST_LOAD:
            raise UnsolvedError(f"the load must be at least {LEAST_LOAD:g} for GI/G/1, got {load:.3g}")
        wait = _mean_wait(load, arrival_cv, service_cv)
    latency_ms = (1 + wait) * mean_service_ms
    return Answer(
        f"{arrivals}/{letter}/1", source, rate, 1 / service_s, latency_ms, wait * mean_service_ms, load,
        batch_size_pmf=np.array([0.0, 1.0]), cdf=cdf,
    )  # fmt: skip


def _exponential(latency_ms: np.ndarray | float, mean_ms: float) -> np.ndarray:
    return np.asarray(-np.expm1(-np.clip(latency_ms, 0.0, None) / mean_ms))


def _at_once(latency_ms: np.ndarray | float, service_ms: float) -> np.ndarray:
    return np.asarray(np.asarray(latency_ms) >= service_ms * (1 - 1e-15), dtype=float)


def _spare(load: float, arrival_cv: float) -> float:
    """Return the chance to find the server free in GI/M/1: 1 - x, with x = E[exp((x - 1) gap)] below 1."""

    def excess(spare: float) -> float:  # in 1 - x, which keeps its digits at a high load
        return spare + math.expm1(_log_gap(spare, load, arrival_cv))

    low = 1 - load
    while excess(low) >= 0:
        low /= 2
    return float(scipy.optimize.brentq(excess, low, 1.0, xtol=1e-300, rtol=1e-14))


def _log_gap(s: float, load: float, arrival_cv: float) -> float:
    """Return log E[exp(-s gap)], for s and gaps in mean service times."""
    return -s / load if arrival_cv == 0 else -math.log1p(s * arrival_cv**2 / load) / arrival_cv**2


def _gap(y: np.ndarray, load: float, arrival_cv: float) -> np.ndarray:
    """Return E[exp(-i y gap)] - 1. Not by a complex log1p, whose real part is lost for small y."""
    if arrival_cv == 0:
        return np.expm1(-1j * y / load)
    scaled = y * arrival_cv**2 / load
    return np.expm1(-(np.log1p(scaled**2) / 2 + 1j * np.arctan(scaled)) / arrival_cv**2)


def _service(y: np.ndarray, service_cv: float) -> np.ndarray:
    """Return E[exp(i y S)] - 1 of a service time S with mean 1: fixed, or lognormal.

    The lognormal is an integral over a standard normal variable, taken along a line parallel to the real
    axis: there exp(i y S) falls off instead of turning ever faster, and equal steps converge faster than any
    power of theirs.
    """
    if service_cv == 0:
        return np.expm1(1j * y)
    variance = math.log1p(service_cv**2)
    sigma = math.sqrt(variance)
    turn = min(math.pi / 2, sigma)  # of S in the complex plane; a larger one would cost digits
    times = np.exp(sigma * X - variance / 2 + 1j * turn)
    weights = np.exp(-((X + 1j * turn / sigma) ** 2) / 2)
    blocks = (np.expm1(1j * y[i : i + BLOCK, None] * times) for i in range(0, y.size, BLOCK))
    return np.concatenate([block @ (weights / weights.sum()) for block in blocks])


def _mean_wait(load: float, arrival_cv: float, service_cv: float) -> float:
    """Return E[W] in mean service times.

    With m = -E[X] it is (E[X^2] / 2m - m) / 2, and the integral over y > 0 of
    [log |1 - phi(iy)| + log(1 + 1 / (my)^2) / 2] / (pi y^2). The second logarithm takes away the pole at 0.
    """
    gap = 1 / load
    m = gap - 1
    square = (arrival_cv * gap) ** 2 + service_cv**2 + m**2
    scale = square / m

    def step(y: np.ndarray) -> np.ndarray:  # phi - 1
        late, early = _service(y, service_cv), _gap(y, load, arrival_cv)
        return late + early + late * early

    def integrand(y: np.ndarray) -> np.ndarray:
        return (np.log(np.abs(step(y))) + np.log1p((m * y) ** -2.0) / 2) / y**2

    # Below `least` the integrand is constant; the fourth moment of the steps decides where that begins.
    least = 1e-4 / max(0.1 * scale, gap * arrival_cv**2, (1 + service_cv**2) ** 2.5)
    far = 1.0
    while far < (FAR if service_cv == 0 else 1e9) and abs(1 + step(np.array([far]))[0]) > 1e-9 * far:
        far *= 2
    octaves = np.geomspace(least, far, 2 + int(math.log2(far / least)))
    # What rounding leaves of a piece from y on: near a load of 1 the terms of phi - 1 cancel.
    rounding = 16 * np.finfo(float).eps / m
    inside = least * float(integrand(np.array([least]))[0])
    inside += _integral(integrand, octaves, lambda y: np.maximum(2e-11 * (1 + scale), rounding / y))
    x = 1 / (m * far)  # beyond, the first logarithm is 0 on average, and the second one's integral is known
    beyond = m / 2 * (x * math.log1p(x**2) - 2 * x + 2 * math.atan(x))
    return max(0.0, (scale / 2 - m) / 2 + (inside + beyond) / math.pi)


def _integral(
    function: Callable[[np.ndarray], np.ndarray], edges: np.ndarray,
    tolerance: Callable[[np.ndarray], np.ndarray],
) -> float:  # fmt: skip
    """Return the integral over the pieces between edges; a piece that two halves change is halved again."""

    def gauss(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        half = (high - low) / 2
        y = low[:, None] + half[:, None] * (1 + NODES)
        return (function(y.ravel()).reshape(y.shape) @ WEIGHTS) * half

    low, high, total, points = edges[:-1], edges[1:], 0.0, 0
    whole = gauss(low, high)
    while low.size:
        points += 2 * low.size * NODES.size
        if points > MOST_POINTS:
            raise UnsolvedError(
                "gaps or service times must vary more for GI/G/1 to be solved, got near-equal ones"
            )
        middle = (low + high) / 2
        halves = gauss(np.concatenate([low, middle]), np.concatenate([middle, high])).reshape(2, -1)
        done = np.abs(halves.sum(0) - whole) < tolerance(low)
        total += float(halves[:, done].sum())
        low, high = np.concatenate([low[~done], middle[~done]]), np.concatenate([middle[~done], high[~done]])
        whole = halves[:, ~done].ravel()
    return total
