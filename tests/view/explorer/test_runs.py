"""A run of the explorer: its heat map and its load curve, and what a move leaves unchanged."""

import itertools
import math
import re
from functools import partial

import numpy as np
import pytest
from hands import looked_at

import batchsim as bs
from batchsim.result import Result
from batchsim.view.explorer.kinds import KINDS, relevant
from batchsim.view.explorer.requests import Requests
from batchsim.view.explorer.runs import COLUMNS, MOVING, TOKEN_AXES, Stored, axis, run, sizes, waits
from batchsim.view.explorer.state import State

STEP = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
TOKENS = bs.Tokens(bs.Lognormal(500, 1.0, at_most=3000), bs.Geometric(40))
SCENARIO = bs.Scenario(bs.Poisson(8), bs.Continuous(64, 1024, kv_blocks=1500), STEP, tokens=TOKENS)


def data_of(stored, requests=200, seed=0, objectives=(700.0, 40.0), moving=False, knobs=None, **changes):
    limits_ms = dict(zip(("ttft_ms", "tpot_ms"), objectives, strict=True))
    return run(SCENARIO.replace(changes), requests, seed, stored, knobs, moving, **limits_ms)


def test_the_run_the_map_and_the_curve_are_of_the_same_traffic():
    data = data_of(Stored())
    cell = data.surface.y_values.index(1024), data.surface.x_values.index(64)
    assert data.surface.goodput_per_s[cell] == data.result.goodput_per_s(ttft_ms=700, tpot_ms=40)
    at = bs.simulate(SCENARIO.replace(rate_per_s=data.curve.x_values[3].item()), 200)
    assert data.curve.ttft_p99_ms[3] == at.percentile(99, column="ttft_ms")
    assert (data.ttft_ms, data.tpot_ms) == (700, 40)


def test_the_numbers_of_a_run_are_there_before_it_is_drawn(monkeypatch):
    data, asked = data_of(Stored()), []
    monkeypatch.setattr(Result, "summary", lambda *given: asked.append(given))
    assert data.summary["served"] == 200
    assert not asked


def test_a_drag_takes_fewer_requests_and_its_end_all():
    stored = Stored()
    moving, still = data_of(stored, 2500, moving=True), data_of(stored, 2500)
    assert (moving.surface.requests, moving.result.arrival_s.size) == (MOVING, MOVING)
    assert (still.surface.requests, still.result.arrival_s.size) == (2500, 2500)
    assert data_of(stored, 100, moving=True).surface.requests == 100


def test_a_drag_makes_a_rough_map_of_requests_only_where_none_is_known(monkeypatch):
    stored, requests = Stored(), bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
    move = partial(run, requests, 2500, 0, stored)
    assert (move(moving=True).surface.requests, move(moving=True).result.arrival_s.size) == (MOVING, 2500)
    whole = move().surface
    assert whole.requests == 2500
    assert move(moving=True).surface is whole
    moving = partial(KINDS["requests"].run, State(), requests, 2500, moving=True)
    assert moving(stored=Stored()).surface.requests == 2500  # a computer's is fast enough
    monkeypatch.setattr(Requests, "shortens", True)
    assert moving(stored=Stored()).surface.requests == MOVING


def test_a_move_of_the_rate_leaves_the_curve_and_a_move_within_the_map_the_map():
    stored = Stored()
    first = data_of(stored)
    rate, knob = data_of(stored, rate_per_s=7), data_of(stored, max_num_seqs=32)
    assert rate.curve is first.curve
    assert rate.surface is not first.surface
    assert knob.surface is first.surface
    assert knob.curve is not first.curve
    assert data_of(stored).surface is first.surface


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"requests": 150}, {"kv_blocks": 1400}, {"chunked": True, "block_size": 8}]
)
def test_what_changes_every_cell_changes_the_map(change):
    stored = Stored()
    first, other = data_of(stored), data_of(stored, **change)
    assert other.surface is not first.surface
    assert other.curve is not first.curve


def test_one_objective_alone_is_not_counted_as_goodput():
    stored = Stored()
    one, none = (data_of(stored, objectives=each) for each in ((700.0, None), (None, None)))
    assert one.surface is none.surface
    assert one.surface.metric == "ttft_p99_ms"
    assert one.ttft_ms == 700


def test_clients_have_a_curve_that_is_the_same_however_many_there_are():
    stored = Stored()
    curves = [data_of(stored, workload=bs.ClosedLoop(clients, 0.5)).curve for clients in (10, 20)]
    assert curves[0] is curves[1]
    assert curves[0].x == "clients"


