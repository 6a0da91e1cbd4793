"""The pictures of many scenarios show the tables' numbers."""

import dataclasses
import math

import numpy as np
import pandas
import pytest
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.colors import LogNorm, to_rgba
from matplotlib.patches import PathPatch
from pictures import assert_all_within, names_of

import batchsim as bs
from batchsim.measured.measurement import Measurement
from batchsim.study.capacity import capacity
from batchsim.study.slo import SLO
from batchsim.study.sweep import sweep
from batchsim.study.tune import tune
from batchsim.view.pictures.cells import border
from batchsim.view.pictures.curves import capacity_curves, frontier
from batchsim.view.pictures.sweep_map import heat_map
from batchsim.view.theme import VERMILION

SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
SIZES, WAITS = [4, 8, 16, 32], [0, 10, 40]


def swept(over, scenario=SCENARIO):
    return sweep(scenario, over, 2000, progress=False)


@pytest.fixture(scope="module")
def frame():
    return swept({"max_batch_size": SIZES, "max_wait_ms": WAITS})


@pytest.fixture(scope="module")
def rates():
    return swept({"rate_per_s": [100, 400, 800, 1600, 3200]})


def kinds(ax, kind):
    return [artist for artist in ax.get_children() if isinstance(artist, kind)]


def named(chart):
    """The texts of a map's legend; of curves, the names beside what they draw."""
    return [name.replace("\n", " ") for ax in chart.axes for name in names_of(ax)] or [
        text.get_text().replace("\n", " ") for text in chart.axes[0].texts
    ]


def lines(ax, marker):
    return [line for line in ax.lines if line.get_marker() == marker]


# Heat maps.


def hatched_in(ax):
    """The corners of the cells with each hatch."""
    areas = {patch.get_hatch(): patch.get_path() for patch in kinds(ax, PathPatch) if patch.get_hatch()}
    return {hatch: [(x, y) for x, y in path.vertices[::5].tolist()] for hatch, path in areas.items()}


def borders(ax):
    return [patch for patch in kinds(ax, PathPatch) if not patch.get_hatch()]


def drawn(frame, **options):
    chart = heat_map(frame, "max_batch_size", "max_wait_ms", **options)
    return chart, chart.axes[0]


def test_a_cell_has_the_colour_and_the_text_of_its_number(frame):
    chart, ax = drawn(frame)
    (mesh,) = kinds(ax, QuadMesh)
    expected = frame.pivot(index="max_wait_ms", columns="max_batch_size", values="p99_ms")
    expected[4] = math.nan  # overloaded
    np.testing.assert_array_equal(mesh.get_array().filled(math.nan), expected.to_numpy())
    written = {text.get_position(): float(text.get_text()) for text in ax.texts}
    assert written[(1.5, 0.5)] == pytest.approx(expected[8][0], rel=0.01)
    assert len(written) == 9
    assert chart.axes[1].get_ylabel() == "p99 of all requests (ms)"


def test_cells_without_a_steady_state_are_hatched_and_said_so(frame):
    chart, ax = drawn(frame)
    assert hatched_in(ax) == {"///": [(0, 0), (0, 1), (0, 2)]}
    assert "overloaded: no steady state" in named(chart)
    assert "not possible, or no number" not in named(chart)


def test_cells_that_the_scenario_refuses_are_hatched_otherwise():
    small = SCENARIO.replace(service=bs.Table({1: 5, 16: 9}), max_batch_size=8)
    chart, ax = drawn(swept({"max_batch_size": [16, 32], "max_wait_ms": [0, 10]}, small))
    assert hatched_in(ax) == {"xxx": [(1, 0), (1, 1)]}
    assert "not possible, or no number" in named(chart)


