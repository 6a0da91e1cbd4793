"""Executors that fail in any way: searches end with the same answer, sweeps keep what is finished."""

import contextlib
import random
import shutil
import sys
import warnings
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

import batchsim as bs

ERRORS = [
    ConnectionError, TimeoutError, OSError, BrokenExecutor, CancelledError, RuntimeError, KeyError, EOFError,
    MemoryError, ValueError, TypeError,
]  # fmt: skip
SCENARIO = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
OVER = {"max_batch_size": [2, 4, 8, 16], "max_wait_ms": [0, 5, 20]}
LIMIT = bs.SLO(p99_ms=40)


class Failing(ThreadPoolExecutor):
    """From some call on it raises, as it is called or as it answers, or nothing comes any more."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng.choice([1, 3]))
        self.lives, self.error, self.how = rng.randrange(13), rng.choice(ERRORS), rng.randrange(3)

    def submit(self, function, /, *args, **given):
        self.lives -= 1
        if self.lives >= 0:
            return super().submit(function, *args, **given)
        if self.how == 0:
            raise self.error("lost")
        future: Future = Future()
        if self.how == 1 or self.lives == -1:
            future.set_exception(self.error("lost"))
        return future  # pending for ever, after the first that fails


def attack_executor(rng: random.Random, folder: Path) -> str:
    """`tune` returns what it returns alone; what a sweep has finished is on disk, and it resumes."""
    out, seed = folder / "sweep", rng.randrange(1000)
    shutil.rmtree(out, ignore_errors=True)
    stderr, shown = sys.stderr, rng.random() < 0.3
    with warnings.catch_warnings(), Failing(rng) as executor:
        warnings.simplefilter("ignore")
        if shown:  # nowhere, as in `pythonw`
            sys.stderr = None
        try:
            if rng.random() < 0.5:
                alone = bs.tune(SCENARIO, LIMIT, OVER, 2000, seed=seed, progress=False)
                found = bs.tune(SCENARIO, LIMIT, OVER, 2000, seed=seed, executor=executor, progress=shown)
                assert found.candidates.equals(alone.candidates)
                assert (found.rule, found.met, found.expected) == (alone.rule, alone.met, alone.expected)
                return "the same answer"
            with contextlib.suppress(RuntimeError):
                bs.sweep(SCENARIO, OVER, 2000, seed, executor=executor, out=out, workers=1, progress=shown)
            one, other = (bs.sweep(SCENARIO, OVER, 2000, seed, out=to, progress=shown) for to in (out, None))
            assert one.equals(other)
            return "resumed"
        finally:
            sys.stderr = stderr
