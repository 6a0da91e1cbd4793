"""The heat map and the load view of token generation: they show what the surface and the curve say."""

import dataclasses
import math

import numpy as np
import pytest
from pictures import coloured, drawn, group, over

import batchsim as bs
from batchsim.study.surface import load_curve, surface
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.heat_map import MEASURES, OVERLOADED, REFUSED, HeatMapView, position
from batchsim.view.pictures.load import TokenLoadView

STEP = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
TOKENS = bs.Tokens(bs.Lognormal(500, 1.0, at_most=3000), bs.Geometric(60))
SCENARIO = bs.Scenario(bs.Poisson(8), bs.Continuous(64, 1024, kv_blocks=1500), STEP, tokens=TOKENS)
SEATS, BUDGETS, MEMORIES = [2, 16, 64, 256], [300, 1024, 4096], [100, 500, 1000, 2000]
BOTH = {"ttft_ms": 700.0, "tpot_ms": 40.0}


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


# The heat map.


def test_a_cell_without_a_steady_number_has_no_colour(cases):
    for data in cases.values():
        view = drawn(HeatMapView, data)
        painted = coloured(view)[..., 3] > 0
        np.testing.assert_array_equal(painted, np.isfinite(data.surface.values))


def test_the_map_is_of_goodput_where_both_objectives_are_set(cases):
    view = drawn(HeatMapView, cases["both"])
    assert "Goodput" in view.heading.get_text()
    assert view.bar.get_yscale() == "linear"
    view.show(cases["one"])
    assert "TTFT" in view.heading.get_text()
    assert view.bar.get_yscale() == "log"
    view.show(cases["both"])
    assert "Goodput" in view.heading.get_text()
    assert view.bar.get_ylim()[0] == 0


def test_the_more_goodput_the_stronger_the_colour():
    per_s = np.linspace(0, 9, 50)
    scale, colours = MEASURES["goodput_per_s"].colours(per_s, None)
    grey = colours(scale(per_s))[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) <= 0).all()


def test_the_line_surrounds_the_settings_that_keep_the_objectives(cases):
    both, one = cases["both"], cases["one"]
    within = MEASURES[both.surface.metric].within(both)
    np.testing.assert_array_equal(within, both.surface.attainment >= 0.99)
    within = MEASURES[one.surface.metric].within(one)
    np.testing.assert_array_equal(within, one.surface.ttft_p99_ms <= 700)
    assert 0 < within.sum() < np.isfinite(one.surface.ttft_p99_ms).sum()
    memory = cases["memory"]
    assert not MEASURES[memory.surface.metric].within(memory).any()


@pytest.mark.parametrize("name", ["both", "memory"])
def test_a_click_on_a_cell_sets_its_setting(cases, name):
    data = cases[name]
    view, found = drawn(HeatMapView, data), data.surface
    rows, columns = found.refused.shape
    for row in range(rows):
        for column in range(columns):
            spot = over(view, (column + 0.5) / columns, 1 - (row + 0.5) / rows, data)
            if found.refused[row, column]:
                assert spot.change is None
                assert spot.refused
                continue
            rule = spot.change["rule"]
            assert rule == found.rules[row * len(found.x_values) + column]
            assert (getattr(rule, found.x), getattr(rule, found.y)) == (SEATS[column], found.y_values[row])
            assert f"max_num_seqs {SEATS[column]}, {found.y} {found.y_values[row]}" in spot.text
            assert ("overloaded" in spot.text) == bool(found.overloaded[row, column])
    assert over(view, 1.01, 0.5, data) is view.spot(view.bar, 1, 1, data) is None


def test_the_star_and_the_frames_are_the_best_and_its_ties(cases):
    found, view = cases["both"].surface, drawn(HeatMapView, cases["both"])
    row, column = found.best()
    assert tuple(each[0] for each in view.shown["best"].get_data()) == (column + 0.5, row + 0.5)
    assert ("ties" in view.shown) == ("dashed" in view.ax.get_xlabel()) == (found.ties().sum() > 1)
    for case in (cases["both"], cases["memory"]):
        view, surface = drawn(HeatMapView, case), case.surface
        reasons = (surface.overloaded & ~surface.refused, surface.refused)
        for name, cells in zip((OVERLOADED, REFUSED), reasons, strict=True):
            assert (name in view.shown) == cells.any()
            assert not cells.any() or len(view.shown[name].get_path().vertices) == 5 * cells.sum()


def test_the_present_setting_stands_on_the_map_also_with_memory_without_end(cases):
    assert position(cases["both"].surface, SCENARIO.rule) == (2.5, 1.5)
    assert position(cases["memory"].surface, SCENARIO.rule) == (2.5, 3.0)  # 1500: between 1000 and 2000
    assert position(cases["unlimited"].surface, cases["unlimited"].result.scenario.rule) == (2.5, 3.5)
    assert position(cases["both"].surface, bs.SizeOrWait(8, 10)) is None
    view = drawn(HeatMapView, cases["pinned"])
    assert [view.shown[mark].get_xdata() for mark in ("now", "other")] == [[1.5], [2.5]]


