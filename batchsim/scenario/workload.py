"""When requests arrive: open loops, whose rate is steady or varies, and a closed loop of clients.

Traffic uses common random numbers: a workload turns one stream of standard draws, of mean 1, into arrival
times, and its parameters only stretch that stream. So two settings of a parameter, or of the batcher, see the
same traffic, and chance does not blur their difference. A shorter run's draws are a prefix of a longer one's.

To add a workload, write its class here and list it in `WORKLOADS`: TOML, the shell, the explorer and the
reference find it there.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from batchsim import _check
from batchsim._compat import repeat
from batchsim.scenario.kepler import kepler
from batchsim.scenario.parameters import parameter, require
from batchsim.scenario.traffic import Traffic

CHUNK = 1 << 15  # arrivals at a time: they fit the processor's cache, and Ctrl-C works between two chunks

NEEDED = {"offered_per_s": "", "dispersion": "", "with_rate": "(self, rate_per_s)"}
NEEDED |= {"chunks_s": "(self, seed, requests, size)"}


@dataclass(frozen=True, repr=False)
class OpenLoop(Traffic):
    """Requests that arrive regardless of the server's answers.

    A subclass is a frozen dataclass with `offered_per_s`, `chunks_s`, `with_rate`, and `dispersion` or
    `gamma_cv`. The other properties have safe defaults: a workload that does not override them gets no
    theory, no cache and no run length for bursts. TypeError names what is missing as the class is made.
    """

    def __init_subclass__(cls, abstract: bool = False) -> None:
        super().__init_subclass__()
        if not abstract:
            needed = dict(NEEDED)
            if cls.gamma_cv is not OpenLoop.gamma_cv:  # it gives the dispersion
                del needed["dispersion"]
            require(cls, OpenLoop, needed)
        for name in ("standard", "gaps"):
            if "chunks_s" in vars(cls) and name not in vars(cls):
                setattr(cls, name, getattr(OpenLoop, name))  # its parent's draws no longer apply

    @property
    def offered_per_s(self) -> float:
        """The mean arrival rate, requests per second."""
        raise NotImplementedError

    @property
    def dispersion(self) -> float:
        """The variance over the mean of the number of arrivals in a long time: 1 for Poisson arrivals."""
        if self.gamma_cv is None:
            raise NotImplementedError
        return self.gamma_cv**2

    @property
    def gamma_cv(self) -> float | None:
        """The cv of gaps that are independent and gamma-distributed, as theory needs; None for other gaps.

        Poisson gaps have 1, constant ones 0.
        """
        return None

    @property
    def burst_requests(self) -> float:
        """The mean number of requests from one burst to the next, 0 without bursts."""
        return 0.0

    @property
    def burst_per_s(self) -> float | None:
        """The arrival rate within bursts, None if it is unknown."""
        return None

    @property
    def standard(self) -> "OpenLoop | None":
        """The workload of rate 1 whose arrivals `stretched_s` turns into these, or None.

        The explorer caches the standard arrivals, so a new rate draws nothing.
        """
        return None

    def stretched_s(self, chunks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the arrival times in seconds for chunks of the standard workload's arrivals."""
        raise NotImplementedError

    def with_rate(self, rate_per_s: float) -> Self:
        """Return the same traffic at another mean rate, requests per second."""
        raise NotImplementedError

    def gaps(self, seed: np.random.SeedSequence) -> Callable[[np.ndarray], None] | None:
        """Return a function that fills an array with the next gaps between arrivals, of mean 1, or None.

        With it, engines add up the gaps themselves, and do not call `chunks_s`.
        """
        return None

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        """Yield the arrival times in seconds, never decreasing and the same for any `size` of chunks."""
        raise NotImplementedError


def filled(chunks: Iterable[np.ndarray], size: int) -> np.ndarray:
    """Return the chunks joined, shape (size,)."""
    joined, begin = np.empty(size), 0
    for chunk in chunks:
        joined[begin : begin + chunk.size] = chunk
        begin += chunk.size
    return joined


def running_sums(draw: Callable[[int], np.ndarray], requests: int, size: int) -> Iterator[np.ndarray]:
    """Yield the running sum of `draw`'s numbers in chunks."""
    total = 0.0
    for begin in range(0, requests, size):
        gaps = draw(min(size, requests - begin))
        # Added to the first gap rather than to the sums, so that chunks give exactly the floats of one sum.
        gaps[0] += total
        points = np.cumsum(gaps)
        total = points[-1]
        yield points


_positive = functools.partial(parameter, type="real", above=0)


