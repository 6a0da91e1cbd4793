"""Measuring a model: how long batches of each size really take on this machine."""

import warnings
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import jax
import numpy as np

from batchsim import _check
from batchsim.device.models import Model, describe
from batchsim.device.roofline import roofline as roofline_of
from batchsim.device.rounds import Rounds
from batchsim.device.served import BUSY, ServedRounds
from batchsim.measured.measurement import Measurement
from batchsim.measured.samples import autocorrelation
from batchsim.scenario.service import Table


def measure(
    model: Model | Callable[[Any], Any], batch_sizes: Iterable[int] = (1, 2, 4, 8, 16, 32), *,
    target: float = 0.02, limit_s: float = 5.0, repeats: int | None = None, warmup: int = 3,
    copy: bool = True, served: bool = False, busy: float | Callable[[Table], float] = BUSY,
    roofline: bool = True, example: Any = None, seed: int = 0, progress: bool = True,
) -> Measurement:  # fmt: skip
    """Time `model` on batches of each size, until each median is known well enough or the time is over.

    `model` is a `Model`, or any callable on stacked arrays; a callable needs `example`, one item, which is
    repeated to fill its batches. At each size, one call compiles and `warmup` more calls warm up. Then come
    rounds of every size once, in an order drawn from `seed`, so that drift (clock rate, other processes)
    affects all sizes alike. A size is left out of further rounds once half the 95 % interval of its quiet
    samples' median is at most `target` of the median; all end `limit_s` seconds after the first round began,
    or after exactly `repeats` rounds, whatever the time, if that is given. What is doubtful then is in the
    result's `notes`.

    A time runs from the batch in the host's memory until the output is ready on the device: like a server's,
    it includes the copy to the device, but not the copy back. With `copy=False` the batch is on the device
    before. With `served` it is the time of a whole server: one thread sends requests, as in `replay`, and
    another serves them through an `InferenceBatcher`, busy for 70 % of the time; a batch counts from when it
    may start until its answers are handed back, and no size is left out before the end. Sends take time from
    the model, so a server is measured best as `busy` as it will be: a fraction, or a function that tells it
    from the service time measured so far.

    A `Model` drops what it had compiled, so that the first call includes compiling; padded sizes of one shape
    compile once. JAX keeps some of the work on a shape for the rest of the process: a cold start in the same
    process, such as `replay(warm=False)`, is predicted best by the second measurement there. `roofline`
    measures what the device can do at best, in a second and once a process, and asks JAX for each compiled
    program's operations and bytes: a callable has them if `jax.jit` made it.

    A size whose batch does not fit in the device's memory is reported, and the others are measured;
    MemoryError if none fits. An output that is not one an item, or that is NaN, raises ValueError.

    >>> from batchsim.device import load_model
    >>> measurement = measure(load_model("mlp", width=8), [1, 4], repeats=2, roofline=False, progress=False)
    >>> len(measurement.samples_ms[0]), measurement.service.points_ms[1][0]
    (2, 4)
    """
    sizes = _check.sizes("batch_sizes", batch_sizes, rising=False)
    target = _check.real("target", target, above=0)
    limit_s = _check.real("limit_s", limit_s, above=0)
    repeats = None if repeats is None else _check.whole("repeats", repeats)
    warmup = _check.whole("warmup", warmup, at_least=0)
    if served and not copy:
        raise ValueError("copy must be True if served: a server gets its inputs in the host's memory")
    if not callable(busy):
        busy = _check.real("busy", busy, above=0, below=1)
    generator = np.random.default_rng(_check.whole("seed", seed, at_least=0))
    batches = _batches(model, sizes, example, seed)
    if isinstance(model, Model):
        model.forget_compiled()
    call: Callable[[Any], Any] = model
    if isinstance(model, Model) and not copy:
        batches, call = {size: model.padded(batch) for size, batch in batches.items()}, model.compute
    rounds = ServedRounds(call, batches, copy, busy) if served else Rounds(call, batches, copy)
    with _bar(progress, len(sizes)) as bar:
        output = rounds.warm_up(warmup, bar)
        rounds.run(generator, target, limit_s, repeats, bar)
    # None if JAX did not compute the output.
    arrays = [leaf for leaf in jax.tree_util.tree_leaves(output) if isinstance(leaf, jax.Array)]
    device = next(iter(arrays[0].devices())) if arrays else None
    measured = tuple(rounds.samples_ms)
    programs = [_program(model, batches[size]) for size in measured] if roofline else []
    known = [program for program in programs if program]
    complete = bool(known) and len(known) == len(measured)
    return Measurement(
        model=model.name if isinstance(model, Model) else getattr(model, "__name__", type(model).__name__),
        device=describe(device), platform="cpu" if device is None else device.platform,
        jax_version=jax.__version__, batch_sizes=measured,
        repeats=min(map(len, rounds.samples_ms.values())),
        samples_ms=tuple(map(tuple, rounds.samples_ms.values())),
        first_call_s=tuple(rounds.first_call_s[size] for size in measured),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"), copy=copy,
        target=target if repeats is None else None, served=served,
        program=tuple(known) if complete else (),
        roofline=tuple(roofline_of(device)) if complete else (),
        not_fitting=tuple(rounds.not_fitting.items()),
        autocorrelation=autocorrelation(rounds.runs) if rounds.runs else (),
    )  # fmt: skip


def _batches(model: Any, sizes: tuple[int, ...], example: Any, seed: int) -> dict[int, Any]:
    """Return a batch of each size: random inputs for a Model, or the example repeated."""
    _check.instance("model", model, Callable, "callable")
    if isinstance(model, Model):
        model.padded_size(max(sizes))  # raises before the first run if a size is too large
        if example is None:
            return {size: model.inputs(size, seed) for size in sizes}
    if example is None:
        raise TypeError("example must be one item of a batch if model is a plain callable, got None")
    return {size: np.stack([np.asarray(example)] * size) for size in sizes}


def _program(model: Any, batch: Any) -> tuple[float, float] | tuple[()]:
    """Return the operations and the bytes of a compiled program, () where JAX does not know them."""
    if isinstance(model, Model):
        lowered = model.lowered(model.padded(batch) if isinstance(batch, np.ndarray) else batch)
    elif hasattr(model, "lower"):
        lowered = model.lower(batch)
    else:
        return ()
    cost = lowered.compile().cost_analysis() or {}  # compiled already, for these shapes
    try:
        return float(cost["flops"]), float(cost["bytes accessed"])
    except (KeyError, TypeError):  # not every backend has both
        return ()


def _bar(progress: bool, sizes: int) -> Any:
    """Return a progress bar of the sizes that are known well enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook without widgets, where the bar is text
        from tqdm.auto import tqdm
    return tqdm(total=sizes, desc="measure", unit="size", disable=not progress, leave=False)
