"""The latencies of requests, and values by rank without a sort of all."""

import math

from batchsim._clock import PER_MS
from batchsim.engines.compiled.jit import compiled
from batchsim.engines.compiled.threshold import to_ticks

# mypy: disable-error-code="no-untyped-def"


@compiled
def note_latencies(arrival_s, batch_index, finish_s, latency_ms):
    """Write the latency of each request, NaN if it was not served: as `_clock.between_ms`.

    The second loop is apart from the first, which cannot compute several requests at once.
    """
    for request in range(arrival_s.size):
        batch = batch_index[request]
        latency_ms[request] = math.nan if batch < 0 else finish_s[batch]
    for request in range(arrival_s.size):
        latency_ms[request] = (to_ticks(latency_ms[request]) - to_ticks(arrival_s[request])) / PER_MS


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


@compiled
def count_within(values, cuts, limits, counts):
    """Count the values from cut to cut that are at most each limit, shape (sections, limits)."""
    for section in range(cuts.size - 1):
        own = values[cuts[section] : cuts[section + 1]]
        for each in range(limits.size):
            limit, count = limits[each], 0
            for place in range(own.size):
                count += 1 if own[place] <= limit else 0  # so written, several are compared at once
            counts[section, each] = count
