"""The compiled engine: the reference engine's semantics, by Numba's loops.

A rule that is the textbook's under another name (`Rule.threshold`) takes the fast loop where every request of
an open loop is served; everything else goes from instant to instant. The loops are called in slices, so
that Ctrl-C is heard between two of them, and hold no Python lock, so that threads run side by side. `run`
returns what the reference returns, bit for bit.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from batchsim.engines.compiled import columns, instants
from batchsim.engines.compiled import threshold as kernels
from batchsim.engines.compiled.columns import NONE, Batches, Cold, Costs, Devices, Horizon, Requests
from batchsim.engines.compiled.jit import announcing as announcing  # how others hear of compiling
from batchsim.engines.compiled.levels import NOBODY
from batchsim.engines.draws import Plan
from batchsim.engines.log import Log, check_cancelled
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.scenario.rules import Rule, Threshold

SLICE = 1_000_000  # requests, batches and instants a call: some tens of milliseconds


def slice_of(servers: int) -> int:
    """Return how many of them a call takes: each looks at all servers, of which a few cost little."""
    return max(SLICE // (1 + servers // 16), 1)


def is_fast(scenario: Scenario) -> bool:
    """Return whether the fast loop runs it: a threshold rule, an open loop, and every request served."""
    closed = isinstance(scenario.workload, ClosedLoop)
    return (
        scenario.rule.threshold is not None and not closed and not scenario.by_level and not scenario.can_lose
    )


class Instants:
    """What the general loop carries from one call to the next, besides the window."""

    def __init__(self, scenario: Scenario, room: int) -> None:
        """`room`: how many requests a window may hold."""
        rule = scenario.rule
        self.closed = isinstance(scenario.workload, ClosedLoop)
        one = scenario.limits[0]  # of all, unless there are levels
        limit = columns.ENDLESS if one.queue is None else one.queue
        self.limits = columns.Limits(limit, one.timeout_s, slice_of(scenario.servers))
        self.queue = columns.Queue.allocate(room, rule.freezes)
        self.levels = columns.Levels.of(scenario, room)
        self.cursor = np.empty(columns.PLACES, np.int64)
        self.servers = columns.Servers.allocate(scenario.servers)
        workload = scenario.workload
        self.clients = columns.Clients.allocate(workload.clients if isinstance(workload, ClosedLoop) else 0)
        self.loop: Callable[..., Any] = instants.pass_instants_uncached
        if type(rule).__module__.startswith("batchsim."):
            self.loop = instants.pass_instants
        self.begin(rule)

    def begin(self, rule: Rule) -> None:
        """Set the clock to the start of a run, under another rule of the same class."""
        self.rule, self.params = rule, rule.params
        self.memory, self.cursor[:] = np.zeros(rule.state_size), 0
        if self.levels is not None:
            self.levels.first[:], self.levels.waiting[:], self.levels.late[:] = NOBODY, 0, False
        self.servers.busy_until_s[:], self.servers.clock_s[0] = np.inf, -np.inf
        self.clients.send_at_once(self.cursor)

    def run_window(
        self, horizon: Horizon, requests: Requests, costs: Costs, batches: Batches,
        cancelled: threading.Event | None = None,
    ) -> bool:  # fmt: skip
        """Run the loop on a window; return whether all is over."""
        done = instants.PAUSED
        while done == instants.PAUSED:
            check_cancelled(cancelled)
            done = self.loop(
                horizon, self.limits, self.params, self.memory, self.rule.asked_while_busy, requests, costs,
                self.queue, self.levels, self.clients, self.servers, batches, self.cursor,
            )  # fmt: skip
        if done == instants.WRONG:
            raise ValueError(f"decide must start or freeze 1 to as many requests as wait, got {self.rule!r}")
        return bool(done == instants.ENDED)


def form_batches(
    arrival_s: np.ndarray, more: bool, threshold: Threshold | None, costs: Costs, free: np.ndarray,
    batch_index: np.ndarray, batches: Batches, cancelled: threading.Event | None = None,
) -> tuple[int, int]:  # fmt: skip
    """Run the fast loop on a window; return how many requests are in batches, and in how many."""
    state, size = np.zeros(2, np.int64), slice_of(free.size)
    before = -1
    while before < state[0] < arrival_s.size:  # until it has no more to do
        check_cancelled(cancelled)
        before = int(state[0])
        kernels.form_batches(
            arrival_s, more, threshold, costs, free, state, before + size, batch_index, batches
        )
    return int(state[0]), int(state[1])


def run(plan: Plan, cancelled: threading.Event | None = None) -> Log:
    """Run a plan and return what happened: the very arrays that the reference engine returns.

    Once `cancelled` is set, the run is given up at its next slice.
    """
    scenario, requests = plan.scenario, plan.requests
    # Writable, as a trace's are not: else Numba compiles everything once more for read-only ones.
    arrival_s = np.empty(requests) if plan.arrival_s is None else np.require(plan.arrival_s, requirements="W")
    batch_index, status = np.empty(requests, np.int64), np.zeros(requests, np.uint8)
    batches = Batches.allocate(requests)
    costs = Costs.of(
        plan.service_s, plan.noise, plan.slowdown, Devices.of(scenario), Cold.of(plan.cold_start)
    )
    threshold = scenario.rule.threshold
    if threshold is not None and is_fast(scenario):
        free = np.zeros(scenario.servers)
        _, count = form_batches(arrival_s, False, threshold, costs, free, batch_index, batches, cancelled)
    else:
        run_instants = Instants(scenario, requests)
        places = places_of(scenario, plan.priority, requests)
        rows = of_requests(arrival_s, plan.think_s, batch_index, status, places)
        horizon = Horizon(requests, requests, requests + 1, run_instants.closed)
        run_instants.run_window(horizon, rows, costs, batches, cancelled)
        count = int(run_instants.cursor[columns.BATCH])
        assert run_instants.cursor[columns.SENT] == requests, "a time was not finite"
    of_batches = (column[:count].copy() for column in batches)
    logged: list[Any] = [arrival_s, batch_index, status, *of_batches, plan.priority]
    return Log(*logged)


def places_of(scenario: Scenario, priority: np.ndarray | None, requests: int) -> np.ndarray:
    """Return the place of each request's level, 0 for the first; none where the queue has no levels."""
    if not scenario.by_level:
        return columns.NONE_OF_LEVELS
    if priority is None:  # one level, whose late requests are delayed
        return np.zeros(requests, np.uint8)
    return np.searchsorted(scenario.levels, priority).astype(np.uint8)


def of_requests(arrival_s: np.ndarray, think_s: np.ndarray | None, *columns: np.ndarray) -> Requests:
    """Return requests' columns; in a closed loop, which has think times, with room for their clients."""
    sent_by = np.empty(0 if think_s is None else arrival_s.size, np.int64)
    return Requests(arrival_s, NONE if think_s is None else think_s, sent_by, *columns)
