"""Serve when enough requests wait: the (a, b) rule of queueing theory."""

from dataclasses import dataclass
from typing import Any

from batchsim import _check
from batchsim._format import ordinal
from batchsim.scenario.parameters import parameter
from batchsim.scenario.rules import rule as rule_api
from batchsim.scenario.rules.rule import Decision, Rule, Step, Threshold, Trigger, Waiting


def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
    """Send all that wait, up to a full batch, once `min_batch_size` wait."""
    if waiting.length >= params.max_batch_size:
        return rule_api.START, params.max_batch_size, rule_api.FULL
    if waiting.length >= params.min_batch_size:
        # The decisive request comes now, or came while every server was computing.
        due_s = rule_api.oldest_s(waiting, params.min_batch_size - 1)
        return rule_api.START, waiting.length, rule_api.ENOUGH if due_s == now_s else rule_api.BACKLOG
    if waiting.ended:
        return rule_api.START, waiting.length, rule_api.DRAIN
    return rule_api.NOTHING, 0, rule_api.FULL


@dataclass(frozen=True)
class AtLeast(Rule):
    """A batch leaves once `min_batch_size` requests wait, with at most `max_batch_size`: Neuts' (a, b) rule.

    >>> AtLeast(4, 8)
    AtLeast(min_batch_size=4, max_batch_size=8)
    """

    min_batch_size: int = parameter(
        "Min batch size", "An idle server waits until this many requests wait", usual=8, slider=(1, 64, 1)
    )
    max_batch_size: int = rule_api.max_batch_size()

    decide = staticmethod(decide)
    wake_s = staticmethod(rule_api.never_s)
    title = "Minimum batch size"
    map_knobs = ("max_batch_size", "min_batch_size")

    def check(self) -> None:
        _check.at_most("min_batch_size", self.min_batch_size, self.max_batch_size, "max_batch_size")

    @property
    def enough(self) -> int:
        return self.min_batch_size

    @property
    def threshold(self) -> Threshold:
        return Threshold(float("inf"), self.min_batch_size, self.max_batch_size)

    @property
    def steps(self) -> tuple[Step, ...]:
        size, enough = self.max_batch_size, self.min_batch_size
        full = rule_api.send_full(size)
        if size == 1:
            return (full,)
        if enough == 1:
            return (full, *rule_api.send_at_once(Trigger.ENOUGH))
        if enough == size:
            return (full, rule_api.REMAINDER)
        nth, free = ordinal(enough), f"a server became free and at least {enough:,} requests were waiting"
        came = f"the {nth} request came"
        return (
            full,
            Step(f"the {nth} comes now", "send all", Trigger.ENOUGH, came, "enough came"),
            Step(f"{enough:,} or more wait", "send all", Trigger.BACKLOG, free, "server became free"),
            rule_api.REMAINDER,
        )
