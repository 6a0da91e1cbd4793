"""Token generation: the lengths of requests, their prompts and their outputs, in whole tokens.

Lengths are drawn by inversion: a stream gives each request a number u between 0 and 1, and its length is the
u-quantile of all lengths. So a longer mean makes every request longer, and a shorter run is a prefix of a
longer one.
"""

import csv
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from typing import Any, Self

import numpy as np

from batchsim import _check
from batchsim._files import TABLE_BYTES, opened
from batchsim._format import brief

LONGEST = 10_000_000  # tokens of a prompt or an output: sums of their squares still fit 64 bits
POINTS = 4096  # of a distribution of lengths: its mean is then exact to about 0.1 %

Draw = Callable[[int], np.ndarray]


class Lengths:
    """Lengths in whole tokens, as `Lognormal`, `Geometric`, `Uniform` and `Listed`."""

    def quantile(self, u: np.ndarray) -> np.ndarray:
        """Return the `u`-quantiles of the lengths, whole numbers from 1 on."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """The largest possible length."""
        return int(self.quantile(np.nextafter(np.ones(1), 0))[0])

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


@dataclass(frozen=True, eq=False, repr=False)
class Listed(Lengths):
    """Measured lengths: request i has number i, starting over after the last if `again`."""

    values: np.ndarray
    again: bool = False

    def __post_init__(self) -> None:
        _check.instance("again", self.again, bool, "True or False")
        object.__setattr__(self, "values", _tokens("lengths", self.values))

    @property
    def max_requests(self) -> int | None:
        """The number of requests with a length, None if unlimited."""
        return None if self.again else self.values.size

    def quantile(self, u: np.ndarray) -> np.ndarray:
        return self._sorted[np.minimum((u * self.values.size).astype(int), self.values.size - 1)]

    @cached_property
    def _sorted(self) -> np.ndarray:
        return np.sort(self.values)

    def draws(self, seed: np.random.SeedSequence) -> Draw:
        drawn = 0

        def draw(requests: int) -> np.ndarray:
            nonlocal drawn
            first, drawn = drawn, drawn + requests
            if self.max_requests is not None and drawn > self.max_requests:
                few = f"{drawn:,} requests, got {self.max_requests:,} (again=True starts over)"
                raise ValueError(f"tokens must have a pair of lengths for each of {few}")
            return self.values[np.arange(first, drawn) % self.values.size]

        return draw

    def __eq__(self, other: Any) -> bool:
        same = isinstance(other, Listed) and self.again == other.again
        return same and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        return f"Listed({self.values.size:,} of mean {self.values.mean():.4g}{', again' * self.again})"


def _tokens(name: str, values: Any) -> np.ndarray:
    """Return lengths as a read-only array, or raise with the first wrong one."""
    given = np.asarray(values)
    if given.ndim != 1 or not given.size:
        raise ValueError(f"{name} must be a list of whole numbers, got shape {given.shape}")
    if given.dtype.kind not in "iu":
        checked = [_check.whole(f"{name} at index {i}", value) for i, value in enumerate(values)]
        given = np.array(checked, dtype=object)
    for bad in np.flatnonzero((given < 1) | (given > LONGEST)):
        raise ValueError(f"{name} must be from 1 to {LONGEST:,} tokens, got {given[bad]} at index {bad}")
    array = given.astype(np.int64)
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Tokens:
    """The lengths of prompts and outputs, each a whole number or a distribution.

    `limit` is the most tokens that the client asked for, at least every output: rules that reserve memory in
    advance use it. By default it is the output itself.

    >>> Tokens(prompt=Lognormal(800, 1.2, at_most=4096), output=Geometric(200)).output
    Geometric(mean=200)
    """

    prompt: int | Lengths
    output: int | Lengths
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "output"):
            value = getattr(self, name)
            if isinstance(value, (list, tuple, np.ndarray)):
                object.__setattr__(self, name, Listed(value))  # type: ignore[arg-type]  # made an array
            elif not isinstance(value, Lengths):
                _check.fix_whole(self, name, at_most=LONGEST)
        if self.limit is not None:
            _check.fix_whole(self, "limit", at_most=LONGEST)

    @classmethod
    def sample(cls, pairs: Iterable[Sequence[int]], again: bool = False) -> Self:
        """Return measured lengths, (prompt, output) of each request in order of arrival.

        A run has at most this many requests, unless `again`: then the lengths start over after the last.

        >>> Tokens.sample([(100, 5), (20, 12)], again=True).prompt
        Listed(2 of mean 60, again)
        """
        if not _check.listed(pairs):
            raise TypeError(f"pairs must be a list of (prompt, output), got {brief(pairs)}")
        rows = list(pairs)
        if not rows:
            raise ValueError("pairs must not be empty, got []")
        for i, row in enumerate(rows):
            if not _check.listed(row) or len(row) != 2:
                raise ValueError(f"pairs must be (prompt, output) each, got {brief(row)} at index {i}")
        prompts, outputs = zip(*rows, strict=True)
        return cls(Listed(_tokens("prompts", prompts), again), Listed(_tokens("outputs", outputs), again))

    @classmethod
    def from_csv(
        cls, path: str | PathLike[str], prompt: str = "ContextTokens", output: str = "GeneratedTokens",
        again: bool = False,
    ) -> Self:  # fmt: skip
        """Read measured lengths from two columns of a CSV file with a header line; else as `sample`."""
        with opened(path, TABLE_BYTES, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            for column in (prompt, output):
                if column not in (reader.fieldnames or ()):
                    hint = _check.nearest(column, reader.fieldnames or ())
                    raise ValueError(f"{fspath(path)} must have a column {column!r}{hint}")
            pairs = []
            for row in reader:
                try:
                    pairs.append((int(row[prompt]), int(row[output])))
                except (TypeError, ValueError):
                    wrong = f"{brief(row[prompt])} and {brief(row[output])} in line {reader.line_num}"
                    raise ValueError(f"lengths must be whole numbers, got {wrong}") from None
        return cls.sample(pairs, again)

    @property
    def max_requests(self) -> int | None:
        """The number of requests with lengths, None if unlimited."""
        each = [part.max_requests for part in (self.prompt, self.output) if isinstance(part, Listed)]
        return min((count for count in each if count is not None), default=None)

    def check_longest(self, most: int) -> None:
        """Raise ValueError, with lengths that would do, unless every prompt with its output or limit fits."""
        prompt, output = self.prompt, self.limit or self.output
        if isinstance(prompt, Listed) and isinstance(output, Listed):
            longest = int((prompt.values[: output.values.size] + output.values[: prompt.values.size]).max())
        else:
            longest = _longest(prompt) + _longest(output)
        if longest <= most:
            return
        parts = {"prompt": prompt, "output": output}
        can_cut = {name: part for name, part in parts.items() if isinstance(part, (Lognormal, Geometric))}
        endless = {name: part for name, part in can_cut.items() if part.at_most is None}
        remedy = f"max_model_len={longest}"
        for tails in (endless, can_cut):
            room = most - sum(_longest(part) for name, part in parts.items() if name not in tails)
            if tails and room >= len(tails):  # in proportion to the means
                means = [float(points(part).mean()) for part in tails.values()]
                cuts = [max(int(room * mean / sum(means)), 1) for mean in means]
                cuts[0] = room - sum(cuts[1:])
                each = (f"at_most={cut} of the {name}" for name, cut in zip(tails, cuts, strict=True))
                remedy = " and ".join(each)
                break
        rule = f"max_model_len, {most:,} tokens, must hold every prompt with its output"
        raise ValueError(f"{rule}, got up to {longest:,}: {remedy} would do")

    def draws(
        self, prompt_seed: np.random.SeedSequence, output_seed: np.random.SeedSequence
    ) -> Callable[[int], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return a function that draws the prompts, outputs and limits of the next requests of a run."""
        drawn = 0
        of_prompts, of_outputs = (
            part.draws(seed) if isinstance(part, Lengths) else functools.partial(np.full, fill_value=part)
            for part, seed in ((self.prompt, prompt_seed), (self.output, output_seed))
        )

        def draw(requests: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            nonlocal drawn
            first, drawn = drawn, drawn + requests
            prompts, outputs = of_prompts(requests), of_outputs(requests)
            if self.limit is None:
                return prompts, outputs, outputs.copy()
            for bad in np.flatnonzero(outputs > self.limit):
                got = f"limit {self.limit:,} and {outputs[bad]:,} tokens of request {first + bad:,}"
                raise ValueError(f"limit must be at least every output, got {got}")
            return prompts, outputs, np.full(requests, self.limit, np.int64)

        return draw


def _longest(length: int | Lengths) -> int:
    return length.longest if isinstance(length, Lengths) else length


# Moments of lengths.


@functools.lru_cache(maxsize=64)  # every setting of a map asks for the same
def points(length: int | Lengths, largest_of: int = 1) -> np.ndarray:
    """Return equally likely lengths, or lengths of the longest of `largest_of` requests."""
    if not isinstance(length, Lengths):
        return np.array([float(length)])
    return length.quantile(((np.arange(POINTS) + 0.5) / POINTS) ** (1 / largest_of)).astype(float)


def a_request(tokens: Tokens) -> float:
    """Return the mean number of tokens that engines compute for a request."""
    return float(points(tokens.prompt).mean() + points(tokens.output).mean()) - 1
