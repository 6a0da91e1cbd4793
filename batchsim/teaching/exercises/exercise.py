"""The bases of all exercises, and the server that most of them are about."""

import textwrap
from typing import Any, NamedTuple

from batchsim import _check
from batchsim.scenario import Affine

# Close to ResNet-50 on an NVIDIA V100 (see notebooks/01-why-batch.ipynb).
SERVICE = Affine(fixed_ms=1.85, per_item_ms=0.15)
SEED = 1


class Verdict(NamedTuple):
    """Whether an answer is right, and why, or a hint that is apt to it."""

    right: bool
    text: str


class Exercise:
    """A task of a lesson, which judges an answer and never only says that it is wrong."""

    @property
    def asks(self) -> str:
        """What an answer is: "a class", or "a number (ms)"."""
        raise NotImplementedError

    def is_open(self, answer: Any) -> bool:
        """Return whether an answer is still as the lesson left it."""
        return answer is ...

    def judge(self, answer: Any) -> Verdict:
        """Judge an answer. TypeError or ValueError for one of another type than the exercise asks for."""
        raise NotImplementedError


class Number(Exercise):
    """A question about a number: the answer, which is computed and never written down, why, and hints.

    Within 1 %, or the tolerance of the exercise, a number is right, so that rounding does no harm.
    """

    unit: str
    within = 0.01  # the relative tolerance; 0 for whole numbers

    @property
    def asks(self) -> str:
        return f"a number ({self.unit})"

    def judge(self, answer: Any) -> Verdict:
        try:
            number = _check.real("the answer", answer)
        except (TypeError, ValueError) as error:
            # One line, even if the answer is a whole table.
            raise type(error)(textwrap.shorten(str(error), 100, placeholder=" ...")) from None
        right = self.right()
        correct = self.near(number, right)
        return Verdict(correct, self.because(right) if correct else self.hint(number, right))

    def near(self, answer: float, other: float) -> bool:
        """Return whether an answer is a certain number, within the tolerance."""
        return abs(answer - other) <= self.within * abs(other)

    def right(self) -> float:
        raise NotImplementedError

    def because(self, right: float) -> str:
        raise NotImplementedError

    def hint(self, answer: float, right: float) -> str:
        raise NotImplementedError
