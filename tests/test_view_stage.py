"""The stage shows what the moment says, each request in its slot, and nothing over anything else."""

import math
from io import BytesIO
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from oracles.plans import scenarios_at_random
from PIL import Image

import batchsim as bs
from batchsim.view.canvas.lettering import Lettering, Words, width_em
from batchsim.view.canvas.picture import Picture
from batchsim.view.canvas.theme import THEMES
from batchsim.view.film.animation import Stage, describe
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
FILMS = {name: Film(bs.simulate(scenario, 20_000)) for name, scenario in SCENARIOS.items()}
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


# Lettering.


@pytest.mark.parametrize("weight", ["normal", "bold"])
@pytest.mark.parametrize("align", ["left", "center", "right"])
def test_lettering_stands_where_matplotlibs_own_text_does(weight, align):
    inked = []
    for own in (False, True):
        picture = Picture(400, 60)
        with picture.look():
            if own:
                transform = picture.px_transform
                picture.text(
                    200, 40, "Jump 0123", transform=transform, fontsize=24, fontweight=weight, ha=align
                )
            else:
                lettering = Lettering(picture, 24, "black", weight)
                lettering.show([Words("Jump 0123", 200, 40, align)])
        agg = FigureCanvasAgg(picture)
        agg.draw()
        rows, columns = np.nonzero(np.asarray(agg.buffer_rgba())[..., 0] < 128)
        inked.append([rows.min(), rows.max(), columns.min(), columns.max()])
    # Matplotlib rounds each letter to whole pixels.
    assert np.abs(np.subtract(*inked)).max() <= 2


def test_a_width_is_matplotlibs_own():
    figure = Figure(dpi=72)
    renderer = FigureCanvasAgg(figure).get_renderer()
    text = figure.text(0, 0, "batch of 32: 4096 to 4127", fontsize=100)
    assert 100 * width_em("batch of 32: 4096 to 4127") == pytest.approx(
        text.get_window_extent(renderer).width, rel=0.02
    )


# What is shown.


@settings(max_examples=60)
@given(scenarios_at_random(), st.lists(st.floats(0, 0.1), min_size=1, max_size=3))
def test_the_slots_hold_the_oldest_that_wait_and_the_servers_their_batches(scenario, times_s):
    stage, film = STAGE, Film(bs.simulate(scenario, 150))
    for time_s in times_s:
        now = stage.show(film, time_s)
        boxes = stage.queue.boxes
        shown = [int(words.text) for words in boxes.numbers.texts]
        assert shown == now.waiting[: len(boxes)].tolist()
        for cell, job in zip(stage.servers.cells, now.computing, strict=True):
            shown = [int(words.text) for words in cell.boxes.numbers.texts]
            assert shown == ([] if job is None else job.requests[: len(cell.boxes)].tolist())
            share = cell.bar.fill.get_width() / cell.bar.place.width
            expected = 0 if job is None else (time_s - job.start_s) / (job.finish_s - job.start_s)
            assert share == pytest.approx(expected)


STAGE = Stage(860)


def test_a_request_keeps_its_slot_until_one_before_it_leaves():
    film, stage = FILMS["eight servers"], Stage(860)
    stays = 0
    for before_s, after_s in pairwise(film.instants()[3000:3400].tolist()):
        places = []
        for time_s in (before_s, after_s):
            now = stage.show(film, time_s)
            places.append({words.text: (words.x, words.y) for words in stage.queue.boxes.numbers.texts})
            places[-1]["oldest"] = now.waiting[0] if now.waiting.size else None
        if places[0].pop("oldest") == places[1].pop("oldest"):
            stays += len(places[0])
            assert places[0].items() <= places[1].items()
    assert stays > 500


def words_of(lettering):
    return [words.text for words in lettering.texts]


