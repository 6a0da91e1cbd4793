"""How long a run must be: no interval of one too short for its load, its bursts or its noise."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim.result.metrics import metric
from batchsim.result.run_length import rounded_up, run_length

ONE = bs.Affine(1, 0)
BATCH = bs.Affine(5, 0.25)
MM1 = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(1, 0), ONE.with_noise(1, "exponential"))
BURSTS = bs.Scenario(bs.OnOff(2400, 200, 5, 15), bs.SizeOrWait(32, 5), BATCH)


def needed(scenario, key="mean_latency_ms", **knobs):
    return run_length(scenario).needed(metric(key), **knobs)


def test_m_m_1_forgets_in_as_many_requests_as_its_relaxation_time_has():
    # 1 / (1 - sqrt(load))^2 service times (Cohen 1982), near saturation.
    scenario = MM1.replace(rate_per_s=999)
    assert run_length(scenario).relaxation == pytest.approx(1 / (1 - math.sqrt(0.999)) ** 2, rel=0.01)


@pytest.mark.parametrize(
    ("scenario", "requests", "key"),
    [
        (MM1, 2_000, "mean_latency_ms"),
        (MM1, 10_000, "mean_latency_ms"),
        (MM1, 100_000, "p99"),
        (MM1.replace(workload=bs.Gamma(900, 3)), 100_000, "mean_latency_ms"),
        (MM1.replace({"rate_per_s": 800, "service": ONE.with_noise(3)}), 100_000, "mean_latency_ms"),
        (BURSTS, 2_000, "mean_latency_ms"),
        (BURSTS, 100_000, "throughput_per_s"),
    ],
)
@pytest.mark.parametrize("warmup", [0.0, 0.1, "auto"])
@pytest.mark.filterwarnings("ignore:a warm-up")
def test_a_run_too_short_for_its_scenario_has_no_interval_and_says_what_length_would_do(
    scenario, requests, key, warmup
):
    run = bs.simulate(scenario, requests, warmup=warmup)
    with pytest.warns(UserWarning, match=r"needs about [\d,]+ requests at load") as caught:
        assert np.isnan(run.interval(key)).all()
    (warning,) = caught
    enough = int(str(warning.message).split("about ")[1].split()[0].replace(",", ""))
    assert requests < needed(scenario, metric(key).key) <= enough <= 1.2 * needed(scenario, metric(key).key)


def test_the_length_it_names_is_enough():
    requests = rounded_up(needed(MM1))
    low, high = bs.simulate(MM1, requests).interval("mean_latency_ms")
    assert low < high


@pytest.mark.parametrize(("load", "key"), [(0.8, "mean_latency_ms"), (0.8, "p90"), (0.9, "p50")])
def test_the_shortest_runs_that_have_an_interval_hold_the_truth_in_nine_of_ten(load, key):
    # The latency of M/M/1 is exponential, of mean 1 / (1 - load) service times.
    scenario = MM1.replace(rate_per_s=1000 * load)
    truth_ms = 1 / (1 - load)
    if (q := metric(key).q) is not None:
        truth_ms *= -math.log(1 - q / 100)
    requests = math.ceil(needed(scenario, key)) + 1
    runs = [bs.simulate(scenario, requests, seed=seed).intervals([key])[key] for seed in range(150)]
    given = [(low, high) for low, high in runs if not math.isnan(low)]
    assert len(given) >= 140  # the sections of a few resemble their neighbours
    assert sum(low <= truth_ms <= high for low, high in given) >= 0.9 * len(given)


def test_bursts_need_many_cycles_and_short_ones_fewer_requests():
    assert needed(BURSTS) >= 60 * 15_000
    assert needed(BURSTS.replace({"mean_on_s": 0.05, "mean_off_s": 0.15})) < needed(BURSTS) / 2


def test_constant_arrivals_and_services_need_nothing():
    assert needed(bs.Scenario(bs.Constant(900), bs.SizeOrWait(1, 0), ONE)) == 0


def test_a_queue_that_grows_has_a_throughput_but_no_latency():
    overload = MM1.replace(rate_per_s=1100)
    assert needed(overload) == math.inf
    assert needed(overload, "throughput_per_s") < math.inf
    assert needed(overload.replace(queue_limit=50)) < math.inf


def test_a_longer_queue_limit_is_forgotten_later():
    lengths = [needed(MM1.replace(queue_limit=limit)) for limit in (10, 50, 1000)]
    assert lengths == sorted(lengths)
    assert needed(MM1.replace(queue_limit=10**9)) == pytest.approx(needed(MM1))


def test_many_replications_each_need_a_length_for_the_start_that_they_share():
    alone, forty = needed(MM1), needed(MM1, replications=40)
    assert alone / 40 < forty < alone
    assert needed(MM1, replications=400) > forty
    assert needed(MM1, replications=400, dropped=5000) < forty


def test_the_tail_of_a_day_needs_many_days_if_its_peak_is_busy():
    scenario = MM1.replace(workload=bs.Diurnal(500, 1.8, 60))
    for peak, days in ((1.2, 0.42), (1.8, 6.7), (2, 50)):
        day = scenario.replace(peak_to_mean=peak)
        assert needed(day, "p99_ms") == pytest.approx(days * 30_000, rel=0.02)
        assert needed(day) == needed(MM1.replace(rate_per_s=500))


@pytest.mark.parametrize(
    ("workload", "dispersion"),
    [
        (bs.Poisson(3), 1), (bs.Constant(3), 0), (bs.Gamma(3, 2.5), 6.25), (bs.OnOff(5, 5, 1, 1), 1),
        (bs.Trace(np.arange(1.0, 100.0)), 0),
    ],
)  # fmt: skip
def test_the_dispersion_of_arrivals(workload, dispersion):
    assert workload.dispersion == pytest.approx(dispersion, abs=1e-9)


def test_the_dispersion_of_bursts_is_that_of_their_counts():
    bursts = bs.OnOff(300, 20, 0.2, 0.5)
    run = bs.simulate(bs.Scenario(bursts, bs.SizeOrWait(1, 0), bs.Affine(1e-6, 0)), 2_000_000)
    counts = np.histogram(run.arrival_s, np.arange(0, run.arrival_s[-1], 40))[0]
    assert counts.var() / counts.mean() == pytest.approx(bursts.dispersion, rel=0.2)


@pytest.mark.parametrize("times_s", [np.zeros(40), [0.0]])
def test_a_trace_without_a_span_has_a_run_length_behind_a_router(times_s):
    scenario = bs.Scenario(
        bs.Trace(times_s), bs.SizeOrWait(4, 5), bs.Affine(5, 1), queue_limit=50, replicas=2
    )
    assert run_length(scenario).needed(metric("mean_latency_ms")) >= 0
    with pytest.warns(UserWarning, match="an interval for mean_latency_ms needs"):
        assert np.isnan(bs.simulate(scenario).interval("mean_latency_ms")).all()
