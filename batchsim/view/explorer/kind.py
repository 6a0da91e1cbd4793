"""What the explorer needs of a kind of run; `requests` and `tokens` fill it in, and `kinds` lists them."""

import abc
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchsim import scenario as sc
from batchsim.result import Result
from batchsim.result.comparison import Difference
from batchsim.scenario import ClosedLoop, Noise, OnOff, OpenLoop, Scenario, SizeOrWait, Tokens
from batchsim.scenario.knobs import RATE
from batchsim.scenario.lengths import Listed
from batchsim.scenario.parameters import Parameter
from batchsim.scenario.routing import NAMES, ByKey
from batchsim.scenario.routing.by_key import MOST_KEYS
from batchsim.scenario.service import SHAPES
from batchsim.servers.server import Server, ServerConfig
from batchsim.simulate import available
from batchsim.study.slo import SLO
from batchsim.view.explorer.control import (
    ARRIVALS,
    CLASS,
    COMPUTING,
    MAIN,
    RULE,
    Control,
    Option,
    Slider,
    choice,
)  # fmt: skip
from batchsim.view.explorer.reasons import Outcome
from batchsim.view.explorer.runs import Stored
from batchsim.view.film.window import Window
from batchsim.view.pictures.data import ViewData

LARGEST_BATCH = 4096  # the largest whose column of a heat map is computed while a slider moves
WIDEST_CV = 1 / math.sqrt(3)  # of uniform lengths from 0 to twice the mean
MOST_BURSTY = 1000  # the largest burst rate, in mean rates, that the control takes
State = Any  # of `state`, which is made from the kinds
Workload = OpenLoop | ClosedLoop
Values = dict[str, Any]  # by the names of controls
Ranges = dict[str, tuple[float, ...]]  # of sliders: low, high and perhaps a step


class Kind(abc.ABC):
    """A kind of run: its controls, the scenarios that they make, its runs and the reasons for their changes.

    Nothing outside the subclasses asks which kind it has: a new one is a subclass, named in `KINDS`.
    """

    name: str  # as `Scenario.kind` has it
    options: Mapping[str, Mapping[str, Option]]  # of each list, by the control that chooses from it
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

    def relevant(self, control: str, values: Mapping[str, Any]) -> bool:
        """Return whether a control makes a difference, given the values of the others."""
        if control not in self.controls or not self.conditions.get(control, bool)(values):
            return False
        users = [(chooser, name) for chooser, options in self.options.items()
                 for name, option in options.items() if control in option.controls]  # fmt: skip
        return not users or any(values[chooser] == name for chooser, name in users)

    def values_of(self, chooser: str, part: Any) -> Values | None:
        """Return the controls' values for a part, including its option's name; None if no option has it."""
        options = {name: option.values(part) for name, option in self.options[chooser].items()}
        found = [{chooser: name, **values} for name, values in options.items() if values is not None]
        # If two options can express it, the one with fewer controls is meant: full batches only.
        return min(found, key=len, default=None)

    def replica_values(self, scenario: Scenario, count: str, chooser: str) -> Values:
        """Return the controls' values for the replicas and their routing."""
        if scenario.autoscale is not None:
            raise ValueError(f"autoscale must be None to be explored, got {scenario.autoscale!r}")
        routing = self.values_of(chooser, scenario.router)
        if routing is None:
            raise ValueError(f"a routing must be registered, with a number of keys, got {scenario.routing!r}")
        return routing | {count: scenario.replicas, "stale_ms": scenario.stale_ms}

    def workload_values(self, workload: Workload) -> Values:
        """Return the controls' values for a workload: "given" for one that they cannot express."""
        values = self.values_of("workload", workload)
        if values is None:
            if not isinstance(workload, OpenLoop):
                raise TypeError(f"a workload must be one of batchsim's to be explored, got {workload!r}")
            values, offered = {"workload": "given"}, workload.offered_per_s
            values |= {"rate_per_s": offered} if 0 < offered < float("inf") else {}
        return values

    def service_time(self, state: State) -> Any:
        """Return the duration of a batch, or of a step, with its noise."""
        service = state.made(self.service)
        if state.noise_cv:
            lasting = state.noise_correlation, state.noise_batches
            service = service.with_noise(state.noise_cv, state.noise, *lasting)
        return service

    @abc.abstractmethod
    def scenario(
        self, state: State, workload: Any, traffic: Workload | None, tokens: Tokens | None
    ) -> Scenario:  # fmt: skip
        """Return the scenario of a state; `traffic` has the sizes, and `tokens` the lengths, for "given"."""

    @abc.abstractmethod
    def values(self, scenario: Scenario) -> Values:
        """Return the controls' values for a scenario; ValueError if they cannot express it."""

    @abc.abstractmethod
    def service_values(self, service: Any, curve_of: str = "") -> Values:
        """Return the controls' values for a service time; `curve_of` names its model and device."""

    @abc.abstractmethod
    def python(self, state: State, scenario: Scenario) -> dict[str, str]:
        """Return Python for the rule, the service time, and each field whose `repr` is not Python."""

    def window(self, data: ViewData, server: int) -> Window | None:
        """Return what a film plays: the part around the one that its view shows; None if there is none."""
        return None

    def changes(self, before: State, name: str, value: Any) -> Values:
        """Return the values that change when a hand moves one control."""
        return {name: value} | ({"server": ""} if name == self.rule else {})

    def served(self, state: State, config: ServerConfig, scenario: Scenario) -> State:
        """Return the state with a server's settings in place of the rule and the servers of its scenario."""
        meant = config.apply(scenario, silent=True)
        return state.replace(server=config.server, **self.setting_values(meant))

    def fitting(self, state: State, config: ServerConfig) -> State:
        """Return the state with traffic that a server accepts."""
        return state

    def on_device(self, state: State) -> Mapping[str, Any]:
        """Return what a server's defaults depend on: its model and its card, if they are known."""
        return {}

    @abc.abstractmethod
    def slo(self, state: State) -> SLO | None:
        """Return the objective of a state; None without one."""

    @abc.abstractmethod
    def setting_values(self, scenario: Scenario) -> Values:
        """Return the controls' values for what a server's settings decide; ValueError if there are none."""

    @abc.abstractmethod
    def ranges(self, state: State, traffic: Workload | None, tokens: Tokens | None) -> Ranges:
        """Return the ranges of sliders that depend on the other controls."""

    def rescaled(
        self, state: State, values: Values, traffic: Workload | None = None, keep_rate: bool = False
    ) -> State:  # fmt: skip
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
    elif not it.of_sizes:
        bounds["at_most"] = min(bounds["at_most"], LARGEST_BATCH)
    if it.kind == "sizes":
        del bounds["at_least"]
    scale = "log" if it.log else "whole" if it.kind == "whole" else "linear"
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
        "given": Option(f"Given: the {of}s of this page", Listed, (), read=lambda lengths: ()),
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
WORKLOADS: Mapping[str, Option] = {
    **dict(_OTHERS.get(cls) or _of_workload(cls) for cls in sc.WORKLOADS),
    "given": Option("Given: the traffic of this page", OpenLoop, (RATE,)),  # made by the state
}
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
SERVERS = {
    "servers": Control("Servers", "Model instances; each computes one batch, or one step, at a time",
        "whole", 1, MAIN, Slider("whole", 1, 8), {"at_most": 64}),
}  # fmt: skip


