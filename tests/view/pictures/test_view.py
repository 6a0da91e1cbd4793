"""Every view shows the run's numbers, large and small."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex
from pictures import (
    ALWAYS,
    BASE,
    LEAST,
    SIZES,
    WAITS,
    assert_drawn_within_places,
    assert_texts_laid_out,
    data_of,
    enlarged,
    places_of,
    shown,
)

import batchsim as bs
from batchsim._format import percent
from batchsim.view.pictures.batches import BatchView
from batchsim.view.pictures.breakdown import BreakdownView
from batchsim.view.pictures.data import Ranked
from batchsim.view.pictures.heat_map import HeatMapView
from batchsim.view.pictures.latency import LatencyView, queue_length
from batchsim.view.pictures.load import LoadView
from batchsim.view.pictures.timeline import TimelineView

# What each view shows.


def values_of(view):
    """The values in a view's legend."""
    return [entry.value for entry in view.entries if entry.value is not None]


def test_the_share_within_the_objective_counts_those_who_were_lost(cases):
    result = cases["losing"].result
    (note,) = values_of(shown(cases["losing"]).view(LatencyView))
    within = np.count_nonzero(result.latency_ms <= 20) / 3000
    assert f"{percent(within)} within 20 ms" in note
    assert f"{percent(np.isnan(result.latency_ms).mean())} lost" in note


def test_an_overloaded_run_shows_its_queue_and_no_percentile(cases):
    result, view = cases["overloaded"].result, shown(cases["overloaded"]).view(LatencyView)
    assert "Overloaded" in view.title.get_text()
    assert not any(line.get_visible() for line in view.lines.values())
    times_s, waiting = view.queue.get_data()
    counted = [np.sum((result.arrival_s <= t) & (result.start_s > t)) for t in times_s]
    np.testing.assert_array_equal(waiting, counted)
    assert queue_length(result)[1] == times_s[-1] == result.arrival_s[-1]
    assert values_of(view) == [f"+{3000 - 16 / 0.009:,.0f} every second"]


def test_beyond_saturation_no_latency_is_drawn(cases):
    view, curve = enlarged(cases["overloaded"], LoadView), cases["overloaded"].curve
    for line in view.curves[:2]:
        drawn = np.isfinite(line.get_ydata())
        np.testing.assert_array_equal(drawn, curve.x_values < curve.saturation)
    p99, mean, throughput = (marker.get_ydata()[0] for marker in view.points)
    assert math.isnan(p99)
    assert math.isnan(mean)
    assert throughput == cases["overloaded"].result.throughput_per_s


def test_todays_point_is_where_the_result_is(cases):
    view, result = enlarged(cases["plain"], LoadView), cases["plain"].result
    points = [(m.get_xdata()[0], m.get_ydata()[0]) for m in view.points]
    heights = (result.percentile(99), result.mean_latency_ms, result.throughput_per_s)
    assert points == [(1500, height) for height in heights]


def test_theorys_curve_has_the_points_that_theory_knows(cases):
    drawn = shown(cases["plain"]).view(LoadView).theory.get_ydata()
    assert len(drawn) > 3
    assert np.isfinite(drawn).all()


def test_a_closed_loop_is_drawn_against_its_clients(cases):
    view = enlarged(cases["closed"], LoadView)
    assert view.plots[-1].get_xlabel() == "clients"
    assert view.points[0].get_xdata()[0] == 40
    assert not view.saturation[0].get_visible()


@pytest.mark.parametrize("name", ["pinned", "moved"])
def test_what_is_pinned_or_was_before_is_drawn_in_every_view(cases, name):
    picture, other = shown(cases[name]), cases["plain"].result
    latency = picture.view(LatencyView)
    values, edges, _ = latency.other_bars.get_data()
    np.testing.assert_allclose(values, Ranked(other.latency_ms).shares(edges), atol=1e-12)
    assert values.sum() == pytest.approx(100)
    assert latency.other_fill.get_visible() == (name == "moved")
    ink = {"pinned": picture.theme.ink, "moved": picture.theme.ghost}[name]
    assert to_hex(latency.other_bars.get_edgecolor()) == ink.lower()
    groups = np.array_split(np.sort(other.latency_ms), 20)
    np.testing.assert_allclose(
        picture.view(BreakdownView).other_total.get_data().values, [group.mean() for group in groups]
    )
    assert picture.view(LoadView).other_points[0].get_ydata()[0] == other.percentile(99)
    assert picture.view(BatchView).other_total.get_data().values.sum() == pytest.approx(100)
    ring = picture.view(HeatMapView).other[0]
    assert (ring.get_ydata()[0], ring.get_xdata()[0]) == (1.5, 2.5)  # 5 ms, 16
    assert picture.view(TimelineView).other_batches.get_visible()


