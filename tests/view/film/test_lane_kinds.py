"""Lanes of token generation: their arrays are what the run says, and no word is cut."""

import math

import numpy as np
import pytest
from pictures import assert_all_within, texts_in
from refusals import refusals

import batchsim as bs
from batchsim._format import duration
from batchsim.result.seats import seats
from batchsim.servers.comparison import Group
from batchsim.view.film.film import PlayRange
from batchsim.view.film.lane_kinds import TokenLanes, since
from batchsim.view.film.token_film import SeatFilm

CARD = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)  # an 8B model on an RTX 4090
TOKENS = bs.Tokens(bs.Lognormal(500, 1, at_most=4000), bs.Geometric(150))
SCENARIO = bs.Scenario(bs.Poisson(0.9), bs.Continuous(8), CARD, tokens=TOKENS)
SHORT = bs.Continuous(64, kv_blocks=320)


@pytest.fixture(scope="module")
def three():
    return bs.compare_servers(SCENARIO, TokenLanes.usual_rules(SCENARIO), requests=200)


@pytest.fixture(scope="module")
def tight():
    rules = {"short": SHORT, "ample": bs.Continuous(256)}
    return bs.compare_servers(SCENARIO.replace(rate_per_s=4), rules, requests=200)


def drawn(compared, **options):
    picture = bs.lanes(compared, **options)
    picture.png()
    return picture


def texts_of(picture):
    """The lines of the texts: of the legend, and of the names and numbers beside each lane."""
    return [line for text in texts_in(picture) for line in text.get_text().split("\n")]


def numbers_of(result):
    return TokenLanes.numbers(Group(("it",), result.scenario.rule, result))


# What is drawn.


def test_a_lane_has_the_stays_of_its_stretch_and_the_time_that_its_servers_compute(three):
    picture = bs.lanes(three)
    begin_s, until_s = picture.stretch
    for group, lane in zip(three.groups, picture.lanes, strict=True):
        rows = seats(group.result).within(begin_s, until_s)
        for name, column in vars(rows).items():
            assert lane["stays"][name].tolist() == column.tolist()
        steps, busy = group.result.steps, lane["busy"]
        computing_s, seen_s = (
            (np.clip(end_s, begin_s, until_s) - np.clip(start_s, begin_s, until_s)).sum()
            for start_s, end_s in ((steps.start_s, steps.finish_s), (busy["begin_s"], busy["end_s"]))
        )
        assert seen_s == pytest.approx(computing_s)
        assert (lane["servers"], lane["seats"]) == (1, 8)


def test_preemptions_are_in_the_legend_and_in_words(tight):
    picture = drawn(tight)
    assert picture.lanes[0]["stays"]["preempted"].any()
    assert not picture.lanes[1]["stays"]["preempted"].any()
    assert {"preempted", "computed again"} <= {*texts_of(picture)}
    assert "done, seat kept" not in texts_of(picture)


def test_beside_each_rule_are_its_numbers(three):
    said = texts_of(drawn(three))
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
    picture = drawn(busy, rules={"it": busy.rule}, begin_s=4)
    (lane,) = picture.lanes
    assert (lane["servers"], lane["seats"]) == (1, most)
    assert any(f"{most} of {seats_}" in text for text in texts_of(picture)) == (most < seats_)
    assert f"{seats_} seats" in " ".join(texts_of(picture))


@pytest.mark.parametrize("width_px", [400, 640, 960])
def test_every_lane_says_its_percentiles_by_the_same_names(three, width_px):
    wide = {**three.rules, "continuous": bs.Continuous(256)}
    compared = bs.compare_servers(SCENARIO.replace(rate_per_s=30), wide, requests=300)
    view = drawn(compared, width_px=width_px)
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
    view = drawn(compared)
    said = texts_of(view)
    assert f"{view.lanes[0]['seats']} seats drawn" in said  # TGI has no limit of them
    assert said[said.index("sglang") + 5] == "8 seats"
    assert not any("2,147" in text for text in said)


def test_servers_are_apart_and_those_that_are_not_drawn_are_said():
    many = SCENARIO.replace(rate_per_s=40, servers=60, rule=bs.Continuous(2))
    view = drawn(many, rules={"it": many.rule})
    assert (view.lanes[0]["servers"], view.lanes[0]["seats"]) == (40, 1)
    assert any("40 of 60 servers" in text for text in texts_of(view))


@pytest.mark.parametrize("width_px", [400, 640, 960])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_word_is_cut_or_lies_on_another(three, tight, width_px, theme):
    for compared in (three, tight):
        picture = drawn(compared, width_px=width_px, theme=theme)
        boxes = assert_all_within(picture)
        beside = [box.x1 for text, box in boxes if "p99" in text.get_text()]
        assert len(beside) == len(picture.lanes)
        assert max(beside) < picture.axes[0].bbox.x0


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


def test_without_rules_three_are_compared_with_as_many_seats():
    rules = TokenLanes.usual_rules(SCENARIO)
    assert list(rules) == ["whole batches", "size or wait", "continuous"]
    assert [rule.largest_batch for rule in rules.values()] == [8, 8, 8]
    assert [rule.max_wait_ms for rule in list(rules.values())[:2]] == [math.inf, 1000]
    own = TokenLanes.usual_rules(SCENARIO.replace(rule=SHORT))
    assert own["continuous"] == SHORT
    assert own["whole batches"].max_batch_size == 8
    waits = TokenLanes.usual_rules(SCENARIO.replace(rule=bs.SizeOrWait(4, 50)))
    assert waits["size or wait"] == bs.SizeOrWait(4, 50)
    assert waits["continuous"] == bs.Continuous(4)
    picture = bs.lanes(SCENARIO)
    assert list(picture.comparison.rules) == list(rules)


