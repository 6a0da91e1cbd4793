"""A rule as pseudo-code: its lines, the share of the batches that left by each, and the acting line."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from batchsim._format import counted, percent
from batchsim.result import Result
from batchsim.scenario import Continuous, Scenario
from batchsim.scenario.rules import Rule, Trigger
from batchsim.scenario.rules.rule import ANYONE
from batchsim.view.film.snapshot import Activity, Snapshot
from batchsim.view.theme import THEMES, named


@dataclass(frozen=True)
class CodeLine:
    """A line of the pseudo-code; the first line whose condition holds acts.

    A line with a `trigger` makes a batch leave, and `because` completes "The batch leaves because ...". A
    line with an `activity` acts between departures. For token generation, the choice of a step's rows ends
    at a line with an `ending`, and `because` describes it.
    """

    text: str
    indent: int = 1
    trigger: Trigger | None = None
    activity: Activity | None = None
    because: str = ""
    ending: str = ""

    @property
    def title(self) -> str:
        """The effect of the line, as a sentence."""
        return f"{'In such a step' if self.ending else 'The batch leaves because'} {self.because}."


def step_lines(rule: Continuous) -> tuple[CodeLine, ...]:
    """Return the lines of a rule; the choice of each step's rows ends at a line with an `ending`.

    >>> for line in step_lines(Continuous(max_num_seqs=64, kv_blocks=300)):
    ...     print("  " * line.indent + line.text)
    each step, of 2,048 tokens:
      first the running requests
      if blocks run out: preempt the last
      elif the budget is used: others wait
      elif 64 run: others wait
      elif no blocks for the next: it waits
      else: all that wait join
    """
    first = (
        "first the running requests"
        if rule.first == "decode"
        else "new prompts alone, else the running requests"
    )
    budget = counted(rule.max_num_batched_tokens, "token")
    lines = [CodeLine(f"each step, of {budget}:", indent=0), CodeLine(first)]
    limited, step = rule.kv_blocks is not None, rule.reserve == "step"
    blocks = "no blocks for the next" if step else "no blocks for the next one's life"
    uncut = "the next is above budget or memory" if limited else "the next is above the budget"
    endings = [
        ("preempt", limited and step, "blocks run out", "preempt the last"),
        ("budget", True, "the budget is used" if rule.chunked else uncut,
         "others wait" if rule.chunked else "it waits"),
        ("seats", True, f"{rule.max_num_seqs:,} run", "others wait"),
        ("memory", limited and rule.chunked, blocks, "it waits"),
    ]  # fmt: skip
    word = "if"
    for ending, there, condition, action in endings:
        if there:
            because = f"{condition}: {action}"
            lines.append(CodeLine(f"{word} {because}", ending=ending, because=because))
            word = "elif"
    return (*lines, CodeLine("else: all that wait join", ending="all", because="all that wait join"))


def endings_of(result: Result) -> np.ndarray:
    """Return the index of the line at which the choice of rows ended, for each step of a run."""
    rule, steps = result.scenario.rule, result.steps
    assert isinstance(rule, Continuous)
    number = {line.ending: i for i, line in enumerate(step_lines(rule)) if line.ending}
    others = steps.waiting > 0
    found = np.full(len(steps), number["all"])
    found[others] = number.get("memory", number["budget"])
    found[others & (steps.running >= rule.max_num_seqs)] = number["seats"]
    found[others & (steps.tokens >= rule.max_num_batched_tokens)] = number["budget"]
    if "preempt" in number:
        found[steps.preempted > 0] = number["preempt"]
    return found


def step_shares(result: Result) -> tuple[float | None, ...]:
    """Return the fraction of steps that end at each line; None for lines without an ending."""
    lines, endings = step_lines(result.scenario.rule), endings_of(result)  # type: ignore[arg-type]
    counts = np.bincount(endings, minlength=len(lines)) / max(endings.size, 1)
    return tuple(float(share) if line.ending else None for line, share in zip(lines, counts, strict=True))


MOST_LINES = 7  # of any rule: the block has this height for all rules
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
    """
    rule, order = (of, "") if isinstance(of, Rule) else (of.rule, order_of(of))
    if isinstance(rule, Continuous):
        return step_lines(rule)
    conditions: list[tuple[str, str, dict[str, Any]]] = [
        ("every server is busy", "wait for a server", {"activity": Activity.QUEUEING}),
        *((s.condition, s.action, {"trigger": s.trigger, "because": s.because}) for s in rule.steps),
    ]
    if rule.forms_while_busy:
        conditions.append(conditions.pop(0))
    lines, word = [CodeLine(f"while requests wait{order}:", indent=0, activity=Activity.IDLE)], "if"
    for condition, action, kind in conditions:
        if order:  # the first requests in the queue are not the oldest
            action = action.replace("the oldest", "the first")
        lines.append(CodeLine(f"{word} {condition}: {action}" if condition else f"else: {action}", **kind))
        word = "elif"
    if not any(step.condition in ("", ANYONE) for step in rule.steps):  # these cover every case
        lines.append(CodeLine("else: wait for company", activity=Activity.FORMING))
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

    They sum to 1, over the batches after the warm-up; NaN for a run without a batch.

    >>> from batchsim import Affine, Constant, Scenario, SizeOrWait, simulate
    >>> shares(simulate(Scenario(Constant(1000), SizeOrWait(4, 2.5), Affine(1, 0)), requests=300))
    (None, None, 0.0, 1.0, 0.0, None)
    """
    if isinstance(result.scenario.rule, Continuous):
        return step_shares(result)
    summary = result.summary()
    otherwise = 0.0 if summary["batches"] else math.nan
    return tuple(
        None if line.trigger is None else summary.get(f"{line.trigger.name.lower()}_share", otherwise)
        for line in pseudocode(result.scenario)
    )


def acting(snapshot: Snapshot, within_s: float = 0.0) -> int:
    """Return the index of the acting line.

    A batch that left at most `within_s` ago counts as leaving: see `Snapshot.activity`.
    """
    activity = snapshot.activity(within_s)
    leaving = snapshot.last.trigger if snapshot.last and activity is Activity.LEAVING else None
    return acting_of(pseudocode(snapshot.scenario), activity, leaving)


def acting_of(lines: Sequence[CodeLine], activity: Activity, leaving: Trigger | None) -> int:
    """Return the index of the line of an activity, or of the trigger of a leaving batch."""
    return next(
        number
        for number, line in enumerate(lines)
        if (line.activity is activity if leaving is None else line.trigger is leaving)
    )


def sentence(lines: Sequence[CodeLine], shares: Sequence[float | None] | None = None) -> str:
    """Return why most batches leave, in one sentence; "" without shares.

    >>> from batchsim import SizeOrWait
    >>> sentence(pseudocode(SizeOrWait(32, 10)), (None, None, 0.62, 0.30, 0.08, None))
    'Most batches (62%) leave because 32 requests wait, a full batch.'
    """
    pairs = [(share, line) for share, line in zip(shares or (), lines, strict=False) if share and share > 0]
    if not pairs:
        return ""
    share, line = max(pairs, key=lambda pair: pair[0])
    if line.ending:
        steps = "In all steps" if share == 1 else f"In most steps ({percent(share)})"
        return f"{steps if share > 0.5 else f'Most often ({percent(share)} of the steps)'} {line.because}."
    batches = "All batches leave" if share == 1 else f"Most batches ({percent(share)}) leave"
    if share <= 0.5:
        batches = f"Batches leave most often ({percent(share)})"
    return f"{batches} because {line.because}."


def to_html(
    lines: Sequence[CodeLine], shares: Sequence[float | None] | None = None, acting: int | None = None,
    theme: str = "light",
) -> str:  # fmt: skip
    """Return the lines as a block of HTML, equally high for every rule, with the acting line marked.

    Screen readers read a sentence about the shares first, and the acting line as the current step.
    """
    colours = named("theme", theme, THEMES)

    def cell(style: str, text: str) -> str:
        return f'<span style="flex:none;{style}">{text}</span>'

    rows = []
    padded = [*lines, *[CodeLine("", 0)] * (MOST_LINES - len(lines))]
    for number, (line, share) in enumerate(zip_longest(padded, shares or ())):
        acts = number == acting
        arrow = '<span aria-hidden="true">▶\ufe0e</span>' if acts else ""
        bold = f";font-weight:bold;background:{colours.faint}" if acts else ""
        current = ' aria-current="step"' if acts else ""
        percentage = "" if share is None else percent(share)
        because = f' title="{html.escape(line.title)}"' if line.because else ""
        rows.append(
            f'<div style="display:flex;height:1.5em{bold}"{because}{current}>'
            + cell("width:1.6em;text-align:center", arrow)
            + cell(f"width:3.3em;margin-right:0.7em;text-align:right;color:{colours.soft}", percentage)
            + cell("", html.escape(" " * INDENT * line.indent + line.text))
            + "</div>"
        )
    style = (
        "margin:0;padding:0.4em 0.4em 0.4em 0;overflow:auto hidden;white-space:pre;"
        "font:var(--batchsim-code-size,12px)/1.5 monospace;"
        f"color:{colours.ink};background:{colours.background};border:1px solid {colours.faint}"
    )
    hidden = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"
    return (
        '<div role="group" aria-label="The rule as pseudo-code" style="position:relative">'
        f'<span style="{hidden}">{html.escape(sentence(lines, shares))}</span>'
        f'<div style="{style}">{"".join(rows)}</div></div>'
    )
