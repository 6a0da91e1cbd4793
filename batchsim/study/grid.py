"""A grid: axes of knobs, and the points of their product."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from batchsim import _check
from batchsim._format import counted, number, rate
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.scenario.knobs import fields_of, find_knob

NESTING = ("workload", "rule", "service")  # parts of a scenario with knobs inside
LABEL = "; name them apart, as in {'label': value}"


@dataclass(frozen=True)
class Axis:
    """A knob's values, each with a label for tables and a key that only equal values share.

    Labels are numbers if all values are, else text.
    """

    name: str
    values: tuple[Any, ...]
    labels: tuple[Any, ...]
    keys: tuple[str, ...]

    @classmethod
    def of(cls, name: str, given: Any) -> Self:
        """Check a list of values, or {label: value}."""
        if isinstance(given, Set) or not _check.listed(given):
            raise TypeError(f"{name} must be a list of values, or {{label: value}}, got {given!r}")
        values = labels = [_plain(value) for value in given]
        if isinstance(given, Mapping):
            values = [_plain(value) for value in given.values()]
        if not values:
            raise ValueError(f"{name} must have at least one value, got {given!r}")
        if any(isinstance(value, float) and math.isnan(value) for value in (*values, *labels)):
            raise ValueError(f"{name} must have no NaN among its values, got {values}")
        if not all(type(label) is float or (type(label) is int and abs(label) < 2**63) for label in labels):
            labels = [label if isinstance(label, str) else repr(label) for label in labels]
        try:
            keys = [json.dumps(canonical(value), sort_keys=True) for value in values]
        except TypeError as error:
            raise TypeError(f"a value of {name} {error}") from None
        for plural, each, hint in (("values", keys, ""), ("labels", labels, LABEL)):
            if len(set(each)) < len(each):
                twice = next(place for place, value in enumerate(each) if value in each[:place])
                raise ValueError(f"{plural} of {name} must differ, got {labels[twice]!r} twice{hint}")
        return cls(name, tuple(values), tuple(labels), tuple(keys))

    def column(self, places: np.ndarray) -> np.ndarray:
        """Return the labels at some places: int64, float64, or text as objects."""
        kinds = {type(label) for label in self.labels}
        dtype = object if str in kinds else float if float in kinds else np.int64
        return np.array(self.labels, dtype=dtype)[places]


@dataclass(frozen=True)
class Grid:
    """The product of axes; the points are numbered, and the last axis changes fastest."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, scenario: Scenario, over: Any) -> Self:
        """Check {knob: values}: refuse a name that no combination has, and a value of the wrong type.

        One out of bounds is not refused, because another combination may take it.
        """
        _check.instance("over", over, Mapping, "{knob: values}")
        if not over:
            raise ValueError(f"over must have at least one knob, got {over!r}")
        for name in over:
            _check.instance("a knob", name, str, "named by text")
        axes = tuple(Axis.of(name, values) for name, values in over.items())
        _check_knobs(scenario, axes)
        return cls(axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis.values) for axis in self.axes)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def knobs(self, number: int) -> dict[str, Any]:
        """Return a point, as `Scenario.replace` takes it."""
        places = np.unravel_index(number, self.shape)
        return {axis.name: axis.values[place] for axis, place in zip(self.axes, places, strict=True)}

    def keys(self) -> Iterator[str]:
        """Yield each point's key: JSON that does not depend on the order of the axes."""
        order = sorted(range(len(self.axes)), key=lambda number: self.axes[number].name)
        head = [f"{json.dumps(axis.name)}: " for axis in self.axes]
        for keys in itertools.product(*(axis.keys for axis in self.axes)):
            yield "{" + ", ".join(head[number] + keys[number] for number in order) + "}"

    def columns(self) -> dict[str, np.ndarray]:
        """Return each knob's labels, shape (points,)."""
        places = np.indices(self.shape).reshape(len(self.axes), -1)
        return {axis.name: axis.column(place) for axis, place in zip(self.axes, places, strict=True)}


