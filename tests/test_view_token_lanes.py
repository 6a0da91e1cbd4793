"""Lanes of token generation: what is drawn is what the run says, no word is cut, and the film plays it."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim._format import duration
from batchsim.servers.comparison import ServerComparison
from batchsim.view.canvas.theme import LEAST_PX
from batchsim.view.film.seats import seats
from batchsim.view.film.token_film import TokenFilm
from batchsim.view.film.token_lanes import DOWN, TokenLanesView, numbers_of

CARD = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)  # an 8B model on an RTX 4090
TOKENS = bs.Tokens(bs.Lognormal(500, 1, at_most=4000), bs.Geometric(150))
SCENARIO = bs.Scenario(bs.Poisson(0.9), bs.Continuous(8), CARD, tokens=TOKENS)
SHORT = bs.Continuous(64, kv_blocks=320)


@pytest.fixture(scope="module")
def three():
    return bs.compare_servers(SCENARIO, TokenLanesView.usual_rules(SCENARIO), requests=200)


@pytest.fixture(scope="module")
def tight():
    rules = {"short": SHORT, "ample": bs.Continuous(256)}
    return bs.compare_servers(SCENARIO.replace(rate_per_s=4), rules, requests=200)


def drawn(compared, **options):
    picture = bs.lanes(compared, **options)
    picture.png()
    return picture, picture.stage


def corners(part):
    """Left, top, right, bottom of the rectangles of a part of a lane."""
    if not part.get_visible():
        return np.empty((0, 4))
    vertices = part.get_path().vertices.reshape(-1, 5, 2)
    return np.concatenate([vertices[:, 0], vertices[:, 2]], axis=1)


def texts_of(view):
    return [text.get_text() for text in view.fixed if hasattr(text, "get_text")]


# What is drawn.


def test_a_row_is_a_seat_and_what_fills_it_is_the_time_of_prompts_and_tokens(three):
    _, view = drawn(three)
    for lane in view.lanes:
        rows = seats(lane.group.result).within(*view.stretch)
        begin, first, last, end = (
            view.x_px(np.clip(times_s, *view.stretch))
            for times_s in (rows.begin_s, rows.first_token_s, rows.last_token_s, rows.end_s)
        )
        top = lane.top_px + lane.row_px * rows.seat
        assert {*np.round(corners(lane.paper), 6)[:, 0]} == {*np.round(begin, 6)}
        assert np.allclose(corners(lane.paper)[:, 1], top)
        for name, left, right in (("prefill", begin, first), ("decode", first, last), ("padded", last, end)):
            some = right - left > 1.5  # a line of paper ends each
            found = corners(lane.parts[name])
            assert {*np.round(left[some], 6)} <= {*np.round(found[:, 0], 6)}, name
            area = (found[:, 2] - found[:, 0]).sum()
            assert area == pytest.approx((right - left).sum(), abs=1.1 * len(rows))
    assert [bool(len(corners(lane.parts["padded"]))) for lane in view.lanes] == [True, True, False]


def test_prompts_and_tokens_differ_in_more_than_their_colour(three):
    _, view = drawn(three)
    lane = view.lanes[2]
    prompts, tokens = (corners(lane.parts[name]) for name in ("prefill", "decode"))
    assert (prompts[:, 3] - prompts[:, 1]).min() > 1.3 * (tokens[:, 3] - tokens[:, 1]).max()
    hatches = {name: part.get_hatch() for name, part in lane.parts.items()}
    others = [hatches[name] for name in ("waiting", "padded", "empty", "again")]
    assert all(others)
    assert len({*others}) == 4


def test_empty_seats_are_hatched_while_their_server_computes(three):
    _, view = drawn(three)
    for lane in view.lanes:
        steps, (begin_s, until_s) = lane.group.result.steps, view.stretch
        computing_s = np.clip(steps.finish_s, begin_s, until_s) - np.clip(steps.start_s, begin_s, until_s)
        found = corners(lane.parts["empty"])
        width = view.plot.width * computing_s.sum() / (until_s - begin_s)
        assert (found[:, 2] - found[:, 0]).sum() == pytest.approx(width)
        assert (found[:, 3] - found[:, 1]) == pytest.approx(8 * lane.row_px)


def test_preemptions_are_marked_where_they_happen(tight):
    _, view = drawn(tight)
    short, ample = view.lanes
    rows = seats(short.group.result).within(*view.stretch)
    gone = rows.preempted & (rows.end_s <= view.stretch.until_s)
    assert gone.any()
    tips = short.marks.get_path().vertices.reshape(-1, len(DOWN), 2)[:, 2, 0]
    assert np.allclose(tips, view.x_px(rows.end_s[gone]))
    assert len(corners(short.parts["again"])) == (rows.again & (rows.begin_s < view.stretch.until_s)).sum()
    assert not ample.marks.get_visible()
    assert {"preempted", "computed again"} <= {*texts_of(view)}
    assert "done, seat kept" not in texts_of(view)


@pytest.mark.parametrize(
    "knobs",
    [
        {"rate_per_s": 4, "rule": SHORT},
        {"rate_per_s": 4, "rule": bs.SizeOrWait(8, 500), "servers": 2},
        {"rate_per_s": 9, "rule": bs.Continuous(4), "queue_limit": 5},
        {"rate_per_s": 9, "rule": bs.Continuous(4), "timeout_ms": 800, "servers": 2},
    ],
    ids=str,
)  # fmt: skip
def test_as_many_wait_and_sit_as_the_steps_say(knobs):
    result = bs.simulate(SCENARIO.replace(**knobs), 300)
    film, steps = TokenFilm(result), result.steps
    last = np.append(np.diff(steps.start_s) > 0, True)  # of those that begin at one instant
    for number in np.flatnonzero(last)[::7].tolist():
        now = film.snapshot(float(steps.start_s[number]))
        assert now.waiting == steps.waiting[number]
        if result.scenario.servers == 1:
            assert now.seated == steps.running[number]
    end = film.snapshot(float(film.instants()[-1]))
    assert (end.waiting, end.seated, end.served) == (
        0,
        0,
        np.count_nonzero(result.status == bs.Status.SERVED),
    )


def test_beside_each_rule_are_its_numbers(three):
    _, view = drawn(three)
    said = texts_of(view)
    for name, result in three.results.items():
        at = said.index(name)
        ttft, tpot, rate, share, seated = said[at + 1 : at + 6]
        assert ttft.startswith("TTFT p99 ")
        assert float(tpot.split()[2]) == pytest.approx(
            result.percentile(99, column="tpot_ms") / (1 if tpot.endswith("ms") else 1000), rel=0.01
        )
        assert float(rate.split()[0]) == pytest.approx(result.summary()["output_tokens_per_s"], rel=0.01)
        assert float(share.split("%")[0]) == pytest.approx(100 * seats(result).useful_share, abs=1)
        assert seated == "8 seats"


@pytest.mark.parametrize(("seats_", "most"), [(4, 4), (12, 12), (256, 40)])
def test_more_seats_than_there_is_room_for_are_not_drawn_and_that_is_said(seats_, most):
    busy = SCENARIO.replace(rate_per_s=30, rule=bs.Continuous(seats_))
    _, view = drawn(busy, rules={"it": busy.rule}, begin_s=4)
    (lane,) = view.lanes
    assert lane.drawn == (1, most)
    assert lane.row_px > 4
    inside = corners(lane.paper)
    assert inside[:, 3].max() <= lane.box.bottom + 1e-6
    assert any(f"{most} of {seats_}" in text for text in texts_of(view)) == (most < seats_)
    assert f"{seats_} seats" in " ".join(texts_of(view))


@pytest.mark.parametrize("width_px", [400, 640, 960])
def test_every_lane_says_its_percentiles_by_the_same_names(three, width_px):
    wide = {**three.rules, "continuous": bs.Continuous(256)}
    compared = bs.compare_servers(SCENARIO.replace(rate_per_s=30), wide, requests=300)
    _, view = drawn(compared, width_px=width_px)
    said = texts_of(view)
    for name in ("TTFT p99 ", "TPOT p99 "):
        assert sum(text.startswith(name) for text in said) == 3
    assert sum(text.endswith(" tokens/s") for text in said) == 3
    assert any(" of 256 seats" in text for text in said)  # for which there is less room


def test_the_rules_of_single_servers_have_lanes_too():
    rules = {
        "tgi": bs.servers.tgi(),
        "sglang": bs.servers.sglang(max_running_requests=8, max_total_tokens=6000),
    }
    compared = bs.compare_servers(SCENARIO.replace(rate_per_s=3), rules, requests=60)
    _, view = drawn(compared)
    said = texts_of(view)
    assert f"{view.lanes[0].drawn.seats} seats drawn" in said  # TGI has no limit of them
    assert said[said.index("sglang") + 5] == "8 seats"
    assert not any("2,147" in text for text in said)


def test_servers_are_apart_and_those_that_are_not_drawn_are_said():
    many = SCENARIO.replace(rate_per_s=40, servers=60, rule=bs.Continuous(2))
    _, view = drawn(many, rules={"it": many.rule})
    assert view.lanes[0].drawn == (40, 1)
    assert any("40 of 60 servers" in text for text in texts_of(view))
    two = SCENARIO.replace(rate_per_s=4, servers=2)
    _, view = drawn(two, rules={"it": two.rule})
    tops = np.unique(corners(view.lanes[0].paper)[:, 1].round(3))
    assert np.diff(tops).max() > 1.2 * np.diff(tops).min()


@pytest.mark.parametrize("width_px", [400, 640, 960])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_word_is_cut_or_lies_on_another(three, tight, width_px, theme):
    for compared in (three, tight):
        picture, view = drawn(compared, width_px=width_px, theme=theme)
        renderer = picture.agg.get_renderer()
        texts = [text for text in view.fixed if hasattr(text, "get_text")]
        boxes = [text.get_window_extent(renderer) for text in texts]
        assert all(box.x0 >= 0 and box.x1 <= picture.bbox.width and box.y0 >= 0 for box in boxes)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        assert all(text.get_fontsize() >= LEAST_PX for text in texts)
        beside = [box.x1 for box, text in zip(boxes, texts, strict=True) if "p99" in text.get_text()]
        assert all(right < view.plot.left for right in beside)


def test_the_picture_has_its_words(three, tight):
    picture = bs.lanes(three)
    _, about = picture._repr_mimebundle_()
    words = about["image/png"]["alt"]
    assert words == picture.words
    for name, result in three.results.items():
        assert f"{name}: TTFT p99" in words
        assert f"{result.summary()['output_tokens_per_s']:.0f} tokens/s" in words
    assert "preempted" in bs.lanes(tight).words
    requests = bs.Scenario(bs.Poisson(80), bs.SizeOrWait(), bs.Affine(47, 3.6))
    assert "a: p99 " in bs.lanes(requests, {"a": bs.SizeOrWait(32, 50)}).words


# What is compared.


def test_without_rules_three_are_compared_with_as_many_seats():
    rules = TokenLanesView.usual_rules(SCENARIO)
    assert list(rules) == ["whole batches", "size or wait", "continuous"]
    assert [rule.largest_batch for rule in rules.values()] == [8, 8, 8]
    assert [rule.max_wait_ms for rule in list(rules.values())[:2]] == [math.inf, 1000]
    own = TokenLanesView.usual_rules(SCENARIO.replace(rule=SHORT))
    assert own["continuous"] == SHORT
    assert own["whole batches"].max_batch_size == 8
    waits = TokenLanesView.usual_rules(SCENARIO.replace(rule=bs.SizeOrWait(4, 50)))
    assert waits["size or wait"] == bs.SizeOrWait(4, 50)
    assert waits["continuous"] == bs.Continuous(4)
    picture = bs.lanes(SCENARIO)
    assert list(picture.comparison.rules) == list(rules)


def test_the_stretch_is_that_of_the_middle_unless_a_queue_grows(three):
    arrival_s = three.groups[0].result.arrival_s
    begin_s, _ = bs.lanes(three).stage.stretch
    assert begin_s == pytest.approx(arrival_s[arrival_s.size // 2], abs=0.1)
    grows = bs.compare_servers(
        SCENARIO.replace(rate_per_s=3), TokenLanesView.usual_rules(SCENARIO), requests=200
    )
    assert bs.lanes(grows).stage.stretch.begin_s == 0
    assert bs.lanes(three, begin_s=5, length_s=2).stage.stretch == (5, 7)


def three_at_once():
    tokens = bs.Tokens([5, 5, 9], [1, 4, 7])
    return bs.Scenario(bs.Trace([0, 0, 0]), bs.Continuous(2), SCENARIO.service, tokens=tokens)


def test_few_requests_are_shown_to_their_last_answer_though_all_came_at_once():
    picture = bs.lanes(three_at_once())
    last_s = max(group.result.finish_s.max() for group in picture.comparison.groups)
    assert picture.stage.stretch.begin_s == 0
    assert last_s <= picture.stage.stretch[1] < 2 * last_s


def test_the_numbers_of_a_whole_trace_are_its_own_and_not_those_of_a_queue_that_grows():
    whole = bs.simulate(three_at_once())
    assert not whole.scenario.stable
    assert numbers_of(whole)["TTFT p99"] == duration(whole.summary()["ttft_p99_ms"])
    grows = bs.simulate(SCENARIO.replace(rate_per_s=1000), 50)
    assert numbers_of(grows)["TTFT p99"] == "∞"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: bs.lanes(SCENARIO, {}), ValueError, "rules must have"),
        (lambda: bs.lanes(three_at_once(), begin_s=9), ValueError, "before the last answer, at .* got 9"),
        (lambda: bs.lanes(SCENARIO, {"a": 3}), TypeError, "the rule of 'a'"),
        (lambda: bs.lanes(SCENARIO, theme="drak"), ValueError, "theme must be"),
        (lambda: bs.lanes(SCENARIO, width_px=10), ValueError, "width_px must be"),
        (lambda: bs.lanes(SCENARIO.replace(workload=bs.ClosedLoop(4))), ValueError, "open workload"),
        (lambda: bs.lanes(SCENARIO, {"a": bs.PreferredSizes([2], 4, 5)}), ValueError, "tokens"),
        (lambda: bs.film(3), TypeError, "film takes"),
        (lambda: bs.film(bs.simulate(SCENARIO, 9), rules={}), ValueError, "rules must come with a scenario"),
        (lambda: bs.film(bs.simulate(SCENARIO, 9, keep="summary")), ValueError, "columns"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


# The film.


def test_the_film_shows_what_has_happened_until_its_time(three):
    film = bs.film(three)
    begin_s, until_s = film.stretch
    assert film.time_s == until_s
    film.time_ms = 1000 * (begin_s + until_s) / 2
    view = film.picture.stage
    here = view.x_px(np.array([film.time_s]))[0] + 1e-6
    for lane in view.lanes:
        now = lane.film.snapshot(film.time_s)
        assert f"{lane.group.names[0]}: {now.waiting} waiting" in film.words
        assert all((corners(part)[:, 2] <= here).all() for part in lane.parts.values())
    before = film.time_s
    film.next.click()
    assert film.time_s in film.film.instants()
    assert film.time_s > before


def test_the_film_draws_the_same_at_a_time_whatever_was_seen_before(tight):
    film, fresh = bs.film(tight), bs.film(tight)
    begin_s, until_s = film.stretch
    for share in (0.7, 0.4):
        film.time_ms = 1000 * (begin_s + share * (until_s - begin_s))
    fresh.time_ms = film.time_ms
    assert np.array_equal(film.picture.pixels(), fresh.picture.pixels())


def test_a_film_is_made_of_a_scenario_of_rules_and_of_a_run():
    assert len(bs.film(SCENARIO).comparison.groups) == 3
    rules = {"a": bs.Continuous(4), "b": bs.SizeOrWait(4, 50)}
    film = bs.film(SCENARIO, rules=rules)
    assert list(film.comparison.rules) == ["a", "b"]
    assert repr(film).startswith("Film of 2 rules")
    result = bs.simulate(SCENARIO, 60)
    alone = bs.film(result)
    assert isinstance(alone.comparison, ServerComparison)
    assert alone.comparison.groups[0].result is result
    requests = bs.Scenario(bs.Poisson(80), bs.SizeOrWait(), bs.Affine(47, 3.6))
    assert len(bs.film(requests, rules=rules | {"a": bs.SizeOrWait(2, 5)}).comparison.groups) == 2


def test_the_film_plays_its_stretch_in_some_twenty_seconds(three):
    film = bs.film(three)
    begin_s, until_s = film.stretch
    assert 10 < film.slowness.value * (until_s - begin_s) < 40
    assert film.readout.value.endswith(" ms")
