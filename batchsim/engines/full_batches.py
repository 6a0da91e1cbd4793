"""The full batches of a rule that reads sizes, measured by a run whose queue never empties."""

import functools
import math
from dataclasses import replace

import numpy as np

from batchsim.engines.draws import draw
from batchsim.scenario import Scenario, Service, Trace
from batchsim.scenario.full_batches import FullBatches
from batchsim.scenario.lengths import Lengths, Listed
from batchsim.scenario.rules import Rule

QUEUED = 1 << 16  # requests, all there from the start
STEADY = 0.9  # of them, until which the queue is long for any rule
BLOCKS = 32  # of batches, whose spread is the error


@functools.lru_cache(maxsize=4)  # a heat map measures its columns with the same sizes
def _queue(sizes: Lengths) -> Trace:
    """Return requests that all wait from the start; sizes that are not listed are evenly spaced quantiles."""
    if isinstance(sizes, Listed):
        sizes = replace(sizes, again=True)
    else:
        spaced = np.random.default_rng(0).permutation(QUEUED)
        sizes = Listed(sizes.quantile((spaced + 0.5) / QUEUED))
    return Trace(np.zeros(QUEUED)).with_sizes(sizes)


def measured(rule: Rule, service: Service, sizes: Lengths, action: str) -> FullBatches:
    """Return the batches of a queue that never empties; see `scenario.full_batches.full_batches`."""
    from batchsim.engines.compiled import engine  # Numba loads with it

    plain = replace(service, noise=None, compile_ms=None)
    log = engine.run(draw(Scenario(_queue(sizes), rule, plain, oversize_action=action), QUEUED, 0))
    served = float((log.batch_index >= 0).mean())
    if not served:
        return FullBatches(0.0, 1.0, 0.0)  # all are rejected at once
    steady = int(np.searchsorted(np.cumsum(log.batch_size), STEADY * served * QUEUED))
    blocks = np.array_split(np.arange(max(steady, 1)), BLOCKS)
    seconds = log.batch_finish_s - log.batch_start_s
    requests, times = (
        np.array([column[block].sum() for block in blocks]) for column in (log.batch_size / served, seconds)
    )
    spread = (requests - times * requests.sum() / times.sum()).std(ddof=1)
    error = float(spread * math.sqrt(BLOCKS) / requests.sum())
    batches = max(steady, 1)
    return FullBatches(float(requests.sum() / batches), float(times.sum() / batches), error)
