"""Routing by loads in front of a threshold rule: as far as loads need it, the replicas of the fast loop."""

# mypy: disable-error-code="no-untyped-def"

import math
from typing import Any, NamedTuple

import numpy as np

from batchsim.engines.compiled.columns import Cold, Costs, Devices
from batchsim.engines.compiled.jit import compiled, compiled_uncached, inlined
from batchsim.engines.compiled.rule_calls import route
from batchsim.engines.compiled.threshold import finish_of, later, soonest

NOBODY = -1


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
    def allocate(cls, replicas: int, servers: int, requests: int, costs: Costs, noise: Any) -> "Line":
        """Return idle replicas."""
        first, last, unseen = (np.full(replicas, NOBODY) for _ in range(3))
        ready_s, due_s = np.full((2, replicas), np.inf)
        batches, routed = np.zeros((2, replicas), np.int64)
        return cls(
            first, last, unseen, np.empty(requests, np.int64), ready_s, due_s, np.zeros((replicas, servers)),
            np.zeros((replicas, servers), np.int64), batches, routed,
            np.tile(costs.devices.free_s, (replicas, 1)), np.tile(costs.cold.ready_s, (replicas, 1)), noise,
        )  # fmt: skip


@inlined
def _costs_of(costs, line, k):
    devices = Devices(line.device_s[k], costs.devices.host_s, costs.devices.contention)
    cold = Cold(costs.cold.compile_s, costs.cold.shape, line.compiled_s[k])
    return Costs(costs.service_s, line.noise[k], costs.slowdown, devices, cold, costs.units)


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
    own, batch = _costs_of(costs, line, k), line.batches[k]
    free_s[server] = finish_of(now_s, own, own.service_s[size], size, batch, server, busy)
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


def _follow(begin, end, arrival_s, stale_s, threshold, costs, line, loads, chances, params, replica):
    """Route requests while the queues are followed; return the first that needs more room for noise.

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
        replica[request] = k
        if noisy and (k >= line.noise.shape[0] or line.routed[k] == line.noise.shape[1]):
            return request
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


follow, follow_uncached = compiled(_follow), compiled_uncached(_follow)
