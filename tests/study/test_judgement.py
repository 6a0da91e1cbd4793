"""What a run says of an objective, against theory; and what decides where no run tells settings apart."""

import itertools
import math

import numpy as np
import pytest
from oracles.slower import slower_by
from scipy.special import gammaincc

import batchsim as bs
from batchsim import theory
from batchsim.study.judgement import (
    STRICT,
    Candidate,
    Estimate,
    Judgement,
    Verdict,
    judge,
    percentile,
    share_within,
)
from batchsim.study.search import fewest
from batchsim.study.slo import SLO, Objective
from batchsim.study.tune import tune

T4 = bs.Affine(5, 0.25)
POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), T4)


def mm1n(room):
    return bs.Scenario(
        bs.Poisson(900),
        bs.SizeOrWait(1, 0),
        bs.Affine(1, 0).with_noise(1, "exponential"),
        queue_limit=room - 1,
    )


def share_of_mm1n_within(room, ms, load=0.9):
    """M/M/1 with room for so many: an accepted request that finds k computes for k + 1 exponential times."""
    found = load ** np.arange(room + 1) / np.sum(load ** np.arange(room + 1))
    return float(np.sum(found[:-1] * (1 - gammaincc(np.arange(1, room + 1), ms))))


@pytest.mark.parametrize("ms", [2, 8, 12])
def test_the_share_within_a_limit_is_known_with_its_interval_where_requests_are_lost(ms):
    truth, held = share_of_mm1n_within(12, ms), 0
    for seed in range(60):
        found = share_within(bs.simulate(mm1n(12), 10_000, seed=seed, warmup=0.05), ms)
        held += found.low <= truth <= found.high
    assert 0.88 <= held / 60 <= 1


def test_a_percentile_counts_a_lost_request_as_infinitely_late_in_its_interval_too():
    # Of M/M/1 with room for 12 requests 4 % are lost, so that the p90 of all is the p93.7 of the served.
    truth_ms = next(ms for ms in np.arange(1, 30, 0.01) if share_of_mm1n_within(12, ms) >= 0.9)
    held = 0
    for seed in range(60):
        run = bs.simulate(mm1n(12), 10_000, seed=seed, warmup=0.05)
        found = percentile(run, 90)
        assert found.value == run.percentile(90, unserved="inf") > run.percentile(90)
        held += found.low <= truth_ms <= found.high
    assert 0.88 <= held / 60 <= 1


def test_what_the_run_s_own_interval_does_not_know_of_bursts_is_not_known():
    # Some sixty bursts: of their 100,000 requests few are independent.
    bursts = bs.Scenario(bs.OnOff(2400, 300, 0.5, 1.5), bs.SizeOrWait(48, 3), T4)
    run = bs.simulate(bursts, 100_000, warmup=0.1)
    with pytest.warns(UserWarning, match="needs about"):
        assert math.isnan(run.interval("p99")[0])
    assert math.isnan(percentile(run, 99).low)
    assert judge(run, SLO(p99_ms=60)).verdict is Verdict.UNCLEAR


def test_a_percentile_of_more_than_are_served_is_infinite():
    run = bs.simulate(mm1n(12), 20_000)
    assert percentile(run, 99).value == math.inf
    judged = judge(run, SLO(p99_ms=1e6))
    assert judged.verdict is Verdict.FAILS
    assert judged.excess == math.inf


def test_the_loss_is_erlang_s_formula():
    truth = 0.9**12 * 0.1 / (1 - 0.9**13)
    run = bs.simulate(mm1n(12), 200_000, warmup=0.05)
    assert judge(run, SLO(max_loss=truth * 1.15)).verdict is Verdict.MEETS
    assert judge(run, SLO(max_loss=truth * 0.85)).verdict is Verdict.FAILS
    (loss,) = judge(run, SLO(max_loss=0.5)).estimates.values()
    assert loss.low < truth < loss.high


