"""Lengths in whole units, as of prompts or of a request's own size: their distributions and measured lists.

Lengths are drawn by inversion: a stream gives each request a number u between 0 and 1, and its length is the
u-quantile of all lengths. So a longer mean makes every request longer, and a shorter run is a prefix of a
longer one.
"""

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._compat import kept

LONGEST = 10_000_000  # units: sums of their squares still fit 64 bits
FINE, COARSE = 1 << 13, 1 << 15  # lengths with a probability each, and ranges of longer ones
POINTS = 4096  # of a distribution of lengths: its mean is then exact to about 0.1 %

Draw = Callable[[int], np.ndarray]


class Lengths:
    """Lengths in whole units, as `Lognormal`, `Geometric`, `Uniform` and `Listed`."""

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return the `u`-quantiles of the lengths, whole numbers from 1 on."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """The largest possible length."""
        return int(self.quantile(np.nextafter(np.ones(1), 0))[0])

    def beyond(self, length: np.ndarray) -> np.ndarray:
        """Return the probability that a length is above each of some, whole numbers from 1 on."""
        raise NotImplementedError

    def distribution(self, edges: Iterable[int] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Return lengths and the probability of each; long ones stand for a range without any of the `edges`.

        >>> lengths, shares = Geometric(mean=200).distribution()
        >>> round(float(shares @ lengths), 6), round(float(shares @ lengths**2), 3)
        (200.0, 79800.0)
        """
        longest = self.longest
        each, ranges = np.arange(1, FINE), np.geomspace(FINE, max(longest, FINE), COARSE).round()
        ends = np.unique(np.concatenate([each, ranges, [*edges, longest - 1]]))
        ends = ends[(ends > 0) & (ends < longest)]
        shares = np.concatenate([[1.0], self.beyond(ends), [0.0]])
        ends = np.concatenate([[0.0], ends, [longest]])
        return (ends[:-1] + 1 + ends[1:]) / 2, -np.diff(shares)

    def draws(self, seed: np.random.SeedSequence) -> Draw:
        """Return a function that draws the lengths of the next requests of a run."""
        generator = np.random.default_rng(seed)
        return lambda requests: self.quantile(generator.random(requests))


def _whole(values: np.ndarray, at_most: int | None) -> np.ndarray:
    return np.clip(values, 1, at_most or LONGEST).astype(np.int64)


@dataclass(frozen=True)
class Lognormal(Lengths):
    """Log-normal lengths, rounded to whole tokens and cut to 1 .. `at_most`.

    `mean` and `cv`, the coefficient of variation, apply before rounding and cutting.

    >>> Lognormal(mean=800, cv=1.2, at_most=4096).quantile(np.array([0.1, 0.5, 0.99]))
    array([ 153,  512, 4096])
    """

    mean: float
    cv: float
    at_most: int | None = None

    def __post_init__(self) -> None:
        _check.fix_real(self, "mean", at_least=1, at_most=LONGEST)
        _check.fix_real(self, "cv", at_least=0, at_most=1e3)
        if self.at_most is not None:
            _check.fix_whole(self, "at_most", at_most=LONGEST)

    def quantile(self, u: np.ndarray) -> np.ndarray:
        from scipy.special import ndtri  # SciPy loads on first use

        variance = math.log1p(self.cv**2)
        if variance == 0:
            return _whole(np.rint(np.full(u.shape, self.mean)), self.at_most)
        logs = math.log(self.mean) - variance / 2 + math.sqrt(variance) * ndtri(u)
        return _whole(np.rint(np.exp(np.minimum(logs, math.log(LONGEST)))), self.at_most)

    def beyond(self, length: np.ndarray) -> np.ndarray:
        from scipy.special import ndtr

        variance = math.log1p(self.cv**2)
        logs = np.log(length + 0.5) - math.log(self.mean) + variance / 2  # rounded
        return ndtr(-logs / math.sqrt(variance)) if variance else np.where(logs < 0, 1.0, 0.0)


