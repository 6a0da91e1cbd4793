"""Files that are written completely or not at all."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LEFT_S = 3600.0  # nothing takes that long to write: the process was killed


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` in one step once everything is written.

    If writing fails, an older file stays; nobody ever reads half of a file.
    """
    path = Path(path)
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_left(folder: Path) -> None:
    """Remove what `replacing` left half-written, in processes that were killed an hour ago or more."""
    for path in folder.glob(f".{'[0-9a-f]' * 16}.tmp"):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime > LEFT_S:
                path.unlink()
