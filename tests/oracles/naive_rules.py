"""The naive simulator under the rules of real servers: a second spelling, as what somebody does."""

import math
from dataclasses import dataclass

from oracles.naive import BACKLOG, DRAIN, ENOUGH, FULL, REJECTED, WAIT, Naive, after
from oracles.naive_late import UntilLate
from oracles.naive_sizes import Ranges, Units, Window


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
                self.until = after(now, self.max_wait_ms / 1000)
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
class Freeze(Pull, Units):
    """A batcher takes requests as they come, as many as may be inside, and closes batches on its own."""

    max_ongoing: float = math.inf

    def look(self, now):
        while inside := self.inside():
            if self.until is None:
                self.until = after(now, self.max_wait_ms / 1000)
            batch, cut = inside[: self.max_batch_size], False
            if self.max_batch_units is not None:
                batch, cut = self.batch_of(self.waiting)
                batch, cut = batch[: len(inside)], cut and len(batch) <= len(inside)
            why = FULL if cut else self.why_closed(now, batch)
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
class Prefetch(Units):
    """A batcher holds one batch in advance, formed of those who wait as the one before it is handed over."""

    def look(self, now):
        while True:
            if self.frozen and None in self.computing:
                self.take(now, *self.frozen.pop())
            elif not self.frozen and self.waiting:
                batch, full = self.batch_of(self.waiting)
                if self.max_batch_units is None:
                    full = len(self.waiting) >= self.max_batch_size
                    batch = self.waiting[: self.max_batch_size]
                why = WAIT if self.arrival[self.waiting[0]] == now else BACKLOG
                batch = self.pull(len(batch))
                self.frozen = [(batch, FULL if full else why)]
            else:
                return

    def alarms(self):
        return ()


@dataclass
class Stall(Freeze):
    """The batcher stands still while all servers compute; whoever came meanwhile is let in afterwards."""

    let_in: float = (
        -1.0
    )  # when the last came that was let in before a batch started, if a batch forms of such
    seen: float = -1.0  # when the last came that has been seen

    def alarms(self):
        return super().alarms() if None in self.computing else ()

    def look(self, now):
        if self.max_wait_ms > 0:
            if None not in self.computing:
                return
            while self.waiting and None in self.computing:
                if self.until is None or self.arrival[self.waiting[0]] > self.seen:
                    self.until = after(now, self.max_wait_ms / 1000)
                why = self.why_closed(now, self.waiting[: self.max_batch_size])
                if why != FULL:
                    self.seen = self.arrival[self.waiting[-1]]
                if why is not None:
                    self.until = None
                    self.frozen.append((self.waiting[: self.max_batch_size], why))
                    self.waiting = self.waiting[self.max_batch_size :]
                elif self.frozen:
                    self.take(now, *self.frozen.pop(0))
                else:
                    return
            while self.frozen and None in self.computing:
                self.take(now, *self.frozen.pop(0))
            return
        while self.waiting and None in self.computing:
            ones = [who for who in self.waiting if self.arrival[who] <= self.let_in] or self.waiting
            taken = ones[: self.max_batch_size]
            why = WAIT if self.arrival[taken[0]] == now else BACKLOG
            self.let_in = self.arrival[self.waiting[-1]] if len(taken) < len(ones) else -1
            self.waiting = self.waiting[len(taken) :]
            self.take(now, taken, FULL if len(taken) == self.max_batch_size else why)


@dataclass
class Windows(Naive):
    """A server collects in windows since the last batch ended, or since the one before it got its batch."""

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
        if now >= self.deadline(self.waiting[0]):
            return WAIT
        return DRAIN if self.max_wait_ms == math.inf and not self.someone_may_come() else None

    def deadline(self, request):
        wait = self.max_wait_ms / 1000
        if wait in (0, math.inf):
            return after(self.since, wait)
        number = 1
        while after(self.since, number * wait) < self.arrival[request]:
            number += 1
        return after(self.since, number * wait)


class Hand:
    """A server that collects, and who is in its batch so far."""

    def __init__(self, now):
        self.since, self.asks, self.holds, self.until = now, now, [], None


