"""Python source as a value: a number, a list, or a part of a scenario, as its repr has it."""

import ast
import inspect
import math
from typing import Any

from batchsim import _check
from batchsim.scenario.toml import KINDS, Maker

MAKERS = {name: makers for kinds in KINDS.values() for name, makers in kinds.items()}
BARE = {name.lower(): name for name in MAKERS}
# The methods of a service time, or of a workload.
METHODS = ("with_noise", "padded_to", "compiling", "scaled", "with_priorities")
WORDS = {"inf": math.inf, "nan": math.nan, "none": None, "true": True, "false": False}


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
