"""The naive simulator under the rules of real servers: a second spelling, as what somebody does."""

import math
from dataclasses import dataclass

from oracles.naive import BACKLOG, DRAIN, ENOUGH, FULL, WAIT, Naive


@dataclass
class Pull(Naive):
    """A worker takes the oldest request, and from then on waits for more."""

    until: float | None = None  # the end of the worker's wait; None: no worker has taken a request

    def enter(self, now, sender):
        if not self.waiting:
            self.until = None  # whoever was taken has given up
        return super().enter(now, sender)

    def alarms(self):
        if self.until is not None and self.waiting:
            yield self.until

    def look(self, now):
        while self.waiting and None in self.computing:
            if self.until is None:
                self.until = now + self.max_wait_ms / 1000
            why = self.why_now(now)
            if why is None:
                return
            self.until = None
            self.take(now, self.pull(self.max_batch_size), why)

    def why_now(self, now):
        if len(self.waiting) >= self.max_batch_size:
            return FULL
        if now >= self.until:
            came_before = self.arrival[self.waiting[0]] < now
            return BACKLOG if self.max_wait_ms == 0 and came_before else WAIT
        return DRAIN if self.max_wait_ms == math.inf and not self.someone_may_come() else None


@dataclass
class Freeze(Pull):
    """A batcher takes requests as they come, as many as may be inside, and closes batches on its own."""

    max_ongoing: float = math.inf

    def look(self, now):
        while inside := self.inside():
            if self.until is None:
                self.until = now + self.max_wait_ms / 1000
            batch = inside[: self.max_batch_size]
            why = self.why_closed(now, batch)
            if why is None:
                break
            self.until = None
            self.frozen.append((self.pull(len(batch)), why))
        while self.frozen and None in self.computing:
            self.take(now, *self.frozen.pop(0))

    def inside(self):
        """Those in the batch that forms: the oldest, as far as there is room beside the other batches."""
        taken = sum(len(batch) for batch, _ in self.frozen)
        taken += sum(self.size[job] for job in self.computing if job is not None)
        return [who for place, who in enumerate(self.waiting) if place < self.max_ongoing - taken]

    def why_closed(self, now, batch):
        if len(batch) == self.max_batch_size:
            return FULL
        if now >= self.until:
            return WAIT
        last = len(batch) == len(self.waiting) and not self.someone_may_come()
        return DRAIN if self.max_wait_ms == math.inf and last else None


@dataclass
class Since(Naive):
    """A server collects since the last batch ended, or since the one before it got its batch."""

    since: float | None = 0.0  # None: every server computes

    def released(self, now, job):
        if self.since is None:
            self.since = now

    def take(self, now, taken, why):
        super().take(now, taken, why)
        self.since = now if None in self.computing else None

    def alarms(self):
        if self.waiting and None in self.computing:
            yield self.deadline(self.waiting[0])

    def why_now(self, now):
        if len(self.waiting) >= self.max_batch_size:
            return FULL
        if self.max_wait_ms == 0:
            return BACKLOG if self.arrival[self.waiting[0]] < now else WAIT
        due = self.deadline(self.waiting[0])
        if now >= due:
            return self.why_due(now, due)
        return DRAIN if self.max_wait_ms == math.inf and not self.someone_may_come() else None


@dataclass
class Windows(Since):
    """It collects in windows, one after the other."""

    def deadline(self, request):
        wait = self.max_wait_ms / 1000
        if wait in (0, math.inf):
            return self.since + wait
        number = 1
        while self.since + number * wait < self.arrival[request]:
            number += 1
        return self.since + number * wait

    def why_due(self, now, due):
        return WAIT


@dataclass
class Last(Since):
    """It collects for a while after the last batch, and then sends whoever comes."""

    def deadline(self, request):
        return self.since + self.max_wait_ms / 1000

    def alarms(self):
        # What is due has been sent; a look at a past time would stand still.
        if self.waiting and None in self.computing:
            yield max(self.deadline(0), self.arrival[self.waiting[0]])

    def why_due(self, now, due):
        return WAIT if now == due else ENOUGH


