"""Measuring a model: the real time of batches of each size on this machine."""

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from batchsim import _check
from batchsim._format import brief
from batchsim._workers import progress_bar
from batchsim.engines.draws import draw
from batchsim.measured.measurement import Measurement
from batchsim.measured.models import Model, describe, fitting
from batchsim.measured.replay import WallClock
from batchsim.measured.samples import autocorrelation, summary
from batchsim.measured.sized_measurement import SizedMeasurement
from batchsim.scenario import Affine, Poisson, Scenario
from batchsim.scenario.rules.rule import FULL, START, Decision, Rule, Waiting
from batchsim.scenario.service import Table

WAIT_FOR: Callable[[Any], Any] = jax.block_until_ready  # JAX returns before its device has finished
FEWEST = 20  # samples needed for an interval
MOST = 1000  # samples of a size: more would fill files without more precision
SETTLING = 0.1  # of the limit, before a size may finish: a disturbance outlasts a few batches


class Rounds:
    """The calls of each size: their times, and the sizes that did not fit in memory."""

    def __init__(self, call: Callable[[Any], Any], batches: dict[int, Any], copy: bool) -> None:
        self.call, self.batches, self.copy = call, batches, copy
        # By size: the type of the first output and whether it is finite, and the last output.
        self.first: dict[int, tuple[type[Any], bool]] = {}
        self.last: dict[int, Any] = {}
        self.first_call_s: dict[int, float] = {}
        self.samples_ms: dict[int, list[float]] = {size: [] for size in batches}
        self.not_fitting: dict[int, str] = {}
        self.runs: list[tuple[np.ndarray, np.ndarray]] = []  # sizes and times of each run, in order

    def warm_up(self, warmup: int, bar: Any) -> Any:
        """Call each size once, check its output, and call it `warmup` more times."""
        output = None
        for size in list(self.batches):
            bar.set_postfix_str(f"compiling {size:,}")
            try:
                with fitting(f"a batch of {size:,}"):
                    if not self.copy:
                        self.batches[size] = jax.device_put(self.batches[size])
                    self.first_call_s[size], first = self._timed(size)
                    finite = check_output(len(self.batches[size]), first, type(first))
                    self.first[size] = type(first), finite
                    for _ in range(warmup):
                        WAIT_FOR(self.call(self.batches[size]))
                output = first
            except MemoryError as error:
                self._leave_out(size, error)
        return output

    def run(
        self, generator: np.random.Generator, target: float, limit_s: float, repeats: int | None, bar: Any
    ) -> None:
        """Time rounds of every size until all are precise enough, or time is over."""
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
                next_check = rounds + 1 + rounds // 10  # a check takes time
                left = [size for size in wanted if not self.settled(size, target)]
                bar.update(len(wanted) - len(left))
                wanted = left

    def check(self, size: int, output: Any, numbers: bool = False) -> None:
        """Refuse an output that has become another than the first."""
        type_, finite = self.first[size]
        try:
            if not check_output(len(self.batches[size]), output, type_, numbers) and finite:
                raise ValueError("a model's output must stay finite")
        except ValueError as error:
            calls = len(self.samples_ms[size])
            raise ValueError(f"{error}, in a batch of {size:,} after {calls:,} timed ones") from None

    def _sample(self, size: int, wanted: list[int]) -> None:
        try:
            with fitting(f"a batch of {size:,}"):
                seconds, output = self._timed(size)
            self.check(size, output)
            self.samples_ms[size].append(seconds * 1000)
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
        self.last[size] = output = WAIT_FOR(self.call(batch))
        return time.perf_counter() - begin_s, output


