"""Where along a knob an objective stops being met."""

import math
from collections.abc import Callable


def edge(
    inside: float, outside: float, holds: Callable[[float], bool], tolerance: float
) -> tuple[float, float]:
    """Return the last value found that holds and the first that does not, within a factor 1 + tolerance.

    By bisection of the logarithm, between one that is known to hold and one that is known not to; there
    is taken to be one edge between them.

    >>> inside, outside = edge(1, 16, lambda value: value <= 3, tolerance=0.01)
    >>> inside <= 3 < outside <= 1.01 * inside
    True
    """
    while max(inside, outside) > min(inside, outside) * (1 + tolerance):
        middle = math.sqrt(inside * outside)
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside, outside


def last_whole(inside: int, outside: int, holds: Callable[[int], bool]) -> int:
    """Return the last whole number that holds, between one that does and one that does not.

    >>> last_whole(0, 100, lambda value: value <= 42)
    42
    """
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside
