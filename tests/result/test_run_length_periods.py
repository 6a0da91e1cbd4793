"""A day's numbers are those of whole periods."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchsim as bs
from batchsim.result.run_length import Periods
from batchsim.result.sections import FINE
from batchsim.study.capacity import capacity
from batchsim.study.judgement import Verdict, judge
from batchsim.study.slo import SLO
from batchsim.study.tune import tune

BATCH = bs.Affine(5, 0.25)
DAY = bs.Scenario(bs.Diurnal(2000, 1.8, 86_400), bs.SizeOrWait(32, 0), BATCH)
MINUTE = DAY.replace(workload=bs.Diurnal(1000, 1.8, 60))
SECONDS = DAY.replace(workload=bs.Diurnal(1000, 1.8, 2))
KEYS = "mean_latency_ms", "p50_ms", "p99_ms", "throughput_per_s", "served"


def part(scenario, requests, **knobs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bs.simulate(scenario, requests, **knobs)


# How much of a day a run covers.


@given(peak=st.floats(1.01, 2), periods=st.integers(1, 1000), mean=st.floats(0.5, 1e6), first=st.floats(0, 3))
def test_whole_periods_are_whole_wherever_they_begin(peak, periods, mean, first):
    day = bs.Diurnal(mean, peak, 1.0)
    requests = day.nearest_whole(periods * mean)
    assert day.whole_periods(requests, round(first * mean)) == pytest.approx(requests / mean, abs=0.51)
    assert requests == pytest.approx(max(periods * mean, 1), abs=0.51)


@pytest.mark.parametrize("peak", [1.2, 1.8, 2])
@pytest.mark.parametrize("periods", [0.02, 0.5, 0.9, 1.1, 1.5, 20.3])
def test_a_part_of_a_period_is_not_whole(peak, periods):
    assert bs.Diurnal(1000, peak, 60).whole_periods(round(60_000 * periods)) == 0


def test_requests_are_reached_when_the_rate_s_integral_says_so():
    # Of a day without arrivals at midnight, a hundredth of the requests takes the first tenth.
    day = bs.Diurnal(1, 2, 1)
    for time in (0.1, 0.25, 0.5, 0.9, 3.1):
        assert day.reached_s(time - math.sin(2 * math.pi * time) / (2 * math.pi)) == pytest.approx(time)


def test_a_flat_day_has_no_periods():
    assert Periods.of(bs.Diurnal(1000, 1, 60), 1000) is None
    assert bs.simulate(MINUTE.replace(peak_to_mean=1), 20_000).interval("p50")[0] > 0


# What is warned of.


def test_a_run_of_a_part_of_a_day_warns_in_one_line_with_the_number_that_would_do():
    with pytest.warns(UserWarning, match="must cover") as caught:
        night = bs.simulate(DAY)
    (warning,) = caught
    assert str(warning.message) == (
        "requests must cover whole periods of 86,400 s, got 0.00289 of them:"
        " take requests=172800000, keep='summary', or another period_s"
    )
    assert warning.filename == __file__
    assert night.throughput_per_s == pytest.approx(400, rel=0.01)  # of midnight
    for key in KEYS:
        assert "needs whole periods of 86,400 s" in night.intervals([key])[key].reason


@pytest.mark.parametrize("knobs", [{}, {"warmup": 0.25}, {"keep": "summary"}, {"replications": 2}])
def test_the_number_that_a_warning_names_is_one_that_does(knobs):
    with pytest.warns(UserWarning, match="must cover whole periods of 60 s") as caught:
        bs.simulate(MINUTE, 100_000, **knobs)
    enough = int(str(caught[0].message).split("requests=")[1].split(",")[0])
    bs.simulate(MINUTE, enough, **knobs)  # warnings are errors


def test_a_sweep_warns_once():
    with pytest.warns(UserWarning, match="whole periods of 60 s") as caught:
        table = bs.sweep(MINUTE, {"max_batch_size": [8, 16, 32]}, 10_000, progress=False)
    assert len(caught) == 1
    assert table.p99_ms_low.isna().all()


# Intervals.


@pytest.mark.parametrize("periods", [8, 9, 16, 31, 64, 200])
def test_eight_whole_periods_have_intervals_from_sections_of_whole_periods(periods):
    run = bs.simulate(SECONDS, 2000 * periods)
    sections = run.runs[0].alike
    assert 8 <= sections.size <= min(periods, FINE)
    assert np.all(sections.totals.requests % 2000 == 0)
    intervals = run.intervals(("mean_latency_ms", "p50_ms", "throughput_per_s", "served"))
    assert all(low <= run.metrics.number(key) <= high for key, (low, high) in intervals.items())


def test_a_few_whole_periods_have_numbers_but_no_interval():
    run = bs.simulate(MINUTE, 120_000)
    reason = run.intervals(["p50"])["p50"].reason
    assert reason == "needs 8 periods of 60 s, or replications, got 2: requests=480000 would do"


def test_replications_of_whole_periods_have_intervals_and_those_of_a_part_do_not():
    low, high = bs.simulate(MINUTE, 60_000, replications=4).interval("mean_latency_ms")
    assert low < bs.simulate(MINUTE, 60_000, seed=9).mean_latency_ms < high
    run = part(MINUTE, 30_000, replications=4)
    assert "needs whole periods" in run.intervals(["mean_latency_ms"])["mean_latency_ms"].reason


def test_intervals_of_days_hold_the_throughput_and_the_mean():
    long = np.mean([bs.simulate(SECONDS, 400_000, seed=seed).mean_latency_ms for seed in (100, 101)])
    held = np.zeros(2, int)
    for seed in range(100):
        run = bs.simulate(SECONDS, 24_000, seed=seed)
        for place, (key, true) in enumerate((("throughput_per_s", 1000), ("mean_latency_ms", long))):
            low, high = run.interval(key)
            held[place] += low <= true <= high
    assert held.min() >= 90


def test_an_automatic_warmup_of_a_day_drops_whole_periods():
    for scenario, requests in ((SECONDS, 40_000), (MINUTE, 180_000)):
        run = bs.simulate(scenario, requests, warmup="auto")
        assert run.periods.whole == (requests - run.warmup_requests) / run.periods.day.requests_a_period
    # Those of the first 33 s are lost, more than half of the only period: it is all that there is to count.
    cold = MINUTE.replace(service=MINUTE.service.compiling(33_000), timeout_ms=100)
    with pytest.warns(UserWarning, match="a cold start in each of 2 replications$"):  # which has no remedy
        run = bs.simulate(cold, 60_000, warmup="auto", replications=2)
    assert (run.warmup_requests, run.periods.whole) == (0, 1)


# Verdicts.


def test_a_part_of_a_day_proves_nothing():
    night = judge(part(DAY, 100_000), SLO(p99_ms=25))
    assert night.verdict is Verdict.UNCLEAR
    assert night.too_short
    assert "needs whole periods" in night.partial
    # Neither that an objective is missed: the peak alone is not the day.
    assert judge(part(MINUTE, 30_000), SLO(p99_ms=5)).verdict is Verdict.UNCLEAR


def test_whole_days_decide():
    for requests in (60_000, 120_000, 480_000):
        run = bs.simulate(MINUTE, requests)
        assert judge(run, SLO(p99_ms=30)).verdict is Verdict.MEETS
        assert judge(run, SLO(p99_ms=10)).verdict is Verdict.FAILS


def test_tune_recommends_nothing_of_a_part_of_a_day():
    found = tune(DAY, SLO(p99_ms=25), {"servers": [1, 2]})
    assert not found.met
    (remedy,) = found.remedies
    assert (remedy.knob, remedy.value) == ("requests", 172_800_000)
    assert "A run of 172,800,000 requests might settle it." in found.explain()


def test_tune_takes_whole_days():
    found = tune(MINUTE, SLO(p99_ms=25), {"max_wait_ms": [0, 5]})
    assert found.met
    assert found.result.arrival_s.size == 120_000


def test_capacity_is_not_shown_by_a_part_of_a_day():
    found = capacity(DAY, SLO(p99_ms=25))
    assert not found.met
    assert math.isnan(found.rate_per_s)
    assert math.isnan(found.low_per_s)
    assert "no run can show p99 at most 25 ms; a period of 86,400 s takes" in repr(found)
    assert found.to_frame().empty


@pytest.mark.parametrize("period_s", [2, 60])
def test_capacity_runs_whole_days_at_every_rate(period_s):
    scenario = DAY.replace(workload=bs.Diurnal(1, 1.8, period_s))
    found = capacity(scenario, SLO(p99_ms=25), requests=40_000, tolerance=0.05)
    assert found.low_per_s <= found.rate_per_s < found.high_per_s
    for probe in found.probes:
        if probe.requests and not probe.fails:
            day = scenario.workload.with_rate(probe.rate_per_s)
            assert day.whole_periods(probe.requests)
    # Near its peak the rate is nearly twice the mean, so that it is half of what steady traffic may have.
    assert 0.4 < found.rate_per_s / (32 / 13 * 1000) < 0.6


# A trace is one sample.


def test_replications_of_a_trace_are_refused():
    trace = DAY.replace(workload=bs.Trace(np.arange(1000) / 800))
    with pytest.raises(ValueError, match=r"replications must be 1 with a Trace, .* got 8: one run"):
        bs.simulate(trace, replications=8)
    with pytest.raises(ValueError, match="replications must be 1 with a Trace"):
        bs.sweep(trace, {"max_batch_size": [8, 16]}, replications=2, progress=False)
    table = bs.sweep(
        DAY, {"workload": {"a": trace.workload, "b": bs.Poisson(800)}}, 1000, replications=2, progress=False
    )
    assert table.infeasible.str.contains("replications must be 1").tolist() == [True, False]
