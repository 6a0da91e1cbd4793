"""Requests computed one at a time: M/M/1, M/D/1, M/G/1, M/M/c, M/D/c, and Kingman's approximation."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from batchsim import _check
from batchsim.scenario import Affine
from batchsim.theory import batch, chain
from batchsim.theory.answer import Answer, UnsolvedError, check_load

MOST_SERVERS = 2048  # the chain of M/D/c has as many states
POLLACZEK = "Pollaczek 1930, Khinchine 1932"


def _checked(rate_per_s: float, mean_service_ms: float, servers: int = 1) -> tuple[float, float, int]:
    """Return the rate, the service time in seconds and the servers, once the system is known to be stable."""
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

    What computes now is done within D, so the number in system is a Markov chain at steps of D:
    N(t + D) = max(N(t) - c, 0) + Poisson(rate * D) (Crommelin 1932); the latency is E[N] / rate.

    >>> answer = mdc(rate_per_s=160, mean_service_ms=10, servers=2)
    >>> round(answer.mean_wait_ms, 5)
    9.03284
    """
    rate, service_s, servers = _checked(rate_per_s, mean_service_ms, servers)
    if servers > MOST_SERVERS:
        raise UnsolvedError(f"M/D/c must have at most {MOST_SERVERS:,} servers to be solved, got {servers:,}")
    mean = rate * service_s
    left, means = np.zeros(servers, dtype=int), np.full(servers, mean)
    number = chain.stationary(left, means, top=servers, top_mean=mean, noise=None)
    wait_ms = number.above_left / rate * 1000  # above_left: the mean of what exceeds c
    return _one_by_one(f"M/D/{servers}", "Crommelin 1932", rate, mean_service_ms, wait_ms, servers)


def kingman(rate_per_s: float, mean_service_ms: float, arrival_cv: float, service_cv: float) -> Answer:
    """Return Kingman's approximation of G/G/1, for a high load only (Kingman 1961).

    The mean wait is about load / (1 - load) * (arrival_cv^2 + service_cv^2) / 2 * service. With gamma
    distributed gaps its latency is within 10 % of the exact one from a load of 0.9 on, for cv up to 10 and 3.
    Below, it is up to 20 % too high for an arrival_cv below 1, and too low above: for 10, by 36 % at a load
    of 0.5 and by 84 % at 0.05. `gg1` is exact, and what `expected` takes.

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
