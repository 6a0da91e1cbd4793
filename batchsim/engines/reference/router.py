"""The reference engine: a single queue, or a router in front of several, in one environment.

At an instant, all replicas take each of the four steps before any takes the next. Requests of an open loop
are routed in order before the first step: the router sees the loads before this instant, and what it has sent
at this instant. A client's request is routed as it is sent, in the fourth step.
"""

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from batchsim._clock import later
from batchsim.engines.autoscaling import Scaler, Seen
from batchsim.engines.draws import Plan
from batchsim.engines.log import Log
from batchsim.engines.reference import engine, token_engine
from batchsim.engines.reference.engine import Collector
from batchsim.engines.reference.instants import NO_CLIENT, Instants, Process
from batchsim.engines.reference.token_engine import Dispatcher
from batchsim.engines.replicas import loads_of, merged_log, without_steps
from batchsim.engines.token_log import TokenLog, TokenPlan
from batchsim.scenario.routing import Loads


class Load(NamedTuple):
    """What a router knows of a replica."""

    inside: int  # requests that wait or are being computed
    waiting: int
    tokens: int  # of those inside: their prompts, and what they have generated


class Noise:
    """The factors of a replica's batches, drawn as they are needed."""

    def __init__(self, plan: Plan, replica: int) -> None:
        self.plan, self.replica, self.drawn = plan, replica, np.empty(0)

    def __getitem__(self, batch: int) -> float:
        if batch >= self.drawn.size:
            assert self.plan.noise_of is not None
            self.drawn = self.plan.noise_of(self.replica, 2 * batch + 16)
        return float(self.drawn[batch])


class Replica(Collector):
    """The queue and the servers of one replica; its requests are numbered from 0 on."""

    def __init__(self, plan: Plan, number: int, router: "Router") -> None:
        noise: Any = Noise(plan, number) if plan.noise_of else None
        self.levels: list[int] = []
        priority: Any = None if plan.priority is None else self.levels
        one = replace(
            plan, scenario=plan.scenario.one, noise=noise, noise_of=None, priority=priority, requests=0,
            size=None,
        )  # fmt: skip
        self.router = router
        super().__init__(one, env=router.env)

    @property
    def ended(self) -> bool:
        return self.router.ended

    @property
    def load(self) -> Load:
        return Load(len(self.queue) + sum(map(len, self.in_service)), len(self.queue), 0)

    @property
    def seen(self) -> Seen:
        start_s, finish_s = (np.array([batch[k] for batch in self.batches]) for k in (0, 1))
        return Seen(np.array(self.arrival_s), np.array(self.batch_index, np.int64), start_s, finish_s)

    def expect(self, request: int) -> None:
        """Note the request of the run that comes next."""
        plan = self.router.plan
        if plan.priority is not None:
            self.levels.append(int(plan.priority[request]))
        self.queue.sizes.append(int(plan.computed_size[request]))

    def dispatch(self) -> None:
        self.queue.ended = self.ended
        super().dispatch()

    def release(self, server: int) -> list[int]:
        done = super().release(server)
        self.in_service[server] = []
        return done


class TokenReplica(Dispatcher):
    """The queue and the engines of one replica; its requests are numbered from 0 on."""

    def __init__(self, plan: TokenPlan, number: int, router: "Router") -> None:
        self.router = router
        base = replace(plan.base, scenario=plan.scenario.one)
        super().__init__(replace(plan, base=base, noise=partial(plan.noise, number)), env=router.env)
        self.numbers: list[int] = []
        self.steps_s = array("d"), array("d")  # when those in `rows` started and finished

    @property
    def ended(self) -> bool:
        return self.router.ended

    @property
    def load(self) -> Load:
        inside = [*self.queue, *(request for engine in self.engines for request in engine.running)]
        tokens = sum(request.prompt + min(request.generated, request.output) for request in inside)
        return Load(len(inside), len(self.queue), tokens)

    @property
    def seen(self) -> Seen:
        self.keep()
        arrival_s = np.array(self.arrival_s)
        index = np.array(self.last_step[: arrival_s.size], np.int64)
        return Seen(arrival_s, index, *map(np.asarray, self.steps_s))

    def keep(self) -> None:
        for times_s, more in zip(self.steps_s, zip(*self.steps, strict=True), strict=False):
            times_s.extend(more)
        super().keep()

    def expect(self, request: int) -> None:
        self.numbers.append(request)


