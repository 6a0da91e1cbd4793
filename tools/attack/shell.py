"""The commands, with options that make sense and options that do not."""

import contextlib
import functools
import io
import os
import random
import sys
from pathlib import Path

import batchsim as bs

COMMANDS = ["simulate", "simulate", "sweep", "tune", "capacity", "published", "init"]
NUMBERS = [
    "0", "-1", "1", "2.5", "32", "1e9", "1e400", "nan", "inf", "", "x", "1,2", "1=2", "1=2,8=4", "True", "5"
]  # fmt: skip
PARTS = [
    "Gamma(800, cv=2)", "Poisson(0)", "Poisson(", "ClosedLoop(5, 0.1)", "OnOff(900, 100, 1, 1)",
    "__import__('os')", "AtLeast(4, 8)", "PreferredSizes([2, 4], 8, 5)", "SizeOrWait", "None", "5",
    "Affine(5, 0.25).with_noise(0.1)", "Table({1: 5})", "published('nnunet/t4/fp16')", "'text'", "[1, 2]",
    "Affine(5).scaled(2)", "lambda: 0",
]  # fmt: skip
OPTIONS = {
    "--rate-per-s": NUMBERS, "--workload": PARTS, "--clients": NUMBERS, "--column": ["t", "x", ""],
    "--trace": ["t.csv", "no.csv", "folder", "."], "--speedup": NUMBERS, "--max-batch-size": NUMBERS,
    "--max-wait-ms": NUMBERS, "--rule": PARTS, "--fixed-ms": NUMBERS, "--per-item-ms": NUMBERS,
    "--table": NUMBERS, "--published": ["nnunet/t4/fp16", "nothing"], "--service": PARTS,
    "--measurement": ["m.json", "no.json"], "--servers": NUMBERS, "--queue-limit": NUMBERS,
    "--timeout-ms": NUMBERS, "--devices": NUMBERS, "--host-ms": NUMBERS, "--contention": NUMBERS,
    "--compile-ms": NUMBERS, "--seed": NUMBERS, "--warmup": ["auto", *NUMBERS], "--json": None,
    "--set": ["workload.cv=2", "slowdown={1: 1, 2: 1.8}", "x=1", "servers", "=", "rule.max_wait_ms=3"],
    "--replications": ["1", "2", "x"], "--engine": ["simpy", "compiled", "auto", "x"],
    "--p99-ms": NUMBERS, "--p50-ms": NUMBERS, "--mean-ms": NUMBERS, "--tolerance": NUMBERS,
    "--over": ["max_batch_size=1,2,4", "max_wait_ms=0:20:5", "rate_per_s=100:900:x2", "x=1", "=", "servers="],
    "--save": ["out.npz", "folder", "no/where.npz"], "--plot": ["a.png", "a.txt", "no/a.png"],
    "--nonsense": ["1"], "--force": None,
}  # fmt: skip
GRID = ["--over", "max_batch_size=1,4"]
FILES = [[], [], [], ["scenario.toml"], ["scenario.toml"], ["no.toml"], ["folder"], ["t.csv"]]
USUAL = ["--rate-per-s", "800", "--fixed-ms", "5", "--per-item-ms", "0.25"]


def attack_shell(rng: random.Random, folder: Path) -> str:
    """Every call ends with exit code 0, 1 or 2; bad input is one line on stderr."""
    _prepare(folder)
    command = rng.choice(COMMANDS)
    arguments = [command, *rng.choice(FILES)]
    if command in ("simulate", "sweep", "tune", "capacity"):
        arguments += [] if arguments[1:] and rng.random() < 0.9 else USUAL
        arguments += ["--requests", rng.choice(["300", "300", "300", "1", "x"])]
        arguments += GRID if command in ("sweep", "tune") else []
        arguments += ["--p99-ms", "50"] if command in ("tune", "capacity") else []
    for name in rng.sample(sorted(OPTIONS), rng.choice([0, 1, 1, 1, 2])):
        values = OPTIONS[name]
        arguments += [name] if values is None else [name, rng.choice(values)]
    if rng.random() < 0.05:
        arguments = arguments[1:]
    code, out, err = call(arguments, folder)
    assert code in (0, 1, 2), f"exit code {code}: {arguments} {err[-200:]}"
    assert "Traceback" not in out + err, arguments
    errors = [line for line in err.splitlines() if not line.startswith("Warning: ") and "|" not in line]
    if code == 2 and arguments:
        assert len(errors) == 1, f"{len(errors)} lines: {arguments} {err[:300]}"
        assert errors[0].startswith("Error: "), errors
    if code == 1:
        assert command in ("simulate", "sweep", "tune", "capacity"), arguments
    return ("met, or no objective", "not met", "refused")[code]


def _prepare(folder: Path) -> None:
    if not (folder / "folder").exists():
        (folder / "folder").mkdir()
        (folder / "t.csv").write_text("t,x\n" + "".join(f"{place / 100},1\n" for place in range(200)))
        bs.Scenario(bs.Poisson(800), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25)).to_toml(
            folder / "scenario.toml"
        )


@functools.cache
def _command():
    """Return the commands, which are made once."""
    from typer.main import get_command

    from batchsim.cli import app

    return get_command(app)


def call(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Run the command in this process, as its entry point does."""
    here, out, err = os.getcwd(), io.StringIO(), io.StringIO()
    os.chdir(folder)
    before, sys.argv = sys.argv, ["batchsim", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            _command()()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        os.chdir(here)
        sys.argv = before
    return code, out.getvalue(), err.getvalue()
