"""Every reader, given mutated files: an answer comes soon, in little memory, is short and of letters alone.

`make attack ATTEMPTS=50000 ONLY=readers` is the fuzz; it ends with a line for each reader: the most seconds,
memory and letters that an answer took.
"""

import contextlib
import functools
import io
import json
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import batchsim as bs
from attack.configs import BOMBS, EXAMPLES, PARTS, mutated
from attack.files import NUMBERS, OTHERS, SCENARIOS, damaged, edit
from attack.shell import call
from attack.terminal import EVIL, inserted
from batchsim import servers
from batchsim.measured.measurement import Measurement
from batchsim.measured.sized_measurement import load as load_measurement
from batchsim.teaching.progress_store import Predicted, Record, Tried, Wrong, write
from batchsim.view.explorer.state import DEFAULTS, State
from batchsim.web import course_files

DATA = Path(__file__).parents[2] / "tests" / "data"
SECONDS, MEBIBYTES, LETTERS = 2.0, 300.0, 2_000  # of processor time; a table may be longer, by its rows
HANGS_S = 60
SERVICE = ["--fixed-ms", "5", "--per-item-ms", "0.25"]
GRADED = ["--csv", "--json", "--canvas", "--moodle", "--any-version"]
TOKENS = bs.Scenario(
    bs.Poisson(2), bs.Continuous(kv_blocks=4000), bs.StepTime(7, 10, 0.1),
    tokens=bs.Tokens(bs.Lognormal(400, 1), bs.Geometric(100)),
)  # fmt: skip
RECORDED = bs.Scenario(
    bs.Trace([place / 90 for place in range(300)]), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25)
)
SIZED = bs.Scenario(
    bs.Poisson(80).with_sizes(bs.Lognormal(80, 1, at_most=512)), bs.SizeOrWait(8, 5, max_batch_units=1024),
    bs.PaddedTime(1, 0.1, 0.01), replicas=3,
)  # fmt: skip


class Reader(NamedTuple):
    """Examples of a kind of file by name, and what reads one: a command of the shell, or a function."""

    examples: Callable[[Path], dict[str, bytes]]
    commands: Sequence[Sequence[str]] = ()
    functions: Sequence[Callable[[Path], object]] = ()


class Most(NamedTuple):
    """The most that an answer of a reader took, and the number of answers."""

    answers: int = 0
    seconds: float = 0.0
    mebibytes: float = 0.0
    letters: int = 0
    refused: int = 0


# Examples of files.


def _files(*patterns: str) -> Callable[[Path], dict[str, bytes]]:
    found = [path for pattern in patterns for path in sorted(DATA.glob(pattern)) if path.is_file()]
    return lambda _: {path.name: path.read_bytes() for path in found}


def _scenarios(_: Path) -> dict[str, bytes]:
    texts = [each.to_toml() for each in (*SCENARIOS[:4], RECORDED, TOKENS, SIZED)]
    texts.append((Path(bs.__file__).parent / "cli" / "scenario.toml").read_text())
    return {f"{place}.toml": text.encode() for place, text in enumerate(texts)}


def _traces(_: Path) -> dict[str, bytes]:
    seconds = [place / 100 for place in range(20)]
    return _lengths(_) | {
        "a.csv": ("t,x\n" + "".join(f"{each},1\n" for each in seconds)).encode(),
        "iso.csv": (
            "arrival,x\n" + "".join(f"2024-05-01T12:00:{each:09.6f}Z,1\n" for each in seconds)
        ).encode(),
        "a.parquet": _parquet({"arrival_s": seconds, "name": ["x"] * 20}),
    }


def _lengths(_: Path) -> dict[str, bytes]:
    azure = [f"2023-11-16 18:15:{46 + place / 10:010.7f},{1 + 7 * place},5" for place in range(20)]
    keys = {"input_length": 9, "output_length": 5, "hash_ids": [1, 2]}
    mooncake = [json.dumps({"timestamp": 100 * place, **keys}) for place in range(20)]
    return {
        "azure.csv": "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *azure]).encode(),
        "a.jsonl": "\n".join(mooncake).encode(),
    }


