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
parts' spread follows how many independent requests would say as much, and from these the exact
binomial (Clopper-Pearson) interval of the fraction (Korn and Graubard 1998).
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from batchsim import _check, figures
from batchsim.figures import COUNTS, GIVEN, Parts, percentile_of

if TYPE_CHECKING:
    from batchsim.result import Result

MANY, FEW, FINE = 16, 8, 64  # sections: for the interval, for a resembling run, to see whether it does
TOO_ALIKE = 0.75  # the correlation of neighbours among the 64, from which even 8 sections are too short
ROUNDING = 1e-9
A_PART, BEYOND = 40, 5  # requests that a part of the run needs, and those of them beyond a percentile
INDEPENDENT = 2  # requests that a percentile needs on its rarer side


def interval(result: "Result", key: str, level: float = 0.95) -> tuple[float, float]:
    """Return (low, high) for a number of a result's summary; see `Result.interval`."""
    key = figures.check_key(key)
    level = check_level(level)
    if key in GIVEN:
        value = float(result.summary()[key])
        return value, value
    return interval_of(key, level, [result])


def interval_of(key: str, level: float, results: Sequence["Result"]) -> tuple[float, float]:
    """Return the interval of one result's number, or of how far the second's is above the first's."""
    try:
        if not results[0].runs and any(result.columns is None for result in results):
            raise TooShort("needs columns or replications, got one run with keep='summary'")
        return _interval(key, level, results)
    except TooShort as why:
        _check.warn(f"an interval for {key} {why}")
        return math.nan, math.nan


def check_level(level: float) -> float:
    """Return the confidence level, or raise."""
    level = _check.real("level", level, above=0)
    if level >= 1:
        raise ValueError(f"level must be less than 1, got {level!r}")
    return level


class TooShort(Exception):
    """Why there is no interval."""


def _interval(key: str, level: float, results: Sequence["Result"]) -> tuple[float, float]:
    wholes, q = [result.figures for result in results], percentile_of(key)
    check_long_enough(key, results)
    if q is not None and len(wholes) == 1:
        return _of_percentile(q, level, results[0])
    if q is not None:
        # A percentile of a part is off by as much as the fraction below it, times the slope there.
        at_ms = [whole.percentile(q) for whole in wholes]
        slopes = [_slope(q, result) for result in results]

        def measure(parts: Sequence[Parts]) -> np.ndarray:
            off = [
                slope * (q / 100 - _fraction(part, ms))
                for part, ms, slope in zip(parts, at_ms, slopes, strict=True)
            ]
            return off[1] - off[0]

        whole, centre = at_ms[1] - at_ms[0], 0.0
    else:

        def measure(parts: Sequence[Parts]) -> np.ndarray:
            return parts[-1].numbers[key] - (parts[0].numbers[key] if len(parts) > 1 else 0.0)

        values = [each.number(key) for each in wholes]
        whole = centre = values[-1] - (values[0] if len(values) > 1 else 0.0)
    spread, widened = spread_of(results, measure)
    if key in COUNTS:  # a part holds a part of them
        spread = spread * spread.size
    half = students_t(level, spread.size) * widened * standard_error(spread, centre)
    low = whole - half
    return (max(low, 0.0) if len(wholes) == 1 else low), whole + half  # no number of a summary is negative


def check_long_enough(key: str, results: Sequence["Result"]) -> None:
    """Raise unless every part has the requests and batches that the number needs."""
    q, runs = percentile_of(key), len(results[0].runs)
    rarer = 0.5 if q is None else min(q, 100 - q) / 100
    if not rarer:
        raise TooShort("cannot be given: the extremes of a longer run lie further out")
    requests = max(A_PART, math.ceil(BEYOND / rarer - 1e-9))
    for result in results:
        totals = result.figures.totals
        for what, needed, got in (
            ("served requests", requests, result.figures.served),
            ("batches", BEYOND, totals.batches),
        ):
            if got < needed * (runs or FEW):
                raise TooShort(f"needs at least {needed * (runs or FEW):,} {what}, got {got:,}")


