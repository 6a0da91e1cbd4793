"""What a loop passes to a function at an address arrives there, and only that can be passed."""

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import typeof, types

from batchsim.engines.compiled import cells
from batchsim.engines.compiled.jit import compiled_uncached

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="without a compiler there are no addresses")


class Mixed(NamedTuple):
    """Every kind of value that a rule's parameters may have."""

    whole: int
    real: float
    yes: bool
    pair: tuple[float, int]
    wholes: Any
    table: Any
    small: Any


MIXED = Mixed(
    2**63 - 1,
    -0.1,
    True,
    (0.5, -7),
    np.array([3, 5, 8]),
    np.arange(6.0).reshape(2, 3),
    np.array([1, 2, 3], np.uint8),
)


def seen(factor, at):
    space, one = cells.read(at)
    pair, last = one.pair[0] * one.pair[1], one.wholes[2] + one.table[1, 2] + one.small[-1]
    sizes = one.wholes.size + 10 * one.table.shape[0] + 100 * one.table.shape[1] + 1000 * one.small.size
    if factor < 0:
        raise ValueError("a negative factor")
    total = (one.whole - (2**63 - 8)) + one.real + pair + last
    return factor * total + space, np.int64(sizes if one.yes else 0)


RESULT = types.Tuple((types.float64, types.int64))
call_seen = cells.caller(RESULT, types.float64)


@compiled_uncached
def through(address, factor, space, at):
    cells.write_numbers(at, (space,))
    return call_seen(address, (factor,), at)


@pytest.fixture(scope="module")
def address():
    kind = types.CPointer(types.Tuple((types.float64, typeof(MIXED))))
    return cells.address_of(compiled_uncached(seen), RESULT, types.float64, kind)


def test_numbers_tuples_and_arrays_of_any_shape_arrive(address):
    total = 7 - 0.1 - 3.5 + (8 + 5 + 3)
    found = through(address, 2, 0.25, cells.with_space(MIXED, 1))
    assert found == pytest.approx((2 * total + 0.25, 3 + 20 + 300 + 3000))
    found = through(address, 1.0, 0.5, cells.with_space(MIXED._replace(yes=False), 1))
    assert found == pytest.approx((total + 0.5, 0))


def test_an_error_there_is_raised_here(address):
    with pytest.raises(ValueError, match="a negative factor"):
        through(address, -1.0, 0.0, cells.with_space(MIXED, 1))


@pytest.mark.parametrize("value", ["word", None, 1j, np.arange(6).reshape(2, 3).T, ("a", 1)], ids=repr)
def test_what_has_no_cells_is_refused(value):
    with pytest.raises(TypeError, match="numbers and arrays of numbers, got"):
        cells.with_space((1, value), 0)
