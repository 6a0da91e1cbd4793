"""Replicas as plain as it goes: naive simulators in step, behind a router that spells each routing again."""

import math
from bisect import bisect_right
from types import SimpleNamespace

from oracles.naive import REJECTED, SERVED, TIMED_OUT, after


def mixed(key):
    """The 32-bit hash of a key."""
    x = key + 1
    x = ((x >> 16) ^ x) * 73244475 % 2**32
    x = ((x >> 16) ^ x) * 73244475 % 2**32
    return (x >> 16) ^ x


def routed(name, request, inside, waiting, filling, tokens, full, draws, keys):
    """The replica of a request."""
    count = len(inside)
    if name == "round_robin":
        return divmod(request, count)[1]
    if name == "random":
        return math.floor(draws[0] * count)
    if name == "by_key":
        return mixed(keys[request]) % count
    if name == "two_choices":
        one = math.floor(draws[0] * count)
        others = [replica for replica in range(count) if replica != one]
        other = others[math.floor(draws[1] * len(others))] if others else one
        return min((one, other), key=lambda replica: inside[replica])
    if name == "fill_first" and min(filling) < full:
        return next(replica for replica in range(count) if filling[replica] < full)
    if name == "least_tokens":
        return tokens.index(min(tokens))
    if name == "shortest_queue":
        scores = [4 * waits + (all_ - waits) for all_, waits in zip(inside, waiting, strict=True)]
        return scores.index(min(scores))
    return inside.index(min(inside))


def zipf_keys(keys, popularity, draws):
    """The key of each request, by inversion."""
    weights = [1 / (k + 1) ** popularity for k in range(keys)]
    ends, total = [], 0.0
    for weight in weights:
        total += weight
        ends.append(total)
    return [min(bisect_right([end / total for end in ends], draw[0]), keys - 1) for draw in draws]


