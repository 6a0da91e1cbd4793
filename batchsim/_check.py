"""Checks of arguments. An error states the rule, then the value received."""

import difflib
import functools
import math
import operator
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from batchsim._format import brief, several

# Beyond these, sums of floats lose their meaning, or arrays do not fit in memory: 1e12 ms are 30 years.
SMALLEST, LARGEST = 1e-12, 1e12
LARGEST_WHOLE = 2**62
P = ParamSpec("P")
R = TypeVar("R")
LONGEST_NAME = 100  # letters of a name that may be a misspelt one
MOST_NAMES = 99  # known ones in a message
# Names of earlier versions, and what to use instead.
REMOVED = {
    "Problem": "let the optimiser call `simulate`, as docs/tuning.md shows for Optuna",
    "WaitSinceLast": "Ray Serve now has `FrozenBatches`, or `StalledBatches` for a handler that blocks",
    "before_mid_2023": "Ray Serve has had one rule since mid-2023, so leave it out",
    "all_devices": "multiply `most_replicas` by `device_count`",
    "alike": "`Recommendation.neighbours` has the settings around it, with their differences",
    "between": "`Recommendation.neighbours` has the settings halfway to the next ones of the grid",
    "effects": "`Recommendation.neighbours` has them as steps: twice, half and some",
    "filling": "`count_threshold` is the rule without its limit in units",
    "grid_requests": "each setting runs in full, so `requests_simulated` is at least as much",
    "indifference": "with more `requests`, the statement bounds more settings, and each more closely",
    "kept": "`text` has the file that was read",
    "lowest_by": "`probes` has the rates that miss the objective, with their numbers",
    "lowest_per_s": "`probes` has the rates that miss the objective, with their numbers",
    "others": "watch the machine with a tool of the system; `late_ms` and `Fidelity.slower` show its effect",
    "rested": "`explained` shows how much of a difference the time of batches explains",
    "rounds": "each setting runs in full, once: `candidates` has the numbers of these runs",
    "saved": "each setting runs in full, so nothing is saved",
    "together": "`Measurement.autocorrelation` has how long slow batches last",
    "vllm_v0": "use `vllm`, or `Continuous(first='prefill', chunked=False)` for the rule of V0",
}


def whole(name: str, value: Any, at_least: int = 1, at_most: int | None = LARGEST_WHOLE) -> int:
    """Return `value` as an int within the bounds, or raise."""
    try:
        if isinstance(value, (bool, np.bool_, np.ndarray)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {brief(value)}") from None
    if number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {brief(value)}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most:,}, got {brief(value)}")
    return number


def seed(value: Any) -> int:
    """Return the seed of a generator: a whole number from 0, or that of NumPy's SeedSequence."""
    if isinstance(value, np.random.SeedSequence):
        return sum(int(word) << 32 * at for at, word in enumerate(value.generate_state(4)))
    return whole("seed", value, at_least=0, at_most=None)