class Router(Instants):
    """One run of a plan with replicas."""

    def __init__(self, plan: Plan | TokenPlan) -> None:
        tokens = isinstance(plan, TokenPlan)
        super().__init__(plan.base if isinstance(plan, TokenPlan) else plan)
        self.plan, scenario = self.traffic, plan.scenario
        self.prompts = plan.prompts if isinstance(plan, TokenPlan) else np.zeros(0, np.int64)
        self.router, self.params = scenario.router, scenario.router.params
        self.stale_s = scenario.stale_ms / 1000
        make: Any = TokenReplica if tokens else Replica
        self.replicas = [make(plan, number, self) for number in range(scenario.most_replicas)]
        for each in self.replicas:
            each.wake_collector = self.wake_collector
        self.place: list[tuple[int, int]] = []  # of each request: its replica, and its number there
        self.number: dict[tuple[int, int], int] = {}  # and the reverse
        # The loads as the router sees them, and those that it does not see yet, each with its instant.
        self.seen = [Load(0, 0, 0)] * scenario.most_replicas
        self.later: deque[tuple[float, list[Load]]] = deque()
        self.scaler = None if scenario.autoscale is None else Scaler(scenario, self.traffic.arrival_s)

    def see(self, now_s: float) -> None:
        """Bring the loads that the router sees to what it knows at a time."""
        while self.later and self.later[0][0] < later(now_s, -self.stale_s):
            _, self.seen = self.later.popleft()

    def scale(self) -> None:
        """Take the evaluations of the autoscaler that have come."""
        if self.scaler is None or self.scaler.next_s > self.env.now:
            return
        replicas = [each.seen for each in self.replicas]
        while self.scaler.next_s <= self.env.now:
            self.see(self.scaler.next_s)
            self.scaler.evaluate([load.waiting for load in self.seen], replicas)

    def loads(self, sent: Sequence[int]) -> Loads:
        """Return the loads as the router sees them, with the requests that it has sent at this instant."""
        self.see(self.env.now)
        counts = np.array(self.seen)
        for request in () if self.stale_s else sent:
            prompt = int(self.prompts[request]) if self.prompts.size else 0
            counts[self.place[request][0]] += Load(1, 1, prompt)
        up = len(counts) if self.scaler is None else self.scaler.up(self.env.now)
        return loads_of(self.plan.scenario, counts[:up].T.copy())

    def send(self, loads: Loads, client: int) -> bool:
        """Let a request into the queue of a replica; return whether it enters."""
        request = len(self.arrival_s)
        assert self.plan.chances is not None
        number = int(self.router.route(request, loads, self.plan.chances[request], self.params))
        replica = self.replicas[number]
        self.arrival_s.append(self.env.now)
        self.client.append(client)
        self.place.append((number, len(replica.arrival_s)))
        self.number[self.place[-1]] = request
        replica.expect(request)
        return replica.enter(client)

    def act(self) -> list[int]:
        if self.arriving:
            self.scale()
        sent: list[int] = []
        for _ in range(self.arriving):
            self.send(self.loads(sent), client=NO_CLIENT)
            sent.append(len(self.place) - 1)
        self.arriving = 0
        done = [
            self.number[number, request]
            for number, each in enumerate(self.replicas) for request in each.act()
        ]  # fmt: skip
        self.note()
        return done

    def answer(self, done: list[int]) -> Process:
        for request in done:
            self.answered[self.client[request]].succeed(request)
        yield from self.gather()
        sending, self.sending = self.sending, []
        if sending:
            self.scale()
        for client in sorted(sending):
            if self.ended:
                continue
            request = len(self.arrival_s)
            if not self.stale_s:
                self.later.clear()
                self.seen = [each.load for each in self.replicas]
            if not self.send(self.loads(()), client):
                self.answered[client].succeed(request)
            # The last request of the run may end the wait at any replica.
            for number in range(len(self.replicas)) if self.ended else [self.place[request][0]]:
                self.replicas[number].dispatch()
                for local in self.replicas[number].turned_away():
                    gone = self.number[number, local]
                    self.answered[self.client[gone]].succeed(gone)
        self.note()

    def note(self) -> None:
        """Note the loads after the steps of this instant."""
        loads = [each.load for each in self.replicas]
        if self.later and self.later[-1][0] == self.env.now:
            self.later.pop()
        self.later.append((self.env.now, loads))

    def start_servers(self) -> None:
        for each in self.replicas:
            each.start_servers()

    def due_s(self) -> float:
        return min(each.due_s() for each in self.replicas)

    def run(self) -> Log:
        self.run_processes()
        replica = np.array([number for number, _ in self.place], np.uint16)
        log = merged_log(self.plan.scenario, replica, [each.log() for each in self.replicas])
        scaling = None if self.scaler is None else self.scaler.table()
        return replace(log, priority=self.plan.priority, size=self.plan.size, scaling=scaling)


def run(plan: Plan, **options: Any) -> Log:
    """Run a plan and return its log; `options` are those of a single queue."""
    return engine.run(plan, **options) if plan.scenario.most_replicas == 1 else Router(plan).run()


def run_tokens(plan: TokenPlan, room: float = math.inf) -> TokenLog:
    """Run a plan of token generation; with more than `room` steps its log is a `FoldedLog`."""
    if plan.scenario.most_replicas == 1:
        return token_engine.run(plan, room)
    log = Router(plan).run()
    assert isinstance(log, TokenLog)
    return log if log.steps <= room else without_steps(plan.scenario, log)
