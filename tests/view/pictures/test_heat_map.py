"""The heat map shows what the surface says."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hands import looked_at
from pictures import BASE, SIZES, WAITS, coloured, drawn, group, over, pixels, shown

import batchsim as bs
from batchsim._format import number
from batchsim.study.surface import Surface, surface
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.heat_map import MEASURES, OVERLOADED, HeatMapView, position


@pytest.mark.parametrize("look", [{}, {"width_px": 700}, {"size": "projector", "ratio": 2}])
def test_a_click_in_the_middle_of_a_cell_finds_it(cases, look):
    picture = shown(cases["plain"], large="map", **look)
    pixels(picture)
    ax, whole = picture.views["map"].ax, picture.figure.bbox
    for row in range(4):
        for column in range(4):
            x, y = ax.transData.transform((column + 0.5, row + 0.5))
            spot = picture.at(x / whole.width, 1 - y / whole.height)
            assert (spot.change is None) == bool(spot.refused)
            if spot.change is not None:
                rule = spot.change["rule"]
                assert (rule.max_batch_size, rule.max_wait_ms) == (SIZES[column], WAITS[row])


def test_a_cell_without_a_steady_state_has_no_colour(cases):
    found = cases["at least"].surface
    colour = coloured(drawn(HeatMapView, cases["at least"]))
    void = found.overloaded | found.refused | np.isinf(found.p99_ms)
    assert void.any()
    np.testing.assert_array_equal(colour[..., 3] == 0, void)


@pytest.mark.parametrize(
    ("rows", "named"), [(["####", "####", "....", "...."], True), (["####", "#..#", "#..#", "####"], False)]
)
def test_a_reason_is_written_on_cells_that_have_it_or_nowhere(cases, rows, named):
    overloaded = np.array([[cell == "#" for cell in row] for row in rows])
    found = dataclasses.replace(
        cases["plain"].surface, overloaded=overloaded, refused=np.zeros_like(overloaded)
    )
    view = drawn(HeatMapView, dataclasses.replace(cases["plain"], surface=found))
    places = [written.xy for reason, written in group(view, "name").items() if reason == OVERLOADED]
    assert [overloaded[int(row), int(column)] for column, row in places] == [True] * named


def greys(values, objective_ms):
    """How bright each value is."""
    scale, colours = MEASURES["p99_ms"].colours(values, SimpleNamespace(objective_ms=objective_ms))
    return colours(scale(values))[:, :3] @ [0.299, 0.587, 0.114]


def test_the_colours_are_palest_at_the_objective_and_end_at_a_quarter_and_four_times_of_it():
    values = np.geomspace(20 / 4, 20 * 4, 51)
    grey = greys(values, 20.0)
    assert np.argmax(grey) == 25
    assert (np.diff(grey[:26]) >= 0).all()
    assert (np.diff(grey[25:]) <= 0).all()
    assert greys(values * 100, 20.0)[-1] == grey[-1]


def test_without_an_objective_the_best_is_the_strongest_colour():
    assert (np.diff(greys(np.geomspace(1, 100, 50), None)) >= 0).all()


@dataclasses.dataclass(frozen=True, eq=False)
class Tied(Surface):
    """A surface whose best setting is not the one with the lowest p99, but tied with it."""

    def best(self, objective_ms=None):
        return (1, 3)

    def ties(self, objective_ms=None):
        tied = np.zeros(self.p99_ms.shape, dtype=bool)
        tied[:2, 2:] = True
        return tied


class Alone(Tied):
    """A surface whose best setting has no equal."""

    def ties(self, objective_ms=None):
        tied = np.zeros(self.p99_ms.shape, dtype=bool)
        tied[self.best()] = True
        return tied


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_frame_marks_each_setting_that_cannot_be_told_from_the_best(cases, theme):
    plain = cases["plain"]
    grid = {f.name: getattr(plain.surface, f.name) for f in dataclasses.fields(plain.surface)}
    data = dataclasses.replace(plain, surface=Tied(**grid))
    picture = shown(data, large="map", theme=theme, alone=True)
    view = picture.views["map"]
    corners = view.shown["ties"].get_path().vertices.reshape(-1, 5, 2)
    assert {(math.floor(x), math.floor(y)) for x, y in corners[:, 0]} == {(2, 0), (3, 0), (2, 1), (3, 1)}
    assert ((corners > np.floor(corners)) & (corners < np.ceil(corners))).all()  # inside, beside the border
    assert tuple(each[0] for each in view.shown["best"].get_data()) == (3.5, 1.5)
    assert "dashed" in view.ax.get_xlabel()
    assert "3 others do not differ significantly" in picture.describe(data)
    picture.show(dataclasses.replace(plain, surface=Alone(**grid)))
    assert "dashed" not in view.ax.get_xlabel()
    assert "ties" not in view.shown


# Energy.


@pytest.fixture(scope="module")
def hungry():
    scenario = BASE.replace(watts={0: 60, 1: 150, 32: 300})
    found = surface(scenario, SIZES, WAITS, 500, metric="joules")
    return ViewData(bs.simulate(scenario, 500), surface=found, objective_ms=20.0)


def test_the_star_has_the_least_energy_within_the_objective_and_the_line_is_its_border(hungry):
    found, view = hungry.surface, drawn(HeatMapView, hungry)
    within = ~found.overloaded & (found.p99_ms <= 20)
    least = np.where(within, found.joules_per_request, np.nan)
    row, column = (int(at[0] - 0.5) for at in view.shown["best"].get_data()[::-1])
    assert least[row, column] <= 1.01 * np.nanmin(least)
    assert np.nanmin(found.joules_per_request) < np.nanmin(least)  # others take less, too late
    np.testing.assert_array_equal(MEASURES[found.metric].within(hungry), within)
    np.testing.assert_array_equal(coloured(view)[..., 3] > 0, np.isfinite(found.joules_per_request))
    free = dataclasses.replace(hungry, objective_ms=None)
    view.show(free)
    assert tuple(each[0] for each in view.shown["best"].get_data()) != (column + 0.5, row + 0.5)
    assert not MEASURES[found.metric].within(free).any()  # nor a line


def test_the_bar_has_the_unit_of_energy_and_less_is_the_stronger_colour(hungry):
    view = drawn(HeatMapView, hungry)
    assert view.heading.get_text() == "Energy per request of every setting at this load"
    assert view.bar.get_title(loc="left") == "J per request"
    joules = np.linspace(0.1, 0.4, 50)
    scale, colours = MEASURES["joules_per_request"].colours(joules, hungry)
    assert (np.diff(colours(scale(joules))[:, :3] @ [0.299, 0.587, 0.114]) >= 0).all()
    scale, _ = MEASURES["joules_per_token"].colours(np.full(3, np.nan), hungry)
    assert scale.vmin < scale.vmax


def test_words_and_spots_name_the_energy_beside_the_latency(hungry):
    found, view = hungry.surface, drawn(HeatMapView, hungry)
    row, column = found.best(20)
    spot = over(view, (column + 0.5) / 4, 1 - (row + 0.5) / 4, hungry)
    said = f"{number(found.joules_per_request[row, column])} J per request, p99 "
    assert said in spot.text
    (text,) = view.describe(hungry)
    assert said in text
    assert f"{(~found.overloaded & (found.p99_ms <= 20)).sum()} meet the objective" in text
    (text,) = view.describe(dataclasses.replace(hungry, objective_ms=1.0))
    assert "none serves 99 of 100 requests in time" in text


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


@pytest.mark.parametrize("link", ["max_batch_size=4", "rate_per_s=3000", "service=published&rate_per_s=1500"])
def test_the_present_load_stands_within_the_axes(link):
    panel = looked_at(bs.explore(requests=2000, link=link))
    right = panel.picture.views["load"].ax.get_xlim()[1]
    assert panel.scenario.workload.rate_per_s <= right / 1.02