def test_a_border_parts_the_cells_within_the_objective_from_the_others(frame):
    objective = 20
    chart, ax = drawn(frame, objective=objective)
    frame = frame.assign(within=frame.stable & (frame.p99_ms <= objective))
    within = frame.pivot(index="max_wait_ms", columns="max_batch_size", values="within").to_numpy()
    assert 0 < within.sum() < 9
    (line,) = borders(ax)
    np.testing.assert_array_equal(line.get_path().vertices, border(within).vertices)
    bold = {tuple(int(at) for at in text.get_position()) for text in ax.texts if text.get_weight() == "bold"}
    assert bold == {(column, row) for row, column in np.argwhere(within).tolist()}
    assert "bold, within the line: p99 of all requests (ms) ≤ 20" in named(chart)


def test_an_objective_that_no_cell_meets_is_said_so(frame):
    chart, ax = drawn(frame, objective=3)
    assert borders(ax) == []
    assert "none has p99 of all requests (ms) ≤ 3" in named(chart)


@pytest.mark.parametrize(
    ("value", "ascending", "condition"),
    [("p99_ms", True, "p99 (ms) ≤ 20"), ("throughput_per_s", False, "throughput (per s) ≥ 20")],
)
def test_the_star_is_on_the_best_and_today_has_a_frame(frame, value, ascending, condition):
    chart, ax = drawn(frame, value=value, objective=20, today=(32, 10))
    (star,) = lines(ax, "*")
    best = frame[frame.stable].sort_values(value, ascending=ascending).iloc[0]
    column, row = int(star.get_xdata()[0]), int(star.get_ydata()[0])
    assert (SIZES[column], WAITS[row]) == (best.max_batch_size, best.max_wait_ms)
    assert f"bold, within the line: {condition}" in named(chart)
    (today,) = [patch for patch in ax.patches if patch.get_edgecolor() == to_rgba(VERMILION)]
    assert today.get_xy() == (3, 1)


def test_a_number_that_is_neither_good_nor_bad_has_no_star(frame):
    chart, ax = drawn(frame, value="utilisation")
    assert lines(ax, "*") == []
    assert not any(name.startswith("lowest") for name in named(chart))


def test_a_wide_range_has_logarithmic_colours():
    slow = {"rate_per_s": [10, 2400], "max_wait_ms": [0, 1000]}
    chart = heat_map(swept(slow), "rate_per_s", "max_wait_ms")
    (mesh,) = kinds(chart.axes[0], QuadMesh)
    assert isinstance(mesh.norm, LogNorm)
    assert chart._repr_png_()


def test_a_map_of_overloaded_cells_alone_can_be_drawn(frame):
    chart, ax = drawn(frame[frame.max_batch_size == 4], objective=20, today=(4, 0))
    assert [len(cells) for cells in hatched_in(ax).values()] == [3]
    assert chart._repr_png_()


def test_parts_are_named_on_their_axis():
    services = {"fast": bs.Affine(5, 0.25), "slow": bs.Affine(9, 0.25)}
    chart = heat_map(swept({"service": services, "max_wait_ms": [0, 10]}), "service", "max_wait_ms")
    assert [text.get_text() for text in chart.axes[0].get_xticklabels()] == ["fast", "slow"]


def test_a_map_needs_one_row_a_cell_and_columns_that_are_there(frame):
    more = swept({"max_batch_size": [8, 16], "max_wait_ms": [0, 10], "servers": [1, 2]})
    with pytest.raises(
        ValueError, match=r"one row for each max_batch_size and max_wait_ms, got 8 rows for 4"
    ):
        drawn(more)
    with pytest.raises(ValueError, match="must be one of the frame's, got 'p98_ms'; did you mean 'p99_ms'"):
        drawn(frame, value="p98_ms")
    with pytest.raises(TypeError, match="frame must be a DataFrame, as of a sweep, got 5"):
        drawn(5)


