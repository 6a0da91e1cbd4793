"""The live picture of token generation: what it shows is the result's, and it fits into every page."""

import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.token_plans import crowded_plans, token_plans
from oracles.watched import Watched
from pictures import LEAST, LOOKS, assert_drawn_within_places, assert_texts_laid_out, over, pixels, places_of

import batchsim as bs
from batchsim._format import duration, number, percent
from batchsim.result import Result
from batchsim.result.token_run import TokenRun
from batchsim.study.surface import load_curve, surface
from batchsim.view.film.seats import seats
from batchsim.view.pictures import moments as moments
from batchsim.view.pictures.breakdown import TokenBreakdownView
from batchsim.view.pictures.data import NAMED, ViewData
from batchsim.view.pictures.headline import token_figures_of
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.moments import moment
from batchsim.view.pictures.seats import SeatsView
from batchsim.view.pictures.steps import StepsView
from batchsim.view.pictures.token_latency import TokenLatencyView
from batchsim.view.pictures.views import views_of

STEP = bs.StepTime(fixed_ms=2, weights_ms=8, per_token_ms=0.1, per_read_ms=0.001, per_pair_ms=0.00001)
BASE = bs.Scenario(
    bs.Poisson(8), bs.Continuous(max_num_seqs=8, max_num_batched_tokens=64, kv_blocks=90), STEP,
    tokens=bs.Tokens(bs.Lognormal(60, 1, at_most=400), bs.Geometric(30)),
)  # fmt: skip
LIMITS = {"ttft_ms": 300.0, "tpot_ms": 20.0, "objective_ms": 2000.0}


def data_of(scenario, requests=400, before=None, pinned=None, **limits_ms):
    result, comparison = bs.simulate(scenario, requests), None
    if pinned is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so short a run has no interval
            comparison = bs.compare(pinned.result, result)
    known = isinstance(scenario.rule, bs.Continuous)
    return ViewData(
        result, GRIDS[len(limits_ms) == 3 and known], load_curve(scenario, 50), before=before, pinned=pinned,
        comparison=comparison, **limits_ms,
    )  # fmt: skip


GRIDS = []


@pytest.fixture(scope="module")
def cases():
    objectives = {"ttft_objective_ms": 300.0, "tpot_objective_ms": 20.0}
    GRIDS[:] = [surface(BASE, (2, 8), (32, 64), 100, **given) for given in ({}, objectives)]
    plain = data_of(BASE, **LIMITS)
    return {
        "plain": plain,
        "free": data_of(BASE.replace(kv_blocks=None, rate_per_s=4)),
        "overloaded": data_of(BASE.replace(rate_per_s=60), **LIMITS),
        "moved": data_of(BASE.replace(max_num_batched_tokens=32), before=plain, **LIMITS),
        "pinned": data_of(BASE.replace(max_num_seqs=6), pinned=plain, **LIMITS),
        "short": data_of(BASE.replace(kv_blocks=40, rate_per_s=14), **LIMITS),
        "two": data_of(BASE.replace(servers=2, kv_blocks=32, max_num_seqs=256), ttft_ms=100.0),
        "whole": data_of(BASE.replace(rule=bs.SizeOrWait(6, 100)), **LIMITS),
        "single": data_of(BASE.replace(tokens=bs.Tokens(bs.Uniform(2, 90), 1)), tpot_ms=10.0),
        "closed": data_of(BASE.replace(workload=bs.ClosedLoop(10, 0.1))),
        "losing": data_of(BASE.replace(rate_per_s=60, queue_limit=3), **LIMITS),
        "nobody": data_of(BASE.replace(rule=bs.SizeOrWait(6, 100), timeout_ms=0), 5, **LIMITS),
    }


@pytest.fixture(scope="module")
def pictures(cases):
    """A picture for each view that is the large one."""
    return {key: LivePicture(830, large=key, mode="tokens") for key in views_of("tokens")}


@pytest.fixture
def shown(cases, pictures):
    """Show a case, a view of it large, and return that view."""

    def show(name, kind):
        picture = pictures[kind.KEY]
        picture.show(cases[name])
        picture.release()
        picture.pixels()
        return picture.view(kind)

    return show


# The picture as a whole.


