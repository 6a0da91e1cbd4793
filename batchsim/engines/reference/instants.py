"""The SimPy processes of the reference engine, and the four steps of an instant.

A source (or clients) sends requests, servers compute, and a collector handles the instants. SimPy runs the
events of one instant in the order in which they were scheduled, an order without meaning. So the collector
first gathers all of them, and then takes the four steps, in `Instants.act` and `answer`.
"""

import itertools
import math
from collections.abc import Generator, Sequence
from typing import Any, cast

import simpy

from batchsim._clock import later
from batchsim.engines.draws import Plan
from batchsim.engines.log import Status

Process = Generator[simpy.Event, Any, None]
NO_CLIENT = -1  # the sender of a request of an open loop


class At(float):
    """A delay that ends at an absolute time, exactly: now + At(time) is time.

    SimPy adds delays to its clock, and now + (time - now) need not be the float `time`.
    """

    def __radd__(self, now: float) -> float:
        return float(self)


class Instants:
    """The processes of one run; subclasses define what enters, starts and leaves at an instant."""

    def __init__(self, traffic: Plan, env: simpy.Environment | None = None) -> None:
        self.traffic = traffic
        self.env = env or simpy.Environment(0.0)
        # The events of this instant: the processes note them here, the collector handles them.
        self.arriving = 0
        self.ending: list[int] = []
        self.sending: list[int] = []
        self.refused: list[int] = []  # by the rule, in this dispatch
        self.wake = self.env.event()
        self.alarm_s = -math.inf
        self.assigned = [self.env.event() for _ in range(traffic.scenario.servers)]
        # The log: a row for each request.
        self.arrival_s: list[float] = []
        self.client: list[int] = []
        self.status: list[int] = []

    @property
    def ended(self) -> bool:
        """Whether the last request has arrived."""
        return len(self.arrival_s) == self.traffic.requests

    # The processes.

    def source(self, arrival_s: Sequence[float]) -> Process:
        """Send the requests of an open loop, each at its time."""
        for time_s in arrival_s:
            if time_s > self.env.now:
                yield self.env.timeout(At(time_s))
            self.arriving += 1
            self.wake_collector()

    def clients(self, count: int) -> None:
        """Let the clients of a closed loop send their first requests, all at time 0."""
        self.answered = [self.env.event() for _ in range(count)]
        self.first_s, self.turn = self.traffic.first_s.tolist(), itertools.count()
        for client in range(count):
            self.env.process(self.one_client(client))

    def one_client(self, client: int) -> Process:
        """Send once the next request is due, wait for the answer, think, send again."""
        assert self.traffic.think_s is not None
        while (number := next(self.turn)) < self.traffic.requests:
            if self.first_s[number] > self.env.now:
                yield self.env.timeout(At(self.first_s[number]))
            self.sending.append(client)
            self.wake_collector()
            request = yield self.answered[client]
            self.answered[client] = self.env.event()
            due_s = later(self.env.now, float(self.traffic.think_s[request]))
            if due_s > self.env.now:
                yield self.env.timeout(At(due_s))

    def server(self, number: int) -> Process:
        """Compute the batches that `start` of a subclass assigns, each until its finish."""
        while True:
            finish_s = yield self.assigned[number]
            self.assigned[number] = self.env.event()
            yield self.env.timeout(At(finish_s))
            self.ending.append(number)
            self.wake_collector()

    def collect(self) -> Process:
        """Handle the instants, one after the other."""
        while True:
            yield self.wake
            yield from self.gather()
            self.wake = self.env.event()
            done = self.act()
            if self.traffic.think_s is not None:
                yield from self.answer(done)
            self.set_alarm()

    def wake_collector(self) -> None:
        """Let the collector handle the present instant."""
        if not self.wake.triggered:
            self.wake.succeed()

    def gather(self) -> Process:
        """Let every other process run that is due at this instant."""
        while self.env.peek() <= self.env.now:
            yield self.env.timeout(0)

    # The four steps of an instant.

    def act(self) -> list[int]:
        """Take the first three steps; return the requests that leave."""
        # 1. Arrivals enter first: whoever comes at the deadline of a batch joins it.
        for _ in range(self.arriving):
            self.enter(client=NO_CLIENT)
        self.arriving = 0

        # 2. Servers that end are free for the dispatch, in the order of their numbers.
        ending, self.ending = self.ending, []
        done = [request for server in sorted(ending) for request in self.release(server)]
        self.dispatch()

        # 3. Timeouts come after the dispatch: whom a server takes at the last instant is served.
        return done + self.turned_away() + self.expire()

    def turned_away(self) -> list[int]:
        """Return the requests that the rule refused in the last dispatch."""
        refused, self.refused = self.refused, []
        return refused

    def answer(self, done: list[int]) -> Process:
        """Take the fourth step, of a closed loop: answer clients, and let them send after thinking."""
        # 4. One by one, as each sees the batches that the requests of those before it have started.
        for request in done:
            self.answered[self.client[request]].succeed(request)
        # Clients that do not think send again at this instant, and wake the collector for a second pass,
        # in which nothing is left to do.
        yield from self.gather()
        sending, self.sending = self.sending, []
        for client in sorted(sending):
            if not self.ended:
                request = len(self.arrival_s)
                if not self.enter(client):
                    self.answered[client].succeed(request)
                self.dispatch()
                for request in self.turned_away():
                    self.answered[self.client[request]].succeed(request)

    def enter(self, client: int) -> bool:
        """Let a request into the queue, unless this is at its limit; return whether it enters."""
        request = len(self.arrival_s)
        self.arrival_s.append(self.env.now)
        self.client.append(client)
        enters = self.try_enqueue(request)
        self.status.append(Status.SERVED if enters else Status.REJECTED)
        return enters

    def try_enqueue(self, request: int) -> bool:
        """Put a request into the queue; return False if this is at its limit."""
        raise NotImplementedError

    def release(self, server: int) -> list[int]:
        """End what a server computes; return the requests that leave."""
        raise NotImplementedError

    def dispatch(self) -> None:
        """Start what the rule decides to start."""
        raise NotImplementedError

    def expire(self) -> list[int]:
        """Let the requests whose timeout is over leave; return them."""
        raise NotImplementedError

    def due_s(self) -> float:
        """Return the next time at which time alone changes something; inf: never."""
        raise NotImplementedError

    def set_alarm(self) -> None:
        """Make sure that there is an instant when time alone changes something.

        An alarm that is no longer needed does no harm: its instant has no effect.
        """
        alarm_s = self.due_s()
        # It may be due at this very instant: a request that a client has just sent, with a timeout of zero.
        if alarm_s < math.inf and (alarm_s != self.alarm_s or alarm_s <= self.env.now):
            self.alarm_s = alarm_s
            self.env.timeout(At(alarm_s)).callbacks.append(lambda _: self.wake_collector())

    def start_servers(self) -> None:
        """Start the processes of the servers."""
        for number in range(self.traffic.scenario.servers):
            self.env.process(self.server(number))

    def run_processes(self) -> None:
        """Run all processes to the end."""
        collecting = self.env.process(self.collect())
        self.start_servers()
        if self.traffic.arrival_s is None:
            self.clients(self.traffic.scenario.workload.clients)  # type: ignore[union-attr]
        else:
            self.env.process(self.source(self.traffic.arrival_s.tolist()))
        try:
            self.env.run()
        except BaseException:
            if not collecting.triggered:
                raise
        if collecting.triggered:  # it never ends, so it failed: raise the model's own error, not SimPy's copy
            raise cast(BaseException, collecting.value)