def test_a_picture_shows_itself_and_nothing_is_cut_off(frame, rates):
    assert_all_within(drawn(frame, objective=20, today=(32, 10))[0])
    assert_all_within(capacity_curves({"a long name of a setting": rates}, objective=20))
    assert_all_within(capacity_curves(rates, objective=20))
    assert_all_within(capacity_curves(dict.fromkeys(["a", "b", "the third"], rates), objective=20))
    assert_all_within(frontier(frame, objective=20))


# Requests that are not served.


@pytest.fixture(scope="module")
def dropping():
    """A queue of 5 turns half of the requests away, and is fast for the others."""
    return sweep(SCENARIO, {"queue_limit": [5, 100], "max_wait_ms": [0, 10]}, 20_000, progress=False)


@pytest.mark.parametrize(
    ("value", "hatch", "words"),
    [
        (None, "...", "infinite: too many requests are lost"),
        ("p95_ms", "\\\\\\", "some requests are lost: p95 (ms) of the others"),
    ],
)
def test_a_cell_that_loses_requests_is_hatched_and_never_within_or_best(dropping, value, hatch, words):
    chart = heat_map(dropping, "queue_limit", "max_wait_ms", value, objective=20)
    ax = chart.axes[0]
    assert dropping.p99_ms.idxmin() == 0  # of the served
    assert dropping.p99_ms.max() < 20
    assert hatched_in(ax) == {hatch: [(0, 0), (0, 1)]}
    assert words in named(chart)
    assert len(ax.texts) == (2 if value is None else 4)  # an infinite number is not written
    assert {text.get_position()[0] for text in ax.texts if text.get_weight() == "bold"} == {1.5}
    (star,) = lines(ax, "*")
    assert star.get_xdata()[0] > 1


def test_a_map_in_which_all_cells_lose_requests_praises_none(dropping):
    lossy = dropping[dropping.queue_limit == 5]
    for value in (None, "p99_ms", "mean_latency_ms"):
        chart = heat_map(lossy, "queue_limit", "max_wait_ms", value, objective=20)
        assert lines(chart.axes[0], "*") == []
        assert all(text.get_weight() == "normal" for text in chart.axes[0].texts)
        assert chart._repr_png_()


def test_a_curve_of_a_lossy_sweep_counts_all_requests_or_has_hollow_points(dropping):
    rows = dropping[dropping.max_wait_ms == 10]
    chart = capacity_curves(rows, "queue_limit")
    (crosses,) = lines(chart.axes[0], "x")
    assert crosses.get_xdata().tolist() == [5]
    assert "overloaded, or not possible, or too many requests lost" in named(chart)
    objective = float(rows.p99_ms.mean())
    chart = capacity_curves(rows, "queue_limit", "p99_ms", objective)
    _, hollow = lines(chart.axes[0], "o")
    assert hollow.get_xdata().tolist() == [5]
    assert lines(chart.axes[0], "D") == []  # the line is no latency of all
    assert "of the served requests alone: others are lost" in named(chart)


def test_the_frontier_of_a_sweep_has_no_setting_that_loses_too_many_requests(dropping):
    (line,) = lines(frontier(dropping).axes[0], "o")
    assert set(line.get_ydata()) <= set(dropping.p99_ms[2:])


# The frontier.


def test_the_frontier_of_a_sweep_is_what_none_other_beats_in_both():
    frame = pandas.DataFrame(
        {
            "max_batch_size": [1, 2, 4, 8, 16],
            "requests": 100.0,
            "p99_ms": [5.0, 9.0, 7.0, 20.0, 1.0],
            "saturation_per_s": [100.0, 150.0, 200.0, 400.0, 500.0],
            "infeasible": ["", "", "", "", "load 2: overloaded"],
        }
    )
    chart = frontier(frame, objective=10)
    (line,) = lines(chart.axes[0], "o")
    assert line.get_xdata().tolist() == [100, 200, 400]
    assert line.get_ydata().tolist() == [5, 7, 20]
    (others,) = lines(chart.axes[0], ".")
    assert others.get_ydata().tolist() == [5, 9, 7, 20]
    assert named(chart)[:3] == ["1", "4", "8"]
    assert "objective: 10" in named(chart)


