"""Controls of the explorer: their words, the values that they take, and how a person types these."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from batchsim import _check
from batchsim._format import brief
from batchsim.scenario import Table, priorities
from batchsim.scenario.service import checked_watts
from batchsim.scenario.sized_time import SizeTable

MAIN, ARRIVALS, RULE, COMPUTING = "Main", "Arrivals", "Rule", "Service"
DEVICE, SHARE = "Device", "Share"
GIVEN = "given"  # the choice of what no option of a list makes


class Slider(NamedTuple):
    """A slider's scale and range, and its places: whole numbers of steps from its low end.

    The scale is "linear", "log", "whole", "log whole", or "share": the share of level 1 of two priority
    levels. A log slider's step is one of the exponent.
    """

    scale: str
    low: float
    high: float
    step: float = 1

    @property
    def steps(self) -> int:
        """The number of steps from end to end."""
        if self.scale == "log whole":
            return len(_wholes(self)) - 1
        return math.ceil((self._along(self.high) - self._along(self.low)) / self.step - 1e-6)

    def place(self, value: Any) -> int:
        """Return the place that is nearest to a value.

        >>> Slider("log", 1, 100, 0.01).place(10), Slider("linear", 0, 50, 0.5).place(math.inf)
        (100, 100)
        """
        number = _number_of(value)
        if number == math.inf:
            return self.steps
        if self.scale == "log whole":
            return int(np.abs(np.log(_wholes(self)) - math.log(number)).argmin())
        return round((self._along(number) - self._along(self.low)) / self.step)

    def value(self, place: int) -> Any:
        """Return the value at a place, as a control stores it.

        >>> Slider("log", 1, 100, 0.01).value(141), Slider("log whole", 1, 100, 0.01).value(2)
        (25.7, 3)
        """
        if self.scale == "whole":
            return round(self.low) + place
        if self.scale == "log whole":
            return _wholes(self)[place]
        along = min(self._along(self.low) + place * self.step, self._along(self.high))
        number = float(f"{10**along:.3g}" if self.scale == "log" else f"{along:.6g}")
        if self.scale == "share":
            return ((1, number), (2, float(f"{1 - number:.6g}"))) if 0 < number < 1 else ()
        return number

    def covering(self, value: Any) -> "Slider":
        """Return the slider with its range widened to a value."""
        number = _number_of(value)
        if number == math.inf:
            return self
        return self._replace(low=min(self.low, number), high=max(self.high, number))

    def _along(self, number: float) -> float:
        return math.log10(number) if self.scale == "log" else number


@functools.cache
def _wholes(slider: Slider) -> list[int]:
    """Return the whole numbers of a logarithmic scale, each once: near 1, many steps round to the same."""
    reals = slider._replace(scale="log")
    return sorted({round(reals.value(place)) for place in range(reals.steps + 1)})


def _number_of(value: Any) -> float:
    """Return a value as a number: of shares of priority levels the first one."""
    if isinstance(value, tuple):
        return value[0][1] if value else 0.0
    return float(value)


def _one_of(name: str, value: Any, options: Iterable[str]) -> str:
    words = list(options)
    if value not in words:
        few = len(words) < 10
        rule = f"one of {', '.join(words)}" if few else "a known one"
        raise ValueError(
            f"{name} must be {rule}, got {brief(value)}{_check.nearest(value, words, listed=few)}"
        )
    return str(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise ValueError(f"{name} must be text of at most 200 characters, got {value!r:.60}")
    return " ".join(value.split())


Rows = Sequence[Sequence[Any]]


def size_table(rows: Rows) -> SizeTable:
    """Return the table of rows of numbers: 0 and the lengths, then each batch size and its times in ms."""
    (_, *lengths), *others = rows or [[0]]
    return SizeTable([size for size, *_ in others], lengths, [times for _, *times in others])  # type: ignore[arg-type]


def rows_of(table: SizeTable) -> Rows:
    """Return the rows that make a table."""
    each = zip(table.batch_sizes, table.times_ms, strict=True)
    return (0, *table.lengths), *((size, *times_ms) for size, times_ms in each)


def _watts(_: str, value: Any) -> tuple[tuple[int, float], ...]:
    points = checked_watts(dict(value)) or {}
    if len(points) < len(value):
        raise ValueError(f"watts must have each batch size once, got {brief(value)}")
    return tuple(sorted(points.items()))


CHECKS: Mapping[str, Callable[..., Any]] = {
    "whole": _check.whole,
    "real": _check.real,
    "sizes": _check.sizes,  # 1, 2, 4
    "levels": lambda name, value: priorities.check(value),  # 1:0.2, 2:0.8
    "points": lambda name, value: Table(value).points_ms,  # of a service time: 1:2.1, 8:3.3
    "rows": lambda name, value: rows_of(size_table(value)),  # of a service time: 0:64:512,1:2.1:4.5
    "watts": _watts,  # by batch size: 0:60, 8:300
    "text": _text,
    "choice": _one_of,
}
PAIRS = {  # the types that are typed as pairs, with how
    "points": "a curve must be like 1:2.1,8:3.3 (batch size:ms)",
    "levels": "Priorities must be like 1:0.2,2:0.8 (level:share)",
    "watts": "Watts must be like 0:60,8:300 (batch size:watts)",
}


@dataclass(frozen=True)
class Control:
    """One value of the state, and the control that moves it.

    `type` is a key of `CHECKS`, and `bounds` are that check's arguments, such as the options of a choice with
    their labels. Without a `page` the value has no control of its own. `when_empty` is the meaning of an
    empty field, for a value that may be empty.
    """

    label: str
    about: str
    type: str
    default: Any
    page: str | None
    slider: Slider | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    when_empty: str = ""

    @property
    def tip(self) -> str:
        """What the value is, and what an empty field means."""
        return f"{self.about}; empty: {self.when_empty}" if self.when_empty else self.about

    def check(self, name: str, value: Any) -> Any:
        """Return the value as the state stores it, or raise an error that calls it `name`."""
        if self.when_empty and value in (None, (), []):
            return () if self.type in ("sizes", "rows", *PAIRS) else None
        return CHECKS[self.type](name, value, **self.bounds)

    def read(self, name: str, text: str) -> Any:
        """Return the value that a person typed, or raise an error with the rule and the text.

        >>> from batchsim.view.explorer.rows import CONTROLS
        >>> CONTROLS["max_batch_size"].read("", " 16 "), CONTROLS["queue_limit"].read("", "")
        (16, None)
        >>> CONTROLS["servers"].read("Servers", "two")
        Traceback (most recent call last):
        ValueError: Servers must be a whole number, got 'two'
        """
        value: Any = text.strip()
        if self.when_empty and value in ("", "none"):
            value = None
        elif self.type in PAIRS:
            value = [_pair(pair, PAIRS[self.type]) for pair in text.split(",") if pair.strip()]
        elif self.type == "rows":
            value = [
                [_number(name, each, whole=0 in (row, at)) for at, each in enumerate(line.split(":"))]
                for row, line in enumerate(text.split(","))
            ]
        elif self.type == "sizes":
            value = [_number(name, size, whole=True) for size in text.split(",") if size]
        elif self.type in ("whole", "real"):
            value = _number(name, value, whole=self.type == "whole")
        return self.check(name, value)


def _number(name: str, text: str, whole: bool) -> float:
    for number in (int,) if whole else (int, float):
        with suppress(ValueError):
            if "_" not in text:  # 1_000 is a number in Python only
                return number(text)
    raise ValueError(f"{name} must be a {'whole ' if whole else ''}number, got {brief(text)}")


def _pair(pair: str, like: str) -> tuple[int, float]:
    number, colon, value = pair.partition(":")
    if not colon:
        raise ValueError(f"{like}, got {brief(pair)}")
    before, after = (f"the part {side} a colon" for side in ("before", "after"))
    return int(_number(before, number, whole=True)), _number(after, value, whole=False)


@dataclass(frozen=True)
class Option:
    """One item of a list: its label, the class that it makes, and the controls that give its arguments.

    `make` takes the controls' values in order; `read` returns them for an instance, None if the controls
    cannot express it. By default the values are the arguments of the class.
    """

    label: str
    part: type
    controls: tuple[str, ...]
    make: Callable[..., Any] | None = None
    read: Callable[[Any], Sequence[Any] | None] | None = None

    def values(self, part: Any) -> dict[str, Any] | None:
        """Return the controls' values for a part, None if it is of another option."""
        if type(part) is not self.part:
            return None
        values = self.read(part) if self.read else [getattr(part, name) for name in self.arguments]
        return None if values is None else dict(zip(self.controls, values, strict=True))

    @property
    def arguments(self) -> list[str]:
        """The arguments of the class: those by position, and those by name that have a control."""
        fields = dataclasses.fields(self.part)
        return [it.name for it in fields if not it.kw_only or it.name in self.controls]

    def made(self, values: Iterable[Any]) -> Any:
        """Return the part that the controls' values make, in order."""
        if self.make:
            return self.make(*values)
        return self.part(**dict(zip(self.arguments, values, strict=True)))


def choice(
    label: str, about: str, default: str, page: str | None, options: Mapping[str, Any] | Iterable[str]
) -> Control:  # fmt: skip
    """Return the control that chooses among options: a mapping to labels or `Option`s, or plain words."""
    labels: dict[str, Any] = dict.fromkeys(options, "")
    if isinstance(options, Mapping):
        labels = {name: getattr(option, "label", option) for name, option in options.items()}
        if any(isinstance(option, Option) for option in options.values()):
            labels[GIVEN] = "Given: as at the beginning"
    return Control(label, about, "choice", default, page, bounds={"options": labels})
