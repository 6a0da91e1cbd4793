"""A run as a time series, for traffic that drifts: rates, queue length and percentiles by window."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from batchsim import _check
from batchsim._clock import later
from batchsim._compat import reduceat, repeat
from batchsim.engines.autoscaling import replica_s
from batchsim.engines.log import Status
from batchsim.result.run import Run
from batchsim.result.standard_error import dependent
from batchsim.scenario import ClosedLoop, OpenLoop, Trace

if TYPE_CHECKING:
    import pandas

MOST_WINDOWS = 1_000_000
PERCENTILES = (50, 95, 99)
# A rate drifts if it varies by more than this between parts of the run, and not by chance.
DRIFT = 1.2
ONCE_IN_A_THOUSAND = 3.09  # standard normal deviations


def over_time(run: Run, window_s: float) -> "pandas.DataFrame":
    """Return a DataFrame with a row for each `window_s` of the run, the warm-up included.

    `arrival_rate_per_s` and `throughput_per_s` are of the window; `mean_queue_length` and
    `max_queue_length` count the requests that wait in it, `utilisation` is of all servers, and
    `device_utilisation`, where a scenario has `devices`, of these. The latencies are of the requests that
    arrive in it, NaN where none does. Windows begin at `begin_s`; the last
    may reach beyond the last finish, and is then measured up to it.

    >>> from batchsim import Affine, Diurnal, Scenario, SizeOrWait, simulate
    >>> scenario = Scenario(Diurnal(800, peak_to_mean=1.5, period_s=60), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> frame = simulate(scenario, 48_000).over_time(window_s=20)
    >>> frame.arrival_rate_per_s.round().tolist()  # night, day, night
    [643.0, 1127.0, 634.0]
    """
    import pandas

    window_s = _check.real("window_s", window_s, above=0)
    log = run.log
    end_s = max(float(log.arrival_s[-1]), float(log.batch_finish_s.max(initial=0.0)))
    count = max(math.ceil(end_s / window_s - 1e-9), 1)  # 3 windows of end / 3, however they round
    if count > MOST_WINDOWS:
        raise ValueError(f"window_s must leave at most {MOST_WINDOWS:,} windows, got {window_s!r}: {count:,}")
    edges_s = np.append(np.arange(count) * window_s, end_s)
    window = np.minimum(np.searchsorted(edges_s, log.arrival_s, side="right") - 1, count - 1)
    firsts = np.searchsorted(window, np.arange(count + 1))
    waited_s, longest = _queue(run, edges_s)
    latencies = np.full((count, 1 + len(PERCENTILES)), math.nan)
    for row, (first, last) in zip(latencies, pairwise(firsts.tolist()), strict=True):
        served_ms = run.latency_ms[first:last]
        served_ms = served_ms[~np.isnan(served_ms)]
        if served_ms.size:
            row[:] = served_ms.mean(), *np.percentile(served_ms, PERCENTILES)
    lengths_s, finish_s = np.diff(edges_s), run.finish_s[~np.isnan(run.finish_s)]
    busy_s = np.diff(np.interp(edges_s, run.server_time.times_s, run.server_time.busy_s))
    on_device_s = busy_s - run.off_device_s(edges_s)
    ran_s = lengths_s * run.scenario.replicas
    if log.scaling is not None:
        ran_s = replica_s(run.scenario, log, edges_s)
    with np.errstate(invalid="ignore", divide="ignore"):  # a run whose only window has no length
        return pandas.DataFrame({
            "begin_s": edges_s[:-1], "end_s": edges_s[1:],
            **({} if log.scaling is None else {"mean_replicas": ran_s / lengths_s}),
            "arrivals": np.diff(firsts), "arrival_rate_per_s": np.diff(firsts) / lengths_s,
            "throughput_per_s": np.histogram(finish_s, edges_s)[0] / lengths_s,
            "mean_queue_length": np.diff(waited_s) / lengths_s, "max_queue_length": longest,
            "utilisation": busy_s / ran_s / run.scenario.servers,
            **({"device_utilisation": on_device_s / ran_s / run.scenario.device_count}
               if run.metrics.tells_devices else {}),
            "mean_latency_ms": latencies[:, 0],
            **{f"p{q}_ms": column for q, column in zip(PERCENTILES, latencies[:, 1:].T, strict=True)},
        })  # fmt: skip


def _queue(run: Run, edges_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the integral of the queue's length up to each edge, and its maximum in each window."""
    log, left_s = run.log, run.start_s.copy()
    gone, waited = log.status == Status.TIMED_OUT, log.status != Status.REJECTED
    left_s[gone] = later(log.arrival_s[gone], run.timeout_s[gone])
    times_s = np.concatenate([log.arrival_s[waited], left_s[waited]])
    order = np.argsort(times_s, kind="stable")  # at one instant arrivals are first, as in the engines
    times_s, entered = times_s[order], np.count_nonzero(waited)
    length = np.cumsum(repeat([1, -1], [entered, entered])[order])
    before, after = np.searchsorted(times_s, edges_s[:-1]), np.searchsorted(times_s, edges_s[1:])
    after[-1] = times_s.size
    longest = np.append(0, length)[before]  # a window has at least the length that it begins with
    changes = np.flatnonzero(after > before)
    if not changes.size:
        return np.zeros(edges_s.size), longest
    longest[changes] = np.maximum(longest[changes], reduceat(np.maximum, length, before[changes]))
    integral_s = np.cumsum(np.append(0.0, length[:-1] * np.diff(times_s)))
    return np.interp(edges_s, times_s, integral_s), longest


def rate_range_per_s(
    workload: OpenLoop | ClosedLoop, requests: int, warmup: float
) -> tuple[float, float] | None:
    """Return the lowest and the highest arrival rate along a run of traffic that drifts, else None.

    A `Diurnal` drifts by its own formula. A `Trace` drifts if its rate in 24 or 96 equal parts of
    the run resembles that of the neighbouring parts (von Neumann's ratio, by chance once in a
    thousand runs) and varies by more than a fifth from three parts to others. The other workloads
    do not drift. `requests` are those after the warm-up, which is a fraction of all.
    """
    first = round(requests * warmup / (1 - warmup))
    if isinstance(workload, Trace):
        rates_per_s = _of_a_trace(workload.times_s[first : first + requests])
    else:
        rates_per_s = workload.rates_per_s(first, requests)
    low, high = float(rates_per_s.min(initial=math.inf)), float(rates_per_s.max(initial=0))
    return (low, high) if high > DRIFT * low else None


def _of_a_trace(times_s: np.ndarray) -> np.ndarray:
    for parts in (24, 96):
        if times_s.size < 5 * parts or times_s[-1] <= times_s[0]:
            break
        counts, edges_s = np.histogram(times_s, parts)
        if dependent(counts, ONCE_IN_A_THOUSAND):
            return np.convolve(counts, np.ones(3) / 3, "valid") / (edges_s[1] - edges_s[0])
    return np.empty(0)
