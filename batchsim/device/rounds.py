"""The calls of a measurement: each size compiled and warmed up, then timed in rounds."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from batchsim.device.models import fitting
from batchsim.measured.samples import summary

WAIT_FOR: Callable[[Any], Any] = jax.block_until_ready  # JAX returns before its device has computed
FEWEST = 20  # samples, before an interval is believed
MOST = 1000  # samples of a size: more would fill files, and tell no more
SETTLING = 0.1  # of the limit, before a size is left out: what disturbs lasts longer than a few batches


class Rounds:
    """The calls of each size: what they took, and what did not fit."""

    def __init__(self, call: Callable[[Any], Any], batches: dict[int, Any], copy: bool) -> None:
        self.call, self.batches, self.copy = call, batches, copy
        self.first_call_s: dict[int, float] = {}
        self.samples_ms: dict[int, list[float]] = {size: [] for size in batches}
        self.not_fitting: dict[int, str] = {}
        self.runs: list[tuple[np.ndarray, np.ndarray]] = []  # sizes and times in order, where they are known

    def warm_up(self, warmup: int, bar: Any) -> Any:
        """Call each size for the first time, check its output, and call it `warmup` more times."""
        output = None
        for size in list(self.batches):
            bar.set_postfix_str(f"compiling {size:,}")
            try:
                with fitting(f"a batch of {size:,}"):
                    if not self.copy:
                        self.batches[size] = jax.device_put(self.batches[size])
                    self.first_call_s[size], first = self._timed(size)
                    check_output(len(self.batches[size]), first)
                    for _ in range(warmup):
                        WAIT_FOR(self.call(self.batches[size]))
                output = first
            except MemoryError as error:
                self._leave_out(size, error)
        return output

    def run(
        self, generator: np.random.Generator, target: float, limit_s: float, repeats: int | None, bar: Any
    ) -> None:
        """Time rounds of every size that is not known well enough, until there is none or no time."""
        begin_s, rounds, next_check = time.perf_counter(), 0, FEWEST
        wanted = list(self.samples_ms)
        while wanted and rounds != repeats:
            bar.set_postfix_str(f"round {rounds + 1:,}")
            for size in generator.permutation(wanted).tolist():
                over = repeats is None and time.perf_counter() - begin_s > limit_s
                if over and rounds:  # each size has a sample
                    return
                self._sample(size, wanted)
            rounds += 1
            settling = time.perf_counter() - begin_s < SETTLING * limit_s and rounds < MOST
            if repeats is None and rounds >= next_check and not settling:
                next_check = rounds + 1 + rounds // 10  # checking takes time, too
                left = [size for size in wanted if not self.settled(size, target)]
                bar.update(len(wanted) - len(left))
                wanted = left

    def _sample(self, size: int, wanted: list[int]) -> None:
        try:
            with fitting(f"a batch of {size:,}"):
                self.samples_ms[size].append(self._timed(size)[0] * 1000)
        except MemoryError as error:
            wanted.remove(size)
            self._leave_out(size, error)

    def settled(self, size: int, target: float) -> bool:
        samples = self.samples_ms[size]
        return len(samples) >= MOST or summary(samples).half_width <= target

    def _leave_out(self, size: int, error: MemoryError) -> None:
        self.not_fitting[size] = str(error)
        del self.samples_ms[size], self.batches[size]
        if not self.samples_ms:
            raise error

    def _timed(self, size: int) -> tuple[float, Any]:
        batch = self.batches[size]
        begin_s = time.perf_counter()
        output = WAIT_FOR(self.call(batch))
        return time.perf_counter() - begin_s, output


def check_output(size: int, output: Any) -> None:
    """Refuse an output that is not one number or array an item, or that is not a number."""
    each = isinstance(output, list)  # of outputs, one an item; else arrays, in whatever containers
    arrays = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(output)]
    for shape in [(len(output),)] if each else [array.shape for array in arrays]:
        if shape[:1] != (size,):
            rule = f"a model must return one output an item, of shape ({size}, ...)"
            raise ValueError(f"{rule}, got shape {shape}")
    for array in arrays:
        if jax.numpy.issubdtype(array.dtype, jax.numpy.inexact) and np.isnan(array).any():
            raise ValueError(f"a model's output must be numbers, got NaN in one of shape {array.shape}")
