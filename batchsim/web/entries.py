"""The entry points of the page's module: functions of few arguments around the compiled loops.

JavaScript passes addresses in the module's memory, and each entry cuts the loop's columns out of them. A
rule's parameters, a named tuple, become as many arguments: the types of an entry follow from its rule.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, arg-type"

import inspect
import math
from typing import Any

import numpy as np
from numba import typeof, types
from numba.core.cgutils import alloca_once
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from batchsim import _clock
from batchsim.engines.compiled import columns, grid_loops, instants, threshold
from batchsim.engines.compiled.cells import cells_of, store
from batchsim.engines.compiled.engine import NO_LIMIT
from batchsim.engines.compiled.jit import inlined
from batchsim.engines.compiled.rule_calls import REALS, UNCACHED, WHOLE, Calls, waiting_of
from batchsim.engines.compiled.rule_calls import WHOLES as LINE
from batchsim.scenario.rules import RULES, Rule, Threshold
from batchsim.scenario.sized_time import UnitCost
from batchsim.web.calls import usual

INT, REAL, YES = types.int32, types.float64, types.boolean
FLOATS, WHOLES, INTS, OCTETS = map(types.CPointer, (REAL, types.int64, INT, types.uint8))


def _column(typing, pointer, begin, count):
    """Return `count` values, from place `begin` of an address on, as an array.

    `numba.carray` needs reference counting, which the loops are compiled without.
    """
    kind = types.Array(pointer.dtype, 1, "C")

    def make(context, builder, signature, arguments):
        array, item = make_array(kind)(context, builder), context.get_data_type(kind.dtype)
        place, length = map(context.cast, [builder] * 2, arguments[1:], (begin, count), [types.intp] * 2)
        size = context.get_constant(types.intp, context.get_abi_sizeof(item))
        populate_array(array, builder.gep(arguments[0], [place]), [length], [size], size, None)
        return array._getvalue()

    return kind(pointer, begin, count), make


def _calls(typing, params):
    """Return a rule as the general loop calls it, so that one copy of the loop serves all rules.

    LLVM knows which functions are at the addresses, and calls these.
    """
    rule, free = Rule.by_params[params.instance_class], (waiting_of(False, types.Array(INT, 1, "C")), REALS)
    cells, place = types.CPointer(types.Tuple((*free, params))), sum(map(cells_of, free))
    own: Any = {
        name: (function, (*kinds[1:], cells))
        for name, (function, kinds) in UNCACHED.items() if getattr(rule, name)
    }  # fmt: skip
    for function, kinds in own.values():
        function.compile(kinds)

    def make(context, builder, signature, arguments):
        whole = context.get_value_type(WHOLE)
        addresses = dict.fromkeys(UNCACHED, whole(0))
        for name, (function, kinds) in own.items():
            found = function.overloads[kinds]
            context.active_code_library.add_linking_library(found.library)
            addresses[name] = context.declare_function(builder.module, found.fndesc).ptrtoint(whole)
        count = whole(place + cells_of(params))
        data, array = alloca_once(builder, whole, count), make_array(LINE)(context, builder)
        for arrays in (False, True):
            store(context, builder, data, place, params, arguments[0], arrays)
        populate_array(array, data, [count], [whole(8)], whole(8), None)
        return context.make_tuple(builder, signature.return_type, [*addresses.values(), array._getvalue()])

    return types.NamedTuple((WHOLE,) * len(UNCACHED) + (LINE,), Calls)(params), make


def _same_address(kind):
    def same(typing, pointer):
        def read(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(kind))

        return kind(pointer), read

    return same


column: Any = intrinsic(_column)
calls_of: Any = intrinsic(_calls)
as_floats: Any = intrinsic(_same_address(FLOATS))
as_wholes: Any = intrinsic(_same_address(WHOLES))

# The luck of a run: the times of requests that come at rate 1, which another rate only stretches.

GOLDEN, FIRST, SECOND = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
BY_12, BY_27, BY_30, BY_31 = map(np.uint64, (12, 27, 30, 31))
LN_2, ROOT_HALF = math.log(2), math.sqrt(0.5)
TERMS = tuple(1 / k for k in range(21, 1, -2))  # of the series of the logarithm
on_grid, between = inlined(_clock.on_grid), inlined(_clock.between)


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
    """Draw requests at rate 1."""
    fill(seed, column(points, 0, requests))


def stretch(rate_per_s, requests, points, floats):
    """Write the arrivals at a rate, on the clock's grid."""
    unit, arrival_s = column(points, 0, requests), column(floats, 0, requests)
    for request in range(requests):
        arrival_s[request] = on_grid(unit[request] / rate_per_s)


