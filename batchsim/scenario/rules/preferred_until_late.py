"""Preferred sizes until the oldest request is late, then all that wait; the next batches form meanwhile."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.preferred_sizes import PreferredSizes, send_preferred
from batchsim.scenario.rules.rule import Decision, Step, Trigger, Waiting

# In `state`: whether the queue has limits, how many servers compute, how many batches have formed, whether
# the last of them grows, and the sizes of the first AHEAD.
LIMITED, BUSY, COUNT, OPEN, SIZES = 0, 1, 2, 3, 4
AHEAD = 64


@rule_api.helper
def formed(state: Any) -> int:
    """Return how many requests are in batches that have formed: the oldest."""
    requests = 0
    for place in range(int(state[COUNT])):
        requests += int(state[SIZES + place])
    return requests


@rule_api.helper
def has_room(waiting: Waiting, idle: int, state: Any) -> bool:
    """Return whether requests wait behind the batches that have formed, and may join these or form one."""
    return state[COUNT] < min(2 * (idle + state[BUSY]), AHEAD) and formed(state) < waiting.length


@rule_api.helper
def form(now_s: float, waiting: Waiting, state: Any, params: Any) -> bool:
    """Let requests join the last batch, or form one; return whether anything changed."""
    last, ahead = SIZES + int(state[COUNT]) - int(state[OPEN]), formed(state)
    size = int(state[last]) if state[OPEN] else 0
    free, wait_s, largest = waiting.length - ahead, params.max_wait_s, params.preferred[-1]
    late = wait_s > 0 and now_s >= later(rule_api.oldest_s(waiting, ahead), wait_s)
    closes, joining, prefers = late, 0, False
    for preferred in params.preferred:
        prefers |= preferred == size
        joining = preferred - size if size < preferred <= size + free else joining
    if late:
        joining = min(free, params.max_batch_size - size)
        closes = size + joining >= largest
    elif joining > 0:
        closes = wait_s == 0
    elif size == largest:  # its own requests do not count in Triton's comparison
        closes, joining = True, min(1, params.max_batch_size - size)
    elif wait_s == 0 or (size > 0 and not prefers) or (waiting.ended and wait_s == math.inf):
        joining = free
    if joining > 0:
        state[last] = size + joining
        state[COUNT] += size == 0
    state[OPEN] = size + joining > 0 and not closes
    return closes or joining > 0


@rule_api.helper
def why(now_s: float, waiting: Waiting, size: int, params: Any) -> int:
    """Return why the oldest `size` requests leave now."""
    due_s, largest = later(rule_api.oldest_s(waiting), params.max_wait_s), params.preferred[-1]
    late, prefers = params.max_wait_s > 0 and now_s >= due_s, size > largest
    for preferred in params.preferred:
        prefers |= size == preferred
    if size == params.max_batch_size and (late or size == largest):
        return rule_api.FULL
    if prefers and not late:
        return rule_api.ENOUGH
    if params.max_wait_s > 0 and not late:
        return rule_api.DRAIN
    return rule_api.WAIT if now_s == due_s else rule_api.BACKLOG


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Form batches, and start the oldest, with those behind it that are late."""
    if state[LIMITED] > 0 and idle == 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    while has_room(waiting, idle, state) and form(now_s, waiting, state, params):
        if idle > 0:  # which takes the batch at once
            break
    count = int(state[COUNT])
    if idle == 0 or count == 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    size, taken, wait_s = int(state[SIZES]), 1, params.max_wait_s
    while taken < count and wait_s > 0 and now_s > later(rule_api.oldest_s(waiting, size), wait_s):
        if size + state[SIZES + taken] > params.max_batch_size:
            break
        size, taken = size + int(state[SIZES + taken]), taken + 1
    for place in range(SIZES, SIZES + count - taken):
        state[place] = state[place + taken]
    state[BUSY] += 1
    state[COUNT] -= taken
    if state[COUNT] == 0:
        state[OPEN] = 0
    return rule_api.START, size, why(now_s, waiting, size, params)


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return when the oldest request that is in no batch has waited."""
    if not has_room(waiting, idle, state):
        return math.inf
    return later(rule_api.oldest_s(waiting, formed(state)), params.max_wait_s)


def finished(now_s: float, size: int, seconds: float, state: Any, params: Any) -> None:
    """Count a server that stops computing."""
    state[BUSY] -= 1


@dataclass(frozen=True)
class PreferredUntilLate(PreferredSizes):
    """An idle server takes the largest preferred size available, or all that wait once the oldest is late.

    A request is late after `max_wait_ms`, for example because all servers compute. Then all that wait leave,
    up to `max_batch_size`. With a wait of 0 requests are never late, and fewer than any preferred size leave
    at once. `math.inf`: only preferred sizes leave, and the remainder at the end of the run.

    While all servers compute, the next batches form, at most two for each server, and the last of them grows.
    One of the largest preferred size takes a single request more, late ones apart, and closes: 17 if 16 is
    preferred. With a wait of 0 it closes at a preferred size. A batch that starts takes along the formed
    batches behind it that are late, if all fit. With a queue limit, a timeout or priorities, batches form
    only as a server is idle.

    >>> PreferredUntilLate([4, 8], max_batch_size=8, max_wait_ms=5)
    PreferredUntilLate(preferred=(4, 8), max_batch_size=8, max_wait_ms=5)
    """

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    state_size = SIZES + AHEAD
    asked_while_busy = True
    title = "Preferred batch sizes"
    used_by = "Triton"

    def memory(self, limited: bool) -> np.ndarray:
        state = super().memory(limited)
        state[LIMITED] = limited
        return state

    @property
    def largest_batch(self) -> int:
        if 0 < self.max_wait_ms < math.inf:
            return self.max_batch_size
        return min(self.preferred[-1] + (self.max_wait_ms > 0), self.max_batch_size)

    @property
    def steps(self) -> tuple[Step, ...]:
        # A trigger has one step: sizes below max_batch_size leave by the same.
        size, wait_ms = self.max_batch_size, self.max_wait_ms
        smaller = [each for each in self.preferred if each < size]
        preferred = [send_preferred(smaller)] if smaller else []
        full = [rule_api.send_full(size)] if size in self.preferred else []
        if wait_ms in (0, math.inf):  # requests are never late; 1 may be a preferred size
            return (*full, *preferred, *(() if self.enough == 1 else rule_api.send_after(wait_ms)))
        if not full:
            because = f"{size:,} requests have gathered, and the oldest had waited {typed(wait_ms)} ms"
            late = f"{size:,} or more wait and one is late"
            full = [Step(late, f"send the oldest {size:,}", Trigger.FULL, because, "full")]
        return (*full, *(rule_api.send_after(wait_ms) if size > 1 else ()), *preferred)
