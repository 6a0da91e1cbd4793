"""Every view shows the run's numbers, large and small, in any axes."""

import dataclasses
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib import style
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from pictures import BASE, SIZES, WAITS, data_of, drawn, group, names_of, over, shown, texts_in

import batchsim as bs
from batchsim._format import duration, number, percent
from batchsim.result.distributions import Ranking
from batchsim.view.pictures.batches import BatchView
from batchsim.view.pictures.breakdown import BreakdownView, TokenBreakdownView
from batchsim.view.pictures.heat_map import HeatMapView
from batchsim.view.pictures.latency import LatencyView
from batchsim.view.pictures.load import LoadView
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.pictures.token_latency import TokenLatencyView
from batchsim.view.pictures.views import VIEWS
from batchsim.view.theme import COMPONENTS, THEMES

# Any view.


@pytest.mark.parametrize(
    "kind", [kind for kinds in VIEWS.values() for kind in kinds[:6]], ids=lambda k: k.__name__
)
def test_a_view_draws_every_case_in_any_axes_under_the_users_settings(cases, token_cases, kind):
    every = cases if kind in VIEWS["requests"] else token_cases
    with style.context(["seaborn-v0_8", {"font.size": 7, "lines.linewidth": 3}]):
        figure = Figure(figsize=(5, 4))
        view = kind().draw(figure.subplots(), next(iter(every.values())))
        assert view.line_pt == 3
        assert view.em == 7
        assert to_hex(view.ax.get_facecolor()) == to_hex(matplotlib.rcParams["axes.facecolor"])
        for data in every.values():
            view.show(data)
            assert view.lacks(data) or view.describe(data) or not data.summary["served"]
        figure.canvas.draw()
    view.ax.set_title("My own")
    figure.tight_layout()
    assert "My own" in [text.get_text() for text in texts_in(figure)]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("mode", VIEWS)
def test_a_small_view_names_its_axes_and_what_it_draws(cases, token_cases, mode, theme):
    data = {"requests": cases["plain"], "tokens": token_cases["short"]}[mode]
    essential = {
        "load": {"arrival rate (per s)", "p99", "mean"},
        "timeline": {"A moment", "time (ms)", "forming", "queueing", "computing"},
        "breakdown": {"Where time goes", "fastest to slowest (%)"},
        "batches": {"Batch sizes", "batch size", "full", "wait was over"},
        "seats": {"seat", "prompt", "a token a step"},
        "steps": {"Step tokens", "tokens of answers", "of prompts"},
    }
    if mode == "requests":
        essential |= {"latency": {"latency (ms)"}, "map": {"now", "max batch size", "max wait (ms)"}}
    else:
        essential |= {"latency": {"time", "TTFT", "TPOT"}, "map": {"now", "max_num_seqs"}}
    picture = shown(data, theme=theme, large="breakdown" if theme == "dark" else "latency")
    picture.pixels()
    for key, part in picture.parts.items():
        if key != picture.large:
            assert essential[key] <= {text.get_text() for text in texts_in(part)}, key


@pytest.mark.parametrize("name", ["pinned", "moved"])
def test_what_is_pinned_or_was_before_is_drawn_in_every_view_and_then_no_more(cases, name):
    data, other = cases[name], cases["plain"].result
    kinds = LatencyView, BreakdownView, LoadView, BatchView, HeatMapView, TimelineView
    latency, breakdown, load, batches, grid, timeline = (drawn(kind, data) for kind in kinds)
    values, edges, _ = latency.shown["other"].get_data()
    np.testing.assert_allclose(values, Ranking(other.latency_ms).shares(edges), atol=1e-12)
    assert values.sum() == pytest.approx(100)
    assert ("before" in latency.shown) == (name == "moved")
    ink = {"pinned": latency.look.ink, "moved": latency.look.ghost}[name]
    assert to_hex(latency.shown["other"].get_edgecolor()) == ink.lower()
    groups = np.array_split(np.sort(other.latency_ms), 20)
    means = [group.mean() for group in groups]
    np.testing.assert_allclose(breakdown.shown["other"].get_data().values, means)
    assert load.shown["other point", "p99_ms"].get_ydata()[0] == other.percentile(99)
    assert batches.shown["other"].get_data().values.sum() == pytest.approx(100)
    ring = grid.shown["other"]
    assert (ring.get_ydata()[0], ring.get_xdata()[0]) == (1.5, 2.5)  # 5 ms, 16
    assert timeline.shown["other"].get_visible()
    for view in (latency, breakdown, load, batches, grid, timeline):
        others = [artist for key, artist in view.shown.items() if "other" in str(key)]
        assert others
        view.show(cases["plain"])
        assert not any(artist.get_visible() for artist in others)


