"""Batches that form whether or not a server is free, and then wait for one as they are."""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from batchsim._format import typed
from batchsim.scenario.rules import rule as seam
from batchsim.scenario.rules.rule import Decision, Rule, Step, Trigger, Waiting


class FrozenBatchesParams(NamedTuple):
    """The parameters of `FrozenBatches`, the wait in seconds."""

    max_batch_size: int
    max_wait_s: float


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: FrozenBatchesParams) -> Decision:
    """Freeze a full batch, or what waits once the oldest has waited; start the oldest frozen batch."""
    if waiting.length >= params.max_batch_size:
        return seam.FREEZE, params.max_batch_size, seam.FULL
    if waiting.length > 0:
        if now_s >= seam.oldest_s(waiting) + params.max_wait_s:
            return seam.FREEZE, waiting.length, seam.WAIT
        if waiting.ended and params.max_wait_s == math.inf:
            return seam.FREEZE, waiting.length, seam.DRAIN
    if idle > 0 and waiting.frozen > 0:
        return seam.START, 0, seam.FULL
    return seam.NOTHING, 0, seam.FULL


def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: FrozenBatchesParams) -> float:
    """Return when the oldest request that is in no batch yet has waited."""
    return seam.oldest_s(waiting) + params.max_wait_s if waiting.length > 0 else math.inf


@dataclass(frozen=True)
class FrozenBatches(Rule):
    """A batch closes when it is full or its oldest has waited, and nobody joins it later.

    Closed, or frozen, batches queue for a server as they are: in a busy spell they pile up instead of
    growing, so that too short a wait overloads a server that would keep up with larger batches
    (`batchsim.theory.frozen_wait_min_ms`); `Scenario.stable` tells. `math.inf` means full batches only.

    >>> from batchsim import Affine, Poisson, Scenario
    >>> scenario = Scenario(Poisson(2000), FrozenBatches(32, max_wait_ms=2.2), Affine(1.8874, 0.1438))
    >>> scenario.stable, scenario.replace(max_wait_ms=2.1).stable
    (True, False)
    """

    max_batch_size: int = seam.max_batch_size(default=32)
    max_wait_ms: float = seam.max_wait_ms(default=10.0)  # type: ignore[misc]

    Params = FrozenBatchesParams
    decide = staticmethod(decide)
    wake_s = staticmethod(wake_s)
    freezes = forms_while_busy = True
    title = "Frozen batches"

    @property
    def params(self) -> FrozenBatchesParams:
        return FrozenBatchesParams(self.max_batch_size, self.max_wait_ms / 1000)

    def carried_per_s(self, rate_per_s: float, seconds: np.ndarray, servers: int) -> float:
        """Return the rate at which servers compute the batches that form under Poisson arrivals.

        A batch is the request that opens it and those that come within the wait, B - 1 at most; other
        traffic is taken as if it were Poisson. See `batchsim.theory.frozen_load`.
        """
        size, joined = seconds.size, rate_per_s * self.max_wait_ms / 1000 if self.max_wait_ms else 0.0
        if math.isinf(joined) or size == 1:
            return super().carried_per_s(rate_per_s, seconds, servers)
        if joined == 0:
            return float(servers / seconds[0])
        # The logarithms of Poisson's chances that 0, 1, ... size - 2 join; the rest is a full batch.
        logs = np.cumsum(np.append(-joined, math.log(joined) - np.log(np.arange(1, size - 1))))
        chances = np.exp(logs)
        chances = np.append(chances, max(0.0, 1 - chances.sum()))
        return float(servers * (chances @ np.arange(1, size + 1)) / (chances @ seconds))

    @property
    def steps(self) -> tuple[Step, ...]:
        size, wait_ms = self.max_batch_size, self.max_wait_ms
        if size == 1:
            one = Step("a request waits", "freeze it", Trigger.FULL, "one request is a full batch", "full")
            return (one,)
        because = f"{size:,} requests were a full batch, which nobody joins later"
        full = Step(f"{size:,} or more wait", f"freeze the oldest {size:,}", Trigger.FULL, because, "full")
        if math.isinf(wait_ms):
            return full, replace(seam.REMAINDER, action="freeze all")
        over = "a request waits" if wait_ms == 0 else f"the oldest has waited {typed(wait_ms)} ms"
        because = (
            "no batch waits for company" if wait_ms == 0 else f"its oldest had waited {typed(wait_ms)} ms"
        )
        return full, Step(over, "freeze all", Trigger.WAIT, because, "wait was over")
