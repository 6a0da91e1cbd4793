"""Text of a command line as values: numbers, tables, and axes of a grid."""

import re
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

from batchsim.scenario import Table
from batchsim.scenario.source import value as value

NO_LIMIT = "none"
MOST_VALUES = 100_000  # on an axis
MOST_WHOLE = 10**18  # written as 1e18: 1e999999 would have a million digits
_RANGE = re.compile(r"([^:,(\[{'\"]*):([^:,(\[{'\"]*):\s*(x?)([^:,(\[{'\"]*)")


def number(text: str) -> float:
    """Return a number; a whole one is an int."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(f"must be a number, got {text!r}")


def whole(text: str) -> int:
    """Return a whole number.

    >>> whole("32"), whole("1e5")
    (32, 100000)
    """
    with suppress(ValueError):
        return int(text)
    with suppress(InvalidOperation, ValueError, OverflowError):
        if len(text) < 20 and (exact := Decimal(text)) == exact.to_integral_value() and exact < MOST_WHOLE:
            return int(exact)
    raise ValueError(f"must be a whole number, got {text!r}")


def limit(text: str) -> Any:
    """Return a whole number, or NO_LIMIT for a word that says so.

    >>> limit("2587"), limit("unlimited") is limit("none") is NO_LIMIT
    (2587, True)
    """
    return NO_LIMIT if text.strip().lower() in (NO_LIMIT, "unlimited") else whole(text)


def sizes(text: str) -> list[int]:
    """Return a list of whole numbers."""
    return [whole(part) for part in text.split(",")]


def _pairs(text: str, sign: str, example: str) -> list[tuple[int, float]]:
    pairs = [pair.partition(sign) for pair in text.split(",")]
    if not all(found for _, found, _ in pairs):
        raise ValueError(f"must be like {example}, got {text!r}")
    return [(whole(key), number(each)) for key, _, each in pairs]


def table(text: str) -> Table:
    """Return a table of service times from batch sizes and milliseconds.

    >>> table("1=2.08, 2=2.65, 8=3.29")
    Table({1: 2.08, 2: 2.65, 8: 3.29})
    """
    return Table(_pairs(text, "=", "1=2.08,8=3.29 (size=ms)"))


def levels(text: str) -> dict[int, float]:
    """Return priority levels and their shares.

    >>> levels("1:0.2, 2:0.8")
    {1: 0.2, 2: 0.8}
    """
    return dict(_pairs(text, ":", "1:0.2,2:0.8 (level:share)"))


def by_size(text: str) -> dict[int, float] | float:
    """Return milliseconds by batch size, or one number for all.

    >>> by_size("1=300,8=650"), by_size("800")
    ({1: 300, 8: 650}, 800)
    """
    return dict(_pairs(text, "=", "1=300,8=650 (size=ms)")) if "=" in text else number(text)


def setting(text: str) -> tuple[str, Any]:
    """Return a knob and its value."""
    name, given = _split(text, "--set", "workload.cv=2")
    return name, value(given)


def axis(text: str) -> tuple[str, Any]:
    """Return a knob and its values: listed, or from the first to the last by a step or a factor.

    A single {label: value} labels the values.

    >>> axis("max_batch_size=1,2,4")
    ('max_batch_size', [1, 2, 4])
    >>> axis("max_wait_ms=0:1:0.25"), axis("rate_per_s=100:1000:x2")
    (('max_wait_ms', [0, 0.25, 0.5, 0.75, 1]), ('rate_per_s', [100, 200, 400, 800]))
    >>> axis("service={'slow': Affine(9, 1), 'fast': Affine(5, 0.25)}")[1]["fast"]
    Affine(fixed_ms=5, per_item_ms=0.25)
    """
    name, given = _split(text, "--over", "max_batch_size=1,2,4 or max_wait_ms=0:20:5")
    return name, values_of(name, given)


def values_of(name: str, given: str) -> Any:
    """Return the values of an axis from the text after "knob="."""
    try:
        if found := _RANGE.fullmatch(given.strip()):
            first, last, factor, step = found.groups()
            return list(_range(given.strip(), (first, last, step), bool(factor)))
        listed = value(f"[{given}]")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return listed[0] if len(listed) == 1 and isinstance(listed[0], dict) else listed


def _split(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, given = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{option} must be knob=value, as {example}, got {text!r}")
    return name.strip(), given


def _range(text: str, numbers: tuple[str, str, str], by_factor: bool) -> Iterable[float]:
    """Yield the numbers of a range, in decimal arithmetic: three steps of 0.1 are 0.3."""
    try:
        first, last, step = (Decimal(each.strip()) for each in numbers)
        if not (first.is_finite() and last.is_finite() and step.is_finite()):
            raise InvalidOperation
    except InvalidOperation:
        rule = "a range must be first:last:step or first:last:xfactor, as 0:20:5 or 1:64:x2"
        raise ValueError(f"{rule}, got {text!r}") from None
    if last < first or step <= by_factor or (by_factor and first <= 0):
        rule = "start above 0 and have a factor above 1" if by_factor else "have a step above 0"
        raise ValueError(f"a range must not fall, and must {rule}, got {text!r}")
    for _ in range(MOST_VALUES):
        yield int(first) if first == first.to_integral_value() else float(first)
        first = first * step if by_factor else first + step
        if first > last:
            return
    raise ValueError(f"a range must have at most {MOST_VALUES:,} values, got more in {text!r}")
