"""Files that are written completely or not at all, and files that are read only if they are files.

Every file from outside is opened by `opened`; all JSON is read by `json_of`, and all CSV by `csv_rows`.
"""

import csv
import errno
import io
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from batchsim import _check
from batchsim._compat import IN_BROWSER
from batchsim._format import brief, size

IN_MEMORY = 2**26  # bytes buffered in memory; further ones go to disk
LEFT_S = 3600.0  # no file takes that long to write: the process was killed
# The largest files to read. A scenario may hold the times of a trace.
CONFIG_BYTES, SCENARIO_BYTES, MEASUREMENT_BYTES = 2**20, 2**24, 2**24
TABLE_BYTES, RESULT_BYTES = 2**30, 2**34
LONGEST_LINE = 2**20  # letters of a line of a table
MOST_DIGITS = 300  # of a whole number in JSON: one with more may not fit a float
File = str | os.PathLike[str]
INPUT = Path("-")  # the name of standard input


@contextmanager
def opened(path: File, at_most: int, **text: Any) -> Iterator[IO[Any]]:
    """Open a file of at most so many bytes to read, as bytes or with the options of a `TextIOWrapper`.

    ValueError for a larger one, and for a pipe or a device: these may block or never end. Standard input,
    also by the name -, is read into memory first; a second call finds nothing more there.
    """
    path = _check.path("path", path)
    with _content(path, at_most) as content:
        length = content.seek(0, io.SEEK_END)
        content.seek(0)
        if length > at_most:
            raise ValueError(f"{path} must have at most {size(at_most)}, got {size(length)} or more")
        yield io.TextIOWrapper(content, **text) if text else content


def _content(path: Path, at_most: int) -> BinaryIO:
    if path == INPUT:
        return _given(at_most)
    # A pipe without a writer would block when opened. Windows has neither the flag nor such pipes.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISREG(found.st_mode):
            return os.fdopen(os.dup(handle), "rb")
        if _is_input(found):
            return _given(at_most)
        raise ValueError(f"{path} must be a regular file, got {_kind(found.st_mode)}")
    finally:
        os.close(handle)


@contextmanager
def naming(path: File) -> Iterator[None]:
    """Name the file in an error about its content."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def bytes_of(path: File, at_most: int) -> bytes:
    """Return the content of a file of at most so many bytes."""
    with opened(path, at_most) as file:
        return bytes(file.read())


@contextmanager
def _text(path: File, at_most: int, newline: str | None = "") -> Iterator[IO[str]]:
    try:
        with opened(path, at_most, encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        parquet = "Parquet: Trace.from_parquet reads arrivals in it"
        got = parquet if error.object.startswith(b"PAR1") else error.reason
        raise ValueError(f"{path} must be text in UTF-8, got {got}") from None


def text_of(path: File, at_most: int, newline: str | None = "") -> str:
    """Return the text of a file of at most so many bytes; `newline` is that of `open`."""
    with _text(path, at_most, newline) as file:
        return file.read()


def lines_of(path: File) -> Iterator[str]:
    """Yield the lines of a table's file, each with its end."""
    with _text(path, TABLE_BYTES) as file:
        for place, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ""), 1):
            if len(line) == LONGEST_LINE:
                raise ValueError(f"{path}, line {place}: must have at most {LONGEST_LINE:,} letters")
            yield line


def json_of(text: str | bytes, name: str, **numbers: Any) -> Any:
    """Return the value of a JSON text, or raise ValueError; `numbers` are those options of `json.loads`."""
    try:
        return json.loads(text, **{"parse_int": _whole} | numbers)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{name} must be JSON, got {brief(text[:40])} ({why})") from None


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number must have at most {MOST_DIGITS} digits, got {len(digits):,}")
    return int(digits)


def json_lines(path: File, **numbers: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the object of each line of a file that is not blank."""
    for place, line in enumerate(lines_of(path), 1):
        if line.strip():
            item = json_of(line, f"{path}, line {place}:", **numbers)
            if not isinstance(item, dict):
                raise ValueError(f"{path}, line {place}: must be a JSON object, got {brief(line.strip())}")
            yield place, item


def csv_rows(path: File, lines: Iterable[str] | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row of a CSV file, its header first, or raise ValueError.

    `lines` are the file's, if they have been read.
    """
    reader, rows = csv.reader(lines_of(path) if lines is None else lines), 0
    try:
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise ValueError(f"{path} must have a header line, got an empty line or file")
        yield reader.line_num, header
        for row in filter(None, reader):  # a blank line is no row, for instance at the end of the file
            rows += 1
            if len(row) != len(header):
                rule = f"{path}, line {reader.line_num}: must have {len(header)} fields"
                raise ValueError(f"{rule}, got {len(row)}")
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: must be CSV, got {error}") from None
    if not rows:
        raise ValueError(f"{path} must have at least one row below its header, got none")


def _given(at_most: int) -> BinaryIO:
    if sys.stdin is None:
        raise ValueError("standard input must be open, got a closed one")
    return io.BytesIO(sys.stdin.buffer.read(at_most + 1))


def _is_input(found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(0), found)
    except OSError:  # it is closed
        return False


def _kind(mode: int) -> str:
    return "a pipe" if stat.S_ISFIFO(mode) else "a device"


@contextmanager
def replacing(path: File) -> Iterator[BinaryIO]:
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
    if IN_BROWSER:  # no other process, and no locks
        return False
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
