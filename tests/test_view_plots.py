"""The pictures show the result's numbers."""

import math
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

import batchsim as bs
from batchsim.view.plots import Picture
from batchsim.view.views import (
    PARTS,
    BatchView,
    LatencyView,
    LoadCurve,
    LoadView,
    PartsView,
    TimelineView,
    nice,
)

SCENARIO = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(8, 4), bs.Affine(5, 0.25), servers=2)


@pytest.fixture(scope="module")
def result():
    return bs.simulate(SCENARIO, requests=2000)


def view_of(kind, result):
    picture = Picture([kind])
    (view,) = picture.views
    view.update(result)
    return view


def test_plot_returns_a_figure_that_a_notebook_shows_as_a_picture(result):
    figure = bs.plot(result)
    image = Image.open(BytesIO(figure._repr_png_()))
    assert image.size == (1000, 640)
    assert len(np.unique(np.asarray(image.convert("L")))) > 50  # something is drawn


def test_the_latency_view_marks_the_results_percentiles(result):
    view = view_of(LatencyView, result)
    assert {q: line.get_xdata()[0] for q, line in view.lines.items()} == {
        q: result.percentile(q) for q in (50, 95, 99)
    }
    assert view.legend.get_texts()[2].get_text() == f"p99 = {result.percentile(99):.1f} ms"


def test_the_latency_views_bars_hold_every_served_request(result):
    assert view_of(LatencyView, result).bars.get_data().values.sum() == pytest.approx(100)


def test_the_parts_views_bars_stack_up_to_the_latency(result):
    view = view_of(PartsView, result)
    tops = view.bars["forming"].get_data().values  # forming is on top
    groups = np.array_split(np.sort(result.latency_ms), view.GROUPS)
    np.testing.assert_allclose(tops, [group.mean() for group in groups])


def test_the_batch_views_bars_hold_every_batch_by_its_trigger(result):
    view = view_of(BatchView, result)
    for trigger, bars in view.bars.items():
        values, _, baseline = bars.get_data()
        share = np.mean(result.batches.trigger == trigger)
        assert np.sum(values - baseline) == pytest.approx(100 * share)


def test_the_batch_views_legend_names_only_reasons_that_occur(result):
    view = view_of(BatchView, result)
    names = [text.get_text() for text in view.ax.get_legend().get_texts()]
    assert len(names) == len(np.unique(result.batches.trigger))


def test_the_timeline_draws_each_part_of_each_request_to_scale(result):
    view = view_of(TimelineView, result)
    drawn_ms = sum(segment[1][0] - segment[0][0] for segment in view.bars.get_segments())
    assert drawn_ms == pytest.approx(result.latency_ms[:30].sum())
    widths = {width for _, width in PARTS.values()}
    assert set(view.bars.get_linewidth()) <= widths


def test_the_load_view_puts_todays_point_where_the_result_is(result):
    picture = Picture([LoadView])
    (view,) = picture.views
    rates, ones = np.array([100.0, 2000.0]), np.ones(2)
    view.show_curve(LoadCurve(rates, 5 * ones, 9 * ones, rates, 2400.0))
    view.update(result)
    p99, p50, throughput = [(m.get_xdata()[0], m.get_ydata()[0]) for m in view.today]
    assert p99 == (1500, result.percentile(99))
    assert p50 == (1500, result.percentile(50))
    assert throughput == (1500, result.throughput_per_s)


def test_a_run_that_serves_nobody_can_be_drawn():
    nobody = SCENARIO.replace(timeout_ms=0, max_wait_ms=10, max_batch_size=32)
    result = bs.simulate(nobody, requests=5)
    assert result.summary()["served"] == 0
    assert bs.plot(result)._repr_png_()


def test_axes_hold_still_while_a_number_moves_a_little():
    assert [nice(value) for value in (16, 17, 18, 19)] == [20, 20, 20, 20]
    assert nice(20) == 20
    assert nice(math.inf) == nice(0) == 1


# Theory and intervals, drawn over a result.


def spans(ax):
    """The bands of an axes, as (from, to)."""
    return [
        (patch.get_x(), patch.get_x() + patch.get_width())
        for patch in ax.patches
        if patch.get_alpha() == 0.18
    ]


def test_the_percentiles_have_their_intervals_as_bands():
    result = bs.simulate(SCENARIO, 20_000)
    latency = next(view for view in bs.plot(result).views if isinstance(view, LatencyView))
    assert spans(latency.ax) == [pytest.approx(result.interval(f"p{q}")) for q in (50, 95, 99)]


def test_a_percentile_without_an_interval_has_no_band():
    latency = next(
        view for view in bs.plot(bs.simulate(SCENARIO, 100)).views if isinstance(view, LatencyView)
    )
    assert spans(latency.ax) == []


def drawn_with_theory(scenario, requests=50_000):
    picture = bs.plot(bs.simulate(scenario, requests), theory=True)
    return picture, picture.texts[0].get_text()


def test_the_distribution_of_theory_is_drawn_over_the_simulated_one():
    picture, text = drawn_with_theory(bs.Scenario(bs.Poisson(800), bs.SizeOrWait(16, 0), bs.Affine(5, 0.25)))
    latency, _, batches, _ = picture.views
    bars, line = latency.ax.patches[0], latency.ax.patches[-1]
    assert line.get_data().values == pytest.approx(bars.get_data().values, abs=0.3)
    assert batches.ax.lines[0].get_ydata().sum() == pytest.approx(100)
    assert "mean latency 9.656 ms" in text


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"max_wait_ms": 5}, "theory, M/D^(1,16)/1"),
        ({"max_wait_ms": 50}, "no theory applies: a wait must be"),
        ({"rate_per_s": 5000}, "no steady state: the load must be below 1"),
        ({"workload": bs.Gamma(100, 2), "max_batch_size": 1}, "approximately, G/G/1"),
    ],
)
def test_what_theory_says_stands_below_or_why_it_says_nothing(knobs, told):
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(16, 0), bs.Affine(5, 0.25)).replace(knobs)
    picture, text = drawn_with_theory(scenario, 5000)
    assert told in text
    box = picture.texts[0].get_window_extent(picture.agg.get_renderer())
    assert box.x1 < 1000  # it is not cut off
    for view in picture.views:  # nor written over a label
        assert not box.overlaps(view.ax.xaxis.label.get_window_extent(picture.agg.get_renderer()))


def test_a_distribution_too_large_to_work_out_leaves_the_mean():
    picture, text = drawn_with_theory(
        bs.Scenario(bs.Poisson(99.9999), bs.SizeOrWait(1, 0), bs.Affine(10, 0)), 100
    )
    assert "mean latency 5e+06 ms" in text
    assert "nan" not in text
    assert picture.views[0].legend.get_texts()[-1].get_text() == "M/D/1: mean"


def test_a_run_without_columns_is_not_drawn():
    with pytest.raises(ValueError, match="must have columns to be drawn, got one with keep='summary'"):
        bs.plot(bs.simulate(SCENARIO, 100, keep="summary"))
