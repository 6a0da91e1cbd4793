"""The live picture: what it shows is right, and drawing it by parts is drawing it whole."""

import math
import warnings
from io import BytesIO
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from PIL import Image

import batchsim as bs
from batchsim.study.surface import load_curve, surface
from batchsim.theory.curve import theory_curve
from batchsim.view.canvas.lettering import Lettering, width_em
from batchsim.view.canvas.picture import packed
from batchsim.view.canvas.view import log_ticks, nice_span
from batchsim.view.run.heat_map import border, colours, place, squares
from batchsim.view.run.latency import queue_length
from batchsim.view.run.live import LivePicture
from batchsim.view.run.ranked import Ranked
from batchsim.view.run.scene import Scene

BASE = bs.Scenario(bs.Poisson(1500), bs.SizeOrWait(16, 5), bs.Affine(5, 0.25))
SIZES, WAITS = (1, 4, 16, 32), (0, 5, 20, math.inf)


def scene(scenario, objective_ms=20.0, pinned=None, requests=3000, compared=True):
    result = bs.simulate(scenario, requests)
    closed = isinstance(scenario.workload, bs.ClosedLoop)
    y_values = SIZES if isinstance(scenario.rule, bs.AtLeast) else WAITS
    curve = load_curve(scenario, 500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a run has no interval for some numbers
        both = bs.compare(pinned.result, result) if pinned is not None and compared else None
    return Scene(
        result=result,
        surface=surface(scenario, SIZES, y_values, 500),
        curve=curve,
        theory=None if closed else theory_curve(scenario, curve.x_values),
        objective_ms=objective_ms,
        pinned=pinned,
        comparison=both,
    )


@pytest.fixture(scope="module")
def scenes():
    plain = scene(BASE)
    return {
        "plain": plain,
        "slower": scene(BASE.replace(rate_per_s=300, max_wait_ms=60, max_batch_size=32), objective_ms=None),
        "overloaded": scene(BASE.replace(rate_per_s=3000)),
        "pinned": scene(BASE.replace(max_wait_ms=0), pinned=plain),
        "both overloaded": scene(BASE.replace(rate_per_s=3000), pinned=scene(BASE.replace(rate_per_s=3500))),
        "at least": scene(BASE.replace(rule=bs.AtLeast(4, 16))),
        "closed": scene(BASE.replace(workload=bs.ClosedLoop(40, 0.005))),
        "losing": scene(BASE.replace(rate_per_s=3000, queue_limit=20)),
        "late": scene(BASE.replace(rate_per_s=3000, timeout_ms=8)),
        "nobody": scene(BASE.replace(timeout_ms=0)),
    }


def shown(scene, width_px=860, **look):
    picture = LivePicture(width_px, **look)
    picture.show(scene)
    return picture


def pixels(picture):
    return picture.pixels().copy()


# Drawing by parts.


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_after_any_moves_the_picture_is_the_one_drawn_afresh(scenes, data):
    names = data.draw(st.lists(st.sampled_from(sorted(scenes)), min_size=2, max_size=4))
    moved = LivePicture(860)
    for name in names:
        moved.show(scenes[name])
        drawn = pixels(moved)
    np.testing.assert_array_equal(drawn, pixels(shown(scenes[names[-1]])))


@pytest.mark.parametrize("name", ["plain", "overloaded", "pinned", "losing"])
def test_the_picture_is_what_matplotlib_draws_on_its_own(scenes, name):
    picture = shown(scenes[name], theme="dark")
    by_parts = pixels(picture)
    for tile in picture.tiles:
        for artist in tile.moving:
            artist.set_animated(False)
    picture.agg.draw()
    np.testing.assert_array_equal(by_parts[..., :3], np.asarray(picture.agg.buffer_rgba())[..., :3])


@pytest.mark.parametrize("name", ["pinned", "nobody", "both overloaded", "at least"])
@pytest.mark.parametrize("look", [{}, {"size": "projector"}, {"width_px": 600, "ratio": 1.5}])
def test_every_view_stays_within_its_place(scenes, name, look):
    picture = shown(scenes[name], **look)
    picture.pixels()
    frame, renderer = picture._frame(), picture.agg.get_renderer()
    for tile in picture.tiles:
        frame[:] = 255
        tile.draw(renderer)
        tile.draw_moving(renderer)
        frame[tile.place] = 255
        assert (frame[..., :3] == 255).all()


def places_of(tile, picture):
    """Each text of a view with its rectangle in CSS pixels: (text, left, top, right, bottom)."""
    renderer, ratio = picture.agg.get_renderer(), picture.ratio
    for artist in (*tile.fixed, *tile.moving):
        if isinstance(artist, Lettering):
            for words in artist.texts:
                width = artist.font_px * width_em(words.text)
                left = words.x - width * {"left": 0, "center": 0.5, "right": 1}[words.align]
                yield words.text, left, words.y - 0.76 * artist.font_px, left + width, words.y
        elif isinstance(artist, Text) and artist.get_text():
            box = artist.get_window_extent(renderer)
            top, bottom = picture.height_px - box.y1 / ratio, picture.height_px - box.y0 / ratio
            yield artist.get_text(), box.x0 / ratio, top, box.x1 / ratio, bottom


@pytest.mark.parametrize("look", [{}, {"size": "projector"}, {"width_px": 1500}, {"width_px": 620}], ids=repr)
def test_no_text_is_over_another(scenes, look):
    picture = LivePicture(**{"width_px": 860} | look)
    for name, shown_scene in scenes.items():
        picture.show(shown_scene)
        picture.pixels()
        for tile in picture.tiles:
            for one, other in combinations(list(places_of(tile, picture)), 2):
                apart = one[3] <= other[1] or other[3] <= one[1] or one[4] <= other[2] or other[4] <= one[2]
                assert apart, (name, one, other)


@pytest.mark.parametrize("look", [{"width_px": 857}, {"width_px": 600, "ratio": 1.25}, {"width_px": 400}])
def test_the_views_places_are_the_picture_and_do_not_overlap(look):
    picture = LivePicture(**look)
    covered = np.zeros(picture._frame().shape[:2], dtype=int)
    for tile in picture.tiles:
        covered[tile.place] += 1
    assert (covered == 1).all()


def test_a_move_that_changes_no_scale_draws_nothing_still_anew(scenes):
    picture = shown(scenes["plain"])
    picture.pixels()
    picture.show(scenes["plain"])
    assert not any(tile.stale for tile in picture.tiles)


def test_a_users_settings_of_matplotlib_change_nothing(scenes):
    import matplotlib

    plain = pixels(shown(scenes["plain"]))
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):
        np.testing.assert_array_equal(pixels(shown(scenes["plain"])), plain)


