"""Many settings of a rule under one traffic: their percentiles, means and throughput, and no columns.

The numbers are those of `simulate`, to the last bit; a setting costs little more than the forming
of its batches.
"""

import functools
import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from batchsim._clock import LATEST_S, PER_S, check_time, in_ms, on_grid
from batchsim._compat import bincount
from batchsim._workers import threads
from batchsim.engines.compiled import grid_loops, token_routed
from batchsim.engines.compiled.columns import BATCH, NONE, Batches, Cold, Costs, Devices, Horizon
from batchsim.engines.compiled.engine import (
    Instants,
    form_batches,
    is_plain,
    of_requests,
    places_of,
    serves_in_turn,
    slice_of,
)
from batchsim.engines.compiled.grid_loops import BINS, Numbers, Scratch, Wanted
from batchsim.engines.compiled.instants import ENDED, PAUSED
from batchsim.engines.compiled.routed import noise_rows, replicas_of, run
from batchsim.engines.compiled.token_columns import (
    MOST_RUNNING,
    MOST_TOKENS,
    Steps,
    TokenQueue,
    TokenRequests,
)
from batchsim.engines.compiled.token_engine import Loop
from batchsim.engines.draws import Plan
from batchsim.engines.log import CANCELLED, check_cancelled
from batchsim.engines.token_log import TokenPlan
from batchsim.scenario import Continuous, Rule, Scenario

Job = TypeVar("Job")
Done = TypeVar("Done")


@dataclass(frozen=True, eq=False)
class ManyMetrics:
    """The numbers of each setting: arrays of shape (settings,), `percentiles_ms` (settings, q)."""

    served: np.ndarray
    percentiles_ms: np.ndarray
    mean_ms: np.ndarray
    throughput_per_s: np.ndarray
    last_s: np.ndarray  # the last finish
    above: np.ndarray  # requests that took longer than `above_ms`, or were not served, (settings, sections)


def run_many(
    plan: Plan, rules: Sequence[Rule], per_cent: Sequence[float] = (99,), unserved: str = "ignore",
    sections: int = 0, above_ms: float = math.inf,
) -> ManyMetrics:  # fmt: skip
    """Run the plan's traffic once under each rule, all of one class, in place of its scenario's rule.

    `plan.service_s` must reach to the largest batch of all. Percentiles are NaN under a rule with which the
    run lasts longer than the clock counts. They are over the served
    requests, or over all with unserved="inf", those not served infinitely late. `sections`: how
    many parts the sums of a whole run are added up in, as the last bit depends on it; with 0 the
    means and the throughput are NaN.
    """
    # The rule with the lowest limit tells which loop serves all: it may read sizes, and lose requests.
    scenario = replace(plan.scenario, rule=min(rules, key=lambda rule: rule.largest_size))
    requests, rows = plan.requests, len(rules)
    cuts = np.linspace(0, requests, sections + 1).astype(np.int64) if sections else np.empty(0, np.int64)
    ranked_s = np.empty((rows, len(per_cent), 2))
    parts = (rows, max(sections, 1))
    numbers = Numbers(
        np.empty(rows, np.int64),
        np.empty(rows),
        ranked_s.view(np.int64),
        np.zeros(parts),
        np.zeros(parts, np.int64),
    )
    edges_s, edges = np.empty((rows, cuts.size)), np.minimum(cuts, requests - 1)
    wanted = Wanted(np.array(per_cent, float), unserved == "inf", cuts, on_grid(above_ms / 1000))
    latency_s, kept, bins = np.empty(requests), np.empty(requests, np.int64), np.empty(BINS, np.int32)
    scratch = Scratch(latency_s, latency_s.view(np.int64), kept, bins)
    costs = Costs.of(plan, plan.noise, Devices.of(scenario), Cold.of(plan.cold_start))
    arrival_s = plan.first_s
    size, fast, cancelled = slice_of(scenario.servers), serves_in_turn(scenario), CANCELLED.get()
    fast &= scenario.most_replicas == 1
    if fast and is_plain(scenario) and requests <= size:  # settings for some tens of milliseconds a call
        thresholds = zip(*(rule.threshold for rule in rules), strict=True)
        columns = [*map(np.array, thresholds, (float, np.int64, np.int64))]
        free, step = np.empty(scenario.servers), size // requests
        for begin in range(0, rows, step):
            check_cancelled(cancelled)
            part = slice(begin, begin + step)
            args = arrival_s, *(column[part] for column in columns), costs, free, wanted, scratch
            grid_loops.run_thresholds(*args, Numbers(*(column[part] for column in numbers)))
        edges_s[:] = arrival_s[edges]
    else:
        status, places = np.empty(requests, np.uint8), places_of(scenario, plan.priority, requests)
        taken = np.empty(requests, np.int64)
        of_each = of_requests(arrival_s, plan.think_s, taken, status, places, plan.computed_size)
        batches, instants = Batches.allocate(requests), None if fast else Instants(scenario, requests)
        several = scenario.replicas > 1 and scenario.autoscale is None
        routed = Routed(plan) if several and is_plain(scenario) else None
        for row, rule in enumerate(rules):
            threshold = rule.threshold
            if routed is not None and threshold is not None and threshold.wait_s < math.inf:
                routed.run(rule, costs, wanted, scratch, row, numbers, cancelled)
                edges_s[row] = arrival_s[edges]
                continue
            if scenario.most_replicas > 1:
                log = run(replace(plan, scenario=replace(scenario, rule=rule)), cancelled)
                of_each = of_requests(arrival_s, None, log.batch_index, log.status, places)
                grid_loops.note_run(of_each, Batches.of(log), log.steps, wanted, scratch, row, numbers)
                edges_s[row] = arrival_s[edges]
                continue
            costs.devices.free_s[:], costs.cold.ready_s[:] = 0.0, math.inf
            if instants is None:
                free = np.zeros(scenario.servers)
                _, done = form_batches(
                    arrival_s, plan.computed_size, False, rule, costs, free, taken, batches, cancelled
                )
            else:
                instants.begin(rule)
                if instants.closed:
                    arrival_s[:] = plan.first_s
                horizon = Horizon(requests, requests, requests + 1, instants.closed)
                instants.run_window(horizon, of_each, costs, batches, cancelled)
                done = int(instants.cursor[BATCH])
            grid_loops.note_run(of_each, batches, done, wanted, scratch, row, numbers)
            edges_s[row] = arrival_s[edges]
    ranked_s[numbers.last_s >= LATEST_S] = math.nan  # later than the clock counts
    count = numbers.served if unserved == "ignore" else np.full(rows, requests)
    none = np.full(rows, math.nan)
    means = _means(numbers, edges_s) if sections else (none, none)
    return ManyMetrics(
        numbers.served, _between(ranked_s, wanted.per_cent, count), *means, numbers.last_s, numbers.above
    )


