"""Models that return something else from some call on: no measurement of them is returned."""

import random
from pathlib import Path

import numpy as np

OTHERS = [
    lambda batch: None,
    lambda batch: [None] * len(batch),
    lambda batch: batch[:-1],
    lambda batch: np.append(batch, batch, axis=0),
    lambda batch: batch * np.nan,
    lambda batch: batch / 0,
    lambda batch: batch.sum(),
    lambda batch: batch.tolist(),
    lambda batch: "text",
    lambda batch: {},
]
WARMUP, REPEATS, SIZES = 1, 5, [1, 3]


def attack_model(rng: random.Random, _: Path) -> str:
    """A model that changes is refused in words; one that does not is measured."""
    from batchsim.device import measure

    calls = (1 + WARMUP + REPEATS) * len(SIZES)
    change, other, served = rng.randrange(2 * calls), rng.choice(OTHERS), rng.random() < 0.3
    count = iter(range(10**9))

    def model(batch):
        with np.errstate(all="ignore"):
            return batch if next(count) < change else other(batch)

    try:
        measure(
            model, SIZES, repeats=REPEATS, warmup=WARMUP, example=[1.0, 2.0], served=served, roofline=False,
            progress=False,
        )  # fmt: skip
    except ValueError:
        assert change < 2 * calls
        return "refused"
    # A list and infinite numbers are outputs, too, if they do not change; a server's types are not looked at.
    assert change == 0 or change >= calls - 1 or served, f"measured, though it changed in call {change}"
    return "measured"
