"""What a run says of an objective: against theory, and where it cannot say."""

import math

import numpy as np
import pytest
from scipy.special import gammaincc

import batchsim as bs
from batchsim import theory
from batchsim.study.judgement import (
    STRICT,
    Estimate,
    Judgement,
    Verdict,
    fewest,
    judge,
    percentile,
    share_within,
)
from batchsim.study.slo import SLO, Objective

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