def test_a_throughput_is_what_is_offered_less_what_is_lost():
    run = bs.simulate(mm1n(12), 100_000, warmup=0.05)
    (loss,) = judge(run, SLO(max_loss=0.5)).estimates.values()
    (throughput,) = judge(run, SLO(min_throughput_per_s=1)).estimates.values()
    assert throughput.value == pytest.approx(900 * (1 - loss.value))
    assert throughput.low < run.throughput_per_s < throughput.high
    exact = judge(bs.simulate(POISSON, 5_000), SLO(min_throughput_per_s=1400))
    assert exact.verdict is Verdict.MEETS


def test_a_run_too_short_to_tell_is_unclear_and_no_failure():
    run = bs.simulate(POISSON.replace(max_wait_ms=0), 1_000, warmup=0.1)
    assert judge(run, SLO(p99_ms=18)).verdict is Verdict.UNCLEAR
    assert judge(run, SLO(p99_9_ms=60)).verdict is Verdict.UNCLEAR
    # But that a third are late is plain from as few.
    assert judge(run, SLO(p99_ms=12), level=STRICT).verdict is Verdict.FAILS


def test_an_overloaded_run_fails_however_it_looks():
    scenario = POISSON.replace(max_batch_size=8)
    assert judge(bs.simulate(scenario, 5_000), SLO(p99_ms=1e6)).verdict is Verdict.FAILS


def test_an_objective_at_the_very_truth_is_seldom_called_met():
    # Half of all estimates are below it; of 95 % intervals one in forty is.
    scenario = POISSON.replace(max_wait_ms=0)
    limit_ms = theory.expected(scenario).percentile(99)
    verdicts = [
        judge(bs.simulate(scenario, 10_000, seed=seed, warmup=0.1), SLO(p99_ms=limit_ms)).verdict
        for seed in range(200)
    ]
    assert verdicts.count(Verdict.MEETS) <= 12
    assert verdicts.count(Verdict.FAILS) <= 12
    assert verdicts.count(Verdict.UNCLEAR) >= 176


LOSSY = POISSON.replace(queue_limit=100)


@pytest.mark.parametrize(
    ("scenario", "slo"),
    [
        (POISSON.replace(workload=bs.Gamma(1900, 2)), SLO(p99_ms=1e6)),
        (POISSON.replace(workload=bs.Gamma(1900, 2)), SLO(mean_ms=1e6)),
        (POISSON.replace(workload=bs.OnOff(2000, 500, 0.1, 0.2)), SLO(p95_ms=1e6)),
        (LOSSY, SLO(max_loss=0.01)),
    ],
    ids=["p99", "mean", "bursts", "loss"],
)
def test_the_fewest_requests_that_prove_an_easy_objective_are_known_before_a_run(scenario, slo):
    least = math.ceil(fewest(scenario, slo))
    enough, short = (judge(bs.simulate(scenario, n), slo).meets for n in (least, round(0.95 * least)))
    assert enough
    assert not short


def test_a_percentile_near_its_limit_takes_a_run_with_an_interval_of_its_own():
    scenario, slo = POISSON.replace(workload=bs.Gamma(1900, 2)), SLO(p99_ms=30)
    least = math.ceil(fewest(scenario, slo, easy=False))
    assert least > fewest(scenario, slo)
    enough, short = (
        judge(bs.simulate(scenario, n), slo).estimates[slo.latency] for n in (least, round(0.95 * least))
    )
    assert math.isfinite(enough.high)
    assert math.isnan(short.high)


@pytest.mark.parametrize(
    ("objective", "value", "low", "high", "times"),
    [
        (Objective("p99_ms", 50, 99), 40, 39, 60, 1.2 * 4),  # its upper end is twice as far as the limit
        (Objective("p99_ms", 50, 99), 60, 50, 99, 1.2 * 15.21),
        (Objective("throughput_per_s", 100), 120, 60, 121, 1.2 * 9),  # its lower end, three times
        (Objective("p99_ms", 50, 99), 50, 40, 60, math.inf),
        (Objective("p99_ms", 50, 99), 40, math.nan, math.nan, math.nan),
    ],
)
def test_a_run_n_times_as_long_has_an_interval_narrower_by_the_root(objective, value, low, high, times):
    judgement = Judgement(Verdict.UNCLEAR, 1, objective, {objective: Estimate(value, low, high)})
    assert judgement.longer == pytest.approx(times, nan_ok=True)