def test_the_frontier_of_a_recommendation_is_its_own_with_a_line_for_each_number_of_servers():
    over = {"max_batch_size": [8, 16, 32], "max_wait_ms": [0, 5], "servers": [1, 2]}
    found = tune(SCENARIO, SLO(p99_ms=20), over, 20_000)
    chart = frontier(found)
    ax = chart.axes[0]
    (star,) = lines(ax, "*")
    best = found.candidates[found.candidates.outcome == "recommended"].iloc[0]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (best.saturation_per_s, best.p99_ms)
    assert {"recommended", "objective: 20"} <= set(named(chart))
    (answer,) = [text.get_text() for text in ax.texts if text.get_weight() == "bold"]
    assert answer == "recommended"
    for servers, marker in zip(sorted(found.frontier.servers.unique()), "os", strict=False):
        (line,) = lines(ax, marker)
        here = found.frontier[found.frontier.servers == servers]
        assert sorted(line.get_ydata()) == sorted(here.p99_ms)
        assert f"{servers} server" in " ".join(named(chart))


def test_grey_dots_of_a_recommendation_are_of_runs_as_long_as_the_recommended_ones():
    over = {"max_batch_size": [8, 16, 32], "max_wait_ms": [0, 5, 10, 40]}
    found = tune(SCENARIO, SLO(p99_ms=20), over, 20_000)
    best = found.candidates[found.candidates.outcome == "recommended"].iloc[0]
    screened = np.isfinite(found.candidates.p99_ms) & (found.candidates.max_batch_size == 8)
    assert screened.any()
    requests = np.where(screened, 2_000, found.candidates.requests)
    found = dataclasses.replace(found, candidates=found.candidates.assign(requests=requests))
    whole = found.candidates[
        (found.candidates.requests >= best.requests) & np.isfinite(found.candidates.p99_ms)
    ]
    (others,) = lines(frontier(found).axes[0], ".")
    assert sorted(others.get_ydata()) == sorted(whole.p99_ms)
    unknown = dataclasses.replace(found, candidates=found.candidates.drop(columns="requests"))
    (others,) = lines(frontier(unknown).axes[0], ".")
    assert len(others.get_ydata()) > len(whole)


def test_a_sweep_without_a_steady_state_has_an_empty_frontier():
    picture = frontier(swept({"rate_per_s": [9000, 12_000]}), objective=10)
    assert named(picture) == ["objective: 10"]


def test_a_frontier_of_something_else_is_refused(frame):
    with pytest.raises(
        TypeError, match="settings must be a Recommendation, or a DataFrame of a sweep, got 5"
    ):
        frontier(5)
    with pytest.raises(ValueError, match="got 'mean_ms'"):
        frontier(frame, "mean_ms")


# Curves.


def test_a_curve_goes_through_its_points_in_order_with_its_interval(rates):
    chart = capacity_curves(rates.iloc[::-1])
    (line,) = lines(chart.axes[0], "o")
    stable = rates[rates.stable]
    assert line.get_xdata().tolist() == stable.rate_per_s.tolist()
    assert line.get_ydata().tolist() == stable.p99_ms.tolist()


def test_points_without_a_steady_state_are_crosses_and_said_so(rates):
    chart = capacity_curves({"wait 10 ms": rates})
    (crosses,) = lines(chart.axes[0], "x")
    assert crosses.get_xdata().tolist() == [3200]
    assert "overloaded, or not possible" in named(chart)
    assert "overloaded, or not possible: 1 point." in chart.words


def heights(ax, line):
    """A line's points on the picture, from below, in parts of the axes' height."""
    points = line.get_transform().transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
    return ax.transAxes.inverted().transform(points)[:, 1]


