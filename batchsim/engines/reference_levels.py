"""The reference engine's queue: who goes first, who is turned away, and who has waited too long."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from batchsim._clock import later
from batchsim.engines.draws import Plan

Entries = deque[dict[str, Any]]  # the batcher's queue, in order of arrival


class Oldest:
    """The oldest goes first: the batcher's own queue, its limit and its timeout."""

    def __init__(self, plan: Plan, arrival_s: Sequence[float], queue: Entries) -> None:
        (limit,) = plan.scenario.limits
        self.arrival_s, self.queue, self.timeout_s = arrival_s, queue, limit.timeout_s
        self.room = math.inf if limit.queue is None else limit.queue
        self.waiting = 0  # frozen batches included

    def enter(self, request: int) -> bool:
        """Let a request into the queue, unless that is at its limit; return whether it is in."""
        enters = self.waiting < self.room
        self.waiting += enters
        return enters

    def take(self, size: int) -> list[dict[str, Any]]:
        """Remove the `size` entries that go first, and return them."""
        return [self.queue.popleft() for _ in range(size)]

    def left(self, requests: Sequence[int]) -> None:
        """Note that requests no longer wait, in a batch that starts or at their timeout."""
        self.waiting -= len(requests)

    def expire(self, now_s: float) -> list[int]:
        """Remove those that have waited too long, and return them."""
        gone = []
        while now_s >= self.expiry_s():
            gone.append(self.queue.popleft()["id"])
        self.waiting -= len(gone)
        return gone

    def expiry_s(self) -> float:
        """Return when the next request has waited too long."""
        if self.timeout_s == math.inf or not self.queue:
            return math.inf
        return later(self.arrival_s[self.queue[0]["id"]], self.timeout_s)


class Levels:
    """The same by level: those in time, oldest first, and behind them the delayed ones.

    The batcher's queue stays in order of arrival.
    """

    def __init__(self, plan: Plan, arrival_s: Sequence[float], queue: Entries) -> None:
        scenario = plan.scenario
        self.arrival_s, self.priority, self.queue = arrival_s, plan.priority, queue
        self.limits = dict(zip(scenario.levels or (0,), scenario.limits, strict=True))
        self.waiting = dict.fromkeys(self.limits, 0)  # frozen batches included
        self.in_time: dict[int, deque[int]] = {level: deque() for level in self.limits}
        self.delayed: dict[int, deque[int]] = {level: deque() for level in self.limits}

    def level_of(self, request: int) -> int:
        return 0 if self.priority is None else int(self.priority[request])

    def enter(self, request: int) -> bool:
        level = self.level_of(request)
        limit = self.limits[level].queue
        if limit is not None and self.waiting[level] >= limit:
            return False
        self.waiting[level] += 1
        self.in_time[level].append(request)
        return True

    def take(self, size: int) -> list[dict[str, Any]]:
        taken: list[int] = []
        for level in self.limits:
            for queue in (self.in_time[level], self.delayed[level]):
                while queue and len(taken) < size:
                    taken.append(queue.popleft())
        return self._remove(taken)

    def left(self, requests: Sequence[int]) -> None:
        for request in requests:
            self.waiting[self.level_of(request)] -= 1

    def expire(self, now_s: float) -> list[int]:
        """Delay those that have waited too long, or remove and return them, as their level has it."""
        gone: list[int] = []
        for level, limit in self.limits.items():
            queue = self.in_time[level]
            while queue and now_s >= later(self.arrival_s[queue[0]], limit.timeout_s):
                (self.delayed[level] if limit.delays else gone).append(queue.popleft())
        self.left(gone)
        self._remove(gone)
        return gone

    def expiry_s(self) -> float:
        fronts = ((queue[0], self.limits[level]) for level, queue in self.in_time.items() if queue)
        return min(
            (later(self.arrival_s[first], limit.timeout_s) for first, limit in fronts), default=math.inf
        )

    def _remove(self, requests: Sequence[int]) -> list[dict[str, Any]]:
        """Remove requests from the batcher's queue, and return them."""
        if not requests:
            return []
        leaving = set(requests)
        found = {each["id"]: each for each in self.queue if each["id"] in leaving}
        left = [each for each in self.queue if each["id"] not in found]
        self.queue.clear()
        self.queue.extend(left)
        return [found[request] for request in requests]


def queue_of(plan: Plan, arrival_s: Sequence[float], queue: Entries) -> Oldest | Levels:
    """Return what says who goes first from the batcher's queue."""
    return (Levels if plan.scenario.by_level else Oldest)(plan, arrival_s, queue)