class NaiveReplicas:
    """`make(number)` returns an idle naive simulator of a replica, as of an open loop without arrivals."""

    def __init__(self, make, replicas, routing, full, draws, keys=None, stale_ms=0.0, arrivals_s=None,
                 requests=0, clients=0, think_s=None, priority=None, scaler=None, size=None):  # fmt: skip
        self.scaler = scaler
        if scaler is not None:
            scaler.fleet = self
        self.routing, self.full, self.draws, self.keys = routing, full, draws, keys
        self.stale_s, self.coming, self.requests = stale_ms / 1000, list(arrivals_s or []), requests
        self.open, self.think_s, self.priority = arrivals_s is not None, think_s, priority
        self.size = size
        self.thinking = [(0.0, client) for client in range(clients)]
        self.of = []  # of each request: its replica and its number there
        self.sender = []
        self.history = [(-math.inf, [(0, 0, 0, 0)] * replicas)]  # the loads after each instant
        self.answered = set()
        self.all = []
        for number in range(replicas):
            one = make(number)
            one.__class__ = type(
                "Replica", (type(one),), {"someone_may_come": lambda _: self.someone_may_come()}
            )
            self.prepare(one)
            self.all.append(one)

    def prepare(self, one):
        one.priority = [] if self.priority is not None else None
        one.sizes = [] if self.size is not None else None
        one.begin()
        one.coming, one.thinking, one.refused, one.arrivals_s = [], [], [], []

    def someone_may_come(self):
        return len(self.of) < self.requests

    def load(self, one):
        waits = len(one.waiting) + sum(len(batch) for batch, _ in one.frozen)
        inside = waits + sum(one.size[job] for job in one.computing if job is not None)
        return inside, waits, waits, 0  # those of a batch to come, and tokens

    def times(self, one):
        return one.possible_instants()

    def run(self):
        while True:
            times = [time for one in self.all for time in self.times(one)] + self.coming
            if self.someone_may_come():
                times += [due for due, _ in self.thinking]
            if min(times, default=math.inf) == math.inf:
                return self
            self.instant(min(times))

    def instant(self, now):
        if self.scaler is not None and (self.coming or self.someone_may_come()):
            self.scaler.catch_up(now)
        sent = [(0, 0, 0, 0)] * len(self.all)
        while self.coming and self.coming[0] <= now:
            self.coming.pop(0)
            loads = self.seen(now)
            if self.stale_s == 0:
                loads = [added(load, more) for load, more in zip(loads, sent, strict=True)]
            request, replica = len(self.of), self.send(now, None, loads)
            sent[replica] = added(sent[replica], (1, 1, 1, self.prompt(request)))
        for one in self.all:
            one.four_steps(now)
        if not self.open:
            self.let_clients_send(now)
        self.history.append((now, [self.load(one) for one in self.all]))

    def seen(self, now):
        """The loads after the last instant that the router knows about."""
        return next(loads for time, loads in reversed(self.history) if time < after(now, -self.stale_s))

    def send(self, now, sender, loads):
        request = len(self.of)
        if self.scaler is not None:
            loads = loads[: self.scaler.up(now)]
        columns = zip(*loads, strict=True)
        replica = routed(self.routing, request, *columns, self.full, self.draws[request], self.keys)
        one = self.all[replica]
        self.of.append((replica, self.expect(one, request)))
        self.sender.append(sender)
        one.enter(now, sender)
        return replica

    def prompt(self, request):
        return 0

    def expect(self, one, request):
        """Note the request that enters a replica next; return its number there."""
        if self.priority is not None:
            one.priority.append(self.priority[request])
        if self.size is not None:
            one.sizes.append(self.size[request])
        return len(one.arrival)

    def has_left(self, one, number, now):
        return one.status[number] in (REJECTED, TIMED_OUT) or one.finish[number] <= now

    def let_clients_send(self, now):
        self.hear(now)
        due_now = sorted(pair[1] for pair in self.thinking if pair[0] <= now)
        self.thinking = [pair for pair in self.thinking if pair[0] > now]
        for client in due_now:
            if not self.someone_may_come():
                return
            loads = self.seen(now) if self.stale_s else [self.load(one) for one in self.all]
            self.send(now, client, loads)
            for one in self.all:
                one.look(now)
            self.hear(now)

    def hear(self, now):
        """Let the clients of requests that have left begin to think."""
        for request, (replica, number) in enumerate(self.of):
            if request not in self.answered and self.has_left(self.all[replica], number, now):
                self.answered.add(request)
                self.thinking.append((after(now, self.think_s[request]), self.sender[request]))

    def batches_of(self, one):
        """When the batches of a replica start and finish."""
        return list(zip(one.batch_start, one.batch_finish, strict=True))

    def requests_of(self, one):
        """When the requests of a replica came, and finish."""
        return list(zip(one.arrival, one.finish, strict=True))

    def columns(self):
        """The rows of requests, and of batches by start and server, as of one simulator."""
        servers = self.all[0].servers
        rows = sorted(
            (one.batch_start[job], k * servers + one.server[job], k, job)
            for k, one in enumerate(self.all)
            for job in range(len(one.size))
        )
        number = {(k, job): place for place, (_, _, k, job) in enumerate(rows)}
        requests = {
            name: [getattr(self.all[k], kept)[i] for k, i in self.of]
            for name, kept in (
                ("arrival_s", "arrival"),
                ("start_s", "start"),
                ("finish_s", "finish"),
                ("status", "status"),
            )
        }
        requests["batch_index"] = [number.get((k, self.all[k].batch[i]), -1) for k, i in self.of]
        requests["replica"] = [k for k, _ in self.of]
        batches = {
            name: [getattr(self.all[k], kept)[job] for _, _, k, job in rows]
            for name, kept in (("start_s", "batch_start"), ("finish_s", "batch_finish"),
                               ("batch_size", "size"), ("trigger", "trigger"), ("device_wait", "device_wait"))
        }  # fmt: skip
        batches["server"] = [server for _, server, _, _ in rows]
        return requests, batches


def added(one, other):
    return tuple(a + b for a, b in zip(one, other, strict=True))


