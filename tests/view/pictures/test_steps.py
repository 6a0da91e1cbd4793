"""A moment of a run of token generation, in pictures: its steps and its seats."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from pictures import drawn, names_of, texts_in
from token_pictures import TOKENS, token_data_of

import batchsim as bs
from batchsim._format import percent
from batchsim.result.seats import seats
from batchsim.view.film.token_film import TokenFilm
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.seats import SeatsView
from batchsim.view.pictures.steps import StepsView
from batchsim.view.pictures.views import in_words


def test_a_moment_of_whole_batches_is_two_of_them(token_cases):
    now, result = token_cases["whole"].moment(), token_cases["whole"].result
    starts = result.batches.start_s
    first = int(np.searchsorted(starts, now.begin_s))
    assert starts[first] == now.begin_s
    assert now.end_s == result.batches.finish_s[first + 1]


def test_the_steps_view_draws_the_tokens_of_each_step_over_its_time(token_cases):
    view, now = drawn(StepsView, token_cases["short"]), token_cases["short"].moment()
    total, edges_ms, base = view.shown["prefill"].get_data()
    np.testing.assert_array_equal(total[::2], now.column("step_tokens"))
    np.testing.assert_array_equal((total - base)[::2], now.prompt_tokens)
    np.testing.assert_allclose(edges_ms[::2], 1000 * (now.column("batch_start_s") - now.begin_s))
    np.testing.assert_allclose(edges_ms[1::2], 1000 * (now.column("batch_finish_s") - now.begin_s))
    assert len(view.shown["preempted"].get_xdata()) == np.count_nonzero(now.column("step_preempted")) > 0
    last, beyond = (view.spot(view.ax, edges_ms[-1] + ms, 1, token_cases["short"]) for ms in (-1e-3, 1e-3))
    assert last.text.startswith(f"Step {now.steps[-1]:,}, ")
    assert beyond is None


def test_while_nothing_runs_no_tokens_are_drawn(token_cases):
    view, now = drawn(StepsView, token_cases["free"]), token_cases["free"].moment()
    gaps = now.column("batch_start_s")[1:] > now.column("batch_finish_s")[:-1]
    assert gaps.any()
    total, _, _ = view.shown["prefill"].get_data()
    np.testing.assert_array_equal(total[1::2] == 0, gaps)
    end_ms, next_ms = view.shown["prefill"].get_data()[1][2 * gaps.argmax() + 1 :][:2]
    spots = [view.spot(view.ax, at, 1, token_cases["free"]) for at in (end_ms - 1e-3, (end_ms + next_ms) / 2)]
    assert [each.text == "Nothing runs" for each in spots] == [False, True]


def test_seats_and_memory_are_shares_of_their_limits(token_cases):
    view, now = drawn(StepsView, token_cases["short"]), token_cases["short"].moment()
    for name, column, most in (("seats", "step_running", 8), ("memory", "step_blocks", 40)):
        values, edges_ms, _ = view.shown["now", name].get_data()
        starts_ms = 1000 * (now.column("batch_start_s") - now.begin_s) + 1e-3
        places = np.searchsorted(edges_ms, starts_ms, side="right") - 1
        np.testing.assert_allclose(values[places], 100 * now.column(column) / most, err_msg=name)
        share = percent(float(now.column(column).mean() / most))
        assert (
            f"{share} of {most} {'seats' if name == 'seats' else 'blocks'}" in view.shown["taken"].get_text()
        )
    assert ("now", "memory") not in drawn(StepsView, token_cases["free"]).shown


def test_beside_the_shares_are_those_of_the_other_setting_at_the_same_time(token_cases):
    view, now = drawn(StepsView, token_cases["pinned"]), token_cases["pinned"].moment()
    steps = token_cases["pinned"].pinned.result.steps
    for name, column, most in (("seats", "running", 8), ("memory", "kv_blocks", TOKENS.rule.kv_blocks)):
        values, edges_ms, _ = view.shown["other", name].get_data()
        for at_s in np.linspace(now.begin_s, now.end_s, 50)[:-1] + 1e-5:
            here = (steps.start_s <= at_s) & (at_s < steps.finish_s)
            place = np.searchsorted(edges_ms, 1000 * (at_s - now.begin_s), side="right") - 1
            assert values[place] == pytest.approx(100 * getattr(steps, column)[here].sum() / most)


def test_where_seats_are_endless_their_share_is_of_the_most_that_run():
    data = ViewData(bs.simulate(TOKENS.replace(max_num_seqs=2**31), 200))
    most = data.result.steps.running.max()
    assert f"of {most} that ever run" in drawn(StepsView, data).shown["taken"].get_text()


def test_the_seats_are_filled_for_as_long_as_they_are_taken(token_cases):
    for name in ("short", "whole"):
        view, now = drawn(SeatsView, token_cases[name]), token_cases[name].moment()
        rows, drawn_ms = now.seats, 0.0
        ends = np.clip([rows.begin_s, rows.end_s], now.begin_s, now.end_s)
        for part in ("prefill", "again", "decode", "padded"):
            if part in view.shown:
                corners = view.shown[part].get_path().vertices.reshape(-1, 5, 2)
                drawn_ms += (corners[:, 1, 0] - corners[:, 0, 0]).sum()
        assert drawn_ms == pytest.approx(1000 * (ends[1] - ends[0]).sum())
        assert ("padded" in view.shown) == (name == "whole")
        assert ("preempted" in view.shown) == (name == "short")


@pytest.mark.parametrize("name", ["pinned", "two"])
def test_below_the_seats_is_what_is_below_the_steps_and_the_pointer_reads_the_same(token_cases, name):
    data = token_cases[name]
    seats, steps = (drawn(kind, data) for kind in (SeatsView, StepsView))
    for key in (key for key in steps.shown if key[0] in ("now", "other")):
        for one, other in zip(seats.shown[key].get_data(), steps.shown[key].get_data(), strict=True):
            np.testing.assert_array_equal(one, other)
    assert names_of(seats.strip)[-2:] == names_of(steps.strip)[-2:] == ["seats", "memory"]
    assert seats.shown["taken"].get_text() == steps.shown["taken"].get_text()
    assert seats.strip.get_ylim() == steps.strip.get_ylim()
    middle = 0.5 * seats.strip.get_xlim()[1]
    assert seats.spot(seats.strip, middle, 0, data).text == steps.spot(steps.ax, middle, 0, data).text


def test_steps_and_seats_are_those_of_the_server_that_is_chosen(token_cases):
    data, result = token_cases["two"], token_cases["two"].result
    for server in (0, 1):
        now = data.moment(server)
        assert (result.steps.server[now.steps] == server).all()
        for kind in (SeatsView, StepsView):
            view = kind()
            view.server = server
            view.draw(Figure().subplots(2), data)
            assert view.shown["place"].get_text().endswith(f"server {server + 1} of 2")
        assert f"server {server + 1} of 2" in view.describe(data)[0] or kind is StepsView
    whole = token_data_of(TOKENS.replace(rule=bs.SizeOrWait(6, 100), servers=2))
    found, every = whole.moment(1), seats(whole.result)
    mine = (every.server == 1) & (every.begin_s < found.end_s) & (every.end_s > found.begin_s)
    assert found.seats.request.tolist() == every.request[mine].tolist()


@pytest.mark.parametrize("kind", [SeatsView, StepsView])
def test_a_run_without_a_step_shows_no_seats_and_no_names_of_the_run_before(token_cases, kind):
    view, nobody = drawn(kind, token_cases["short"]), token_cases["nobody"]
    legend = view.axes[-1].get_legend()
    assert legend.get_visible()
    view.show(nobody)
    seen = {text.get_text() for text in texts_in(view.ax.figure)}
    assert "no step ran\non this server" in seen
    assert seen.isdisjoint(names_of(view.axes[-1]))
    assert view.shown.keys() == {"lacks"}
    assert in_words([view], nobody) == ""
    view.show(token_cases["short"])
    assert legend.get_visible()


PADDED = bs.Scenario(
    bs.Trace([0.0] + [0.01] * 10), bs.Continuous(14),
    bs.StepTime(20, 0, 0, captured=(1, 2, 4, 8), beyond_ms=70), tokens=bs.Tokens(3, [30] * 6 + [10] * 5),
)  # fmt: skip


@pytest.mark.usefixtures("token_cases")  # which makes the maps of all
def test_padding_and_captured_sizes_are_seen_and_said():
    data = token_data_of(PADDED, 11)
    view = drawn(StepsView, data)
    captured = view.shown["captured"]
    np.testing.assert_allclose(captured.get_ydata(), [100 / 14, 200 / 14, 400 / 14, 800 / 14])
    assert captured.axes is view.strip  # beside the seats that are taken
    assert view.shown["padding"].get_visible()
    assert [*names_of(view.axes[-1])][2:4] == ["of padding", "captured size"]
    said = [view.spot(view.ax, x, 0, data).text for x in (10, 200, 900)]
    assert "11 tokens, not captured: each kernel is launched" in said[1]
    assert "6 tokens, computed as 8, a captured size" in said[2]
    assert "not captured" in said[0]
    words = TokenFilm(data.result).words(0.9)
    assert "a step of 6 tokens for 6 requests, computed as 8, a captured size; 6 run" in words
    view = drawn(SeatsView, data)
    assert "padding" in view.shown
    assert {"empty, computed", "captured size"} <= {*names_of(view.axes[-1])}
    assert view.shown["captured"].axes is view.strip
    assert view.spot(view.ax, 900, 7, data).text == (
        "Seat 7 is empty, but computed: the step is padded to a captured size"
    )
    assert view.spot(view.ax, 900, 9, data).text == "Seat 9 is empty"
    assert re.search(r"on empty seats of captured steps", view.describe(data)[0])
    small = SeatsView().draw(Figure().subplots(1, squeeze=False).ravel(), data, large=False)
    assert "captured size" not in names_of(small.axes[-1])
    plain = drawn(StepsView, token_data_of(PADDED.replace(captured=None), 11))
    assert "captured" not in plain.shown
    assert "captured size" not in names_of(plain.axes[-1])
    assert "captured size" not in names_of(
        drawn(SeatsView, token_data_of(PADDED.replace(captured=None), 11)).axes[-1]
    )
