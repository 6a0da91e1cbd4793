"""Each idle server collects a batch; the one that has asked for the longest time gets the next request."""

import math
from dataclasses import dataclass
from typing import Any

from batchsim._clock import later
from batchsim._format import typed
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.pull_then_wait import PullThenWait
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting
from batchsim.scenario.rules.running_window import RunningWindow, window_end_s

MOST = 64  # further idle servers do not collect
# In `state`: whether the run has begun; the most collectors at once so far, their number now, and the number
# of requests that they hold; the arrival of the last request that was dealt; a counter. Then for each
# collector whether it collects, since when, since when it asks for a request, its turn among those asking
# since the same time, the number of its requests, and until when it collects if it has any.
BEGUN, SLOTS, COUNT, ALL_HELD, SEEN_S, TURNS, COLLECTS = range(7)
SINCE_S, ASKS_S, TURN, HELD, DUE_S, PICKED = (COLLECTS + MOST * block for block in range(1, 7))
# From PICKED on, the queue's places of the starting batch; then the collector of each held request, oldest
# first.


@rule_api.helper
def ask(slot: int, now_s: float, state: Any) -> None:
    """Let a collector ask for a request, after those already asking."""
    state[TURNS] += 1
    state[ASKS_S + slot], state[TURN + slot] = now_s, state[TURNS]


@rule_api.helper
def join(now_s: float, state: Any) -> None:
    """Let another server collect from now on."""
    slot = 0
    while slot < MOST and state[COLLECTS + slot] == 1:
        slot += 1
    if slot < MOST:
        state[SLOTS] = max(state[SLOTS], slot + 1)
        state[COUNT] += 1
        state[COLLECTS + slot], state[SINCE_S + slot], state[HELD + slot] = 1, now_s, 0
        ask(slot, now_s, state)


@rule_api.helper
def next_one(now_s: float, state: Any, params: Any) -> int:
    """Return the collector that gets the next request: the first that asks."""
    chosen, soonest_s = -1, math.inf
    for slot in range(int(state[SLOTS])):
        if state[COLLECTS + slot] == 0:
            continue
        asks_s = state[ASKS_S + slot]
        if params.poll_s < math.inf:  # it asks again in each window and each poll
            since_s = state[SINCE_S + slot]
            end_s = window_end_s(now_s, since_s, params.max_wait_s)
            if state[HELD + slot] == 0 and end_s > later(since_s, params.max_wait_s):
                asks_s = max(asks_s, later(end_s, -params.max_wait_s))
            asks_s = window_end_s(now_s, asks_s, params.poll_s)
        sooner = asks_s < soonest_s or (asks_s == soonest_s and state[TURN + slot] < state[TURN + chosen])
        if chosen < 0 or sooner:
            chosen, soonest_s = slot, asks_s
    return chosen


@rule_api.helper
def give_way(state: Any, now_s: float, params: Any) -> None:
    """Move the first asking collector behind the others: it woke up, too, and found no request."""
    slot = next_one(now_s, state, params)
    if slot >= 0:
        ask(slot, now_s, state)


@rule_api.helper
def first_due(state: Any) -> int:
    """Return the collector whose window ends first, among those with a request; -1 without one."""
    chosen = -1
    for slot in range(int(state[SLOTS])):
        if state[COLLECTS + slot] == 1 and state[HELD + slot] > 0:
            due_s = state[DUE_S + slot]
            earlier = chosen < 0 or due_s < state[DUE_S + chosen]
            if earlier or (due_s == state[DUE_S + chosen] and state[TURN + slot] < state[TURN + chosen]):
                chosen = slot
    return chosen


@rule_api.helper
def forget_lost(waiting: Waiting, owners: int, state: Any) -> None:
    """Forget the held requests that have timed out: the oldest."""
    held = int(state[ALL_HELD])
    here = min(held, waiting.length)
    while here > 0 and rule_api.oldest_s(waiting, here - 1) > state[SEEN_S]:
        here -= 1
    lost = held - here
    for place in range(lost):
        state[HELD + int(state[owners + place])] -= 1
    if lost > 0:
        for place in range(here):
            state[owners + place] = state[owners + lost + place]
        state[ALL_HELD] = here


