"""Fields that describe themselves: the words, the bounds and the control of a parameter.

The parameters of scenarios, rules, workloads and service times are such fields, so their checks, the explorer
and the shell need no table of their own.
"""

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchsim import _check

LARGEST_BATCH = 65_536


@dataclass(frozen=True)
class Parameter:
    """The words and the bounds of a parameter, and the control that moves it.

    `type` is "whole", "real", "sizes", a rising tuple of whole numbers, or "word", one of `words`, perhaps
    with their labels. `slider` is the explorer's (low, high, step), on a logarithmic scale if `log`; without
    one, users type the value. `when_none` is the meaning of None, for a parameter that may be None.
    """

    label: str
    about: str
    type: str = "whole"
    at_least: float | None = None  # by default 1, of a whole number
    at_most: float | None = None  # by default the largest batch, of a whole number
    above: float | None = None
    may_be_inf: bool = False
    when_none: str = ""
    by_level: bool = False  # whether it may be {priority level: value}, too, which its owner checks
    words: Sequence[str] | Mapping[str, str] = ()
    of_sizes: bool = False  # whether it is about the sizes of requests
    slider: tuple[float, float, float] | None = None
    log: bool = False
    usual: Any = None  # the control's first value

    def __post_init__(self) -> None:
        if self.type == "word" and self.usual is None:
            object.__setattr__(self, "usual", next(iter(self.words)))
        if self.type in ("whole", "sizes"):
            object.__setattr__(self, "at_least", 1 if self.at_least is None else self.at_least)
            object.__setattr__(self, "at_most", LARGEST_BATCH if self.at_most is None else self.at_most)

    def check(self, name: str, value: Any) -> Any:
        """Return the value as it is stored, or raise with the rule and the value received."""
        if value is None and self.when_none:
            return None
        if self.type == "word":
            return _check.one_of(name, value, self.words)
        if self.type == "real":
            most = _check.LARGEST if self.at_most is None else self.at_most
            bounds = {"at_least": self.at_least, "above": self.above, "at_most": most}
            return _check.real(name, value, **bounds, finite=not self.may_be_inf)  # type: ignore[arg-type]
        least, most = int(self.at_least or 0), int(self.at_most or 0)
        return (
            _check.sizes(name, value, most)
            if self.type == "sizes"
            else _check.whole(name, value, least, most)
        )


def parameter(
    label: str, about: str, *, default: Any = dataclasses.MISSING, kw_only: Any = dataclasses.MISSING,
    **more: Any,
) -> Any:  # fmt: skip
    """Return a dataclass field that describes itself; see `Parameter`."""
    described = Parameter(label, about, **more)
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"parameter": described})


class Described:
    """A dataclass whose fields may be parameters, which are checked as it is made."""

    def __post_init__(self) -> None:
        for name, described, right in self._checks():
            if (value := getattr(self, name)) is not right:
                object.__setattr__(self, name, described.check(name, value))
        self.check()

    @classmethod
    @functools.lru_cache(maxsize=256)
    def _checks(cls) -> list[tuple[str, Parameter, Any]]:
        """Return the parameters that are checked here, each with its default if that is right."""
        found = []
        for name, described in cls.parameters().items():
            if described.by_level:
                continue
            right = cls.__dataclass_fields__[name].default  # type: ignore[attr-defined]
            try:
                right = right if described.check(name, right) is right else dataclasses.MISSING
            except (TypeError, ValueError):
                right = dataclasses.MISSING
            found.append((name, described, right))
        return found

    @classmethod
    @functools.lru_cache(maxsize=256)
    def parameters(cls) -> dict[str, Parameter]:
        """Return the description of each parameter by its name."""
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # every subclass is a dataclass
        return {f.name: f.metadata["parameter"] for f in fields if "parameter" in f.metadata}

    def check(self) -> None:
        """Raise ValueError if parameters contradict each other."""


def require(cls: type, base: type, members: Mapping[str, str]) -> None:
    """Refuse a class that lacks members of its base, {name: arguments}, or takes other arguments.

    >>> class Base:
    ...     def run(self, seed): ...
    >>> require(type("Mine", (Base,), {}), Base, {"run": "(self, seed)"})
    Traceback (most recent call last):
    TypeError: Mine must have run(self, seed), got none
    """
    for name, arguments in members.items():
        own = inspect.getattr_static(cls, name, None)
        if own is None or own is inspect.getattr_static(base, name, None):
            raise TypeError(f"{cls.__name__} must have {name}{arguments}, got none")
        function = getattr(own, "__func__", own)
        if arguments and inspect.isfunction(function):
            got = inspect.signature(function)
            starred = any(each.kind is each.VAR_POSITIONAL for each in got.parameters.values())
            if not starred and len(got.parameters) != len(arguments.split(",")):
                raise TypeError(f"{cls.__name__} must have {name}{arguments}, got {name}{got}")
