"""The loops that add up: a window's requests and batches, and a whole run's latency components."""

import math

from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.threshold import begin_of, later, soonest
from batchsim.engines.log import Status
from batchsim.engines.totals import BINS, BINS_AN_OCTAVE, LOWEST
from batchsim.scenario.rules.rule import Trigger

SERVED, REJECTED, TIMED_OUT = int(Status.SERVED), int(Status.REJECTED), int(Status.TIMED_OUT)
# What `account` adds up, by place in its array of floats.
SUMS = 9
LATENCY, FORMING, QUEUEING, COMPUTING, DEVICE_WAIT, BUSY, OFF_DEVICE, LAST_FINISH, ALL_BUSY = range(SUMS)
# ... and in its array of counts, the statuses and the triggers a place each.
FINISHED, BATCHES, ITEMS, DELAYED, STATUSES = 0, 1, 2, 3, 4
TRIGGERS = STATUSES + len(Status)
COUNTS = TRIGGERS + len(Trigger)


@compiled
def _bin(seconds):
    mantissa, exponent = math.frexp(seconds)  # mantissa in [0.5, 1)
    place = (exponent - 1 - LOWEST) * BINS_AN_OCTAVE + int((mantissa - 0.5) * 2 * BINS_AN_OCTAVE)
    return min(max(place, 0), BINS - 1)


@compiled
def _span_at(time_s, spans, count):
    """Return the last span that begins by a time, or the first."""
    begin, end = 0, count
    while begin + 1 < end:
        middle = (begin + end) // 2
        if spans[middle, 0] <= time_s:
            begin = middle
        else:
            end = middle
    return begin


@inlined
def on_device(now_s, done_s, costs, size, server):
    """Return when a batch that takes from now_s to done_s got its device, and how long it waited for it.

    As `kernels.finish_on_device` decides it, for batches in order of start.
    """
    asked_s = min(begin_of(now_s, costs, size), done_s)
    if not costs.devices.free_s.size:
        return asked_s, 0.0
    device, asked_s = server % costs.devices.free_s.size, later(asked_s, costs.devices.host_s)
    device_s = min(max(asked_s, costs.devices.free_s[device]), done_s)
    costs.devices.free_s[device] = done_s
    return device_s, max(device_s - asked_s, 0.0)


@compiled
def account(
    requests,
    order,
    delay_s,
    settled,
    skip,
    begin_s,
    batches,
    count,
    costs,
    until_s,
    spans,
    span_count,
    sums,
    counts,
    histogram,
):
    """Add a window's settled requests and its `count` batches to the sums; return how many spans there are.

    The first `settled` requests have come (those that still wait are passed over), the first `skip` of them
    belong to the warm-up, and the summary's window begins at `begin_s`. `spans` are the times at which every
    server computes, as rows [from, to, total before]: waiting meanwhile is queueing, not forming. `order`:
    the requests batch by batch, empty where that is their order anyway. `delay_s`: after how long a request
    of each level is delayed; empty: never. `costs`: devices and cold start as they were before the window.
    """
    arrival_s, batch_index, status = requests.arrival_s, requests.batch_index, requests.status
    request, span, place = 0, 0, 0
    for batch in range(count):
        now_s, done_s, size = batches.start_s[batch], batches.finish_s[batch], batches.size[batch]
        device_s, wait_s = on_device(now_s, done_s, costs, size, batches.server[batch])
        all_busy_s = sums[ALL_BUSY]  # every span that is known ended by now
        taken = 0
        while taken < size:
            if order.size:
                request = order[place]
                place += 1
                span = _span_at(arrival_s[request], spans, span_count)
            if batch_index[request] == batch:
                at_s = arrival_s[request]
                taken += 1
                if done_s >= begin_s:
                    counts[FINISHED] += 1
                if request >= skip:
                    counts[STATUSES + SERVED] += 1
                    if delay_s.size and now_s > later(at_s, delay_s[requests.level[request]]):
                        counts[DELAYED] += 1
                    while span + 1 < span_count and spans[span + 1, 0] <= at_s:
                        span += 1
                    before_s = 0.0
                    if span < span_count and spans[span, 0] <= at_s:
                        before_s = spans[span, 2] + min(at_s, spans[span, 1]) - spans[span, 0]
                    elif span < span_count:
                        before_s = spans[span, 2]
                    queueing_s = min(max(all_busy_s - before_s, 0.0), now_s - at_s)
                    sums[LATENCY] += done_s - at_s
                    sums[QUEUEING] += queueing_s
                    sums[FORMING] += now_s - at_s - queueing_s
                    sums[COMPUTING] += done_s - now_s - wait_s
                    sums[DEVICE_WAIT] += wait_s
                    histogram[_bin(done_s - at_s)] += 1
            request += 1
        if now_s >= begin_s:
            counts[BATCHES] += 1
            counts[ITEMS] += size
            counts[TRIGGERS + batches.trigger[batch]] += 1
        sums[BUSY] += max(done_s - max(now_s, begin_s), 0.0)
        sums[OFF_DEVICE] += max(device_s - max(now_s, begin_s), 0.0)
        sums[LAST_FINISH] = max(sums[LAST_FINISH], done_s)
        # Is every server computing now? Until the first of them is released, or on from before.
        until_s[batches.server[batch]] = done_s
        free_s = soonest(until_s)
        if free_s > now_s:
            if span_count and spans[span_count - 1, 1] == now_s:
                spans[span_count - 1, 1] = free_s
            else:
                spans[span_count, 0], spans[span_count, 1], spans[span_count, 2] = now_s, free_s, all_busy_s
                span_count += 1
            sums[ALL_BUSY] = all_busy_s + (free_s - now_s)
    for request in range(skip, settled):
        if status[request] == REJECTED or status[request] == TIMED_OUT:
            counts[STATUSES + status[request]] += 1
    return span_count


