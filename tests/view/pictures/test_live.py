"""The live picture: drawing what moves alone is drawing all, and nothing is cut off."""

import dataclasses
from io import BytesIO

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import SubFigure
from pictures import BASE, LOOKS, assert_texts_laid_out, data_of, pixels, shown
from PIL import Image
from refusals import refusals
from token_pictures import LIMITS, TOKENS, token_data_of

import batchsim as bs
from batchsim._format import duration, number, percent
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.views import views_of

ALL = [(mode, large) for mode in ("requests", "tokens") for large in sorted(views_of(mode))]
MORE = {  # views of runs that have more
    "replicas": BASE.replace(replicas=4, routing="fill_first"),
    "sizes": BASE.replace(
        workload=bs.Poisson(500).with_sizes(bs.Uniform(1, 99)), service=bs.PaddedTime(5, 0.2, 0.002)
    ),
}
MORE["costs"] = MORE["sizes"].replace(replicas=2, watts={0: 60, 1: 150, 32: 300}, price_per_hour=1)


@pytest.fixture(scope="session")
def every(cases, token_cases):
    return {"requests": cases, "tokens": token_cases}


@pytest.fixture(scope="module")
def more():
    return {name: data_of(scenario) for name, scenario in MORE.items()}


# Drawing what moves.


@settings(max_examples=4, deadline=None)
@given(draws=st.data(), place=st.sampled_from(ALL))
def test_after_any_moves_and_a_release_the_picture_is_the_one_drawn_afresh(every, draws, place):
    mode, large = place
    names = draws.draw(st.lists(st.sampled_from(sorted(every[mode])), min_size=2, max_size=4))
    moved = shown(every[mode][names[0]], large)
    for name in names:
        moved.show(every[mode][name])
        pixels(moved)
    moved.release()
    differ = pixels(moved) != pixels(shown(every[mode][names[-1]], large))
    assert differ.any(axis=2).sum() < 9  # a rounding error may move the end of a dash


@pytest.mark.parametrize(
    ("mode", "name"), [("requests", "pinned"), ("requests", "losing"), ("tokens", "short")]
)
def test_the_picture_is_what_matplotlib_draws_on_its_own(every, mode, name):
    picture = shown(every[mode][name], theme="dark")
    by_parts = pixels(picture)
    for artist in picture.moving:
        artist.set_animated(False)
    with picture.styled():
        picture.figure.canvas.draw()
    whole = np.asarray(picture.figure.canvas.buffer_rgba())
    # What moves is over the axes' lines, which matplotlib draws over areas.
    assert np.mean((by_parts != whole).any(axis=2)) < 0.01


@pytest.fixture
def draws(monkeypatch):
    """The subfigures that have been drawn."""
    found, draw = [], SubFigure.draw
    monkeypatch.setattr(SubFigure, "draw", lambda self, renderer: (found.append(self), draw(self, renderer)))
    return found


@pytest.mark.parametrize("large", ["latency", "sizes", "steps", "seats"])
def test_a_drag_in_which_no_limit_changes_draws_only_what_moves(draws, every, large):
    if large in ("latency", "sizes"):
        scenario, before = MORE.get(large, BASE), every["requests"]["plain"]
        rates = [share * scenario.workload.rate_per_s for share in (1, 0.99, 0.98)]
        steps = [data_of(scenario.replace(rate_per_s=rate), before=before) for rate in rates]
    else:
        rates, before = (8, 7.9, 7.8), every["tokens"]["plain"]
        steps = [token_data_of(TOKENS.replace(rate_per_s=rate), before=before, **LIMITS) for rate in rates]
        if large == "seats":  # beside a map and a curve that are lacking
            steps = [dataclasses.replace(data, surface=None, curve=None) for data in steps]
    picture = shown(steps[0], large)
    for data in (*steps, *steps):
        picture.show(data)
        pixels(picture)
    draws.clear()
    frames = []
    for data in (*steps, *steps[::-1]):
        picture.show(data)
        frames.append(pixels(picture))
    assert draws == []
    assert (frames[0] != frames[1]).any()
    np.testing.assert_array_equal(frames[:3], frames[:2:-1])


