"""The view of requests with sizes: stacks with their padding, and the latency by size."""

import numpy as np
import pytest

import batchsim as bs
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.sizes import SizesView, by_size, stacks

SIZES = bs.Lognormal(80, cv=1, at_most=512)
RULE = bs.SizeOrWait(16, 20)
PADDED = bs.PaddedTime(5, 0.25, 0.01)
SERVICES = {
    "padded": PADDED,
    "to lengths": PADDED.padded_to([4, 16], lengths=[128, 256, 512]),
    "packed": bs.PackedTime(5, 0.25, 0.01),
    "by count": bs.Affine(5, 0.25),
}


def run(service=PADDED, rule=RULE, **more):
    return bs.simulate(bs.Scenario(bs.Poisson(150).with_sizes(SIZES), rule, service, **more), 2000)


@pytest.mark.parametrize("name", SERVICES)
def test_stacks_are_the_batches_of_the_moment_with_their_units(name):
    result = run(SERVICES[name])
    data = ViewData(result)
    found = stacks(data, 1000)
    batches = np.arange(data.window.first, data.window.last + 1)
    assert found.rows.size == batches.size
    for place, number in enumerate(batches):
        mine = found.batch == place
        assert sorted(found.requests[mine]) == np.flatnonzero(result.batch_index == number).tolist()
        assert found.size[mine].tolist() == result.size[found.requests[mine]].tolist()
        if result.batches.units is not None:
            computed = found.computed[place] * found.rows[place] or found.size[mine].sum()
            assert computed == result.batches.units[number]
    assert len(set(found.row)) == found.row.size
    assert stacks(data, 1).rows.size == 1


def test_a_request_that_is_cut_is_drawn_as_it_is_computed():
    result = run(rule=bs.SizeOrWait(16, 20, max_batch_units=128), oversize_action="truncate")
    assert stacks(ViewData(result), 1000).size.max() <= 128 < result.size.max()


def test_the_latency_by_size_is_that_of_the_requests_between_two_sizes():
    result = run(rule=bs.SizeOrWait(16, 20, max_batch_units=600))  # none is too large
    found, shares, units = by_size(ViewData(result))
    kept = slice(result.warmup_requests, None)
    size, latency_ms = result.size[kept], result.latency_ms[kept]
    assert shares[0] == 0
    assert shares[-1] == 100
    assert len(units) == found.shape[1] + 1 == 11
    for at in range(found.shape[1]):
        some = (size > units[at] if at else size >= units[at]) & (size <= units[at + 1])
        np.testing.assert_allclose(found[:, at], np.percentile(latency_ms[some], [50, 99]))


def test_equal_sizes_are_one_bin_and_requests_too_large_have_no_percentile():
    same = bs.simulate(bs.Scenario(bs.Poisson(150).with_sizes(bs.Uniform(64, 64)), RULE, PADDED), 500)
    found, shares, units = by_size(ViewData(same))
    assert shares.tolist() == [0, 100]
    assert units.tolist() == [64, 64]
    refused = run(rule=bs.SizeOrWait(16, 20, max_batch_units=64))
    found, _, units = by_size(ViewData(refused))
    assert np.isnan(found[:, -1]).all()
    assert np.isfinite(found[:, 0]).all()


def test_a_plot_and_a_live_picture_have_the_view_if_requests_have_sizes():
    sized, plain = run(), bs.simulate(bs.Scenario(bs.Poisson(150), RULE, bs.Affine(5, 0.25)), 500)
    assert [type(view) for view in bs.plot(sized).views].count(SizesView) == 1
    assert SizesView not in [type(view) for view in bs.plot(plain).views]
    assert "of the tokens that batches compute are padding" in bs.plot(sized).words
    for sizes in (True, False):
        live = LivePicture(parts=("sizes",) * sizes)
        areas = [view.box.width * view.box.height for view in live.views]
        assert len(areas) == 6 + sizes
        assert sum(areas) == live.width_px * (live.height_px - live.headline.box.bottom)
