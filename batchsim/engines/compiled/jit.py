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
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from batchsim._compat import IN_BROWSER
from batchsim._files import TABLE_BYTES, bytes_of, opened
from batchsim.engines.compiled.backend import (
    DefaultOptions,
    Event,
    FunctionCache,
    IndexDataCacheFile,
    Listener,
    njit,
    register,
    unliteral,
)

WHAT = "batchsim's engine, once on this machine"


class CompilingLine:
    """A line below the running cell of a notebook, which would show stderr in red, like an error.

    All loops that a cell compiles share one line.
    """

    def __init__(self) -> None:
        self.cell: Any = None
        self.handle: Any = None
        self.began_s, self.took_s = 0.0, 0.0

    def begin(self) -> bool:
        """Announce a compilation; return False outside of a notebook."""
        ipython: Any = sys.modules.get("IPython")
        shell: Any = ipython and ipython.get_ipython()
        if not hasattr(shell, "kernel"):  # IPython in a terminal
            return False
        if self.cell != shell.execution_count:
            self.cell, self.handle, self.took_s = shell.execution_count, None, 0.0
        self.began_s = time.monotonic()
        self._show(f"Compiling {WHAT} …")
        return True

    def end(self) -> None:
        """Show how long the compilation took."""
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


# The loops allocate no arrays, so they need no reference counting (Numba's NRT). It took up to ten times as
# long as a loop's own work where one compiled function calls another.
UNCOUNTED: Any = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}
# Numba gives each function an entry for C and one for Python, which unpack every array of the arguments.
# C calls no loop, and Python no part of one: these entries took half of all compilation.
LOOP: Any = {"nogil": True, "no_cfunc_wrapper": True, **UNCOUNTED}
PART: Any = {"no_cpython_wrapper": True, **LOOP}


def sources(folder: Path = Path(__file__).parent) -> list[Path]:
    """Return the files with code or constants of the compiled loops."""
    package = folder.parent.parent
    others = [folder.parent / name for name in ("gaps.py", "log.py", "token_log.py", "totals.py")]
    others += [
        package / "_clock.py",
        package / "scenario" / "prefixes.py",
        *(package / "scenario" / f"{name}_time.py" for name in ("step", "sized")),
    ]
    rules = (path for part in ("rules", "routing") for path in (package / "scenario" / part).glob("*.py"))
    return sorted([*folder.glob("*.py"), *others, *rules])


def digest(files: Iterable[Path]) -> str:
    """Return a checksum of the files' contents."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


SOURCES = digest(sources())


class _Files(IndexDataCacheFile):
    """The compiled code of a loop: a file with a checksum for each signature.

    Numba's own files have no checksum, so code with a flipped bit would run, as would that of another loop or
    signature under this one's name. They also have an index, which points to outdated code if the process was
    killed just after writing it.
    """

    def load(self, key: Any) -> Any:
        path = self._path(key)
        try:
            content = bytes_of(path, TABLE_BYTES)
        except FileNotFoundError:
            return None
        stamp, checksum, rest = content[:32], content[32:64], content[64:]
        if checksum != _sha256(rest):
            raise ValueError("damaged")
        fits = stamp == self._stamp() and rest[:32] == _sha256(repr(key).encode())
        return pickle.loads(rest[32:]) if fits else None

    def save(self, key: Any, data: Any) -> None:
        rest = _sha256(repr(key).encode()) + self._dump(data)
        with self._open_for_write(str(self._path(key))) as file:
            file.write(self._stamp() + _sha256(rest) + rest)

    def is_kept(self) -> bool:
        """Return whether any present code is there."""
        names, stamp = self._data_name(0).replace(".0.", ".*."), self._stamp()
        for path in Path(self._cache_path).glob(names):
            with contextlib.suppress(ValueError), opened(path, TABLE_BYTES) as file:  # of megabytes
                if file.read(len(stamp)) == stamp:
                    return True
        return False

    def _path(self, key: Any) -> Path:
        return Path(self._cache_path) / self._data_name(int.from_bytes(_sha256(repr(key).encode())[:6]))

    def _stamp(self) -> bytes:
        return _sha256(repr((self._version, self._source_stamp)).encode())


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


class _Cache(FunctionCache):
    """The files of a loop. If they cannot be read, it is compiled and written again."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # Numba compares a cached loop only with the loop's own source file. It also contains code and
        # constants of other files, so a change of these must invalidate it, too.
        name = function.__module__, function.__qualname__
        stamp = self._impl.locator.get_source_stamp(), SOURCES, name
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # unpickling raises nearly anything
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
    """Compile on first use, and cache the result on disk, or only in memory if the disk is read-only."""
    if IN_BROWSER:
        from batchsim.engines.compiled import browser

        return browser.loop(function)
    loop = njit(**LOOP, **options)(function)
    if loop is not function:  # as with NUMBA_DISABLE_JIT
        # RuntimeError, OSError: no folder to write to (a read-only installation and home).
        # AttributeError: a Numba with another cache.
        with contextlib.suppress(AttributeError, OSError, RuntimeError):
            loop._cache = _Cache(function)
    return loop


