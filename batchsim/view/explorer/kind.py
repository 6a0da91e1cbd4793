"""What the explorer needs of a kind of run; `requests` and `tokens` fill it in, and `kinds` lists them."""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, TypeVar

from batchsim._compat import kept
from batchsim.result import Result
from batchsim.result.comparison import Difference
from batchsim.scenario import Noise, OpenLoop, Scenario
from batchsim.scenario.knobs import RATE
from batchsim.scenario.routing import NAMES, checked_routing, router_of
from batchsim.servers.server import Server, ServerConfig
from batchsim.simulate import available
from batchsim.study.slo import SLO
from batchsim.view.explorer.control import GIVEN, Option
from batchsim.view.explorer.options import WORKLOADS, Options
from batchsim.view.explorer.parts import Given, Part, Parts, Values, chosen, same, unshown
from batchsim.view.explorer.reasons import Outcome
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.runs import Stored
from batchsim.view.film.clip import Clip
from batchsim.view.pictures.data import ViewData

Ranges = dict[str, tuple[float, ...]]  # of sliders: low, high and perhaps a step


class State(Protocol):
    """What kinds of run ask of a `state.State`, which is made of them; controls' values are attributes."""

    given: Mapping[str, Given]

    def __getattr__(self, name: str) -> Any: ...
    def replace(self, **changes: Any) -> Self: ...
    def fitted(self) -> Self: ...
    def option(self, chooser: str) -> Option: ...
    def part(self, path: str) -> Any: ...
    def field(self, name: str) -> Any: ...
    def scenario(self) -> Scenario: ...
    def may_be_given(self, chooser: str) -> bool: ...
    @property
    def rule_option(self) -> Option: ...


AState = TypeVar("AState", bound=State)


class Kind(abc.ABC):
    """A kind of run: its controls, the scenarios that they make, its runs and the reasons for their changes.

    Nothing outside the subclasses asks which kind it has: a new one is a subclass, named in `KINDS`.
    """

    name: str  # as `Scenario.kind` has it
    parts: Parts  # of its scenarios
    base: Scenario  # which has all these parts
    others: tuple[str, ...]  # its controls of which no part is made
    first: Mapping[str, Any] = {}  # what its controls begin with, if not with their defaults
    conditions: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {}  # when a control makes a difference
    servers: Mapping[str, Server]  # that the menu of rules lists
    rule, service = "rule", "service"  # the lists of these two
    service_type: type
    titles: Mapping[str, str] = {}  # of pages that are called something else
    film: str  # the key of the view with the film
    is_film_by_server = False  # whether a film shows one of several servers
    shortens = False  # whether runs are shorter while a slider moves
    compared: tuple[str, ...]  # the metrics of A and B
    questions: Mapping[str, str]  # that Predict asks
    outcome: Callable[[str, Result, Result], Outcome]  # the answer to one, about two runs
    cover: str  # the text on a picture that is to be predicted

    @kept
    def options(self) -> dict[str, Options]:
        """The options of each list, by the control that chooses from it."""
        return {part.chooser: part.options for part in self.parts.values() if part.chooser}

    @kept
    def controls(self) -> list[str]:
        """The names of its controls, in the order in which pages show them."""
        lists = [option.controls for options in self.options.values() for option in options.values()]
        own = {*self.others, "server", "seed", "map_metric"}.union(
            *lists, *(part.controls for part in self.parts.values())
        )
        return [name for name in CONTROLS if name in own]

    def relevant(self, control: str, values: Mapping[str, Any]) -> bool:
        """Return whether a control makes a difference, given the values of the others."""
        if control not in self.controls or not self.conditions.get(control, bool)(values):
            return False
        for path, part in self.parts.items():
            if control in part.controls and self._stays(path, values):
                return False
        users = self._users[control]
        return not users or any(values[chooser] == name for chooser, name in users)

    @kept
    def _users(self) -> dict[str, list[tuple[str, str]]]:
        """The options that have each control, after the list that they are chosen from."""
        options = [(chooser, name, option) for chooser, options in self.options.items()
                   for name, option in options.items()]  # fmt: skip
        return {
            control: [(chooser, name) for chooser, name, option in options if control in option.controls]
            for control in self.controls
        }

    def _stays(self, path: str, values: Mapping[str, Any]) -> bool:
        """Return whether no control moves a part, as it is given."""
        given, outer = values.get("given", {}), path.rpartition(".")[0]
        is_whole = outer in given and self.parts[outer].whole and values[self.parts[outer].chooser] == GIVEN
        return is_whole or (path in given and given[path].values is None)

    def values_of(self, chooser: str, part: Any) -> Values | None:
        """Return the controls' values for a part, including its option's name; None if no option has it."""
        (place,) = (each for each in self.parts.values() if each.chooser == chooser)
        return place.read(part, None)

    def clip(self, data: ViewData, server: int) -> Clip | None:
        """Return what a film plays: the part around the one that its view shows; None if there is none."""
        return None

    def changes(self, before: State, name: str, value: Any) -> Values:
        """Return the values that change when a hand moves one control."""
        return {name: value} | ({"server": ""} if name == self.rule else {})

    def fitting(self, state: AState, config: ServerConfig) -> AState:
        """Return the state with traffic that a server accepts."""
        return state

    def on_device(self, state: State) -> Mapping[str, Any]:
        """Return what a server's defaults depend on: its model and its card, if they are known."""
        return {}

    def published(self, state: State) -> str:
        """Return the name of a published service time that a state has; "" for another."""
        return ""

    @abc.abstractmethod
    def slo(self, state: State) -> SLO | None:
        """Return the objective of a state; None without one."""

    @abc.abstractmethod
    def ranges(self, state: State) -> Ranges:
        """Return the ranges of sliders that depend on the other controls."""

    def rescaled(self, state: AState, values: Values, keep_rate: bool = False) -> AState:
        """Return the state with another service time, and its rate, sizes and times on that scale."""
        return state.replace(**values)

    @abc.abstractmethod
    def origin(self, state: State) -> str:
        """Return where a state's service time comes from, as HTML."""

    def note(self, state: State) -> str:
        """Return a note for the last page of controls."""
        return ""

    def requests(self, scenario: Scenario, requests: int) -> int:
        """Return the number of requests of a run."""
        return available(scenario, requests)

    @abc.abstractmethod
    def run(
        self, state: State, scenario: Scenario, requests: int, stored: Stored, moving: bool
    ) -> ViewData:  # fmt: skip
        """Run a state's scenario for a picture; `moving`: roughly, as more moves will follow."""

    def differences(self, data: ViewData) -> Mapping[str, Difference]:
        """Return the rows of the comparison of A and B that are not metrics, by their headings."""
        return {}


