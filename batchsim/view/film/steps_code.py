"""Continuous batching as pseudo-code: its lines, and which of them ended the choice of a step's rows."""

import numpy as np

from batchsim._format import counted
from batchsim.result import Result
from batchsim.scenario import Continuous
from batchsim.view.film.code_line import CodeLine


def step_lines(rule: Continuous) -> tuple[CodeLine, ...]:
    """Return the lines of a rule; each step ends at one of those that have an `ending`.

    >>> for line in step_lines(Continuous(max_num_seqs=64, kv_blocks=300)):
    ...     print("  " * line.indent + line.text)
    each step, of 2,048 tokens:
      first those that run
      if blocks run out: preempt the last
      elif the budget is used: others wait
      elif 64 run: others wait
      elif no blocks for the next: it waits
      else: all that wait join
    """
    first = "first those that run" if rule.first == "decode" else "new prompts alone, else those that run"
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
    """Return for each step of a run the index of the line at which the choice of its rows ended."""
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
    """Return for each line the fraction of the steps that ended there; None for lines where none ends."""
    lines, endings = step_lines(result.scenario.rule), endings_of(result)  # type: ignore[arg-type]
    counts = np.bincount(endings, minlength=len(lines)) / max(endings.size, 1)
    return tuple(float(share) if line.ending else None for line, share in zip(lines, counts, strict=True))
