"""The compiled loops that Numba keeps on disk, damaged in any way."""

import itertools
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from attack.files import damaged

CODE = """
import batchsim as bs
scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
for each in (scenario, scenario.replace(timeout_ms=20), scenario.replace(rule=bs.AtLeast(2, 8))):
    print(repr(bs.simulate(each, 2000).summary()))
"""


def attack_cache(rng: random.Random, folder: Path) -> str:
    """A run gives the same numbers, whatever is in the folder of compiled loops."""
    fresh, used = folder / "fresh", folder / "used"
    if not fresh.exists():
        (folder / "expected").write_text(_run(fresh))
    shutil.rmtree(used, ignore_errors=True)
    shutil.copytree(fresh, used)
    files = sorted(path for path in used.rglob("*") if path.is_file())
    for path in rng.sample(files, rng.choice([1, 1, 2, len(files)])):
        kind = rng.randrange(7)
        if kind == 0:
            path.unlink()
        elif kind == 1:
            path.write_bytes(b"")
        elif kind == 2:
            path.unlink()
            path.mkdir()
        elif kind in (3, 4):
            _exchange(path, rng.choice([each for each in files if each.is_file()] or [path]))
        else:
            path.write_bytes(damaged(rng, path.read_bytes()))
    if rng.random() < 0.3:  # each loop under another signature
        loops = [each for each in files if each.is_file()]
        for one, other in itertools.pairwise(loops):
            if one.name.split("-")[0] == other.name.split("-")[0]:
                _exchange(one, other)
    assert _run(used) == (folder / "expected").read_text(), "other numbers"
    return "same numbers"


def _exchange(one: Path, other: Path) -> None:
    """Put two files in each other's place, as a tool that restores them might."""
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])


def _run(cache: Path) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-300:]
    return done.stdout