@dataclass(frozen=True, repr=False)
class Geometric(Lengths):
    """Geometric lengths from 1 on, cut to `at_most`: each token is the last with the same probability.

    >>> Geometric(mean=200).quantile(np.array([0.1, 0.5, 0.99]))
    array([ 22, 139, 919])
    """

    mean: float
    at_most: int | None = None

    def __post_init__(self) -> None:
        _check.fix_real(self, "mean", at_least=1, at_most=LONGEST)
        if self.at_most is not None:
            _check.fix_whole(self, "at_most", at_most=LONGEST)

    def __repr__(self) -> str:
        cut = "" if self.at_most is None else f", at_most={self.at_most}"
        return f"Geometric(mean={self.mean!r}{cut})"

    def quantile(self, u: np.ndarray) -> np.ndarray:
        if self.mean == 1:
            return np.ones(u.shape, np.int64)
        return _whole(np.ceil(np.log1p(-u) / math.log1p(-1 / self.mean)), self.at_most)

    def beyond(self, length: np.ndarray) -> np.ndarray:
        return np.exp(length * math.log1p(-1 / self.mean)) if self.mean > 1 else np.zeros(length.shape)


@dataclass(frozen=True)
class Uniform(Lengths):
    """Lengths from `low` to `high`, both included, all equally likely.

    >>> Uniform(low=20, high=600).quantile(np.array([0.0, 0.5, 0.999]))
    array([ 20, 310, 600])
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        _check.fix_whole(self, "low", at_most=LONGEST)
        _check.fix_whole(self, "high", at_most=LONGEST)
        _check.at_most("low", self.low, self.high, "high")

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return self.low + np.floor(u * (self.high - self.low + 1)).astype(np.int64)

    def beyond(self, length: np.ndarray) -> np.ndarray:
        return ((self.high - length) / (self.high - self.low + 1)).clip(0, 1)


@dataclass(frozen=True, eq=False, repr=False)
class Listed(Lengths):
    """Measured lengths: request i has number i, starting over after the last if `again`."""

    values: np.ndarray
    again: bool = False

    def __post_init__(self) -> None:
        _check.instance("again", self.again, bool, "True or False")
        object.__setattr__(self, "values", whole_lengths("lengths", self.values))

    @property
    def max_requests(self) -> int | None:
        """The number of requests with a length, None if unlimited."""
        return None if self.again else self.values.size

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return self._sorted[np.minimum((u * self.values.size).astype(np.int64), self.values.size - 1)]

    @kept
    def _sorted(self) -> np.ndarray:
        return np.sort(self.values)

    def draws(self, seed: np.random.SeedSequence) -> Draw:
        drawn = 0

        def draw(requests: int) -> np.ndarray:
            nonlocal drawn
            first, drawn = drawn, drawn + requests
            if self.max_requests is not None and drawn > self.max_requests:
                few = f"{drawn:,} requests, got {self.max_requests:,} (again=True starts over)"
                raise ValueError(f"there must be a length for each of {few}")
            return self.values[np.arange(first, drawn) % self.values.size]

        return draw

    def __eq__(self, other: Any) -> bool:
        same = isinstance(other, Listed) and self.again == other.again
        return same and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        return f"Listed({self.values.size:,} of mean {self.values.mean():.4g}{', again' * self.again})"


def whole_lengths(name: str, values: Any) -> np.ndarray:
    """Return lengths as a read-only array, or raise with the first wrong one."""
    given = np.asarray(values)
    if given.ndim != 1 or not given.size:
        raise ValueError(f"{name} must be a list of whole numbers, got shape {given.shape}")
    if given.dtype.kind not in "iu":
        checked = [_check.whole(f"{name} at index {i}", value) for i, value in enumerate(values)]
        given = np.array(checked, dtype=object)
    for bad in np.flatnonzero((given < 1) | (given > LONGEST)):
        raise ValueError(f"{name} must be from 1 to {LONGEST:,}, got {given[bad]} at index {bad}")
    array = given.astype(np.int64)
    array.flags.writeable = False
    return array


def longest_of(length: int | Lengths) -> int:
    """Return the largest possible length."""
    return length.longest if isinstance(length, Lengths) else length


@functools.lru_cache(maxsize=64)  # every setting of a map asks for the same
def points(length: int | Lengths, largest_of: int = 1) -> np.ndarray:
    """Return equally likely lengths, or lengths of the longest of `largest_of` requests."""
    if not isinstance(length, Lengths):
        return np.array([float(length)])
    return length.quantile(((np.arange(POINTS) + 0.5) / POINTS) ** (1 / largest_of)).astype(float)
