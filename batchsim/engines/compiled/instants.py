"""The compiled engine's general loop: from instant to instant, each taken in the reference's four steps.

For any rule, for queue limits and timeouts, and for closed loops. What to do at an instant is asked of the
rule itself (`rule_calls`), by the same two functions that the reference engine calls.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim.engines.compiled.columns import BATCH, FROZEN_HEAD, FROZEN_TAIL, HEAD, MID, SENT, TAIL, THINKING
from batchsim.engines.compiled.jit import compiled, compiled_anew, inlined
from batchsim.engines.compiled.levels import enter, expiry_s, line_of, overdue, take
from batchsim.engines.compiled.rule_calls import bring, computed_as, decide, finished, wake_s
from batchsim.engines.compiled.threshold import finish_of, later, not_before, soonest
from batchsim.engines.log import Status
from batchsim.scenario.rules.rule import FREEZE, REFUSE, START, Waiting

REJECTED, TIMED_OUT = int(Status.REJECTED), int(Status.TIMED_OUT)
# What the loop returns: all is over; a window follows; the same call goes on; a rule's size is wrong.
ENDED, MORE, PAUSED, WRONG = 1, 0, 2, -1


# A heap of the clients that think, soonest first, ties by client.


@inlined
def _sooner(clients, a, b):
    due_s, client = clients.due_s, clients.client
    return due_s[a] < due_s[b] or (due_s[a] == due_s[b] and client[a] < client[b])


@inlined
def _swap(clients, a, b):
    due_s, client = clients.due_s, clients.client
    due_s[a], due_s[b] = due_s[b], due_s[a]
    client[a], client[b] = client[b], client[a]


@inlined
def _push(clients, at, time_s, who):
    """Add a client that will send at a time."""
    place = at[THINKING]
    clients.due_s[place], clients.client[place] = time_s, who
    while place > 0 and _sooner(clients, place, (place - 1) // 2):
        _swap(clients, place, (place - 1) // 2)
        place = (place - 1) // 2
    at[THINKING] += 1


@inlined
def _pop(clients, at):
    """Remove the client that sends soonest."""
    at[THINKING] -= 1
    size = at[THINKING]
    _swap(clients, 0, size)
    place = 0
    while True:
        least = place
        for child in (2 * place + 1, 2 * place + 2):
            if child < size and _sooner(clients, child, least):
                least = child
        if least == place:
            return
        _swap(clients, place, least)
        place = least


# What happens at an instant.


@inlined
def _waiting(requests, queue, levels, at, ended):
    line, head = line_of(queue, at, levels)
    frozen = at[FROZEN_TAIL] - at[FROZEN_HEAD]
    return Waiting(requests.arrival_s, line, head, at[TAIL] - at[MID], frozen, ended)


@inlined
def _idle(servers):
    """Return how many servers are idle, and the lowest-numbered of them; -1 for none."""
    idle, lowest = 0, -1
    for number in range(servers.busy_until_s.size - 1, -1, -1):
        if servers.busy_until_s[number] == math.inf:
            idle, lowest = idle + 1, number
    return idle, lowest


@inlined
def _start(
    now_s, size, whole, trigger, server, busy, requests, costs, queue, levels, clients, servers, batches, at
):
    """Let a server compute the `size` requests at the queue's head, as `whole`."""
    batch = at[BATCH]
    done_s = finish_of(now_s, costs, whole, batch, server, busy)
    servers.busy_until_s[server], servers.since_s[server], servers.size[server] = done_s, now_s, whole
    for place in range(at[HEAD], at[HEAD] + size):
        request = queue.requests[place]
        requests.batch_index[request] = batch
        if levels is not None:
            levels.waiting[requests.level[request]] -= 1
        if requests.client.size:  # when the answered client sends again is known already
            _push(clients, at, later(done_s, requests.think_s[request]), requests.client[request])
    batches.start_s[batch], batches.finish_s[batch] = now_s, done_s
    batches.size[batch], batches.server[batch], batches.trigger[batch] = size, server, trigger
    at[HEAD] += size
    at[BATCH] += 1


