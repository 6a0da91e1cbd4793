"""When requests arrive: what every workload can do, and those of one rate or of clients.

Traffic uses common random numbers: a workload turns one stream of standard draws, of mean 1, into arrival
times, and its knobs only stretch that stream. So two settings of a knob, or of the batcher, see the same
traffic, and chance does not blur their difference. A shorter run's draws are a prefix of a longer one's.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from batchsim import _check
from batchsim.scenario import priorities as levels
from batchsim.scenario.priorities import Shares

CHUNK = 1 << 15  # arrivals at a time: they fit the processor's cache, and Ctrl-C works between two chunks


@dataclass(frozen=True)
class _Traffic:
    """What every workload has: priority levels, if any, which are drawn for each request."""

    priorities: Shares | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.priorities is not None:
            object.__setattr__(self, "priorities", levels.check(self.priorities))

    def with_priorities(self, shares: Mapping[int, float]) -> Self:
        """Return this traffic with a priority level for each request, {level: share of the requests}.

        Level 1 is served first, and in a level the oldest. Levels are whole numbers from 1 to 255, their
        shares positive, and these sum to 1.

        >>> Poisson(900).with_priorities({1: 0.2, 2: 0.8})
        Poisson(rate_per_s=900).with_priorities({1: 0.2, 2: 0.8})
        """
        return dataclasses.replace(self, priorities=shares)  # type: ignore[arg-type]  # made a tuple

    def __repr__(self) -> str:
        own = (f.name for f in dataclasses.fields(self) if not f.kw_only)
        return (
            f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in own)})" + self._suffix()
        )

    def _suffix(self) -> str:
        return "" if self.priorities is None else f".with_priorities({dict(self.priorities)})"


@dataclass(frozen=True, repr=False)
class OpenLoop(_Traffic):
    """Requests that arrive whatever the server does."""

    max_requests: ClassVar[int | None] = None  # only a trace ends

    @property
    def offered_per_s(self) -> float:
        """The mean arrival rate, requests per second."""
        raise NotImplementedError

    @property
    def dispersion(self) -> float:
        """The variance of the number of arrivals in a long time over its mean: 1 for Poisson arrivals."""
        raise NotImplementedError

    def with_rate(self, rate_per_s: float) -> Self:
        """Return the same traffic at another mean rate, requests per second."""
        raise NotImplementedError

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
        # Added to the first gap rather than to the sums, so that the chunks give the very floats of one sum.
        gaps[0] += total
        points = np.cumsum(gaps)
        total = points[-1]
        yield points


@dataclass(frozen=True, repr=False)
class _Renewal(OpenLoop):
    """Independent gaps between arrivals: a standard draw of mean 1, divided by the rate."""

    rate_per_s: float

    def __post_init__(self) -> None:
        _check.fix_real(self, "rate_per_s", above=0)
        super().__post_init__()

    @property
    def offered_per_s(self) -> float:
        return self.rate_per_s

    def with_rate(self, rate_per_s: float) -> Self:
        return dataclasses.replace(self, rate_per_s=rate_per_s)

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        draw = functools.partial(self._gaps, np.random.default_rng(seed))
        for points in running_sums(draw, requests, size):
            yield points / self.rate_per_s

    def _gaps(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Poisson(_Renewal):
    """Independent arrivals: exponential gaps with mean 1 / rate_per_s.

    >>> Poisson(rate_per_s=100)
    Poisson(rate_per_s=100)
    """

    @property
    def dispersion(self) -> float:
        return 1.0

    def _gaps(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        return generator.standard_exponential(requests)


@dataclass(frozen=True, repr=False)
class Constant(_Renewal):
    """Evenly spaced arrivals: number i at (i + 1) / rate_per_s."""

    @property
    def dispersion(self) -> float:
        return 0.0

    def chunks_s(self, seed: np.random.SeedSequence, requests: int, size: int) -> Iterator[np.ndarray]:
        # Not a sum of gaps, whose rounding errors would add up.
        for begin in range(0, requests, size):
            yield np.arange(begin + 1, min(begin + size, requests) + 1) / self.rate_per_s


@dataclass(frozen=True, repr=False)
class Gamma(_Renewal):
    """Gamma-distributed gaps: burstier than Poisson with a `cv` above 1, smoother below."""

    cv: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.fix_real(self, "cv", at_least=1e-3, at_most=1e3)

    @property
    def dispersion(self) -> float:
        return self.cv**2

    def _gaps(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        # A gamma's cv is 1 / sqrt(shape), and its mean shape * scale: scale = cv^2 makes the mean 1.
        return generator.standard_gamma(1 / self.cv**2, requests) * self.cv**2


@dataclass(frozen=True, repr=False)
class ClosedLoop(_Traffic):
    """Clients that each send a request, wait for the answer, think, and send the next.

    All send at time 0. A client thinks for an exponential time of mean `think_s` seconds, or not at all.
    """

    clients: int
    think_s: float = 0.0
    max_requests: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        _check.fix_whole(self, "clients", at_most=10_000_000)
        _check.fix_real(self, "think_s", at_least=0)
        super().__post_init__()

    def thinking_s(self, generator: np.random.Generator, requests: int) -> np.ndarray:
        """Return the think times in seconds that follow the next sends, shape (requests,)."""
        return generator.standard_exponential(requests) * self.think_s