def check_output(size: int, output: Any, type_: type[Any], numbers: bool = True) -> bool:
    """Refuse an output of another type, without one number or array per item, or with NaN.

    Return whether it is finite. Without `numbers`, only types and shapes are looked at, which takes no time.
    """
    leaves = jax.tree_util.tree_leaves(output)
    rule = f"a model must return one output per item, of shape ({size}, ...)"
    if type(output) is not type_:
        raise ValueError(f"a model's output must stay of type {type_.__name__}, got {brief(output)}")
    if not leaves:  # as of a forgotten `return`
        raise ValueError(f"{rule}, got {brief(output)}")
    # A list has one output per item; other containers have arrays.
    for shape in [(len(output),)] if isinstance(output, list) else map(np.shape, leaves):
        if shape[:1] != (size,):
            raise ValueError(f"{rule}, got shape {shape}")
    arrays = [np.asarray(leaf) for leaf in leaves if numbers]
    inexact = [array for array in arrays if jax.numpy.issubdtype(array.dtype, jax.numpy.inexact)]
    for array in inexact:
        if np.isnan(array).any():
            raise ValueError(f"a model's output must be numbers, got NaN in one of shape {array.shape}")
    return all(np.isfinite(array).all() for array in inexact)


BUSY = 0.7  # the default: the server waits for some batches, and others wait for it
LEAST_BUSY, MOST_BUSY = 0.2, 0.9  # above 0.9, a slow minute would overload the server
RUN_S = 0.5  # the shortest run, because each one starts threads


