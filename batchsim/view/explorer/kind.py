"""What the explorer needs of a kind of run; `requests` and `tokens` fill it in, and `kinds` lists them."""

import abc
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchsim import scenario as sc
from batchsim._compat import kept
from batchsim.result import Result
from batchsim.result.comparison import Difference
from batchsim.scenario import ClosedLoop, Noise, OnOff, OpenLoop, Scenario, SizeOrWait
from batchsim.scenario.knobs import RATE
from batchsim.scenario.parameters import LARGEST_BATCH as LARGEST_TYPED
from batchsim.scenario.parameters import Parameter
from batchsim.scenario.routing import NAMES, ByKey, checked_routing, router_of
from batchsim.scenario.routing.by_key import MOST_KEYS
from batchsim.scenario.service import SHAPES
from batchsim.servers.server import Server, ServerConfig
from batchsim.simulate import available
from batchsim.study.slo import SLO
from batchsim.view.explorer.control import (
    ARRIVALS,
    COMPUTING,
    GIVEN,
    MAIN,
    RULE,
    SHARE,
    Control,
    Option,
    Slider,
    choice,
)  # fmt: skip
from batchsim.view.explorer.parts import Part, Parts, Values, chosen, read, same, unshown
from batchsim.view.explorer.reasons import Outcome
from batchsim.view.explorer.runs import Stored
from batchsim.view.film.window import Window
from batchsim.view.pictures.data import ViewData

LARGEST_BATCH = 4096  # the largest whose column of a heat map is computed while a slider moves
WIDEST_CV = 1 / math.sqrt(3)  # of uniform lengths from 0 to twice the mean
MOST_BURSTY = 1000  # the largest burst rate, in mean rates, that the control takes
State = Any  # of `state`, which is made from the kinds
Ranges = dict[str, tuple[float, ...]]  # of sliders: low, high and perhaps a step


class Kind(abc.ABC):
    """A kind of run: its controls, the scenarios that they make, its runs and the reasons for their changes.

    Nothing outside the subclasses asks which kind it has: a new one is a subclass, named in `KINDS`.
    """

    name: str  # as `Scenario.kind` has it
    parts: Parts  # of its scenarios
    base: Scenario  # which has all these parts
    controls: Mapping[str, Control]  # in the order in which pages show them
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
    def options(self) -> dict[str, Mapping[str, Option]]:
        """The options of each list, by the control that chooses from it."""
        return {part.chooser: part.options for part in self.parts.values() if part.chooser}

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

    def window(self, data: ViewData, server: int) -> Window | None:
        """Return what a film plays: the part around the one that its view shows; None if there is none."""
        return None

    def changes(self, before: State, name: str, value: Any) -> Values:
        """Return the values that change when a hand moves one control."""
        return {name: value} | ({"server": ""} if name == self.rule else {})

    def served(self, state: State, config: ServerConfig, scenario: Scenario) -> State:
        """Return the state with a server's settings in place of the rule and the servers of its scenario."""
        meant = config.apply(scenario, silent=True)
        (before, _), (after, given) = (read(self.parts, self.controls, each) for each in (scenario, meant))
        changes = {name: value for name, value in after.items() if value != before.get(name, before)}
        given = {path: it for path, it in state.given.items() if it.values is not None} | given
        return state.replace(server=config.server, given=given, **changes)

    def fitting(self, state: State, config: ServerConfig) -> State:
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

    def rescaled(self, state: State, values: Values, keep_rate: bool = False) -> State:
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


def _burst_values(traffic: OnOff) -> Sequence[Any] | None:
    mean, burst = traffic.offered_per_s, traffic.on_rate_per_s
    if traffic.off_rate_per_s != 0 or burst >= MOST_BURSTY * mean:
        return None
    return mean, burst / mean, traffic.mean_on_s


