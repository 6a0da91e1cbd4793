"""How long a batch computes: the service time, its noise, and servers that share a device."""

import bisect
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from batchsim import _check
from batchsim._format import brief
from batchsim.scenario.noise import Noise
from batchsim.scenario.parameters import LARGEST_BATCH, Described, parameter

# Service times.


def cost(label: str, about: str, high: float, step: float, usual: float = 0, **more: Any) -> Any:
    """Return the field of a part of a service time, in ms; its slider goes from 0 to `high`."""
    return parameter(label, about, type="real", at_least=0, slider=(0, high, step), usual=usual, **more)


def fixed_ms() -> Any:
    """Return the field of the part that is independent of a batch's size."""
    return cost("Fixed cost (ms)", "Time that every batch or step takes, independent of its size", 50, 0.5, 5)


def per_item_ms() -> Any:
    """Return the field of the part that grows with the batch size."""
    return cost("Cost per item (ms)", "Time that each request adds to its batch", 5, 0.01, 0.25)


def per_pair_ms() -> Any:
    """Return the field of the part that attention adds."""
    about = "Time of the attention, for each pair of tokens of a request"
    return cost("Per pair (ms)", about, 0.0001, 0.0000001, default=0.0)


def next_size(sizes: Sequence[int], size: int) -> int:
    """Return the size that a batch is padded to: the smallest of rising `sizes` that holds it."""
    return sizes[bisect.bisect_left(sizes, size)]


