"""The reference engine: SimPy processes that drive arrivals into the very InferenceBatcher.

A source (or clients) sends requests, a collector puts them into batches, servers compute them.
SimPy handles what is due at one instant in the order in which it was scheduled, which means nothing here: so
all of it is gathered first, and then the collector takes the instant's four steps, in `Collector.collect`.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import simpy

from batchsim.engines.draws import Plan
from batchsim.engines.log import Log, Status
from batchsim.engines.reference_line import Line
from batchsim.engines.stopwatch import Stopwatch
from batchsim.scenario.rules.rule import FREEZE, START

Story = Generator[simpy.Event, Any, None]


class At(float):
    """A delay that ends at an absolute time, exactly: now + At(time) is time.

    SimPy adds delays to its clock, and now + (time - now) need not be the float `time`.
    """

    def __radd__(self, now: float) -> float:
        return float(self)


class Collector:
    """The queue and all that acts on it: one run of a plan."""

    def __init__(
        self, plan: Plan, model_fn: Callable[[Any], Any] | None = None, inputs: Sequence[Any] | None = None
    ) -> None:
        self.plan = plan
        self.rule = plan.scenario.rule
        self.env = simpy.Environment(0.0)
        self.inputs = inputs
        self.outputs: list[Any] | None = None if inputs is None else [None] * plan.requests
        self.arrival_s: list[float] = []
        self.line = Line(plan, lambda: self.env.now, self.arrival_s, model_fn, self.outputs)
        # What is due at this instant, gathered by the processes and emptied by the collector.
        self.arriving: list[int] = []
        self.ending: list[int] = []
        self.sending: list[int] = []
        self.called = self.env.event()
        self.alarm_s = -math.inf
        # The state of the run.
        self.idle = list(range(plan.scenario.servers))
        self.handed = [self.env.event() for _ in self.idle]
        self.in_service: list[list[int]] = [[] for _ in self.idle]
        self.computing = [-1 for _ in self.idle]  # the number of each server's batch
        self.host_s, self.contention = plan.scenario.host_ms / 1000, plan.scenario.contention
        self.ready_s: dict[int, float] = {}  # by shape: when it is, or was, compiled
        self.device_free_s = [0.0] * plan.scenario.device_count
        # The log, a row a request (as `arrival_s`) and a row a batch.
        self.client: list[int] = []
        self.batch_index: list[int] = []
        self.status: list[int] = []
        self.batches: list[tuple[float, float, int, int, int]] = []

    # The processes: who sends, who computes, who collects.

    def source(self, arrival_s: Sequence[float]) -> Story:
        """Send the requests of an open loop, each at its time."""
        for request, time_s in enumerate(arrival_s):
            if time_s > self.env.now:
                yield self.env.timeout(At(time_s))
            self.arriving.append(request)
            self.call()
        self.line.ended = True

    def clients(self, count: int) -> None:
        """Let the clients of a closed loop send their first requests, all at time 0."""
        self.answered = [self.env.event() for _ in range(count)]
        for client in range(count):
            self.env.process(self.one_client(client))

    def one_client(self, client: int) -> Story:
        """Send, wait for the answer, think, and send again."""
        assert self.plan.think_s is not None
        while not self.line.ended:
            self.sending.append(client)
            self.call()
            request = yield self.answered[client]
            self.answered[client] = self.env.event()
            due_s = self.env.now + self.plan.think_s[request]
            if due_s > self.env.now:
                yield self.env.timeout(At(due_s))

    def server(self, number: int) -> Story:
        while True:
            finish_s = yield self.handed[number]
            self.handed[number] = self.env.event()
            yield self.env.timeout(At(finish_s))
            self.ending.append(number)
            self.call()

    def collect(self) -> Story:
        """Whenever called, gather all that is due at this instant, then take its four steps."""
        while True:
            yield self.called
            yield from self.gather()
            self.called = self.env.event()
            done = self.act()
            if self.plan.think_s is not None:
                yield from self.answer(done)
            self.set_alarm()

    def call(self) -> None:
        """Tell the collector that something is due now."""
        if not self.called.triggered:
            self.called.succeed()

    def gather(self) -> Story:
        """Let every other process that is due at this instant go first."""
        while self.env.peek() <= self.env.now:
            yield self.env.timeout(0)

    # The four steps of an instant.

    def act(self) -> list[int]:
        """Take the first three steps; return the requests that are done."""
        arriving, self.arriving = self.arriving, []
        for _ in arriving:
            self.enter(client=-1)

        ending, self.ending = self.ending, []
        done = [request for server in sorted(ending) for request in self.release(server)]
        self.dispatch()

        return done + self.expire()

    def answer(self, done: list[int]) -> Story:
        """Take the fourth step of a closed loop: clients are answered, and those that are due send."""
        for request in done:
            self.answered[self.client[request]].succeed(request)
        yield from self.gather()  # those who do not think send again at this instant
        sending, self.sending = self.sending, []
        for client in sorted(sending):
            if not self.line.ended:
                self.send(client)

    def enter(self, client: int) -> bool:
        """Let one request into the queue, unless that is at its limit; return whether it is in."""
        request = len(self.arrival_s)
        self.arrival_s.append(self.env.now)
        self.client.append(client)
        self.batch_index.append(-1)
        enters = self.line.enter(request, None if self.inputs is None else self.inputs[request])
        self.status.append(Status.SERVED if enters else Status.REJECTED)
        return enters

    def release(self, server: int) -> list[int]:
        """Let a server whose batch ends be idle; return the requests that it computed."""
        self.idle.append(server)
        self.idle.sort()
        if self.rule.finished is not None:
            start_s, finish_s, size, *_ = self.batches[self.computing[server]]
            line = self.line
            self.rule.finished(self.env.now, size, finish_s - start_s, line.memory, line.params)
        return self.in_service[server]

    def dispatch(self) -> None:
        """Start batches, each on the lowest-numbered idle server, until the rule has nothing to do."""
        while (self.idle or self.rule.freezes) and self.line:
            action, size, trigger = self.line.decide(len(self.idle))
            if action == START and self.idle:
                if self.line.frozen:
                    requests, trigger = self.line.frozen.popleft()
                else:
                    requests = self.line.take(size)
                self.start(self.idle.pop(0), requests, trigger)
            elif action == FREEZE and self.rule.freezes:
                self.line.frozen.append((self.line.take(size), trigger))
            else:
                return

    def start(self, server: int, requests: list[int], trigger: int) -> None:
        batch = len(self.batches)
        self.line.levels.left(requests)
        for request in requests:
            self.batch_index[request] = batch
        # First compiling and its part on the host, then the rest on the server's device, when that is free.
        device = server % len(self.device_free_s)
        begin_s, free_s = self.compiled_s(len(requests)) + self.host_s, self.device_free_s[device]
        service_s = self.line.measured_s.pop(requests[0], float(self.plan.service_s[len(requests)]))
        seconds = service_s - self.host_s
        if self.plan.noise is not None:
            seconds *= float(self.plan.noise[batch])
        if self.plan.slowdown is not None:
            seconds *= float(self.plan.slowdown[self.plan.scenario.servers - len(self.idle)])
        if free_s > begin_s:
            begin_s, seconds = free_s, seconds * self.contention
        # However short, it takes a tick of the clock: a batch never ends at the instant at which it starts.
        finish_s = max(begin_s + seconds, math.nextafter(self.env.now, math.inf))
        # A device computes in order of start: no batch that starts later changes this one's finish.
        self.device_free_s[device] = finish_s
        self.batches.append((self.env.now, finish_s, len(requests), server, int(trigger)))
        self.in_service[server], self.computing[server] = requests, batch
        self.handed[server].succeed(finish_s)

    def compiled_s(self, size: int) -> float:
        """Return when a batch that starts now is computed: at once, or when its shape has been compiled."""
        if self.plan.cold_start is None:
            return self.env.now
        seconds, shapes = self.plan.cold_start
        # The first batch of a shape lets it be compiled; others that start meanwhile wait for it, too.
        ready_s = self.ready_s.setdefault(int(shapes[size]), self.env.now + float(seconds[size]))
        return max(self.env.now, ready_s)

    def expire(self) -> list[int]:
        """Let the requests that have waited too long leave; return them."""
        gone = self.line.expire()
        for request in gone:
            self.status[request] = Status.TIMED_OUT
        return gone

    def send(self, client: int) -> None:
        request = len(self.arrival_s)
        self.line.ended = request + 1 == self.plan.requests
        if not self.enter(client):
            self.answered[client].succeed(request)
        self.dispatch()

    def set_alarm(self) -> None:
        """Make sure that an instant comes when waiting alone would change something.

        An alarm that is no longer needed does no harm: it only makes the collector look.
        """
        alarm_s = self.line.levels.expiry_s()
        if (self.idle or self.rule.freezes) and self.line:
            wake_s = self.line.wake_s(len(self.idle))
            if wake_s > self.env.now:  # else the rule has been asked already
                alarm_s = min(alarm_s, wake_s)
        # Due at this very instant: a client's send with a timeout of zero leaves before time goes on.
        if alarm_s < math.inf and (alarm_s != self.alarm_s or alarm_s <= self.env.now):
            self.alarm_s = alarm_s
            self.env.timeout(At(alarm_s)).callbacks.append(lambda _: self.call())

    def run(self) -> Log:
        collecting = self.env.process(self.collect())
        for number in range(self.plan.scenario.servers):
            self.env.process(self.server(number))
        if self.plan.arrival_s is None:
            self.clients(self.plan.scenario.workload.clients)  # type: ignore[union-attr]
        else:
            self.env.process(self.source(self.plan.arrival_s.tolist()))
        try:
            self.env.run()
        except BaseException:
            if not collecting.triggered:
                raise
        if collecting.triggered:  # it never ends, so it has failed: a model's own error, not SimPy's copy
            raise cast(BaseException, collecting.value)
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
