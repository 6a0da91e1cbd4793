"""The live picture of token generation: what it shows is the result's, and it fits into every page."""

import math

import numpy as np
import pytest
from pictures import LEAST, LOOKS, assert_drawn_within_places, assert_texts_laid_out, over, pixels, places_of
from token_pictures import LIMITS, TOKENS

import batchsim as bs
from batchsim._format import duration, number, percent
from batchsim.view.pictures import moments as moments
from batchsim.view.pictures.breakdown import TokenBreakdownView
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.headline import token_figures_of
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.seats import SeatsView
from batchsim.view.pictures.steps import StepsView
from batchsim.view.pictures.token_latency import TokenLatencyView
from batchsim.view.pictures.views import views_of

# The picture as a whole.


@pytest.mark.parametrize("large", sorted(views_of("tokens")))
def test_after_any_moves_and_a_release_the_picture_is_the_one_drawn_afresh(token_cases, pictures, large):
    moved = pictures[large]
    for name in ("whole", "plain", "overloaded", "short", "nobody", "two", "pinned"):
        moved.show(token_cases[name])
        pixels(moved)
    moved.release()
    fresh = LivePicture(830, large=large, mode="tokens")
    fresh.show(token_cases["pinned"])
    np.testing.assert_array_equal(pixels(moved), pixels(fresh))


@pytest.mark.parametrize("large", sorted(views_of("tokens")))
@pytest.mark.parametrize("look", LOOKS, ids=repr)
def test_nothing_is_outside_of_its_place_or_over_another_text_or_too_small(token_cases, look, large):
    picture = LivePicture(**{"width_px": 830, "large": large, "mode": "tokens"} | look)
    # Once all of them, and elsewhere those that say most.
    for name in ("pinned", "short", "two", "whole", "overloaded") if look else token_cases:
        picture.show(token_cases[name])
        picture.release()
        assert_texts_laid_out(picture, name)
        for tile in picture.tiles:
            box = tile.box
            for text, left, top, right, bottom in places_of(tile, picture):
                within = box.left <= left and right <= box.right and box.top <= top and bottom <= box.bottom
                assert within, (name, text)
        if name == "short":  # the others draw the same
            assert_drawn_within_places(picture)


def test_the_picture_is_what_matplotlib_draws_on_its_own(token_cases, pictures):
    picture = pictures["latency"]
    picture.show(token_cases["short"])
    by_parts = pixels(picture)
    picture.agg.draw()
    np.testing.assert_array_equal(by_parts[..., :3], np.asarray(picture.agg.buffer_rgba())[..., :3])


@pytest.mark.parametrize(
    ("look", "message"),
    [
        ({"mode": "token"}, "mode must be .*, got 'token'; did you mean 'tokens'"),
        ({"mode": "tokens", "large": "seat"}, "large must be .*, got 'seat'; did you mean 'seats'"),
        ({"large": "seats"}, "large must be .*, got 'seats'"),
    ],
)
def test_a_mode_or_a_view_that_there_is_not_is_refused(look, message):
    with pytest.raises(ValueError, match=message):
        LivePicture(**look)


def test_a_run_of_requests_has_no_picture_of_tokens(pictures):
    run = bs.simulate(bs.Scenario(bs.Poisson(10), bs.SizeOrWait(4, 5), bs.Affine(5, 1)), 20)
    with pytest.raises(TypeError, match="must show a run of tokens, got one of requests"):
        pictures["latency"].show(ViewData(run))


# The headline.


def test_the_headline_has_the_p99s_against_their_objectives_the_tokens_and_the_goodput(token_cases):
    ttft, tpot, tokens, goodput = token_figures_of(token_cases["plain"])
    run = token_cases["plain"].result
    for figure, name, column in ((ttft, "TTFT", "ttft_ms"), (tpot, "TPOT", "tpot_ms")):
        value = run.percentile(99, column=column)
        assert (figure.name[: len(name) + 4], f"{figure.value} {figure.unit}") == (
            f"{name} p99",
            duration(value),
        )
        assert ("✓" if value <= LIMITS[column] else "✗") in figure.name
        assert figure.beside == f"p50 {duration(run.percentile(50, column=column))}"
    assert float(tokens.value.replace(",", "")) == pytest.approx(
        run.summary()["output_tokens_per_s"], rel=0.01
    )
    within = {"ttft_ms": 300, "tpot_ms": 20}
    assert float(goodput.value) == pytest.approx(run.goodput_per_s(2000, **within), rel=0.01)
    assert goodput.interval == f"{percent(run.attainment(2000, **within))} of requests"


def test_the_headline_says_what_has_changed_in_the_unit_that_is_shown(token_cases):
    ttft = token_figures_of(token_cases["moved"])[0]
    now, before = (token_cases[name].result.percentile(99, column="ttft_ms") for name in ("moved", "plain"))
    sign, size = ttft.change.split()
    assert sign == ("▲" if now > before else "▼")
    assert float(size) == pytest.approx(abs(now - before) / {"s": 1000, "ms": 1}[ttft.unit], rel=0.01)


def test_a_figure_has_its_interval_where_the_run_is_long_enough():
    data = ViewData(bs.simulate(TOKENS.replace(rate_per_s=4), 8000))
    ttft, _, tokens, load = token_figures_of(data)
    for figure, key in ((ttft, "ttft_p99_ms"), (tokens, "output_tokens_per_s")):
        low, high = map(float, figure.interval.replace(",", "").split(" to "))
        assert (low, high) == pytest.approx(data.result.interval(key), rel=0.01)
    assert load.name == "load"  # without an objective there is no goodput


