"""The entry points of the page's module: functions of few arguments around the compiled loops.

JavaScript passes addresses in the module's memory, and each entry cuts the loop's columns out of them. A
rule's parameters, a named tuple, become as many arguments: the types of an entry follow from its rule.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, arg-type"

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import typeof, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from batchsim import _clock
from batchsim.engines.compiled import instants, threshold
from batchsim.engines.compiled.columns import (
    BATCH,
    ENDLESS,
    PLACES,
    Batches,
    Clients,
    Cold,
    Costs,
    Devices,
    Horizon,
    Limits,
    Queue,
    Requests,
    Servers,
)
from batchsim.engines.compiled.grid_loops import BINS, select
from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.threshold import next_batch
from batchsim.scenario.rules import RULES, Threshold
from batchsim.web.calls import usual

FLOATS, WHOLES, INTS, BYTES = (
    types.CPointer(kind) for kind in (types.float64, types.int64, types.int32, types.uint8)
)
INT = types.int32


def _column(typing, pointer, begin, count):
    """Return the `count` values from place `begin` on; `numba.carray` would need reference counting."""
    kind = types.Array(pointer.dtype, 1, "C")

    def make(context, builder, signature, arguments):
        made, size = (
            make_array(kind)(context, builder),
            context.get_abi_sizeof(context.get_data_type(kind.dtype)),
        )
        place, length = (
            context.cast(builder, value, of, types.intp)
            for value, of in zip(arguments[1:], (begin, count), strict=True)
        )
        size = context.get_constant(types.intp, size)
        populate_array(made, builder.gep(arguments[0], [place]), [length], [size], size, None)
        return made._getvalue()

    return kind(pointer, begin, count), make


column: Any = intrinsic(_column)


def same_address(kind):
    """Return a function that reads an address as one of values of another kind, with the same bits."""

    @intrinsic
    def read_as(typing, pointer):
        def read(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(kind))

        return kind(pointer), read

    return read_as


as_floats, as_wholes = same_address(FLOATS), same_address(WHOLES)

# The luck of a run: the times of requests that come at rate 1, which another rate only stretches.

GOLDEN, FIRST, SECOND = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
BY_12, BY_27, BY_30, BY_31 = map(np.uint64, (12, 27, 30, 31))
LN_2, ROOT_HALF = math.log(2), math.sqrt(0.5)
TERMS = tuple(1 / k for k in range(21, 1, -2))  # of the series of the logarithm
on_grid = inlined(_clock.on_grid)


@inlined
def mixed(bits):
    """Return 64 bits that look random: SplitMix64 (Steele, Lea and Flood, 2014)."""
    bits = (bits ^ (bits >> BY_30)) * FIRST
    bits = (bits ^ (bits >> BY_27)) * SECOND
    return bits ^ (bits >> BY_31)


@inlined
def minus_log(share):
    """Return -log(share) of a share in (0, 1), from operations that IEEE 754 rounds alike everywhere."""
    halvings = 0
    while share < ROOT_HALF:
        share, halvings = share * 2, halvings + 1
    part = (share - 1) / (share + 1)
    square, series = part * part, 0.0
    for term in TERMS:
        series = (series + term) * square
    return halvings * LN_2 - 2 * (part + part * series)


@inlined
def fill(seed, points):
    """Write the sums of exponential gaps of mean 1; the first request comes at 0, as that of a `Trace`."""
    start, time = mixed(np.uint64(seed) + GOLDEN), 0.0
    for request in range(points.size):
        points[request] = time
        bits = mixed(start + np.uint64(request) * GOLDEN)
        time += minus_log((np.float64(bits >> BY_12) + 0.5) * 2.0**-52)


def draw(seed, requests, points):
    """Draw the points of a seed."""
    fill(seed, column(points, 0, requests))


def stretch(rate_per_s, requests, points, floats):
    """Write the arrivals at a rate, on the clock's grid."""
    from_, to = column(points, 0, requests), column(floats, 0, requests)
    for request in range(requests):
        to[request] = on_grid(from_[request] / rate_per_s)


# The loops. `floats` holds arrivals, starts, finishes, service times (whose [0] is NaN), the rule's memory,
# the servers' times; `ints` the batch of each request, sizes, servers, then the queue; `octets` the triggers;
# `wholes` the cursors, the number of batches and how the loop ended, then the servers' sizes. All but the
# arrivals and the service times are 0.

form_batches = inlined(inspect.unwrap(threshold.form_batches))
pass_instants = inlined(inspect.unwrap(instants.pass_instants))
ENDING = PLACES  # the place of how the loop ended


@inlined
def cut_costs(requests, largest, floats):
    """Return the service times, without noise, devices and compiling."""
    none = column(floats, 0, 0)
    cold = Cold(none, column(as_wholes(floats), 0, 0), none)
    return Costs(column(floats, 3 * requests, largest + 1), none, none, Devices(none, 0.0, 1.0), cold)


@inlined
def cut_batches(requests, floats, ints, octets):
    """Return the columns of the batches."""
    return Batches(
        column(floats, requests, requests), column(floats, 2 * requests, requests),
        column(ints, requests, requests), column(ints, 2 * requests, requests), column(octets, 0, requests),
    )  # fmt: skip


def run_threshold(
    params, requests, servers, largest, memory, frozen, while_busy, floats, ints, octets, wholes
):
    """Run a threshold rule in the fast loop."""
    costs, batches = cut_costs(requests, largest, floats), cut_batches(requests, floats, ints, octets)
    free, state = column(floats, 3 * requests + largest + 1, servers), column(wholes, 0, PLACES + 1)
    form_batches(
        column(floats, 0, requests), False, params, costs, free, state, requests,
        column(ints, 0, requests), batches,
    )  # fmt: skip
    state[BATCH], state[ENDING] = state[1], instants.ENDED


