"""The view of requests with sizes: batches with their padding, and the latency by size."""

import numpy as np
import pytest
from pictures import drawn, names_of

import batchsim as bs
from batchsim._format import percent
from batchsim.result.distributions import latency_by_size
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.sizes import SizesView

SIZES = bs.Lognormal(80, cv=1, at_most=512)
RULE = bs.SizeOrWait(16, 20)
PADDED = bs.PaddedTime(5, 0.25, 0.01)


def run(service=PADDED, rule=RULE, **more):
    return bs.simulate(bs.Scenario(bs.Poisson(150).with_sizes(SIZES), rule, service, **more), 2000)


def test_a_plot_and_a_live_picture_have_the_view_if_requests_have_sizes():
    sized, plain = run(), bs.simulate(bs.Scenario(bs.Poisson(150), RULE, bs.Affine(5, 0.25)), 500)
    picture = bs.plot(sized)
    assert [*picture.views].count("sizes") == 1
    assert "sizes" not in bs.plot(plain).views
    assert "of the tokens that batches compute are padding" in picture.words
    for parts in (("sizes",), ()):
        assert ("sizes" in LivePicture(parts=parts).views) == bool(parts)


def test_beside_the_batches_is_the_latency_by_size_with_that_of_the_other_setting():
    data = ViewData(run(), before=ViewData(run(rule=bs.SizeOrWait(2, 20))))
    view = drawn(SizesView, data)
    for q in (50, 99):
        values, shares, _ = view.shown[f"p{q}"].get_data()
        np.testing.assert_array_equal(values, latency_by_size(data.result, [q])[0][0])
        assert (shares[0], shares[-1]) == (0, 100)
    of_other, edges, _ = latency_by_size(data.before.result, [99])
    np.testing.assert_array_equal(view.shown["other"].get_data().values, of_other[0])
    np.testing.assert_array_equal(view.shown["other"].get_data().edges, edges)
    assert "padding" in view.shown
    assert names_of(view.ax) == ["requests", "padding"]
    assert view.shown["share"].get_text() == f"{percent(data.summary['padding'])} padding"


SMALL_ONLY = {"rule": bs.SizeOrWait(16, 20, max_batch_units=128), "oversize_action": "reject"}


@pytest.mark.parametrize("more", [{}, SMALL_ONLY])
def test_each_percentile_has_its_name_where_its_line_ends(more):
    view = drawn(SizesView, ViewData(run(**more)))
    for q in (50, 99):
        values, edges, _ = view.shown[f"p{q}"].get_data()
        last = np.flatnonzero(np.isfinite(values))[-1]
        assert view.shown["name", q].get_text() == f"p{q}"
        assert view.shown["name", q].xy == (edges[last + 1], values[last])