class InTurnParams(NamedTuple):
    """The parameters of `InTurn`."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class InTurn(Rule):
    """Batches of the given sizes, in this order, each once its requests are there; not compiled."""

    sizes: tuple[int, ...]

    Params = InTurnParams
    state_size = 1  # the number of started batches
    compiled = False

    @property
    def max_batch_size(self) -> int:  # type: ignore[override]  # a field in other rules
        return max(self.sizes)

    @property
    def params(self) -> InTurnParams:
        return InTurnParams(self.sizes)

    @staticmethod
    def decide(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> Decision:
        size = params.sizes[int(state[0])]
        if waiting.length < size:
            return 0, 0, 0
        state[0] += 1
        return START, size, FULL

    @staticmethod
    def wake_s(now_s: float, waiting: Waiting, idle: int, state: Any, params: Any) -> float:
        return np.inf


class ServedRounds(Rounds):
    """Rounds in which one thread sends and another serves, as in a replay, by `WallClock`.

    A time runs from the instant at which the requests of a batch are there and the server is free until its
    answers are returned. Requests arrive as a Poisson process, at the rate that makes the server `busy` for
    that part of the time. So the usual delays are as frequent as in a replay: sends take time from the model,
    a waiting thread starts late, and an idle processor starts slowly.
    """

    def __init__(
        self, call: Callable[[Any], Any], batches: dict[int, Any], copy: bool,
        busy: float | Callable[[Table], float],
    ) -> None:  # fmt: skip
        super().__init__(call, batches, copy)
        self.busy = busy

    def load(self, times_ms: dict[int, list[float]]) -> float:
        """Return the utilisation to aim for, given the times so far."""
        if not callable(self.busy):
            return self.busy
        busy = self.busy(Table({size: float(np.median(times)) for size, times in times_ms.items()}))
        return min(max(busy, LEAST_BUSY), MOST_BUSY)

    def run(
        self, generator: np.random.Generator, target: float, limit_s: float, repeats: int | None, bar: Any
    ) -> None:
        """Time runs of whole rounds until every size is precise enough, or time is over."""
        begin_s, rounds = time.perf_counter(), 0
        sizes = np.array(list(self.samples_ms))
        first = self.served(sizes, 1e9, generator)  # all at once, as a warm-up
        took_s = first.sum()
        load = self.load({size: [1000 * each] for size, each in zip(sizes.tolist(), first, strict=True)})
        while rounds != repeats:
            bar.set_postfix_str(f"round {rounds + 1:,}")
            more = max(1, round(RUN_S * load / took_s))
            more = more if repeats is None else min(more, repeats - rounds)
            order = np.concatenate([generator.permutation(sizes) for _ in range(more)])
            seconds = self.served(order, load * sizes.sum() / took_s, generator)
            took_s, rounds = seconds.sum() / more, rounds + more
            self.runs.append((order, seconds))
            for size, each_s in zip(order.tolist(), seconds.tolist(), strict=True):
                self.samples_ms[size].append(1000 * each_s)
            load = self.load(self.samples_ms)
            passed_s = time.perf_counter() - begin_s
            if repeats is None and rounds >= FEWEST and passed_s > SETTLING * limit_s:
                settled = sum(self.settled(size, target) for size in self.samples_ms)
                bar.update(settled - bar.n)
                if settled == sizes.size:
                    return
            if repeats is None and passed_s > limit_s:
                return

    def noted(self, batch: Any) -> Any:
        """Call the model, and keep its last output of a size."""
        self.last[len(batch)] = output = self.call(batch)
        return output

    def served(self, order: np.ndarray, rate_per_s: float, generator: np.random.Generator) -> np.ndarray:
        """Return the seconds of successive batches of these sizes at an arrival rate."""
        scenario = Scenario(Poisson(rate_per_s), InTurn(tuple(order.tolist())), Affine(1, 0))
        items = self.batches[max(self.batches)]
        plan = draw(scenario, int(order.sum()), int(generator.integers(2**32)))
        clock = WallClock(plan, self.noted, items)
        log = clock.run()
        if clock.errors:
            raise clock.errors[0]
        ready_s = log.arrival_s[np.cumsum(order) - 1]
        free_s = np.concatenate([[-np.inf], log.batch_finish_s[:-1]])
        return log.batch_finish_s - np.maximum(ready_s, free_s)


def measure(
    model: Model | Callable[[Any], Any], batch_sizes: Iterable[int] = (1, 2, 4, 8, 16, 32), *,
    target: float = 0.02, limit_s: float = 5.0, repeats: int | None = None, warmup: int = 3,
    copy: bool = True, served: bool = False, busy: float | Callable[[Table], float] = BUSY,
    roofline: bool = True, example: Any = None, seed: int = 0, progress: bool = True,
    lengths: Iterable[int] | None = None,
) -> Any:  # fmt: skip
    """Time `model` on batches of each size, until each median is precise enough or time is over.

    `model` is a `Model`, or any callable on stacked arrays; a callable needs `example`, one item, which is
    repeated to fill its batches. At each size, one call compiles and `warmup` more calls warm up. Then each
    round times every size once, in an order drawn from `seed`, so that drift (clock rate, other processes)
    affects all sizes equally. A size skips further rounds once half the 95 % interval of its quiet samples'
    median is at most `target` of the median. Measuring ends `limit_s` seconds after the first round began, or
    after exactly `repeats` rounds if given. The result's `notes` report doubts.

    A time runs from the batch in the host's memory until the output is ready on the device: as in a server,
    it includes the copy to the device, but not the copy back. With `copy=False` the batch is on the device
    already. `served` times a whole server: one thread sends requests, as in `replay`, and another serves them
    through an `InferenceBatcher`, busy for 70 % of the time. A batch then counts from when it may start until
    its answers are returned, and every size stays until the end. Sends take time from the model, so set
    `busy` to the expected utilisation: a fraction, or a function of the service time measured so far.

    A `Model` drops its compiled code, so that the first call includes compiling; padded sizes of one shape
    compile once. JAX caches part of that work for the rest of the process, so the second measurement is the
    best prediction of a cold start in the same process, such as `replay(warm=False)`. `roofline` measures the
    peak rates of the device, in a second and once per process, and asks JAX for each compiled program's
    operations and bytes; a callable has them if `jax.jit` made it.

    With `lengths`, of a model that has them, each length is measured in turn, with sequences as long: the
    result is a `SizedMeasurement`, whose `service` is a SizeTable. Each pair of padded size and length
    compiles once.

    A size whose batch does not fit in the device's memory is reported, and the others are measured;
    MemoryError if all fail. An output without one entry per item, with NaN, or that becomes another type or
    infinite, raises ValueError.

    >>> from batchsim.device import load_model
    >>> measurement = measure(load_model("mlp", width=8), [1, 4], repeats=2, roofline=False, progress=False)
    >>> len(measurement.samples_ms[0]), measurement.service.points_ms[1][0]
    (2, 4)
    """
    sizes = _check.sizes("batch_sizes", batch_sizes, rising=False)
    if lengths is not None:
        if getattr(model, "lengths", None) is None or example is not None:
            raise ValueError(f"lengths need a model that has them, and no example, got {model!r:.80}")
        options: Any = {"target": target, "limit_s": limit_s, "repeats": repeats, "warmup": warmup}
        options |= {"copy": copy, "served": served, "busy": busy, "roofline": False}
        options |= {"seed": seed, "progress": progress}
        sequences: Any = model
        each = _check.sizes("lengths", lengths, sequences.lengths[-1])
        examples = [sequences.inputs(1, seed, length)[0] for length in each]
        return SizedMeasurement(
            each, tuple(measure(model, sizes, example=one, **options) for one in examples)
        )
    target = _check.real("target", target, above=0)
    limit_s = _check.real("limit_s", limit_s, above=0)
    repeats = None if repeats is None else _check.whole("repeats", repeats)
    warmup = _check.whole("warmup", warmup, at_least=0)
    if served and not copy:
        raise ValueError("copy must be True if served: a server's inputs are in the host's memory")
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
    with progress_bar(progress, total=len(sizes), desc="measure", unit="size", leave=False) as bar:
        output = rounds.warm_up(warmup, bar)
        rounds.run(generator, target, limit_s, repeats, bar)
        for size in rounds.samples_ms:  # all numbers of each batch would take long
            rounds.check(size, rounds.last[size], numbers=True)
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
        roofline=tuple(peak_rates(device)) if complete else (),
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
    """Return the operations and the bytes of a compiled program, () if JAX does not know them."""
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


# The peak rates of a device: its arithmetic, and its memory.


PEAK_LIMIT_S = 0.5  # for each of the two rates
LONG_ENOUGH_S = 0.005  # a call that dwarfs its start of about 20 µs
REPEATS = 5
LARGEST = 16_384  # the side of a matrix of float32 numbers: 1 GiB


class Roofline(NamedTuple):
    """The peak floating-point operations and bytes of a device per second."""

    flop_per_s: float
    bytes_per_s: float


@functools.cache
def peak_rates(device: jax.Device | None = None) -> Roofline:
    """Measure the roofline of a device, by default JAX's own, in about a second; cached for this process.

    The arithmetic is a product of square float32 matrices, as in the models; the memory is read and written
    in place. Matrices grow until a call takes 5 ms or half a second is over, because small ones stay in
    caches and their calls are mostly overhead. The fastest call counts, because slower ones were disturbed.

    >>> found = peak_rates()
    >>> found.flop_per_s > 1e6, found.bytes_per_s > 1e6
    (True, True)
    """
    device = jax.devices()[0] if device is None else device
    multiply = jax.jit(lambda matrix: matrix @ matrix)
    # In place, because the operating system allocates a new array page by page.
    write = jax.jit(lambda matrix: matrix + 1, donate_argnums=0)
    with jax.default_device(device):
        products = _fastest_s(multiply, 256, again=False)
        writes = _fastest_s(write, 4096, again=True)  # 64 MiB: more than most processors' caches
    largest = max(writes)
    return Roofline(
        flop_per_s=max(2.0 * side**3 / took_s for side, took_s in products.items()),
        bytes_per_s=2.0 * 4 * largest**2 / writes[largest],
    )


def _fastest_s(function: Callable[[jax.Array], jax.Array], side: int, again: bool) -> dict[int, float]:
    """Return the seconds of the fastest call by the side of its matrix, from `side` up.

    `again`: each call gets the output of the last one, which took its own input.
    """
    begin_s, fastest_s = time.perf_counter(), dict[int, float]()
    while True:
        matrix = jnp.ones((side, side), jnp.float32)
        for index in range(1 + REPEATS):
            call_s = time.perf_counter()
            output = function(matrix).block_until_ready()
            took_s = time.perf_counter() - call_s
            if index:  # the first compiles
                fastest_s[side] = min(took_s, fastest_s.get(side, took_s))
            matrix = output if again else matrix
        # Twice the side takes up to 8 times as long.
        too_long = time.perf_counter() - begin_s + 8 * REPEATS * fastest_s[side] > PEAK_LIMIT_S
        if fastest_s[side] > LONG_ENOUGH_S or side == LARGEST or too_long:
            return fastest_s
        side *= 2
