"""A run along its time, for traffic that drifts: rates, queue length and percentiles by window."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from batchsim import _check
from batchsim.engines.log import Status
from batchsim.scenario import Diurnal, Trace

if TYPE_CHECKING:
    import pandas

    from batchsim.result import Result

MOST_WINDOWS = 1_000_000
PERCENTILES = (50, 95, 99)
# A rate drifts if it varies by more than this between parts of the run, and not by chance.
DRIFT = 1.2


def over_time(result: "Result", window_s: float) -> "pandas.DataFrame":
    """Return a DataFrame with a row for each `window_s` of the run, the warm-up included.

    `arrival_rate_per_s` and `throughput_per_s` are of the window; `mean_queue_length` and
    `max_queue_length` count who waits in it, `utilisation` is of all servers. The latencies are
    of the requests that arrive in it, NaN where none does. Windows begin at `begin_s`; the last
    may reach beyond the last finish, and is then measured up to it.

    >>> from batchsim import Affine, Diurnal, Scenario, SizeOrWait, simulate
    >>> scenario = Scenario(Diurnal(800, peak_to_mean=1.5, period_s=60), SizeOrWait(32, 10), Affine(5, 0.25))
    >>> frame = simulate(scenario, 48_000).over_time(window_s=20)
    >>> frame.arrival_rate_per_s.round().tolist()  # night, day, night
    [643.0, 1127.0, 634.0]
    """
    import pandas

    if result.runs:
        raise ValueError(
            f"over_time must be of one replication, got {len(result.runs)}: take one of .replications"
        )
    window_s = _check.real("window_s", window_s, above=0)
    arrival_s, finish_s, log = result.arrival_s, result.finish_s, result.log
    end_s = max(float(arrival_s[-1]), float(log.batch_finish_s.max(initial=0.0)))
    count = max(math.ceil(end_s / window_s - 1e-9), 1)  # 3 windows of end / 3, however they round
    if count > MOST_WINDOWS:
        raise ValueError(f"window_s must leave at most {MOST_WINDOWS:,} windows, got {window_s!r}: {count:,}")
    edges_s = np.append(np.arange(count) * window_s, end_s)
    lengths_s = np.diff(edges_s)
    window = np.minimum(np.searchsorted(edges_s, arrival_s, side="right") - 1, count - 1)
    firsts = np.searchsorted(window, np.arange(count + 1))
    finished = np.histogram(finish_s[~np.isnan(finish_s)], edges_s)[0]
    waiting, most = _queue(result, edges_s)
    busy_s = np.diff(result.server_time.busy_until_s(edges_s))
    latency_ms = result.latency_ms
    rows = []
    for first, last in pairwise(firsts.tolist()):
        served_ms = latency_ms[first:last]
        served_ms = served_ms[~np.isnan(served_ms)]
        nothing = [math.nan] * (1 + len(PERCENTILES))
        rows.append([served_ms.mean(), *np.percentile(served_ms, PERCENTILES)] if served_ms.size else nothing)
    with np.errstate(invalid="ignore", divide="ignore"):  # a run whose only window has no length
        return pandas.DataFrame(
            {
                "begin_s": edges_s[:-1],
                "end_s": edges_s[1:],
                "arrivals": np.diff(firsts),
                "arrival_rate_per_s": np.diff(firsts) / lengths_s,
                "throughput_per_s": finished / lengths_s,
                "mean_queue_length": np.diff(waiting) / lengths_s,
                "max_queue_length": most,
                "utilisation": busy_s / lengths_s / result.scenario.servers,
                **dict(
                    zip(
                        ("mean_latency_ms", *(f"p{q}_ms" for q in PERCENTILES)),
                        np.array(rows).T,
                        strict=True,
                    )
                ),
            }
        )


def _queue(result: "Result", edges_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the integral of the queue's length at the edges, and its maximum in each window."""
    waited = result.status != Status.REJECTED
    left_s = result.start_s.copy()
    gone = result.status == Status.TIMED_OUT
    left_s[gone] = result.arrival_s[gone] + result.scenario.timeout_s
    times_s, length = _counted(result.arrival_s[waited], left_s[waited])
    before, after = np.searchsorted(times_s, edges_s[:-1]), np.searchsorted(times_s, edges_s[1:])
    after[-1] = times_s.size
    most = np.append(0, length)[before]  # a window has at least the length that it begins with
    some = np.flatnonzero(after > before)
    if some.size:
        most[some] = np.maximum(most[some], np.maximum.reduceat(length, before[some]))
    return _integral(times_s, length, edges_s), most


def _counted(begin_s: np.ndarray, end_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the times at which spans begin or end, and how many there are from each time on."""
    times_s = np.concatenate([begin_s, end_s])
    order = np.argsort(times_s, kind="stable")  # at one instant those who come are first, as in the engines
    return times_s[order], np.cumsum(np.repeat([1, -1], [begin_s.size, end_s.size])[order])


def _integral(times_s: np.ndarray, count: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    """Return the integral of a count over time, from the start to each edge."""
    if not times_s.size:
        return np.zeros(edges_s.size)
    return np.interp(edges_s, times_s, np.cumsum(np.append(0.0, count[:-1] * np.diff(times_s))))


def rate_range_per_s(result: "Result") -> tuple[float, float] | None:
    """Return the lowest and the highest arrival rate along a run whose traffic drifts, else None.

    A `Diurnal` drifts by its own formula. A `Trace` drifts if its rate in 24 or 96 equal parts of
    the run resembles that of the neighbouring parts (von Neumann's ratio, by chance once in a
    thousand runs) and varies by more than a fifth from three parts to others. The other workloads
    do not drift. The warm-up does not count.
    """
    workload, kept = result.scenario.workload, result.metrics.totals.requests // len(result.replications)
    if not isinstance(workload, (Diurnal, Trace)):
        return None
    dropped = round(kept * result.warmup / (1 - result.warmup))
    if isinstance(workload, Trace):
        return _of_a_trace(workload.times_s[dropped : dropped + kept])
    begin_s, end_s = (count / workload.mean_rate_per_s for count in (dropped, dropped + kept))
    times_s = np.linspace(begin_s, min(end_s, begin_s + workload.period_s), 1001)
    swing = (workload.peak_to_mean - 1) * np.cos(2 * math.pi * times_s / workload.period_s)
    return _drifting(workload.mean_rate_per_s * (1 - swing))


def _of_a_trace(times_s: np.ndarray) -> tuple[float, float] | None:
    for parts in (24, 96):
        if times_s.size < 5 * parts or times_s[-1] <= times_s[0]:
            return None
        counts, edges_s = np.histogram(times_s, parts)
        square = float(((counts - counts.mean()) ** 2).sum())
        ratio = float((np.diff(counts) ** 2).sum()) / square if square else 2.0
        if ratio < 2 - 3.09 * math.sqrt(4 * (parts - 2) / (parts**2 - 1)):
            return _drifting(np.convolve(counts, np.ones(3) / 3, "valid") / (edges_s[1] - edges_s[0]))
    return None


def _drifting(rates_per_s: np.ndarray) -> tuple[float, float] | None:
    low, high = float(rates_per_s.min()), float(rates_per_s.max())
    return (low, high) if high > DRIFT * low else None
