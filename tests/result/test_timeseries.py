"""A run as a time series."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import scenarios_at_random
from refusals import refusals

import batchsim as bs

SERVICE = bs.Affine(5, 0.25)


def run(workload, requests=20_000, **knobs):
    return bs.simulate(bs.Scenario(workload, bs.SizeOrWait(32, 10), SERVICE, **knobs), requests)


def test_a_day_is_seen_hour_by_hour():
    day = run(bs.Diurnal(800, peak_to_mean=1.8, period_s=60), 48_000)
    frame = day.over_time(window_s=60 / 24)
    middles_s = (frame.begin_s + frame.end_s) / 2
    known_per_s = 800 * (1 - 0.8 * np.cos(2 * np.pi * middles_s / 60))
    assert frame.arrival_rate_per_s.to_numpy() == pytest.approx(known_per_s, rel=0.25)
    assert frame.p99_ms.iloc[12] > frame.p99_ms.iloc[0]
    assert frame.utilisation.iloc[12] > 1.5 * frame.utilisation.iloc[0]


@settings(max_examples=60)
@given(scenario=scenarios_at_random(), windows=st.integers(1, 12))
def test_the_windows_add_up_to_the_run(scenario, windows):
    result = bs.simulate(scenario, 300, seed=5)
    span_s = max(result.arrival_s[-1], result.batches.finish_s.max(initial=0))
    if span_s == 0:
        return
    frame = result.over_time(span_s / windows)
    lengths_s = frame.end_s - frame.begin_s
    assert frame.arrivals.sum() == 300
    assert (frame.throughput_per_s * lengths_s).sum() == pytest.approx(result.summary()["served"])
    busy_s = (frame.utilisation * lengths_s).sum() * scenario.servers
    assert busy_s == pytest.approx((result.batches.finish_s - result.batches.start_s).sum(), rel=1e-6)
    left_s = np.where(
        result.status == bs.Status.TIMED_OUT, result.arrival_s + scenario.timeout_s, result.start_s
    )
    waited_s = np.nansum(np.where(result.status == bs.Status.REJECTED, math.nan, left_s - result.arrival_s))
    assert (frame.mean_queue_length * lengths_s).sum() == pytest.approx(waited_s, rel=1e-6, abs=1e-9)
    assert (frame.mean_queue_length <= frame.max_queue_length + 1e-9).all()


def test_windows_of_an_eleventh_are_eleven_however_that_rounds():
    result = bs.simulate(bs.Scenario(bs.Trace([0]), bs.SizeOrWait(1, 0), bs.Affine(13, 0)))
    assert 0.013 / (0.013 / 11) > 11
    assert len(result.over_time(0.013 / 11)) == 11


def test_the_queue_of_four_requests_by_hand():
    # Two come at 0 s and one at 1 s; one at a time, 2 s each.
    scenario = bs.Scenario(bs.Trace([0, 0, 1, 9]), bs.SizeOrWait(1, 0), bs.Affine(2000, 0))
    frame = bs.simulate(scenario).over_time(2)
    assert frame.begin_s.tolist() == [0, 2, 4, 6, 8, 10]
    assert frame.end_s.tolist() == [2, 4, 6, 8, 10, 11]
    assert frame.arrivals.tolist() == [3, 0, 0, 0, 1, 0]
    assert frame.mean_queue_length.tolist() == [1.5, 1, 0, 0, 0, 0]
    assert frame.max_queue_length.tolist() == [
        2,
        2,
        1,
        0,
        1,
        0,
    ]  # who comes as a server is idle is seen for an instant
    assert frame.utilisation.tolist() == [1, 1, 1, 0, 0.5, 1]
    assert frame.throughput_per_s.tolist() == [0, 0.5, 0.5, 0.5, 0, 1]
    assert frame.mean_latency_ms.tolist()[0] == pytest.approx(1000 * (2 + 4 + 5) / 3)
    assert math.isnan(frame.p99_ms[1])


def test_an_overload_is_seen_to_grow():
    frame = run(bs.Poisson(4000)).over_time(0.5).query("end_s < 5")  # as long as requests come
    assert frame.mean_queue_length.is_monotonic_increasing
    assert frame.mean_latency_ms.is_monotonic_increasing


def test_little_s_law_in_every_window_of_a_long_run():
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), SERVICE)
    result = bs.simulate(scenario, 400_000)
    frame = result.over_time(100)
    waited_s = (result.latency_ms - result.computing_ms).mean() / 1000
    assert frame.mean_queue_length.to_numpy() == pytest.approx(800 * waited_s, rel=0.05)


@refusals
def test_over_time_refuses():
    """
    run(bs.Poisson(800), 1000).over_time(0) -> window_s must be greater than 0, got 0
    run(bs.Poisson(800), 1000).over_time(-1) -> window_s must be greater than 0, got -1
    run(bs.Poisson(800), 1000).over_time(math.nan) -> window_s must be a number, got nan
    run(bs.Poisson(800), 1000).over_time("1") -> TypeError: window_s must be a number, got '1'
    run(bs.Poisson(800), 1000).over_time(1e-09) -> window_s must leave at most 1,000,000 windows, got 1e-09
    """


def test_replications_have_a_course_each():
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), SERVICE)
    pooled = bs.simulate(scenario, 1000, replications=2)
    with pytest.raises(ValueError, match=r"one run .* got 2 replications: take one of \.replications"):
        pooled.over_time(1)
    assert len(pooled.replications[1].over_time(0.1)) > 5


# Drift.


@pytest.mark.parametrize(
    "workload",
    [
        bs.Poisson(800), bs.Constant(800), bs.Gamma(800, 3), bs.OnOff(2000, 200, 0.1, 0.2), bs.ClosedLoop(20),
        bs.Diurnal(800, 1.05, 25),
    ],
    ids=repr,
)  # fmt: skip
def test_traffic_that_stays_the_same_is_not_flagged(workload):
    result = run(workload)
    assert result.summary()["drifting"] is False
    assert "DRIFTING" not in repr(result)


def test_a_night_does_not_drift_and_is_no_day():
    with pytest.warns(UserWarning, match="must cover whole periods of 100,000 s, got"):
        night = run(bs.Diurnal(800, 1.5, 100_000))
    assert night.summary()["drifting"] is False


@pytest.mark.filterwarnings("ignore:requests must cover whole periods")
@pytest.mark.parametrize("requests", [5_000, 20_000])
def test_the_rates_of_a_part_of_a_day_are_those_at_its_time(requests):
    # Nearly no arrivals at midnight: it takes longer than the count over the mean rate.
    part = run(bs.Diurnal(800, 2, 60), requests)
    cycle = 2 * math.pi * part.arrival_s[-1] / 60
    low, high = part.rate_range_per_s
    assert low == 0
    assert high == pytest.approx(800 * (1 - math.cos(cycle)) if cycle < math.pi else 1600, rel=0.02)


@pytest.mark.parametrize("keep", ["all", "summary"])
@pytest.mark.parametrize("period_s", [25, 2.5, 0.25])
def test_a_percentile_that_spans_a_drifting_day_is_flagged(keep, period_s):
    scenario = bs.Scenario(bs.Diurnal(800, 1.5, period_s), bs.SizeOrWait(32, 10), SERVICE)
    result = bs.simulate(scenario, 20_000, keep=keep)
    assert result.summary()["drifting"] is True
    assert result.rate_range_per_s == pytest.approx((400, 1200), rel=0.01)
    assert "DRIFTING    from 400/s to 1,200/s" in repr(result)


def recorded(workload, requests=20_000, seed=0):
    return bs.Trace(run(workload, requests).arrival_s)


@pytest.mark.parametrize("days", [1, 4])
def test_a_recorded_day_is_flagged_by_its_times_alone(days):
    low, high = run(recorded(bs.Diurnal(800, 1.6, 25 / days))).rate_range_per_s
    assert low == pytest.approx(320, rel=0.25)
    assert high == pytest.approx(1280, rel=0.25)


def test_a_trace_that_is_flat_is_hardly_ever_flagged():
    flagged = 0
    for seed in range(200):
        trace = bs.Trace(np.random.default_rng(seed).exponential(size=2000).cumsum())
        flagged += bs.simulate(bs.Scenario(trace, bs.SizeOrWait(8, 10), SERVICE), keep="summary").summary()[
            "drifting"
        ]
    assert flagged <= 3


def test_recorded_bursts_are_no_drift():
    assert run(recorded(bs.OnOff(2000, 200, 0.01, 0.02))).summary()["drifting"] is False


def test_the_warm_up_does_not_count_as_drift():
    times_s = np.concatenate([np.arange(5000) / 4000, 1.25 + np.arange(1, 15_001) / 800])
    scenario = bs.Scenario(bs.Trace(times_s), bs.SizeOrWait(32, 10), SERVICE)
    for keep in ("all", "summary"):
        assert bs.simulate(scenario, keep=keep).summary()["drifting"] is True
        assert bs.simulate(scenario, warmup=0.25, keep=keep).summary()["drifting"] is False


def test_a_trace_of_a_real_service_drifts_and_a_generated_one_does_not(shared_data):
    for name, drifts in (("AzureLLMInferenceTrace_conv.csv", True), ("mooncake_synth.csv", False)):
        trace = bs.Trace.from_csv(shared_data / "traces" / name, speedup=200)
        assert run(trace, None).summary()["drifting"] is drifts
