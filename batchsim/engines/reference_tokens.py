"""The reference engine of token generation: SimPy processes that read like the story.

A source (or clients) sends requests into one line, engines compute steps, a dispatcher takes an instant's
four steps: open arrivals; the steps that end, and a look at every engine without one; requests that have
waited too long leave; clients send. What a step serves is chosen in `reference_schedule`.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np
import simpy

from batchsim.engines.log import Status
from batchsim.engines.reference import At, Story
from batchsim.engines.reference_schedule import Engine, Request, WholeEngine, leaving
from batchsim.engines.tokens_log import STEPS, Batching, TokenLog, TokenPlan
from batchsim.scenario.step_time import step_ms

CHUNK = 1024  # factors of noise drawn at a time


class Dispatcher:
    """The line, the engines and the log of one run."""

    def __init__(self, plan: TokenPlan) -> None:
        self.plan, scenario = plan, plan.scenario
        self.env = simpy.Environment(0.0)
        self.batching, self.cost = Batching.of(scenario), plan.cost
        one = scenario.limits[0]  # of all: tokens go without levels
        self.queue_limit, self.timeout_s = one.queue, one.timeout_s
        self.noise = self.factors()
        # What is due at this instant, gathered by the processes and emptied by the dispatcher.
        self.arriving: list[int] = []
        self.ending: list[int] = []
        self.sending: list[int] = []
        self.called = self.env.event()
        self.alarm_s = -math.inf
        # The state of the run.
        self.line: deque[Request] = deque()
        make = WholeEngine if self.batching.whole else Engine
        numbers = range(scenario.servers)
        self.engines = [make(number, self.batching, self.batching.kv_blocks) for number in numbers]
        self.handed = [self.env.event() for _ in self.engines]
        self.step_of = [-1 for _ in self.engines]  # the number of each engine's step
        # The log, a row a request and a row a step.
        self.client: list[int] = []
        self.arrival_s: list[float] = []
        self.status: list[int] = []
        count = plan.base.requests
        self.first_step, self.token_step, self.last_step = ([-1] * count for _ in range(3))
        self.preemptions = [0] * count
        self.steps: list[tuple[float | int, ...]] = []

    def factors(self) -> Iterator[float]:
        """Yield the noise of one step after the other; 1 without noise, which changes nothing."""
        draw = self.plan.noise()
        while True:
            yield from [1.0] if draw is None else draw(CHUNK).tolist()

    # The processes: who sends, who computes, who dispatches.

    def source(self, arrival_s: Sequence[float]) -> Story:
        """Send the requests of an open loop, each at its time."""
        for request, time_s in enumerate(arrival_s):
            if time_s > self.env.now:
                yield self.env.timeout(At(time_s))
            self.arriving.append(request)
            self.call()

    def clients(self, count: int) -> None:
        """Let the clients of a closed loop send their first requests, all at time 0."""
        self.answered = [self.env.event() for _ in range(count)]
        for client in range(count):
            self.env.process(self.one_client(client))

    def one_client(self, client: int) -> Story:
        """Send, wait for the whole answer, think, and send again."""
        assert self.plan.base.think_s is not None
        while not self.ended:
            self.sending.append(client)
            self.call()
            request = yield self.answered[client]
            self.answered[client] = self.env.event()
            due_s = self.env.now + self.plan.base.think_s[request]
            if due_s > self.env.now:
                yield self.env.timeout(At(due_s))

    def engine(self, number: int) -> Story:
        while True:
            finish_s = yield self.handed[number]
            self.handed[number] = self.env.event()
            yield self.env.timeout(At(finish_s))
            self.ending.append(number)
            self.call()

    def dispatch(self) -> Story:
        """Whenever called, gather all that is due at this instant, then take its four steps."""
        while True:
            yield self.called
            yield from self.gather()
            self.called = self.env.event()
            done = self.act()
            if self.plan.base.think_s is not None:
                yield from self.answer(done)
            self.set_alarm()

    def call(self) -> None:
        """Tell the dispatcher that something is due now."""
        if not self.called.triggered:
            self.called.succeed()

    def gather(self) -> Story:
        """Let every other process that is due at this instant go first."""
        while self.env.peek() <= self.env.now:
            yield self.env.timeout(0)

    # The four steps of an instant.

    def act(self) -> list[Request]:
        """Take the first three steps; return the requests that are done."""
        arriving, self.arriving = self.arriving, []
        for _ in arriving:
            self.enter(client=-1)

        ending, self.ending = self.ending, []
        done = [request for number in sorted(ending) for request in self.finish(number)]
        self.look()

        return done + self.expire()

    def answer(self, done: list[Request]) -> Story:
        """Take the fourth step of a closed loop: clients are answered, and those that are due send."""
        for request in done:
            self.answered[self.client[request.number]].succeed(request.number)
        yield from self.gather()  # those who do not think send again at this instant
        sending, self.sending = self.sending, []
        for client in sorted(sending):
            if not self.ended:
                number = self.enter(client)
                if self.status[number] == Status.REJECTED:
                    self.answered[client].succeed(number)
                self.look()

    @property
    def ended(self) -> bool:
        """Whether the last request has come."""
        return len(self.arrival_s) == self.plan.base.requests

    def enter(self, client: int) -> int:
        """Let one request into the line, unless that is at its limit; return its number."""
        number, plan = len(self.arrival_s), self.plan
        self.arrival_s.append(self.env.now)
        self.client.append(client)
        full = self.queue_limit is not None and len(self.line) >= self.queue_limit
        self.status.append(Status.REJECTED if full else Status.SERVED)
        if not full:
            prompt, output, limit = (int(each[number]) for each in (plan.prompts, plan.outputs, plan.limits))
            self.line.append(Request(number, self.env.now, prompt, output, limit))
        return number

    def finish(self, number: int) -> list[Request]:
        """End an engine's step; return the requests that leave."""
        step, (first, done) = self.step_of[number], self.engines[number].finish_step()
        for request in first:
            self.token_step[request.number] = step
        for request in done:
            self.last_step[request.number] = step
        return done

    def look(self) -> None:
        """Start a step on every engine that has none and finds something to do, the lowest-numbered first.

        Once more after a preemption, as the victim may run on an engine that found nothing before.
        """
        started = True
        while started:
            started = False
            for engine in self.engines:
                if not engine.rows and self.start(engine):
                    started = True

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
        for victim in islice(self.line, engine.preempted):  # they are at its head
            self.preemptions[victim.number] += 1
        if not engine.rows:
            return False
        rows, number = engine.rows, engine.number
        sums = [sum(getattr(row, name) for row in rows) for name in ("tokens", "reads", "pairs")]
        seconds = step_ms(self.cost, *sums) / 1000 * next(self.noise)
        # However short, it takes a tick of the clock: a step never ends at the instant at which it starts.
        finish_s = max(self.env.now + seconds, math.nextafter(self.env.now, math.inf))
        for row in rows:
            if self.first_step[row.request.number] < 0:
                row.request.started = True
                self.first_step[row.request.number] = len(self.steps)
        used = self.batching.kv_blocks - engine.free
        self.step_of[number] = len(self.steps)
        self.steps.append((
            self.env.now, finish_s, len(rows), number, engine.trigger, *sums,
            len(engine.running), len(self.line), used, engine.preempted,
        ))  # fmt: skip
        self.handed[number].succeed(finish_s)
        return True

    def expire(self) -> list[Request]:
        """Let the requests that have waited too long leave, unless they had started; return them."""
        if self.timeout_s == math.inf:
            return []
        late = [r for r in self.line if not r.started and self.env.now >= r.arrival_s + self.timeout_s]
        for request in late:
            self.line.remove(request)
            self.status[request.number] = Status.TIMED_OUT
        return late

    def set_alarm(self) -> None:
        """Make sure that an instant comes when waiting alone would change something."""
        oldest = next((request for request in self.line if not request.started), None)
        if oldest is None:
            return
        alarm_s = oldest.arrival_s + self.timeout_s
        if self.batching.whole and not all(engine.rows for engine in self.engines):
            wake_s = oldest.arrival_s + self.batching.wait_s
            if wake_s > self.env.now:  # else they have looked already
                alarm_s = min(alarm_s, wake_s)
        # Due at this very instant: a client's send with a timeout of zero leaves before time goes on.
        if alarm_s < math.inf and (alarm_s != self.alarm_s or alarm_s <= self.env.now):
            self.alarm_s = alarm_s
            self.env.timeout(At(alarm_s)).callbacks.append(lambda _: self.call())

    def run(self) -> TokenLog:
        dispatching = self.env.process(self.dispatch())
        for engine in self.engines:
            self.env.process(self.engine(engine.number))
        base = self.plan.base
        if base.arrival_s is None:
            self.clients(base.scenario.workload.clients)  # type: ignore[union-attr]
        else:
            self.env.process(self.source(base.arrival_s.tolist()))
        try:
            self.env.run()
        except BaseException:
            if not dispatching.triggered:
                raise
        if dispatching.triggered:  # it never ends, so it has failed
            raise cast(BaseException, dispatching.value)
        steps: Any = zip(*self.steps, strict=True) if self.steps else ((),) * len(STEPS)
        kinds = {"batch_start_s": float, "batch_finish_s": float, "batch_trigger": np.uint8}
        logged: dict[str, Any] = {
            name: np.array(column, kinds.get(name, np.int64))
            for name, column in zip(STEPS, steps, strict=True)
        }
        return TokenLog(
            arrival_s=np.array(self.arrival_s, float), status=np.array(self.status, np.uint8),
            batch_index=np.array(self.first_step), token_step=np.array(self.token_step),
            last_step=np.array(self.last_step), preemptions=np.array(self.preemptions),
            prompt_tokens=self.plan.prompts, output_tokens=self.plan.outputs, **logged,
        )  # fmt: skip


def run(plan: TokenPlan) -> TokenLog:
    """Run a plan and return what happened."""
    return Dispatcher(plan).run()
