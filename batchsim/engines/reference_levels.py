"""The reference engine's queue: who goes first, who is turned away, and who has waited too long."""

import math
from collections import deque
from collections.abc import Sequence

from batchsim.engines.draws import Plan


class Levels:
    """The requests that wait, by level: those in time, oldest first, and behind them the delayed ones.

    A scenario without priorities has one level.
    """

    def __init__(self, plan: Plan, arrival_s: Sequence[float]) -> None:
        scenario = plan.scenario
        self.arrival_s, self.priority = arrival_s, plan.priority
        self.limits = dict(zip(scenario.levels or (0,), scenario.limits, strict=True))
        self.waiting = dict.fromkeys(self.limits, 0)  # frozen batches included
        self.in_time: dict[int, deque[int]] = {level: deque() for level in self.limits}
        self.delayed: dict[int, deque[int]] = {level: deque() for level in self.limits}

    def level_of(self, request: int) -> int:
        return 0 if self.priority is None else int(self.priority[request])

    def enter(self, request: int) -> bool:
        """Let a request into its level's queue, unless that is at its limit; return whether it is in."""
        level = self.level_of(request)
        limit = self.limits[level].queue
        if limit is not None and self.waiting[level] >= limit:
            return False
        self.waiting[level] += 1
        self.in_time[level].append(request)
        return True

    def take(self, size: int) -> list[int]:
        """Remove the `size` requests that go first, and return them."""
        taken: list[int] = []
        for level in self.limits:
            for queue in (self.in_time[level], self.delayed[level]):
                while queue and len(taken) < size:
                    taken.append(queue.popleft())
        return taken

    def left(self, requests: Sequence[int]) -> None:
        """Note that requests no longer wait, in a batch that starts or at their timeout."""
        for request in requests:
            self.waiting[self.level_of(request)] -= 1

    def expire(self, now_s: float) -> list[int]:
        """Delay those that have waited too long, or remove and return them, as their level has it."""
        gone: list[int] = []
        for level, limit in self.limits.items():
            queue = self.in_time[level]
            while queue and now_s >= self.arrival_s[queue[0]] + limit.timeout_s:
                (self.delayed[level] if limit.delays else gone).append(queue.popleft())
        self.left(gone)
        return gone

    def expiry_s(self) -> float:
        """Return when the next request has waited too long."""
        fronts = ((queue[0], self.limits[level]) for level, queue in self.in_time.items() if queue)
        return min((self.arrival_s[first] + limit.timeout_s for first, limit in fronts), default=math.inf)
