"""The registry of kinds: every workload, rule, service time and noise, by its name.

TOML (`kind = "Gamma"`), the shell (`--workload 'Gamma(800, cv=2)'`) and the explorer offer the kinds listed
here. To add one, write its class and list it here (a rule: in `batchsim.scenario.rules`).
"""

import inspect
from collections.abc import Callable
from typing import Any

from batchsim.scenario.rules import RULES
from batchsim.scenario.rules.continuous import Continuous, NewTokenRatio, WaitingServedRatio
from batchsim.scenario.service import Affine, Noise, Table
from batchsim.scenario.step_time import StepTime
from batchsim.scenario.tokens import Geometric, Listed, Lognormal, Tokens, Uniform
from batchsim.scenario.trace import Trace
from batchsim.scenario.workload import ClosedLoop, Constant, Diurnal, Gamma, OnOff, Poisson

Maker = Callable[..., Any]  # its parameters are the keys of a TOML table, and the arguments in the shell


def _by_name(*classes: type) -> dict[str, tuple[Maker, ...]]:
    return {cls.__name__: (cls,) for cls in classes}


# By the part of a scenario, then by name: the functions that make one. If the first is a class, the kind is
# also written under that name.
KINDS: dict[str, dict[str, tuple[Maker, ...]]] = {
    "workload": _by_name(Poisson, Constant, Gamma, OnOff, Diurnal, ClosedLoop)
    | {"Trace": (Trace, Trace.from_file, Trace.from_csv, Trace.from_jsonl, Trace.from_parquet)},
    "rule": _by_name(*RULES, Continuous, NewTokenRatio, WaitingServedRatio),
    "service": _by_name(Affine, Table, StepTime),  # `batchsim.measured` adds its own
    "noise": _by_name(Noise),
    "tokens": {"Tokens": (Tokens, Tokens.from_csv)},
    "lengths": _by_name(Lognormal, Geometric, Uniform, Listed),  # of prompts, and of outputs
}


def kind_of(part: str, value: Any) -> str:
    """Return the name under which a part of a scenario is written; TypeError if its class is not registered.

    >>> kind_of("workload", Poisson(900))
    'Poisson'
    """
    name = type(value).__name__
    # By identity: a subclass of a registered class, even one of the same name, would be read as another.
    if type(value) not in KINDS[part].get(name, ()):
        raise TypeError(f"{part} must be one of {', '.join(KINDS[part])} to be written, got {value!r}")
    return name


def keys_of(maker: Maker) -> dict[str, bool]:
    """Return a maker's parameters, and whether each is required.

    >>> keys_of(ClosedLoop)
    {'clients': True, 'think_s': False, 'priorities': False}
    """
    parameters = inspect.signature(maker).parameters.values()
    return {parameter.name: parameter.default is parameter.empty for parameter in parameters}
