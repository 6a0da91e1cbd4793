"""The compiled engine: a single queue, or replicas behind a router.

For replicas it first finds where each request goes. In an open loop they are then independent: the loops of
a single queue run each, and their logs are merged. A routing that sees loads needs the replicas' queues
before, so these are simulated once more, as far as loads need them: for rules of the fast loop by
`routed_threshold`, for others, and with an autoscaler, by the general loop (`routed_instants`).
"""

import dataclasses
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from batchsim.engines.autoscaling import Scaler, Seen
from batchsim.engines.compiled import columns, engine, instants, routed_instants, routed_threshold, rule_calls
from batchsim.engines.compiled.columns import BATCH, NONE, SENT, Batches, Cold, Costs, Devices, Requests
from batchsim.engines.compiled.routed_instants import Rows
from batchsim.engines.compiled.routed_threshold import Line
from batchsim.engines.draws import Plan
from batchsim.engines.log import Log, check_cancelled
from batchsim.engines.replicas import loads_of, merged_log, plan_of, rows_of
from batchsim.scenario import Scenario
from batchsim.scenario.routing import Loads

LEAST_ROOM = 64  # requests that each replica has room for, at first
FIRST_ROWS = 16  # replicas that have rows at first: a routing to 1,024 often uses only a few
NEVER = 2**62  # more instants and requests than there are


def is_ours(*parts: Any) -> bool:
    """Return whether all parts are this package's: a cached loop with others could be stale."""
    return all(type(part).__module__.startswith("batchsim.") for part in parts)


