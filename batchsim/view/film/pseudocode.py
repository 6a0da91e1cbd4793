"""A rule as pseudo-code: its lines, the share of the batches that left by each, and the acting line."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import Any

from batchsim._compat import bincount
from batchsim._format import counted, percent
from batchsim.result import Result
from batchsim.scenario import Continuous, Scenario
from batchsim.scenario.rules import Rule, Trigger
from batchsim.scenario.rules.continuous import Ending
from batchsim.scenario.rules.rule import ANYONE

# The state of a rule between departures.
FORMING = "waiting for company"  # a server is idle, but the rule wants more requests, or time
QUEUEING = "waiting for a server"
IDLE = "no request waits"


@dataclass(frozen=True)
class CodeLine:
    """A line of the pseudo-code; the first line whose condition holds acts.

    A line with a `trigger` makes a batch leave, and `because` completes "The batch leaves because ..."; in
    continuous batching the choice of a step's rows ends there, and `because` describes it. A line with an
    `activity` acts between departures.
    """

    text: str
    indent: int = 1
    trigger: Enum | None = None
    activity: str = ""
    because: str = ""

    @property
    def of_step(self) -> bool:
        """Whether the choice of a step's rows ends here."""
        return isinstance(self.trigger, Ending)

    @property
    def title(self) -> str:
        """The effect of the line, as a sentence."""
        return f"{'In such a step' if self.of_step else 'The batch leaves because'} {self.because}."


INDENT = 2  # letters


def pseudocode(of: Rule | Scenario) -> tuple[CodeLine, ...]:
    """Return the lines of a rule, made from its steps; for a scenario, with the order of its queue.

    The rule evaluates them at each event: after the arrivals and the ends of batches of an instant, and
    after each request that a closed loop sends.

    >>> from batchsim import SizeOrWait
    >>> for line in pseudocode(SizeOrWait(max_batch_size=32, max_wait_ms=10)):
    ...     print("  " * line.indent + line.text)
    while requests wait:
      if every server is busy: wait for a server
      elif 32 or more wait: send the oldest 32
      elif the oldest has waited 10 ms: send all
      elif it has waited longer: send all
      else: wait for company

    In continuous batching a step ends at one of its lines.

    >>> for line in pseudocode(Continuous(max_num_seqs=64, kv_blocks=300)):
    ...     print("  " * line.indent + line.text)
    each step, of 2,048 tokens:
      first the running requests
      if blocks run out: preempt the last
      elif the budget is used: others wait
      elif 64 run: others wait
      elif no blocks for the next: it waits
      else: all that wait join
    """
    rule, order = (of, "") if isinstance(of, Rule) else (of.rule, order_of(of))
    conditions: list[tuple[str, str, dict[str, Any]]] = [
        (s.condition, s.action, {"trigger": s.trigger, "because": s.because}) for s in rule.steps
    ]
    if isinstance(rule, Continuous):
        first = "first" if rule.first == "decode" else "new prompts alone, else"
        lines = [CodeLine(f"each step, of {counted(rule.max_num_batched_tokens, 'token')}:", indent=0)]
        lines.append(CodeLine(f"{first} the running requests"))
    else:
        lines = [CodeLine(f"while requests wait{order}:", indent=0, activity=IDLE)]
        busy = "every server is busy", "wait for a server", {"activity": QUEUEING}
        conditions.insert(len(conditions) if rule.forms_while_busy else 0, busy)
    word = "if"
    for condition, action, more in conditions:
        if order:  # the first requests in the queue are not the oldest
            action = action.replace("the oldest", "the first")
        lines.append(CodeLine(f"{word} {condition}: {action}" if condition else f"else: {action}", **more))
        word = "elif"
    if not any(step.condition in ("", ANYONE) for step in rule.steps):  # these cover every case
        lines.append(CodeLine("else: wait for company", activity=FORMING))
    return tuple(lines)


def order_of(scenario: Scenario) -> str:
    """Return the order of a queue in words, "" if it is by age.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> order_of(Scenario(Poisson(9).with_priorities({1: 0.2, 2: 0.8}), SizeOrWait(), Affine(5, 1)))
    ', level 1 first'
    """
    if not scenario.by_level:
        return ""
    levels, delays = scenario.levels, any(limit.delays for limit in scenario.limits)
    first = f", level {levels[0]} first" if len(levels) > 1 else ""
    late = ", in a level the delayed last" if first else ", the delayed last"
    return first + late * delays


def shares(result: Result) -> tuple[float | None, ...]:
    """Return the fraction of batches that each line made leave; None for lines without a trigger.

    They sum to 1, over the batches after the warm-up; NaN for a run without a batch. In continuous batching
    they are the fractions of steps that end at each line.

    >>> from batchsim import Affine, Constant, Scenario, SizeOrWait, simulate
    >>> shares(simulate(Scenario(Constant(1000), SizeOrWait(4, 2.5), Affine(1, 0)), requests=300))
    (None, None, 0.0, 1.0, 0.0, None)
    """
    rule = result.scenario.rule
    if isinstance(rule, Continuous):
        ended = rule.ended(result.steps)
        counts = bincount(ended, minlength=len(rule.steps)) / max(ended.size, 1)
        found = {step.trigger: float(share) for step, share in zip(rule.steps, counts, strict=True)}
    else:
        summary = result.summary()
        otherwise = 0.0 if summary["batches"] else math.nan
        found = {each: summary.get(f"{each.name.lower()}_share", otherwise) for each in Trigger}
    triggers = (line.trigger for line in pseudocode(result.scenario))
    return tuple(None if each is None else found[each] for each in triggers)


def sentence(lines: Sequence[CodeLine], shares: Sequence[float | None] | None = None) -> str:
    """Return why most batches leave, in one sentence; "" without shares.

    >>> from batchsim import SizeOrWait
    >>> sentence(pseudocode(SizeOrWait(32, 10)), (None, None, 0.62, 0.30, 0.08, None))
    'Most batches (62%) leave because 32 requests have gathered, a full batch.'
    """
    pairs = [(share, line) for share, line in zip(shares or (), lines, strict=False) if share and share > 0]
    if not pairs:
        return ""
    share, line = max(pairs, key=lambda pair: pair[0])
    if line.of_step:
        steps = "In all steps" if share == 1 else f"In most steps ({percent(share)})"
        return f"{steps if share > 0.5 else f'Most often ({percent(share)} of the steps)'} {line.because}."
    batches = "All batches leave" if share == 1 else f"Most batches ({percent(share)}) leave"
    if share <= 0.5:
        batches = f"Batches leave most often ({percent(share)})"
    return f"{batches} because {line.because}."


def to_html(
    lines: Sequence[CodeLine], shares: Sequence[float | None] | None = None, acting: int | None = None
) -> str:  # fmt: skip
    """Return the lines as a block of HTML, with the acting line marked, for the explorer's style sheet.

    Screen readers read a sentence about the shares first, and the acting line as the current step.
    """
    rows = ""
    for number, (line, share) in enumerate(zip_longest(lines, shares or ())):
        current = ' aria-current="step"' if number == acting else ""
        because = f' title="{html.escape(line.title)}"' if line.because else ""
        left, text = "" if share is None else percent(share), " " * INDENT * line.indent + line.text
        rows += f"<div{because}{current}><span>{left}</span><span>{html.escape(text)}</span></div>"
    said = f"<span>{html.escape(sentence(lines, shares))}</span>"
    return f'<div role="group" aria-label="The rule as pseudo-code">{said}<div>{rows}</div></div>'
