"""Text of a command line as values: numbers, tables, parts of a scenario as their repr has them, and axes."""

import ast
import inspect
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

from batchsim import _check
from batchsim.scenario import Table
from batchsim.scenario.toml import KINDS, Maker

NO_LIMIT = "none"
MOST_VALUES = 100_000  # on an axis
MOST_WHOLE = 10**18  # written as 1e18: 1e999999 would have a million digits
_RANGE = re.compile(r"([^:,(\[{'\"]*):([^:,(\[{'\"]*):\s*(x?)([^:,(\[{'\"]*)")
MAKERS = {name: makers for kinds in KINDS.values() for name, makers in kinds.items()}
BARE = {name.lower(): name for name in MAKERS}
# The methods of a service time, or of a workload.
METHODS = ("with_noise", "padded_to", "compiling", "scaled", "with_priorities")
WORDS = {"inf": math.inf, "nan": math.nan, "none": None, "true": True, "false": False}


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


def value(text: str) -> Any:
    """Return the value of Python source: a number, quoted text, a list, or a part of a scenario.

    It can call only the kinds of `batchsim.scenario.toml`, so no command line can run other code. Other
    source raises ValueError.

    >>> value("Affine(5, per_item_ms=0.25).padded_to([8, 32])")
    Affine(fixed_ms=5, per_item_ms=0.25).padded_to([8, 32])
    >>> value("1e3"), value("-inf"), value("none")
    (1000.0, -inf, None)
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _not_understood(text) from None
    return _value(node, text)


def _value(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() | None as constant):
            return constant
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _value(operand, text)
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                return -number if isinstance(sign, ast.USub) else number
        case ast.Name(id=name) if name.lower() in WORDS:
            return WORDS[name.lower()]
        case ast.Name(id=name) if name.lower() in BARE:  # with all defaults
            return _call(BARE[name.lower()], MAKERS[BARE[name.lower()]][0], ast.Call(node, [], []), text)
        case ast.List(elts=items):
            return [_value(item, text) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item, text) for item in items)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            names = [_value(key, text) for key in keys if key is not None]
            if not all(isinstance(name, (int, float, str)) for name in names):
                raise _not_understood(text)
            if len(set(names)) < len(names):
                raise ValueError(f"keys must differ, got {names}")
            return dict(zip(names, (_value(each, text) for each in values), strict=True))
        case ast.Call(func=ast.Name(id=name)):
            if name not in MAKERS:
                raise ValueError(f"there is no part {name!r}" + _check.nearest(name, MAKERS))
            return _call(name, MAKERS[name][0], node, text)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            for maker in MAKERS.get(name, ()):  # Trace.from_csv
                if maker.__name__ == method:
                    return _call(f"{name}.{method}", maker, node, text)
        case ast.Call(func=ast.Attribute(value=of, attr=method)) if method in METHODS:
            part = _value(of, text)
            if hasattr(part, method):
                return _call(method, getattr(part, method), node, text)
    raise _not_understood(text)


def _call(name: str, maker: Maker, call: ast.Call, text: str) -> Any:
    values = [_value(each, text) for each in call.args]
    if any(each.arg is None for each in call.keywords):  # **
        raise _not_understood(text)
    named = {str(each.arg): _value(each.value, text) for each in call.keywords}
    try:
        # Bound first, because Python's own message names an internal function or "__init__()".
        bound = inspect.signature(maker).bind(*values, **named)
        return maker(*bound.args, **bound.kwargs)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


def _not_understood(text: str) -> ValueError:
    rule = "a value must be a number, quoted text, or a part such as Affine(5, 0.25)"
    return ValueError(f"{rule}, got {text.strip()!r}{_check.removed(text.strip())}")
