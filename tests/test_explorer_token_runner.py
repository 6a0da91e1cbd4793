"""What a run of the explorer brings of token generation, and what a move leaves as it was."""

import itertools

import pytest

import batchsim as bs
from batchsim.view.explorer.runs import MOVING, TOKEN_AXES, Stored, token_axis, token_run

STEP = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
TOKENS = bs.Tokens(bs.Lognormal(500, 1.0, at_most=3000), bs.Geometric(40))
SCENARIO = bs.Scenario(bs.Poisson(8), bs.Continuous(64, 1024, kv_blocks=1500), STEP, tokens=TOKENS)


def data_of(stored, requests=200, seed=0, objectives=(700.0, 40.0), moving=False, knobs=None, **changes):
    return token_run(SCENARIO.replace(changes), requests, seed, objectives, stored, moving, knobs)


def test_the_run_the_map_and_the_curve_are_of_the_same_traffic():
    data = data_of(Stored())
    cell = data.surface.y_values.index(1024), data.surface.x_values.index(64)
    assert data.surface.goodput_per_s[cell] == data.result.goodput_per_s(ttft_ms=700, tpot_ms=40)
    at = bs.simulate(SCENARIO.replace(rate_per_s=data.curve.x_values[3].item()), 200)
    assert data.curve.ttft_p99_ms[3] == at.percentile(99, column="ttft_ms")
    assert (data.ttft_ms, data.tpot_ms) == (700, 40)


def test_a_drag_takes_fewer_requests_and_its_end_all():
    stored = Stored()
    moving, still = data_of(stored, 2500, moving=True), data_of(stored, 2500)
    assert (moving.surface.requests, moving.result.arrival_s.size) == (MOVING, MOVING)
    assert (still.surface.requests, still.result.arrival_s.size) == (2500, 2500)
    assert data_of(stored, 100, moving=True).surface.requests == 100


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
        assert token_axis(SCENARIO, name) == values
    for size in (1, 16, 10_000):
        memories = token_axis(SCENARIO.replace(block_size=size), "kv_blocks")
        assert all(a < b for a, b in itertools.pairwise(memories))
    found = data_of(Stored(), knobs=("max_num_seqs", "kv_blocks")).surface
    assert (found.x, found.y) == ("max_num_seqs", "kv_blocks")
    with pytest.raises(ValueError, match="block_size"):
        token_axis(SCENARIO, "block_size")
