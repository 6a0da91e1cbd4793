"""The loop that adds up when all engines compute, and so how long requests queued."""

# mypy: disable-error-code="no-untyped-def"

from batchsim.engines.kernels import soonest
from batchsim.engines.kernels_jit import compiled
from batchsim.engines.kernels_sums import _span_at


@compiled
def queue_up(steps, count, started, first_step, arrival_s, until_s, spans, known, all_busy_s, queueing_s):
    """Note how long each of the `started` requests queued; return how many spans there are.

    `started` are those whose first step is one of the `count` steps, in this order. `spans` are the times at
    which every engine computes, as rows [from, to, total before]: waiting meanwhile is queueing, not forming.
    `all_busy_s`, shape (1,), is their sum.
    """
    place = 0
    for row in range(count):
        now_s = steps.start_s[row]
        while place < started.size and first_step[started[place]] == steps.first + row:
            request = started[place]
            at_s, before_s = arrival_s[request], 0.0
            place += 1
            if known > 0:
                span = _span_at(at_s, spans, known)
                before_s = spans[span, 2]
                if spans[span, 0] <= at_s:
                    before_s += min(at_s, spans[span, 1]) - spans[span, 0]
            # Every span that is known ended by now: an engine is free.
            queueing_s[request] = min(max(all_busy_s[0] - before_s, 0.0), now_s - at_s)
        until_s[steps.server[row]] = steps.finish_s[row]
        free_s = soonest(until_s)
        if free_s > now_s:
            if known > 0 and spans[known - 1, 1] == now_s:
                spans[known - 1, 1] = free_s
            else:
                spans[known, 0], spans[known, 1], spans[known, 2] = now_s, free_s, all_busy_s[0]
                known += 1
            all_busy_s[0] += free_s - now_s
    return known
