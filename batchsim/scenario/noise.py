"""Noise: a random factor on every service time, drawn anew for each batch, or lasting for some."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from batchsim import _check

SHAPES = ("lognormal", "exponential")
Draw = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Noise:
    """A random factor of mean 1 on every batch's service time.

    `cv` is its coefficient of variation; `shape` is "lognormal", or "exponential" (cv 1). Lognormal noise may
    last: a batch's logarithm correlates with that of the k-th batch after it by `correlation * exp(-(k - 1) /
    memory_batches)`, as where another program takes a part of the processor for a while. It is the sum of a
    first-order autoregressive process and of white noise; `correlation` 0 is white noise alone.
    """

    cv: float
    shape: str = "lognormal"
    correlation: float = 0.0
    memory_batches: float = 10.0

    def __post_init__(self) -> None:
        _check.fix_real(self, "cv", at_least=0, at_most=1e3)
        _check.one_of("shape", self.shape, SHAPES)
        _check.fix_real(self, "correlation", at_least=0, at_most=1)
        _check.fix_real(self, "memory_batches", above=0, at_most=1e6)
        if self.shape == "exponential" and self.cv != 1:
            raise ValueError(f"cv of exponential noise must be 1, got {self.cv!r}")
        if self.shape == "exponential" and self.correlation:
            raise ValueError(f"correlation of exponential noise must be 0, got {self.correlation!r}")
        if self.correlation > (most := math.exp(-1 / self.memory_batches)):
            rule = f"correlation must be at most {most:.4g} with memory_batches={self.memory_batches:g}"
            raise ValueError(f"{rule}, got {self.correlation!r}")

    @property
    def lasts(self) -> bool:
        """Whether a batch's factor says something of the next one's."""
        return self.cv > 0 and self.correlation > 0

    @property
    def dispersion(self) -> float:
        """The index of dispersion: the squared cv times the sum of the correlations over all lags.

        The variance of the sum of n factors over n, for large n: what a long queue sees of the noise.
        """
        total = 1 + 2 * self.correlation / -math.expm1(-1 / self.memory_batches)
        return self.cv**2 * total

    def draw(self, generator: np.random.Generator, size: int) -> np.ndarray:
        """Return `size` factors of mean 1, one a batch; a shorter draw is a prefix of a longer one."""
        return self.source(generator)(size)

    def source(self, generator: np.random.Generator) -> Draw:
        """Return what draws the next factors, however many at a time."""
        if self.shape == "exponential":
            return generator.standard_exponential
        # A lognormal of cv c has a logarithm of variance v = log(1 + c^2); a mean of -v / 2 there makes its
        # own mean 1. The standard draws do not depend on cv: a change of cv scales the noise of the same run.
        variance = math.log1p(self.cv**2)
        normal = self._lasting(generator) if self.correlation else generator.standard_normal
        return lambda size: np.exp(math.sqrt(variance) * normal(size) - variance / 2)

    def _lasting(self, generator: np.random.Generator) -> Draw:
        """Return what draws the next standard normal values, of which a share lasts."""
        from scipy.signal import lfilter  # a fifth of a second to load, and seldom needed

        kept = math.exp(-1 / self.memory_batches)  # of the lasting part, from one batch to the next
        share = self.correlation / kept
        state = kept * generator.standard_normal(1)  # stationary from the first batch on

        def normal(size: int) -> np.ndarray:
            nonlocal state
            if not size:  # of which lfilter would forget the state
                return np.empty(0)
            new, white = generator.standard_normal((size, 2)).T
            lasting, state = lfilter([math.sqrt(1 - kept**2)], [1, -kept], new, zi=state)
            return math.sqrt(share) * lasting + math.sqrt(1 - share) * white

        return normal
