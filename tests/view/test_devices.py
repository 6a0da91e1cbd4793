"""Waiting for a device that servers share is a part of its own wherever a run is drawn, and only there."""

import numpy as np
import pytest

import batchsim as bs
from batchsim.view.canvas.theme import COMPONENTS
from batchsim.view.explorer.reasons import of_requests
from batchsim.view.film.snapshot import Film
from batchsim.view.film.words import describe
from batchsim.view.pictures.breakdown import BreakdownView
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.headline import figures_of
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.timeline import TimelineView

SHARED = bs.Scenario(
    bs.Poisson(1300), bs.SizeOrWait(4, 3), bs.Affine(1, 0.5), servers=3, devices=1, host_ms=0.5
)
OWN = SHARED.replace(devices=None)


@pytest.fixture(scope="module")
def results():
    return {scenario: bs.simulate(scenario, 5000) for scenario in (SHARED, OWN)}


def test_the_breakdown_and_the_timeline_have_a_part_for_it_where_devices_are_shared(results):
    picture = LivePicture(1200, 700, large="breakdown")
    timeline = LivePicture(1200, 700, large="timeline").view(TimelineView)
    breakdown = picture.view(BreakdownView)
    for scenario in (SHARED, OWN, SHARED):  # as one setting follows another
        shared, data = scenario is SHARED, ViewData(results[scenario])
        breakdown.update(data)
        timeline.update(data)
        assert breakdown.bars["device_wait"].get_visible() == shared
        assert timeline.bars["device_wait"].get_visible() == shared
        assert ("device wait" in [entry.text for entry in timeline.entries]) == shared
        assert ("device wait" in [label.text for label in breakdown.values.labels]) == shared
        assert ("device wait" in breakdown.describe(data)[0]) == shared
    tops = breakdown.bars["forming"].get_data().values
    groups = np.array_split(np.sort(results[SHARED].latency_ms), tops.size)
    np.testing.assert_allclose(tops, [group.mean() for group in groups])


def test_the_part_is_told_from_the_others_without_its_colour():
    assert len({style.hatch for style in COMPONENTS.values()}) == len(COMPONENTS)
    assert len({style.width for style in COMPONENTS.values()}) == len(COMPONENTS)


def test_a_moment_says_that_a_batch_waits_for_its_device(results):
    result = results[SHARED]
    film, times = Film(result), result.run.device_time
    (first, *_) = np.flatnonzero(times.wait_s > 0.5e-3)
    for time_s, waits in (
        ((times.asked_s[first] + times.begin_s[first]) / 2, True),
        (times.begin_s[first] + 1e-6, False),
    ):
        now = film.snapshot(time_s)
        assert now.computing[result.batches.server[first]].held(time_s) == waits
        assert bool(now.held) == ("waiting for a device" in describe(now))
    own = Film(results[OWN])
    assert not any(own.snapshot(time_s).held for time_s in own.instants[::50])


def test_lanes_have_it_in_their_legend_where_one_of_them_shares():
    for scenario in (SHARED, OWN):
        lanes = bs.lanes(scenario, {"small": bs.SizeOrWait(2, 1), "large": bs.SizeOrWait(8, 3)}, begin_s=1)
        shared = scenario is SHARED
        assert ("device wait" in [text.get_text() for text in lanes.texts]) == shared
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
