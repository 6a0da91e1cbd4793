"""The reference engine: SimPy processes around the InferenceBatcher of the textbook.

`instants` has the processes and the order of the four steps of an instant; this module has their effects on
queue, servers and log.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import simpy

from batchsim._clock import TICK_S, later, not_before
from batchsim.engines.draws import Plan
from batchsim.engines.log import Log, Status
from batchsim.engines.reference.instants import Instants
from batchsim.engines.reference.queue import WaitingQueue
from batchsim.engines.stopwatch import Stopwatch
from batchsim.scenario.rules.rule import FREEZE, REFUSE, START
from batchsim.scenario.sized_time import edge_of, extra_s


class Collector(Instants):
    """One run of a plan: its queue, its servers and its log."""

    def __init__(
        self, plan: Plan, model_fn: Callable[[Any], Any] | None = None, inputs: Sequence[Any] | None = None,
        env: simpy.Environment | None = None,
    ) -> None:  # fmt: skip
        super().__init__(plan, env)
        self.plan = plan
        self.rule = plan.scenario.rule
        self.inputs = inputs
        self.outputs: list[Any] | None = None if inputs is None else [None] * plan.requests
        self.queue = WaitingQueue(plan, lambda: self.env.now, self.arrival_s, model_fn, self.outputs)
        self.asked_while_busy = self.rule.asked_while_busy
        # The state of the run.
        self.idle = list(range(plan.scenario.servers))
        self.in_service: list[list[int]] = [[] for _ in self.idle]
        self.computing = [(-1, 0) for _ in self.idle]  # each server's batch, and the size it is filled up to
        self.host_s, self.contention = plan.scenario.host_ms / 1000, plan.scenario.contention
        self.ready_s: dict[int, float] = {}  # by shape: when it is, or was, compiled
        self.device_free_s = [0.0] * plan.scenario.device_count
        # The rest of the log: a row for each request, and for each batch.
        self.batch_index: list[int] = []
        self.batches: list[tuple[float, float, int, int, int]] = []

    def try_enqueue(self, request: int) -> bool:
        self.batch_index.append(-1)
        self.queue.ended = self.ended
        return self.queue.enter(request, None if self.inputs is None else self.inputs[request])

    def release(self, server: int) -> list[int]:
        """Make a server idle as its batch ends; return the requests of the batch."""
        self.idle.append(server)
        self.idle.sort()
        if self.rule.finished is not None:
            batch, size = self.computing[server]
            start_s, finish_s, *_ = self.batches[batch]
            self.rule.finished(self.env.now, size, finish_s - start_s, self.queue.memory, self.queue.params)
        return self.in_service[server]

    def dispatch(self) -> None:
        """Do what the rule decides until it decides nothing; the lowest idle server takes a batch."""
        while (self.idle or self.asked_while_busy) and self.queue:
            action, size, trigger = self.queue.decide(len(self.idle))
            if action == START and self.idle:
                if self.queue.frozen:
                    requests, trigger = self.queue.frozen.popleft()
                else:
                    self.queue.bring(size)
                    requests = self.queue.take(size)
                self.start(self.idle.pop(0), requests, trigger)
            elif action == FREEZE and self.rule.freezes:
                self.queue.frozen.append((self.queue.take(size), trigger))
            elif action == REFUSE:
                self.refuse(self.queue.refuse(size))
            else:
                return

    def refuse(self, requests: list[int]) -> None:
        for request in requests:
            self.status[request] = Status.REJECTED
        self.refused += requests

    def start(self, server: int, requests: list[int], trigger: int) -> None:
        batch, size, rule = len(self.batches), len(requests), self.rule
        if rule.computed_as is not None:
            size = rule.computed_as(size, self.queue.memory, self.queue.params)
        self.queue.levels.count_out(requests)
        for request in requests:
            self.batch_index[request] = batch
        mean_s, place = self.time_of(size, requests)
        # First its shape is compiled, then its host part computed; the rest waits for the server's device.
        device = server % len(self.device_free_s)
        begin_s, free_s = later(self.compiled_s(place), self.host_s), self.device_free_s[device]
        service_s = self.queue.measured_s.pop(requests[0], mean_s)
        seconds = service_s - self.host_s
        if self.plan.noise is not None:
            seconds *= float(self.plan.noise[batch])
        if self.plan.slowdown is not None:
            seconds *= float(self.plan.slowdown[self.plan.scenario.servers - len(self.idle)])
        if free_s > begin_s:
            begin_s, seconds = free_s, seconds * self.contention
        # It takes at least a tick: no batch ends at the instant at which it starts.
        finish_s = max(later(begin_s, seconds), later(self.env.now, TICK_S))
        # A device computes batches in order of start, so no later batch can change this finish.
        self.device_free_s[device] = finish_s
        self.batches.append((self.env.now, finish_s, len(requests), server, int(trigger)))
        self.in_service[server], self.computing[server] = requests, (batch, size)
        self.assigned[server].succeed(finish_s)

    def time_of(self, count: int, requests: list[int]) -> tuple[float, int]:
        """Return the mean seconds of a batch computed as one of `count`, and its place in the cold start."""
        mean_s, cost = float(self.plan.service_s[count]), self.plan.unit_cost
        if not cost.rows.size:
            return mean_s, count
        sizes = [self.queue.sizes[request] for request in requests]
        longest, squares = max(sizes), sum(size * size for size in sizes)
        mean_s += float(extra_s(count, longest, sum(sizes), squares, cost))
        return mean_s, count * max(cost.edges.size, 1) + edge_of(longest, cost)

    def compiled_s(self, place: int) -> float:
        """Return when computing a batch that starts now begins: at once, or when its shape is compiled."""
        if self.plan.cold_start is None:
            return self.env.now
        seconds, shapes = self.plan.cold_start
        # The first batch of a shape starts its compilation; others that start meanwhile wait for it, too.
        ready_s = self.ready_s.setdefault(int(shapes[place]), later(self.env.now, float(seconds[place])))
        return max(self.env.now, ready_s)

    def expire(self) -> list[int]:
        """Let the requests whose timeout is over leave; return them."""
        gone = self.queue.levels.expire(self.env.now)
        for request in gone:
            self.status[request] = Status.TIMED_OUT
        return gone

    def due_s(self) -> float:
        due_s = self.queue.levels.expiry_s()
        if (self.idle or self.asked_while_busy) and self.queue:
            wake_s = not_before(self.queue.wake_s(len(self.idle)))
            if wake_s > self.env.now:  # else the rule was called at this instant
                due_s = min(due_s, wake_s)
        return due_s

    def run(self) -> Log:
        self.run_processes()
        return self.log()

    def log(self) -> Log:
        """Return what happened."""
        kinds = float, np.int64, np.uint8, float, float, np.int64, np.int64, np.uint8  # as in `Log`
        batches: Any = zip(*self.batches, strict=True) if self.batches else ((),) * 5
        columns: list[Any] = [self.arrival_s, self.batch_index, self.status, *batches]
        logged: list[Any] = [*map(np.array, columns, kinds), self.plan.priority, self.outputs, self.plan.size]
        return Log(*logged)


def run(plan: Plan, model_fn: Callable[[Any], Any] | None = None, inputs: Sequence[Any] | None = None) -> Log:
    """Run a plan, with `model_fn` on `inputs` if given, and return its log.

    The measured times of a `Stopwatch` replace service times, noise and cold starts.
    """
    if isinstance(model_fn, Stopwatch):
        plan = replace(plan, noise=None, cold_start=None)
    return Collector(plan, model_fn, inputs).run()