def routings(of_tokens: bool) -> Mapping[str, Option]:
    """Return the options of routings; some need tokens."""
    return {
        name: Option(routing.title, routing, ("keys", "popularity") if routing is ByKey else (),
            read=(lambda it: (it.keys, it.popularity) if isinstance(it.keys, int) else None)
            if routing is ByKey else None)
        for name, routing in NAMES.items()
        if of_tokens or not routing.needs_tokens
    }  # fmt: skip


def replicas(
    options: Mapping[str, Option], page: str, names: tuple[str, str] = ("replicas", "routing"),
    labels: tuple[str, str] = ("Replicas", "Routing"),
) -> dict[str, Control]:  # fmt: skip
    """Return the controls of replicas; `names` and `labels` are those of their number and their routing."""
    count, chooser = names
    return {
        count: Control(labels[0],
            "Copies of all servers, each with its own queue, behind a router; 1: no router",
            "whole", 1, page, Slider("whole", 1, 8), {"at_most": 64}),
        chooser: choice(labels[1], "The replica to which the router sends a request", "round_robin", page,
            options),
        "keys": Control("Keys", "Number of different keys; those of one key go to one replica",
            "whole", 100, MAIN, Slider("log", 1, 10_000, 0.01), {"at_most": MOST_KEYS}),
        "popularity": of_parameter(ByKey.parameters()["popularity"]),
        "stale_ms": Control("Age of loads (ms)", "How old the loads are that the router sees; 0: present",
            "real", 0, RULE, Slider("linear", 0, 100, 0.5), {"at_least": 0}),
    }  # fmt: skip


def with_replicas(count: str, chooser: str) -> dict[str, Callable[[Mapping[str, Any]], bool]]:
    """Return when the controls of replicas make a difference."""
    return {
        **dict.fromkeys((chooser, "keys", "popularity"), lambda values: values[count] > 1),
        "stale_ms": lambda values: values[count] > 1 and NAMES[values[chooser]].sees_loads,
    }


LIMITS = {
    "queue_limit": Control("Queue limit",
        "Reject arrivals while this many requests wait, including those of the same instant; empty: no limit",
        "whole", None, RULE, optional=True),
    "timeout_ms": Control("Timeout (ms)", "Requests that have waited this long give up; empty: never",
        "real", None, RULE, None, {"at_least": 0}, optional=True),
}  # fmt: skip
SEED = {
    "seed": Control("Seed", "The same seed gives the same traffic",
        "whole", 0, CLASS, None, {"at_least": 0, "at_most": 2**63 - 1}),
}  # fmt: skip


def noise_values(noise: Noise | None) -> Values:
    """Return the controls' values for the noise of batches or steps."""
    if noise is None:
        return {}
    values = {"noise_cv": noise.cv, "noise": noise.shape}
    if noise.correlation:
        values |= {"noise_correlation": noise.correlation, "noise_batches": noise.memory_batches}
    return values


def full_only(size: int) -> SizeOrWait:
    """Return the rule under which only full batches leave."""
    return SizeOrWait(size, float("inf"))


def size_of_full(rule: SizeOrWait) -> tuple[int] | None:
    """Return `max_batch_size` if only full batches leave, else None."""
    return (rule.max_batch_size,) if rule.max_wait_ms == float("inf") and not rule.by_size else None
