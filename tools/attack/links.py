"""Links to the explorer: random states there and back, and random text."""

import contextlib
import random
import string
from pathlib import Path
from urllib.parse import quote

from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.state import DEFAULT, State

TEXTS = [
    "llama-3.0", "CUDA 12.0", "1.0", "a&b=c", "<script>", "none", "None", " x ", "ä→𝄞", "0x10", "%00",
    "1:2,3:4", "",
]  # fmt: skip
VALUES = [
    "0", "-1", "1e12", "nan", "inf", "-inf", "1e-300", "32.0", "1,2,4", "1:2.0,4:3.0", "none", "true",
    "9" * 40,
]  # fmt: skip


def attack_link(rng: random.Random, _: Path) -> str:
    """A state comes back from its link; any other text is refused with ValueError, or is a state."""
    names = rng.sample(sorted(CONTROLS), rng.choice([1, 1, 1, 2, 5]))
    changes = {name: _value(rng, name) for name in names}
    try:
        state = DEFAULT.replace(**changes)
    except (ValueError, TypeError):
        pass
    else:
        assert State.from_link(state.to_link()) == state, state.to_link()
        _scenario(state)
        if rng.random() < 0.5:
            return "came back"
    text = "&".join(f"{name}={quote(rng.choice(VALUES + TEXTS))}" for name in names)
    if rng.random() < 0.2:
        text = "".join(rng.choice(string.printable) if rng.random() < 0.05 else letter for letter in text)
    try:
        state = State.from_link(text)
    except ValueError:
        return "refused"
    assert State.from_link(state.to_link()) == state, text
    _scenario(state)
    return "accepted"


def _value(rng, name):
    default = getattr(DEFAULT, name)
    if isinstance(default, str):
        return rng.choice([default, *TEXTS])
    number = rng.choice([rng.randint(0, 100), rng.uniform(0, 1e4), 10.0 ** rng.randint(-9, 12), None])
    pairs = tuple((size, rng.uniform(0.1, 50)) for size in sorted(rng.sample(range(1, 64), 3)))
    return (
        rng.choice([number, pairs, tuple(size for size, _ in pairs)])
        if isinstance(default, tuple)
        else number
    )


def _scenario(state):
    with contextlib.suppress(ValueError):
        state.scenario()
