"""The version, and what differs between machines: libraries, Python's versions, a browser's Python.

An import that fails says more than Python's own error: of a missing extra, the command that installs it; of a
removed name, what to use instead.
"""

import importlib.util
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from batchsim import _check

__version__ = "1.0.0"

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


if TYPE_CHECKING:
    kept = cached_property
else:

    class kept(cached_property):
        """`cached_property` without a lock, as Python 3.12 has it.

        Before, one lock serves all instances: two threads wait for each other for ever if one property needs
        another. Two threads may compute a value at the same time, and both find the same.

        >>> class Circle:
        ...     @kept
        ...     def area(self):
        ...         print("computed")
        ...         return 3.14
        >>> circle = Circle()
        >>> circle.area, circle.area
        computed
        (3.14, 3.14)
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


def _places(column: Any) -> np.ndarray:
    """Return NumPy's places: a browser has 32 bits for them, refuses wider ones, and counts in 32 bits."""
    return np.asarray(column).astype(np.intp, copy=False)


def bincount(column: Any, weights: Any = None, minlength: int = 0) -> np.ndarray:
    """Return how often each whole number occurs, or the sums of its weights.

    >>> bincount([0, 2, 2], minlength=4).tolist()
    [1, 0, 2, 0]
    """
    found = np.bincount(_places(column), weights, minlength)
    return found.astype(np.int64, copy=False) if weights is None else found


def repeat(values: Any, counts: Any) -> np.ndarray:
    """Return each value as often as its count says.

    >>> repeat([5, 7], [2, 1]).tolist()
    [5, 5, 7]
    """
    return np.repeat(values, _places(counts))


def reduceat(function: Any, column: Any, begins: Any, dtype: Any = None) -> np.ndarray:
    """Return the sums, or whatever a ufunc adds up to, from each begin to the next.

    >>> reduceat(np.add, np.array([1, 2, 4]), [0, 2]).tolist()
    [3, 4]
    """
    found: np.ndarray = function.reduceat(column, _places(begins), dtype=dtype)
    return found