def test_of_an_overloaded_run_the_ttft_grows_and_the_tpot_does_not(token_cases):
    ttft, tpot, _, load = token_figures_of(token_cases["overloaded"])
    assert (ttft.value, load.name, load.alert) == ("grows", "load ✗ overloaded", True)
    assert "✗" in ttft.name
    assert f"{tpot.value} {tpot.unit}" == duration(
        token_cases["overloaded"].result.percentile(99, column="tpot_ms")
    )


def test_the_headline_tells_preemptions_and_that_there_is_no_tpot(token_cases):
    share = token_cases["short"].summary["preempted_share"]
    assert share > 0
    assert token_figures_of(token_cases["short"])[3].beside == f"{percent(share)} preempted"
    assert token_figures_of(token_cases["single"])[1].value == "\N{EN DASH}"


# Where the time goes.


def test_the_bars_are_the_mean_parts_of_ever_slower_requests(token_cases, shown):
    view, result = shown("short", TokenBreakdownView), token_cases["short"].result
    groups = np.array_split(np.argsort(result.latency_ms, kind="stable"), 20)
    parts = {
        "waiting": (result.start_s - result.arrival_s) * 1000, "prefill": result.prefill_ms,
        "decode": result.decode_ms, "preempted": result.preempted_ms,
    }  # fmt: skip
    assert parts["preempted"].any()
    np.testing.assert_allclose(sum(parts.values()), result.latency_ms)
    for name, column in parts.items():
        values, _, base = view.bars[name].get_data()
        np.testing.assert_allclose(values - base, [column[group].mean() for group in groups], atol=1e-9)
    texts = [label.text for label in view.values.labels]
    for name, column in parts.items():
        assert texts[texts.index(name) + 1] == duration(column.mean())


def test_a_part_that_nobody_spends_time_on_is_not_named(token_cases, shown):
    assert "preempted" not in [label.text for label in shown("free", TokenBreakdownView).values.labels]


# Words, and the pointer.


def test_the_words_tell_the_numbers_of_the_picture(token_cases, pictures):
    picture, data = pictures["latency"], token_cases["short"]
    picture.show(data)
    words, result, now = picture.describe(data), data.result, data.moment()
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


def test_the_pointer_reads_values_off_every_large_view(token_cases, shown):
    data = token_cases["short"]
    view, now = shown("short", TokenLatencyView), data.moment()
    low, high = view.ax.get_xlim()
    share = percent(float(np.interp(math.sqrt(low * high), *data.curves["latency_ms"])))
    assert f"answer {share} of the requests" in over(view, 0.5, 0.5, data).text
    assert over(shown("short", TokenBreakdownView), 0.99, 0.5, data).text.startswith("Requests from 95")
    step = over(shown("short", StepsView), 0.0001, 0.1, data)
    assert step.text.startswith(f"Step {now.steps[0]:,}, ")
    assert "of 40 blocks" in step.text
    seat = over(shown("short", SeatsView), 0.0001, 0.001, data)
    here = (now.seats.seat == 0) & (now.seats.begin_s <= now.begin_s)
    assert seat.text.startswith(f"Seat 1: request {now.seats.request[here][0]:,}, ")


# A still picture.


def test_plot_draws_a_run_of_tokens(token_cases):
    picture = bs.plot(token_cases["short"].result)
    assert [type(view).KEY for view in picture.views] == ["latency", "breakdown", "steps", "seats"]
    assert picture._repr_png_()
    with pytest.raises(ValueError, match="theory must be False"):
        bs.plot(token_cases["short"].result, theory=True)


ESSENTIAL = {
    "latency": {"Share within a time", "time", "TTFT", "TPOT", "answer"},
    "map": {"Goodput by setting", "max_num_seqs", "max_num_batched_tokens", "now"},
    "load": {"TTFT by load (s)", "arrival rate (per s)", "p99", "mean", "answer p99"},
    "seats": {"Seats over time", "time (s)", "prompt", "a token a step"},
    "breakdown": {"Where time goes (s)", "fastest to slowest (%)", "decode", "waiting"},
    "steps": {"Tokens of each step", "time (s)", "tokens of prompts", "of answers"},
}  # fmt: skip


@pytest.mark.parametrize("large", sorted(views_of("tokens")))
def test_a_small_view_names_its_axes_and_what_it_draws_at_the_smallest_size(token_cases, large):
    picture = LivePicture(**LEAST, large=large, mode="tokens", theme="dark")
    for name, case in token_cases.items():
        picture.show(case)
        picture.release()
        for view in picture.views:
            view.refresh()
            texts = {text: place for text, *place in places_of(view, picture) if text}
            if name == "plain" and not view.large:
                named = {text.replace("(ms)", "(s)") for text in texts}
                assert named >= ESSENTIAL[view.KEY], view.KEY
            for text, (left, _, right, bottom) in texts.items():
                assert view.box.left <= left < right <= view.box.right + 0.5, (name, text)
                assert bottom <= view.box.bottom
        if large != "map":  # whose large legend shrinks
            assert_texts_laid_out(picture, name)
