"""The units of answers: what no number of a unit can be, and which other units are taken for it."""

import math
from collections.abc import Mapping
from typing import NamedTuple


class Unit(NamedTuple):
    """The range of a number, also as text, and the units that it is mistaken for.

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
