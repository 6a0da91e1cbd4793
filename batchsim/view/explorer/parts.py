"""The parts of a scenario: how controls' values make each one, and how they are read from it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

from batchsim.scenario import Scenario
from batchsim.scenario.knobs import rebuilt
from batchsim.view.explorer.control import GIVEN, Option
from batchsim.view.explorer.options import Options
from batchsim.view.explorer.rows import CONTROLS

STAYS: Any = object()  # what `make` returns for a part that the part around it has made
Values = dict[str, Any]  # by the names of controls


class Given(NamedTuple):
    """A part of the scenario that an explorer was opened with, and the values that stand for it there.

    `values` is None for a part without a control, which then stays as it is.
    """

    part: Any
    values: Values | None


class Part(NamedTuple):
    """A place in a scenario and its controls; a list has its name as `chooser`, and its `options`.

    One that is `whole` has no parts inside it that move while it is as given.
    `make` takes the values of all controls, and what was given there, if anything. `read` takes the part and
    its scenario, and returns the values of its controls; None if they cannot say it.
    """

    controls: tuple[str, ...]
    make: Callable[[Mapping[str, Any], Any], Any]
    read: Callable[[Any, Any], Values | None]
    chooser: str = ""
    options: Mapping[str, Option] = {}
    whole: bool = False


Parts = Mapping[str, Part]  # by their places, such as "workload.sizes"; what is inside a part comes after it


def same(name: str) -> Part:
    """Return the part that is the value of one control."""
    return Part((name,), lambda values, _: values[name], lambda part, _: {name: part})


def optional(name: str) -> Part:
    """Return the part that is the value of one control, None for an empty one."""
    return Part((name,), lambda values, _: values[name] or None, lambda part, _: {name: part or ()})


def unshown(usual: Any) -> Part:
    """Return a part without a control."""
    return Part((), lambda *_: usual, lambda part, _: {} if part == usual else None)


def chosen(chooser: str, options: Options) -> Part:
    """Return the part that the options of a list make."""

    def make(values: Mapping[str, Any], _: Any) -> Any:
        if values[chooser] == GIVEN:
            raise ValueError(f"{chooser}='given' must come with its scenario: explore(scenario), got none")
        if values[chooser] not in options:  # of another kind of run
            raise ValueError(f"{chooser} must be one of {', '.join(options)}, got {values[chooser]!r}")
        option = options[values[chooser]]
        return option.made(values[name] for name in option.controls)

    def read(part: Any, _: Any) -> Values | None:
        found = {name: option.values(part) for name, option in options.items()}
        said = [{chooser: name, **own} for name, own in found.items() if own is not None]
        # If two options can say it, the one with fewer controls is meant: full batches only.
        return min(said, key=len, default=None)

    return Part((chooser,), make, read, chooser, options)


def part_made(part: Part, values: Mapping[str, Any], given: Given | None) -> Any:
    """Return a part as it was given while the controls stand where they stood, else what they make."""
    if given is not None and (given.values is None or given.values.items() <= values.items()):
        return given.part
    return part.make(values, None if given is None else given.part)


def field_made(
    parts: Parts, values: Mapping[str, Any], given: Mapping[str, Given], base: Scenario, name: str
) -> Any:  # fmt: skip
    """Return a field of the scenario of controls, with what is inside it; ValueError if they make none."""
    own = parts.get(name)
    inside: dict[tuple[str, ...], Any] = {}
    made = getattr(base, name) if own is None else part_made(own, values, given.get(name))
    if own is not None and own.whole and values[own.chooser] == GIVEN:
        return made
    for path, part in parts.items():
        outer, _, inner = path.partition(".")
        if outer == name and inner and hasattr(made, inner):
            new = part_made(part, values, given.get(path))
            inside |= {(inner,): new} if new is not STAYS else {}
    return rebuilt(made, inside)


def made(parts: Parts, values: Mapping[str, Any], given: Mapping[str, Given], base: Scenario) -> Scenario:
    """Return the scenario of controls; ValueError if they make none. `base` has what no part makes."""
    names = dict.fromkeys(path.partition(".")[0] for path in parts)
    new: Scenario = rebuilt(base, {(name,): field_made(parts, values, given, base, name) for name in names})
    return new


def read(parts: Parts, scenario: Any, only: str = "") -> tuple[Values, dict[str, Given]]:
    """Return the values of the controls for a scenario, and the parts that they cannot say.

    `only` is the name of one field: the scenario need not have others.
    """
    values: Values = {}
    given = {}
    for path, part, there in _places(parts, scenario, only):
        own = part.read(there, scenario)
        if own is None or not _are_taken(own):
            own = {part.chooser: GIVEN} if part.chooser else None
        if own is None or own.get(part.chooser) == GIVEN:
            given[path] = Given(there, own)
        values |= own or {}
    return values, given


def changed(parts: Parts, scenario: Any, again: Any, only: str = "") -> dict[str, Given]:
    """Return the parts that controls made again as others: rounded, or with the same effect."""
    return {
        path: Given(there, part.read(there, scenario))
        for path, part, there in _places(parts, scenario, only)
        if there != attrgetter(path)(again)
    }


def _places(parts: Parts, scenario: Any, only: str = "") -> Iterator[tuple[str, Part, Any]]:
    """Yield each part that a scenario has; not every rule or service time has every place."""
    for path, part in parts.items():
        if only in ("", path.partition(".")[0]):
            outer, _, inner = path.rpartition(".")
            owner = attrgetter(outer)(scenario) if outer else scenario
            if hasattr(owner, inner):
                yield path, part, getattr(owner, inner)


def _are_taken(values: Values) -> bool:
    """Return whether controls take the values as they are."""
    with suppress(TypeError, ValueError):
        return all(CONTROLS[name].check(name, value) == value for name, value in values.items())
    return False