@compiled
def sum_parts(
    arrival_s, batch_index, start_s, finish_s, wait_s, idle_until_start_s, times_s, idle_s, slope, cuts, sums
):
    """Put into `sums[p]` the components of the latency of the requests from cuts[p] to cuts[p + 1].

    `idle_s` is, at each of `times_s`, how long a server had been idle by then, and rises from there
    with `slope`. `wait_s`: how long each batch waited for its device.
    """
    corner = 0
    for part in range(cuts.size - 1):
        latency_s = forming_s = queueing_s = computing_s = device_wait_s = 0.0
        for request in range(cuts[part], cuts[part + 1]):
            batch = batch_index[request]
            if batch < 0:
                continue
            at_s, now_s, done_s = arrival_s[request], start_s[batch], finish_s[batch]
            while corner + 1 < times_s.size and times_s[corner + 1] <= at_s:
                corner += 1
            idle_until_s = idle_s[corner] + (at_s - times_s[corner]) * slope[corner]
            formed_s = min(max(idle_until_start_s[batch] - idle_until_s, 0.0), now_s - at_s)
            latency_s += done_s - at_s
            forming_s += formed_s
            queueing_s += now_s - at_s - formed_s
            computing_s += done_s - now_s - wait_s[batch]
            device_wait_s += wait_s[batch]
        sums[part, LATENCY], sums[part, FORMING] = latency_s, forming_s
        sums[part, QUEUEING], sums[part, COMPUTING] = queueing_s, computing_s
        sums[part, DEVICE_WAIT] = device_wait_s


# The loop that adds up when all engines compute, and so how long requests queued.


# mypy: disable-error-code="no-untyped-def"


@compiled
def queue_up(steps, count, started, first_step, arrival_s, until_s, spans, known, all_busy_s, queueing_s):
    """Note how long each of the `started` requests queued; return how many spans there are.

    `started` are those whose first step is one of the `count` steps, in this order. `spans` are the times at
    which every engine computes, as rows [from, to, total before]: waiting meanwhile is queueing, not forming.
    `all_busy_s`, shape (1,), is their sum.
    """
    place = 0
    for row in range(count):
        now_s = steps.start_s[row]
        while place < started.size and first_step[started[place]] == steps.first + row:
            request = started[place]
            at_s, before_s = arrival_s[request], 0.0
            place += 1
            if known > 0:
                span = _span_at(at_s, spans, known)
                before_s = spans[span, 2]
                if spans[span, 0] <= at_s:
                    before_s += min(at_s, spans[span, 1]) - spans[span, 0]
            # Every span that is known ended by now: an engine is free.
            queueing_s[request] = min(max(all_busy_s[0] - before_s, 0.0), now_s - at_s)
        until_s[steps.server[row]] = steps.finish_s[row]
        free_s = soonest(until_s)
        if free_s > now_s:
            if known > 0 and spans[known - 1, 1] == now_s:
                spans[known - 1, 1] = free_s
            else:
                spans[known, 0], spans[known, 1], spans[known, 2] = now_s, free_s, all_busy_s[0]
                known += 1
            all_busy_s[0] += free_s - now_s
    return known
