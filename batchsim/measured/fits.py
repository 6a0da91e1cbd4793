"""Formulas for a measured curve, by least relative squares: a straight line, or a few straight pieces."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from batchsim import _check
from batchsim._format import fixed, percent
from batchsim.scenario.service import Affine, Service, Table

KINDS = ("affine", "piecewise")
CLOSE = 0.01  # the worst relative error that needs no further piece


@dataclass(frozen=True, repr=False)
class Fit:
    """A service time fitted to a measured one; `worst_error` is relative, at a batch of `worst_size`.

    The error is positive if the fit is slower.
    """

    service: Service
    worst_error: float
    worst_size: int

    def __repr__(self) -> str:
        side = "above" if self.worst_error > 0 else "below"
        return (
            f"Fit({self.service!r}: at worst {percent(abs(self.worst_error))} {side} the measured, "
            f"{fixed(self.service(self.worst_size) * 1000)} ms for a batch of {self.worst_size})"
        )


def fit(times_ms: Mapping[int, float], kind: str = "affine", pieces: int = 3) -> Fit:
    """Return the service time of a kind that is nearest to `times_ms`, {batch size: ms}.

    It has the least squares of relative errors; errors in milliseconds would fit only the largest batches.
    "affine" is a fixed cost and a cost per item, both at least 0. "piecewise" is a non-decreasing Table of at
    most `pieces` straight pieces that meet at measured sizes: pieces are added, each at the best size, while
    the worst error is above 1 %.

    >>> found = fit({1: 3.1, 2: 4.0, 8: 9.9})
    >>> round(found.service.fixed_ms, 2), round(found.worst_error, 3), found.worst_size
    (2.11, 0.011, 2)
    """
    _check.one_of("kind", kind, KINDS)
    pieces = _check.whole("pieces", pieces)
    sizes = np.array(sorted(times_ms))
    if sizes.size < 2:
        raise ValueError(f"a fit must have at least 2 batch sizes, got {sizes.tolist()}")
    times = np.array([times_ms[size] for size in sizes.tolist()])
    if kind == "affine":
        fixed_ms, per_item_ms = least(np.column_stack([np.ones(sizes.size), sizes]), times)
        return _judged(Affine(fixed_ms, per_item_ms), sizes, times)
    knots = [sizes[0], sizes[-1]]
    best = _pieces(knots, sizes, times)
    while len(knots) <= pieces and abs(best.worst_error) > CLOSE:
        others = [size for size in sizes if size not in knots]
        if not others:
            break
        tried = [sorted([*knots, size]) for size in others]
        found = [_pieces(each, sizes, times) for each in tried]
        squares = [np.square(_errors(each.service, sizes, times)).sum() for each in found]
        at = int(np.argmin(squares))
        knots, best = tried[at], found[at]
    return best


def _pieces(knots: list[int], sizes: np.ndarray, times: np.ndarray) -> Fit:
    """Return the fit whose pieces meet at `knots`: a start, and non-negative rises from knot to knot."""
    rises = [np.clip((sizes - low) / (high - low), 0, 1) for low, high in itertools.pairwise(knots)]
    steps = least(np.column_stack([np.ones(sizes.size), *rises]), times)
    points = {int(size): float(ms) for size, ms in zip(knots, np.cumsum(steps), strict=True)}
    return _judged(Table(points), sizes, times)


def least(columns: np.ndarray, times: np.ndarray) -> list[float]:
    """Return the non-negative factors of the columns with the least relative squares."""
    from scipy.optimize import nnls

    factors, _ = nnls(columns / times[:, None], np.ones(times.size))
    return [float(factor) for factor in factors]


def _errors(service: Service, sizes: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.array([service(int(size)) * 1000 for size in sizes]) / times - 1


def _judged(service: Service, sizes: np.ndarray, times: np.ndarray) -> Fit:
    errors = _errors(service, sizes, times)
    worst = int(np.argmax(np.abs(errors)))
    return Fit(service, float(errors[worst]), int(sizes[worst]))