def test_a_long_queue_is_cut_and_counted():
    film, stage = FILMS["overloaded"], Stage(860)
    now = stage.show(film, film.instants()[-1] / 3)
    slots = len(stage.queue.boxes)
    assert 24 <= slots < now.waiting.size
    assert f"+ {now.waiting.size - slots:,} more" in words_of(stage.queue.words)
    assert words_of(stage.queue.title) == [f"queue: {now.waiting.size:,} waiting, queueing"]
    assert not [text for text in words_of(STAGE.queue.words) if "more" in text]


def test_the_gauges_fill_with_the_requests_and_with_the_oldests_wait():
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(4, 8), bs.Affine(9, 1))
    stage, film = Stage(860), Film(bs.simulate(scenario))
    stage.show(film, 0.006)
    assert stage.queue.size_bar.fill.get_width() / stage.queue.size_bar.place.width == pytest.approx(2 / 4)
    assert stage.queue.wait_bar.fill.get_width() / stage.queue.wait_bar.place.width == pytest.approx(6 / 8)
    assert words_of(stage.queue.words) == ["next batch: 2 of 4", "oldest: 6.0 ms, max_wait_ms = 8"]
    assert words_of(stage.header.words) == ["waiting for company", "arrived 2", "served 0", "lost 0"]
    assert words_of(stage.header.clock) == ["6.0 ms"]
    stage.show(film, 0.010, within_s=0.003)
    assert words_of(stage.header.words)[0] == "a batch of 2 leaves: the oldest has waited 8 ms"
    assert words_of(stage.servers.texts) == ["batch of 2: 0 to 1"]
    assert words_of(stage.queue.words)[1] == "oldest: nobody waits, max_wait_ms = 8"


def test_how_many_are_enough_is_marked_on_the_gauge():
    scenario = PLAIN.replace(rule=bs.AtLeast(8, 32))
    stage = Stage(860)
    stage.show(bs.simulate(scenario, 100), 0.01)
    place, mark = stage.queue.size_bar.place, stage.queue.enough
    assert (mark.get_x() + mark.get_width() / 2 - place.left) / place.width == pytest.approx(8 / 32)
    assert mark.get_width() > 1
    stage.show(bs.simulate(PLAIN, 100), 0.01)
    assert mark.get_width() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forming_is_orange_and_queueing_purple(theme):
    film, colours = Film(bs.simulate(PLAIN.replace(rate_per_s=900), 2000)), THEMES[theme]
    stage = Stage(860, theme=theme)
    for forming in (True, False):
        time_s = next(
            time_s
            for time_s in film.instants().tolist()
            if film.moment(time_s).forming == forming and film.moment(time_s).waiting.size > 3
        )
        stage.show(film, time_s)
        pixels = stage.pixels()[..., :3].reshape(-1, 3)
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
    stage = Stage(**look)
    renderer = stage.agg.get_renderer()
    for time_s in times_of(FILMS[name], 9):
        stage.show(FILMS[name], time_s, within_s=0.5 / SCENARIOS[name].workload.rate_per_s)
        for tile in stage.tiles:
            places = []
            for artist in (*tile.fixed, *tile.moving):
                if isinstance(artist, Lettering):
                    places += [place_of(words, artist) for words in artist.texts]
                elif hasattr(artist, "get_text"):
                    extent = artist.get_window_extent(renderer)
                    low, high = stage.height_px - extent.y1, stage.height_px - extent.y0
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


def place_of(words, lettering):
    width = lettering.font_px * width_em(words.text, lettering.weight)
    left = words.x - {"left": 0, "center": 0.5, "right": 1}[words.align] * width
    return words.text, left, words.y - 0.76 * lettering.font_px, left + width, words.y


