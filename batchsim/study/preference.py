"""Tie-breaking: which setting to take if the latencies of several do not differ significantly."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from batchsim import _format
from batchsim.result.shares import students_t
from batchsim.scenario import Rule
from batchsim.study.slo import LEVEL

SAME = "the same saturation rate and mean"  # then the first in the grid is taken
Order = tuple[float, float, float]
ADVANTAGES = (
    "more headroom (saturation {}/s, not {}/s)", "a lower mean latency ({} ms, not {})",
    "a shorter wait ({} ms, not {})",
)  # fmt: skip
SECTIONS = 16  # of a run; settings are compared by their counts in each
NEAR = 1.2  # times the lowest loss: settings above it are not compared


def preference(saturation_per_s: float, mean_latency_ms: float, max_wait_ms: float) -> Order:
    """Return the sort key of a setting among others of the same latency: the smallest is taken.

    Headroom comes first, because a latency met today is missed once the load nears saturation. The mean
    latency is next, because every request pays it, then the shorter wait. Values that agree to four digits
    are equal, so that neither rounding nor a few requests at the end of a run decide.

    >>> settings = {"of 4, 5 ms": (753, 6.4, 5), "of 32, no wait": (1421, 6.9, 0)}
    >>> min(settings, key=lambda name: preference(*settings[name]))
    'of 32, no wait'
    """
    mean_ms = math.inf if math.isnan(mean_latency_ms) else mean_latency_ms
    return -float(f"{saturation_per_s:.4g}"), float(f"{mean_ms:.4g}"), max_wait_ms


def advantage(chosen: Order, other: Order) -> str:
    """Return why the chosen setting is better than another, given both sort keys; "" if they are equal.

    >>> advantage(preference(1421, 6.9, 0), preference(753, 6.4, 5))
    'more headroom (saturation 1,421/s, not 753/s)'
    """
    for text, mine, others in zip(ADVANTAGES, chosen, other, strict=True):
        if mine != others:
            return text.format(_format.number(abs(mine), 4), _format.number(abs(others), 4))
    return ""


def settle(
    rules: Sequence[Rule | None], losses: np.ndarray,
    compare: Callable[[np.ndarray, float], tuple[np.ndarray, np.ndarray]],
    saturation_per_s: Callable[[int], float],
) -> tuple[np.ndarray, int | None]:  # fmt: skip
    """Return which cells of a map tie with the one of the lowest loss, and which of them to take.

    `losses`: inf for a cell without a steady state. `compare(cells, loss)` returns, for some cells, how many
    requests of each section did worse than the loss, shape (cells, sections), and their mean latencies in ms.
    All cells met the same requests, so the differences are paired: two cells tie if the 95 % interval of
    their mean difference (Student's t over the sections) contains 0.
    """
    first = int(np.argmin(losses))
    if not losses[first] < math.inf:
        return np.empty(0, int), None
    near = np.flatnonzero(losses <= NEAR * losses[first])
    worse, mean_ms = compare(near, float(losses[first]))
    difference = worse - worse[near == first]
    half = students_t(LEVEL, SECTIONS) * difference.std(axis=1, ddof=1) / math.sqrt(SECTIONS)
    tied = np.flatnonzero(np.abs(difference.mean(axis=1)) <= half)

    def order(place: int) -> Order:
        rule = rules[near[place]]
        assert rule is not None
        return preference(saturation_per_s(int(near[place])), float(mean_ms[place]), rule.max_wait_ms)

    return near[tied], int(near[min(tied.tolist(), key=order)])
