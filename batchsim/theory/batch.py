"""One server, Poisson arrivals, batches: of all waiting requests, at most b, at least a, or after a wait.

Also limits of waiting for a batch to fill, in light and heavy traffic, and when a server keeps up.
"""

import math

import numpy as np
import scipy  # its optimize is loaded where it is used: that takes a quarter of a second
from scipy import special

from batchsim import _check
from batchsim.scenario import Affine, AtLeast, Rule, Service, SizeOrWait
from batchsim.scenario.rules import LARGEST_BATCH, Threshold
from batchsim.theory import chain
from batchsim.theory.answer import Answer, UnsolvedError, check_load, checked
from batchsim.theory.chain import poisson_at, squared_cv
from batchsim.theory.distribution import Latency

EMBEDDED = "embedded chain, as Bailey 1954 and Neuts 1967"
DERIVED = "embedded chain, derived and tested in batchsim"
INOUE = "Inoue 2021, arXiv 1912.06322"
FIRST_CAP = 128  # where `_solve` begins


def solve_threshold(rate_per_s: float, service: Service, rule: Threshold) -> Answer:
    """Return the steady state under a rule that declares itself a threshold rule (`Rule.threshold`).

    Raises UnsolvedError for a timer with noisy service times, with a threshold below a full batch, or longer
    than the time of a full batch: these have no known solution.
    """
    rate = checked(rate_per_s, service)
    largest, noisy, source = rule.largest, squared_cv(service.noise) > 0, EMBEDDED
    full_s, saturation_per_s = service(largest), largest / service(largest)
    at_once = rule.wait_s == 0 or rule.enough == 1 or largest == 1  # no server idles while requests wait
    enough, wait_s = (1, 0.0) if at_once else (rule.enough, rule.wait_s)
    timed = 0 < wait_s < math.inf
    if timed and noisy:
        raise UnsolvedError(f"max wait must be 0 or inf for noisy service, got {wait_s * 1000:g} ms")
    if timed and enough < largest:
        raise UnsolvedError(f"a timer with a minimum batch size of {enough} is not solved")
    if timed and wait_s > full_s:
        most = f"at most the {full_s * 1000:g} ms of a full batch"
        raise UnsolvedError(f"max wait must be 0, inf, or {most}, got {wait_s * 1000:g} ms")
    check_load(rate, saturation_per_s)
    state: chain.SteadyState
    if noisy or math.isinf(wait_s):
        _check_states(largest)
        waiting, noise = np.arange(largest + 1), service.noise
        state = chain.evaluate(np.where(waiting < enough, 0, waiting), rate, service.table(largest), noise)
        letter = "D" if noise is None or not noisy else "M" if noise.shape == "exponential" else "G"
        model = f"M/{letter}^({enough},{largest})/1"  # Kendall's letter of the service times
    else:
        state = _solve(rate, service, largest, wait_s)
        model = "M/D/1" if largest == 1 else f"M/D^(1,{largest})/1"
        if timed:
            model, source = f"{model} with a wait of {wait_s * 1000:g} ms", DERIVED
    return _answer(model, source, rate, saturation_per_s, state)


def at_least(rate_per_s: float, service: Service, min_batch_size: int, max_batch_size: int) -> Answer:
    """Return M/G^(a,b)/1: a free server takes at most b once a wait; later arrivals do not join.

    Poisson arrivals, one server, service times that depend on the batch size, with the service's
    noise. Exact, from the embedded chain of the number waiting at the end of a batch. The latency's
    distribution is available for a = 1 without noise (`capped`).

    >>> from batchsim import Affine
    >>> answer = at_least(1000, Affine(1.8874, 0.1438), min_batch_size=4, max_batch_size=8)
    >>> round(answer.mean_latency_ms, 5), round(answer.mean_batch_size, 4)
    (4.12022, 4.1674)
    """
    return solve_threshold(rate_per_s, service, AtLeast(min_batch_size, max_batch_size).threshold)


