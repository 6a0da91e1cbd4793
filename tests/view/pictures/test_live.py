"""The live picture: what it shows is right, and drawing it by parts is drawing it whole."""

import dataclasses
import math
import warnings
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from pictures import LEAST, LOOKS, assert_drawn_within_places, assert_texts_laid_out, over, pixels, places_of
from PIL import Image

import batchsim as bs
from batchsim._format import number, percent
from batchsim.study.surface import Surface, load_curve, surface
from batchsim.theory.expected import theory_curve
from batchsim.view.canvas.cells import colours
from batchsim.view.pictures.batches import BatchView
from batchsim.view.pictures.breakdown import BreakdownView
from batchsim.view.pictures.data import Ranked, ViewData
from batchsim.view.pictures.headline import figures_of
from batchsim.view.pictures.heat_map import TIED, HeatMapView, position
from batchsim.view.pictures.latency import LatencyView, queue_length
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.load import LoadView
from batchsim.view.pictures.moments import window
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.pictures.views import views_of

BASE = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(16, 5), bs.Affine(5, 0.25))
ALWAYS = sorted(views_of("requests"))
MORE = {  # views of runs that have more
    "replicas": BASE.replace(replicas=4, routing="fill_first"),
    "sizes": BASE.replace(
        workload=bs.Poisson(500).with_sizes(bs.Uniform(1, 99)), service=bs.PaddedTime(5, 0.2, 0.002)
    ),
}
SIZES, WAITS = (1, 4, 16, 32), (0, 5, 20, math.inf)


