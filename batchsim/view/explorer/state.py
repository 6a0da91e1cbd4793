"""What the explorer's controls say, as plain values: a scenario, its Python, and a line of text to share."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl, quote

from batchsim import _check
from batchsim.scenario import (
    Affine,
    AtLeast,
    ClosedLoop,
    Constant,
    Diurnal,
    Gamma,
    OnOff,
    OpenLoop,
    Poisson,
    Scenario,
    Service,
    SizeOrWait,
    Table,
    published,
)
from batchsim.scenario.rules import Rule
from batchsim.view.explorer.fields import CHECKS, checked, read


@dataclass(frozen=True)
class State:
    """A value for every control, whether the chosen kinds use it or not.

    `curve` are the points of a measured service time, (batch size, ms), and `curve_of` says whose it is.
    `objective_ms` is for the p99. None: no such limit, or no objective.

    >>> State(rate_per_s=500).scenario().load
    0.203125
    >>> State(rate_per_s=500, servers=2).to_link()
    'rate_per_s=500&servers=2'
    >>> State.from_link("?rate_per_s=500&servers=2") == State(rate_per_s=500, servers=2)
    True
    """

    workload: str = "poisson"
    rate_per_s: float = 1000
    cv: float = 3  # of gamma's gaps
    burst_factor: float = 5  # the rate within a burst over the mean rate; nothing comes between two
    mean_burst_s: float = 0.1
    peak_to_mean: float = 1.8
    period_s: float = 20
    clients: int = 64
    think_ms: float = 0
    rule: str = "size_or_wait"
    max_batch_size: int = 32
    max_wait_ms: float = 10
    min_batch_size: int = 8
    service: str = "affine"
    fixed_ms: float = 5
    per_item_ms: float = 0.25
    published: str = "resnet50/t4/fp16"
    curve: tuple[tuple[int, float], ...] = ()
    curve_of: str = ""
    noise_cv: float = 0
    noise: str = "lognormal"
    padding: tuple[int, ...] = ()
    servers: int = 1
    sharing: float = 0  # each further busy server slows all of them by this part
    queue_limit: int | None = None
    timeout_ms: float | None = None
    objective_ms: float | None = 25
    seed: int = 0

    def __post_init__(self) -> None:
        for name in CHECKS:
            object.__setattr__(self, name, checked(name, getattr(self, name)))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values changed."""
        return dataclasses.replace(self, **changes)

    # As a scenario.

    def scenario(self, traffic: OpenLoop | None = None) -> Scenario:
        """Return the scenario; `traffic` is what "given" stands for. ValueError where none can be."""
        slowdown = {busy: 1 + self.sharing * (busy - 1) for busy in range(1, self.servers + 1)}
        return Scenario(
            workload=self._workload(traffic),
            rule=self._rule(),
            service=self.service_time(),
            servers=self.servers,
            queue_limit=self.queue_limit,
            timeout_ms=self.timeout_ms,
            slowdown=slowdown if self.sharing and self.servers > 1 else None,
        )

    def _workload(self, traffic: OpenLoop | None) -> OpenLoop | ClosedLoop:
        rate_per_s = self.rate_per_s
        match self.workload:
            case "poisson":
                return Poisson(rate_per_s)
            case "constant":
                return Constant(rate_per_s)
            case "gamma":
                return Gamma(rate_per_s, self.cv)
            case "onoff":
                on_s = self.mean_burst_s
                return OnOff(rate_per_s * self.burst_factor, 0, on_s, on_s * (self.burst_factor - 1))
            case "diurnal":
                return Diurnal(rate_per_s, self.peak_to_mean, self.period_s)
            case "closed":
                return ClosedLoop(self.clients, self.think_ms / 1000)
        if traffic is None:
            raise ValueError("workload='given' must come with traffic: explore(workload=...), got none")
        return traffic.with_rate(rate_per_s)

    def _rule(self) -> Rule:
        if self.rule == "at_least":
            return AtLeast(self.min_batch_size, self.max_batch_size)
        return SizeOrWait(self.max_batch_size, math.inf if self.rule == "full_only" else self.max_wait_ms)

    def service_time(self) -> Service:
        """Return how long a batch computes, noise and padding included."""
        service: Service
        if self.service == "affine":
            service = Affine(self.fixed_ms, self.per_item_ms)
        elif self.service == "published":
            service = published(self.published)
        else:
            service = Table(self.curve)
        service = service.with_noise(self.noise_cv, self.noise) if self.noise_cv else service
        return service.padded_to(self.padding) if self.padding else service

    def python(self, requests: int, traffic: OpenLoop | None = None) -> str:
        """Return Python that runs the same; given traffic is to be put in by the reader."""
        scenario = self.scenario(traffic)
        if isinstance(scenario.workload, OpenLoop) and scenario.workload.max_requests is not None:
            requests = min(requests, scenario.workload.max_requests)
        service = f"bs.{scenario.service!r}"
        if self.service == "published":
            plain = f"bs.{published(self.published)!r}"
            service = service.replace(plain, f'bs.published("{self.published}")')
        workload = f"bs.{scenario.workload!r}"
        if self.workload == "given":
            workload = f"traffic.with_rate({self.rate_per_s!r}),  # traffic: {traffic!r}"
        rule = f"bs.{scenario.rule!r}".replace("=inf", '=float("inf")')
        others = {"servers": 1, "queue_limit": None, "timeout_ms": None, "slowdown": None}
        lines = [
            f"{name}={getattr(scenario, name)!r},"
            for name, usual in others.items()
            if getattr(scenario, name) != usual
        ]
        inside = [f"workload={workload.removesuffix(',')},", f"rule={rule},", f"service={service},", *lines]
        if self.workload == "given":
            inside[0] = f"workload={workload}"
        return "\n".join(
            [
                "import batchsim as bs",
                "",
                "scenario = bs.Scenario(",
                *(f"    {line}" for line in inside),
                ")",
                f"result = bs.simulate(scenario, requests={requests:_}, seed={self.seed})",
                "print(result)",
                "",
            ]
        )

    # As a line of text.

    def to_link(self) -> str:
        """Return what differs from the defaults as `name=value&...`."""
        return "&".join(
            f"{name}={quote(as_text(value), safe=':,/ ')}".replace(" ", "+")
            for name, value in self.beside(DEFAULT).items()
        )

    def beside(self, other: "State") -> dict[str, Any]:
        """Return the values that are not another state's."""
        mine = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in mine.items() if value != getattr(other, name)}

    @classmethod
    def from_link(cls, text: str) -> Self:
        """Return what a line of text says: `to_link`'s, or an address that ends in it after a `?`."""
        text = text.strip()
        query = text.rpartition("?")[2]
        known = {f.name for f in dataclasses.fields(cls)}
        if query and "=" not in query:
            raise ValueError(f"a link must be like rate_per_s=900&servers=2, got {text!r:.80}")
        said: dict[str, Any] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in known:
                raise ValueError(
                    f"a link must name the explorer's controls, got {name!r}" + _check.nearest(name, known)
                )
            if name in said:
                raise ValueError(f"a link must say each control once, got {name} twice")
            said[name] = read(name, value)
        return cls(**said)

    @classmethod
    def of(cls, scenario: Scenario, **others: Any) -> Self:
        """Return the state of a scenario; ValueError where the controls cannot say it.

        >>> State.of(State(rule="at_least", servers=3).scenario()) == State(rule="at_least", servers=3)
        True
        """
        slowdown, sharing = scenario.slowdown, 0.0
        if slowdown is not None:
            sharing = slowdown.get(2, 1.0) - 1
            if any(abs(slowdown[n] - 1 - sharing * (n - 1)) > 1e-9 for n in range(1, scenario.servers + 1)):
                raise ValueError(f"slowdown must grow evenly to be explored, got {slowdown!r}")
        rule = scenario.rule
        if type(rule) not in (SizeOrWait, AtLeast):
            raise ValueError(f"a rule must be SizeOrWait or AtLeast to be explored, got {rule!r}")
        values = {
            **workload_values(scenario.workload),
            **service_values(scenario.service),
            "max_batch_size": rule.max_batch_size,
            "servers": scenario.servers,
            "sharing": sharing,
            "queue_limit": scenario.queue_limit,
            "timeout_ms": scenario.timeout_ms,
        }
        if isinstance(rule, AtLeast):
            values |= {"rule": "at_least", "min_batch_size": rule.min_batch_size}
        elif math.isinf(rule.max_wait_ms):
            values["rule"] = "full_only"
        else:
            values["max_wait_ms"] = rule.max_wait_ms
        return cls(**values | others)