def test_a_users_settings_of_matplotlib_change_nothing(cases):
    plain = shown(cases["plain"])
    pixels(plain)
    plain.show(cases["losing"])  # whose legend has other names
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):
        other = shown(cases["plain"])
        pixels(other)
        other.show(cases["losing"])
        np.testing.assert_array_equal(pixels(other), pixels(plain))


def test_the_files_hold_the_pixels_of_the_screen_and_the_live_picture_goes_on(cases):
    picture = shown(cases["plain"], ratio=1.5)
    before = pixels(picture)
    for image in map(Image.open, map(BytesIO, (picture.png(), picture.frame()))):
        assert image.size == (1290, 960)
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), before[..., :3])
    for kind in ("svg", "pdf", "png"):
        file = BytesIO()
        shown(cases["plain"]).save(file, kind)
        assert {"svg": b"<path", "pdf": b"%PDF", "png": b"PNG"}[kind] in file.getvalue()
    np.testing.assert_array_equal(pixels(picture), before)


# Places and sizes.


MUCH = {"requests": ("plain", "pinned", "losing"), "tokens": ("short", "two", "whole")}  # these say most


@pytest.mark.parametrize("look", LOOKS, ids=repr)
@pytest.mark.parametrize("mode", MUCH)
def test_no_text_is_cut_off_or_over_another_or_too_small(every, mode, look):
    picture = shown(every[mode]["overloaded"], **look)
    for name in MUCH[mode] if look else every[mode]:
        picture.show(every[mode][name])
        picture.release()
        assert_texts_laid_out(picture, name)


@pytest.mark.parametrize(("mode", "large"), ALL)
def test_no_text_of_a_large_view_is_cut_off_or_over_another(every, mode, large):
    for look in LOOKS:
        part = 1 if "alone" in look else 2 / 3
        size = {"width_px": 860, "height_px": 640} | look
        size = {name: int(part * size[name]) for name in ("width_px", "height_px")}
        picture = shown(every[mode]["overloaded"], large, **look | size | {"alone": True})
        for name in MUCH[mode] if look else every[mode]:
            picture.show(every[mode][name])
            picture.release()
            assert_texts_laid_out(picture, (look, name))


@pytest.mark.parametrize("large", MORE)
@pytest.mark.parametrize("look", LOOKS, ids=repr)
def test_no_text_is_cut_off_where_a_run_has_more_views(more, look, large):
    assert_texts_laid_out(shown(more[large], large, **look))


@pytest.mark.parametrize(("mode", "large"), ALL)
def test_one_view_is_large_and_the_others_fill_the_rest(mode, large):
    for look in ({"height_px": 650}, {"width_px": 857, "ratio": 1.25}, {"alone": True}):
        for parts in ((), ("by_replica",)):
            picture = LivePicture(**look, large=large, mode=mode, parts=parts)
            areas = {key: wide * high for key, (_, _, wide, high) in picture.places().items()}
            assert list(areas) == ([large] if "alone" in look else [large, *(k for k in areas if k != large)])
            assert sum(areas.values()) == pytest.approx(1)
            assert all(areas[large] > 2.5 * area for key, area in areas.items() if key != large)
            assert {*areas} == ({large} if "alone" in look else {*views_of(mode, parts)})


@pytest.mark.parametrize(("mode", "large"), ALL)
def test_a_few_views_are_the_large_one_and_two_as_high_as_it_together(mode, large, every):
    picture = shown(every[mode]["overloaded"], large, width_px=857, height_px=650, few=True)
    places = picture.places()
    assert next(iter(places)) == large
    assert [*places][1:] == [key for key in views_of(mode) if key != large][:2]
    assert sum(places[key][3] for key in [*places][1:]) == pytest.approx(1)
    assert places[large][3] == pytest.approx(1)
    assert sum(wide * high for _, _, wide, high in places.values()) == pytest.approx(1)
    assert_texts_laid_out(picture, large)


