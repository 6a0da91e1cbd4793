"""Batches of which the next one forms as soon as the one before it starts."""

from dataclasses import dataclass
from typing import Any

from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import (
    Decision,
    LimitedBatches,
    Step,
    Trigger,
    Waiting,
    fitting,
    max_batch_units,
    units,
)


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Start the batch that was formed in advance, and form the next one of those that wait."""
    if waiting.frozen > 0:
        return (rule_api.START if idle > 0 else rule_api.NOTHING), 0, rule_api.FULL
    if waiting.length == 0:
        return rule_api.NOTHING, 0, rule_api.FULL
    size, full = fitting(waiting, params.max_batch_size, params.max_batch_units, params.units)
    return rule_api.FREEZE, size, rule_api.FULL if full else rule_api.timer(now_s, waiting, 0.0)


@dataclass(frozen=True, repr=False)
class PrefetchedBatches(LimitedBatches):
    """Batches without a timer: the next one forms as a batch starts, and waits unchanged for a server.

    It holds the requests that wait at that moment. If none does, it is the next request, alone: while a
    server computes, this batch does not grow. `max_batch_units` is a limit in units, as of `SizeOrWait`.

    >>> PrefetchedBatches(512, max_batch_units=16_384, units="summed")
    PrefetchedBatches(max_batch_size=512, max_batch_units=16384, units='summed')
    """

    max_batch_size: int = rule_api.max_batch_size(default=32)
    max_batch_units: int | None = max_batch_units()
    units: str = units()

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.never_s)
    freezes = forms_while_busy = True
    title = "Next batch in advance"
    used_by = "text-embeddings-inference"
    clock = "there is no clock: the next batch forms as a batch starts"
    map_knobs = "max_batch_size", "max_batch_units"
    enough = 1
    max_wait_ms = 0.0

    @property
    def steps(self) -> tuple[Step, ...]:
        size, free = self.max_batch_size, "no batch is ready"
        because = f"{size:,} requests were a full batch, or the next one would have exceeded its units"
        came = "it came while no batch was ready"
        if size == 1:
            return (Step(free, "form one", Trigger.FULL, "one request is a full batch", "full"),)
        return (
            Step(f"{free}, and a full batch waits", "form it", Trigger.FULL, because, "full"),
            Step(f"{free}, and one comes now", "form all", Trigger.WAIT, came, "no batch was ready"),
            Step(free, "form all", Trigger.BACKLOG, "the batch before it started", "batch before started"),
        )
