"""Single servers' rules of token generation, deliberately naive: plain loops over plain lists."""

import math

import numpy as np
from oracles.naive import after
from oracles.naive_instants import NEVER
from oracles.naive_tokens import NaiveTokens


class NaiveTgi(NaiveTokens):
    """Text Generation Inference: prefill and decode by turns, memory for life."""

    def schedule(self, s, now):
        s.preempted, s.rows = 0, []
        rule, n = self.rule, len(s.running)
        chunked, budget, seats = rule["chunked"], rule["budget"], rule["seats"]
        if n == 0:
            s.phase, s.without = "try", 1
            new = self.gather(s, 0, seats, budget)
            self.run_new(s, new)
            return s.rows
        if s.phase == "try":
            if chunked:
                due = sum(r.P + r.made - r.held for r in s.running)
                new = self.gather(s, 0, NEVER, budget - due)
            else:
                enough = math.floor(np.float32(n) * np.float32(rule["ratio"]))
                if s.without >= rule["patience"]:
                    enough = 0
                new = self.gather(s, enough, seats - n, budget)
            if new:
                if chunked:
                    self.everyone(s, list(s.running))
                self.run_new(s, new)
                s.phase, s.without = "decode", 1
                return s.rows
        self.everyone(s, list(s.running))
        s.phase, s.without = "try", s.without + 1
        return s.rows

    def gather(self, s, enough, most, budget):
        size = self.rule["block_size"]
        budget, free, new = -(-budget // size) * size, s.free, []
        for r in self.waiting:
            blocks, n = self.blocks(r.P + r.L - 1), r.P
            if len(new) >= most or blocks > free:
                break
            if n > budget:
                n = budget if self.rule["chunked"] else 0
            if n <= 0:
                break
            new.append((r, n, blocks))
            budget, free = budget - n, free - blocks
        return new if len(new) >= enough else []

    def run_new(self, s, new):
        for r, n, blocks in new:
            self.waiting.remove(r)
            s.running.append(r)
            s.left = 0
            self.give(s, r, n, blocks)

    def everyone(self, s, running):
        room = self.rule["budget"] - len([r for r in running if not r.cut])
        for r in running:
            n = r.P + r.made - r.held
            if r.cut:
                n = max(min(n, room), 0)
                room -= n
            s.left = 0
            if n:
                self.give(s, r, n, 0)


class NaiveTensorrt(NaiveTokens):
    """TensorRT-LLM: a schedule comes first, and memory is given out once it is known which prompts run.

    `ms`, `iters` and `ratio` are its three waits, `drafts` the drafted tokens of a request.
    """

    fetched = frozenset()

    def instants(self):
        yield from super().instants()
        for s in self.servers:
            if not s.rows and (s.running or self.waiting) and self.fetch_ends(s) > self.clock:
                yield self.fetch_ends(s)

    def four_steps(self, now):
        self.clock = now
        super().four_steps(now)

    def fetch_ends(self, s):
        """When the executor no longer waits for items of its request queue."""
        if len({r.number for r in self.waiting} - self.fetched) >= self.rule["seats"] or not self.rule["ms"]:
            return -NEVER
        free = getattr(s, "launched" if self.rule["overlap"] else "done", 0.0)
        return after(free if s.running else max(free, self.waiting[0].arrival), self.rule["ms"] / 1000)

    def schedule(self, s, now):
        if (s.running or self.waiting) and now < self.fetch_ends(s):
            return []
        self.fetched |= {r.number for r in self.waiting}
        s.context, s.joined = [], []
        super().schedule(s, now)
        generation = list(s.rows)
        if s.context and generation and self.waits(s, generation):
            for r in reversed(s.joined):
                s.running.remove(r)
                self.waiting.insert(0, r)
            s.free += sum(blocks for _, _, blocks in s.context)
        else:
            for r in s.joined:
                s.running.remove(r)
                super().let_in(s, r)
            for r, n, blocks in s.context:
                s.free += blocks
                super().give(s, r, n, blocks)
        s.rows = [row for r in s.running for row in s.rows if row[0] is r]
        s.launched = now if s.rows else getattr(s, "launched", 0.0)
        return s.rows

    def waits(self, s, generation):
        s.count = getattr(s, "count", 0)
        scheduled = sum(n for _, n, _ in s.context) + sum(1 + self.rule["drafts"] for _ in generation)
        waiting = s.count < self.rule["iters"] and scheduled < self.rule["ratio"] * self.rule["budget"]
        s.count = s.count + 1 if waiting else 0
        return waiting

    def let_in(self, s, r):
        s.joined.append(r)
        s.running.append(r)

    def give(self, s, r, n, blocks):
        if r.held and not r.cut and r.made:  # its prompt is done: generation
            return super().give(s, r, n, blocks)
        s.context.append((r, n, blocks))
        s.left, s.free = s.left - n, s.free - blocks

    def end(self, s, now):
        super().end(s, now)
        s.done = now


class Delayer:
    """SGLang's prefill delayer, of one rank."""

    def __init__(self, ratio, max_s, low):
        self.ratio, self.max_s, self.low = ratio, max_s, low
        self.start, self.skip_first, self.largest = None, True, 0

    def negotiate(self, now, running, waiting, seats, usage):
        if usage < self.low:
            self.start = None
            return True
        by_slots, by_queue = seats - running < self.largest, False
        if running > 0:
            needed = min(math.floor(running * self.ratio), self.largest)
            by_queue = needed > 0 and waiting < needed
        if by_queue and self.start is not None and now >= after(self.start, self.max_s):
            by_queue = False
        if by_slots or by_queue:
            if not self.skip_first:
                self.start = now if self.start is None else self.start
                return False
            self.skip_first = False
        self.start = None
        return True


class NaiveSglang(NaiveTokens):
    """SGLang: prompts alone, memory for a share of the answers, the talkative stay."""

    def schedule(self, s, now):
        rule, size, self.now = self.rule, self.rule["block_size"], now
        s.preempted, s.rows, s.left = 0, [], 0
        if not s.running:
            s.full = False
        if not hasattr(s, "ratio") or (not s.running and not self.waiting):
            s.ratio = rule["ratio"]
        talking = [r for r in s.running if not r.cut]
        cut = [r for r in s.running if r.cut]
        usage, queued, verdict = self.used(s) / (rule["kv_blocks"] or 2**60), len(self.waiting), []
        s.delayer = getattr(s, "delayer", None) or Delayer(*rule.get("delayer", (0, 0, 0)))

        def may():
            if not verdict:
                on = rule.get("delays", False)
                verdict.append(not on or s.delayer.negotiate(now, len(talking), queued, rule["seats"], usage))
            return verdict[0]

        if cut or (self.waiting and not s.full):
            free = s.free * size - sum(self.rest(r) * s.ratio for r in talking)
            entry, chunk = rule["entry"], rule["budget"]
            if rule["mixed"]:
                free, entry, chunk = free - len(talking), entry - len(talking), chunk - len(talking)
            for r in cut:
                n = min(r.P + r.made - r.held, max(chunk, 1), (s.free + r.blocks) * size - r.held)
                if n > 0:
                    may()
                    ends = n == r.P + r.made - r.held
                    self.grow(s, r, n)
                    free, entry, chunk = free - n - ends * self.rest(r), entry - n, chunk - n
            while self.waiting and len(s.running) < rule["seats"]:
                r = self.waiting[0]
                all_ = r.P + r.made
                if free > 0 and (entry <= 0 or chunk <= 0):
                    break
                if s.running and (free <= 0 or all_ + self.rest(r) >= free):
                    s.full = True
                    break
                n = min(all_, chunk)
                if n <= 0 or entry <= 0 or (all_ > entry and s.rows) or self.blocks(n) > s.free:
                    break
                if not may():
                    break
                self.let_in(s, self.waiting.pop(0))
                self.grow(s, r, n)
                free, entry, chunk = free - n - (n == all_) * self.rest(r), entry - n, chunk - n
        s.delayer.largest = max(s.delayer.largest, len(s.rows))
        if not verdict:
            s.delayer.start = None
        if not s.rows or (rule["mixed"] and self.need(talking) <= s.free):
            if talking and self.need(talking) > s.free:
                talking = self.retract(s, talking)
            elif talking and not s.rows:  # a look that finds nothing to do decides nothing
                s.ratio = max(s.ratio - (rule["ratio"] - rule["least"]) / rule["decay"], rule["least"])
            for r in talking:
                self.grow(s, r, 1)
        return s.rows

    def rest(self, r):
        return min(r.L - r.made, 4096)

    def need(self, talking):
        return sum(max(self.blocks(r.held + 1) - r.blocks, 0) for r in talking)

    def grow(self, s, r, n):
        self.give(s, r, n, max(self.blocks(r.held + n) - r.blocks, 0))

    def back(self, s, r):
        s.running.remove(r)
        self.send_back(s, r)
        self.waiting.append(r)

    def retract(self, s, talking):
        stay = sorted(talking, key=lambda r: (-r.made, r.P))
        while len(stay) > 1:
            self.back(s, stay.pop())
            if self.need(stay) <= s.free:
                break
        if self.need(stay) > s.free:
            for r in [r for r in s.running if r.cut]:
                self.back(s, r)
        s.running = stay + [r for r in s.running if r.cut]
        s.ratio = min(1.0, (sum(r.made for r in stay) + 20 * len(stay)) / (sum(r.L for r in stay) + 1))
        s.full = False
        return stay

    def end(self, s, now):
        ran = len(s.running)
        super().end(s, now)
        s.full = s.full and len(s.running) == ran
