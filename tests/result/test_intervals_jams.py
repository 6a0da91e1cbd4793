"""Means of waits under continuous batching: no interval of a run that saw too few jams."""

import dataclasses
import math
import re

import numpy as np
import pytest
from validation.coverage_tokens import CASES, FIXED, engines

import batchsim as bs
from batchsim.result.intervals import metric_intervals
from batchsim.result.metrics import metric
from batchsim.result.run_length import run_length
from batchsim.scenario import saturation

THREE = CASES["3 engines, load 0.9"].truth
WAITS = "mean_ttft_ms", "mean_queueing_ms", "mean_latency_ms"
# The mean TTFT of 16 runs of a million requests; its standard error is below 0.5 %.
FIXED_TTFT_MS = 19.22


def intervals(scenario, requests, keys, seed=0):
    return bs.simulate(scenario, requests, seed=seed).intervals(keys)


def given(interval):
    return not math.isnan(interval.low)


def test_three_engines_with_rare_long_answers_have_no_mean_wait_of_100_000_requests():
    heavy = CASES["3 engines, answers of cv 3, load 0.8"].truth
    found = intervals(heavy, 100_000, [*WAITS, "mean_tpot_ms", "throughput_per_s"])
    assert not any(given(found[key]) for key in (*WAITS, "mean_tpot_ms"))
    assert given(found["throughput_per_s"])
    assert run_length(heavy).needed(metric("mean_ttft_ms")) > 1_000_000


def test_means_of_waits_hold_the_truth_where_a_run_saw_enough_jams():
    fixed, held, count = CASES["3 engines, fixed, load 0.9"].truth, 0, 0
    for seed in range(60):
        interval = intervals(fixed, 5_500, ["mean_ttft_ms"], seed)["mean_ttft_ms"]
        count += given(interval)
        held += interval.low <= FIXED_TTFT_MS <= interval.high
    assert 20 <= count < 60
    assert held >= 0.9 * count


def test_more_seats_at_the_same_load_see_fewer_jams():
    few, many = (CASES[name].truth for name in ("3 engines, load 0.9", "3 engines, 32 seats, load 0.9"))
    assert few.load == pytest.approx(many.load, rel=0.01)
    assert all(given(each) for each in intervals(few, 40_000, WAITS).values())
    assert not any(given(each) for each in intervals(many, 20_000, WAITS).values())


def test_a_light_load_needs_no_jam():
    light = CASES["4 engines, load 0.5"].truth
    assert all(given(each) for each in intervals(light, 20_000, WAITS).values())


def test_the_length_that_is_named_sees_enough_jams():
    reason = intervals(THREE, 10_000, WAITS)["mean_ttft_ms"].reason
    assert "to see 15 jams" in reason
    enough = int(reason.split("about ")[1].split()[0].replace(",", ""))
    assert given(intervals(THREE, math.ceil(1.2 * enough), WAITS)["mean_ttft_ms"])


def test_what_replications_need_is_the_length_of_each():
    two = bs.simulate(THREE, 5_000, replications=2)
    reason = two.intervals(WAITS)["mean_ttft_ms"].reason
    asked = re.search(r"about ([\d,]+) requests in each .* got 5,000 with ([\d.]+)", reason)
    assert int(asked[1].replace(",", "")) == pytest.approx(5_000 * 15 / float(asked[2]), rel=0.02)


def test_replications_see_jams_together():
    together = bs.simulate(THREE, 8_000, replications=4, warmup=0.1)
    assert given(together.intervals(WAITS)["mean_ttft_ms"])
    assert not given(together.replications[0].intervals(WAITS)["mean_ttft_ms"])


def test_the_mean_of_few_jams_is_skewed_and_the_interval_with_it():
    run = bs.simulate(THREE, 50_000)
    value, (low, high) = run.metrics.number("mean_ttft_ms"), run.interval("mean_ttft_ms")
    assert high - value > 1.15 * (value - low)


def test_the_skewness_of_the_mean_is_four_times_the_relative_error_of_the_wait():
    """Hall's interval with the factor that `make coverage` fitted, made by hand from eight replications."""
    run = bs.simulate(THREE, 8_000, replications=8)
    numbers, t = run.metrics.numbers, 2.364624251  # of 7 degrees, printed in every table

    def error(key):
        means = np.array([each.metrics.number(key) for each in run.replications])
        return math.sqrt(((means - numbers[key]) ** 2).sum() / 7 / 8)

    step_ms = 1000 * run.metrics.totals.busy_s / run.metrics.totals.batches
    waiting_ms = numbers["mean_queueing_ms"] - step_ms / (3 + 1)  # beyond the wait for the first step to end
    skewness = 4 * error("mean_queueing_ms") / waiting_ms
    for key in WAITS:
        moved_ms = error(key) * skewness * (2 * t**2 + 1) / 6
        assert run.interval(key)[1] == pytest.approx(numbers[key] + t * error(key) + moved_ms)


def test_a_comparison_refuses_too_few_jams_too():
    runs = [bs.simulate(THREE.replace(servers=servers), 10_000) for servers in (3, 4)]
    with pytest.warns(UserWarning, match="to see 15 jams"):
        assert math.isnan(bs.compare(*runs, keys=["mean_ttft_ms"])["mean_ttft_ms"].low)


def test_what_depends_on_those_that_run_needs_less_than_a_wait():
    run = bs.simulate(CASES["3 engines, 16 seats, load 0.95"].truth, 20_000)
    keys = "mean_tpot_ms", "tpot_p50_ms", "mean_batch_size", "output_tokens_per_s", "mean_ttft_ms"
    *running, wait = run.intervals(keys).values()
    assert all(given(each) for each in running)
    assert not given(wait)


@pytest.mark.parametrize("cv", [0.5, 1, 2])
def test_the_variety_of_lognormal_lengths_is_the_exact_one(cv):
    # E S^2 = m^2 (1 + cv^2), E S^4 = m^4 (1 + cv^2)^6; so long that whole tokens do not matter.
    tokens = bs.Tokens(1, bs.Lognormal(2000, cv))
    squared_cv, of_square = saturation.variety(bs.Continuous(), tokens)
    assert squared_cv == pytest.approx(cv**2, rel=0.01)
    assert of_square == pytest.approx((1 + cv**2) ** 4 - 1, rel=0.02)


def test_equal_lengths_have_no_variety():
    assert saturation.variety(bs.Continuous(), FIXED) == (0, 0)


def test_a_number_that_runs_returns_slowly_where_steps_take_longer_the_more_run():
    constant = engines(1, 20, step=bs.StepTime(1, 4, 0))
    assert saturation.turnover(constant) == saturation.running(constant)
    bound = CASES["2 engines bound by arithmetic, load 0.9"].truth
    assert saturation.turnover(bound) > 3 * saturation.running(bound)


def test_without_a_length_there_are_no_jams_to_count():
    sample = dataclasses.replace(bs.simulate(THREE, 15_000).sample, length=None)
    (interval,) = metric_intervals([sample], [metric("mean_ttft_ms")], 0.95).values()
    assert given(interval)
