"""Batches as large as can be computed in time, estimated from the batches before."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim._format import typed
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting

SAFE = 0.92  # the share of the remaining time that a batch may take
ENOUGH_OF_ONE = 5  # batches of a size, before its mean counts
ONE_BY_ONE = 10  # up to this size the next size to try is larger by one
GROWTH = 1.1  # above it, by this factor
ROUNDING = 1e-9  # smaller differences are rounding: sums that grow for a whole run are not exact
SPREADS = 3  # standard deviations above the mean, as the slowest time of a size
# In `state`: the largest size tried, the longest batch, and the padded size of a batch (0: not padded); the
# number of sizes seen; the batches of sizes with enough of them, and the sum of squares off their means; over
# all sizes, with x the mean in ms, the sums of x, x^2, size and size * x; then for each size the number of
# batches, their mean, and their standard deviation.
TRIED, LONGEST_S, FILLED, COUNT, KNOWN, SPREAD, TIMES, SQUARES, SIZES, PRODUCTS, SAMPLES = range(11)


@rule_api.helper
def larger(tried: int, state: Any, most: int) -> int:
    """Return the size to try: the last one until it has enough samples, then a larger one; 0 at the limit."""
    samples = state[SAMPLES + tried - 1]
    if 0 < samples < ENOUGH_OF_ONE:
        return tried
    if tried < most:
        return tried + 1 if tried < ONE_BY_ONE else min(int(GROWTH * tried), most)
    return 0 if samples > 0 else most


@rule_api.helper
def in_time(budget_s: float, state: Any, most: int) -> int:
    """Return the size that takes so long, on a line fitted to the slowest times of the sizes."""
    count = state[COUNT]
    if count == 0:
        return 1
    slower_ms = 1000 * SPREADS * math.sqrt(max(state[SPREAD], 0.0) / max(1.0, state[KNOWN] - count))
    times = state[TIMES] + count * slower_ms
    squares = state[SQUARES] + slower_ms * (2 * state[TIMES] + count * slower_ms)
    sizes, products = state[SIZES], state[PRODUCTS] + slower_ms * state[SIZES]
    determinant = count * squares - times * times
    if count > 1 and determinant > ROUNDING * count * squares:
        per_ms = (count * products - times * sizes) / determinant
        at_0 = (sizes - per_ms * times) / count
    else:  # one point: the line through it with the smallest coefficients
        mean = times / count
        at_0 = (sizes / count) / (mean * mean + 1)
        per_ms = mean * at_0
    return int(min(max(1.0, math.floor(per_ms * (1000 * budget_s) + at_0 + ROUNDING)), float(most)))


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send the size that finishes before the oldest is late, or the next size to try."""
    most, tried = params.max_batch_size, max(1, int(state[TRIED]))
    budget_s = SAFE * (rule_api.oldest_s(waiting) + params.deadline_s - now_s)
    allowed = larger(tried, state, most) if budget_s > state[LONGEST_S] else 0
    state[FILLED] = allowed
    if allowed == 0:
        allowed = in_time(budget_s, state, most)
    state[TRIED] = max(tried, allowed)
    if waiting.length >= allowed:
        return rule_api.START, allowed, rule_api.FULL if allowed == most else rule_api.ENOUGH
    return rule_api.by_timer(now_s, waiting, waiting.length, 0.0)


def computed_as(size: int, state: Any, params: Any) -> int:
    """Return the size to which copies pad the batch: the size to try."""
    return max(size, int(state[FILLED]))


def finished(now_s: float, size: int, seconds: float, state: Any, params: Any) -> None:
    """Remember how long a batch of a size took."""
    place, most = SAMPLES + size - 1, params.max_batch_size
    before, mean_s, deviation_s = state[place], state[place + most], state[place + 2 * most]
    now_ = before + 1
    new_s = (before * mean_s + seconds) / now_
    off_s = new_s - seconds
    square = (deviation_s * deviation_s * before + now_ / max(1.0, before) * (off_s * off_s)) / now_
    state[place], state[place + most], state[place + 2 * most] = now_, new_s, math.sqrt(square)
    if before == 0:
        state[COUNT], state[SIZES] = state[COUNT] + 1, state[SIZES] + size
    if now_ >= ENOUGH_OF_ONE:
        known = before >= ENOUGH_OF_ONE
        state[KNOWN] += 1 if known else now_
        state[SPREAD] += before * square - ((before - 1) * deviation_s * deviation_s if known else 0.0)
    old_ms, new_ms = 1000 * mean_s, 1000 * new_s
    state[TIMES] += new_ms - old_ms
    state[SQUARES] += new_ms * new_ms - old_ms * old_ms
    state[PRODUCTS] += size * (new_ms - old_ms)
    state[LONGEST_S] = max(state[LONGEST_S], seconds)


@dataclass(frozen=True)
class LearnedSizes(Rule):
    """A free server takes the waiting requests that it can finish before the oldest is late.

    Requests never wait for others. The rule learns the size: while the longest batch so far took less than
    0.92 of the time that the oldest has left, it tries larger sizes, each five times, by one up to 10 and
    then by a tenth. It pads them with copies if fewer requests wait; such a batch takes as long as a full
    one. Afterwards it reads the size from a line fitted to the sizes' times, three standard deviations above
    the mean. A request is late `deadline_ms` after it came; only a timeout of the scenario removes it.

    If all requests in the queue are nearly late, there is time for small batches only, and the queue does not
    recover until the rate falls below their throughput. The model is that of one server; several share it.

    >>> LearnedSizes(deadline_ms=50)
    LearnedSizes(max_batch_size=128, deadline_ms=50)
    """

    max_batch_size: int = rule_api.max_batch_size(default=128)
    deadline_ms: float = parameter(
        "Deadline (ms)", "How long after it came a request may be answered: it bounds a batch",
        type="real", at_least=0, slider=(1, 200, 1), usual=100.0, default=100.0,
    )  # fmt: skip

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.never_s)
    computed_as = staticmethod(computed_as)
    finished = staticmethod(finished)
    forgets = False
    title = "Adaptive batch size"
    used_by = "Clipper"
    clock = "there is no clock: a batch is as large as can be computed in time"
    map_knobs = ("max_batch_size", "deadline_ms")

    @property
    def state_size(self) -> int:  # type: ignore[override]
        return SAMPLES + 3 * self.max_batch_size

    @property
    def enough(self) -> int:
        return 1

    def carried_per_s(self, rate_per_s: float, seconds: np.ndarray, servers: int) -> float:
        """Return the rate of the largest batches that take no longer than a fresh request has left."""
        fitting = int(np.searchsorted(seconds, SAFE * self.deadline_ms / 1000, side="right"))
        return float(servers * max(fitting, 1) / seconds[max(fitting, 1) - 1])

    @property
    def steps(self) -> tuple[Step, ...]:
        full = rule_api.send_full(self.max_batch_size)
        if self.max_batch_size == 1:
            return (full,)
        many = f"the size learned for a deadline of {typed(self.deadline_ms)} ms was reached"
        learned = Step("the learned size waits", "send that many", Trigger.ENOUGH, many, "learned size")
        return (full, learned, *rule_api.send_at_once(Trigger.WAIT))