def test_the_axes_rise_and_the_map_may_be_over_memory():
    for name, values in TOKEN_AXES.items():
        assert axis(SCENARIO, name) == values
    for size in (1, 16, 10_000):
        memories = axis(SCENARIO.replace(block_size=size), "kv_blocks")
        assert all(a < b for a, b in itertools.pairwise(memories))
    found = data_of(Stored(), knobs=("max_num_seqs", "kv_blocks")).surface
    assert (found.x, found.y) == ("max_num_seqs", "kv_blocks")
    assert axis(SCENARIO, "block_size")[-1] == 256
    with pytest.raises(ValueError, match="watermark_blocks"):
        axis(SCENARIO, "watermark_blocks")


def test_the_map_is_of_the_same_traffic_as_the_run(panel):
    grid = panel.data.surface
    row, column = grid.y_values.index(10.0), grid.x_values.index(32)
    assert grid.p99_ms[row, column] == panel.result.percentile(99)


def test_the_map_reaches_every_batch_size_that_the_service_time_has():
    assert sizes(1) == (1,)
    for largest in range(1, 300):
        found = sizes(largest)
        assert found[-1] == largest
        assert list(found) == sorted(set(found))
    assert waits(2.0)[-2:] == (1.0, math.inf)


@pytest.mark.parametrize("link", ["fixed_ms=1e6", "per_item_ms=3e4&rule=at_least&min_batch_size=4"])
def test_the_longest_service_times_have_a_map_whose_waits_are_possible(link):
    panel = bs.explore(requests=300, link=link)
    assert panel.status.value == ""
    assert panel.result.mean_latency_ms > 1e6


def test_service_times_that_end_beyond_the_clock_are_refused_in_words():
    panel = bs.explore(requests=300, link="fixed_ms=1e12")
    assert "must be before 4,194,304 s (48.5 days)" in panel.status.value


def test_bursts_that_cannot_come_at_the_rate_of_full_batches_have_a_load_curve_all_the_same():
    # A cycle of 1.5 ms sees too few arrivals below 0.67 per s; full batches of 32 do 0.64 per s.
    link = "workload=onoff&mean_burst_s=0.0003&rate_per_s=2000&fixed_ms=50000&per_item_ms=5"
    panel = bs.explore(requests=300, link=link)
    assert panel.status.value == ""
    curve = panel.data.curve
    assert curve.saturation < curve.x_values[0]
    with pytest.raises(ValueError, match=re.escape("must see at least 0.001 arrivals")):
        panel.scenario.workload.with_rate(curve.saturation)


def test_bursts_without_any_possible_load_are_refused_in_words():
    link = "workload=onoff&mean_burst_s=0.0003&rate_per_s=2000&fixed_ms=500000&per_item_ms=5"
    panel = bs.explore(requests=300, link=link)
    assert "must see at least 0.001 arrivals, got" in panel.status.value


def test_the_axes_of_a_map_are_the_values_of_its_rules_two_knobs():
    scenario = bs.Scenario(bs.Poisson(9), bs.AtLeast(2, 8), bs.Table({1: 5, 8: 25}))
    assert axis(scenario, "min_batch_size") == (1, 2, 3, 4, 6, 8)
    scenario = scenario.replace(rule=bs.PreferredSizes([8], 8, 5))
    assert axis(scenario, "max_wait_ms") == waits(100.0)


def test_another_axis_spans_its_slider():
    scenario = bs.Scenario(bs.Poisson(9), bs.LearnedCork(8), bs.Affine(5, 1))
    found = axis(scenario, "patience")
    low, high, _ = scenario.rule.parameters()["patience"].slider
    assert len(found) == COLUMNS
    assert (found[0], found[-1]) == (low, high)
    assert all(a < b for a, b in itertools.pairwise(found))
    assert found == tuple(
        round(value, 2) for value in found
    )  # 4.1, not 4.1000000000000005: a click copies it


@pytest.mark.parametrize("mode", ["requests", "tokens"])
def test_the_map_is_of_energy_where_a_control_says_so_and_servers_have_watts(mode):
    link = f"mode={mode}&watts=0:60,1:150,32:300&map_metric=joules"
    panel = looked_at(bs.explore(requests=600, link=link))
    assert panel.data.surface.metric == f"joules_per_{mode.removesuffix('s')}"
    assert State.from_link(panel.session.link()) == panel.state
    assert panel.state.map_metric == "joules"
    found, least = panel.data.surface, panel.data.surface.values
    assert np.isfinite(least).any()
    panel.controls["map_metric"].value = "latency"
    assert panel.data.surface.metric == ("p99_ms" if mode == "requests" else "goodput_per_s")
    panel.controls["map_metric"].value = "joules"
    assert panel.data.surface is found  # kept
    panel.controls["watts"].value = None
    assert panel.data.surface.metric != found.metric
    assert not relevant("map_metric", vars(panel.state))
