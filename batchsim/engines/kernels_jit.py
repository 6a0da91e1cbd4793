"""How the loops are compiled, and how it is said that they are."""

import contextlib
import hashlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core.event import Event, Listener, register
from numba.core.options import DefaultOptions

# No loop makes an array, so none needs to count references: that took up to ten times as long as what
# a loop does, wherever one part of it calls another.
UNCOUNTED: Any = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
# To compile, on a processor of 2.5 GHz; the other loops take about 1.
SECONDS = {"_pass_instants": 2, "run_thresholds": 2}


def sources(folder: Path = Path(__file__).parent) -> list[Path]:
    """Return the files whose code and constants the loops contain."""
    others = [folder / "columns.py", folder / "histogram.py", folder / "plan.py"]
    rules = (folder.parent / "scenario" / "rules").glob("*.py")
    return sorted([*folder.glob("kernels*.py"), *others, *rules])


def digest(files: Iterable[Path]) -> str:
    """Return a short name of what the files say."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


SOURCES = digest(sources())


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile on first use and keep the result on disk, or only in memory where that is closed."""
    options = {"nogil": True, **UNCOUNTED, **options}
    with contextlib.suppress(RuntimeError, AttributeError):
        # RuntimeError: no folder to keep it in (a read-only installation and home).
        # AttributeError: a Numba that keeps its stamps elsewhere.
        loop = numba.njit(cache=True, **options)(function)
        # Numba takes what is kept for fresh while the loop's own file is the same, and a loop contains
        # code and constants of others: what was kept under an earlier version would be found again.
        kept = loop._cache._cache_file
        kept._source_stamp = (kept._source_stamp, SOURCES)
        return loop
    return numba.njit(**options)(function)


def compiled_anew(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use of each process, and keep nothing on disk."""
    return numba.njit(nogil=True, **UNCOUNTED)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of each loop that calls it."""
    return compiled(function, forceinline=True)


class _Announcer(Listener):
    """Say that a loop is being compiled: one that is found on disk is not."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.listeners: list[Callable[[str], Any]] = []
        self.said = False
        self.depth = 0  # Numba compiles one loop at a time, and its parts within it

    def on_start(self, event: Event) -> None:
        self.depth += 1
        function = event.data["dispatcher"].py_func
        if self.depth > 1 or not function.__module__.startswith("batchsim.engines."):
            return
        with self.lock:
            listeners, say = self.listeners[-1:], not self.listeners and not self.said
            self.said = self.said or say
        for listener in listeners:
            listener(
                f"batchsim is compiling its engine ({function.__name__}), once on this machine: "
                f"about {SECONDS.get(function.__name__, 1)} s."
            )
        if say:
            print("batchsim is compiling its engine, once on this machine: some seconds.", file=sys.stderr)

    def on_end(self, event: Event) -> None:
        self.depth -= 1


_announcer = _Announcer()
register("numba:compile", _announcer)


@contextmanager
def announcing(listener: Callable[[str], Any]) -> Iterator[None]:
    """Tell `listener` of what is compiled meanwhile, a line of text each time, in place of stderr.

    It is called by the thread that compiles, before it does. Of several, in any threads, the one who
    came last is told.
    """
    with _announcer.lock:
        _announcer.listeners.append(listener)
    try:
        yield
    finally:
        with _announcer.lock:
            _announcer.listeners.remove(listener)