@rule_api.helper
def leave(slot: int, now_s: float, idle: int, owners: int, state: Any) -> int:
    """Let a collector start its requests, and return their number."""
    size, kept = 0, 0
    for place in range(int(state[ALL_HELD])):
        if state[owners + place] == slot:
            state[PICKED + size] = place
            size += 1
        else:
            state[owners + kept] = state[owners + place]
            kept += 1
    more_are_idle = idle > state[COUNT]
    state[ALL_HELD], state[COLLECTS + slot] = kept, 0
    state[COUNT] -= 1
    if more_are_idle:
        join(now_s, state)
    return size


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Deal the new requests, and send a batch that is full or whose window has ended."""
    most, owners = params.max_batch_size, PICKED + params.max_batch_size
    if params.max_wait_s == 0:
        if waiting.length >= most:
            return rule_api.START, most, rule_api.FULL
        return rule_api.by_timer(now_s, waiting, waiting.length, 0.0)
    if state[BEGUN] == 0:
        state[BEGUN] = 1
        for _ in range(idle):
            join(0.0, state)
    forget_lost(waiting, owners, state)
    for k in range(int(state[ALL_HELD]), waiting.length):
        slot = next_one(now_s, state, params)
        state[SEEN_S] = rule_api.oldest_s(waiting, k)
        if state[HELD + slot] == 0 and params.poll_s < math.inf:
            state[DUE_S + slot] = window_end_s(state[SEEN_S], state[SINCE_S + slot], params.max_wait_s)
        elif state[HELD + slot] == 0:
            state[DUE_S + slot] = later(now_s, params.max_wait_s)
        state[owners + k] = slot
        state[HELD + slot] += 1
        state[ALL_HELD] = k + 1
        size, asked = 0, state[SEEN_S] >= state[SINCE_S + slot]  # else the request has waited for a server
        if state[HELD + slot] == most:
            size = leave(slot, now_s, idle, owners, state)
        elif asked:
            ask(slot, now_s, state)
        if asked and params.poll_s == math.inf:
            give_way(state, now_s, params)
        if size > 0:
            return rule_api.START, size, rule_api.FULL
    slot = first_due(state)
    if slot < 0 or now_s < state[DUE_S + slot]:
        return rule_api.NOTHING, 0, rule_api.FULL
    return rule_api.START, leave(slot, now_s, idle, owners, state), rule_api.WAIT


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return the earliest end of a window with a request."""
    if params.max_wait_s == 0:
        return now_s
    slot = first_due(state)
    return math.inf if slot < 0 else state[DUE_S + slot]


def finished(now_s: float, size: int, seconds: float, state: Any, params: Any) -> None:
    """Let the server that becomes free collect."""
    join(now_s, state)


def picked(k: int, state: Any, params: Any) -> int:
    """Return the place in the queue of the starting batch's k-th request."""
    return k if params.max_wait_s == 0 else int(state[PICKED + k])


@dataclass(frozen=True)
class CompetingWindows(Rule):
    """Each idle server collects its own batch, and the requests are dealt to all of them.

    A request goes to the server that has asked for the longest time. A server that becomes free first takes
    the waiting requests, oldest first. A batch leaves when it is full or when its server's window of
    `max_wait_ms` ends.

    An idle server asks for `poll_ms` at a time, and after each poll it queues behind the others. Its windows
    follow one another until one is not empty, as in `RunningWindow`. With `poll_ms=math.inf` it asks until a
    request comes, and its window begins with that request, as in `PullThenWait`. With one server the batches
    are exactly those of these two rules.

    At most 64 idle servers collect. With priorities the batch sizes stay the same, and the levels determine
    which requests are in a batch.

    >>> CompetingWindows(max_batch_size=8, max_wait_ms=5, poll_ms=math.inf)
    CompetingWindows(max_batch_size=8, max_wait_ms=5, poll_ms=inf)
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(  # type: ignore[misc]
        "The length of the windows in which an idle server collects a batch", default=10.0, may_be_inf=False
    )
    poll_ms: float = parameter(
        "Poll (ms)", "How long an idle server asks for a request before it asks again", type="real",
        at_least=0.001, may_be_inf=True, usual=1.0, default=1.0,
    )  # fmt: skip

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    picked = staticmethod(picked)
    title = "Per-worker batching"
    used_by = "Mosec, LitServe"

    @property
    def state_size(self) -> int:  # type: ignore[override]
        return PICKED + (1 + MOST) * self.max_batch_size

    @property
    def clock(self) -> str:  # type: ignore[override]
        runs = "in windows" if math.isfinite(self.poll_ms) else "from its first request on"
        return f"each idle server's clock runs {runs}, and requests are dealt to them in turn"

    @property
    def alone(self) -> Rule:
        rule = RunningWindow if math.isfinite(self.poll_ms) else PullThenWait
        return rule(self.max_batch_size, self.max_wait_ms)

    @property
    def steps(self) -> tuple[Step, ...]:
        window = f"a server's window of {typed(self.max_wait_ms)} ms ends"
        because = f"its server's window of {typed(self.max_wait_ms)} ms ended"
        step = Step(window, "send its share", Trigger.WAIT, because, "window was over")
        size = self.max_batch_size
        if size == 1 or self.max_wait_ms == 0:
            return rule_api.send_full_or(size, self.max_wait_ms, step)
        full = f"a server was dealt {size:,}"
        why = f"its server was dealt {size:,}, a full batch"
        return (Step(full, f"send these {size:,}", Trigger.FULL, why, "full"), step)
