"""The live picture: what it shows is right, and drawing it by parts is drawing it whole."""

import math
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import (
    ALWAYS,
    BASE,
    LOOKS,
    assert_drawn_within_places,
    assert_texts_laid_out,
    data_of,
    enlarged,
    over,
    pixels,
    shown,
)
from PIL import Image

import batchsim as bs
from batchsim._format import number, percent
from batchsim.view.pictures.batches import BatchView
from batchsim.view.pictures.breakdown import BreakdownView
from batchsim.view.pictures.headline import figures_of
from batchsim.view.pictures.latency import LatencyView
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.load import LoadView
from batchsim.view.pictures.moments import window
from batchsim.view.pictures.timeline import TimelineView

MORE = {  # views of runs that have more
    "replicas": BASE.replace(replicas=4, routing="fill_first"),
    "sizes": BASE.replace(
        workload=bs.Poisson(500).with_sizes(bs.Uniform(1, 99)), service=bs.PaddedTime(5, 0.2, 0.002)
    ),
}


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
