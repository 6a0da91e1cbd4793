"""The noise of a service time: a random factor on every batch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from batchsim.scenario.parameters import Described, parameter

Draw = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Noise(Described):
    """A random factor of mean 1 on every batch's service time.

    `cv` is its coefficient of variation; `shape` is "lognormal", or "exponential" (cv 1). Lognormal noise may
    last: the logarithms of batches k apart correlate by `correlation * exp(-(k - 1) / memory_batches)`, as
    when another program uses a part of the processor for a while. It is the sum of a first-order
    autoregressive process and of white noise; `correlation` 0 is white noise alone.
    """

    cv: float = parameter(
        "Noise (CV)", "Standard deviation over mean of equal batches' computing times", type="real",
        at_least=0, at_most=1e3, slider=(0, 2, 0.05),
    )  # fmt: skip
    shape: str = parameter(
        "Noise distribution", "Distribution of the computing times", type="word",
        words=("lognormal", "exponential"), default="lognormal",
    )  # fmt: skip
    correlation: float = parameter(
        "Noise correlation", "Correlation of successive batches' times", type="real", at_least=0, at_most=1,
        default=0.0,
    )  # fmt: skip
    memory_batches: float = parameter(
        "Noise memory", "Batches until the correlation decays to 1/e", type="real", above=0, at_most=1e6,
        usual=10, default=10.0,
    )  # fmt: skip

    def check(self) -> None:
        if self.shape == "exponential" and self.cv != 1:
            raise ValueError(f"cv of exponential noise must be 1, got {self.cv!r}")
        if self.shape == "exponential" and self.correlation:
            raise ValueError(f"correlation of exponential noise must be 0, got {self.correlation!r}")
        if self.correlation > (most := math.exp(-1 / self.memory_batches)):
            rule = f"correlation must be at most {most:.4g} with memory_batches={self.memory_batches:g}"
            raise ValueError(f"{rule}, got {self.correlation!r}")

    @property
    def lasts(self) -> bool:
        """Whether the factors of consecutive batches correlate."""
        return self.cv > 0 and self.correlation > 0

    @property
    def dispersion(self) -> float:
        """The index of dispersion: the squared cv times the sum of the correlations over all lags.

        The variance of the sum of n factors over n, for large n, which is the effect on a long queue.
        """
        total = 1 + 2 * self.correlation / -math.expm1(-1 / self.memory_batches)
        return self.cv**2 * total

    def draw(self, generator: np.random.Generator, size: int) -> np.ndarray:
        """Return `size` factors of mean 1, one a batch; a shorter draw is a prefix of a longer one."""
        return self.source(generator)(size)

    def source(self, generator: np.random.Generator) -> Draw:
        """Return a function that draws the next factors, in chunks of any size."""
        if self.shape == "exponential":
            return generator.standard_exponential
        # The logarithm of a lognormal with cv c has variance v = log(1 + c^2); a mean of -v / 2 makes the
        # lognormal's mean 1. The standard draws do not depend on cv, so another cv scales the same noise.
        variance = math.log1p(self.cv**2)
        normal = self._lasting(generator) if self.correlation else generator.standard_normal
        return lambda size: np.exp(math.sqrt(variance) * normal(size) - variance / 2)

    def _lasting(self, generator: np.random.Generator) -> Draw:
        """Return a function that draws standard normal values with a lasting share."""
        kept = math.exp(-1 / self.memory_batches)  # of the lasting part, from one batch to the next
        share = self.correlation / kept
        last = generator.standard_normal()  # stationary from the first batch on

        def normal(size: int) -> np.ndarray:
            nonlocal last
            new, white = generator.standard_normal((size, 2)).T
            added = (math.sqrt(1 - kept**2) * new).tolist()
            lasting = np.array([*accumulate(added, lambda value, more: more + kept * value, initial=last)])
            last = float(lasting[-1])
            return math.sqrt(share) * lasting[1:] + math.sqrt(1 - share) * white

        return normal
