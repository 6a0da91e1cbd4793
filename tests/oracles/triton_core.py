"""The dynamic batcher of Triton, step by step as its source has it, on a clock of whole nanoseconds.

Source: `dynamic_batch_scheduler.cc`, `payload.cc` and `instance_queue.cc` of triton-inference-server/core,
June 2026; requests of one, without priorities or limits of the queue. Its threads take no time here.
"""

import math


class Payload:
    def __init__(self):
        self.requests, self.executing = [], False


class Core:
    """`ragged`: the model has inputs of variable shapes, so that each request wakes the batcher."""

    def __init__(self, arrivals_ns, took_ns, preferred, largest, delay_ns, instances, ragged=True):
        self.arrivals_ns, self.took_ns, self.preferred = arrivals_ns, took_ns, {*preferred}
        self.most, self.largest, self.delay_ns = max(preferred), largest, delay_ns
        self.idle = self.instances = instances
        self.ragged, self.now, self.wakes, self.next_preferred = ragged, 0, math.inf, 0
        self.queue, self.payloads, self.ends, self.batches = [], [], [], []
        self.new_payload()

    def new_payload(self):
        self.current, self.saturated, self.next_preferred = Payload(), False, 0

    def slot_available(self):
        return len(self.payloads) < 2 * self.instances

    def enqueue(self, request):
        self.queue.append(request)
        over = self.saturated or self.current.executing or len(self.queue) >= self.next_preferred
        if self.slot_available() and (self.ragged or over):
            self.batcher_thread()

    def batcher_thread(self):
        self.wakes = math.inf
        while True:
            if self.saturated or self.current.executing:
                self.new_payload()
            if not self.queue or not self.slot_available():
                return
            wait_ns, pending = self.get_dynamic_batch()
            if wait_ns:
                self.wakes = self.now + wait_ns
                return
            new = not self.current.requests
            self.current.requests += self.queue[:pending]
            del self.queue[:pending]
            if new and pending:
                self.payloads.append(self.current)
                if self.idle:
                    self.dequeue()

    def get_dynamic_batch(self):
        payload, pending, best, send_now = len(self.current.requests), 0, 0, False
        while pending < len(self.queue):
            if payload + pending > 0:
                if payload + pending + 1 > self.most and best == 0:
                    best, self.saturated = pending, True
                if payload + pending + 1 > self.largest:
                    send_now = True
                    break
            pending += 1
            if payload + pending in self.preferred:
                best = pending
        age_ns = self.now - self.arrivals_ns[self.queue[0]]
        exceeded = self.delay_ns != 0 and age_ns >= self.delay_ns
        if best != 0 and not exceeded:
            self.saturated |= self.delay_ns == 0
            return 0, best
        if pending == 0:
            return 0, 0
        if send_now or payload + pending >= self.most:
            self.saturated = True
            return 0, pending
        if exceeded or self.delay_ns == 0:
            return 0, pending
        above = [size for size in self.preferred if size > payload + pending]
        self.next_preferred = min(above or self.preferred) - payload
        if not self.saturated and payload != 0 and payload not in self.preferred:
            return 0, pending
        return self.delay_ns - age_ns, 0

    def dequeue(self):
        first = self.payloads.pop(0)
        first.executing = True
        while self.payloads and self.delay_ns > 0 and self.largest > 1:
            front = self.payloads[0]
            old = self.now - self.arrivals_ns[front.requests[0]] > self.delay_ns
            if not old or len(first.requests) + len(front.requests) > self.largest:
                break
            self.payloads.pop(0).executing = True
            first.requests += front.requests
        self.idle -= 1
        self.ends.append(self.now + self.took_ns[len(first.requests)])
        self.batches.append((self.now, len(first.requests)))

    def run(self):
        coming = list(range(len(self.arrivals_ns)))
        while True:
            next_ns = self.arrivals_ns[coming[0]] if coming else math.inf
            self.now = min(next_ns, self.wakes, *self.ends)
            if self.now == math.inf:
                return self.batches
            if next_ns == self.now:
                self.enqueue(coming.pop(0))
            elif self.now in self.ends:
                self.ends.remove(self.now)
                self.idle += 1
                if self.payloads:
                    self.dequeue()
                self.batcher_thread()
            else:
                self.batcher_thread()
