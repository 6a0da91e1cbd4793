"""The reference engine: SimPy processes that drive arrivals into the very InferenceBatcher.

A source (or clients) sends requests, a collector puts them into batches, servers compute them. The processes
and the four steps of an instant are in `instants`; here is what each step does.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from batchsim._clock import TICK_S, later, not_before
from batchsim.engines.draws import Plan
from batchsim.engines.log import Log, Status
from batchsim.engines.reference.instants import Instants
from batchsim.engines.reference.queue import WaitingQueue
from batchsim.engines.stopwatch import Stopwatch
from batchsim.scenario.rules.rule import FREEZE, REFUSE, START


class Collector(Instants):
    """The queue and all that acts on it: one run of a plan."""

    def __init__(
        self, plan: Plan, model_fn: Callable[[Any], Any] | None = None, inputs: Sequence[Any] | None = None
    ) -> None:
        super().__init__(plan)
        self.plan = plan
        self.rule = plan.scenario.rule
        self.inputs = inputs
        self.outputs: list[Any] | None = None if inputs is None else [None] * plan.requests
        self.line = WaitingQueue(plan, lambda: self.env.now, self.arrival_s, model_fn, self.outputs)
        self.asked_while_busy = self.rule.asked_while_busy
        # The state of the run.
        self.idle = list(range(plan.scenario.servers))
        self.in_service: list[list[int]] = [[] for _ in self.idle]
        self.computing = [(-1, 0) for _ in self.idle]  # each server's batch, and as how many it is computed
        self.host_s, self.contention = plan.scenario.host_ms / 1000, plan.scenario.contention
        self.ready_s: dict[int, float] = {}  # by shape: when it is, or was, compiled
        self.device_free_s = [0.0] * plan.scenario.device_count
        # The log, besides: a row a request, and a row a batch.
        self.batch_index: list[int] = []
        self.batches: list[tuple[float, float, int, int, int]] = []

    def try_enqueue(self, request: int) -> bool:
        self.batch_index.append(-1)
        self.line.ended = self.ended
        return self.line.enter(request, None if self.inputs is None else self.inputs[request])

    def release(self, server: int) -> list[int]:
        """Let a server whose batch ends be idle; return the requests that it computed."""
        self.idle.append(server)
        self.idle.sort()
        if self.rule.finished is not None:
            batch, size = self.computing[server]
            start_s, finish_s, *_ = self.batches[batch]
            line = self.line
            self.rule.finished(self.env.now, size, finish_s - start_s, line.memory, line.params)
        return self.in_service[server]

    def dispatch(self) -> None:
        """Start batches, each on the lowest-numbered idle server, until the rule has nothing to do."""
        while (self.idle or self.asked_while_busy) and self.line:
            action, size, trigger = self.line.decide(len(self.idle))
            if action == START and self.idle:
                if self.line.frozen:
                    requests, trigger = self.line.frozen.popleft()
                else:
                    self.line.bring(size)
                    requests = self.line.take(size)
                self.start(self.idle.pop(0), requests, trigger)
            elif action == FREEZE and self.rule.freezes:
                self.line.frozen.append((self.line.take(size), trigger))
            elif action == REFUSE:
                self.refuse(self.line.refuse(size))
            else:
                return

    def refuse(self, requests: list[int]) -> None:
        for request in requests:
            self.status[request] = Status.REJECTED
        self.refused += requests

    def start(self, server: int, requests: list[int], trigger: int) -> None:
        batch, size, rule = len(self.batches), len(requests), self.rule
        if rule.computed_as is not None:
            size = rule.computed_as(size, self.line.memory, self.line.params)
        self.line.levels.left(requests)
        for request in requests:
            self.batch_index[request] = batch
        # First compiling and its part on the host, then the rest on the server's device, when that is free.
        device = server % len(self.device_free_s)
        begin_s, free_s = later(self.compiled_s(size), self.host_s), self.device_free_s[device]
        service_s = self.line.measured_s.pop(requests[0], float(self.plan.service_s[size]))
        seconds = service_s - self.host_s
        if self.plan.noise is not None:
            seconds *= float(self.plan.noise[batch])
        if self.plan.slowdown is not None:
            seconds *= float(self.plan.slowdown[self.plan.scenario.servers - len(self.idle)])
        if free_s > begin_s:
            begin_s, seconds = free_s, seconds * self.contention
        # However short, it takes a tick of the clock: a batch never ends at the instant at which it starts.
        finish_s = max(later(begin_s, seconds), later(self.env.now, TICK_S))
        # A device computes in order of start: no batch that starts later changes this one's finish.
        self.device_free_s[device] = finish_s
        self.batches.append((self.env.now, finish_s, len(requests), server, int(trigger)))
        self.in_service[server], self.computing[server] = requests, (batch, size)
        self.assigned[server].succeed(finish_s)

    def compiled_s(self, size: int) -> float:
        """Return when a batch that starts now is computed: at once, or when its shape has been compiled."""
        if self.plan.cold_start is None:
            return self.env.now
        seconds, shapes = self.plan.cold_start
        # The first batch of a shape lets it be compiled; others that start meanwhile wait for it, too.
        ready_s = self.ready_s.setdefault(int(shapes[size]), later(self.env.now, float(seconds[size])))
        return max(self.env.now, ready_s)

    def expire(self) -> list[int]:
        """Let the requests that have waited too long leave; return them."""
        gone = self.line.levels.expire(self.env.now)
        for request in gone:
            self.status[request] = Status.TIMED_OUT
        return gone

    def due_s(self) -> float:
        due_s = self.line.levels.expiry_s()
        if (self.idle or self.asked_while_busy) and self.line:
            wake_s = not_before(self.line.wake_s(len(self.idle)))
            if wake_s > self.env.now:  # else the rule has been asked already
                due_s = min(due_s, wake_s)
        return due_s

    def run(self) -> Log:
        self.run_processes()
        kinds = float, np.int64, np.uint8, float, float, np.int64, np.int64, np.uint8  # as in `Log`
        batches: Any = zip(*self.batches, strict=True) if self.batches else ((),) * 5
        columns: list[Any] = [self.arrival_s, self.batch_index, self.status, *batches]
        logged: list[Any] = [*map(np.array, columns, kinds), self.plan.priority, self.outputs]
        return Log(*logged)


def run(plan: Plan, model_fn: Callable[[Any], Any] | None = None, inputs: Sequence[Any] | None = None) -> Log:
    """Run a plan, with `model_fn` on `inputs` if given, and return what happened.

    The time that a `Stopwatch` takes of each batch stands for the service time, its noise and its cold start.
    """
    if isinstance(model_fn, Stopwatch):
        plan = replace(plan, noise=None, cold_start=None)
    return Collector(plan, model_fn, inputs).run()