def capped(rate_per_s: float, service: Service, max_batch_size: int) -> Answer:
    """Return M/G^(1,b)/1, Bailey's queue: a free server takes all waiting requests, at most b.

    The textbook rule with a wait of 0. Without noise it includes the latency's distribution.

    >>> from batchsim import Affine
    >>> answer = capped(2105.5, Affine(1.8874, 0.1438), max_batch_size=8)
    >>> round(answer.mean_latency_ms, 4), round(answer.mean_batch_size, 3), round(answer.load, 3)
    (4.497, 5.705, 0.8)
    >>> round(answer.percentile(99), 3)
    8.112
    """
    return at_least(rate_per_s, service, 1, max_batch_size)


def size_or_wait(rate_per_s: float, service: Service, max_batch_size: int, max_wait_ms: float) -> Answer:
    """Return the textbook rule: a batch leaves when it is full, or when its oldest request has waited.

    Poisson arrivals, one server. A wait of 0 or inf is the (a, b) rule with a = 1 or a = b. For any wait
    up to service(max_batch_size) without noise it is exact too, with the latency's distribution, from
    the chain of `batchsim.theory.chain`. A longer wait would need the ages of the waiting requests.

    >>> from batchsim import Affine
    >>> answer = size_or_wait(900, Affine(5, 0.25), max_batch_size=32, max_wait_ms=10)
    >>> round(answer.mean_latency_ms, 4), round(answer.percentile(99), 3)
    (13.2251, 18.75)
    """
    return solve_threshold(rate_per_s, service, SizeOrWait(max_batch_size, max_wait_ms).count_threshold)


def uncapped(rate_per_s: float, service: Service) -> Answer:
    """Return the queue whose free server takes all waiting requests, without a limit: Inoue 2021.

    Poisson arrivals, one server, no noise; the service must have a time for every batch that occurs.
    The embedded chain is the one with a cap, which is so high that no batch reaches it.

    >>> from batchsim import Affine
    >>> round(uncapped(0.5 / 0.1438e-3, Affine(1.8874, 0.1438)).mean_latency_ms, 5)
    5.90186
    """
    rate = checked(rate_per_s, service)
    if squared_cv(service.noise):
        raise ValueError(f"uncapped batches must have a service without noise, got {service!r}")
    saturation_per_s = math.nan  # unknown for a table, which ends at some size
    if isinstance(service, Affine) and service.padding is None:
        saturation_per_s = 1000 / service.per_item_ms if service.per_item_ms > 0 else math.inf
        check_load(rate, saturation_per_s)
    return _answer("M/D^(1,inf)/1", INOUE, rate, saturation_per_s, _solve(rate, service, math.inf, 0.0))


def uncapped_bound(rate_per_s: float, fixed_ms: float, per_item_ms: float) -> float:
    """Return the closed-form upper bound in ms on the mean latency of `uncapped`: min(phi0, phi1).

    For the service time per_item_ms * b + fixed_ms, from Inoue 2021. The formulas were compared with the
    exact chain, which they exceed by at most some 10 %, but not with the printed page.

    >>> round(uncapped_bound(0.5 / 0.1438e-3, 1.8874, 0.1438), 4)
    5.9019
    """
    rate, fixed, item = _of_a_line(rate_per_s, fixed_ms, per_item_ms)
    load = rate * item
    light = (item + fixed) / (2 * (1 - load)) * (1 + 2 * rate * fixed + (1 - rate * fixed) / (1 + load))
    heavy = 1.5 * fixed / (1 - load) + item / 2 * (load + 2) / (1 - load**2)
    return float(min(light, heavy))


def _of_a_line(rate_per_s: float, fixed_ms: float, per_item_ms: float) -> tuple[float, float, float]:
    """Return the rate per ms and the two costs, or raise, also if no batch is large enough for the rate."""
    rate = _check.real("rate_per_s", rate_per_s, above=0) / 1000
    fixed = _check.real("fixed_ms", fixed_ms, at_least=0)
    item = _check.real("per_item_ms", per_item_ms, at_least=0)
    if rate * item >= 1:
        check_load(rate * 1000, 1000 / item)
    return rate, fixed, item