def data_of(scenario, objective_ms=20.0, pinned=None, before=None, requests=3000, compared=True):
    result = bs.simulate(scenario, requests)
    closed = isinstance(scenario.workload, bs.ClosedLoop)
    y_values = SIZES if isinstance(scenario.rule, bs.AtLeast) else WAITS
    curve = load_curve(scenario, 500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a run has no interval for some numbers
        both = bs.compare(pinned.result, result) if pinned is not None and compared else None
    return ViewData(
        result=result,
        surface=surface(scenario, SIZES, y_values, 500),
        curve=curve,
        theory=None if closed else theory_curve(scenario, curve.x_values),
        objective_ms=objective_ms,
        before=before,
        pinned=pinned,
        comparison=both,
    )


@pytest.fixture(scope="module")
def cases():
    plain = data_of(BASE)
    return {
        "plain": plain,
        "slower": data_of(BASE.replace(rate_per_s=300, max_wait_ms=60, max_batch_size=32), objective_ms=None),
        "overloaded": data_of(BASE.replace(rate_per_s=3000)),
        "pinned": data_of(BASE.replace(max_wait_ms=0), pinned=plain),
        "moved": data_of(BASE.replace(max_batch_size=32, max_wait_ms=2), before=plain),
        "both overloaded": data_of(
            BASE.replace(rate_per_s=3000), pinned=data_of(BASE.replace(rate_per_s=3500))
        ),
        "at least": data_of(BASE.replace(rule=bs.AtLeast(4, 16))),
        "closed": data_of(BASE.replace(workload=bs.ClosedLoop(40, 0.005))),
        "losing": data_of(BASE.replace(rate_per_s=3000, queue_limit=20)),
        "late": data_of(BASE.replace(rate_per_s=3000, timeout_ms=8)),
        "nobody": data_of(BASE.replace(timeout_ms=0)),
    }


def shown(data, width_px=860, large="latency", **look):
    picture = LivePicture(width_px, large=large, **look)
    picture.show(data)
    return picture


def enlarged(data, kind, **look):
    """The large view of that kind."""
    return shown(data, large=kind.KEY, **look).view(kind)


# Drawing by parts.


@settings(max_examples=6, deadline=None)
@given(draws=st.data(), large=st.sampled_from(ALWAYS))
def test_after_any_moves_and_a_release_the_picture_is_the_one_drawn_afresh(cases, draws, large):
    names = draws.draw(st.lists(st.sampled_from(sorted(cases)), min_size=2, max_size=4))
    moved = LivePicture(860, large=large)
    for name in names:
        moved.show(cases[name])
        pixels(moved)
    moved.release()
    np.testing.assert_array_equal(pixels(moved), pixels(shown(cases[names[-1]], large=large)))


@pytest.mark.parametrize("name", ["plain", "overloaded", "pinned", "losing"])
def test_the_picture_is_what_matplotlib_draws_on_its_own(cases, name):
    picture = shown(cases[name], theme="dark")
    by_parts = pixels(picture)
    picture.agg.draw()
    np.testing.assert_array_equal(by_parts[..., :3], np.asarray(picture.agg.buffer_rgba())[..., :3])


@pytest.mark.parametrize("name", ["pinned", "nobody", "both overloaded", "at least"])
@pytest.mark.parametrize(
    "look", [{}, {"size": "projector", "large": "map"}, {"width_px": 570, "ratio": 1.5, "large": "load"}]
)
def test_every_view_stays_within_its_place(cases, name, look):
    picture = shown(cases[name], **look)
    picture.pixels()
    assert_drawn_within_places(picture)


@pytest.mark.parametrize("large", ALWAYS)
@pytest.mark.parametrize("look", LOOKS, ids=repr)
def test_no_text_is_over_another_or_too_small(cases, look, large):
    picture = LivePicture(**{"width_px": 860, "large": large} | look)
    for name, case in cases.items():
        picture.show(case)
        assert_texts_laid_out(picture, name)


@pytest.mark.parametrize("large", MORE)
@pytest.mark.parametrize("look", LOOKS, ids=repr)
def test_no_text_is_over_another_where_a_run_has_more_views(look, large):
    data = data_of(MORE[large])
    picture = LivePicture(**{"width_px": 860, "large": large, "parts": data.parts} | look)
    picture.show(data)
    assert_texts_laid_out(picture, large)


@pytest.mark.parametrize(
    "look", [{"width_px": 857}, {"width_px": 601, "ratio": 1.25, "height_px": 333}, {"alone": True}]
)
def test_the_views_places_are_the_picture_and_do_not_overlap(look):
    picture = LivePicture(**look)
    covered = np.zeros(picture._frame().shape[:2], dtype=int)
    for tile in picture.tiles:
        covered[tile.region] += 1
    assert (covered == 1).all()


def test_a_move_that_changes_no_scale_draws_nothing_still_anew(cases):
    picture = shown(cases["plain"])
    picture.pixels()
    picture.show(cases["plain"])
    assert not any(tile.stale for tile in picture.tiles)


def test_a_users_settings_of_matplotlib_change_nothing(cases):
    import matplotlib

    plain = pixels(shown(cases["plain"]))
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):
        np.testing.assert_array_equal(pixels(shown(cases["plain"])), plain)


def test_the_png_holds_the_pixels_of_the_screen(cases):
    picture = shown(cases["plain"], ratio=1.5)
    image = Image.open(BytesIO(picture.png()))
    assert image.size == (1290, 960)
    np.testing.assert_array_equal(np.asarray(image), picture.pixels()[..., :3])


def test_a_saved_picture_has_all_and_the_live_one_goes_on(cases, tmp_path):
    picture = shown(cases["plain"])
    before = pixels(picture)
    picture.savefig(tmp_path / "saved.svg")
    picture.savefig(tmp_path / "saved.png", dpi=72)
    saved = np.asarray(Image.open(tmp_path / "saved.png").convert("RGB"))
    np.testing.assert_array_equal(saved, before[..., :3])
    assert "<path" in (tmp_path / "saved.svg").read_text()
    np.testing.assert_array_equal(pixels(picture), before)


# Places and sizes.