@pytest.mark.parametrize("objective", [20, 20_000])  # the scale is linear, or logarithmic
def test_crosses_are_above_the_objective_and_all_that_is_drawn(rates, objective):
    chart = capacity_curves(rates, objective=objective)
    ax = chart.axes[0]
    chart._repr_png_()
    (crosses,), (line,) = lines(ax, "x"), lines(ax, "o")
    (limit,) = [each for each in ax.lines if each.get_label().startswith("objective")]
    lowest = heights(ax, crosses).min()
    assert 1 < lowest < 1.1
    assert not crosses.get_clip_on()
    assert heights(ax, line).max() < lowest - 0.03
    assert ax.transAxes.inverted().transform(ax.transData.transform((0, objective)))[1] < lowest - 0.03
    assert limit.get_ydata()[0] == objective


def test_the_band_of_the_p99_of_all_is_that_of_the_p99_where_all_are_served(rates):
    p99_ms = np.array([10.0, 12, 20, 30, 33])
    served = {"p99_ms": p99_ms, "p99_ms_low": p99_ms - 1, "p99_ms_high": p99_ms + 1}
    assert {*served} < {*rates}
    lossy = rates.assign(**served, p99_all_ms=p99_ms + np.eye(5)[2], infeasible="")
    (band,) = kinds(capacity_curves(lossy).axes[0], PolyCollection)
    corners = {tuple(corner) for path in band.get_paths() for corner in path.vertices.tolist()}
    where = [0, 1, 3, 4]
    assert corners == {(lossy.rate_per_s[at], p99_ms[at] + side) for at in where for side in (-1, 1)}


def test_diamonds_are_where_the_line_crosses_the_objective(rates):
    points = rates[rates.stable]
    objective = float(points.p99_ms.iloc[1:3].mean())
    chart = capacity_curves(rates, objective=objective)
    (diamonds,) = lines(chart.axes[0], "D")
    assert diamonds.get_xdata().tolist() == [pytest.approx(600)]
    assert diamonds.get_ydata().tolist() == [pytest.approx(objective)]
    assert f"p99 of all requests (ms) {objective:g} at 600" in named(chart)


def test_several_settings_differ_in_colour_style_and_marker(rates):
    chart = capacity_curves(dict.fromkeys("abc", rates))
    looks = {(each.get_color(), each.get_linestyle(), each.get_marker()) for each in chart.axes[0].lines[::2]}
    assert len(looks) == 3
    assert len({look[0] for look in looks}) == len({look[2] for look in looks}) == 3
    assert {"a", "b", "c"} <= set(named(chart))


def test_the_runs_of_a_capacity_are_a_curve():
    found = capacity(SCENARIO, SLO(p99_ms=25), requests=5000, tolerance=0.05)
    chart = capacity_curves(found.to_frame(), objective=25)
    (diamonds,) = lines(chart.axes[0], "D")
    assert diamonds.get_xdata()[0] == pytest.approx(found.rate_per_s, rel=0.1)


def test_a_capacity_is_marked_where_it_says_and_not_where_a_line_would_cross():
    found = capacity(SCENARIO, SLO(p99_ms=25), requests=20_000, tolerance=0.05)
    chart = capacity_curves(found, objective=25)
    ax = chart.axes[0]
    (diamonds,), (line,) = lines(ax, "D"), lines(ax, "o")
    assert diamonds.get_xdata().tolist() == [found.rate_per_s]
    probe = found.to_frame().set_index("rate_per_s").loc[found.rate_per_s]
    assert diamonds.get_ydata().tolist() == [pytest.approx(probe.p99_ms)]
    (label,) = [text for text in named(chart) if "capacity" in text]
    assert label == f"p99 (ms) capacity {round(found.rate_per_s):,}/s"
    assert f"Capacity: {round(found.rate_per_s):,} requests a second" in repr(found)
    frame = found.to_frame()
    whole = frame[frame.requests == frame.requests.max()]
    assert line.get_xdata().tolist() == whole.rate_per_s.tolist()


