"""The reference engine of token generation: the SimPy processes of `instants`, with steps instead of batches.

A source (or clients) sends requests into one queue, and engines compute steps. `token_steps` chooses the
requests of a step.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import simpy

from batchsim._clock import TICK_S, later
from batchsim.engines.folded_log import Progress, StepRows
from batchsim.engines.log import Status
from batchsim.engines.reference.instants import Instants
from batchsim.engines.reference.token_memory import engine_for
from batchsim.engines.reference.token_steps import Engine, Request
from batchsim.engines.token_log import PREEMPTIONS, REGAINED, RESUMED, STEPS, Batching, TokenLog, TokenPlan
from batchsim.scenario.step_time import step_ms

CHUNK = 1024  # steps: their noise is drawn, and their rows become columns, in chunks


class Dispatcher(Instants):
    """The queue, the engines and the log of one run."""

    def __init__(
        self, plan: TokenPlan, room: float = math.inf, env: simpy.Environment | None = None
    ) -> None:  # fmt: skip
        super().__init__(plan.base, env)
        self.plan, scenario = plan, plan.scenario
        self.batching, self.cost = Batching.of(scenario), plan.cost
        one = scenario.limits[0]  # the only one: token generation has no levels
        self.queue_limit, self.timeout_s = one.queue, one.timeout_s
        self.noise, self.prefixes = self.factors(), plan.prefixes
        self.shared = self.prefixes.counts(plan.paths, plan.prompts, self.batching.block_size)
        self.numbers: Sequence[int] = range(plan.base.requests)  # of the requests, in the plan
        # The state of the run.
        self.queue: deque[Request] = deque()
        make, memory = engine_for(scenario.rule), self.batching.kv_blocks
        self.engines = [
            make(number, self.batching, memory, scenario.rule, self.cost.draft)
            for number in range(scenario.servers)
        ]
        self.step_of = [-1 for _ in self.engines]  # the number of each engine's step
        # The rest of the log: a row for each request, step and preemption.
        count = plan.base.requests
        self.first_step, self.token_step, self.last_step = ([-1] * count for _ in range(3))
        self.preemptions = [0] * count
        self.preempted_s = [[0.0] * count for _ in range(2)]  # before the first token, and after it
        self.back_s: dict[int, float] = {}  # when those requests were preempted that are preempted now
        self.token_s = [math.nan] * count  # when each request made its last token
        self.stall_s = [0.0] * count
        self.late: list[tuple[float, ...]] = []  # not in `rows` yet, as `LATE`
        self.log_rows: list[list[int]] = []  # as in `PREEMPTIONS`
        self.log_row: dict[int, int] = {}  # of a request's latest preemption, until it makes a token again
        self.steps: list[tuple[float | int, ...]] = []  # not in `rows` yet
        self.rows, self.started = StepRows(room, count, watts=scenario.watts_at), 0

    def factors(self) -> Iterator[float]:
        """Yield the noise of one step after the other; 1 without noise."""
        draw = self.plan.noise()
        while True:
            yield from [1.0] if draw is None else draw(CHUNK).tolist()

    def try_enqueue(self, request: int) -> bool:
        if self.queue_limit is not None and len(self.queue) >= self.queue_limit:
            return False
        plan, drawn = self.plan, self.numbers[request]
        prompt, output, limit = (int(each[drawn]) for each in (plan.prompts, plan.outputs, plan.limits))
        path, shared = int(plan.paths[drawn]), int(self.shared[drawn])
        contents = [self.prefixes.contents(path, block) for block in range(shared)]
        self.queue.append(Request(request, self.env.now, prompt, output, limit, shared=contents))
        return True

    def release(self, server: int) -> list[int]:
        """End an engine's step; return the requests that leave."""
        step, (made, done) = self.step_of[server], self.engines[server].finish_step()
        self.engines[server].ended_s = self.env.now
        for request in made:
            if request.generated > request.output:
                continue  # a whole batch computes it on
            if request.generated == 1:
                self.token_step[request.number] = step
            else:
                gap_s = self.env.now - self.token_s[request.number]
                self.stall_s[request.number] = max(self.stall_s[request.number], gap_s)
            self.token_s[request.number] = self.env.now
            if request.number in self.log_row:
                self.log_rows[self.log_row.pop(request.number)][REGAINED] = step
        for request in done:
            self.last_step[request.number] = step
        return [request.number for request in done]

    def dispatch(self) -> None:
        """Start steps, each on the lowest-numbered idle engine that can, until no engine can.

        After each, ask from the lowest again: a preempted request may run on an engine that was idle.
        """
        while any(not engine.rows and self.start(engine) for engine in self.engines):
            pass

    def start(self, engine: Engine) -> bool:
        """Start the next step of an engine; return whether it has one."""
        if self.env.now < engine.ready_s(self.queue):
            return False
        engine.schedule(self.queue, self.env.now, self.ended)
        for victim in engine.preempted:
            self.preemptions[victim.number] += 1
            self.back_s[victim.number] = self.env.now
            self.log_row[victim.number] = len(self.log_rows)
            self.log_rows.append([victim.number, self.started, -1, -1])
        if not engine.rows:
            return False
        rows, number, engine.begun_s = engine.rows, engine.number, self.env.now
        sums = [sum(getattr(row, name) for row in rows) for name in ("tokens", "reads", "pairs")]
        decodes = sum(row.tokens == 1 for row in rows)
        seconds = step_ms(self.cost, sums[0], sums[1], sums[2], decodes) / 1000 * next(self.noise)
        # It takes at least a tick: no step ends at the instant at which it starts.
        finish_s = later(self.env.now, max(seconds, TICK_S))
        for row in rows:
            if self.first_step[row.request.number] < 0:
                row.request.started = True
                self.first_step[row.request.number] = self.started
            elif row.request.number in self.back_s:
                away_s = self.preempted_s[row.request.generated > 0]
                away_s[row.request.number] += self.env.now - self.back_s.pop(row.request.number)
                self.log_rows[self.log_row[row.request.number]][RESUMED] = self.started
        froms = Counter(self.token_s[request.number] for request in engine.making() if request.generated)
        gaps = froms.pop(engine.ended_s, 0)
        self.late += [(self.started, from_s, count) for from_s, count in froms.items()]
        used = self.batching.kv_blocks - engine.free
        self.step_of[number] = self.started
        self.steps.append((
            self.env.now, finish_s, len(rows), number, engine.trigger, *sums,
            len(engine.running), len(self.queue), used, len(engine.preempted), gaps,
        ))  # fmt: skip
        self.started += 1
        self.assigned[number].succeed(finish_s)
        if len(self.steps) >= CHUNK:
            self.keep()
        return True

    def expire(self) -> list[int]:
        """Let the requests whose timeout is over leave, unless they have started; return them."""
        if self.timeout_s == math.inf:
            return []
        late = [r for r in self.queue if not r.started and self.env.now >= later(r.arrival_s, self.timeout_s)]
        for request in late:
            self.queue.remove(request)
            self.status[request.number] = Status.TIMED_OUT
        return [request.number for request in late]

    def due_s(self) -> float:
        idle = [engine.ready_s(self.queue) for engine in self.engines if not engine.rows]
        due_s = min((ready_s for ready_s in idle if ready_s > self.env.now), default=math.inf)
        oldest = next((request for request in self.queue if not request.started), None)
        if oldest is None:
            return due_s
        due_s = min(due_s, later(oldest.arrival_s, self.timeout_s))
        if self.batching.whole and not all(engine.rows for engine in self.engines):
            wake_s = later(oldest.arrival_s, self.batching.wait_s)
            if wake_s > self.env.now:  # else it was checked at this instant
                due_s = min(due_s, wake_s)
        return due_s

    def keep(self) -> None:
        """Turn the steps into columns; fold them if there are too many."""
        self.rows.add(
            list(zip(*self.steps, strict=True)) or [()] * len(STEPS), list(zip(*self.late, strict=True))
        )
        self.steps.clear()
        self.late.clear()
        if self.rows.due:
            under_way = (step for step, engine in zip(self.step_of, self.engines, strict=True) if engine.rows)
            self.rows.fold(self.known(), min(under_way, default=self.started))

    def known(self) -> Progress:
        steps = (np.array(each, np.int64) for each in (self.first_step, self.token_step, self.last_step))
        came = len(self.arrival_s)
        return Progress(np.array(self.arrival_s, float), *(each[:came] for each in steps))

    def run(self) -> TokenLog:
        self.run_processes()
        return self.log()

    def log(self) -> TokenLog:
        """Return the log of a run that is over."""
        self.keep()
        came = len(self.numbers)
        before_s, after_s = (np.array(each, float) for each in self.preempted_s)
        preemptions: dict[str, Any] = {}
        if not self.rows.folds:
            columns = np.array(self.log_rows, np.int64).reshape(-1, len(PREEMPTIONS)).T.copy()
            preemptions = dict(zip(PREEMPTIONS, columns, strict=True))
        return self.rows.log(
            self.known(), status=np.array(self.status, np.uint8),
            preemptions=np.array(self.preemptions[:came], np.int64), preempted_before_s=before_s[:came],
            preempted_after_s=after_s[:came], prompt_tokens=self.plan.prompts[self.numbers],
            output_tokens=self.plan.outputs[self.numbers], stall_s=np.array(self.stall_s[:came], float),
            **preemptions,
        )  # fmt: skip


def run(plan: TokenPlan, room: float = math.inf) -> TokenLog:
    """Run a plan and return its log; with more than `room` steps it is a `FoldedLog`."""
    return Dispatcher(plan, room).run()