def neuts(rate_per_s: float, mean_service_ms: float, min_batch_size: int, max_batch_size: int) -> Answer:
    """Return M/M^(a,b)/1: exponential service whose mean does not depend on the batch size.

    The closed form of Neuts 1967; the wait includes the time in which the batch forms.

    >>> answer = neuts(1500, 1, min_batch_size=1, max_batch_size=2)
    >>> round(answer.mean_latency_ms, 6)
    3.77007
    """
    rule = AtLeast(min_batch_size, max_batch_size)
    a, b = rule.min_batch_size, rule.max_batch_size
    rate = _check.real("rate_per_s", rate_per_s, above=0) / 1000
    mu = 1 / _check.real("mean_service_ms", mean_service_ms, above=0)
    check_load(rate * 1000, b * mu * 1000)
    # mu r^(b+1) - (rate + mu) r + rate = 0 without its root at 1: mu (r + ... + r^b) = rate.
    powers = np.arange(1, b + 1)
    r = float(scipy.optimize.brentq(lambda x: mu * (x**powers).sum() - rate, 0, 1, xtol=1e-16, rtol=1e-15))
    q = np.arange(a)
    idle = mu / rate * (1 - r ** (q + 1)) / (1 - r)
    scale = 1 / (1 / (1 - r) + idle.sum())
    wait_ms, busy = float(scale * (r / (1 - r) ** 2 + q @ idle)) / rate, float(scale / (1 - r))
    return Answer(
        f"M/M^({a},{b})/1", "Neuts 1967", rate * 1000, b * mu * 1000, wait_ms + 1 / mu, wait_ms,
        utilisation=busy, mean_batch_size=rate / (mu * busy),
    )  # fmt: skip


def _solve(rate_per_s: float, service: Service, cap: float, wait_s: float) -> chain.Forming:
    """Return the steady state without noise; the cap may be inf.

    Batches much larger than usual are so rare that a lower cap gives the same chain to the last digits. The
    cost grows with the cube of the cap, so this tries caps from below.
    """
    tried = int(min(cap, FIRST_CAP, service.largest_batch))
    while True:
        _check_states(tried)
        seconds = service.table(tried)
        full_s = float(seconds[tried])
        if tried == cap or (_is_beyond_reach(rate_per_s, seconds) and wait_s <= full_s):
            state = chain.solve(rate_per_s, seconds, wait_s)
            if tried == cap or state.chain.above + state.chain.below[-tried // 8 :].sum() < 1e-14:
                return state
        if tried == service.largest_batch:
            raise ValueError(f"uncapped batches must have a service time, got none above {tried}: use capped")
        tried = int(min(tried * 3 // 2, cap, service.largest_batch))


def _is_beyond_reach(rate_per_s: float, seconds: np.ndarray) -> bool:
    """Return whether a batch of the largest size hardly ever occurs.

    During a batch, rate * service(size) requests arrive, and the next batch takes them. So sizes fluctuate
    around the size that equals its own arrivals. They fluctuate more widely, the more arrivals one more
    request in the batch causes (`slope`); 6 standard deviations are beyond reach.
    """
    sees = rate_per_s * seconds[1:]
    above = np.flatnonzero(sees < np.arange(1, seconds.size))
    if not above.size:
        return False
    usual, slope = 1 + int(above[0]), min(float(np.diff(sees)[-1:].sum()), 1 - 1e-6)
    return usual + 6 * math.sqrt(usual / (1 - slope**2)) < seconds.size


def _check_states(batch_size: int) -> None:
    if batch_size >= (limit := chain.MOST_STATES):
        raise UnsolvedError(f"batches must stay below {limit:,} for the chain to be solved, got larger ones")


def _answer(
    model: str, source: str, rate_per_s: float, saturation_per_s: float, state: chain.SteadyState
) -> Answer:
    latency_ms = state.mean_number / rate_per_s * 1000  # Little's law
    return Answer(
        model, source, rate_per_s, saturation_per_s, latency_ms, latency_ms - state.computing_s * 1000,
        state.utilisation, state.mean_batch_size, batch_size_pmf=state.batch_size_pmf,
        cdf=Latency(state).cdf if isinstance(state, chain.Forming) else None,
    )  # fmt: skip


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
    rate, fixed, item = _of_a_line(rate_per_s, fixed_ms, per_item_ms)
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
