"""Full batches of requests with sizes: their mean time, which the saturation rate follows from.

A batch of a given number of requests has a formula: the mean size, or the expected longest of as many, from
the quantiles of the sizes. Under a rule that reads sizes, a growing queue forms batches of different numbers;
a run of a queue that never empties measures these (`MEASURES`).
"""

import functools
from typing import NamedTuple

import numpy as np

from batchsim.scenario.lengths import Lengths, Listed
from batchsim.scenario.rules import Rule
from batchsim.scenario.saturation import MEASURES, longest_among
from batchsim.scenario.service import Service
from batchsim.scenario.sized_time import SizedTime

NODES = 6144  # of an integral over quantiles
EACH = 64  # expected values of larger batches are computed for some sizes, and interpolated


class FullBatches(NamedTuple):
    """The mean number of requests of a full batch, its mean seconds, and their ratio's relative error."""

    requests: float
    seconds: float
    error: float


@functools.lru_cache(maxsize=2)
def _nodes(largest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return batch sizes up to `largest`, quantiles, and the chance of each for the longest of a batch.

    The double logarithm of the quantiles is evenly spaced, but sparse in the tail: the batch size only shifts
    its distribution. Shapes (batch sizes,), (quantiles,) and (batch sizes, quantiles).
    """
    some = np.unique(np.append(np.arange(1, EACH + 1), np.geomspace(EACH, 65_536, 64).astype(np.int64)))
    some = np.append(some[some < largest], largest)
    top = np.log(largest)
    ends = np.append(np.linspace(-4, top + 6, 4 * NODES // 5), np.linspace(top + 6, top + 30, NODES // 5)[1:])
    below = np.exp(-np.outer(some, np.exp(-ends)))
    below[:, 0], below[:, -1] = 0, 1
    return some, np.exp(-np.exp(-(ends[1:] + ends[:-1]) / 2)), np.diff(below)


def _columns(values: np.ndarray, edges: tuple[int, ...]) -> np.ndarray:
    """Return which edge each value is padded to, or the values and their squares."""
    if edges:
        return (np.searchsorted(edges, values)[:, None] == np.arange(len(edges))).astype(float)
    return np.stack([values, values * values], axis=1)


@functools.lru_cache(maxsize=64)
def _expected(sizes: Lengths, edges: tuple[int, ...], largest: int) -> np.ndarray:
    """Return, for the longest of 1 .. `largest` requests, the chance of each edge; without edges two means.

    These are the means of the longest and of its square.
    """
    some, at, mass = _nodes(largest)
    if isinstance(sizes, Listed):
        rows = np.array(
            [_columns(longest_among(sizes, count), edges).mean(axis=0) for count in some.tolist()]
        )
    else:
        rows = mass @ _columns(sizes.quantile(at).astype(float), edges)
    counts = np.arange(1, largest + 1)
    return np.stack([np.interp(counts, some, column) for column in rows.T], axis=1)


def mean_seconds(service: Service, sizes: Lengths | None, largest: int) -> np.ndarray:
    """Return the mean seconds of batches of 1 .. `largest` requests, of sizes drawn at random."""
    if not isinstance(service, SizedTime) or sizes is None:
        return service.table(largest)[1:]
    cost, seconds = service.unit_cost(largest), service.count_s(largest)[1:]
    rows = cost.rows[1:]
    if cost.packed:
        mean, square = _expected(sizes, (), 1)[0]
        return seconds + np.arange(1, largest + 1) * (cost.unit_s * mean + cost.pair_s * square)
    expected = _expected(sizes, service.edges, max(largest, EACH))[:largest]  # one for all small batches
    if cost.table_s.size:
        return seconds + (expected * cost.table_s[1:]).sum(axis=1)
    if service.edges:
        edges = np.array(service.edges, float)
        expected = np.stack([expected @ edges, expected @ edges**2], axis=1)
    return seconds + rows * (expected @ np.array([cost.unit_s, cost.pair_s]))


@functools.lru_cache(maxsize=256)
def full_batches(rule: Rule, service: Service, sizes: Lengths | None, action: str) -> FullBatches:
    """Return the batches that a growing queue forms.

    With the action "reject", their `requests` include those that are rejected for their size meanwhile.
    """
    if not rule.by_size:
        return FullBatches(
            rule.largest_batch, float(mean_seconds(service, sizes, rule.largest_batch)[-1]), 0.0
        )
    found: FullBatches = MEASURES["requests"](rule, service, sizes, action)
    return found
