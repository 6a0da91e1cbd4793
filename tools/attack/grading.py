"""Hand-ins of a class, of which some were edited: nobody else's row is lost, and cells are text."""

import json
import random
from pathlib import Path

import batchsim as bs
from attack.files import NUMBERS, OTHERS, damaged, edit
from attack.shell import call
from attack.terminal import EVIL
from batchsim.cli.course import FORMULA
from batchsim.teaching.progress_store import Predicted, Record, Tried, Wrong, write

TIMES = ["", "now", "2999-01-01T00:00:00+00:00", "2026-02-30", "0001-01-01T00:00:00+23:59", "2026-01-01"]
TEXTS = ["\ud800", "=1+1", "\uff1d1", "@x", "-1", "\t=1", "Ann", "ANN", "k0", "01.1", "01.z", "99.9"]
VALUES = [*TIMES, *TEXTS, *EVIL[:9], *NUMBERS, *OTHERS]
FORMATS = ["--csv", "--json", "--canvas", "--moodle", "--any-version"]


def attack_grading(rng: random.Random, folder: Path) -> str:
    """Every student whose file is untouched has a row, in each format; what is refused is told in a line."""
    names = ["Ann", "Bo", "Cem"]
    for number, name in enumerate([*names, "Dee"]):
        time = "2026-01-01T09:00:00+00:00"
        tried = Tried(2, time, time, rng.choice(["", time]), [Wrong("7", "No.")])
        record = Record(name, f"k{number}", time, bs.__version__, {"01.a": Predicted("x", True, time)})
        record.exercises["01.1"] = tried
        write(folder / f"{name}.json", record)
    edited = folder / f"{rng.choice([*names, 'Dee'])}.json"
    tables = json.loads(edited.read_text())
    for _ in range(rng.choice([1, 1, 3])):
        edit(rng, tables, VALUES)
    edited.write_text(json.dumps(tables))
    if rng.random() < 0.1:
        edited.write_bytes(damaged(rng, edited.read_bytes()))
    wanted = [name for name in names if name != edited.stem]
    options = rng.sample(FORMATS, 1) + rng.choice([[], ["--any-version"]])
    code, out, err = call(["grade", *(f"{name}.json" for name in [*names, "Dee"]), *options], folder)
    assert code in (0, 2), f"exit code {code}: {err[-300:]}"
    assert all(name in out for name in wanted), f"{wanted} in {out[:300]!r}"
    assert all(line.startswith("Error: ") for line in err.splitlines()), err[:300]
    if options[0] in ("--csv", "--canvas", "--moodle"):
        cells = [cell.strip('"') for line in out.splitlines() for cell in line.split(",")]
        assert not any(cell.startswith(FORMULA) for cell in cells), out[:300]
    return "all counted" if code == 0 else "one refused"
