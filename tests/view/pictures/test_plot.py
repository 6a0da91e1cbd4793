"""The pictures show the result's numbers."""

import subprocess
import sys
from base64 import b64decode
from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

import batchsim as bs
from batchsim._format import fixed
from batchsim.view.pictures.batches import BatchView
from batchsim.view.pictures.breakdown import GROUPS, BreakdownView
from batchsim.view.pictures.latency import LatencyView
from batchsim.view.pictures.timeline import TimelineView

SCENARIO = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(8, 4), bs.Affine(5, 0.25), servers=2)


@pytest.fixture(scope="module")
def result():
    return bs.simulate(SCENARIO, requests=2000)


@pytest.fixture(scope="module")
def picture(result):
    return bs.plot(result)


def test_plot_returns_a_figure_that_a_notebook_shows_as_a_picture(result):
    figure = bs.plot(result)
    image = Image.open(BytesIO(figure._repr_png_()))
    assert image.size == (1000, 640)
    assert len(np.unique(np.asarray(image.convert("L")))) > 50  # something is drawn


def test_the_latency_view_marks_the_results_percentiles(result, picture):
    view = picture.view(LatencyView)
    percentiles = {q: result.percentile(q) for q in (50, 99)}
    assert {q: line.get_xdata()[0] for q, line in view.lines.items()} == percentiles
    assert [label.text for label in view.values.labels[1:]] == [
        f"p{q} {fixed(value)}" for q, value in percentiles.items()
    ]


def test_the_latency_views_bars_hold_every_served_request(picture):
    assert picture.view(LatencyView).bars.get_data().values.sum() == pytest.approx(100)


def test_the_parts_views_bars_stack_up_to_the_latency(result, picture):
    view = picture.view(BreakdownView)
    tops = view.bars["forming"].get_data().values  # forming is on top
    groups = np.array_split(np.sort(result.latency_ms), GROUPS)
    np.testing.assert_allclose(tops, [group.mean() for group in groups])


def test_the_parts_view_names_the_mean_of_each_part(result, picture):
    view = picture.view(BreakdownView)
    assert values_of(view) == [f"mean {result.mean_latency_ms:.2f} ms"]
    texts = [label.text for label in view.values.labels[1:]]
    means = {part: f"{fixed(getattr(result, f'{part}_ms').mean())}" for part in result.metrics.components}
    assert dict(zip(texts[::2], texts[1::2], strict=True)) == means


def test_the_batch_views_bars_hold_every_batch_by_its_trigger(result, picture):
    for trigger, bars in picture.view(BatchView).bars.items():
        values, _, baseline = bars.get_data()
        share = np.mean(result.batches.trigger == trigger)
        assert np.sum(values - baseline) == pytest.approx(100 * share)


def test_many_batch_sizes_share_bars():
    result = bs.simulate(SCENARIO.replace(max_batch_size=300, rate_per_s=9000), requests=3000)
    values, edges, _ = bs.plot(result).view(BatchView).bars[bs.Trigger.BACKLOG].get_data()
    sizes = result.batches.batch_size
    assert len(values) == 60
    np.testing.assert_allclose(
        [100 * np.mean((sizes > low) & (sizes < high)) for low, high in pairwise(edges)],
        np.max([bars.get_data().values for bars in bs.plot(result).view(BatchView).bars.values()], axis=0),
    )


def test_the_batch_view_names_only_reasons_that_occur(result, picture):
    names = [entry.text for entry in shown_names(picture.view(BatchView))]
    assert len(names) == len(np.unique(result.batches.trigger))


def shown_names(view):
    """The names in a view's rows that stand still."""
    return [entry for entry in view.entries if entry.value is None]


def values_of(view):
    """The values in a view's legend."""
    return [entry.value for entry in view.entries if entry.value is not None]


def test_the_timeline_draws_each_part_of_each_request_to_scale(result, picture):
    view = picture.view(TimelineView)
    corners = {
        name: bars.get_path().vertices.reshape(-1, 5, 2)
        for name, bars in view.bars.items()
        if len(bars.get_path().vertices) > 1
    }
    drawn_ms = sum((each[:, 1, 0] - each[:, 0, 0]).sum() for each in corners.values())
    requests, begin_s = view.part.requests, view.part.begin_s
    from_s = np.maximum(result.arrival_s[requests], begin_s)
    assert drawn_ms == pytest.approx(1000 * (result.finish_s[requests] - from_s).sum())
    high = {name: round(float(each[0, 2, 1] - each[0, 0, 1]), 9) for name, each in corners.items()}
    assert len(set(high.values())) == len(corners) > 1


