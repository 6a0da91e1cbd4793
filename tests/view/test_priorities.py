"""A class sees priorities: a slider for the share that goes first, and what each level gets."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim.view.canvas.lettering import width_em
from batchsim.view.explorer.kinds import CONTROLS, KINDS
from batchsim.view.explorer.knob import Knob
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.headline import figures_of, levels
from batchsim.view.pictures.live import LivePicture

TWO = bs.Scenario(
    bs.Poisson(1000).with_priorities({1: 0.25, 2: 0.75}), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25)
)


def test_a_slider_sets_the_share_of_the_first_of_two_levels():
    knob = Knob(CONTROLS["priorities"], ())
    assert (knob.slider.value, knob.field.value) == (0, "")
    knob.slider.value = 0.35
    assert knob.value == ((1, 0.35), (2, 0.65))
    assert knob.field.value == "1:0.35, 2:0.65"
    knob.slider.value = 0
    assert knob.value == ()


def test_what_is_typed_moves_the_slider_to_the_share_of_the_first():
    knob = Knob(CONTROLS["priorities"], ())
    for text, value, share in (
        ("1:0.2,2:0.5,3:0.3", ((1, 0.2), (2, 0.5), (3, 0.3)), 0.2),
        ("1:1", ((1, 1.0),), 1.0),  # beyond its end, which is widened
        ("", (), 0),
    ):
        knob.field.value = text
        assert (knob.value, knob.slider.value) == (value, share)
    knob.field.value = "1:0.2"
    assert "sum to 1" in knob.refusal.value
    assert knob.value == ()


def test_an_empty_field_says_what_that_means():
    shown = {name: it.when_empty for name, it in CONTROLS.items() if it.optional and it.page}
    shown = {name: words for name, words in shown.items() if name in KINDS["requests"].controls}
    assert shown == {
        "priorities": "one level", "padding": "no padding", "devices": "one each", "queue_limit": "no limit",
        "timeout_ms": "never", "objective_ms": "none", "lengths": "no padding", "size_most": "no limit",
        "max_batch_units": "no limit",
    }  # fmt: skip
    assert Knob(CONTROLS["timeout_ms"], None).field.placeholder == "never"


def test_the_explorer_shows_what_each_level_gets():
    explorer = bs.explore(TWO, requests=5000)
    found = explorer.result.by_priority()
    for q, figure in zip((50, 99), figures_of(explorer.data), strict=False):
        for level in (1, 2):
            assert explorer.data.levels_ms[level][q == 99] == pytest.approx(found[f"p{q}_ms"][level])
            assert f"level {level} " in figure.levels[0]
    assert levels(explorer.data, 99)[0] in explorer.readout.value
    shown = [label.text for label in explorer.picture.headline.notes.labels]
    assert any(text.startswith(levels(explorer.data, 99)[0]) for text in shown)
    explorer.controls["priorities"].value = ()
    assert explorer.data.levels_ms == {}
    assert "level" not in " ".join(label.text for label in explorer.picture.headline.notes.labels)


def test_under_overload_the_level_that_keeps_up_has_a_latency_and_the_other_grows():
    data = ViewData(bs.simulate(TWO.replace(rate_per_s=3600), 20_000))  # full batches carry 2,462/s
    assert data.overloaded
    assert data.levels_ms[1][1] < 40
    assert math.isinf(data.levels_ms[2][1])
    assert levels(data, 99)[0].endswith("level 2 grows")


def test_a_level_of_which_many_are_lost_says_so():
    lossy = TWO.replace(rate_per_s=3600, queue_limit={2: 20})
    data = ViewData(bs.simulate(lossy, 20_000))
    assert not data.overloaded
    assert np.isfinite(data.levels_ms[1]).all()
    assert levels(data, 99)[0].endswith("level 2 lost")


@pytest.mark.parametrize(("width_px", "shown"), [(1000, 0), (700, 1), (560, 2)])
def test_the_headline_says_the_levels_as_briefly_as_it_must(width_px, shown):
    data = ViewData(bs.simulate(TWO, 5000))
    headline = LivePicture(width_px, 600).headline
    headline.update(data)
    notes = [label for label in headline.notes.labels if label.text]
    texts = [label.text for label in notes]
    assert levels(data, 99)[shown] in texts
    for label in notes:
        place = max(x for x, _ in headline.places if x <= label.x)
        assert label.x + headline.em * width_em(label.text) <= place + headline.wide
