"""Servers' files from strangers: each is read, or refused in a line, within 10 s and 200 MB."""

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from batchsim import servers

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "tests" / "data" / "servers").rglob("*") if path.is_file()
)
# On a slow machine each takes up to 3 s; one that is read in exponential or quadratic time takes minutes.
LONGEST_S, LARGEST_MIB, LONGEST_TEXT = 10.0, 200, 2_000
PARTS = [
    "\n" * 50, "[", "{", "}", "]", ": ", "- ", "&a ", "*a ", "<<: *a\n", '"', "'", "\\", "=", "#", "|", ">",
    "\t", "(", ")", "@", "*", "**", "[[", "a = a * a\n", "--x", "--", "-e", "$(", "`", "null", "-1", "1e400",
    "nan", ".inf", "0x" + "f" * 50, "<", "%", "\0", "\u2028", "é", "kind: InferenceService\n", "models=",
    '{"a":', "!!python/object:x", "? ", "---\n", "max_batch_size", "count: 2", "import x", 'f"{a}"',
    "lambda: 0", ";", "&&", "export A=1\n", "2001-99-99",
]  # fmt: skip
RAY = "@serve.batch(max_batch_size=a)\nasync def f(x): ...\n"
KSERVE = "kind: InferenceService\nspec: {predictor: {batcher: {maxBatchSize: 4}}}\n"
TRITON = "max_batch_size: 8 dynamic_batching {}\n"
MOST = 2**20 - 200


def _grown(first: str, more: str, times: int) -> str:
    """Return constants, each made of the one before; `a` is the last."""
    lines = [f"a{n + 1} = {more.format(f'a{n}')}" for n in range(times)]
    return "\n".join([f"a0 = {first}", *lines, f"a = a{times}\n"])


# Texts of up to 1 MB that are small to write and large to read.
BOMBS = {
    "squares": _grown("10", "{0} * {0}", 20) + RAY,
    "lists of lists": _grown("[1, 1]", "[{0}, {0}, {0}]", 30) + RAY,
    "brackets": f"a = {'(' * 9000}1{')' * 9000}\n" + RAY,
    "a long sum": f"a = 1{'+1' * 14_000}\n" + RAY,
    "decorators": RAY * 3000,
    "bare decorators": "@serve.batch\n" * 3000 + "def f(): ...",
    "a long name": f"@serve.batch({'z' * 900_000}=1)\ndef f(): ...",
    "blank lines": "\n" * MOST + RAY,
    "blanks": " " * MOST + "vllm serve m",
    "a comment of blanks": "# batchsim: a=" + " " * MOST + "x",
    "blank lines between": TRITON.replace(" ", "\n" * 20_000),
    "aliases": KSERVE
    + "x0: &x0 [a, a]\n"
    + "".join(f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}]\n" for n in range(1, 40)),
    "merge keys": KSERVE
    + "x0: &x0 {a: 1}\n"
    + "".join(f"x{n}: &x{n} {{<<: [*x{n - 1}, *x{n - 1}]}}\n" for n in range(1, 40)),
    "an alias of itself": KSERVE + "x: &x [*x]\n",
    "deep YAML": KSERVE + f"x: {'[' * 14_000}{']' * 14_000}\n",
    "unknown keys": KSERVE + "".join(f"k{n}: 1\n" for n in range(9000)),
    "a long number": f"batchSize: {'9' * 900_000}\nmaxBatchDelay: 3",
    "fields": TRITON + "input { name: 'a' dims: [1] }\n" * 30_000,
    "unknown fields": TRITON + "zz: 1\n" * 9000,
    "deep fields": TRITON + "a{" * 9000 + "}" * 9000,
    "a long property": "models=" + "a" * MOST,
    "continued lines": "models={" + "\\\n" * 14_000 + "}",
    "a long word": "vllm serve " + "a" * MOST,
    "a long quote": f"vllm serve '{'a' * MOST}'",
    "an open quote": f"vllm serve '{'a' * MOST}",
    "unknown flags": "vllm serve m " + "--k1 " * 9000,
    "many commands": "vllm serve m\n" * 7000,
    "many manifests": "cat <<E\na: 1\nE\n" * 2800 + "vllm serve m",
    "open arrays": "a=(" * 9000 + "\nvllm serve m",
    "open pipes": "vllm serve m\n" + "a | " * 9000,
    "an invalid text again and again": f"A='{'a=(' * 900}'\n" + 'bash -c "$A"\n' * 3000 + "vllm serve m",
    "many words": f"A=({'x ' * 9000})\n" + "vllm serve m ${A[@]}\n" * 900,
}  # fmt: skip


