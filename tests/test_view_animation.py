"""The film shows what the moment says: each request in its place or on its way, and nothing cut off."""

import math
from functools import cache
from io import BytesIO
from itertools import combinations, pairwise

import numpy as np
import pytest
import stages
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from oracles.plans import scenarios_at_random
from PIL import Image
from stages import assert_nobody_jumps, places_of

import batchsim as bs
from batchsim.view.canvas.lettering import Lettering, width_em
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.theme import THEMES
from batchsim.view.film.motion import LEAST_PX, WAY, places_in, slots
from batchsim.view.film.snapshot import EARLIER, REQUESTS, Film
from batchsim.view.film.words import describe
from batchsim.view.pictures.live import Animation, LivePicture

PLAIN = bs.Scenario(bs.Poisson(1800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
SCENARIOS = {
    "plain": PLAIN,
    "overloaded": PLAIN.replace(rate_per_s=9000),
    "eight servers": PLAIN.replace(servers=8, rate_per_s=9000),
    "fifty servers": PLAIN.replace(servers=50, rate_per_s=60_000),
    "at least": PLAIN.replace(rule=bs.AtLeast(1000, 60_000), servers=2, rate_per_s=5e5),
    "no wait, one by one": PLAIN.replace(rule=bs.SizeOrWait(1, 0), service=bs.Affine(3000, 0), servers=3),
    "losing": PLAIN.replace(max_wait_ms=math.inf, queue_limit=20, timeout_ms=4),
    "tiny": PLAIN.replace(service=bs.Affine(0.02, 0.001), max_wait_ms=0.123456, rate_per_s=90_000),
    "preferred sizes": PLAIN.replace(rule=bs.PreferredSizes([4, 8, 24], 24, 10), rate_per_s=900),
    "closed loop": PLAIN.replace(workload=bs.ClosedLoop(40, 0.001)),
}
# Width, height and letters of the stage: in the explorer at 1280 x 800, in a lesson, large, for a projector.
SIZES = [(375, 215, 12.0), (560, 230, 12.0), (1200, 400, 13.5), (700, 330, 17.0)]
LONGEST_WAY = 2200  # pixels in the time of a batch's way: what goes faster has jumped


@cache
def film_of(name):
    return Film(bs.simulate(SCENARIOS[name], 3000))


def staged(size=SIZES[1], theme="light"):
    return stages.staged(size, theme)


def stretch_of(film):
    middle_s = film.instants()[film.instants().size // 2]
    return film.stretch(middle_s, middle_s)


def crowds_of(film, time_s, size=SIZES[1]):
    _, stage = staged(size)
    stage.fit(film, stretch_of(film))
    return stage.choreography.at(film.snapshot(time_s)), stage.places


# What is shown.


@settings(max_examples=60)
@given(scenarios_at_random(), st.lists(st.floats(0, 0.1), min_size=1, max_size=3))
def test_each_request_that_waits_or_is_computed_is_there_once(scenario, times_s):
    film = Film(bs.simulate(scenario, 150))
    _, stage = staged()
    stage.fit(film)
    for time_s in times_s:
        now, crowds = film.snapshot(time_s), stage.choreography.at(film.snapshot(time_s))
        assert crowds.waiting.requests.tolist() == now.waiting.tolist()
        computed = [request for batch in now.computing if batch for request in batch.requests.tolist()]
        drawn = [*crowds.computing.requests.tolist(), *crowds.held.requests.tolist()]
        assert sorted(drawn) == sorted(computed)
        assert (stage.choreography.arrival_s[crowds.coming.requests] > time_s).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SCENARIOS)
def test_as_many_slots_as_requests_unless_they_could_not_be_seen(name, size):
    film = film_of(name)
    _, stage = staged(size)
    stretch = stretch_of(film)
    stage.fit(film, stretch)
    most, queue = film.most_waiting(*stretch), stage.places.queue
    assert len(queue.corners) >= most or queue.side == LEAST_PX
    batch, server = film.largest_batch(*stretch), stage.places.servers[0].slots
    assert len(server.corners) >= batch or server.side == LEAST_PX
    instants = film.instants()
    within = instants[(instants >= stretch.begin_s) & (instants <= stretch.until_s)]
    assert most == max(film.snapshot(time_s).waiting.size for time_s in within.tolist())


def test_a_thousand_that_wait_are_a_thousand_boxes_and_what_has_no_room_is_counted():
    film = film_of("overloaded")
    for size, cut in ((SIZES[2], False), (SIZES[0], True)):
        _, stage = staged(size)
        now = stage.show(film, film.instants()[-1] / 3)
        drawn = len(stage.places.queue.corners)
        assert now.waiting.size > 900
        assert (drawn < now.waiting.size) == cut
        assert (f"+ {now.waiting.size - drawn:,}" in texts_of(stage.captions.texts)) == cut
        assert f"{now.waiting.size:,} " in " ".join(texts_of(stage.captions.titles))


@pytest.mark.parametrize("name", ["plain", "losing", "closed loop", "preferred sizes", "tiny"])
def test_no_request_jumps(name):
    """Whatever happens at an instant, everybody stands where they stood: with one server, to the pixel."""
    film = film_of(name)
    _, stage = staged(SIZES[2])
    begin_s, until_s = stretch_of(film)
    assert assert_nobody_jumps(film, stage, begin_s, until_s) > 1000


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_way_is_smooth_between_instants(name):
    film = film_of(name)
    _, stage = staged(SIZES[2])
    begin_s, until_s = stretch_of(film)
    stage.fit(film, (begin_s, until_s))
    step_s = min(stage.choreography.way_s, stage.choreography.entry_s) / 50
    times_s = begin_s + (until_s - begin_s) / 3 + step_s * np.arange(60)
    moments = [places_of(stage.choreography.at(film.snapshot(time_s))) for time_s in times_s.tolist()]
    for before, after in pairwise(moments):
        far = [np.hypot(*(before[it] - after[it])) for it in before.keys() & after.keys()]
        assert max(far, default=0) < LONGEST_WAY / 50


def test_a_batch_goes_from_the_queue_to_its_server_and_then_stays():
    film = film_of("plain")
    batch = film.largest_leaving(*stretch_of(film))
    lasts_s = batch.finish_s - batch.start_s
    shares = (0, WAY / 3, 2 * WAY / 3, 1.01 * WAY, 0.5, 0.99)
    ways = [crowds_of(film, batch.start_s + share * lasts_s) for share in shares]
    middles = [crowds.computing.corners[:, 0].mean() for crowds, _ in ways]
    places = ways[0][1]
    assert middles[0] < places.queue_box.right < middles[3]
    assert sorted(middles[:4]) == middles[:4]
    assert middles[3] == middles[4] == middles[5]
    assert [len(crowds.groups) for crowds, _ in ways] == [1, 1, 1, 0, 0, 0]
    assert ways[3][0].computing.corners == pytest.approx(
        places.servers[0].slots.corners[: batch.requests.size]
    )


def test_what_is_finished_fades_out_on_the_right():
    film = film_of("plain")
    batch = film.largest_leaving(*stretch_of(film))
    way_s = WAY * film.batch_s
    (soon, places), (late, _) = (crowds_of(film, batch.finish_s + part * way_s) for part in (0.2, 1.8))
    assert soon.finished.requests.tolist() == late.finished.requests.tolist() == batch.requests.tolist()
    assert soon.finished.alphas.min() > 0.8 > 0.2 > late.finished.alphas.max()
    assert late.finished.corners[:, 0].min() > soon.finished.corners[:, 0].min()
    assert late.finished.corners[:, 0].max() <= places.right


def test_arrivals_are_seen_coming_in_from_the_left_but_not_in_a_closed_loop():
    film = film_of("plain")
    time_s = stretch_of(film).begin_s + 0.01
    crowds, places = crowds_of(film, time_s)
    assert crowds.coming.requests.size > 0
    assert (crowds.coming.corners[:, 0] <= places.lane.right).all()
    order = np.argsort(crowds.coming.requests)
    assert (np.diff(crowds.coming.corners[order, 0]) <= 0).all(), "who comes first is ahead"
    closed = film_of("closed loop")
    for time_s in np.linspace(*stretch_of(closed), 20):
        assert not crowds_of(closed, time_s)[0].coming.requests.size


def test_the_lost_are_shown_until_they_have_fallen_out():
    film = film_of("losing")
    lost_s = film.done_s(film.lost(*stretch_of(film)))
    assert lost_s.size > 5
    for time_s in lost_s[:5].tolist():
        assert film.lost(time_s - 1e-9, time_s)[0] in crowds_of(film, time_s)[0].lost.requests


# Where.


@settings(max_examples=100)
@given(st.floats(8, 600), st.floats(8, 400), st.integers(1, 5000), st.floats(4, 50), st.integers(1, 6))
def test_slots_are_within_their_box_and_apart(width, height, count, largest, rows):
    box = Box(10.0, 20.0, width, height)
    found = slots(box, count, largest, rows)
    (left, top), (right, bottom) = found.corners.min(axis=0), found.corners.max(axis=0) + found.side
    assert left >= box.left - 1
    assert top >= box.top - 1
    assert right <= box.right + 1
    assert bottom <= box.bottom + 1
    assert LEAST_PX <= found.side <= max(largest, LEAST_PX)
    assert len(np.unique(found.corners, axis=0)) == len(found.corners)
    assert found.side == LEAST_PX or len(found.corners) >= count


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("servers", [1, 2, 4, 5, 12, 50])
def test_servers_are_beside_the_queue_and_not_over_each_other(servers, size):
    width_px, height_px, em = size
    places = places_in(Box(0, 60, width_px, height_px - 95), 40, servers, 16, em)
    for one, other in combinations(places.servers, 2):
        assert not one.box.overlaps(other.box)
    for server in places.servers:
        assert places.queue_box.right < server.box.left
        assert server.box.right < places.right
        assert server.slots.corners[:, 1].max() + server.slots.side <= server.bar.top
    assert len(places.servers) == servers or width_px < 400


# Texts and gauges.


def texts_of(lettering):
    return [label.text for label in lettering.labels]


def test_the_gauges_fill_with_the_requests_and_with_the_oldests_wait():
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(4, 8), bs.Affine(9, 1))
    _, stage = staged(SIZES[2])
    film = Film(bs.simulate(scenario))
    stage.show(film, 0.006)
    for gauge, share in ((stage.size_gauge, 2 / 4), (stage.wait_gauge, 6 / 8)):
        assert gauge.fill.get_width() / gauge.box.width == pytest.approx(share)
    texts = texts_of(stage.captions.texts)
    for text in (
        "waiting for company", "arrived 2", "served 0", "largest batch: 2 of 4",
        "oldest: waited 6.0 ms, max wait 8 ms",
    ):  # fmt: skip
        assert text in texts
    assert "server: idle" in texts_of(stage.captions.titles)
    assert "lost 0" not in texts  # nothing can be
    assert texts_of(stage.captions.clock) == ["6.0 ms"]
    stage.show(film, 0.010, within_s=0.003)
    assert "a batch of 2 leaves: the oldest has waited 8 ms" in texts_of(stage.captions.texts)
    assert "server: batch of 2" in texts_of(stage.captions.titles)


@pytest.mark.parametrize("rule", [bs.AtLeast(8, 32), bs.PreferredSizes([8, 32], 64, 10)], ids=repr)
def test_how_many_are_enough_is_marked_on_the_gauge(rule):
    _, stage = staged()
    stage.show(Film(bs.simulate(PLAIN.replace(rule=rule), 100)), 0.01)
    gauge, mark = stage.size_gauge.box, stage.enough
    share = rule.enough / rule.largest_batch
    assert (mark.get_x() + mark.get_width() / 2 - gauge.left) / gauge.width == pytest.approx(share)
    assert mark.get_width() > 1
    stage.show(Film(bs.simulate(PLAIN, 100)), 0.01)
    assert mark.get_width() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forming_is_orange_queueing_purple_and_computing_blue(theme):
    film, colours = Film(bs.simulate(PLAIN.replace(rate_per_s=900), 2000)), THEMES[theme]
    picture, stage = staged(theme=theme)
    for forming in (True, False):
        time_s = next(
            time_s
            for time_s in film.instants().tolist()
            if film.snapshot(time_s).forming == forming and film.snapshot(time_s).waiting.size > 3
        )
        stage.show(film, time_s)
        pixels = picture.pixels()[..., :3].reshape(-1, 3)

        def inked(name, pixels=pixels):
            colour = np.round(np.multiply(to_rgb(getattr(colours, name)), 255))
            return int((pixels == colour).all(axis=1).sum())

        assert (inked("orange") > 100) == forming
        assert (inked("purple") > 100) != forming
        assert inked("blue") > 100 or forming


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SCENARIOS)
def test_letters_are_of_12_pixels_and_no_caption_is_over_another_or_cut_off(name, size):
    film = film_of(name)
    picture, stage = staged(size)
    stage.fit(film, stretch_of(film))
    renderer = picture.agg.get_renderer()
    for time_s in np.linspace(*stretch_of(film), 7).tolist():
        stage.show(film, time_s, within_s=0.002)
        captions = stage.captions
        places = []
        for lettering in (captions.clock, captions.titles, captions.texts):
            assert lettering.font_px >= 12
            places += [place_of(label, lettering) for label in lettering.labels]
        for artist in stage.fixed:
            if hasattr(artist, "get_text"):
                extent = artist.get_window_extent(renderer)
                low, high = picture.height_px - extent.y1, picture.height_px - extent.y0
                places.append((artist.get_text(), extent.x0, low, extent.x1, high))
        for text, left, top, right, bottom in places:
            assert left >= 0, text
            assert top >= 0, text
            assert right <= picture.width_px + 0.5, text
            assert bottom <= picture.height_px, text
        for one, other in combinations(places, 2):
            beside = one[3] <= other[1] or other[3] <= one[1]
            assert beside or one[4] < other[2] or other[4] < one[2], (one, other)


