"""Measuring a model: how long batches of each size really take on this machine."""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import jax
import numpy as np

from batchsim import _check
from batchsim.device.models import Model, describe, fitting
from batchsim.scenario.measurement import Measurement

_wait_for: Callable[[Any], Any] = jax.block_until_ready  # JAX returns before its device has computed


def measure(
    model: Model | Callable[[np.ndarray], Any], batch_sizes: Iterable[int] = (1, 2, 4, 8, 16, 32), *,
    repeats: int = 30, warmup: int = 3, example: Any = None, seed: int = 0,
) -> Measurement:  # fmt: skip
    """Time `model` on batches of each size.

    `model` is a `Model`, or any callable on stacked arrays; a callable needs `example`, one item, which is
    repeated to fill its batches. At each size, one call compiles and `warmup` more calls warm up. Then come
    `repeats` rounds of every size once, in an order drawn from `seed`, so that drift (clock rate, other
    processes) affects all sizes alike. A time runs from the batch in the host's memory until the output is
    ready on the device: like a server's, it includes the copy to the device, but not the copy back. A `Model`
    drops what it had compiled, so that the first call includes compiling; padded sizes of one shape compile
    once. A batch that does not fit in the device's memory raises MemoryError.

    >>> from batchsim.device import load_model
    >>> measurement = measure(load_model("mlp", width=8), [1, 4], repeats=2)
    >>> len(measurement.samples_ms[0]), measurement.service.points_ms[1][0]
    (2, 4)
    """
    sizes = _check.sizes("batch_sizes", batch_sizes, rising=False)
    repeats = _check.whole("repeats", repeats)
    warmup = _check.whole("warmup", warmup, at_least=0)
    generator = np.random.default_rng(_check.whole("seed", seed, at_least=0))
    batches = _batches(model, sizes, example, seed)
    if isinstance(model, Model):
        model.forget_compiled()
    first_call_s, output = {}, None
    for size in sizes:
        with fitting(f"a batch of {size:,}"):
            first_call_s[size], output = _timed(model, batches[size])
            for _ in range(warmup):
                _wait_for(model(batches[size]))
    samples_ms: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(repeats):
        for size in generator.permutation(sizes).tolist():
            with fitting(f"a batch of {size:,}"):
                samples_ms[size].append(_timed(model, batches[size])[0] * 1000)
    # None if JAX did not compute the output.
    arrays = [leaf for leaf in jax.tree_util.tree_leaves(output) if isinstance(leaf, jax.Array)]
    device = next(iter(arrays[0].devices())) if arrays else None
    return Measurement(
        model=model.name if isinstance(model, Model) else getattr(model, "__name__", type(model).__name__),
        device=describe(device), platform="cpu" if device is None else device.platform,
        jax_version=jax.__version__, batch_sizes=sizes, repeats=repeats,
        samples_ms=tuple(tuple(samples_ms[size]) for size in sizes),
        first_call_s=tuple(first_call_s.values()),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _batches(model: Any, sizes: tuple[int, ...], example: Any, seed: int) -> dict[int, np.ndarray]:
    """Return a batch of each size: random inputs for a Model, or the example repeated."""
    _check.instance("model", model, Callable, "callable")
    if isinstance(model, Model):
        model.padded_size(max(sizes))  # raises before the first run if a size is too large
        if example is None:
            return {size: model.inputs(size, seed) for size in sizes}
    if example is None:
        raise TypeError("example must be one item of a batch if model is a plain callable, got None")
    return {size: np.stack([np.asarray(example)] * size) for size in sizes}


def _timed(model: Callable[[np.ndarray], Any], batch: np.ndarray) -> tuple[float, Any]:
    begin_s = time.perf_counter()
    output = _wait_for(model(batch))
    return time.perf_counter() - begin_s, output
