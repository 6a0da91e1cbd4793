"""Batches of requests of similar size, chosen among the oldest ones."""

from dataclasses import dataclass
from typing import Any

from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Waiting

LARGEST_WINDOW = 4096  # requests


@rule_api.helper
def sort(state: Any, begin: int, end: int) -> None:
    """Sort a part of the memory: Shell's method, with Knuth's gaps 1, 4, 13, 40 ..."""
    gap = 1
    while gap < end - begin:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(begin + gap, end):
            value, to = state[place], place
            while to >= begin + gap and state[to - gap] > value:
                state[to] = state[to - gap]
                to -= gap
            state[to] = value
        gap = gap // 3


@rule_api.helper
def group(size: int, waiting: Waiting, state: Any, params: Any) -> None:
    """Write down the places of the batch: neighbours by size, the oldest among them, with least padding."""
    count = min(waiting.length, params.window)
    for place in range(count):  # a size and a place as one number
        state[place] = waiting.size[waiting.queue[waiting.head + place]] * LARGEST_WINDOW + place
    oldest = state[0]
    sort(state, 0, count)
    rank = 0
    while state[rank] < oldest:
        rank += 1
    begin = max(rank - size + 1, 0)
    total = 0
    for place in range(begin, begin + size):
        total += int(state[place]) // LARGEST_WINDOW
    best, least = begin, size * (int(state[begin + size - 1]) // LARGEST_WINDOW) - total
    for start in range(begin + 1, min(rank, count - size) + 1):
        longest = int(state[start + size - 1]) // LARGEST_WINDOW
        total += longest - int(state[start - 1]) // LARGEST_WINDOW
        if size * longest - total < least:
            best, least = start, size * longest - total
    for k in range(size):
        state[k] = int(state[best + k]) % LARGEST_WINDOW
    sort(state, 0, size)


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send a full batch, or what waits once the oldest has waited."""
    size, trigger = min(waiting.length, params.max_batch_size), rule_api.FULL
    if size < params.max_batch_size:
        trigger = rule_api.timer(now_s, waiting, params.max_wait_s)
    if trigger < 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    group(size, waiting, state, params)
    return rule_api.START, size, trigger


def picked(k: int, state: Any, params: Any) -> int:
    """Return the place in the queue of the starting batch's k-th request."""
    return int(state[k])


@dataclass(frozen=True)
class SortedWindow(Rule):
    """The textbook rule with batches of similar sizes, chosen among the oldest `window` requests.

    A batch leaves as under `SizeOrWait`. Sorted by size, it is `max_batch_size` neighbours, with the oldest
    request among them: those that need the least padding, and of equals the shortest. So the oldest request
    always leaves, and no request starves.

    >>> SortedWindow(max_batch_size=8, max_wait_ms=5, window=64)
    SortedWindow(max_batch_size=8, max_wait_ms=5, window=64)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(default=10.0)  # type: ignore[misc]
    window: int = parameter(
        "Window", "A batch is chosen among this many of the oldest requests", at_most=LARGEST_WINDOW,
        of_sizes=True, usual=128, default=128,
    )  # fmt: skip

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.deadline_s)
    picked = staticmethod(picked)
    by_size = True
    title = "Sorted window"
    clock = "the clock starts as the oldest request comes, and the batch grows until it leaves"

    def check(self) -> None:
        if self.window < self.max_batch_size:
            rule = f"window must be at least max_batch_size, {self.max_batch_size:,}"
            raise ValueError(f"{rule}, got {self.window:,}")

    @property
    def state_size(self) -> int:  # type: ignore[override]
        return self.window

    @property
    def steps(self) -> tuple[Step, ...]:
        full = rule_api.send_full(self.max_batch_size)
        return (full, *rule_api.send_after(self.max_wait_ms)) if self.max_batch_size > 1 else (full,)