@pytest.mark.parametrize("large", sorted(views_of("tokens")))
def test_after_any_moves_and_a_release_the_picture_is_the_one_drawn_afresh(cases, pictures, large):
    moved = pictures[large]
    for name in ("whole", "plain", "overloaded", "short", "nobody", "two", "pinned"):
        moved.show(cases[name])
        pixels(moved)
    moved.release()
    fresh = LivePicture(830, large=large, mode="tokens")
    fresh.show(cases["pinned"])
    np.testing.assert_array_equal(pixels(moved), pixels(fresh))


@pytest.mark.parametrize("large", sorted(views_of("tokens")))
@pytest.mark.parametrize("look", LOOKS, ids=repr)
def test_nothing_is_outside_of_its_place_or_over_another_text_or_too_small(cases, look, large):
    picture = LivePicture(**{"width_px": 830, "large": large, "mode": "tokens"} | look)
    # Once all of them, and elsewhere those that say most.
    for name in ("pinned", "short", "two", "whole", "overloaded") if look else cases:
        picture.show(cases[name])
        picture.release()
        assert_texts_laid_out(picture, name)
        for tile in picture.tiles:
            box = tile.box
            for text, left, top, right, bottom in places_of(tile, picture):
                within = box.left <= left and right <= box.right and box.top <= top and bottom <= box.bottom
                assert within, (name, text)
        if name == "short":  # the others draw the same
            assert_drawn_within_places(picture)


def test_the_picture_is_what_matplotlib_draws_on_its_own(cases, pictures):
    picture = pictures["latency"]
    picture.show(cases["short"])
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


def test_the_headline_has_the_p99s_against_their_objectives_the_tokens_and_the_goodput(cases):
    ttft, tpot, tokens, goodput = token_figures_of(cases["plain"])
    run = cases["plain"].result
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


def test_the_headline_says_what_has_changed_in_the_unit_that_is_shown(cases):
    ttft = token_figures_of(cases["moved"])[0]
    now, before = (cases[name].result.percentile(99, column="ttft_ms") for name in ("moved", "plain"))
    sign, size = ttft.change.split()
    assert sign == ("▲" if now > before else "▼")
    assert float(size) == pytest.approx(abs(now - before) / {"s": 1000, "ms": 1}[ttft.unit], rel=0.01)


def test_a_figure_has_its_interval_where_the_run_is_long_enough():
    data = ViewData(bs.simulate(BASE.replace(rate_per_s=4), 8000))
    ttft, _, tokens, load = token_figures_of(data)
    for figure, key in ((ttft, "ttft_p99_ms"), (tokens, "output_tokens_per_s")):
        low, high = map(float, figure.interval.replace(",", "").split(" to "))
        assert (low, high) == pytest.approx(data.result.interval(key), rel=0.01)
    assert load.name == "load"  # without an objective there is no goodput


def test_of_an_overloaded_run_the_ttft_grows_and_the_tpot_does_not(cases):
    ttft, tpot, _, load = token_figures_of(cases["overloaded"])
    assert (ttft.value, load.name, load.alert) == ("grows", "load ✗ overloaded", True)
    assert "✗" in ttft.name
    assert f"{tpot.value} {tpot.unit}" == duration(
        cases["overloaded"].result.percentile(99, column="tpot_ms")
    )


def test_the_headline_tells_preemptions_and_that_there_is_no_tpot(cases):
    share = cases["short"].summary["preempted_share"]
    assert share > 0
    assert token_figures_of(cases["short"])[3].beside == f"{percent(share)} preempted"
    assert token_figures_of(cases["single"])[1].value == "\N{EN DASH}"


# TTFT, TPOT and answer.


@pytest.mark.parametrize("name", ["plain", "single", "losing", "whole"])
def test_each_curve_is_the_attainment_of_every_limit(cases, shown, name):
    view, result = shown(name, TokenLatencyView), cases[name].result
    if cases[name].overloaded:
        return
    for column, curve in view.curves.items():
        for limit_ms, share in list(zip(*curve.get_data(), strict=True))[5::10]:
            if column == "itl_ms":
                gaps = result.metrics.columns[column]
                below, most = (
                    gaps.within(limit_ms * near) / gaps.within(np.inf) for near in (1 - 1e-9, 1 + 1e-9)
                )
                assert below - 0.01 <= share / 100 <= most + 0.01  # many gaps are alike
                continue
            argument = "objective_ms" if column == "latency_ms" else column
            below, most = (result.attainment(**{argument: limit_ms * near}) for near in (1 - 1e-6, 1))
            assert below - 0.01 <= share / 100 <= most + 0.01, column  # answers of one step are alike


