"""The program of random attacks works, and its first attempts find nothing (`make attack` makes more)."""

import random
import warnings

import pytest
from attack.__main__ import ATTACKS

# A damaged cache is compiled again, which takes long: test_jit.py has examples.
QUICK = sorted(ATTACKS.keys() - {"compiled loops on disk, damaged"})


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_lost_or_wrong(name, tmp_path):
    attempt, outcomes = ATTACKS[name][0], set()
    for number in range(1 if "sweeps" in name else 20):  # test_sweep_store.py has the worst instants
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes.add(attempt(random.Random(f"0 {name} {number}"), tmp_path))
    assert outcomes
