"""The latencies of requests, and values by rank without a sort of all."""

import math

from batchsim._clock import PER_MS
from batchsim.engines.compiled.jit import compiled
from batchsim.engines.compiled.threshold import to_ticks

# mypy: disable-error-code="no-untyped-def"


@compiled
def note_latencies(arrival_s, batch_index, finish_s, latency_ms):
    """Write the latency of each request, NaN if it was not served: as `_clock.between_ms`, in one pass."""
    for request in range(arrival_s.size):
        batch = batch_index[request]
        if batch < 0:
            latency_ms[request] = math.nan
        else:
            latency_ms[request] = (to_ticks(finish_s[batch]) - to_ticks(arrival_s[request])) / PER_MS


@compiled
def count_buckets(values, low, scale, counts):
    """Count the values in each bucket: buckets have equal widths, and the last one has the highest value."""
    counts[:] = 0
    for value in values:
        counts[int((value - low) * scale)] += 1


@compiled
def take_buckets(values, low, scale, wanted, taken):
    """Write the values in the wanted buckets."""
    place = 0
    for value in values:
        if wanted[int((value - low) * scale)]:
            taken[place] = value
            place += 1
