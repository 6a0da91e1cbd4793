"""A queue for each range of sizes, so that a batch pads short requests little."""

import math
from dataclasses import dataclass, replace
from typing import Any

from batchsim.scenario.lengths import LONGEST
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import ENDLESS, Decision, Rule, Step, Waiting, joins, max_batch_units, units

# In `state`, for each range: the number of its requests in the next batch, their longest, the sum of their
# sizes, the place of the oldest, and whether the batch is full. Then the places of the starting batch.
COUNT, MOST, SUM, OLDEST, FULL, FIELDS = range(6)


@rule_api.helper
def range_of(size: int, params: Any) -> int:
    """Return the range of a size: the first edge that it does not exceed."""
    bucket = 0
    while params.edges[bucket] < size:
        bucket += 1
    return bucket


@rule_api.helper
def add(bucket: int, place: int, size: int, state: Any, params: Any) -> None:
    """Add a waiting request to the next batch of its range, unless this is full."""
    at, limit, summed = FIELDS * bucket, params.max_batch_units, params.units
    if state[at + FULL] == 1:
        return
    count, longest, total = int(state[at + COUNT]), int(state[at + MOST]), int(state[at + SUM])
    if not joins(count, longest, total, size, limit, summed):
        state[at + FULL] = 1
        return
    if count == 0:
        state[at + OLDEST] = place
    count, longest, total = count + 1, max(longest, size), total + size
    state[at + COUNT], state[at + MOST], state[at + SUM] = count, longest, total
    if count == params.max_batch_size or not joins(count, longest, total, 1, limit, summed):
        state[at + FULL] = 1


@rule_api.helper
def pick(bucket: int, waiting: Waiting, state: Any, params: Any) -> int:
    """Write down the places of the batch of a range, and return its size."""
    size, place, begin = int(state[FIELDS * bucket + COUNT]), 0, FIELDS * params.edges.size
    picked = 0
    while picked < size:
        if range_of(waiting.size[waiting.queue[waiting.head + place]], params) == bucket:
            state[begin + picked] = place
            picked += 1
        place += 1
    return size


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send the batch that is due, of the range whose oldest request has waited longest."""
    state[: FIELDS * params.edges.size] = 0
    first = range_of(waiting.size[waiting.queue[waiting.head]], params)
    place = 0
    while place < waiting.length and state[FIELDS * first + FULL] == 0:
        size = waiting.size[waiting.queue[waiting.head + place]]
        add(range_of(size, params), place, size, state, params)
        place += 1
    chosen, trigger = -1, rule_api.FULL
    for bucket in range(params.edges.size):
        at = FIELDS * bucket
        earlier = chosen < 0 or state[at + OLDEST] < state[FIELDS * chosen + OLDEST]
        if state[at + COUNT] == 0 or not earlier:
            continue
        due = rule_api.FULL
        if state[at + FULL] == 0:
            due = rule_api.timer(now_s, waiting, params.max_wait_s, int(state[at + OLDEST]))
        if due >= 0:
            chosen, trigger = bucket, due
    if chosen < 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    return rule_api.START, pick(chosen, waiting, state, params), trigger


def picked(k: int, state: Any, params: Any) -> int:
    """Return the place in the queue of the starting batch's k-th request."""
    return int(state[FIELDS * params.edges.size + k])


@dataclass(frozen=True)
class Buckets(Rule):
    """A queue for each range of sizes; each sends a batch when it is full or its oldest request has waited.

    `edges` are the largest sizes of the ranges: the last one must cover every request. All ranges have the
    limits of `SizeOrWait`. If several batches are due, that whose oldest request has waited longest is next.

    >>> Buckets([64, 512], max_batch_size=8, max_wait_ms=5)
    Buckets(edges=(64, 512), max_batch_size=8, max_wait_ms=5, max_batch_units=None, units='padded')
    """

    edges: tuple[int, ...] = parameter(
        "Bucket edges", "The largest size of each range of requests that share batches, as 64, 512",
        type="sizes", at_most=LONGEST, of_sizes=True, usual=(64, 512),
    )  # fmt: skip
    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_wait_ms: float = rule_api.max_wait_ms(default=10.0)  # type: ignore[misc]
    max_batch_units: int | None = max_batch_units()
    units: str = units()

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.deadline_s)
    picked = staticmethod(picked)
    by_size = True
    title = "Length buckets"
    used_by = "TensorFlow's bucket_by_sequence_length"
    clock = "each range has its own clock, which starts as its oldest request comes"

    @property
    def state_size(self) -> int:  # type: ignore[override]
        return FIELDS * len(self.edges) + self.max_batch_size

    @property
    def largest_size(self) -> int:
        return ENDLESS if self.max_batch_units is None else self.max_batch_units

    @property
    def covers(self) -> float:
        return self.edges[-1]

    @property
    def fewest_clients(self) -> int:
        # All clients may send sizes of one range less than a full batch of each.
        many = len(self.edges) * (self.max_batch_size - 1) + 1
        return many if math.isinf(self.max_wait_ms) else 1

    @property
    def steps(self) -> tuple[Step, ...]:
        one = rule_api.send_full(self.max_batch_size)
        full = replace(one, condition=f"a range is full: {one.condition}", action="send its oldest")
        return (full, *rule_api.send_after(self.max_wait_ms)) if self.max_batch_size > 1 else (full,)
