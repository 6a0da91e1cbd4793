"""How sure a number is: its interval.

One run is cut into sections of equally many requests (batch means; "sections", because a batch is
something else here). The same number is computed from each section, and from all; the interval is
centred on the latter, with the spread of the former and Student's t ("sectioning": Asmussen and
Glynn, Stochastic Simulation, 2007, III.5a). Sections are independent only if they are long: 16 are
taken, 8 if neighbours of the 16 still resemble each other (von Neumann's test), what resemblance
is left widens the interval (as in Skart: Tafazzoli, Steiger and Wilson 2011), and where 64
sections show that even 8 would be too short, there is none. Replications are parts as well, and
independent.

A percentile's interval is the one in which the fraction of the requests below it may lie: from the
parts' spread follows how many independent requests would say as much (no more than of the median),
and from these the exact binomial (Clopper-Pearson) interval of the fraction (Korn and Graubard 1998).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchsim import _check
from batchsim.result import metrics
from batchsim.result.metrics import COUNTS, GIVEN, Metrics, Parts, percentile_of

if TYPE_CHECKING:
    from batchsim.result import Result

MANY, FEW, FINE = 16, 8, 64  # sections: for the interval, for a resembling run, to see whether it does
TOO_ALIKE = 0.75  # the correlation of neighbours among the 64, from which even 8 sections are too short
ROUNDING = 1e-9
A_PART, BEYOND = 40, 5  # requests that a part of the run needs, and those of them beyond a percentile
INDEPENDENT = 5  # requests that a percentile needs on its rarer side
MEDIAN = "p50_ms"


def interval(result: "Result", key: str, level: float = 0.95) -> tuple[float, float]:
    """Return (low, high) for a number of a result's summary; see `Result.interval`."""
    return intervals(result, [key], level)[key]