class Routed:
    """Settings of a threshold rule at replicas: a routing that sees no loads runs once for all of them.

    Not with an infinite wait: a remainder that drains leaves after the last arrival of all.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.replica: np.ndarray | None = None
        self.noise, self.free = np.empty((plan.scenario.replicas, 0)), np.empty(plan.scenario.servers)
        self.arrival_s = np.require(plan.arrival_s, requirements="W")
        self.ends, self.own_s = np.empty(plan.scenario.replicas + 1, np.int64), np.empty(plan.requests)

    def run(
        self, rule: Rule, costs: Costs, wanted: Wanted, scratch: Scratch, row: int, numbers: Numbers,
        cancelled: threading.Event | None,
    ) -> None:  # fmt: skip
        """Run one setting, and keep its numbers."""
        scenario = self.plan.scenario
        if self.replica is None or scenario.router.sees_loads:
            plan = replace(self.plan, scenario=replace(scenario, rule=rule))
            replica = self.replica = replicas_of(plan, cancelled)
            used, most = int(replica.max()) + 1, int(bincount(replica).max())  # most: requests, so batches
            rows, batches = self.noise.shape
            if self.plan.noise_of is not None and (used > rows or most > batches):
                self.noise = noise_rows(self.plan, used, most)
        grid_loops.run_routed(
            self.arrival_s, self.replica, rule.threshold, costs, self.noise, self.free, self.ends, self.own_s,
            wanted, scratch, row, numbers,
        )  # fmt: skip


def _between(ranked_s: np.ndarray, per_cent: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the percentiles in ms from their neighbours, as `Result.percentile` does, to the last bit."""
    rank = per_cent / 100 * (count[:, None] - 1)
    part = rank - np.floor(rank)
    below_ms, above_ms = np.moveaxis(in_ms(ranked_s), -1, 0)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        rise_ms = above_ms - below_ms
        between_ms = np.where(part < 0.5, below_ms + rise_ms * part, above_ms - rise_ms * (1 - part))
    return np.where(np.isinf(above_ms), math.inf, between_ms)


