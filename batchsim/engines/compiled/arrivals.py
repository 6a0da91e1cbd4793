"""Arrival times from the gaps between them."""

from batchsim._clock import on_grid as _on_grid
from batchsim.engines.compiled.jit import compiled, inlined

on_grid = inlined(_on_grid)


@compiled
def add_up(gaps, total, rate_per_s):  # type: ignore[no-untyped-def]
    """Turn standard gaps into arrival times on the clock's grid, in place; return the sum of all gaps so far.

    It takes a third of the time of NumPy's five passes, and gives the same bits. The second loop is apart
    from the first, which cannot compute several requests at once.
    """
    for request in range(gaps.size):
        total += gaps[request]
        gaps[request] = total
    for request in range(gaps.size):
        gaps[request] = on_grid(gaps[request] / rate_per_s)
    return total
