"""Which of several settings to take where no run tells their latencies apart."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from batchsim import _format
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.study.judgement import LEVEL, Estimate, can_lose

Order = tuple[float, float, float]
ADVANTAGES = (
    "more headroom (saturation {}/s, not {}/s)",
    "a lower mean latency ({} ms, not {})",
    "a shorter wait ({} ms, not {})",
)


class Tie(NamedTuple):
    """A setting whose latency no run tells from the recommended one's, and what that one has over it."""

    knobs: Mapping[str, Any]
    advantage: str


def preference(saturation_per_s: float, mean_latency_ms: float, max_wait_ms: float) -> Order:
    """Return the sort key of a setting among others of the same latency: the smallest is taken.

    Headroom comes first, because a latency met today is missed once the load nears saturation; then the
    mean latency, which every request pays; then the shorter wait. What agrees to four digits is equal, so
    that a float's rounding or a few requests at the end of a run decide nothing.

    >>> settings = {"of 4, 5 ms": (753, 6.4, 5), "of 32, no wait": (1421, 6.9, 0)}
    >>> min(settings, key=lambda name: preference(*settings[name]))
    'of 32, no wait'
    """
    mean_ms = math.inf if math.isnan(mean_latency_ms) else mean_latency_ms
    return -float(f"{saturation_per_s:.4g}"), float(f"{mean_ms:.4g}"), max_wait_ms


def advantage(chosen: Order, other: Order) -> str:
    """Return what the chosen setting has over another, given both sort keys; "" if nothing.

    >>> advantage(preference(1421, 6.9, 0), preference(753, 6.4, 5))
    'more headroom (saturation 1,421/s, not 753/s)'
    """
    for text, mine, others in zip(ADVANTAGES, chosen, other, strict=True):
        if mine != others:
            return text.format(_format.number(abs(mine), 4), _format.number(abs(others), 4))
    return ""


def slower_by(result: Result, than: Result, key: str, level: float = LEVEL) -> Estimate:
    """Return how much higher a latency is than in another run of the same traffic, with its interval.

    The comparison is paired, request by request. It is NaN where requests can be lost, because a difference
    is of those served; its interval is NaN where runs are too short for one.
    """
    if can_lose(result.scenario) or can_lose(than.scenario):
        return Estimate(math.nan, math.nan, math.nan)
    return Estimate(*compare(than, result, [key], level, silent=True)[key][2:])
