"""Waiting for a batch to fill: limits for light and heavy traffic, and when a server keeps up."""

import math

import numpy as np
import scipy  # its optimize is loaded where it is used: that takes a quarter of a second
from scipy import special

from batchsim import _check
from batchsim.scenario import Rule, Service
from batchsim.scenario.rules import LARGEST_BATCH
from batchsim.theory.answer import check_load
from batchsim.theory.arrivals import poisson_at


def light_traffic_latency_ms(rule: Rule | float, service: Service, timer: str = "oldest") -> float:
    """Return the latency in ms of a request that has the server to itself: the limit of light traffic.

    `rule` is a rule or its wait T in ms. The latency is T + service(1) if the timer starts with the
    oldest request (or with a worker that has taken it), T / 2 + service(1) on average if windows of T run
    freely (`timer="free"`). A rule for which one request is enough does not wait; without a timer, inf.

    >>> from batchsim import Affine, SizeOrWait
    >>> light_traffic_latency_ms(SizeOrWait(32, 10), Affine(5, 0.25))
    15.25
    """
    _check.instance("service", service, Service, "a service of batchsim")
    _check.one_of("timer", timer, ("oldest", "free"))
    if isinstance(rule, Rule):
        wait_ms = 0.0 if rule.enough == 1 else rule.max_wait_ms
    else:
        wait_ms = _check.real("wait in ms", rule, at_least=0, finite=False)
    return wait_ms * (0.5 if timer == "free" else 1) + service(1) * 1000


def full_batch_forming_ms(rate_per_s: float, max_batch_size: int) -> float:
    """Return the mean time in ms that a request waits for its batch to fill, if only full batches leave.

    (B - 1) / (2 rate): the first waits for B - 1 gaps, the last for none. In light traffic it has no limit.

    >>> full_batch_forming_ms(rate_per_s=1000, max_batch_size=33)
    16.0
    """
    rate = _check.real("rate_per_s", rate_per_s, above=0)
    size = _check.whole("max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    return (size - 1) / (2 * rate) * 1000


def frozen_batch_size_pmf(rate_per_s: float, max_batch_size: int, max_wait_ms: float) -> np.ndarray:
    """Return the fraction of a frozen batcher's batches by size, shape (largest + 1,).

    A frozen batcher closes a batch when it is full or its oldest request has waited, whether a server
    is free or not, and no request joins it later: with Poisson arrivals its size is
    1 + min(Poisson(rate * wait), B - 1).

    >>> frozen_batch_size_pmf(rate_per_s=1000, max_batch_size=3, max_wait_ms=1).round(4)
    array([0.    , 0.3679, 0.3679, 0.2642])
    """
    rate = _check.real("rate_per_s", rate_per_s, above=0)
    size = _check.whole("max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    wait_s = _check.real("max_wait_ms", max_wait_ms, at_least=0, finite=False) / 1000
    pmf = np.zeros(size + 1)
    if math.isfinite(wait_s):
        pmf[1:-1] = poisson_at(np.arange(size - 1), rate * wait_s)
    pmf[-1] = special.gammainc(size - 1, rate * wait_s) if size > 1 else 1.0
    return pmf


def frozen_mean_batch_size(rate_per_s: float, max_batch_size: int, max_wait_ms: float) -> float:
    """Return the mean batch size of a frozen batcher, `frozen_batch_size_pmf`.

    >>> round(frozen_mean_batch_size(rate_per_s=1000, max_batch_size=32, max_wait_ms=5), 6)
    6.0
    """
    pmf = frozen_batch_size_pmf(rate_per_s, max_batch_size, max_wait_ms)
    return float(pmf @ np.arange(pmf.size))


def frozen_load(rate_per_s: float, service: Service, max_batch_size: int, max_wait_ms: float) -> float:
    """Return the load of one server behind a frozen batcher; below 1 it keeps up.

    rate * E[service(size)] / E[size]: a frozen batch does not grow with the queue, so too short a wait can
    overload a server that would keep up with larger batches.

    >>> from batchsim import Affine
    >>> round(frozen_load(1000, Affine(5, 0.25), max_batch_size=32, max_wait_ms=5), 4)
    1.0833
    """
    _check.instance("service", service, Service, "a service of batchsim")
    pmf = frozen_batch_size_pmf(rate_per_s, max_batch_size, max_wait_ms)
    sizes = np.arange(1, pmf.size)
    return float(rate_per_s * (pmf[1:] @ service.table(max_batch_size)[1:]) / (pmf[1:] @ sizes))


def frozen_wait_min_ms(
    rate_per_s: float, fixed_ms: float, per_item_ms: float, max_batch_size: int | None = None
) -> float:
    """Return T_min: the wait in ms above which a server keeps up with a frozen batcher; 0 for any wait.

    For the service time per_item_ms * b + fixed_ms the mean batch must exceed
    rate * fixed / (1 - rate * per_item). Without a cap it is 1 + rate * T. With a cap, Brent's method finds
    T_min; raises ValueError if not even full batches keep up.

    >>> round(frozen_wait_min_ms(rate_per_s=1000, fixed_ms=5, per_item_ms=0.25), 6)
    5.666667
    """
    rate = _check.real("rate_per_s", rate_per_s, above=0) / 1000
    fixed = _check.real("fixed_ms", fixed_ms, at_least=0)
    item = _check.real("per_item_ms", per_item_ms, at_least=0)
    if rate * item >= 1:
        check_load(rate * 1000, 1000 / item)
    needed = rate * fixed / (1 - rate * item)
    uncapped_ms = max(0.0, (needed - 1) / rate)
    if max_batch_size is None or uncapped_ms == 0:
        return uncapped_ms
    cap = _check.whole("max_batch_size", max_batch_size, at_most=LARGEST_BATCH)
    check_load(rate * 1000, cap / (fixed + cap * item) * 1000)
    # Full batches keep up, so a mean above the cap is never needed; rounding may exceed it slightly.
    needed = min(needed, cap)

    def surplus(wait_ms: float) -> float:
        return frozen_mean_batch_size(rate_per_s, cap, wait_ms) - needed

    long_ms = max(uncapped_ms, cap / rate)
    while surplus(long_ms) < 0:
        long_ms *= 2
    return float(scipy.optimize.brentq(surplus, uncapped_ms / 2, long_ms, xtol=1e-12, rtol=1e-14))