def run_rule(params, requests, servers, largest, memory, frozen, while_busy, floats, ints, octets, wholes):
    """Run any rule in the general loop."""
    costs, batches = cut_costs(requests, largest, floats), cut_batches(requests, floats, ints, octets)
    at, no_floats, no_ints, no_octets = (
        3 * requests + largest + 1,
        column(floats, 0, 0),
        column(ints, 0, 0),
        column(octets, 0, 0),
    )
    rows = Requests(
        column(floats, 0, requests), no_floats, no_ints, column(ints, 0, requests),
        column(octets, requests, requests), no_octets,
    )  # fmt: skip
    queue = Queue(
        column(ints, 3 * requests, requests),
        column(ints, 4 * requests, frozen),
        column(octets, 2 * requests, frozen),
    )
    busy = Servers(
        column(floats, at + memory, servers), column(floats, at + memory + servers, servers),
        column(wholes, ENDING + 1, servers), column(floats, at + memory + 2 * servers, 1),
    )  # fmt: skip
    busy.busy_until_s[:], busy.clock_s[0] = math.inf, -math.inf
    total = np.int64(requests)
    horizon, limits = Horizon(total, total, total + 1, False), Limits(ENDLESS, math.inf, ENDLESS // 2)
    cursor = column(wholes, 0, PLACES + 1)
    cursor[ENDING] = pass_instants(
        horizon, limits, params, column(floats, at, memory), while_busy, rows, costs, queue, None,
        Clients(no_floats, no_ints, no_ints), busy, batches, cursor,
    )  # fmt: skip


# Exact percentiles. Latencies, at least 0, have the order of the whole numbers with the same bits: the keys.


def find_ranks(count, ranks, keys, counters, ranked):
    """Write the keys at each of some ranks and behind it; `keys` has space for twice as many."""
    places = column(ranks, 1, column(ranks, 0, 1)[0])
    pairs, bins = column(ranked, 0, 2 * places.size), column(counters, 0, BINS)
    for each in range(places.size):
        pair = select(column(keys, 0, count), count, places[each], column(keys, count, count), bins)
        pairs[2 * each], pairs[2 * each + 1] = pair


@inlined
def keep_largest(count, most, keys, kept, bins):
    """Move the `most` largest of the first `count` keys to the front, the least of them last."""
    least, _ = select(keys, count, count - most, kept, bins)
    place = 0
    for each in range(count):
        key = keys[each]
        if key > least:
            keys[place] = key
            place += 1
    keys[place:most] = least


def run_grid(rows, requests, servers, largest, space, settings, floats, ranks, keys, counters, ranked):
    """Run settings of a threshold rule; write the keys at some ranks, the lowest first, and behind each.

    Only latencies from the lowest rank on are kept, in `space` places: that of a batch's first request mostly
    shows that the batch has none of them.
    """
    costs, arrival_s = cut_costs(requests, largest, floats), column(floats, 0, requests)
    places, bins = column(ranks, 1, column(ranks, 0, 1)[0]), column(counters, 0, BINS)
    most = requests - places[0]
    found, found_s, kept = (
        column(keys, 0, space),
        column(as_floats(keys), 0, space),
        column(keys, space, space),
    )
    free, pairs = (
        column(floats, 3 * requests + largest + 1, servers),
        column(ranked, 0, 2 * places.size * rows),
    )
    for row in range(rows):
        one = column(settings, 3 * row, 3)
        rule = Threshold(one[0], np.int64(one[1]), np.int64(one[2]))
        free[:] = 0.0
        head, batch, count, least_s = 0, 0, 0, -1.0
        while head < requests:
            end, _, _, done_s = next_batch(arrival_s, head, rule, costs, free, batch)
            request = head
            while request < end and done_s - arrival_s[request] > least_s:
                if count == space:
                    keep_largest(count, most, found, kept, bins)
                    count, least_s = most, found_s[most - 1]
                    continue
                found_s[count] = done_s - arrival_s[request]
                count, request = count + 1, request + 1
            head, batch = end, batch + 1
        for each in range(places.size):
            pair = select(found, count, count - requests + places[each], kept, bins)
            at = 2 * (row * places.size + each)
            pairs[at], pairs[at + 1] = pair


class Entry(NamedTuple):
    """A function to compile for arguments of these types."""

    function: Callable[..., Any]
    types: tuple[Any, ...]


_RUN = (INT, INT, INT, INT, INT, types.boolean, FLOATS, INTS, BYTES, WHOLES)


def entries() -> dict[str, Entry]:
    """Return the entries by the names under which the module exports them."""
    ranks = WHOLES, WHOLES, INTS, WHOLES
    found = {
        "draw": Entry(draw, (types.int64, INT, FLOATS)),
        "stretch": Entry(stretch, (types.float64, INT, FLOATS, FLOATS)),
        "find_ranks": Entry(find_ranks, (INT, *ranks)),
        "run_grid": Entry(run_grid, (INT, INT, INT, INT, INT, FLOATS, FLOATS, *ranks)),
    }
    for rule in map(usual, RULES):
        run, params = (run_rule, rule.params) if rule.threshold is None else (run_threshold, rule.threshold)
        name = "run_threshold" if rule.threshold else f"run_{type(rule).__name__}"
        found[name] = Entry(run, (typeof(params), *_RUN))
    return found