def test_what_is_not_a_sample_has_no_fewest_requests():
    assert fewest(POISSON.replace(workload=bs.Trace([0, 1, 2])), SLO(p99_ms=50)) == 0
    assert fewest(LOSSY, SLO(max_loss=0)) == math.inf
    assert fewest(POISSON, SLO(max_loss=0.01)) == 0  # it loses none


# Candidates.


def full_run(scenario, requests):
    return bs.simulate(scenario, requests, warmup=0.1)


def row_of(found, **knobs):
    frame = found.candidates
    for name, value in knobs.items():
        frame = frame[frame[name] == value]
    (row,) = frame.to_dict("records")
    return row


# What a setting costs.


@pytest.mark.parametrize(
    ("knobs", "cost"),
    [
        ({"price_per_hour": 2}, 2 / 3600 / 1400 * 1e6),
        ({"price_per_hour": 2, "queue_limit": 9}, math.inf),  # only a run tells how many are served
        ({"queue_limit": 9, "servers": 3}, 3),
    ],
)
def test_a_setting_costs_what_is_known_before_it_runs(knobs, cost):
    assert Candidate({}, POISSON.replace(knobs)).cost == pytest.approx(cost)


# What `tune` takes.


def test_a_large_batch_without_wait_is_taken_before_a_small_one_with_one():
    # p99 0.03 ms apart, one way or the other, and four times the headroom.
    service = bs.published("resnet50/t4/mixed-fp16")
    scenario = bs.Scenario(bs.Poisson(450), bs.SizeOrWait(), service, servers=2)
    small, large = (
        full_run(scenario.replace(max_batch_size=size, max_wait_ms=ms), 50_000)
        for size, ms in ((4, 2), (32, 0))
    )
    row = bs.compare(small, large, ["p99"])["p99"]
    assert 0 < row.difference < 0.05
    assert row.low < 0 < row.high
    found = tune(scenario, SLO(p99_ms=50), {"rule": [small.scenario.rule, large.scenario.rule]}, 50_000)
    assert found.met
    assert found.rule == bs.SizeOrWait(32, 0)
    assert found.candidates["outcome"].tolist() == ["tied", "recommended"]
    assert [tie.knobs for tie in found.ties] == [{"rule": bs.SizeOrWait(4, 2)}]
    assert found.ties[0].advantage == "more headroom (saturation 2,948/s, not 749.8/s)"


@pytest.fixture(scope="module")
def tied():
    scenario = bs.Scenario(bs.Poisson(1350), bs.SizeOrWait(), bs.published("gpunet-175ms/v100-32gb/fp16"))
    return tune(scenario, SLO(p99_ms=30), {"max_batch_size": [16, 64], "max_wait_ms": [0, 2]}, 50_000, seed=1)


def test_the_explanation_and_the_reasons_say_why_one_as_fast_is_not_taken(tied):
    assert tied.rule.max_batch_size == 64
    assert tied.ties
    for tie in tied.ties:
        row = row_of(tied, **tie.knobs)
        assert row["outcome"] == "tied"
        assert row["requests"] in (10_000, 50_000)  # those on the frontier have full runs
        assert tie.advantage in row["why"]
        assert row["saturation_per_s"] <= tied.scenario.saturation_per_s
    assert f"it has {tied.ties[0].advantage}." in tied.explain()
    assert "No run tells its p99 from that with max_batch_size=" in tied.explain()


def test_a_setting_that_ties_is_not_clearly_slower_or_faster_than_the_fastest_of_them(tied):
    runs = [
        bs.simulate(tied.scenario.replace(knobs), 50_000, seed=1_000_001, warmup=0.1)
        for knobs in (tied.knobs, *(tie.knobs for tie in tied.ties))
    ]
    fastest = min(runs, key=lambda run: run.percentile(99))
    for run in runs:
        low, high = slower_by(run, fastest, "p99_ms")
        assert low <= 0 <= high


