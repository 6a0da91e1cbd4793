"""The values of the explorer's controls: as a scenario, as Python, and as a line of text to share."""

import dataclasses
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

from batchsim import _check
from batchsim.scenario import OpenLoop, Rule, Scenario, Tokens
from batchsim.scenario.routing import Routing
from batchsim.scenario.traffic import UNIT
from batchsim.simulate import available
from batchsim.view.explorer import presets
from batchsim.view.explorer.control import Option
from batchsim.view.explorer.kind import Kind, Workload
from batchsim.view.explorer.kinds import CONTROLS, FIRST, KINDS
from batchsim.view.pictures.views import NAMES


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
    """A value for every control of `CONTROLS`, including those that the chosen options ignore; immutable.

    `curve` holds the points of a measured service time, (batch size, ms), `size_table` the rows of one with
    lengths, and `curve_of` its origin.
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

    @property
    def kind(self) -> Kind:
        """The kind of run."""
        return KINDS[self.mode]

    def option(self, chooser: str) -> Option:
        """Return the chosen option of a list, such as "workload" or "rule"."""
        return self.kind.options[chooser][getattr(self, chooser)]

    @property
    def rule_option(self) -> Option:
        return self.option(self.kind.rule)

    # As a scenario.

    def made(self, chooser: str) -> Any:
        """Return the part that a list's option makes of the controls' values."""
        option = self.option(chooser)
        return option.made(getattr(self, name) for name in option.controls)

    def scenario(self, traffic: Workload | None = None, tokens: Tokens | None = None) -> Scenario:
        """Return the scenario; `traffic` and `tokens` replace "given". ValueError if they are missing."""
        if self.workload != "given":
            workload = self.made("workload")
        elif not isinstance(traffic, OpenLoop):
            raise ValueError("workload='given' must come with traffic: explore(workload=...), got none")
        else:
            workload = traffic.with_rate(self.rate_per_s)
        scenario = self.kind.scenario(self, workload, traffic, tokens)
        presets.check(self.server, scenario.rule)
        return scenario

    def service_time(self) -> Any:
        """Return the duration of a batch, or of a step: noise, padding and a cold start included."""
        return self.kind.service_time(self)

    def fitted(self) -> Self:
        """Return the state with every batch size of its rule at most `max_batch_size`.

        A larger size would be refused, so the slider of `max_batch_size` could not move below it.
        """
        largest, changes = self.max_batch_size, {}
        described = self.rule_option.part.parameters()  # type: ignore[attr-defined]  # of a rule
        for name in self.rule_option.controls:
            value = getattr(self, name)
            if name in described and described[name].of_sizes:
                continue
            if CONTROLS[name].kind == "sizes":
                changes[name] = tuple(size for size in value if size <= largest) or (largest,)
            elif name.endswith("batch_size"):
                changes[name] = min(value, largest)
        return self.replace(**changes)

    @classmethod
    def of(cls, scenario: Scenario, **others: Any) -> Self:
        """Return the state of a scenario; ValueError if the controls cannot express it.

        >>> State.of(State(rule="at_least", servers=3).scenario()) == State(rule="at_least", servers=3)
        True
        """
        values = KINDS[scenario.kind].values(scenario)
        return cls(**vars(DEFAULTS[scenario.kind]) | values | others)

    def python(
        self, requests: int, traffic: Workload | None = None, tokens: Tokens | None = None, **fields: Any
    ) -> str:  # fmt: skip
        """Return Python that runs the same; the reader must supply given traffic and tokens.

        `fields` are those of the scenario that no control has.
        """
        scenario = dataclasses.replace(self.scenario(traffic, tokens), **fields)
        requests = available(scenario, requests)
        workload, own = scenario.workload, self.workload != "given"
        text = f"bs.{dataclasses.replace(workload, sizes=None)!r}"
        if not own:
            added = self.priorities and (traffic is None or self.priorities != traffic.priorities)
            levels = f".with_priorities({dict(self.priorities)})" if added else ""
            text = f"traffic.with_rate({self.rate_per_s!r}){levels}"
        if workload.sizes != (None if own or traffic is None else traffic.sizes):
            sizes = "traffic.sizes" if self.sizes == "given" else f"bs.{workload.sizes!r}"
            unit = "" if workload.size_unit == UNIT else f", {workload.size_unit!r}"
            text += f".with_sizes({sizes.replace('bs.None', 'None')}{unit})"
        given = "" if own and self.sizes != "given" else f"  # traffic: {traffic!r}"
        parts = self.kind.python(self, scenario)
        lines = [f"workload={text},{given}", f"rule={parts['rule']},", f"service={parts['service']},"]
        for item in dataclasses.fields(scenario)[3:]:
            value = getattr(scenario, item.name)
            written = f"bs.routing.{value!r}" if isinstance(value, Routing) else repr(value)
            lines += [f"{item.name}={parts.get(item.name, written)},"] if value != item.default else []
        arguments = "".join(f"    {line}\n" for line in lines)
        return (
            f"import batchsim as bs\n\nscenario = bs.Scenario(\n{arguments})\n"
            f"result = bs.simulate(scenario, requests={requests:_}, seed={self.seed})\nprint(result)\n"
        )

    # As a line of text.

    def to_link(self) -> str:
        """Return the values that differ from the defaults as `name=value&...`."""
        differences = self.differences(DEFAULTS[self.mode])
        if self.mode != FIRST:
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
            if name == "view":  # see `view_of`
                continue
            if name not in CONTROLS:
                hint = _check.nearest(name, CONTROLS)
                raise ValueError(f"a link must name the explorer's controls, got {name!r}{hint}")
            if name in values:
                raise ValueError(f"a link must set each control once, got {name} twice")
            values[name] = CONTROLS[name].read(name, value)
        return cls(**vars(DEFAULTS[values.get("mode", FIRST)]) | values)


def view_of(link: str, mode: str) -> str | None:
    """Return the large view that a link names, None if it names none."""
    named = dict(parse_qsl(link.strip().rpartition("?")[2])).get("view")
    if named is not None and named not in NAMES[mode]:
        raise ValueError(f"view must be one of {', '.join(NAMES[mode])}, got {named!r:.80}")
    return named


def as_text(value: Any) -> str:
    """Return a value as a link writes it.

    >>> as_text(10.0), as_text("llama-3.0"), as_text(((1, 2.5), (8, 3.0))), as_text(None)
    ('10', 'llama-3.0', '1:2.5,8:3.0', 'none')
    """
    if isinstance(value, tuple):
        return ",".join(":".join(map(repr, v)) if isinstance(v, tuple) else str(v) for v in value)
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return "none" if value is None else str(value)


# The state that each kind of run begins with.
DEFAULTS = {
    name: State(**{each: control.default for each, control in kind.controls.items()} | {"mode": name})
    for name, kind in KINDS.items()
}
DEFAULT = DEFAULTS[FIRST]


def of_rule(rule: Rule) -> State:
    """Return the state that an explorer of a rule begins with, before its traffic fits the rule."""
    for first in DEFAULTS.values():
        if (values := first.kind.values_of(first.kind.rule, rule)) is not None:
            return first.replace(**values)
    raise ValueError(f"a rule must be registered to be explored, got {rule!r}")
