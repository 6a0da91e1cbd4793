"""A copy of the project's files, for tests that follow CONTRIBUTING's recipes in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from places import ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def copied(folder: Path, *names: str) -> Path:
    """Copy files and folders of the project, with the loops that are compiled already; return the folder.

    Other processes may be writing there: what is not finished is left out.
    """
    for name in names:
        here, there = ROOT / name, folder / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir():
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("*.pyc*", "*.tmp.*"))
        else:
            shutil.copy(here, there)
    return folder


def changed(folder: Path, package: str = "batchsim") -> set[str]:
    """Return the Python files of a copied package that are new or differ, relative to the copy."""
    paths = {path.relative_to(folder).as_posix(): path for path in (folder / package).rglob("*.py")}
    return {
        name
        for name, path in paths.items()
        if not (ROOT / name).exists() or (ROOT / name).read_bytes() != path.read_bytes()
    }


def python(folder: Path, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, whose files come first."""
    unset = {"PYTEST_VERSION", "PYTEST_CURRENT_TEST"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, capture_output=True, text=True, check=False,
        timeout=600, env=inherited | {"PYTHONPATH": str(folder)} | environment,
    )  # fmt: skip