def _parquet(columns: dict[str, object]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _measurements(folder: Path) -> dict[str, bytes]:
    path, rows = folder / "whole.json", [[2.0, 2.1], [3.0, 3.0]]
    Measurement("m", "CPU", "cpu", "1.0", [1, 4], 2, rows, [1, 1], "2026-01-01").save(path)
    return {"a.json": path.read_bytes()}


def _tables(_: Path) -> dict[str, bytes]:
    return {"a.csv": b"batch_size,latency_ms\n1,2.0\n4,5.0\n1,2.1\n", "b.csv": b"Batch,avg (us)\n8,3500\n"}


def _results(folder: Path) -> dict[str, bytes]:
    path, found = folder / "whole.npz", _files("results/*.npz")(folder)
    for number, keep in ((1, "all"), (4, "summary")):
        bs.simulate(SCENARIOS[number], 4 if number == 4 else 300, keep=keep).save(path)
        found[f"{keep}.npz"] = path.read_bytes()
    return found


def _hand_ins(folder: Path) -> dict[str, bytes]:
    path, now = folder / "whole.json", "2026-01-01T09:00:00+00:00"
    tried = Tried(2, now, now, now, [Wrong("7", "No.")])
    write(path, Record("Ann", "a", now, bs.__version__, {"01.a": Predicted("x", True, now)}, {"01.1": tried}))
    return {"ann.json": path.read_bytes()} | _files("progress-*.json")(folder)


def _sweeps(folder: Path) -> dict[str, bytes]:
    """The description and a file of points of a sweep, kept in one folder."""
    out = folder / "swept"
    bs.sweep(SCENARIOS[0], {"servers": [1, 2]}, 300, out=out, progress=False)
    found = {path.name: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    (folder / "sweep").mkdir(exist_ok=True)
    return found


def _links(_: Path) -> dict[str, bytes]:
    texts = [state.to_link() or "servers=2" for state in DEFAULTS.values()]
    texts += [
        "rate_per_s=500&servers=2&curve=1:2.1,8:3.3",
        "size_table=0:64:512,1:2.1:4.5",
        "mode=tokens&step=own",
    ]
    return {f"{place}.txt": text.encode() for place, text in enumerate(texts)}


def _list_of_course(_: Path) -> dict[str, bytes]:
    return {"a.json": b'{"lessons/01-why-batch.ipynb": "0123456789abcdef"}'}


# What reads them.


def _swept(path: Path) -> object:
    """Put a mutated file into the folder of a sweep in place of its own, and sweep again."""
    out = path.parent / "sweep"
    for old in out.rglob("*"):
        if old.is_file():
            old.unlink()
    for name, content in _examples("sweeps", path.parent).items():
        into = out / "points" / name if name.endswith(".parquet") else out / name
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_bytes(path.read_bytes() if name == path.name else content)
    return bs.sweep(SCENARIOS[0], {"servers": [1, 2]}, 300, out=out, progress=False).shape


def _copied(path: Path) -> object:
    folder = path.parent / "course"
    folder.mkdir(exist_ok=True)
    (folder / course_files.NOTE).write_bytes(path.read_bytes())
    return [len(each) for each in course_files.copy_to(folder)]


def _linked(path: Path) -> object:
    return State.from_link(path.read_text(errors="surrogateescape")).to_link()


def _of_tokens(path: Path) -> object:
    return (bs.Tokens.from_csv if path.suffix == ".csv" else bs.Tokens.from_jsonl)(path)


def _edited(path: Path) -> object:
    edited = servers.edit(path, _rule(_examples("servers' files", path.parent)[path.name].decode()))
    return edited.lost  # its text is as long as the file's


@functools.cache
def _rule(text: str) -> bs.Rule:
    return servers.parse(text).rule


def _loaded(path: Path) -> object:
    found = bs.load_test(path)
    return repr(found), found.warnings


FILE = "FILE"
READERS = {
    "scenarios": Reader(_scenarios, [["simulate", FILE, "--requests", "300"]], [bs.Scenario.from_toml]),
    "traces": Reader(_traces, [["simulate", "--trace", FILE, *SERVICE]], [bs.Trace.from_file]),
    "lengths": Reader(
        _lengths,
        [["loadtest", "--rate-per-s", "2", "--weights-ms", "8", "--tokens", f"Tokens.from_csv({FILE!r})"]],
        [_of_tokens],
    ),
    "measurements": Reader(
        _measurements, [["simulate", "--measurement", FILE, "--rate-per-s", "9", "--requests", "300"]],
        [load_measurement],
    ),
    "tables of measurements": Reader(_tables, functions=[Measurement.from_csv]),
    "load tests": Reader(_files("load_tests/*.*s*", "load_tests/*/*"), functions=[_loaded]),
    "results": Reader(_results, [["compare", FILE, FILE]], [bs.Result.load]),
    "servers' files": Reader(
        lambda _: {path.name: path.read_bytes() for path in EXAMPLES},
        [["lint", FILE, "--rate-per-s", "90", "--requests", "300", *SERVICE], ["lint", FILE]],
        [servers.read, _edited],
    ),
    "hand-ins": Reader(_hand_ins, [["grade", FILE], *(["grade", FILE, option] for option in GRADED)]),
    "sweeps": Reader(_sweeps, functions=[_swept]),
    "links": Reader(_links, functions=[_linked]),
    "the course's list": Reader(_list_of_course, functions=[_copied]),
}  # fmt: skip
most: dict[str, Most] = {}


@functools.cache
def _examples(name: str, folder: Path) -> dict[str, bytes]:
    return READERS[name].examples(folder)


def mutation(rng: random.Random, name: str, content: bytes, others: Sequence[bytes]) -> bytes:
    """Return bytes with damage, edited values, evil texts, parts of others, or very much of a part."""
    kind = rng.randrange(6)
    if kind == 0 or b"\0" in content[:4000]:
        return damaged(rng, content)
    text = content.decode(errors="surrogateescape")
    if kind == 1:
        text = inserted(rng, text)
    elif kind == 2 and name.endswith(".json"):
        with contextlib.suppress(ValueError, IndexError):
            tables = json.loads(text)
            for _ in range(rng.choice([1, 1, 3])):
                edit(rng, tables, [*OTHERS, *EVIL, 10**400, [[]] * 9])
            text = json.dumps(tables)
    elif kind == 3:
        begin, end = rng.choice([each.span() for each in re.finditer(r"[\w.+-]+", text)] or [(0, 0)])
        text = text[:begin] + str(rng.choice([*NUMBERS, *PARTS])) + text[end:]
    elif kind == 4:  # very much of it, or very deep
        at, much = rng.randrange(len(text) + 1), rng.choice([10**3, 10**4, 10**5, 10**6])
        part = rng.choice(
            [text[at : at + rng.randint(1, 40)] or " ", "[", "{", '{"a":', "(", "- ", "\n", "9", "é"]
        )
        text = text[:at] + part * (much // len(part)) + text[at:]
    else:
        other = rng.choice(others).decode(errors="surrogateescape")
        text = mutated(rng, text, [text, other])
    return text.encode(errors="surrogateescape")


def attack_readers(rng: random.Random, folder: Path) -> str:
    """A mutated file is read, or refused in a line: no traceback, within the limits."""
    name = rng.choice(sorted(READERS))
    reader, examples = READERS[name], _examples(name, folder)
    of = rng.choice(
        sorted(examples, key=lambda each: (Path(each).suffix, each))
    )  # names of points are random
    path, whole = folder / of, examples[of]
    content = mutation(rng, of, whole, [*examples.values()])
    if name == "servers' files" and rng.random() < 0.03:
        content = rng.choice([*BOMBS.values()]).encode()
    ways = [*reader.commands, *reader.functions]
    way = rng.randrange(len(ways))
    read = ways[way]
    usual = _usual(name, of, way, folder)
    path.write_bytes(content)
    took = [_read(read, path)]
    if took[0][2] > SECONDS:  # once more: another rule may have been compiled
        took.append(_read(read, path))
    answer, said, seconds, mebibytes = took[-1]
    known = most.get(name, Most())
    most[name] = Most(
        known.answers + 1, max(known.seconds, seconds), max(known.mebibytes, mebibytes),
        max(known.letters, len(said or answer)), known.refused + bool(said),
    )  # fmt: skip
    hidden = {letter for letter in answer + said if not letter.isprintable() and letter not in "\n\t"}
    assert not hidden, f"{name}, {of}: {hidden}"
    assert len(said) <= LETTERS, f"{name}, {of}: {len(said):,} letters"
    assert len(answer) <= LETTERS + usual, f"{name}, {of}: {len(answer):,} letters, else {usual:,}"
    assert seconds <= SECONDS, f"{name}, {of}: {seconds:.1f} s"
    assert mebibytes <= MEBIBYTES, f"{name}, {of}: {mebibytes:.0f} MiB"
    return "refused" if said else "read"


@functools.cache
def _usual(name: str, of: str, way: int, folder: Path) -> int:
    """Return the letters of the answer to an example; what it compiles or imports is there afterwards."""
    path, reader = folder / of, READERS[name]
    path.write_bytes(_examples(name, folder)[of])
    return len(_read([*reader.commands, *reader.functions][way], path)[0])


def _read(read: object, path: Path) -> tuple[str, str, float, float]:
    """Return what is answered, what is said of an error, the seconds, and the peak of further memory."""
    before = _memory()
    begin_s = time.process_time()
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(HANGS_S)
    try:
        if callable(read):
            answer, said = _called(read, path)
        else:
            arguments = [each.replace(FILE, path.name) for each in read]  # type: ignore[union-attr]
            code, answer, said = call(arguments, path.parent)
            assert code in (0, 1, 2), f"exit code {code}: {arguments} {said[-200:]!r}"
            said = said if code == 2 else ""
    finally:
        signal.alarm(0)
    return answer, said, time.process_time() - begin_s, _memory(peak=True) - before


def _called(read: Callable[[Path], object], path: Path) -> tuple[str, str]:
    try:
        return repr(read(path)), ""
    except ValueError as error:
        return "", str(error) or "?"


def _stop(*_: object) -> None:
    raise AssertionError(f"no answer in {HANGS_S} s")


def _memory(peak: bool = False) -> float:
    """Return the memory of this process in MiB, or its peak since the last call of this."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not clear.exists():  # only Linux counts again
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
            2**20 if sys.platform == "darwin" else 2**10
        )
    if not peak:
        clear.write_text("5")
    return int(re.findall(r"VmHWM:\s*(\d+)" if peak else r"VmRSS:\s*(\d+)", status.read_text())[0]) / 1024


def report() -> list[str]:
    """Return the lines of a table: the most that each reader took."""
    if not most:
        return []
    rows = []
    for name, it in sorted(most.items()):
        used = f"{it.seconds:.2f} | {it.mebibytes:.0f} | {it.letters:,}"
        rows.append(f"| {name} | {it.answers:,} | {it.refused:,} | {used} |")
    head = "| reader | answers | refused | most s | most MiB | most letters |"
    return ["", head, "|---|---|---|---|---|---|", *rows]
