"""The file that stores a student's progress, shared by several kernels."""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from batchsim.teaching.record import OtherVersionError, Record, read, write

VARIABLE = "BATCHSIM_PROGRESS"  # a file, or "off"
OF_TESTS = "tests do not count as progress"
PATIENCE_S = 30.0  # that a kernel waits for others: each holds the file for milliseconds, on a free machine


class _Kernel:
    """The state of this kernel: the chosen file, and the progress that it cannot store."""

    def __init__(self) -> None:
        self.file: Path | None = None
        self.memory = Record()
        self.failed: dict[Path, str] = {}  # files that cannot be written, and why
        self.notes: list[str] = []  # notes for the student


_kernel = _Kernel()


def forget() -> None:
    """Begin as a new kernel does."""
    _kernel.__init__()  # type: ignore[misc]


def use(file: Path) -> None:
    """Keep the progress in this file from here on."""
    if file.exists():
        read(file)  # or raise: it is something else
    _kernel.file = file


def place() -> tuple[Path | None, str]:
    """Return the file that stores progress, or None and the reason why progress is not stored.

    The default is `~/.batchsim/progress.json`. `progress(file=...)` or the variable BATCHSIM_PROGRESS choose
    another file; the variable can also turn storing off ("off"). Tests store progress only if they choose a
    file. Runs in a folder of solutions store it only with `progress(file=...)`.
    """
    said = os.environ.get(VARIABLE, "")
    try:
        if _kernel.file is not None:
            path = _kernel.file
        elif Path.cwd().name == "solutions":  # before the variable: their outputs are the same for all
            return None, "runs in the solutions folder do not count as progress"
        elif said == "off":
            return None, f"{VARIABLE} is off"
        elif said:
            path = Path(said).expanduser()
        elif "PYTEST_VERSION" in os.environ:
            return None, OF_TESTS
        else:
            path = Path.home() / ".batchsim" / "progress.json"
        path = path.absolute()
    except (OSError, RuntimeError) as error:  # no current folder, no home
        return None, str(error)
    return (None, _kernel.failed[path]) if path in _kernel.failed else (path, "")


def load() -> Record:
    """Return the student's record."""
    path, _ = place()
    if path is not None:
        with _failing_softly(path):
            try:
                return read(path)
            except FileNotFoundError:
                return Record()
            except OtherVersionError:
                raise
            except ValueError:  # damaged
                return change(lambda record: None)
    return _kernel.memory


def change(update: Callable[[Record], None]) -> Record:
    """Change the student's record and return it. A failure to store it gives a note, not an error."""
    path, _ = place()
    record = None
    if path is not None:
        with _failing_softly(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(path):
                new = not path.exists()
                record = _kernel.memory = _read(path)
                update(record)
                write(path, record)
            if new:
                _kernel.notes.append(f"Your progress is kept in {path}: bs.teaching.progress() shows it.")
    if record is None:
        update(_kernel.memory)
    return _kernel.memory


def begin(student: str) -> None:
    """Begin from nothing."""
    _kernel.memory = Record(student)
    change(lambda record: setattr(record, "student", student))


def notes() -> list[str]:
    """Return the notes for the student, each only once."""
    said, _kernel.notes = _kernel.notes, []
    return said


def set_aside(path: Path, why: str) -> Path:
    """Rename a file, so that another can begin in its place; return its new path."""
    names = (f"{path.stem}-{why}{number}{path.suffix}" for number in ("", *(f"-{n}" for n in range(2, 1000))))
    aside = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    path.rename(aside)
    return aside


def _read(path: Path) -> Record:
    """Return what a file holds; what is no progress file makes room for one."""
    try:
        return read(path)
    except FileNotFoundError:
        return Record()
    except OtherVersionError:
        raise
    except ValueError as error:
        aside = set_aside(path, "damaged")
        _kernel.notes.append(f"{error}. It was renamed to {aside.name}, and a new file begins.")
        return Record()


@contextmanager
def _failing_softly(path: Path) -> Iterator[None]:
    """Note that a file cannot be used, instead of an exercise failing."""
    try:
        yield
    except (OSError, OtherVersionError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        _kernel.failed[path] = why
        elsewhere = 'Choose another file with bs.teaching.progress(file="...")'
        _kernel.notes.append(
            f"Not kept in {path} ({why}): it will be lost when this kernel ends. {elsewhere}."
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file alone among kernels; continue without a lock where locks fail, as on some file servers."""
    with path.with_name(f".{path.name}.lock").open("ab") as file:
        until = time.monotonic() + PATIENCE_S
        while _held(file) and time.monotonic() < until:
            time.sleep(0.01)
        yield  # a file that is closed is let go


def _held(file: BinaryIO) -> bool:
    """Lock a file, or return whether it is because another kernel has that it cannot be."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # else locks do not work there
    return False
