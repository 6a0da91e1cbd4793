"""When requests arrive: the workloads.

Each open-loop workload turns one stream of standard random numbers into arrival times, so that
a knob stretches the same traffic instead of drawing another (common random numbers).
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np

from batchsim import _check
from batchsim.scenario.kepler import kepler
from batchsim.scenario.readcsv import read_times_s

CHUNK = 1 << 15  # fits the processor's cache; Ctrl-C is heard between two
STATES = 1024  # how many of OnOff's states are drawn at a time
BLOCK = 1 << 13  # of Diurnal's chunk at a time: dozens of short-lived arrays stay in the cache


@dataclass(frozen=True)
class OpenLoop:
    """Requests that come whatever the server does."""

    max_requests: ClassVar[int | None] = None  # a trace holds only so many

    @property
    def offered_per_s(self) -> float:
        """The mean arrival rate, requests per second."""
        raise NotImplementedError

    def with_rate(self, rate_per_s: float) -> Self:
        """Return the same traffic at another mean rate, requests per second."""
        raise NotImplementedError

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        """Yield the arrival times in seconds, never decreasing, in chunks of at most `size`.

        They are the same whatever the size.
        """
        raise NotImplementedError


def filled(chunks: Iterable[np.ndarray], size: int) -> np.ndarray:
    """Return the chunks one after the other, shape (size,)."""
    whole, begin = np.empty(size), 0
    for chunk in chunks:
        whole[begin : begin + chunk.size] = chunk
        begin += chunk.size
    return whole


def _running(generator: np.random.Generator, requests: int, size: int) -> Iterator[np.ndarray]:
    """Yield the points of a Poisson process of rate 1 in chunks, the same whatever their size."""
    return _sums(generator.standard_exponential, requests, size)


def _sums(draw: Callable[[int], np.ndarray], requests: int, size: int) -> Iterator[np.ndarray]:
    """Yield the running sum of draws in chunks; each chunk goes on where the last one ended."""
    total = 0.0
    for begin in range(0, requests, size):
        gaps = draw(min(size, requests - begin))
        gaps[0] += total
        points = np.cumsum(gaps)
        total = points[-1]
        yield points


@dataclass(frozen=True)
class _Renewal(OpenLoop):
    """Independent gaps between arrivals: a standard draw of mean 1, divided by the rate."""

    rate_per_s: float

    def __post_init__(self) -> None:
        _check.fix_real(self, "rate_per_s", above=0)

    @property
    def offered_per_s(self) -> float:
        return self.rate_per_s

    def with_rate(self, rate_per_s: float) -> Self:
        return type(self)(**{**self.__dict__, "rate_per_s": rate_per_s})

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        draw = functools.partial(self._gaps, np.random.default_rng(seed))
        for points in _sums(draw, requests, size):
            yield points / self.rate_per_s

    def _gaps(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True)
class Poisson(_Renewal):
    """Arrivals at random: exponential gaps with mean 1 / rate_per_s.

    >>> Poisson(rate_per_s=100)
    Poisson(rate_per_s=100)
    """

    def _gaps(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        return generator.standard_exponential(requests)


@dataclass(frozen=True)
class Constant(_Renewal):
    """Arrivals like clockwork: number i at (i + 1) / rate_per_s."""

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        for begin in range(0, requests, size):
            yield np.arange(begin + 1, min(begin + size, requests) + 1) / self.rate_per_s


@dataclass(frozen=True)
class Gamma(_Renewal):
    """Gamma-distributed gaps: `cv` above 1 is burstier than Poisson, below 1 calmer."""

    cv: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.fix_real(self, "cv", above=0)
        _check.fix_real(self, "cv", at_least=1e-3, at_most=1e3)

    def _gaps(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        return generator.standard_gamma(1 / self.cv**2, requests) * self.cv**2


@dataclass(frozen=True)
class OnOff(OpenLoop):
    """Bursts: a two-state Markov-modulated Poisson process, started in its stationary state.

    `mean_on_s` and `mean_off_s` are the mean seconds of an exponential stay in each state.
    """

    on_rate_per_s: float
    off_rate_per_s: float
    mean_on_s: float
    mean_off_s: float

    def __post_init__(self) -> None:
        _check.fix_real(self, "on_rate_per_s", above=0)
        _check.fix_real(self, "off_rate_per_s", at_least=0)
        _check.fix_real(self, "mean_on_s", above=0)
        _check.fix_real(self, "mean_off_s", above=0)
        cycle = self.on_rate_per_s * self.mean_on_s + self.off_rate_per_s * self.mean_off_s
        if cycle < 1e-3:  # thousands of states would pass between two arrivals
            raise ValueError(f"an on and an off state must see at least 0.001 arrivals, got {cycle:g}")

    @property
    def offered_per_s(self) -> float:
        on, off = self.mean_on_s, self.mean_off_s
        return (self.on_rate_per_s * on + self.off_rate_per_s * off) / (on + off)

    def with_rate(self, rate_per_s: float) -> Self:
        _check.real("rate_per_s", rate_per_s, above=0)
        factor = rate_per_s / self.offered_per_s
        on, off = self.on_rate_per_s * factor, self.off_rate_per_s * factor
        return type(self)(on, off, self.mean_on_s, self.mean_off_s)

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        # A unit-rate Poisson process, run through the inverse of the rate's integral. Its points
        # and the states have a stream each, so that rates do not change the states' path.
        points_seed, states_seed = seed.spawn(2)
        states = np.random.default_rng(states_seed)
        starts_on = states.random() < self.mean_on_s / (self.mean_on_s + self.mean_off_s)
        both = [self.mean_on_s, self.mean_off_s], [self.on_rate_per_s, self.off_rate_per_s]
        means, rates = (np.resize(pair if starts_on else pair[::-1], STATES) for pair in both)
        # The states that still matter: when each ends, the integral there, and its rate.
        ends_s, integral, rate = np.zeros(1), np.zeros(1), np.ones(1)
        latest_s = 0.0
        for points in _running(np.random.default_rng(points_seed), requests, size):
            blocks = [(ends_s, integral, rate)]
            while blocks[-1][1][-1] < points[-1]:
                stays_s = states.standard_exponential(STATES) * means
                blocks.append((
                    np.cumsum(np.append(blocks[-1][0][-1], stays_s))[1:],
                    np.cumsum(np.append(blocks[-1][1][-1], stays_s * rates))[1:],
                    rates,
                ))  # fmt: skip
            ends_s, integral, rate = (np.concatenate(column) for column in zip(*blocks, strict=True))
            # Each point is in the first state whose integral reaches it: never in a state of rate 0,
            # whose integral ends where it began. The states, mostly fewer, are looked up in the points.
            reached = np.searchsorted(points, integral, side="right")
            at = np.repeat(np.arange(integral.size), np.diff(reached, prepend=0))
            times_s = ends_s[at] - (integral[at] - points) / rate[at]
            times_s[0] = max(times_s[0], latest_s)
            times_s = np.maximum.accumulate(times_s)  # a rounding may turn two round
            latest_s = times_s[-1]
            yield times_s
            ends_s, integral, rate = ends_s[at[-1] :], integral[at[-1] :], rate[at[-1] :]


@dataclass(frozen=True)
class Diurnal(OpenLoop):
    """A day, compressed: rate(t) = mean * (1 - (peak_to_mean - 1) * cos(2 pi t / period_s)).

    `peak_to_mean` is from 1 (flat) to 2 (nothing at night).
    """

    mean_rate_per_s: float
    peak_to_mean: float
    period_s: float

    def __post_init__(self) -> None:
        _check.fix_real(self, "mean_rate_per_s", above=0)
        _check.fix_real(self, "peak_to_mean", at_least=1, at_most=2)
        _check.fix_real(self, "period_s", above=0)

    @property
    def offered_per_s(self) -> float:
        return self.mean_rate_per_s

    def with_rate(self, rate_per_s: float) -> Self:
        return type(self)(rate_per_s, self.peak_to_mean, self.period_s)

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        return self.stretched_s(_running(np.random.default_rng(seed), requests, size))

    def stretched_s(self, chunks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the arrival times that stretch a Poisson process of rate 1, whose points are given in chunks.

        They are the points through the inverse of the rate's integral, and the same whatever the chunks.
        """
        latest_s = 0.0
        for points in chunks:
            blocks = (points[begin : begin + BLOCK] for begin in range(0, points.size, BLOCK))
            times_s = np.concatenate([self._times_s(block) for block in blocks])
            times_s[0] = max(times_s[0], latest_s)
            times_s = np.maximum.accumulate(times_s)  # a rounding may turn two round
            latest_s = times_s[-1]
            yield times_s

    def _times_s(self, points: np.ndarray) -> np.ndarray:
        """Return when the rate's integral reaches the points, to a rounding."""
        periods = points / (self.mean_rate_per_s * self.period_s)
        midnight = np.floor(periods)
        mean_phase = periods - midnight
        # The second half of a period is the first one backwards.
        half = np.minimum(mean_phase, 1 - mean_phase)
        phase = kepler(2 * math.pi * half, self.peak_to_mean - 1) / (2 * math.pi)
        return (midnight + np.where(mean_phase > 0.5, 1 - phase, phase)) * self.period_s


