"""Files that are written completely or not at all, and files that are read only if they are files."""

import errno
import io
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from batchsim import _check
from batchsim._format import size

IN_MEMORY = 2**26  # bytes buffered in memory; further ones go to disk
LEFT_S = 3600.0  # no file takes that long to write: the process was killed
# The largest files to read. A scenario may hold the times of a trace.
CONFIG_BYTES, SCENARIO_BYTES, MEASUREMENT_BYTES = 2**20, 2**24, 2**24
TABLE_BYTES, RESULT_BYTES = 2**30, 2**34


@contextmanager
def opened(path: str | os.PathLike[str], at_most: int, **text: Any) -> Iterator[IO[Any]]:
    """Open a file of at most so many bytes to read, as bytes or with the options of a `TextIOWrapper`.

    ValueError for a larger one, and for a pipe or a device: these may block or never end. A shell's standard
    input is read into memory first.
    """
    path = _check.path("path", path)
    # A pipe without a writer would block when opened. Windows has neither the flag nor such pipes.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISREG(found.st_mode):
            content: BinaryIO = os.fdopen(os.dup(handle), "rb")
            length = found.st_size
        elif _is_input(found):
            content = io.BytesIO(sys.stdin.buffer.read(at_most + 1))
            length = len(content.getbuffer())
        else:
            raise ValueError(f"{path} must be a regular file, got {_kind(found.st_mode)}")
    finally:
        os.close(handle)
    with content:
        if length > at_most:
            raise ValueError(f"{path} must have at most {size(at_most)}, got {size(length)} or more")
        yield io.TextIOWrapper(content, **text) if text else content


def _is_input(found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(0), found)
    except OSError:  # it is closed
        return False


def _kind(mode: int) -> str:
    return "a pipe" if stat.S_ISFIFO(mode) else "a device"


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` in one step once everything is written.

    If writing fails, an older file stays; readers never see half of a file. The new file has the mode and the
    owner of the older one, and links are followed. Devices, pipes, and the file of our own output cannot be
    replaced: these receive everything at the end.
    """
    path = _check.path("path", path)
    try:
        old = path.stat()
    except FileNotFoundError:
        old = None
    if old is not None and (there := _irreplaceable(path, old)) is not None:
        # The caller may seek, but a pipe cannot.
        with there, tempfile.SpooledTemporaryFile(IN_MEMORY) as waiting:
            yield cast(BinaryIO, waiting)
            waiting.seek(0)
            shutil.copyfileobj(waiting, there)
        return
    asked, path = path, Path(os.path.realpath(path))
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            if old is not None:  # before it has content that others must not read
                if hasattr(os, "chown"):
                    with suppress(PermissionError):  # only root gives files to others
                        os.chown(temporary, old.st_uid, old.st_gid)
                temporary.chmod(stat.S_IMODE(old.st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # A full disk has no name, and nobody knows the temporary one.
        if error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(asked)
        raise
    finally:
        with suppress(OSError):  # a read-only place also refuses to remove what is not there
            temporary.unlink()


def _irreplaceable(path: Path, found: os.stat_result) -> IO[bytes] | None:
    """Open anything but a regular file; None for a regular file."""
    for output in (1, 2):
        with suppress(OSError):  # it may be closed
            if os.path.samestat(os.fstat(output), found):
                # /dev/stdout may be a file; opening it by name would write from its start.
                return open(os.dup(output), "wb")
    return None if stat.S_ISREG(found.st_mode) else path.open("wb")


def held(file: BinaryIO) -> bool:
    """Try to lock a file; return whether another process holds it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # otherwise locks do not work there
    return False


def remove_left(folder: Path) -> None:
    """Remove half-written files of processes that were killed at least an hour ago."""
    for path in folder.glob(f".{'[0-9a-f]' * 16}.tmp"):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime > LEFT_S:
                path.unlink()
