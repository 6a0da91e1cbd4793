"""The queue by priority level, and in each level those in time before the delayed ones.

A linked list for each level, and one for its delayed requests, tells who goes next. Each is in order of
arrival, so that the line of all that wait, as rules see it, is these lists merged: whoever asks for the
oldest or the newest looks at their ends, and nothing moves where somebody leaves the line's middle.
"""

# mypy: disable-error-code="no-untyped-def"

import math
import operator
from typing import Any, NamedTuple

from numba import types
from numba.extending import overload

from batchsim.engines.compiled.columns import MID, TAIL
from batchsim.engines.compiled.jit import UNCOUNTED, compiled, inlined
from batchsim.engines.compiled.threshold import later

# What is `compiled` here is no part of a rule's loop, so that it is compiled once for all rules.
NOBODY = -1  # in a list: no next one


@inlined
def append(request, line, levels):
    """Add a request to the end of a list: 2 * level, or 2 * level + 1 for the delayed."""
    levels.after[request] = NOBODY
    if levels.first[line] == NOBODY:
        levels.first[line] = request
    else:
        levels.after[levels.last[line]] = request
    levels.last[line] = request


@inlined
def _pop(line, levels):
    request = levels.first[line]
    levels.first[line] = levels.after[request]
    return request


@inlined
def enter(request, requests, levels):
    """Let a request into its level's queue, unless that is at its limit; return whether it is in."""
    level = requests.level[request]
    if levels.waiting[level] >= levels.queue[level]:
        return False
    levels.waiting[level] += 1
    append(request, 2 * level, levels)
    return True


class Merged(NamedTuple):
    """The line of all that wait, oldest first, for a rule that reads it by place."""

    first: Any  # the first request of each list, NOBODY of none
    last: Any
    after: Any
    here: Any  # to work in: as many as there are lists
    length: int

    def __getitem__(self, place: Any) -> Any:
        return _at(self, place)


@compiled
def _walk(line, place):
    """Return the request at a place of the line, from the oldest on."""
    for number in range(line.here.size):
        line.here[number] = line.first[number]
    while True:
        oldest = NOBODY
        for number in range(line.here.size):
            if line.here[number] != NOBODY and (oldest == NOBODY or line.here[number] < line.here[oldest]):
                oldest = number
        if place == 0:
            return line.here[oldest]
        line.here[oldest] = line.after[line.here[oldest]]
        place -= 1


@inlined
def _at(line, place):
    """Return the request at a place of the line: at once that at either end, for which rules ask mostly."""
    if 0 < place < line.length - 1:
        return _walk(line, place)
    found = NOBODY
    for number in range(line.first.size):
        if line.first[number] != NOBODY:
            if place > 0:
                found = max(found, line.last[number])
            elif found == NOBODY or line.first[number] < found:
                found = line.first[number]
    return found


@overload(operator.getitem, jit_options=UNCOUNTED)
def _getitem(line, place):
    if isinstance(line, types.NamedTuple) and line.instance_class is Merged:
        return lambda line, place: _at(line, place)
    return None


@inlined
def _merged(queue, cursor, levels):
    line = Merged(levels.first, levels.last, levels.after, levels.here, cursor[TAIL] - cursor[MID])
    return line, 0


@inlined
def _as_it_is(queue, cursor, levels):
    return queue.requests, cursor[MID]


def line_of(queue: Any, cursor: Any, levels: Any) -> Any:
    """Return the line of all that wait, as a rule reads it, and the oldest one's place in it."""
    return _as_it_is(queue, cursor, levels) if levels is None else _merged(queue, cursor, levels)


@overload(line_of, jit_options=UNCOUNTED)
def _line_of(queue, cursor, levels):
    # The two are of other types, and a function that Numba compiles returns one.
    which = _as_it_is if isinstance(levels, types.NoneType) else _merged
    return lambda queue, cursor, levels: which(queue, cursor, levels)


@compiled
def take(size, queue, cursor, levels):
    """Put the `size` requests that go first at the front of `queue.requests[mid:tail]`."""
    line = 0
    for number in range(size):
        while levels.first[line] == NOBODY:
            line += 1
        queue.requests[cursor[MID] + number] = _pop(line, levels)


@compiled
def overdue(now_s, requests, queue, cursor, levels):
    """Delay whoever is due; put one that leaves at the front of those that wait, if there is one."""
    for level in range(levels.timeout_s.size):
        line = 2 * level
        while levels.first[line] != NOBODY:
            request = levels.first[line]
            if now_s < later(requests.arrival_s[request], levels.timeout_s[level]):
                break
            _pop(line, levels)
            if levels.delays[level]:
                append(request, line + 1, levels)
                levels.late[request] = True
            else:
                queue.requests[cursor[MID]] = request
                return True
    return False


@inlined
def expiry_s(requests, levels):
    """Return when the next timeout is over."""
    soonest_s = math.inf
    for level in range(levels.timeout_s.size):
        if levels.first[2 * level] != NOBODY:
            due_s = later(requests.arrival_s[levels.first[2 * level]], levels.timeout_s[level])
            soonest_s = min(soonest_s, due_s)
    return soonest_s


@compiled
def line_up(queue, begin, end, requests, levels):
    """Make the lists of `queue.requests[begin:end]`, in which those of one list are in its order."""
    levels.first[:] = NOBODY
    for place in range(begin, end):
        request = queue.requests[place]
        append(request, 2 * requests.level[request] + levels.late[request], levels)


@compiled
def line_out(queue, cursor, levels):
    """Write all that wait to `queue.requests[mid:tail]`, list by list, as `line_up` reads them."""
    place = cursor[MID]
    for line in range(levels.first.size):
        request = levels.first[line]
        while request != NOBODY:
            queue.requests[place] = request
            request = levels.after[request]
            place += 1
    assert place == cursor[TAIL]
