"""The picture: what it shows, its heat map as a control, and its style."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim.view.run.live import LivePicture


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def test_the_picture_is_of_the_scenario_that_the_controls_say(panel):
    panel.controls["max_batch_size"].value = 4
    panel.controls["max_wait_ms"].value = 7
    panel.controls["servers"].value = 2
    panel.controls["rate_per_s"].value = 321
    assert panel.result.scenario == bs.Scenario(
        bs.Poisson(321), bs.SizeOrWait(4, 7), bs.Affine(5, 0.25), servers=2
    )
    fresh = LivePicture(panel.picture.width_px)
    fresh.show(panel.data)
    assert np.array_equal(fresh.pixels(), panel.picture.pixels())


def test_a_click_on_a_cell_moves_the_sliders_there(panel, monkeypatch):
    grid = panel.data.surface
    row, column = grid.y_values.index(2.0), grid.x_values.index(16)
    monkeypatch.setattr(panel.picture, "cell_at", lambda across, down: (row, column))
    panel.screen._handle_custom_msg({"click": [0.9, 0.9]}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(16, 2.0)
    assert (panel.controls["max_batch_size"].slider.value, panel.controls["max_wait_ms"].slider.value) == (
        16,
        2,
    )


def test_every_cell_is_hit_where_it_is_drawn(panel):
    hit = {
        panel.picture.cell_at(across, down)
        for across in np.linspace(0, 1, 200)
        for down in np.linspace(0, 1, 200)
    } - {None}
    assert hit == {(row, column) for row in range(12) for column in range(12)}


def test_a_click_beside_the_heat_map_moves_nothing(panel):
    frame = panel.screen.number
    panel.screen._handle_custom_msg({"click": [0.01, 0.01]}, [])
    assert panel.screen.number == frame


def test_arrows_step_through_the_heat_map_up_to_full_batches_only(panel):
    panel.screen._handle_custom_msg({"key": "left"}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 10)
    panel.screen._handle_custom_msg({"key": "up"}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 20)
    for _ in range(9):
        panel.screen._handle_custom_msg({"key": "up"}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(24, math.inf)
    assert panel.controls["rule"].value == "full_only"
    panel.screen._handle_custom_msg({"key": "down"}, [])
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 50)


def test_a_cell_that_makes_no_sense_is_refused_in_words():
    panel = bs.explore(requests=300, link="rule=at_least&min_batch_size=8&max_batch_size=8")
    panel.screen._handle_custom_msg({"key": "left"}, [])
    assert "crossed out" in panel.status.value
    assert panel.result.scenario.rule == bs.AtLeast(8, 8)


@pytest.mark.parametrize("arrow", ["left", "right", "up"])
def test_arrows_on_a_map_of_smallest_sizes_lead_out_of_full_batches_only(arrow):
    panel = bs.explore(requests=300, link="workload=closed&clients=8&rule=at_least&min_batch_size=2")
    panel.controls["rule"].value = "full_only"
    assert "got 8" in panel.status.value
    panel.screen._handle_custom_msg({"key": arrow}, [])
    assert panel.status.value == ""
    assert panel.controls["rule"].value == "at_least"


@pytest.mark.parametrize(
    ("clients", "rule", "arrow", "wait_ms"),
    [(8, "full_only", "down", 50), (4, "at_least", "up", 20), (4, "at_least", "down", 7)],
)
def test_arrows_lead_out_of_a_choice_that_makes_no_sense(clients, rule, arrow, wait_ms):
    panel = bs.explore(requests=300, link=f"workload=closed&clients={clients}")
    panel.controls["rule"].value = rule
    assert f"got {clients}" in panel.status.value
    panel.screen._handle_custom_msg({"key": arrow}, [])
    assert panel.status.value == ""
    assert panel.controls["rule"].value == "size_or_wait"
    assert panel.result.scenario.rule == bs.SizeOrWait(32, wait_ms)


def test_colours_follow_the_page_or_the_choice(panel):
    light = panel.screen.frame
    panel.screen.dark = True
    dark = panel.screen.frame
    assert dark != light
    panel.share.theme.value = "light"
    assert panel.screen.frame == light
    panel.share.theme.value = "auto"
    assert panel.screen.frame == dark


def test_the_projector_has_larger_letters(panel):
    font_px = panel.picture.font_px
    panel.share.size.value = "projector"
    assert panel.picture.font_px > font_px


def test_the_picture_is_as_wide_as_the_page(panel):
    panel.screen.width_px = 733
    assert panel.picture.width_px == 733


def test_a_new_rule_has_a_map_too():
    panel = bs.explore(requests=300, link="rule=preferred_sizes&preferred=4,8")
    assert panel.status.value == ""
    assert (panel.data.surface.x, panel.data.surface.y) == bs.PreferredSizes.map_knobs
    panel.screen._handle_custom_msg({"key": "up"}, [])
    assert panel.result.scenario.rule == bs.PreferredSizes([4, 8], 32, 20)
    for _ in range(9):
        panel.screen._handle_custom_msg({"key": "up"}, [])
    assert panel.result.scenario.rule == bs.PreferredSizes([4, 8], 32, math.inf)
    assert panel.controls["rule"].value == "preferred_sizes"