def test_the_objectives_are_lines_with_a_dot_at_the_share_that_keeps_each(cases, shown):
    view, result = shown("plain", TokenLatencyView), cases["plain"].result
    shares = [result.attainment(ttft_ms=300), result.attainment(tpot_ms=20), result.attainment(2000)]
    limits_ms, columns = (300, 20, 2000), [column for column in NAMED if column != "itl_ms"]
    for column, limit_ms, share in zip(columns, limits_ms, shares, strict=True):
        assert view.objectives[column].get_xdata()[0] == limit_ms
        assert view.dots[column].get_data() == ([limit_ms], [100 * share])
    words = [entry.value for entry in view.entries]
    for text in (f"TTFT {percent(shares[0])} in 300 ms", f"answer {percent(shares[2])} in 2 s"):
        assert text in words
    assert f"all {percent(result.attainment(2000, ttft_ms=300, tpot_ms=20))}" in words


def test_without_an_objective_no_line_is_seen_and_the_p99_is_told(cases, shown):
    view = shown("free", TokenLatencyView)
    assert not any(each.get_visible() for each in (*view.objectives.values(), *view.dots.values()))
    p99 = duration(cases["free"].result.percentile(99, column="ttft_ms"))
    assert view.entries[0].value == f"TTFT p99 {p99}"


def test_an_overloaded_run_shows_the_growing_queue(cases, shown):
    view, result = shown("overloaded", TokenLatencyView), cases["overloaded"].result
    times_s, waiting = view.queue.get_data()
    counted = [np.sum((result.arrival_s <= t) & (result.start_s > t)) for t in times_s]
    np.testing.assert_array_equal(waiting, counted)
    assert not any(curve.get_visible() for curve in view.curves.values())


def test_what_is_pinned_or_was_before_has_its_curves_beside(cases, shown):
    for name in ("pinned", "moved"):
        other = shown(name, TokenLatencyView).other_curves["ttft_ms"]
        assert other.get_visible()
        np.testing.assert_array_equal(other.get_xdata(), cases["plain"].curves["ttft_ms"][0])
    assert not shown("plain", TokenLatencyView).other_curves["ttft_ms"].get_visible()


# Where the time goes.


def test_the_bars_are_the_mean_parts_of_ever_slower_requests(cases, shown):
    view, result = shown("short", TokenBreakdownView), cases["short"].result
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


def test_a_part_that_nobody_spends_time_on_is_not_named(cases, shown):
    assert "preempted" not in [label.text for label in shown("free", TokenBreakdownView).values.labels]


# A moment of the run.


class Counting(Watched):
    """An engine that notes how many tokens of each step are of prompts, and how many of answers."""

    def __init__(self, plan):
        super().__init__(plan)
        self.tokens = []

    def start(self, engine):
        started = super().start(engine)
        if started:
            telling = [self.begun[row.request.number][1] is not None for row in engine.rows]
            counts = [row.tokens for row in engine.rows]
            answers = sum(count for count, tells in zip(counts, telling, strict=True) if tells)
            self.tokens.append((sum(counts) - answers, answers))
        return started


@settings(max_examples=60, deadline=None)
@given(st.one_of(token_plans(), crowded_plans()), st.floats(0, 1), st.sampled_from([(3, 9), (120, 600)]))
def test_a_moment_is_what_the_engine_does_and_who_sits_there_in_the_whole_run(plan, part, steps):
    engine = Counting(plan)
    log = engine.run()
    result = Result((TokenRun(plan.scenario, log),), 0, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "STEPS", steps)
        now = moment(result, part * float(log.batch_finish_s.max(initial=0)))
    if now is None:
        assert not (log.batch_server == 0).any()
        return
    assert (log.batch_server[now.steps] == 0).all()
    counted = np.array(engine.tokens)[now.steps]
    np.testing.assert_array_equal(np.stack([now.prompt_tokens, now.answer_tokens], axis=1), counted)
    whole = seats(result).within(now.begin_s, now.end_s)
    here = whole.of(whole.server == 0)
    columns = ("request", "seat", "begin_s", "again")
    assert sorted(zip(*(getattr(now.seats, name).tolist() for name in columns), strict=True)) == sorted(
        zip(*(getattr(here, name).tolist() for name in columns), strict=True)
    )


