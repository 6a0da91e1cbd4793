"""How long a step of token generation takes, from four whole numbers."""

import dataclasses
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np

from batchsim import _check
from batchsim.scenario.service import Service


class StepCost(NamedTuple):
    """The five numbers of a `StepTime`, in ms."""

    fixed_ms: float
    weights_ms: float
    per_token_ms: float
    per_read_ms: float
    per_pair_ms: float


def step_ms(cost: StepCost, tokens: int, reads: int, pairs: int) -> float:
    """Return the milliseconds of a step.

    Python runs this, and Numba compiles it; both evaluate it in the order in which it is written, each
    product and each sum rounded by itself.
    """
    products_ms = max(cost.weights_ms, cost.per_token_ms * tokens)
    return cost.fixed_ms + products_ms + cost.per_read_ms * reads + cost.per_pair_ms * pairs


@dataclass(frozen=True, repr=False)
class StepTime(Service):
    """A step takes `fixed + max(weights, per_token * tokens) + per_read * reads + per_pair * pairs` ms.

    `tokens` are those of all rows. A row of one token reads the keys that its request holds, and its own:
    their sum is `reads`. A longer row of c tokens after k makes c * k + c (c + 1) / 2 `pairs` of a query
    and a key. Below weights / per_token tokens a step takes as long as reading the model's weights.

    A whole batch (`SizeOrWait`, `AtLeast`) pads prompts to its longest and computes every row to the end,
    unless `ragged`. Needs `tokens` in the scenario.

    >>> step = StepTime(fixed_ms=2, weights_ms=8, per_token_ms=0.1, per_read_ms=0.001, per_pair_ms=0.00001)
    >>> step.ms(tokens=100, pairs=5050)  # a prompt of 100
    12.0505
    >>> step.ms(tokens=1, reads=101)  # its next token
    10.101
    """

    fixed_ms: float
    weights_ms: float
    per_token_ms: float
    per_read_ms: float = 0.0
    per_pair_ms: float = 0.0
    _: KW_ONLY
    ragged: bool = False

    def __post_init__(self) -> None:
        for name in StepCost._fields:
            _check.fix_real(self, name, at_least=0)
        if self.fixed_ms + max(self.weights_ms, self.per_token_ms) <= 0:
            raise ValueError("a step of one token must take longer than 0 ms, got 0")
        _check.instance("ragged", self.ragged, bool, "True or False")
        if self.padding is not None:
            rule = "padded sizes need a service time by batch size, as Affine or Table"
            raise ValueError(f"{rule}, got a StepTime (whole batches are padded unless ragged=True)")
        super().__post_init__()

    @property
    def cost(self) -> StepCost:
        """The five numbers, as `step_ms` takes them."""
        return StepCost(*(float(getattr(self, name)) for name in StepCost._fields))

    def ms(self, tokens: int, reads: int = 0, pairs: int = 0) -> float:
        """Return the mean milliseconds of a step."""
        return step_ms(self.cost, tokens, reads, pairs)

    def __call__(self, batch_size: int) -> float:
        raise TypeError(
            f"a StepTime must be asked by .ms(tokens, reads, pairs), got batch_size={batch_size!r}"
        )

    def scaled(self, factor: float, max_batch_size: int) -> "StepTime":  # type: ignore[override]
        """Return this time multiplied by `factor`, at all sizes; the noise stays."""
        factor = _check.real("factor", factor, above=0)
        return dataclasses.replace(self, **{name: ms * factor for name, ms in self.cost._asdict().items()})

    def table(self, max_batch_size: int) -> np.ndarray:
        raise ValueError(f"a service time by batch size is needed here, got {self!r}")

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={getattr(self, name)!r}" for name in StepCost._fields)
        return f"StepTime({numbers}{', ragged=True' * self.ragged})" + self._suffix()
