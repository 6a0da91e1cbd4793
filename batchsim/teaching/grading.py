"""Checking answers: hints in steps, and a record of the tries."""

import numbers
import re
import textwrap
from typing import Any

from batchsim import _check
from batchsim.teaching import progress_store
from batchsim.teaching.exercises import EXERCISES
from batchsim.teaching.exercises.exercise import Verdict
from batchsim.teaching.output_capture import NO_BREAK, UNIT, bring_style
from batchsim.teaching.progress_store import KEPT, Record, Tried, Wrong, now

LONGEST, LONGEST_HINT = 60, 200  # stored letters of an answer, and of its hint
WIDTH = 100  # letters; JupyterLab breaks a longer line within a word


def check(exercise: str, answer: Any) -> None:
    """Print whether the answer to an exercise is right and why, or a hint that does not give it away.

    `exercise` is its number, such as "01.1". `...` means that the answer is still missing.

    Every wrong answer gets a hint about its mistake. The second one also lists the parts of the answer, and
    the third names the section of the lesson that explains it. Repeating an answer does not count as another
    try.

    >>> check("01.1", ...)
    Not answered yet: put your answer in place of the ...: a number (requests per second).
    >>> from batchsim.teaching import SERVICE
    >>> check("01.1", 12 / SERVICE(12))
    Right: 12 requests every 3.65 ms are 3,288 requests per second.
    """
    if exercise not in EXERCISES:
        nearest = _check.nearest(str(exercise), EXERCISES)
        raise ValueError(f"exercise must be one of the lessons', got {exercise!r}{nearest}")
    task = EXERCISES[exercise]
    bring_style()
    if task.is_open(answer):
        put = f"put your answer in place of the ...: {task.asks}."
        print(f"Not answered yet: {task.missing or put}")
    else:
        try:
            verdict = task.judge(answer)
        except (TypeError, ValueError) as error:
            say(f"Not yet: {error}. The exercise asks for {task.asks}.")
        else:
            say(*_noted(exercise, answer, verdict))
    for note in progress_store.notes():
        print(note)


def say(*texts: str) -> None:
    """Print texts, and break long lines between words, but not before a unit."""
    for line in "\n".join(texts).split("\n"):
        kept = UNIT.sub(NO_BREAK, line)
        lines = textwrap.wrap(kept, WIDTH - 4, break_long_words=False) if len(line) > WIDTH else [line]
        print("\n    ".join(lines).replace(NO_BREAK, " "))


def _noted(exercise: str, answer: Any, verdict: Verdict) -> list[str]:
    """Record an answer, and return the lines to print."""
    right, text = verdict
    if not verdict.is_try:
        return [f"Not yet: {text}"]
    wrong = Wrong(in_short(answer), textwrap.shorten(text, LONGEST_HINT, placeholder=" ..."))
    before = progress_store.load().exercises.get(exercise, Tried()).wrong
    same = [each.answer for each in before if each.told == wrong.told]

    def note(record: Record) -> None:
        tried = record.exercises.setdefault(exercise, Tried(first_at=now()))
        tried.last_at = now()
        if tried.solved_at or (not right and wrong in tried.wrong):
            return
        tried.tries += 1
        if right:
            tried.solved_at = now()
        else:
            tried.wrong = [*tried.wrong, wrong][:KEPT]

    tried = progress_store.change(note).exercises[exercise]
    if right or tried.solved_at:
        return [f"{'Right' if right else 'Not yet'}: {text}"]
    if tried.tries > 3 and same and wrong.answer not in same:
        text = f"{wrong.answer} is wrong as {same[0]} was: {text}"
    task = EXERCISES[exercise]
    steps = {2: f"What you need: {task.parts}.", 3: f"Where to look: “{task.look}”, in this lesson."}
    return [f"Not yet: {text}", *([steps[tried.tries]] if tried.tries in steps else [])]


def in_short(answer: Any) -> str:
    """Return an answer in a few letters, the same for the same answer in every kernel.

    >>> in_short(3287.6712328767125), in_short({"a": [1, 2]})
    ('3287.67', "{'a': [1, 2]}")
    """
    try:
        text = f"{answer:.6g}" if isinstance(answer, numbers.Real) else repr(answer)
    except Exception:  # a student's own class may have any __repr__
        text = type(answer).__name__
    return textwrap.shorten(re.sub(r" at 0x[0-9a-fA-F]+", "", text), LONGEST, placeholder=" ...")
