"""`batchsim lab`: the course in JupyterLab."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

import batchsim
from batchsim import _check
from batchsim.cli.flags import OUTPUT, RUN, Command


@dataclass
class Lab(Command):
    """Open the course in JupyterLab."""

    port: int = RUN.whole("Port to listen on, on this machine only.", 8888)
    notebooks: Path | None = OUTPUT.option("Folder of notebooks (default: the course's).")

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
        command += ["--LanguageServerManager.autodetect=False", f"--LabApp.default_url={start}"]
        if hasattr(os, "getuid") and os.getuid() == 0:
            # JupyterLab refuses to run as root otherwise; here it listens on loopback only, with a token.
            command.append("--allow-root")
        place = folder.resolve().parent
        if os.name == "posix":
            os.chdir(place)
            os.execv(command[0], command)  # not beside it: a `kill` is then JupyterLab's, as Ctrl-C is
        running = subprocess.Popen(command, cwd=place)
        while True:
            try:
                raise typer.Exit(running.wait())
            except KeyboardInterrupt:
                continue  # JupyterLab gets the signal too, and asks whether to stop
