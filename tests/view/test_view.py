"""Compiling, shared devices, replicas and priorities: a part of its own in each picture, film and control."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import drawn, names_of, over
from PIL import Image
from places import ROOT

import batchsim as bs
from batchsim._format import duration, number, percent
from batchsim.view.explorer.kinds import KINDS, relevant
from batchsim.view.explorer.reasons import of_requests
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.state import DEFAULT
from batchsim.view.film.clip import request_clip
from batchsim.view.film.film import RequestFilm
from batchsim.view.film.lane_kinds import RequestLanes
from batchsim.view.pictures.breakdown import BreakdownView
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.headline import as_html, figures_of, levels
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.replicas import ReplicasView
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.theme import PAGE


def test_letters_grow_by_up_to_two_pixels_in_a_wide_picture():
    assert [PAGE.em_px(width_px) for width_px in (300, 800, 1200, 1600, 4000)] == [12, 12, 13, 14, 14]


COLD = bs.Scenario(
    bs.Poisson(100), bs.SizeOrWait(8, 5), bs.Affine(20, 1).padded_to([1, 4, 8]).compiling({1: 120, 8: 190})
)


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(0, 99), st.sampled_from(["simpy", "compiled"]))
def test_what_follows_the_compiling_is_the_service_time(servers, seed, engine):
    result = bs.simulate(COLD.replace(servers=servers), 200, seed=seed, engine=engine)
    batches = result.batches
    table = COLD.service.table(8)[batches.batch_size]
    assert batches.finish_s - result.ready_s == pytest.approx(table, abs=1e-12)
    assert (result.ready_s >= batches.start_s).all()
    shapes = np.searchsorted([1, 4, 8], batches.batch_size)
    for shape, ms in enumerate((120, 150, 190)):
        (first, *_) = np.flatnonzero(shapes == shape)
        assert result.ready_s[first] - batches.start_s[first] == pytest.approx(ms / 1000)
        later = (shapes == shape) & (batches.start_s >= result.ready_s[first])
        assert (result.ready_s[later] == batches.start_s[later]).all()


def test_a_warm_run_and_a_measured_one_know_of_no_compiling():
    warm = bs.simulate(COLD.replace(service=bs.Affine(20, 1)), 100)
    assert (warm.ready_s == warm.batches.start_s).all()
    cold = bs.simulate(COLD, 100)
    measured = dataclasses.replace(cold, runs=(dataclasses.replace(cold.run, clock="wall"),))
    assert (measured.ready_s == measured.batches.start_s).all()


def test_the_timeline_begins_with_the_cold_start_and_has_a_word_and_a_hatch_for_it():
    result, scenario = bs.simulate(COLD, 2000), bs.Scenario(bs.Poisson(100), COLD.rule, bs.Affine(20, 1))
    view = drawn(TimelineView, ViewData(result))
    for each, cold in ((result, True), (bs.simulate(scenario, 2000), False)):
        data = ViewData(each)
        view.show(data)
        assert ("compiling" in view.shown) == cold
        assert ("compiling" in names_of(view.ax)) == cold
        assert (data.window.first == 0) == cold
        assert ("beginning" in view.describe(data)[0]) == cold
    view.show(ViewData(result))
    corners = view.shown["compiling"].get_path().vertices.reshape(-1, 5, 2)
    wide_ms = np.ptp(corners[:, :, 0], axis=1)
    first, last = ViewData(result).window[:2]
    expected_ms = 1000 * (result.ready_s - result.batches.start_s)[first : last + 1]
    assert wide_ms == pytest.approx(expected_ms)
    assert "compiling" in over(view, 0.01, 0.005, ViewData(result)).text


def test_the_explorers_control_says_that_its_cost_is_one_for_all_sizes():
    assert "all sizes" in CONTROLS["compile_ms"].about


# Waiting for a device that servers share is a part of its own wherever a run is drawn, and only there.


SHARED = bs.Scenario(
    bs.Poisson(1300), bs.SizeOrWait(4, 3), bs.Affine(1, 0.5), servers=3, devices=1, host_ms=0.5
)
OWN = SHARED.replace(devices=None)


@pytest.fixture(scope="module")
def results():
    return {scenario: bs.simulate(scenario, 5000) for scenario in (SHARED, OWN)}


def test_the_breakdown_and_the_timeline_have_a_part_for_it_where_devices_are_shared(results):
    timeline, breakdown = (drawn(kind, ViewData(results[OWN])) for kind in (TimelineView, BreakdownView))
    for scenario in (SHARED, OWN, SHARED):  # as one setting follows another
        shared, data = scenario is SHARED, ViewData(results[scenario])
        breakdown.show(data)
        timeline.show(data)
        assert ("device_wait" in breakdown.shown) == shared
        assert ("device_wait" in timeline.shown) == shared
        assert ("device wait" in names_of(timeline.ax)) == shared
        assert (("name", "device_wait") in breakdown.shown) == shared
        assert ("device wait" in breakdown.describe(data)[0]) == shared
    tops = breakdown.shown["forming"].get_data().values
    groups = np.array_split(np.sort(results[SHARED].latency_ms), tops.size)
    np.testing.assert_allclose(tops, [group.mean() for group in groups])


def test_lanes_have_it_in_their_legend_where_one_of_them_shares():
    for scenario in (SHARED, OWN):
        lanes = bs.lanes(scenario, {"small": bs.SizeOrWait(2, 1), "large": bs.SizeOrWait(8, 3)}, begin_s=1)
        shared = scenario is SHARED
        assert ("device wait" in [text.get_text() for text in lanes.legends[0].get_texts()]) == shared
        batches = [lane["batches"] for lane in lanes.lanes]
        assert any((each["begin_s"] > each["asked_s"]).any() for each in batches) == shared


def test_the_headline_says_how_busy_the_devices_are(results):
    beside = {scenario: figures_of(ViewData(result))[-1].beside for scenario, result in results.items()}
    assert beside == {SHARED: "devices 83%", OWN: ""}


def test_why_a_latency_rose_may_be_the_wait_for_a_device(results):
    found = of_requests("p50", results[OWN], results[SHARED])
    assert "device wait grew from 0 to" in found.why
    assert "busy device" in found.why
    assert (
        "device" not in of_requests("p50", results[OWN], bs.simulate(OWN.replace(rate_per_s=900), 5000)).why
    )


# Replicas in pictures, in the film and in the explorer: each shows what the result has.


FOUR = bs.Scenario(
    bs.Poisson(4000), bs.SizeOrWait(8, 5), bs.Affine(1.85, 0.15), servers=2, replicas=4, routing="fill_first"
)


@pytest.fixture(scope="module")
def result():
    return bs.simulate(FOUR, 5000, seed=1)


def test_a_plot_has_bars_of_the_load_and_the_batch_size_of_each_replica(result):
    view, of_each = bs.plot(result).views["replicas"], result.by_replica()
    assert view.shown["utilisation", "now"].get_data().values[::2] == pytest.approx(
        100 * of_each["utilisation"]
    )
    assert view.shown["mean_batch_size", "now"].get_data().values[::2] == pytest.approx(
        of_each["mean_batch_size"].fillna(0)
    )
    assert "replicas" not in bs.plot(bs.simulate(FOUR.replace(replicas=1), 500)).views


def test_the_view_of_tokens_has_the_same_columns():
    tokens = bs.Tokens(bs.Geometric(300), bs.Geometric(40))
    scenario = bs.Scenario(bs.Poisson(40), bs.Continuous(16), bs.StepTime(7, 10, 0.1), tokens=tokens)
    result = bs.simulate(scenario.replace(replicas=3, routing="least_tokens"), 500)
    of_each, data = result.by_replica(), ViewData(result)
    view = drawn(ReplicasView, data)
    assert view.shown["utilisation", "now"].get_data().values[::2] == pytest.approx(
        100 * of_each["utilisation"]
    )
    assert view.shown["mean_batch_size", "now"].get_data().values[::2] == pytest.approx(
        of_each["mean_batch_size"]
    )
    assert f"p99 {duration(of_each['p99_ms'][1])}" in over(view, 0.5, 0.5, data).text
    panel = bs.explore(scenario, requests=100)
    assert "replicas" not in dict(panel.large.options).values()
    panel.controls["replicas"].value = 2
    panel.large.value = "replicas"
    assert "Each of 2 replicas is" in panel.readout.value


def test_the_view_says_the_extremes_and_the_numbers_of_the_replica_under_the_pointer(result):
    data, picture = ViewData(result), LivePicture(large="replicas", parts=("by_replica",))
    picture.show(data)
    of_each, view = result.by_replica(), picture.views["replicas"]
    busy = 100 * of_each["utilisation"]
    said = re.search(r"4 replicas is between (\d+)% and (\d+)% busy", picture.describe(data))
    assert [*map(float, said.groups())] == pytest.approx([busy.min(), busy.max()], abs=1)
    for ax in view.axes:
        for k in range(4):
            spot = view.spot(ax, k + 0.3, 1, data)
            assert spot.text.startswith(f"Replica {k}: {percent(of_each['share'][k])} of the requests, ")
            assert f"{number(of_each['mean_batch_size'][k])}" in spot.text or not of_each["batches"][k]


def test_a_lane_forms_while_a_replica_with_requests_has_an_idle_server(result):
    film, middle_s = RequestFilm(result), float(result.arrival_s[2500])
    (lane,) = request_clip(film, (middle_s, middle_s)).lanes
    begin_s, until_s = request_clip(film, (middle_s, middle_s)).stretch
    for time_s, count, name in zip(*RequestLanes.waiting(lane), strict=True):
        if begin_s < time_s < until_s:
            assert count == film.waiting(time_s).size
            assert not count or name == ("forming" if film.forming(time_s) else "queueing")


def test_controls_of_a_router_are_there_with_several_replicas_only():
    shown = {
        (replicas, routing): {name for name in ("routing", "stale_ms", "keys") if relevant(name, values)}
        for replicas, routing in ((1, "two_choices"), (4, "two_choices"), (4, "random"), (4, "by_key"))
        for values in [vars(DEFAULT.replace(replicas=replicas, routing=routing))]
    }
    assert list(shown.values()) == [set(), {"routing", "stale_ms"}, {"routing"}, {"routing", "keys"}]


def test_an_autoscaler_and_given_keys_stay_and_clients_at_replicas_are_run():
    scaled = FOUR.replace(autoscale=bs.Autoscale("queue", most=8), routing=bs.routing.ByKey([1, 2] * 150))
    panel = bs.explore(scaled, requests=300)
    assert panel.result.scenario == scaled
    assert panel.status.value.count("autoscale") == 1
    panel.controls["routing"].value = "random"
    panel.controls["replicas"].value = 1
    assert panel.result.scenario == scaled.replace(routing="random", replicas=1)
    assert relevant("routing", vars(panel.state))  # there are replicas later
    panel = bs.explore(FOUR.replace(workload=bs.ClosedLoop(40, 0.01)), requests=300)
    assert panel.result.scenario.replicas == 4
    assert panel.data.surface is None


# A class sees priorities: a slider for the share that goes first, and what each level gets.


TWO = bs.Scenario(
    bs.Poisson(1000).with_priorities({1: 0.25, 2: 0.75}), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25)
)


def test_a_slider_sets_the_share_of_the_first_of_two_levels():
    panel = bs.explore(requests=300)
    knob = panel.controls["priorities"]
    assert (knob.slider.value, knob.field.value) == (0, "")
    knob.slider.value = 7  # steps of 0.05
    assert knob.value == ((1, 0.35), (2, 0.65))
    assert knob.field.value == "1:0.35, 2:0.65"
    knob.slider.value = 0
    assert knob.value == ()


def test_what_is_typed_moves_the_slider_to_the_share_of_the_first():
    knob = bs.explore(requests=300).controls["priorities"]
    for text, value, share in (
        ("1:0.2,2:0.5,3:0.3", ((1, 0.2), (2, 0.5), (3, 0.3)), 0.2),
        ("1:1", ((1, 1.0),), 1.0),  # beyond its end, which is widened
        ("", (), 0),
    ):
        knob.field.value = text
        assert (knob.value, knob.slider.value) == (value, round(share / 0.05))
    knob.field.value = "1:0.2"
    assert "sum to 1" in knob.refusal
    assert knob.value == ()


def test_an_empty_field_says_what_that_means():
    shown = {name: it.when_empty for name, it in CONTROLS.items() if it.when_empty and it.page}
    shown = {name: words for name, words in shown.items() if name in KINDS["requests"].controls}
    assert shown == {
        "priorities": "one level", "padding": "no padding", "devices": "one each", "queue_limit": "no limit",
        "timeout_ms": "never", "objective_ms": "none", "lengths": "no padding", "size_most": "no limit",
        "max_batch_units": "no limit", "price_per_hour": "not known", "watts": "not known",
    }  # fmt: skip
    assert bs.explore(requests=300).controls["timeout_ms"].field.placeholder == "never"


def test_the_explorer_shows_what_each_level_gets():
    explorer = bs.explore(TWO, requests=5000)
    found = explorer.result.by_priority()
    for q, figure in zip((50, 99), figures_of(explorer.data), strict=False):
        for level in (1, 2):
            assert explorer.data.levels_ms[level][q == 99] == pytest.approx(found[f"p{q}_ms"][level])
            assert f"level {level} " in figure.levels
    assert levels(explorer.data, 99) in explorer.readout.value
    assert levels(explorer.data, 99) in as_html(explorer.data)
    explorer.controls["priorities"].value = ()
    assert explorer.data.levels_ms == {}
    assert "level" not in as_html(explorer.data)


def test_under_overload_the_level_that_keeps_up_has_a_latency_and_the_other_grows():
    data = ViewData(bs.simulate(TWO.replace(rate_per_s=3600), 20_000))  # full batches carry 2,462/s
    assert data.overloaded
    assert data.levels_ms[1][1] < 40
    assert math.isinf(data.levels_ms[2][1])
    assert levels(data, 99).endswith("level 2 grows")


def test_a_level_of_which_many_are_lost_says_so():
    lossy = TWO.replace(rate_per_s=3600, queue_limit={2: 20})
    data = ViewData(bs.simulate(lossy, 20_000))
    assert not data.overloaded
    assert np.isfinite(data.levels_ms[1]).all()
    assert levels(data, 99).endswith("level 2 lost")


def test_the_moving_picture_of_the_readme_shows_the_pages_and_views_there_are(panel):
    with Image.open(ROOT / "docs" / "explorer.webp") as moving:
        names = json.loads(moving.info["xmp"])
    shown = [*panel.tabs.titles, *(label for label, _ in panel.large.options)]
    assert [name.replace("\N{NO-BREAK SPACE}", " ") for name in names] == shown, "make picture takes it again"
