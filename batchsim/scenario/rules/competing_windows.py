"""Every idle server collects a batch of its own, in windows of its own; requests are dealt in turn."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.rules import rule as seam
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting
from batchsim.scenario.rules.running_window import window_end_s

MOST = 64  # more idle servers do not collect
# In `state`: whether the run has begun, how many servers collect, and when the last request came that was
# dealt; then of each that collects, in turn: since when, since when it waits for a request, how many it
# holds, and until when it collects if it holds any.
BEGUN, COUNT, SEEN_S, SINCE_S = range(4)
TURN_S, HELD, DUE_S, SIZE = (SINCE_S + MOST * block for block in range(1, 5))


class CompetingWindowsParams(NamedTuple):
    """The parameters of `CompetingWindows`, the window in seconds."""

    max_batch_size: int
    max_wait_s: float


@seam.helper
def join(now_s: float, state: Any) -> None:
    """Let another server collect from now on, behind the others."""
    last = int(state[COUNT])
    if last < MOST:
        state[SINCE_S + last], state[TURN_S + last], state[HELD + last] = now_s, now_s, 0
        state[COUNT] += 1


@seam.helper
def behind(place: int, last: int, state: Any) -> None:
    """Move the one at a place behind all up to `last`."""
    for block in (SINCE_S, TURN_S, HELD, DUE_S):
        moved = state[block + place]
        for other in range(block + place, block + last):
            state[other] = state[other + 1]
        state[block + last] = moved


@seam.helper
def next_one(now_s: float, window_s: float, state: Any) -> int:
    """Return who gets the next request: who has waited longest for one since its last, or a new window."""
    chosen, soonest_s = 0, math.inf
    for place in range(int(state[COUNT])):
        turn_s, end_s = state[TURN_S + place], window_end_s(now_s, state[SINCE_S + place], window_s)
        if state[HELD + place] == 0 and end_s > later(state[SINCE_S + place], window_s):  # a later one
            turn_s = max(turn_s, later(end_s, -window_s))
        if turn_s < soonest_s:
            chosen, soonest_s = place, turn_s
    return chosen


@seam.helper
def first_due(state: Any) -> int:
    """Return who collects for the shortest time yet, of those that hold a request; -1 for none."""
    chosen = -1
    for place in range(int(state[COUNT])):
        if state[HELD + place] > 0 and (chosen < 0 or state[DUE_S + place] < state[DUE_S + chosen]):
            chosen = place
    return chosen


@seam.helper
def still_held(waiting: Waiting, state: Any) -> int:
    """Return how many of those that wait are held, and forget those that have timed out."""
    held = 0
    for place in range(int(state[COUNT])):
        held += int(state[HELD + place])
    here = min(held, waiting.length)
    while here > 0 and seam.oldest_s(waiting, here - 1) > state[SEEN_S]:
        here -= 1
    for _ in range(held - here):
        state[HELD + first_due(state)] -= 1
    return here


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: CompetingWindowsParams) -> Decision:
    """Deal those that came, and send a batch that is full or whose window has ended."""
    most, window_s = params.max_batch_size, params.max_wait_s
    if window_s == 0:
        if waiting.length >= most:
            return seam.START, most, seam.FULL
        return seam.START, waiting.length, seam.WAIT if seam.oldest_s(waiting) == now_s else seam.BACKLOG
    if state[BEGUN] == 0:
        state[BEGUN] = 1
        for _ in range(idle):
            join(0.0, state)
    for k in range(still_held(waiting, state), waiting.length):
        place, last = next_one(now_s, window_s, state), int(state[COUNT]) - 1
        state[SEEN_S] = seam.oldest_s(waiting, k)
        if state[HELD + place] == 0:
            state[DUE_S + place] = window_end_s(state[SEEN_S], state[SINCE_S + place], window_s)
        state[HELD + place], state[TURN_S + place] = state[HELD + place] + 1, now_s
        behind(place, last, state)
        if state[HELD + last] == most:
            state[COUNT] = last
            return seam.START, most, seam.FULL
    place = first_due(state)
    if place < 0 or now_s < state[DUE_S + place]:
        return seam.NOTHING, 0, seam.FULL
    size, last = int(state[HELD + place]), int(state[COUNT]) - 1
    behind(place, last, state)
    state[COUNT] = last
    return seam.START, size, seam.WAIT


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: CompetingWindowsParams) -> float:
    """Return the end of the first window of those in which a request has come."""
    if params.max_wait_s == 0:
        return now_s
    place = first_due(state)
    return math.inf if place < 0 else state[DUE_S + place]


def finished(now_s: float, size: int, seconds: float, state: Any, params: CompetingWindowsParams) -> None:
    """Let the server that comes free collect."""
    join(now_s, state)


@dataclass(frozen=True)
class CompetingWindows(Rule):
    """Each idle server collects a batch of its own, in windows, one after the other, until one is not empty.

    The windows are those of `RunningWindow`, which this is of one server. Of several that collect, that one
    gets a request that has waited longest for one, since it last got one or since its window began: batches
    are smaller than where one collects at a time. A batch leaves when it is full or its window ends. It takes
    the oldest of those that wait, as many as its server was dealt: which of the servers computes a request is
    not told apart, and no mean depends on it. More than 64 idle servers do not collect.

    >>> CompetingWindows(max_batch_size=8, max_wait_ms=5)
    CompetingWindows(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = seam.max_batch_size(default=32)
    max_wait_ms: float = seam.max_wait_ms(  # type: ignore[misc]
        "The length of the windows in which an idle server collects a batch", default=10.0, may_be_inf=False
    )

    Params = CompetingWindowsParams
    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    state_size = SIZE
    title = "Competing windows"
    clock = "each idle server's clock runs in windows, and requests are dealt to them in turn"

    @property
    def params(self) -> CompetingWindowsParams:
        return CompetingWindowsParams(self.max_batch_size, self.max_wait_ms / 1000)

    @property
    def steps(self) -> tuple[Step, ...]:
        window = f"a server's window of {typed(self.max_wait_ms)} ms ends"
        because = f"its server's window of {typed(self.max_wait_ms)} ms ended"
        step = Step(window, "send its share", Trigger.WAIT, because, "window was over")
        size = self.max_batch_size
        if size == 1 or self.max_wait_ms == 0:
            return seam.send_full_or(size, self.max_wait_ms, step)
        full = f"a server was dealt {size:,}"
        why = f"its server was dealt {size:,}, a full batch"
        return (Step(full, f"send the oldest {size:,}", Trigger.FULL, why, "full"), step)
