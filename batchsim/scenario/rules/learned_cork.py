"""Waiting as long as it pays, estimated from the cost and the waits of earlier batches."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from batchsim._clock import later
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting

KEPT = 50  # batches in the memory
SKIPPED = 2  # the first batches, which the memory omits
UNTIMED = 9  # the first batches, which leave as soon as a server is free
TRAINING = 11  # the first batches, whose waits count as 0; the last two of them waited for others
REFRESH_S = 5.0  # between two updates of the model
TICK_S = 0.001  # between two looks at the queue
LEAST_S = 1e-6  # the least cost of a request in the model
SKIP_UNTIL = 8  # the first batches, each with its own number of requests that are not refused
SAFE = 0.95  # the share of the latency limit for which a training batch waits at most
# In `state`: the number of batches ended and started, when the last batch ended, when one last started or a
# request was last refused, how long its oldest had waited; the time of the last update and its results (cost
# of a request and of a batch, mean wait); the time limit of training batches; then the sizes, seconds and
# waits in the memory.
ENDED, STARTED, ENDED_S, STARTED_S, WAITED_S, LEARNED_S, ITEM_S, FIXED_S, MEAN_WAIT_S, BUDGET_S, SIZES = (
    range(11)
)


@rule_api.helper
def first_look_s(oldest_s: float, state: Any) -> float:
    """Return the first look at the waiting requests: as the oldest comes, or after a batch without it."""
    return max(state[STARTED_S], oldest_s)


@rule_api.helper
def look_after_s(now_s: float, first_s: float) -> float:
    """Return the first look later than now."""
    k = math.floor((now_s - first_s) / TICK_S)
    while later(first_s, k * TICK_S) <= now_s:
        k += 1
    while later(first_s, (k - 1) * TICK_S) > now_s:  # the division was rounded
        k -= 1
    return later(first_s, k * TICK_S)


@rule_api.helper
def company(started: float, largest: int) -> int:
    """Return the number of requests for which a training batch waits."""
    return min(int(started) - UNTIMED + 2, largest) if UNTIMED <= started < TRAINING else 1


@rule_api.helper
def learn(state: Any) -> None:
    """Fit the line seconds = item_s * size + fixed_s to the batches in the memory; average their waits."""
    count = min(int(state[ENDED]) - SKIPPED, KEPT)
    if count <= 0:
        return
    sizes, squares, taken, products, waits = 0.0, 0.0, 0.0, 0.0, 0.0
    for number in range(SIZES, SIZES + count):
        n, took = state[number], state[number + KEPT]
        sizes, squares = sizes + n, squares + n * n
        taken, products = taken + took, products + n * took
        waits += state[number + 2 * KEPT]
    spread = count * squares - sizes * sizes
    if spread > 0:
        item_s = (count * products - sizes * taken) / spread
        fixed_s = (taken - item_s * sizes) / count
    else:  # all of one size: the line through that point with the smallest coefficients
        mean = sizes / count
        fixed_s = (taken / count) / (mean * mean + 1)
        item_s = mean * fixed_s
    state[ITEM_S], state[FIXED_S] = max(LEAST_S, item_s), max(0.0, fixed_s)
    state[MEAN_WAIT_S] = waits / count


@rule_api.helper
def refused_from_s(oldest_s: float, size: int, idle: int, state: Any, limit_s: float) -> float:
    """Return the time from which the oldest is refused: it is, or will surely be, too late."""
    started = state[STARTED]
    if started < TRAINING:
        kept = 2 - started if started < SKIP_UNTIL else (6, 5, 3)[int(started) - SKIP_UNTIL]
        return later(oldest_s, limit_s) if size > kept else math.inf
    if size > 1:
        return later(oldest_s, limit_s - (state[ITEM_S] * size + state[FIXED_S]))
    return later(oldest_s, limit_s) if idle == 0 else math.inf


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send all that wait, at a look, unless waiting for one more costs less than past batches waited."""
    size, largest, started = waiting.length, params.max_batch_size, state[STARTED]
    oldest_s, newest_s = rule_api.oldest_s(waiting), rule_api.oldest_s(waiting, size - 1)
    first_s = first_look_s(oldest_s, state)
    k = round((now_s - first_s) / TICK_S)
    if now_s != later(first_s, k * TICK_S):
        return rule_api.NOTHING, 0, rule_api.FULL
    if now_s >= refused_from_s(oldest_s, size, idle, state, params.max_latency_s):
        state[STARTED_S] = now_s
        return rule_api.REFUSE, 1, rule_api.FULL
    if idle == 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    if started < TRAINING:
        group = company(started, largest)
        batch_s = group * state[ITEM_S] + state[FIXED_S]
        if size < group and batch_s + (now_s - oldest_s) <= state[BUDGET_S]:
            return rule_api.NOTHING, 0, rule_api.FULL
    elif size < largest:
        cost_s = size * ((now_s - newest_s) + TICK_S + state[ITEM_S])
        if cost_s <= params.patience * state[MEAN_WAIT_S]:
            return rule_api.NOTHING, 0, rule_api.FULL
    trigger = rule_api.WAIT
    if size >= largest:
        size, trigger = largest, rule_api.FULL
    elif newest_s == now_s:
        trigger = rule_api.ENOUGH
    elif k == 0 or state[ENDED_S] > later(first_s, (k - 1) * TICK_S):
        trigger = rule_api.BACKLOG
    state[WAITED_S] = now_s - oldest_s if started >= TRAINING else 0.0
    state[STARTED], state[STARTED_S] = started + 1, now_s
    if UNTIMED <= state[STARTED] <= TRAINING:
        learn(state)
        group = company(state[STARTED], largest)
        budget_s = (2 * group + 1) * state[ITEM_S] + state[FIXED_S]
        state[BUDGET_S] = min(SAFE * params.max_latency_s, budget_s)
    return rule_api.START, size, trigger


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
    """Return the next look that may act; it skips looks at which the batch is held."""
    oldest_s, size = rule_api.oldest_s(waiting), waiting.length
    first_s = first_look_s(oldest_s, state)
    next_s = look_after_s(now_s, first_s)
    if idle == 0:
        next_s = math.inf
    elif size < params.max_batch_size and state[STARTED] >= TRAINING:
        newest_s = rule_api.oldest_s(waiting, size - 1)
        held_until_s = newest_s + (params.patience * state[MEAN_WAIT_S] / size - TICK_S - state[ITEM_S])
        if held_until_s > next_s + TICK_S:
            next_s = look_after_s(held_until_s - TICK_S, first_s)
    refused_s = refused_from_s(oldest_s, size, idle, state, params.max_latency_s)
    if refused_s < math.inf:
        next_s = min(next_s, look_after_s(max(now_s, refused_s - 2 * TICK_S), first_s))
    return next_s


