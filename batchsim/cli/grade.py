"""`batchsim grade`: the progress files of a class as one table."""

import glob
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchsim import _format
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, JsonFlag

if TYPE_CHECKING:
    from batchsim.cli.classroom import Classroom

# A spreadsheet evaluates text that begins so, some also with letters of full width.
FORMULA = tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")


@dataclass
class Grade(JsonFlag):
    """Make one table of the progress files that students handed in; exit code 2 if one is refused.

    batchsim grade handed-in/*.json
    """

    files: list[Path] | None = typer.Argument(None, help="The students' files, such as ann.json.")
    csv: bool = OUTPUT("Print the table as CSV instead.", False, "--csv")
    canvas: bool = OUTPUT("Print the file that Canvas imports; names are login IDs.", False, "--canvas")
    moodle: bool = OUTPUT("Print the file that Moodle imports; names are usernames.", False, "--moodle")
    any_version: bool = RUN("Take files of other versions of batchsim too.", False, "--any-version")

    def run(self) -> None:
        from batchsim.cli.classroom import Classroom

        if not self.files:
            raise ValueError("progress files must be given, as handed-in/*.json, got none")
        formats = {"--json": self.json_, "--csv": self.csv, "--canvas": self.canvas, "--moodle": self.moodle}
        if len(chosen := [name for name, wanted in formats.items() if wanted]) > 1:
            raise ValueError(f"one of {', '.join(formats)} must be given, got {' and '.join(chosen)}")
        them = Classroom(_expanded(self.files), self.any_version)
        if self.json_:
            hardest = [each._asdict() for each in them.hardest()]
            output.print_json({"students": them.rows(), "hardest": hardest, "refused": them.refused})
        elif chosen:
            _print_csv(_of_canvas(them) if self.canvas else _of_moodle(them) if self.moodle else them.rows())
        elif them.records:
            _print_table(them)
        for refusal in them.refused:
            output.echo(f"Error: {refusal}", err=True)
        if them.refused:
            raise typer.Exit(2)


def _expanded(files: list[Path]) -> list[Path]:
    """Return the files, each once; Windows' shell does not expand patterns."""
    found = [Path(name) for file in files for name in (sorted(glob.glob(str(file))) or [str(file)])]
    return list(dict.fromkeys(found))


def _print_table(them: "Classroom") -> None:
    columns = {"student": "left", **dict.fromkeys(them.lessons, "right")}
    columns |= dict.fromkeys(["solved", "tries", "predicted"], "right")
    rows = []
    for row in them.rows():
        lessons = [_of(row[f"{lesson}_solved"], row[f"{lesson}_tried"]) for lesson in them.lessons]
        predicted = _of(row["predicted_right"], row["predicted"])
        rows.append((row["student"], *lessons, row["solved"], row["tries"], predicted))
    notes = [
        f"{each.exercise}: {each.mean_tries:.1f} tries a student, solved by "
        f"{each.students - each.unsolved} of {each.students}. "
        f"Most often ({each.given_by}) the answer was {each.answer}: {each.told}"
        for each in them.hardest()
    ]
    students = _format.counted(len(rows), "student")
    title = f"{students}: exercises solved/tried in each lesson, predictions right/committed"
    output.print_table(title, columns, rows, ["Hardest:", *notes] if notes else [])


def _of(good: int, count: int) -> str:
    return f"{good}/{count}" if count else "-"


def _points(them: "Classroom", row: dict[str, Any]) -> dict[str, Any]:
    return {f"batchsim lesson {lesson}": row[f"{lesson}_solved"] for lesson in them.lessons}


def _of_canvas(them: "Classroom") -> list[dict[str, Any]]:
    """Return the rows of Canvas' gradebook: the points that are possible, then the students' by login ID."""
    who = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
    possible = {f"{lesson}_solved": count for lesson, count in them.exercises.items()}
    rows = [{"Student": "    Points Possible"} | _points(them, possible)]
    rows += [
        {"Student": row["student"], "SIS Login ID": row["student"]} | _points(them, row)
        for row in them.rows()
    ]
    return [dict.fromkeys(who, "") | row for row in rows]


def _of_moodle(them: "Classroom") -> list[dict[str, Any]]:
    """Return the rows that Moodle maps to grade items, by username."""
    return [{"username": row["student"]} | _points(them, row) for row in them.rows()]


def _print_csv(rows: list[dict[str, Any]]) -> None:
    import pandas

    frame = pandas.DataFrame(rows)
    for name in frame.select_dtypes(exclude="number"):
        frame[name] = [f"'{text}" if text.startswith(FORMULA) else text for text in frame[name]]
    output.echo(frame.to_csv(index=False), nl=False)
