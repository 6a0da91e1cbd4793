"""Routing by loads in front of any rule: the general loop follows each replica from instant to instant.

Each replica has a row of every array; `room` is how many requests a row holds, and grows as needed.
"""

# mypy: disable-error-code="no-untyped-def"

import threading
from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.compiled import columns, instants
from batchsim.engines.compiled.columns import NONE, Batches, Cold, Costs, Devices, Horizon, Requests
from batchsim.engines.compiled.engine import SLICE, Instants, places_of
from batchsim.engines.compiled.jit import compiled, compiled_uncached, inlined
from batchsim.engines.compiled.routed import LEAST_ROOM, _noise, route
from batchsim.engines.compiled.threshold import later
from batchsim.engines.draws import Plan
from batchsim.engines.log import check_cancelled
from batchsim.scenario.routing import Loads

NEVER = 2**62  # more instants and requests than there are
GROW = -2  # the loop returns: a replica needs a longer row
pass_instants = inlined(instants._pass_instants)


class Rows(NamedTuple):
    """The arguments of the general loop, with a row for each replica."""

    memory: Any
    requests: Requests
    costs: Costs
    queue: columns.Queue
    levels: Any  # `columns.Levels`, or None
    servers: columns.Servers
    batches: Batches
    cursor: Any
    routed: Any  # requests
    noted: Any  # batches whose size is in `computing`
    computing: Any  # by server: the requests of its last batch


@inlined
def _levels_of(levels, k):
    if levels is None:
        return None
    return columns.Levels(
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
        requests.level[k],
    )  # fmt: skip
    devices = Devices(costs.devices.free_s[k], costs.devices.host_s, costs.devices.contention)
    cold = Cold(costs.cold.compile_s, costs.cold.shape, costs.cold.ready_s[k])
    busy = columns.Servers(
        servers.busy_until_s[k], servers.since_s[k], servers.size[k], servers.clock_s[k]
    )
    formed = Batches(
        batches.start_s[k], batches.finish_s[k], batches.size[k], batches.server[k], batches.trigger[k]
    )
    ended = pass_instants(
        Horizon(routed, routed, routed + 1, False, np.inf, until_s), limits, params, rows.memory[k], while_busy,
        of_one, Costs(costs.service_s, costs.noise[k], costs.slowdown, devices, cold),
        columns.Queue(queue.requests[k], queue.frozen_size[k], queue.frozen_trigger[k]),
        _levels_of(rows.levels, k), clients, busy, formed, cursor,
    )  # fmt: skip
    for batch in range(rows.noted[k], cursor[columns.BATCH]):
        rows.computing[k, formed.server[batch]] = formed.size[batch]
    rows.noted[k] = cursor[columns.BATCH]
    loads.waiting[k] = loads.inside[k] = cursor[columns.TAIL] - cursor[columns.HEAD]
    for server in range(busy.busy_until_s.size):
        if busy.busy_until_s[server] < np.inf:
            loads.inside[k] += rows.computing[k, server]
    return ended


def _follow(begin, end, arrival_s, level, stale_s, limits, params, while_busy, rows, clients, loads, chances,
            routing, replica):  # fmt: skip
    """Route requests while the replicas are followed; return the first that was not, and how it ended."""
    for request in range(begin, end):
        now_s = arrival_s[request]
        if request == 0 or now_s > arrival_s[request - 1] or begin == request:
            until_s = later(now_s, -stale_s)
            for k in range(loads.inside.size):
                if _advance(k, until_s, limits, params, while_busy, rows, clients, loads) == instants.WRONG:
                    return request, instants.WRONG
                if stale_s == 0:
                    # Requests that were sent to it at this instant count, too.
                    place = rows.routed[k] - 1
                    while place >= 0 and rows.requests.arrival_s[k, place] == now_s:
                        loads.inside[k] += 1
                        loads.waiting[k] += 1
                        place -= 1
        k = route(request, loads, chances[request], routing)
        place = rows.routed[k]
        if place == rows.requests.arrival_s.shape[1]:
            return request, GROW
        replica[request] = k
        rows.requests.arrival_s[k, place] = now_s
        if level.size:
            rows.requests.level[k, place] = level[request]
        rows.routed[k] += 1
        if stale_s == 0:
            loads.inside[k] += 1
            loads.waiting[k] += 1
    return end, instants.MORE