@pytest.mark.parametrize("large", ALWAYS)
def test_one_view_is_large_and_five_are_small(large):
    picture = LivePicture(570, 650, large=large)
    areas = {view.KEY: view.box.width * view.box.height for view in picture.views}
    assert sorted(areas) == ALWAYS
    small = [area for key, area in areas.items() if key != large]
    assert min(small) > 0.95 * max(small)
    assert areas[large] > 3.8 * max(small)


def test_where_there_is_no_room_one_view_stands_alone():
    picture = LivePicture(380, 500, large="load", alone=True)
    assert [view.KEY for view in picture.views] == ["load"]


def limits_of(picture):
    return {view.KEY: [(*ax.get_xlim(), *ax.get_ylim()) for ax in view.axes] for view in picture.views}


def test_axes_hold_while_a_setting_gets_better_and_shrink_when_they_are_released(cases):
    picture = shown(cases["slower"])
    before = limits_of(picture)
    picture.show(cases["plain"])
    held = limits_of(picture)
    for key in ("latency", "breakdown"):
        for old, new in zip(before[key], held[key], strict=True):
            assert new[0] <= old[0]
            assert new[1] >= old[1]
            assert new[3] >= old[3]
    assert picture.release()
    assert limits_of(picture)["breakdown"][0][3] < held["breakdown"][0][3]
    picture.pixels()
    assert not picture.release()


def test_the_overloaded_run_before_the_last_move_hides_no_breakdown(cases):
    after = data_of(BASE, before=cases["overloaded"])
    (limits,) = limits_of(shown(after))["breakdown"]
    assert [limits] == limits_of(shown(cases["plain"]))["breakdown"]


def test_axes_grow_when_they_must(cases):
    picture = shown(cases["plain"])
    picture.show(cases["slower"])
    assert picture.view(LatencyView).ax.get_xlim()[1] > cases["slower"].result.percentile(99)


def test_the_headline_has_four_figures_with_intervals_and_what_has_changed(cases):
    p50, p99, throughput, load = figures_of(cases["moved"])
    run, before = cases["moved"].result, cases["plain"].result
    assert p99.name == "p99 \N{CHECK MARK} \N{LESS-THAN OR EQUAL TO} 20 ms"
    assert float(p99.value) == pytest.approx(run.percentile(99), rel=0.005)
    sign, size = p99.change.split()
    assert float(size) == pytest.approx(abs(run.percentile(99) - before.percentile(99)), abs=0.06)
    assert sign == ("\N{BLACK UP-POINTING TRIANGLE}" if run.percentile(99) > before.percentile(99) else "▼")
    low, high = map(float, p50.interval.split(" to "))
    assert low <= run.percentile(50) <= high
    assert throughput.unit == "per s"
    assert load.value == percent(run.scenario.load)


def test_the_headline_of_an_overloaded_run_has_no_percentile(cases):
    p50, p99, _, load = figures_of(cases["overloaded"])
    assert p50.value == p99.value == "grows"
    assert p50.alert
    assert p99.alert
    assert load.alert
    assert "\N{BALLOT X}" in p99.name
    assert "overloaded" in load.name


def test_a_small_view_says_that_a_click_enlarges_it(cases):
    picture = shown(cases["plain"])
    for view in picture.views[1:]:
        middle = view.box.left + view.box.width / 2, view.box.top + view.box.height / 2
        spot = picture.at(middle[0] / picture.width_px, middle[1] / picture.height_px)
        assert (spot.view, spot.change) == (view.KEY, None)
        assert view.NAME in spot.text
    assert picture.at(0.5, 0.01) is None  # the headline
    assert LivePicture(860).at(0.8, 0.8) is None  # nothing is shown yet