def test_a_moment_of_whole_batches_is_two_of_them(cases):
    now, result = cases["whole"].moment(), cases["whole"].result
    starts = result.batches.start_s
    first = int(np.searchsorted(starts, now.begin_s))
    assert starts[first] == now.begin_s
    assert now.end_s == result.batches.finish_s[first + 1]


def test_the_steps_view_draws_the_tokens_of_each_step_over_its_time(cases, shown):
    view, now = shown("short", StepsView), cases["short"].moment()
    total, edges_ms, base = view.bars["prefill"].get_data()
    np.testing.assert_array_equal(total[::2], now.column("step_tokens"))
    np.testing.assert_array_equal((total - base)[::2], now.prompt_tokens)
    np.testing.assert_allclose(edges_ms[::2], 1000 * (now.column("batch_start_s") - now.begin_s))
    np.testing.assert_allclose(edges_ms[1::2], 1000 * (now.column("batch_finish_s") - now.begin_s))
    assert len(view.preempted.get_xdata()) == np.count_nonzero(now.column("step_preempted")) > 0


def test_while_nothing_runs_no_tokens_are_drawn(cases, shown):
    view, now = shown("free", StepsView), cases["free"].moment()
    gaps = now.column("batch_start_s")[1:] > now.column("batch_finish_s")[:-1]
    assert gaps.any()
    total, _, _ = view.bars["prefill"].get_data()
    np.testing.assert_array_equal(total[1::2] == 0, gaps)


def test_seats_and_memory_are_shares_of_their_limits(cases, shown):
    view, now = shown("short", StepsView), cases["short"].moment()
    for name, column, most in (("seats", "step_running", 8), ("memory", "step_blocks", 40)):
        values, edges_ms, _ = view.lines[name].get_data()
        starts_ms = 1000 * (now.column("batch_start_s") - now.begin_s) + 1e-3
        places = np.searchsorted(edges_ms, starts_ms, side="right") - 1
        np.testing.assert_allclose(values[places], 100 * now.column(column) / most, err_msg=name)
        share = percent(float(now.column(column).mean() / most))
        assert any(entry.value and entry.value.startswith(f"{share} of {most}") for entry in view.entries)
    assert not shown("free", StepsView).lines["memory"].get_visible()


def test_beside_the_shares_are_those_of_the_other_setting_at_the_same_time(cases, shown):
    view, now = shown("pinned", StepsView), cases["pinned"].moment()
    steps = cases["pinned"].pinned.result.steps
    for name, column, most in (("seats", "running", 8), ("memory", "kv_blocks", BASE.rule.kv_blocks)):
        values, edges_ms, _ = view.other_lines[name].get_data()
        for at_s in np.linspace(now.begin_s, now.end_s, 50)[:-1] + 1e-5:
            here = (steps.start_s <= at_s) & (at_s < steps.finish_s)
            place = np.searchsorted(edges_ms, 1000 * (at_s - now.begin_s), side="right") - 1
            assert values[place] == pytest.approx(100 * getattr(steps, column)[here].sum() / most)


def test_where_seats_are_endless_their_share_is_of_the_most_that_run():
    data = ViewData(bs.simulate(BASE.replace(max_num_seqs=2**31), 200))
    picture, most = LivePicture(830, large="steps", mode="tokens"), data.result.steps.running.max()
    picture.view(StepsView).update(data)
    entries = [entry.value for entry in picture.view(StepsView).entries if entry.value]
    assert entries[0].endswith(f"of {most} that ever run")


def test_the_seats_are_filled_for_as_long_as_they_are_taken(cases, shown):
    for name in ("short", "whole"):
        view, now = shown(name, SeatsView), cases[name].moment()
        rows, drawn_ms = now.seats, 0.0
        ends = np.clip([rows.begin_s, rows.end_s], now.begin_s, now.end_s)
        for part in ("prefill", "again", "decode", "padded"):
            corners = view.bars[part].get_path().vertices
            if len(corners) > 1:
                corners = corners.reshape(-1, 5, 2)
                drawn_ms += (corners[:, 1, 0] - corners[:, 0, 0]).sum()
        assert drawn_ms == pytest.approx(1000 * (ends[1] - ends[0]).sum())
        assert view.bars["padded"].get_visible() == (name == "whole")
        assert view.preempted.get_visible() == (name == "short")


