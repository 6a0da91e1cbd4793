"""How the loops are compiled and cached on disk, and how a caller hears that one is being compiled."""

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

# No loop makes an array, so none needs Numba's reference counting (its NRT), which took up to ten times as
# long as the loop's own work wherever one compiled function calls another.
UNCOUNTED: Any = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
# Seconds to compile, on a processor of 2.5 GHz; the other loops take about 1.
SECONDS = {"_pass_instants": 2, "run_thresholds": 2}


def sources(folder: Path = Path(__file__).parent) -> list[Path]:
    """Return the files whose code and constants end up in the compiled loops."""
    others = [folder / "columns.py", folder / "histogram.py", folder / "log.py"]
    rules = (folder.parent / "scenario" / "rules").glob("*.py")
    return sorted([*folder.glob("kernels*.py"), *others, *rules])


def digest(files: Iterable[Path]) -> str:
    """Return a checksum of the files' contents."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


SOURCES = digest(sources())


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile on first use and cache the result on disk, or in memory alone where the disk is read-only."""
    options = {"nogil": True, **UNCOUNTED, **options}
    with contextlib.suppress(RuntimeError, AttributeError):
        # RuntimeError: no folder to write to (a read-only installation and home).
        # AttributeError: a Numba that keeps its stamps elsewhere.
        loop = numba.njit(cache=True, **options)(function)
        # Numba checks a cached loop against the loop's own file alone, but a loop contains code and constants
        # of other files: one cached by an earlier version would be used again.
        kept = loop._cache._cache_file
        kept._source_stamp = (kept._source_stamp, SOURCES)
        return loop
    return numba.njit(**options)(function)


def compiled_anew(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile in each process anew, and cache nothing on disk."""
    return numba.njit(nogil=True, **UNCOUNTED)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of each loop that calls it."""
    return compiled(function, forceinline=True)


class _Announcer(Listener):
    """Announce that a loop is being compiled; one that is loaded from disk is not."""

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
    """Announce to `listener` what is compiled meanwhile, a line of text each, instead of on stderr.

    The compiling thread calls it before it compiles. Of several listeners, in whatever threads, only the
    latest is called.
    """
    with _announcer.lock:
        _announcer.listeners.append(listener)
    try:
        yield
    finally:
        with _announcer.lock:
            _announcer.listeners.remove(listener)
