"""How much of a run to leave out, until it no longer remembers how it started."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from batchsim import _check

if TYPE_CHECKING:
    from batchsim.result import Result

BLOCK = 5


def mser5(latency_ms: np.ndarray) -> int:
    """Return how many leading requests to drop as warm-up, by the rule MSER-5.

    That start of the run, in blocks of 5 requests, without which the mean of the rest has the
    least standard error (White, Cobb and Spratt 1997). Of one run under a heavy load it may take a
    busy spell for the start-up, and then the mean of the rest is low; the mean course of many
    replications has no such spells. NaN, not served, does not count. A warning,
    and half of the run, where the rule asks for more than half: no steady state was reached.

    >>> mser5(np.array([90.0] * 20 + [10.0, 11.0] * 100))
    20
    """
    blocks = latency_ms[: latency_ms.size // BLOCK * BLOCK].reshape(-1, BLOCK)
    counts = (~np.isnan(blocks)).sum(axis=1)
    kept = np.flatnonzero(counts)
    if kept.size < 2 * BLOCK:
        _check.warn(
            f"a warm-up by MSER-5 needs at least {2 * BLOCK**2} served requests, "
            f"got {np.count_nonzero(~np.isnan(latency_ms))}: none is dropped"
        )
        return 0
    means = np.nansum(blocks[kept], axis=1) / counts[kept]
    means -= means.mean()  # the sums of squares below lose no digits
    left = np.arange(kept.size, 0, -1)
    sums, squares = (np.cumsum(powers[::-1])[::-1] for powers in (means, means**2))
    # The last blocks are left out: a mean of two or three has an accidentally small error.
    error = ((squares - sums**2 / left) / left**2)[: -2 * BLOCK + 1]
    drop = int(np.argmin(error))
    if drop > kept.size // 2:
        drop = kept.size // 2
        _check.warn(
            "a warm-up must end within half of the run, got later (MSER-5): no steady state was reached, "
            "take more requests or see over_time()"
        )
    return int(kept[drop]) * BLOCK


def fraction(runs: Sequence["Result"]) -> float:
    """Return the fraction that MSER-5 drops of all replications alike, from their mean course."""
    columns = np.array([run.latency_ms for run in runs])
    there = ~np.isnan(columns)
    with np.errstate(invalid="ignore"):  # 0 / 0: a request that no replication served
        course_ms = np.nansum(columns, axis=0) / there.sum(axis=0)
    return mser5(course_ms) / course_ms.size
