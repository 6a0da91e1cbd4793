"""The queue by priority level, and in each level those in time before the delayed ones.

Two views of the same requests. A linked list for each level, and one for its delayed requests, tells who
goes next; and `queue.requests[mid:tail]` keeps all that wait in order of arrival, as rules see them. Whoever
leaves is brought to the front of the latter, and goes on from there as in a queue without levels.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from batchsim.engines.columns import ENDLESS, HEAD, MID, TAIL
from batchsim.engines.kernels_jit import compiled, inlined

# What is `compiled` here is no part of a rule's loop, so that it is compiled once for all rules.
NOBODY, GONE = -1, -2  # in a list: no next one; has left it


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
    levels.after[request] = GONE
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


@inlined
def _place(request, line, begin, end):
    """Return the place of a request in a part of the line, which is in order of their numbers."""
    while begin < end:
        middle = (begin + end) // 2
        if line[middle] < request:
            begin = middle + 1
        else:
            end = middle
    return begin


@compiled
def take(size, queue, at, levels):
    """Bring the `size` requests that go first to the front of those that wait."""
    line = 0
    for number in range(size):
        while levels.first[line] == NOBODY:
            line += 1
        levels.taken[number] = _pop(line, levels)
    if size < at[TAIL] - at[MID]:  # else all go, in whatever order
        _bring_forward(size, queue, at, levels)


@compiled
def _bring_forward(size, queue, at, levels):
    """Move the `taken` to the front; the others keep their order.

    Those before one of the older half move back by a place, those behind one of the newer half move up: in
    a long queue whoever goes first is among the oldest, or, where a lower level waits, among the newest.
    """
    line, head, mid, tail = queue.requests, at[HEAD], at[MID], at[TAIL]
    # The places before the queue are free once as many have left it.
    middle = line[(mid + tail) // 2] if head >= size else ENDLESS
    newest, oldest, moved = NOBODY, ENDLESS, 0
    for number in range(size):
        request = levels.taken[number]
        if request < middle:
            newest = max(newest, request)
        else:
            oldest = min(oldest, request)
            moved += 1
    if newest != NOBODY:
        free = _place(newest, line, mid, tail)
        for place in range(free, mid - 1, -1):
            if levels.after[line[place]] != GONE:
                line[free] = line[place]
                free -= 1
    if moved:
        free = _place(oldest, line, (mid + tail) // 2, tail)
        for place in range(free, tail):
            if levels.after[line[place]] != GONE:
                line[free] = line[place]
                free += 1
        for place in range(head, mid):  # frozen batches make room
            line[place - moved] = line[place]
        at[HEAD], at[MID], at[TAIL] = head - moved, mid - moved, tail - moved
    for number in range(size):
        line[at[MID] + number] = levels.taken[number]


@compiled
def overdue(now_s, requests, queue, at, levels):
    """Delay whoever is due; bring one that leaves to the front of those that wait, if there is one."""
    for level in range(levels.timeout_s.size):
        line = 2 * level
        while levels.first[line] != NOBODY:
            request = levels.first[line]
            if now_s < requests.arrival_s[request] + levels.timeout_s[level]:
                break
            _pop(line, levels)
            if levels.delays[level]:
                append(request, line + 1, levels)
                levels.late[request] = True
            else:
                levels.taken[0] = request
                _bring_forward(1, queue, at, levels)
                return True
    return False


@inlined
def expiry_s(requests, levels):
    """Return when the next timeout is over."""
    soonest_s = math.inf
    for level in range(levels.timeout_s.size):
        if levels.first[2 * level] != NOBODY:
            due_s = requests.arrival_s[levels.first[2 * level]] + levels.timeout_s[level]
            soonest_s = min(soonest_s, due_s)
    return soonest_s


@compiled
def line_up(queue, begin, end, requests, levels):
    """Make the lists of `queue.requests[begin:end]`, who wait in order of arrival."""
    levels.first[:] = NOBODY
    for place in range(begin, end):
        request = queue.requests[place]
        append(request, 2 * requests.level[request] + levels.late[request], levels)
