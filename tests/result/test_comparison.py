"""Comparisons: paired differences of two results."""

import numpy as np
import pytest

import batchsim as bs

BATCHES = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


def test_the_difference_of_a_run_and_itself_is_nothing():
    run = bs.simulate(BATCHES, 20_000)
    comparison = bs.compare(run, run)
    for row in comparison.rows.values():
        assert row[2:] == (0, 0, 0)
    assert "differs" not in repr(comparison)


@pytest.mark.parametrize("knobs", [{}, {"replications": 4}, {"replications": 4, "keep": "summary"}])
def test_pairing_tells_what_two_intervals_cannot(knobs):
    a, b = (bs.simulate(BATCHES.replace(max_wait_ms=ms), 20_000, **knobs) for ms in (5, 5.1))
    low_b, high_a = b.interval("mean_latency_ms")[0], a.interval("mean_latency_ms")[1]
    row = bs.compare(a, b)["mean_latency_ms"]
    assert low_b < high_a  # each alone: they may be the same
    assert 0 < row.low < row.difference < row.high  # together: surely longer
    assert row.difference == pytest.approx(b.mean_latency_ms - a.mean_latency_ms)


@pytest.mark.parametrize("key", ["mean_latency_ms", "p90", "p99"])
def test_the_interval_of_a_difference_holds_the_true_difference(key):
    scenarios = BATCHES, BATCHES.replace(max_wait_ms=4, max_batch_size=16)
    long = [bs.simulate(each, 1_000_000, seed=999, replications=2, keep="summary") for each in scenarios]
    truth = bs.compare(*long, keys=[key])[key].difference
    held = 0
    for seed in range(100):
        row = bs.compare(*(bs.simulate(each, 10_000, seed=seed) for each in scenarios), keys=[key])[key]
        held += row.low <= truth <= row.high
    assert 0.89 <= held / 100 <= 1


def test_both_leave_out_the_longer_warmup():
    a, b = bs.simulate(BATCHES, 5000, warmup=0.2), bs.simulate(BATCHES, 5000)
    assert bs.compare(a, b)["mean_latency_ms"][2:] == (0, 0, 0)


def test_rounding_is_no_difference():
    scenario = bs.Scenario(bs.Poisson(2300), bs.SizeOrWait(32, 5), bs.Affine(5, 0.25))
    runs = [bs.simulate(scenario.replace(max_wait_ms=ms), 20_000, seed=2, warmup=0.05) for ms in (5, 0)]
    row = bs.compare(*runs, keys=["utilisation"])["utilisation"]
    assert row.difference == 0
    assert row.low <= 0 <= row.high


def test_the_paired_difference_of_a_percentile_holds_the_true_one():
    # A wait of 9 ms for one of 10: in both the p99 is next to a value that many latencies have.
    held = 0
    for seed in range(100):
        runs = [
            bs.simulate(BATCHES.replace(max_wait_ms=ms), 20_000, seed=seed, warmup=0.02) for ms in (10, 9)
        ]
        row = bs.compare(*runs, keys=["p99"])["p99"]
        held += row.low <= -1.2427 <= row.high  # of ten pairs of two million requests, to 0.002
    assert held >= 92


def test_a_comparison_prints_and_makes_a_frame():
    a, b = (bs.simulate(BATCHES.replace(max_wait_ms=ms), 20_000) for ms in (9, 0))
    comparison = bs.compare(a, b, keys=["p99", "throughput_per_s"])
    assert comparison.to_frame().index.tolist() == ["p99_ms", "throughput_per_s"]
    assert comparison.to_frame().loc["p99_ms", "difference"] == comparison["p99"].difference
    assert "p99_ms" in repr(comparison)
    assert repr(comparison).count("differs") == 1
    with pytest.raises(ValueError, match="one of those compared, got 'utilisation'"):
        comparison["utilisation"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "compared runs must share their seed, got 0 and 1"),
        ({"requests": 2000}, "compared runs must share their requests, got 1,000 and 2,000"),
        ({"replications": 2}, "must share their replications, got 1 and 2|share their requests"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(other, message):
    knobs = {"requests": 1000, "seed": 0, **other}
    with pytest.raises(ValueError, match=message):
        bs.compare(bs.simulate(BATCHES, 1000), bs.simulate(BATCHES, **knobs))


def test_columns_and_summaries_compare_by_what_they_count():
    runs = [
        bs.simulate(BATCHES, 20_000, warmup=0.1, replications=4, keep=keep) for keep in ("all", "summary")
    ]
    row = bs.compare(*runs, keys="mean_latency_ms")["mean_latency_ms"]
    assert row.difference == pytest.approx(0, abs=1e-9)
    shorter = bs.simulate(BATCHES, 18_000, replications=4)
    with pytest.raises(ValueError, match=r"keep='summary' must share their warmup, got 0\.1 and 0\.2"):
        bs.compare(runs[1], bs.simulate(BATCHES, 20_000, warmup=0.2, replications=4))
    with pytest.raises(ValueError, match="must share their requests, got 64,800 and 72,000"):
        bs.compare(shorter, runs[1])


def test_a_comparison_says_its_level():
    runs = [bs.simulate(BATCHES.replace(max_wait_ms=ms), 20_000) for ms in (9, 0)]
    assert "50 % interval" in repr(bs.compare(*runs, level=0.5))


def test_only_results_are_compared():
    with pytest.raises(TypeError, match="what is compared must be a Result, got 3"):
        bs.compare(bs.simulate(BATCHES, 100), 3)


def test_what_is_given_is_not_compared():
    run = bs.simulate(BATCHES, 1000)
    with pytest.raises(ValueError, match="must be measured, got 'load'"):
        bs.compare(run, run, keys=["load"])


def test_a_comparison_warns_of_what_has_no_interval_unless_it_is_silent():
    runs = [bs.simulate(BATCHES.replace(max_wait_ms=ms), 1000) for ms in (9, 0)]
    with pytest.warns(UserWarning, match="an interval for p99_ms needs about"):
        loud = bs.compare(*runs, keys=["p99"])
    silent = bs.compare(*runs, keys=["p99", "p50"], silent=True)
    assert loud["p99"][:3] == silent["p99"][:3]
    assert np.isnan(silent["p99"][3:]).all()
    assert not np.isnan(silent["p50"][3:]).any()


def test_the_difference_of_rare_counts_adds_the_doubts_of_both():
    scenario = bs.Scenario(bs.Poisson(600), bs.SizeOrWait(8, 2), bs.Affine(5, 0.5), queue_limit=12)
    run = bs.simulate(scenario, 20_000)
    low, high = run.interval("rejected")
    assert 0 < low < run.summary()["rejected"] < high
    row = bs.compare(run, run, keys=["rejected"])["rejected"]
    assert (row.low, row.high) == pytest.approx((low - high, high - low))


def test_a_day_of_few_periods_is_compared_with_steady_traffic():
    """The sections of a day are whole periods: 32 of 40, and 64 of other traffic."""
    day = bs.Scenario(bs.Diurnal(900, 1.5, 1.0), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
    runs = [bs.simulate(each, 36_000) for each in (day, day.replace(workload=bs.Poisson(900)))]
    rows = bs.compare(*runs, ["mean_latency_ms", "p99", "batches"])
    assert all(row.low < row.difference < row.high for row in rows.rows.values())