@dataclass(frozen=True, repr=False)
class _Renewal(OpenLoop, abstract=True):
    """Independent gaps between arrivals: a standard draw of mean 1, divided by the rate."""

    rate_per_s: float = _positive(
        "Arrival rate (per s)", "Mean number of requests per second", slider=(1, 10_000, 0.01), log=True,
        usual=1000,
    )  # fmt: skip

    @property
    def offered_per_s(self) -> float:
        return self.rate_per_s

    @property
    def standard(self) -> OpenLoop:
        return self.with_rate(1)

    def stretched_s(self, chunks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        return (points / self.rate_per_s for points in chunks)

    def with_rate(self, rate_per_s: float) -> Self:
        return replace(self, rate_per_s=rate_per_s)

    def gaps(self, seed: np.random.SeedSequence) -> Callable[[np.ndarray], None] | None:
        return functools.partial(self._gaps, np.random.default_rng(seed))

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        fill = functools.partial(self._gaps, np.random.default_rng(seed))

        def draw(count: int) -> np.ndarray:
            gaps = np.empty(count)
            fill(gaps)
            return gaps

        return self.stretched_s(running_sums(draw, requests, size))

    def _gaps(self, generator: np.random.Generator, gaps: np.ndarray) -> None:
        """Fill an array with standard gaps."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Poisson(_Renewal):
    """Independent arrivals: exponential gaps with mean 1 / rate_per_s.

    >>> Poisson(rate_per_s=100)
    Poisson(rate_per_s=100)
    """

    title = "Poisson: random arrivals"
    gamma_cv = 1.0

    def _gaps(self, generator: np.random.Generator, gaps: np.ndarray) -> None:
        generator.standard_exponential(out=gaps)


@dataclass(frozen=True, repr=False)
class Constant(_Renewal):
    """Evenly spaced arrivals: number i at (i + 1) / rate_per_s."""

    title = "Constant: evenly spaced"
    gamma_cv = 0.0

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        # Not a sum of gaps, whose rounding errors would add up.
        return self.stretched_s(
            np.arange(begin + 1, min(begin + size, requests) + 1) for begin in range(0, requests, size)
        )

    standard = _Renewal.standard


@dataclass(frozen=True, repr=False)
class Gamma(_Renewal):
    """Gamma-distributed gaps: burstier than Poisson with a `cv` above 1, smoother below."""

    cv: float = parameter(
        "Burstiness (CV)", "Standard deviation over mean of the gaps between arrivals; Poisson: 1",
        type="real", at_least=1e-3, at_most=1e3, slider=(0.1, 10, 0.01), log=True, usual=3,
    )  # fmt: skip

    title = "Gamma: smoother or burstier"

    @property
    def gamma_cv(self) -> float:
        return self.cv

    def _gaps(self, generator: np.random.Generator, gaps: np.ndarray) -> None:
        # A gamma's cv is 1 / sqrt(shape), and its mean shape * scale: scale = cv^2 makes the mean 1.
        generator.standard_gamma(1 / self.cv**2, out=gaps)
        gaps *= self.cv**2


@dataclass(frozen=True, repr=False)
class ClosedLoop(Traffic):
    """Clients that each send a request, wait for the answer, think, and send the next.

    All send at time 0. A client thinks for an exponential time of mean `think_s` seconds, or not at all.
    """

    clients: int = parameter(
        "Clients", "Each sends a request, waits for the answer, thinks, and sends the next",
        at_most=10_000_000, slider=(1, 256, 1), usual=64,
    )  # fmt: skip
    think_s: float = parameter(
        "Think time (s)", "Mean time between an answer and the client's next request", type="real",
        at_least=0, default=0.0,
    )  # fmt: skip

    title = "Closed loop: clients wait for answers"

    def thinking_s(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        """Return the think times in seconds that follow the next sends, shape (requests,)."""
        return generator.standard_exponential(requests) * self.think_s


@dataclass(frozen=True, repr=False)
class Limited(ClosedLoop):
    """Requests due at given times, of which at most `clients` are in flight; the others wait at the client.

    A client that is free takes the next request, and sends it once that is due: its arrival is when it is
    sent. Load tests send like this; it is in no list of workloads, as it has no theory and no summary.

    >>> Limited(2, times_s=(0.0, 0.1, 0.2)).clients
    2
    """

    times_s: tuple[float, ...] = field(kw_only=True)

    def check(self) -> None:
        _check.whole("the number of times_s", len(self.times_s))

    @property
    def max_requests(self) -> int:
        return min(len(self.times_s), super().max_requests or len(self.times_s))


# Workloads whose rate varies: bursts, and a day. Both are Poisson processes of rate 1 whose clock runs faster
# or slower: request i arrives as the integral of the rate reaches the i-th point. Thinning a faster process
# would draw a different number of points at each rate, and two settings would no longer share their traffic.

STATES = 1024  # how many of OnOff's states are drawn at a time
WHOLE = 0.02  # the part of a Diurnal's period by which a run may miss whole periods
BLOCK = 1 << 13  # points at a time: the solver's dozens of short-lived arrays stay in the processor's cache


def _unit_rate(seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
    """Yield the points of a Poisson process of rate 1, in chunks."""
    return running_sums(np.random.default_rng(seed).standard_exponential, requests, size)


def _in_order(chunks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield times that never decrease: inverting an integral may swap two neighbours by a rounding error."""
    latest_s = 0.0
    for times_s in chunks:
        times_s[0] = max(times_s[0], latest_s)
        times_s = np.maximum.accumulate(times_s)
        latest_s = times_s[-1]
        yield times_s


@dataclass(frozen=True, repr=False)
class OnOff(OpenLoop):
    """Bursts: a two-state Markov-modulated Poisson process, started in its stationary state.

    `mean_on_s` and `mean_off_s` are the mean seconds of an exponential stay in each state.
    """

    on_rate_per_s: float = _positive("Burst rate (per s)", "Arrival rate in a burst")
    off_rate_per_s: float = parameter(
        "Rate between bursts (per s)", "0: none arrive", type="real", at_least=0
    )
    mean_on_s: float = _positive("Mean burst (s)", "Mean duration of a burst")
    mean_off_s: float = _positive("Mean pause (s)", "Mean time between two bursts")

    title = "On-off: bursts"

    def check(self) -> None:
        cycle = self.on_rate_per_s * self.mean_on_s + self.off_rate_per_s * self.mean_off_s
        if cycle < 1e-3:  # thousands of states would pass between two arrivals
            raise ValueError(f"an on and an off state must see at least 0.001 arrivals, got {cycle:g}")

    @property
    def offered_per_s(self) -> float:
        on, off = self.mean_on_s, self.mean_off_s
        return (self.on_rate_per_s * on + self.off_rate_per_s * off) / (on + off)

    @property
    def dispersion(self) -> float:
        # Fischer and Meier-Hellstern, The Markov-modulated Poisson process cookbook, 1993.
        on, off = self.mean_on_s, self.mean_off_s
        apart = (self.on_rate_per_s - self.off_rate_per_s) ** 2
        return 1 + 2 * apart * (on * off) ** 2 / (on + off) ** 3 / self.offered_per_s

    @property
    def burst_requests(self) -> float:
        return 0.0 if self.burst_per_s is None else self.offered_per_s * (self.mean_on_s + self.mean_off_s)

    @property
    def burst_per_s(self) -> float | None:
        on, off = self.on_rate_per_s, self.off_rate_per_s
        return None if on == off else max(on, off)

    def with_rate(self, rate_per_s: float) -> Self:
        _check.real("rate_per_s", rate_per_s, above=0)
        factor = rate_per_s / self.offered_per_s
        on, off = self.on_rate_per_s * factor, self.off_rate_per_s * factor
        return replace(self, on_rate_per_s=on, off_rate_per_s=off)

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        return _in_order(self._times_s(seed, requests, size))

    def _times_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        # The points and the states have a stream each, so that rates do not change the states' path.
        points_seed, states_seed = seed.spawn(2)
        states = np.random.default_rng(states_seed)
        starts_on = states.random() < self.mean_on_s / (self.mean_on_s + self.mean_off_s)
        both = [self.mean_on_s, self.mean_off_s], [self.on_rate_per_s, self.off_rate_per_s]
        means, rates = (np.resize(pair if starts_on else pair[::-1], STATES) for pair in both)
        # The states that still matter: when each ends, the rate's integral there, and its rate.
        ends_s, integral, rate = np.zeros(1), np.zeros(1), np.ones(1)
        for points in _unit_rate(points_seed, requests, size):
            blocks = [(ends_s, integral, rate)]
            while blocks[-1][1][-1] < points[-1]:
                stays_s = states.standard_exponential(STATES) * means
                blocks.append((
                    np.cumsum(np.append(blocks[-1][0][-1], stays_s))[1:],
                    np.cumsum(np.append(blocks[-1][1][-1], stays_s * rates))[1:],
                    rates,
                ))  # fmt: skip
            ends_s, integral, rate = (np.concatenate(column) for column in zip(*blocks, strict=True))
            # A point falls in the first state whose integral reaches it, so never in a state of rate 0, whose
            # integral ends where it began. There are usually fewer states than points, so the states are
            # looked up among the points.
            reached = np.searchsorted(points, integral, side="right")
            at = repeat(np.arange(integral.size), np.diff(reached, prepend=0))
            yield ends_s[at] - (integral[at] - points) / rate[at]
            ends_s, integral, rate = ends_s[at[-1] :], integral[at[-1] :], rate[at[-1] :]


@dataclass(frozen=True, repr=False)
class Diurnal(OpenLoop):
    """A day, compressed: rate(t) = mean * (1 - (peak_to_mean - 1) * cos(2 pi t / period_s)).

    `peak_to_mean` is from 1 (flat) to 2 (no arrivals at midnight).
    """

    mean_rate_per_s: float = _positive("Mean rate (per s)", "Mean number of requests per second")
    peak_to_mean: float = parameter(
        "Peak-to-mean ratio", "1: the same all day; 2: no arrivals at night", type="real", at_least=1,
        at_most=2, slider=(1, 2, 0.05), usual=1.8,
    )  # fmt: skip
    period_s: float = _positive(
        "Length of a day (s)", "Duration of the compressed day", slider=(1, 1000, 0.01), log=True, usual=20
    )

    title = "Diurnal: a day, compressed"

    @property
    def offered_per_s(self) -> float:
        return self.mean_rate_per_s

    @property
    def dispersion(self) -> float:
        return 1.0  # that of its Poisson arrivals, without the course of the day

    @property
    def day(self) -> "Diurnal | None":
        return self if self.peak_to_mean > 1 else None

    @property
    def standard(self) -> OpenLoop:
        return Poisson(1)

    def with_rate(self, rate_per_s: float) -> Self:
        return replace(self, mean_rate_per_s=rate_per_s)

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        return self.stretched_s(_unit_rate(seed, requests, size))

    def stretched_s(self, chunks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for_blocks = (np.split(points, range(BLOCK, points.size, BLOCK)) for points in chunks)
        return _in_order(np.concatenate([self._times_s(block) for block in blocks]) for blocks in for_blocks)

    def rates_per_s(self, first: int, requests: int) -> np.ndarray:
        begin_s, end_s = (self.reached_s(count) for count in (first, first + requests))
        times_s = np.linspace(begin_s, min(end_s, begin_s + self.period_s), 1001)
        swing = (self.peak_to_mean - 1) * np.cos(2 * math.pi * times_s / self.period_s)
        return self.mean_rate_per_s * (1 - swing)

    @property
    def requests_a_period(self) -> float:
        """The mean number of arrivals in a period."""
        return self.mean_rate_per_s * self.period_s

    def reached_s(self, requests: float) -> float:
        """Return the time at which so many requests have arrived on average."""
        return float(self._times_s(np.array([float(requests)]))[0])

    def whole_periods(self, requests: int, first: int = 0) -> int:
        """Return the number of whole periods that `requests` cover after the `first` ones, 0 if not whole.

        An end within chance, or within 2 % of a period, of a whole number counts as whole.

        >>> day = Diurnal(1000, peak_to_mean=1.8, period_s=60)
        >>> day.whole_periods(180_000), day.whole_periods(100_000)
        (3, 0)
        """
        periods = round(requests / self.requests_a_period)
        if abs(requests - periods * self.requests_a_period) <= math.sqrt(requests):
            return periods
        covered_s = self.reached_s(first + requests) - self.reached_s(first)
        return periods if abs(covered_s / self.period_s - periods) <= WHOLE else 0

    def nearest_whole(self, requests: float) -> int:
        """Return the number of requests nearest to this that covers whole periods, at least one."""
        periods = max(round(requests / self.requests_a_period), 1)
        return max(round(periods * self.requests_a_period), 1)

    def _times_s(self, points: np.ndarray) -> np.ndarray:
        """Return when the rate's integral reaches the points, to a rounding."""
        periods = points / (self.mean_rate_per_s * self.period_s)
        midnight = np.floor(periods)
        mean_phase = periods - midnight
        # The second half of a period mirrors the first, so the solver needs only angles up to pi.
        half = np.minimum(mean_phase, 1 - mean_phase)
        phase = kepler(2 * math.pi * half, self.peak_to_mean - 1) / (2 * math.pi)
        return (midnight + np.where(mean_phase > 0.5, 1 - phase, phase)) * self.period_s


# The registry: TOML, the shell, the explorer and the reference offer these, in this order. A trace, which is
# read from a file, is elsewhere.
WORKLOADS: tuple[type[OpenLoop] | type[ClosedLoop], ...] = (
    Poisson, Constant, Gamma, OnOff, Diurnal, ClosedLoop,
)  # fmt: skip
