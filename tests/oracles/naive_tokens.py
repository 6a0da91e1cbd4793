"""Token generation, deliberately naive: continuous batching by whole passes over plain lists."""

import math

from oracles.naive_instants import NEVER, NaiveInstants


class NaiveTokens(NaiveInstants):
    """`rule`: the parameters of `Continuous`, the frequent ones by shorter names."""

    def schedule(self, s, now):
        budget, chunked = self.rule.get("budget", 2048), self.rule.get("chunked", True)
        s.preempted, s.rows, s.left, self.now = 0, [], budget, now
        if self.rule.get("first", "decode") == "decode":
            self.serve(s, s.running)
            self.admit(s)
        else:
            self.serve(s, [r for r in s.running if r.cut and chunked])
            self.admit(s)
            if not s.rows:
                s.left = NEVER
                self.serve(s, s.running)
        return s.rows

    def tokens(self, s, r):
        """How many tokens of a request there is room for, 0 if it has to wait."""
        n = min(r.P + r.made - r.held, self.rule.get("threshold") or NEVER)
        return min(n, s.left) if self.rule.get("chunked", True) or n <= s.left else 0

    def blocks(self, tokens):
        return -(-tokens // self.rule.get("block_size", 16))

    def give(self, s, r, n, blocks):
        s.rows.append((r, n, r.held))
        s.left, s.free, r.blocks, r.held = s.left - n, s.free - blocks, r.blocks + blocks, r.held + n
        r.cut = r.held < r.P + r.made

    def serve(self, s, which):
        for r in list(which):
            n = self.tokens(s, r)
            if r not in s.running or n == 0:
                continue
            need = max(self.blocks(r.held + n) - r.blocks, 0)
            while need > s.free:
                victim = s.running.pop()
                self.send_back(s, victim)
                self.waiting.insert(0, victim)
                if victim is r:
                    return
            self.give(s, r, n, need)

    def send_back(self, s, r):
        r.recomputed, r.preemptions = r.recomputed + r.held, r.preemptions + 1
        s.free, s.preempted = s.free + r.blocks, s.preempted + 1
        r.held = r.blocks = 0
        r.back, r.entry = self.now, [r.number, len(self.steps), -1, -1]
        self.preemptions.append(r.entry)

    def admit(self, s):
        life = self.rule.get("reserve", "step") == "life"
        while (
            self.waiting and s.left > 0 and len(s.running) < self.rule.get("seats", 256) and not s.preempted
        ):
            r = self.waiting[0]
            n, all_ = self.tokens(s, r), self.blocks(r.P + r.L - 1 if life else r.P + r.made)
            if n == 0 or all_ - self.spared(s, r) > s.free - (0 if life else self.rule.get("watermark", 0)):
                return
            self.let_in(s, self.waiting.pop(0))
            self.give(s, r, n, all_ if life else self.blocks(n))

    def spared(self, s, r):
        """The blocks of its beginning that others hold anyway."""
        return 0

    def let_in(self, s, r):
        if r.preemptions:
            away = "after" if r.made else "before"
            setattr(r, away, getattr(r, away) + (self.now - r.back))
            r.entry[2] = len(self.steps)
        s.running.append(r)

    def end(self, s, now):
        for r, _, _ in s.rows:
            r.made += not r.cut
            if not r.cut:
                r.tokens.append(now)
            if r.entry and not r.cut:
                r.entry[3], r.entry = s.step, None
            r.first = now if r.made == 1 and math.isnan(r.first) else r.first
            if r.made == r.O:
                self.leave(s, r, now)
        s.rows, s.until = [], NEVER
