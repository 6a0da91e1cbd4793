"""Routing by loads in front of any rule: the general loop follows each replica from instant to instant.

Each replica has a row of every array, as far as the router has used one: those behind have had no request.
`room` is how many requests a row holds. Both numbers grow as needed.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.compiled.columns import (
    BATCH,
    HEAD,
    TAIL,
    Batches,
    Cold,
    Costs,
    Devices,
    Horizon,
    Levels,
    Queue,
    Requests,
    Servers,
)
from batchsim.engines.compiled.instants import MORE, WRONG, pass_instants
from batchsim.engines.compiled.jit import compiled, compiled_uncached, inlined
from batchsim.engines.compiled.rule_calls import route
from batchsim.engines.compiled.threshold import later

GROW = -2  # the loop returns: a replica needs a row, or a longer one


class Rows(NamedTuple):
    """The arguments of the general loop, with a row for each replica."""

    memory: Any
    requests: Requests
    costs: Costs
    queue: Queue
    levels: Any  # `Levels`, or None
    servers: Servers
    batches: Batches
    cursor: Any
    routed: Any  # requests
    noted: Any  # batches whose size is in `computing`
    computing: Any  # by server: the requests of its last batch


@inlined
def _levels_of(levels, k):
    if levels is None:
        return None
    return Levels(
        levels.first[k], levels.last[k], levels.after[k], levels.late[k], levels.here[k], levels.waiting[k],
        levels.queue[k], levels.timeout_s[k], levels.delays[k],
    )  # fmt: skip


@inlined
def _advance(k, until_s, limits, params, while_busy, rows, clients, loads):
    """Bring the loads of a replica to what they are just before `until_s`; return how the loop ended."""
    requests, costs, queue, batches = rows.requests, rows.costs, rows.queue, rows.batches
    servers, cursor, routed = rows.servers, rows.cursor[k], rows.routed[k]
    of_one = Requests(
        requests.arrival_s[k], requests.think_s, requests.client, requests.batch_index[k], requests.status[k],
        requests.level[k], requests.size[k],
    )  # fmt: skip
    devices = Devices(costs.devices.free_s[k], costs.devices.host_s, costs.devices.contention)
    cold = Cold(costs.cold.compile_s, costs.cold.shape, costs.cold.ready_s[k])
    busy = Servers(servers.busy_until_s[k], servers.since_s[k], servers.size[k], servers.clock_s[k])
    formed = Batches(
        batches.start_s[k], batches.finish_s[k], batches.size[k], batches.server[k], batches.trigger[k]
    )
    ended = pass_instants(
        Horizon(routed, routed, routed + 1, False, np.inf, until_s), limits, params, rows.memory[k],
        while_busy, of_one,
        Costs(costs.service_s, costs.noise[k], costs.slowdown, devices, cold, costs.units),
        Queue(queue.requests[k], queue.frozen_size[k], queue.frozen_trigger[k]),
        _levels_of(rows.levels, k), clients, busy, formed, cursor,
    )  # fmt: skip
    for batch in range(rows.noted[k], cursor[BATCH]):
        rows.computing[k, formed.server[batch]] = formed.size[batch]
    rows.noted[k] = cursor[BATCH]
    loads.waiting[k] = loads.inside[k] = cursor[TAIL] - cursor[HEAD]
    for server in range(busy.busy_until_s.size):
        if busy.busy_until_s[server] < np.inf:
            loads.inside[k] += rows.computing[k, server]
    return ended


def _follow(begin, end, at_s, arrival_s, level, size, stale_s, limits, params, while_busy, rows, clients,
            loads, seen, chances, routing, replica):  # fmt: skip
    """Route requests while the replicas are followed; return the first that was not, and how it ended.

    The router sees the loads in `seen`, those of the replicas that are up. Unless `at_s` is inf, all replicas
    are followed to just before it at the end.
    """
    for request in range(begin, end + (at_s < np.inf)):
        now_s = arrival_s[request] if request < end else at_s
        if request == 0 or request == end or now_s > arrival_s[request - 1] or begin == request:
            until_s = later(now_s, -stale_s)
            for k in range(rows.routed.size):
                if rows.servers.clock_s[k, 1] >= until_s:  # nothing is due, and its loads are as they were
                    continue
                if _advance(k, until_s, limits, params, while_busy, rows, clients, loads) == WRONG:
                    return request, WRONG
                if stale_s == 0:
                    # Requests that were sent to it at this instant count, too.
                    place = rows.routed[k] - 1
                    while place >= 0 and rows.requests.arrival_s[k, place] == now_s:
                        loads.inside[k] += 1
                        loads.waiting[k] += 1
                        place -= 1
        if request == end:
            break
        k = route(request, seen, chances[request], routing)
        replica[request] = k
        count, room = rows.requests.arrival_s.shape
        if k >= count or rows.routed[k] == room:
            return request, GROW
        place = rows.routed[k]
        rows.requests.arrival_s[k, place] = now_s
        rows.servers.clock_s[k, 1] = min(rows.servers.clock_s[k, 1], now_s)
        if level.size:
            rows.requests.level[k, place] = level[request]
        rows.requests.size[k, place] = size[request]
        rows.routed[k] += 1
        if stale_s == 0:
            loads.inside[k] += 1
            loads.waiting[k] += 1
    return end, MORE


follow, follow_uncached = compiled(_follow), compiled_uncached(_follow)