def place_of(label, lettering: Lettering):
    width = lettering.font_px * width_em(label.text, lettering.weight)
    left = label.x - {"left": 0, "center": 0.5, "right": 1}[label.align] * width
    return label.text, left, label.y - 0.74 * lettering.font_px, left + width, label.y


# The stage in a picture, above a timeline.


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(list(SCENARIOS)), st.floats(0, 1)), min_size=1, max_size=4))
def test_whatever_was_shown_before_the_pixels_are_those_of_a_fresh_stage(shows):
    picture, stage = staged()
    for name, part in shows:
        stage.show(film_of(name), part * film_of(name).instants()[-1])
        pixels = picture.pixels().copy()
    fresh, other = staged()
    other.show(film_of(name), part * film_of(name).instants()[-1])
    assert np.array_equal(pixels, fresh.pixels())


def test_the_film_is_part_of_the_large_view_and_its_patch_is_what_the_whole_picture_shows():
    from batchsim.view.explorer.session import Session
    from batchsim.view.explorer.state import State

    session = Session(State(), 2000, None)
    session.refresh()
    picture = LivePicture(990, 700, large="timeline")
    picture.show(session.data)
    view = picture.stage
    assert LivePicture(990, 700).stage is None
    assert view.film.result is session.data.result
    assert view.stage.box.bottom == view.timeline.box.top
    for time_s in np.linspace(*view.stretch, 5).tolist():
        now = view.show(view.film, time_s, 0.0)
        assert now.time_s == time_s
        with Image.open(BytesIO(picture.png(view.box))) as patch:
            patch = np.asarray(patch)
        assert np.array_equal(patch, picture.pixels()[..., :3][picture.region(view.box)])


