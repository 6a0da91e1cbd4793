"""The bases of all exercises, the units of their answers, and the server that most of them use."""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence, Sized
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from batchsim import _check
from batchsim._format import counted
from batchsim.scenario import Affine


class Unit(NamedTuple):
    """The range of a number, also as text, and the units that students confuse it with.

    `others` maps the ratio of another unit to the hint for the right number in that unit.
    """

    must_be: str = ""
    least: float = -math.inf
    most: float = math.inf
    others: Mapping[float, str] = {}

    def impossible(self, number: float) -> bool:
        """Return whether a number is outside the range."""
        return not self.least <= number <= self.most


ABOVE_0 = math.ulp(0.0)
UNITS = {
    "ms": Unit("at least 0 ms", 0, others={
        1e-3: "that is in seconds. How many milliseconds is that?",
        1e3: "that is in microseconds. How many milliseconds is that?",
    }),
    "requests per second": Unit("more than 0 requests per second", ABOVE_0, others={
        1e-3: "that is per millisecond. How many requests per second is that?",
        60: "that is per minute. How many requests per second is that?",
    }),
    "percent": Unit("from 0 to 100 percent", 0, 100, others={
        1e-2: "that is the share as a fraction. How many percent is that?",
    }),
    "from 0 to 1": Unit("from 0 to 1", 0, others={100: "that is in percent: 100 % is 1."}),
}  # fmt: skip
COUNT = Unit("a whole number, at least 1", 1)


def unit_of(asked: str) -> Unit:
    """Return the unit of an exercise's answer.

    >>> unit_of("percent of the pages").must_be
    'from 0 to 100 percent'
    """
    return next((unit for name, unit in UNITS.items() if asked.startswith(name)), COUNT)


# Close to ResNet-50 on an NVIDIA V100 (see notebooks/01-why-batch.ipynb).
SERVICE = Affine(fixed_ms=1.85, per_item_ms=0.15)
SEED = 1


def as_number(answer: Any) -> float:
    """Return an answer as a number. The error for anything else, even a table, is one line.

    >>> as_number("500")
    Traceback (most recent call last):
        ...
    TypeError: the answer must be a number, got the text '500': leave out the quotes
    """
    advice = ""
    if isinstance(answer, str) and re.fullmatch(r"\s*[-+]?[\d.,_]+(e[-+]?\d+)?\s*", answer):
        raise TypeError(f"the answer must be a number, got the text {answer!r:.40}: leave out the quotes")
    if isinstance(answer, (FunctionType, MethodType)):
        advice = ": call it, with brackets"
    holds = isinstance(answer, Sized) and hasattr(answer, "__getitem__") and getattr(answer, "shape", True)
    try:
        if holds and not isinstance(answer, (str, bytes)):
            given, one = counted(len(answer), "value"), "the" if len(answer) == 1 else "one"
            raise TypeError(
                f"{MUST_BE}a number, got {given} ({type(answer).__name__}): take out {one} number"
            )
        return _check.real("the answer", answer)
    except (TypeError, ValueError) as error:
        raise type(error)(textwrap.shorten(str(error), 100, placeholder=" ...") + advice) from None
    except Exception:  # a student's own class may have any __repr__
        raise TypeError(
            f"the answer must be a number, got an object of type {type(answer).__name__}"
        ) from None


MUST_BE = "the answer must be "  # the beginning of a sentence on an answer of another form


class Verdict(NamedTuple):
    """Whether an answer is right, with the reason, or a hint for this answer."""

    right: bool
    text: str

    @property
    def is_try(self) -> bool:
        """Whether the answer has the form that the exercise asks for."""
        return not self.text.startswith(MUST_BE)


# Numbers that typical mistakes lead to, each with the hint about that mistake.
Mistakes = Iterable[tuple[float, str]]
REGISTERED: dict[str, "Exercise"] = {}


class Exercise:
    """A task of a lesson: it judges an answer, and explains the mistake in a wrong one.

    A subclass with a name, such as `class SaturationRate(Number, name="01.1")`, is the lesson's exercise of
    that number.

    Hints come in steps. `judge` explains the mistake in every wrong answer. The second one also lists the
    `parts` of an answer, and the third says where to `look`: a heading of the lesson. Hints never give the
    answer away.
    """

    parts: str
    look: str
    missing = ""  # what to do first, if it is more than to write an answer
    name = ""

    def __init_subclass__(cls, name: str = "") -> None:
        if name:
            cls.name, REGISTERED[name] = name, cls()

    @property
    def asks(self) -> str:
        """The kind of answer: "a class", or "a number (ms)"."""
        raise NotImplementedError

    def is_open(self, answer: Any) -> bool:
        """Return whether an answer is still as the lesson left it."""
        return answer is ...

    def judge(self, answer: Any) -> Verdict:
        """Judge an answer. TypeError or ValueError for one of another type than the exercise asks for."""
        raise NotImplementedError


class Number(Exercise):
    """A question about a number, which `right` computes; `because` and the hints explain it.

    Within 1 %, or the tolerance of the exercise, a number is right, so that rounding does no harm. The hints
    that its unit suffices for, such as "that is in seconds", need not be written for each exercise.
    """

    unit: str
    within = 0.01  # the relative tolerance; 0 for the multiples of `step`
    step = 1.0
    signed = False  # a difference, which may be below 0
    otherwise = ""  # the hint without a known mistake, with {self.name} as the place of a value

    @property
    def asks(self) -> str:
        return f"a {'whole number' if not self.within and self.step == 1 else 'number'} ({self.unit})"

    def judge(self, answer: Any) -> Verdict:
        number, right = as_number(answer), self.right()
        if self.near(number, right) and self.keeps(number):
            return Verdict(True, self.because(right))
        mistake = next((text for value, text in self.mistakes(right) if self.near(number, value)), "")
        return Verdict(False, mistake or self.slip(number, right) or self.hint(number, right))

    def slip(self, answer: float, right: float) -> str:
        """Return the mistake that the unit alone reveals, or ""."""
        unit = unit_of(self.unit)
        must_be = unit.must_be if unit.impossible(answer) and not self.signed else ""
        other = next((hint for times, hint in unit.others.items() if self.near(answer, times * right)), "")
        steps = answer / self.step
        if not (must_be or other or self.within or math.isclose(steps, round(steps), rel_tol=1e-9)):
            must_be = unit.must_be if self.step == 1 else f"a multiple of {self.step:g}"
        return f"{MUST_BE}{must_be}, got {answer:g}." if must_be else other

    def near(self, answer: float, other: float) -> bool:
        """Return whether an answer equals a number, within the tolerance."""
        return abs(answer - other) <= max(self.within, 1e-9) * abs(other)

    def keeps(self, answer: float) -> bool:
        """Return whether an answer that is near keeps what the question asks for, such as "at most"."""
        return True

    def right(self) -> float:
        raise NotImplementedError

    def because(self, right: float) -> str:
        raise NotImplementedError

    def mistakes(self, right: float) -> Mistakes:
        """Yield the numbers that typical mistakes lead to; the first one near an answer gives its hint."""
        return ()

    def hint(self, answer: float, right: float) -> str:
        """Return the hint for any other wrong answer."""
        return self.otherwise.format(self=self)


class Limit(Number):
    """A question about the smallest of some values that keeps a condition, or the largest.

    All are tried: a simulated condition that one value breaks may hold again for the next one.
    """

    within = 0.0
    largest = True
    tried: Sequence[float]

    def keeps(self, answer: float) -> bool:
        raise NotImplementedError

    def right(self) -> float:
        return float((max if self.largest else min)(filter(self.keeps, self.tried)))