follow, follow_uncached = compiled(_follow), compiled_uncached(_follow)


def _stacked(part: Any, count: int) -> Any:
    """Return an array, or a named tuple of them, with a row for each replica; None stays None."""
    if isinstance(part, tuple):
        return type(part)(*(_stacked(column, count) for column in part))  # type: ignore[call-arg]
    return np.stack([part] * count) if isinstance(part, np.ndarray) else part


def _copy(old: Any, new: Any) -> None:
    """Copy rows into longer ones."""
    if isinstance(old, tuple):
        for pair in zip(old, new, strict=True):
            _copy(*pair)
    elif isinstance(old, np.ndarray):
        new[tuple(map(slice, old.shape))] = old


def _rows(plan: Plan, room: int, one: Instants) -> Rows:
    """Return idle replicas; their noise is drawn already."""
    count, servers = plan.scenario.replicas, plan.scenario.servers
    of_request = np.zeros(room), NONE, np.empty(0, np.int64), np.zeros(room, np.int64), np.zeros(room, np.uint8)
    levels, level = columns.Levels.of(plan.scenario, room), np.zeros(room if one.levels else 0, np.uint8)
    requests = _stacked(Requests(*of_request, level), count)
    costs = Costs.of(plan.service_s, NONE, plan.slowdown, Devices.of(plan.scenario), Cold.of(plan.cold_start))
    devices, cold = costs.devices, costs.cold
    costs = costs._replace(
        noise=_noise(plan, room) if plan.noise_of else np.empty((count, 0)),
        devices=devices._replace(free_s=_stacked(devices.free_s, count)),
        cold=cold._replace(ready_s=_stacked(cold.ready_s, count)),
    )
    return Rows(
        _stacked(one.memory, count), requests._replace(think_s=NONE, client=np.empty(0, np.int64)), costs,
        _stacked(columns.Queue.allocate(room, plan.scenario.rule.freezes), count), _stacked(levels, count),
        _stacked(one.servers, count), _stacked(Batches.allocate(room), count), _stacked(one.cursor, count),
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros((count, servers), np.int64),
    )  # fmt: skip


def follow_instants(
    plan: Plan, loads: Loads, params: Any, replica: np.ndarray, cancelled: threading.Event | None = None
) -> np.ndarray:
    """Write the replica of each request, and return them."""
    scenario, requests, count = plan.scenario, plan.requests, plan.scenario.replicas
    room, begin, step = min(requests, 2 * requests // count + LEAST_ROOM), 0, max(SLICE // 4 // count, 1)
    one, rule = Instants(scenario, 0), scenario.rule
    limits, level = one.limits._replace(work=NEVER), places_of(scenario, plan.priority, requests)
    rows, arrival_s = _rows(plan, room, one), np.require(plan.arrival_s, requirements="W")
    own = all(type(part).__module__.startswith("batchsim.") for part in (rule, scenario.router))
    while begin < requests:
        check_cancelled(cancelled)
        begin, ended = (follow if own else follow_uncached)(
            begin, min(begin + step, requests), arrival_s, level, scenario.stale_ms / 1000, limits, one.params,
            rule.asked_while_busy, rows, one.clients, loads, plan.chances, params, replica,
        )  # fmt: skip
        if ended == instants.WRONG:
            raise ValueError(f"decide must start or freeze 1 to as many requests as wait, got {rule!r}")
        if ended == GROW:
            room, old = min(2 * room, requests), rows
            rows = _rows(plan, room, one)
            kept = rows.costs.noise
            _copy(old, rows)
            rows.costs.noise[:] = kept
    return replica
