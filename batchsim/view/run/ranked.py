"""Latencies in order, as pictures ask for them: how many are below, and what the slowest are made of."""

from collections.abc import Sequence

import numpy as np

from batchsim.result import Result

LEAST_MS = 1e-300  # a spread by which can be divided


class Ranked:
    """The served requests of a run by rising latency, sorted only as far as it is asked for.

    >>> from batchsim import Affine, Constant, Scenario, SizeOrWait, simulate
    >>> result = simulate(Scenario(Constant(100), SizeOrWait(1, 0), Affine(4, 1)), requests=10)
    >>> Ranked(result).shares([0, 4, 8])
    array([  0., 100.])
    """

    BUCKETS = 65_536

    def __init__(self, result: Result) -> None:
        latency_ms = result.latency_ms
        self.served = np.flatnonzero(result.batch_index >= 0)
        if self.served.size < latency_ms.size:
            latency_ms = latency_ms[self.served]
        self.count = latency_ms.size
        self.low_ms, high_ms = (
            (float(latency_ms.min()), float(latency_ms.max())) if self.count else (0.0, 0.0)
        )
        self.slowest_ms = high_ms
        spread_ms = high_ms - self.low_ms
        self.scale = (self.BUCKETS - 1) / spread_ms if spread_ms > LEAST_MS else 0.0
        # NumPy sorts 16 bits by radix, ten times as fast as floats by comparison.
        bucket = ((latency_ms - self.low_ms) * self.scale).astype(np.uint16)
        self.order = np.argsort(bucket, kind="stable")
        self.latency_ms = latency_ms[self.order]
        self.ends = np.cumsum(np.bincount(bucket, minlength=self.BUCKETS))

    def _span(self, bucket: int) -> slice:
        return slice(int(self.ends[bucket - 1]) if bucket else 0, int(self.ends[bucket]))

    def below(self, edge_ms: float) -> int:
        """Return how many latencies are less than `edge_ms`."""
        if not self.count or edge_ms <= self.low_ms:
            return 0
        bucket = min(int((edge_ms - self.low_ms) * self.scale), self.BUCKETS - 1)
        span = self._span(bucket)
        return span.start + int(np.count_nonzero(self.latency_ms[span] < edge_ms))

    def shares(self, edges_ms: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the percentage of the served between each edge and the next: the last bar has all above."""
        least = 1e-9 * float(edges_ms[-1])  # latencies of one value have one bar, whatever their last bits
        counts = np.array([self.below(float(edge) - least) for edge in edges_ms[:-1]] + [self.count])
        return 100 * np.diff(counts) / max(self.count, 1)

    def group_means(self, columns: Sequence[np.ndarray], groups: int) -> np.ndarray:
        """Return the means of columns, a row a request, over groups of equally many, fastest first.

        Shape (columns, groups); 0 for a group that has no request.
        """
        sizes = np.full(groups, self.count // groups)
        sizes[: self.count % groups] += 1  # as numpy.array_split
        cuts = np.concatenate([[0], np.cumsum(sizes)])
        order = self.order
        for cut in cuts[1:-1]:  # within the bucket of a cut, who comes before it has to be known
            if cut < self.count:
                span = self._span(int(np.searchsorted(self.ends, cut, side="right")))
                order[span] = order[span][np.argsort(self.latency_ms[span], kind="stable")]
                self.latency_ms[span].sort()
        means = np.zeros((len(columns), groups))
        filled = sizes > 0
        if self.count:
            requests = order if self.count == columns[0].size else self.served[order]
            for mean, column in zip(means, columns, strict=True):
                mean[filled] = np.add.reduceat(column[requests], cuts[:-1][filled]) / sizes[filled]
        return means