@dataclass
class Poll(Windows):
    """It sleeps through its windows, and takes several full batches at once."""

    def alarms(self):
        return () if self.frozen else super().alarms()

    def look(self, now):
        if not self.frozen and self.waiting and None in self.computing and self.awake(now):
            for _ in range(len(self.waiting) // self.max_batch_size or 1):
                why = self.why_taken(now)
                self.frozen.append((self.pull(self.max_batch_size), why))
        while self.frozen and None in self.computing:
            self.take(now, *self.frozen.pop(0))
            if not self.frozen and self.since is not None:
                self.look(now)  # another server looks for itself

    def awake(self, now):
        if now == self.since and len(self.waiting) >= self.max_batch_size:
            return True
        return self.max_wait_ms == 0 or now >= self.deadline(self.waiting[0])

    def why_taken(self, now):
        if len(self.waiting) >= self.max_batch_size:
            return FULL
        return BACKLOG if self.max_wait_ms == 0 and self.arrival[self.waiting[0]] < now else WAIT


@dataclass
class Cork(Naive):
    """It learns what a request costs and how long batches wait, and holds a batch while that is less."""

    patience: float = 0.95
    ended: int = 0
    started: int = 0
    last_wait: float = 0.0
    learned_at: float = 0.0
    a: float = 0.0
    w: float = 0.0

    def __post_init__(self):
        self.kept = []  # (size, seconds, wait) of each batch

    def alarms(self):
        if self.waiting and None in self.computing and self.ended >= 9:
            yield self.hold()

    def hold(self):
        newest = self.arrival[self.waiting[-1]]
        return newest + (self.patience * self.w / len(self.waiting) - 0.001 - self.a)

    def why_now(self, now):
        if len(self.waiting) >= self.max_batch_size:
            return FULL
        if self.ended >= 9 and now < self.hold():
            return None
        if self.ended >= 9 and now == self.hold():
            return WAIT
        return ENOUGH if self.arrival[self.waiting[-1]] == now else BACKLOG

    def take(self, now, taken, why):
        oldest = min(self.arrival[request] for request in taken + self.waiting)
        self.last_wait = now - oldest if self.started >= 9 else 0.0
        self.started += 1
        super().take(now, taken, why)

    def released(self, now, job):
        self.ended += 1
        if self.ended <= 2:
            return
        self.kept.append((self.size[job], self.batch_finish[job] - self.batch_start[job], self.last_wait))
        if self.ended > 9 and now < self.learned_at + 5:
            return
        self.learned_at = now
        # In the order of a ring of 50, as the last bit of a sum depends on it.
        ring = self.kept[:50]
        for number in range(50, len(self.kept)):
            ring[number % 50] = self.kept[number]
        count = len(ring)
        x, y = sum(n for n, _, _ in ring), sum_of(s for _, s, _ in ring)
        xx, xy = sum(n * n for n, _, _ in ring), sum_of(n * s for n, s, _ in ring)
        if count * xx == x * x:
            a = x / count * (y / count) / (x / count * (x / count) + 1)
        else:
            a = (count * xy - x * y) / (count * xx - x * x)
        self.a, self.w = max(1e-6, a), sum_of(w for _, _, w in ring) / count


@dataclass
class UntilLate(Naive):
    """Triton's: sizes count while the oldest is in time."""

    def plan(self, now):
        """How many go now, and why; None where they wait on."""
        pending = min(len(self.waiting), self.max_batch_size)
        fitting = [size for size in self.preferred if size <= pending]
        oldest = self.waiting[0]
        if self.max_wait_ms != 0 and now >= self.deadline(oldest):
            why = WAIT if now == self.deadline(oldest) else BACKLOG
            return pending, FULL if pending == self.max_batch_size else why
        if fitting:
            return fitting[-1], FULL if fitting[-1] == self.max_batch_size else ENOUGH
        if self.max_wait_ms == 0:
            return pending, WAIT if self.arrival[oldest] == now else BACKLOG
        if self.max_wait_ms == math.inf and not self.someone_may_come():
            return pending, DRAIN
        return None

    def look(self, now):
        while self.waiting and None in self.computing and (planned := self.plan(now)):
            self.take(now, self.pull(planned[0]), planned[1])


def sum_of(numbers):
    """The plain sum from left to right: Python's own is more exact."""
    total = 0.0
    for number in numbers:
        total += number
    return total


NAIVE = {
    "FrozenBatches": Freeze, "LearnedCork": Cork, "PreferredUntilLate": UntilLate, "PullThenWait": Pull,
    "RunningWindow": Windows, "SleepingPoll": Poll, "WaitSinceLast": Last,
}  # fmt: skip
