"""Ranges of knobs, and an adaptive search of them: a coarse sample, then steps around the best that shrink.

The runs are those of a search (`batchsim.study.search`), which then starts with the settings tried here.
The search is a heuristic: it finds a local optimum of noisy values, and states nothing about settings that it
did not try.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim import _check
from batchsim.study.candidate import Candidate
from batchsim.study.grid import Grid, Points
from batchsim.study.search import Search

STEPS = 64  # of a range, at most: the finest step
COARSE = 16  # steps between the values of the first sample
SAMPLE = 64  # settings of the first sample, at most
AROUND = 3  # of the best settings, each is stepped from
TRIED = 400  # settings, at most
SCALES = ("linear", "log")


@dataclass(frozen=True)
class Range:
    """All values of a knob from `low` to `high`, whole numbers if both are; "log" has even ratios.

    >>> [Range(1, 256, scale="log").at(step) for step in (0, 16, 32, 64)]
    [1, 4, 16, 256]
    """

    low: float
    high: float
    scale: str = "linear"

    def __post_init__(self) -> None:
        _check.one_of("scale", self.scale, SCALES)
        low = _check.real("low", self.low)
        _check.real("high", self.high, above=low)
        if self.scale == "log":
            _check.real("low of a log range", self.low, above=0)

    def at(self, step: int) -> float:
        """Return the value at a step, 0 for the lowest and 64 for the highest."""
        part = step / STEPS
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** part
        else:
            value = self.low + (self.high - self.low) * part
        if isinstance(self.low, int) and isinstance(self.high, int):
            return round(value)
        return self.low if step == 0 else self.high if step == STEPS else float(f"{value:.3g}")


Place = tuple[int, ...]


Tried = dict[str, tuple[dict[str, Any], Candidate | ValueError]]


def explored(
    over: Mapping[str, Any], search: Search, make: Callable[[dict[str, Any]], Candidate | ValueError],
    tried: Tried,
) -> None:  # fmt: skip
    """Try settings of some ranges; add each to `tried`, with its knobs.

    `make` returns the candidate of some knobs, or an error if the scenario refuses them.
    """
    axes = {name: each if isinstance(each, Range) else list(each) for name, each in over.items()}
    tops = [STEPS if isinstance(each, Range) else len(each) - 1 for each in axes.values()]
    places: dict[Candidate, Place] = {}

    def knobs(place: Place) -> dict[str, Any]:
        pairs = zip(axes.items(), place, strict=True)
        return {name: each.at(at) if isinstance(each, Range) else each[at] for (name, each), at in pairs}

    def attempt(some: Sequence[Place]) -> None:
        new = []
        for place in some:
            setting = knobs(place)
            if (key := repr(setting)) in tried or len(tried) >= TRIED:
                continue
            candidate = make(setting)
            tried[key] = setting, candidate
            if isinstance(candidate, Candidate):
                places[candidate] = place
                new.append(candidate)
        search.candidates = [*places]
        search.run([each for each in new if each.scenario.stable], search.few)

    def best() -> list[Candidate]:
        def order(each: Candidate) -> tuple[float, ...]:
            excess, *rest = each.rank
            return excess, 0 if search.prefer == "fastest" else each.cost, *rest

        return sorted((each for each in places if each.searched.requests), key=order)[:AROUND]

    attempt(_sample(axes, tops, search.traffic.seed))
    step = COARSE // 2
    while step and len(tried) < TRIED:
        before = best()[:1]
        attempt([near for each in best() for near in _around(places[each], tops, [*axes.values()], step)])
        if best()[:1] == before:
            step //= 2


def _sample(axes: Mapping[str, Any], tops: Sequence[int], seed: int) -> list[Place]:
    """Return coarse places: all of them, or a random sample in which each axis is even."""
    coarse = [
        list(range(0, top + 1, COARSE if isinstance(each, Range) else 1))
        for each, top in zip(axes.values(), tops, strict=True)
    ]
    if math.prod(map(len, coarse)) <= SAMPLE:
        return [*itertools.product(*coarse)]
    generator = np.random.default_rng(seed)
    columns = [generator.permutation(np.resize(each, SAMPLE)).tolist() for each in coarse]
    return [*zip(*columns, strict=True)]


def _around(place: Place, tops: Sequence[int], axes: Sequence[Any], step: int) -> Iterator[Place]:
    for axis, (at, top) in enumerate(zip(place, tops, strict=True)):
        by = step if isinstance(axes[axis], Range) else 1
        for other in (at - by, at + by):
            if 0 <= other <= top:
                yield (*place[:axis], other, *place[axis + 1 :])


def ends_of(over: Any) -> Any:
    """Return the axes with the ends of each range instead of it."""
    if not has_ranges(over):
        return over
    return {name: [each.low, each.high] if isinstance(each, Range) else each for name, each in over.items()}


def check_ends(over: Any, grid: Grid | Points, entries: Sequence[Candidate | ValueError]) -> None:
    """Raise if the scenario refuses an end of a range with all values of the other knobs."""
    for name, each in over.items():
        for end in (each.low, each.high) if isinstance(each, Range) else ():
            of_end = [entries[place] for place in range(len(grid)) if grid.knobs(place)[name] == end]
            if all(isinstance(entry, ValueError) for entry in of_end):
                rule = f"both ends of a range of {name} must be possible, got {each.low!r} to {each.high!r}"
                raise ValueError(f"{rule}: {of_end[0]}")


def has_ranges(over: Any) -> bool:
    """Return whether any of the axes is a range."""
    return isinstance(over, Mapping) and any(isinstance(each, Range) for each in over.values())
