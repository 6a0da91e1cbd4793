"""A rule as pseudo-code: its lines, how many batches left by each, and the line that acts now."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchsim._format import percent
from batchsim.result import Result
from batchsim.scenario.rules import Rule, Trigger
from batchsim.view.canvas.theme import theme_of
from batchsim.view.film.snapshot import Doing, Moment

MOST_LINES = 7  # that any rule has
INDENT = 2  # letters


@dataclass(frozen=True)
class Line:
    """A line: the first whose condition holds acts.

    `triggers`: why the batches left that leave by it; `doing`: what the rule does while it acts, and no
    batch leaves. `because` ends the sentence "The batch leaves because ...".
    """

    text: str
    indent: int = 1
    triggers: tuple[Trigger, ...] = ()
    doing: Doing | None = None
    because: str = ""


def pseudocode(rule: Rule) -> tuple[Line, ...]:
    """Return the lines of a rule, with its own numbers; those that could never act are left out.

    They are gone through whenever something happens: after the arrivals and the ends of batches at an
    instant, and after each send of a closed loop. "no more will come" is that the last request has come.

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
    lines = [
        Line("while requests wait:", indent=0, doing=Doing.NOTHING),
        Line("if every server is busy: wait for a server", doing=Doing.SERVER),
    ]
    steps = rule.steps
    for number, step in enumerate(steps):
        always = not step.condition or (number == len(steps) - 1 and rule.enough == 1)
        condition = "else" if always else f"elif {step.condition}"
        lines.append(Line(f"{condition}: {step.action}", triggers=(step.trigger,), because=step.because))
    if rule.enough > 1 and rule.max_wait_ms > 0:
        lines.append(Line("else: wait for company", doing=Doing.COMPANY))
    return tuple(lines)


def shares(result: Result) -> tuple[float | None, ...]:
    """Return for each line the fraction of the batches that left by it; None where none can.

    They sum to 1. NaN for a run without a batch. Over the batches after the warm-up, as in `summary()`.

    >>> from batchsim import Affine, Constant, Scenario, SizeOrWait, simulate
    >>> shares(simulate(Scenario(Constant(1000), SizeOrWait(4, 2.5), Affine(1, 0)), requests=300))
    (None, None, 0.0, 1.0, 0.0, None)
    """
    return tuple(
        sum(result.metrics.numbers[f"{trigger.name.lower()}_share"] for trigger in line.triggers)
        if line.triggers
        else None
        for line in pseudocode(result.scenario.rule)
    )


def acting(moment: Moment, within_s: float = 0.0) -> int:
    """Return the index of the line that acts at a moment: the one by which a batch leaves, if any does.

    A batch that left `within_s` ago counts, too: see `Moment.doing`.
    """
    lines, doing = pseudocode(moment.rule), moment.doing(within_s)
    if doing is Doing.LEAVING and moment.last is not None:
        return next(i for i, line in enumerate(lines) if moment.last.trigger in line.triggers)
    return next(i for i, line in enumerate(lines) if line.doing is doing)


def sentence(lines: Sequence[Line], shares: Sequence[float | None] | None = None) -> str:
    """Return what the shares say, in one sentence; "" without any.

    >>> from batchsim import SizeOrWait
    >>> sentence(pseudocode(SizeOrWait(32, 10)), (None, None, 0.62, 0.30, 0.08, None))
    'Most batches (62 %) leave because 32 requests wait, a full batch.'
    """
    most, line = max(
        ((share, line) for share, line in zip(shares or (), lines, strict=False) if share),
        key=lambda pair: pair[0],
        default=(math.nan, None),
    )
    if line is None or math.isnan(most):
        return ""
    who = "All batches leave" if most == 1 else f"Most batches ({percent(most)}) leave"
    if most <= 0.5:
        who = f"Batches leave most often ({percent(most)})"
    return f"{who} because {line.because}."


def to_html(
    lines: Sequence[Line],
    shares: Sequence[float | None] | None = None,
    acting: int | None = None,
    theme: str = "light",
) -> str:
    """Return the lines as a block of HTML, as high for every rule, with the acting line marked.

    Screen readers find the sentence of the shares first, and the acting line as the current step.
    """
    colours = theme_of(theme)
    rows = []
    for number in range(max(MOST_LINES, len(lines))):
        line = lines[number] if number < len(lines) else Line("", 0)
        share = shares[number] if shares is not None and number < len(lines) else None
        acts = number == acting
        style = f"font-weight:bold;background:{colours.faint}" if acts else ""
        mark = f'<span aria-hidden="true" style="color:{colours.vermilion}">▶\ufe0e</span>' if acts else ""
        why = f' title="The batch leaves because {html.escape(line.because)}."' if line.because else ""
        now = ' aria-current="step"' if acts else ""
        text = html.escape(" " * INDENT * line.indent + line.text)
        rows.append(
            f'<div style="display:flex;height:1.5em;{style}"{why}{now}>'
            f'<span style="flex:none;width:1.6em;text-align:center">{mark}</span>'
            f'<span style="flex:none;width:3.3em;margin-right:0.7em;text-align:right;color:{colours.soft}">'
            f"{'' if share is None else percent(share)}</span>"
            f'<span style="flex:none">{text}</span></div>'
        )
    look = (
        f"margin:0;padding:0.4em 0.4em 0.4em 0;overflow:auto hidden;"
        "font:var(--batchsim-code-size,12px)/1.5 monospace;white-space:pre;"
        f"color:{colours.ink};background:{colours.background};border:1px solid {colours.faint}"
    )
    hidden = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"
    said = f'<span style="{hidden}">{html.escape(sentence(lines, shares))}</span>'
    return (
        f'<div role="group" aria-label="The rule as pseudo-code" style="position:relative">{said}'
        f'<div style="{look}">{"".join(rows)}</div></div>'
    )
