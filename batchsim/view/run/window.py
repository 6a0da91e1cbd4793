"""The moment of a run that its timeline shows: a few batches in a row, and the requests round them."""

from typing import NamedTuple

import numpy as np

from batchsim.engines.log import Status
from batchsim.result import Result

BATCHES, REQUESTS = 4, 12  # at least so many requests, in so many batches or more
LONG = 2.0  # a wait from longer before the window than so many windows is cut off at its edge


class Window(NamedTuple):
    """A stretch of a run: the numbers of its first and last batch, its requests, and its ends in seconds."""

    first: int
    last: int
    requests: np.ndarray  # their numbers, in order of arrival; where others overtake, batch by batch
    begin_s: float
    end_s: float


def window(result: Result, at_s: float | None = None) -> Window:
    """Return a few batches in a row from the middle of a run, or from a time on, and the requests round them.

    Of a model that compiles, from the beginning instead of the middle: later nothing is seen of that.

    A run without a batch has a window of its first requests.
    """
    batches = result.batches
    if not len(batches):
        requests = np.arange(min(REQUESTS, result.arrival_s.size))
        begin_s, end_s = float(result.arrival_s[0]), float(result.arrival_s[requests[-1]])
        waited_s = float(np.where(np.isfinite(result.timeout_s), result.timeout_s, 0.0).max())
        return Window(0, -1, requests, begin_s, max(end_s + waited_s, begin_s + 1e-6))
    if at_s is None and result.scenario.service.compile_ms:
        at_s = 0.0
    if at_s is None:
        first = max(len(batches) // 2 - BATCHES // 2, 0)
    else:
        first = int(np.clip(np.searchsorted(batches.start_s, at_s, side="right") - 1, 0, len(batches) - 1))
    carried = np.cumsum(batches.batch_size[first:])
    last = first + max(int(np.searchsorted(carried, REQUESTS)), BATCHES - 1)
    last = min(last, len(batches) - 1)
    first = min(first, max(last - BATCHES + 1, 0))
    within = (result.batch_index >= first) & (result.batch_index <= last)
    inside = np.flatnonzero(within)
    # Those between them that were lost belong to the picture, too.
    lost = np.arange(inside[0], inside[-1] + 1)
    requests = lost[within[lost] | (result.status[lost] != Status.SERVED)]
    start_s, end_s = float(batches.start_s[first]), float(batches.finish_s[first : last + 1].max())
    oldest_s = float(result.arrival_s[requests[0]])
    if not result.scenario.in_order:  # batch by batch, the lost first: else each would lie across others
        requests = requests[np.argsort(result.batch_index[requests], kind="stable")]
    return Window(first, last, requests, max(oldest_s, start_s - LONG * (end_s - start_s)), end_s)
