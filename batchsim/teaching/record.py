"""A student's predictions and attempts, and the file that holds them."""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from batchsim import _check
from batchsim._files import replacing
from batchsim._version import __version__

FORMAT, VERSION = "batchsim progress", 1
LARGEST = 2**22  # bytes; a whole course is some 20 kB
MOST = 10**6  # the largest count
KEPT = 30  # stored wrong answers of an exercise
LONGEST_NAME = 60  # letters


class OtherVersionError(ValueError):
    """A progress file of another version of the format."""


@dataclass
class Predicted:
    """A prediction as it was committed first."""

    chosen: str
    right: bool
    at: str  # times are ISO 8601, in UTC


@dataclass
class Wrong:
    """A wrong answer, its hint, and how often the exercise had been asked again."""

    answer: str
    told: str
    rounds: int


@dataclass
class Tried:
    """What was tried at an exercise: an answer that was given before is no other try."""

    tries: int = 0
    first_at: str = ""
    last_at: str = ""
    solved_at: str = ""  # empty: not solved
    by_trying: bool = False  # right, but possibly guessed: it came after several wrong ones
    rounds: int = 0  # how often the exercise was repeated with new numbers
    since: int = 0  # wrong answers since then
    wrong: list[Wrong] = field(default_factory=list)


@dataclass
class Record:
    """The record of a student."""

    student: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(8))  # of two students of one name, say
    begun_at: str = field(default_factory=lambda: now())
    batchsim: str = __version__
    predictions: dict[str, Predicted] = field(default_factory=dict)
    exercises: dict[str, Tried] = field(default_factory=dict)


def now() -> str:
    """Return the time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def name_of(student: Any) -> str:
    """Return a student's name without spaces around it, or raise."""
    if not isinstance(student, str):
        raise TypeError(f"name must be a student's name, got {student!r}")
    name = student.strip()
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise ValueError(f"name must be 1 to {LONGEST_NAME} letters on one line, got {student!r:.80}")
    return name


# The file.


def write(path: Path, record: Record) -> None:
    """Write a progress file, whole or not at all."""
    content = {"format": FORMAT, "version": VERSION, **asdict(record), "batchsim": __version__}
    content["checksum"] = checksum(content)
    with replacing(path) as file:
        file.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def checksum(content: Mapping[str, Any]) -> str:
    """Return the checksum of the content of a progress file.

    It detects a file that was damaged or edited by hand. It is not security: anyone can compute it.
    """
    said = {name: value for name, value in content.items() if name != "checksum"}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read(path: str | os.PathLike[str]) -> Record:
    """Read a progress file. ValueError names what is wrong with it; OSError if it cannot be opened."""
    path = _check.path("a progress file", path)
    with path.open("rb") as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"{path} is not a progress file: it has more than {LARGEST:,} bytes")
    try:
        return _parsed(path, text)
    except RecursionError:
        raise ValueError(f"{path} is not a progress file: it is nested too deeply") from None


def _parsed(path: Path, text: bytes) -> Record:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"{path} is not a progress file, or a damaged one: it is not JSON ({error!s:.80})"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a progress file: it holds {content!r:.40}")
    version = content.get("version", VERSION)
    if content.get("format") == FORMAT and version != VERSION:
        other = f"{path} is a progress file of version {version!r:.20}, of batchsim"
        ours = f"batchsim {__version__} reads version {VERSION}"
        raise OtherVersionError(f"{other} {content.get('batchsim', '?')!s:.20}, and {ours}")
    names = ["format", "version", *(each.name for each in fields(Record)), "checksum"]
    if lacks := [name for name in names if name not in content]:
        raise ValueError(f"{path} is not a progress file: it lacks {', '.join(lacks)}")
    if content["format"] != FORMAT:
        raise ValueError(f"{path} is not a progress file: its format is {content['format']!r:.40}")
    if content["checksum"] != checksum(content):
        said = "its checksum does not match its content"
        raise ValueError(f"{path} was changed after batchsim wrote it: {said}")
    try:
        return _record({name: content[name] for name in names[2:-1]})
    except ValueError as error:
        raise ValueError(f"{path} is not a progress file: {error}") from None


def _record(content: dict[str, Any]) -> Record:
    parts: dict[str, type] = {"predictions": Predicted, "exercises": Tried}
    for name, kind in parts.items():
        listed = _fit(name, content[name], dict)
        content[name] = {key: _made(f"{name} {key!r:.20}", kind, each) for key, each in listed.items()}
    record: Record = _made("it", Record, content)
    for key, tried in record.exercises.items():
        wrong = enumerate(tried.wrong, 1)
        tried.wrong = [_made(f"wrong answer {i} of {key!r:.20}", Wrong, each) for i, each in wrong]
    if record.student:
        record.student = name_of(record.student)
    return record


def _made(where: str, kind: type, content: Any) -> Any:
    """Return an instance of a dataclass, each field of which has its type."""
    content = _fit(where, content, dict)
    types = {each.name: each.type for each in fields(kind)}
    if set(content) != set(types):
        raise ValueError(f"{where} must have {', '.join(types)}, got {', '.join(content)!r:.80}")
    plain = {name: getattr(of, "__origin__", of) for name, of in types.items()}
    return kind(**{name: _fit(f"{name} of {where}", content[name], plain[name]) for name in types})


def _fit(where: str, value: Any, kind: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{where} must be of type {kind.__name__}, got {value!r:.40}")
    if kind is int and not 0 <= value <= MOST:
        raise ValueError(f"{where} must be from 0 to {MOST:,}, got {value!r:.40}")
    return value
