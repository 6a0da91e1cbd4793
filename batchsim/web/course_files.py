"""The course's files, and the copy of them that a student works in.

In a copy of the project they are beside the package. A wheel has them within it (`hatch_build.py`).
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parents[1]
ROOT = HERE / "course" if (HERE / "course").is_dir() else HERE.parent
# What a student gets, and what the commands need besides: patterns below ROOT.
COPIED = (
    "notebooks/*.ipynb", "notebooks/README.md", "notebooks/data/*", "notebooks/solutions/*.ipynb",
    "docs/glossary.md", "VALIDATION.md", "docs/validation/*.md",
)  # fmt: skip
BOOK = "build/book/html/index.html"  # from `make book`
PACKED = (*COPIED, "notebooks/.lab/*", "notebooks/.voila/**/*", "build/book/html/**/*")
NOTE = ".batchsim-course.json"  # in a copy: the checksum of each file as the course had it


def files(root: Path, patterns: tuple[str, ...] = COPIED) -> Iterator[tuple[str, Path]]:
    """Yield each file of the course, with its path below `root`."""
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and path.suffix != ".pyc":
                yield path.relative_to(root).as_posix(), path


def predictions(root: Path = ROOT) -> set[str]:
    """Return the keys of the lessons' predictions, such as "01.a", from the students' copies."""
    copies = (path.read_bytes().decode() for _, path in files(root, COPIED[:1]))
    return {key for text in copies for key in re.findall(r'key=\\"(\d\d\.[a-z])\\"', text)}


def copy_to(folder: Path, root: Path = ROOT) -> tuple[list[str], list[str]]:
    """Copy the course; return the files that were written, and those whose newer version was not.

    A file that is there is replaced only if it is as an earlier course wrote it. OSError leaves every file
    whole, either the older or the newer one.
    """
    from batchsim._files import TABLE_BYTES, bytes_of, json_of, replacing

    try:
        told = json_of(bytes_of(folder / NOTE, TABLE_BYTES), NOTE)
        known: dict[str, str] = told if isinstance(told, dict) else {}
    except (FileNotFoundError, ValueError):
        known = {}
    before, written, newer = dict(known), [], []
    for name, path in files(root):
        content, there = bytes_of(path, TABLE_BYTES), folder / name
        new = _checksum(content)
        old = _checksum(bytes_of(there, TABLE_BYTES)) if there.exists() else None
        if old in (None, new, known.get(name)):
            known[name] = new
            if old != new:
                there.parent.mkdir(parents=True, exist_ok=True)
                with replacing(there) as file:
                    file.write(content)
                written.append(name)
        elif known.get(name) != new:
            newer.append(name)
    if known != before:
        with replacing(folder / NOTE) as file:
            file.write(json.dumps(known, indent=1).encode())
    return written, newer


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
