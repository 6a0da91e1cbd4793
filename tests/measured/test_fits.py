import re

import numpy as np
import pytest

import batchsim as bs
from batchsim.measured.fits import fit

# ResNet-50 in TensorRT on a T4, from `bs.published`: concave at first, then straight.
CURVED = {1: 2.08, 2: 2.65, 4: 2.85, 8: 3.29, 16: 5.2, 32: 9.9, 64: 19.5}


def errors(service, times_ms):
    return np.array([service(size) * 1000 / ms - 1 for size, ms in times_ms.items()])


def test_a_straight_line_is_found_exactly():
    found = fit({size: 2 + 0.5 * size for size in (1, 3, 8, 64)})
    assert found.service.fixed_ms == pytest.approx(2)
    assert found.service.per_item_ms == pytest.approx(0.5)
    assert found.worst_error == pytest.approx(0, abs=1e-9)


def test_no_other_line_has_smaller_relative_squares():
    best = fit(CURVED).service
    least = (errors(best, CURVED) ** 2).sum()
    for fixed, per_item in ((1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99)):
        other = bs.Affine(best.fixed_ms * fixed, best.per_item_ms * per_item)
        assert (errors(other, CURVED) ** 2).sum() > least


@pytest.mark.parametrize(
    ("times_ms", "expected"),
    [({1: 1.0, 2: 2.5, 4: 6.0}, {"fixed_ms": 0}), ({1: 5.0, 2: 4.0, 4: 3.0}, {"per_item_ms": 0})],
)
def test_costs_are_never_negative(times_ms, expected):
    found = vars(fit(times_ms).service)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("kind", ["affine", "piecewise"])
def test_the_worst_error_is_at_its_size(kind):
    found = fit(CURVED, kind)
    each = errors(found.service, CURVED)
    at = list(CURVED).index(found.worst_size)
    assert found.worst_error == pytest.approx(each[at])
    assert abs(each[at]) == pytest.approx(np.abs(each).max())


def test_a_few_pieces_are_nearer_than_a_line_and_more_are_nearer_still():
    worst = [abs(fit(CURVED, "piecewise", pieces=pieces).worst_error) for pieces in (1, 2, 3, 6)]
    assert abs(fit(CURVED).worst_error) > worst[1]
    assert worst == sorted(worst, reverse=True)
    assert worst[-1] < 0.01


def test_pieces_meet_at_measured_sizes_and_are_as_few_as_do():
    service = fit(CURVED, "piecewise", pieces=2).service
    assert len(service.points_ms) == 3
    assert {size for size, _ in service.points_ms} <= CURVED.keys()
    straight = fit({size: 2.0 + size for size in (1, 2, 4, 8)}, "piecewise").service
    assert [size for size, _ in straight.points_ms] == [1, 8]


def test_pieces_never_fall():
    service = fit({1: 5.6, 2: 2.9, 4: 3.5, 8: 3.4, 16: 6.0}, "piecewise", pieces=4).service
    assert (np.diff([ms for _, ms in service.points_ms]) >= 0).all()


def test_a_fit_says_how_far_off_it_is_and_where():
    text = repr(fit(CURVED))
    assert text.startswith("Fit(Affine(fixed_ms=")
    assert re.search(r"at worst \d+% (above|below) the measured, .* ms for a batch of \d+\)$", text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({1: 2.0},), "a fit must have at least 2 batch sizes, got [1]"),
        (({1: 2.0, 2: 3.0}, "cubic"), "kind must be one of affine, piecewise, got 'cubic'"),
        (({1: 2.0, 2: 3.0}, "piecewise", 0), "pieces must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_fitted_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        fit(*arguments)
