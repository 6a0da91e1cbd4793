"""Checking answers: hints in steps, and guessed answers do not count as known."""

import math
import numbers
import random
import re
import textwrap
from typing import Any

from batchsim import _check, _format
from batchsim.teaching import progress_store
from batchsim.teaching.exercises import EXERCISES
from batchsim.teaching.exercises.exercise import Exercise, Verdict
from batchsim.teaching.progress_store import KEPT, Record, Tried, Wrong, now

LONGEST, LONGEST_HINT = 60, 200  # stored letters of an answer, and of its hint


def check(exercise: str, answer: Any) -> None:
    """Print whether the answer to an exercise is right and why, or a hint that does not give it away.

    `exercise` is its number, such as "01.1". `...` means that the answer is still missing.

    Hints come in steps. Every wrong answer gets a hint about its mistake. From the second one on, `check`
    also lists the parts of the answer, and from the third on the section of the lesson that explains it.
    Repeating an answer does not count as another try.

    Guessing does not win. A right number after more than two wrong ones (more than one, if few numbers are
    possible) may come from narrowing the range. `check` then confirms it and asks the same question with
    new numbers, which differ between students. With the right method, the new answer is quick to find.

    >>> check("01.1", ...)
    Not answered yet: put your answer in place of the ...: a number (requests per second).
    >>> from batchsim.teaching import SERVICE
    >>> check("01.1", 12 / SERVICE(12))
    Right: 12 requests every 3.65 ms are 3,288 requests per second.
    """
    if exercise not in EXERCISES:
        nearest = _check.nearest(str(exercise), EXERCISES)
        raise ValueError(f"exercise must be one of the lessons', got {exercise!r}{nearest}")
    task, record = EXERCISES[exercise], progress_store.load()
    # The current question, then the earlier ones: their answers stay right, for example when the whole
    # notebook runs again.
    rounds = record.exercises.get(exercise, Tried()).rounds
    asked = [_asked(exercise, record.key, number) for number in range(rounds, -1, -1)]
    if task.is_open(answer):
        question = f"{asked[0].again} Put" if rounds else "put"
        print(f"Not answered yet: {question} your answer in place of the ...: {task.asks}.")
    else:
        try:
            verdicts = [each.judge(answer) for each in asked]
        except (TypeError, ValueError) as error:
            print(f"Not yet: {error}. The exercise asks for {task.asks}.")
        else:
            print(*_noted(exercise, asked[0], answer, verdicts), sep="\n")
    for note in progress_store.notes():
        print(note)


def _asked(exercise: str, key: str, rounds: int) -> Exercise:
    """Return an exercise with its first numbers, or with the new numbers of this student."""
    task = EXERCISES[exercise]
    if not rounds:
        return task
    draw = random.Random(f"{key} {exercise}")
    orders = {name: draw.sample(values, len(values)) for name, values in task.vary.items()}
    # In turn, so that the same value never comes twice in a row.
    return task.varied({name: order[(rounds - 1) % len(order)] for name, order in orders.items()})


def _noted(exercise: str, asked: Exercise, answer: Any, verdicts: list[Verdict]) -> list[str]:
    """Record an answer, and return the lines to print."""
    lines: list[str] = []

    def note(record: Record) -> None:
        tried = record.exercises.setdefault(exercise, Tried(first_at=now()))
        rounds = tried.rounds
        lines.extend(_judged(asked, answer, verdicts, tried))
        if tried.rounds > rounds:
            lines.append(_asked(exercise, record.key, tried.rounds).again)
        tried.last_at = now()

    progress_store.change(note)
    return lines


def _judged(asked: Exercise, answer: Any, verdicts: list[Verdict], tried: Tried) -> list[str]:
    right, text = verdicts[0]
    before = next((verdict.text for verdict in verdicts[1:] if verdict.right), "")
    if tried.solved_at:
        return [f"Right: {text if right else before}"] if right or before else [f"Not yet: {text}"]
    if right:
        tried.tries += 1
        return [f"Right: {text}", *_solved(asked, tried)]
    if before:
        return ["Not yet: that was right for the earlier numbers. Now they are different:", asked.again]
    wrong = Wrong(in_short(answer), textwrap.shorten(text, LONGEST_HINT, placeholder=" ..."), tried.rounds)
    if wrong not in tried.wrong:
        tried.wrong = [*tried.wrong, wrong][:KEPT]
        tried.tries += 1
        tried.since += 1
    return [f"Not yet: {text}", *_steps(asked, tried)]


def _solved(asked: Exercise, tried: Tried) -> list[str]:
    """Note that an answer is right, or ask again."""
    if asked.few is None or tried.since <= asked.few:
        tried.solved_at = now()
        return []
    others = f"It came after {_format.counted(tried.since, 'other answer')}"
    if not _others(asked, tried):
        tried.solved_at, tried.by_trying = now(), True
        return [f"{others}, so it counts as found by trying."]
    tried.rounds, tried.since = tried.rounds + 1, 0
    return [f"{others}, so here is the same question with new numbers. If you know the method, it is quick."]


def _others(asked: Exercise, tried: Tried) -> bool:
    """Return whether some of the exercise's other numbers are left."""
    return bool(asked.vary) and tried.rounds < math.lcm(*map(len, asked.vary.values()))


def _steps(asked: Exercise, tried: Tried) -> list[str]:
    """Return the lines after the hint: more with each wrong answer."""
    steps = []
    if tried.tries >= 2 and asked.parts:
        steps.append(f"What you need: {asked.parts}.")
    if tried.tries >= 3 and asked.look:
        steps.append(f"Where to look: “{asked.look}”, in this lesson.")
    if asked.few is not None and tried.since > asked.few:
        then = "followed by new numbers" if _others(asked, tried) else "counted as found by trying"
        steps.append(
            f"That is {tried.since} answers. Numbers can be guessed, so a right answer is now {then}."
        )
    return steps


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