def snake(cls: type) -> str:
    """Return the name of a class in snake case, as links have it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def without_sizes(cls: Any) -> dict[str, Parameter]:
    """Return the parameters of a class that are not about the sizes of requests."""
    return {name: it for name, it in cls.parameters().items() if not it.of_sizes}


def of_parameter(it: Parameter, page: str = MAIN) -> Control:
    """Return the control of a parameter that describes itself."""
    given = {"at_least": it.at_least, "at_most": it.at_most, "above": it.above}
    bounds: Values = {name: bound for name, bound in given.items() if bound is not None}
    if it.kind == "word":
        return choice(it.label, it.about, it.usual, page, {word: word.capitalize() for word in it.words})
    if it.kind == "real":
        bounds["finite"] = not it.may_be_inf
    elif it.at_most == LARGEST_TYPED:
        bounds["at_most"] = LARGEST_BATCH
    if it.kind == "sizes":
        del bounds["at_least"]
    scale = " ".join(["log"] * it.log + ["whole"] * (it.kind == "whole")) or "linear"
    slider = it.slider and Slider(scale, *it.slider)
    about = it.about + ("; inf: no limit" if it.may_be_inf else "; empty: no limit" if it.may_be_none else "")
    first = it.usual if it.usual is not None else (1,) if it.kind == "sizes" else it.at_least
    first = None if it.may_be_none else first
    return Control(it.label, about, it.kind, first, page, slider, bounds, it.may_be_none)


def lengths(of: str, equal: Option) -> dict[str, Option]:
    """Return the distributions of lengths, whose controls begin with `of`; `equal`: all are equal."""
    mean, cv, most = f"{of}_mean", f"{of}_cv", f"{of}_most"
    return {
        "lognormal": Option("Log-normal", sc.Lognormal, (mean, cv, most)),
        "geometric": Option("Geometric", sc.Geometric, (mean, most)),
        "uniform": Option("Uniform", sc.Uniform, (mean, cv), _uniform, _uniform_values),
        "fixed": equal,
    }


def _uniform(mean: float, cv: float) -> sc.Uniform:
    half = min(cv, WIDEST_CV) / WIDEST_CV * mean
    low = max(round(mean - half), 1)
    return sc.Uniform(low, max(round(mean + half), low))


def _uniform_values(lengths: sc.Uniform) -> tuple[float, float]:
    both = lengths.low + lengths.high
    return both / 2, WIDEST_CV * (lengths.high - lengths.low) / both


def _of_workload(cls: Any) -> tuple[str, Option]:
    """Return the option of a workload: its mean rate has one control, even if its field has another name."""
    controls = tuple(RATE if name.endswith(RATE) else name for name in cls.parameters())
    return snake(cls), Option(cls.title, cls, controls)


# Workloads whose controls are not their parameters.
_OTHERS = {
    OnOff: ("onoff", Option(OnOff.title, OnOff, (RATE, "burst_factor", "mean_burst_s"),
        make=lambda rate_per_s, factor, on_s: OnOff(rate_per_s * factor, 0, on_s, on_s * (factor - 1)),
        read=_burst_values)),
    ClosedLoop: ("closed", Option(ClosedLoop.title, ClosedLoop, ("clients", "think_ms"),
        make=lambda clients, think_ms: ClosedLoop(clients, think_ms / 1000),
        read=lambda loop: (loop.clients, loop.think_s * 1000))),
}  # fmt: skip
WORKLOADS: Mapping[str, Option] = dict(_OTHERS.get(cls) or _of_workload(cls) for cls in sc.WORKLOADS)
_SHOWN = {name for option in WORKLOADS.values() for name in option.controls}
TRAFFIC = {
    "workload": choice("Arrivals", "How requests arrive", "poisson", ARRIVALS, WORKLOADS),
    **{
        name: of_parameter(it, ARRIVALS)
        for workload in sc.WORKLOADS for name, it in workload.parameters().items() if name in _SHOWN
    },
    "rate_per_s": Control("Arrival rate (per s)", "Mean number of requests per second",
        "real", 1000, MAIN, Slider("log", 1, 10_000, 0.01), {"above": 0}),
    "burst_factor": Control("Burst rate (x mean)", "Arrival rate in a burst; no arrivals between bursts",
        "real", 5, ARRIVALS, Slider("linear", 1.1, 20, 0.1), {"above": 1, "at_most": MOST_BURSTY}),
    "mean_burst_s": Control("Mean burst (s)", "Mean duration of a burst",
        "real", 0.1, ARRIVALS, Slider("log", 0.001, 100, 0.01), {"above": 0}),
    "clients": Control("Clients", "Each sends a request, waits for the answer, thinks, and sends the next",
        "whole", 64, MAIN, Slider("whole", 1, 256), {"at_most": 100_000}),
    "think_ms": Control("Think time (ms)", "Mean time between an answer and the client's next request",
        "real", 0, ARRIVALS, Slider("linear", 0, 1000), {"at_least": 0}),
}  # fmt: skip
NOISE = {
    "noise_cv": Control("Noise (CV)", "Standard deviation over mean of equal batches' computing times",
        "real", 0, COMPUTING, Slider("linear", 0, 2, 0.05), {"at_least": 0, "at_most": 1e3}),
    "noise": choice("Noise distribution", "Distribution of the computing times", "lognormal", None, SHAPES),
    "noise_correlation": Control("Noise correlation", "Correlation of successive batches' times", "real", 0,
        None, None, {"at_least": 0, "at_most": 1}),
    "noise_batches": Control("Noise memory", "Batches until the correlation decays to 1/e", "real", 10,
        None, None, {"above": 0, "at_most": 1e6}),
}  # fmt: skip


def _noise_values(noise: Noise | None, _: Any) -> Values:
    if noise is None:
        return {"noise_cv": 0}
    values = {"noise_cv": noise.cv, "noise": noise.shape}
    if noise.correlation:
        values |= {"noise_correlation": noise.correlation, "noise_batches": noise.memory_batches}
    return values


NOISE_PART = Part(
    tuple(NOISE),
    lambda values, _: Noise(*(values[name] for name in NOISE)) if values["noise_cv"] else None,
    _noise_values,
)


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
WORKLOAD_PART = _LISTED._replace(make=_workload, read=_workload_values)


def all_parts(own: Parts, controls: Mapping[str, Control]) -> Parts:
    """Return the parts of a kind's scenarios: its own, and the other fields.

    A field that has a control of its name is that control's value.
    """
    usual = {field.name: field.default for field in dataclasses.fields(Scenario) if field.name != "tokens"}
    fields = {name: same(name) if name in controls else unshown(value) for name, value in usual.items()}
    return {**fields, "watts": WATTS_PART, "workload": WORKLOAD_PART, **own}


def routing_part(options: Mapping[str, Option]) -> Part:
    """Return the part of the router, which a scenario may store as a name."""
    part = chosen("routing", options)
    return part._replace(
        make=lambda values, given: checked_routing(part.make(values, given)),
        read=lambda routing, _: part.read(router_of(routing), None),
    )


SERVERS = {
    "servers": Control("Servers", "Model instances; each computes one batch, or one step, at a time",
        "whole", 1, MAIN, Slider("whole", 1, 8), {"at_most": 64}),
}  # fmt: skip


ROUTINGS: Mapping[str, Option] = {
    name: Option(routing.title, routing, ("keys", "popularity") if routing is ByKey else (),
        read=(lambda it: (it.keys, it.popularity) if isinstance(it.keys, int) else None)
        if routing is ByKey else None)
    for name, routing in NAMES.items()
}  # fmt: skip
REPLICAS = {
    "replicas": Control("Replicas",
        "Copies of all servers, each with its own queue, behind a router; 1: no router",
        "whole", 1, RULE, Slider("whole", 1, 8), {"at_most": 64}),
    "routing": choice("Routing", "The replica to which the router sends a request", "round_robin", RULE,
        ROUTINGS),
    "keys": Control("Keys", "Number of different keys; those of one key go to one replica",
        "whole", 100, RULE, Slider("log whole", 1, 10_000, 0.01), {"at_most": MOST_KEYS}),
    "popularity": of_parameter(ByKey.parameters()["popularity"], RULE),
    "stale_ms": Control("Age of loads (ms)", "Time since the compared loads were counted; 0: none",
        "real", 0, RULE, Slider("linear", 0, 100, 0.5), {"at_least": 0}),
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
LIMITS = {
    "queue_limit": Control("Queue limit",
        "Reject arrivals while this many requests wait, including those of the same instant; empty: no limit",
        "whole", None, RULE, optional=True),
    "timeout_ms": Control("Timeout (ms)", "Requests that have waited this long give up; empty: never",
        "real", None, RULE, None, {"at_least": 0}, optional=True),
    "price_per_hour": Control("Price (per hour)", "Cost of a server, in any currency; empty: not known",
        "real", None, COMPUTING, Slider("linear", 0, 10, 0.1), {"at_least": 0}, optional=True),
    "watts": Control("Power (W)",
        "Power of a server by batch size, e.g. 0:60, 1:150, 32:300, 0 while idle, linear between; "
        "empty: not known",
        "watts", (), COMPUTING, optional=True),
    "map_metric": choice("Heat map of", "The number of a setting that is its colour on the heat map",
        "latency", COMPUTING, {"latency": "Latency, or goodput", "joules": "Energy"}),
}  # fmt: skip
WATTS_PART = Part(("watts",), lambda values, _: dict(values["watts"]) or None,
    lambda watts, _: {"watts": tuple(sorted((watts or {}).items()))})  # fmt: skip
SEED = {
    "seed": Control("Seed", "The same seed gives the same traffic",
        "whole", 0, SHARE, None, {"at_least": 0, "at_most": 2**63 - 1}),
}  # fmt: skip


def full_only(size: int) -> SizeOrWait:
    """Return the rule under which only full batches leave."""
    return SizeOrWait(size, float("inf"))


def size_of_full(rule: SizeOrWait) -> tuple[int] | None:
    """Return `max_batch_size` if only full batches leave, else None."""
    return (rule.max_batch_size,) if rule.max_wait_ms == float("inf") and not rule.by_size else None
