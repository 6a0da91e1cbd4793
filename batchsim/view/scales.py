"""Round ends and ticks of scales."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import Locator, NullLocator

STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12)
COARSE, FINE = (1, 2, 5), (1, 1.5, 2, 3, 5, 7)  # steps of a logarithmic scale
TWO_DIGITS = tuple(n / 10 for n in range(10, 100))


def nice(value: float) -> float:
    """Return the next round number.

    >>> nice(17), nice(0.26)
    (20.0, 0.3)
    """
    if not 1e-300 < value < math.inf:  # for less, the power of ten would be 0
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    step = next(step for step in STEPS if value <= step * power * (1 + 1e-12))
    return float(f"{step * power:.6g}")


def nice_span(low: float, high: float, digits: Sequence[float] = COARSE) -> tuple[float, float]:
    """Return the steps below and above, such as 1, 2 or 5 times a power of ten, for a logarithmic scale.

    >>> nice_span(7.1, 180), nice_span(3, 3)
    ((5.0, 200.0), (2.0, 5.0))
    """
    if not 0 < low <= high < math.inf:
        return 1.0, 100.0
    powers = range(math.floor(math.log10(low)) - 1, math.floor(math.log10(high)) + 3)
    steps = [float(f"{digit}e{power}") for power in powers for digit in digits]
    first = max(i for i, step in enumerate(steps) if step <= low * (1 + 1e-12))
    last = min(i for i, step in enumerate(steps) if step >= high * (1 - 1e-12))
    return steps[first], steps[max(last, first + 1)]


class LogTicks(Locator):
    """Mark a logarithmic axis at the finest steps that make at most `most` ticks."""

    def __init__(self, most: int = 7, finest: Sequence[float] = COARSE) -> None:
        self.most, self.finest = most, finest

    def __call__(self) -> list[float]:
        return self.tick_values(*sorted(self.axis.get_view_interval()))  # type: ignore[union-attr]

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        powers = range(math.floor(math.log10(vmin) + 1e-9), math.ceil(math.log10(vmax) - 1e-9) + 1)
        for digits in (self.finest, COARSE, (1, 3), (1,)):
            steps = (float(f"{digit}e{power}") for power in powers for digit in digits)
            ticks = [step for step in steps if vmin * (1 - 1e-9) <= step <= vmax * (1 + 1e-9)]
            if len(ticks) <= self.most:
                return ticks
        return ticks[:: math.ceil(len(ticks) / self.most)]


def log_ticks(axis: Any, most: int = 7, finest: Sequence[float] = COARSE) -> None:
    """Mark a logarithmic axis by `LogTicks` alone."""
    axis.set_major_locator(LogTicks(most, finest))
    axis.set_minor_locator(NullLocator())