@dataclass
class Compete(Naive):
    """Each idle server has a hand, which it fills in a window of its own, and requests are dealt."""

    poll_ms: float = 1.0
    seen: float = -1.0

    def begin(self):
        self.hands = [Hand(0.0) for _ in range(min(self.servers, 64))]  # who has asked longest comes first
        self.dealt: list[int] = []  # the numbers of the deals in all hands, the oldest first
        self.whom: list[int] = []  # by number of the deal
        super().begin()

    def released(self, now, job):
        if len(self.hands) < 64:
            self.hands.append(Hand(now))

    def alarms(self):
        if self.waiting and None in self.computing:
            yield from (hand.until for hand in self.hands if hand.holds)

    def end_of(self, since, length, when):
        """When that of the stretches of this length ends in which a time is."""
        number = max(1, int((when - since) / length) - 2)
        while after(since, number * length) < when:
            number += 1
        return after(since, number * length)

    def asked(self, hand, now):
        """What tells who has asked longest."""
        if self.poll_ms == math.inf:
            return hand.asks
        wait, asks = self.max_wait_ms / 1000, hand.asks
        end = self.end_of(hand.since, wait, now)
        if not hand.holds and end > after(hand.since, wait):
            asks = max(asks, after(end, -wait))
        return self.end_of(asks, self.poll_ms / 1000, now)

    def look(self, now):
        if self.max_wait_ms == 0:
            super().look(now)
            return
        while self.waiting and None in self.computing:
            self.forget()
            self.deal(now)
            full = [hand for hand in self.hands if len(hand.holds) == self.max_batch_size]
            over = [hand for hand in self.hands if hand.holds and now >= hand.until]
            if not full and not over:
                return
            hand = full[0] if full else min(over, key=lambda hand: hand.until)
            self.hands.remove(hand)
            if len(self.hands) + 1 < self.computing.count(None):
                self.hands.append(Hand(now))
            self.dealt = [deal for deal in self.dealt if deal not in hand.holds]
            self.take(now, self.pull_those([self.whom[deal] for deal in hand.holds]), FULL if full else WAIT)

    def pull_those(self, whom):
        if self.by_level:  # others may go first: only how many is dealt then
            return self.pull(len(whom))
        self.waiting = [who for who in self.waiting if who not in whom]
        return whom

    def forget(self):
        """Whoever has timed out is in no hand: the first that were dealt."""
        here = [who for who in self.waiting if self.arrival[who] <= self.seen][: len(self.dealt)]
        for lost in self.dealt[: len(self.dealt) - len(here)]:
            for hand in self.hands:
                hand.holds = [deal for deal in hand.holds if deal != lost]
        self.dealt = self.dealt[len(self.dealt) - len(here) :]

    def deal(self, now):
        """Deal until a hand is full."""
        for who in self.waiting[len(self.dealt) :]:
            hand = min(self.hands, key=lambda hand: self.asked(hand, now))
            self.seen = self.arrival[who]
            if not hand.holds:
                wait = self.max_wait_ms / 1000
                runs = self.poll_ms < math.inf
                hand.until = self.end_of(hand.since, wait, self.seen) if runs else after(now, wait)
            self.dealt.append(len(self.whom))
            hand.holds = [*hand.holds, len(self.whom)]
            self.whom.append(who)
            if self.seen >= hand.since:
                self.go_behind(hand, now)
                others = [other for other in self.hands if other is not hand]
                if self.poll_ms == math.inf and others:
                    self.go_behind(others[0], now)
            if len(hand.holds) == self.max_batch_size:
                return

    def go_behind(self, hand, now):
        hand.asks = now
        self.hands = [other for other in self.hands if other is not hand] + [hand]


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
    """It looks every ms; it learns what a request costs and how long batches wait, and holds one for less."""

    patience: float = 0.95
    max_latency_ms: float = math.inf
    now: float = 0.0
    left: float = 0.0  # when a batch last left, or a request was refused
    freed: float = 0.0  # when a server last became free
    last_wait: float = 0.0
    learned_at: float | None = None
    a: float = 0.0
    b: float = 0.0
    w: float = 0.0
    budget: float = 0.0

    def __post_init__(self):
        self.ended = []  # (size, seconds, wait) of each batch

    def four_steps(self, now):
        self.now = now
        super().four_steps(now)

    def first_look(self):
        return max(self.left, self.arrival[self.waiting[0]])

    def looks_before(self, now):
        """How many ticks it takes from the first look to one that is not before now."""
        first, ticks = self.first_look(), 0
        if now - first > 0.01:
            ticks = int((now - first) * 1000) - 2
        while after(first, ticks * 0.001) < now:
            ticks += 1
        return ticks

    def alarms(self):
        if self.waiting and (None in self.computing or self.max_latency_ms < math.inf):
            first, ticks = self.first_look(), self.looks_before(self.now)
            if after(first, ticks * 0.001) == self.now:
                ticks += 1
            yield after(first, ticks * 0.001)

    def wanted(self):
        """For how many the tenth and the eleventh batch wait."""
        return min({9: 2, 10: 3}.get(len(self.batch_start), 1), self.max_batch_size)

    def look(self, now):
        while self.waiting and self.is_look(now):
            if self.too_late(now):
                self.left = now
                (who,) = self.pull(1)
                self.status[who] = REJECTED
                self.refused.append(who)
            elif None in self.computing and (why := self.why_now(now)) is not None:
                self.take(now, self.pull(self.size_of_next()), why)
            else:
                return

    def is_look(self, now):
        return after(self.first_look(), self.looks_before(now) * 0.001) == now

    def too_late(self, now):
        limit, done = self.max_latency_ms / 1000, len(self.batch_start)
        oldest, count = self.arrival[self.waiting[0]], len(self.waiting)
        if done < 11:
            to_train = [2, 1, 0, -1, -2, -3, -4, -5, 6, 5, 3][done]
            return count > to_train and now >= after(oldest, limit)
        if count == 1:
            return None not in self.computing and now >= after(oldest, limit)
        return now >= after(oldest, limit - (self.a * count + self.b))

    def held(self, now):
        oldest, newest = self.arrival[self.waiting[0]], self.arrival[self.waiting[-1]]
        if len(self.batch_start) < 11:
            group = self.wanted()
            short = len(self.waiting) < group
            return short and group * self.a + self.b + (now - oldest) <= self.budget
        if len(self.waiting) >= self.max_batch_size:
            return False
        return len(self.waiting) * ((now - newest) + 0.001 + self.a) <= self.patience * self.w

    def why_now(self, now):
        first, ticks = self.first_look(), self.looks_before(now)
        if after(first, ticks * 0.001) != now or self.held(now):
            return None
        if len(self.waiting) >= self.max_batch_size:
            return FULL
        if self.arrival[self.waiting[-1]] == now:
            return ENOUGH
        was_busy = ticks == 0 or self.freed > after(first, (ticks - 1) * 0.001)
        return BACKLOG if was_busy else WAIT

    def take(self, now, taken, why):
        oldest = min(self.arrival[request] for request in taken + self.waiting)
        started = len(self.batch_start)
        self.last_wait = now - oldest if started >= 11 else 0.0
        super().take(now, taken, why)
        self.left = now
        if 9 <= started + 1 <= 11:
            self.learn()
            self.budget = min(0.95 * self.max_latency_ms / 1000, (2 * self.wanted() + 1) * self.a + self.b)

    def released(self, now, job):
        self.freed = now
        seconds = self.batch_finish[job] - self.batch_start[job]
        self.ended.append((self.size[job], seconds, self.last_wait))
        if len(self.ended) < 3:
            return
        if self.learned_at is None or now >= after(self.learned_at, 5):
            self.learned_at = now
            self.learn()

    def learn(self):
        kept = self.ended[2:]
        # In the order of a ring of 50, as the last bit of a sum depends on it.
        ring = kept[:50]
        for number in range(50, len(kept)):
            ring[number % 50] = kept[number]
        if not ring:
            return
        count = len(ring)
        x, y = sum(n for n, _, _ in ring), sum_of(s for _, s, _ in ring)
        xx, xy = sum(n * n for n, _, _ in ring), sum_of(n * s for n, s, _ in ring)
        if count * xx == x * x:
            b = y / count / (x / count * (x / count) + 1)
            a = x / count * b
        else:
            a = (count * xy - x * y) / (count * xx - x * x)
            b = (y - a * x) / count
        self.a, self.b = max(1e-6, a), max(0.0, b)
        self.w = sum_of(w for _, _, w in ring) / count