def test_the_timelines_window_follows_the_film_page_by_page():
    animation = Animation(900)
    animation.play(bs.simulate(PLAIN, 3000))
    view = animation.stage
    pages, timeline = [], view.timeline
    for time_s in [*np.linspace(*view.stretch, 150), *np.linspace(*view.stretch[::-1], 150)]:
        view.show(view.film, float(time_s))
        begin_s, end_s = timeline.window_s
        assert begin_s <= time_s <= end_s, "the cursor has left the window"
        assert timeline.cursors[0].get_xdata()[0] == pytest.approx(1000 * (time_s - begin_s))
        if not pages or pages[-1] != (begin_s, end_s):
            pages.append((begin_s, end_s))
    assert 4 < len(pages) < 60


def test_some_requests_are_played_around_the_window_and_a_short_run_whole():
    film = film_of("plain")
    arrival_s, instants = film.result.arrival_s, film.instants()
    begin_s, until_s = film.stretch(float(arrival_s[1000]), float(arrival_s[1020]))
    assert begin_s == arrival_s[1000 - EARLIER]
    assert until_s == arrival_s[1000 - EARLIER + REQUESTS]
    assert film.stretch(float(arrival_s[10]), float(arrival_s[20])).begin_s == 0
    assert film.stretch(0.0, float(arrival_s[2000])).until_s >= arrival_s[2000]
    end_s = float(instants[-1])
    assert film.stretch(end_s - 0.01, end_s) == (pytest.approx(end_s, rel=0.1), end_s)
    short = Film(bs.simulate(PLAIN, REQUESTS))
    assert short.stretch(0.05, 0.1) == (0, short.instants()[-1])


