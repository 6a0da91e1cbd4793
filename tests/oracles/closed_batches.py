"""TensorFlow Serving's shared batch scheduler, spelled as it works: full batches close and queue."""

import math

from oracles.naive import after


def closed_batches(arrival_s, service_s, *, size, wait_s, threads, most):
    """Return the batches, [(start, requests, thread)], and who was refused.

    The last of `batches` is open, the others are closed and full. Several things at one instant: tasks come,
    threads come free, and then these ask for work.
    """
    batches, opened_s = [[]], math.nan
    free_s, computed, refused = [-math.inf] * threads, [], []
    coming = list(enumerate(arrival_s))
    while True:
        instants = [coming[0][1]] if coming else []
        instants += [each for each in free_s if each > -math.inf]
        if -math.inf in free_s and batches[-1]:
            instants.append(after(opened_s, wait_s))
        if not instants:
            return computed, refused
        now = min(instants)
        while coming and coming[0][1] <= now:
            task, _ = coming.pop(0)
            if len(batches[-1]) + 1 > size:
                if len(batches) >= most:
                    refused.append(task)
                    continue
                batches.append([])
            if not batches[-1]:
                opened_s = now
            batches[-1].append(task)
        free_s = [-math.inf if each <= now else each for each in free_s]
        while -math.inf in free_s:
            is_due = len(batches[-1]) >= size or (bool(batches[-1]) and now >= after(opened_s, wait_s))
            if len(batches) == 1 and is_due:
                batches.append([])
            if len(batches) < 2:
                break
            thread, batch = free_s.index(-math.inf), batches.pop(0)
            computed.append((now, batch, thread))
            free_s[thread] = after(now, service_s[len(batch)])
