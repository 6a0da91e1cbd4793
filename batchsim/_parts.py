"""Imports that fail: of a missing extra, the error names it; of a removed name, what to use instead."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from batchsim import _check

# The extra of pyproject.toml that brings each library that `pip install batchsim` leaves out.
EXTRAS = {
    "IPython": "notebook", "anywidget": "notebook", "distributed": "distributed", "google": "servers",
    "ipykernel": "notebook", "ipywidgets": "notebook", "jax": "device", "jupyter_server": "app",
    "jupyterlab": "notebook", "psutil": "device", "pyarrow": "distributed", "rich": "shell",
    "segno": "app", "tomlkit": "shell", "tornado": "app", "traitlets": "notebook", "tree_sitter": "servers",
    "tree_sitter_bash": "servers", "typer": "shell", "voila": "app", "yaml": "servers",
}  # fmt: skip
# Libraries with another name than their package.
PACKAGES = {
    "google": "protobuf", "tree_sitter": "tree-sitter", "tree_sitter_bash": "tree-sitter-bash",
    "yaml": "pyyaml",
}  # fmt: skip
IN_BROWSER = sys.platform == "emscripten"  # Pyodide: Python without threads, processes and sockets


class MissingPart(ModuleNotFoundError):
    """A library of an extra is not installed; the message is the command that installs it."""


class _Parts(MetaPathFinder):
    """The last finder of imports: it finds nothing, and raises the errors of this module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        library = fullname.partition(".")[0]
        if library in EXTRAS and _importer().partition(".")[0] == "batchsim":
            raise _missing(fullname)
        # Python drops the AttributeError of `from batchsim import name`, and looks for a module instead.
        package, _, name = fullname.rpartition(".")
        if package.partition(".")[0] == "batchsim" and (was := _check.removed(name)):
            raise ImportError(f"cannot import name {name!r} from {package!r}{was}")


def _missing(fullname: str, extra: str = "") -> MissingPart:
    library = fullname.partition(".")[0]
    command = f"pip install 'batchsim[{extra or EXTRAS[library]}]'"
    asked = "needs a computer with batchsim, got a browser" if IN_BROWSER else "must be installed"
    return MissingPart(f"{PACKAGES.get(library, library)} {asked}: {command}", name=fullname)


def _importer() -> str:
    """Return the name of the module whose import, or call of `importlib`, is under way."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(("importlib", "_frozen_importlib")):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def name_extras() -> None:
    """Let imports of missing libraries name their extras; other packages' imports fail as before."""
    sys.meta_path.append(_Parts())


def need_computer(what: str) -> None:
    """Raise RuntimeError in a browser's Python."""
    if IN_BROWSER:
        raise RuntimeError(
            f"{what} needs a computer with batchsim, got a browser: docs/install.md says how to install it"
        )


def need(library: str, extra: str = "") -> None:
    """Raise MissingPart unless a library is installed; it is not imported. `extra` replaces its own."""
    try:
        found = importlib.util.find_spec(library)
    except MissingPart:
        found = None
    if found is None:
        raise _missing(library, extra)
