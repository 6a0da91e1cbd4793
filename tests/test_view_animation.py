"""The animation shows what the moment says, each request in its slot, and nothing over anything else."""

import math
from io import BytesIO
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from oracles.plans import scenarios_at_random
from PIL import Image

import batchsim as bs
from batchsim.view.canvas.lettering import Lettering, width_em
from batchsim.view.canvas.theme import THEMES
from batchsim.view.film.animation import Animation, describe
from batchsim.view.film.snapshot import Film

PLAIN = bs.Scenario(bs.Poisson(1800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
SCENARIOS = {
    "plain": PLAIN,
    "overloaded": PLAIN.replace(rate_per_s=9000),
    "eight servers": PLAIN.replace(servers=8, rate_per_s=9000),
    "twelve servers": PLAIN.replace(servers=12, rate_per_s=15_000),
    "at least": PLAIN.replace(rule=bs.AtLeast(1000, 60_000), servers=2, rate_per_s=5e5),
    "no wait, one by one": PLAIN.replace(rule=bs.SizeOrWait(1, 0), service=bs.Affine(3000, 0), servers=3),
    "losing": PLAIN.replace(max_wait_ms=math.inf, queue_limit=20, timeout_ms=4),
    "tiny": PLAIN.replace(service=bs.Affine(0.02, 0.001), max_wait_ms=0.123456, rate_per_s=90_000),
}
PREFERRED = bs.Scenario(bs.Poisson(900), bs.PreferredSizes([4, 8, 24], 24, 10), bs.Affine(3, 0.25))
SCENARIOS["preferred sizes"] = PREFERRED
FILMS = {name: Film(bs.simulate(scenario, 10_000)) for name, scenario in SCENARIOS.items()}
LOOKS = [
    {"width_px": 860},
    {"width_px": 1200, "theme": "dark"},
    {"width_px": 1500},
    {"width_px": 860, "size": "projector"},
    {"width_px": 1500, "size": "projector", "theme": "dark"},
]


def times_of(film, count):
    instants = film.instants()
    return [float(instants[int(place)]) for place in np.linspace(0, instants.size - 1, count)]


# What is shown.


@settings(max_examples=60)
@given(scenarios_at_random(), st.lists(st.floats(0, 0.1), min_size=1, max_size=3))
def test_the_slots_hold_the_oldest_that_wait_and_the_servers_their_batches(scenario, times_s):
    animation, film = ANIMATION, Film(bs.simulate(scenario, 150))
    for time_s in times_s:
        now = animation.show(film, time_s)
        boxes = animation.queue.boxes
        shown = [int(label.text) for label in boxes.numbers.labels]
        assert shown == now.waiting[: len(boxes)].tolist()
        for cell, batch in zip(animation.servers.cells, now.computing, strict=True):
            shown = [int(label.text) for label in cell.boxes.numbers.labels]
            assert shown == ([] if batch is None else batch.requests[: len(cell.boxes)].tolist())
            share = cell.gauge.fill.get_width() / cell.gauge.box.width
            expected = 0 if batch is None else (time_s - batch.start_s) / (batch.finish_s - batch.start_s)
            assert share == pytest.approx(expected)


ANIMATION = Animation(860)


def test_a_request_keeps_its_slot_until_one_before_it_leaves():
    film, animation = FILMS["eight servers"], Animation(860)
    stays = 0
    for before_s, after_s in pairwise(film.instants()[3000:3400].tolist()):
        places = []
        for time_s in (before_s, after_s):
            now = animation.show(film, time_s)
            places.append({label.text: (label.x, label.y) for label in animation.queue.boxes.numbers.labels})
            places[-1]["oldest"] = now.waiting[0] if now.waiting.size else None
        if places[0].pop("oldest") == places[1].pop("oldest"):
            stays += len(places[0])
            assert places[0].items() <= places[1].items()
    assert stays > 500


def texts_of(lettering):
    return [label.text for label in lettering.labels]


def test_a_long_queue_is_cut_and_counted():
    film, animation = FILMS["overloaded"], Animation(860)
    now = animation.show(film, film.instants()[-1] / 3)
    slots = len(animation.queue.boxes)
    assert 24 <= slots < now.waiting.size
    assert f"+ {now.waiting.size - slots:,} more" in texts_of(animation.queue.texts)
    assert texts_of(animation.queue.title) == [f"queue: {now.waiting.size:,} waiting, queueing"]
    assert not [text for text in texts_of(ANIMATION.queue.texts) if "more" in text]


def test_the_gauges_fill_with_the_requests_and_with_the_oldests_wait():
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(4, 8), bs.Affine(9, 1))
    animation, film = Animation(860), Film(bs.simulate(scenario))
    animation.show(film, 0.006)
    assert (
        animation.queue.size_gauge.fill.get_width() / animation.queue.size_gauge.box.width
        == pytest.approx(2 / 4)
    )
    assert (
        animation.queue.wait_gauge.fill.get_width() / animation.queue.wait_gauge.box.width
        == pytest.approx(6 / 8)
    )
    assert texts_of(animation.queue.texts) == [
        "largest batch: 2 of 4",
        "oldest: waited 6.0 ms, max wait 8 ms",
    ]
    assert texts_of(animation.header.texts) == ["waiting for company", "arrived 2", "served 0", "lost 0"]
    assert texts_of(animation.header.clock) == ["6.0 ms"]
    animation.show(film, 0.010, within_s=0.003)
    assert texts_of(animation.header.texts)[0] == "a batch of 2 leaves: the oldest has waited 8 ms"
    assert texts_of(animation.servers.texts) == ["batch of 2: 0 to 1"]
    assert texts_of(animation.queue.texts)[1] == "oldest: none, max wait 8 ms"


@pytest.mark.parametrize("rule", [bs.AtLeast(8, 32), bs.PreferredSizes([8, 32], 64, 10)], ids=repr)
def test_how_many_are_enough_is_marked_on_the_gauge(rule):
    animation = Animation(860)
    animation.show(bs.simulate(PLAIN.replace(rule=rule), 100), 0.01)
    gauge, mark = animation.queue.size_gauge.box, animation.queue.enough
    assert (mark.get_x() + mark.get_width() / 2 - gauge.left) / gauge.width == pytest.approx(8 / 32)
    assert mark.get_width() > 1
    animation.show(bs.simulate(PLAIN, 100), 0.01)
    assert mark.get_width() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forming_is_orange_and_queueing_purple(theme):
    film, colours = Film(bs.simulate(PLAIN.replace(rate_per_s=900), 2000)), THEMES[theme]
    animation = Animation(860, theme=theme)
    for forming in (True, False):
        time_s = next(
            time_s
            for time_s in film.instants().tolist()
            if film.snapshot(time_s).forming == forming and film.snapshot(time_s).waiting.size > 3
        )
        animation.show(film, time_s)
        pixels = animation.pixels()[..., :3].reshape(-1, 3)
        inked = {
            name: int(
                (pixels == np.round(np.multiply(to_rgb(getattr(colours, name)), 255))).all(axis=1).sum()
            )
            for name in ("orange", "purple")
        }
        assert (inked["orange"] > 100) == forming
        assert (inked["purple"] > 100) != forming


# How it looks.


@pytest.mark.parametrize("look", LOOKS, ids=repr)
@pytest.mark.parametrize("name", FILMS)
def test_no_text_is_over_another_or_beyond_its_place(name, look):
    animation = Animation(**look)
    renderer = animation.agg.get_renderer()
    for time_s in times_of(FILMS[name], 9):
        animation.show(FILMS[name], time_s, within_s=0.5 / SCENARIOS[name].workload.rate_per_s)
        for tile in animation.tiles:
            places = []
            for artist in (*tile.fixed, *tile.moving):
                if isinstance(artist, Lettering):
                    places += [place_of(label, artist) for label in artist.labels]
                elif hasattr(artist, "get_text"):
                    extent = artist.get_window_extent(renderer)
                    low, high = animation.height_px - extent.y1, animation.height_px - extent.y0
                    places.append((artist.get_text(), extent.x0, low, extent.x1, high))
            for text, left, top, right, bottom in places:
                box = tile.box
                assert box.left <= left, text
                assert right <= box.right, text
                assert box.top <= top, text
                assert bottom <= box.bottom, text
            for one, other in combinations(places, 2):
                beside = one[3] < other[1] or other[3] < one[1]
                assert beside or one[4] < other[2] or other[4] < one[2], (one, other)


def place_of(label, lettering):
    width = lettering.font_px * width_em(label.text, lettering.weight)
    left = label.x - {"left": 0, "center": 0.5, "right": 1}[label.align] * width
    return label.text, left, label.y - 0.76 * lettering.font_px, left + width, label.y


def test_the_tiles_cover_the_picture_and_not_each_other():
    for look in LOOKS:
        animation = Animation(**look)
        for count in (1, 3, 12):
            animation.show(Film(bs.simulate(PLAIN.replace(servers=count), 10)), 0.0)
            covered = np.zeros(animation.pixels().shape[:2], dtype=int)
            for tile in animation.tiles:
                covered[tile.region] += 1
            assert (covered == 1).all()


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(list(FILMS)), st.floats(0, 1)), min_size=1, max_size=4))
def test_whatever_was_shown_before_the_pixels_are_those_of_a_fresh_animation(shows):
    animation = Animation(860)
    for name, part in shows:
        animation.show(FILMS[name], part * FILMS[name].instants()[-1])
        pixels = animation.pixels().copy()
    fresh = Animation(860)
    fresh.show(FILMS[name], part * FILMS[name].instants()[-1])
    assert np.array_equal(pixels, fresh.pixels())


