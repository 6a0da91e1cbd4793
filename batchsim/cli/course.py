"""The commands of the course: `batchsim lab`, `app`, `book` and `page`."""

import os
import subprocess
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import typer

from batchsim import _check, _compat, _format
from batchsim._compat import __version__
from batchsim.cli.flags import OUTPUT, RUN, Command
from batchsim.web import course_files

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
