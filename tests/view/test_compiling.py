"""What a batch spends on compiling is a part of its own, in the film and in the timeline."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchsim as bs
from batchsim.view.explorer.kinds import CONTROLS
from batchsim.view.film.snapshot import Film
from batchsim.view.film.words import describe
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.timeline import TimelineView

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


def test_a_moment_says_compiling_until_the_shape_is_compiled():
    film = Film(bs.simulate(COLD, 200))
    batch = film.batch(0)
    for time_s, compiling in ((0.5 * (batch.start_s + batch.ready_s), True), (batch.ready_s + 0.001, False)):
        assert ("compiling" in describe(film.snapshot(time_s))) == compiling


def test_the_timeline_begins_with_the_cold_start_and_has_a_word_and_a_hatch_for_it():
    result, scenario = bs.simulate(COLD, 2000), bs.Scenario(bs.Poisson(100), COLD.rule, bs.Affine(20, 1))
    picture = LivePicture(1200, 700, large="timeline")
    for each, cold in ((result, True), (bs.simulate(scenario, 2000), False)):
        data = ViewData(each)
        view = picture.view(TimelineView)
        view.update(data)
        assert view.compiling.get_visible() == cold
        assert ("compiling" in [entry.text for entry in view.entries]) == cold
        assert (data.window.first == 0) == cold
        assert ("beginning" in view.describe(data)[0]) == cold
    view.update(ViewData(result))
    corners = view.compiling.get_path().vertices.reshape(-1, 5, 2)
    wide_ms = np.ptp(corners[:, :, 0], axis=1)
    first, last = ViewData(result).window[:2]
    expected_ms = 1000 * (result.ready_s - result.batches.start_s)[first : last + 1]
    assert wide_ms == pytest.approx(expected_ms)
    box = view.plot_box
    spot = view.spot(box.left + 5, box.top + 1, ViewData(result))
    assert "compiling" in spot.text


def test_the_explorers_control_says_that_its_cost_is_one_for_all_sizes():
    assert "all sizes" in CONTROLS["compile_ms"].about
