"""The compiled engine of token generation: the reference's semantics, by Numba's loops.

Steps are not bounded by requests: their columns grow, and their noise is drawn, in chunks. Between two calls
of the loop Ctrl-C is heard.
"""

import threading
from typing import Any

import numpy as np

from batchsim.engines import columns, kernels_tokens_instants
from batchsim.engines.kernels_instants import ENDED
from batchsim.engines.log import check_cancelled
from batchsim.engines.tokens_columns import (
    STEP,
    TOKEN_PLACES,
    Line,
    Steps,
    TokenLimits,
    TokenRequests,
    TokenServers,
)
from batchsim.engines.tokens_log import STEPS, Batching, TokenLog, TokenPlan
from batchsim.scenario import ClosedLoop

SLICE = 4_000_000  # rows and steps a call: some tens of milliseconds
CHUNK = 1 << 14  # steps


def run(plan: TokenPlan, cancelled: threading.Event | None = None) -> TokenLog:
    """Run a plan and return what happened: the very arrays that the reference engine returns.

    Once `cancelled` is set, the run is given up at its next slice.
    """
    scenario, count = plan.scenario, plan.base.requests
    batching, requests = Batching.of(scenario), TokenRequests.of(plan)
    seats = min(batching.seats, count)
    servers = TokenServers.room_for(scenario.servers, seats, batching)
    queue = Line(np.empty(count, np.int64), np.empty(count, np.int64))
    workload, at = scenario.workload, np.zeros(TOKEN_PLACES, np.int64)
    clients = columns.Clients.room_for(workload.clients if isinstance(workload, ClosedLoop) else 0)
    # All clients send at time 0, in their order, which is a heap already.
    at[columns.THINKING] = clients.due_s.size
    clients.due_s[:], clients.client[:] = 0, np.arange(clients.due_s.size)
    one = scenario.limits[0]  # of all: tokens go without levels
    limit = columns.ENDLESS if one.queue is None else one.queue
    limits = TokenLimits(limit, one.timeout_s, SLICE, count, np.inf)
    sums, done = np.zeros(6, np.int64), np.empty(seats, np.int64)
    draw, noise = plan.noise(), columns.NONE
    chunks: list[tuple[np.ndarray, ...]] = []
    over, room = False, max(CHUNK, 2 * scenario.servers)
    while not over:
        check_cancelled(cancelled)
        first = int(at[STEP])
        if draw is not None:
            noise = np.append(noise, draw(room - noise.size))
        steps = Steps.room_for(room, first, noise)
        state = kernels_tokens_instants.pass_steps(
            limits, batching, plan.cost, requests, queue, clients, servers, steps, sums, done, at
        )
        over = state == ENDED
        used = int(at[STEP]) - first
        noise = noise[used:]
        chunks.append(tuple(column[:used].copy() for column in steps[2:]))
    joined: dict[str, Any] = dict(zip(STEPS, map(np.concatenate, zip(*chunks, strict=True)), strict=True))
    return TokenLog(
        arrival_s=requests.arrival_s, batch_index=requests.first_step, status=requests.status,
        prompt_tokens=plan.prompts, output_tokens=plan.outputs, token_step=requests.token_step,
        last_step=requests.last_step, preemptions=requests.preemptions,
        preempted_before_s=requests.before_s, preempted_after_s=requests.after_s, **joined,
    )  # fmt: skip
