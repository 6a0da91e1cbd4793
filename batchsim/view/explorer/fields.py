"""What each of the explorer's values must be, and how one that was typed is read."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from batchsim import _check
from batchsim.scenario import Affine, Table, published_names

LARGEST_BATCH = 4096  # a heat map's column of it is still computed while a slider moves

WORKLOADS = {
    "poisson": "Poisson: at random",
    "constant": "constant: like clockwork",
    "gamma": "gamma: calmer or burstier",
    "onoff": "on and off: in bursts",
    "diurnal": "diurnal: a day, compressed",
    "closed": "closed loop: clients wait for answers",
    "given": "given: the traffic of this page",
}
RULES = {
    "size_or_wait": "size or wait: the textbook rule",
    "full_only": "full batches only",
    "at_least": "at least so many",
}
SERVICES = ("affine", "published", "curve")


def _choice(name: str, among: tuple[str, ...], value: Any) -> str:
    if value not in among:
        hint = _check.nearest(value, among, listed=len(among) < 10)
        listed = f"one of {', '.join(among)}" if len(among) < 10 else "a known one"
        raise ValueError(f"{name} must be {listed}, got {value!r}{hint}")
    return str(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise ValueError(f"{name} must be text of at most 200 characters, got {value!r:.60}")
    return " ".join(value.split())


def _curve(value: Any) -> tuple[tuple[int, float], ...]:
    return Table(value).points_ms if value else ()


def _padding(value: Any) -> tuple[int, ...]:
    return Affine(1, 0).padded_to(value).padding or () if value else ()


def _or_none(check: Callable[..., Any], name: str, value: Any) -> Any:
    return None if value is None else check(name, value)


_real, _whole = _check.real, _check.whole
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "workload": lambda name, value: _choice(name, tuple(WORKLOADS), value),
    "rate_per_s": partial(_real, above=0),
    "cv": partial(_real, at_least=1e-3, at_most=1e3),
    "burst_factor": partial(_real, above=1, at_most=1e3),
    "mean_burst_s": partial(_real, above=0),
    "peak_to_mean": partial(_real, at_least=1, at_most=2),
    "period_s": partial(_real, above=0),
    "clients": partial(_whole, at_most=100_000),
    "think_ms": partial(_real, at_least=0),
    "rule": lambda name, value: _choice(name, tuple(RULES), value),
    "max_batch_size": partial(_whole, at_most=LARGEST_BATCH),
    "max_wait_ms": partial(_real, at_least=0),
    "min_batch_size": partial(_whole, at_most=LARGEST_BATCH),
    "service": lambda name, value: _choice(name, SERVICES, value),
    "fixed_ms": partial(_real, at_least=0),
    "per_item_ms": partial(_real, at_least=0),
    "published": lambda name, value: _choice(name, published_names(), value),
    "curve": lambda _, value: _curve(value),
    "curve_of": _text,
    "noise_cv": partial(_real, at_least=0, at_most=1e3),
    "noise": lambda name, value: _choice(name, ("lognormal", "exponential"), value),
    "padding": lambda _, value: _padding(value),
    "servers": partial(_whole, at_most=64),
    "sharing": partial(_real, at_least=0, at_most=100),
    "queue_limit": partial(_or_none, _whole),
    "timeout_ms": partial(_or_none, partial(_real, at_least=0)),
    "objective_ms": partial(_or_none, partial(_real, above=0)),
    "seed": partial(_whole, at_least=0, at_most=2**63 - 1),
}
WHOLE = ("clients", "max_batch_size", "min_batch_size", "servers", "queue_limit", "seed")
OPTIONAL = ("queue_limit", "timeout_ms", "objective_ms")
TEXTS = ("workload", "rule", "service", "published", "curve_of", "noise")


def checked(name: str, value: Any) -> Any:
    """Return a control's value as it is kept, or raise with the rule and what was got."""
    return CHECKS[name](name, value)


def read(name: str, text: str) -> Any:
    """Return the value that a person typed for a control, or raise with the rule and what was typed.

    >>> read("max_batch_size", " 16 "), read("rate_per_s", "1e3"), read("queue_limit", "")
    (16, 1000.0, None)
    >>> read("servers", "two")
    Traceback (most recent call last):
    ValueError: servers must be a whole number, got 'two'
    """
    text = text.strip()
    if name in TEXTS:
        return checked(name, text)
    if name in OPTIONAL and text in ("", "none"):
        return None
    if name == "curve":
        return checked(name, [_point(pair) for pair in text.split(",") if pair])
    if name == "padding":
        return checked(name, [_number(name, size, True) for size in text.split(",") if size])
    return checked(name, _number(name, text, name in WHOLE))


def _number(name: str, text: str, whole: bool) -> float:
    try:
        if "_" in text:  # Python's own, and nobody else's
            raise ValueError
        try:
            return int(text)
        except ValueError:
            if whole:
                raise
            return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a {'whole ' if whole else ''}number, got {text!r}") from None


def _point(pair: str) -> tuple[int, float]:
    size, colon, ms = pair.partition(":")
    if not colon:
        raise ValueError(f"a curve must be like 1:2.1,8:3.3 (batch size:ms), got {pair!r}")
    return int(_number("a batch size", size, True)), _number("a time", ms, False)
