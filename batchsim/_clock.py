"""The clock of all simulations. It counts whole nanoseconds, so that equal instants are equal floats.

Times are float64 seconds. A time is *on the grid* if it is the float64 nearest to a whole number of
nanoseconds. `later` adds a duration and rounds: 0.1 s + 0.2 s is 0.3 s. `between` subtracts and rounds:
durations that are compared are on the grid, too. Below `LATEST_S` sums of whole nanoseconds are exact; later
times are refused.
"""

from typing import Any

TICK_S = 1e-9
PER_S = 1e9
PER_MS = 1e6
# Below it, a float64 is within 0.24 ns of its exact time, and its product with 1e9 within another 0.25 ns:
# together less than half a nanosecond.
LATEST_S = 2.0**22
LATEST = f"{LATEST_S:,.0f} s (48.5 days)"
WHOLE = 2.0**52  # from here to 2**53, float64s are whole numbers: adding it rounds, half to even


def on_grid(time_s: Any) -> Any:
    """Return the times, at least 0, rounded to whole nanoseconds; inf stays inf.

    It divides by 1e9, because a product with 1e-9 is not always the nearest float64.

    >>> on_grid(0.1 + 0.2) == 0.3
    True
    """
    return (time_s * PER_S + WHOLE - WHOLE) / PER_S


def later(time_s: Any, seconds: Any) -> Any:
    """Return the time on the grid that is `seconds` after one on it.

    >>> later(0.1, 0.2) == 0.3
    True
    """
    # The first sum already has whole nanoseconds: time_s + seconds can err by one from 2**21 s on.
    return (time_s * PER_S + WHOLE + seconds * PER_S - WHOLE) / PER_S


def between(from_s: Any, to_s: Any) -> Any:
    """Return how long it is from one time on the grid to a later one, on the grid.

    >>> 0.3 - 0.1 == 0.2, between(0.1, 0.3) == 0.2
    (False, True)
    """
    # Both sums are whole numbers, and so is their difference: a difference of seconds has both roundings.
    return (to_s * PER_S + WHOLE - (from_s * PER_S + WHOLE)) / PER_S


def between_ms(from_s: Any, to_s: Any, parts: Any = None) -> Any:
    """Return the same in milliseconds, or one of some equal parts of it: the nearest to whole nanoseconds."""
    ticks = to_s * PER_S + WHOLE - (from_s * PER_S + WHOLE)
    return (ticks if parts is None else ticks / parts + WHOLE - WHOLE) / PER_MS


def in_ms(seconds: Any) -> Any:
    """Return durations in milliseconds, each nearest to its whole number of nanoseconds.

    >>> 0.0113 * 1000 == 11.3, in_ms(0.0113) == 11.3
    (False, True)
    """
    return (seconds * PER_S + WHOLE - WHOLE) / PER_MS


def ms_on_grid(ms: Any) -> Any:
    """Return durations in milliseconds, as limits are given, rounded to whole nanoseconds; inf stays inf.

    >>> 3 * 0.3 >= 0.9, ms_on_grid(3 * 0.3) >= 0.9
    (False, True)
    """
    return (ms * PER_MS + WHOLE - WHOLE) / PER_MS


def not_before(time_s: Any) -> Any:
    """Return the first time on the grid that is not before `time_s`.

    >>> not_before(0.1 + 0.2) == 0.300000001, not_before(0.3) == 0.3
    (True, True)
    """
    ticks = time_s * PER_S + WHOLE - WHOLE
    return ticks / PER_S if ticks / PER_S >= time_s else (ticks + 1) / PER_S


def check_time(what: str, time_s: float, remedy: str) -> None:
    """Raise ValueError for a time that is not below `LATEST_S`."""
    if time_s >= LATEST_S:
        rule = f"{what} must be before {LATEST}, as the clock counts whole nanoseconds"
        raise ValueError(f"{rule}, got {time_s:,.6g} s: {remedy}")
