"""The compiled engine's loops.

Both formers of batches work on a window of the requests: those that come from `arrival_s`, those
that wait stand in front. An open loop in which every request is served needs no events: each
batch follows from the one before (`form_batches`). Queue limits, timeouts and closed loops go from
instant to instant and take each one's four steps, as the reference does (`pass_instants`). `account`
sums up what a window has settled. None of them holds Python's lock.
"""

import math

import numpy as np

from batchsim.engines.histogram import BINS, BINS_AN_OCTAVE, LOWEST
from batchsim.engines.kernels_jit import compiled, inlined
from batchsim.engines.plan import Status
from batchsim.scenario.rules import Trigger

# Numbers that Numba freezes into the code.
SERVED, REJECTED, TIMED_OUT = int(Status.SERVED), int(Status.REJECTED), int(Status.TIMED_OUT)


@inlined
def _soonest(times_s):  # type: ignore[no-untyped-def]
    soonest_s = times_s[0]
    for number in range(1, times_s.size):
        soonest_s = min(soonest_s, times_s[number])
    return soonest_s


@inlined
def _finish(now_s, service, noise, slowdown, size, batch, busy):  # type: ignore[no-untyped-def]
    seconds = service[size]
    if noise.size:
        seconds = seconds * noise[batch]
    if slowdown.size:
        seconds = seconds * slowdown[busy]
    done_s = now_s + seconds
    # However short, it takes a tick of the clock: a batch never ends in the instant it starts.
    return done_s if done_s > now_s else np.nextafter(now_s, math.inf)


@inlined
def next_batch(  # type: ignore[no-untyped-def]
    arrival_s, head, wait_s, enough, largest, service, noise, slowdown, free_s, batch
):
    """Return the batch that takes the queue's head: where it ends, its server, its start and finish.

    In an open loop in which every request is served, and with all those known that it can hold.
    """
    requests, servers = arrival_s.size, free_s.size
    # When the batch is ready: full enough, or ripe, or released by the end of the arrivals.
    ready_s = arrival_s[head] + wait_s
    if head + enough <= requests:
        ready_s = min(ready_s, arrival_s[head + enough - 1])
    elif wait_s == math.inf:
        ready_s = arrival_s[requests - 1]
    if servers == 1:  # nothing to choose: some 5 % faster over all
        server, busy = 0, 1
        now_s = max(ready_s, free_s[0])
    else:
        now_s = max(ready_s, _soonest(free_s))
        server, busy = servers, 1
        for number in range(servers - 1, -1, -1):
            if free_s[number] <= now_s:
                server = number
            else:
                busy += 1
    end = head + 1
    most = min(head + largest, requests)
    while end < most and arrival_s[end] <= now_s:
        end += 1
    done_s = _finish(now_s, service, noise, slowdown, end - head, batch, busy)
    free_s[server] = done_s
    return end, server, now_s, done_s


@compiled
def form_batches(  # type: ignore[no-untyped-def]
    arrival_s, more, wait_s, enough, largest, service, noise, slowdown, free_s, state, stop,
    batch_index, start_s, finish_s, batch_size, batch_server,
):  # fmt: skip
    """Form batches until the queue's head is at `stop`, or the window no longer tells the next one.

    `more`: whether requests follow the window. `state` is [head, batches]; `free_s` when each
    server is, or was, released.
    """
    requests = arrival_s.size
    head, batch = state[0], state[1]
    # A batch is certain once as many requests are known as it can hold.
    stop = min(requests - largest + 1 if more else requests, stop)
    while head < stop:
        end, server, now_s, done_s = next_batch(
            arrival_s, head, wait_s, enough, largest, service, noise, slowdown, free_s, batch
        )
        start_s[batch], finish_s[batch] = now_s, done_s
        batch_size[batch], batch_server[batch] = end - head, server
        batch_index[head:end] = batch
        head = end
        batch += 1
    state[0], state[1] = head, batch


@inlined
def _sooner(due_s, client, a, b):  # type: ignore[no-untyped-def]
    return due_s[a] < due_s[b] or (due_s[a] == due_s[b] and client[a] < client[b])


@inlined
def _swap(due_s, client, a, b):  # type: ignore[no-untyped-def]
    due_s[a], due_s[b] = due_s[b], due_s[a]
    client[a], client[b] = client[b], client[a]