def test_of_more_views_than_have_room_the_last_are_left_out():
    parts = "sizes", "by_replica", "paid"
    every = [*views_of("requests", parts)]
    assert [*LivePicture(1250, parts=parts).views] == every
    for width_px, least in ((960, 7), (860, 6)):
        few = [*LivePicture(width_px, parts=parts).views]
        assert least <= len(few) < len(every)
        assert few == every[: len(few)]
        assert (
            sum(wide * high for _, _, wide, high in LivePicture(width_px, parts=parts).places().values())
            > 0.99
        )


@pytest.mark.parametrize("less", [{"width_px": 543}, {"height_px": 480}])
def test_without_room_for_its_names_no_view_is_drawn_small(less):
    assert [*LivePicture(**LOOKS[-1] | less).views] == ["latency"]


def limits_of(picture):
    return {
        key: [(*ax.get_xlim(), *ax.get_ylim()) for ax in view.axes] for key, view in picture.views.items()
    }


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
    pixels(picture)
    assert not picture.release()
    picture.show(cases["slower"])
    assert picture.views["latency"].ax.get_xlim()[1] > cases["slower"].result.percentile(99)


def test_the_overloaded_run_before_the_last_move_hides_no_breakdown(cases):
    after = shown(data_of(BASE, before=cases["overloaded"]), "breakdown", alone=True)
    assert limits_of(after) == limits_of(shown(cases["plain"], "breakdown", alone=True))


# The pointer, and words.


def test_a_small_view_says_that_a_click_enlarges_it_and_a_large_one_what_is_there(cases):
    picture = shown(cases["plain"])
    pixels(picture)
    for key, (left, top, wide, high) in picture.places().items():
        spot = picture.at(left + wide / 2, top + high / 2)
        assert spot.view == key
        assert (f"Enlarge: {picture.views[key].NAME}" == spot.text) == (key != "latency")
    assert picture.at(0.001, 0.001) is None  # outside of the axes
    assert LivePicture(860).at(0.8, 0.8) is None  # nothing is shown yet
    ax, whole = picture.views["latency"].ax, picture.figure.bbox
    x, y = ax.transData.transform((15.0, 1.0))
    below = np.mean(cases["plain"].result.latency_ms < 15)
    said = picture.at(x / whole.width, 1 - y / whole.height).text
    assert said == f"{percent(below)} of the requests take less than {duration(15)}"


def test_the_words_tell_the_numbers_of_the_picture(token_cases):
    data = token_cases["short"]
    picture, result, now = shown(data), data.result, data.moment()
    words = picture.describe(data)
    for q in (50, 99):
        assert f"p{q} {number(result.percentile(q, column='ttft_ms'))} ms" in words
    assert f"{percent(result.attainment(ttft_ms=300))} of requests are within it" in words
    assert f"goodput {number(data.goodput_per_s)}/s" in words
    assert f"preempted {number(round(result.preempted_ms.mean(), 6))}" in words
    assert f"{now.column('step_preempted').sum()} preempted" in words
    assert f"{number(now.prompt_tokens.mean())} tokens of prompts" in words
    assert "8 seats" in words
    for name, case in token_cases.items():
        assert picture.describe(case), name
        assert "nan" not in picture.describe(case), name


@refusals
def test_a_look_that_makes_no_sense_is_refused():
    """
    LivePicture(width_px=10) -> width_px must be at least 240, got 10
    LivePicture(large="lode") -> large must be ..., got 'lode'; did you mean 'load'
    LivePicture(large="seats") -> large must be ..., got 'seats'
    LivePicture(ratio=math.nan) -> ratio must be a number, got nan
    LivePicture(theme="drak") -> theme must be 'light' or 'dark', got 'drak'; did you mean 'dark'
    LivePicture(size="huge") -> size must be 'page' or 'projector', got 'huge'
    LivePicture(mode="token") -> mode must be ..., got 'token'; did you mean 'tokens'
    LivePicture(mode="tokens", large="seat") -> large must be ..., got 'seat'; did you mean 'seats'
    """


def test_a_picture_of_one_kind_refuses_a_run_of_another(cases):
    with pytest.raises(TypeError, match="a picture of tokens must show a run of tokens, got one of requests"):
        LivePicture(mode="tokens").show(cases["plain"])
