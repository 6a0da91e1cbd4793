"""A student's progress: what was predicted and solved, what is next, and a file of it for the teacher."""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from batchsim import _check
from batchsim._format import aligned, html_table
from batchsim.teaching import progress_store
from batchsim.teaching.exercises import EXERCISES
from batchsim.teaching.progress_store import Predicted, Record, Tried, name_of, now, read, write

HEADINGS, SIDES = ("lesson", "predicted", "solved", "exercises"), "<<<<"


def progress(name: str | None = None, file: str | os.PathLike[str] | None = None) -> "Progress":
    """Return this student's progress; `name` sets the student's name, once.

    The progress is stored in `~/.batchsim/progress.json`, only on this computer. `file` chooses another file
    for this kernel, for example if several students share an account. The environment variable
    BATCHSIM_PROGRESS chooses a file for all kernels, or turns saving off ("off"). ValueError if the file
    belongs to another student.

    >>> progress(name="Ann").student
    'Ann'
    """
    if file is not None:
        progress_store.use(_check.path("file", file))
    if name is not None:
        name = name_of(name)
        student = progress_store.load().student
        if student not in ("", name):
            whose, path = _whose(student), progress_store.place()[0]
            where = f" ({path})" if path is not None else ""
            same = f"If it is the same student: bs.teaching.progress().rename({name!r})"
            other = f"If not: bs.teaching.progress().start_over({name!r}) begins a new file and keeps {whose}"
            raise ValueError(f"this is {whose} progress{where}, got name={name!r}. {same}. {other}")
        if not student:
            progress_store.change(lambda record: setattr(record, "student", name))
    return _noted(Progress(progress_store.load()))


class Row(NamedTuple):
    """A lesson: predictions that were right and committed, exercises that were solved, and each of them."""

    lesson: str
    right: int
    predicted: int
    solved: int
    exercises: int
    each: str


class Progress:
    """A student's progress, as `progress()` returns it; a notebook shows it as a table."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @property
    def student(self) -> str:
        """The student's name; "" until `progress(name=...)` sets it."""
        return self.record.student

    @property
    def next(self) -> str:
        """The first unsolved exercise, "" if all are solved."""
        return next((name for name in EXERCISES if not self._tried(name).solved_at), "")

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write a file for the teacher, as "ann.json", and return its path.

        It contains the student's name, answers and times, and no other data of this computer. An existing
        file is replaced only if it is an older one of the same student.
        """
        path = _check.path("path", path)
        if not self.student:
            raise ValueError('set the student\'s name first: bs.teaching.progress(name="Ann")')
        if path.exists():
            there = read(path)  # raises unless it is a progress file
            if there.key != self.record.key:
                raise ValueError(f"{path} is {_whose(there.student)} progress, not {_whose(self.student)}")
        if (latest := progress_store.load()).key == self.record.key:
            self.record = latest
        write(path, self.record)
        return path

    def rename(self, name: str) -> "Progress":
        """Change the student's name."""
        name = name_of(name)
        return _noted(Progress(progress_store.change(lambda record: setattr(record, "student", name))))

    def start_over(self, name: str | None = None) -> "Progress":
        """Begin again, by default as the same student; the old progress stays in another file."""
        student = self.student if name is None else name_of(name)
        path, _ = progress_store.place()
        if path is not None and path.exists():
            progress_store.set_aside(path, re.sub(r"[^\w-]+", "-", self.student).strip("-") or "before")
        progress_store.begin(student)
        return _noted(Progress(progress_store.load()))

    def rows(self) -> Iterator[Row]:
        """Yield a row for each lesson."""
        modules = {lesson_of(name): type(each).__module__ for name, each in EXERCISES.items()}
        keys = {key: lesson_of(key) for key in self.record.predictions}
        for lesson in sorted({*modules, *keys.values()}):
            predictions = [each for key, each in self.record.predictions.items() if keys[key] == lesson]
            exercises = [name for name in EXERCISES if lesson_of(name) == lesson]
            module = modules.get(lesson, "").rpartition(".")[2].replace("_", "-")
            yield Row(
                f"{lesson}-{module}".rstrip("-"),
                sum(each.right for each in predictions),
                len(predictions),
                sum(bool(self._tried(name).solved_at) for name in exercises),
                len(exercises),
                "; ".join(filter(None, (_in_words(name, self._tried(name)) for name in exercises))),
            )

    def _tried(self, exercise: str) -> Tried:
        return self.record.exercises.get(exercise, Tried())

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row.lesson,
                f"{row.right} of {row.predicted} right" if row.predicted else "-",
                f"{row.solved} of {row.exercises}" if row.exercises else "-",
                row.each,
            )
            for row in self.rows()
        ]

    def _words(self) -> tuple[str, list[str]]:
        """Return the title of the table, and the lines below it."""
        whose = f"{_whose(self.student)} progress" if self.student else "Your progress"
        path, why = progress_store.place()
        below = [f"Next: exercise {self.next}." if self.next else "Every exercise is solved."]
        if path is not None:
            below.append(f"Kept in {path}.")
        elif why != progress_store.OF_TESTS:
            below.append(f"Not kept: {why}.")
        if not self.student:
            below.append('Whose is it? Set the name with bs.teaching.progress(name="Ann").')
        return whose, below

    def __repr__(self) -> str:
        title, below = self._words()
        lines = aligned([HEADINGS, *self._cells()], SIDES)
        return "\n".join([title, *(f"  {line}" for line in lines), *below])

    def _repr_html_(self) -> str:
        title, below = self._words()
        lines = "<br>".join(map(html.escape, below))
        return f"{html_table(title, HEADINGS, self._cells(), SIDES)}<p>{lines}</p>"


def note_prediction(key: str, chosen: str, right: bool) -> None:
    """Record a prediction; the first one counts."""

    def note(record: Record) -> None:
        record.predictions.setdefault(key, Predicted(chosen, right, now()))

    progress_store.change(note)


def lesson_of(name: str) -> str:
    """Return the lesson of an exercise or a prediction.

    >>> lesson_of("01.1"), lesson_of("01.a")
    ('01', '01')
    """
    return name.partition(".")[0]


def _in_words(exercise: str, tried: Tried) -> str:
    if not tried.tries:
        return ""
    how = "solved" if tried.solved_at else "not solved yet"
    return f"{exercise.partition('.')[2]} {how} ({'1 try' if tried.tries == 1 else f'{tried.tries} tries'})"


def _noted(it: Progress) -> Progress:
    """Print the notes about the file, above the table."""
    for note in progress_store.notes():
        print(note)
    return it


def _whose(student: str) -> str:
    return f"{student}'s" if student else "somebody's"
