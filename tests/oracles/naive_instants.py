"""Token generation, deliberately naive: the instants and their four steps, in plain lists."""

import math
from types import SimpleNamespace

from oracles.naive import after

NEVER = math.inf


class Request(SimpleNamespace):
    def __init__(self, **given):
        super().__init__(tokens=[], **given)  # when it makes each token

    entry = None  # of its last preemption, until it makes a token
    held = made = blocks = preemptions = recomputed = status = cut = 0
    start = first = finish = math.nan
    before = after = 0.0  # how long it was preempted, before its first token and after it
    __eq__ = object.__eq__


class NaiveInstants:
    """`lengths`: (prompt, output, limit) each; `cost`: ms; `rule`: the parameters of `Continuous`."""

    def __init__(self, lengths, cost, rule, arrivals_s=(), clients=0, think_s=None, servers=1,
                 queue_limit=NEVER, timeout_s=NEVER, noise=None, due_s=None):  # fmt: skip
        self.lengths, self.cost, self.rule, self.noise = lengths, cost, rule, noise
        self.coming, self.think_s, self.clients = list(arrivals_s), think_s or [0.0] * len(lengths), clients
        self.queue_limit, self.timeout_s, self.due_s = queue_limit, timeout_s, due_s or [0.0] * len(lengths)
        self.preemptions = []  # a victim, and the steps that send it back, resume it, make its next token
        self.all, self.steps, self.waiting, self.sends = [], [], [], [(0.0, c) for c in range(clients)]
        blocks = rule.get("kv_blocks") or 2**60
        self.servers = [
            SimpleNamespace(running=[], rows=[], until=NEVER, free=blocks) for _ in range(servers)
        ]
        while (now := min(self.instants())) < NEVER:
            self.four_steps(now)

    def someone_may_come(self):
        return len(self.all) < len(self.lengths)

    def instants(self):
        yield from (NEVER, *self.coming[:1], *(server.until for server in self.servers))
        yield from (after(r.arrival, self.timeout_s) for r in self.waiting if math.isnan(r.start))
        if self.someone_may_come():
            yield from (max(time, self.due_s[len(self.all)]) for time, _ in self.sends)

    def four_steps(self, now):
        while self.coming and self.coming[0] <= now:
            self.enter(self.coming.pop(0))
        for server in self.servers:
            if server.until <= now:
                self.end(server, now)
        self.look(now)
        for r in [r for r in self.waiting if math.isnan(r.start) and now >= after(r.arrival, self.timeout_s)]:
            self.waiting.remove(r)
            self.answer(r, now, status=2)
        may = sum(time <= now for time in self.due_s[len(self.all) :])
        due = sorted(send for send in self.sends if send[0] <= now)[:may]
        self.sends = [send for send in self.sends if send not in due]
        for _, client in sorted(due, key=lambda send: send[1]):
            self.enter(now, client)
            self.look(now)

    def enter(self, now, client=None):
        prompt, output, limit = self.lengths[len(self.all)]
        r = Request(number=len(self.all), arrival=now, P=prompt, O=output, L=limit, client=client)
        self.all.append(r)
        if len(self.waiting) >= self.queue_limit:
            return self.answer(r, now, status=1)
        self.waiting.append(r)

    def answer(self, r, now, status=0):
        r.status = status
        if self.clients:
            self.sends.append((after(now, self.think_s[r.number]), r.client))

    def look(self, now):
        while any(self.start(number, server, now) for number, server in enumerate(self.servers)):
            pass

    def start(self, number, server, now):
        if server.rows or not self.schedule(server, now):
            return False
        seats = self.rule.get("seats") or self.rule.get("largest") or 256
        tokens = sum(n for _, n, _ in server.rows)
        reads = sum(held + 1 for _, n, held in server.rows if n == 1)
        pairs = sum(n * held + n * (n + 1) // 2 for _, n, held in server.rows if n > 1)
        cost = self.cost
        decodes = sum(n == 1 for _, n, _ in server.rows)
        captured, at_least = self.captured(seats, tokens, decodes)
        ms = cost["fixed"] + max(cost["weights"], cost["per_token"] * captured) + cost["per_read"] * reads
        seconds = max(ms + cost["per_pair"] * pairs, at_least) / 1000
        if cost.get("draft") and decodes:
            seconds = self.speculating_ms(tokens, decodes, reads, pairs, captured, at_least) / 1000
        server.until = after(now, max(seconds * (self.noise[len(self.steps)] if self.noise else 1), 1e-9))
        used = self.used(server)
        assert used + server.free == (self.rule.get("kv_blocks") or 2**60)
        assert len({id(r) for r, _, _ in server.rows}) == len(server.rows)
        server.step = len(self.steps)
        self.steps.append((now, server.until, number, len(server.rows), tokens, reads, pairs,
                           len(server.running), len(self.waiting), used, server.preempted))  # fmt: skip
        for r, _, _ in server.rows:
            r.start = now if math.isnan(r.start) else r.start
        return True

    def captured(self, seats, tokens, decodes):
        """The tokens that a step computes, with its padding, and the least time that it takes in ms.

        Each of a graph's sequences has a token, or one and its drafts.
        """
        wide, ladder = 1 + self.cost.get("draft", 0), list(self.cost.get("captured") or ())
        computed = tokens + decodes * (wide - 1)
        if not self.cost.get("captured_prompts"):
            ladder = [size for size in ladder if size <= seats] if tokens == decodes else []
        room = min((size * wide for size in ladder if size * wide >= computed), default=None)
        if room is not None and not self.cost["padding"] and room - computed >= wide:
            room = None
        return (computed, self.cost.get("beyond", 0)) if room is None else (room, 0)

    def speculating_ms(self, tokens, decodes, reads, pairs, captured, at_least):
        """A share of the step that the decodes need alone, and what prompts add to it."""
        cost, only = self.cost, tokens == decodes

        def products(count):
            return max(cost["weights"], cost["per_token"] * count)

        own = captured if only else decodes * (1 + cost["draft"])
        alone = cost["fixed"] + cost["draft_ms"] + cost["per_read"] * reads + products(own)
        more = products(captured) - products(own) + cost["per_pair"] * pairs
        launched = max(at_least - (alone + more), 0)
        return alone * cost["share"] + more + (launched * cost["share"] if only else launched)

    def used(self, s):
        return sum(r.blocks for r in s.running)

    def leave(self, s, r, now):
        r.finish = now
        s.running.remove(r)
        s.free, r.blocks = s.free + r.blocks, 0
        self.answer(r, now)