def test_the_map_in_words(cases):
    (text,) = drawn(HeatMapView, cases["both"]).describe(cases["both"])
    assert text.startswith("12 settings, each run with 300 requests: the best is max_num_seqs")
    assert "goodput" in text
    (text,) = drawn(HeatMapView, cases["one"]).describe(cases["one"])
    assert "p99 TTFT" in text
    assert "meet the objective" in text
    (text,) = drawn(HeatMapView, cases["overloaded"]).describe(cases["overloaded"])
    assert "none keeps up" in text
    (text,) = drawn(HeatMapView, cases["lost"]).describe(cases["lost"])
    assert "none serves 99 of 100 requests" in text


# The load.


def test_the_present_point_is_where_the_result_is(cases):
    view, summary = drawn(TokenLoadView, cases["both"]), cases["both"].summary
    columns = ("ttft_p99_ms", "mean_ttft_ms", "p99_ms", "tpot_p99_ms", "mean_tpot_ms", "throughput_per_s")
    points = [(point.get_xdata()[0], point.get_ydata()[0]) for point in group(view, "now point").values()]
    assert points == [(8, summary[column]) for column in columns]


def test_the_lines_are_the_curves_and_end_at_saturation(cases):
    data = cases["both"]
    view, curve = drawn(TokenLoadView, data), data.curve
    for line, each in zip(group(view, "now").values(), view.drawn, strict=True):
        column = getattr(curve, each.column)
        if each.column.endswith("_ms"):
            column = np.where(curve.overloaded, math.nan, column)
        np.testing.assert_array_equal(line.get_ydata(), column)
    assert {area.get_x() for area in group(view, "beyond").values()} == {curve.saturation}
    assert not group(drawn(TokenLoadView, cases["clients"]), "beyond")
    *durations, throughput = group(drawn(TokenLoadView, cases["overloaded"]), "now point").values()
    assert all(math.isnan(point.get_ydata()[0]) for point in durations)
    assert throughput.get_ydata()[0] == cases["overloaded"].result.throughput_per_s


def test_each_objective_is_a_line_of_its_own_panel(cases):
    view = drawn(TokenLoadView, cases["both"])
    assert [view.shown[name].get_ydata()[0] for name in BOTH] == [700, 40]
    view.show(cases["one"])
    assert view.shown["ttft_ms"].get_ydata() == [700] * 2
    assert "tpot_ms" not in view.shown


def test_a_click_on_the_load_sets_the_rate_or_the_clients(cases):
    for name, knob in (("both", "rate_per_s"), ("clients", "clients")):
        view = drawn(TokenLoadView, cases[name])
        spot = over(view, 0.3, 0.3, cases[name])
        assert spot.change[knob] == pytest.approx(0.3 * view.ax.get_xlim()[1], rel=0.02)
        assert all(word in spot.text for word in ("TTFT p99", "answer p99", "TPOT p99", "Click"))
        assert over(view, -0.01, 0.5, cases[name]) is None
    assert "overloaded" in over(drawn(TokenLoadView, cases["both"]), 0.99, 0.1, cases["both"]).text


def test_the_load_in_words(cases):
    point, ends = drawn(TokenLoadView, cases["both"]).describe(cases["both"])
    assert "Arrival rate 8/s" in point
    assert "tokens/s" in point
    assert all(name in ends for name in ("mean TTFT", "p99 TTFT", "mean TPOT", "p99 TPOT"))
    assert "24 clients" in drawn(TokenLoadView, cases["clients"]).describe(cases["clients"])[0]


def test_other_data_is_drawn_beside_only_against_the_same_axis(cases):
    moved = dataclasses.replace(cases["both"], before=cases["clients"])
    assert not group(drawn(TokenLoadView, moved), "other")
    view = drawn(TokenLoadView, cases["pinned"])
    assert view.shown["other point", "ttft_p99_ms"].get_ydata()[0] == cases["both"].summary["ttft_p99_ms"]


def test_durations_within_a_decade_have_a_fine_scale_and_an_objective_at_its_top_its_name_below(cases):
    view = drawn(TokenLoadView, cases["both"])
    lines = [*group(view, "now").values(), *group(view, "now point").values()]
    for ax in view.axes[:2]:
        low, high = ax.get_ylim()
        shown = np.concatenate([line.get_ydata() for line in lines if line.axes is ax])
        least, most = np.nanmin(shown), np.nanmax(shown)
        assert low <= least
        assert most <= high
        if most < 10 * least:
            assert low > 0.6 * least
            assert high < 1.7 * most
    below = {}
    for limit_ms in (30.0, 90.0):
        view.show(dataclasses.replace(cases["both"], tpot_ms=limit_ms))
        name = view.shown["name", "tpot_ms"]
        below[limit_ms] = name.get_position()[1] < 0
        assert name.get_text() == f"objective {limit_ms:g} ms"
    assert below == {30.0: False, 90.0: True}, view.axes[1].get_ylim()
