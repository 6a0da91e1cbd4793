"""The commands of the course: `batchsim lab`, `app`, `book`, `page` and `grade`."""

import glob
import os
import subprocess
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchsim import _check, _compat, _format
from batchsim._compat import __version__
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, Command, JsonFlag
from batchsim.web import course_files

if TYPE_CHECKING:
    from batchsim.cli.classroom import Classroom

FOLDER = Path("batchsim-course")
SETTINGS = course_files.ROOT / "notebooks"


@dataclass
class Lab(Command):
    """Copy the course to ./batchsim-course, and open it in JupyterLab.

    A file that you changed is never replaced: its newer version is named.
    """

    options: list[str] | None = typer.Argument(None, help="JupyterLab's options, after --.", metavar="OPTION")
    port: int = RUN("Port to listen on, on this machine only.", 8888)
    notebooks: Path | None = OUTPUT("Open this folder of notebooks; nothing is copied.", metavar="FOLDER")

    def run(self) -> None:
        _check.whole("--port", self.port, at_most=65_535)
        if self.notebooks and not self.notebooks.is_dir():
            raise ValueError(f"--notebooks must be a folder, got {self.notebooks}")
        _compat.need("jupyterlab")
        if not self.notebooks:
            _copy()
        folder = (self.notebooks or FOLDER / "notebooks").resolve()
        first = folder / "00-explorer.ipynb"
        start = f"/lab/tree/{folder.name}/{first.name}" if first.exists() else f"/lab/tree/{folder.name}"
        command = ["jupyterlab", "--ip=127.0.0.1", f"--port={self.port}", f"--LabApp.default_url={start}"]
        # The list of files begins with folders: students would see the solutions first.
        command += ["--ContentsManager.hide_globs=['solutions']", "--LanguageServerManager.autodetect=False"]
        # JupyterLab asks no server for news, and sliders and pictures share one thread.
        command.append(f"--LabApp.app_settings_dir={SETTINGS / '.lab'}")
        if hasattr(os, "getuid") and os.getuid() == 0:
            # JupyterLab refuses to run as root otherwise; here it listens on loopback only, with a token.
            command.append("--allow-root")
        _become([*command, *(self.options or [])], folder.parent)


def _copy() -> None:
    written, newer = course_files.copy_to(FOLDER)
    if written:
        files = _format.counted(len(written), "file")
        typer.echo(f"The course of batchsim {__version__} is in {FOLDER}: {files} written.")
    for name in newer:
        typer.echo(f"Kept your {FOLDER / name}. A newer version is there: move yours away to get it.")


@dataclass
class App(Command):
    """Serve the explorer as a page; for a class, see docs/class.md.

    The token is read from the variable BATCHSIM_TOKEN, as others could see an option.
    """

    options: list[str] | None = typer.Argument(None, help="Options of Voila, after --.", metavar="OPTION")
    port: int = RUN("Port to listen on.", 8888)
    host: str = RUN("Address to listen on (default: this machine alone).", "", envvar="BATCHSIM_HOST")
    pages: int = RUN("The number of pages that may be open at once.", 40, envvar="PAGES")

    def run(self) -> None:
        _check.whole("--port", self.port, at_most=65_535)
        _compat.need("voila")
        told = {"BATCHSIM_HOST": self.host, "PORT": str(self.port), "PAGES": str(self.pages)}
        # A page that fetches nothing from elsewhere, and its settings.
        places = dict.fromkeys(("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"), str(SETTINGS / ".voila"))
        command = ["voila", str(SETTINGS / "app.ipynb"), f"--port={self.port}", *(self.options or [])]
        _become(command, Path.cwd(), told | places)


def _become(command: list[str], folder: Path, told: Mapping[str, str] | None = None) -> None:
    """Let a Python module take this process's place, so that it gets a `kill`; elsewhere, wait for it."""
    command, environment = [sys.executable, "-m", *command], {**os.environ, **(told or {})}
    if os.name == "posix":
        os.chdir(folder)
        sys.stdout.flush()
        os.execve(command[0], command, environment)
    running = subprocess.Popen(command, cwd=folder, env=environment)
    while True:
        try:
            raise typer.Exit(running.wait())
        except KeyboardInterrupt:
            continue  # it receives the signal too, and may ask whether to stop


@dataclass
class _Site(Command):
    """A command that opens a file which make builds and a wheel contains."""

    show: bool = OUTPUT("Open it in the browser, not only print its path.", True, "--open/--no-open")

    def run(self) -> None:
        from batchsim.web import PAGE

        name = type(self).__name__.lower()
        file = PAGE if name == "page" else course_files.ROOT / course_files.BOOK
        if not file.exists():
            raise ValueError(f"the {name} must be built first: `make {name}` in a copy of the project")
        typer.echo(file)
        if self.show:
            webbrowser.open(file.as_uri())


class Page(_Site):
    """Open the page that needs no notebook and no network, and print its path."""


class Book(_Site):
    """Open the course, the glossary and the reference as a site, and print its path."""


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
