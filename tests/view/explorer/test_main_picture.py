"""The picture: what it shows, its heat map as a control, and its style."""

import math

import numpy as np
import pytest
from hands import looked_at, slid, slide

import batchsim as bs
from batchsim.view.pictures.live import LivePicture


@pytest.fixture
def panel(panel):
    return looked_at(panel)


def test_the_picture_is_of_the_scenario_that_the_controls_say(panel):
    panel.controls["max_batch_size"].value = 4
    panel.controls["max_wait_ms"].value = 7
    panel.controls["servers"].value = 2
    panel.controls["rate_per_s"].value = 321
    assert panel.result.scenario == bs.Scenario(
        bs.Poisson(321), bs.SizeOrWait(4, 7), bs.Affine(5, 0.25), servers=2
    )
    fresh = LivePicture()
    fresh.show(panel.data)
    panel.session.release()
    assert np.array_equal(fresh.pixels(), panel.picture.pixels())


@pytest.mark.parametrize("size_px", [(1000, 640), (900, 500)])
def test_it_is_drawn_once_somebody_looks_and_says_its_numbers_before(size_px):
    panel = bs.explore(requests=300)
    panel.controls["max_wait_ms"].value = 3
    screen, words = panel.screen, panel.picture.describe(panel.data)
    assert (screen.frame, screen.number, screen.alt) == (b"", 0, words)
    if size_px == (900, 500):  # a notebook shows it; a page of the guessed size may as well
        bundle, _ = panel._repr_mimebundle_()
        assert screen.number == 1
        assert "image/png" in bundle
    screen.set_state(dict(zip(("width_px", "height_px"), size_px, strict=True)))
    assert screen.frame
    assert panel.picture.data is panel.data
    assert (panel.picture.width_px, panel.picture.height_px) == size_px
    drawn = screen.number
    panel.controls["max_wait_ms"].value = 5
    assert screen.number == drawn + 1


def say(panel, **content):
    """Send what a page sends, and return the answers."""
    answers, send = [], panel.screen.send
    panel.screen.send = lambda content, buffers=None: answers.append(content)
    panel.screen._handle_custom_msg(content, [])
    panel.screen.send = send
    return answers


def spots(panel, key):
    """Return a place in the picture for each thing that a view offers there."""
    fractions = np.linspace(0, 1, 45)
    every = {(x, y): panel.picture.at(x, y) for x in fractions for y in fractions}
    return {place: spot for place, spot in every.items() if spot is not None and spot.view == key}


def test_a_click_on_a_cell_moves_the_sliders_there(panel):
    panel.large.value = "map"
    wanted = bs.SizeOrWait(16, 2.0)
    place = next(p for p, s in spots(panel, "map").items() if s.change and s.change.get("rule") == wanted)
    (answer,) = say(panel, hover=place)
    assert answer["act"]
    assert "16" in answer["tip"]
    say(panel, click=place)
    assert panel.result.scenario.rule == wanted
    assert [slid(panel, name) for name in ("max_batch_size", "max_wait_ms")] == [16, 2]


def test_a_click_on_the_load_curve_sets_the_rate(panel):
    panel.large.value = "load"
    place, spot = next((p, s) for p, s in spots(panel, "load").items() if s.change)
    say(panel, click=place)
    assert panel.state.rate_per_s == spot.change["rate_per_s"] != 1000


def test_a_click_on_a_small_view_enlarges_it_as_the_chooser_does(panel):
    place, spot = next((p, s) for p, s in spots(panel, "breakdown").items())
    assert spot.change is None
    assert say(panel, hover=place)[0]["act"]
    say(panel, click=place)
    assert panel.large.value == panel.session.style.large == "breakdown"
    panel.large.value = "latency"
    assert panel.session.style.large == "latency"


def test_a_place_of_nothing_acts_not_and_a_click_there_moves_nothing(panel):
    (answer,) = say(panel, hover=[0.001, 0.001])
    assert not answer["act"]
    frame = panel.screen.number
    say(panel, click=[0.001, 0.001])
    assert panel.screen.number == frame


def test_arrows_step_through_the_heat_map_up_to_full_batches_only(panel):
    say(panel, key="left")
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 10)
    say(panel, key="up")
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 20)
    for _ in range(9):
        say(panel, key="up")
    assert panel.result.scenario.rule == bs.SizeOrWait(24, math.inf)
    assert panel.controls["rule"].value == "full_only"
    say(panel, key="down")
    assert panel.result.scenario.rule == bs.SizeOrWait(24, 50)


