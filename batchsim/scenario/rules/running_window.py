"""Windows that follow one another, whether or not a request has come."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import TICK_S, later
from batchsim._format import typed
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting

# In `state`: when a server began to collect, and whether all servers compute.
SINCE_S, NOBODY = 0, 1


@rule_api.helper
def window_end_s(oldest_s: float, since_s: float, window_s: float) -> float:
    """Return the end of the window in which a request comes, or of the first if it came before.

    Windows end at since_s + k * window_s, k = 1, 2, ...; a request that comes at an end is in that window.
    """
    window_s = max(window_s, TICK_S)  # the clock does not see shorter ones
    if oldest_s <= later(since_s, window_s):
        return later(since_s, window_s)
    k = math.floor((oldest_s - since_s) / window_s)
    while later(since_s, k * window_s) < oldest_s:
        k += 1
    while later(since_s, (k - 1) * window_s) >= oldest_s:  # the division was rounded
        k -= 1
    return later(since_s, k * window_s)


@rule_api.helper
def hand_over(now_s: float, idle: int, state: Any) -> None:
    """Let the next idle server collect from now on: the one that collected has a batch."""
    if idle > 1:
        state[SINCE_S] = now_s
    else:
        state[NOBODY] = 1


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send a full batch, or all that wait when the window ends."""
    size, trigger = waiting.length, -1
    oldest_s = rule_api.oldest_s(waiting)
    if size >= params.max_batch_size:
        size, trigger = params.max_batch_size, rule_api.FULL
    elif params.max_wait_s == 0:
        trigger = rule_api.timer(now_s, waiting, 0.0)
    elif now_s >= window_end_s(oldest_s, state[SINCE_S], params.max_wait_s):
        trigger = rule_api.WAIT
    elif waiting.ended and params.max_wait_s == math.inf:
        trigger = rule_api.DRAIN
    if trigger < 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    hand_over(now_s, idle, state)
    return rule_api.START, size, trigger


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return the end of the window."""
    if params.max_wait_s == 0:
        return now_s
    return window_end_s(rule_api.oldest_s(waiting), state[SINCE_S], params.max_wait_s)


def finished(now_s: float, size: int, seconds: float, state: Any, params: Any) -> None:
    """Let the server that becomes free collect, unless another does."""
    if state[NOBODY] == 1:
        state[SINCE_S], state[NOBODY] = now_s, 0


@dataclass(frozen=True)
class RunningWindow(Rule):
    """An idle server collects in consecutive windows until one is not empty.

    Each is `max_wait_ms` long; the first begins when the server becomes free; a batch leaves at the end of
    its window, or when it is full. A request that finds the server idle waits half a window on average, and a
    request that waited for the server waits a whole one. `math.inf` means full batches only. One idle server
    collects at a time.

    >>> RunningWindow(max_batch_size=8, max_wait_ms=5)
    RunningWindow(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(  # type: ignore[misc]
        "The length of the windows in which an idle server collects a batch", default=10.0
    )

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    state_size = 2
    title = "Tumbling windows"
    clock = "the clock runs in windows, whether or not a request has come"

    @property
    def steps(self) -> tuple[Step, ...]:
        window = f"a window of {typed(self.max_wait_ms)} ms ends"
        because = f"the window of {typed(self.max_wait_ms)} ms ended"
        step = Step(window, "send all", Trigger.WAIT, because, "window was over")
        return rule_api.send_full_or(self.max_batch_size, self.max_wait_ms, step)
