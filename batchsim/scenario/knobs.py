"""Every knob of a scenario by its name, anywhere inside, and a scenario as text and as HTML."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any

from batchsim import _check, _format
from batchsim._format import html_table
from batchsim.scenario.workload import ClosedLoop, OpenLoop

RATE = "rate_per_s"  # a knob of every open workload, even if its own field has another name


def rebuilt(part: Any, changes: Mapping[tuple[str, ...], Any]) -> Any:
    """Return a part with new values by their path in it; a whole part changes before what is inside it."""
    fields = {}
    for first in dict.fromkeys(path[0] for path in changes):
        inside = {path[1:]: value for path, value in changes.items() if path[0] == first}
        new = inside.pop(()) if () in inside else getattr(part, first)
        fields[first] = rebuilt(new, inside) if inside else new
    rate_per_s = fields.pop(RATE, None)
    if any(getattr(part, name) is not value for name, value in fields.items()):
        part = dataclasses.replace(part, **fields)
    # Last, because the other knobs of a workload may change its mean rate.
    return part if rate_per_s is None else part.with_rate(rate_per_s)


def fields_of(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without what is computed of them."""
    kind: Any = type(part)
    return {name: getattr(part, name) for name in names_of(kind)}


def find_knob(name: str, parts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path to the knob of this name, such as ("workload", "cv"), or raise ValueError.

    A name may omit parts of the path if only one knob matches.
    """
    paths = {(top, *path) for top, part in parts.items() for path in _paths(part)}
    steps, workload = name.split("."), parts["workload"]
    if isinstance(workload, OpenLoop):
        paths.add(("workload", RATE))
    matches = sorted(path for path in paths if path[-1] == steps[-1] and _within(steps, path))
    if len(matches) > 1:
        places = " or ".join(repr(".".join(path)) for path in matches)
        raise ValueError(f"knob {name!r} is ambiguous: use {places}")
    if not matches:
        is_open = isinstance(workload, OpenLoop)
        if steps[-1] in (ClosedLoop.__match_args__ if is_open else [RATE]):
            kind = "a ClosedLoop" if is_open else "an open workload"
            raise ValueError(f"{name} needs {kind}, got {workload!r}")
        known = {path[-1] for path in paths} | {".".join(path) for path in paths} | set(parts)
        hint = _check.nearest(name, known)
        raise ValueError(f"a knob must be one of the scenario's, got {_format.brief(name)}{hint}")
    return matches[0]


def value_of(scenario: Any, name: str) -> Any:
    """Return the value of a knob, or of a whole part, in a scenario; None for the rate of clients."""
    if name.split(".")[-1] == RATE:
        return getattr(scenario.workload, "offered_per_s", None)
    parts = fields_of(scenario)
    return attrgetter(".".join([name] if name in parts else find_knob(name, parts)))(scenario)


def _within(steps: list[str], path: tuple[str, ...]) -> bool:
    """Return whether the path has these steps, in this order."""
    rest = iter(path)
    return all(step in rest for step in steps)


def _paths(part: Any) -> Iterator[tuple[str, ...]]:
    kind: Any = type(part)
    for name in names_of(kind):
        yield (name,)
        yield from ((name, *path) for path in _paths(getattr(part, name)))


@functools.cache
def names_of(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields; none of another class."""
    return tuple(f.name for f in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


def as_text(scenario: Any) -> str:
    """Return the call that makes the scenario, without what has its default.

    >>> from batchsim import Affine, Poisson, Scenario, SizeOrWait
    >>> Scenario(Poisson(9), SizeOrWait(8, 2), Affine(5, 1), servers=2)
    Scenario(workload=Poisson(rate_per_s=9), rule=SizeOrWait(max_batch_size=8, max_wait_ms=2), \
service=Affine(fixed_ms=5, per_item_ms=1), servers=2)
    """
    own, _ = _parted(scenario)
    return f"{type(scenario).__name__}({', '.join(f'{name}={value!r}' for name, value in own.items())})"


def as_html(scenario: Any) -> str:
    """Return a table for a notebook: the defaults are folded."""
    own, usual = map(_table, _parted(scenario))
    return f"{own}<details><summary>defaults</summary>{usual}</details>"


def _parted(scenario: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields that differ from their defaults, and the others."""
    values = {field: getattr(scenario, field.name) for field in fields(scenario)}
    own = {
        each.name: value for each, value in values.items() if each.default is MISSING or value != each.default
    }
    return own, {each.name: value for each, value in values.items() if each.name not in own}


def _table(values: dict[str, Any]) -> str:
    return html_table("", (), ((name, repr(value)) for name, value in values.items()), "<<")
