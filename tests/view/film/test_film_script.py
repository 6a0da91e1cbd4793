"""The film's script in Node: its state at any time is a naive replay's, and its sentences are Python's."""

import base64
import json
import math
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from oracles.naive_film import Moment
from places import TESTS

import batchsim as bs
from batchsim.view.film.clip import Clip, moments, request_clip, request_lane, token_lane
from batchsim.view.film.film import PlayRange, QueueFilm, RequestFilm
from batchsim.view.film.lane_kinds import TokenLanes
from batchsim.view.film.token_film import SeatFilm, TokenFilm, life

SCRIPT = Path(bs.__file__).parent / "web" / "js" / "film.js"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node, which runs the film's script")

PLAIN = bs.Scenario(bs.Poisson(1800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
TWO = {1: 0.2, 2: 0.8}
SCENARIOS = {
    "plain": PLAIN,
    "overloaded": PLAIN.replace(rate_per_s=9000),
    "eight servers": PLAIN.replace(servers=8, rate_per_s=9000),
    "at least": PLAIN.replace(rule=bs.AtLeast(20, 50), servers=2, rate_per_s=5000),
    "losing": PLAIN.replace(max_wait_ms=math.inf, queue_limit=20, timeout_ms=4),
    "closed loop": PLAIN.replace(workload=bs.ClosedLoop(40, 0.001)),
    "shared device": PLAIN.replace(rule=bs.SizeOrWait(4, 3), servers=3, devices=1, host_ms=0.5),
    "compiling": PLAIN.replace(service=bs.Affine(20, 1).compiling({1: 120, 8: 190}), rate_per_s=200),
    "two levels": PLAIN.replace(priorities=TWO, rule=bs.SizeOrWait(8, 5), rate_per_s=1900),
    "delays": bs.Scenario(bs.Constant(1100).with_priorities(TWO), bs.SizeOrWait(4, 1), bs.Affine(3.5, 0.1),
                          timeout_ms={2: 6}, timeout_action={2: "delay"}),
    "frozen": PLAIN.replace(rule=bs.FrozenBatches(8, 3), priorities=TWO),
    "four replicas": PLAIN.replace(rate_per_s=4000, replicas=4, routing="fill_first"),
    "losing replicas": PLAIN.replace(rate_per_s=9000, servers=2, replicas=3, queue_limit=9),
    "twelve replicas": PLAIN.replace(rate_per_s=4000, max_batch_size=4, replicas=12, priorities=TWO),
    "sizes": PLAIN.replace(workload=bs.Poisson(150).with_sizes(bs.Lognormal(80, cv=1, at_most=512)),
                           rule=bs.SortedWindow(8, 20), service=bs.PaddedTime(5, 0.25, 0.01, padding=[4, 8])),
    "preferred sizes": PLAIN.replace(rule=bs.PreferredSizes([4, 8, 24], 24, 10), rate_per_s=900),
}  # fmt: skip
CARD = bs.published("llama-3.1-8b/rtx-4090")
TOKENS = bs.Scenario(bs.Poisson(6), bs.Continuous(8), CARD, tokens=bs.Tokens(200, bs.Geometric(60)))
BOX = {"x": 0, "y": 60, "w": 700, "h": 200}


def as_json(value):
    if isinstance(value, memoryview):
        return base64.b64encode(value).decode()
    raise TypeError(value)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Ask the script, all jobs in one process; return its answers."""
    folder = tmp_path_factory.mktemp("film")
    script = folder / "film.mjs"
    shutil.copy(SCRIPT, script)

    def asked(*jobs):
        file = folder / "jobs.json"
        file.write_text(json.dumps(jobs, default=as_json))
        command = [NODE, str(TESTS / "helpers" / "web_film.mjs"), script.as_uri(), str(file)]
        told = subprocess.run(command, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        return [json.loads(line) for line in told.stdout.splitlines()]

    return asked


def film_and_window(name, requests=600):
    film = RequestFilm(bs.simulate(SCENARIOS[name], requests, seed=3))
    middle_s = float(film.instants[film.instants.size // 2])
    return film, request_clip(film, (middle_s, middle_s))


def times_in(window, count, seed=0):
    """Return instants of a window, and times between them."""
    begin_s, until_s = window.stretch
    within = window.instants[(window.instants >= begin_s) & (window.instants <= until_s)]
    others = np.random.default_rng(seed).uniform(begin_s, until_s, count)
    return [*within[:: max(within.size // count, 1)].tolist(), *others.tolist()]


def test_the_state_and_the_sentence_of_a_time_are_those_of_the_replay(ask):
    films = {name: film_and_window(name) for name in SCENARIOS}
    times = {name: times_in(window, 30) for name, (_, window) in films.items()}
    jobs = [
        {"does": "states", "film": window.message(), "times": times[name], "within": within_s}
        for name, (_, window) in films.items()
        for within_s in (0.0, 0.004)
    ]
    answers = iter(ask(*jobs))
    for name, (film, window) in films.items():
        for time_s, state, late in zip(times[name], next(answers), next(answers), strict=True):
            now = Moment(film.result, time_s)
            assert state["queue"] == now.in_turn(now.waiting), (name, time_s)
            assert state["computing"] == now.computing, (name, time_s)
            assert (state["arrived"], state["served"], state["lost"]) == (now.arrived, now.served, now.lost)
            said = window.said(time_s, 0.0), window.said(time_s, 0.004)
            assert (state["words"], late["words"]) == said
            assert (state["line"], late["line"]) == (film.line(time_s), film.line(time_s, 0.004))


def test_the_events_of_a_window_are_those_of_the_film(ask):
    _, window = film_and_window("losing")
    (found,) = ask({"does": "instants", "film": window.message()})
    begin_s, until_s = window.stretch
    mine = [time_s for time_s in found if begin_s < time_s <= until_s]
    assert mine == window.instants[(window.instants > begin_s) & (window.instants <= until_s)].tolist()


def test_the_parts_of_a_latency_are_those_of_the_result(ask):
    for name in ("plain", "eight servers", "shared device", "four replicas", "losing replicas"):
        film, window = film_and_window(name)
        (stories,) = ask({"does": "stories", "film": window.message()})
        first = window.lanes[0]["first"]
        known = 0
        for at, story in enumerate(stories):
            request, result = first + at, film.result
            done = result.finish_s[request] <= window.stretch.until_s
            if not done or result.batches.start_s[result.batch_index[request]] < result.arrival_s[first]:
                continue
            known += 1
            for part in ("forming", "queueing", "device_wait", "computing"):
                told_ms = 1000 * sum(to_s - from_s for each, from_s, to_s in story if each == part)
                exact_ms = getattr(result, f"{part}_ms")[request]
                assert told_ms == pytest.approx(exact_ms, abs=1e-6), (name, request, part)
        assert known > 50


def test_a_story_is_no_longer_work_while_thousands_wait(ask):
    few, many = ask(*(
        {"does": "reads", "film": request_clip(film, (0.0, 9.0), requests).message()}
        for requests in (500, 4000)
        for film in [RequestFilm(bs.simulate(SCENARIOS["overloaded"], requests, seed=3))]
    ))  # fmt: skip
    assert 0 < many < 2 * few


def test_the_life_of_a_request_has_the_numbers_of_the_result(ask):
    ms = r"([\d,.]+) ms"
    waited = f"waited {ms} for company and {ms} for the server"
    served = rf"{waited}, and was computed in {ms} with (\d+) others?: {ms} in all"
    for name in ("plain", "eight servers", "two levels", "losing", "sizes"):
        film, window = film_and_window(name)
        result, code = film.result, film.lines
        (lives,) = ask({"does": "lives", "film": window.message()})
        assert len(lives) > 100
        for request, latency_s, words, line in lives:
            before = np.searchsorted(result.batches.start_s, result.arrival_s[request], side="right") - 1
            exact, arrived = [], f"Request {request}"
            arrived += " arrived" if result.size is None else f" of {result.size[request]} tokens arrived"
            if before >= 0:
                exact.append(1000 * (result.arrival_s[request] - result.batches.start_s[before]))
                arrived += f" {ms} after a batch left"
            if latency_s is None:
                assert np.isnan(result.finish_s[request])
                lost = {1: "was rejected", 2: "timed out"}[int(result.status[request])]
                pattern = rf"{arrived} and {lost} after {ms}\."
                exact.append(1000 * (film.done_s[request] - result.arrival_s[request]))
            else:
                batch = result.batch_index[request]
                assert code[line].trigger == result.batches.trigger[batch]
                pattern = rf"{arrived}, {served}\."
                exact += [
                    getattr(result, f"{part}_ms")[request] for part in ("forming", "queueing", "computing")
                ]
                exact += [result.batches.batch_size[batch] - 1, result.latency_ms[request]]
            found = re.fullmatch(pattern, words.replace(" alone:", " with 0 others:"))
            assert found, words
            told = [float(each.replace(",", "")) for each in found.groups()]
            assert told == pytest.approx(exact, rel=0.006, abs=1e-5), words


def test_a_request_that_has_a_name_is_told_of_by_it_and_others_by_their_number(ask):
    scenario = bs.Scenario(bs.Constant(500), bs.SizeOrWait(2, 4), bs.Affine(1, 0.5))
    film = bs.film(scenario, requests=4, names=["Ann", "Bob"])
    lives, labels = ask(*({"does": each, "film": film.clip.message()} for each in ("lives", "labels")))
    assert [words.partition(" arrived")[0] for _, _, words, _ in lives] == [
        "Ann",
        "Bob",
        "Request 2",
        "Request 3",
    ]
    assert labels == ["Ann", "Bob", "2", "3"]


def test_the_life_of_a_request_with_tokens_is_pythons(ask):
    tight = TOKENS.replace(rule=bs.Continuous(8, kv_blocks=90), rate_per_s=30)
    result = bs.simulate(tight, 80, seed=5)
    film = SeatFilm.of(result)
    stretch = PlayRange(float(result.arrival_s[30]), float(result.arrival_s[50]))
    lane = token_lane(film.seats, film.queue, film.busy, (1, 8), result, stretch)
    (lives,) = ask({"does": "lives", "film": Clip(stretch, film.instants, [lane], lambda *_: "").message()})
    assert {request for request, *_ in lives} == set(film.seats.within(*stretch).request.tolist())
    assert any("preempted" in words for _, _, words, _ in lives)
    for request, latency_s, words, _ in lives:
        assert latency_s == pytest.approx(result.latency_ms[request] / 1000)
        assert words == life(result, request)


def test_a_request_of_several_lanes_is_as_slow_as_in_the_slowest(ask):
    runs = [
        bs.simulate(TOKENS.replace(rule=rule), 40, seed=5) for rule in (bs.SizeOrWait(8, 500), TOKENS.rule)
    ]
    films = [SeatFilm.of(result) for result in runs]
    stretch = PlayRange(0.0, max(result.finish_s.max() for result in runs))
    lanes = [token_lane(film.seats, film.queue, film.busy, (1, 8), film.result, stretch) for film in films]
    (found,) = ask(
        {"does": "longest", "film": Clip(stretch, films[0].instants, lanes, lambda *_: "").message()}
    )
    slowest_ms = np.maximum(*(result.latency_ms for result in runs))
    assert [number for number, _ in found] == [*range(40)]
    assert [1000 * latency_s for _, latency_s in found] == pytest.approx(slowest_ms.tolist())


@pytest.mark.parametrize("rule", [TOKENS.rule, bs.SizeOrWait(8, 500)], ids=["steps", "whole"])
def test_the_sentence_of_a_step_is_pythons(ask, rule):
    result = bs.simulate(TOKENS.replace(rule=rule), 100)
    film, seats = TokenFilm(result), SeatFilm(result)
    instants = film.instants
    stretch = PlayRange(float(instants[50]), float(instants[200]))
    lane = token_lane(seats.seats, seats.queue, seats.busy, (1, 8), result, stretch)
    lane["moments"] = moments(film, stretch)
    window = Clip(stretch, instants, [lane], film.words)
    times = times_in(window, 40)
    (states,) = ask({"does": "states", "film": window.message(), "times": times, "within": 0})
    for time_s, state in zip(times, states, strict=True):
        line = film.line(time_s)
        assert state["words"] == window.said(time_s, 0.0)
        assert state["line"] == (-1 if line is None else line)


@pytest.mark.parametrize(
    ("page_ms", "time_s", "digits", "said"),
    [
        (40_000, 1504.7, 1, "1,504.700 s"),
        (65, 0.0785272, 2, "78.53 ms"),
        (800, 13.6166, 1, "13,616.6 ms"),
        (40_000, 3e-9, 2, "0.0000 s"),
        (0.5, 0.0001234, 4, "123.40 µs"),
    ],
)
def test_a_time_has_the_unit_of_the_axis_below_it(ask, page_ms, time_s, digits, said):
    assert ask({"does": "time", "page_ms": page_ms, "time_s": time_s, "digits": digits}) == [said]


def test_lanes_say_how_many_wait_and_what_the_servers_do(ask):
    result = bs.simulate(TOKENS.replace(rate_per_s=9), 100)
    film = SeatFilm(result)
    stretch = PlayRange(2.0, 6.0)
    lane = token_lane(film.seats, film.queue, film.busy, (1, 8), result, stretch)
    tokens = Clip(stretch, film.instants, [lane], lambda time_s, within_s: "")
    film_of_requests, requests = film_and_window("eight servers")
    plain = QueueFilm(film_of_requests.result)
    jobs = [
        {"does": "short", "film": window.message(), "times": times_in(window, 30)}
        for window in (tokens, requests)
    ]
    told = ask(*jobs)
    for each, job, answers in zip((film, plain), jobs, told, strict=True):
        assert answers == [each.words(time_s) for time_s in job["times"]]


def test_slots_are_within_their_box_and_apart(ask):
    generator = np.random.default_rng(1)
    cases = [
        {
            "box": {"x": 10, "y": 20, "w": generator.uniform(8, 600), "h": generator.uniform(8, 400)},
            "count": int(generator.integers(1, 5000)), "largest": generator.uniform(4, 50),
            "rows": int(generator.integers(1, 7)),
        }
        for _ in range(100)
    ]  # fmt: skip
    for case, found in zip(cases, ask(*({"does": "slots"} | case for case in cases)), strict=True):
        corners, side, box = np.array(found["corners"]), found["side"], case["box"]
        assert (corners.min(axis=0) >= [box["x"] - 1, box["y"] - 1]).all()
        assert (corners.max(axis=0) + side <= [box["x"] + box["w"] + 1, box["y"] + box["h"] + 1]).all()
        assert 4 <= side <= max(case["largest"], 4)
        assert len(np.unique(corners, axis=0)) == len(corners)
        assert side == 4 or len(corners) >= case["count"]


def test_servers_are_beside_the_queue_and_not_over_each_other(ask):
    sizes, counts = [(375, 215, 12.0), (560, 230, 12.0), (1200, 400, 13.5)], [1, 2, 4, 5, 12, 50]
    jobs = [
        {"does": "places", "box": {"x": 0, "y": 60, "w": wide, "h": high - 95}, "waiting": 40, "batch": 16}
        | {"servers": servers, "em": em}
        for wide, high, em in sizes
        for servers in counts
    ]
    for job, places in zip(jobs, ask(*jobs), strict=True):
        boxes = [place["box"] for place in places["servers"]]
        for one, other in combinations(boxes, 2):
            beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        for place in places["servers"]:
            assert places["box"]["x"] + places["box"]["w"] < place["box"]["x"]
            lowest = max(y for _, y in place["slots"]["corners"]) + place["slots"]["side"]
            assert lowest <= place["bar"]["y"]
        assert len(boxes) == job["servers"] or job["box"]["w"] < 400


def test_everybody_is_in_a_place_of_their_own_and_glides_to_it(ask):
    film, window = film_and_window("plain")
    batch = film.largest_leaving(*window.stretch)
    before_s, after_s = film.batches.start_s[batch] - 1e-7, film.batches.start_s[batch] + 1e-7
    steps = [[before_s, 1], [after_s, 0.3], *[[after_s, 0.3]] * 30, [before_s, 1]]
    job = {"does": "crowd", "film": window.message(), "box": BOX, "em": 12, "steps": steps}
    (found,) = ask(job)
    places = [{each["i"]: (each["x"], each["y"]) for each in step["of"]} for step in found]
    mine = np.flatnonzero(film.result.batch_index == batch).tolist()
    assert set(mine) <= set(places[0])
    across = [[step[request][0] for request in mine] for step in places]
    assert all(b > a for a, b in zip(across[0], across[1], strict=True)), "not a step to the server"
    assert found[1]["moving"]
    assert not found[-2]["moving"]
    assert places[0] == places[-1], "a place does not depend on what was seen before"
    there = [each for each in found[-2]["of"] if each["doing"] in ("waiting", "computing")]
    everybody = [*film.waiting(after_s).tolist(), *mine]
    assert sorted(each["i"] for each in there) == sorted(everybody)
    assert len({(each["x"], each["y"]) for each in there}) == len(everybody)


def test_a_request_is_as_wide_as_it_is_and_its_batch_as_what_it_computes(ask):
    film, window = film_and_window("sizes")
    result, (lane,) = film.result, window.lanes
    batches, computed = lane["batches"], result.batches.units
    for request, place in zip(range(lane["first"], result.size.size), lane["batch"], strict=False):
        if place >= 0:
            units = batches["rows"][place] * batches["longest"][place]
            assert units == computed[result.batch_index[request]]
    batch = film.largest_leaving(*window.stretch)
    steps = [[(film.batches.start_s[batch] + film.batches.finish_s[batch]) / 2, 1]]
    ((found,),) = ask({"does": "crowd", "film": window.message(), "box": BOX, "em": 12, "steps": steps})
    there = {each["i"]: each for each in found["of"]}
    mine = np.flatnonzero(result.batch_index == batch)
    wide, size = np.array([there[request]["wide"] for request in mine.tolist()]), result.size[mine]
    assert mine.size > 3
    assert np.ptp(size) > 50
    big = size > 0.05 * lane["size"].max()  # a smaller one would be too narrow to be seen
    np.testing.assert_allclose(wide[big] / size[big], wide.max() / size.max())


def test_who_has_finished_fades_and_is_gone(ask):
    film, window = film_and_window("plain")
    batch = film.largest_leaving(*window.stretch)
    finish_s, mine = film.batches.finish_s[batch], np.flatnonzero(film.result.batch_index == batch).tolist()
    steps = [[finish_s - 1e-7, 1], *[[finish_s + 1e-7, 0.4]] * 40]
    (found,) = ask({"does": "crowd", "film": window.message(), "box": BOX, "em": 12, "steps": steps})
    alphas = [[each["alpha"] for each in step["of"] if each["i"] in mine] for step in found]
    assert alphas[0] == [1] * len(mine)
    assert 0 < max(alphas[3]) < 1
    assert alphas[-1] == []


def test_arrivals_are_seen_coming_but_not_in_a_closed_loop(ask):
    for name, seen in (("plain", True), ("closed loop", False)):
        _, window = film_and_window(name)
        steps = [[time_s, 0.5] for time_s in times_in(window, 20)]
        (found,) = ask({"does": "crowd", "film": window.message(), "box": BOX, "em": 12, "steps": steps})
        assert any(step["coming"] for step in found) == seen


def overlapping(tiles):
    """Return the pairs of squares that overlap by more than the rounding of a pixel."""
    return [
        (one, other)
        for one, other in combinations(tiles, 2)
        if abs(one["x"] - other["x"]) < min(one["side"], other["side"]) - 1e-6
        and abs(one["y"] - other["y"]) < min(one["side"], other["side"]) - 1e-6
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_at_rest_no_two_tiles_overlap(ask, name):
    film = RequestFilm(bs.simulate(SCENARIOS[name], 300, seed=5))
    middle_s = float(film.instants[film.instants.size // 2])
    boxes = [BOX, {"x": 0, "y": 60, "w": 375, "h": 90}, {"x": 0, "y": 50, "w": 1200, "h": 330}]
    jobs, seen = [], 0
    for at_s in (0.0, middle_s):
        window = request_clip(film, (at_s, at_s))
        steps = [[time_s, 1] for time_s in [at_s, *times_in(window, 12, seed=len(name))]]
        jobs += [
            {"does": "crowd", "film": window.message(), "box": box, "em": 12, "steps": steps} for box in boxes
        ]
    for found in ask(*jobs):
        for moment in found:
            tiles = [*moment["of"], *moment["coming"]]
            seen = max(seen, len(tiles))
            assert not overlapping(tiles), (name, overlapping(tiles)[0])
    assert seen > 3


def test_the_first_speed_suits_the_traffic_and_the_batches(ask):
    for rate_per_s in (1, 30, 1000, 1e5):
        for fixed_ms in (0.05, 5, 500):
            scenario = bs.Scenario(bs.Poisson(rate_per_s), bs.SizeOrWait(8, 1), bs.Affine(fixed_ms, 0))
            film = RequestFilm(bs.simulate(scenario, 200))
            window = Clip(film.stretch(), film.instants, [request_lane(film, film.stretch())], str)
            (times,) = ask({"does": "comfortable", "film": window.message()})
            gap_s, batch_s = times / rate_per_s, times * fixed_ms / 1000
            assert gap_s < 4, "nothing happens"
            assert batch_s < 6
            assert batch_s > 0.2 or gap_s > 1


def test_lanes_of_tokens_play_their_stretch_in_some_twenty_seconds(ask):
    compared = bs.compare_servers(TOKENS, TokenLanes.usual_rules(TOKENS), requests=200)
    film = bs.film(compared)
    (times,) = ask({"does": "comfortable", "film": film.clip.message()})
    assert 10 < times * (film.stretch.until_s - film.stretch.begin_s) < 40
