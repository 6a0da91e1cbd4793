"""The naive simulator under Triton's preferred sizes: batches as lists of requests."""

import math
from dataclasses import dataclass

from oracles.naive import BACKLOG, DRAIN, ENOUGH, FULL, WAIT, Naive


@dataclass
class UntilLate(Naive):
    """Sizes count while the oldest is in time; the next batches form meanwhile, and the last grows."""

    grows: bool = False

    def begin(self):
        super().begin()
        self.formed = []
        self.limited = self.by_level or self.queue_limit is not None or self.timeout_ms is not None

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
        while self.limited and self.waiting and None in self.computing and (planned := self.plan(now)):
            self.take(now, self.pull(planned[0]), planned[1])
        while not self.limited:
            while self.joined(now) and None not in self.computing:
                pass
            if not self.formed or None not in self.computing:
                return
            batch = self.formed.pop(0)
            while self.formed and self.max_wait_ms != 0 and now > self.deadline(self.formed[0][0]):
                if len(batch) + len(self.formed[0]) > self.max_batch_size:
                    break
                batch = batch + self.formed.pop(0)
            self.grows = self.grows and bool(self.formed)
            why = self.why_left(now, batch)
            self.take(now, self.pull(len(batch)), why)

    def behind(self):
        """Who is in no batch, and finds one to join or to open."""
        room = len(self.formed) < min(2 * self.servers, 64)
        return [who for who in self.waiting if not any(who in batch for batch in self.formed)] if room else []

    def joined(self, now):
        """Let some join the last batch, or open one; whether any did, or the batch closed."""
        behind, last = self.behind(), self.formed[-1] if self.grows else []
        if not behind:
            return False
        wanted = [size - len(last) for size in self.preferred if 0 < size - len(last) <= len(behind)]
        if self.max_wait_ms != 0 and now >= self.deadline(behind[0]):
            count = min(len(behind), self.max_batch_size - len(last))
            closed = len(last) + count >= self.preferred[-1]
        elif wanted:
            count, closed = wanted[-1], self.max_wait_ms == 0
        elif len(last) == self.preferred[-1]:
            count, closed = min(1, self.max_batch_size - len(last)), True
        else:
            ended = self.max_wait_ms == math.inf and not self.someone_may_come()
            if not (ended or self.max_wait_ms == 0 or (last and len(last) not in self.preferred)):
                return False
            count, closed = len(behind), False
        if self.grows:
            self.formed[-1] = last + behind[:count]
        else:
            self.formed.append(behind[:count])
        self.grows = not closed
        return True

    def why_left(self, now, batch):
        due, size = self.deadline(batch[0]), len(batch)
        if self.max_wait_ms != 0 and now >= due:
            return FULL if size == self.max_batch_size else WAIT if now == due else BACKLOG
        if size in self.preferred:
            return FULL if size == self.max_batch_size else ENOUGH
        if size > self.preferred[-1]:
            return ENOUGH
        return DRAIN if self.max_wait_ms else WAIT if now == due else BACKLOG

    def alarms(self):
        if self.limited:
            yield from super().alarms()
        elif behind := self.behind():
            yield self.deadline(behind[0])
