"""The five numbers of a `StepTime` that are nearest to measured steps, by relative error."""

from collections.abc import Sequence
from typing import Any

import numpy as np

COLUMNS = ("tokens", "reads", "pairs")
KINKS = 48  # tried between the fewest and the most tokens of a step; the best are refined
FINEST = 1e-5  # part of the kink


def fitted(steps: Any, ms: Any) -> list[float]:
    """Return the five numbers nearest to measured steps: see `StepTime.fit`.

    For a given kink, the number of tokens from which on arithmetic takes longer than reading the weights, the
    time is linear in the four other numbers: non-negative least squares of the relative errors. The kink
    itself is searched.
    """
    from scipy.optimize import minimize_scalar, nnls  # a quarter of a second

    rows, times_ms, of = measured(steps, ms)
    tokens = rows[:, 0]

    def relative(column: np.ndarray) -> np.ndarray:
        return np.bincount(of, column) / times_ms

    steady = [relative(column) for column in (np.ones(tokens.size), rows[:, 1], rows[:, 2])]

    def solved(kink: float) -> tuple[float, np.ndarray]:
        columns = np.column_stack([steady[0], relative(np.maximum(tokens, kink)), *steady[1:]])
        scale = np.maximum(columns.max(axis=0), 1e-300)  # tokens and pairs differ by many orders
        # As far from 1 as the triangle is from its last column: five rows in place of thousands.
        triangle: Any = np.linalg.qr(np.column_stack([columns / scale, np.ones(times_ms.size)]), mode="r")
        factors, rest = nnls(triangle[:, :-1], triangle[:, -1])
        return rest, factors / scale

    low, high = float(tokens.min()), float(tokens.max())
    tried = np.geomspace(low, high, KINKS) if high > low else np.array([high])
    found = [(solved(kink)[0], kink) for kink in tried.tolist()]
    # With few steps there are several valleys between their numbers of tokens.
    for at in range(1, tried.size - 1):
        if found[at][0] <= min(found[at - 1][0], found[at + 1][0]):
            between, options = (tried[at - 1], tried[at + 1]), {"xatol": FINEST * tried[at]}
            best = minimize_scalar(lambda x: solved(x)[0], bounds=between, method="bounded", options=options)
            found.append((float(best.fun), float(best.x)))
    kink = min(found)[1]
    fixed, per_token, per_read, per_pair = solved(kink)[1].tolist()
    return [fixed, per_token * kink, per_token, per_read, per_pair]


def measured(steps: Any, ms: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the whole numbers of steps, what was measured, and to which of these each step belongs.

    Arrays of shape (steps, 3), (measurements,) and (steps,). Raises ValueError or TypeError for what are no
    measured steps.
    """
    several = isinstance(steps, Sequence) and not isinstance(steps, (str, bytes))
    parts = [_columns(part) for part in (steps if several else [steps])]
    if not parts or not all(part.size for part in parts):
        raise ValueError("steps must not be empty, got none")
    rows = np.concatenate(parts)
    if several:
        if ms is None:
            raise ValueError("ms must be given, the time of each of these lists of steps, got None")
        of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    else:
        ms, of = _own_ms(steps) if ms is None else ms, np.arange(len(rows))
    times_ms = np.asarray(ms, float)
    if times_ms.shape != (of[-1] + 1,):
        raise ValueError(f"ms must have a time for each of {of[-1] + 1:,}, got shape {times_ms.shape}")
    for bad in np.flatnonzero(~((times_ms > 0) & np.isfinite(times_ms))):
        raise ValueError(f"ms must be above 0, got {times_ms[bad]} at index {bad}")
    return rows, times_ms, of


def _columns(steps: Any) -> np.ndarray:
    columns = []
    for name in COLUMNS:
        column = np.asarray(_column(steps, name), float)
        least = 1 if name == "tokens" else 0
        for bad in np.flatnonzero(~((column >= least) & np.isfinite(column))):
            raise ValueError(f"{name} of a step must be at least {least}, got {column[bad]} at index {bad}")
        columns.append(column)
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        raise ValueError(f"steps must have columns of one length, got {[c.shape for c in columns]}")
    return np.column_stack(columns)


def _column(steps: Any, name: str) -> Any:
    """Return a column of `Result.steps`, of a mapping or of a DataFrame."""
    try:
        return steps[name] if hasattr(steps, "keys") else getattr(steps, name)
    except (AttributeError, KeyError):
        rule = f"steps must have columns {', '.join(COLUMNS)}, as Result.steps has"
        raise TypeError(f"{rule}, got {type(steps).__name__} without {name}") from None


def _own_ms(steps: Any) -> Any:
    if hasattr(steps, "keys") and "ms" in steps:
        return steps["ms"]
    finish, start = (np.asarray(_column(steps, f"{end}_s"), float) for end in ("finish", "start"))
    return (finish - start) * 1000
