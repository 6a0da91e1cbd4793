"""In a notebook, a line below the cell says that the engine is being compiled, then how long it took."""

import html
import importlib
import sys
import time
from typing import Any

WHAT = "batchsim's engine, once on this machine"


class CompilingLine:
    """A line of the cell that runs, in place of one on stderr, which a notebook shows in red as an error.

    Of several loops that one cell compiles, the line is the same.
    """

    def __init__(self) -> None:
        self.cell: Any = None
        self.handle: Any = None
        self.began_s, self.took_s = 0.0, 0.0

    def begin(self, seconds: float) -> bool:
        """Say that something is compiled, and how long it takes; return whether there is a notebook."""
        ipython: Any = sys.modules.get("IPython")
        shell: Any = ipython and ipython.get_ipython()
        if not hasattr(shell, "kernel"):  # a terminal's has none
            return False
        if self.cell != shell.execution_count:
            self.cell, self.handle, self.took_s = shell.execution_count, None, 0.0
        self.began_s = time.monotonic()
        more = " more" if self.handle else ""
        self._show(f"Compiling {WHAT}: about {seconds:g} s{more} …")
        return True

    def end(self) -> None:
        """Say how long it took."""
        self.took_s += time.monotonic() - self.began_s
        self._show(f"Compiled {WHAT}: {self.took_s:.1f} s.")

    def _show(self, text: str) -> None:
        display: Any = importlib.import_module("IPython.display").display
        soft = f'<span style="opacity: 0.7; font-size: smaller">{html.escape(text)}</span>'
        content = {"text/plain": text, "text/html": soft}
        if self.handle is None:
            self.handle = display(content, raw=True, display_id=True)
        else:
            self.handle.update(content, raw=True)
