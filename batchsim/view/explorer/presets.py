"""Servers in the explorer: the menu, their defaults, and their words for a control."""

import inspect
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from batchsim._format import as_typed
from batchsim.scenario import Scenario
from batchsim.servers.files import has_rule, target_of, translated
from batchsim.servers.registry import ALL
from batchsim.servers.server import Server, ServerConfig
from batchsim.view.explorer.control import GIVEN, Option
from batchsim.view.explorer.kind import State

# The controls for what a server's `Words` name, by the field of `Words`; a rule has some of them.
WORDS: Mapping[str, tuple[str, ...]] = {
    "size": ("max_batch_size", "max_num_seqs"), "wait": ("max_wait_ms",), "servers": ("servers",),
    "devices": ("devices",), "queue": ("queue_limit",), "sizes": ("padding",), "timeout": ("timeout_ms",),
    "budget": ("max_num_batched_tokens",),
}  # fmt: skip


def option_of(rule: Any, options: Mapping[str, Option]) -> Option | None:
    """Return the option that makes a rule with its own numbers; None if there is none."""
    return next((option for option in options.values() if option.values(rule) is not None), None)


def menu(state: State) -> tuple[tuple[str, str], ...]:
    """Return the servers, each with the rule that it has by default, then the rules, as (label, value)."""
    options, items = state.kind.options[state.kind.rule], list[tuple[str, str]]()
    for name, each in state.kind.servers.items():
        # The chosen server's settings may have chosen another of its rules.
        own: Any = state.rule_option if name == state.server else option_of(defaults(each).rule, options)
        if own is not None:
            items.append((f"{each.title}: {_lower(own.part.title)}", name))
    items += [(f"Rule: {_lower(option.label)}", name) for name, option in options.items()]
    if state.may_be_given(state.kind.rule):
        items.append(("Given: as at the beginning", GIVEN))
    return tuple(items)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def defaults(server: Server, size: int = 32, **known: Any) -> ServerConfig:
    """Return a server's defaults, on a known model and card; `size` is for a server whose size has none.

    >>> defaults(ALL["triton"]).rule, defaults(ALL["torchserve"]).queue_limit
    (SizeOrWait(max_batch_size=32, max_wait_ms=0), 100)
    """
    parameter = inspect.signature(server.rule).parameters.get(server.words.size)
    needed = parameter is not None and parameter.default is parameter.empty
    given = {name: value for name, value in known.items() if name in server.settings}
    return server.configure(given | ({server.words.size: size} if needed else {}))


def check(server: str, rule: Any) -> None:
    """Raise ValueError for a rule that a server does not have."""
    if server and not has_rule(ALL[server], rule):
        raise ValueError(f"the rule must be one of {ALL[server].title}, got {rule!r}")


def kept(server: str, rule: Any) -> str:
    """Return the server if it has the rule, else ""."""
    return server if server and has_rule(ALL[server], rule) else ""


def settings(server: str, scenario: Scenario) -> dict[str, Any]:
    """Return a scenario in a server's own settings; {} if it has no settings for it."""
    try:
        return {**translated(ALL[server], target_of(scenario)).settings}
    except ValueError:
        return {}


def aliases(server: str, scenario: Scenario) -> dict[str, str]:
    """Return the server's own setting and its value for each control that has another name.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> aliases("triton", Scenario(Poisson(9), SizeOrWait(8, 2), Affine(5, 1)))["max_wait_ms"]
    'max_queue_delay_microseconds: 2000'
    """
    if not server:
        return {}
    words, given = ALL[server].words, settings(server, scenario)
    names = {control: getattr(words, word) for word, controls in WORDS.items() for control in controls}
    names |= words.others
    return {
        control: f"{name}: {given[name]}" if name in given else name
        for control, name in names.items() if name and name != control
    }  # fmt: skip


def axes(server: Server, scenario: Scenario, surface: Any) -> dict[str, list[Any]]:
    """Return a heat map's values of the server's settings, as it can have them, and the present ones."""
    words, rule, found = server.words, scenario.rule, dict[str, list[Any]]()
    for knob, values in ((surface.x, surface.x_values), (surface.y, surface.y_values)):
        now = getattr(rule, knob)
        if words.wait and knob in WORDS["wait"]:
            units = [words.wait_of(each) for each in values if math.isfinite(each)]
            found[knob] = sorted({*(as_typed(each * words.wait_unit_ms) for each in units), float(now)})
        elif knob in (*WORDS["size"], *WORDS["budget"], *words.others):
            padded = scenario.service.padding or ()  # some servers require one of these
            found[knob] = sorted({each for each in values if not padded or each == now} | {now})
    return found


def python(server: str, scenario: Scenario) -> str | None:
    """Return Python for a scenario's rule by its server's name; None if that does not make the same rule."""
    with suppress(TypeError, ValueError, KeyError):
        own = ALL[server].rule
        names = inspect.signature(own).parameters
        given = {name: each for name, each in settings(server, scenario).items() if name in names}
        if own(**given) == scenario.rule:
            text = ", ".join(f"{name}={each!r}" for name, each in given.items())
            return f"bs.servers.{server}({text})".replace("=inf", '=float("inf")')
    return None
