"""The reference engine of token generation: SimPy processes that read like the story.

A source (or clients) sends requests into one line, engines compute steps, and at an instant the dispatcher
takes the four steps of `instants`: open arrivals; the steps that end, and a look at every engine
without one; requests that have waited too long leave; clients send. What a step serves is chosen in
`reference_schedule`.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from batchsim._clock import TICK_S, later
from batchsim.engines.folded_log import Progress, StepRows
from batchsim.engines.log import Status
from batchsim.engines.reference.instants import Instants
from batchsim.engines.reference.token_steps import (
    ENGINE_FOR_RULE,
    Engine,
    Request,
    ReusingEngine,
    WholeEngine,
    leaving,
)
from batchsim.engines.token_log import PREEMPTIONS, REGAINED, RESUMED, STEPS, Batching, TokenLog, TokenPlan
from batchsim.scenario import Continuous
from batchsim.scenario.step_time import step_ms

CHUNK = 1024  # factors of noise drawn at a time, and steps made columns


class Dispatcher(Instants):
    """The line, the engines and the log of one run."""

    def __init__(self, plan: TokenPlan, room: float = math.inf) -> None:
        super().__init__(plan.base)
        self.plan, scenario = plan, plan.scenario
        self.batching, self.cost = Batching.of(scenario), plan.cost
        one = scenario.limits[0]  # of all: tokens go without levels
        self.queue_limit, self.timeout_s = one.queue, one.timeout_s
        self.noise = self.factors()
        # The state of the run.
        self.line: deque[Request] = deque()
        make = WholeEngine if self.batching.whole else ENGINE_FOR_RULE.get(type(scenario.rule), Engine)
        if isinstance(scenario.rule, Continuous) and scenario.rule.reuses:
            make = ReusingEngine
        numbers, memory = range(scenario.servers), self.batching.kv_blocks
        self.engines = [make(number, self.batching, memory, scenario.rule) for number in numbers]
        self.step_of = [-1 for _ in self.engines]  # the number of each engine's step
        # The log, besides: a row a request, and a row a step.
        count = plan.base.requests
        self.first_step, self.token_step, self.last_step = ([-1] * count for _ in range(3))
        self.preemptions = [0] * count
        self.preempted_s = [[0.0] * count for _ in range(2)]  # before the first token, and after it
        self.back_s: dict[int, float] = {}  # by preempted request: when it was
        self.log_rows: list[list[int]] = []  # a row for each preemption, as in `PREEMPTIONS`
        self.log_row: dict[int, int] = {}  # of a request's latest preemption, until it makes a token again
        self.steps: list[tuple[float | int, ...]] = []  # those that are not in `rows` yet
        self.rows, self.started = StepRows(room, count), 0

    def factors(self) -> Iterator[float]:
        """Yield the noise of one step after the other; 1 without noise, which changes nothing."""
        draw = self.plan.noise()
        while True:
            yield from [1.0] if draw is None else draw(CHUNK).tolist()

    def try_enqueue(self, request: int) -> bool:
        if self.queue_limit is not None and len(self.line) >= self.queue_limit:
            return False
        plan = self.plan
        prompt, output, limit = (int(each[request]) for each in (plan.prompts, plan.outputs, plan.limits))
        self.line.append(Request(request, self.env.now, prompt, output, limit))
        return True

    def release(self, server: int) -> list[int]:
        """End an engine's step; return the requests that leave."""
        step, (made, done) = self.step_of[server], self.engines[server].finish_step()
        for request in made:
            if request.generated == 1:
                self.token_step[request.number] = step
            if request.number in self.log_row:
                self.log_rows[self.log_row.pop(request.number)][REGAINED] = step
        for request in done:
            self.last_step[request.number] = step
        return [request.number for request in done]

    def dispatch(self) -> None:
        """Let the lowest-numbered engine without a step that finds something to do start one, till none does.

        From the lowest again after each: a victim of preemption may run on an engine that found nothing.
        """
        while any(not engine.rows and self.start(engine) for engine in self.engines):
            pass

    def start(self, engine: Engine) -> bool:
        """Start an engine's next step; return whether there is anything to do."""
        if isinstance(engine, WholeEngine) and not engine.running:
            size, trigger = (
                leaving(self.line, self.env.now, self.batching, self.ended) if self.line else (0, 0)
            )
            if size:
                engine.board(self.line, size, trigger)
        else:
            engine.schedule(self.line)
        for victim in engine.preempted:
            self.preemptions[victim.number] += 1
            self.back_s[victim.number] = self.env.now
            self.log_row[victim.number] = len(self.log_rows)
            self.log_rows.append([victim.number, self.started, -1, -1])
        if not engine.rows:
            return False
        rows, number = engine.rows, engine.number
        sums = [sum(getattr(row, name) for row in rows) for name in ("tokens", "reads", "pairs")]
        seconds = step_ms(self.cost, *sums) / 1000 * next(self.noise)
        # However short, it takes a tick of the clock: a step never ends at the instant at which it starts.
        finish_s = later(self.env.now, max(seconds, TICK_S))
        for row in rows:
            if self.first_step[row.request.number] < 0:
                row.request.started = True
                self.first_step[row.request.number] = self.started
            elif row.request.number in self.back_s:
                away_s = self.preempted_s[row.request.generated > 0]
                away_s[row.request.number] += self.env.now - self.back_s.pop(row.request.number)
                self.log_rows[self.log_row[row.request.number]][RESUMED] = self.started
        used = self.batching.kv_blocks - engine.free
        self.step_of[number] = self.started
        self.steps.append((
            self.env.now, finish_s, len(rows), number, engine.trigger, *sums,
            len(engine.running), len(self.line), used, len(engine.preempted),
        ))  # fmt: skip
        self.started += 1
        self.assigned[number].succeed(finish_s)
        if len(self.steps) >= CHUNK:
            self.keep()
        return True

    def expire(self) -> list[int]:
        """Let the requests that have waited too long leave, unless they had started; return them."""
        if self.timeout_s == math.inf:
            return []
        late = [r for r in self.line if not r.started and self.env.now >= later(r.arrival_s, self.timeout_s)]
        for request in late:
            self.line.remove(request)
            self.status[request.number] = Status.TIMED_OUT
        return [request.number for request in late]

    def due_s(self) -> float:
        oldest = next((request for request in self.line if not request.started), None)
        if oldest is None:
            return math.inf
        due_s = later(oldest.arrival_s, self.timeout_s)
        if self.batching.whole and not all(engine.rows for engine in self.engines):
            wake_s = later(oldest.arrival_s, self.batching.wait_s)
            if wake_s > self.env.now:  # else they have looked already
                due_s = min(due_s, wake_s)
        return due_s

    def keep(self) -> None:
        """Keep the steps as columns, folded where they are too many."""
        self.rows.add(list(zip(*self.steps, strict=True)) or [()] * len(STEPS))
        self.steps.clear()
        if self.rows.due:
            under_way = (step for step, engine in zip(self.step_of, self.engines, strict=True) if engine.rows)
            self.rows.fold(self.known(), min(under_way, default=self.started))

    def known(self) -> Progress:
        steps = (np.array(each) for each in (self.first_step, self.token_step, self.last_step))
        came = len(self.arrival_s)
        return Progress(np.array(self.arrival_s, float), *(each[:came] for each in steps))

    def run(self) -> TokenLog:
        self.run_processes()
        self.keep()
        before_s, after_s = (np.array(each, float) for each in self.preempted_s)
        preemptions: dict[str, Any] = {}
        if not self.rows.folds:
            columns = np.array(self.log_rows, np.int64).reshape(-1, len(PREEMPTIONS)).T.copy()
            preemptions = dict(zip(PREEMPTIONS, columns, strict=True))
        return self.rows.log(
            self.known(), status=np.array(self.status, np.uint8), preemptions=np.array(self.preemptions),
            preempted_before_s=before_s, preempted_after_s=after_s, prompt_tokens=self.plan.prompts,
            output_tokens=self.plan.outputs, **preemptions,
        )  # fmt: skip


def run(plan: TokenPlan, room: float = math.inf) -> TokenLog:
    """Run a plan and return what happened; beyond `room` steps, a `FoldedLog`."""
    return Dispatcher(plan, room).run()