def attack_config(rng: random.Random, folder: Path) -> str:
    """An example with random edits is read, or refused with ValueError."""
    path = rng.choice(EXAMPLES)
    text = mutated(rng, path.read_text())
    server = path.parent.name if rng.random() < 0.6 else None
    return read_within(text, server)


def read_within(text: str, server: str | None = None) -> str:
    """Read a text within the limits of time and of the answer's length."""
    begin_s, outcome = time.process_time(), "read"
    try:
        answer = repr(servers.parse(text, server))
    except ValueError as error:
        answer, outcome = str(error), "refused"
        assert "\n" not in answer, answer
    assert len(answer) <= LONGEST_TEXT, f"{len(answer):,} characters"
    assert time.process_time() - begin_s <= LONGEST_S, f"{time.process_time() - begin_s:.1f} s"
    return outcome


def mutated(rng: random.Random, text: str, others: Sequence[str] = ()) -> str:
    """Return a text with parts put in, removed, repeated, moved, or taken from another example."""
    for _ in range(rng.choice([1, 1, 2, 3, 10])):
        at, lines = rng.randrange(len(text) + 1), text.split("\n")
        here = rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                text = text[:at] + rng.choice(PARTS) * rng.choice([1, 1, 1, 3, 50]) + text[at:]
            case 1:
                text = text[:at] + text[at + rng.randint(1, 30) :]
            case 2:
                text = text[:at]
            case 3:
                text = text[:at] + text[at : at + rng.randint(1, 60)] + text[at:]
            case 4:
                other = rng.choice(others or [rng.choice(EXAMPLES).read_text()])
                begin = rng.randrange(len(other) + 1)
                text = text[:at] + other[begin : begin + rng.randint(1, 80)] + text[at:]
            case 5:
                rng.shuffle(lines)
                text = "\n".join(lines)
            case 6:
                lines.insert(here, " " * rng.randint(0, 8) + lines[here].strip())
                text = "\n".join(lines)
    return text


def attack_bomb(rng: random.Random, folder: Path) -> str:
    """`batchsim lint` of a file that is small to write and large to read ends within limits, in a line."""
    name = rng.choice(sorted(BOMBS))
    path = folder / rng.choice(["a.py", "a.yaml", "a.pbtxt", "a.properties", "a.sh", "a.txt"])
    path.write_text(BOMBS[name])
    return lint(path)


def attack_argument(rng: random.Random, folder: Path) -> str:
    """A pipe, a device or a huge file as an argument is refused in a line."""
    path = folder / "given"
    path.unlink(missing_ok=True)
    kind = rng.choice(["pipe", "zero", "random", "large", "deep", "long key"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind in ("zero", "random"):
        path.symlink_to("/dev/zero" if kind == "zero" else "/dev/urandom")
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(2**35)
    else:
        path.write_text("a." * 500_000 + "a = 1\n" if kind == "deep" else f'"{"k" * 10_000_000}" = 1\n')
    command = rng.choice(
        [["lint"], ["grade"], ["simulate"], ["simulate", "--trace"], ["simulate", "--measurement"]]
    )
    usual = (
        ["--rate-per-s", "9", "--fixed-ms", "5"] if command[0] != "grade" and "--trace" not in command else []
    )
    memory_mib = LARGEST_MIB if command[0] in ("lint", "grade") else 1_500
    return shell([*command, str(path), *usual], memory_mib)


def lint(path: Path) -> str:
    return shell(["lint", str(path), "--rate-per-s", "90", "--fixed-ms", "5", "--requests", "300"], 1_500)


def shell(arguments: list[str], memory_mib: int) -> str:
    """Run the command in a process of its own; return whether it refused its input."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "batchsim", *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        until_s, peak = time.monotonic() + 60, 0
        while process.poll() is None:
            peak = max(peak, _peak(process.pid))
            if time.monotonic() > until_s:
                process.kill()
                raise AssertionError(f"no answer: {arguments}")
            time.sleep(0.01)
        err.seek(0)
        text = err.read().decode()
    assert process.returncode in (0, 1, 2), f"exit code {process.returncode}: {text[-200:]}"
    assert "Traceback" not in text, text[-300:]
    assert len(text) <= LONGEST_TEXT, f"{len(text):,} characters on stderr"
    assert peak <= memory_mib, f"{peak:,.0f} MiB: {arguments}"
    return "refused" if process.returncode == 2 else "answered"


def _peak(pid: int) -> float:
    """Return the peak memory of a process in MiB. `wait4` would count its parent's, before the exec."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else 0.0
