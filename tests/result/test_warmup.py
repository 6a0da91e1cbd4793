"""Warm-up: how much of a run is left out."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim.result.warmup import mser5

ONE = bs.Affine(1, 0)  # a millisecond a request
BATCHES = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


def md1(load):
    return bs.Scenario(bs.Poisson(1000 * load), bs.SizeOrWait(1, 0), ONE)


def test_mser_drops_a_start_that_is_unlike_the_rest():
    noise = np.random.default_rng(1).normal(10, 1, 2000)
    noise[:300] += np.linspace(50, 0, 300)
    assert 200 <= mser5(noise).requests <= 320


def test_mser_by_its_definition():
    latency_ms = np.random.default_rng(2).exponential(1, 503).cumsum() % 7
    blocks = latency_ms[:500].reshape(-1, 5).mean(axis=1)
    errors = [((blocks[d:] - blocks[d:].mean()) ** 2).sum() / (100 - d) ** 2 for d in range(91)]
    assert int(np.argmin(errors)) <= 50
    assert mser5(latency_ms).requests == 5 * int(np.argmin(errors))


@pytest.mark.parametrize(("blocks", "warns"), [(49, False), (50, False), (51, True)])
def test_a_warmup_ends_within_half_of_the_run_and_half_is_within(blocks, warns):
    start_ms, steady_ms = np.resize([50.0, 60.0], blocks), np.resize([9.0, 10.0], 100 - blocks)
    found = mser5(np.repeat(np.concatenate([start_ms, steady_ms]), 5))
    assert found.requests == 5 * min(blocks, 50)
    assert bool(found.warning) is warns


def test_mser_needs_ten_blocks_of_five_requests():
    latency_ms = np.resize([9.0, 10.0, 12.0], 50)
    assert mser5(latency_ms) == (0, "")
    short = mser5(latency_ms[:49])
    assert short.requests == 0
    assert "needs at least 50 served requests, got 49" in short.warning


def test_a_busy_spell_of_one_run_is_no_warmup_beyond_the_queues_memory():
    # Five relaxation times of a queue at load 0.8, 2 / (1 - 0.8)^2 requests each, and ten batches of one.
    run = bs.simulate(md1(0.8), 8000, seed=8, warmup="auto")
    assert mser5(run.with_warmup(0).latency_ms).requests > 3000
    assert run.warmup_requests == pytest.approx(5 * 2 / 0.2**2 + 10, abs=2)


def test_mser_does_not_count_requests_that_were_not_served():
    latency_ms = np.concatenate([np.full(50, 100.0), np.full(950, 1.0)])
    latency_ms[::7] = math.nan
    latency_ms[20:30] = math.nan
    assert mser5(latency_ms).requests == 50


def test_a_run_without_a_steady_state_is_said_to_have_none():
    with pytest.warns(UserWarning, match="no steady state"):
        run = bs.simulate(md1(1.5), 10_000, warmup="auto")
    assert run.warmup == 0.5


def test_a_run_too_short_for_mser_keeps_all():
    with pytest.warns(UserWarning, match="about 640 requests at load 0.5, or replications, got 49"):
        assert bs.simulate(md1(0.5), 49, warmup="auto").warmup == 0


def test_an_automatic_warmup_drops_the_start_of_a_server_that_starts_cold():
    # All clients send at time 0: the first of them wait long, and never again.
    crowd = bs.Scenario(bs.ClosedLoop(500, think_s=1), bs.SizeOrWait(1, 0), ONE)
    run = bs.simulate(crowd, 20_000, warmup="auto")
    assert 400 <= run.warmup_requests <= 2_000
    assert run.mean_latency_ms < 0.8 * bs.simulate(crowd, 20_000).mean_latency_ms


def test_replications_share_one_warmup():
    run = bs.simulate(md1(0.8), 5000, warmup="auto", replications=4)
    assert {each.warmup for each in run.replications} == {run.warmup}
    assert run.summary()["requests"] == 4 * (5000 - run.warmup_requests)


def test_an_automatic_warmup_is_only_a_warmup():
    auto = bs.simulate(BATCHES, 3000, warmup="auto")
    assert auto.summary() == bs.simulate(BATCHES, 3000, warmup=auto.warmup).summary()


def test_a_summary_has_no_columns_to_find_a_warmup_in():
    with pytest.raises(ValueError, match="warmup='auto' needs columns, got keep='summary'"):
        bs.simulate(BATCHES, 100, warmup="auto", keep="summary")
    with pytest.raises(TypeError, match="warmup must be a number, got 'half'"):
        bs.simulate(BATCHES, 100, warmup="half")


def test_replications_with_cold_starts_say_that_they_do_not_estimate_the_steady_state():
    cold = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 0), bs.Affine(5, 0.25).compiling(50))
    with pytest.warns(UserWarning, match=r"cold start in each of 4 replications: warmup='auto'"):
        starting = bs.simulate(cold, 20_000, replications=4)
    steady = bs.simulate(cold, 20_000, replications=4, warmup="auto")
    one = bs.simulate(cold, 100_000, warmup=0.1)
    assert starting.percentile(99) > 5 * steady.percentile(99)
    assert steady.percentile(99) == pytest.approx(one.percentile(99), rel=0.1)
