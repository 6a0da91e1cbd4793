"""The values of the explorer's controls: as a scenario, as Python, and as a line of text to share."""

import dataclasses
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

from batchsim import _check
from batchsim._format import brief
from batchsim.measured.published import published
from batchsim.scenario import Rule, Scenario, Service, Tokens, Trace
from batchsim.scenario.lengths import Listed
from batchsim.scenario.prefixes import HashIds
from batchsim.scenario.traffic import UNIT
from batchsim.servers.server import ServerConfig
from batchsim.simulate import available
from batchsim.view.explorer import parts, presets
from batchsim.view.explorer.control import GIVEN, Option
from batchsim.view.explorer.kind import Kind
from batchsim.view.explorer.kinds import FIRST, KINDS, as_typed
from batchsim.view.explorer.parts import Given
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.pictures.views import NAMES

FIELDS = dataclasses.fields(Scenario)
KEPT = "kept"  # what names the parts that a link cannot say, in a link
LOOKS = "view", "more"  # in a link: the large view, see `view_of`, and whether all is there
MORE = "more=1"
OLD = {"token_replicas": "replicas", "token_routing": "routing"}  # names of controls in older links


def _check_values(values: Any) -> None:
    for name, control in CONTROLS.items():
        object.__setattr__(values, name, control.check(name, getattr(values, name)))


_Values: Any = dataclasses.make_dataclass(
    "_Values",
    [
        *((name, Any, control.default) for name, control in CONTROLS.items()),
        ("given", Mapping[str, Given], dataclasses.field(default_factory=dict, hash=False, repr=False)),
    ],
    frozen=True,
    namespace={"__post_init__": _check_values},
)