@pytest.mark.parametrize("ratio", [1, 1.5, 2])
def test_the_png_has_the_screens_pixels(ratio):
    animation = Animation(860, ratio=ratio)
    animation.show(FILMS["plain"], 0.1)
    image = Image.open(BytesIO(animation.png()))
    assert image.size == (round(860 * ratio), round(animation.height_px * ratio))
    assert len(image.getcolors(1 << 20)) > 50


def test_it_is_written_for_print_too(tmp_path):
    animation = Animation(860)
    animation.show(FILMS["plain"], 0.1)
    animation.savefig(tmp_path / "animation.svg")
    animation.savefig(tmp_path / "animation.png")
    assert "<path" in (tmp_path / "animation.svg").read_text()
    with Image.open(tmp_path / "animation.png") as image:
        assert image.size[0] > 2 * 860


def test_a_result_is_prepared_once():
    animation, result = Animation(860), bs.simulate(PLAIN, 100)
    animation.show(result, 0.01)
    film = animation.film
    animation.show(result, 0.02)
    assert animation.film is film
    animation.show(bs.simulate(PLAIN, 100), 0.02)
    assert animation.film is not film


def test_a_animation_refuses():
    with pytest.raises(ValueError, match="theme must be 'light' or 'dark', got 'grey'"):
        Animation(theme="grey")
    with pytest.raises(ValueError, match="size must be 'page' or 'projector', got 'poster'"):
        Animation(size="poster")
    with pytest.raises(TypeError, match="result must be a Result, got None"):
        ANIMATION.show(None, 0.0)
    with pytest.raises(ValueError, match="time_s must be at least 0, got -1"):
        ANIMATION.show(FILMS["plain"], -1)