def _means(numbers: Numbers, edges_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean latency in ms and the finished requests per second, added up as in a result.

    `edges_s`: the arrival times between which a result adds up, shape (settings, cuts).
    """
    last_s, served = numbers.last_s, numbers.served
    edges_s[:, 0], edges_s[:, -1] = 0.0, last_s
    window_s = np.diff(np.minimum(edges_s, last_s[:, None]), axis=1).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN without a served request
        mean_ms = np.cumsum(numbers.sums / PER_S, axis=1)[:, -1] / served * 1000
        return mean_ms, np.where(window_s == 0, 0.0, served / window_s)


@functools.cache
def _threads(_: int) -> Executor:
    """Return a process's threads: a fork would inherit a pool without any."""
    return threads(os.cpu_count() or 1, "batchsim-many")


_ran: set[object] = set()  # the kinds of loops that this process has run, and so compiled


def in_threads(scenario: Scenario, task: Callable[[Job], Done], jobs: Sequence[Job]) -> list[Done]:
    """Run settings of one kind of scenario on all cores; return what the tasks return, in order."""
    loop = (serves_in_turn(scenario), type(scenario.rule))
    here = 0 if loop in _ran else 1  # this thread compiles, whose caller may listen
    first = [*map(task, jobs[:here])]
    _ran.add(loop)
    cancelled = threading.Event()

    def stoppable(context: Context, job: Job) -> Done:
        context.run(CANCELLED.set, cancelled)
        return context.run(task, job)

    contexts = [copy_context() for _ in jobs]  # the caller hears of other loops that a thread compiles
    try:
        return [*first, *_threads(os.getpid()).map(stoppable, contexts, jobs[here:])]
    except BaseException:
        cancelled.set()  # the others stop at their next slice
        raise


# Many settings of one traffic of token generation: when each request has its first token and its last.


class PeakUse(NamedTuple):
    """The most requests that an engine ran at once, and the most tokens of a step."""

    running: int
    tokens: int


@dataclass(frozen=True, eq=False)
class Times:
    """When the requests of a run came, had their first token and left, in seconds; NaN for one not served."""

    arrival_s: np.ndarray
    token_s: np.ndarray
    finish_s: np.ndarray
    outputs: np.ndarray
    last_s: float  # when the last step ended
    most: PeakUse


def run_times(plan: TokenPlan) -> Times:
    """Run a plan of the compiled engine and return its requests' times."""
    if plan.scenario.most_replicas > 1:
        return _times_of_replicas(plan)
    count, requests, cancelled = plan.base.requests, TokenRequests.of(plan), CANCELLED.get()
    loop, line = Loop(plan.scenario, count, plan.noise()), TokenQueue(*np.empty((2, count), np.int64))
    loop.rows = Steps.allocate(loop.room, 0, NONE, loop.servers.running.size)
    loop.end_s = plan.base.end_s
    state = PAUSED
    while state != ENDED:
        check_cancelled(cancelled)
        state, _, _ = loop.advance(requests, line, count)
    last_s = float(loop.servers.engines.ended_s.max())
    check_time("finishes", last_s, "take fewer requests")
    most, served = PeakUse(*loop.cursor[[MOST_RUNNING, MOST_TOKENS]].tolist()), requests.rows.last_step >= 0
    token_s, finish_s = (
        np.where(served, times_s, math.nan)
        for times_s in (requests.rows.first_token_s, requests.rows.finish_s)
    )
    return Times(requests.arrival_s, token_s, finish_s, plan.outputs, last_s, most)


def _times_of_replicas(plan: TokenPlan) -> Times:
    """Return the same of a plan with replicas; its seats count as used, as the routing may depend on them."""
    token_s, finish_s = np.full((2, plan.base.requests), math.nan)
    last_s, tokens = 0.0, 0
    replica, _ = token_routed.replicas_of(plan, CANCELLED.get())
    for rows, part in token_routed.plans_by_replica(plan, replica):
        times = run_times(part)
        token_s[rows], finish_s[rows] = times.token_s, times.finish_s
        last_s, tokens = max(last_s, times.last_s), max(tokens, times.most.tokens)
    assert plan.base.arrival_s is not None
    most = PeakUse(sys.maxsize, tokens)
    return Times(plan.base.arrival_s, token_s, finish_s, plan.outputs, last_s, most)


def same_steps(ran: Rule, most: PeakUse, rule: Rule) -> bool:
    """Return whether a rule, of the same class, makes the very steps that `ran` made.

    As it does where the seats or the budget alone differ, and were never short, nor would be now. Prompts
    that are not cut may have waited for a larger budget than any step used.
    """
    if not (isinstance(ran, Continuous) and isinstance(rule, Continuous)):
        return rule == ran
    seats, budget = ran.max_num_seqs, ran.max_num_batched_tokens
    if rule.max_num_seqs != seats and not (most.running < seats and most.running <= rule.max_num_seqs):
        return False
    enough = ran.chunked and most.tokens < min(budget, rule.max_num_batched_tokens)
    if rule.max_num_batched_tokens != budget and not enough:
        return False
    return replace(rule, max_num_seqs=seats, max_num_batched_tokens=budget) == ran