def intervals(result: "Result", keys: Sequence[str], level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return the intervals of several numbers, found together."""
    names, level = {key: metrics.check_key(key) for key in keys}, check_level(level)
    measured = list(dict.fromkeys(name for name in names.values() if name not in GIVEN))
    found = _told(measured, _estimates([result], measured, level))
    for name in set(names.values()) & set(GIVEN):
        found[name] = (float(result.summary()[name]),) * 2
    return {key: found[name] for key, name in names.items()}


def differences(
    results: Sequence["Result"], keys: Sequence[str], level: float
) -> dict[str, tuple[float, float]]:
    """Return the intervals of how far the second result's numbers are above the first's."""
    return _told(keys, _estimates(results, keys, level))


def _told(
    keys: Sequence[str], found: Sequence["tuple[float, float] | TooShort"]
) -> dict[str, tuple[float, float]]:
    for key, each in zip(keys, found, strict=True):
        if isinstance(each, TooShort):
            _check.warn(f"an interval for {key} {each}")
    nothing = (math.nan, math.nan)
    return {
        key: nothing if isinstance(each, TooShort) else each for key, each in zip(keys, found, strict=True)
    }


def check_level(level: float) -> float:
    """Return the confidence level, or raise."""
    level = _check.real("level", level, above=0)
    if level >= 1:
        raise ValueError(f"level must be less than 1, got {level!r}")
    return level


class TooShort(Exception):
    """Why there is no interval."""


Error = tuple[float, int] | TooShort  # a standard error and from how many parts it is, or why there is none


@dataclass(frozen=True)
class Quantity:
    """Something to measure of each part of a run, or of two, and what all of them together give."""

    of_parts: Callable[[Sequence[Parts]], np.ndarray]
    whole: float


def _estimates(
    results: Sequence["Result"], keys: Sequence[str], level: float
) -> list[tuple[float, float] | TooShort]:
    """Return the interval of each number, or of its difference, or why there is none."""
    found: dict[str, tuple[float, float] | TooShort] = {}
    quantities: dict[str, Quantity] = {}
    for key in keys:
        try:
            if not results[0].runs and any(result.columns is None for result in results):
                raise TooShort("needs columns or replications, got one run with keep='summary'")
            check_steady(results)
            check_long_enough(key, results)
            quantities[key] = _quantity(key, results)
            if percentile_of(key) is not None and len(results) == 1:
                quantities[MEDIAN] = _quantity(MEDIAN, results)
        except TooShort as why:
            found[key] = why
    known = dict(zip(quantities, errors(results, list(quantities.values())), strict=True))
    for key, error in known.items():
        try:
            found[key] = _interval(key, level, results, error, known.get(MEDIAN))
        except TooShort as why:
            found[key] = why
    return [found[key] for key in keys]


def _quantity(key: str, results: Sequence["Result"]) -> Quantity:
    """Return what to measure for a number: of a percentile, the fraction of the requests below it."""
    wholes, q = [result.metrics for result in results], percentile_of(key)
    if q is None:

        def number(parts: Sequence[Parts]) -> np.ndarray:
            values = parts[-1].numbers[key] - (parts[0].numbers[key] if len(parts) > 1 else 0.0)
            return values * values.size if key in COUNTS else values  # a part holds a part of them

        whole = wholes[-1].number(key) - (wholes[0].number(key) if len(wholes) > 1 else 0.0)
        return Quantity(number, whole)
    fractions = [_fraction_below(whole.percentile(q), whole) for whole in wholes]
    if len(wholes) == 1:
        return fractions[0]
    # A percentile of a part is off by as much as the fraction below it, times the slope there.
    a, b = fractions
    slope_a, slope_b = (
        _slope(q, result, fraction) for result, fraction in zip(results, fractions, strict=True)
    )

    def off(parts: Sequence[Parts]) -> np.ndarray:
        off_a = slope_a * (a.whole - a.of_parts(parts[:1]))
        return slope_b * (b.whole - b.of_parts(parts[1:])) - off_a

    return Quantity(off, 0.0)


def _fraction_below(ms: float, whole: Metrics) -> Quantity:
    # Many latencies can be one, such as a wait and a batch after it, but for the floats' rounding.
    ms *= 1 + ROUNDING
    return Quantity(
        lambda parts: parts[0].within(ms) / np.maximum(parts[0].served, 1),
        whole.latencies.within(ms) / whole.served,
    )


def _interval(
    key: str, level: float, results: Sequence["Result"], error: Error, of_median: Error | None
) -> tuple[float, float]:
    if isinstance(error, TooShort):
        raise error
    (standard_error, parts), q = error, percentile_of(key)
    if q is not None and len(results) == 1:
        return _of_percentile(q, level, results[0], standard_error, parts, of_median)
    half = students_t(level, parts) * standard_error
    values = [result.metrics.number(key) for result in results]
    if len(values) == 2:
        return values[1] - values[0] - half, values[1] - values[0] + half
    most = 1.0 if key == "utilisation" or key.endswith("_share") else math.inf
    return max(values[0] - half, 0.0), min(values[0] + half, most)


def _of_percentile(
    q: float, level: float, result: "Result", standard_error: float, parts: int, of_median: Error | None
) -> tuple[float, float]:
    whole, below = result.metrics, q / 100
    independent = effective(below, standard_error, whole.served)
    if not result.runs:
        # A short run that by luck has seen no cluster of slow requests knows less of them than it shows.
        # The median tells more surely how many requests are worth one: a percentile knows no more.
        if isinstance(of_median, TooShort):
            raise of_median
        assert of_median is not None
        by_median = effective(0.5, of_median[0], whole.served)
        independent = min(independent, by_median)
        rarer = by_median * min(below, 1 - below)
        if rarer < INDEPENDENT:
            raise TooShort(
                f"needs at least {INDEPENDENT} independent requests beyond the percentile, "
                f"got about {rarer:.1f}: neighbours are alike, take more of them"
            )
    low, high = binomial(below, independent, parts, level)
    return whole.percentile(100 * low), whole.percentile(100 * high)


def check_steady(results: Sequence["Result"]) -> None:
    """Raise for one run of traffic that drifts: none of its parts stands for the others."""
    (result, *others) = results
    if not others and not result.runs and result.rate_range_per_s is not None:
        low, high = result.rate_range_per_s
        raise TooShort(
            f"needs traffic that stays the same, got a rate that drifts from {low:.4g}/s to {high:.4g}/s: "
            "see over_time, or take replications"
        )


def check_long_enough(key: str, results: Sequence["Result"]) -> None:
    """Raise unless every part has the requests and batches that the number needs."""
    q, runs = percentile_of(key), len(results[0].runs)
    rarer = 0.5 if q is None else min(q, 100 - q) / 100
    if not rarer:
        raise TooShort("cannot be given: the extremes of a longer run lie further out")
    requests = max(A_PART, math.ceil(BEYOND / rarer - 1e-9))
    for result in results:
        totals = result.metrics.totals
        for what, needed, got in (
            ("served requests", requests, result.metrics.served),
            ("batches", BEYOND, totals.batches),
        ):
            if got < needed * (runs or FEW):
                raise TooShort(f"needs at least {needed * (runs or FEW):,} {what}, got {got:,}")


def errors(results: Sequence["Result"], quantities: Sequence[Quantity]) -> list[tuple[float, int] | TooShort]:
    """Return the standard error of each quantity, and from how many parts it is; or why there is none."""
    if not quantities:
        return []
    centres = np.array([quantity.whole for quantity in quantities])

    def measured(parts: Sequence[Parts]) -> np.ndarray:
        return np.array([quantity.of_parts(parts) for quantity in quantities])

    def spread(values: np.ndarray) -> np.ndarray:
        count = values.shape[1]
        return np.sqrt(((values - centres[:, None]) ** 2).sum(axis=1) / (count - 1) / count)

    missing = TooShort("needs a number from every part of the run, got none from some")
    if results[0].runs:  # replications resemble nothing
        values = measured([Parts.of_runs([run.metrics for run in result.runs]) for result in results])
        there = np.isfinite(values).all(axis=1) & np.isfinite(centres)
        found = zip(there, spread(values), strict=True)
        return [(float(error), values.shape[1]) if whole else missing for whole, error in found]
    sections = [result.sections for result in results]
    fine, many = measured(sections), measured([of_run.joined(MANY) for of_run in sections])
    there = np.isfinite(fine).all(axis=1) & np.isfinite(centres)
    resemblance, longer = _resemblance(fine), _resemble(many)
    error, parts = spread(many) * _widened(many), np.where(longer, FEW, MANY)
    if longer.any():
        few = measured([of_run.joined(FEW) for of_run in sections])
        error = np.where(longer, spread(few) * _widened(few), error)
    alike = TooShort(
        "needs sections that do not resemble their neighbours: "
        "the run is too short for its load, or it drifts (see over_time)"
    )
    return [
        missing
        if not there[row]
        else alike
        if resemblance[row] > TOO_ALIKE
        else (float(error[row]), int(parts[row]))
        for row in range(len(quantities))
    ]


def effective(share: float, standard_error: float, most: int) -> float:
    """Return how many independent requests would know a share as well."""
    return min(share * (1 - share) / standard_error**2 if standard_error else math.inf, float(most))


def binomial(share: float, independent: float, parts: int, level: float) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a share of so many independent requests.

    Their number was found from the spread of so many parts, and is itself not certain.
    """
    from scipy.special import betaincinv

    independent *= (students_t(level, math.inf) / students_t(level, parts)) ** 2
    at, tail = independent * share, (1 - level) / 2
    low = float(betaincinv(at, independent - at + 1, tail)) if share > 0 else 0.0
    high = float(betaincinv(at + 1, independent - at, 1 - tail)) if share < 1 else 1.0
    return low, high


def _slope(q: float, result: "Result", fraction: Quantity) -> float:
    """Return by how many ms the latency rises with the fraction of requests below it."""
    (error,) = errors([result], [fraction])
    if isinstance(error, TooShort):
        raise error
    low, high = max(q / 100 - error[0], 0.0), min(q / 100 + error[0], 1.0)
    rise_ms = result.metrics.percentile(100 * high) - result.metrics.percentile(100 * low)
    return rise_ms / (high - low) if high > low else 0.0


def students_t(level: float, parts: float) -> float:
    """Return Student's t for a two-sided interval from so many parts."""
    from scipy.special import ndtri, stdtrit

    upper = (1 + level) / 2
    return float(ndtri(upper) if math.isinf(parts) else stdtrit(parts - 1, upper))


# Each of these is of the parts along the last axis.


def _widened(values: np.ndarray) -> np.ndarray:
    """Return by how much what is left of resemblance widens an interval."""
    alike = np.clip(_resemblance(values) + 1 / values.shape[1], 0.0, 0.9)  # + 1/n: it is too low by as much
    return np.sqrt((1 + alike) / (1 - alike))


def _resemblance(values: np.ndarray) -> np.ndarray:
    """Return the correlation of neighbours; 0 if all are the same but for the floats' rounding."""
    above = values - values.mean(axis=-1, keepdims=True)
    square = (above**2).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = (above[..., 1:] * above[..., :-1]).sum(axis=-1) / square
    return np.where(square > _rounding(values), alike, 0.0)


def _rounding(values: np.ndarray) -> np.ndarray:
    """Return a sum of squares so small that only rounding is in it."""
    return (values**2).sum(axis=-1) * 1e-20


def _resemble(values: np.ndarray) -> np.ndarray:
    """Return whether neighbours are too alike for independence, by von Neumann's ratio at 20 %."""
    count = values.shape[-1]
    square = ((values - values.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    ratio = (np.diff(values, axis=-1) ** 2).sum(axis=-1)
    least = 2 - 0.8416 * math.sqrt(4 * (count - 2) / (count**2 - 1))
    return (square > _rounding(values)) & (ratio < least * square)
