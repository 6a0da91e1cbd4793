"""What the explorer's controls say, as plain values: a scenario, its Python, and a line of text to share."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

from batchsim import _check
from batchsim.measured.published import published
from batchsim.scenario import ClosedLoop, OpenLoop, Scenario, Service, Tokens
from batchsim.simulate import available
from batchsim.view.explorer import state_tokens
from batchsim.view.explorer.control import MODES, REQUESTS, TOKENS, Kind
from batchsim.view.explorer.controls_table import CONTROLS
from batchsim.view.explorer.kinds import KINDS, noise_values, values_of

# Controls that are the scenario's own fields, under the same name.
OWN = ("servers", "queue_limit", "timeout_ms", "timeout_action", "devices", "host_ms", "contention")


def _check_values(values: Any) -> None:
    for name, control in CONTROLS.items():
        object.__setattr__(values, name, control.check(name, getattr(values, name)))


_Values: Any = dataclasses.make_dataclass(
    "_Values",
    [(name, Any, control.default) for name, control in CONTROLS.items()],
    frozen=True,
    namespace={"__post_init__": _check_values},
)


class State(_Values):
    """A value for every control of `CONTROLS`, whether the chosen kinds use it or not; it never changes.

    `curve` holds the points of a measured service time, (batch size, ms), and `curve_of` its origin.
    `objective_ms` is for the p99. None: no such limit, or no objective.

    >>> State(rate_per_s=500).scenario().load
    0.203125
    >>> State(rate_per_s=500, servers=2).to_link()
    'rate_per_s=500&servers=2'
    >>> State.from_link("?rate_per_s=500&servers=2") == State(rate_per_s=500, servers=2)
    True
    """

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values changed."""
        return dataclasses.replace(self, **changes)

    def differences(self, other: "State") -> dict[str, Any]:
        """Return the values that differ from another state's."""
        return {name: value for name, value in vars(self).items() if value != getattr(other, name)}

    # As a scenario.

    @property
    def in_tokens(self) -> bool:
        """Whether it is about token generation."""
        return bool(self.mode == TOKENS)

    def kind(self, choice: str) -> Kind:
        """Return the kind that is chosen, as for "workload", "rule" or "service"."""
        return KINDS[choice][getattr(self, choice)]

    @property
    def rule_kind(self) -> Kind:
        """The kind of the rule."""
        return self.kind("batching" if self.in_tokens else "rule")

    def made(self, choice: str) -> Any:
        """Return what is chosen, made of the controls' values."""
        kind = self.kind(choice)
        return (kind.make or kind.part)(*(getattr(self, name) for name in kind.controls))

    def scenario(self, traffic: OpenLoop | None = None, tokens: Tokens | None = None) -> Scenario:
        """Return the scenario; `traffic`, `tokens` are what "given" stands for. ValueError without any."""
        if self.workload != "given":
            workload = self.made("workload")
        elif traffic is None:
            raise ValueError("workload='given' must come with traffic: explore(workload=...), got none")
        else:
            workload = traffic.with_rate(self.rate_per_s)
        if self.in_tokens:
            return state_tokens.scenario_of(self, workload, tokens)
        if self.priorities or workload.priorities:
            workload = dataclasses.replace(workload, priorities=self.priorities or None)
        # Servers share devices, or slow each other down, or neither.
        sharing: dict[str, Any] = {}
        if self.devices is not None:  # the slider of the servers moves below them, too
            devices = min(self.devices, self.servers)
            sharing = {"devices": devices, "host_ms": self.host_ms, "contention": self.contention}
        elif self.sharing and self.servers > 1:
            sharing["slowdown"] = {busy: 1 + self.sharing * (busy - 1) for busy in range(1, self.servers + 1)}
        return Scenario(
            workload, self.made("rule"), self.service_time(), self.servers, self.queue_limit,
            self.timeout_ms, timeout_action=self.timeout_action, **sharing,
        )  # fmt: skip

    def service_time(self) -> Service:
        """Return how long a batch, or a step, computes: noise, padding and a cold start included."""
        service: Service = self.made("step" if self.in_tokens else "service")
        if self.noise_cv:
            lasting = self.noise_correlation, self.noise_batches
            service = service.with_noise(self.noise_cv, self.noise, *lasting)
        if self.in_tokens:
            return service
        service = service.padded_to(self.padding) if self.padding else service
        return service.compiling(self.compile_ms) if self.compile_ms else service

    def fitted(self) -> Self:
        """Return the state with every batch size of its rule at most `max_batch_size`.

        A larger one would be refused, and the slider of `max_batch_size` could not move below it.
        """
        largest, changes = self.max_batch_size, {}
        for name in self.rule_kind.controls:
            value = getattr(self, name)
            if CONTROLS[name].kind == "sizes":
                changes[name] = tuple(size for size in value if size <= largest) or (largest,)
            elif name.endswith("batch_size"):
                changes[name] = min(value, largest)
        return self.replace(**changes)

    @classmethod
    def of(cls, scenario: Scenario, **others: Any) -> Self:
        """Return the state of a scenario; ValueError where the controls cannot express it.

        >>> State.of(State(rule="at_least", servers=3).scenario()) == State(rule="at_least", servers=3)
        True
        """
        if scenario.tokens is not None:
            values = workload_values(scenario.workload) | state_tokens.values_from(scenario)
            del values["priorities"]  # which tokens do not have
            return cls(**vars(DEFAULTS[TOKENS]) | values | others)
        slowdown, sharing = scenario.slowdown, 0.0
        if slowdown is not None:
            sharing = slowdown.get(2, 1.0) - 1
            if any(abs(slowdown[n] - 1 - sharing * (n - 1)) > 1e-9 for n in range(1, scenario.servers + 1)):
                raise ValueError(f"slowdown must grow evenly to be explored, got {slowdown!r}")
        rule = values_of("rule", scenario.rule)
        if rule is None:
            raise ValueError(f"a rule must be registered to be explored, got {scenario.rule!r}")
        values = {name: getattr(scenario, name) for name in OWN}
        for name, value in values.items():
            if isinstance(value, Mapping):
                raise ValueError(f"{name} must be the same for all levels to be explored, got {value!r}")
        if scenario.devices is None and (scenario.host_ms > 0 or scenario.contention > 1):
            values["devices"] = scenario.servers  # which is the same
        values |= workload_values(scenario.workload) | rule | service_values(scenario.service)
        return cls(**values | {"sharing": sharing} | others)

    def python(
        self, requests: int, traffic: OpenLoop | None = None, tokens: Tokens | None = None
    ) -> str:  # fmt: skip
        """Return Python that runs the same; given traffic and tokens are to be put in by the reader."""
        scenario = self.scenario(traffic, tokens)
        requests = available(scenario, requests)
        workload = f"bs.{scenario.workload!r},"
        if self.workload == "given":
            added = self.priorities and (traffic is None or self.priorities != traffic.priorities)
            levels = f".with_priorities({dict(self.priorities)})" if added else ""
            workload = f"traffic.with_rate({self.rate_per_s!r}){levels},  # traffic: {traffic!r}"
        service = f"bs.{scenario.service!r}"
        if self.service == "published":  # by its name, not point by point
            points = f"bs.{published(self.published)!r}"
            service = service.replace(points, f'bs.published("{self.published}")')
        rule = f"bs.{scenario.rule!r}".replace("=inf", '=float("inf")')
        said = {"rule": rule, "service": service}
        if self.in_tokens:
            said = state_tokens.python_of(self, scenario)
        lines = [f"workload={workload}", f"rule={said['rule']},", f"service={said['service']},"]
        for item in dataclasses.fields(scenario)[3:]:
            value = getattr(scenario, item.name)
            lines += [f"{item.name}={said.get(item.name, repr(value))},"] if value != item.default else []
        arguments = "".join(f"    {line}\n" for line in lines)
        return (
            f"import batchsim as bs\n\nscenario = bs.Scenario(\n{arguments})\n"
            f"result = bs.simulate(scenario, requests={requests:_}, seed={self.seed})\nprint(result)\n"
        )

    # As a line of text.

    def to_link(self) -> str:
        """Return what differs from the defaults as `name=value&...`."""
        differences = self.differences(DEFAULTS[self.mode])
        if self.mode != REQUESTS:
            differences = {"mode": self.mode} | differences
        return urlencode({name: as_text(value) for name, value in differences.items()}, safe=":,/")

    @classmethod
    def from_link(cls, text: str) -> Self:
        """Return the state of a line of text: `to_link`'s, or an address that ends in it after a `?`."""
        text = text.strip()
        query = text.rpartition("?")[2]
        if query and "=" not in query:
            raise ValueError(f"a link must be like rate_per_s=900&servers=2, got {text!r:.80}")
        values: dict[str, Any] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in CONTROLS:
                hint = _check.nearest(name, CONTROLS)
                raise ValueError(f"a link must name the explorer's controls, got {name!r}{hint}")
            if name in values:
                raise ValueError(f"a link must set each control once, got {name} twice")
            values[name] = CONTROLS[name].read(name, value)
        mode = values.get("mode", REQUESTS)
        return cls(**vars(DEFAULTS[mode]) | values)