def test_the_pointer_reads_values_off_every_large_view(cases):
    data = cases["plain"]
    latency = over(enlarged(data, LatencyView), 0.5, 0.5, data)
    right = enlarged(data, LatencyView).ax.get_xlim()[1]
    below = np.mean(data.result.latency_ms < right / 2)
    assert latency.text.startswith(f"{percent(below)} of the requests take less than")
    slowest = over(enlarged(data, BreakdownView), 0.99, 0.5, data)
    assert slowest.text.startswith("Requests from 95 to 100 %: computing")
    view = enlarged(data, BatchView)
    sizes = data.result.batches.batch_size
    assert over(view, 0.999, 0.5, data).text.startswith(
        f"Batches of 16: {number(100 * np.mean(sizes == 16))} %"
    )
    timeline = enlarged(data, TimelineView)
    first = timeline.part.requests[0]
    assert over(timeline, 0.5, 0.001, data).text.startswith(f"Request {first:,}: ")


def test_a_click_on_the_load_curve_sets_the_rate_that_the_pointer_reads(cases):
    spot = over(enlarged(cases["plain"], LoadView), 0.4, 0.3, cases["plain"])
    assert spot.change["rate_per_s"] == pytest.approx(0.4 * 2500, rel=0.3)
    assert f"{spot.change['rate_per_s']:,.6g}/s: p99 about" in spot.text
    clients = over(enlarged(cases["closed"], LoadView), 0.4, 0.3, cases["closed"])
    assert isinstance(clients.change["clients"], int)


def test_a_moment_is_from_the_middle_of_the_run_also_in_overload(cases):
    for name in ("plain", "overloaded"):
        result = cases[name].result
        stretch = window(result)
        assert stretch.last - stretch.first >= 3
        assert abs(stretch.first - len(result.batches) / 2) <= 3
        inside = result.batch_index[stretch.requests]
        assert set(inside[inside >= 0]) == set(range(stretch.first, stretch.last + 1))
        spans = result.batches.finish_s[stretch.last] - result.batches.start_s[stretch.first]
        assert stretch.end_s - stretch.begin_s <= 3.01 * spans


@pytest.mark.parametrize(
    ("look", "message"),
    [
        ({"width_px": 10}, "width_px must be at least 240, got 10"),
        ({"large": "lode"}, "large must be .*, got 'lode'; did you mean 'load'"),
        ({"ratio": math.nan}, "ratio must be a number, got nan"),
        ({"theme": "drak"}, "theme must be 'light' or 'dark', got 'drak'; did you mean 'dark'"),
        ({"size": "huge"}, "size must be 'page' or 'projector', got 'huge'"),
    ],
)
def test_a_look_that_makes_no_sense_is_refused(look, message):
    with pytest.raises(ValueError, match=message):
        LivePicture(**look)


# What each view shows.


def values_of(view):
    """The values in a view's legend."""
    return [entry.value for entry in view.entries if entry.value is not None]


def names_of(view):
    return [entry.text for entry in view.entries if entry.value is None]


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


# The heat map.


@pytest.mark.parametrize("look", [{}, {"width_px": 700}, {"size": "projector", "ratio": 2}])
def test_a_click_in_the_middle_of_a_cell_finds_it(cases, look):
    picture = shown(cases["plain"], large="map", **look)
    picture.pixels()
    ax, height = picture.view(HeatMapView).ax, picture.bbox.height
    for row in range(4):
        for column in range(4):
            x, y = ax.transData.transform((column + 0.5, row + 0.5))
            spot = picture.at(x / picture.bbox.width, 1 - y / height)
            assert (spot.change is None) == bool(spot.refused)
            if spot.change is not None:
                rule = spot.change["rule"]
                assert (rule.max_batch_size, rule.max_wait_ms) == (SIZES[column], WAITS[row])


def test_a_cell_without_a_steady_state_has_no_colour(cases):
    found = cases["at least"].surface
    drawn = np.asarray(shown(cases["at least"]).view(HeatMapView).image.get_array())
    void = found.overloaded | found.refused | np.isinf(found.p99_ms)
    assert void.any()
    np.testing.assert_array_equal(drawn[..., 3] == 0, void)


