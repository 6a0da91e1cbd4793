"""How the loops are compiled and cached on disk, and how a caller hears that one is being compiled."""

# mypy: disable-error-code="no-untyped-call"
import contextlib
import hashlib
import html
import importlib
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.event import Event, Listener, register
from numba.core.options import DefaultOptions

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


# No loop makes an array, so none needs Numba's reference counting (its NRT), which took up to ten times as
# long as the loop's own work wherever one compiled function calls another.
UNCOUNTED: Any = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
# Seconds to compile, on a processor of 2.5 GHz; the other loops take about 1.
SECONDS = {"_pass_instants": 2, "pass_steps": 11, "run_thresholds": 2}


def sources(folder: Path = Path(__file__).parent) -> list[Path]:
    """Return the files whose code and constants end up in the compiled loops."""
    package = folder.parent.parent
    others = [folder.parent / name for name in ("log.py", "token_log.py", "totals.py")]
    others += [package / "_clock.py", package / "scenario" / "step_time.py"]
    rules = (package / "scenario" / "rules").glob("*.py")
    return sorted([*folder.glob("*.py"), *others, *rules])


def digest(files: Iterable[Path]) -> str:
    """Return a checksum of the files' contents."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


SOURCES = digest(sources())


class _Files(IndexDataCacheFile):
    """The compiled code of a loop: a file for each types of arguments, with a checksum.

    Numba's own files have none, and code with a flipped bit would run. Nor has this an index: one that was
    written just before its process was killed points to code of earlier sources.
    """

    def load(self, key: Any) -> Any:
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        stamp, checksum, code = content[:32], content[32:64], content[64:]
        if checksum != _sha256(code):
            raise ValueError("damaged")
        return pickle.loads(code) if stamp == self._stamp() else None

    def save(self, key: Any, data: Any) -> None:
        code = self._dump(data)
        with self._open_for_write(str(self._path(key))) as file:
            file.write(self._stamp() + _sha256(code) + code)

    def _path(self, key: Any) -> Path:
        return Path(self._cache_path) / self._data_name(int.from_bytes(_sha256(repr(key).encode())[:6]))

    def _stamp(self) -> bytes:
        return _sha256(repr((self._version, self._source_stamp)).encode())


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


class _Cache(FunctionCache):
    """A loop's files; whatever is wrong with them, it is compiled, and written anew where it can be."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # Numba checks a loop on disk against the loop's own file alone, but it contains code and constants of
        # other files: one of an earlier version would be used again.
        stamp = self._impl.locator.get_source_stamp(), SOURCES
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a pickle raises nearly anything
            where = f"batchsim's compiled engine in {self._cache_path}"
            _announcer.print_once("read", f"{where} cannot be read ({_brief(error)}): it is compiled again.")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            where = f"batchsim's compiled engine cannot be kept in {self._cache_path}"
            again = "every process compiles it again. The variable NUMBA_CACHE_DIR names another folder."
            _announcer.print_once("kept", f"{where} ({_brief(error)}): {again}")


def _brief(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile on first use and keep the result on disk, or in memory alone where the disk is read-only."""
    loop = numba.njit(**{"nogil": True, **UNCOUNTED, **options})(function)
    if loop is not function:  # as with NUMBA_DISABLE_JIT
        # RuntimeError, OSError: no folder to write to (a read-only installation and home).
        # AttributeError: a Numba that keeps its files otherwise.
        with contextlib.suppress(AttributeError, OSError, RuntimeError):
            loop._cache = _Cache(function)
    return loop


def compiled_anew(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile in each process anew, and cache nothing on disk."""
    return numba.njit(nogil=True, **UNCOUNTED)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of each loop that calls it.

    Not cached by itself: its code is in its callers' files. Some are called with a user's own rule, whose
    type another process could not even load.
    """
    return numba.njit(nogil=True, forceinline=True, **UNCOUNTED)(function)


class _Announcer(Listener):
    """Announce that a loop is being compiled; one that is loaded from disk is not."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.listeners: list[Callable[[str], Any]] = []
        self.said: set[str] = set()
        self.depth = 0  # Numba compiles one loop at a time, and its parts within it
        self.line, self.shows = CompilingLine(), False

    def on_start(self, event: Event) -> None:
        self.depth += 1
        function = event.data["dispatcher"].py_func
        if self.depth > 1 or not function.__module__.startswith("batchsim.engines."):
            return
        with self.lock:
            listeners = self.listeners[-1:]
        seconds = SECONDS.get(function.__name__, 1)
        for listener in listeners:
            listener(
                f"batchsim is compiling its engine ({function.__name__}), once on this machine: "
                f"about {seconds} s."
            )
        self.shows = not listeners and self.line.begin(seconds)
        if not listeners and not self.shows:
            self.print_once(
                "compiling", "batchsim is compiling its engine, once on this machine: some seconds."
            )

    def print_once(self, about: str, text: str) -> None:
        """Print a line on stderr, one about each thing in this process."""
        with self.lock:
            first = about not in self.said
            self.said.add(about)
        if first:
            print(text, file=sys.stderr)

    def on_end(self, event: Event) -> None:
        self.depth -= 1
        if self.shows and not self.depth:
            self.line.end()
            self.shows = False


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