@inlined
def _let_go(now_s, status, requests, queue, levels, clients, at):
    """Let the first of those that wait, behind the frozen batches, leave unserved."""
    request = queue.requests[at[MID]]
    requests.status[request] = status
    if levels is not None:
        levels.waiting[requests.level[request]] -= 1
    for place in range(at[MID], at[HEAD], -1):
        queue.requests[place] = queue.requests[place - 1]
    at[HEAD] += 1
    at[MID] += 1
    if requests.client.size:
        _push(clients, at, later(now_s, requests.think_s[request]), requests.client[request])


@inlined
def _dispatch(
    now_s, ended, params, state, while_busy, requests, costs, queue, levels, clients, servers, batches, at
):
    """Ask the rule what to do until it does nothing; return whether all that it asked can be done."""
    if at[HEAD] == at[TAIL]:
        return True
    idle, server = _idle(servers)
    while at[HEAD] < at[TAIL]:
        if idle == 0 and not while_busy:
            return True
        action, size, trigger = decide(
            now_s, _waiting(requests, queue, levels, at, ended), idle, state, params
        )
        if action == START:
            if idle == 0:
                return True
            if at[FROZEN_HEAD] < at[FROZEN_TAIL]:  # the oldest frozen batch, as it is
                size, trigger = queue.frozen_size[at[FROZEN_HEAD]], queue.frozen_trigger[at[FROZEN_HEAD]]
                at[FROZEN_HEAD] += 1
            else:
                if size < 1 or size > at[TAIL] - at[MID] or size >= costs.service_s.size:
                    return False
                if levels is not None:
                    take(size, queue, at, levels)
                else:
                    bring(size, queue.requests, at[MID], state, params)
                at[MID] += size
            busy = servers.busy_until_s.size - idle + 1
            _start(
                now_s, size, computed_as(size, state, params), trigger, server, busy,
                requests, costs, queue, levels, clients, servers, batches, at,
            )  # fmt: skip
            idle -= 1
            while idle > 0 and servers.busy_until_s[server] < math.inf:  # on to the next idle one
                server += 1
        elif action == REFUSE:
            if size < 1 or size > at[TAIL] - at[MID]:
                return False
            if levels is not None:
                take(size, queue, at, levels)
            for _ in range(size):
                _let_go(now_s, REJECTED, requests, queue, levels, clients, at)
        elif action == FREEZE and queue.frozen_size.size:
            if size < 1 or size > at[TAIL] - at[MID] or size >= costs.service_s.size:
                return False
            if levels is not None:
                take(size, queue, at, levels)
            queue.frozen_size[at[FROZEN_TAIL]], queue.frozen_trigger[at[FROZEN_TAIL]] = size, trigger
            at[FROZEN_TAIL] += 1
            at[MID] += size
        else:
            return True
    return True


@inlined
def _enter(request, limits, requests, queue, levels, at):
    """Let the request that comes now into the queue, unless that is at its limit."""
    requests.batch_index[request] = -1
    at[SENT] += 1
    if levels is None:  # noqa: SIM108  # Numba leaves out the other branch of an if
        enters = at[TAIL] - at[HEAD] < limits.queue
    else:
        enters = enter(request, requests, levels)
    if not enters:
        requests.status[request] = REJECTED
        return False
    queue.requests[at[TAIL]] = request
    at[TAIL] += 1
    return True


@inlined
def _expiry_s(limits, requests, queue, levels, at):
    """Return when the next request has waited too long."""
    if levels is not None:
        return expiry_s(requests, levels)
    return later(requests.arrival_s[queue.requests[at[MID]]], limits.timeout_s)


@inlined
def _overdue(now_s, limits, requests, queue, levels, at):
    """Return whether the first of those that wait leaves, as it has waited too long."""
    if at[MID] == at[TAIL]:
        return False
    if levels is not None:
        return overdue(now_s, requests, queue, at, levels)
    return now_s >= later(requests.arrival_s[queue.requests[at[MID]]], limits.timeout_s)