def test_the_tiles_cover_the_picture_and_not_each_other():
    for look in LOOKS:
        stage = Stage(**look)
        for count in (1, 3, 12):
            stage.show(Film(bs.simulate(PLAIN.replace(servers=count), 10)), 0.0)
            covered = np.zeros(stage.pixels().shape[:2], dtype=int)
            for tile in stage.tiles:
                covered[tile.place] += 1
            assert (covered == 1).all()


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(list(FILMS)), st.floats(0, 1)), min_size=1, max_size=4))
def test_whatever_was_shown_before_the_pixels_are_those_of_a_fresh_stage(shows):
    stage = Stage(860)
    for name, part in shows:
        stage.show(FILMS[name], part * FILMS[name].end_s)
        pixels = stage.pixels().copy()
    fresh = Stage(860)
    fresh.show(FILMS[name], part * FILMS[name].end_s)
    assert np.array_equal(pixels, fresh.pixels())


@pytest.mark.parametrize("ratio", [1, 1.5, 2])
def test_the_png_has_the_screens_pixels(ratio):
    stage = Stage(860, ratio=ratio)
    stage.show(FILMS["plain"], 0.1)
    image = Image.open(BytesIO(stage.png()))
    assert image.size == (round(860 * ratio), round(stage.height_px * ratio))
    assert len(image.getcolors(1 << 20)) > 50


def test_it_is_written_for_print_too(tmp_path):
    stage = Stage(860)
    stage.show(FILMS["plain"], 0.1)
    stage.savefig(tmp_path / "stage.svg")
    stage.savefig(tmp_path / "stage.png")
    assert "<path" in (tmp_path / "stage.svg").read_text()
    with Image.open(tmp_path / "stage.png") as image:
        assert image.size[0] > 2 * 860


def test_a_result_is_prepared_once():
    stage, result = Stage(860), bs.simulate(PLAIN, 100)
    stage.show(result, 0.01)
    film = stage.film
    stage.show(result, 0.02)
    assert stage.film is film
    stage.show(bs.simulate(PLAIN, 100), 0.02)
    assert stage.film is not film


def test_a_stage_refuses():
    with pytest.raises(ValueError, match="theme must be 'light' or 'dark', got 'grey'"):
        Stage(theme="grey")
    with pytest.raises(ValueError, match="size must be 'page' or 'projector', got 'poster'"):
        Stage(size="poster")
    with pytest.raises(TypeError, match="result must be a Result, got None"):
        STAGE.show(None, 0.0)
    with pytest.raises(ValueError, match="time_s must be at least 0, got -1"):
        STAGE.show(FILMS["plain"], -1)


# In words.


def test_a_moment_in_words():
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(2, 20), bs.Affine(9, 1))
    film = Film(bs.simulate(scenario))
    assert describe(film.moment(0.004)) == (
        "At 4 ms: a batch of 2 leaves: 2 requests wait, a full batch; the server computes; "
        "2 arrived, 0 served, 0 lost."
    )
    assert describe(film.moment(0.013)) == (
        "At 13 ms: waiting for a server; 1 waits, the oldest 1 ms; the server computes; "
        "3 arrived, 0 served, 0 lost."
    )
    assert (
        describe(film.moment(9))
        == "At 9000 ms: nothing to do; no server computes; 3 arrived, 3 served, 0 lost."
    )


def test_several_servers_and_losses_in_words():
    scenario = PLAIN.replace(max_batch_size=1, servers=3, queue_limit=1, rate_per_s=100)
    scenario = scenario.replace(workload=bs.Trace([0, 0.001, 0.0010, 0.0011, 0.0012, 0.0013]))
    film = Film(bs.simulate(scenario))
    assert "1 of 3 servers compute;" in describe(film.moment(0.0005))
    assert describe(film.moment(0.002)).endswith("every server computes; 6 arrived, 0 served, 2 lost.")


@pytest.mark.parametrize("width_px", [700, 1200, 1900])
@pytest.mark.parametrize("servers", [1, 2, 4, 5, 8, 30])
def test_a_server_has_room_for_a_line_and_a_bar(width_px, servers):
    stage = Stage(width_px)
    result = bs.simulate(
        bs.Scenario(bs.Poisson(2000), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25), servers=servers), 200
    )
    stage.show(Film(result), 0.01)
    for cell in stage.servers.cells:
        assert cell.bar.place.top >= cell.text_at[1] + 0.3 * stage.em
