"""The compiled engine: it calls Numba's loops, and returns the log of the reference engine bit for bit.

A lossless open loop under a threshold rule takes the fast loop (`threshold`); all
else goes from instant to instant (`instants`). Python calls the loops in slices, so that Ctrl-C works between
two of them. They do not hold Python's lock, so threads run in parallel.
"""

import math
import threading
from typing import Any

import numpy as np

from batchsim.engines.compiled import columns, instants, rule_calls
from batchsim.engines.compiled import threshold as kernels
from batchsim.engines.compiled.columns import NONE, Batches, Cold, Costs, Devices, Horizon, Requests
from batchsim.engines.compiled.jit import announcing as announcing  # for callers outside of the engines
from batchsim.engines.compiled.levels import NOBODY
from batchsim.engines.draws import Plan
from batchsim.engines.log import Log, check_cancelled
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.scenario.rules import Rule
from batchsim.scenario.sized_time import SizedTime

NO_LIMIT = columns.ENDLESS, 0  # on the units of a batch, and whether they are summed
SLICE = 1_000_000  # requests, batches and instants in a call: a few tens of milliseconds


def slice_of(servers: int) -> int:
    """Return the size of a slice: fewer with many servers, because each instant checks all of them."""
    return max(SLICE // (1 + servers // 16), 1)


def serves_in_turn(scenario: Scenario, end_s: float = -math.inf) -> bool:
    """Return whether a threshold rule serves every request of an open loop in order: the fast loops.

    They release what is left at the last of their arrivals, so none may have to wait until a later `end_s`.
    """
    closed, threshold = isinstance(scenario.workload, ClosedLoop), scenario.rule.count_threshold
    if threshold is None or closed or scenario.by_level or scenario.can_lose:
        return False
    return threshold.wait_s < math.inf or end_s == -math.inf


def is_plain(scenario: Scenario) -> bool:
    """Return whether the fast loop applies that ignores sizes."""
    return (
        serves_in_turn(scenario) and not scenario.rule.by_size and not isinstance(scenario.service, SizedTime)
    )


class Instants:
    """The state of the general loop between two calls."""

    def __init__(self, scenario: Scenario, room: int) -> None:
        """`room`: the most requests of a window."""
        rule = scenario.rule
        self.closed, self.limited = isinstance(scenario.workload, ClosedLoop), scenario.limited
        one = scenario.limits[0]  # the only one, unless there are levels
        limit = columns.ENDLESS if one.queue is None else one.queue
        self.limits = columns.Limits(limit, one.timeout_s, slice_of(scenario.servers), rule.largest_size)
        self.queue = columns.Queue.allocate(room, rule.freezes)
        self.levels = columns.Levels.of(scenario, room)
        self.cursor = np.empty(columns.PLACES, np.int64)
        self.servers = columns.Servers.allocate(scenario.servers)
        workload = scenario.workload
        self.clients = columns.Clients.allocate(workload.clients if isinstance(workload, ClosedLoop) else 0)
        self.begin(rule)

    def begin(self, rule: Rule) -> None:
        """Prepare a run under a rule of the class of the scenario's."""
        self.rule, self.params = rule, rule_calls.calls_of(rule, self.levels is not None)
        self.memory, self.cursor[:] = rule.memory(self.limited), 0
        if self.levels is not None:
            self.levels.first[:], self.levels.waiting[:], self.levels.late[:] = NOBODY, 0, False
        self.servers.busy_until_s[:], self.servers.clock_s[:] = np.inf, (-np.inf, np.inf)
        self.clients.send_at_once(self.cursor)

    def run_window(
        self, horizon: Horizon, requests: Requests, costs: Costs, batches: Batches,
        cancelled: threading.Event | None = None,
    ) -> bool:  # fmt: skip
        """Run the loop on a window; return whether the run is over."""
        done = instants.PAUSED
        while done == instants.PAUSED:
            check_cancelled(cancelled)
            done = instants.pass_instants(
                horizon, self.limits, self.params, self.memory, self.rule.asked_while_busy, requests, costs,
                self.queue, self.levels, self.clients, self.servers, batches, self.cursor,
            )  # fmt: skip
        if done == instants.WRONG:
            raise ValueError(f"decide must start or freeze 1 to as many requests as wait, got {self.rule!r}")
        return bool(done == instants.ENDED)


def form_batches(
    arrival_s: np.ndarray, size: np.ndarray, more: bool, rule: Rule, costs: Costs, free: np.ndarray,
    batch_index: np.ndarray, batches: Batches, cancelled: threading.Event | None = None,
) -> tuple[int, int]:  # fmt: skip
    """Run a fast loop on a window; return the number of requests in batches, and of batches.

    The one with sizes if these change when batches leave, or how long they take.
    """
    state, work, sized = np.zeros(2, np.int64), slice_of(free.size), rule.by_size or costs.units.rows.size
    of_each, limit = (size, rule.unit_limit) if sized else (None, NO_LIMIT)
    before = -1
    while before < state[0] < arrival_s.size:  # until a call forms no batch
        check_cancelled(cancelled)
        before = int(state[0])
        kernels.form_batches(
            arrival_s,
            of_each,
            more,
            rule.count_threshold,
            limit,
            costs,
            free,
            state,
            before + work,
            batch_index,
            batches,
        )
    return int(state[0]), int(state[1])


def run(plan: Plan, cancelled: threading.Event | None = None) -> Log:
    """Run a plan and return its log, bit for bit that of the reference engine.

    InterruptedError at the next slice once `cancelled` is set.
    """
    scenario, requests = plan.scenario, plan.requests
    # A trace's arrivals are read-only, which Numba would compile everything for again.
    arrival_s = columns.writable(plan.first_s)
    batch_index, status = np.empty(requests, np.int64), np.zeros(requests, np.uint8)
    batches = Batches.allocate(requests)
    costs = Costs.of(plan, plan.noise, Devices.of(scenario), Cold.of(plan.cold_start))
    rule = scenario.rule
    if serves_in_turn(scenario, plan.end_s):
        free = np.zeros(scenario.servers)
        size = columns.NO_SIZES if is_plain(scenario) else plan.computed_size
        _, count = form_batches(arrival_s, size, False, rule, costs, free, batch_index, batches, cancelled)
    else:
        run_instants = Instants(scenario, requests)
        places = places_of(scenario, plan.priority, requests)
        rows = of_requests(arrival_s, plan.think_s, batch_index, status, places, plan.computed_size)
        horizon = Horizon(requests, requests, requests + 1, run_instants.closed, plan.end_s)
        run_instants.run_window(horizon, rows, costs, batches, cancelled)
        count = int(run_instants.cursor[columns.BATCH])
        assert run_instants.cursor[columns.SENT] == requests, "a time was not finite"
    of_batches = (column[:count].copy() for column in batches)
    logged: list[Any] = [arrival_s, batch_index, status, *of_batches, plan.priority, None, plan.size]
    return Log(*logged)


def places_of(scenario: Scenario, priority: np.ndarray | None, requests: int) -> np.ndarray:
    """Return the place of each request's level, 0 for the first; empty if the queue has no levels."""
    if not scenario.by_level:
        return columns.NONE_OF_LEVELS
    if priority is None:  # one level with a timeout that delays
        return np.zeros(requests, np.uint8)
    return np.searchsorted(scenario.levels, priority).astype(np.uint8)


def of_requests(arrival_s: np.ndarray, think_s: np.ndarray | None, *columns: np.ndarray) -> Requests:
    """Return requests; an open loop has no `think_s`."""
    sent_by = np.empty(0 if think_s is None else arrival_s.size, np.int64)
    return Requests(arrival_s, NONE if think_s is None else think_s, sent_by, *columns)
