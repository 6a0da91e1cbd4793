"""The compiled engine's loops for many settings under one traffic, of which only figures are kept.

The batches are formed by `kernels`, so they are those of a single run.
"""

import math

import numpy as np

from batchsim.engines.kernels import next_batch, pass_instants
from batchsim.engines.kernels_jit import compiled, inlined

BINS = 4096  # counters of 16 KiB: half the nearest cache
# Latencies are ordered as the whole numbers that have the same bits, as none is negative.
NONE, LATE = (int(np.float64(value).view(np.int64)) for value in (math.nan, math.inf))


@inlined
def select(keys, count, rank, kept, bins):  # type: ignore[no-untyped-def]
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
            # Both are within: keep those. None that is still to be read is written over.
            among = 0
            for place in range(count):
                key = source[place]
                kept[among] = key
                among += (key - lowest) >> shift == here
            source, count, rank = kept, among, rank - before
        else:  # the last of its counter, and the first of the next one that is not empty
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
def _note(  # type: ignore[no-untyped-def]
    keys, served, requests, per_cent, unserved_count, kept, bins, row, ranked
):
    """Write the keys on both sides of each percentile: none of nothing, LATE among the unserved."""
    count = requests if unserved_count else served
    for place in range(per_cent.size):
        below = above = NONE
        if count > 0:
            rank = per_cent[place] / 100 * (count - 1)
            low = math.floor(rank)
            below = above = LATE
            if math.ceil(rank) < served:
                below, above = select(keys, served, low, kept, bins)
        ranked[row, place, 0], ranked[row, place, 1] = below, above


@compiled
def survey_served(  # type: ignore[no-untyped-def]
    arrival_s, wait_s, enough, largest, service, noise, slowdown, free_s, per_cent, unserved_count, cuts,
    latency_s, keys, kept, bins, served, last_s, ranked, sums_s, edges_s,
):  # fmt: skip
    """Run each setting of an open loop in which every request is served; see `survey.survey`.

    A setting is a row of `wait_s`, `enough`, `largest`, and of what is written: `served` requests;
    the `last_s` finish; both neighbours of each of `per_cent`, `ranked`; the sum of the latencies
    from each of `cuts` to the next, added to `sums_s`; the arrivals at the cuts, `edges_s`. `keys` are
    the bits of `latency_s`, which is to work in, as `kept` and `bins` are.
    """
    requests = arrival_s.size
    for row in range(wait_s.size):
        free_s[:] = 0.0
        head, batch, latest_s = 0, 0, 0.0
        while head < requests:
            end, _, _, done_s = next_batch(
                arrival_s, head, wait_s[row], enough[row], largest[row],
                service, noise, slowdown, free_s, batch,
            )  # fmt: skip
            for request in range(head, end):
                latency_s[request] = done_s - arrival_s[request]
            latest_s = max(latest_s, done_s)
            head = end
            batch += 1
        served[row], last_s[row] = requests, latest_s
        for cut in range(cuts.size):
            edges_s[row, cut] = arrival_s[min(cuts[cut], requests - 1)]
        for part in range(cuts.size - 1):
            total_s = 0.0
            for request in range(cuts[part], cuts[part + 1]):
                total_s += latency_s[request]
            sums_s[row, part] = total_s
        _note(keys, requests, requests, per_cent, unserved_count, kept, bins, row, ranked)


@compiled
def survey_instants(  # type: ignore[no-untyped-def]
    arrival_s, think_s, closed, wait_s, timeout_s, limit, enough, largest, service, noise, slowdown,
    queue, client_of, due_s, due_client, sending, busy_until_s, state,
    batch_index, status, start_s, finish_s, batch_size, batch_server, per_cent, unserved_count, cuts,
    latency_s, keys, kept, bins, served, last_s, ranked, sums_s, edges_s,
):  # fmt: skip
    """Run each setting of a closed loop, or of an open one with a queue limit or a timeout.

    The second and third line are to work in. What is written is as in `survey_served`.
    """
    requests, clients = arrival_s.size, due_s.size
    for row in range(wait_s.size):
        due_s[:] = 0.0
        busy_until_s[:] = math.inf
        state[:] = 0
        state[4] = clients
        for client in range(clients):
            due_client[client] = client
        pass_instants(
            arrival_s, think_s, closed, requests, requests, wait_s[row], timeout_s, limit,
            enough[row], largest[row], service, noise, slowdown, queue, client_of, due_s, due_client,
            sending, busy_until_s, state, requests + 1,
            batch_index, status, start_s, finish_s, batch_size, batch_server,
        )  # fmt: skip
        last_s[row] = 0.0
        for batch in range(state[3]):
            last_s[row] = max(last_s[row], finish_s[batch])
        for cut in range(cuts.size):
            edges_s[row, cut] = arrival_s[min(cuts[cut], requests - 1)]
        part, count = 0, 0
        for request in range(requests):
            batch = batch_index[request]
            if batch < 0:
                continue
            taken_s = finish_s[batch] - arrival_s[request]
            if cuts.size:
                while request >= cuts[part + 1]:
                    part += 1
                sums_s[row, part] += taken_s
            latency_s[count] = taken_s
            count += 1
        served[row] = count
        _note(keys, count, requests, per_cent, unserved_count, kept, bins, row, ranked)