# In label.


def assert_says(text, *parts):
    at = [text.index(part) for part in parts]
    assert at == sorted(at)


def test_a_snapshot_in_words():
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(2, 20), bs.Affine(9, 1))
    film = Film(bs.simulate(scenario))
    because = scenario.rule.steps[0].because
    assert_says(describe(film.snapshot(0.004)), "4 ms", "batch of 2 leaves", because, "busy", "2 arrived")
    assert_says(describe(film.snapshot(0.013)), "13 ms", "waiting for a server", "1 waiting", "1 ms", "busy")
    assert_says(describe(film.snapshot(9)), "9000 ms", "no request waits", "idle", "3 served, 0 lost")


def test_several_servers_and_losses_in_words():
    scenario = PLAIN.replace(max_batch_size=1, servers=3, queue_limit=1, rate_per_s=100)
    scenario = scenario.replace(workload=bs.Trace([0, 0.001, 0.0010, 0.0011, 0.0012, 0.0013]))
    film = Film(bs.simulate(scenario))
    assert "1 of 3 servers busy" in describe(film.snapshot(0.0005))
    assert_says(describe(film.snapshot(0.002)), "3 of 3 servers busy", "6 arrived, 0 served, 2 lost.")


@pytest.mark.parametrize("width_px", [700, 1200, 1900])
@pytest.mark.parametrize("servers", [1, 2, 4, 5, 8, 30])
def test_a_server_has_room_for_a_line_and_a_bar(width_px, servers):
    animation = Animation(width_px)
    result = bs.simulate(
        bs.Scenario(bs.Poisson(2000), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25), servers=servers), 200
    )
    animation.show(Film(result), 0.01)
    for cell in animation.servers.cells:
        assert cell.gauge.box.top >= cell.text_at[1] + 0.3 * animation.em
