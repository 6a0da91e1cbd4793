"""A class's progress: the files that students handed in, as one table."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from batchsim._version import __version__
from batchsim.teaching.exercises import EXERCISES
from batchsim.teaching.progress import lesson_of
from batchsim.teaching.progress_store import Record, read

HARDEST = 3  # exercises


class Hard(NamedTuple):
    """An exercise that took many tries, and the wrong answer that most students gave."""

    exercise: str
    students: int
    unsolved: int
    mean_tries: float
    answer: str
    given_by: int
    told: str


class Classroom:
    """A class's progress files: the records that count, and the reason for each refused file.

    `any_version` also accepts files of other versions of batchsim, which may have other exercises.
    """

    def __init__(self, paths: Iterable[Path], any_version: bool = False) -> None:
        self.records: list[Record] = []
        self.refused: list[str] = []
        found = []
        for path in paths:
            try:
                found.append((path, _checked(path, any_version)))
            except (ValueError, OSError) as error:
                why = getattr(error, "strerror", None)
                self.refused.append(_plain(f"{path}: {why.lower()}" if why else str(error)))
        found.sort(key=lambda each: _last_at(each[1]), reverse=True)
        counted: list[tuple[Path, Record]] = []
        for path, record in found:  # the newest first
            if why := next(filter(None, (_twice(record, *other) for other in counted)), ""):
                self.refused.append(_plain(f"{path} {why}"))
            else:
                counted.append((path, record))
        self.records = sorted((record for _, record in counted), key=lambda each: each.student.casefold())

    @property
    def lessons(self) -> list[str]:
        """The numbers of the lessons that have exercises."""
        return sorted(self.exercises)

    @property
    def exercises(self) -> dict[str, int]:
        """The number of exercises of each lesson."""
        return dict(Counter(map(lesson_of, EXERCISES)))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each student: the exercises solved and tried in each lesson, then totals."""
        rows = []
        for record in self.records:
            row: dict[str, Any] = {"student": record.student}
            for lesson in self.lessons:
                tried = [each for name, each in record.exercises.items() if lesson_of(name) == lesson]
                row[f"{lesson}_solved"] = sum(bool(each.solved_at) for each in tried)
                row[f"{lesson}_tried"] = len(tried)
            all_tried = record.exercises.values()
            rows.append(
                row
                | {
                    "solved": sum(bool(each.solved_at) for each in all_tried),
                    "tried": len(all_tried),
                    "tries": sum(each.tries for each in all_tried),
                    "predicted": len(record.predictions),
                    "predicted_right": sum(each.right for each in record.predictions.values()),
                    "last_at": _last_at(record),
                    "batchsim": record.batchsim,
                }
            )
        return rows

    def hardest(self) -> list[Hard]:
        """Return the exercises that took most tries, the hardest first."""
        hard = []
        for name in EXERCISES:
            tried = [record.exercises[name] for record in self.records if name in record.exercises]
            wrong = [{(each.answer, each.told): None for each in it.wrong} for it in tried]
            answers = Counter(answer for given in wrong for answer in given)
            if answers:
                (answer, told), by = answers.most_common(1)[0]
                unsolved, tries = sum(not it.solved_at for it in tried), mean(it.tries for it in tried)
                hard.append(Hard(name, len(tried), unsolved, tries, _plain(answer), by, _plain(told)))
        return sorted(hard, key=lambda each: each.mean_tries, reverse=True)[:HARDEST]


def _checked(path: Path, any_version: bool) -> Record:
    """Read a progress file for grading. ValueError gives the reason if that is not possible."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name the files in it, as {path / '*.json'}")
    record = read(path)
    if not record.student:
        raise ValueError(
            f'{path} lacks a student\'s name: set it with bs.teaching.progress(name="...") before the export'
        )
    if record.batchsim != __version__ and not any_version:
        ours = f"this is {__version__}: its exercises may differ (--any-version accepts the file)"
        raise ValueError(f"{path}, {record.student}'s progress, is of batchsim {record.batchsim}, and {ours}")
    others = sorted(set(record.exercises) - set(EXERCISES))
    if others and not any_version:
        whose = f"{path}, {record.student}'s progress,"
        raise ValueError(
            f"{whose} has exercises that batchsim {__version__} does not have: {', '.join(others)}"
        )
    for name in others:
        del record.exercises[name]
    return record


def _twice(record: Record, newer: Path, other: Record) -> str:
    """Return the reason why a newer file replaces this one, "" if both count."""
    if record.key == other.key:
        return f"is an older file of the same student, {other.student}: {newer} is counted"
    if record.student.casefold() == other.student.casefold():
        rename = "if these are two students, rename one with bs.teaching.progress().rename()"
        return (
            f"is of a student named {record.student}, as {newer} is, which is newer and is counted: {rename}"
        )
    return ""


def _last_at(record: Record) -> str:
    times = [each.last_at for each in record.exercises.values()]
    return max([record.begun_at, *times, *(each.at for each in record.predictions.values())])


def _plain(text: str) -> str:
    """Return text of a file without the control characters that a terminal executes."""
    return "".join(letter for letter in text if letter.isprintable())
