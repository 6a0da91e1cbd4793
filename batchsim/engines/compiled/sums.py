"""From batches to totals, in one pass: each batch is added with its requests, while both are in the cache.

A run that keeps its columns is added once, into the 64 sections that intervals are made from. A run with
keep="summary" is added window after window into one part, and each window is forgotten.

A wait is forming while a server is idle, and queueing while all are busy. I(t) is how long at least one
server had been idle by t: a request that arrives at a and starts at s was forming for I(s) - I(a). All
sums of times are in ticks, which are whole numbers: they are exact in any order, up to 104 days in all.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.sized import place_of, units_of
from batchsim.engines.compiled.threshold import later, soonest, to_ticks
from batchsim.engines.log import Status
from batchsim.engines.totals import A_DECADE, BINS, DECADES, FIRST

# mypy: disable-error-code="no-untyped-def"

SERVED = int(Status.SERVED)
# A decade of bins has the ticks above FROM[decade] up to FROM[decade + 1], A_TICK[decade] bins a tick.
FROM = np.concatenate([[-1.0], FIRST * 10.0 ** np.arange(DECADES), [np.inf, np.inf]])
A_TICK = 10.0 ** -np.arange(DECADES + 2)


class Parts(NamedTuple):
    """What batches are added to: parts of a run, one after the other; the last row takes the warm-up."""

    cuts: Any  # requests at which parts begin, and the end of the last one
    edges: Any  # times at which parts begin, in ticks, and inf
    sums: Any  # the records of `Totals`
    histogram: Any  # of latencies; empty: none
    watts: Any  # by batch size; empty: not known


class Past(NamedTuple):
    """What is known of the past when a batch is added: all times in ticks."""

    free: Any  # by server: when it is, or was, free
    started: Any  # by replica: when its last batch started, I(t) then, and when its first server is free
    came: Any  # shape (1,): requests whose I(t) at arrival is known


@inlined
def part_of(value, edges, part):
    """Return the part in which a value is, from a part near it on; -1 before the first."""
    while part < edges.size - 2 and edges[part + 1] <= value:
        part += 1
    while part >= 0 and edges[part] > value:
        part -= 1
    return part


@inlined
def idle_by(now, started):
    """Return I(now) of a replica, from its row of `started`."""
    return started[1] + max(now - max(started[0], started[2]), 0.0)


@inlined
def _note_arrivals(until_s, arrival_s, replica, past, idle_at):
    """Write I(t) for the requests that have come by some time, before a batch starts then."""
    came = past.came[0]
    while came < arrival_s.size and arrival_s[came] <= until_s:
        started = past.started[replica[came] if replica.size else 0]
        idle_at[came] = idle_by(to_ticks(arrival_s[came]), started)
        came += 1
    past.came[0] = came


@inlined
def decade_of(ticks, decade):
    """Return the decade of bins that has a duration, from a decade near it on."""
    while ticks > FROM[decade + 1]:
        decade += 1
    while ticks <= FROM[decade]:
        decade -= 1
    return decade


@inlined
def bin_of(ticks):
    """Return the bin of a duration, as `totals.binned`."""
    decade = decade_of(ticks, 0)
    # Half a tick less, so that no rounding takes the last tick of a bin for the next bin's first.
    return min(A_DECADE * decade + int((ticks - 0.5) * A_TICK[decade] + 1.0), BINS - 1)


@inlined
def _request(line, place):
    """Return the request at a place of a line."""
    if line is None:
        return place
    return line[place]


@inlined
def _until(line, at, end, cuts, part):
    """Return where the requests of a batch end that came in the same part as the one at `at`."""
    if line is None:
        return min(end, cuts[part + 1])
    until = at + 1
    while until < end and (part < 0 or cuts[part] <= line[until]) and line[until] < cuts[part + 1]:
        until += 1
    return until


@compiled
def add_batches(line, begins, idle_at, arrival_s, replica, servers, batches, asked_s, begin_s, past, parts):
    """Add batches in order of start, with their requests.

    The requests of batch b are line[begins[b]:begins[b + 1]], and I(t) was `idle_at` when each came. Without
    these, requests follow each other, and who stays behind at a start has found no idle server: Numba leaves
    out the code for the rest.
    `asked_s` and `begin_s`: when each batch asks for its device, and has it; empty: at once.
    """
    sums, cuts, edges, replicas = parts.sums, parts.cuts, parts.edges, past.started.shape[0]
    part = at = each = ended = decade = 0
    for batch in range(batches.start_s.size):
        start_s, server = batches.start_s[batch], batches.server[batch]
        now, done = to_ticks(start_s), to_ticks(batches.finish_s[batch])
        if idle_at is not None:
            _note_arrivals(start_s, arrival_s, replica, past, idle_at)
        number = server // servers if replicas > 1 else 0
        started = past.started[number]
        since, idle = max(started[0], started[2]), idle_by(now, started)
        past.free[server] = done
        started[0], started[1] = now, idle
        started[2] = soonest(past.free[number * servers : (number + 1) * servers])
        begin, wait = now, 0.0
        if begin_s.size:
            begin = to_ticks(begin_s[batch])
            wait = begin - to_ticks(asked_s[batch])

        # Its requests, by the parts in which they came: mostly one.
        end = at + batches.size[batch]
        if line is not None:
            at, end = begins[batch], begins[batch + 1]
        while at < end:
            part = part_of(_request(line, at), cuts, part)
            until = _until(line, at, end, cuts, part)
            taken = formed = 0.0
            counts = parts.histogram if part >= 0 else parts.histogram[:0]
            if counts.size:
                decade = decade_of(done - to_ticks(arrival_s[_request(line, until - 1)]), decade)
            low, middle, high = FROM[decade], FROM[decade + 1], FROM[decade + 2]
            for place in range(at, until):
                request = _request(line, place)
                came = to_ticks(arrival_s[request])
                own = done - came
                taken += own
                if idle_at is None:
                    formed += now - max(came, since)
                else:
                    formed += idle - idle_at[request]
                if counts.size:
                    if low < own <= high:  # a choice that needs no jump: of ten latencies one crosses 10 ms
                        further = own > middle
                        scale = A_TICK[decade + 1] if further else A_TICK[decade]
                        first = A_DECADE * (decade + 1) if further else A_DECADE * decade
                        counts[first + int((own - 0.5) * scale + 1.0)] += 1
                    else:
                        counts[bin_of(own)] += 1
            sums.statuses[part, SERVED] += until - at
            sums.parts_s[part, 0] += taken
            sums.parts_s[part, 1] += formed
            sums.parts_s[part, 3] += (until - at) * (done - now - wait)
            sums.device_wait_s[part] += (until - at) * wait
            at = until

        # The batch, by the parts in which it starts, computes and ends.
        size = batches.size[batch]
        each = part_of(now, edges, each)
        sums.batches[each] += 1
        sums.items[each] += size
        sums.triggers[each, batches.trigger[batch]] += 1
        here, from_t = max(each, 0), max(now, edges[0])
        while from_t < done:
            until_t = min(done, edges[here + 1])
            sums.busy_s[here] += until_t - from_t
            sums.off_device_s[here] += max(min(begin, until_t) - from_t, 0.0)
            from_t = until_t
            here += 1
        # After the begin of a part, and at its end at the latest: n services of a second end in n seconds.
        ended = part_of(done - 1.0, edges, ended)
        sums.finished[ended] += size
        if parts.watts.size:
            sums.joules[ended] += parts.watts[size] * (done - now)
    if idle_at is not None:
        _note_arrivals(math.inf, arrival_s, replica, past, idle_at)


@compiled
def add_others(requests, batches, delay_s, limit, cuts, sums):
    """Add who was not served, who was delayed, and whose size is above the limit.

    `delay_s`: after how long a request of each level is delayed; empty: never.
    """
    for part in range(cuts.size - 1):
        for request in range(cuts[part], cuts[part + 1]):
            batch = requests.batch_index[request]
            if batch < 0 and requests.status[request] == SERVED:  # it still waits
                continue
            if batch < 0:
                sums.statuses[part, requests.status[request]] += 1
            elif delay_s.size:
                late_s = later(requests.arrival_s[request], delay_s[requests.level[request]])
                sums.delayed[part] += batches.start_s[batch] > late_s
            if requests.size.size and requests.size[request] > limit:
                sums.oversized[part] += 1


@compiled
def add_units(start_s, carried, computed, edges, sums):
    """Add what batches carry and compute to the part in which each starts."""
    part = 0
    for batch in range(start_s.size):
        part = part_of(to_ticks(start_s[batch]), edges, part)
        sums.carried[part] += carried[batch]
        sums.units[part] += computed[batch]


@compiled
def write_line(batch_index, line, begins):
    """Write the served requests by batch, and where those of each batch begin."""
    count = begins.size - 1
    begins[:] = 0
    for batch in batch_index:
        if batch >= 0:
            begins[batch + 1] += 1
    for batch in range(count):
        begins[batch + 1] += begins[batch]
    served = begins[count]
    for request in range(batch_index.size - 1, -1, -1):
        batch = batch_index[request]
        if batch >= 0:
            begins[batch + 1] -= 1
            line[begins[batch + 1]] = request
    for batch in range(count):
        begins[batch] = begins[batch + 1]
    begins[count] = served


# What a log does not say, but determines.


@compiled
def note_units(batch_index, size, batch_size, cost, cut, longest, carried, units, place):
    """Write of each batch the sum of its sizes, the units that it computes, and its place in the cold start.

    Sizes are cut to `cut`. `longest` is scratch space.
    """
    longest[:], carried[:] = 0, 0
    for request in range(batch_index.size):
        batch = batch_index[request]
        if batch >= 0:
            own = min(size[request], cut)
            longest[batch], carried[batch] = max(longest[batch], own), carried[batch] + own
    for batch in range(batch_size.size):
        units[batch] = units_of(batch_size[batch], longest[batch], carried[batch], cost)
        place[batch] = place_of(batch_size[batch], longest[batch], cost)


@compiled
def note_devices(
    starts_s, ends_s, server_of, place, servers, cold, free_s, host_s, ready_s, asked_s, begin_s
):
    """Write the columns of `DeviceTimes`; `place` is that of each batch's shape, as the loops decide them."""
    for batch in range(starts_s.size):
        start_s, done_s = starts_s[batch], ends_s[batch]
        replica, server = server_of[batch] // servers, server_of[batch] % servers
        ready_s[batch] = start_s
        if cold.compile_s.size:
            shape = cold.shape[place[batch]]
            if cold.ready_s[replica, shape] == math.inf:
                cold.ready_s[replica, shape] = later(start_s, cold.compile_s[place[batch]])
            ready_s[batch] = min(max(start_s, cold.ready_s[replica, shape]), done_s)
        asked_s[batch] = begin_s[batch] = ready_s[batch]
        if free_s.shape[1]:
            device = server % free_s.shape[1]
            asked_s[batch] = min(later(ready_s[batch], host_s), done_s)
            begin_s[batch] = min(max(asked_s[batch], free_s[replica, device]), done_s)
            free_s[replica, device] = done_s
