"""The clock that a real batcher runs by: the machine's, or one that jumps to whatever is due next.

Under the second a batcher's own code runs unchanged, and what it reads and sleeps by is replaced: hours pass
in seconds, nothing is ever late, and a run is the same each time. What only a machine has (threads that
compete, timers that are late) it does not show: that is what the first is for.
"""

import asyncio
import contextlib
import heapq
import itertools
import math
import queue
import selectors
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest import mock

# What a look at a jumping clock costs, so that a loop that waits for the time to pass sees it pass.
LOOK_S = 1e-12
LEAD_S = 0.5  # between the start of a run on the machine's clock and its time 0


class Jumping:
    """Time passes when somebody sleeps; requests come on the way."""

    real = False

    def __init__(self, arrival_s):
        self.now_s, self.arrival_s, self.came = 0.0, arrival_s, 0
        self.deliver = None

    def now(self):
        return self.now_s

    def look(self):
        self.now_s += LOOK_S
        return self.now_s

    def next_s(self):
        closed = self.deliver is None or self.came == len(self.arrival_s)
        return None if closed else self.arrival_s[self.came]

    def sleep(self, seconds):
        until_s = self.now_s + seconds
        while (at_s := self.next_s()) is not None and at_s <= until_s:
            self.now_s = max(self.now_s, at_s)
            self.came += 1
            self.deliver(self.came - 1)
        self.now_s = max(self.now_s, until_s) + LOOK_S

    async def sleep_async(self, seconds):
        await asyncio.sleep(seconds)

    def begin(self): ...

    def leave(self): ...

    def replaced(self, *modules):
        """Let modules read and sleep by this clock."""
        stand_in = SimpleNamespace(time=self.look, monotonic=self.look, sleep=self.sleep)
        stack = contextlib.ExitStack()
        for module in modules:
            stack.enter_context(mock.patch.object(module, "time", stand_in))
        return stack

    def queue(self):
        return JumpingQueue(self)

    def of_threads(self, count):
        """Return a clock for so many threads."""
        return self if count == 1 else Crew(self.arrival_s, count)

    def run(self, main):
        """Run a coroutine function, `main(loop)`, to its end."""
        loop = _JumpingLoop(self)
        try:
            return loop.run_until_complete(main(loop))
        finally:
            loop.close()

    def open_door(self, deliver):
        """From now on call `deliver(request)` when a request comes."""
        self.deliver = deliver

    def from_outside(self, loop, call, *arguments):
        loop.call_soon(call, *arguments)


class JumpingQueue:
    """As much of `queue.Queue` as a batcher reads."""

    def __init__(self, clock):
        self.clock, self.items = clock, []

    def put(self, item):
        self.items.append(item)

    def get_nowait(self):
        if not self.items:
            self.clock.sleep(0)
        if not self.items:
            # The batcher turns in a circle until somebody comes.
            at_s = self.clock.next_s()
            if at_s is not None:
                self.clock.sleep(max(0, at_s - self.clock.now()))
            raise queue.Empty
        return self.items.pop(0)

    def get(self, timeout):
        until_s = self.clock.now() + timeout
        if not self.items:
            at_s = self.clock.next_s()
            here_s = until_s if at_s is None else min(at_s, until_s)
            self.clock.sleep(max(0, here_s - self.clock.now()))
        if not self.items:
            raise queue.Empty
        return self.items.pop(0)


class Crew(Jumping):
    """The jumping clock of several threads, which each call `begin` and at last `leave`.

    One of them goes on at a time: the one that is due first, and of these the one that has waited longest.
    """

    def __init__(self, arrival_s, count):
        super().__init__(arrival_s)
        self.missing, self.due, self.order = count, [], itertools.count()
        self.lock = threading.Lock()

    def begin(self):
        gate = threading.Semaphore(0)
        with self.lock:  # until all have begun they run side by side
            heapq.heappush(self.due, [-math.inf, next(self.order), gate])  # before a request that comes at 0
            self.missing -= 1
            if not self.missing:
                self._hand_on()
        gate.acquire()

    def leave(self):
        self._hand_on()

    def sleep(self, seconds):
        self.wait_until(self.now_s + seconds)

    def wait_until(self, until_s, line=None):
        """Let others go on; with a line, until somebody calls `wake` for it."""
        gate = threading.Semaphore(0)
        heapq.heappush(self.due, [until_s, next(self.order), gate])
        if line is not None:
            line.append(gate)
        self._hand_on()
        gate.acquire()
        if line is not None and gate in line:
            line.remove(gate)

    def wake(self, line):
        """Let who has waited longest in a line go on, now."""
        gate = line.pop(0)
        self.due = [each for each in self.due if each[2] is not gate]
        heapq.heapify(self.due)
        heapq.heappush(self.due, [self.now_s, next(self.order), gate])

    def _hand_on(self):
        while (at_s := self.next_s()) is not None and (not self.due or at_s <= self.due[0][0]):
            self.now_s = max(self.now_s, at_s)
            self.came += 1
            self.deliver(self.came - 1)
        if self.due:
            due_s, _, gate = heapq.heappop(self.due)
            self.now_s = max(self.now_s, due_s)
            gate.release()

    def queue(self):
        return CrewsQueue(self)


class CrewsQueue:
    """As much of `queue.Queue` as a batcher reads, of several threads: first come, first served."""

    def __init__(self, clock):
        self.clock, self.items, self.line = clock, [], []

    def put(self, item):
        self.items.append(item)
        if self.line:
            self.clock.wake(self.line)

    def get(self, timeout):
        if not self.items:
            self.clock.wait_until(self.clock.now() + timeout, self.line)
        if not self.items:
            raise queue.Empty
        return self.items.pop(0)


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def select(self, timeout=None):
        clock = self.clock
        at_s = clock.next_s()
        if timeout is None and at_s is None:
            raise RuntimeError("nothing will ever happen")
        waits = [] if timeout is None else [timeout]
        waits += [] if at_s is None else [at_s - clock.now()]
        clock.sleep(max(0, min(waits)))
        return []


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock):
        self.clock = clock
        super().__init__(_JumpingSelector(clock))

    def time(self):
        return self.clock.now()


class Machine:
    """The machine's own clock; requests come from a thread of their own."""

    real = True

    def __init__(self, arrival_s):
        self.arrival_s, self.zero_s = arrival_s, time.monotonic() + LEAD_S
        self.model = ThreadPoolExecutor(16)

    def now(self):
        return time.monotonic() - self.zero_s

    def sleep(self, seconds):
        self.sleep_until(self.now() + seconds)

    def sleep_until(self, at_s):
        while (left_s := at_s - self.now()) > 0:
            time.sleep(left_s)

    async def sleep_async(self, seconds):
        # In a thread: an event loop's timers are late by up to a millisecond.
        at_s = self.now() + seconds
        await asyncio.get_running_loop().run_in_executor(self.model, self.sleep_until, at_s)

    def replaced(self, *modules):
        return contextlib.nullcontext()

    def queue(self):
        return queue.Queue()

    def of_threads(self, count):
        return self

    def begin(self):
        self.sleep_until(0)

    def leave(self): ...

    def run(self, main):
        async def with_loop():
            return await main(asyncio.get_running_loop())

        return asyncio.run(with_loop())

    def open_door(self, deliver):
        def feed():
            for request, at_s in enumerate(self.arrival_s):
                self.sleep_until(at_s)
                deliver(request)

        threading.Thread(target=feed, daemon=True).start()

    def from_outside(self, loop, call, *arguments):
        loop.call_soon_threadsafe(call, *arguments)