def test_a_cell_that_makes_no_sense_is_refused_in_words():
    panel = bs.explore(requests=300, link="rule=at_least&min_batch_size=8&max_batch_size=8")
    say(panel, key="left")
    assert "crossed out" in panel.status.value
    assert panel.result.scenario.rule == bs.AtLeast(8, 8)


@pytest.mark.parametrize(
    ("link", "rule", "arrow", "found"),
    [
        *(("clients=8&rule=at_least&min_batch_size=2", "full_only", *each) for each in [
            ("left", bs.AtLeast(2, 24)), ("right", bs.AtLeast(2, 48)), ("up", bs.AtLeast(3, 32)),
        ]),
        ("clients=8", "full_only", "down", bs.SizeOrWait(32, 50)),
        ("clients=4", "at_least", "up", bs.SizeOrWait(32, 20)),
        ("clients=4", "at_least", "down", bs.SizeOrWait(32, 7)),
    ],
)  # fmt: skip
def test_arrows_lead_out_of_a_choice_that_makes_no_sense(link, rule, arrow, found):
    panel = bs.explore(requests=300, link=f"workload=closed&{link}")
    panel.controls["rule"].value = rule
    assert f"got {panel.state.clients}" in panel.status.value
    say(panel, key=arrow)
    assert panel.status.value == ""
    assert panel.result.scenario.rule == found


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
    em_px = panel.picture.em
    panel.share.size.value = "projector"
    assert panel.picture.em > em_px


def test_the_picture_fills_the_room_that_the_page_has(panel):
    room = {"width_px": 733, "height_px": 512, "alone": True}
    panel.screen.set_state(room)
    assert (panel.picture.width_px, panel.picture.height_px) == (733, 512)
    assert len(panel.picture.views) == 1
    assert panel.tabs.selected_index is None
    panel.screen.alone = False
    assert panel.tabs.selected_index == 0


def test_the_moves_of_a_drag_are_compared_with_what_was_there_before_it(panel):
    first = panel.result
    say(panel, press=True)
    for wait_ms in (12, 15, 20):
        slide(panel, "max_wait_ms", wait_ms)
        assert panel.data.before.result is first
    say(panel, release=True)
    last = panel.result
    panel.controls["max_batch_size"].field.value = "16"
    assert panel.data.before.result is last
    assert panel.data.before.before is None


def limits(panel):
    return [[*axes.get_xlim(), *axes.get_ylim()] for axes in panel.picture.figure.axes]


def within(old, new):
    """Whether axes show at least what they did, upside down or not."""
    spans = zip(zip(old[::2], old[1::2], strict=True), zip(new[::2], new[1::2], strict=True), strict=True)
    return all(min(after) <= min(before) and max(before) <= max(after) for before, after in spans)


def test_axes_hold_while_a_slider_moves_and_shrink_when_it_is_let_go(panel):
    say(panel, press=True)
    slide(panel, "max_wait_ms", 50)
    grown = limits(panel)
    slide(panel, "max_wait_ms", 0)
    assert all(map(within, grown, limits(panel)))
    grown = limits(panel)
    frame = panel.screen.number
    say(panel, release=True)
    assert limits(panel) != grown
    assert panel.screen.number == frame + 1
    say(panel, release=True)  # of a gesture that moved nothing
    assert panel.screen.number == frame + 1


def test_reset_lets_the_axes_shrink(panel):
    begin = limits(panel)
    panel.controls["max_wait_ms"].value = 50
    panel.share.buttons["Reset"].click()
    assert limits(panel) == begin


def test_a_new_rule_has_a_map_too():
    panel = bs.explore(requests=300, link="rule=preferred_sizes&preferred=4,8")
    assert panel.status.value == ""
    assert (panel.data.surface.x, panel.data.surface.y) == bs.PreferredSizes.map_knobs
    say(panel, key="up")
    assert panel.result.scenario.rule == bs.PreferredSizes([4, 8], 32, 20)
    for _ in range(9):
        say(panel, key="up")
    assert panel.result.scenario.rule == bs.PreferredSizes([4, 8], 32, math.inf)
    assert panel.controls["rule"].value == "preferred_sizes"