@pytest.mark.parametrize("ratio", [1, 1.5, 2])
def test_the_png_has_the_screens_pixels(ratio):
    animation = Animation(860, ratio=ratio)
    animation.play(film_of("plain").result)
    with Image.open(BytesIO(animation.png())) as image:
        assert image.size == (round(860 * ratio), round(animation.height_px * ratio))
        assert len(image.getcolors(1 << 20)) > 50


def test_it_is_written_for_print_too(tmp_path):
    animation = Animation(860)
    animation.play(film_of("plain").result)
    animation.savefig(tmp_path / "animation.svg")
    animation.savefig(tmp_path / "animation.png")
    assert "<path" in (tmp_path / "animation.svg").read_text()
    with Image.open(tmp_path / "animation.png") as image:
        assert image.size[0] > 2 * 860


def test_a_film_refuses():
    with pytest.raises(ValueError, match="theme must be 'light' or 'dark', got 'grey'"):
        Animation(theme="grey")
    with pytest.raises(ValueError, match="size must be 'page' or 'projector', got 'poster'"):
        Animation(size="poster")
    with pytest.raises(TypeError, match="result must be a Result, got None"):
        Film(None)
    with pytest.raises(ValueError, match="time_s must be at least 0, got -1"):
        film_of("plain").snapshot(-1)


