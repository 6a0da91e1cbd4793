"""The commands of the course: `batchsim grade` (a class's files), `batchsim lab`, `batchsim page`."""

import glob
import importlib.util
import os
import subprocess
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import batchsim
from batchsim import _check, _format
from batchsim.cli import output
from batchsim.cli.flags import OUTPUT, RUN, Command, JsonFlag

if TYPE_CHECKING:
    from batchsim.teaching.classroom import Classroom

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet evaluates text that begins so


@dataclass
class Grade(JsonFlag):
    """Make one table of the progress files that students handed in; exit code 2 if one is refused.

    batchsim grade handed-in/*.json
    """

    files: list[Path] | None = typer.Argument(None, help="The students' files, such as ann.json.")
    csv: bool = OUTPUT("Print the table as CSV instead.", False, "--csv")
    any_version: bool = RUN("Take files of other versions of batchsim too.", False, "--any-version")

    def run(self) -> None:
        from batchsim.teaching.classroom import Classroom

        if not self.files:
            raise ValueError("progress files must be given, as handed-in/*.json, got none")
        if self.csv and self.json_:
            raise ValueError("one of --csv and --json must be given, got both")
        them = Classroom(_expanded(self.files), self.any_version)
        if self.json_:
            hardest = [each._asdict() for each in them.hardest()]
            output.print_json({"students": them.rows(), "hardest": hardest, "refused": them.refused})
        elif self.csv:
            _print_csv(them.rows())
        elif them.records:
            _print_table(them)
        for refusal in them.refused:
            typer.echo(f"Error: {' '.join(refusal.split())}", err=True)
        if them.refused:
            raise typer.Exit(2)


def _expanded(files: list[Path]) -> list[Path]:
    """Return the files, each once; Windows' shell does not expand patterns."""
    found = [Path(name) for file in files for name in (sorted(glob.glob(str(file))) or [str(file)])]
    return list(dict.fromkeys(found))


def _print_table(them: "Classroom") -> None:
    columns = {"student": "left", **dict.fromkeys(them.lessons, "right")}
    columns |= dict.fromkeys(["solved", "by_trying", "tries", "predicted"], "right")
    rows = []
    for row in them.rows():
        lessons = [_of(row[f"{lesson}_solved"], row[f"{lesson}_tried"]) for lesson in them.lessons]
        predicted = _of(row["predicted_right"], row["predicted"])
        rows.append((row["student"], *lessons, row["solved"], row["by_trying"], row["tries"], predicted))
    notes = [
        f"{each.exercise}: {each.mean_tries:.1f} tries a student, not solved by {each.unsolved} of "
        f"{each.students}. Most often ({each.given_by}) the answer was {each.answer}: {each.told}"
        for each in them.hardest()
    ]
    students = _format.counted(len(rows), "student")
    title = f"{students}: exercises solved/tried in each lesson, predictions right/committed"
    output.print_table(title, columns, rows, ["Hardest:", *notes] if notes else [])


def _of(good: int, count: int) -> str:
    return f"{good}/{count}" if count else "-"


def _print_csv(rows: list[dict[str, Any]]) -> None:
    import pandas

    frame = pandas.DataFrame(rows)
    for name in frame.select_dtypes(exclude="number"):
        frame[name] = [f"'{text}" if text.startswith(FORMULA) else text for text in frame[name]]
    typer.echo(frame.to_csv(index=False), nl=False)


@dataclass
class Lab(Command):
    """Open the course in JupyterLab."""

    port: int = RUN("Port to listen on, on this machine only.", 8888)
    notebooks: Path | None = OUTPUT("Folder of notebooks (default: the course's).", metavar="FOLDER")

    def run(self) -> None:
        _check.whole("--port", self.port, at_most=65_535)
        course = [Path(batchsim.__file__).parents[1] / "notebooks", Path("notebooks")]
        folders = [self.notebooks] if self.notebooks else course
        folder = next((folder for folder in folders if folder.is_dir()), None)
        if folder is None:
            where = f"got {self.notebooks}" if self.notebooks else "which a copy of the project has"
            raise ValueError(f"the notebooks must be in a folder, {where}; --notebooks names one")
        if importlib.util.find_spec("jupyterlab") is None:
            raise ValueError("JupyterLab must be installed, by `make lab` or `pip install jupyterlab`")
        first = folder / "00-explorer.ipynb"
        start = f"/lab/tree/{folder.name}/{first.name}" if first.exists() else f"/lab/tree/{folder.name}"
        command = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--port={self.port}"]
        # The list of files begins with folders: students would see the solutions first.
        command.append("--ContentsManager.hide_globs=['solutions']")
        command += ["--LanguageServerManager.autodetect=False", f"--LabApp.default_url={start}"]
        if hasattr(os, "getuid") and os.getuid() == 0:
            # JupyterLab refuses to run as root otherwise; here it listens on loopback only, with a token.
            command.append("--allow-root")
        place = folder.resolve().parent
        if os.name == "posix":
            os.chdir(place)
            os.execv(command[0], command)  # replaces this process, so that JupyterLab gets a `kill`
        running = subprocess.Popen(command, cwd=place)
        while True:
            try:
                raise typer.Exit(running.wait())
            except KeyboardInterrupt:
                continue  # JupyterLab receives it too, and asks whether to stop


@dataclass
class Page(Command):
    """Open the page that needs no notebook and no network, and print its path."""

    show: bool = OUTPUT("Open it in the browser, not only print its path.", True, "--open/--no-open")

    def run(self) -> None:
        from batchsim.web import PAGE

        if not PAGE.exists():
            raise ValueError("the page must be built first: `make page` in a copy of the project")
        typer.echo(PAGE)
        if self.show:
            webbrowser.open(PAGE.as_uri())
