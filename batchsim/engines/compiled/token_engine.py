"""The compiled engine of token generation: it calls the loop of `token_instants` until a run is over.

The number of requests does not bound the number of steps, so their columns grow, and their noise is drawn, in
chunks. Ctrl-C takes effect between two calls of the loop.
"""

import math
import threading
from collections.abc import Callable

import numpy as np

from batchsim.engines.compiled import columns, token_instants
from batchsim.engines.compiled.columns import SENT
from batchsim.engines.compiled.instants import ENDED
from batchsim.engines.compiled.token_columns import (
    LATER,
    NO_LOG,
    PREEMPTION,
    STEP,
    SUMS,
    TOKEN_PLACES,
    Steps,
    TokenLimits,
    TokenQueue,
    TokenRequests,
    TokenServers,
)
from batchsim.engines.compiled.token_memory import TokenMemory
from batchsim.engines.folded_log import Progress, StepRows
from batchsim.engines.log import check_cancelled
from batchsim.engines.token_log import PREEMPTIONS, Batching, TokenLog, TokenPlan
from batchsim.scenario import ClosedLoop, Scenario, StepTime
from batchsim.scenario.prefixes import PrefixBlocks

SLICE = 4_000_000  # rows and steps a call: some tens of milliseconds
CHUNK = 1 << 14  # steps


class Loop:
    """The state of the compiled loop between two calls: engines, clients, and the noise of the next steps."""

    def __init__(self, scenario: Scenario, requests: int, draw: Callable[[int], np.ndarray] | None) -> None:
        service, workload = scenario.service, scenario.workload
        assert isinstance(service, StepTime)
        self.batching = Batching.of(scenario)
        self.cost = service.whole_cost(scenario.rule.largest_batch)
        seats = min(self.batching.seats, requests)
        assert scenario.tokens is not None
        self.prefixes = PrefixBlocks.of(scenario.tokens.prefixes, self.batching.block_size)
        memory = TokenMemory.allocate(scenario.servers, requests, self.batching, self.prefixes)
        self.servers = TokenServers.allocate(scenario.servers, seats, self.batching, memory)
        self.cursor, self.sums = np.zeros(TOKEN_PLACES, np.int64), np.zeros(SUMS, np.int64)
        self.done = np.empty(seats, np.int64)
        self.clients = columns.Clients.allocate(workload.clients if isinstance(workload, ClosedLoop) else 0)
        self.clients.send_at_once(self.cursor)
        one = scenario.limits[0]  # of all: tokens go without levels
        self.queue_limit = columns.ENDLESS if one.queue is None else one.queue
        self.timeout_s = one.timeout_s
        self.draw, self.noise, self.room = draw, columns.NONE, max(CHUNK, 2 * scenario.servers)
        self.end_s = -math.inf  # of one of several replicas: see `TokenLimits`
        self.rows: Steps | None = None  # all calls write to these, and only the ends are wanted

    def advance(
        self, requests: TokenRequests, queue: TokenQueue, total: int, until_s: float = math.inf
    ) -> tuple[int, Steps, int]:
        """Call the loop once; return how it ended, the steps, and how many of these it has filled."""
        logged = self.rows is None
        limits = TokenLimits(
            self.queue_limit, self.timeout_s, SLICE, total, until_s, logged, self.end_s
        )  # fmt: skip
        first = int(self.cursor[STEP])
        if self.draw is not None:
            self.noise = np.append(self.noise, self.draw(self.room - self.noise.size))
        if self.rows is None:
            steps = Steps.allocate(self.room, first, self.noise, self.servers.running.size)
        else:
            steps = self.rows._replace(first=first, noise=self.noise)
        state = token_instants.pass_steps(
            limits, self.batching, self.cost, requests, queue, self.clients, self.servers, steps, self.sums,
            self.done, self.cursor,
        )  # fmt: skip
        used = int(self.cursor[STEP]) - first
        self.noise = self.noise[used:]
        return state, steps, used


def run(
    plan: TokenPlan, cancelled: threading.Event | None = None, room: float = math.inf,
    arrival_s: np.ndarray | None = None,
) -> TokenLog:  # fmt: skip
    """Run a plan and return its log, bit for bit that of the reference engine.

    With more than `room` steps it is a `FoldedLog`, for which `arrival_s` is as in `StepRows`. Raises
    InterruptedError once `cancelled` is set.
    """
    count, requests = plan.base.requests, TokenRequests.of(plan)
    loop, queue = Loop(plan.scenario, count, plan.noise()), TokenQueue(*np.empty((2, count), np.int64))
    loop.end_s = plan.base.end_s
    rows = StepRows(room, count, arrival_s, plan.scenario.watts_at)
    cursor, servers = loop.cursor, loop.servers
    # At one instant each engine may preempt all of its requests.
    at_once = servers.running.size if loop.batching.preempts else 0

    def own(name: str) -> np.ndarray:
        return np.ascontiguousarray(requests.rows[name])

    def known() -> Progress:
        noted = requests.arrival_s, own("first_step"), own("token_step"), own("last_step")
        return Progress(*(column[: cursor[SENT]] for column in noted))

    over = False
    while not over:
        check_cancelled(cancelled)
        if at_once:
            queue = queue.with_log_space(int(cursor[PREEMPTION]), at_once)
        state, steps, used = loop.advance(requests, queue, count)
        over = state == ENDED
        late = steps.late[:, : cursor[LATER]]
        rows.add(steps.columns(used), late)
        if rows.folds and at_once:  # a log without rows of steps has no use for their numbers
            queue, at_once = queue._replace(log=NO_LOG), 0
            requests.rows.log_entry = -1
        if rows.due:
            under_way = servers.engines.step[np.isfinite(servers.engines.busy_until_s)]
            rows.fold(known(), int(under_way.min(initial=cursor[STEP])))
    logged = queue.log[:, : cursor[PREEMPTION]].copy()
    preemptions = {} if rows.folds else dict(zip(PREEMPTIONS, logged, strict=True))
    return rows.log(
        known(), status=own("status"), prompt_tokens=plan.prompts, output_tokens=plan.outputs,
        preemptions=own("preemptions"), preempted_before_s=own("preempted_before_first_s"),
        preempted_after_s=own("preempted_after_first_s"), stall_s=own("stall_s"), **preemptions,
    )  # fmt: skip