@inlined
def _push(due_s, client, size, time_s, who):  # type: ignore[no-untyped-def]
    """Add a client to the heap of those who will send, soonest first, ties by client."""
    due_s[size], client[size] = time_s, who
    at = size
    while at > 0 and _sooner(due_s, client, at, (at - 1) // 2):
        _swap(due_s, client, at, (at - 1) // 2)
        at = (at - 1) // 2
    return size + 1


@inlined
def _pop(due_s, client, size):  # type: ignore[no-untyped-def]
    """Remove the soonest client, which is left behind the heap's new end."""
    size -= 1
    _swap(due_s, client, 0, size)
    at = 0
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and _sooner(due_s, client, child, least):
                least = child
        if least == at:
            return size
        _swap(due_s, client, at, least)
        at = least


@inlined
def _look(  # type: ignore[no-untyped-def]
    now_s, ended, arrival_s, think_s, wait_s, enough, largest, service, noise, slowdown,
    queue, head, tail, batch, busy_until_s, client_of, due_s, due_client, thinking,
    batch_index, start_s, finish_s, batch_size, batch_server,
):  # fmt: skip
    """While a server is idle and a batch is ready, the lowest-numbered one takes it."""
    while head < tail:
        size = tail - head
        ripe = now_s >= arrival_s[queue[head]] + wait_s
        if not (size >= enough or ripe or (ended and wait_s == math.inf)):
            break
        server, busy = -1, 1
        for number in range(busy_until_s.size - 1, -1, -1):
            if busy_until_s[number] == math.inf:
                server = number
            else:
                busy += 1
        if server < 0:
            break
        size = min(size, largest)
        done_s = _finish(now_s, service, noise, slowdown, size, batch, busy)
        busy_until_s[server] = done_s
        for place in range(head, head + size):
            request = queue[place]
            batch_index[request] = batch
            if client_of.size:  # it is known already when the answered client sends again
                thinking = _push(due_s, due_client, thinking, done_s + think_s[request], client_of[request])
        start_s[batch], finish_s[batch] = now_s, done_s
        batch_size[batch], batch_server[batch] = size, server
        head += size
        batch += 1
    return head, batch, thinking


@compiled
def pass_instants(  # type: ignore[no-untyped-def]
    arrival_s, think_s, closed, known, total, wait_s, timeout_s, limit, enough, largest,
    service, noise, slowdown, queue, client_of, due_s, due_client, sending, busy_until_s, state, stop,
    batch_index, status, start_s, finish_s, batch_size, batch_server,
):  # fmt: skip
    """Go from instant to instant until `stop` requests have come; return whether that is all.

    An open loop's first `known` arrivals are in the window, of `total` that come; a closed loop
    writes its sends there. `state` is [sent, head, tail, batches, thinking]: the queue is
    `queue[head:tail]`; the heap of the clients who think, `due_s[:thinking]`. An idle server is
    busy until infinity.
    """
    sent, head, tail, batch, thinking = state[0], state[1], state[2], state[3], state[4]
    over = False
    while sent < stop:
        # The next instant at which something is due.
        now_s = math.inf
        if not closed and sent < known:
            now_s = arrival_s[sent]
        if thinking > 0:
            now_s = min(now_s, due_s[0])
        idle = False
        for server in range(busy_until_s.size):
            idle = idle or busy_until_s[server] == math.inf
            now_s = min(now_s, busy_until_s[server])
        if head < tail:
            oldest_s = arrival_s[queue[head]]
            now_s = min(now_s, oldest_s + timeout_s)
            if idle:
                now_s = min(now_s, oldest_s + wait_s)
        if now_s == math.inf:
            over = True
            break
        if known < total and not closed and now_s >= arrival_s[known - 1]:
            break  # another may arrive at this very instant: the next window tells

        # 1. Open-loop requests enter.
        while not closed and sent < known and arrival_s[sent] <= now_s:
            batch_index[sent] = -1
            if tail - head >= limit:
                status[sent] = REJECTED
            else:
                queue[tail] = sent
                tail += 1
            sent += 1

        # 2. Batches that end release their servers; look.
        for server in range(busy_until_s.size):
            if busy_until_s[server] <= now_s:
                busy_until_s[server] = math.inf
        head, batch, thinking = _look(
            now_s, sent == total, arrival_s, think_s, wait_s, enough, largest, service, noise, slowdown,
            queue, head, tail, batch, busy_until_s, client_of, due_s, due_client, thinking,
            batch_index, start_s, finish_s, batch_size, batch_server,
        )  # fmt: skip

        # 3. Those who have waited too long leave.
        while head < tail and now_s >= arrival_s[queue[head]] + timeout_s:
            request = queue[head]
            status[request] = TIMED_OUT
            head += 1
            if closed:
                thinking = _push(due_s, due_client, thinking, now_s + think_s[request], client_of[request])

        # 4. Clients whose thinking is over send, in their order, each followed by a look.
        count = 0
        while thinking > 0 and due_s[0] <= now_s:
            sending[count] = due_client[0]
            thinking = _pop(due_s, due_client, thinking)
            count += 1
        for place in range(count):
            if sent == total:
                break
            arrival_s[sent], client_of[sent] = now_s, sending[place]
            request = sent
            batch_index[request] = -1
            sent += 1
            if tail - head >= limit:
                status[request] = REJECTED
                thinking = _push(due_s, due_client, thinking, now_s + think_s[request], sending[place])
            else:
                queue[tail] = request
                tail += 1
            head, batch, thinking = _look(
                now_s, sent == total, arrival_s, think_s, wait_s, enough, largest, service, noise, slowdown,
                queue, head, tail, batch, busy_until_s, client_of, due_s, due_client, thinking,
                batch_index, start_s, finish_s, batch_size, batch_server,
            )  # fmt: skip
        if closed and sent == total:
            thinking = 0  # the clients stop
    state[0], state[1], state[2], state[3], state[4] = sent, head, tail, batch, thinking
    return over


# What `account` sums up, by place in its array of floats.
SUMS = 7
LATENCY, FORMING, QUEUEING, COMPUTING, BUSY, LAST_FINISH, ALL_BUSY = range(SUMS)
# ... and in its array of counts, the statuses and the triggers a place each.
FINISHED, BATCHES, ITEMS, STATUSES = 0, 1, 2, 3
TRIGGERS = STATUSES + len(Status)
COUNTS = TRIGGERS + len(Trigger)
FULL, WAIT, BACKLOG, DRAIN, ENOUGH = (int(trigger) for trigger in Trigger)


@compiled
def _bin(seconds):  # type: ignore[no-untyped-def]
    """Return the histogram's bin of a latency."""
    mantissa, exponent = math.frexp(seconds)  # mantissa in [0.5, 1)
    place = (exponent - 1 - LOWEST) * BINS_AN_OCTAVE + int((mantissa - 0.5) * 2 * BINS_AN_OCTAVE)
    return min(max(place, 0), BINS - 1)


@compiled
def account(  # type: ignore[no-untyped-def]
    arrival_s, settled, skip, begin_s, wait_s, enough, largest, timed,
    batch_index, status, batches, start_s, finish_s, batch_size, batch_server,
    until_s, spans, span_count, sums, counts, histogram,
):  # fmt: skip
    """Add a window's settled requests and its batches to the sums; return how many spans there are.

    The first `settled` requests have come (those that still wait are passed over), the first
    `skip` of them belong to the warm-up, and the summary's window begins at `begin_s`. `timed`:
    whether the rule has a timer. `spans` are the times with every server computing, as rows
    [from, to, all of it before]: what was spent waiting meanwhile is queueing, not forming.
    """
    request, span = 0, 0
    for batch in range(batches):
        now_s, done_s, size = start_s[batch], finish_s[batch], batch_size[batch]
        all_busy_s = sums[ALL_BUSY]  # every span that is known ended by now
        found, due_s = 0, 0.0
        while found < size:
            if batch_index[request] == batch:
                at_s = arrival_s[request]
                found += 1
                if found == 1:
                    due_s = at_s + wait_s
                if found == enough and not timed:
                    due_s = at_s
                if done_s >= begin_s:
                    counts[FINISHED] += 1
                if request >= skip:
                    counts[STATUSES + SERVED] += 1
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
                    sums[COMPUTING] += done_s - now_s
                    histogram[_bin(done_s - at_s)] += 1
            request += 1
        if now_s >= begin_s:
            counts[BATCHES] += 1
            counts[ITEMS] += size
            if size == largest:
                trigger = FULL
            elif not timed and found < enough:
                trigger = DRAIN
            elif now_s > due_s:
                trigger = BACKLOG
            elif now_s == due_s:
                trigger = WAIT if timed else ENOUGH
            else:
                trigger = DRAIN
            counts[TRIGGERS + trigger] += 1
        sums[BUSY] += max(done_s - max(now_s, begin_s), 0.0)
        sums[LAST_FINISH] = max(sums[LAST_FINISH], done_s)
        # Is every server computing now? Until the first of them is released, or on from before.
        until_s[batch_server[batch]] = done_s
        free_s = _soonest(until_s)
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
def sum_parts(  # type: ignore[no-untyped-def]
    arrival_s, batch_index, start_s, finish_s, idle_until_start_s, times_s, idle_s, slope, cuts, sums
):  # fmt: skip
    """Put into `sums[p]` the parts of the latency of the requests from cuts[p] to cuts[p + 1].

    `idle_s` is, at each of `times_s`, how long a server had been idle by then, and rises from there
    with `slope`.
    """
    corner = 0
    for part in range(cuts.size - 1):
        latency_s = forming_s = queueing_s = computing_s = 0.0
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
            computing_s += done_s - now_s
        sums[part, LATENCY], sums[part, FORMING] = latency_s, forming_s
        sums[part, QUEUEING], sums[part, COMPUTING] = queueing_s, computing_s
