"""Texts from strangers, in names, keys and values of files and options: a terminal gets letters, and few."""

import json
import random
import re
from pathlib import Path

import batchsim as bs
from attack.configs import EXAMPLES, LONGEST_TEXT
from attack.files import SCENARIOS
from attack.shell import call
from batchsim.measured.measurement import Measurement
from batchsim.teaching.progress_store import Predicted, Record, Tried, Wrong, write

EVIL = [
    "\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "\u202egnp.exe", "\x07", "\x00", "\u2028", "\x85", "\x1b" * 90,
    "A" * 100_000, "9" * 400, "9" * 5_000, "\x7f", "\ufeff", "\u200b", "\ue000",
]  # fmt: skip
SERVICE = ["--fixed-ms", "5", "--per-item-ms", "0.25", "--requests", "300"]
BASE = ["--rate-per-s", "90", *SERVICE]
# Each is a command about a file, by the file's name.
COMMANDS = {
    "a.toml": [["simulate", "a.toml", "--requests", "300"], ["sweep", "a.toml", "--over", "servers=1"]],
    "a.csv": [["simulate", "--trace", "a.csv", *more, *SERVICE] for more in ([], ["--column", "x"])],
    "a.jsonl": [["simulate", "--trace", "a.jsonl", "--unit", "s", *SERVICE]],
    "a.json": [["simulate", "--measurement", "a.json", "--rate-per-s", "9", "--requests", "300"]],
    "ann.json": [["grade", "ann.json"], ["grade", "ann.json", "--csv", "--any-version"]],
    "a.pbtxt": [["lint", "a.pbtxt", *BASE], ["simulate", *BASE, "--server-config", "a.pbtxt"]],
}  # fmt: skip
OPTIONS = ["--set", "--workload", "--rule", "--service", "--trace", "--published", "--column", "--engine"]


def attack_terminal(rng: random.Random, folder: Path) -> str:
    """Whatever a file or an option says, stdout and stderr have letters alone, and stderr is short."""
    if rng.random() < 0.2:
        option = rng.choice(OPTIONS) if rng.random() < 0.7 else f"--{evil(rng)}"
        arguments = ["simulate", *BASE, option, inserted(rng, "workload.cv=2")]
        # Nobody can type these.
        arguments = [each.replace("\0", "") for each in arguments]
    else:
        name = rng.choice(sorted(COMMANDS))
        (folder / name).write_text(inserted(rng, example(rng, name, folder)), "utf-8")
        arguments = rng.choice(COMMANDS[name])
    code, out, err = call(arguments, folder)
    assert code in (0, 1, 2), f"exit code {code}: {arguments!r:.200} {err[-200:]!r}"
    hidden = {letter for letter in out + err if not letter.isprintable() and letter not in "\n\t"}
    assert not hidden, f"{hidden}: {arguments!r:.200}"
    assert len(err) <= LONGEST_TEXT, f"{len(err):,} characters: {arguments!r:.200}"
    return "refused" if code == 2 else "answered"


def evil(rng: random.Random) -> str:
    return rng.choice(EVIL)


def inserted(rng: random.Random, text: str) -> str:
    """Return a text with evil texts in it, before or in place of words."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        begin, end = rng.choice([match.span() for match in re.finditer(r"[\w.]+", text)] or [(0, 0)])
        text = text[:begin] + evil(rng) + text[end if rng.random() < 0.3 else begin :]
    return text


def example(rng: random.Random, name: str, folder: Path) -> str:
    """Return the text of a file that its command reads."""
    path = folder / "example.json"
    if name == "a.toml":
        return rng.choice(SCENARIOS).to_toml()
    if name == "a.csv":
        return "t,x\n" + "".join(f"{place / 100},1\n" for place in range(20))
    if name == "a.jsonl":
        return "".join(json.dumps({"t": place / 100, "x": 1}) + "\n" for place in range(20))
    if name == "a.pbtxt":
        return rng.choice([each for each in EXAMPLES if each.suffix == ".pbtxt"]).read_text()
    if name == "a.json":
        Measurement("m", "CPU", "cpu", "1.0", [1, 4], 2, [[2.0, 2.1], [3.0, 3.0]], [1, 1], "2026-01-01").save(
            path
        )
    else:
        tried = Tried(2, "2026-01-01", "2026-01-01", "", [Wrong("7", "No.")])
        predictions = {"01.a": Predicted("x", True, "2026-01-01")}
        write(path, Record("Ann", "a", "2026-01-01", bs.__version__, predictions, {"01.1": tried}))
    return path.read_text()
