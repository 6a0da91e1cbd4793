"""The queue by priority level, and in each level the delayed requests last.

Each level has a linked list of its requests in time, and one of its delayed requests. Each list is in order
of arrival, so the queue that rules see is the merge of the lists. It is never stored: its oldest and newest
requests are at the ends of the lists, and no request moves when one leaves the middle of the queue.
"""

# mypy: disable-error-code="no-untyped-def"

import math
import operator
from typing import Any, NamedTuple

from batchsim.engines.compiled.backend import overload, types
from batchsim.engines.compiled.columns import MID, TAIL
from batchsim.engines.compiled.jit import PART, compiled, inlined
from batchsim.engines.compiled.threshold import later

# A `compiled` function here is not part of a loop, nor of a rule, so Numba compiles it once for all.
NOBODY = -1  # the end of a list


@inlined
def append(request, row, levels):
    """Add a request to the end of a list; see `columns.Levels.first` for the rows."""
    levels.after[request] = NOBODY
    if levels.first[row] == NOBODY:
        levels.first[row] = request
    else:
        levels.after[levels.last[row]] = request
    levels.last[row] = request


@inlined
def _pop(row, levels):
    request = levels.first[row]
    levels.first[row] = levels.after[request]
    return request


@inlined
def enter(request, requests, levels):
    """Let a request into the queue of its level, unless this is at its limit; return whether it enters."""
    level = requests.level[request]
    if levels.waiting[level] >= levels.queue[level]:
        return False
    levels.waiting[level] += 1
    append(request, 2 * level, levels)
    return True


class Merged(NamedTuple):
    """All waiting requests, oldest first, as a rule reads them by place."""

    first: Any  # the first request of each list; -1: empty
    last: Any
    after: Any
    here: Any  # scratch space, a place for each list
    length: int

    def __getitem__(self, place: Any) -> Any:
        return _at(self, place)


@compiled
def _walk(merged, place):
    """Return the request at a place, walking from the oldest."""
    here = merged.here
    for row in range(here.size):
        here[row] = merged.first[row]
    while True:
        oldest = NOBODY
        for row in range(here.size):
            if here[row] != NOBODY and (oldest == NOBODY or here[row] < here[oldest]):
                oldest = row
        if place == 0:
            return here[oldest]
        here[oldest] = merged.after[here[oldest]]
        place -= 1


@inlined
def _at(merged, place):
    """Return the request at a place; the first and the last, which rules mostly need, without a walk."""
    if 0 < place < merged.length - 1:
        return _walk(merged, place)
    found = NOBODY
    for number in range(merged.first.size):
        if merged.first[number] != NOBODY:
            if place > 0:
                found = max(found, merged.last[number])
            elif found == NOBODY or merged.first[number] < found:
                found = merged.first[number]
    return found


@overload(operator.getitem, jit_options=PART)
def _getitem(merged, place):
    if isinstance(merged, types.NamedTuple) and merged.instance_class is Merged:
        return lambda merged, place: _at(merged, place)
    return None


@inlined
def _merged(queue, cursor, levels):
    merged = Merged(levels.first, levels.last, levels.after, levels.here, cursor[TAIL] - cursor[MID])
    return merged, 0


@inlined
def _as_it_is(queue, cursor, levels):
    return queue.requests, cursor[MID]


def seen_queue(queue: Any, cursor: Any, levels: Any) -> Any:
    """Return the waiting requests as a rule reads them, and the place of the oldest."""
    return _as_it_is(queue, cursor, levels) if levels is None else _merged(queue, cursor, levels)


@overload(seen_queue, jit_options=PART)
def _seen_queue(queue, cursor, levels):
    # A compiled function has one return type, and these two have different ones.
    which = _as_it_is if isinstance(levels, types.NoneType) else _merged
    return lambda queue, cursor, levels: which(queue, cursor, levels)


@compiled
def take(size, queue, cursor, levels):
    """Move the next `size` requests to the front of `queue.requests[mid:tail]`."""
    row = 0
    for number in range(size):
        while levels.first[row] == NOBODY:
            row += 1
        queue.requests[cursor[MID] + number] = _pop(row, levels)


@compiled
def overdue(now_s, requests, queue, cursor, levels):
    """Delay the requests whose timeout is over, up to the first that leaves; return whether one does.

    That one is moved to `queue.requests[mid]`.
    """
    for level in range(levels.timeout_s.size):
        row = 2 * level
        while levels.first[row] != NOBODY:
            request = levels.first[row]
            if now_s < later(requests.arrival_s[request], levels.timeout_s[level]):
                break
            _pop(row, levels)
            if levels.delays[level]:
                append(request, row + 1, levels)
                levels.late[request] = True
            else:
                queue.requests[cursor[MID]] = request
                return True
    return False


@inlined
def expiry_s(requests, levels):
    """Return when the next timeout of a request is over."""
    soonest_s = math.inf
    for level in range(levels.timeout_s.size):
        if levels.first[2 * level] != NOBODY:
            due_s = later(requests.arrival_s[levels.first[2 * level]], levels.timeout_s[level])
            soonest_s = min(soonest_s, due_s)
    return soonest_s


@compiled
def fill_lists(queue, begin, end, requests, levels):
    """Make the lists from `queue.requests[begin:end]`, which has the requests of each list in order."""
    levels.first[:] = NOBODY
    for place in range(begin, end):
        request = queue.requests[place]
        append(request, 2 * requests.level[request] + levels.late[request], levels)


@compiled
def empty_lists(queue, cursor, levels):
    """Write the waiting requests to `queue.requests[mid:tail]`, list by list, as `fill_lists` needs them."""
    place = cursor[MID]
    for row in range(levels.first.size):
        request = levels.first[row]
        while request != NOBODY:
            queue.requests[place] = request
            request = levels.after[request]
            place += 1
    assert place == cursor[TAIL]