def _pass_instants(
    horizon, limits, params, state, while_busy, requests, costs, queue, levels, clients, servers, batches, at
):
    """Go from instant to instant until `horizon.stop` requests have come; return whether that is all.

    `at` holds the places of `columns` (SENT, HEAD, ...); `state` is the rule's own memory; `while_busy`:
    whether it is asked while every server computes. The queue is `queue.requests[head:tail]`, of which those
    before `mid` are in frozen batches. `levels` is None without levels and delays: then Numba leaves
    out all that is about them; else those from `mid` on are in their lists, and there once they are taken.
    """
    closed, arrival_s = horizon.closed, requests.arrival_s
    last_s = servers.clock_s[0]
    work_left = limits.work + at[SENT] + at[BATCH]
    while at[SENT] < horizon.stop:
        if at[SENT] + at[BATCH] >= work_left:
            return PAUSED
        work_left -= 1
        # The next instant at which something is due.
        now_s = math.inf
        if not closed and at[SENT] < horizon.known:
            now_s = arrival_s[at[SENT]]
        if at[THINKING] > 0:
            now_s = min(now_s, clients.due_s[0])
        now_s = min(now_s, soonest(servers.busy_until_s))
        if at[MID] < at[TAIL]:
            now_s = min(now_s, _expiry_s(limits, requests, queue, levels, at))
        if at[HEAD] < at[TAIL]:
            idle, _ = _idle(servers)
            if idle > 0 or while_busy:
                waiting = _waiting(requests, queue, levels, at, at[SENT] == horizon.total)
                due_s = wake_s(last_s, waiting, idle, state, params)
                if last_s < due_s < now_s:  # what was due has been asked already: it must not hold the clock
                    now_s = min(now_s, not_before(due_s))
        if now_s == math.inf:
            return ENDED
        if horizon.known < horizon.total and not closed and now_s >= arrival_s[horizon.known - 1]:
            return MORE  # another may arrive at this very instant: the next window tells
        last_s = servers.clock_s[0] = now_s

        # 1. Requests of an open loop enter.
        while not closed and at[SENT] < horizon.known and arrival_s[at[SENT]] <= now_s:
            _enter(at[SENT], limits, requests, queue, levels, at)

        # 2. Batches that end release their servers; dispatch.
        for server in range(servers.busy_until_s.size):
            if servers.busy_until_s[server] <= now_s:
                seconds = servers.busy_until_s[server] - servers.since_s[server]
                finished(now_s, servers.size[server], seconds, state, params)
                servers.busy_until_s[server] = math.inf
        if not _dispatch(
            now_s, at[SENT] == horizon.total, params, state, while_busy,
            requests, costs, queue, levels, clients, servers, batches, at,
        ):  # fmt: skip
            return WRONG

        # 3. Requests that have waited too long leave; those in a frozen batch stay.
        while _overdue(now_s, limits, requests, queue, levels, at):
            _let_go(now_s, TIMED_OUT, requests, queue, levels, clients, at)

        # 4. Clients whose thinking is over send, in their order, each followed by a dispatch.
        count = 0
        while at[THINKING] > 0 and clients.due_s[0] <= now_s:
            clients.sending[count] = clients.client[0]
            _pop(clients, at)
            count += 1
        for place in range(count):
            request, client = at[SENT], clients.sending[place]
            if request == horizon.total:
                break
            arrival_s[request], requests.client[request] = now_s, client
            if not _enter(request, limits, requests, queue, levels, at):
                _push(clients, at, later(now_s, requests.think_s[request]), client)
            if not _dispatch(
                now_s, at[SENT] == horizon.total, params, state, while_busy,
                requests, costs, queue, levels, clients, servers, batches, at,
            ):  # fmt: skip
                return WRONG
        if closed and at[SENT] == horizon.total:
            at[THINKING] = 0  # the clients stop
    return MORE


pass_instants = compiled(_pass_instants)
# For a rule that is not of this package: its file is not in the digest, so that a kept loop could be stale.
pass_instants_anew = compiled_anew(_pass_instants)