@dataclass(frozen=True)
class Service(Described):
    """A mean time for each batch size; optionally noise, padding and a cold start."""

    noise: Noise | None = field(default=None, kw_only=True)
    padding: tuple[int, ...] | None = field(default=None, kw_only=True)
    compile_ms: tuple[tuple[int, float], ...] | None = field(default=None, kw_only=True)

    def check(self) -> None:
        _check.instance("noise", self.noise, (Noise, type(None)), "a Noise")
        if self.padding is not None:
            object.__setattr__(self, "padding", _check.sizes("padded sizes", self.padding))
        if self.compile_ms is not None:
            object.__setattr__(self, "compile_ms", _compile_ms(self.compile_ms))

    def _cost_ms(self, batch_size: int) -> float:
        raise NotImplementedError

    @property
    def largest_batch(self) -> float:
        """The largest batch size with a service time; inf if unlimited."""
        return math.inf if self.padding is None else self.padding[-1]

    def __call__(self, batch_size: int) -> float:
        """Return the mean seconds that a batch of `batch_size` computes."""
        size = _check.whole("batch_size", batch_size)
        if self.padding is not None:
            _check.at_most("batch_size", size, self.padding[-1], "the largest padded size")
        return self._cost_ms(self._shape(size)) / 1000

    def _shape(self, size: int) -> int:
        """Return the padded size of a batch."""
        return size if self.padding is None else next_size(self.padding, size)

    def table(self, max_batch_size: int) -> np.ndarray:
        """Return the seconds for sizes 0..max_batch_size, shape (max_batch_size + 1,), NaN at 0.

        Both engines read this table instead of calling the service time: a compiled formula may round
        differently, and the engines' logs must be equal to the bit.
        """
        return _table(self, max_batch_size).copy()

    def count_s(self, max_batch_size: int) -> np.ndarray:
        """Return the seconds that the batch size alone determines: the `table`, unless sizes add to it."""
        return self.table(max_batch_size)

    def cold_start(self, max_batch_size: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the seconds of compiling and the shape for sizes 0..max_batch_size; None without compiling.

        Arrays of shape (max_batch_size + 1,), zeros at 0.
        """
        if self.compile_ms is None:
            return None
        shapes = [0, *(self._shape(size) for size in range(1, max_batch_size + 1))]
        seconds = self._compiling_ms(shapes) / 1000
        seconds[0] = 0.0
        return seconds, np.array(shapes)

    def _compiling_ms(self, shapes: Sequence[int]) -> np.ndarray:
        sizes, costs_ms = np.transpose(self.compile_ms or [(1, 0.0)])
        return np.interp(shapes, sizes, costs_ms)

    def with_noise(
        self, cv: float, shape: str = "lognormal", correlation: float = 0.0, memory_batches: float = 10.0
    ) -> Self:
        """Return this service time with a random factor of mean 1, drawn once a batch: see `Noise`.

        >>> Affine(fixed_ms=2, per_item_ms=1).with_noise(0.2, correlation=0.5, memory_batches=8)
        Affine(fixed_ms=2, per_item_ms=1).with_noise(0.2, 'lognormal', 0.5, 8)
        """
        return replace(self, noise=Noise(cv, shape, correlation, memory_batches))

    def padded_to(self, sizes: Iterable[int]) -> Self:
        """Return this service time with every batch padded up to the next of `sizes`.

        >>> service = Affine(fixed_ms=2, per_item_ms=1).padded_to([1, 4, 8])
        >>> service(5) == Affine(fixed_ms=2, per_item_ms=1)(8)
        True
        """
        return replace(self, padding=sizes)  # type: ignore[arg-type]  # checked, and made a tuple

    def compiling(self, costs_ms: Mapping[int, float] | Iterable[tuple[int, float]] | float) -> Self:
        """Return this service time with compilation: the first batch of each new shape takes longer.

        A shape is a batch size, padded if this is. `costs_ms` maps sizes to the milliseconds of compiling,
        linear between them and constant outside; one number applies to all. The servers of a scenario share
        compiled programs, as threads of one process do: the first batch of a shape compiles it, without noise
        or slowdown, and others of that shape that start meanwhile wait for it. Servers that share a device
        use it in the order of their starts, so there all later batches wait. A cold start passes: it changes
        no saturation rate, and theory ignores it.

        >>> Affine(fixed_ms=2, per_item_ms=1).padded_to([1, 4, 8]).compiling({1: 300, 8: 650})
        Affine(fixed_ms=2, per_item_ms=1).padded_to([1, 4, 8]).compiling({1: 300, 8: 650})
        """
        return replace(self, compile_ms=costs_ms)  # type: ignore[arg-type]  # checked, and made a tuple

    def scaled(self, factor: float, max_batch_size: int) -> "Table":
        """Return this service time multiplied by `factor`, for sizes up to `max_batch_size`.

        The noise and the cold start stay.

        >>> Affine(5, 0.25).scaled(0.5, max_batch_size=2)
        Table({1: 2.625, 2: 2.75})
        """
        factor = _check.real("factor", factor, above=0)
        sizes = range(1, _check.whole("max_batch_size", max_batch_size) + 1)
        # The points include padding. `factor` comes last: other orders give other floats.
        cold: dict[str, Any] = {}
        if self.compile_ms is not None:  # sizes of one shape still share their compilation
            of_sizes = [self._shape(size) for size in sizes]
            costs_ms = self._compiling_ms(of_sizes).tolist()
            largest = dict(zip(of_sizes, sizes, strict=True))  # the largest size of each shape
            cold = {"compile_ms": zip(sizes, costs_ms, strict=True), "padding": largest.values()}
        return Table({size: self(size) * 1000 * factor for size in sizes}, noise=self.noise, **cold)

    def _padded_to(self) -> str:
        return "" if self.padding is None else f".padded_to({list(self.padding)})"

    def _suffix(self) -> str:
        noise, it = "", self.noise
        if it is not None:
            lasts = f", {it.correlation!r}, {it.memory_batches!r}" if it.correlation else ""
            noise = f".with_noise({it.cv!r}, {it.shape!r}{lasts})"
        compiling = "" if self.compile_ms is None else f".compiling({dict(self.compile_ms)})"
        return noise + self._padded_to() + compiling


@dataclass(frozen=True, repr=False)
class Affine(Service):
    """A batch of k computes for `fixed_ms + per_item_ms * k` milliseconds.

    >>> Affine(fixed_ms=2.0, per_item_ms=0.5)(4)
    0.004
    """

    fixed_ms: float = fixed_ms()
    per_item_ms: float = per_item_ms()

    def check(self) -> None:
        if self.fixed_ms + self.per_item_ms <= 0:
            raise ValueError("fixed_ms + per_item_ms must be greater than 0, got 0")
        super().check()

    def _cost_ms(self, batch_size: int) -> float:
        return self.fixed_ms + self.per_item_ms * batch_size

    def __repr__(self) -> str:
        return f"Affine(fixed_ms={self.fixed_ms!r}, per_item_ms={self.per_item_ms!r})" + self._suffix()


@dataclass(frozen=True, repr=False, init=False)
class Table(Service):
    """Measured milliseconds by batch size, linear between the points.

    Smaller batches take as long as the smallest size; larger ones than the largest are refused.

    >>> service = Table({1: 2.0, 2: 3.0, 8: 6.0})
    >>> service(5)
    0.0045
    """

    points_ms: tuple[tuple[int, float], ...]

    def __init__(
        self, points_ms: Mapping[int, float] | Iterable[tuple[int, float]], *,
        noise: Noise | None = None, padding: tuple[int, ...] | None = None,
        compile_ms: Mapping[int, float] | Iterable[tuple[int, float]] | float | None = None,
    ) -> None:  # fmt: skip
        object.__setattr__(self, "points_ms", _points("a Table", points_ms, above=0))
        super().__init__(noise=noise, padding=padding, compile_ms=compile_ms)  # type: ignore[arg-type]

    @property
    def largest_batch(self) -> float:
        last = self.points_ms[-1][0]
        # A batch is padded to a size that must itself be in the table.
        return last if self.padding is None else max((s for s in self.padding if s <= last), default=0)

    def _cost_ms(self, batch_size: int) -> float:
        sizes, times = zip(*self.points_ms, strict=True)
        _check.at_most("batch_size", batch_size, sizes[-1], "the Table's largest size")
        return float(np.interp(batch_size, sizes, times))

    def __repr__(self) -> str:
        return f"Table({dict(self.points_ms)})" + self._suffix()


def _points(name: str, given: Any, **bounds: Any) -> tuple[tuple[int, float], ...]:
    """Return milliseconds by batch size as sorted pairs, or raise."""
    try:
        pairs = [(size, ms) for size, ms in (given.items() if isinstance(given, Mapping) else given)]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be given as {{batch_size: ms}}, got {given!r}") from None
    points = sorted(
        (_check.whole("a batch size", size), _check.real(f"the time of batch size {size}", ms, **bounds))
        for size, ms in pairs
    )
    if not points:
        raise ValueError(f"{name} must have at least one point, got none")
    sizes = [size for size, _ in points]
    if len(set(sizes)) < len(sizes):
        raise ValueError(f"batch sizes of {name} must differ, got {brief(sizes)}")
    return tuple(points)


def _compile_ms(given: Any) -> tuple[tuple[int, float], ...]:
    """Return the costs of compiling as sorted pairs; one number applies to every size."""
    if isinstance(given, (Mapping, Iterable)) and not isinstance(given, str):
        return _points("compile_ms", given, at_least=0)
    return ((1, _check.real("compile_ms", given, at_least=0)),)


@functools.lru_cache(maxsize=256)
def _table(service: Service, max_batch_size: int) -> np.ndarray:
    seconds = np.array([math.nan, *(service(size) for size in range(1, max_batch_size + 1))])
    wrong = np.flatnonzero(~((seconds[1:] > 0) & np.isfinite(seconds[1:])))
    if wrong.size:  # valid milliseconds can add up to infinity, or round to 0 seconds
        size = int(wrong[0]) + 1
        rule = f"service of a batch of {size} must be greater than 0 and finite"
        raise ValueError(f"{rule}, got {seconds[size]} s")
    return seconds


# Servers that share a device.


SAMPLES = 100_000  # simulated batches for a rate with noise: accurate to 0.3 % at cv 1
MANY = 500  # with more servers on one device, noise averages out


@dataclass(frozen=True)
class Sharing(Mapping[str, float]):
    """The result of `sharing`, as knobs: `scenario.replace(found)`, or `Scenario(..., **found)`."""

    host_ms: float
    contention: float

    def __getitem__(self, name: str) -> float:
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))


def sharing(one_per_s: float, two_per_s: float, service: Service, batch_size: float) -> Sharing:
    """Return how two servers share a device, from the throughputs of one and of two at saturation.

    Both without pauses, in batches of `batch_size` on average: the largest size if there are always more
    requests than fit. With fewer clients and two servers, each running batch and the next one hold a third of
    them. `one_per_s` and `two_per_s` have the same unit; `service` is that of one server alone. If two
    servers carry more than one, they overlap: while one computes, the other is on the host (`host_ms`). If
    they carry less, they slow each other down (`contention`). More than twice as much counts as twice.

    ValueError if they overlap for longer than the shortest service time.

    >>> from batchsim import Affine, ClosedLoop, Scenario, SizeOrWait, simulate
    >>> service = Affine(fixed_ms=2, per_item_ms=1)
    >>> found = sharing(one_per_s=800, two_per_s=1000, service=service, batch_size=8)
    >>> found
    Sharing(host_ms=2.0, contention=1.0)
    >>> two = Scenario(ClosedLoop(64), SizeOrWait(8, 0), service, servers=2, devices=1, **found)
    >>> round(two.saturation_per_s), round(simulate(two, 20_000).throughput_per_s)
    (1000, 1000)
    """
    one_per_s = _check.real("one_per_s", one_per_s, above=0)
    two_per_s = _check.real("two_per_s", two_per_s, above=0)
    _check.instance("service", service, Service, "a service of batchsim")
    batch_size = _check.real("batch_size", batch_size, at_least=1, at_most=LARGEST_BATCH)
    seconds = service.table(math.ceil(batch_size))
    ms = float(np.interp(batch_size, np.arange(1, seconds.size), seconds[1:])) * 1000
    # How much longer each batch takes than alone, while both compute.
    slower = max(2 * one_per_s / two_per_s, 1.0)
    if slower >= 2:
        return Sharing(0.0, slower / 2)
    host_ms, shortest_ms = ms - ms * slower / 2, float(np.nanmin(seconds)) * 1000
    if host_ms > shortest_ms:
        rule = f"host_ms must be at most the shortest service time, {shortest_ms:.6g} ms"
        gain = f"two servers that carry {two_per_s / one_per_s:.3g} times as much as one"
        raise ValueError(f"{rule}, got {host_ms:.6g} from {gain}")
    return Sharing(host_ms, 1.0)


def batches_per_s(
    servers: int, devices: int, service_s: np.ndarray, host_s: float, contention: float
) -> np.ndarray:
    """Return the batches per second of servers that never wait for requests, by the size's service time.

    Without noise. The servers of a device take turns: on the host, at the device. If the others hold the
    device for longer than one is on the host, (n - 1) * contention * device_s > host_s, each batch waits for
    it, and it never idles. Otherwise batches do not wait, and each server takes its service time.
    """
    total, device_s = np.zeros(service_s.shape), service_s - host_s
    for on_device, count in _spread(servers, devices):
        waits = (on_device - 1) * contention * device_s > host_s
        seconds = np.where(waits, contention * device_s, service_s / on_device)
        total += count / seconds
    return total


def noisy_share(
    servers: int, devices: int, service_s: float, host_s: float, contention: float, noise: Noise
) -> float:
    """Return the batches per second with noise on the device's part, as a share of those without it."""
    plain = float(batches_per_s(servers, devices, np.array([service_s]), host_s, contention)[0])
    return sum(
        count * _noisy_per_s(on_device, service_s, host_s, contention, noise)
        for on_device, count in _spread(servers, devices)
    ) / plain  # fmt: skip


def _spread(servers: int, devices: int) -> list[tuple[int, int]]:
    """Return (servers on a device, the number of such devices)."""
    each, more = divmod(servers, devices)
    return [(on, count) for on, count in ((each + 1, more), (each, devices - more)) if count]


@functools.lru_cache(maxsize=4096)
def _noisy_per_s(servers: int, service_s: float, host_s: float, contention: float, noise: Noise) -> float:
    """Return the batches per second of servers on one device with noise.

    Without a formula, this simulates many copies of the cycle at once, one batch each at a time. The servers
    keep their order, as batches leave the device in the order in which they came.
    """
    if servers == 1 or host_s == 0 or servers > MANY:  # only the mean counts if no batch waits, or all do
        return float(batches_per_s(servers, 1, np.array([service_s]), host_s, contention)[0])
    skip, steps = 20 * servers, 20 * servers + 200
    copies = SAMPLES // steps
    factors = noise.draw(np.random.default_rng(0), steps * copies)
    if noise.lasts:  # from one step to the next, not from copy to copy
        factors = factors.reshape(copies, steps).T.copy()
    factors = factors.reshape(steps, copies)
    factors /= factors.mean(
        axis=1, keepdims=True
    )  # most of the randomness is in the mean, whose exact value is 1
    finish_s, free_s = np.zeros((servers, copies)), np.zeros(copies)
    for step in range(steps):
        server = step % servers
        come_s = finish_s[server] + host_s
        seconds = (service_s - host_s) * factors[step]
        seconds[free_s > come_s] *= contention
        free_s = finish_s[server] = np.maximum(come_s, free_s) + seconds
        if step + 1 == skip:
            begin_s = free_s.mean()
    return float((steps - skip) / (free_s.mean() - begin_s))


def checked_watts(watts: Mapping[int, float] | None) -> dict[int, float] | None:
    """Return a checked copy of {batch size: watts}, or None."""
    if watts is None:
        return None
    _check.instance("watts", watts, Mapping, "{batch size: watts}")
    points = {
        _check.whole("a batch size in watts", size, at_least=0): _check.real(
            f"watts of a batch of {size}", drawn, at_least=0
        )
        for size, drawn in watts.items()
    }
    if not any(points):
        raise ValueError(f"watts must have those of a batch of 1 or more, got {points!r}")
    return points


def drawn_w(watts: Mapping[int, float], sizes: np.ndarray) -> np.ndarray:
    """Return what a server draws while it computes batches of some sizes; 0: while it is idle."""
    points = sorted(watts.items())
    return np.interp(sizes, [size for size, _ in points], [drawn for _, drawn in points])


def checked_slowdown(slowdown: Mapping[int, float], servers: int) -> dict[int, float]:
    """Return a checked copy of {busy servers: factor}."""
    _check.instance("slowdown", slowdown, Mapping, "{busy servers: factor}")
    factors = {}
    for busy, factor in slowdown.items():
        busy = _check.whole("a number of busy servers in slowdown", busy)
        factors[busy] = _check.real(f"slowdown of {busy} busy servers", factor, above=0)
    if missing := [busy for busy in range(1, servers + 1) if busy not in factors]:
        rule = f"slowdown must have a factor for each of 1..{servers} busy servers"
        raise ValueError(f"{rule}, got none for {missing[0]}")
    return factors
