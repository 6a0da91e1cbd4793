"""NumPy's functions of places, whose columns have 64 bits everywhere.

A place has 32 bits in a browser, and NumPy refuses wider ones there. Its counts have 32 bits there, too, so
they would be other columns than elsewhere.
"""

from typing import Any

import numpy as np


def _places(column: Any) -> np.ndarray:
    return np.asarray(column).astype(np.intp, copy=False)


def bincount(column: Any, weights: Any = None, minlength: int = 0) -> np.ndarray:
    """Return how often each whole number occurs, or the sums of its weights.

    >>> bincount([0, 2, 2], minlength=4).tolist()
    [1, 0, 2, 0]
    """
    found = np.bincount(_places(column), weights, minlength)
    return found.astype(np.int64, copy=False) if weights is None else found


def repeat(values: Any, counts: Any) -> np.ndarray:
    """Return each value as often as its count says.

    >>> repeat([5, 7], [2, 1]).tolist()
    [5, 5, 7]
    """
    return np.repeat(values, _places(counts))


def reduceat(function: Any, column: Any, begins: Any, dtype: Any = None) -> np.ndarray:
    """Return the sums, or whatever a ufunc adds up to, from each begin to the next.

    >>> reduceat(np.add, np.array([1, 2, 4]), [0, 2]).tolist()
    [3, 4]
    """
    found: np.ndarray = function.reduceat(column, _places(begins), dtype=dtype)
    return found
