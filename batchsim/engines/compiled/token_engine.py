"""The compiled engine of token generation: the reference's semantics, by Numba's loops.

Steps are not bounded by requests: their columns grow, and their noise is drawn, in chunks. Between two calls
of the loop Ctrl-C is heard.
"""

import math
import threading
from collections.abc import Callable

import numpy as np

from batchsim.engines.compiled import columns, token_instants
from batchsim.engines.compiled.columns import (
    SENT,
    STEP,
    TOKEN_PLACES,
    Steps,
    TokenLimits,
    TokenQueue,
    TokenRequests,
    TokenServers,
)
from batchsim.engines.compiled.instants import ENDED
from batchsim.engines.folded_log import Progress, StepRows
from batchsim.engines.log import check_cancelled
from batchsim.engines.token_log import Batching, TokenLog, TokenPlan
from batchsim.scenario import ClosedLoop, Scenario, StepTime

SLICE = 4_000_000  # rows and steps a call: some tens of milliseconds
CHUNK = 1 << 14  # steps


class Loop:
    """The compiled loop between its calls: engines, clients, and the noise of the steps to come."""

    def __init__(self, scenario: Scenario, requests: int, draw: Callable[[int], np.ndarray] | None) -> None:
        service, workload = scenario.service, scenario.workload
        assert isinstance(service, StepTime)
        self.batching, self.cost = Batching.of(scenario), service.cost
        seats = min(self.batching.seats, requests)
        self.servers = TokenServers.allocate(scenario.servers, seats, self.batching)
        self.cursor, self.sums, self.done = (
            np.zeros(TOKEN_PLACES, np.int64), np.zeros(6, np.int64), np.empty(seats, np.int64)
        )  # fmt: skip
        self.clients = columns.Clients.allocate(workload.clients if isinstance(workload, ClosedLoop) else 0)
        self.clients.send_at_once(self.cursor)
        one = scenario.limits[0]  # of all: tokens go without levels
        self.queue_limit = columns.ENDLESS if one.queue is None else one.queue
        self.timeout_s = one.timeout_s
        self.draw, self.noise, self.room = draw, columns.NONE, max(CHUNK, 2 * scenario.servers)
        self.rows: Steps | None = (
            None  # that all calls write to, and of which nobody needs more than the ends
        )

    def advance(
        self, requests: TokenRequests, line: TokenQueue, total: int, until_s: float = math.inf
    ) -> tuple[int, Steps, int]:
        """Call the loop once; return how it ended, the steps, and how many of these it has filled."""
        limits = TokenLimits(self.queue_limit, self.timeout_s, SLICE, total, until_s, self.rows is None)
        first = int(self.cursor[STEP])
        if self.draw is not None:
            self.noise = np.append(self.noise, self.draw(self.room - self.noise.size))
        if self.rows is None:
            steps = Steps.allocate(self.room, first, self.noise)
        else:
            steps = self.rows._replace(first=first, noise=self.noise)
        state = token_instants.pass_steps(
            limits, self.batching, self.cost, requests, line, self.clients, self.servers, steps, self.sums,
            self.done, self.cursor,
        )  # fmt: skip
        used = int(self.cursor[STEP]) - first
        self.noise = self.noise[used:]
        return state, steps, used


def run(plan: TokenPlan, cancelled: threading.Event | None = None, room: float = math.inf) -> TokenLog:
    """Run a plan and return what happened: the very arrays that the reference engine returns.

    Beyond `room` steps, a `FoldedLog`. Once `cancelled` is set, the run is given up at its next slice.
    """
    count, requests = plan.base.requests, TokenRequests.of(plan)
    loop, line = Loop(plan.scenario, count, plan.noise()), TokenQueue(*np.empty((2, count), np.int64))
    rows, cursor, servers = StepRows(room, count), loop.cursor, loop.servers

    def known() -> Progress:
        columns = requests.arrival_s, requests.first_step, requests.token_step, requests.last_step
        return Progress(*(column[: cursor[SENT]] for column in columns))

    over = False
    while not over:
        check_cancelled(cancelled)
        state, steps, used = loop.advance(requests, line, count)
        over = state == ENDED
        rows.add([column[:used] for column in steps[2:]])
        if rows.due:
            under_way = servers.step[np.isfinite(servers.busy_until_s)]
            rows.fold(known(), int(under_way.min(initial=cursor[STEP])))
    return rows.log(
        known(), status=requests.status, prompt_tokens=plan.prompts, output_tokens=plan.outputs,
        preemptions=requests.preemptions, preempted_before_s=requests.preempted_before_first_s,
        preempted_after_s=requests.preempted_after_first_s,
    )  # fmt: skip