def test_at_the_right_edge_the_slowest_requests_are_told(cases):
    view = drawn(BreakdownView, cases["plain"])
    slowest, edge = (view.spot(view.ax, x, 1, cases["plain"]).text for x in (99.9, 100))
    assert edge == slowest
    assert " to 100 %: " in edge


def test_the_request_that_is_followed_is_framed_in_each_view_and_a_lost_one_in_none(cases):
    result = cases["losing"].result
    served, lost = (int(np.flatnonzero(np.isnan(result.latency_ms) == gone)[40]) for gone in (False, True))
    for kind in (LatencyView, BreakdownView):
        view = drawn(kind, dataclasses.replace(cases["losing"], followed=served))
        frame = view.shown["followed"]
        assert frame.get_visible()
        share = 100 * np.mean(result.latency_ms[~np.isnan(result.latency_ms)] < result.latency_ms[served])
        at = result.latency_ms[served] if kind is LatencyView else share
        assert frame.get_x() - 1e-9 <= at <= frame.get_x() + frame.get_width() + 1e-9
        view.show(dataclasses.replace(cases["losing"], followed=lost))
        assert not frame.get_visible()


# The distribution of latency.


def test_the_latency_view_marks_the_results_percentiles_and_its_bars_hold_all(cases):
    result, view = cases["plain"].result, drawn(LatencyView, cases["plain"])
    for q in (50, 99):
        assert view.shown[f"p{q}"].get_xdata() == [result.percentile(q)] * 2
    assert view.shown["bars"].get_data().values.sum() == pytest.approx(100)
    named = [text.get_text() for text in group(view, "name").values()]
    assert group(view, "name")["objective"].get_color() == view.look.objective
    assert named == [*(f"p{q} {result.percentile(q):.3g}" for q in (50, 99)), "objective 20"]


def test_the_share_within_the_objective_counts_those_who_were_lost(cases):
    result, view = cases["losing"].result, drawn(LatencyView, cases["losing"])
    within = np.count_nonzero(result.latency_ms <= 20) / 3000
    lost = percent(np.isnan(result.latency_ms).mean())
    assert view.shown["note"].get_text() == f"{percent(within)}\nwithin 20 ms\n{lost} lost"


@pytest.mark.parametrize("kind", [LatencyView, TokenLatencyView])
def test_an_overloaded_run_shows_its_queue_and_no_percentile(cases, token_cases, kind):
    data = (cases if kind is LatencyView else token_cases)["overloaded"]
    result, view = data.result, drawn(kind, data)
    assert "Overloaded" in view.heading.get_text()
    assert view.shown.keys() == {"growth", "queue", "growth name"}
    times_s, waiting = view.shown["queue"].get_data()
    counted = [np.sum((result.arrival_s <= t) & (result.start_s > t)) for t in times_s]
    np.testing.assert_array_equal(waiting, counted)
    assert times_s[-1] == result.arrival_s[-1]
    growth = 3000 - 16 / 0.009 if kind is LatencyView else 60 - result.scenario.full_batches_per_s
    assert view.shown["growth name"].get_text() == f"+{growth:,.0f} every second"


# Where the time goes.


@pytest.mark.parametrize(
    ("kind", "name"), [(BreakdownView, "plain"), (BreakdownView, "losing"), (TokenBreakdownView, "short")]
)
def test_the_bars_are_the_mean_parts_of_ever_slower_requests(cases, token_cases, kind, name):
    data = (cases if kind is BreakdownView else token_cases)[name]
    view, result = drawn(kind, data), data.result
    served = np.count_nonzero(~np.isnan(result.latency_ms))
    groups = np.array_split(np.argsort(result.latency_ms, kind="stable")[:served], 20)
    columns = {part: data.part_ms(part) for part in kind.PARTS if data.has(part)}
    np.testing.assert_allclose(sum(columns.values()), result.latency_ms)
    for part, column in columns.items():
        if not column.any():
            assert part not in view.shown
            continue
        values, _, base = view.shown[part].get_data()
        np.testing.assert_allclose(values - base, [column[group].mean() for group in groups], atol=1e-9)
        mean = np.nanmean(column)
        written = duration(mean) if kind is TokenBreakdownView else view.written(mean, 1)
        assert view.shown["name", part].get_text() == f"{part}\n{written}"