def test_the_timeline_frames_each_batch(result, picture):
    view = picture.view(TimelineView)
    corners = view.batches.get_path().vertices.reshape(-1, 5, 2)
    batches = slice(view.part.first, view.part.last + 1)
    begin_ms = 1000 * (result.batches.start_s[batches] - view.part.begin_s)
    np.testing.assert_allclose(corners[:, 0, 0], begin_ms)
    np.testing.assert_allclose(corners[:, 2, 1] - corners[:, 0, 1] > 0, True)


def test_a_run_that_serves_nobody_can_be_drawn():
    nobody = SCENARIO.replace(timeout_ms=0, max_wait_ms=10, max_batch_size=32)
    result = bs.simulate(nobody, requests=5)
    assert result.summary()["served"] == 0
    assert bs.plot(result)._repr_png_()


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
    latency = bs.plot(result).view(LatencyView)
    assert spans(latency.ax) == [pytest.approx(result.interval(f"p{q}")) for q in (50, 99)]


def test_a_percentile_without_an_interval_has_no_band():
    latency = bs.plot(bs.simulate(SCENARIO, 100)).view(LatencyView)
    assert spans(latency.ax) == []


def test_an_overloaded_run_has_its_queue_and_no_band_of_a_percentile():
    picture = bs.plot(bs.simulate(SCENARIO.replace(rate_per_s=4000), 20_000), theory=True)
    assert "Overloaded" in picture.view(LatencyView).title.get_text()
    assert picture.view(LatencyView).queue.get_visible()
    assert spans(picture.view(LatencyView).ax) == []
    assert picture.theory.get_text().startswith("no steady state")


def drawn_with_theory(scenario, requests=50_000):
    picture = bs.plot(bs.simulate(scenario, requests), theory=True)
    return picture, picture.theory.get_text()


def test_the_distribution_of_theory_is_drawn_over_the_simulated_one():
    picture, text = drawn_with_theory(bs.Scenario(bs.Poisson(800), bs.SizeOrWait(16, 0), bs.Affine(5, 0.25)))
    bars, line = picture.view(LatencyView).bars, picture.view(LatencyView).ax.patches[-1]
    assert line.get_data().values == pytest.approx(bars.get_data().values, abs=0.3)
    assert picture.view(BatchView).ax.lines[0].get_ydata().sum() == pytest.approx(100)
    assert "mean latency 9.656 ms" in text


@pytest.mark.parametrize(
    ("knobs", "text"),
    [
        ({"max_wait_ms": 5}, "theory, M/D^(1,16)/1"),
        ({"max_wait_ms": 50}, "no theory applies"),
        ({"rate_per_s": 5000}, "no steady state: the load must be below 1"),
        ({"workload": bs.Gamma(100, 2), "max_batch_size": 1}, "theory, GI/D/1"),
    ],
)
def test_what_theory_says_stands_below_or_why_it_says_nothing(knobs, text):
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(16, 0), bs.Affine(5, 0.25)).replace(knobs)
    picture, shown = drawn_with_theory(scenario, 5000)
    assert text in shown
    renderer = picture.agg.get_renderer()
    box = picture.theory.get_window_extent(renderer)
    assert box.x1 < 1000  # it is not cut off
    assert (
        box.y1 < picture.bbox.height - picture.view(TimelineView).box.bottom
    )  # nor written over another view


def test_theory_that_has_no_distribution_leaves_the_mean():
    picture, text = drawn_with_theory(
        bs.Scenario(bs.Gamma(90, 2), bs.SizeOrWait(1, 0), bs.Affine(10, 0)), 100
    )
    assert "mean latency" in text
    assert "nan" not in text
    line = picture.view(LatencyView).ax.lines[-1]
    assert f"GI/D/1: mean latency {line.get_xdata()[0]:.4g} ms" in text


def test_a_run_without_columns_is_not_drawn():
    with pytest.raises(ValueError, match="must have columns to be drawn, got one with keep='summary'"):
        bs.plot(bs.simulate(SCENARIO, 100, keep="summary"))


INLINE = """
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
import batchsim as bs
shell = InteractiveShell.instance()
select_figure_formats(shell, {"png"}, bbox_inches="tight")  # as pyplot does in a notebook, for every Figure
scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 0), bs.Affine(5, 0.25))
plot = bs.plot(bs.simulate(scenario, 2000))
print(shell.display_formatter.format(plot)[0]["image/png"])
"""


def test_a_kernel_in_which_others_have_drawn_shows_all_of_a_plot():
    said = subprocess.run([sys.executable, "-c", INLINE], capture_output=True, check=True, timeout=120).stdout
    theirs = np.asarray(Image.open(BytesIO(b64decode(said))).convert("RGB"))
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 0), bs.Affine(5, 0.25))
    np.testing.assert_array_equal(theirs, bs.plot(bs.simulate(scenario, 2000)).pixels()[..., :3])
