"""The calls from a compiled loop to the functions of its rule, or to that of a routing.

A rule's functions are plain Python, and Numba picks them by the type of `params`, a NamedTuple that each
rule defines. Within the loop, they would cost a copy of it for each rule. So the loop gets the rule as
`Calls`, the addresses of its functions: one copy of the loop serves all rules, and a rule compiles no more
than its functions. These are cached like a loop: the type is part of the signature, and the digest of the
sources covers the rules' files (`jit.sources`). With NUMBA_DISABLE_JIT=1, and in a browser's Python, the loop
gets `params`, and calls the functions itself.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import math
import re
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from batchsim._format import BRIEF, brief_text
from batchsim.engines.compiled.backend import (
    IS_COMPILED,
    NumbaError,
    TypingError,
    overload,
    register_jitable,
    typeof,
    types,
)
from batchsim.engines.compiled.cells import (
    address_of,
    caller,
    cells_of,
    read,
    with_space,
    write_arrays,
    write_numbers,
)
from batchsim.engines.compiled.jit import PART, compiled, compiled_uncached
from batchsim.engines.compiled.levels import Merged
from batchsim.scenario.routing.routing import Routing
from batchsim.scenario.rules.rule import FREEZE, FULL, HELPERS, NOTHING, REFUSE, START, Rule, Waiting

# A reason in an error of Numba, and the file and line of which it speaks.
_REASON = re.compile(r"\(step: [^)]*\)\s*(.+)")
_PLACE = re.compile(r'File "(?:[^"]*[/\\])?([^"/\\]+)", line (\d+)')


def decide(now_s: Any, waiting: Any, idle: Any, state: Any, params: Any) -> Any:
    """Return the decision of the rule of `params`: an action, a number of requests, and the trigger."""
    return Rule.by_params[type(params)].decide(now_s, waiting, idle, state, params)


def wake_s(now_s: Any, waiting: Any, idle: Any, state: Any, params: Any) -> Any:
    """Return the next instant at which time alone changes the decision of the rule of `params`."""
    return Rule.by_params[type(params)].wake_s(now_s, waiting, idle, state, params)


def ask(now_s: Any, waiting: Any, idle: Any, looks: Any, state: Any, params: Any) -> Any:
    """Return the decision of the rule of `params`, if it `looks`; and if it does nothing, until when."""
    action, size, trigger = NOTHING, 0, FULL
    if looks:
        action, size, trigger = decide(now_s, waiting, idle, state, params)
    due_s = math.nan
    if action != FREEZE and action != REFUSE and (action != START or idle == 0):
        due_s = wake_s(now_s, waiting, idle, state, params)
    return action, size, trigger, due_s


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
    def bring_picked(size, line, head, state, params):
        for k in range(size):
            place = head + picked(k, state, params)
            request = line[place]
            for behind in range(place, head + k, -1):
                line[behind] = line[behind - 1]
            line[head + k] = request

    return bring_picked


class Calls(NamedTuple):
    """A rule as the loop calls it: the addresses of its functions, 0 for one that it has not."""

    ask: int
    finished: int
    computed_as: int
    bring: int
    cells: Any  # what they read: the waiting requests, the rule's memory, its parameters


# The functions at these addresses. The type of `cells` is a pointer to the types of what is there.


def _ask_at(now_s, idle, looks, cells):
    waiting, state, params = read(cells)
    action, size, trigger, due_s = ask(now_s, waiting, idle, looks, state, params)
    return _whole(action), _whole(size), _whole(trigger), np.float64(due_s)


def _finished_at(now_s, size, seconds, cells):
    _, state, params = read(cells)
    finished(now_s, size, seconds, state, params)
    return np.int64(0)


def _computed_as_at(size, cells):
    _, state, params = read(cells)
    return _whole(computed_as(size, state, params))


def _bring_at(size, cells):
    waiting, state, params = read(cells)
    bring(size, waiting.queue, waiting.head, state, params)
    return np.int64(0)


def _whole(number: Any) -> Any:
    return number


@overload(_whole, jit_options=PART)
def _whole_number(number):
    if not isinstance(number, types.Integer | types.Boolean):
        raise TypingError(f"a rule must return whole numbers, got {number}")
    return lambda number: np.int64(number)


WHOLE, REAL = types.int64, types.float64
WHOLES, REALS = types.Array(WHOLE, 1, "C"), types.Array(REAL, 1, "C")
# By the rule's function that it calls: the one at the address, the types of its result and its arguments.
FUNCTIONS: dict[str, Any] = {
    "decide": (_ask_at, types.Tuple((WHOLE, WHOLE, WHOLE, REAL)), REAL, WHOLE, types.boolean),
    "finished": (_finished_at, WHOLE, REAL, WHOLE, REAL),
    "computed_as": (_computed_as_at, WHOLE, WHOLE),
    "picked": (_bring_at, WHOLE, WHOLE),
}
call_ask, call_finished, call_computed_as, call_bring = (caller(*kinds) for _, *kinds in FUNCTIONS.values())
CACHED = {name: (compiled(function), kinds) for name, (function, *kinds) in FUNCTIONS.items()}
# For rules outside of this package: their files are not in the digest, so a cached function could be stale.
UNCACHED = {name: (compiled_uncached(function), kinds) for name, (function, *kinds) in FUNCTIONS.items()}


def waiting_of(by_level: bool, column: Any = WHOLES) -> Any:
    """Return the type of the waiting requests that a rule sees, with columns of whole numbers."""
    line = types.NamedTuple((column, column, column, column, WHOLE), Merged) if by_level else column
    return types.NamedTuple((REALS, line, WHOLE, WHOLE, WHOLE, types.boolean, column), Waiting)


@cache
def _addresses(params: Any, by_level: bool, ours: bool) -> Any:
    """Compile the functions of the rule with parameters of a type."""
    rule = Rule.by_params[params.instance_class]
    cells = types.CPointer(types.Tuple((waiting_of(by_level), REALS, params)))
    return tuple(
        address_of(function, *kinds, cells)
        if getattr(rule, name) and not (by_level and name == "picked")
        else 0
        for name, (function, kinds) in (CACHED if ours else UNCACHED).items()
    )


def calls_of(rule: Rule, by_level: bool) -> Any:
    """Return a rule as the loop takes it, in a scenario with or without levels."""
    params = rule.params
    if not IS_COMPILED:
        return params
    cells = with_space(params, cells_of(waiting_of(by_level)) + cells_of(REALS))
    ours = type(rule).__module__.startswith("batchsim.")
    try:
        addresses = _addresses(typeof(params), by_level, ours)
    except NumbaError as error:
        if ours:
            raise
        raise TypeError(_in_a_line(type(rule), error)) from None
    return Calls._make((*addresses, cells))


def _in_a_line(rule: type[Rule], error: NumbaError) -> str:
    """Return what Numba cannot compile in a rule's functions, and where: it says so in a page of text."""
    text = str(error)
    last = max(_REASON.finditer(text), key=re.Match.start, default=None)
    place = _PLACE.search(text, last.end()) if last else None
    where = " in {}, line {}".format(*place.groups()) if place else ""
    why = brief_text(last[1] if last else text.strip().partition("\n")[0], 2 * BRIEF)
    remedy = "its functions use numbers and arrays alone, or set `compiled = False`"
    return f"{rule.__name__} must be a rule that Numba compiles, got{where}: {why}; {remedy}"


