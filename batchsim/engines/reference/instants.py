"""What every run of the reference engine has: the SimPy processes, and the four steps of an instant.

A source (or clients) sends requests, servers compute, a collector handles the instants. SimPy handles what is
due at one instant in the order in which it was scheduled, which means nothing here: so all of it is gathered
first, and then the collector takes the instant's four steps, in `Instants.act` and `answer`.
"""

import math
from collections.abc import Generator, Sequence
from typing import Any, cast

import simpy

from batchsim._clock import later
from batchsim.engines.draws import Plan
from batchsim.engines.log import Status

Process = Generator[simpy.Event, Any, None]


class At(float):
    """A delay that ends at an absolute time, exactly: now + At(time) is time.

    SimPy adds delays to its clock, and now + (time - now) need not be the float `time`.
    """

    def __radd__(self, now: float) -> float:
        return float(self)


class Instants:
    """The processes of one run; what enters, starts and leaves at an instant is for subclasses to say."""

    def __init__(self, traffic: Plan) -> None:
        self.traffic = traffic
        self.env = simpy.Environment(0.0)
        # What is due at this instant, gathered by the processes and emptied by the collector.
        self.arriving: list[int] = []
        self.ending: list[int] = []
        self.sending: list[int] = []
        self.refused: list[int] = []  # by the rule, at this look
        self.wake = self.env.event()
        self.alarm_s = -math.inf
        self.assigned = [self.env.event() for _ in range(traffic.scenario.servers)]
        # The log, a row a request.
        self.arrival_s: list[float] = []
        self.client: list[int] = []
        self.status: list[int] = []

    @property
    def ended(self) -> bool:
        """Whether the last request has come."""
        return len(self.arrival_s) == self.traffic.requests

    # The processes: who sends, who computes, who collects.

    def source(self, arrival_s: Sequence[float]) -> Process:
        """Send the requests of an open loop, each at its time."""
        for request, time_s in enumerate(arrival_s):
            if time_s > self.env.now:
                yield self.env.timeout(At(time_s))
            self.arriving.append(request)
            self.wake_collector()

    def clients(self, count: int) -> None:
        """Let the clients of a closed loop send their first requests, all at time 0."""
        self.answered = [self.env.event() for _ in range(count)]
        for client in range(count):
            self.env.process(self.one_client(client))

    def one_client(self, client: int) -> Process:
        """Send, wait for the answer, think, and send again."""
        assert self.traffic.think_s is not None
        while not self.ended:
            self.sending.append(client)
            self.wake_collector()
            request = yield self.answered[client]
            self.answered[client] = self.env.event()
            due_s = later(self.env.now, float(self.traffic.think_s[request]))
            if due_s > self.env.now:
                yield self.env.timeout(At(due_s))

    def server(self, number: int) -> Process:
        while True:
            finish_s = yield self.assigned[number]
            self.assigned[number] = self.env.event()
            yield self.env.timeout(At(finish_s))
            self.ending.append(number)
            self.wake_collector()

    def collect(self) -> Process:
        """Whenever called, gather all that is due at this instant, then take its four steps."""
        while True:
            yield self.wake
            yield from self.gather()
            self.wake = self.env.event()
            done = self.act()
            if self.traffic.think_s is not None:
                yield from self.answer(done)
            self.set_alarm()

    def wake_collector(self) -> None:
        """Tell the collector that something is due now."""
        if not self.wake.triggered:
            self.wake.succeed()

    def gather(self) -> Process:
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

        return done + self.turned_away() + self.expire()

    def turned_away(self) -> list[int]:
        """Return the requests that the rule has just refused."""
        refused, self.refused = self.refused, []
        return refused

    def answer(self, done: list[int]) -> Process:
        """Take the fourth step of a closed loop: clients are answered, and those that are due send."""
        for request in done:
            self.answered[self.client[request]].succeed(request)
        yield from self.gather()  # those who do not think send again at this instant
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
        """Let one request into the queue, unless that is at its limit; return whether it is in."""
        request = len(self.arrival_s)
        self.arrival_s.append(self.env.now)
        self.client.append(client)
        enters = self.try_enqueue(request)
        self.status.append(Status.SERVED if enters else Status.REJECTED)
        return enters

    def try_enqueue(self, request: int) -> bool:
        """Put a request into the queue; False where that is at its limit."""
        raise NotImplementedError

    def release(self, server: int) -> list[int]:
        """Let a server end what it computes; return the requests that are done with it."""
        raise NotImplementedError

    def dispatch(self) -> None:
        """Start what the rule wants to be started."""
        raise NotImplementedError

    def expire(self) -> list[int]:
        """Let the requests that have waited too long leave; return them."""
        raise NotImplementedError

    def due_s(self) -> float:
        """Return the next time at which waiting alone would change something; inf for none."""
        raise NotImplementedError

    def set_alarm(self) -> None:
        """Make sure that an instant comes when waiting alone would change something.

        An alarm that is no longer needed does no harm: it only makes the collector look.
        """
        alarm_s = self.due_s()
        # Due at this very instant: a client's send with a timeout of zero leaves before time goes on.
        if alarm_s < math.inf and (alarm_s != self.alarm_s or alarm_s <= self.env.now):
            self.alarm_s = alarm_s
            self.env.timeout(At(alarm_s)).callbacks.append(lambda _: self.wake_collector())

    def run_processes(self) -> None:
        """Let time pass until nothing more happens."""
        collecting = self.env.process(self.collect())
        for number in range(self.traffic.scenario.servers):
            self.env.process(self.server(number))
        if self.traffic.arrival_s is None:
            self.clients(self.traffic.scenario.workload.clients)  # type: ignore[union-attr]
        else:
            self.env.process(self.source(self.traffic.arrival_s.tolist()))
        try:
            self.env.run()
        except BaseException:
            if not collecting.triggered:
                raise
        if collecting.triggered:  # it never ends, so it has failed: a model's own error, not SimPy's copy
            raise cast(BaseException, collecting.value)
