"""What the explorer's controls say of token generation, and what a scenario of it says of them."""

import dataclasses
from typing import Any

from batchsim.scenario import Continuous, Scenario, StepTime, Tokens
from batchsim.view.explorer.control import TOKENS
from batchsim.view.explorer.kinds import noise_values, values_of
from batchsim.view.explorer.kinds_tokens import OWN

# Controls that are the scenario's own fields, under the same name, as for requests.
FIELDS = ("servers", "queue_limit", "timeout_ms")
PARTS = {"prompts": "prompt", "outputs": "output"}  # of the tokens, by the choice of their lengths


def tokens_of(state: Any, given: Tokens | None) -> Tokens:
    """Return the lengths; `given` is what "given" stands for. ValueError where there is none."""
    lengths = {}
    for choice, part in PARTS.items():
        if getattr(state, choice) != "given":
            lengths[part] = state.made(choice)
        elif given is None:
            raise ValueError(f"{choice}='given' must come with tokens: explore(scenario), got none")
        else:
            lengths[part] = getattr(given, part)
    return Tokens(**lengths, limit=state.limit)


def scenario_of(state: Any, workload: Any, given: Tokens | None) -> Scenario:
    """Return the scenario of token generation that the controls say."""
    own = {name: getattr(state, name) for name in FIELDS}
    tokens = tokens_of(state, given)
    return Scenario(workload, state.made("batching"), state.service_time(), tokens=tokens, **own)


def values_from(scenario: Scenario) -> dict[str, Any]:
    """Return the controls' values for a scenario, but for its workload; ValueError where they cannot say it.

    Lengths that no control can express are "given".
    """
    tokens, step = scenario.tokens, scenario.service
    assert tokens is not None
    assert isinstance(step, StepTime)
    values = {"mode": TOKENS, "limit": tokens.limit} | {name: getattr(scenario, name) for name in FIELDS}
    for choice, part in PARTS.items():
        found = values_of(choice, getattr(tokens, part))
        if found is None:
            raise ValueError(f"the lengths of {choice} must be registered, got {getattr(tokens, part)!r}")
        values |= found
    rule = values_of("batching", scenario.rule)
    if rule is None:
        rules = "a Continuous without prefix_reuse, a SizeOrWait or an AtLeast"
        raise ValueError(f"the rule must be {rules}, got {scenario.rule!r}")
    return values | rule | step_values(step)


def step_values(step: StepTime) -> dict[str, Any]:
    """Return the controls' values for a step time: its name, where it is a published one."""
    values = values_of("step", step)
    if values is None:
        raise ValueError(f"a step time must not be ragged to be explored, got {step!r}")
    return values | noise_values(step.noise)


def python_of(state: Any, scenario: Scenario) -> dict[str, str]:
    """Return Python for the rule, the service time and the tokens; given lengths are the reader's to add."""
    service, tokens = f"bs.{scenario.service!r}", scenario.tokens
    rule: Any = scenario.rule  # a dataclass
    if state.step != OWN:  # by its name, not number by number
        plain = dataclasses.replace(state.service_time(), noise=None)
        service = service.replace(f"bs.{plain!r}", f'bs.published("{state.step}")')
    said = [item for item in dataclasses.fields(rule) if getattr(rule, item.name) != item.default]
    if not isinstance(rule, Continuous):  # which has many settings, most of them as ever
        said = list(dataclasses.fields(rule))
    settings = ", ".join(f"{item.name}={getattr(rule, item.name)!r}" for item in said)
    settings = settings.replace("=inf", '=float("inf")')
    lengths = []
    for choice, part in PARTS.items():
        value = getattr(tokens, part)
        text = repr(value) if isinstance(value, int) else f"bs.{value!r}"
        lengths.append(f"{part}=tokens.{part}" if getattr(state, choice) == "given" else f"{part}={text}")
    limit = [] if state.limit is None else [f"limit={state.limit}"]
    return {
        "rule": f"bs.{type(rule).__name__}({settings})", "service": service,
        "tokens": f"bs.Tokens({', '.join([*lengths, *limit])})",
    }  # fmt: skip
