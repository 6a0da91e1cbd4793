"""How JavaScript calls the rules' entry points: read from the rules' own descriptions."""

import dataclasses
import math
from typing import Any

from batchsim.scenario.parameters import Parameter
from batchsim.scenario.rules import Rule


def usual(rule: type[Rule], **changed: Any) -> Rule:
    """Return a rule with its defaults, or what its controls show first."""
    defaults = {field.name: field.default for field in dataclasses.fields(rule)}  # type: ignore[arg-type]
    values = {
        name: it.usual if defaults[name] is dataclasses.MISSING else defaults[name]
        for name, it in rule.parameters().items()
    }
    return rule(**values | changed)


def own(rule: type[Rule]) -> dict[str, Parameter]:
    """Return the parameters that the page has: all but those about sizes, which its requests have not."""
    return {name: it for name, it in rule.parameters().items() if not it.of_sizes}


def call(rule: type[Rule]) -> dict[str, Any]:
    """Return how JavaScript calls a rule's entry, for JSON: None is infinity.

    `arguments` are the parameters in the order of the entry, and, as digits, whole numbers that the page does
    not change; of a threshold rule, those that its threshold has. `memory` is the size of the rule's memory:
    a constant, and a number for each request of a full batch.
    """
    one = usual(rule)
    parameters = {}
    for name, it in own(rule).items():
        bounds = {"least": it.at_least, "most": it.at_most, "above": it.above}
        known = {key: bound for key, bound in bounds.items() if bound is not None}
        parameters[name] = {
            "kind": it.type,
            "usual": plain(getattr(one, name)),
            "endless": it.may_be_inf,
            **known,
        }
    asked = (
        rule.asked_while_busy
    )  # a property, unless the rule says so itself; one with a longest wait may refuse
    small, large = (usual(rule, max_batch_size=size).state_size for size in (100, 101))
    return {
        "entry": "run_threshold" if one.threshold else f"run_{rule.__name__}",
        "parameters": parameters,
        "knobs": [*rule.map_knobs],
        "arguments": threshold_of(rule) if one.threshold else arguments_of(one),
        "memory": [small - 100 * (large - small), large - small],
        "freezes": rule.freezes,
        "while_busy": asked is True or rule.freezes or rule.longest_wait_s is not Rule.longest_wait_s,
    }


def plain(value: Any) -> Any:
    """Return a value for JSON."""
    return None if value == math.inf else value


def arguments_of(rule: Rule) -> list[str]:
    """Return the names of a rule's parameters, and the values of those that the page has not."""
    known = own(type(rule))
    values = zip(rule.parameters(), rule.params, strict=True)
    return [name if name in known else f"{value:d}" for name, value in values]


def threshold_of(rule: type[Rule]) -> list[str | None]:
    """Return the parameter that each field of a rule's threshold is; None for infinity."""
    probe = usual(rule, **{name: place + 2 for place, name in enumerate(own(rule))})
    names = dict(zip(probe.params, rule.parameters(), strict=True))
    assert probe.threshold is not None
    return [None if value == math.inf else names[value] for value in probe.threshold]
