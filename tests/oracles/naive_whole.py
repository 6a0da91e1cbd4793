"""Whole batches of token generation, naively: nobody joins, and all go home when the longest is done."""

import math

from oracles.naive import after
from oracles.naive_instants import NaiveInstants


class NaiveWhole(NaiveInstants):
    """`rule`: "largest", "enough" and "wait_s", and whether rows are "ragged"."""

    def instants(self):
        yield from super().instants()
        if self.waiting and not all(server.rows for server in self.servers):
            yield after(self.waiting[0].arrival, self.rule["wait_s"])

    def schedule(self, s, now):
        s.preempted, ragged = 0, self.rule["ragged"]
        if not s.running and self.waiting:
            ended = math.isinf(self.rule["wait_s"]) and not self.someone_may_come()
            due = now >= after(self.waiting[0].arrival, self.rule["wait_s"])
            if due or ended or len(self.waiting) >= self.rule["enough"]:
                largest = self.rule["largest"]
                s.running, self.waiting = self.waiting[:largest], self.waiting[largest:]
        longest = max((r.P for r in s.running), default=0)
        s.rows = []
        for r in s.running:
            prompt = r.P if ragged else longest
            if not ragged or r.made < r.O:
                s.rows.append((r, 1, r.held) if r.held else (r, prompt, 0))
                r.held = r.held + 1 if r.held else prompt
        return s.rows

    def end(self, s, now):
        for r, _, _ in s.rows:
            r.made += 1
            if r.made <= r.O:
                r.tokens.append(now)
            r.first = now if r.made == 1 else r.first
        s.rows, s.until = [], math.inf
        if all(r.made >= r.O for r in s.running):
            for r in list(s.running):
                self.leave(s, r, now)