def show(waiting: Any, state: Any, params: Any) -> None:
    """Let the rule of `params` see these arrays from now on; its functions get the numbers at each call."""


# Numba's versions of the functions above.


@overload(show, jit_options=PART)
def _show(waiting, state, params):
    if params.instance_class is Calls:
        return lambda waiting, state, params: write_arrays(params.cells, (waiting, state))
    return lambda waiting, state, params: None


def learn_helpers() -> None:
    """Let Numba compile the helpers of all rules so far: each function may call any of them."""
    while HELPERS:
        register_jitable(**INLINED)(HELPERS.pop())


# The arguments are dozens of arrays: inlined, they cost nothing.
INLINED: Any = {"forceinline": True, **PART}


def _rule_of(params: types.NamedTuple) -> Any:
    learn_helpers()
    return Rule.by_params[params.instance_class]


@overload(decide, jit_options=INLINED, strict=False)
def _decide(now_s, waiting, idle, state, params):
    return _rule_of(params).decide


@overload(wake_s, jit_options=INLINED, strict=False)
def _wake_s(now_s, waiting, idle, state, params):
    return _rule_of(params).wake_s


@overload(ask, jit_options=INLINED, strict=False)
def _ask(now_s, waiting, idle, looks, state, params):
    if params.instance_class is not Calls:
        return ask

    def ask_at(now_s, waiting, idle, looks, state, params):
        write_numbers(params.cells, waiting)
        return call_ask(params.ask, (now_s, idle, looks), params.cells)

    return ask_at


@overload(finished, jit_options=INLINED, strict=False)
def _finished(now_s, size, seconds, state, params):
    if params.instance_class is not Calls:
        return _rule_of(params).finished or (lambda now_s, size, seconds, state, params: None)

    def finished_at(now_s, size, seconds, state, params):
        if params.finished != 0:
            call_finished(params.finished, (now_s, size, seconds), params.cells)

    return finished_at


@overload(computed_as, jit_options=INLINED, strict=False)
def _computed_as(size, state, params):
    if params.instance_class is not Calls:
        return _rule_of(params).computed_as or (lambda size, state, params: size)

    def computed_as_at(size, state, params):
        return (
            call_computed_as(params.computed_as, (size,), params.cells) if params.computed_as != 0 else size
        )

    return computed_as_at


@overload(bring, jit_options=INLINED, strict=False)
def _bring(size, line, head, state, params):
    if params.instance_class is Calls:

        def bring_at(size, line, head, state, params):
            if params.bring != 0:
                call_bring(params.bring, (size,), params.cells)

        return bring_at
    picked = _rule_of(params).picked
    return _bringer(register_jitable(picked)) if picked else lambda size, line, head, state, params: None


def route(request: Any, loads: Any, chances: Any, params: Any) -> Any:
    """Return the replica of a request by the routing of `params`."""
    return Routing.by_params[type(params)](request, loads, chances, params)


@overload(route, jit_options=PART, strict=False)
def _route(request, loads, chances, params):
    learn_helpers()
    return Routing.by_params[params.instance_class]


def _route_blindly(begin, chances, loads, params, replica):
    """Route requests, the first of number `begin`, without a look at the replicas."""
    for row in range(replica.size):
        replica[row] = route(begin + row, loads, chances[row], params)


route_blindly, route_blindly_uncached = compiled(_route_blindly), compiled_uncached(_route_blindly)