# Batches.


def test_the_batch_views_bars_hold_every_batch_by_its_trigger_and_name_only_those_that_occur(cases):
    for name in ("plain", "slower", "losing"):
        view, batches = drawn(BatchView, cases[name]), cases[name].result.batches
        assert {*view.shown} & {*bs.Trigger} == {*batches.trigger}
        for trigger in np.unique(batches.trigger):
            values, _, baseline = view.shown[trigger].get_data()
            assert np.sum(values - baseline) == pytest.approx(100 * np.mean(batches.trigger == trigger))
        assert len(names_of(view.ax)) == len(np.unique(batches.trigger))


def test_many_batch_sizes_share_bars():
    data = data_of(BASE.replace(max_batch_size=300, rate_per_s=9000, servers=2))
    view, sizes = drawn(BatchView, data), data.result.batches.batch_size
    values = [view.shown[trigger].get_data().values for trigger in bs.Trigger if trigger in view.shown]
    edges = view.shown[bs.Trigger.BACKLOG].get_data().edges
    assert len(edges) == 61
    expected = [100 * np.mean((sizes > low) & (sizes < high)) for low, high in pairwise(edges)]
    np.testing.assert_allclose(np.max(values, axis=0), expected)


# The load.


def test_todays_point_is_where_the_result_is_and_theorys_curve_where_theory_is_known(cases):
    view, result = drawn(LoadView, cases["plain"]), cases["plain"].result
    points = [(m.get_xdata()[0], m.get_ydata()[0]) for m in group(view, "now point").values()]
    heights = (result.percentile(99), result.mean_latency_ms, result.throughput_per_s)
    assert points == [(1500, height) for height in heights]
    assert len(view.shown["theory"].get_ydata()) > 3
    assert np.isfinite(view.shown["theory"].get_ydata()).all()


def test_a_closed_loop_is_drawn_against_its_clients(cases):
    view = drawn(LoadView, cases["closed"])
    assert view.axes[-1].get_xlabel() == "clients"
    assert group(view, "now point")["p99_ms"].get_xdata() == [40]
    assert not group(view, "beyond")


# The timeline.


def bars_of(view):
    return [view.shown[part] for part in COMPONENTS if part in view.shown]


def corners_of(area):
    vertices = area.get_path().vertices
    return vertices.reshape(-1, 5, 2) if len(vertices) > 1 else np.zeros((0, 5, 2))


def test_the_timeline_draws_each_part_of_each_request_to_scale_and_frames_each_batch(cases):
    view, result = drawn(TimelineView, cases["plain"]), cases["plain"].result
    drawn_ms = sum(np.ptp(corners_of(bars)[:, :, 0], axis=1).sum() for bars in bars_of(view))
    window = cases["plain"].window
    requests, begin_s = window.requests, window.begin_s
    from_s = np.maximum(result.arrival_s[requests], begin_s)
    assert drawn_ms == pytest.approx(1000 * (result.finish_s[requests] - from_s).sum())
    frames, batches = corners_of(view.shown["batches"]), slice(window.first, window.last + 1)
    np.testing.assert_allclose(frames[:, 0, 0], 1000 * (result.batches.start_s[batches] - begin_s))
    np.testing.assert_allclose(frames[:, 2, 0], 1000 * (result.batches.finish_s[batches] - begin_s))
    np.testing.assert_allclose(np.ptp(frames[:, :, 1], axis=1), result.batches.batch_size[batches] - 0.1)


def test_batches_at_another_rate_begin_as_long_after_the_first_of_the_same_requests(cases):
    data = dataclasses.replace(cases["plain"], before=cases["slower"])
    requests, begin_s, other = data.window.requests, data.window.begin_s, data.other.result
    (at_s, other_s) = (each.arrival_s[requests[0]] for each in (data.result, other))
    assert at_s < other_s  # at a lower rate, all requests come later
    starts_s = other.batches.start_s[np.unique(other.batch_index[requests])]
    frames = corners_of(drawn(TimelineView, data).shown["other"])
    np.testing.assert_allclose(frames[:, 0, 0], 1000 * (at_s - begin_s + starts_s - other_s))


