"""The compiled engine's general loop: from instant to instant, each with the four steps of the reference.

It runs any rule, queue limits and timeouts, and closed loops. At each instant it calls the same two functions
of the rule as the reference engine (`rule_calls`).
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim.engines.compiled.columns import BATCH, FROZEN_HEAD, FROZEN_TAIL, HEAD, MID, SENT, TAIL, THINKING
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.levels import NOBODY, enter, expiry_s, overdue, seen_queue, take
from batchsim.engines.compiled.rule_calls import ask, bring, computed_as, finished, show
from batchsim.engines.compiled.sized import time_of
from batchsim.engines.compiled.threshold import finish_of, later, not_before, soonest
from batchsim.engines.log import Status
from batchsim.scenario.rules.rule import FREEZE, REFUSE, START, Waiting

REJECTED, TIMED_OUT = int(Status.REJECTED), int(Status.TIMED_OUT)
# The loop returns: the run is over; it needs the next window; call it again; the rule returned a wrong size.
ENDED, MORE, PAUSED, WRONG = 1, 0, 2, -1
UNKNOWN = math.nan  # when time alone changes what a rule does: it must say so again


# The heap of the clients that think, the next to send first; ties go by client.


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
def answer_client(now_s, request, requests, clients, cursor):
    """Let the client of a request, if there are clients, send again once it has thought."""
    if not requests.client.size:
        return
    place = cursor[THINKING]
    clients.due_s[place] = later(now_s, requests.think_s[request])
    clients.client[place] = requests.client[request]
    while place > 0 and _sooner(clients, place, (place - 1) // 2):
        _swap(clients, place, (place - 1) // 2)
        place = (place - 1) // 2
    cursor[THINKING] += 1


@inlined
def pop_client(clients, cursor):
    """Remove the client that sends next."""
    cursor[THINKING] -= 1
    size = cursor[THINKING]
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


@inlined
def next_send_s(requests, clients, cursor):
    """Return when the next client sends, if one thinks or waits: once it is free and the request is due."""
    return max(clients.due_s[0], requests.arrival_s[cursor[SENT]])


@inlined
def pop_senders(now_s, total, requests, clients, cursor):
    """Note the clients that send now, in order of their numbers; return how many they are."""
    count = 0
    while cursor[THINKING] > 0 and clients.due_s[0] <= now_s and cursor[SENT] + count < total:
        if requests.arrival_s[cursor[SENT] + count] > now_s:
            break
        clients.sending[count] = clients.client[0]
        pop_client(clients, cursor)
        count += 1
    return count


# The parts of an instant.


@inlined
def _waiting(requests, queue, levels, cursor, ended):
    line, head = seen_queue(queue, cursor, levels)
    frozen = cursor[FROZEN_TAIL] - cursor[FROZEN_HEAD]
    length = cursor[TAIL] - cursor[MID]
    return Waiting(requests.arrival_s, line, head, length, frozen, ended, requests.size)


@inlined
def _idle(servers):
    """Return how many servers are idle, and the lowest-numbered of them; -1 for none."""
    idle, lowest = 0, -1
    for number in range(servers.busy_until_s.size - 1, -1, -1):
        if servers.busy_until_s[number] == math.inf:
            idle, lowest = idle + 1, number
    return idle, lowest


@inlined
def _start(now_s, size, whole, trigger, server, busy,
           requests, costs, queue, levels, clients, servers, batches, cursor):  # fmt: skip
    """Let a server compute the `size` requests at the head of the queue in the time of a batch of `whole`."""
    batch = cursor[BATCH]
    mean_s, shape = time_of(requests, queue.requests, cursor[HEAD], size, whole, costs)
    done_s = finish_of(now_s, costs, mean_s, shape, batch, server, busy)
    servers.busy_until_s[server], servers.since_s[server], servers.size[server] = done_s, now_s, whole
    for place in range(cursor[HEAD], cursor[HEAD] + size):
        request = queue.requests[place]
        requests.batch_index[request] = batch
        if levels is not None:
            levels.waiting[requests.level[request]] -= 1
        answer_client(done_s, request, requests, clients, cursor)  # whose next send follows from the finish
    batches.start_s[batch], batches.finish_s[batch] = now_s, done_s
    batches.size[batch], batches.server[batch], batches.trigger[batch] = size, server, trigger
    cursor[HEAD] += size
    cursor[BATCH] += 1


@inlined
def _let_go(now_s, status, requests, queue, levels, clients, cursor):
    """Let the first request behind the frozen batches leave unserved."""
    request = queue.requests[cursor[MID]]
    requests.status[request] = status
    if levels is not None:
        levels.waiting[requests.level[request]] -= 1
    # The frozen batches move into its place, so that the queue has no gap.
    for place in range(cursor[MID], cursor[HEAD], -1):
        queue.requests[place] = queue.requests[place - 1]
    cursor[HEAD] += 1
    cursor[MID] += 1
    answer_client(now_s, request, requests, clients, cursor)


@inlined
def _dispatch(
    now_s, ended, params, state, while_busy, requests, costs, queue, levels, clients, servers, batches, cursor
):
    """Do what the rule decides until it decides nothing; return when time alone changes that.

    Also return whether its sizes were right.
    """
    if cursor[HEAD] == cursor[TAIL]:
        return math.inf, True
    idle, server = _idle(servers)
    while cursor[HEAD] < cursor[TAIL] and (idle > 0 or (while_busy and cursor[MID] < cursor[TAIL])):
        waiting = _waiting(requests, queue, levels, cursor, ended)
        action, size, trigger, due_s = ask(now_s, waiting, idle, True, state, params)
        starts, freezes = action == START and idle > 0, action == FREEZE and queue.frozen_size.size > 0
        if not starts and not freezes and action != REFUSE:
            return due_s, True
        if starts and cursor[FROZEN_HEAD] < cursor[FROZEN_TAIL]:  # the oldest frozen batch, as it is
            frozen = cursor[FROZEN_HEAD]
            size, trigger = queue.frozen_size[frozen], queue.frozen_trigger[frozen]
            cursor[FROZEN_HEAD] += 1
        else:  # new requests, which move to the front of the waiting ones
            if size < 1 or size > waiting.length or (action != REFUSE and size >= costs.service_s.size):
                return UNKNOWN, False
            if levels is not None:
                take(size, queue, cursor, levels)
            elif starts:
                bring(size, queue.requests, cursor[MID], state, params)
            if action == REFUSE:
                for _ in range(size):
                    _let_go(now_s, REJECTED, requests, queue, levels, clients, cursor)
                continue
            cursor[MID] += size
        if freezes:
            queue.frozen_size[cursor[FROZEN_TAIL]], queue.frozen_trigger[cursor[FROZEN_TAIL]] = size, trigger
            cursor[FROZEN_TAIL] += 1
            continue
        busy = servers.busy_until_s.size - idle + 1
        _start(
            now_s, size, computed_as(size, state, params), trigger, server, busy,
            requests, costs, queue, levels, clients, servers, batches, cursor,
        )  # fmt: skip
        idle -= 1
        while idle > 0 and servers.busy_until_s[server] < math.inf:  # find the next idle one
            server += 1
    return math.inf, True


@inlined
def _enter(request, limits, requests, queue, levels, cursor):
    """Let a request that comes now into the queue, unless this is at its limit; return whether it enters."""
    requests.batch_index[request] = -1
    cursor[SENT] += 1
    if requests.size.size and requests.size[request] > limits.size:
        enters = False
    elif levels is None:  # Numba leaves out the other branch of an if
        enters = cursor[TAIL] - cursor[HEAD] < limits.queue
    else:
        enters = enter(request, requests, levels)
    if not enters:
        requests.status[request] = REJECTED
        return False
    queue.requests[cursor[TAIL]] = request
    cursor[TAIL] += 1
    return True


@inlined
def _expiry(first, expires_s, limits, requests, queue, levels, cursor):
    """Return the first waiting request, and when the next timeout is over; both as they were, if known."""
    if cursor[MID] == cursor[TAIL]:
        return NOBODY, math.inf
    if levels is not None:
        return NOBODY, expiry_s(requests, levels)
    request = queue.requests[cursor[MID]]
    if request == first:
        return first, expires_s
    return request, later(requests.arrival_s[request], limits.timeout_s)


@inlined
def _leaves(now_s, expires_s, requests, queue, levels, cursor):
    """Return whether a request leaves because its timeout is over: then it is the first of the queue."""
    if now_s < expires_s:
        return False
    return levels is None or overdue(now_s, requests, queue, cursor, levels)


@inlined
def _ended(now_s, horizon, cursor):
    """Return whether the last request of the run has come."""
    return cursor[SENT] == horizon.total and now_s >= horizon.end_s


@inlined
def _wake_s(now_s, horizon, params, state, while_busy, requests, queue, levels, servers, cursor):
    """Return when time alone changes what the rule does."""
    idle, _ = _idle(servers)
    if cursor[HEAD] == cursor[TAIL] or (idle == 0 and not (while_busy and cursor[MID] < cursor[TAIL])):
        return math.inf
    waiting = _waiting(requests, queue, levels, cursor, _ended(now_s, horizon, cursor))
    _, _, _, due_s = ask(now_s, waiting, idle, False, state, params)
    return due_s


def _pass_instants(horizon, limits, params, state, while_busy,
                   requests, costs, queue, levels, clients, servers, batches, cursor):  # fmt: skip
    """Go from instant to instant until `horizon.stop` requests have come; return how it ended.

    `cursor` holds the cursors of `columns`. `state` is the rule's memory; with `while_busy`, the rule is
    called even while every server computes. `levels` is None without levels and delays; then Numba omits the
    code for them. With levels, the requests behind the frozen batches are in the lists of `levels`, and only
    moved to `queue.requests[mid:]` when a batch takes them.
    """
    closed, arrival_s = horizon.closed, requests.arrival_s
    last_s, due_s = servers.clock_s[0], UNKNOWN
    first, expires_s = NOBODY, math.inf
    show(_waiting(requests, queue, levels, cursor, False), state, params)
    work_left = limits.work + cursor[SENT] + cursor[BATCH]
    while cursor[SENT] < horizon.stop:
        if cursor[SENT] + cursor[BATCH] >= work_left:
            return PAUSED
        work_left -= 1
        # The next instant at which something is due.
        now_s = math.inf
        if not closed and cursor[SENT] < horizon.known:
            now_s = arrival_s[cursor[SENT]]
        if cursor[THINKING] > 0:
            now_s = min(now_s, next_send_s(requests, clients, cursor))
        ends_s = soonest(servers.busy_until_s)
        first, expires_s = _expiry(first, expires_s, limits, requests, queue, levels, cursor)
        now_s = min(now_s, ends_s, expires_s)
        if math.isnan(due_s):
            due_s = _wake_s(
                last_s, horizon, params, state, while_busy, requests, queue, levels, servers, cursor
            )
        # At `last_s` the rule was called: a time that had come by then must not stop the clock.
        if last_s < due_s < now_s:
            now_s = min(now_s, not_before(due_s))
        if cursor[SENT] == horizon.total and last_s < horizon.end_s:
            now_s = min(now_s, horizon.end_s)
        servers.clock_s[1] = now_s
        if now_s == math.inf:
            return ENDED
        if now_s >= horizon.until_s:
            return MORE
        if horizon.known < horizon.total and not closed and now_s >= arrival_s[horizon.known - 1]:
            return MORE  # the next window may have another arrival at this very instant
        last_s = servers.clock_s[0] = now_s

        # 1. Requests of an open loop enter.
        while not closed and cursor[SENT] < horizon.known and arrival_s[cursor[SENT]] <= now_s:
            _enter(cursor[SENT], limits, requests, queue, levels, cursor)

        # 2. Batches that end release their servers.
        for server in range(servers.busy_until_s.size if ends_s <= now_s else 0):
            if servers.busy_until_s[server] <= now_s:
                seconds = servers.busy_until_s[server] - servers.since_s[server]
                finished(now_s, servers.size[server], seconds, state, params)
                servers.busy_until_s[server] = math.inf
        # Dispatch. After the first time, 3. requests whose timeout is over leave, unless they are in a frozen
        # batch; 4. clients whose thinking is over send, in order of their numbers; a dispatch follows each.
        place, senders = -1, 0
        while place < senders:
            if place >= 0:
                request, client = cursor[SENT], clients.sending[place]
                arrival_s[request], requests.client[request] = now_s, client
                if not _enter(request, limits, requests, queue, levels, cursor):
                    answer_client(now_s, request, requests, clients, cursor)
            due_s, right = _dispatch(
                now_s, _ended(now_s, horizon, cursor), params, state, while_busy,
                requests, costs, queue, levels, clients, servers, batches, cursor,
            )  # fmt: skip
            if not right:
                return WRONG
            if place < 0:
                first, expires_s = _expiry(first, expires_s, limits, requests, queue, levels, cursor)
                while _leaves(now_s, expires_s, requests, queue, levels, cursor):
                    _let_go(now_s, TIMED_OUT, requests, queue, levels, clients, cursor)
                    first, expires_s = _expiry(first, expires_s, limits, requests, queue, levels, cursor)
                    due_s = UNKNOWN
                senders = pop_senders(now_s, horizon.total, requests, clients, cursor)
            place += 1
        if closed and cursor[SENT] == horizon.total:
            cursor[THINKING] = 0  # the clients stop
    return MORE


pass_instants = compiled(_pass_instants)
