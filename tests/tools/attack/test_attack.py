"""The program of random attacks works, and its first attempts find nothing (`make attack` makes more)."""

import random
import warnings

import pytest
from attack.__main__ import ATTACKS

# A damaged cache is compiled again, which takes long: tests/engines/compiled/test_jit.py has examples.
# Those of the app are of tests/app.
SLOW = {"compiled loops on disk, damaged", "the app's sockets", "the app's addresses"}
QUICK = sorted(ATTACKS.keys() - SLOW)


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_lost_or_wrong(name, tmp_path):
    attempt, outcomes = ATTACKS[name][0], set()
    # tests/study/test_store.py has the worst instants, and tests/test_files.py every text that grows.
    attempts = {"sweeps": 1, "servers' files that": 2, "servers' files, ": 300, "pipes": 2, "runs in": 1}
    for number in range(next((count for begin, count in attempts.items() if name.startswith(begin)), 20)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes.add(attempt(random.Random(f"0 {name} {number}"), tmp_path))
    assert outcomes