def finished(now_s: float, size: int, seconds: float, state: Any, params: Any) -> None:
    """Remember a batch, and update the model at most every 5 s."""
    state[ENDED] += 1
    state[ENDED_S] = now_s
    kept = int(state[ENDED]) - SKIPPED
    if kept <= 0:
        return
    place = SIZES + (kept - 1) % KEPT
    state[place], state[place + KEPT], state[place + 2 * KEPT] = size, seconds, state[WAITED_S]
    if kept == 1 or now_s >= later(state[LEARNED_S], REFRESH_S):
        state[LEARNED_S] = now_s
        learn(state)


@dataclass(frozen=True)
class LearnedCork(Rule):
    """A batch is held while that costs less than past batches waited; the rule learns both.

    There is no timer: n requests are held while n (w + 1 ms + a) <= patience * W. Here w is the wait of the
    newest request, a the cost of another request on a line fitted to the last 50 batches, and W the mean wait
    of their oldest requests at the start. The rule looks as the first request comes, and then every ms; a
    full batch, or a server that becomes free, waits for the next look. The model is updated every 5 s. The
    first 11 batches train it: 9 leave without a wait, one waits briefly for 2 requests and one for 3. The
    model is that of one server; with several, W is that of the batches started last.

    At a look, the rule refuses the oldest request if it would be answered later than `max_latency_ms` after
    its arrival, supposing that all waiting requests were computed now; then it checks the next one. Results
    count these as rejected, and pictures show them as if they had been rejected on arrival.

    >>> LearnedCork(max_batch_size=100, max_latency_ms=50)
    LearnedCork(max_batch_size=100, patience=0.95, max_latency_ms=50)
    """

    max_batch_size: int = rule_api.max_batch_size(default=100)
    patience: float = parameter(
        "Patience", "The share of batches' mean wait that waiting for another request may cost",
        type="real", at_least=0, slider=(0, 5, 0.05), usual=0.95, default=0.95,
    )  # fmt: skip
    max_latency_ms: float = parameter(
        "Max latency (ms)", "Requests that would be answered later than this after they came are refused",
        type="real", at_least=0, may_be_inf=True, usual=math.inf, default=math.inf,
    )  # fmt: skip

    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    state_size = SIZES + 3 * KEPT
    title = "Adaptive batching"
    used_by = "BentoML"
    clock = "there is no clock: it learns how long holding a batch pays"
    map_knobs = ("max_batch_size", "patience")

    @property
    def longest_wait_s(self) -> float:  # type: ignore[override]
        return self.max_latency_ms / 1000

    @property
    def fewest_clients(self) -> int:
        return 1

    def carried_per_s(self, rate_per_s: float, seconds: np.ndarray, servers: int) -> float:
        """Return the rate of full batches: one server computes each until a look, a whole number of ms."""
        carried = super().carried_per_s(rate_per_s, seconds, servers)
        if servers > 1:
            return carried
        period_s = TICK_S * math.ceil(float(seconds[-1]) / TICK_S - 1e-9)
        return min(carried, seconds.size / period_s)

    @property
    def steps(self) -> tuple[Step, ...]:
        full = rule_api.send_full(self.max_batch_size)
        if self.max_batch_size == 1:
            return (replace(full, condition="one waits as the loop looks"),)
        came = "a request came, and waiting for another would cost more than batches wait"
        free = "a server became free, and waiting for another would cost more than batches wait"
        held = "it had been held as long as that pays"
        return (
            full,
            Step("no wait pays any longer", "send all", Trigger.WAIT, held, "hold was over"),
            Step("one comes and no wait pays", "send all", Trigger.ENOUGH, came, "not held"),
            Step("no wait pays", "send all", Trigger.BACKLOG, free, "server became free"),
        )
