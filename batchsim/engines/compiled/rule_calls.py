"""The calls from a compiled loop to the functions of its rule.

A rule's functions are plain Python. Numba picks them by the type of `params`, a NamedTuple that each rule
defines: so each rule gets its own copy of the loop, with its functions inlined. The type is part of the
signature under which a compiled loop is cached, and the digest of the sources covers the rules' files
(`jit.sources`). With NUMBA_DISABLE_JIT=1 the loops, and these calls, are plain Python.
"""

from typing import Any

from numba import types
from numba.extending import overload, register_jitable

from batchsim.engines.compiled.jit import UNCOUNTED
from batchsim.scenario.rules.rule import HELPERS, Rule


def decide(now_s: Any, waiting: Any, idle: Any, state: Any, params: Any) -> Any:
    """Return the decision of the rule of `params`: an action, a number of requests, and the trigger."""
    return Rule.by_params[type(params)].decide(now_s, waiting, idle, state, params)


def wake_s(now_s: Any, waiting: Any, idle: Any, state: Any, params: Any) -> Any:
    """Return the next instant at which time alone changes the decision of the rule of `params`."""
    return Rule.by_params[type(params)].wake_s(now_s, waiting, idle, state, params)


def finished(now_s: Any, size: Any, seconds: Any, state: Any, params: Any) -> Any:
    """Report to the rule of `params` that a batch of `size` ended after `seconds`."""
    if tell := Rule.by_params[type(params)].finished:
        tell(now_s, size, seconds, state, params)


def computed_as(size: Any, state: Any, params: Any) -> Any:
    """Return the size up to which the rule of `params` fills a batch of `size`."""
    asked = Rule.by_params[type(params)].computed_as
    return asked(size, state, params) if asked else size


def bring(size: Any, line: Any, head: Any, state: Any, params: Any) -> Any:
    """Move the picks of the rule of `params` for a batch of `size` to the front of `line[head:]`."""
    if picked := Rule.by_params[type(params)].picked:
        _bringer(picked)(size, line, head, state, params)


def _bringer(picked: Any) -> Any:
    def bring_picked(size, line, head, state, params):  # type: ignore[no-untyped-def]
        for k in range(size):
            place = head + picked(k, state, params)
            request = line[place]
            for behind in range(place, head + k, -1):
                line[behind] = line[behind - 1]
            line[head + k] = request

    return bring_picked


def _rule_of(params: types.NamedTuple) -> Any:
    while HELPERS:  # of all rules so far: this one may call any of them
        register_jitable(HELPERS.pop())
    return Rule.by_params[params.instance_class]


@overload(decide, jit_options=UNCOUNTED, strict=False)
def _decide(now_s, waiting, idle, state, params):  # type: ignore[no-untyped-def]
    return _rule_of(params).decide


@overload(wake_s, jit_options=UNCOUNTED, strict=False)
def _wake_s(now_s, waiting, idle, state, params):  # type: ignore[no-untyped-def]
    return _rule_of(params).wake_s


@overload(finished, jit_options=UNCOUNTED, strict=False)
def _finished(now_s, size, seconds, state, params):  # type: ignore[no-untyped-def]
    return _rule_of(params).finished or (lambda now_s, size, seconds, state, params: None)


@overload(computed_as, jit_options=UNCOUNTED, strict=False)
def _computed_as(size, state, params):  # type: ignore[no-untyped-def]
    return _rule_of(params).computed_as or (lambda size, state, params: size)


@overload(bring, jit_options=UNCOUNTED, strict=False)
def _bring(size, line, head, state, params):  # type: ignore[no-untyped-def]
    picked = _rule_of(params).picked
    return _bringer(register_jitable(picked)) if picked else lambda size, line, head, state, params: None
