"""Numbers for people, who read neither exponents nor digits that say nothing."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from batchsim.study.words import plain

MINUS = "\N{MINUS SIGN}"
UNITS = ((1000.0, "s", 1000.0), (1.0, "ms", 1.0), (0.0, "µs", 0.001))


def number(value: float, digits: int = 4) -> str:
    """Write so many digits of a number, and all that stand before its point.

    >>> number(190.476, 5), number(97_500.4, 3), number(999.53, 3), number(2.5e-7)
    ('190.48', '97,500', '1,000', '0.00000025')
    """
    if 0 < abs(value) < 1e-4:
        return np.format_float_positional(value, precision=digits, fractional=False, trim="-")
    return plain(value, digits)


def about(share: float) -> str:
    """Write a share in whole percent; what is not quite none or all does not read so.

    >>> about(0.623), about(0.0004), about(0.999), about(1.0)
    ('62 %', '<1 %', '>99 %', '100 %')
    """
    if math.isnan(share):
        return "none"
    if 0 < share < 0.01:
        return "<1 %"
    if 0.99 < share < 1:
        return ">99 %"
    return f"{share:.0%}".replace("%", " %")


def percent(part: float, up: bool = False) -> str:
    """Write a part as a percentage, which is 0 or 100 only if it is none or all: rounded down, or `up`.

    >>> percent(0.999999), percent(1), percent(0.123456), percent(0.57), percent(1e-9)
    ('99.99 %', '100 %', '12.34 %', '57.00 %', '0.01 %')
    """
    if part in (0, 1) or math.isnan(part):
        return f"{100 * part:.0f} %"
    hundredths = math.ceil(1e4 * part - 1e-6) if up else math.floor(1e4 * part + 1e-6)
    return f"{min(max(hundredths, 1), 9999) / 100:.2f} %"


def signed(value: float) -> str:
    """Write a difference with its sign and three digits.

    >>> signed(-1.2345), signed(12)
    ('−1.23', '+12.0')
    """
    return f"{MINUS if value < 0 else '+'}{three(abs(value))}"


def three(value: float) -> str:
    """Write a number with three digits that count.

    >>> three(12.345), three(0.0123456), three(1234.6), three(7), three(float("inf")), three(float("nan"))
    ('12.3', '0.0123', '1,235', '7.00', '∞', '–')
    """
    if math.isnan(value):
        return "\N{EN DASH}"
    if math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    places = min(max(2 - math.floor(math.log10(abs(value)) + 1e-12), 0), 6)
    return f"{value:,.{places}f}"


def short(value: float, _: Any = None) -> str:
    """Write a number as an axis says it.

    >>> short(0.5), short(2500.0), short(2.5e6)
    ('0.5', '2.5k', '2.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def unit_of(ms: float) -> tuple[str, float]:
    """Return the unit that suits a duration, and how many milliseconds it has.

    >>> unit_of(2500), unit_of(50), unit_of(0.02)
    (('s', 1000.0), ('ms', 1.0), ('µs', 0.001))
    """
    return next((unit, size) for least, unit, size in UNITS if ms >= least)


def in_unit(ms: float) -> Callable[..., str]:
    """Return what writes milliseconds on an axis, in a unit that has so many."""
    return lambda value, _=None: short(float(f"{value / ms:.10g}"))


def duration(ms: float) -> str:
    """Write a duration in the unit that suits it.

    >>> duration(12.345), duration(0.05), duration(2345.0), duration(float("inf"))
    ('12.3 ms', '50.0 µs', '2.35 s', '∞')
    """
    if not math.isfinite(ms):
        return three(ms)
    unit, size = unit_of(ms)
    return f"{three(ms / size)} {unit}"


def given(ms: float) -> str:
    """Write a duration that somebody typed.

    >>> given(50.0), given(2500), given(0)
    ('50 ms', '2.5 s', '0 ms')
    """
    unit, size = unit_of(ms) if ms else ("ms", 1.0)
    return f"{float(f'{ms / size:.10g}'):g} {unit}"
