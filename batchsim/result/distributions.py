"""What pictures of a run draw, as numbers: ranks, histograms, and the queue along the run."""

import math
from collections.abc import Sequence

import numpy as np

from batchsim._compat import bincount, reduceat
from batchsim.engines.token_log import TokenLog
from batchsim.result.result import Result
from batchsim.scenario.rules import Trigger


class Ranking:
    """The served requests of a run by rising latency, in order of arrival where latencies are equal.

    >>> ranking = Ranking(np.array([7.0, 5.0, np.nan, 6.0]))
    >>> ranking.count, ranking.below(6.5), ranking.shares([0, 6, 8])
    (3, 2, array([33.33333333, 66.66666667]))
    """

    def __init__(self, latency_ms: np.ndarray) -> None:
        """`latency_ms`: of every request, NaN where it was not served; shape (requests,)."""
        self.count = latency_ms.size - int(np.count_nonzero(np.isnan(latency_ms)))
        self.order = np.argsort(latency_ms)[: self.count]  # six times as fast as a stable one
        self.latency_ms = latency_ms[self.order]
        self.slowest_ms = float(self.latency_ms[-1]) if self.count else 0.0

    def below(self, edge_ms: float) -> int:
        """Return how many latencies are less than `edge_ms`."""
        return int(np.searchsorted(self.latency_ms, edge_ms))

    def shares(self, edges_ms: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the percentage of the served between each edge and the next; the last bar has the tail."""
        # Latencies that differ by rounding share a bar, even at an edge.
        least = 1e-9 * float(edges_ms[-1])
        counts = np.searchsorted(self.latency_ms, np.asarray(edges_ms[:-1]) - least)
        return 100 * np.diff(np.append(counts, self.count)) / max(self.count, 1)

    def group_means(self, columns: Sequence[np.ndarray], groups: int) -> np.ndarray:
        """Return the means of columns, a row a request, over groups of equal size, fastest first.

        Shape (columns, groups); 0 for an empty group.
        """
        sizes = np.full(groups, self.count // groups)
        sizes[: self.count % groups] += 1  # as numpy.array_split
        cuts = np.cumsum(sizes) - sizes
        for latency_ms in np.unique(self.latency_ms[cuts[(cuts > 0) & (cuts < self.count)]]):
            first, last = np.searchsorted(self.latency_ms, latency_ms), self._after(latency_ms)
            self.order[first:last].sort()  # two groups share these: by arrival
        means, filled = np.zeros((len(columns), groups)), sizes > 0
        if self.count:
            for mean, column in zip(means, columns, strict=True):
                mean[filled] = reduceat(np.add, column[self.order], cuts[filled]) / sizes[filled]
        return means

    def _after(self, latency_ms: float) -> int:
        return int(np.searchsorted(self.latency_ms, latency_ms, side="right"))


MOST_BARS = 64
POINTS = 201  # of the queue's curve
TENTHS = 10


def bar_edges(largest: int) -> np.ndarray:
    """Return the edges of bars for batch sizes 1 to `largest`: a bar for each size, or for several.

    >>> bar_edges(3), bar_edges(65_536)[:2]
    (array([0.5, 1.5, 2.5, 3.5]), array([5.0000e-01, 1.0245e+03]))
    """
    step = math.ceil(largest / MOST_BARS)
    return 0.5 + step * np.arange(math.ceil(largest / step) + 1.0)


def by_trigger(result: Result, edges: np.ndarray) -> np.ndarray:
    """Return the percentage of the batches of each size that left by each trigger, shape (triggers, bars)."""
    bars, step = edges.size - 1, int(edges[1] - edges[0])
    bar = (result.batches.batch_size - 1) // step
    kinds = result.batches.trigger.astype(np.int64) * bars + bar
    counts = bincount(kinds, minlength=len(Trigger) * bars).reshape(len(Trigger), bars)
    return 100 * counts / max(len(result.batches), 1)


def queue_length(result: Result) -> tuple[np.ndarray, float]:
    """Return the number of waiting requests at equally spaced times, and the last time, in seconds.

    The times are from 0 to the last arrival, shape (POINTS,). It requires a run that serves all requests.
    """
    end_s = float(result.arrival_s[-1])
    times_s = np.linspace(0, end_s, POINTS)
    if isinstance(result.log, TokenLog):
        started = np.searchsorted(np.sort(result.start_s), times_s, side="right")
    else:
        left = np.concatenate([[0], np.cumsum(result.batches.batch_size)])
        started = left[np.searchsorted(result.batches.start_s, times_s, side="right")]
    return np.searchsorted(result.arrival_s, times_s, side="right") - started, end_s


def latency_by_size(result: Result, qs: Sequence[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return percentiles of the latency, shape (qs, bins), by tenths of the requests by their size.

    Also the edges of the bins, in percent of the requests, and in units. Equal sizes are in one bin. A
    percentile of requests that were not served is NaN.
    """
    sizes = result.scenario.workload.sizes
    assert sizes is not None
    kept = slice(result.warmup_requests, None)
    size, latency_ms = result.size[kept], result.latency_ms[kept]
    ends = np.unique(sizes.quantile(np.arange(1, TENTHS) / TENTHS))  # of all but the last
    place = np.searchsorted(ends, size)
    order = np.argsort(place.astype(np.uint8), kind="stable")  # by radix
    counts = bincount(place, minlength=ends.size + 1)
    there = np.flatnonzero(counts)
    parts = np.split(latency_ms[order], np.cumsum(counts)[:-1])
    found = [[percentile(np.sort(parts[bin_]), q) for bin_ in there] for q in qs]
    units = [size.min(initial=size.max(initial=1)), *ends[there[:-1]], size.max(initial=1)]
    shares = np.append(0.0, np.cumsum(counts[there])) / max(size.size, 1)
    return np.array(found), 100 * shares, np.array(units)


def percentile(ordered_ms: np.ndarray, q: float, unserved: float = math.nan) -> float:
    """Return a percentile of sorted latencies, NaN at the end for requests that were not served.

    It is `unserved` where it is among these, and NaN of no latencies.
    """
    if not ordered_ms.size:
        return math.nan
    rank = q / 100 * (ordered_ms.size - 1)
    low, high = ordered_ms[math.floor(rank)], ordered_ms[math.ceil(rank)]
    return unserved if np.isnan(high) else float(low + (high - low) * (rank - math.floor(rank)))