def test_the_png_holds_the_pixels_of_the_screen(scenes):
    picture = shown(scenes["plain"], ratio=1.5)
    image = Image.open(BytesIO(picture.png()))
    assert image.size == (1290, 1.5 * picture.height_px)
    np.testing.assert_array_equal(np.asarray(image), picture.pixels()[..., :3])


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_any_pixels_can_be_packed(rows, columns, seed):
    drawn = np.random.default_rng(seed).integers(0, 256, (rows, columns, 4), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(packed(drawn)))), drawn[..., :3])


def test_a_saved_picture_has_all_and_the_live_one_goes_on(scenes, tmp_path):
    picture = shown(scenes["plain"])
    before = pixels(picture)
    picture.savefig(tmp_path / "saved.svg")
    picture.savefig(tmp_path / "saved.png", dpi=72)
    saved = np.asarray(Image.open(tmp_path / "saved.png").convert("RGB"))
    np.testing.assert_array_equal(saved, before[..., :3])
    assert "<path" in (tmp_path / "saved.svg").read_text()
    np.testing.assert_array_equal(pixels(picture), before)


# Places and sizes.


@pytest.mark.parametrize(("width_px", "columns"), [(1500, 3), (760, 3), (700, 2), (400, 1)])
def test_there_are_as_many_views_beside_each_other_as_there_is_room_for(width_px, columns):
    picture = LivePicture(width_px)
    assert len({tile.box.left for tile in picture.tiles}) == columns
    assert picture.height_px == picture.tiles[0].box.height * 6 / columns


def test_in_a_narrow_notebook_the_picture_is_on_one_screen():
    assert LivePicture(860).height_px <= 560


@pytest.mark.parametrize(
    ("look", "message"),
    [
        ({"width_px": 10}, "width_px must be at least 320, got 10"),
        ({"ratio": math.nan}, "ratio must be a number, got nan"),
        ({"theme": "drak"}, "theme must be 'light' or 'dark', got 'drak'; did you mean 'dark'"),
        ({"size": "huge"}, "size must be 'page' or 'projector', got 'huge'"),
    ],
)
def test_a_look_that_makes_no_sense_is_refused(look, message):
    with pytest.raises(ValueError, match=message):
        LivePicture(**look)


# Latencies in order.


