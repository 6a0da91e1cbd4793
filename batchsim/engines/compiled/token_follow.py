"""The loop that follows replicas of token generation, for a routing that sees their loads."""

# mypy: disable-error-code="no-untyped-def"

from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.compiled.columns import HEAD, TAIL, Clients
from batchsim.engines.compiled.instants import ENDED, MORE
from batchsim.engines.compiled.jit import compiled, compiled_uncached, inlined
from batchsim.engines.compiled.routed_instants import GROW
from batchsim.engines.compiled.rule_calls import route
from batchsim.engines.compiled.threshold import later
from batchsim.engines.compiled.token_columns import (
    STACK,
    STEP,
    Steps,
    TokenLimits,
    TokenQueue,
    TokenRequests,
    TokenServers,
)
from batchsim.engines.compiled.token_instants import pass_steps
from batchsim.engines.compiled.token_memory import TokenMemory

MORE_STEPS = -3  # the loop returns: a replica needs room, or noise, for further steps; GROW: as of requests


class Rows(NamedTuple):
    """The arguments of `pass_steps`, with a row for each replica."""

    requests: TokenRequests  # as they are sent; the row behind the last one comes at inf
    queue: TokenQueue
    servers: TokenServers
    clients: Clients
    sums: Any
    done: Any
    cursor: Any


class Drawn(NamedTuple):
    """What is drawn for each request, in the order of arrival."""

    arrival_s: Any
    prompt: Any
    output: Any
    limit: Any
    path: Any
    shared: Any


@inlined
def _count(k, prompt, loads):
    """Count a request that the router has just sent."""
    loads.inside[k] += 1
    loads.waiting[k] += 1
    loads.tokens[k] += prompt


@inlined
def tokens_inside(whole, requests, queue, servers, cursor):
    """Return the tokens of the requests of a replica: their prompts, and what they have generated."""
    tokens = 0
    for place in range(cursor[STACK]):
        request = queue.preempted[place]
        tokens += requests.prompt[request] + requests.generated[request]
    for place in range(cursor[HEAD], cursor[TAIL]):
        tokens += requests.prompt[queue.arrived[place]]
    for server in range(servers.engines.size):
        engine = servers.engines[server]
        for place in range(engine.count):
            request = servers.running[server, place]
            generated = requests.generated[request]
            if whole:
                generated = min(engine.generated, requests.output[request])
            elif place < engine.ready:  # of the decode group
                generated += engine.tick
            tokens += requests.prompt[request] + generated
    return tokens


@inlined
def _advance(k, until_s, limits, batching, cost, steps, noise, needs_tokens, rows, loads):
    """Bring a replica's loads to what they are just before `until_s`; return whether steps lack room."""
    all_, held, kept = rows.requests, rows.servers, rows.servers.memory
    # A loop without counted references cannot return views, so no function makes these.
    requests = TokenRequests(
        all_.arrival_s[k], all_.think_s[k], all_.client[k], all_.prompt[k], all_.output[k],
        all_.generated[k], all_.rows[k],
    )  # fmt: skip
    memory = TokenMemory(
        kept.runs[k], kept.spare[k], kept.own[k], kept.contents[k], kept.first[k], kept.pieces[k],
        kept.per_piece,
    )  # fmt: skip
    servers = TokenServers(
        held.engines[k], held.running[k], held.block_demand_by_phase[k], held.peaks_s[k], held.clock_s[k],
        held.idle[k], memory,
    )  # fmt: skip
    queue = TokenQueue(rows.queue.arrived[k], rows.queue.preempted[k], rows.queue.log[k])
    clients = Clients(rows.clients.due_s[k], rows.clients.client[k], rows.clients.sending[k])
    cursor = rows.cursor[k]
    total = requests.arrival_s.size  # never reached: none is the last request
    at = TokenLimits(limits.queue, limits.timeout_s, limits.work, total, until_s, limits.logged, limits.end_s)
    drawn = noise[k]
    kept = drawn.size > 0 or limits.logged
    own = k if limits.logged else 0
    while True:
        first = 0 if kept else cursor[STEP]
        into = Steps(first, drawn, steps.start_s[own], steps.finish_s[own], steps.numbers, steps.late)
        before = cursor[STEP]
        ended = pass_steps(
            at, batching, cost, requests, queue, clients, servers, into, rows.sums[k], rows.done[k], cursor,
        )  # fmt: skip
        if ended in (MORE, ENDED):
            break
        if kept and cursor[STEP] == before:
            return True
    waiting = cursor[STACK] + cursor[TAIL] - cursor[HEAD]
    loads.waiting[k] = loads.inside[k] = waiting
    for server in range(servers.engines.size):
        loads.inside[k] += servers.engines[server].count
    if needs_tokens:
        loads.tokens[k] = tokens_inside(batching.whole, requests, queue, servers, cursor)
    return False


def _follow(begin, end, at_s, drawn, stale_s, limits, batching, cost, steps, noise, needs_tokens, rows, sent,
            loads, seen, chances, routing, replica):  # fmt: skip
    """Route requests while the replicas are followed; return the first that was not, and how it ended.

    The router sees the loads in `seen`, those of the replicas that are up. Unless `at_s` is inf, all replicas
    are followed to just before it at the end. With `limits.logged`, each keeps the times of all its steps.
    """
    arrival_s, requests = drawn.arrival_s, rows.requests
    for request in range(begin, end + (at_s < np.inf)):
        now_s = arrival_s[request] if request < end else at_s
        if request in (begin, end) or now_s > arrival_s[request - 1]:
            until_s = later(now_s, -stale_s)
            for k in range(sent.size):
                if _advance(k, until_s, limits, batching, cost, steps, noise, needs_tokens, rows, loads):
                    return request, MORE_STEPS
                if stale_s == 0:
                    # Requests that were sent to it at this instant count, too.
                    place = sent[k] - 1
                    while place >= 0 and requests.arrival_s[k, place] == now_s:
                        _count(k, requests.prompt[k, place], loads)
                        place -= 1
        if request == end:
            break
        k = route(request, seen, chances[request], routing)
        replica[request] = k
        count, room = requests.arrival_s.shape  # `sent.size`, the bound above, made all five times as slow
        if k >= count or sent[k] + 1 == room:
            return request, GROW
        place = sent[k]
        requests.arrival_s[k, place] = now_s
        requests.prompt[k, place], requests.output[k, place] = drawn.prompt[request], drawn.output[request]
        row = requests.rows[k, place]
        row.limit, row.path, row.shared = drawn.limit[request], drawn.path[request], drawn.shared[request]
        sent[k] += 1
        if stale_s == 0:
            _count(k, drawn.prompt[request], loads)
    return end, MORE


follow, follow_uncached = compiled(_follow), compiled_uncached(_follow)
