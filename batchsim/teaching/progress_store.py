"""A student's predictions and attempts, and the file that stores them, shared by several kernels."""

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_origin

from batchsim import _check
from batchsim._compat import __version__
from batchsim._files import bytes_of, held, json_of, replacing

FORMAT, VERSION = "batchsim progress", 2  # files of version 1 have more fields, which are ignored
LARGEST_FILE = 2**22  # bytes; a whole course is some 20 kB
LARGEST_COUNT = 10**6  # the largest count
KEPT = 30  # stored wrong answers of an exercise
LONGEST_NAME = 60  # letters
VARIABLE = "BATCHSIM_PROGRESS"  # a file, "off", or "off: " and a reason
OF_TESTS = "tests do not count as progress"
PATIENCE_S = 30.0  # for the lock: a kernel holds it for milliseconds, unless the machine is busy


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
    """A wrong answer, and its hint."""

    answer: str
    told: str


@dataclass
class Tried:
    """The attempts at an exercise; a repeated answer does not count again."""

    tries: int = 0
    first_at: str = ""
    last_at: str = ""
    solved_at: str = ""  # empty: not solved
    wrong: list[Wrong] = field(default_factory=list)


@dataclass
class Record:
    """The record of a student."""

    student: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(8))  # tells apart students with the same name
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
    with replacing(path) as file:
        file.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def read(path: str | os.PathLike[str]) -> Record:
    """Read a progress file. ValueError names what is wrong with it; OSError if it cannot be opened."""
    path = _check.path("a progress file", path)
    return _parsed(path, bytes_of(path, LARGEST_FILE))


def _parsed(path: Path, text: bytes) -> Record:
    try:
        content = json_of(text, "it")
    except ValueError as error:
        raise ValueError(f"{path} is not a progress file, or a damaged one: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a progress file: it holds {content!r:.40}")
    version = content.get("version", VERSION)
    if content.get("format") == FORMAT and version not in (1, VERSION):
        other = f"{path} is a progress file of version {version!r:.20}, of batchsim"
        ours = f"batchsim {__version__} reads versions 1 and {VERSION}"
        raise OtherVersionError(f"{other} {content.get('batchsim', '?')!s:.20}, and {ours}")
    names = ["format", "version", *(each.name for each in fields(Record))]
    if lacks := [name for name in names if name not in content]:
        raise ValueError(f"{path} is not a progress file: it lacks {', '.join(lacks)}")
    if content["format"] != FORMAT:
        raise ValueError(f"{path} is not a progress file: its format is {content['format']!r:.40}")
    try:
        record: Record = _fit("", content, Record)
        record.student = record.student and name_of(record.student)
        return record
    except ValueError as error:
        raise ValueError(f"{path} is not a progress file: {error}") from None


def _fit(where: str, value: Any, hint: Any) -> Any:
    """Return JSON as a value of a type: a dataclass, dict, list, or plain type, and so on inside."""
    fielded = is_dataclass(hint)
    plain: Any = dict if fielded else get_origin(hint) or hint
    if type(value) is not plain:
        raise ValueError(f"{where} must be of type {plain.__name__}, got {value!r:.40}")
    if hint is int and not 0 <= value <= LARGEST_COUNT:
        raise ValueError(f"{where} must be from 0 to {LARGEST_COUNT:,}, got {value!r:.40}")
    if plain is list:
        return [_fit(f"item {i} of {where}", each, get_args(hint)[0]) for i, each in enumerate(value, 1)]
    if fielded:
        types = {each.name: each.type for each in fields(hint)}
        if not set(types) <= set(value):
            raise ValueError(f"{where} must have {', '.join(types)}, got {', '.join(value)!r:.80}")
        within = f" of {where}" if where else ""
        return hint(**{name: _fit(f"{name}{within}", value[name], types[name]) for name in types})
    if plain is dict:
        return {key: _fit(f"{where} {key!r:.20}", each, get_args(hint)[1]) for key, each in value.items()}
    return value


# The file of this kernel, and how kernels share it.


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
        read(file)  # raises unless it is a progress file
    _kernel.file = file


def place() -> tuple[Path | None, str]:
    """Return the file that stores progress, or None and the reason why progress is not stored.

    The default is `~/.batchsim/progress.json`. `progress(file=...)` or the variable BATCHSIM_PROGRESS choose
    another file; the variable can also turn storing off ("off"). Tests store progress only if they choose a
    file. Runs in a folder of solutions store it only with `progress(file=...)`.
    """
    chosen = os.environ.get(VARIABLE, "")
    try:
        if _kernel.file is not None:
            path = _kernel.file
        elif Path.cwd().name == "solutions":  # even with the variable: outputs must be the same for all
            return None, "runs in the solutions folder do not count as progress"
        elif chosen.partition(":")[0] == "off":
            return None, chosen.partition(": ")[2] or f"{VARIABLE} is off"
        elif chosen:
            path = Path(chosen).expanduser()
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
    noted, _kernel.notes = _kernel.notes, []
    return noted


def set_aside(path: Path, why: str) -> Path:
    """Rename a file, so that another can begin in its place; return its new path."""
    names = (f"{path.stem}-{why}{number}{path.suffix}" for number in ("", *(f"-{n}" for n in range(2, 1000))))
    aside = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    path.rename(aside)
    return aside


def _read(path: Path) -> Record:
    """Return a file's record; a damaged file is renamed, and a new one begins."""
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
        while held(file) and time.monotonic() < until:
            time.sleep(0.01)
        yield  # closing the file unlocks it
