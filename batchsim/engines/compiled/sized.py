"""Batches of requests with sizes: their time, and the fast loop for a threshold rule with a limit in units.

The formula of the time is that of `sized_time.py`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import math
from typing import Any

from numba.extending import register_jitable

from batchsim._clock import PER_S
from batchsim.engines.compiled.jit import compiled, inlined
from batchsim.engines.compiled.threshold import (
    finish_of,
    first_free,
    from_ticks,
    seconds_of,
    soonest,
    to_ticks,
    trigger_of,
)
from batchsim.scenario.rules.rule import FULL
from batchsim.scenario.rules.units import joins as _joins
from batchsim.scenario.sized_time import edge_of as _edge_of
from batchsim.scenario.sized_time import extra_s as _extra_s
from batchsim.scenario.sized_time import padded as _padded
from batchsim.scenario.sized_time import units_of as _units_of

# Each calls those before it.
edge_of: Any = register_jitable(_edge_of)
padded: Any = register_jitable(_padded)
units_of: Any = register_jitable(_units_of)
extra_s: Any = register_jitable(_extra_s)
joins = inlined(_joins)


@inlined
def place_of(count, longest, cost):
    """Return the place of a batch in the columns of `Cold`: its size, and the edge to which it is padded."""
    if not cost.edges.size:
        return count
    return count * cost.edges.size + edge_of(longest, cost)


@inlined
def time_of(requests, line, head, size, whole, costs):
    """Return the mean seconds of a batch of the `size` requests of a line from its head on, and its place.

    It is computed as one of `whole`.
    """
    mean_s = costs.service_s[whole]
    if not costs.units.rows.size:
        return mean_s, whole
    longest, total, squares = 0, 0, 0
    for place in range(head, head + size):
        units = requests.size[line[place]]
        longest, total, squares = max(longest, units), total + units, squares + units * units
    return _with_units(mean_s, whole, longest, total, squares, costs.units)


@inlined
def _with_units(mean_s, count, longest, total, squares, cost):
    mean_s += extra_s(count, longest, total, squares, cost)
    return mean_s, place_of(count, longest, cost)


@compiled
def form_batches(
    arrival_s, size, more, threshold, limit, summed, costs, free, state, stop, batch_index, batches
):
    """Form batches as `threshold.form_batches` does, of requests with sizes; the `limit` may be `summed`.

    A batch is full when its next request, however small, would break a limit.
    """
    requests, largest = arrival_s.size, threshold.largest
    head, batch = state[0], state[1]
    stop = min(requests - largest + 1 if more else requests, stop)
    while head < stop:
        # It is ready at this time, unless it is full before; and who comes until it starts may join.
        ready = to_ticks(arrival_s[head]) + threshold.wait_s * PER_S
        if head + threshold.enough <= requests:
            ready = min(ready, to_ticks(arrival_s[head + threshold.enough - 1]))
        elif threshold.wait_s == math.inf:
            ready = to_ticks(arrival_s[requests - 1])
        freed = soonest(free)
        now = max(ready, freed)
        end, most, full = head, min(head + largest, requests), False
        longest, total, squares = 0, 0, 0
        while end < most and not full:
            comes, own = to_ticks(arrival_s[end]), size[end]
            if comes > now:
                break
            full = not joins(end - head, longest, total, own, limit, summed)
            if not full:
                longest, total, squares = max(longest, own), total + own, squares + own * own
                end += 1
                full = end - head == largest or not joins(end - head, longest, total, 1, limit, summed)
            if full:
                now = max(min(ready, comes), freed)
        count, now_s = end - head, from_ticks(now)
        mean_s, place = costs.service_s[count], count
        if costs.units.rows.size:
            mean_s, place = _with_units(mean_s, count, longest, total, squares, costs.units)
        server, busy = first_free(free, now)
        if costs.devices.free_s.size or costs.cold.ready_s.size:
            done_s = finish_of(now_s, costs, mean_s, place, batch, server, busy)
            free[server] = to_ticks(done_s)
        else:
            free[server] = now + max(seconds_of(costs, mean_s, batch, busy) * PER_S, 1.0)
            done_s = from_ticks(free[server])
        batches.start_s[batch], batches.finish_s[batch] = now_s, done_s
        batches.size[batch], batches.server[batch] = count, server
        trigger = trigger_of(arrival_s, head, count, now, threshold)
        batches.trigger[batch] = FULL if full else trigger
        if batch_index.size:
            batch_index[head:end] = batch
        head = end
        batch += 1
    state[0], state[1] = head, batch