@dataclass(frozen=True, eq=False, repr=False)
class Trace(OpenLoop):
    """Real traffic: the arrival times in seconds, shifted to start at 0.

    >>> Trace([10.0, 10.5, 12.0]).times_s
    array([0. , 0.5, 2. ])
    """

    times_s: np.ndarray

    def __post_init__(self) -> None:
        try:
            given = np.asarray(self.times_s)
            if given.size and given.dtype.kind not in "iufO":  # a datetime64 is no number of seconds
                raise TypeError
            times = np.array(given, dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"times_s must be numbers of seconds, got {self.times_s!r}") from None
        if times.ndim != 1:
            raise ValueError(f"times_s must be one-dimensional, got shape {times.shape}")
        if times.size == 0:
            raise ValueError("times_s must not be empty, got []")
        if not np.isfinite(times).all():
            bad = int(np.argmin(np.isfinite(times)))
            raise ValueError(f"times_s must be finite, got {times[bad]} at index {bad}")
        if (times[1:] < times[:-1]).any():
            bad = int(np.argmax(times[1:] < times[:-1])) + 1
            raise ValueError(
                f"times_s must be sorted, got {times[bad]} after {times[bad - 1]} at index {bad}"
            )
        for end in (times[0], times[-1]):
            if abs(end) > _check.LARGEST:
                raise ValueError(f"times_s must be at most {_check.LARGEST:g} s from 0, got {end:g}")
        times -= times[0]
        times.flags.writeable = False
        object.__setattr__(self, "times_s", times)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], column: str | None = None, speedup: float = 1.0) -> Self:
        """Read arrival times from a CSV file with a header line.

        `column` (the first, if None) holds seconds, or ISO 8601 timestamps, read to the
        nanosecond. `speedup` divides the times. A row that is truncated, is not a number, or goes
        back in time raises ValueError with its line; a missing column, with those there are.
        """
        speedup = _check.real("speedup", speedup, above=0)
        return cls(read_times_s(path, column) / speedup)

    @property
    def max_requests(self) -> int:  # type: ignore[override]
        return self.times_s.size

    @property
    def offered_per_s(self) -> float:
        if self.times_s.size == 1:
            return 0.0
        span = float(self.times_s[-1])
        return (self.times_s.size - 1) / span if span > 0 else math.inf

    def with_rate(self, rate_per_s: float) -> Self:
        _check.real("rate_per_s", rate_per_s, above=0)
        if not 0 < self.offered_per_s < math.inf:
            raise ValueError(f"a Trace must span some time to be scaled to a rate, got {self!r}")
        return type(self)(self.times_s * (self.offered_per_s / rate_per_s))

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        for begin in range(0, requests, size):
            yield self.times_s[begin : min(begin + size, requests)]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Trace) and np.array_equal(self.times_s, other.times_s)

    def __hash__(self) -> int:
        return hash(self.times_s.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.times_s,)  # made anew, and so read-only, by copy and pickle too

    def __repr__(self) -> str:
        return f"Trace({self.times_s.size:,} arrivals in {self.times_s[-1]:g} s, {self.offered_per_s:.6g}/s)"


@dataclass(frozen=True)
class ClosedLoop:
    """Clients that each send a request, wait for its answer, think, and send the next.

    All send at time 0. Thinking takes an exponential time of mean `think_s` seconds, or none.
    """

    clients: int
    think_s: float = 0.0

    def __post_init__(self) -> None:
        _check.fix_whole(self, "clients", at_most=10_000_000)
        _check.fix_real(self, "think_s", at_least=0)

    def thinking_s(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        """Return the seconds of thought that follow each of the next sends, shape (requests,)."""
        return generator.standard_exponential(requests) * self.think_s
