"""Checking answers: hints in steps, and guessed answers do not count as known."""

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

    Every wrong answer gets a hint about its mistake. The second one also lists the parts of the answer, the
    third names the section of the lesson that explains it, and the fourth shows an example with other
    numbers. Repeating an answer does not count as another try.

    A right number after more than two wrong ones (more than one, if few numbers are possible) may be a
    guess. `check` then asks once more with new numbers, which differ between students. The second right
    answer counts.

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
        put = f"{question} your answer in place of the ...: {task.asks}."
        print(f"Not answered yet: {task.missing or put}")
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
    return _varied(EXERCISES[exercise], key, rounds - 1) if rounds else EXERCISES[exercise]


def _varied(task: Exercise, key: str, turn: int) -> Exercise:
    draw = random.Random(f"{key} {task.name}")
    orders = {name: draw.sample(values, len(values)) for name, values in task.vary.items()}
    # In turn, so that the same value never comes twice in a row.
    return task.varied({name: order[turn % len(order)] for name, order in orders.items()})


def _noted(exercise: str, asked: Exercise, answer: Any, verdicts: list[Verdict]) -> list[str]:
    """Record an answer, and return the lines to print."""
    lines: list[str] = []

    def note(record: Record) -> None:
        tried = record.exercises.setdefault(exercise, Tried(first_at=now()))
        rounds = tried.rounds
        lines.extend(_judged(asked, answer, verdicts, tried))
        if tried.rounds > rounds:
            lines.append(_asked(exercise, record.key, tried.rounds).again)
        elif (
            tried.tries == 4 and not verdicts[0].right and any(len(each) > 1 for each in asked.vary.values())
        ):
            other = _varied(EXERCISES[exercise], record.key, -1)  # not the numbers that may be asked next
            lines.append(
                f"An example with other numbers: {other.again} Answer: {other.judge(other.right()).text}"
            )
        tried.last_at = now()
        if verdicts[0].right and (evidence := asked.evidence(answer)):
            record.evidence[exercise] = evidence

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
        return [f"Right: {before}", "Once more with new numbers, then it counts:", asked.again]
    wrong = Wrong(in_short(answer), textwrap.shorten(text, LONGEST_HINT, placeholder=" ..."), tried.rounds)
    same = [each.answer for each in tried.wrong if (each.told, each.rounds) == (wrong.told, wrong.rounds)]
    if wrong not in tried.wrong:
        tried.wrong = [*tried.wrong, wrong][:KEPT]
        tried.tries += 1
        tried.since += 1
    if tried.tries > 3 and same and wrong.answer not in same:
        text = f"the hint for {same[0]} holds for {wrong.answer} too."
    return [f"Not yet: {text}", *_steps(asked, tried)]


def _solved(asked: Exercise, tried: Tried) -> list[str]:
    """Note that an answer is right, or ask once more."""
    guessed = asked.few is not None and tried.since > asked.few
    others = f"It came after {_format.counted(tried.since, 'other answer')}, so"
    if guessed and asked.vary and not tried.rounds:
        tried.rounds, tried.since = 1, 0
        return [f"{others} here is the same question once more, with new numbers. Then it counts."]
    tried.solved_at, tried.by_trying = now(), guessed
    return [f"{others} it counts as found by trying."] if guessed else []


def _steps(asked: Exercise, tried: Tried) -> list[str]:
    """Return the lines after the hint: a new one with each of the first wrong answers."""
    steps = []
    if tried.tries == 2 and asked.parts:
        steps.append(f"What you need: {asked.parts}.")
    if tried.tries == 3 and asked.look:
        steps.append(f"Where to look: “{asked.look}”, in this lesson.")
    if asked.few is not None and tried.since == asked.few + 1:
        then = (
            "counted as found by trying"
            if tried.rounds or not asked.vary
            else "asked once more with new numbers"
        )
        steps.append(f"Numbers can be guessed, so after {tried.since} others a right answer is {then}.")
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
