"""Priority levels: the shares of the requests, and the limits of each level's queue.

Level 1 is served first, and the oldest first within a level. With `timeout_action="delay"`, requests past
their timeout come after the others of their level.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from batchsim import _check
from batchsim._format import brief

MOST = 255  # the last level: a column of levels takes one byte a request
ACTIONS = ("reject", "delay")
Shares = tuple[tuple[int, float], ...]  # (level, share of the requests), by rising level


def check(shares: Any) -> Shares:
    """Return priority levels and their shares in order, or raise."""
    try:
        pairs = [
            (level, share) for level, share in (shares.items() if isinstance(shares, Mapping) else shares)
        ]
    except (TypeError, ValueError):
        raise TypeError(f"priorities must be {{level: share of the requests}}, got {shares!r}") from None
    checked = sorted(
        (
            _check.whole("a priority level", level, at_most=MOST),
            _check.real(f"the share of priority level {level}", share, above=0, at_most=1),
        )
        for level, share in pairs
    )
    if not checked:
        raise ValueError("priorities must have at least one level, got none")
    if len({level for level, _ in checked}) < len(checked):
        raise ValueError(f"priority levels must differ, got {brief([level for level, _ in checked])}")
    total = math.fsum(share for _, share in checked)
    if abs(total - 1) > 1e-9:
        raise ValueError(f"the shares of priority levels must sum to 1, got {total:.9g}")
    return tuple(checked)


def draw(shares: Shares, generator: np.random.Generator, requests: int) -> np.ndarray:
    """Return the levels of the next requests, uint8, from one random number each.

    Inversion keeps the level of most requests when the shares change.
    """
    levels, parts = zip(*shares, strict=True)
    ends = np.cumsum(parts)[:-1]  # the last level has the rest, so rounding cannot exceed it
    return np.array(levels, np.uint8)[np.searchsorted(ends, generator.random(requests), side="right")]


class Limits(NamedTuple):
    """When a request of a level is rejected, and when it times out or is delayed."""

    queue: int | None  # an arrival is rejected when this many of its level wait
    timeout_s: float  # after this wait a request leaves, or goes to the end; inf: never
    delays: bool  # whether it goes to the end, behind the others of its level

    @property
    def lossless(self) -> bool:
        """Whether every request is served."""
        return self.queue is None and (self.delays or self.timeout_s == math.inf)

    def longest(self, rate_per_s: float) -> float:
        """Return the longest queue possible at a throughput; inf: unlimited."""
        timeout_s = math.inf if self.delays else self.timeout_s
        return min(timeout_s * rate_per_s, math.inf if self.queue is None else self.queue)


def check_by_level(name: str, value: Any, levels: Iterable[int], checked: Any) -> Any:
    """Return a limit as it is stored, one for all or {level: one}, checked by `checked(name, value)`."""
    if not isinstance(value, Mapping):
        return checked(name, value)
    known = list(levels)
    if not known:
        rule = f"{name} by priority level needs a workload with priorities"
        raise ValueError(f"{rule}, as Poisson(900).with_priorities({{1: 0.2, 2: 0.8}}), got {dict(value)!r}")
    for level in value:
        if _check.whole(f"a priority level in {name}", level) not in known:
            has = ", ".join(map(str, known))
            raise ValueError(f"{name} must be of the workload's priority levels, {has}, got {level}")
    return {level: checked(f"{name} of priority level {level}", value[level]) for level in sorted(value)}


def limits_of(queue_limit: Any, timeout_ms: Any, action: Any, levels: Iterable[int]) -> tuple[Limits, ...]:
    """Return the limits of each level, in order; without priorities, of the only queue."""

    def of(value: Any, level: int, otherwise: Any = None) -> Any:
        return value.get(level, otherwise) if isinstance(value, Mapping) else value

    found = []
    for level in tuple(levels) or (0,):
        ms = of(timeout_ms, level)
        timeout_s = math.inf if ms is None else ms / 1000
        delays = of(action, level, ACTIONS[0]) == "delay" and timeout_s < math.inf
        found.append(Limits(of(queue_limit, level), timeout_s, delays))
    return tuple(found)