def _noise_values(noise: Noise | None, _: Any) -> Values:
    if noise is None:
        return {"noise_cv": 0}
    values = {"noise_cv": noise.cv, "noise": noise.shape}
    if noise.correlation:
        values |= {"noise_correlation": noise.correlation, "noise_batches": noise.memory_batches}
    return values


def _noise(values: Mapping[str, Any], _: Any) -> Noise | None:
    lasts = bool(values["noise_correlation"])  # else its memory has no effect
    return Noise(*(values[name] for name in NOISE[: 4 if lasts else 2])) if values["noise_cv"] else None


NOISE = "noise_cv", "noise", "noise_correlation", "noise_batches"
NOISE_PART = Part(NOISE, _noise, _noise_values)


def _workload(values: Mapping[str, Any], given: Any) -> Any:
    if values["workload"] != GIVEN:
        return _LISTED.make(values, given)
    if given is None:
        raise ValueError("workload='given' must come with traffic: explore(workload=...), got none")
    return given.with_rate(values["rate_per_s"])


def _workload_values(workload: Any, _: Any) -> Values:
    if (values := _LISTED.read(workload, None)) is not None:
        return values
    offered = workload.offered_per_s if isinstance(workload, OpenLoop) else 0
    return {"workload": GIVEN} | ({RATE: offered} if 0 < offered < math.inf else {})


def has_rate(values: Mapping[str, Any]) -> bool:
    """Return whether the arrival rate can be moved: not that of requests that all come at once."""
    if values["workload"] == GIVEN:
        return "workload" in values["given"] and RATE in values["given"]["workload"].values
    return RATE in WORKLOADS[values["workload"]].controls


_LISTED = chosen("workload", WORKLOADS)


_usual = {field.name: field.default for field in dataclasses.fields(Scenario) if field.name != "tokens"}


def routing_part(options: Options) -> Part:
    """Return the part of the router, which a scenario may store as a name."""
    part = chosen("routing", options)
    return part._replace(
        make=lambda values, given: checked_routing(part.make(values, given)),
        read=lambda routing, _: part.read(router_of(routing), None),
    )


# The parts of any scenario: a field that has a control of its name is that control's value.
PARTS: Parts = {
    **{name: same(name) if name in CONTROLS else unshown(value) for name, value in _usual.items()},
    "watts": Part(("watts",), lambda values, _: dict(values["watts"]) or None,
        lambda watts, _: {"watts": tuple(sorted((watts or {}).items()))}),
    "workload": _LISTED._replace(make=_workload, read=_workload_values),
}  # fmt: skip


def has_router(values: Mapping[str, Any]) -> bool:
    """Return whether a router chooses among replicas."""
    return values["replicas"] > 1 or bool({"replicas", "autoscale"} & values["given"].keys())


CONDITIONS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {  # of the controls of both kinds
    RATE: has_rate,
    **dict.fromkeys(("routing", "keys", "popularity"), has_router),
    "stale_ms": lambda values: has_router(values) and (
        values["routing"] == GIVEN or NAMES[values["routing"]].sees_loads
    ),
    "map_metric": lambda values: bool(values["watts"]),
}  # fmt: skip
