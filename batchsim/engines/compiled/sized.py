"""The time of batches of requests with sizes: its formula is that of `sized_time.py`."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from typing import Any

from batchsim.engines.compiled.backend import register_jitable
from batchsim.engines.compiled.jit import inlined
from batchsim.scenario.rules.rule import joins as _joins
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
    return with_units(mean_s, whole, longest, total, squares, costs.units)


@inlined
def with_units(mean_s, count, longest, total, squares, cost):
    """Return the mean seconds of a batch with those of its units, and its place."""
    mean_s += extra_s(count, longest, total, squares, cost)
    return mean_s, place_of(count, longest, cost)
