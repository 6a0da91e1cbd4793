"""The compiled engine of token generation behind a router.

As in `routed`, it first finds where each request goes, then runs each replica by the loops of a single queue,
and merges their logs. A routing that sees loads needs the replicas' queues before: see `token_follow`.
"""

import itertools
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from batchsim.engines.autoscaling import Scaler, Seen
from batchsim.engines.compiled import columns, engine, routed, token_engine
from batchsim.engines.compiled.columns import SENT
from batchsim.engines.compiled.routed_instants import GROW
from batchsim.engines.compiled.token_columns import STEP, Steps, TokenLimits, TokenQueue, TokenRequests
from batchsim.engines.compiled.token_follow import MORE_STEPS, Drawn, Rows, follow, follow_uncached
from batchsim.engines.log import check_cancelled
from batchsim.engines.replicas import loads_of, merged_folded, merged_log, rows_of, token_plan_of
from batchsim.engines.token_log import Batching, TokenLog, TokenPlan

STEPS_AT_ONCE = 1 << 10
NEVER = 2**62  # more instants and requests than there are


def _rows(plan: TokenPlan, count: int, room: int) -> Rows:
    """Return the rows of idle replicas, each with room for so many requests."""
    scenario, zeros = plan.scenario, np.zeros(room, np.int64)
    loop = token_engine.Loop(scenario.one, plan.base.requests, None)
    one = Rows(
        TokenRequests.before(loop.batching, loop.prefixes, np.full(room, math.inf), None, *[zeros] * 4),
        TokenQueue(*np.empty((2, room), np.int64)), loop.servers, loop.clients, loop.sums, loop.done,
        loop.cursor,
    )  # fmt: skip
    rows: Rows = routed.stacked(one, count)
    return rows


def _noise(plan: TokenPlan, count: int, steps: int) -> np.ndarray:
    """Return the factors of the first steps of some replicas, a row each; empty rows without noise."""
    draws = [plan.noise(k) for k in range(count)]
    return np.stack([columns.NONE if draw is None else draw(steps) for draw in draws])


def _steps(own: int, count: int, at_once: int) -> Steps:
    """Return columns of steps with the times of `own` replicas; the replicas share the other columns."""
    times_s = np.empty((2, own, count))
    steps = Steps.allocate(count, 0, columns.NONE, at_once)
    return steps._replace(start_s=times_s[0], finish_s=times_s[1])


def follow_steps(
    plan: TokenPlan, replica: np.ndarray, cancelled: threading.Event | None = None,
    scaler: Scaler | None = None,
) -> np.ndarray:  # fmt: skip
    """Write the replica of each request, and return them."""
    base, scenario, loop = plan.base, plan.scenario, follow
    if not routed.is_ours(scenario.router):
        loop = follow_uncached
    every, requests = TokenRequests.of(plan), base.requests
    own = every.rows
    drawn = Drawn(every.arrival_s, every.prompt, every.output, own.limit, own.path, own.shared)
    one, batching = token_engine.Loop(scenario.one, requests, None), Batching.of(scenario)
    logged = scaler is not None
    limits = TokenLimits(one.queue_limit, one.timeout_s, NEVER, 0, 0.0, logged, -math.inf)
    # The loop pauses unless there is a row for each engine.
    ahead = max(STEPS_AT_ONCE, 2 * scenario.servers)
    (count, room), begin, at_once = routed.first_size(base), 0, one.servers.running.size
    rows, noise, loads = _rows(plan, count, room + 1), _noise(plan, count, ahead), loads_of(scenario)
    sent, steps = np.zeros(count, np.int64), _steps(count if logged else 1, ahead, at_once)
    slice_ = max(engine.SLICE // 64 // scenario.most_replicas, 1)
    until = routed.Until(scaler, drawn.arrival_s, loads)
    while begin < requests:
        check_cancelled(cancelled)
        end = min(begin + slice_, until.stop)
        begin, ended = loop(
            begin, end, until.at_s(end), drawn, scenario.stale_ms / 1000, limits, batching, one.cost, steps,
            noise, scenario.router.needs_tokens, rows, sent, loads, until.seen, base.chances,
            scenario.router.params, replica,
        )  # fmt: skip
        if ended in (GROW, MORE_STEPS):
            before = rows, sent, steps[2:4]
            if ended == GROW:
                count, room = routed.next_size(base, count, room, replica[begin])
                rows, sent = _rows(plan, count, room + 1), np.zeros(count, np.int64)
            else:
                ahead *= 2
            noise, steps = _noise(plan, count, ahead), _steps(count if logged else 1, ahead, at_once)
            routed.copy_rows(before, (rows, sent, steps[2:4]))
        elif begin == until.stop < requests:
            until.pass_(partial(_columns, rows, steps))
    return replica


def _columns(rows: Rows, steps: Steps) -> list[Seen]:
    """Return the columns of the requests and steps so far, of each replica that has a row."""
    last_step = rows.requests.rows.last_step
    return [
        Seen(rows.requests.arrival_s[k, :sent], last_step[k, :sent], steps.start_s[k, :count],
             steps.finish_s[k, :count])
        for k, (sent, count) in enumerate(rows.cursor[:, [SENT, STEP]])
    ]  # fmt: skip


def replicas_of(
    plan: TokenPlan, cancelled: threading.Event | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the replica of each request, uint16, and the evaluations of the autoscaler, None without."""
    replica, scenario = np.empty(plan.base.requests, np.uint16), plan.scenario
    if scenario.autoscale is not None:
        scaler = Scaler(scenario, plan.base.arrival_s)
        return follow_steps(plan, replica, cancelled, scaler), scaler.table()
    if scenario.router.sees_loads:
        return follow_steps(plan, replica, cancelled), None
    return routed.route_blind(plan.base, replica, cancelled), None


def plans_by_replica(plan: TokenPlan, replica: np.ndarray) -> Iterator[tuple[np.ndarray, TokenPlan]]:
    """Yield of each replica its requests, and its own plan."""
    for k, rows in rows_of(replica, plan.scenario.most_replicas):
        yield rows, token_plan_of(plan, k, rows)


def run(
    plan: TokenPlan, cancelled: threading.Event | None = None, room: float = math.inf
) -> TokenLog:  # fmt: skip
    """Run a plan and return its log, bit for bit that of the reference engine.

    With more than `room` steps it is a `FoldedLog`.
    """
    if plan.scenario.most_replicas == 1:
        return token_engine.run(plan, cancelled, room)
    replica, scaling = replicas_of(plan, cancelled)
    parts, arrival_s, logs = plans_by_replica(plan, replica), plan.base.arrival_s, list[TokenLog]()
    assert arrival_s is not None
    for _, part in parts:
        logs.append(token_engine.run(part, cancelled, room, arrival_s))
        room -= logs[-1].steps
        if room < 0:
            rest = (token_engine.run(part, cancelled, -1, arrival_s) for _, part in parts)
            log = merged_folded(plan.scenario, replica, arrival_s, itertools.chain(logs, rest))
            break
    else:
        log = merged_log(plan.scenario, replica, logs)
    return replace(log, scaling=scaling)
