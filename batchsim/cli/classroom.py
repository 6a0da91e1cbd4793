"""A class's progress: the files that students handed in, as one table."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from batchsim._compat import __version__
from batchsim._format import brief_text, in_one_line, several
from batchsim.teaching.exercises import EXERCISES
from batchsim.teaching.progress import lesson_of
from batchsim.teaching.progress_store import Record, read
from batchsim.web import course_files

HARDEST = 3  # exercises
AHEAD = timedelta(days=1)  # a computer's clock may be wrong by so much


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
                found.append((path, record := _checked(path, any_version), _last_at(record)))
            except (ValueError, OSError) as error:
                why = getattr(error, "strerror", None)
                self.refused.append(f"{path}: {why.lower()}" if why else str(error))
        soon = datetime.now(UTC) + AHEAD
        found.sort(key=lambda each: (each[2] < soon, each[2]), reverse=True)
        counted: list[tuple[Path, Record]] = []
        for path, record, last in found:  # the newest first, and at the end what is dated in the future
            alike = [(other, each) for other, each in counted if {*_who(record)} & {*_who(each)}]
            if same := next((other for other, each in alike if _who(record) == _who(each)), None):
                why = "an older file" if last < soon else f"a file of the future, {last:%Y-%m-%d},"
                why = f"{why} of the same student, {record.student}"
                self.refused.append(f"{path} is {why}: {same} is counted")
                continue
            for other, each in alike[:1]:
                what = f"the {'key' if record.key == each.key else 'name'} of {other}, {each.student}'s"
                remedy = "both count: leave one out, or rename one with bs.teaching.progress().rename()"
                self.refused.append(f"{path}, {record.student}'s progress, has {what}: {remedy}")
            counted.append((path, record))
        self.refused = [*map(in_one_line, self.refused)]
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
            rows.append(row)
            row |= {
                "solved": sum(bool(each.solved_at) for each in all_tried),
                "tried": len(all_tried),
                "tries": sum(each.tries for each in all_tried),
                "predicted": len(record.predictions),
                "predicted_right": sum(each.right for each in record.predictions.values()),
                "last_at": _last_at(record).isoformat(timespec="seconds"),
                "batchsim": record.batchsim,
            }
        return rows

    def hardest(self) -> list[Hard]:
        """Return the exercises that took most tries, the hardest first."""
        hard = []
        for name in EXERCISES:
            tried = [record.exercises[name] for record in self.records if name in record.exercises]
            wrong = [{(each.answer, each.told): None for each in it.wrong} for it in tried]
            answers = Counter(answer for given in wrong for answer in given)
            if answers:
                words, by = answers.most_common(1)[0]
                answer, told = map(in_one_line, words)
                unsolved, tries = sum(not it.solved_at for it in tried), mean(it.tries for it in tried)
                hard.append(Hard(name, len(tried), unsolved, tries, answer, by, told))
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
            f"{whose} has exercises that batchsim {__version__} does not have: {several(others)}"
        )
    for name in others:
        del record.exercises[name]
    for name in record.predictions.keys() - course_files.predictions():
        del record.predictions[name]
    record.batchsim = in_one_line(record.batchsim, 20)
    try:
        _last_at(record)
    except ValueError as error:
        why = brief_text(str(error))
        raise ValueError(f"{path}, {record.student}'s progress, has a time that is none: {why}") from None
    return record


def _who(record: Record) -> tuple[str, str]:
    """Return the key of a student's files, and the name; a student may change the name, or copy a file."""
    return record.key, f"name {record.student.casefold()}"


def _last_at(record: Record) -> datetime:
    """Return when something was noted last; ValueError if a time is none."""
    tried = record.exercises.values()
    texts = [time for each in tried for time in (each.first_at, each.last_at, each.solved_at) if time]
    predicted = [each.at for each in record.predictions.values()]
    times = map(datetime.fromisoformat, [record.begun_at, *texts, *predicted])
    return max(time if time.tzinfo else time.replace(tzinfo=UTC) for time in times)