# In words.


def assert_says(text, *parts):
    at = [text.index(part) for part in parts]
    assert at == sorted(at)


def test_a_snapshot_in_words():
    scenario = bs.Scenario(bs.Trace([0.000, 0.004, 0.012]), bs.SizeOrWait(2, 20), bs.Affine(9, 1))
    film = Film(bs.simulate(scenario))
    because = scenario.rule.steps[0].because
    assert_says(describe(film.snapshot(0.004)), "4 ms", "batch of 2 leaves", because, "busy", "2 arrived")
    assert_says(describe(film.snapshot(0.013)), "13 ms", "waiting for a server", "1 waiting", "1 ms", "busy")
    assert_says(describe(film.snapshot(9)), "9,000 ms", "no request waits", "idle", "3 served, 0 lost")


def test_several_servers_and_losses_in_words():
    scenario = PLAIN.replace(max_batch_size=1, servers=3, queue_limit=1, rate_per_s=100)
    scenario = scenario.replace(workload=bs.Trace([0, 0.001, 0.0010, 0.0011, 0.0012, 0.0013]))
    film = Film(bs.simulate(scenario))
    assert "1 of 3 servers busy" in describe(film.snapshot(0.0005))
    assert_says(describe(film.snapshot(0.002)), "3 of 3 servers busy", "6 arrived, 0 served, 2 lost.")
