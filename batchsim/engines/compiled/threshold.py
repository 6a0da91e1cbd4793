"""The compiled engine's fast loop: an open loop in which every request is served, under a threshold rule.

Nothing has to be simulated instant by instant there: when the next batch leaves follows from the arrivals
and from when the servers are free (`next_batch`). No loop here holds Python's lock.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim._clock import PER_S, TICK_S, WHOLE
from batchsim._clock import later as _later
from batchsim._clock import not_before as _not_before
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.scenario.rules.rule import BACKLOG, DRAIN, ENOUGH, FULL, WAIT

later, not_before = inlined(_later), inlined(_not_before)


@inlined
def soonest(times_s):
    """Return the earliest of some times."""
    earliest_s = times_s[0]
    for number in range(1, times_s.size):
        earliest_s = min(earliest_s, times_s[number])
    return earliest_s


# The fast loop counts in ticks, nanoseconds plus WHOLE: sums round themselves, and none waits for a division.


@inlined
def to_ticks(time_s):
    """Return a time in ticks."""
    return time_s * PER_S + WHOLE


@inlined
def from_ticks(ticks):
    """Return the time of some ticks."""
    return (ticks - WHOLE) / PER_S


@inlined
def begin_of(now_s, costs, size):
    """Return when a batch that starts now is computed: at once, or when its shape has been compiled.

    The first batch of a shape lets it be compiled.
    """
    if not costs.cold.ready_s.size:
        return now_s
    shape = costs.cold.shape[size]
    if costs.cold.ready_s[shape] == math.inf:
        costs.cold.ready_s[shape] = later(now_s, costs.cold.compile_s[size])
    return max(now_s, costs.cold.ready_s[shape])


@inlined
def finish_on_device(now_s, costs, size, batch, server):
    """Return when a batch that starts now ends, its host part first, then on a device that may be busy.

    Batches reach a device in the order of their start, as the host part is the same for all: so the finish
    is known at the start, and nothing that starts later changes it. Those behind one that compiles wait, too.
    """
    host_s, device = costs.devices.host_s, server % costs.devices.free_s.size
    begin_s, free_s = later(begin_of(now_s, costs, size), host_s), costs.devices.free_s[device]
    seconds = costs.service_s[size] - host_s
    if costs.noise.size:
        seconds = seconds * costs.noise[batch]
    if free_s > begin_s:
        begin_s, seconds = free_s, seconds * costs.devices.contention
    done_s = max(later(begin_s, seconds), later(now_s, TICK_S))
    costs.devices.free_s[device] = done_s
    return done_s


@inlined
def seconds_of(costs, size, batch, busy):
    """Return how long a batch computes, `busy` servers computing with it."""
    seconds = costs.service_s[size]
    if costs.noise.size:
        seconds = seconds * costs.noise[batch]
    if costs.slowdown.size:
        seconds = seconds * costs.slowdown[busy]
    return seconds


@inlined
def finish_of(now_s, costs, size, batch, server, busy):
    """Return when a batch that starts now on a server ends, `busy` servers computing with it."""
    if costs.devices.free_s.size:
        return finish_on_device(now_s, costs, size, batch, server)
    seconds = seconds_of(costs, size, batch, busy)
    done_s = later(begin_of(now_s, costs, size), seconds)
    # However short, it takes a tick of the clock: a batch never ends at the instant at which it starts.
    return done_s if done_s > now_s else later(now_s, TICK_S)


@inlined
def next_batch(arrival_s, head, threshold, costs, free, batch):
    """Return the batch that takes the queue's head: where it ends, its server, its start and its finish.

    All requests that it can hold must be known. `free` is when each server is, or was, free, in ticks.
    """
    requests, servers = arrival_s.size, free.size
    # The batch is ready when enough wait, when the oldest has waited, or when no more will come.
    ready = to_ticks(arrival_s[head]) + threshold.wait_s * PER_S
    if head + threshold.enough <= requests:
        ready = min(ready, to_ticks(arrival_s[head + threshold.enough - 1]))
    elif threshold.wait_s == math.inf:
        ready = to_ticks(arrival_s[requests - 1])
    if servers == 1:  # nothing to choose: some 5 % faster in all
        server, busy = 0, 1
        now = max(ready, free[0])
    else:
        now = max(ready, soonest(free))
        server, busy = servers, 1
        for number in range(servers - 1, -1, -1):
            if free[number] <= now:
                server = number
            else:
                busy += 1
    now_s = from_ticks(now)
    end = head + 1
    most = min(head + threshold.largest, requests)
    while end < most and to_ticks(arrival_s[end]) <= now:
        end += 1
    if costs.devices.free_s.size or costs.cold.ready_s.size:
        done_s = finish_of(now_s, costs, end - head, batch, server, busy)
        free[server] = to_ticks(done_s)
    else:
        free[server] = now + max(seconds_of(costs, end - head, batch, busy) * PER_S, 1.0)
        done_s = from_ticks(free[server])
    return end, server, now_s, done_s


@inlined
def trigger_of(arrival_s, head, size, now_s, threshold):
    """Return why a threshold rule's batch left, from its head, its size and its start."""
    if size == threshold.largest:
        return FULL
    timed = threshold.wait_s < math.inf
    if not timed and size < threshold.enough:
        return DRAIN
    due_s = later(arrival_s[head], threshold.wait_s) if timed else arrival_s[head + threshold.enough - 1]
    if now_s > due_s:
        return BACKLOG
    if now_s < due_s:
        return DRAIN
    return WAIT if timed else ENOUGH


@compiled
def form_batches(arrival_s, more, threshold, costs, free, state, stop, batch_index, batches):
    """Form batches until the queue's head is at `stop`, or the window no longer tells the next one.

    `more`: whether requests follow the window. `state` is [head, batches].
    """
    requests = arrival_s.size
    head, batch = state[0], state[1]
    # A batch is certain once as many requests are known as it can hold.
    stop = min(requests - threshold.largest + 1 if more else requests, stop)
    while head < stop:
        end, server, now_s, done_s = next_batch(arrival_s, head, threshold, costs, free, batch)
        batches.start_s[batch], batches.finish_s[batch] = now_s, done_s
        batches.size[batch], batches.server[batch] = end - head, server
        batches.trigger[batch] = trigger_of(arrival_s, head, end - head, now_s, threshold)
        batch_index[head:end] = batch
        head = end
        batch += 1
    state[0], state[1] = head, batch
