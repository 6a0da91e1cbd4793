"""The compiled engine's loops for many settings under one traffic: each keeps only a few numbers.

The batches are formed by the same loops as a single run's.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import PER_S, WHOLE
from batchsim.engines.compiled.columns import Costs
from batchsim.engines.compiled.engine import NO_LIMIT
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.threshold import from_ticks, next_batch, to_ticks
from batchsim.scenario.rules.rule import Threshold

# mypy: disable-error-code="no-untyped-def"


BINS = 4096  # counters of 16 KiB: half the nearest cache
# Latencies are at least 0, so they have the order of the whole numbers with the same bits.
NONE, LATE = (int(np.float64(value).view(np.int64)) for value in (math.nan, math.inf))


class Numbers(NamedTuple):
    """The numbers of each setting: a row a setting."""

    served: Any  # requests
    last_s: Any  # the last finish
    ranked: Any  # the latencies on both sides of each percentile, as `select`'s keys, shape (settings, q, 2)
    sums: Any  # latencies in ticks, summed from each cut to the next, shape (settings, parts)
    above: Any  # requests that took longer than `above_s`, or were not served; shape (settings, parts)


class Wanted(NamedTuple):
    """Which numbers to compute."""

    per_cent: Any  # percentiles
    unserved: bool  # whether requests that are not served count as infinitely late
    cuts: Any  # request numbers between which latencies are summed; empty: no sums
    above_s: float  # the latency beyond which requests are counted, in the parts between the cuts


class Scratch(NamedTuple):
    """Arrays to work in."""

    latency_s: Any  # a row a request
    keys: Any  # the same memory as whole numbers
    kept: Any  # as long
    bins: Any  # BINS counters


@inlined
def select(keys, count, rank, kept, bins):
    """Return the keys that have `rank` and rank + 1 smaller ones; twice the largest if rank is its own.

    Radix selection: counted by the highest bits that differ, then again within the counter that
    holds the rank. `keys` stays; `kept` is as long, and `bins` of BINS, to work in.
    """
    source = keys
    while True:
        lowest = highest = source[0]
        for place in range(1, count):
            lowest, highest = min(lowest, source[place]), max(highest, source[place])
        shift = 0
        while (highest - lowest) >> shift >= BINS:
            shift += 1
        bins[:] = 0
        for place in range(count):
            bins[(source[place] - lowest) >> shift] += 1
        here, before = 0, 0
        while before + bins[here] <= rank:
            before += bins[here]
            here += 1
        if before + bins[here] > rank + 1:
            if shift == 0:
                return lowest + here, lowest + here
            # Both are within: keep those. Writing stays behind reading.
            among = 0
            for place in range(count):
                key = source[place]
                kept[among] = key
                among += (key - lowest) >> shift == here
            source, count, rank = kept, among, rank - before
        else:  # the last of its counter, and the first of the next counter with any
            below, above = lowest, highest
            for place in range(count):
                key = source[place]
                at = (key - lowest) >> shift
                if at == here:
                    below = max(below, key)
                elif at > here:
                    above = min(above, key)
            return below, above


@inlined
def _note(count, requests, wanted, scratch, row, numbers):
    """Write the keys on both sides of each percentile: NONE without requests, LATE among the unserved."""
    counted = requests if wanted.unserved else count
    for place in range(wanted.per_cent.size):
        below = above = NONE
        if counted > 0:
            rank = wanted.per_cent[place] / 100 * (counted - 1)
            low = math.floor(rank)
            below = above = LATE
            if math.ceil(rank) < count:
                below, above = select(scratch.keys, count, low, scratch.kept, scratch.bins)
        numbers.ranked[row, place, 0], numbers.ranked[row, place, 1] = below, above


@compiled
def run_thresholds(arrival_s, wait_s, enough, largest, costs, free, wanted, scratch, numbers):
    """Run each setting of a threshold rule in an open loop in which every request is served."""
    requests, latency_s = arrival_s.size, scratch.latency_s
    for row in range(wait_s.size):
        free[:] = 0.0
        costs.devices.free_s[:] = 0.0
        costs.cold.ready_s[:] = math.inf
        threshold = Threshold(wait_s[row], enough[row], largest[row])
        head, batch, latest_s = 0, 0, 0.0
        while head < requests:
            end, _, _, done, _ = next_batch(arrival_s, None, head, threshold, NO_LIMIT, costs, free, batch)
            for request in range(head, end):
                latency_s[request] = (done - to_ticks(arrival_s[request])) / PER_S
            latest_s = max(latest_s, from_ticks(done))
            head = end
            batch += 1
        _note_all(requests, latest_s, wanted, scratch, row, numbers)


@inlined
def _note_all(requests, latest_s, wanted, scratch, row, numbers):
    """Keep the numbers of a setting that served every request."""
    cuts, latency_s = wanted.cuts, scratch.latency_s
    numbers.served[row], numbers.last_s[row] = requests, latest_s
    for part in range(cuts.size - 1):
        total, above = 0.0, 0
        for request in range(cuts[part], cuts[part + 1]):
            total += latency_s[request] * PER_S + WHOLE - WHOLE
            above += latency_s[request] > wanted.above_s
        numbers.sums[row, part], numbers.above[row, part] = total, above
    _note(requests, requests, wanted, scratch, row, numbers)


@compiled
def run_routed(arrival_s, replica, threshold, costs, noise, free, ends, own_s, wanted, scratch, row, numbers):
    """Run one setting of a threshold rule with a finite wait; `replica` is that of each request.

    `noise` has a row for each replica, `ends` one place more, and `own_s` one for each request.
    """
    requests, count, order, latest_s = arrival_s.size, noise.shape[0], scratch.kept, 0.0
    ends[:] = 0
    for request in range(requests):
        ends[replica[request] + 1] += 1
    for k in range(count):
        ends[k + 1] += ends[k]
    for request in range(requests - 1, -1, -1):  # each replica's from its end on: then `ends` are the begins
        k = replica[request] + 1
        ends[k] -= 1
        order[ends[k]], own_s[ends[k]] = request, arrival_s[request]
    for k in range(count):
        ends[k] = ends[k + 1]
    ends[count] = requests
    for k in range(count):
        free[:] = 0.0
        costs.devices.free_s[:] = 0.0
        costs.cold.ready_s[:] = math.inf
        own = Costs(costs.service_s, noise[k], costs.slowdown, costs.devices, costs.cold, costs.units)
        mine_s, first, head, batch = own_s[ends[k] : ends[k + 1]], ends[k], 0, 0
        while head < mine_s.size:
            end, _, _, done, _ = next_batch(mine_s, None, head, threshold, NO_LIMIT, own, free, batch)
            for request in range(head, end):
                scratch.latency_s[order[first + request]] = (done - to_ticks(mine_s[request])) / PER_S
            latest_s = max(latest_s, from_ticks(done))
            head = end
            batch += 1
    _note_all(requests, latest_s, wanted, scratch, row, numbers)


@compiled
def note_run(requests, batches, batch_count, wanted, scratch, row, numbers):
    """Keep the numbers of a setting that ran from instant to instant."""
    arrival_s, cuts = requests.arrival_s, wanted.cuts
    size = arrival_s.size
    numbers.last_s[row] = 0.0
    for batch in range(batch_count):
        numbers.last_s[row] = max(numbers.last_s[row], batches.finish_s[batch])
    part, count = 0, 0
    for request in range(size):
        batch = requests.batch_index[request]
        if cuts.size:
            while request >= cuts[part + 1]:
                part += 1
        if batch < 0:
            numbers.above[row, part] += 1
            continue
        ticks = to_ticks(batches.finish_s[batch]) - to_ticks(arrival_s[request])
        taken_s = ticks / PER_S
        if cuts.size:
            numbers.sums[row, part] += ticks
            numbers.above[row, part] += taken_s > wanted.above_s
        scratch.latency_s[count] = taken_s
        count += 1
    numbers.served[row] = count
    _note(count, size, wanted, scratch, row, numbers)