def workload_values(workload: OpenLoop | ClosedLoop) -> dict[str, Any]:
    """Return the controls' values for a workload: "given" for what they cannot say."""
    match workload:
        case ClosedLoop():
            return {"workload": "closed", "clients": workload.clients, "think_ms": workload.think_s * 1000}
        case Poisson() | Constant():
            return {"workload": type(workload).__name__.lower(), "rate_per_s": workload.rate_per_s}
        case Gamma():
            return {"workload": "gamma", "rate_per_s": workload.rate_per_s, "cv": workload.cv}
        case Diurnal():
            values = {"peak_to_mean": workload.peak_to_mean, "period_s": workload.period_s}
            return {"workload": "diurnal", "rate_per_s": workload.mean_rate_per_s, **values}
        case OnOff() if (
            workload.off_rate_per_s == 0 and workload.on_rate_per_s < 1000 * workload.offered_per_s
        ):
            rate_per_s = workload.offered_per_s
            values = {"burst_factor": workload.on_rate_per_s / rate_per_s, "mean_burst_s": workload.mean_on_s}
            return {"workload": "onoff", "rate_per_s": rate_per_s, **values}
    offered = workload.offered_per_s
    return {"workload": "given"} | ({"rate_per_s": offered} if 0 < offered < math.inf else {})


def service_values(service: Service, curve_of: str = "") -> dict[str, Any]:
    """Return the controls' values for a service time: its points, where it is no formula."""
    values: dict[str, Any] = {"padding": service.padding or ()}
    if service.noise is not None:
        values |= {"noise_cv": service.noise.cv, "noise": service.noise.shape}
    if isinstance(service, Affine):
        return values | {
            "service": "affine",
            "fixed_ms": service.fixed_ms,
            "per_item_ms": service.per_item_ms,
        }
    if isinstance(service, Table):
        return values | {"service": "curve", "curve": service.points_ms, "curve_of": curve_of}
    raise TypeError(f"service must be an Affine or a Table to be explored, got {service!r}")


def as_text(value: Any) -> str:
    """Return a value as a link says it."""
    if isinstance(value, tuple):
        return ",".join(f"{v[0]}:{v[1]!r}" if isinstance(v, tuple) else str(v) for v in value)
    return "none" if value is None else str(value).removesuffix(".0")


DEFAULT = State()
