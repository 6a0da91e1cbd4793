"""The compiled engine of token generation behind a router.

As in `routed`, it first finds where each request goes, then runs each replica by the loops of a single queue,
and merges their logs. A routing that sees loads needs the replicas' queues before, so the loop of
`token_instants` follows each replica from arrival to arrival, without a log.
"""

# mypy: disable-error-code="no-untyped-def"

import math
import threading
from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.compiled import columns, engine, routed, token_engine
from batchsim.engines.compiled.columns import (
    HEAD,
    STACK,
    STEP,
    TAIL,
    Clients,
    Steps,
    TokenLimits,
    TokenQueue,
    TokenRequests,
    TokenServers,
)
from batchsim.engines.compiled.instants import ENDED, MORE
from batchsim.engines.compiled.jit import compiled, compiled_uncached, inlined
from batchsim.engines.compiled.routed_instants import GROW
from batchsim.engines.compiled.routing_calls import route
from batchsim.engines.compiled.threshold import later
from batchsim.engines.compiled.token_instants import pass_steps
from batchsim.engines.compiled.token_memory import TokenMemory
from batchsim.engines.folded_log import folded
from batchsim.engines.log import check_cancelled
from batchsim.engines.replicas import loads_of, merged, rows_of, token_plan_of
from batchsim.engines.token_log import Batching, TokenLog, TokenPlan

NOISE = -3  # the loop returns: a replica needs the noise of further steps
STEPS_AT_ONCE = 1 << 10
NEVER = 2**62  # more instants and requests than there are


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
    for server in range(servers.count.size):
        for place in range(servers.count[server]):
            request = servers.running[server, place]
            generated = requests.generated[request]
            if whole:
                generated = min(servers.generated[server], requests.output[request])
            elif place < servers.ready[server]:  # of the decode group
                generated += servers.tick[server]
            tokens += requests.prompt[request] + generated
    return tokens


@inlined
def _advance(k, until_s, limits, batching, cost, steps, noise, needs_tokens, rows, loads):
    """Bring a replica's loads to what they are just before `until_s`; return whether noise is missing."""
    all_, held, kept = rows.requests, rows.servers, rows.servers.memory
    # A loop without counted references cannot return views, so no function makes these.
    requests = TokenRequests(
        all_.arrival_s[k], all_.think_s[k], all_.client[k], all_.status[k], all_.prompt[k],
        all_.output[k], all_.limit[k], all_.cached[k], all_.generated[k], all_.capacity[k],
        all_.truncated[k], all_.first_step[k], all_.token_step[k], all_.last_step[k],
        all_.preemptions[k], all_.log_entry[k], all_.back_s[k], all_.preempted_before_first_s[k],
        all_.preempted_after_first_s[k], all_.token_s[k], all_.stall_s[k], all_.segment[k],
        all_.path[k], all_.shared[k],
    )  # fmt: skip
    memory = TokenMemory(
        kept.owner[k], kept.blocks[k], kept.before[k], kept.after[k], kept.spare[k], kept.own[k],
        kept.shared[k], kept.uses[k], kept.first[k], kept.pieces[k], kept.per_piece,
    )  # fmt: skip
    servers = TokenServers(
        held.busy_until_s[k], held.step[k], held.running[k], held.count[k], held.free[k],
        held.generated[k], held.longest[k], held.last[k], held.ready[k], held.tick[k],
        held.next_end[k], held.phase[k], held.block_demand_by_phase[k], held.reads[k],
        held.served[k], held.clock_s[k], held.ended_s[k], held.tick_s[k], held.aged[k],
        held.peaks_s[k], held.segments[k], memory,
    )  # fmt: skip
    queue = TokenQueue(rows.queue.arrived[k], rows.queue.preempted[k], rows.queue.log[k])
    clients = Clients(rows.clients.due_s[k], rows.clients.client[k], rows.clients.sending[k])
    cursor = rows.cursor[k]
    total = requests.arrival_s.size  # never reached: none is the last request
    at = TokenLimits(limits.queue, limits.timeout_s, limits.work, total, until_s, False, limits.end_s)
    drawn = noise[k]
    while True:
        first = 0 if drawn.size else cursor[STEP]
        into = Steps(
            first, drawn, steps.start_s, steps.finish_s, steps.rows, steps.server, steps.trigger,
            steps.tokens, steps.reads, steps.pairs, steps.running, steps.waiting, steps.blocks,
            steps.preempted, steps.gaps, steps.late,
        )  # fmt: skip
        before = cursor[STEP]
        ended = pass_steps(
            at, batching, cost, requests, queue, clients, servers, into, rows.sums[k], rows.done[k], cursor,
        )  # fmt: skip
        if ended in (MORE, ENDED):
            break
        if drawn.size and cursor[STEP] == before:
            return True
    waiting = cursor[STACK] + cursor[TAIL] - cursor[HEAD]
    loads.waiting[k] = loads.inside[k] = waiting
    for running in servers.count:
        loads.inside[k] += running
    if needs_tokens:
        loads.tokens[k] = tokens_inside(batching.whole, requests, queue, servers, cursor)
    return False


