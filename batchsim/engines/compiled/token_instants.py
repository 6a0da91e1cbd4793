"""The compiled engine of token generation, from instant to instant, each in the reference's four steps."""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim.engines.compiled.columns import HEAD, SENT, STACK, STEP, TAIL, THINKING, WORK
from batchsim.engines.compiled.instants import ENDED, MORE, PAUSED, REJECTED, TIMED_OUT, _pop, _push
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.threshold import later, soonest
from batchsim.engines.compiled.token_steps import finish, start
from batchsim.engines.compiled.uniform_steps import go_on_alike


@inlined
def _look(now_s, total, batching, cost, requests, queue, servers, steps, sums, at):
    """Let the lowest-numbered engine that has no step and finds something to do start one, until none does.

    From the lowest again after each: a victim of preemption may run on an engine that found nothing before.
    """
    server = 0
    while server < servers.busy_until_s.size:
        if servers.busy_until_s[server] == math.inf:
            ended = at[SENT] == total
            if start(now_s, ended, server, batching, cost, requests, queue, servers, steps, sums, at):
                server = -1 if servers.busy_until_s.size > 1 else 0
        server += 1


@inlined
def _enter(request, limit, requests, queue, at):
    """Let the request that comes now into the line, unless that is at its limit."""
    at[SENT] += 1
    if at[STACK] + at[TAIL] - at[HEAD] >= limit:
        requests.status[request] = REJECTED
        return False
    queue.requests[at[TAIL]] = request
    at[TAIL] += 1
    return True


@compiled
def pass_steps(limits, batching, cost, requests, queue, clients, servers, steps, sums, done, at):
    """Go from instant to instant until all is over; pause where work, steps' columns or requests run out."""
    arrival_s, closed, total = requests.arrival_s, requests.client.size > 0, limits.total
    last_s, count = servers.clock_s[0], servers.busy_until_s.size
    # At one instant each client sends once at most.
    most = total if total <= arrival_s.size else arrival_s.size - clients.client.size
    work_left = limits.work + at[WORK]
    while True:
        # At one instant each engine starts one step at most.
        if at[STEP] - steps.first + count > steps.start_s.size or at[WORK] >= work_left:
            return PAUSED
        if closed and at[SENT] > most:
            return MORE
        work_left -= 1
        # The next instant at which something is due.
        now_s = math.inf
        if not closed and at[SENT] < total:
            now_s = arrival_s[at[SENT]]
        if at[THINKING] > 0:
            now_s = min(now_s, clients.due_s[0])
        if at[HEAD] < at[TAIL]:
            oldest_s = arrival_s[queue.requests[at[HEAD]]]
            now_s = min(now_s, later(oldest_s, limits.timeout_s))
            # Engines without a step have looked at what was due before: it must not hold the clock.
            due_s = later(oldest_s, batching.wait_s)
            if batching.whole and due_s > last_s:
                for server in range(count):
                    if servers.busy_until_s[server] == math.inf:
                        now_s = min(now_s, due_s)
                        break
        if not batching.whole:
            until_s = min(now_s, limits.until_s)
            go_on_alike(until_s, limits, batching, cost, requests, queue, servers, steps, sums, at)
        now_s = min(now_s, soonest(servers.busy_until_s))
        if now_s == math.inf:
            return ENDED
        if now_s >= limits.until_s:
            return MORE
        last_s = servers.clock_s[0] = now_s

        # 1. Requests of an open loop enter.
        while not closed and at[SENT] < total and arrival_s[at[SENT]] <= now_s:
            _enter(at[SENT], limits.queue, requests, queue, at)

        # 2. Steps that end hand out their tokens; then every engine without a step looks.
        for server in range(count):
            if servers.busy_until_s[server] <= now_s:
                leaving = finish(server, batching, requests, servers, done)
                for place in range(leaving if closed else 0):
                    request = done[place]
                    _push(clients, at, later(now_s, requests.think_s[request]), requests.client[request])
        # A loop, so that one place alone calls `_look`, which is most of the code: `turn` 0 is this look, the
        # others follow the sends of step 4.
        turn, sending = 0, 0
        while turn <= sending:
            if turn > 0:
                request, client = at[SENT], clients.sending[turn - 1]
                if request == total:
                    break
                arrival_s[request], requests.client[request] = now_s, client
                if not _enter(request, limits.queue, requests, queue, at):
                    _push(clients, at, later(now_s, requests.think_s[request]), client)
            _look(now_s, total, batching, cost, requests, queue, servers, steps, sums, at)
            if turn == 0:
                # 3. Requests that have waited too long leave, unless they had started.
                while at[HEAD] < at[TAIL]:
                    request = queue.requests[at[HEAD]]
                    if now_s < later(arrival_s[request], limits.timeout_s):
                        break
                    requests.status[request] = TIMED_OUT
                    at[HEAD] += 1
                    if closed:
                        _push(clients, at, later(now_s, requests.think_s[request]), requests.client[request])
                # 4. Clients whose thinking is over send, in their order, each followed by a look.
                while at[THINKING] > 0 and clients.due_s[0] <= now_s:
                    clients.sending[sending] = clients.client[0]
                    _pop(clients, at)
                    sending += 1
            turn += 1
        if closed and at[SENT] == total:
            at[THINKING] = 0  # the clients stop
