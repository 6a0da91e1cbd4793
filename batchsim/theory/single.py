"""Requests computed one at a time: M/M/1, M/D/1, M/G/1, M/M/c, M/D/c, GI/G/1, and Kingman's approximation."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy  # its optimize is loaded where it is used: that takes a quarter of a second
from scipy import special

from batchsim import _check
from batchsim.scenario import Affine, Noise
from batchsim.theory import batch, chain
from batchsim.theory.answer import Answer, UnsolvedError, check_load

MOST_SERVERS = 2048  # the chain of M/D/c has as many states
POLLACZEK = "Pollaczek 1930, Khinchine 1932"


def _checked(rate_per_s: float, mean_service_ms: float, servers: int = 1) -> tuple[float, float, int]:
    """Return the checked rate, service time in seconds and servers; raise unless the system is stable."""
    servers = _check.whole("servers", servers, at_most=65_536)
    rate_per_s = _check.real("rate_per_s", rate_per_s, above=0)
    service_s = _check.real("mean_service_ms", mean_service_ms, above=0) / 1000
    check_load(rate_per_s, servers / service_s)
    return rate_per_s, service_s, servers


def mg1(rate_per_s: float, mean_service_ms: float, cv: float) -> Answer:
    """Return M/G/1: Poisson arrivals, one server, service times with a coefficient of variation.

    The mean wait is rate * E[S^2] / (2 (1 - load)): Pollaczek and Khinchine.

    >>> round(mg1(rate_per_s=80, mean_service_ms=10, cv=0.5).mean_wait_ms, 9)
    25.0
    """
    rate, service_s, _ = _checked(rate_per_s, mean_service_ms)
    cv = _check.real("cv", cv, at_least=0, at_most=1e3)
    load = rate * service_s
    wait_ms = load * mean_service_ms * (1 + cv**2) / (2 * (1 - load))
    return _one_by_one("M/G/1", POLLACZEK, rate, mean_service_ms, wait_ms)


def md1(rate_per_s: float, mean_service_ms: float) -> Answer:
    """Return M/D/1: Poisson arrivals, one server, equal service times.

    The distribution is that of batches of at most one.

    >>> answer = md1(rate_per_s=80, mean_service_ms=10)
    >>> round(answer.mean_latency_ms, 9)
    30.0
    >>> round(answer.percentile(99), 3)
    113.559
    """
    mean = mg1(rate_per_s, mean_service_ms, cv=0)
    cdf = batch.capped(rate_per_s, Affine(mean_service_ms, 0), max_batch_size=1).cdf
    return _one_by_one("M/D/1", POLLACZEK, mean.rate_per_s, mean_service_ms, mean.mean_wait_ms, cdf=cdf)


def mm1(rate_per_s: float, mean_service_ms: float) -> Answer:
    """Return M/M/1: Poisson arrivals, one server, exponential service times.

    The latency is exponential with mean 1 / (1 / service - rate).

    >>> answer = mm1(rate_per_s=80, mean_service_ms=10)
    >>> round(answer.mean_latency_ms, 9), round(answer.percentile(95), 3)
    (50.0, 149.787)
    """
    return mmc(rate_per_s, mean_service_ms, servers=1)


def erlang_c(servers: int, offered_load: float) -> float:
    """Return the probability that an arrival has to wait in M/M/c (Erlang 1917).

    `offered_load` is the rate times the mean service time, in erlangs; below `servers`.

    >>> round(erlang_c(servers=2, offered_load=1.6), 6)
    0.711111
    """
    servers = _check.whole("servers", servers)
    offered = _check.real("offered_load", offered_load, at_least=0)
    if offered >= servers:
        raise ValueError(f"offered_load must be below the {servers} servers, got {offered_load!r}")
    if offered == 0:
        return 0.0
    # Erlang's B as a quotient of Poisson terms, whose factorials would overflow; then C from B.
    log_term = servers * math.log(offered) - offered - special.gammaln(servers + 1)
    blocked = math.exp(log_term) / special.pdtr(servers, offered)
    return float(blocked / (1 - offered / servers * (1 - blocked)))


def mmc(rate_per_s: float, mean_service_ms: float, servers: int) -> Answer:
    """Return M/M/c: Poisson arrivals, c servers, exponential service times.

    An arrival waits with probability `erlang_c`, exponentially with mean service / (c (1 - load)).

    >>> answer = mmc(rate_per_s=160, mean_service_ms=10, servers=2)
    >>> round(answer.mean_wait_ms, 6)
    17.777778
    """
    rate, service_s, servers = _checked(rate_per_s, mean_service_ms, servers)
    waits = erlang_c(servers, rate * service_s)
    mu = 1 / mean_service_ms
    spare = servers * mu - rate / 1000  # the rate, per ms, at which a wait ends

    def cdf(latency_ms: np.ndarray | float) -> np.ndarray:
        x = np.clip(latency_ms, 0.0, 1e290)  # not inf, which times 0 is NaN
        # The latency is a service, and with probability `waits` an independent wait before it.
        late = np.exp(-mu * x) * (1 - waits) + waits * _two_stages(mu, spare, x)
        return np.asarray(1 - late)

    name = "M/M/1" if servers == 1 else f"M/M/{servers}"
    return _one_by_one(name, "Erlang 1917", rate, mean_service_ms, waits / spare, servers, cdf)


def _two_stages(first: float, second: float, x: np.ndarray) -> np.ndarray:
    """Return P(sum of two exponentials with these rates > x).

    The usual formula divides by the difference of the rates; exprel(y) = (e^y - 1) / y does not, so that
    equal rates are no special case.
    """
    fast, slow = max(first, second), min(first, second)
    return np.exp(-slow * x) * (1 + slow * x * special.exprel((slow - fast) * x))


def mmc_wait_percentile_ms(q: float, rate_per_s: float, mean_service_ms: float, servers: int) -> float:
    """Return the wait in ms that q % of the requests do not exceed in M/M/c; 0 if fewer than 1 - q % wait.

    >>> round(mmc_wait_percentile_ms(95, rate_per_s=160, mean_service_ms=10, servers=2), 4)
    66.3701
    """
    q = _check.real("q", q, at_least=0, at_most=100)
    rate, service_s, servers = _checked(rate_per_s, mean_service_ms, servers)
    waits, later = erlang_c(servers, rate * service_s), 1 - q / 100
    if later == 0:
        return math.inf
    return max(0.0, math.log(waits / later) * 1000 / (servers / service_s - rate)) if waits > 0 else 0.0


def mdc(rate_per_s: float, mean_service_ms: float, servers: int) -> Answer:
    """Return M/D/c: Poisson arrivals, c servers, equal service times D.

    Requests that compute now are done within D, so the number in system is a Markov chain at steps of D:
    N(t + D) = max(N(t) - c, 0) + Poisson(rate * D) (Crommelin 1932); the latency is E[N] / rate.

    >>> answer = mdc(rate_per_s=160, mean_service_ms=10, servers=2)
    >>> round(answer.mean_wait_ms, 5)
    9.03284
    """
    rate, service_s, servers = _checked(rate_per_s, mean_service_ms, servers)
    if servers > MOST_SERVERS:
        raise UnsolvedError(f"M/D/c must have at most {MOST_SERVERS:,} servers to be solved, got {servers:,}")
    mean = rate * service_s
    left, means = np.zeros(servers, dtype=np.int64), np.full(servers, mean)
    number = chain.stationary(left, means, top=servers, top_mean=mean, noise=None)
    wait_ms = number.above_left / rate * 1000  # above_left: the mean excess over c
    return _one_by_one(f"M/D/{servers}", "Crommelin 1932", rate, mean_service_ms, wait_ms, servers)


def kingman(rate_per_s: float, mean_service_ms: float, arrival_cv: float, service_cv: float) -> Answer:
    """Return Kingman's approximation of G/G/1, for a high load only (Kingman 1961).

    The mean wait is about load / (1 - load) * (arrival_cv^2 + service_cv^2) / 2 * service. For gamma
    distributed gaps its latency is within 10 % of the exact one from a load of 0.9 on, for cv up to 10 and 3.
    At lower loads it is up to 20 % too high for an arrival_cv below 1, and too low above: for 10, by 36 % at
    a load of 0.5 and by 84 % at 0.05. `gg1` is exact, and `expected` uses that.

    >>> round(kingman(rate_per_s=80, mean_service_ms=10, arrival_cv=0.5, service_cv=0).mean_wait_ms, 9)
    5.0
    """
    rate, service_s, _ = _checked(rate_per_s, mean_service_ms)
    arrival_cv = _check.real("arrival_cv", arrival_cv, at_least=0, at_most=1e3)
    squares = arrival_cv**2 + _check.real("service_cv", service_cv, at_least=0, at_most=1e3) ** 2
    load = rate * service_s
    wait_ms = load / (1 - load) * squares / 2 * mean_service_ms
    return _one_by_one("G/G/1", "Kingman 1961", rate, mean_service_ms, wait_ms, exact=False)


def _one_by_one(
    model: str, source: str, rate_per_s: float, mean_service_ms: float, mean_wait_ms: float,
    servers: int = 1, cdf: Callable[[Any], np.ndarray] | None = None, exact: bool = True,
) -> Answer:  # fmt: skip
    saturation_per_s = servers / mean_service_ms * 1000
    return Answer(
        model, source, rate_per_s, saturation_per_s, mean_wait_ms + mean_service_ms, mean_wait_ms,
        rate_per_s / saturation_per_s, exact=exact, batch_size_pmf=np.array([0.0, 1.0]), cdf=cdf,
    )  # fmt: skip


# GI/G/1: gamma or constant gaps, one server.
#
# The wait W is the maximum of a walk with steps X = service - gap. With phi(s) = E[exp(s X)]. Wiener and
# Hopf: up to a constant, 1 / E[exp(s W)] is the factor of 1 - phi that is analytic in the left half-plane. An
# integral along the imaginary axis separates its logarithm from that of the other factor. Its slope at 0 is
# -E[W].
SPITZER = "Pollaczek 1952, Spitzer 1957"
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
LARGEST_CV, LARGEST_NOISE_CV, LEAST_LOAD = 30.0, 10.0, 1e-3
FIXED = 1e-6  # a smaller cv makes no visible difference
MOST_POINTS = 1 << 17  # of the integrand: a second
FAR = 2000.0  # turns of fixed service times: beyond, the logarithm is 0 on average
BLOCK = 1 << 13  # points worked on at a time, to bound the memory
X = np.arange(-72, 129) / 8  # steps over a standard normal variable; more to the right, for long times


def gg1(
    rate_per_s: float, mean_service_ms: float, arrival_cv: float, service_cv: float = 0.0,
    shape: str = "lognormal",
) -> Answer:  # fmt: skip
    """Return GI/G/1: gaps between arrivals that are gamma distributed, or constant for a cv of 0; one server.

    Service times are fixed for a cv of 0, else lognormal or exponential, as the noise of a service. Exact,
    with the latency's distribution for exponential service (GI/M/1: Takacs 1962). Otherwise the mean is an
    integral. Raises ValueError if that takes too long or has too few digits: for a load below 0.001, a cv of
    arrivals above 30 or of service above 10, and gaps and service times that hardly vary.

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
    load, cdf, source = rate * service_s, None, SPITZER
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
    """Return the probability of a free server in GI/M/1: 1 - x, with x = E[exp((x - 1) gap)] below 1."""

    def excess(spare: float) -> float:  # of 1 - x, which keeps its digits at a high load
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

    The lognormal is an integral over a standard normal variable, along a line parallel to the real axis:
    there exp(i y S) decays instead of oscillating ever faster, and the trapezoidal rule converges faster than
    any power of its step.
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

    With m = -E[X] it is (E[X^2] / 2m - m) / 2, plus the integral over y > 0 of
    [log |1 - phi(iy)| + log(1 + 1 / (my)^2) / 2] / (pi y^2). The second logarithm removes the pole at 0.
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
    # The rounding error of a piece from y on: near a load of 1 the terms of phi - 1 cancel.
    rounding = 16 * np.finfo(float).eps / m
    inside = least * float(integrand(np.array([least]))[0])
    inside += _integral(integrand, octaves, lambda y: np.maximum(2e-11 * (1 + scale), rounding / y))
    x = 1 / (m * far)  # beyond, the first logarithm is 0 on average, and the second has a closed integral
    beyond = m / 2 * (x * math.log1p(x**2) - 2 * x + 2 * math.atan(x))
    return max(0.0, (scale / 2 - m) / 2 + (inside + beyond) / math.pi)


def _integral(
    function: Callable[[np.ndarray], np.ndarray], edges: np.ndarray,
    tolerance: Callable[[np.ndarray], np.ndarray],
) -> float:  # fmt: skip
    """Return the integral over the pieces between edges; halves a piece until that no longer changes it."""

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