def real(
    name: str, value: Any, *, at_least: float | None = None, above: float | None = None,
    below: float | None = None, at_most: float = LARGEST, finite: bool = True,
) -> float:  # fmt: skip
    """Return `value` as a plain number within the bounds, or raise. NaN is always refused."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes, np.ndarray)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {brief(value)}") from None
    except OverflowError:
        raise ValueError(f"{name} must be finite, got a number too large for a float") from None
    if math.isnan(number):
        raise ValueError(f"{name} must be a number, got {brief(value)}")
    if at_least is not None and number < at_least:
        raise ValueError(f"{name} must be at least {at_least:g}, got {brief(value)}")
    if above is not None and number <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {brief(value)}")
    if below is not None and number >= below:
        raise ValueError(f"{name} must be less than {below:g}, got {brief(value)}")
    if above == 0 and number < SMALLEST:
        raise ValueError(f"{name} must be at least {SMALLEST:g}, got {brief(value)}")
    if math.isinf(number):
        if finite or number < 0:
            raise ValueError(f"{name} must be finite, got {brief(value)}")
    elif number > at_most:
        raise ValueError(f"{name} must be at most {at_most:g}, got {brief(value)}")
    return value if type(value) is int else number


def sizes(name: str, values: Any, at_most: int = LARGEST_WHOLE, rising: bool = True) -> tuple[int, ...]:
    """Return different whole numbers from 1 on as a tuple, in rising order if `rising`, or raise."""
    if not listed(values):
        raise TypeError(f"{name} must be a list of sizes, got {brief(values)}")
    checked = tuple(whole(f"a size in {name}", size, at_most=at_most) for size in values)
    if not checked:
        raise ValueError(f"{name} must not be empty, got []")
    if list(checked) != (sorted(set(checked)) if rising else list(dict.fromkeys(checked))):
        raise ValueError(f"{name} must {'increase' if rising else 'differ'}, got {brief(list(checked))}")
    return checked


def listed(values: Any) -> bool:
    """Return whether this is a list of values, unlike text or a zero-dimensional array."""
    text_or_number = isinstance(values, (str, bytes)) or getattr(values, "ndim", 1) == 0
    return isinstance(values, Iterable) and not text_or_number


def one_of(name: str, value: Any, known: Collection[str]) -> str:
    """Return `value` if it is one of the known words, or raise."""
    if not isinstance(value, str) or value not in known:  # arrays compare item by item
        hint = nearest(value, known, listed=True)
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {brief(value)}{hint}")
    return value


def path(name: str, value: Any) -> Path:
    """Return `value` as a path, or raise.

    Above all, it refuses whole numbers: `open` would use one as a descriptor, and close it.
    """
    if not isinstance(value, (str, PathLike)) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} must be a file's path, got {brief(value)}")
    if not os.fspath(value):
        raise ValueError(f"{name} must not be empty, got {brief(value)}")
    return Path(value)


def fix_whole(instance: Any, name: str, at_least: int = 1, at_most: int | None = LARGEST_WHOLE) -> None:
    """Check a frozen dataclass's field and store a plain int: NumPy's would overflow silently."""
    object.__setattr__(instance, name, whole(name, getattr(instance, name), at_least, at_most))


def fix_real(instance: Any, name: str, **bounds: Any) -> None:
    """Check a frozen dataclass's field and store a plain number: NumPy's may have half the precision."""
    object.__setattr__(instance, name, real(name, getattr(instance, name), **bounds))


def instance(name: str, value: Any, kind: Any, what: str) -> None:
    """Raise TypeError unless the value is `what`, such as "a Scenario"."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {what}, got {brief(value)}")


def at_most(name: str, value: int, most: float, what: str) -> None:
    """Raise ValueError if the value is above `most`, which is `what`, such as "the largest padded size"."""
    if value > most:
        raise ValueError(f"{name} must be at most {what}, {most}, got {value}")


def nearest(name: Any, known: Iterable[str], listed: bool = False) -> str:
    """Return "; did you mean 'x'?" for the known name nearest to `name`, else the known ones.

    Of a removed name, return what to use instead. `listed`: the message lists them already.
    """
    names = sorted(known)
    if was := removed(name):
        return was
    if close := closest(name, names):
        return f"; did you mean {close!r}?"
    return "" if listed else f"; known: {several(names, MOST_NAMES)}"


def removed(name: Any) -> str:
    """Return "; it was removed: ..." with what to use instead of a name of an earlier version, else "".

    >>> removed("Problem")
    '; it was removed: let the optimiser call `simulate`, as docs/tuning.md shows for Optuna'
    """
    return f"; it was removed: {REMOVED[name]}" if isinstance(name, str) and name in REMOVED else ""


def refuses_removed(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse an argument that it had in an earlier version, and say what to use instead."""

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        if name := next(filter(removed, given), None):
            raise TypeError(f"{function.__name__}() has no argument {name!r}{removed(name)}")
        return function(*args, **given)

    return call


def no_attribute(module: str, name: str) -> AttributeError:
    """Return the error of a module's `__getattr__` for a name that is unknown, or was removed."""
    return AttributeError(f"module {module!r} has no attribute {name!r}{removed(name)}")


class Renewed:
    """An object that says what to use instead of an attribute that it had in an earlier version."""

    if not TYPE_CHECKING:  # a type checker would take any name for one of ours

        def __getattr__(self, name):
            if told := removed(name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{told}")
            return object.__getattribute__(self, name)  # Python's own error, also that within a property


def closest(name: Any, known: Iterable[str]) -> str:
    """Return the known name nearest to `name`, "" if all are far.

    >>> closest("maxbatchsize", ["max_batch_size", "max_wait_ms"])
    'max_batch_size'
    """
    if len(str(name)) > LONGEST_NAME:  # the comparison takes the square of its length
        return ""
    return next(iter(difflib.get_close_matches(str(name), sorted(known), n=1)), "")


def warn(message: str) -> None:
    """Warn at the line outside this package that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "batchsim":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
