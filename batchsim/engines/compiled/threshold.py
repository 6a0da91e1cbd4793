"""The compiled engine's fast loop, for a lossless open loop under a threshold rule.

It needs no instants: the arrivals and the times at which servers become free determine the next batch
(`next_batch`).
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim._clock import PER_S, TICK_S, WHOLE
from batchsim._clock import later as _later
from batchsim._clock import not_before as _not_before
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.sized import joins, with_units
from batchsim.scenario.rules.rule import BACKLOG, DRAIN, ENOUGH, FULL, WAIT

later, not_before = inlined(_later), inlined(_not_before)


@inlined
def soonest(times_s):
    """Return the earliest of some times."""
    earliest_s = times_s[0]
    for number in range(1, times_s.size):
        earliest_s = min(earliest_s, times_s[number])
    return earliest_s


# The fast loop counts in ticks, nanoseconds plus WHOLE: a sum is rounded by the addition itself, without a
# division.


@inlined
def to_ticks(time_s):
    """Return a time in ticks."""
    return time_s * PER_S + WHOLE


@inlined
def from_ticks(ticks):
    """Return the time of some ticks."""
    return (ticks - WHOLE) / PER_S


@inlined
def begin_of(now_s, costs, place):
    """Return when the computing of a batch that starts now begins: at once, or when its shape is compiled.

    The first batch of a shape starts its compilation. `place` is the batch size, or `Batch.place`.
    """
    if not costs.cold.ready_s.size:
        return now_s
    shape = costs.cold.shape[place]
    if costs.cold.ready_s[shape] == math.inf:
        costs.cold.ready_s[shape] = later(now_s, costs.cold.compile_s[place])
    return max(now_s, costs.cold.ready_s[shape])


@inlined
def finish_on_device(now_s, costs, mean_s, place, batch, server):
    """Return when a batch that starts now ends: first its host part, then its part on a device, maybe busy.

    The host part is the same for all batches, so they reach a device in order of start. Hence the start
    determines the finish, and no later batch can change it. Batches behind one that compiles wait, too.
    """
    host_s, device = costs.devices.host_s, server % costs.devices.free_s.size
    begin_s, free_s = later(begin_of(now_s, costs, place), host_s), costs.devices.free_s[device]
    seconds = mean_s - host_s
    if costs.noise.size:
        seconds = seconds * costs.noise[batch]
    if free_s > begin_s:
        begin_s, seconds = free_s, seconds * costs.devices.contention
    done_s = max(later(begin_s, seconds), later(now_s, TICK_S))
    costs.devices.free_s[device] = done_s
    return done_s


@inlined
def seconds_of(costs, mean_s, batch, busy):
    """Return how long a batch computes while `busy` servers do, its own included."""
    seconds = mean_s
    if costs.noise.size:
        seconds = seconds * costs.noise[batch]
    if costs.slowdown.size:
        seconds = seconds * costs.slowdown[busy]
    return seconds


@inlined
def finish_of(now_s, costs, mean_s, place, batch, server, busy):
    """Return when a batch that starts now ends, while `busy` servers compute, its own included."""
    if costs.devices.free_s.size:
        return finish_on_device(now_s, costs, mean_s, place, batch, server)
    seconds = seconds_of(costs, mean_s, batch, busy)
    done_s = later(begin_of(now_s, costs, place), seconds)
    # It takes at least a tick: no batch ends at the instant at which it starts.
    return done_s if done_s > now_s else later(now_s, TICK_S)


@inlined
def first_free(free, now):
    """Return the lowest-numbered server that is free, and how many are busy once it has a batch."""
    server, busy = free.size, 1
    for number in range(free.size - 1, -1, -1):
        if free[number] <= now:
            server = number
        else:
            busy += 1
    return server, busy


@inlined
def next_batch(arrival_s, size, head, threshold, limit, costs, free, batch):
    """Return the end of the batch of requests from `head` on, its server, start, finish, and if it is full.

    Times are in ticks, as is `free`: when each server is, or was, free. `arrival_s` must have all requests
    that the batch can hold. `size` is None where sizes change nothing: Numba leaves out the code for them.
    With sizes a batch is full when its next request, however small, would break the `limit`: the most units,
    and whether they are summed.
    """
    requests, servers = arrival_s.size, free.size
    # It is ready when enough requests wait, when the oldest has waited, or after the last arrival.
    ready = to_ticks(arrival_s[head]) + threshold.wait_s * PER_S
    if head + threshold.enough <= requests:
        ready = min(ready, to_ticks(arrival_s[head + threshold.enough - 1]))
    elif threshold.wait_s == math.inf:
        ready = to_ticks(arrival_s[requests - 1])
    freed = free[0] if servers == 1 else soonest(free)  # no choice: this makes the loop 5 % faster
    now = max(ready, freed)
    most = min(head + threshold.largest, requests)
    if size is None:
        end = head + 1
        while end < most and to_ticks(arrival_s[end]) <= now:
            end += 1
        count, full = end - head, end - head == threshold.largest
        mean_s, place = costs.service_s[count], count
    else:
        end, full = head, False
        longest, total, squares = 0, 0, 0
        while end < most and not full:
            comes, own = to_ticks(arrival_s[end]), size[end]
            if comes > now:
                break
            full = not joins(end - head, longest, total, own, limit[0], limit[1])
            if not full:
                longest, total, squares = max(longest, own), total + own, squares + own * own
                end += 1
                full = end - head == threshold.largest
                full |= not joins(end - head, longest, total, 1, limit[0], limit[1])
            if full:
                now = max(min(ready, comes), freed)
        count = end - head
        mean_s, place = costs.service_s[count], count
        if costs.units.rows.size:
            mean_s, place = with_units(mean_s, count, longest, total, squares, costs.units)
    server, busy = (0, 1) if servers == 1 else first_free(free, now)
    if costs.devices.free_s.size or costs.cold.ready_s.size:
        done = to_ticks(finish_of(from_ticks(now), costs, mean_s, place, batch, server, busy))
    else:
        done = now + max(seconds_of(costs, mean_s, batch, busy) * PER_S, 1.0)
    free[server] = done
    return end, server, now, done, full


@inlined
def trigger_of(arrival_s, head, size, now, threshold):
    """Return the trigger of a threshold rule's batch that is not full; it starts `now`, in ticks."""
    timed = threshold.wait_s < math.inf
    if not timed and size < threshold.enough:
        return DRAIN
    if timed:
        due = to_ticks(arrival_s[head]) + threshold.wait_s * PER_S
    else:
        due = to_ticks(arrival_s[head + threshold.enough - 1])
    if now > due:
        return BACKLOG
    if now < due:
        return DRAIN
    return WAIT if timed else ENOUGH


@compiled
def form_batches(arrival_s, size, more, threshold, limit, costs, free, state, stop, batch_index, batches):
    """Form batches until the head of the queue is at `stop`, or the next batch depends on a later window.

    `more`: whether one follows. `state` is [head, batches]. An empty `batch_index` is not written.
    """
    requests = arrival_s.size
    head, batch = state[0], state[1]
    # A batch is certain if the window has as many requests as it can hold.
    stop = min(requests - threshold.largest + 1 if more else requests, stop)
    while head < stop:
        end, server, now, done, full = next_batch(arrival_s, size, head, threshold, limit, costs, free, batch)
        batches.start_s[batch], batches.finish_s[batch] = from_ticks(now), from_ticks(done)
        batches.size[batch], batches.server[batch] = end - head, server
        batches.trigger[batch] = FULL if full else trigger_of(arrival_s, head, end - head, now, threshold)
        if batch_index.size:
            batch_index[head:end] = batch
        head = end
        batch += 1
    state[0], state[1] = head, batch
