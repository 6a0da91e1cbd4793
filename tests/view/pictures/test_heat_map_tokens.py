"""The heat map and the load view of token generation: they show what the surface and the curve say."""

import dataclasses
import math

import numpy as np
import pytest

import batchsim as bs
from batchsim.study.surface import load_curve, surface
from batchsim.view.canvas.cells import shades
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.theme import SIZES, THEMES
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.heat_map import MEASURES, OVERLOADED, REFUSED, TIED, TokenHeatMapView, position
from batchsim.view.pictures.load import TokenLoadView
from batchsim.view.pictures.views import RunPicture

STEP = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
TOKENS = bs.Tokens(bs.Lognormal(500, 1.0, at_most=3000), bs.Geometric(60))
SCENARIO = bs.Scenario(bs.Poisson(8), bs.Continuous(64, 1024, kv_blocks=1500), STEP, tokens=TOKENS)
SEATS, BUDGETS, MEMORIES = [2, 16, 64, 256], [300, 1024, 4096], [100, 500, 1000, 2000]
BOTH = {"ttft_ms": 700.0, "tpot_ms": 40.0}
LOOKS = [{}, {"theme": "dark", "large": False}, {"theme": "dark", "size": "projector"}, {"large": False}]


def data_of(scenario, knobs=None, before=None, pinned=None, **limits):
    both = {f"{name.removesuffix('_ms')}_objective_ms": ms for name, ms in limits.items()}
    ys = MEMORIES if knobs else BUDGETS
    found = surface(scenario, SEATS, ys, 300, knobs=knobs, **(both if len(both) == 2 else {}))
    curve = load_curve(scenario, 100)
    result = bs.simulate(scenario, 300)
    return ViewData(result, found, curve, before=before, pinned=pinned, **limits)


@pytest.fixture(scope="module")
def cases():
    both = data_of(SCENARIO, **BOTH)
    return {
        "both": both,
        "one": data_of(SCENARIO, ttft_ms=700.0),
        "memory": data_of(SCENARIO, ("max_num_seqs", "kv_blocks")),
        "unlimited": data_of(SCENARIO.replace(kv_blocks=None), ("max_num_seqs", "kv_blocks")),
        "overloaded": data_of(SCENARIO.replace(rate_per_s=500), **BOTH),
        "clients": data_of(SCENARIO.replace(workload=bs.ClosedLoop(24, 0.5)), **BOTH),
        "pinned": data_of(SCENARIO.replace(max_num_seqs=16), pinned=both, **BOTH),
        "lost": data_of(SCENARIO.replace(queue_limit=1, rate_per_s=12)),
    }


def drawn(kind, data, theme="light", size="page", large=True):
    width, height = (640, 430) if large else (320, 200)
    picture = RunPicture(width, height, 1.0, THEMES[theme], SIZES[size].em_px(width))
    picture.add_views([(kind, Box(0, 0, width, height), large)], SIZES[size].line_px)
    picture.show(data)
    return picture.views[0]


@pytest.mark.parametrize("look", LOOKS, ids=repr)
@pytest.mark.parametrize("kind", [TokenHeatMapView, TokenLoadView])
def test_every_case_is_drawn_in_every_look_and_by_parts_as_afresh(cases, kind, look):
    view = drawn(kind, cases["both"], **look)
    for data in (*cases.values(), cases["both"]):
        view.picture.show(data)
        view.picture.pixels()
        assert view.describe(data)
    view.picture.release()
    assert view.picture.png() == drawn(kind, cases["both"], **look).picture.png()


# The heat map.


def test_a_cell_without_a_steady_number_has_no_colour(cases):
    for data in cases.values():
        view = drawn(TokenHeatMapView, data)
        painted = np.asarray(view.image.get_array())[..., 3] > 0
        np.testing.assert_array_equal(painted, np.isfinite(data.surface.values))


def test_the_map_is_of_goodput_where_both_objectives_are_set(cases):
    view = drawn(TokenHeatMapView, cases["both"])
    assert "Goodput" in view.title.get_text()
    assert view.bar.get_yscale() == "linear"
    view.picture.show(cases["one"])
    assert "TTFT" in view.title.get_text()
    assert view.bar.get_yscale() == "log"
    view.picture.show(cases["both"])
    assert "Goodput" in view.title.get_text()
    assert view.bar.get_ylim()[0] == 0


def test_the_more_goodput_the_stronger_the_colour():
    grey = shades(np.linspace(0, 9, 50)[None], 9.0)[0, :, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) <= 0).all()


def test_the_line_surrounds_the_settings_that_keep_the_objectives(cases):
    both, one = cases["both"], cases["one"]
    within = MEASURES[both.surface.metric].within(both.surface.values, both)
    np.testing.assert_array_equal(within, both.surface.attainment >= 0.99)
    within = MEASURES[one.surface.metric].within(one.surface.values, one)
    np.testing.assert_array_equal(within, one.surface.ttft_p99_ms <= 700)
    assert 0 < within.sum() < np.isfinite(one.surface.ttft_p99_ms).sum()
    memory = cases["memory"]
    assert not MEASURES[memory.surface.metric].within(memory.surface.values, memory).any()


@pytest.mark.parametrize("name", ["both", "memory"])
def test_a_click_on_a_cell_sets_its_setting(cases, name):
    data = cases[name]
    view, found = drawn(TokenHeatMapView, data), data.surface
    box, (rows, columns) = view.plot_box, found.refused.shape
    for row in range(rows):
        for column in range(columns):
            x = box.left + box.width * (column + 0.5) / columns
            y = box.bottom - box.height * (row + 0.5) / rows
            spot = view.spot(x, y, data)
            if found.refused[row, column]:
                assert spot.change is None
                assert spot.refused
                continue
            rule = spot.change["rule"]
            assert rule == found.rules[row * len(found.x_values) + column]
            assert (getattr(rule, found.x), getattr(rule, found.y)) == (SEATS[column], found.y_values[row])
            assert f"max_num_seqs {SEATS[column]}, {found.y} {found.y_values[row]}" in spot.text
            assert ("overloaded" in spot.text) == bool(found.overloaded[row, column])
    assert view.spot(1, 1, data) is None