def spread_of(
    results: Sequence["Result"], measure: Callable[[Sequence[Parts]], np.ndarray]
) -> tuple[np.ndarray, float]:
    """Return what is measured of each part, and by how much their resemblance widens an interval."""

    def measured(parts: Sequence[Parts]) -> np.ndarray:
        values = measure(parts)
        if not np.isfinite(values).all():
            raise TooShort("needs a number from every part of the run, got none from some")
        return values

    if results[0].runs:
        return measured([Parts.of_runs([run.figures for run in result.runs]) for result in results]), 1.0
    sections = [result.sections for result in results]
    if _resemblance(measured(sections)) > TOO_ALIKE:
        raise TooShort(
            "needs sections that do not resemble their neighbours: "
            "the run is too short for its load, or it drifts (see over_time)"
        )
    values = measured([of_run.joined(MANY) for of_run in sections])
    if _resemble(values):
        values = measured([of_run.joined(FEW) for of_run in sections])
    alike = min(max(_resemblance(values) + 1 / values.size, 0.0), 0.9)  # + 1/n: it is too low by as much
    return values, math.sqrt((1 + alike) / (1 - alike))


def _fraction(parts: Parts, ms: float) -> np.ndarray:
    # Many latencies can be one, such as a wait and a batch after it, but for the floats' rounding.
    return parts.within(ms * (1 + ROUNDING)) / np.maximum(parts.served, 1)


def _of_percentile(q: float, level: float, result: "Result") -> tuple[float, float]:
    """Return the interval of a percentile, from that of the fraction of requests below it."""
    whole, below = result.figures, q / 100
    error, parts = _error_of_fraction(q, result)
    independent = min(below * (1 - below) / error**2 if error else math.inf, float(whole.served))
    rarer = independent * min(below, 1 - below)
    if rarer < INDEPENDENT:
        raise TooShort(
            f"needs at least {INDEPENDENT} independent requests beyond the percentile, "
            f"got about {rarer:.1f}: slow requests come in clusters, take more of them"
        )
    low, high = binomial(below, independent, parts, level)
    return whole.percentile(100 * low), whole.percentile(100 * high)


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


def _error_of_fraction(q: float, result: "Result") -> tuple[float, int]:
    """Return the standard error of the fraction of requests below a percentile, from so many parts."""
    whole, at_ms = result.figures, result.figures.percentile(q)
    spread, widened = spread_of([result], lambda parts: _fraction(parts[0], at_ms))
    return widened * standard_error(spread, whole.within(at_ms * (1 + ROUNDING)) / whole.served), spread.size


def _slope(q: float, result: "Result") -> float:
    """Return by how many ms the latency rises with the fraction of requests below it."""
    error, _ = _error_of_fraction(q, result)
    low, high = max(q / 100 - error, 0.0), min(q / 100 + error, 1.0)
    rise_ms = result.figures.percentile(100 * high) - result.figures.percentile(100 * low)
    return rise_ms / (high - low) if high > low else 0.0


def standard_error(values: np.ndarray, centre: float) -> float:
    """Return the standard error of the mean of parts, about what all of them together give."""
    return math.sqrt(float(((values - centre) ** 2).sum()) / (values.size - 1) / values.size)


def students_t(level: float, parts: float) -> float:
    """Return Student's t for a two-sided interval from so many parts."""
    from scipy.special import ndtri, stdtrit

    upper = (1 + level) / 2
    return float(ndtri(upper) if math.isinf(parts) else stdtrit(parts - 1, upper))


def _resemblance(values: np.ndarray) -> float:
    """Return the correlation of neighbours; 0 if all are the same but for the floats' rounding."""
    above = values - values.mean()
    square = float((above**2).sum())
    return float((above[1:] * above[:-1]).sum()) / square if square > _rounding(values) else 0.0


def _rounding(values: np.ndarray) -> float:
    """Return a sum of squares so small that only rounding is in it."""
    return float((values**2).sum()) * 1e-20


def _resemble(values: np.ndarray) -> bool:
    """Return whether neighbours are too alike for independence, by von Neumann's ratio at 20 %."""
    count, square = values.size, float(((values - values.mean()) ** 2).sum())
    if square <= _rounding(values):
        return False
    ratio = float((np.diff(values) ** 2).sum()) / square
    return ratio < 2 - 0.8416 * math.sqrt(4 * (count - 2) / (count**2 - 1))