def test_the_colours_are_palest_at_the_objective_and_end_at_a_quarter_and_four_times_of_it():
    values = np.geomspace(20 / 4, 20 * 4, 51)[None]
    grey = colours(values, 20.0)[0, :, :3] @ [0.299, 0.587, 0.114]
    assert np.argmax(grey) == 25
    assert (np.diff(grey[:26]) >= 0).all()
    assert (np.diff(grey[25:]) <= 0).all()
    np.testing.assert_array_equal(colours(values * 100, 20.0)[0, -1], colours(values, 20.0)[0, -1])


def test_without_an_objective_the_best_is_the_strongest_colour():
    grey = colours(np.geomspace(1, 100, 50)[None], None)[0, :, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) >= 0).all()


def test_the_star_is_on_the_surfaces_best(cases):
    row, column = cases["plain"].surface.best()
    star = shown(cases["plain"]).view(HeatMapView).star
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (column + 0.5, row + 0.5)


@dataclasses.dataclass(frozen=True, eq=False)
class Tied(Surface):
    """A surface whose best setting is not the one with the lowest p99, but tied with it."""

    def best(self):
        return (1, 3)

    def ties(self):
        tied = np.zeros(self.p99_ms.shape, dtype=bool)
        tied[:2, 2:] = True
        return tied


class Alone(Tied):
    """A surface whose best setting has no equal."""

    def ties(self):
        tied = np.zeros(self.p99_ms.shape, dtype=bool)
        tied[self.best()] = True
        return tied


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_frame_marks_each_setting_that_cannot_be_told_from_the_best(cases, theme):
    plain = cases["plain"]
    grid = {f.name: getattr(plain.surface, f.name) for f in dataclasses.fields(plain.surface)}
    data = dataclasses.replace(plain, surface=Tied(**grid))
    picture = shown(data, large="map", theme=theme)
    view = picture.view(HeatMapView)
    for frames in view.ties:
        corners = frames.get_path().vertices.reshape(-1, 5, 2)
        assert {(math.floor(x), math.floor(y)) for x, y in corners[:, 0]} == {(2, 0), (3, 0), (2, 1), (3, 1)}
        assert (
            (corners > np.floor(corners)) & (corners < np.ceil(corners))
        ).all()  # inside, beside the border
    assert (view.star.get_xdata()[0], view.star.get_ydata()[0]) == (3.5, 1.5)
    assert TIED in names_of(view)
    assert "3 others do not differ significantly" in picture.describe(data)
    picture.show(dataclasses.replace(plain, surface=Alone(**grid)))
    assert TIED not in names_of(view)
    assert all(len(frames.get_path().vertices) == 1 for frames in view.ties)


@pytest.mark.parametrize(
    ("knobs", "where"),
    [
        ({"max_batch_size": 10, "max_wait_ms": 2.5}, (2.0, 1.0)),  # half way between 4 and 16, 0 and 5
        ({"max_batch_size": 64, "max_wait_ms": 90}, (3.5, 2.5)),  # beyond: at the last finite one
        ({"max_wait_ms": math.inf}, (2.5, 3.5)),
    ],
)
def test_todays_place_is_also_between_the_grids_values(cases, knobs, where):
    assert position(cases["plain"].surface, BASE.replace(knobs).rule) == pytest.approx(where)


def test_a_rule_of_another_kind_has_no_place_on_the_map(cases):
    assert position(cases["plain"].surface, bs.AtLeast(2, 8)) is None


@pytest.mark.parametrize("link", ["max_batch_size=4", "rate_per_s=3000", "service=published&rate_per_s=1500"])
def test_the_present_load_stands_within_the_axes(link):
    panel = bs.explore(requests=2000, link=link)
    right = panel.picture.view(LoadView).top.get_xlim()[1]
    assert panel.scenario.workload.rate_per_s <= right / 1.02


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