class State(_Values):
    """A value for every control of `CONTROLS`, including those that the chosen options ignore; immutable.

    `curve` holds the points of a measured service time, (batch size, ms), `size_table` the rows of one with
    lengths, and `curve_of` its origin.
    `objective_ms` is for the p99. None: no such limit, or no objective. `given` has the parts of a scenario
    that controls cannot say, by their place.

    >>> State(rate_per_s=500).scenario().load
    0.203125
    >>> State(rate_per_s=500, servers=2).to_link()
    'rate_per_s=500&servers=2'
    >>> State.from_link("?rate_per_s=500&servers=2") == State(rate_per_s=500, servers=2)
    True
    """

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values changed, which alone are checked again."""
        if unknown := changes.keys() - vars(self).keys():
            raise TypeError(f"a control must be one of the explorer's, got {min(unknown)!r}")
        checked = {
            name: CONTROLS[name].check(name, value) if name in CONTROLS else value
            for name, value in changes.items()
        }
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__ | checked)
        return new

    def differences(self, other: "State") -> dict[str, Any]:
        """Return the values that differ from another state's."""
        return {name: getattr(self, name) for name in CONTROLS if getattr(self, name) != getattr(other, name)}

    @property
    def kind(self) -> Kind:
        """The kind of run."""
        return KINDS[self.mode]

    def option(self, chooser: str) -> Option:
        """Return the chosen option of a list, such as "workload" or "rule"."""
        name = getattr(self, chooser)
        if name != GIVEN:
            return self.kind.options[chooser][name]
        path = next(path for path, part in self.kind.parts.items() if part.chooser == chooser)
        part = self.given[path].part if path in self.given else None
        return Option(f"Given: {brief(part)}", type(part), ())

    @property
    def rule_option(self) -> Option:
        return self.option(self.kind.rule)

    def may_be_given(self, chooser: str) -> bool:
        """Return whether a list has what was given."""
        return any(it.values and it.values.get(chooser) == GIVEN for it in self.given.values())

    # As a scenario.

    def part(self, path: str) -> Any:
        """Return the part of the scenario that is at a place, such as "workload.sizes"."""
        return parts.part_made(self.kind.parts[path], vars(self), self.given.get(path))

    def field(self, name: str) -> Any:
        """Return a field of the scenario, which itself may make no sense."""
        return parts.field_made(self.kind.parts, vars(self), self.given, self.kind.base, name)

    def scenario(self) -> Scenario:
        """Return the scenario; ValueError if it makes no sense, or lacks what was given."""
        scenario = parts.made(self.kind.parts, vars(self), self.given, self.kind.base)
        presets.check(self.server, scenario.rule)
        return scenario

    @property
    def unshown(self) -> list[str]:
        """The parts of the scenario, by their place, that no control shows."""
        return [path for path, it in self.given.items() if it.values is None]

    @property
    def needs(self) -> list[str]:
        """The parts of the scenario, by their place, that neither a control nor a link can say."""
        lists = {path: part.chooser for path, part in self.kind.parts.items() if part.chooser}
        chosen = [path for path in self.given if getattr(self, lists.get(path, ""), "") == GIVEN]
        return [*chosen, *self.unshown]

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
            if CONTROLS[name].type == "sizes":
                changes[name] = tuple(size for size in value if size <= largest) or (largest,)
            elif name.endswith("batch_size"):
                changes[name] = min(value, largest)
        return self.replace(**changes)

    def served(self, config: ServerConfig, scenario: Scenario) -> Self:
        """Return the state with a server's settings in place of the rule and the servers of its scenario."""
        meant = config.apply(scenario, silent=True)
        (before, _), (after, given) = (parts.read(self.kind.parts, each) for each in (scenario, meant))
        changes = {name: value for name, value in after.items() if value != before.get(name, before)}
        given = {path: it for path, it in self.given.items() if it.values is not None} | given
        return self.replace(server=config.server, given=given, **changes)

    @classmethod
    def of(cls, scenario: Scenario, **others: Any) -> Self:
        """Return the state of a scenario.

        >>> State.of(State(rule="at_least", servers=3).scenario()) == State(rule="at_least", servers=3)
        True
        """
        return cls(**vars(DEFAULTS[scenario.kind].having(scenario)) | others)

    def having(self, scenario: Any, only: str = "") -> Self:
        """Return the state with a scenario's values, or with those of `only` one of its fields."""
        places, names = self.kind.parts, [only] if only else [field.name for field in FIELDS]
        values, given = parts.read(places, scenario, only)
        state = self.replace(**values, given={**self.given, **given})
        again = SimpleNamespace(**{name: state.field(name) for name in names})
        return state.replace(given={**state.given, **parts.changed(places, scenario, again, only)})

    def python(self, requests: int) -> str:
        """Return Python that runs the same; the reader must supply parts that it names in a comment."""
        scenario, needs, lines = self.scenario(), Needs(), ""
        texts = {
            "workload": _workload(self, scenario.workload, needs),
            "rule": presets.python(self.server, scenario) or _rule(scenario.rule, needs),
            "service": _service(self, scenario.service, needs),
        }
        for field in FIELDS:
            value = getattr(scenario, field.name)
            if field.name == "tokens" and value is not None:
                texts["tokens"] = _tokens(value, needs)
            if value != field.default:
                lines += f"    {field.name}={texts.get(field.name) or _text(value, field.name, needs)},\n"
        comments = "".join(f"# {name}: {brief(value)}\n" for name, value in needs.items())
        run = f"requests={available(scenario, requests):_}, seed={self.seed}"
        return (
            f"import batchsim as bs\n\n{comments}scenario = bs.Scenario(\n{lines})\n"
            f"result = bs.simulate(scenario, {run})\nprint(result)\n"
        )

    # As a line of text.

    def to_link(self) -> str:
        """Return the values that differ from the defaults as `name=value&...`."""
        differences = self.differences(DEFAULTS[self.mode])
        if self.mode != FIRST:
            differences = {"mode": self.mode} | differences
        if kept := tuple(self.unshown):
            differences[KEPT] = kept
        return urlencode({name: as_text(value) for name, value in differences.items()}, safe=":,/")

    @classmethod
    def from_link(cls, text: str, *before: "State") -> Self:
        """Return the state of a line of text: `to_link`'s, or an address that ends in it after a `?`.

        What a link cannot say comes from the state `before` it of the same kind of run.
        """
        text = text.strip()
        query = text.rpartition("?")[2]
        if query and "=" not in query:
            raise ValueError(f"a link must be like rate_per_s=900&servers=2, got {text!r:.80}")
        values: dict[str, Any] = {}
        kept = ""
        for name, value in parse_qsl(query, keep_blank_values=True):
            name = OLD.get(name, name)
            if name == KEPT:
                kept = value
                continue
            if name in LOOKS:
                continue
            if name not in CONTROLS:
                hint = _check.nearest(name, CONTROLS)
                raise ValueError(f"a link must name the explorer's controls, got {brief(name)}{hint}")
            if name in values:
                raise ValueError(f"a link must set each control once, got {name} twice")
            values[name] = CONTROLS[name].read(name, value)
        first = DEFAULTS[values.get("mode", FIRST)]
        given = next((dict(state.given) for state in before if state.mode == first.mode), {})
        state = cls(**vars(first) | values | {"given": given})
        named = {*filter(None, kept.split(","))}
        if lacks := named - {*state.unshown}:
            rule = f"a link with {', '.join(sorted(lacks))} must come with the scenario that has it"
            raise ValueError(f"{rule}: explore(scenario, link=...), got none")
        left = {path: it for path, it in given.items() if it.values is not None or path in named}
        return state.replace(given=left)