@pytest.mark.parametrize(("name", "state"), [("losing", bs.Status.REJECTED), ("late", bs.Status.TIMED_OUT)])
def test_requests_that_are_lost_are_marked_on_the_timeline(cases, name, state):
    view, result = drawn(TimelineView, cases[name]), cases[name].result
    times_ms, rows = view.shown[state].get_data()
    window = cases[name].window
    requests = window.requests
    np.testing.assert_array_equal(rows, np.flatnonzero(result.status[requests] == state))
    assert rows.size
    waited_s = 0.008 if state == bs.Status.TIMED_OUT else 0
    left_s = result.arrival_s[requests[rows]] + waited_s - window.begin_s
    np.testing.assert_allclose(times_ms, 1000 * left_s)
    assert state.name.lower().replace("_", " ") in names_of(view.ax)


# The pointer.


def test_the_pointer_reads_values_off_every_view(cases):
    data = cases["plain"]
    view = drawn(LatencyView, data)
    below = np.mean(data.result.latency_ms < view.ax.get_xlim()[1] / 2)
    assert over(view, 0.5, 0.5, data).text.startswith(f"{percent(below)} of the requests take less than")
    losing = drawn(LatencyView, cases["losing"])
    assert "% of the served requests take less than" in over(losing, 0.5, 0.5, cases["losing"]).text
    slowest = over(drawn(BreakdownView, data), 0.99, 0.5, data)
    assert slowest.text.startswith("Requests from 95 to 100 %: computing")
    full = number(100 * np.mean(data.result.batches.batch_size == 16))
    assert over(drawn(BatchView, data), 0.999, 0.5, data).text.startswith(f"Batches of 16: {full} %")
    timeline = drawn(TimelineView, data)
    first = cases["plain"].window.requests[0]
    assert over(timeline, 0.5, 0.001, data).text.startswith(f"Request {first:,}: ")


def test_a_click_on_the_load_curve_sets_the_rate_that_the_pointer_reads(cases):
    view = drawn(LoadView, cases["plain"])
    spot = over(view, 0.4, 0.3, cases["plain"])
    assert spot.change["rate_per_s"] == pytest.approx(0.4 * view.ax.get_xlim()[1], rel=0.01)
    assert f"{spot.change['rate_per_s']:,.6g}/s: p99 about" in spot.text
    curve = cases["plain"].curve  # between two points it is straight on the logarithmic axis
    p99_ms = curve.p99_ms[~curve.overloaded]
    at = int(np.argmax(p99_ms[1:] / p99_ms[:-1]))
    middle = view.spot(view.ax, curve.x_values[at : at + 2].mean(), 10, cases["plain"]).text
    assert f"p99 about {duration(np.sqrt(p99_ms[at] * p99_ms[at + 1]))}," in middle
    clients = over(drawn(LoadView, cases["closed"]), 0.4, 0.3, cases["closed"])
    assert isinstance(clients.change["clients"], int)


# The small map.


def test_the_marks_of_a_small_map_have_names_where_they_are_apart(cases):
    for case in cases.values():
        view = drawn(HeatMapView, case, large=False)
        names = {mark: text.get_text() for mark, text in group(view, "name").items()}
        now = "A" if case.pinned is not None else ""
        allowed = {"now": "B" if now else "now", "other": now, "best": "best"}
        assert names.items() <= allowed.items()
        assert "now" in names or "now" not in view.shown
        for mark, text in group(view, "name").items():
            assert text.xy == tuple(each[0] for each in view.shown[mark].get_data())


@pytest.mark.parametrize("batch", [SIZES[0], SIZES[-1]])
@pytest.mark.parametrize("wait_ms", [WAITS[0], 50])
def test_a_mark_at_the_edge_of_a_small_map_has_its_name_within_the_map(cases, batch, wait_ms):
    picture = shown(cases["plain"], **{"width_px": 560, "height_px": 500})
    data = data_of(BASE.replace(max_batch_size=batch, max_wait_ms=wait_ms, rate_per_s=100))
    picture.show(data)
    picture.pixels()
    view = picture.views["map"]
    for text in group(view, "name").values():
        box = text.get_window_extent(picture.figure.canvas.get_renderer())
        assert view.ax.bbox.x0 <= box.x0 < box.x1 <= view.ax.bbox.x1
