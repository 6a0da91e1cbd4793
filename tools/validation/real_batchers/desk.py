"""Requests at a real batcher's door and the model behind it: who came, was computed and left, and when."""

import math

import numpy as np


class Stop(BaseException):
    """Ends a loop that has no end; no Exception, as servers catch these and go on."""


class Desk:
    """Takes the times, on any clock, and keeps how late the machine was with what was planned.

    `late_s`: how much later than planned each request came; `overrun_s`: how much longer than planned each
    call of the model took. Both are 0 on a clock that does not run by itself.
    """

    def __init__(self, clock, arrival_s, service, done=lambda: None):
        self.clock, self.arrival_s, self.service, self.done = clock, np.asarray(arrival_s), service, done
        count = self.arrival_s.size
        self.late_s, self.start_s, self.finish_s = (np.full(count, math.nan) for _ in range(3))
        self.sizes, self.overrun_s = [], []
        self.left = count

    def enter(self, request):
        self.late_s[request] = self.clock.now() - self.arrival_s[request]

    def begin(self, requests):
        """Note that the model gets a batch, and return for how many seconds it computes."""
        self.start_s[list(requests)] = self.clock.now()
        self.sizes.append(len(requests))
        return self.service(len(requests))

    def end(self, requests):
        """Note that a batch is computed."""
        requests = list(requests)
        now_s = self.clock.now()
        self.finish_s[requests] = now_s
        planned_s = self.service(len(requests))
        self.overrun_s.append(now_s - self.start_s[requests[0]] - planned_s)
        self.left -= len(requests)
        if self.left == 0:
            self.done()

    def refuse(self):
        """Note that a request leaves unserved."""
        self.left -= 1
        if self.left == 0:
            self.done()

    def compute(self, requests):
        """The model of a batcher with threads: it sleeps."""
        self.clock.sleep(self.begin(requests))
        self.end(requests)
        return list(requests)

    async def compute_async(self, requests):
        """The model of a batcher in an event loop, which goes on while this computes."""
        await self.clock.sleep_async(self.begin(requests))
        self.end(requests)
        return list(requests)

    async def compute_blocking(self, requests):
        """The model that stops the event loop while it computes."""
        return self.compute(requests)

    @property
    def latency_ms(self):
        return 1000 * (self.finish_s - self.arrival_s)