@given(
    st.lists(st.sampled_from([0.0, 1.0, 1.0 + 1e-12, 2.5, 1e6]) | st.floats(0, 100), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_ranked_latencies_are_numpys(latencies_s, groups):
    count = len(latencies_s)
    log = bs.engines.log.Log(
        arrival_s=np.zeros(count),
        batch_index=np.arange(count),
        status=np.zeros(count, np.uint8),
        batch_start_s=np.zeros(count),
        batch_finish_s=np.array(latencies_s),
        batch_size=np.ones(count, int),
        batch_server=np.zeros(count, int),
    )
    result = bs.Result(BASE, 0, "simpy", 0.0, log)
    latency_ms = result.latency_ms
    column = np.arange(count, dtype=float)
    sorted_groups = np.array_split(np.argsort(latency_ms, kind="stable"), groups)
    means = Ranked(result).group_means([column], groups)[0]
    np.testing.assert_allclose(means, [column[g].mean() if g.size else 0 for g in sorted_groups])
    edges = np.linspace(0, 1.1 * latency_ms.max() + 1e-9, 8)
    np.testing.assert_allclose(
        Ranked(result).shares(edges), 100 * np.histogram(latency_ms, edges)[0] / count, atol=1e-9
    )


# What each view shows.


def test_the_distributions_last_bar_holds_the_tail(scenes):
    values = shown(scenes["plain"]).latency.bars.get_data().values
    assert values.sum() == pytest.approx(100)


def test_the_share_within_the_objective_counts_those_who_were_lost(scenes):
    result = scenes["losing"].result
    told = shown(scenes["losing"]).latency.told
    share = np.count_nonzero(result.latency_ms <= 20) * 10_000 // 3000 / 100  # per cent, rounded down
    assert f"within 20 ms: {share:.2f} %" in told
    assert f"lost {100 * np.isnan(result.latency_ms).mean():.2f} %" in told


def test_an_overloaded_run_shows_its_queue_and_no_percentile(scenes):
    result, view = scenes["overloaded"].result, shown(scenes["overloaded"]).latency
    assert "Overloaded" in view.title.get_text()
    assert not any(line.get_visible() for line in view.lines.values())
    times_s, waiting = view.waiting.get_data()
    counted = [np.sum((result.arrival_s <= t) & (result.start_s > t)) for t in times_s]
    np.testing.assert_array_equal(waiting, counted)
    assert view.told == [f"+{3000 - 16 / 0.009:,.0f} every second"]


def test_a_queue_is_counted_over_the_whole_run(scenes):
    waiting, end_s = queue_length(scenes["overloaded"].result)
    assert end_s == scenes["overloaded"].result.arrival_s[-1]
    assert waiting[-1] > 100


def test_beyond_saturation_no_latency_is_drawn(scenes):
    view, curve = shown(scenes["overloaded"]).load, scenes["overloaded"].curve
    for line in (view.mean, view.p99):
        drawn = np.isfinite(line.get_ydata())
        np.testing.assert_array_equal(drawn, curve.x_values < curve.saturation)
    p99, mean, throughput = (marker.get_ydata()[0] for marker in view.today)
    assert math.isnan(p99)
    assert math.isnan(mean)
    assert throughput == scenes["overloaded"].result.throughput_per_s


def test_todays_point_is_where_the_result_is(scenes):
    view, result = shown(scenes["plain"]).load, scenes["plain"].result
    points = [(m.get_xdata()[0], m.get_ydata()[0]) for m in view.today]
    heights = (result.percentile(99), result.mean_latency_ms, result.throughput_per_s)
    assert points == [(1500, height) for height in heights]


def test_theorys_curve_has_the_points_that_theory_knows(scenes):
    drawn = shown(scenes["plain"]).load.theory.get_ydata()
    assert len(drawn) > 3
    assert np.isfinite(drawn).all()


def test_a_closed_loop_is_drawn_against_its_clients(scenes):
    view = shown(scenes["closed"]).load
    assert view.low.get_xlabel() == "clients"
    assert view.today[0].get_xdata()[0] == 40
    assert not view.limits[0].get_visible()


def test_what_is_pinned_is_drawn_beside_what_is_now(scenes):
    picture, pinned = shown(scenes["pinned"]), scenes["plain"].result
    assert picture.latency.a_bars.get_data().values.sum() == pytest.approx(100)
    edges = picture.latency.a_bars.get_data().edges
    np.testing.assert_allclose(
        picture.latency.a_bars.get_data().values, Ranked(pinned).shares(edges), atol=1e-12
    )
    groups = np.array_split(np.sort(pinned.latency_ms), 20)
    np.testing.assert_allclose(picture.parts.a_total.get_data().values, [group.mean() for group in groups])
    assert picture.load.a_today[0].get_ydata()[0] == pinned.percentile(99)
    assert picture.batches.a_total.get_data().values.sum() == pytest.approx(100)
    row, column = picture.field.a[0].get_ydata()[0], picture.field.a[0].get_xdata()[0]
    assert (row, column) == (1.5, 2.5)  # 5 ms, 16


def test_without_a_pinned_scene_nothing_of_one_is_seen(scenes):
    picture = shown(scenes["pinned"])
    picture.show(scenes["plain"])
    seen = [picture.latency.a_bars, picture.parts.a_total, picture.batches.a_total, *picture.load.a_curves]
    assert not any(artist.get_visible() for artist in seen)
    assert len(picture.field.a[0].get_xdata()) == 0


def test_requests_that_are_lost_are_marked_on_the_timeline(scenes):
    for name, state in (("losing", bs.Status.REJECTED), ("late", bs.Status.TIMED_OUT)):
        times_ms, rows = shown(scenes[name]).timeline.lost[state].get_data()
        result = scenes[name].result
        np.testing.assert_array_equal(rows, np.flatnonzero(result.status[:30] == state))
        waited_s = 0.008 if state == bs.Status.TIMED_OUT else 0
        left_s = result.arrival_s[rows] + waited_s - result.arrival_s[0]
        np.testing.assert_allclose(times_ms, 1000 * left_s)


# The heat map.


@pytest.mark.parametrize("look", [{}, {"width_px": 700}, {"size": "projector", "ratio": 2}])
def test_a_click_in_the_middle_of_a_cell_finds_it(scenes, look):
    picture = shown(scenes["plain"], **look)
    picture.pixels()
    ax, height = picture.field.ax, picture.bbox.height
    for row in range(4):
        for column in range(4):
            x, y = ax.transData.transform((column + 0.5, row + 0.5))
            assert picture.cell_at(x / picture.bbox.width, 1 - y / height) == (row, column)
    assert picture.cell_at(0.1, 0.1) is None
    assert LivePicture(860).cell_at(0.8, 0.8) is None  # nothing is shown yet


def test_a_cell_without_a_steady_state_has_no_colour(scenes):
    found = scenes["at least"].surface
    drawn = np.asarray(shown(scenes["at least"]).field.image.get_array())
    void = found.overloaded | found.refused | np.isinf(found.p99_ms)
    assert void.any()
    np.testing.assert_array_equal(drawn[..., 3] == 0, void)


def test_slower_cells_are_darker():
    grey = colours(np.geomspace(1, 100, 50)[None], 1, 100)[0, :, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) < 0).all()


def test_the_star_is_at_the_landscapes_best(scenes):
    row, column = scenes["plain"].surface.best()
    star = shown(scenes["plain"]).field.star
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (column + 0.5, row + 0.5)


@pytest.mark.parametrize(
    ("knobs", "where"),
    [
        ({"max_batch_size": 10, "max_wait_ms": 2.5}, (2.0, 1.0)),  # half way between 4 and 16, 0 and 5
        ({"max_batch_size": 64, "max_wait_ms": 90}, (3.5, 2.5)),  # beyond: at the last finite one
        ({"max_wait_ms": math.inf}, (2.5, 3.5)),
    ],
)
def test_todays_place_is_also_between_the_grids_values(scenes, knobs, where):
    assert place(scenes["plain"].surface, BASE.replace(knobs)) == pytest.approx(where)


def test_a_rule_of_another_kind_has_no_place_on_the_map(scenes):
    assert place(scenes["plain"].surface, BASE.replace(rule=bs.AtLeast(2, 8))) is None


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=4))
def test_the_border_has_an_edge_for_each_pair_of_neighbours_that_differ(rows):
    within = np.array(rows)
    pairs = np.sum(within[1:] != within[:-1]) + np.sum(within[:, 1:] != within[:, :-1])
    edges = border(within)
    assert len(edges) == pairs
    assert all(math.dist(*edge) == 1 for edge in edges)
    corners = squares(within).vertices
    assert len(corners) == max(5 * within.sum(), 1)


