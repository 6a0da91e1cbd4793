"""Checks of what people type: the rule, then what was got."""

import difflib
import math
import operator
from collections.abc import Iterable
from typing import Any


def whole(name: str, value: Any, at_least: int = 1) -> int:
    """Return `value` as an int that is at least `at_least`, or raise."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value!r}")
    return number


def real(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    finite: bool = True,
) -> float:
    """Return `value` as a float within the bounds, or raise. NaN is always refused."""
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    except OverflowError:
        raise ValueError(f"{name} must be finite, got a number too large for a float") from None
    if math.isnan(number):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if at_least is not None and number < at_least:
        raise ValueError(f"{name} must be at least {at_least:g}, got {value!r}")
    if above is not None and number <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {value!r}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most:g}, got {value!r}")
    if finite and math.isinf(number):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return number


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the known name nearest to `name`, else the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"
