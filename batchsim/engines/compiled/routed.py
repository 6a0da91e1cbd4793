"""Replicas in the compiled engine: first where each request goes, then each replica as a run of its own.

Once it is known where requests go, replicas of an open loop are independent, so the loops of a single queue
run each, and their logs are merged. A routing that sees loads needs the replicas' queues beforehand. They are
simulated once more, as far as loads need them: for rules of the fast loop by `_follow`, for all others by
the general loop (`routed_instants`).
"""

# mypy: disable-error-code="no-untyped-def"

import math
import threading
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload, register_jitable

from batchsim.engines.compiled import engine
from batchsim.engines.compiled.columns import NONE, Cold, Costs, Devices
from batchsim.engines.compiled.jit import UNCOUNTED, compiled, inlined
from batchsim.engines.compiled.threshold import finish_of, later, soonest
from batchsim.engines.draws import Plan
from batchsim.engines.log import Log, check_cancelled
from batchsim.engines.replicas import merged, plan_of, rows_of
from batchsim.scenario.routing import Loads, Routing
from batchsim.scenario.rules.rule import HELPERS

NOBODY = -1
LEAST_ROOM = 64


def route(request: Any, loads: Any, chances: Any, params: Any) -> Any:
    """Return the replica of a request by the routing of `params`."""
    return Routing.function_of(type(params))(request, loads, chances, params)


@overload(route, jit_options=UNCOUNTED, strict=False)
def _route(request, loads, chances, params):
    while HELPERS:
        register_jitable(HELPERS.pop())
    return Routing.function_of(params.instance_class)


@compiled
def route_blindly(begin, end, chances, loads, params, replica):
    """Route requests without a look at the replicas."""
    for request in range(begin, end):
        replica[request] = route(request, loads, chances[request], params)


class Line(NamedTuple):
    """The replicas of the fast loop, a row each; requests are numbered as in the whole run."""

    first: Any  # the oldest waiting request, NOBODY: none waits
    last: Any
    unseen: Any  # the first request that the router does not see yet; NOBODY: none
    after: Any  # by request: the next one of its replica
    ready_s: Any  # when the next batch is ready, as far as arrivals are seen
    due_s: Any  # when something changes next; inf: only by an arrival
    free_s: Any  # by replica and server: when it is, or was, free
    computing: Any  # by replica and server: the requests of its batch, 0 once it has ended
    batches: Any
    routed: Any  # requests
    device_s: Any  # by replica and device, as in `Devices`
    compiled_s: Any  # by replica and shape, as in `Cold`
    noise: Any  # by replica and batch; empty: none

    @classmethod
    def allocate(cls, scenario: Any, requests: int, costs: Costs) -> "Line":
        """Return idle replicas."""
        count = scenario.replicas
        first, last, unseen = (np.full(count, NOBODY) for _ in range(3))
        return cls(
            first, last, unseen, np.empty(requests, np.int64), np.full(count, np.inf), np.full(count, np.inf),
            np.zeros((count, scenario.servers)), np.zeros((count, scenario.servers), np.int64),
            np.zeros(count, np.int64), np.zeros(count, np.int64),
            np.tile(costs.devices.free_s, (count, 1)), np.tile(costs.cold.ready_s, (count, 1)), NONE[None],
        )  # fmt: skip


@inlined
def _costs_of(costs, line, k):
    devices = Devices(line.device_s[k], costs.devices.host_s, costs.devices.contention)
    cold = Cold(costs.cold.compile_s, costs.cold.shape, line.compiled_s[k])
    return Costs(costs.service_s, line.noise[k if len(line.noise) > 1 else 0], costs.slowdown, devices, cold)


@inlined
def _enter(k, request, arrival_s, threshold, line, loads):
    """Let the router see a request that has come to a replica."""
    loads.inside[k] += 1
    loads.waiting[k] += 1
    if loads.waiting[k] == 1:
        line.first[k], line.ready_s[k] = request, later(arrival_s[request], threshold.wait_s)
    if loads.waiting[k] == threshold.enough:
        line.ready_s[k] = min(line.ready_s[k], arrival_s[request])


@inlined
def _start(k, now_s, arrival_s, threshold, costs, line, loads):
    """Let a replica start its next batch."""
    free_s = line.free_s[k]
    server, busy = free_s.size, 1
    for number in range(free_s.size - 1, -1, -1):
        if free_s[number] <= now_s:
            server = number
        else:
            busy += 1
    request, size = line.after[line.first[k]], 1
    while size < min(loads.waiting[k], threshold.largest) and arrival_s[request] <= now_s:
        request = line.after[request]
        size += 1
    free_s[server] = finish_of(now_s, _costs_of(costs, line, k), size, line.batches[k], server, busy)
    loads.inside[k] -= line.computing[k, server]  # of its last batch, which has ended
    line.computing[k, server] = size
    line.batches[k] += 1
    loads.waiting[k] -= size
    line.first[k] = NOBODY
    if loads.waiting[k] > 0:
        line.first[k], line.ready_s[k] = request, later(arrival_s[request], threshold.wait_s)
        if loads.waiting[k] >= threshold.enough:
            for _ in range(threshold.enough - 1):
                request = line.after[request]
            line.ready_s[k] = min(line.ready_s[k], arrival_s[request])


@inlined
def _advance(k, until_s, arrival_s, threshold, costs, line, loads):
    """Bring the loads of a replica to what they are just before `until_s`."""
    while line.unseen[k] != NOBODY and arrival_s[line.unseen[k]] < until_s:
        request = line.unseen[k]
        line.unseen[k] = line.after[request]
        _enter(k, request, arrival_s, threshold, line, loads)
    due_s = math.inf
    while loads.waiting[k] > 0:
        due_s = max(line.ready_s[k], soonest(line.free_s[k]))
        if due_s >= until_s:
            break
        _start(k, due_s, arrival_s, threshold, costs, line, loads)
        due_s = math.inf
    for server in range(line.free_s.shape[1]):
        if line.computing[k, server] > 0:
            if line.free_s[k, server] < until_s:
                loads.inside[k] -= line.computing[k, server]
                line.computing[k, server] = 0
            else:
                due_s = min(due_s, line.free_s[k, server])
    if line.unseen[k] != NOBODY:
        due_s = min(due_s, arrival_s[line.unseen[k]])
    line.due_s[k] = due_s


@compiled
def follow(begin, end, arrival_s, stale_s, threshold, costs, line, loads, chances, params, replica):
    """Route requests while the replicas' queues are followed; return the first that needs more room for noise.

    With a delay `stale_s`, the replicas are only followed up to that long ago: the router sees no later.
    """
    noisy = line.noise.size > 0
    for request in range(begin, end):
        now_s = arrival_s[request]
        until_s = later(now_s, -stale_s)
        for k in range(line.due_s.size):
            if line.due_s[k] < until_s:
                _advance(k, until_s, arrival_s, threshold, costs, line, loads)
        k = route(request, loads, chances[request], params)
        if noisy and line.routed[k] == line.noise.shape[1]:
            return request
        replica[request] = k
        line.routed[k] += 1
        line.after[request] = NOBODY
        if line.last[k] != NOBODY:
            line.after[line.last[k]] = request
        line.last[k] = request
        if stale_s > 0:
            if line.unseen[k] == NOBODY:
                line.unseen[k] = request
            line.due_s[k] = min(line.due_s[k], arrival_s[line.unseen[k]])
        else:
            _enter(k, request, arrival_s, threshold, line, loads)
            line.due_s[k] = min(line.due_s[k], max(line.ready_s[k], soonest(line.free_s[k])))
    return end


def _noise(plan: Plan, room: int) -> np.ndarray:
    """Return the first factors of each replica; empty without noise."""
    if plan.noise_of is None:
        return NONE[None]
    return np.stack([plan.noise_of(k, room) for k in range(plan.scenario.replicas)])


def replicas_of(plan: Plan, cancelled: threading.Event | None = None) -> np.ndarray:
    """Return the replica of each request, uint16."""
    scenario, requests, router = plan.scenario, plan.requests, plan.scenario.router
    assert plan.arrival_s is not None and plan.chances is not None
    count, replica = scenario.replicas, np.empty(requests, np.uint16)
    loads = Loads(np.zeros(count, np.int64), np.zeros(count, np.int64), scenario.rule.max_batch_size)
    chances, params, begin = np.require(plan.chances, requirements="W"), router.compiled_params, 0
    if not router.sees_loads:
        for begin in range(0, requests, engine.SLICE):
            check_cancelled(cancelled)
            route_blindly(begin, min(begin + engine.SLICE, requests), chances, loads, params, replica)
        return replica
    if not engine.is_fast(scenario):
        from batchsim.engines.compiled.routed_instants import follow_instants

        return follow_instants(plan, loads, params, replica, cancelled)
    costs = Costs.of(plan.service_s, NONE, plan.slowdown, Devices.of(scenario), Cold.of(plan.cold_start))
    line, arrival_s = Line.allocate(scenario, requests, costs), np.require(plan.arrival_s, requirements="W")
    room, step = min(requests, 2 * requests // count + LEAST_ROOM), max(engine.SLICE // count, 1)
    line = line._replace(noise=_noise(plan, room))
    while begin < requests:
        check_cancelled(cancelled)
        end = min(begin + step, requests)
        begin = follow(
            begin, end, arrival_s, scenario.stale_ms / 1000, scenario.rule.threshold, costs, line, loads,
            chances, params, replica,
        )  # fmt: skip
        if begin < end:
            room = min(2 * room, requests)
            line = line._replace(noise=_noise(plan, room))
    return replica


def run_replicas(plan: Plan, cancelled: threading.Event | None = None) -> Log:
    """Run a plan with replicas and return its log."""
    replica = replicas_of(plan, cancelled)
    rows = rows_of(replica, plan.scenario.replicas)
    return merged(plan.scenario, replica, [engine.run(plan_of(plan, k, each), cancelled) for k, each in rows])
