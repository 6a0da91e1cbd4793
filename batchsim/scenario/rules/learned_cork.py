"""Waiting as long as it pays, by what the batches before have cost and waited."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchsim.scenario.rules import rule as seam
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting

KEPT = 50  # batches that are remembered
SKIPPED = 2  # of the first, which are not
TRAINING = 9  # the first batches leave without a wait, and count as ones that have not waited
REFRESH_S = 5.0  # between two looks at what was remembered
TICK_S = 0.001  # what another look at the queue costs
LEAST_S = 1e-6  # the least cost of a request that is believed
# In `state`: how many batches have ended and started, how long the oldest of the last one waited, when it was
# last learned, what: the cost of a request and the mean wait; then the sizes, seconds and waits remembered.
ENDED, STARTED, WAITED_S, LEARNED_S, ITEM_S, MEAN_WAIT_S, SIZES = 0, 1, 2, 3, 4, 5, 6


class LearnedCorkParams(NamedTuple):
    """The parameters of `LearnedCork`."""

    max_batch_size: int
    patience: float


@seam.helper
def held_until_s(newest_s: float, size: int, state: Any, patience: float) -> float:
    """Return when waiting for another request costs those that wait more than batches have waited."""
    return newest_s + (patience * state[MEAN_WAIT_S] / size - TICK_S - state[ITEM_S])


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: LearnedCorkParams) -> Decision:
    """Send what waits, unless to wait for one more costs less than batches wait on average."""
    size = waiting.length
    oldest_s, newest_s = seam.oldest_s(waiting), seam.oldest_s(waiting, size - 1)
    trigger = seam.ENOUGH if newest_s == now_s else seam.BACKLOG
    if size >= params.max_batch_size:
        size, trigger = params.max_batch_size, seam.FULL
    elif state[ENDED] >= TRAINING:
        due_s = held_until_s(newest_s, size, state, params.patience)
        if now_s < due_s:
            return seam.NOTHING, 0, seam.FULL
        if now_s == due_s:
            trigger = seam.WAIT
    state[WAITED_S] = now_s - oldest_s if state[STARTED] >= TRAINING else 0.0
    state[STARTED] += 1
    return seam.START, size, trigger


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: LearnedCorkParams) -> float:
    """Return when the batch is no longer held."""
    if state[ENDED] < TRAINING:
        return math.inf
    newest_s = seam.oldest_s(waiting, waiting.length - 1)
    return held_until_s(newest_s, waiting.length, state, params.patience)


def finished(now_s: float, size: int, seconds: float, state: Any, params: LearnedCorkParams) -> None:
    """Remember a batch, and learn the line seconds = item_s * size + fixed_s, at most every 5 s."""
    state[ENDED] += 1
    if state[ENDED] <= SKIPPED:
        return
    kept = int(state[ENDED]) - SKIPPED
    place = SIZES + (kept - 1) % KEPT
    state[place], state[place + KEPT], state[place + 2 * KEPT] = size, seconds, state[WAITED_S]
    if state[ENDED] > TRAINING and now_s < state[LEARNED_S] + REFRESH_S:
        return
    state[LEARNED_S] = now_s
    count = min(kept, KEPT)
    sizes, squares, taken, products, waits = 0.0, 0.0, 0.0, 0.0, 0.0
    for number in range(SIZES, SIZES + count):
        n, took = state[number], state[number + KEPT]
        sizes, squares = sizes + n, squares + n * n
        taken, products = taken + took, products + n * took
        waits += state[number + 2 * KEPT]
    spread = count * squares - sizes * sizes
    if spread > 0:
        item_s = (count * products - sizes * taken) / spread
    else:  # all of one size: of all lines through one point, the one of the smallest numbers
        mean = sizes / count
        item_s = mean * (taken / count) / (mean * mean + 1)
    state[ITEM_S], state[MEAN_WAIT_S] = max(LEAST_S, item_s), waits / count


@dataclass(frozen=True)
class LearnedCork(Rule):
    """Holds a batch while that costs less than batches have waited; it learns both.

    There is no timer: n requests are held while n (w + 1 ms + a) <= patience * W, where w is how long the
    newest request has waited, a the cost of another request in a line fitted to the last 50 batches, and
    W how long their oldest had waited at the start. Both are learned anew every 5 s; the first 9 batches
    leave without a wait. What is learned is of one server; with several, W is of those started last.

    >>> LearnedCork(max_batch_size=100)
    LearnedCork(max_batch_size=100, patience=0.95)
    """

    max_batch_size: int = seam.max_batch_size(default=100)
    patience: float = seam.parameter(
        "Patience", "The share of batches' mean wait that waiting for another request may cost",
        kind="real", at_least=0, slider=(0, 5, 0.05), usual=0.95, default=0.95,
    )  # fmt: skip

    Params = LearnedCorkParams
    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    finished = staticmethod(finished)
    state_size = SIZES + 3 * KEPT
    title = "Learned cork"
    clock = "there is no clock: it learns how long holding a batch pays"
    map_knobs = ("max_batch_size", "patience")

    @property
    def fewest_clients(self) -> int:
        return 1

    @property
    def params(self) -> LearnedCorkParams:
        return LearnedCorkParams(self.max_batch_size, float(self.patience))

    @property
    def steps(self) -> tuple[Step, ...]:
        full = seam.send_full(self.max_batch_size)
        if self.max_batch_size == 1:
            return (full,)
        came = "a request came, and waiting for another would cost more than batches wait"
        free = "a server came free, and waiting for another would cost more than batches wait"
        held = "it had been held as long as that pays"
        return (
            full,
            Step("no wait pays any longer", "send all", Trigger.WAIT, held, "hold was over"),
            Step("one comes and no wait pays", "send all", Trigger.ENOUGH, came, "not held"),
            Step("no wait pays", "send all", Trigger.BACKLOG, free, "server came free"),
        )