def test_a_capacity_above_rates_that_are_too_low_or_none_is_marked_so():
    patient = SCENARIO.replace(max_wait_ms=100)
    found = capacity(patient, SLO(p95_ms=40), requests=20_000, tolerance=0.05)
    assert not found.probes[0].holds
    (diamonds,) = lines(capacity_curves({"a": found}).axes[0], "D")
    assert diamonds.get_xdata().tolist() == [found.rate_per_s]
    none = capacity(SCENARIO, SLO(p99_ms=1), requests=2000, tolerance=0.05)
    chart = capacity_curves(none)
    assert "capacity" not in " ".join(named(chart))
    assert chart._repr_png_()


def test_an_axis_of_parts_or_of_an_infinite_wait_has_names():
    chart = capacity_curves(swept({"max_wait_ms": [0, 10, math.inf]}), "max_wait_ms")
    assert [text.get_text() for text in chart.axes[0].get_xticklabels()] == ["0", "10", "inf"]


def test_curves_need_frames_with_one_row_a_point(rates):
    with pytest.raises(ValueError, match="frames must have at least one, got none"):
        capacity_curves({})
    both = pandas.concat([rates, rates])
    with pytest.raises(ValueError, match="a curve of 'both' must have one row for each rate_per_s"):
        capacity_curves({"both": both})
    with pytest.raises(ValueError, match="got 'clients'"):
        capacity_curves(rates, "clients")


# A measurement.

MEASURED = Measurement(
    "mlp", "a GPU", "gpu", "0.10", (1, 2, 8), 12,
    ((1.0, 1.02, 1.01) * 4, (1.1, 1.12, 1.11, 1.11, 1.12, 5.0) * 2, (2.0, 2.02) * 6), (), "2026-01-01",
)  # fmt: skip


def points(ax, style):
    """The points of an axes' lines that have this marker, or this line style."""
    lines = [line for line in ax.lines if style in (line.get_marker(), line.get_linestyle())]
    return [point for line in lines for point in zip(*line.get_data(), strict=True)]


def test_a_measurements_picture_has_all_samples_and_marks_the_disturbed():
    figure = bs.plot(MEASURED)
    top, low = figure.axes
    assert len(points(top, ".")) == 34
    assert [ms for _, ms in points(top, "x")] == [5.0, 5.0]
    assert points(top, "-")[:3] == [(1, 1.01), (2, 1.11), (8, 2.01)]
    assert points(low, "-")[:3] == [(1, pytest.approx(1000 / 1.01)), (2, pytest.approx(2000 / 1.11)),
                                    (8, pytest.approx(8000 / 2.01))]  # fmt: skip
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_measurements_picture_says_what_is_doubtful_unfitting_or_unknown():
    texts = named(bs.plot(MEASURED))
    assert not any("doubtful" in text or "memory" in text for text in texts)
    assert "no roofline: operations unknown" in texts
    assert "knee: 8 or beyond" in texts
    falling = dataclasses.replace(
        MEASURED, batch_sizes=(8, 2, 1), not_fitting=((64, "full"),), program=((1e9, 1e8),) * 3,
        roofline=(1e12, 1e12),
    )  # fmt: skip
    figure = bs.plot(falling)
    texts = named(figure)
    assert {"doubtful: see the notes", "does not fit in memory"} <= set(texts)
    assert "roofline: 1,000 GFLOP/s, 1,000 GB/s" in texts
    assert points(figure.axes[0], "--") == [(1, 1.0), (2, 1.0), (8, 1.0)]
    assert points(figure.axes[1], "--") == [(1, 1000.0), (2, 2000.0), (8, 8000.0)]


def test_theory_says_nothing_of_a_measurement():
    with pytest.raises(ValueError, match=r"^theory must be left out for a Measurement, got True$"):
        bs.plot(MEASURED, theory=True)