@dataclass(frozen=True)
class Points:
    """Some settings, numbered as those of a grid are."""

    settings: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, settings: Sequence[dict[str, Any]]) -> Self:
        return cls(tuple(settings))

    def __len__(self) -> int:
        return len(self.settings)

    def knobs(self, number: int) -> dict[str, Any]:
        """Return a point, as `Scenario.replace` takes it."""
        return self.settings[number]

    def columns(self) -> dict[str, np.ndarray]:
        """Return each knob's labels, shape (points,)."""
        columns = {}
        for name in self.settings[0]:
            values = [_plain(each[name]) for each in self.settings]
            numbers = all(type(value) in (int, float) for value in values)
            columns[name] = np.array(values if numbers else [repr(value) for value in values])
        return columns


def canonical(value: Any) -> Any:
    """Return a value as JSON's own, equal for equal values: 10 and 10.0 are one, arrays a checksum.

    Anything but numbers, text, lists, mappings, and objects made of them is refused with TypeError.
    """
    value = _plain(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return repr(value)  # JSON has no infinity
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        checksum = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype.str} {value.shape} sha256 {checksum}"
    if isinstance(value, Mapping):
        return {str(canonical(key)): canonical(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [canonical(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "__dict__") and not callable(value):
        fields = vars(value)
    else:
        raise TypeError(f"must be made of numbers, text, lists and dataclasses, got {value!r}")
    return {"kind": type(value).__qualname__} | {name: canonical(each) for name, each in fields.items()}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _check_knobs(scenario: Scenario, axes: tuple[Axis, ...]) -> None:
    parts = fields_of(scenario)
    nesting = {axis.name: axis.values for axis in axes if axis.name in NESTING}
    combinations = [dict(zip(nesting, each, strict=True)) for each in itertools.product(*nesting.values())]
    named: dict[tuple[str, ...], str] = {}
    for axis in sorted(axes, key=lambda axis: axis.name not in parts):  # parts first, then knobs inside them
        combination: dict[str, Any] = {}
        if axis.name not in parts:
            combination, path = _first_with(axis.name, parts, combinations)
            if path in named:
                raise ValueError(f"a knob must be given once, got {named[path]!r} and {axis.name!r}")
            named[path] = axis.name
        for value in axis.values:
            # Out of bounds here, it may fit another combination; if it fits none, its row has the reason.
            with contextlib.suppress(ValueError):
                scenario.replace({**combination, axis.name: value})


def _first_with(name: str, parts: Mapping[str, Any], combinations: list[dict[str, Any]]) -> Any:
    """Return the first combination of parts that has the knob, and the path to it there, or raise."""
    refusals = []
    for combination in combinations:
        try:
            return combination, find_knob(name, {**parts, **combination})
        except ValueError as error:
            refusals.append(error)
    raise refusals[0]


# A point in words.


def overload(scenario: Scenario) -> str:
    """Return a load that is too high, and the two rates behind it."""
    assert not isinstance(scenario.workload, ClosedLoop)
    offered, saturation = scenario.workload.offered_per_s, scenario.saturation_per_s
    return f"load {number(scenario.load, 4)}: {rate(offered, 4)}, saturation at {rate(saturation, 4)}"


def setting(knobs: Mapping[str, Any]) -> str:
    """Return knobs with their values."""
    return ", ".join(f"{name}={value!r}" for name, value in knobs.items())


def machines(scenario: Scenario) -> str:
    """Return the servers of a scenario, by replica if there are several.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> scenario = Scenario(Poisson(900), SizeOrWait(8, 5), Affine(5, 1), servers=2)
    >>> machines(scenario), machines(scenario.replace(replicas=3))
    ('2 servers', '3 replicas of 2 servers')
    """
    servers = counted(scenario.servers, "server")
    return servers if scenario.replicas == 1 else f"{scenario.replicas} replicas of {servers}"
