"""The seam's other side: how a loop calls the `decide` and `wake_s` of whichever rule it runs.

A rule's functions are plain Python. Here Numba learns to compile them: the type of `params`, a NamedTuple of
the rule's own, says which rule is meant, so that each rule has a copy of the loop in which its functions are
inlined. That type is in the signature by which a compiled loop is found on disk, and the rules' files
are in the digest that tells when one is stale (`jit.sources`). Without Numba's compiler
(NUMBA_DISABLE_JIT=1) the loops are plain Python, and so are these calls.
"""

from typing import Any

from numba import types
from numba.extending import overload, register_jitable

from batchsim.engines.compiled.jit import UNCOUNTED
from batchsim.scenario.rules.rule import HELPERS, Rule


def decide(now_s: Any, waiting: Any, idle: Any, state: Any, params: Any) -> Any:
    """Return what the rule of `params` does now: an action, how many requests, and the trigger."""
    return Rule.by_params[type(params)].decide(now_s, waiting, idle, state, params)


def wake_s(now_s: Any, waiting: Any, idle: Any, state: Any, params: Any) -> Any:
    """Return the next instant at which time alone changes the answer of the rule of `params`."""
    return Rule.by_params[type(params)].wake_s(now_s, waiting, idle, state, params)


def finished(now_s: Any, size: Any, seconds: Any, state: Any, params: Any) -> Any:
    """Tell the rule of `params` that a batch of `size` has ended, and how many seconds it took."""
    if tell := Rule.by_params[type(params)].finished:
        tell(now_s, size, seconds, state, params)


def computed_as(size: Any, state: Any, params: Any) -> Any:
    """Return as how many a batch of `size` that the rule of `params` starts is computed."""
    asked = Rule.by_params[type(params)].computed_as
    return asked(size, state, params) if asked else size


def bring(size: Any, line: Any, head: Any, state: Any, params: Any) -> Any:
    """Move those whom the rule of `params` picks for a batch of `size` to the front of `line[head:]`."""
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
    while HELPERS:  # those of all rules so far, of which this one may call any
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
