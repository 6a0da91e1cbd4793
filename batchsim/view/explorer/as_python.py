"""A state as Python that runs the same."""

import dataclasses
import sys
from typing import Any

from batchsim._format import brief
from batchsim.measured.published import published
from batchsim.scenario import Scenario, Service, Tokens, Trace
from batchsim.scenario.lengths import Listed
from batchsim.scenario.prefixes import HashIds
from batchsim.scenario.traffic import UNIT
from batchsim.view.explorer import presets

UNWRITTEN = Trace, Listed, HashIds  # whose numbers are too many
MANY = 8  # settings, which are mostly at their defaults, as those by keyword alone are
Needs = dict[str, Any]  # what the reader must supply, by its name in the text


def python(state: Any, scenario: Scenario, requests: int) -> str:
    """Return Python that runs a state; the reader must supply the parts that a comment names."""
    needs: Needs = {}
    texts = {
        "workload": _workload(state, scenario.workload, needs),
        "rule": presets.python(state.server, scenario) or _rule(scenario.rule, needs),
        "service": _service(state, scenario.service, needs),
    }
    lines = []
    for field in dataclasses.fields(scenario):
        value = getattr(scenario, field.name)
        if field.name == "tokens" and value is not None:
            texts["tokens"] = _tokens(value, needs)
        if value != field.default:
            lines.append(f"    {field.name}={texts.get(field.name) or _text(value, field.name, needs)},\n")
    comments = "".join(f"# {name}: {brief(value)}\n" for name, value in needs.items())
    return (
        f"import batchsim as bs\n\n{comments}scenario = bs.Scenario(\n{''.join(lines)})\n"
        f"result = bs.simulate(scenario, requests={requests:_}, seed={state.seed})\nprint(result)\n"
    )


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


def _workload(state: Any, workload: Any, needs: Needs) -> str:
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


def _service(state: Any, service: Service, needs: Needs) -> str:
    text = _text(service, "service", needs)
    if name := state.kind.published(state):  # instead of its numbers
        text = text.replace(f"bs.{published(name)!r}", f'bs.published("{name}")')
    return text


def _tokens(tokens: Tokens, needs: Needs) -> str:
    given = {field.name: getattr(tokens, field.name) for field in dataclasses.fields(tokens)}
    texts = {name: _text(each, f"tokens.{name}", needs) for name, each in given.items() if each is not None}
    return f"bs.Tokens({', '.join(f'{name}={text}' for name, text in texts.items())})"