def test_without_a_pinned_setting_nothing_of_one_is_seen(cases):
    picture = shown(cases["pinned"])
    picture.show(cases["plain"])
    seen = [
        picture.view(LatencyView).other_bars,
        picture.view(BreakdownView).other_total,
        picture.view(BatchView).other_total,
        *picture.view(LoadView).other_curves,
    ]
    assert not any(artist.get_visible() for artist in seen)
    assert len(picture.view(HeatMapView).other[0].get_xdata()) == 0


def test_requests_that_are_lost_are_marked_on_the_timeline(cases):
    for name, state in (("losing", bs.Status.REJECTED), ("late", bs.Status.TIMED_OUT)):
        view, result = shown(cases[name]).view(TimelineView), cases[name].result
        times_ms, rows = view.lost[state].get_data()
        requests = view.part.requests
        np.testing.assert_array_equal(rows, np.flatnonzero(result.status[requests] == state))
        assert rows.size
        waited_s = 0.008 if state == bs.Status.TIMED_OUT else 0
        left_s = result.arrival_s[requests[rows]] + waited_s - view.part.begin_s
        np.testing.assert_allclose(times_ms, 1000 * left_s)


# The small views.


ESSENTIAL = {
    "latency": {"Latency", "latency (ms)", "p50", "p99"},
    "map": {"p99 by setting", "max batch size", "max wait (ms)", "now", "best"},
    "load": {"Latency by load (ms)", "arrival rate (per s)", "p99", "mean"},
    "timeline": {"A moment, by request", "time (ms)", "forming", "queueing"},
    "breakdown": {"Where time goes (ms)", "fastest to slowest (%)", "forming", "queueing", "computing"},
    "batches": {"Batch sizes (%)", "batch size", "full", "wait was over"},
}  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("large", ALWAYS)
def test_a_small_view_names_its_axes_and_what_it_draws_at_the_smallest_size(cases, large, theme):
    picture = shown(cases["plain"], large=large, theme=theme, **LEAST)
    for view in picture.views:
        view.refresh()
        box = view.box
        texts = {text: place for text, *place in places_of(view, picture) if text}
        if not view.large:
            assert set(texts) >= ESSENTIAL[view.KEY]
        for text, (left, _, right, bottom) in texts.items():
            assert box.left <= left < right <= box.right + 0.5, (view.KEY, text)
            assert bottom <= box.bottom
    for name, case in cases.items():
        picture.show(case)
        if large != "map":  # whose large legend shrinks
            assert_texts_laid_out(picture, name)
        assert_drawn_within_places(picture)


@pytest.mark.parametrize("less", [{"width_px": 543}, {"height_px": 460}])
def test_without_room_for_its_names_no_view_is_drawn_small(cases, less):
    picture = shown(cases["plain"], **LEAST | less)
    assert [view.large for view in picture.views] == [True]


def test_the_marks_of_a_small_map_have_names_of_their_own(cases):
    for case in cases.values():
        view = shown(case, large="latency").view(HeatMapView)
        names = {"now": view.now, "before": view.other}
        if case.pinned is not None:
            names = {"B": view.now, "A": view.other}
        marks = {name: lines[0] for name, lines in names.items()} | {"best": view.star}
        drawn = {name for name, mark in marks.items() if len(mark.get_xdata())}
        assert {label.text for label in view.mark_names.labels} == drawn


@pytest.mark.parametrize("batch", [SIZES[0], SIZES[-1]])
@pytest.mark.parametrize("wait_ms", [WAITS[0], 50])
def test_a_mark_at_the_edge_of_a_small_map_has_its_name_within_the_map(batch, wait_ms):
    data = data_of(BASE.replace(max_batch_size=batch, max_wait_ms=wait_ms, rate_per_s=100))
    view = shown(data, large="latency", **LEAST).view(HeatMapView)
    labels = {label.text: label for label in view.mark_names.labels}
    assert set(labels) == {"now", "best"}
    for label in labels.values():
        assert view.plot_box.top <= label.y - 0.8 * view.em <= label.y <= view.plot_box.bottom