def test_the_stretch_is_that_of_the_middle_unless_a_queue_grows(three):
    arrival_s = three.groups[0].result.arrival_s
    begin_s, _ = bs.lanes(three).stretch
    assert begin_s == pytest.approx(arrival_s[arrival_s.size // 2], abs=0.1)
    grows = bs.compare_servers(SCENARIO.replace(rate_per_s=3), TokenLanes.usual_rules(SCENARIO), requests=200)
    assert bs.lanes(grows).stretch.begin_s == 0
    assert bs.lanes(three, begin_s=5, length_s=2).stretch == (5, 7)


def three_at_once():
    tokens = bs.Tokens([5, 5, 9], [1, 4, 7])
    return bs.Scenario(bs.Trace([0, 0, 0]), bs.Continuous(2), SCENARIO.service, tokens=tokens)


def test_few_requests_are_shown_to_their_last_answer_though_all_came_at_once():
    picture = bs.lanes(three_at_once())
    last_s = max(group.result.finish_s.max() for group in picture.comparison.groups)
    assert picture.stretch.begin_s == 0
    assert last_s <= picture.stretch[1] < 2 * last_s


def test_the_numbers_of_a_whole_trace_are_its_own_and_not_those_of_a_queue_that_grows():
    whole = bs.simulate(three_at_once())
    assert not whole.scenario.stable
    assert numbers_of(whole)["TTFT p99"] == duration(whole.summary()["ttft_p99_ms"])
    grows = bs.simulate(SCENARIO.replace(rate_per_s=1000), 50)
    assert numbers_of(grows)["TTFT p99"] == "∞"


@refusals
def test_what_cannot_be_drawn_is_refused():
    """
    bs.lanes(SCENARIO, {}) -> rules must have
    bs.lanes(three_at_once(), begin_s=9) -> before the last answer, at ... got 9
    bs.lanes(SCENARIO, {"a": 3}) -> TypeError: the rule of 'a'
    bs.lanes(SCENARIO, theme="drak") -> theme must be
    bs.lanes(SCENARIO, width_px=10) -> width_px must be
    bs.lanes(SCENARIO.replace(workload=bs.ClosedLoop(4))) -> workload must be open
    bs.lanes(SCENARIO, {"a": bs.PreferredSizes([2], 4, 5)}) -> tokens
    bs.film(3) -> TypeError: film takes
    bs.film(bs.simulate(SCENARIO, 9), rules={}) -> rules must come with a scenario
    bs.film(bs.simulate(SCENARIO, 9, keep="summary")) -> columns
    """


# The film.


def test_the_film_describes_each_rule_at_its_time(three):
    film = bs.film(three)
    begin_s, until_s = film.stretch
    film.time_ms = 1000 * (begin_s + until_s) / 2
    for group in three.groups:
        assert f"{group.names[0]}: {SeatFilm(group.result).words(film.time_s)}" in film.words
    before = film.time_s
    film.next()
    assert film.time_s in film.clip.instants
    assert film.time_s > before


def test_a_film_is_made_of_a_scenario_of_rules_and_of_a_run():
    assert [lane["title"] for lane in bs.film(SCENARIO).clip.lanes] == [
        ["whole batches"], ["size or wait"], ["continuous"],
    ]  # fmt: skip
    rules = {"a": bs.Continuous(4), "b": bs.SizeOrWait(4, 50)}
    film = bs.film(SCENARIO, rules=rules)
    assert [lane["title"] for lane in film.clip.lanes] == [["a"], ["b"]]
    assert repr(film).startswith("Film of 2 rules")
    (alone,) = bs.film(bs.simulate(SCENARIO, 60)).clip.lanes
    assert alone["title"] == [SCENARIO.rule.title]
    requests = bs.Scenario(bs.Poisson(80), bs.SizeOrWait(), bs.Affine(47, 3.6))
    assert len(bs.film(requests, rules=rules | {"a": bs.SizeOrWait(2, 5)}).clip.lanes) == 2


def test_a_film_and_lanes_take_a_scenario_with_few_requests():
    """As `simulate` does: all that a trace or listed lengths have."""
    rules = {"textbook": bs.SizeOrWait(4, 10), "small": bs.SizeOrWait(2, 0)}
    for times_s in ([0.0], np.zeros(30), np.arange(40) / 100):
        trace = bs.Scenario(bs.Trace(times_s), bs.SizeOrWait(4, 10), bs.Affine(5, 0.25))
        assert f"Film of {len(times_s)} request" in repr(bs.film(trace))
        assert bs.lanes(trace, rules).words
    listed = bs.Tokens([100, 50, 20], [20, 10, 3])
    few = bs.Scenario(bs.Poisson(5), bs.Continuous(8), bs.StepTime(5, 0.01, 0.001), tokens=listed)
    assert bs.lanes(few).words
    assert bs.film(few).words
    with pytest.raises(ValueError, match="requests must be at most the trace's 40, got 41"):
        bs.film(trace, 41)


@pytest.mark.parametrize(
    ("begin_s", "until_s", "unit", "unit_ms", "text"),
    [
        (0, 1, "s", 1000, ""),
        (0.164676, 1.352, "s", 1000, " from 0.165 s on"),
        (49.9541, 49.994, "ms", 1, " from 49,954.1 ms on"),
        (16.3161, 20.7, "s", 1000, " from 16.316 s on"),
        (123456.7891, 123456.7899, "ms", 1, " from 123,456,789.1 ms on"),
    ],
)
def test_an_axis_names_its_beginning_to_a_thousandth_of_its_length(begin_s, until_s, unit, unit_ms, text):
    assert since(PlayRange(begin_s, until_s), unit, unit_ms) == text