@dataclass
class Sizes(Naive):
    """It takes what can be computed before the oldest is late; it learns how long sizes take."""

    deadline_ms: float = 100.0
    allowed: int = 0
    tried: int = 1
    fill: bool = False

    def __post_init__(self):
        self.took = {}  # by size: how many batches, their mean and their standard deviation
        self.slowest = 0.0
        self.as_many = {}

    def why_now(self, now):
        left = 0.92 * (self.arrival[self.waiting[0]] + self.deadline_ms / 1000 - now)
        self.fill = left > self.slowest and not (
            self.tried == self.max_batch_size and self.samples(self.tried) >= 5
        )
        if not self.fill:
            self.allowed = self.on_the_line(left)
        elif self.samples(self.tried) not in (1, 2, 3, 4):
            more = self.tried + 1 if self.tried < 10 else int(1.1 * self.tried)
            self.allowed = min(more, self.max_batch_size)
        else:
            self.allowed = self.tried
        self.tried = max(self.tried, self.allowed)
        if len(self.waiting) >= self.allowed:
            return FULL if self.allowed == self.max_batch_size else ENOUGH
        return WAIT if self.arrival[self.waiting[0]] == now else BACKLOG

    def samples(self, size):
        return self.took[size][0] if size in self.took else 0

    def size_of_next(self):
        return min(len(self.waiting), self.allowed)

    def alarms(self):
        return ()

    def computed_as(self, taken):
        return self.allowed if self.fill else len(taken)

    def take(self, now, taken, why):
        self.as_many[len(self.size)] = self.computed_as(taken)
        super().take(now, taken, why)

    def released(self, now, job):
        took = self.batch_finish[job] - self.batch_start[job]
        self.slowest = max(self.slowest, took)
        n, mean, std = self.took.get(self.as_many[job], (0, 0.0, 0.0))
        new = (n * mean + took) / (n + 1)
        squares = std * std * n + (n + 1) / max(1, n) * ((new - took) * (new - took))
        self.took[self.as_many[job]] = n + 1, new, math.sqrt(squares / (n + 1))

    def on_the_line(self, left):
        """The size at which the line through all sizes is at the time that is left."""
        if not self.took:
            return 1
        known = [(n, std) for _, (n, _, std) in sorted(self.took.items()) if n >= 5]
        freedom = sum(n for n, _ in known) - len(self.took)
        pooled = math.sqrt(sum_of((n - 1) * std * std for n, std in known) / max(1, freedom))
        points = [(1000 * (mean + 3 * pooled), size) for size, (_, mean, _) in sorted(self.took.items())]
        count = len(points)
        x, y = sum_of(x for x, _ in points), sum(y for _, y in points)
        xx, xy = sum_of(x * x for x, _ in points), sum_of(x * y for x, y in points)
        if count * xx - x * x > 1e-9 * count * xx and count > 1:
            slope = (count * xy - x * y) / (count * xx - x * x)
            offset = (y - slope * x) / count
        else:
            offset = (y / count) / (x / count * (x / count) + 1)
            slope = x / count * offset
        return int(min(max(1, math.floor(slope * (1000 * left) + offset + 1e-9)), self.max_batch_size))


def sum_of(numbers):
    """The plain sum from left to right: Python's own is more exact."""
    total = 0.0
    for number in numbers:
        total += number
    return total


NAIVE = {
    "Buckets": Ranges, "SortedWindow": Window,
    "CompetingWindows": Compete,
    "FrozenBatches": Freeze, "PrefetchedBatches": Prefetch,
    "LearnedCork": Cork, "LearnedSizes": Sizes, "PreferredUntilLate": UntilLate,
    "PullThenWait": Pull, "RunningWindow": Windows, "SleepingPoll": Poll, "StalledBatches": Stall,
}  # fmt: skip