@pytest.mark.parametrize("name", ["pinned", "moved", "two", "whole"])
def test_above_the_seats_are_those_taken_and_at_the_same_time_in_the_other_setting(cases, shown, name):
    data, view = cases[name], shown(name, SeatsView)
    now = data.moment()
    for line, each in ((view.taken, data), (view.other_taken, data.other)):
        assert line.get_visible() == (each is not None)
        if each is None:
            continue
        steps = each.result.steps
        counts, edges_ms, _ = line.get_data()
        for at_s in np.linspace(now.begin_s, now.end_s, 60)[:-1] + 1e-5:
            here = (steps.server == 0) & (steps.start_s <= at_s) & (at_s < steps.finish_s)
            place = np.searchsorted(edges_ms, 1000 * (at_s - now.begin_s), side="right") - 1
            assert counts[place] == steps.running[here].sum()
        assert counts.max() <= view.strip.get_ylim()[1]
    said = [label.text for label in view.values.labels if "on average" in label.text]
    beside = {"pinned": "in A", "moved": "before"}.get(name, "on average")
    assert said[0].endswith(beside)
    assert ("in A." in view.describe(data)[0]) == (name == "pinned")
    strip = view.strip_box
    spot = view.spot(strip.left + 0.5 * strip.width, strip.top + 5, data)
    assert re.search(r"^\d+ seats? taken", spot.text)
    assert (beside in spot.text) == (name in ("pinned", "moved"))


def test_steps_and_seats_are_those_of_the_server_that_is_chosen(cases):
    data, result = cases["two"], cases["two"].result
    for server in (0, 1):
        now = data.moment(server)
        assert (result.steps.server[now.steps] == server).all()
        for kind in (SeatsView, StepsView):
            picture = LivePicture(830, large=kind.KEY, mode="tokens", server=server)
            picture.show(data)
            labels = [label.text for label in picture.view(kind).values.labels]
            assert f"server {server + 1} of 2" in labels
        assert f"server {server + 1} of 2" in picture.describe(data)
    whole = data_of(BASE.replace(rule=bs.SizeOrWait(6, 100), servers=2))
    found, every = whole.moment(1), seats(whole.result)
    mine = (every.server == 1) & (every.begin_s < found.end_s) & (every.end_s > found.begin_s)
    assert found.seats.request.tolist() == every.request[mine].tolist()


# Words, and the pointer.


def test_the_words_tell_the_numbers_of_the_picture(cases, pictures):
    picture, data = pictures["latency"], cases["short"]
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
    for name, case in cases.items():
        assert picture.describe(case), name
        assert "nan" not in picture.describe(case), name


def test_the_pointer_reads_values_off_every_large_view(cases, shown):
    data = cases["short"]
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


def test_plot_draws_a_run_of_tokens(cases):
    picture = bs.plot(cases["short"].result)
    assert [type(view).KEY for view in picture.views] == ["latency", "breakdown", "steps", "seats"]
    assert picture._repr_png_()
    with pytest.raises(ValueError, match="theory must be False"):
        bs.plot(cases["short"].result, theory=True)


ESSENTIAL = {
    "latency": {"Share within a time", "time", "TTFT", "TPOT", "answer"},
    "map": {"Goodput by setting", "max_num_seqs", "max_num_batched_tokens", "now"},
    "load": {"TTFT by load (s)", "arrival rate (per s)", "p99", "mean", "answer p99"},
    "seats": {"Seats over time", "time (s)", "prompt", "a token a step"},
    "breakdown": {"Where time goes (s)", "fastest to slowest (%)", "decode", "waiting"},
    "steps": {"Tokens of each step", "time (s)", "tokens of prompts", "of answers"},
}  # fmt: skip


@pytest.mark.parametrize("large", sorted(views_of("tokens")))
def test_a_small_view_names_its_axes_and_what_it_draws_at_the_smallest_size(cases, large):
    picture = LivePicture(**LEAST, large=large, mode="tokens", theme="dark")
    for name, case in cases.items():
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