# The loops. Their columns are in four pieces of memory. `floats`: arrivals, starts, finishes, service times
# ([0] is NaN), the rule's memory, times of servers. `ints`: the batch of each request, sizes and servers of
# batches, the queue, frozen sizes. `octets`: triggers, statuses, frozen triggers. `wholes`: cursors, how the
# loop ended, sizes on servers. JavaScript writes arrivals, service times, and 0 where the rest is read first.

form_batches: Any = inlined(inspect.unwrap(threshold.form_batches))
pass_instants: Any = inlined(inspect.unwrap(instants.pass_instants))
ENDING = columns.PLACES


@inlined
def plain_costs(requests, largest, floats):
    """Return the service times, without noise, devices and compiling."""
    none, no_shapes = column(floats, 0, 0), column(as_wholes(floats), 0, 0)
    devices, cold = columns.Devices(none, 0.0, 1.0), columns.Cold(none, no_shapes, none)
    table_s = none[None]  # `reshape` would need a function of Numba that WebAssembly lacks
    units = UnitCost(no_shapes, False, 0.0, 0.0, no_shapes, table_s)
    return columns.Costs(column(floats, 3 * requests, largest + 1), none, none, devices, cold, units)


@inlined
def batches_in(n, floats, ints, octets):
    """Return the columns of up to n batches."""
    start_s, finish_s, size = column(floats, n, n), column(floats, 2 * n, n), column(ints, n, n)
    return columns.Batches(start_s, finish_s, size, column(ints, 2 * n, n), column(octets, 0, n))


def run_threshold(params, n, servers, largest, memory, frozen, while_busy, floats, ints, octets, wholes):
    """Run a threshold rule with n requests in the fast loop."""
    costs, batches = plain_costs(n, largest, floats), batches_in(n, floats, ints, octets)
    free, state = column(floats, 3 * n + largest + 1, servers), column(wholes, 0, ENDING + 1)
    arrival_s, batch_index = column(floats, 0, n), column(ints, 0, n)
    form_batches(arrival_s, None, False, params, NO_LIMIT, costs, free, state, n, batch_index, batches)
    state[columns.BATCH], state[ENDING] = state[1], instants.ENDED


def run_rule(params, n, servers, largest, memory, frozen, while_busy, floats, ints, octets, wholes):
    """Run any rule with n requests in the general loop."""
    at, none, nobody = 3 * n + largest + 1, column(floats, 0, 0), column(ints, 0, 0)
    status, batch_index = column(octets, n, n), column(ints, 0, n)
    requests = columns.Requests(column(floats, 0, n), none, nobody, batch_index, status, status[:0], nobody)
    queue = columns.Queue(column(ints, 3 * n, n), column(ints, 4 * n, frozen), column(octets, 2 * n, frozen))
    clients, cursor = columns.Clients(none, nobody, nobody), column(wholes, 0, ENDING + 1)
    state, times = column(floats, at, memory), at + memory
    busy_until_s, since_s = column(floats, times, servers), column(floats, times + servers, servers)
    size, clock_s = column(wholes, ENDING + 1, servers), column(floats, times + 2 * servers, 2)
    busy_until_s[:], clock_s[0] = math.inf, -math.inf
    busy = columns.Servers(busy_until_s, since_s, size, clock_s)
    total, most = np.int64(n), columns.ENDLESS
    horizon = columns.Horizon(total, total, total + 1, False, -math.inf, math.inf)
    limits = columns.Limits(most, math.inf, most, most)
    costs, batches = plain_costs(n, largest, floats), batches_in(n, floats, ints, octets)
    cursor[ENDING] = pass_instants(
        horizon, limits, calls_of(params), state, while_busy,
        requests, costs, queue, None, clients, busy, batches, cursor,
    )  # fmt: skip


