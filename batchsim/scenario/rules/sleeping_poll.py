"""A loop that sleeps, counts the waiting requests, and computes them without looking again."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._format import typed
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting
from batchsim.scenario.rules.running_window import SINCE_S, finished, hand_over, window_end_s

# In `state`, after the running window's: the number of batches that this look still takes.
TAKING = 2


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Take all full batches, or else all that wait, when a sleep ends; then compute them one by one."""
    largest = params.max_batch_size
    if idle == 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    oldest_s = now_s
    if waiting.length > 0:
        oldest_s = rule_api.oldest_s(waiting)
    if state[TAKING] == 0 and waiting.frozen == 0 and waiting.length > 0:
        # Right after its last batch the loop looks first, and sleeps only if no full batch waits.
        at_once = now_s == state[SINCE_S] and waiting.length >= largest
        if (
            at_once
            or params.max_wait_s == 0
            or now_s >= window_end_s(oldest_s, state[SINCE_S], params.max_wait_s)
        ):
            state[TAKING] = max(1, waiting.length // largest)
    if state[TAKING] > 0:
        state[TAKING] -= 1
        if waiting.length >= largest:
            return rule_api.FREEZE, largest, rule_api.FULL
        late = params.max_wait_s == 0 and oldest_s < now_s
        return rule_api.FREEZE, waiting.length, rule_api.BACKLOG if late else rule_api.WAIT
    if waiting.frozen > 0:
        hand_over(now_s, idle, state)
        return rule_api.START, 0, rule_api.FULL
    return rule_api.NOTHING, 0, rule_api.FULL


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return when the sleep ends, if no batch computes or waits for a server."""
    if idle == 0 or waiting.length == 0 or waiting.frozen > 0 or params.max_wait_s == 0:
        return math.inf
    return window_end_s(rule_api.oldest_s(waiting), state[SINCE_S], params.max_wait_s)


@dataclass(frozen=True)
class SleepingPoll(Rule):
    """A loop looks after each sleep, and takes all full batches, or one with all that wait.

    Right after a batch it looks at once, and takes full batches without a sleep; otherwise it sleeps for all
    of `max_wait_ms`, and arrivals do not wake it. From q waiting requests it takes q // max_batch_size full
    batches, or one with all, and computes them one after the other; requests that come meanwhile do not join.

    >>> SleepingPoll(max_batch_size=8, max_wait_ms=5)
    SleepingPoll(max_batch_size=8, max_wait_ms=5)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(  # type: ignore[misc]
        "How long the loop sleeps before it looks again", default=10.0, may_be_inf=False
    )

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    state_size = 3
    freezes = True
    asked_while_busy = False
    title = "Fixed-interval polling"
    used_by = "batched"
    clock = "the loop sleeps for the whole wait, and arrivals do not wake it"

    @property
    def enough(self) -> int:
        # A full batch leaves without a sleep right after a batch; any request does if the loop never sleeps.
        return 1 if self.max_wait_ms == 0 else self.max_batch_size

    @property
    def steps(self) -> tuple[Step, ...]:
        size, wait_ms = self.max_batch_size, self.max_wait_ms
        if wait_ms == 0:
            return rule_api.send_full_or(size, wait_ms)
        # A batch of 1 is always full, but the loop still sleeps.
        asleep = f"a sleep of {typed(wait_ms)} ms ends"
        because = f"{size:,} waited when the loop looked, a full batch" if size > 1 else "the loop looked"
        full = Step(f"{size:,} or more wait as a sleep ends", "send full ones", Trigger.FULL, because, "full")
        if size == 1:
            return (Step(asleep, "send each", Trigger.FULL, because, "full"),)
        fewer = "the sleep was over and no full batch waited"
        return full, Step(asleep, "send all", Trigger.WAIT, fewer, "sleep was over")