# Scales.


@given(st.floats(1e-6, 1e9), st.floats(1, 1e6))
def test_a_logarithmic_scale_holds_its_numbers_and_ends_on_a_tick(low, ratio):
    from matplotlib.figure import Figure

    begin, end = nice_span(low, low * ratio)
    assert begin <= low * (1 + 1e-9)
    assert end >= low * ratio * (1 - 1e-9)
    assert begin < end
    axis = Figure().add_subplot().yaxis
    log_ticks(axis, begin, end)
    assert 1 <= len(axis.get_majorticklocs()) <= 7


def test_latencies_of_one_value_have_one_bar():
    link = "workload=closed&rule=full_only&clients=64&max_batch_size=48"
    result = bs.explore(requests=2000, link=link).result
    values = set(result.latency_ms.round(6))
    assert values >= {17, 34}  # at which the axis has edges
    shares = Ranked(result).shares(np.linspace(0, 40, 61))
    assert np.count_nonzero(shares) == len(values)


@pytest.mark.parametrize("link", ["max_batch_size=4", "rate_per_s=3000", "service=published&rate_per_s=1500"])
def test_the_present_load_stands_within_the_axes(link):
    panel = bs.explore(requests=2000, link=link)
    right = panel.picture.load.top.get_xlim()[1]
    assert panel.scenario.workload.rate_per_s <= right / 1.02