class NaiveTokenReplicas(NaiveReplicas):
    """The same of token generation: `lengths` and the contents of blocks that are `shared`, by request."""

    lengths, shared = (), ()

    def prepare(self, one):
        one.shared = []

    def load(self, one):
        running = [r for server in one.servers for r in server.running]
        tokens = sum(r.P + min(r.made, r.O) for r in one.waiting + running)
        inside = len(one.waiting) + len(running)
        return inside, len(one.waiting), inside if "seats" in one.rule else len(one.waiting), tokens

    def times(self, one):
        return one.instants()

    def prompt(self, request):
        return self.lengths[request][0]

    def expect(self, one, request):
        one.lengths.append(self.lengths[request])
        if self.shared:
            one.shared.append(self.shared[request])
        return len(one.all)

    def has_left(self, one, number, now):
        r = one.all[number]
        return r.status != SERVED or r.finish <= now

    def batches_of(self, one):
        return [step[:2] for step in one.steps]

    def requests_of(self, one):
        return [(r.arrival, r.finish) for r in one.all]

    def joined(self):
        """What happened, as of one simulator."""
        count = len(self.all[0].servers)
        steps = sorted(
            (step[0], k, number) for k, one in enumerate(self.all) for number, step in enumerate(one.steps)
        )
        step_of = {(k, number): place for place, (_, k, number) in enumerate(steps)}
        request_of = {place: request for request, place in enumerate(self.of)}
        entries = [
            [request_of[k, entry[0]], *(step_of.get((k, step), -1) for step in entry[1:])]
            for k, one in enumerate(self.all)
            for entry in one.preemptions
        ]
        rows = [(k, self.all[k].steps[number]) for _, k, number in steps]
        return SimpleNamespace(
            all=[self.all[k].all[number] for k, number in self.of],
            steps=[(*row[:2], k * count + row[2], *row[3:]) for k, row in rows],
            preemptions=sorted(entries, key=lambda entry: entry[1]),
        )


class NaiveScaler:
    """An autoscaler that looks at every request and batch of the run again, at every evaluation."""

    def __init__(
        self, signal, target, least, most, startup_s, every_s, hold_s, start, full, servers, stale_s
    ):
        self.signal, self.least, self.most, self.servers = signal, least, most, servers
        self.target = target or {"utilisation": 0.7, "queue": full}[signal]
        self.startup_s, self.every_s, self.stale_s = startup_s, every_s, stale_s
        self.keeps = 1 + int(round(hold_s / every_s, 9))
        self.ready = [0.0] * max(start, least)  # of each replica that is asked for: when it is up
        self.wishes = [len(self.ready)]
        self.rows = [[0.0, math.nan, len(self.ready), len(self.ready)]]

    def up(self, now):
        return sum(time <= now for time in self.ready)

    def catch_up(self, now):
        while after(0.0, len(self.rows) * self.every_s) <= now:
            self.evaluate(after(0.0, len(self.rows) * self.every_s))

    def evaluate(self, now):
        up, begin, end = self.up(now), after(self.rows[-1][0], -self.stale_s), after(now, -self.stale_s)
        value = getattr(self, self.signal)(now, up, begin, end)
        wish = len(self.ready)
        if not math.isnan(value) and not round(abs(value / self.target - 1), 9) <= 0.1:
            wish = max(self.least, min(self.most, math.ceil(round(up * (value / self.target), 9))))
        self.wishes = [*self.wishes, wish][-self.keeps :]
        wish = max(self.wishes)
        while len(self.ready) > wish:
            self.ready.pop()
        while len(self.ready) < wish:
            self.ready.append(after(now, self.startup_s))
        self.rows.append([now, value, wish, self.up(now)])

    def queue(self, now, up, begin, end):
        return sum(load[1] for load in self.fleet.seen(now)[:up]) / up

    def utilisation(self, now, up, begin, end):
        busy = there = 0
        for one, since in zip(self.fleet.all[:up], self.ready, strict=False):
            first = max(begin, since)
            there += self.servers * max(0, round(end * 1e9) - round(first * 1e9))
            for start, finish in self.fleet.batches_of(one):
                if start < end:
                    busy += max(0, round(min(finish, end) * 1e9) - round(max(start, first) * 1e9))
        return busy / there if there else math.nan

    def p99(self, now, up, begin, end):
        took = sorted(
            (round(finish * 1e9) - round(came * 1e9)) / 1e6
            for one in self.fleet.all
            for came, finish in self.fleet.requests_of(one)
            if begin <= finish < end
        )
        return took[math.ceil(0.99 * len(took)) - 1] if took else math.nan


assert SERVED == 0