def test_the_star_and_the_frames_are_the_best_and_its_ties(cases):
    found, view = cases["both"].surface, drawn(TokenHeatMapView, cases["both"])
    row, column = found.best()
    assert (view.star.get_xdata()[0], view.star.get_ydata()[0]) == (column + 0.5, row + 0.5)
    names = {entry.text for entry in view.entries}
    assert (TIED in names) == (found.ties().sum() > 1)
    assert (OVERLOADED in names) == found.overloaded.any()
    assert REFUSED in {entry.text for entry in drawn(TokenHeatMapView, cases["memory"]).entries}


def test_the_present_setting_stands_on_the_map_also_with_memory_without_end(cases):
    assert position(cases["both"].surface, SCENARIO.rule) == (2.5, 1.5)
    assert position(cases["memory"].surface, SCENARIO.rule) == (2.5, 3.0)  # 1500: between 1000 and 2000
    assert position(cases["unlimited"].surface, cases["unlimited"].result.scenario.rule) == (2.5, 3.5)
    assert position(cases["both"].surface, bs.SizeOrWait(8, 10)) is None
    view = drawn(TokenHeatMapView, cases["pinned"])
    assert (view.now[0].get_xdata()[0], view.other[0].get_xdata()[0]) == (1.5, 2.5)


def test_the_map_in_words(cases):
    (text,) = drawn(TokenHeatMapView, cases["both"]).describe(cases["both"])
    assert text.startswith("Of 12 settings, each run with 300 requests, the best is max_num_seqs")
    assert "goodput" in text
    (text,) = drawn(TokenHeatMapView, cases["one"]).describe(cases["one"])
    assert "p99 TTFT" in text
    assert "meet the objective" in text
    (text,) = drawn(TokenHeatMapView, cases["overloaded"]).describe(cases["overloaded"])
    assert "none keeps up" in text
    (text,) = drawn(TokenHeatMapView, cases["lost"]).describe(cases["lost"])
    assert "none serves 99 of 100 requests" in text


# The load.


def test_the_present_point_is_where_the_result_is(cases):
    view, summary = drawn(TokenLoadView, cases["both"]), cases["both"].summary
    columns = ("ttft_p99_ms", "mean_ttft_ms", "p99_ms", "tpot_p99_ms", "mean_tpot_ms", "throughput_per_s")
    points = [(point.get_xdata()[0], point.get_ydata()[0]) for point in view.points]
    assert points == [(8, summary[column]) for column in columns]


def test_the_lines_are_the_curves_and_end_at_saturation(cases):
    data = cases["both"]
    view, curve = drawn(TokenLoadView, data), data.curve
    for line, each in zip(view.curves, view.drawn, strict=True):
        column = getattr(curve, each.column)
        if each.column.endswith("_ms"):
            column = np.where(curve.overloaded, math.nan, column)
        np.testing.assert_array_equal(line.get_ydata(), column)
    assert {line.get_xdata()[0] for line in view.saturation} == {curve.saturation}
    assert not drawn(TokenLoadView, cases["clients"]).saturation[0].get_visible()
    assert all(
        math.isnan(point.get_ydata()[0]) for point in drawn(TokenLoadView, cases["overloaded"]).points[:5]
    )


def test_each_objective_is_a_line_of_its_own_panel(cases):
    view = drawn(TokenLoadView, cases["both"])
    assert [line.get_ydata()[0] for line in view.limits] == [700, 40]
    view.picture.show(cases["one"])
    assert view.limits[0].get_ydata()[0] == 700
    assert math.isnan(view.limits[1].get_ydata()[0])


def test_a_click_on_the_load_sets_the_rate_or_the_clients(cases):
    for name, knob in (("both", "rate_per_s"), ("clients", "clients")):
        view = drawn(TokenLoadView, cases[name])
        box = view.plot_box
        spot = view.spot(box.left + 0.3 * box.width, box.top + 0.3 * box.height, cases[name])
        assert spot.change[knob] == pytest.approx(0.3 * view.top.get_xlim()[1], rel=0.02)
        assert all(word in spot.text for word in ("TTFT p99", "answer p99", "TPOT p99", "Click"))
        assert view.spot(1, 1, cases[name]) is None
    view = drawn(TokenLoadView, cases["both"])
    over = view.plot_box.left + 0.99 * view.plot_box.width
    assert "overloaded" in view.spot(over, view.plot_box.top + 5, cases["both"]).text


def test_the_load_in_words(cases):
    point, ends = drawn(TokenLoadView, cases["both"]).describe(cases["both"])
    assert "Arrival rate 8/s" in point
    assert "tokens/s" in point
    assert all(name in ends for name in ("mean TTFT", "p99 TTFT", "mean TPOT", "p99 TPOT"))
    assert "24 clients" in drawn(TokenLoadView, cases["clients"]).describe(cases["clients"])[0]


def test_other_data_is_drawn_beside_only_against_the_same_axis(cases):
    moved = dataclasses.replace(cases["both"], before=cases["clients"])
    assert not drawn(TokenLoadView, moved).other_curves[0].get_visible()
    view = drawn(TokenLoadView, cases["pinned"])
    assert view.other_points[0].get_ydata()[0] == cases["both"].summary["ttft_p99_ms"]
