"""The naive simulator with sizes: the times of batches and the rules that read sizes, spelt again."""

import math
from dataclasses import dataclass

from oracles.naive import BACKLOG, DRAIN, FULL, WAIT, Naive

import batchsim as bs


def cost_of(service):
    """What says the shape and the mean seconds of a batch from its requests' sizes."""

    def up(value, steps):
        return value if not steps else min(step for step in steps if step >= value)

    def table(sizes):
        count, longest = up(len(sizes), service.batch_sizes), up(max(sizes), service.lengths)
        row = service.times_ms[service.batch_sizes.index(count)]
        return (count, longest), row[service.lengths.index(longest)] / 1000

    def formula(sizes):
        count, longest = up(len(sizes), service.padding), max(sizes)
        units, pairs = sum(sizes), sum(size**2 for size in sizes)
        if isinstance(service, bs.PaddedTime):
            longest = up(longest, service.lengths)
            units, pairs = count * longest, count * longest**2
        own_s = (service.fixed_ms + service.per_item_ms * count) / 1000
        extra_s = service.per_unit_ms / 1000 * units + service.per_pair_ms / 1000 * pairs
        return (count, longest), own_s + extra_s

    return table if isinstance(service, bs.SizeTable) else formula


@dataclass
class Units(Naive):
    """The textbook rule with a limit on the units of a batch."""

    max_batch_units: int | None = None
    units: str = "padded"

    def fits(self, sizes) -> bool:
        if len(sizes) > self.max_batch_size:
            return False
        units = sum(sizes) if self.units == "summed" else len(sizes) * max(sizes)
        return self.max_batch_units is None or len(sizes) == 1 or units <= self.max_batch_units

    def batch_of(self, queue):
        """The next batch of some requests in order, and whether nobody else may join it."""
        sizes = []
        for request in queue:
            if not self.fits([*sizes, self.size_of(request)]):
                return queue[: len(sizes)], True
            sizes.append(self.size_of(request))
        return queue, not self.fits([*sizes, 1])

    def why(self, now, batch, full):
        due = self.deadline(batch[0])
        if full:
            return FULL
        if now >= due:
            return WAIT if now == due else BACKLOG
        return DRAIN if self.max_wait_ms == math.inf and not self.someone_may_come() else None

    def queues(self):
        """The queues that there are; a batch holds requests of one of them."""
        return [self.waiting]

    def alarms(self):
        if None in self.computing:
            yield from (self.deadline(queue[0]) for queue in self.queues() if queue)

    def look(self, now):
        while self.waiting and None in self.computing:
            batches = [self.batch_of(queue) for queue in self.queues() if queue]
            due = [(batch, self.why(now, batch, full)) for batch, full in batches]
            due = sorted((batch[0], batch, why) for batch, why in due if why is not None)
            if not due:
                return
            _, batch, why = due[0]
            self.waiting = [request for request in self.waiting if request not in batch]
            self.take(now, list(batch), why)


@dataclass
class Ranges(Units):
    """One queue for each range of sizes."""

    edges: tuple = ()

    def queues(self):
        lows = (0, *self.edges[:-1])
        return [
            [request for request in self.waiting if low < self.size_of(request) <= high]
            for low, high in zip(lows, self.edges, strict=True)
        ]


@dataclass
class Window(Units):
    """Batches of neighbours by size, chosen among the oldest."""

    window: int = 1

    def batch_of(self, queue):
        count = min(len(queue), self.max_batch_size)
        ordered = sorted(queue[: self.window], key=lambda request: (self.size_of(request), request))
        groups = [ordered[begin : begin + count] for begin in range(len(ordered) - count + 1)]

        def padding(group):
            sizes = [self.size_of(request) for request in group]
            return sum(max(sizes) - size for size in sizes)

        best = min((group for group in groups if queue[0] in group), key=padding)
        return sorted(best), count == self.max_batch_size