SCENARIOS = {
    "load 0.9": (POISSON.replace(rate_per_s=2200), SLO(p99_ms=60)),
    "bursts": (POISSON.replace(workload=bs.OnOff(2400, 300, 0.05, 0.15)), SLO(p99_ms=60)),
    "a light load": (POISSON.replace(rate_per_s=300), SLO(p95_ms=50)),
    "two servers": (POISSON.replace(servers=2, rate_per_s=2000), SLO(p99_ms=30)),
    "a closed loop": (POISSON.replace(workload=bs.ClosedLoop(40, 0.01)), SLO(p99_ms=60)),
    "a closed loop without thought": (POISSON.replace(workload=bs.ClosedLoop(32)), SLO(p99_ms=60)),
    "the mean, with noise": (POISSON.replace(service=T4.with_noise(0.5)), SLO(mean_ms=25)),
    "preferred sizes": (
        bs.Scenario(bs.Poisson(900), bs.PreferredSizes((4, 8), 8, 5), bs.Affine(3, 0.15)), SLO(p99_ms=40),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("scenario", "slo"), SCENARIOS.values(), ids=SCENARIOS)
def test_every_setting_with_more_headroom_is_clearly_slower_or_misses_the_objective(scenario, slo):
    if isinstance(scenario.rule, bs.PreferredSizes):
        over = {"rule": [bs.PreferredSizes((4, n), n, ms) for n in (8, 16, 32) for ms in (0, 2, 5)]}
        runs = {(rule,): scenario.replace(rule=rule) for rule in over["rule"]}
    else:
        over = {"max_batch_size": [4, 8, 16, 32, 64], "max_wait_ms": [0, 1, 4, 8]}
        runs = {
            pair: scenario.replace(dict(zip(over, pair, strict=True)))
            for pair in itertools.product(*over.values())
        }
    requests, key = 40_000, slo.latency.key
    found = tune(scenario, slo, over, requests=requests)
    assert found.met
    results = {knobs: full_run(point, requests) for knobs, point in runs.items() if point.stable}
    fastest = min(results.values(), key=lambda result: result.metrics.number(key))
    chosen = found.result.metrics.number(key)
    more = [
        r for r in results.values() if r.scenario.saturation_per_s > found.scenario.saturation_per_s * 1.001
    ]
    for result in more:
        assert slower_by(result, fastest, key).low > 0 or result.metrics.number(key) > chosen
        assert slower_by(result, found.result, key).low > 0 or slower_by(result, fastest, key).low > 0
    # And of its own headroom none that it cannot be told from has a much lower mean.
    mean_ms = found.result.mean_latency_ms
    for result in results.values():
        if result.scenario.saturation_per_s == found.scenario.saturation_per_s:
            ties = slower_by(result, fastest, key).low <= 0
            assert not ties or result.mean_latency_ms > mean_ms * 0.98


@pytest.mark.parametrize(
    ("scenario", "over", "expected"),
    [
        # Four clients never fill batches of 8, and a wait of 0 and none are the same.
        (
            bs.Scenario(bs.ClosedLoop(4), bs.SizeOrWait(8, 0), T4),
            {"max_batch_size": [8, 32, 16], "max_wait_ms": [0]},
            {"max_batch_size": 32, "max_wait_ms": 0},
        ),
        # One at a time, nobody waits for others.
        (
            bs.Scenario(bs.Poisson(100), bs.SizeOrWait(1, 0), T4),
            {"max_batch_size": [1], "max_wait_ms": [5, 2, 0, 8]},
            {"max_batch_size": 1, "max_wait_ms": 0},
        ),
        (
            bs.Scenario(bs.Poisson(20), bs.AtLeast(1, 16), T4),
            {"min_batch_size": [1], "max_batch_size": [32, 64, 48]},
            {"min_batch_size": 1, "max_batch_size": 64},
        ),
        # Requests could be lost, and none is: only equal latencies tie.
        (
            bs.Scenario(bs.Poisson(20), bs.SizeOrWait(16, 0), T4, queue_limit=500),
            {"max_batch_size": [32, 64, 48], "max_wait_ms": [0]},
            {"max_batch_size": 64, "max_wait_ms": 0},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("requests", [1_000, 20_000])
def test_of_settings_whose_runs_are_identical_the_preferred_is_taken(scenario, over, expected, requests):
    found = tune(scenario, SLO(p95_ms=60), over, requests=requests)
    assert found.knobs == expected


def test_a_trace_that_drifts_has_no_intervals_and_only_equal_latencies_tie():
    gaps_s = np.random.default_rng(3).exponential(np.repeat([1 / 400, 1 / 1500], 10_000))
    scenario = POISSON.replace(workload=bs.Trace(np.cumsum(gaps_s)))
    over = {"max_batch_size": [16, 32, 64], "max_wait_ms": [0, 4]}
    found = tune(scenario, SLO(p99_ms=60), over)
    assert found.met
    lowest = min(
        bs.simulate(scenario.replace(dict(zip(over, pair, strict=True)))).percentile(99)
        for pair in itertools.product(*over.values())
    )
    assert found.expected["p99_ms"].value == lowest


def test_the_fewest_servers_come_before_headroom_where_the_fastest_is_asked_for():
    # At 20/s a second server computes one request in twenty, a third hardly any.
    scenario = bs.Scenario(bs.Poisson(20), bs.SizeOrWait(8, 0), T4)
    found = tune(scenario, SLO(p50_ms=20), {"servers": [1, 2, 3, 4]}, requests=20_000, prefer="fastest")
    assert found.scenario.servers == 1
    assert "fewer servers" in found.explain() or not found.ties


# The frontier.

SIZES, WAITS = [1, 4, 8, 12, 16, 24, 32, 48, 64], [0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
GRID = {"max_batch_size": SIZES, "max_wait_ms": WAITS}


def test_nothing_on_the_frontier_is_better_than_another_in_all():
    rows = tune(
        POISSON.replace(rate_per_s=5000),
        SLO(p99_ms=25),
        {"servers": [2, 3, 4], "max_batch_size": [12, 16, 24, 32, 64], "max_wait_ms": WAITS},
        requests=20_000,
    ).frontier
    assert len(rows) >= 4
    assert rows["p99_ms"].is_monotonic_increasing
    costs = np.stack([rows["p99_ms"], -rows["saturation_per_s"], rows["servers"]], axis=1)
    for number, row in enumerate(costs):
        better = (costs <= row).all(axis=1) & (costs < row).any(axis=1)
        assert rows["outcome"][number] == "recommended" or not better.any()
    assert (rows["outcome"] == "recommended").any()


def test_the_frontier_is_of_full_runs(shared_data):
    # A trace whose load is near to the capacity: a short run misses its worst hour.
    trace = bs.Trace.from_csv(shared_data / "traces" / "AzureLLMInferenceTrace_conv.csv", speedup=300)
    scenario = bs.Scenario(trace, bs.SizeOrWait(), bs.published("gpunet-175ms/v100-32gb/fp16"))
    over = {"max_batch_size": [4, 8, 16, 32, 64], "max_wait_ms": [0, 2, 5, 10]}
    found = tune(scenario, SLO(p99_ms=1333), over)
    assert found.met
    for frame in (found.frontier, tune(POISSON, SLO(p99_ms=50), GRID, requests=20_000).frontier):
        assert frame["requests"].nunique() == 1
    for _, row in found.frontier.iterrows():
        point = scenario.replace(max_batch_size=row["max_batch_size"], max_wait_ms=row["max_wait_ms"])
        assert row["p99_ms"] == bs.simulate(point).percentile(99)


def test_settings_that_cannot_be_told_apart_are_on_the_frontier_once():
    # At 300/s batches of 16 hardly ever fill, so that those of 64 differ in their capacity alone.
    over = {"max_batch_size": [16, 64], "max_wait_ms": [0, 5]}
    found = tune(POISSON.replace(rate_per_s=300), SLO(p99_ms=50), over, requests=20_000)
    assert found.frontier["outcome"].tolist() == ["recommended"]
    assert (found.frontier["requests"] == 20_000).all()