def first_size(plan: Plan) -> tuple[int, int]:
    """Return how many replicas have a row at first, and for how many requests."""
    count = plan.scenario.most_replicas
    return min(count, FIRST_ROWS), min(plan.requests, 2 * plan.requests // count + LEAST_ROOM)


def next_size(plan: Plan, rows: int, room: int, k: int) -> tuple[int, int]:
    """Return both numbers for another try, as replica `k` has no row, or a full one."""
    if k >= rows:
        return min(max(2 * rows, int(k) + 1), plan.scenario.most_replicas), room
    return rows, min(2 * room, plan.requests)


def noise_rows(plan: Plan, rows: int, room: int) -> np.ndarray:
    """Return the first factors of `rows` replicas; without noise, an empty row for every replica."""
    if plan.noise_of is None:
        return np.empty((plan.scenario.most_replicas, 0))
    return np.stack([plan.noise_of(k, room) for k in range(rows)])


def follow_lines(
    plan: Plan, loads: Loads, params: Any, replica: np.ndarray, cancelled: threading.Event | None = None
) -> np.ndarray:
    """Write the replica of each request, and return them."""
    scenario, requests, count = plan.scenario, plan.requests, plan.scenario.most_replicas
    size, begin, step = first_size(plan), 0, max(engine.SLICE // count, 1)
    arrival_s, threshold = np.require(plan.arrival_s, requirements="W"), scenario.rule.threshold
    follow = routed_threshold.follow if is_ours(scenario.router) else routed_threshold.follow_uncached
    costs = Costs.of(plan, None, Devices.of(scenario), Cold.of(plan.cold_start))
    line = Line.allocate(count, scenario.servers, requests, costs, noise_rows(plan, *size))
    while begin < requests:
        check_cancelled(cancelled)
        end = min(begin + step, requests)
        begin = follow(
            begin, end, arrival_s, scenario.stale_ms / 1000, threshold, costs, line, loads, plan.chances,
            params, replica,
        )  # fmt: skip
        if begin < end:
            size = next_size(plan, *size, replica[begin])
            line = line._replace(noise=noise_rows(plan, *size))
    return replica


def stacked(part: Any, count: int) -> Any:
    """Return an array, or a named tuple of them, with a row for each replica; None stays None."""
    if isinstance(part, tuple):
        return type(part)(*(stacked(column, count) for column in part))
    return np.stack([part] * count).view(type(part)) if isinstance(part, np.ndarray) else part


def copy_rows(old: Any, new: Any) -> None:
    """Copy rows into longer ones."""
    if isinstance(old, tuple):
        for pair in zip(old, new, strict=True):
            copy_rows(*pair)
    elif isinstance(old, np.ndarray):
        new[tuple(map(slice, old.shape))] = old


def _rows(plan: Plan, count: int, room: int, one: engine.Instants) -> Rows:
    """Return the rows of idle replicas; their noise is drawn already."""
    routed, noted = np.zeros((2, count), np.int64)
    of_request = (
        np.zeros(room),
        NONE,
        np.empty(0, np.int64),
        np.zeros(room, np.int64),
        np.zeros(room, np.uint8),
    )
    levels, level = columns.Levels.of(plan.scenario, room), np.zeros(room if one.levels else 0, np.uint8)
    requests = stacked(Requests(*of_request, level, np.zeros(room, np.int64)), count)
    costs = Costs.of(plan, None, Devices.of(plan.scenario), Cold.of(plan.cold_start))
    devices, cold = costs.devices, costs.cold
    costs = costs._replace(
        noise=noise_rows(plan, count, room)[:count],
        devices=devices._replace(free_s=stacked(devices.free_s, count)),
        cold=cold._replace(ready_s=stacked(cold.ready_s, count)),
    )
    return Rows(
        stacked(one.memory, count), requests._replace(think_s=NONE, client=np.empty(0, np.int64)), costs,
        stacked(columns.Queue.allocate(room, plan.scenario.rule.freezes), count), stacked(levels, count),
        stacked(one.servers, count), stacked(Batches.allocate(room), count), stacked(one.cursor, count),
        routed, noted, np.zeros((count, plan.scenario.servers), np.int64),
    )  # fmt: skip


def follow_instants(
    plan: Plan, loads: Loads, params: Any, replica: np.ndarray, cancelled: threading.Event | None = None,
    scaler: Scaler | None = None,
) -> np.ndarray:  # fmt: skip
    """Write the replica of each request, and return them."""
    scenario, requests, count = plan.scenario, plan.requests, plan.scenario.most_replicas
    rows_and_room, begin, step = first_size(plan), 0, max(engine.SLICE // 4 // count, 1)
    one, rule = engine.Instants(scenario, 0), scenario.rule
    limits, level = one.limits._replace(work=NEVER), engine.places_of(scenario, plan.priority, requests)
    rows, arrival_s = _rows(plan, *rows_and_room, one), np.require(plan.arrival_s, requirements="W")
    follow = routed_instants.follow if is_ours(scenario.router) else routed_instants.follow_uncached
    until = Until(scaler, arrival_s, loads)
    while begin < requests:
        check_cancelled(cancelled)
        end = min(begin + step, until.stop)
        begin, ended = follow(
            begin, end, until.at_s(end), arrival_s, level, plan.computed_size, scenario.stale_ms / 1000,
            limits, one.params, rule.asked_while_busy, rows, one.clients, loads, until.seen, plan.chances,
            params, replica,
        )  # fmt: skip
        if ended == instants.WRONG:
            raise ValueError(f"decide must start or freeze 1 to as many requests as wait, got {rule!r}")
        if ended == routed_instants.GROW:
            rows_and_room, old = next_size(plan, *rows_and_room, replica[begin]), rows
            rows = _rows(plan, *rows_and_room, one)
            copy_rows(old, rows)  # the first factors of their noise are the same
        elif begin == until.stop < requests:
            until.pass_(partial(_columns, rows))
    return replica


class Until:
    """The next time at which an autoscaler may change the number of replicas; without one, never."""

    def __init__(self, scaler: Scaler | None, arrival_s: np.ndarray, loads: Loads) -> None:
        self.scaler, self.arrival_s, self.loads, self.seen = scaler, arrival_s, loads, loads
        self.time_s, self.stop = math.inf, arrival_s.size
        self._look_ahead(0.0)

    def _look_ahead(self, now_s: float) -> None:
        """Find the next such time, the first request from then on, and what the router sees until then."""
        if self.scaler is not None:
            self.time_s, up = self.scaler.change_s(now_s), self.scaler.up(now_s)
            self.stop = int(np.searchsorted(self.arrival_s, self.time_s))
            inside, waiting, filling, tokens = (column[:up] for column in self.loads[:-1])
            self.seen = Loads(inside, waiting, filling, tokens, self.loads.full)

    def at_s(self, end: int) -> float:
        """Return to when all replicas are followed after request `end` - 1; inf: to no time."""
        return self.time_s if end == self.stop < self.arrival_s.size else math.inf

    def pass_(self, columns: Callable[[], list[Seen]]) -> None:
        """Take the evaluation, if one is due, and go on from this time."""
        assert self.scaler is not None
        if self.time_s == self.scaler.next_s:
            seen = columns()
            without = [Seen(*np.empty((4, 0)))] * (self.loads.waiting.size - len(seen))
            self.scaler.evaluate(self.loads.waiting, seen + without)
        self._look_ahead(self.time_s)


def _columns(rows: Rows) -> list[Seen]:
    """Return the columns of the requests and batches so far, of each replica that has a row."""
    requests, batches = rows.requests, rows.batches
    return [
        Seen(requests.arrival_s[k, :sent], requests.batch_index[k, :sent], batches.start_s[k, :count],
             batches.finish_s[k, :count])
        for k, (sent, count) in enumerate(rows.cursor[:, [SENT, BATCH]])
    ]  # fmt: skip


def replicas_of(
    plan: Plan, cancelled: threading.Event | None = None, scaler: Scaler | None = None
) -> np.ndarray:
    """Return the replica of each request, uint16."""
    scenario, requests, router = plan.scenario, plan.requests, plan.scenario.router
    replica, params = np.empty(requests, np.uint16), router.params
    loads = loads_of(scenario)
    if scaler is not None:
        return follow_instants(plan, loads, params, replica, cancelled, scaler)
    if router.sees_loads:
        follow = follow_lines if engine.is_plain(scenario) else follow_instants
        return follow(plan, loads, params, replica, cancelled)
    return route_blind(plan, replica, cancelled)


def route_blind(plan: Plan, replica: np.ndarray, cancelled: threading.Event | None = None) -> np.ndarray:
    """Write the replica of each request by a routing that sees no loads, and return them."""
    for begin in range(0, plan.requests, engine.SLICE):
        check_cancelled(cancelled)
        rows = slice(begin, begin + engine.SLICE)
        assert plan.chances is not None
        route_slice(plan.scenario, begin, plan.chances[rows], replica[rows])
    return replica


def route_slice(scenario: Scenario, begin: int, chances: Any, replica: np.ndarray) -> None:
    """Write the replica of each of some requests, the first of number `begin`."""
    router = scenario.router
    blindly = rule_calls.route_blindly if is_ours(router) else rule_calls.route_blindly_uncached
    blindly(begin, chances, loads_of(scenario), router.params, replica)


def run(plan: Plan, cancelled: threading.Event | None = None) -> Log:
    """Run a plan and return its log, bit for bit that of the reference engine."""
    if plan.scenario.most_replicas == 1:
        return engine.run(plan, cancelled)
    assert plan.arrival_s is not None, "a closed loop runs in the reference engine"
    scaler = None if plan.scenario.autoscale is None else Scaler(plan.scenario, plan.arrival_s)
    replica = replicas_of(plan, cancelled, scaler)
    rows = rows_of(replica, plan.scenario.most_replicas)
    logs = [engine.run(plan_of(plan, k, each), cancelled) for k, each in rows]
    log = merged_log(plan.scenario, replica, logs)
    return log if scaler is None else dataclasses.replace(log, scaling=scaler.table())
