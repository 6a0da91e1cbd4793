"""The queue of the reference engine: the very InferenceBatcher, and what a run's rule says of it."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from batchsim._clock import later
from batchsim.batcher import InferenceBatcher
from batchsim.engines.draws import Plan
from batchsim.engines.stopwatch import Stopwatch
from batchsim.scenario.rules import SizeOrWait, Trigger
from batchsim.scenario.rules.rule import START, Decision, Waiting


class Numbers:
    """The request numbers of the batcher's queue, as a rule reads them; 0 is the oldest."""

    def __init__(self, queue: deque[dict[str, Any]]) -> None:
        self.queue = queue

    def __getitem__(self, place: int) -> int:
        return cast(int, self.queue[place]["id"])


class WaitingQueue:
    """The requests that wait, and the frozen batches before them.

    The textbook's rule is the batcher's own; any other is asked what to do, as in the compiled engine.
    """

    def __init__(
        self, plan: Plan, clock: Callable[[], float], arrival_s: Sequence[float],
        model_fn: Callable[[Any], Any] | None, outputs: list[Any] | None,
    ) -> None:  # fmt: skip
        self.rule, self.clock, self.arrival_s, self.outputs = plan.scenario.rule, clock, arrival_s, outputs
        self.batcher = InferenceBatcher(
            model_fn or np.asarray, self.rule.max_batch_size, self.rule.max_wait_ms, clock=clock
        )
        self.queue = self.batcher.queue
        self.numbers = Numbers(self.queue)
        self.frozen: deque[tuple[list[int], int]] = deque()  # their requests, and why each left the queue
        self.ended = False  # whether the last request has come
        self.stopwatch = model_fn if isinstance(model_fn, Stopwatch) else None
        self.measured_s: dict[int, float] = {}  # how long a batch took that was timed, by its first request
        self.textbook = type(self.rule) is SizeOrWait
        self.params, self.memory = self.rule.params, np.zeros(self.rule.state_size)
        self.largest = plan.service_s.size - 1
        self.levels = queue_of(plan, arrival_s, self.queue)
        # Whether the batcher takes a batch by itself: the oldest.
        self.by_level = plan.scenario.by_level
        self.itself = self.textbook and not self.by_level

    def __bool__(self) -> bool:
        """Whether anything waits for a server."""
        return bool(self.queue or self.frozen)

    def __len__(self) -> int:
        """How many requests wait, those in frozen batches included."""
        return len(self.queue) + sum(len(requests) for requests, _ in self.frozen)

    def enter(self, request: int, data: Any) -> bool:
        """Let a request in, unless the queue is at its limit; return whether it is in."""
        if not self.levels.enter(request):
            return False
        self.batcher.add_request(data, request)
        return True

    def decide(self, idle: int) -> Decision:
        if not self.textbook:
            return self.rule.decide(self.clock(), self.view(), idle, self.memory, self.params)
        queue, largest = self.queue, self.rule.max_batch_size
        if self.batcher.should_process():
            deadline_s = self.batcher.next_deadline()
            late = deadline_s is not None and self.clock() > deadline_s
            trigger = Trigger.FULL if len(queue) >= largest else Trigger.BACKLOG if late else Trigger.WAIT
            return START, min(len(queue), largest), trigger
        # No more requests will come, and no timer would ever release the remainder.
        drains = self.ended and math.isinf(self.rule.max_wait_ms)
        return (START, len(queue), Trigger.DRAIN) if drains else (0, 0, 0)

    def wake_s(self, idle: int) -> float:
        """Return the next instant at which time alone changes what the rule does."""
        if not self.textbook:
            return self.rule.wake_s(self.clock(), self.view(), idle, self.memory, self.params)
        deadline_s = self.batcher.next_deadline()
        return math.inf if deadline_s is None else deadline_s

    def view(self) -> Waiting:
        """Return the queue as a rule sees it."""
        return Waiting(self.arrival_s, self.numbers, 0, len(self.queue), len(self.frozen), self.ended)

    def refuse(self, size: int) -> list[int]:
        """Remove those that go first from the queue; return their numbers."""
        refused = [entry["id"] for entry in self.levels.take(size)]
        self.levels.left(refused)
        return refused

    def bring(self, size: int) -> None:
        """Move those whom the rule picks for a batch to the front, unless levels say who goes first."""
        if (picked := self.rule.picked) is None or self.by_level:
            return
        places = [picked(k, self.memory, self.params) for k in range(size)]
        entries = [self.queue[place] for place in places]
        for place in reversed(places):
            del self.queue[place]
        self.queue.extendleft(reversed(entries))

    def take(self, size: int) -> list[int]:
        """Remove those that go first from the queue, computed if there is a model; return their numbers."""
        batcher = self.batcher
        if not 1 <= size <= min(len(self.queue), self.largest):
            raise ValueError(f"decide must start or freeze 1 to as many requests as wait, got {self.rule!r}")
        if self.itself and self.outputs is not None:
            answers = batcher.process_batch()
        else:
            taken = batcher.take_batch() if self.itself else self.levels.take(size)
            if self.outputs is None:
                return [request["id"] for request in taken]
            answers = batcher.run_batch(taken)
        for answer in answers:
            self.outputs[answer["id"]] = answer["output"]
        if self.stopwatch is not None:
            self.measured_s[answers[0]["id"]] = self.stopwatch.seconds
        return [answer["id"] for answer in answers]


# The reference engine's queue: who goes first, who is turned away, and who has waited too long.


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