def workload_values(workload: OpenLoop | ClosedLoop) -> dict[str, Any]:
    """Return the controls' values for a workload: "given" for one that they cannot express."""
    values = values_of("workload", workload)
    if values is None:
        if not isinstance(workload, OpenLoop):
            raise TypeError(f"a workload must be one of batchsim's to be explored, got {workload!r}")
        values, offered = {"workload": "given"}, workload.offered_per_s
        values |= {"rate_per_s": offered} if 0 < offered < float("inf") else {}
    return values | {"priorities": workload.priorities or ()}


def service_values(service: Service, curve_of: str = "") -> dict[str, Any]:
    """Return the controls' values for a service time: its points, where it is no formula."""
    values = values_of("service", service)
    if values is None:
        raise TypeError(f"service must be an Affine or a Table to be explored, got {service!r}")
    values["padding"] = service.padding or ()
    if service.compile_ms is not None:
        costs_ms = dict(service.compile_ms)
        if len(set(costs_ms.values())) > 1:
            raise ValueError(f"compile_ms must be one for all sizes to be explored, got {costs_ms!r}")
        values["compile_ms"] = next(iter(costs_ms.values()))
    return values | noise_values(service.noise) | ({"curve_of": curve_of} if "curve" in values else {})


def as_text(value: Any) -> str:
    """Return a value as a link writes it.

    >>> as_text(10.0), as_text("llama-3.0"), as_text(((1, 2.5), (8, 3.0))), as_text(None)
    ('10', 'llama-3.0', '1:2.5,8:3.0', 'none')
    """
    if isinstance(value, tuple):
        return ",".join(f"{v[0]}:{v[1]!r}" if isinstance(v, tuple) else str(v) for v in value)
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return "none" if value is None else str(value)


# The state that each mode begins with.
DEFAULTS = {
    mode: State(**{name: control.at_first(mode) for name, control in CONTROLS.items()} | {"mode": mode})
    for mode in MODES
}
DEFAULT = DEFAULTS[REQUESTS]
