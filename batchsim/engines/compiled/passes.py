"""Passes over columns of requests: arrival times, latencies, and values by rank without a sort of all."""

import math

from batchsim._clock import PER_MS
from batchsim._clock import on_grid as _on_grid
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.threshold import to_ticks

# mypy: disable-error-code="no-untyped-def"

BLOCK = 256  # requests that stay in the cache from one loop to the next

on_grid = inlined(_on_grid)


@compiled
def add_up(gaps, total, rate_per_s):
    """Turn standard gaps into arrival times on the clock's grid, in place; return the sum of all gaps so far.

    It takes a third of the time of NumPy's five passes, and gives the same bits. The second loop is apart
    from the first, which cannot compute several requests at once.
    """
    for request in range(gaps.size):
        total += gaps[request]
        gaps[request] = total
    for request in range(gaps.size):
        gaps[request] = on_grid(gaps[request] / rate_per_s)
    return total


@compiled
def note_latencies(arrival_s, batch_index, finish_s, latency_ms):
    """Write the latency of each request, NaN if it was not served: as `_clock.between_ms`.

    The inner loops are two, because the second computes several requests at once, and the first cannot.
    """
    for begin in range(0, arrival_s.size, BLOCK):
        came_s, batches = arrival_s[begin : begin + BLOCK], batch_index[begin : begin + BLOCK]
        own_ms = latency_ms[begin : begin + BLOCK]
        for request in range(own_ms.size):
            batch = batches[request]
            own_ms[request] = math.nan if batch < 0 else finish_s[batch]
        for request in range(own_ms.size):
            own_ms[request] = (to_ticks(own_ms[request]) - to_ticks(came_s[request])) / PER_MS


@compiled
def find_buckets(values, low, scale, bucket, counts):
    """Write the bucket of each value, and count them.

    Buckets have equal widths, and the last one has the highest value.
    """
    counts[:] = 0
    for place in range(values.size):
        bucket[place] = found = int((values[place] - low) * scale)
        counts[found] += 1


@compiled
def take_buckets(values, bucket, wanted, taken):
    """Write the values in the wanted buckets."""
    count = 0
    for place in range(values.size):
        if wanted[bucket[place]]:
            taken[count] = values[place]
            count += 1


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


@compiled
def note_spread(values, counts, whole, found):
    """Write the columns of `result.standard_error.Spread`, shape (3, rows, groups)."""
    for row in range(values.shape[0]):
        begin = 0
        for group in range(counts.size):
            own = values[row, begin : begin + counts[group]]
            begin += own.size
            total = raw = from_whole = square = products = steps = 0.0
            for value in own:
                total += value
                raw += value * value
                from_whole += (value - whole[row]) ** 2
            mean, before = total / own.size, 0.0
            for place in range(own.size):
                above = own[place] - mean
                square += above * above
                if place:
                    products += above * before
                    steps += (above - before) ** 2
                before = above
            varies = square > raw * 1e-20
            found[0, row, group] = from_whole
            found[1, row, group] = products / square if varies else 0.0
            found[2, row, group] = steps / square if varies else math.inf