def compiled_uncached(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile in each process, without a cache on disk."""
    return _without_literals(function, **LOOP)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of each loop that calls it.

    It is not cached separately: a cached loop contains it. Its arguments may have the type of a user's own
    rule, which another process could not load.
    """
    return _part(function, forceinline=True)


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of each loop that calls it, once however many calls there are."""
    return _part(function)


def _part(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    part: Any = _without_literals(function, **PART, **options)
    if part is not function:
        # Python would call the missing entry, at address 0: let it call the plain function.
        part.add_overload = lambda found: part.overloads.update({tuple(found.signature.args): found})
        part._compile_for_args = lambda *_, **__: function
    return part


def _without_literals(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile for the types of arguments alone.

    Numba would compile a function, and all that it calls, once more for each number that a caller passes, as
    after `server = 0`: the token loop took nearly twice as long. The optimiser knows that number anyway.
    """
    part = njit(**options)(function)
    if part is not function:  # as with NUMBA_DISABLE_JIT
        find = part.get_call_template
        part.get_call_template = lambda arguments, named: find(
            tuple(map(unliteral, arguments)), {name: unliteral(each) for name, each in named.items()}
        )
    return part


def is_kept(loop: Any) -> bool:
    """Return whether the cache on disk has a loop, for any argument types; True without a cache."""
    files = getattr(getattr(loop, "_cache", None), "_cache_file", None)
    return files.is_kept() if isinstance(files, _Files) else True


def cache_folder(loop: Any) -> Path | None:
    """Return the folder of a loop's cache on disk, None without one."""
    path = getattr(getattr(loop, "_cache", None), "cache_path", None)
    return None if path is None else Path(path)


_listener: ContextVar[Callable[[str], Any] | None] = ContextVar("listener", default=None)


class _Announcer(Listener):
    """Announce that a loop is being compiled, rather than loaded from disk."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.printed: set[str] = set()
        self.depth = 0  # of nested compilations: Numba compiles a loop's parts within the loop
        self.line, self.shows = CompilingLine(), False

    def on_start(self, event: Event) -> None:
        function = event.data["dispatcher"].py_func
        self.depth += 1
        if self.depth == 1 and function.__module__.startswith("batchsim.engines."):
            self._announce(function.__name__)

    def _announce(self, loop: str) -> None:
        tell = _listener.get()
        if tell is not None:
            tell(f"batchsim is compiling its engine ({loop}), once on this machine.")
        elif self.line.begin():
            self.shows = True
        else:
            self.print_once(
                "compiling", "batchsim is compiling its engine, once on this machine: some seconds."
            )

    def print_once(self, about: str, text: str) -> None:
        """Print a line on stderr, once for each subject in this process."""
        with self.lock:
            first = about not in self.printed
            self.printed.add(about)
        if first and sys.stderr is not None:
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
    """Announce compilations in this context to `listener`, each as a line of text, instead of on stderr.

    The compiling thread calls it before it compiles; if it raises, nothing is compiled.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
