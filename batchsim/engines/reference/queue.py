"""The queue of the reference engine: the textbook's InferenceBatcher, a rule that decides, and the order."""

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
    """The request numbers of the batcher's queue by place, as a rule reads them; place 0 is the oldest."""

    def __init__(self, queue: deque[dict[str, Any]]) -> None:
        self.queue = queue

    def __getitem__(self, place: int) -> int:
        return cast(int, self.queue[place]["id"])


class WaitingQueue:
    """The waiting requests, and the frozen batches before them.

    The batcher itself decides for the textbook's rule; any other rule decides as in the compiled engine.
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
        self.frozen: deque[tuple[list[int], int]] = deque()  # the requests of each, and its trigger
        self.ended = False  # whether the last request has arrived
        self.stopwatch = model_fn if isinstance(model_fn, Stopwatch) else None
        self.measured_s: dict[int, float] = {}  # the measured time of a batch, by its first request
        self.textbook = type(self.rule) is SizeOrWait and not self.rule.by_size
        self.sizes: list[int] = plan.computed_size.tolist()
        self.params, self.memory = self.rule.params, self.rule.memory(plan.scenario.limited)
        self.largest = plan.service_s.size - 1
        self.levels = queue_of(plan, arrival_s, self.queue)
        # Whether the batcher itself takes a batch: the oldest requests.
        self.by_level = plan.scenario.by_level
        self.itself = self.textbook and not self.by_level

    def __bool__(self) -> bool:
        """Whether anything waits for a server."""
        return bool(self.queue or self.frozen)

    def __len__(self) -> int:
        """Return the number of waiting requests, those in frozen batches included."""
        return len(self.queue) + sum(len(requests) for requests, _ in self.frozen)

    def enter(self, request: int, data: Any) -> bool:
        """Let a request in, unless the queue is at its limit; return whether it enters."""
        if self.sizes[request] > self.rule.largest_size:
            return False
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
        # No request will come, and no timer would release the remaining ones.
        drains = self.ended and math.isinf(self.rule.max_wait_ms)
        return (START, len(queue), Trigger.DRAIN) if drains else (0, 0, 0)

    def wake_s(self, idle: int) -> float:
        """Return the next instant at which time alone changes the decision."""
        if not self.textbook:
            return self.rule.wake_s(self.clock(), self.view(), idle, self.memory, self.params)
        deadline_s = self.batcher.next_deadline()
        return math.inf if deadline_s is None else deadline_s

    def view(self) -> Waiting:
        """Return the queue as a rule sees it."""
        length, frozen = len(self.queue), len(self.frozen)
        return Waiting(self.arrival_s, self.numbers, 0, length, frozen, self.ended, self.sizes)

    def refuse(self, size: int) -> list[int]:
        """Remove the next `size` requests from the queue; return their numbers."""
        refused = [entry["id"] for entry in self.levels.take(size)]
        self.levels.count_out(refused)
        return refused

    def bring(self, size: int) -> None:
        """Move the requests that the rule picks to the front, unless levels determine the order."""
        if (picked := self.rule.picked) is None or self.by_level:
            return
        places = [picked(k, self.memory, self.params) for k in range(size)]
        entries = [self.queue[place] for place in places]
        for place in reversed(places):
            del self.queue[place]
        self.queue.extendleft(reversed(entries))

    def take(self, size: int) -> list[int]:
        """Remove the next `size` requests, compute them if there is a model, and return their numbers."""
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


# The order of the queue, its limits and its timeouts.


Entries = deque[dict[str, Any]]  # the batcher's queue, in order of arrival


class Oldest:
    """The order of arrival: the batcher's own queue, with its limit and timeout."""

    def __init__(self, plan: Plan, arrival_s: Sequence[float], queue: Entries) -> None:
        (limit,) = plan.scenario.limits
        self.arrival_s, self.queue, self.timeout_s = arrival_s, queue, limit.timeout_s
        self.capacity = math.inf if limit.queue is None else limit.queue
        self.waiting = 0  # frozen batches included

    def enter(self, request: int) -> bool:
        """Let a request into the queue, unless this is at its limit; return whether it enters."""
        enters = self.waiting < self.capacity
        self.waiting += enters
        return enters

    def take(self, size: int) -> list[dict[str, Any]]:
        """Remove the next `size` entries, and return them."""
        return [self.queue.popleft() for _ in range(size)]

    def count_out(self, requests: Sequence[int]) -> None:
        """Count requests out that leave the queue, in a batch that starts or at their timeout."""
        self.waiting -= len(requests)

    def expire(self, now_s: float) -> list[int]:
        """Remove the requests whose timeout is over, and return them."""
        gone = []
        while now_s >= self.expiry_s():
            gone.append(self.queue.popleft()["id"])
        self.waiting -= len(gone)
        return gone

    def expiry_s(self) -> float:
        """Return when the next timeout of a request is over."""
        if self.timeout_s == math.inf or not self.queue:
            return math.inf
        return later(self.arrival_s[self.queue[0]["id"]], self.timeout_s)


class Levels:
    """The order by level: in each, the requests in time, oldest first, then the delayed ones.

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

    def count_out(self, requests: Sequence[int]) -> None:
        for request in requests:
            self.waiting[self.level_of(request)] -= 1

    def expire(self, now_s: float) -> list[int]:
        """Delay the requests whose timeout is over, or remove and return them, depending on their level."""
        gone: list[int] = []
        for level, limit in self.limits.items():
            queue = self.in_time[level]
            while queue and now_s >= later(self.arrival_s[queue[0]], limit.timeout_s):
                (self.delayed[level] if limit.delays else gone).append(queue.popleft())
        self.count_out(gone)
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
    """Return the order of the batcher's queue."""
    return (Levels if plan.scenario.by_level else Oldest)(plan, arrival_s, queue)