# Exact percentiles. Latencies, at least 0, have the order of the whole numbers with the same bits: the keys.
# `ranks` is their number, then the ranks; `keys` has space for twice as many.

from_ticks, next_batch, select = threshold.from_ticks, threshold.next_batch, grid_loops.select


def find_ranks(count, ranks, keys, counters, ranked):
    """Write the keys at each of some ranks and behind it."""
    places, bins = column(ranks, 1, column(ranks, 0, 1)[0]), column(counters, 0, grid_loops.BINS)
    pairs = column(ranked, 0, 2 * places.size)
    for each in range(places.size):
        pair = select(column(keys, 0, count), count, int(places[each]), column(keys, count, count), bins)
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


def run_grid(rows, n, servers, largest, space, thresholds, floats, ranks, keys, counters, ranked):
    """Run settings of a threshold rule; write the keys at some ranks, the lowest first, and behind each.

    Only latencies from the lowest rank on are kept, in `space` places: that of a batch's first request mostly
    shows that the batch has none of them.
    """
    costs, arrival_s = plain_costs(n, largest, floats), column(floats, 0, n)
    places, bins = column(ranks, 1, column(ranks, 0, 1)[0]), column(counters, 0, grid_loops.BINS)
    found, kept = column(keys, 0, space), column(keys, space, space)
    found_s, pairs = column(as_floats(keys), 0, space), column(ranked, 0, 2 * places.size * rows)
    free = column(floats, 3 * n + largest + 1, servers)
    most, at = n - int(places[0]), 0
    for row in range(rows):
        one = column(thresholds, 3 * row, 3)
        rule = Threshold(one[0], int(one[1]), int(one[2]))
        free[:] = 0.0
        head, batch, count, least_s = 0, 0, 0, -1.0
        while head < n:
            end, _, _, done, _ = next_batch(arrival_s, None, head, rule, NO_LIMIT, costs, free, batch)
            done_s, request = from_ticks(done), head
            while request < end and between(arrival_s[request], done_s) > least_s:
                if count == space:
                    keep_largest(count, most, found, kept, bins)
                    count, least_s = most, found_s[most - 1]
                else:
                    found_s[count] = between(arrival_s[request], done_s)
                    count, request = count + 1, request + 1
            head, batch = end, batch + 1
        for each in range(places.size):
            pairs[at], pairs[at + 1] = select(found, count, count - n + int(places[each]), kept, bins)
            at += 2


def entries(*rules: str) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Return the entries by the names under which the module exports them, with their arguments' types.

    Of the rules with these names, or of all.
    """
    ranks = FLOATS, WHOLES, INTS, WHOLES
    found: dict[str, Any] = {
        "draw": (draw, (types.int64, INT, FLOATS)),
        "stretch": (stretch, (REAL, INT, FLOATS, FLOATS)),
        "find_ranks": (find_ranks, (INT, *ranks)),
        "run_grid": (run_grid, (INT, INT, INT, INT, INT, FLOATS, FLOATS, *ranks)),
    }
    for rule in (usual(kind) for kind in RULES if not rules or kind.__name__ in rules):
        loop = (INT, INT, INT, INT, INT, YES, FLOATS, INTS, OCTETS, WHOLES)
        if rule.threshold is None:
            found[f"run_{type(rule).__name__}"] = run_rule, (typeof(rule.params), *loop)
        else:
            found["run_threshold"] = run_threshold, (typeof(rule.threshold), *loop)
    return found