def _follow(begin, end, drawn, stale_s, limits, batching, cost, steps, noise, needs_tokens, rows, sent,
            loads, chances, routing, replica):  # fmt: skip
    """Route requests while the replicas are followed; return the first that was not, and how it ended."""
    arrival_s, requests = drawn.arrival_s, rows.requests
    for request in range(begin, end):
        now_s = arrival_s[request]
        if request == begin or now_s > arrival_s[request - 1]:
            until_s = later(now_s, -stale_s)
            for k in range(loads.inside.size):
                if _advance(k, until_s, limits, batching, cost, steps, noise, needs_tokens, rows, loads):
                    return request, NOISE
                if stale_s == 0:
                    # Requests that were sent to it at this instant count, too.
                    place = sent[k] - 1
                    while place >= 0 and requests.arrival_s[k, place] == now_s:
                        _count(k, requests.prompt[k, place], loads)
                        place -= 1
        k = route(request, loads, chances[request], routing)
        place = sent[k]
        if place + 1 == requests.arrival_s.shape[1]:
            return request, GROW
        replica[request] = k
        requests.arrival_s[k, place] = now_s
        requests.prompt[k, place], requests.output[k, place] = drawn.prompt[request], drawn.output[request]
        requests.limit[k, place], requests.path[k, place] = drawn.limit[request], drawn.path[request]
        requests.shared[k, place] = drawn.shared[request]
        sent[k] += 1
        if stale_s == 0:
            _count(k, drawn.prompt[request], loads)
    return end, MORE


follow, follow_uncached = compiled(_follow), compiled_uncached(_follow)


def _rows(plan: TokenPlan, room: int) -> Rows:
    """Return idle replicas, each with room for so many requests."""
    scenario, zeros = plan.scenario, np.zeros(room, np.int64)
    loop = token_engine.Loop(scenario.one, plan.base.requests, None)
    one = Rows(
        TokenRequests.before(np.full(room, math.inf), None, *[zeros] * 5),
        TokenQueue(*np.empty((2, room), np.int64)), loop.servers, loop.clients, loop.sums, loop.done,
        loop.cursor,
    )  # fmt: skip
    rows: Rows = routed.stacked(one, scenario.most_replicas)
    return rows


def _noise(plan: TokenPlan, count: int) -> np.ndarray:
    """Return the factors of the first steps of each replica, a row each; empty rows without noise."""
    draws = [plan.noise(k) for k in range(plan.scenario.most_replicas)]
    return np.stack([columns.NONE if draw is None else draw(count) for draw in draws])


def follow_steps(
    plan: TokenPlan, replica: np.ndarray, cancelled: threading.Event | None = None
) -> np.ndarray:  # fmt: skip
    """Write the replica of each request, and return them."""
    base, scenario, loop = plan.base, plan.scenario, follow
    if not routed.is_ours(scenario.router):
        loop = follow_uncached
    every = TokenRequests.of(plan)
    drawn = Drawn(*(getattr(every, name) for name in Drawn._fields))
    one, batching = token_engine.Loop(scenario.one, base.requests, None), Batching.of(scenario)
    limits = TokenLimits(one.queue_limit, one.timeout_s, NEVER, 0, 0.0, False, -math.inf)
    # The loop pauses unless there is a row for each engine.
    ahead = max(STEPS_AT_ONCE, 2 * scenario.servers)
    room, begin = min(routed.first_room(base), base.requests) + 1, 0
    rows, noise, loads = _rows(plan, room), _noise(plan, ahead), loads_of(scenario)
    at_once, routed_to = one.servers.running.size, np.zeros(scenario.most_replicas, np.int64)
    steps = Steps.allocate(ahead, 0, columns.NONE, at_once)
    slice_ = max(engine.SLICE // 64 // scenario.most_replicas, 1)
    while begin < base.requests:
        check_cancelled(cancelled)
        begin, ended = loop(
            begin, min(begin + slice_, base.requests), drawn, scenario.stale_ms / 1000, limits, batching,
            one.cost, steps, noise, scenario.router.needs_tokens, rows, routed_to, loads, base.chances,
            scenario.router.compiled_params, replica,
        )  # fmt: skip
        if ended == GROW:
            room = min(2 * room, base.requests + 1)
            longer = _rows(plan, room)
            for name in ("requests", "queue", "clients", "sums", "done", "cursor"):
                routed.copy_rows(getattr(rows, name), getattr(longer, name))
            rows = longer._replace(servers=rows.servers)
        elif ended == NOISE:
            ahead *= 2
            noise, steps = _noise(plan, ahead), Steps.allocate(ahead, 0, columns.NONE, at_once)
    return replica


def parts_of(plan: TokenPlan, cancelled: threading.Event | None = None) -> list[tuple[np.ndarray, TokenPlan]]:
    """Return of each replica its requests, and its own plan."""
    base, count = plan.base, plan.scenario.most_replicas
    replica = np.empty(base.requests, np.uint16)
    if plan.scenario.router.sees_loads:
        follow_steps(plan, replica, cancelled)
    else:
        routed.route_blind(base, replica, cancelled)
    return [(rows, token_plan_of(plan, k, rows)) for k, rows in rows_of(replica, count)]


def run(
    plan: TokenPlan, cancelled: threading.Event | None = None, room: float = math.inf
) -> TokenLog:  # fmt: skip
    """Run a plan and return its log, bit for bit that of the reference engine.

    With more than `room` steps it is a `FoldedLog`.
    """
    if plan.scenario.most_replicas == 1:
        return token_engine.run(plan, cancelled, room)
    parts, replica = parts_of(plan, cancelled), np.empty(plan.base.requests, np.uint16)
    for k, (rows, _) in enumerate(parts):
        replica[rows] = k
    log: TokenLog = merged(plan.scenario, replica, [token_engine.run(each, cancelled) for _, each in parts])
    return log if log.steps <= room else folded(log)