def view_of(link: str, mode: str) -> str | None:
    """Return the large view that a link names, None if it names none."""
    named = dict(parse_qsl(link.strip().rpartition("?")[2])).get("view")
    if named is not None and named not in NAMES[mode]:
        raise ValueError(f"view must be one of {', '.join(NAMES[mode])}, got {named!r:.80}")
    return named


def as_text(value: Any) -> str:
    """Return a value as a link writes it.

    >>> as_text(10.0), as_text("llama-3.0"), as_text(((1, 2.5), (8, 3.0))), as_text(None)
    ('10', 'llama-3.0', '1:2.5,8:3', 'none')
    """
    text = as_typed(value)
    return "none" if value is None else text if isinstance(value, str) else text.replace(", ", ",")


# The state that each kind of run begins with.
DEFAULTS = {name: State(**{"mode": name, **kind.first}) for name, kind in KINDS.items()}
DEFAULT = DEFAULTS[FIRST]


def of_rule(rule: Rule) -> State:
    """Return the state that an explorer of a rule begins with, before its traffic fits the rule."""
    for first in DEFAULTS.values():
        if (values := first.kind.values_of(first.kind.rule, rule)) is not None:
            return first.replace(**values)
    raise ValueError(f"a rule must be registered to be explored alone, got {rule!r}: give a scenario")


UNWRITTEN = Trace, Listed, HashIds  # whose numbers are too many
MANY = 8  # settings, which are mostly at their defaults, as those by keyword alone are
Needs = dict[str, Any]  # what the reader must supply, by its name in the text


def _class(value: Any) -> str | None:
    """Return the name of a value's class in Python; None if it is not one of batchsim's."""
    name, bs = type(value).__name__, sys.modules["batchsim"]
    for place, where in ((bs, "bs"), (bs.routing, "bs.routing")):
        if getattr(place, name, None) is type(value):
            return f"{where}.{name}"
    package, _, module = type(value).__module__.partition(".")
    return f"bs.{module}.{name}" if package == "batchsim" else None


def _text(value: Any, name: str, needs: Needs) -> str:
    """Return a value as Python: by `name`, if it must be supplied."""
    if not dataclasses.is_dataclass(value):
        return repr(value)
    of_class = _class(value)
    if of_class is None or isinstance(value, UNWRITTEN):
        needs[name.partition(".")[0]] = value
        return name
    return of_class.removesuffix(type(value).__name__) + repr(value)


def _workload(state: State, workload: Any, needs: Needs) -> str:
    text = _text(dataclasses.replace(workload, sizes=None), "traffic", needs)
    sizes = None
    if text == "traffic":
        needs["traffic"] = traffic = state.given["workload"].part
        sizes = traffic.sizes
        if workload != traffic and hasattr(workload, "with_rate"):
            text += f".with_rate({state.rate_per_s!r})"
        if workload.priorities != traffic.priorities:
            text += f".with_priorities({workload.priorities and dict(workload.priorities)})"
    if workload.sizes != sizes:
        unit = "" if workload.size_unit == UNIT else f", {workload.size_unit!r}"
        text += f".with_sizes({_text(workload.sizes, 'traffic.sizes', needs)}{unit})"
    return text


def _rule(rule: Any, needs: Needs) -> str:
    of_class = _class(rule)
    if of_class is None:
        return _text(rule, "rule", needs)
    fields, shown = dataclasses.fields(rule), []
    many = len(fields) > MANY
    for field in fields:
        value = getattr(rule, field.name)
        if value != field.default or not (many or field.kw_only):
            shown.append(f"{field.name}={value!r}")
    return f"{of_class}({', '.join(shown)})".replace("=inf", '=float("inf")')


def _service(state: State, service: Service, needs: Needs) -> str:
    text = _text(service, "service", needs)
    if name := state.kind.published(state):  # instead of its numbers
        text = text.replace(f"bs.{published(name)!r}", f'bs.published("{name}")')
    return text


def _tokens(tokens: Tokens, needs: Needs) -> str:
    given = {field.name: getattr(tokens, field.name) for field in dataclasses.fields(tokens)}
    texts = {name: _text(each, f"tokens.{name}", needs) for name, each in given.items() if each is not None}
    return f"bs.Tokens({', '.join(f'{name}={text}' for name, text in texts.items())})"
