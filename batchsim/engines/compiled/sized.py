"""Batches whose time depends on the sizes of their requests: the formula of `sized_time.py`, compiled."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from typing import Any

from numba.extending import register_jitable

from batchsim.engines.compiled.jit import inlined
from batchsim.scenario import sized_time as formula

# Each calls those before it.
edge_of: Any = register_jitable(formula.edge_of)
padded: Any = register_jitable(formula.padded)
units_of: Any = register_jitable(formula.units_of)
extra_s: Any = register_jitable(formula.extra_s)


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
    mean_s += extra_s(whole, longest, total, squares, costs.units)
    return mean_s, place_of(whole, longest, costs.units)
