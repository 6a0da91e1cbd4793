"""How long a run must be: no interval of one too short for its load, its bursts or its noise."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines.autoscaling import rises
from batchsim.result.metrics import metric
from batchsim.result.run_length import RunLength, rounded_up, run_length
from batchsim.result.size_variety import size_variety
from batchsim.scenario.saturation import filled_by, requests_to_fill
from batchsim.study.judgement import judge

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


# Sizes.


def sized(sizes, rule=bs.SizeOrWait(1, 0), service=bs.PackedTime(0, 0, 0.02), load=0.8):  # noqa: B008
    scenario = bs.Scenario(bs.Poisson(20).with_sizes(sizes), rule, service)
    return scenario.replace(rate_per_s=load * scenario.saturation_per_s)


@pytest.mark.parametrize("cv", [1, 2])
@pytest.mark.parametrize("noise", [0, 1])
@pytest.mark.parametrize("key", ["mean_latency_ms", "p50_ms", "p99_ms", "utilisation"])
def test_sizes_need_the_length_of_noise_with_their_moments(cv, noise, key):
    # Products of lognormal factors are lognormal, and so is a time in proportion to such a size.
    both = math.sqrt((1 + cv**2) * (1 + noise**2) - 1)
    scenario = sized(bs.Lognormal(1000, cv), service=bs.PackedTime(0, 0, 0.02).with_noise(noise))
    as_noise = bs.Scenario(
        bs.Poisson(scenario.workload.rate_per_s), bs.SizeOrWait(1, 0), bs.Affine(20, 0).with_noise(both)
    )
    # Of noise, batches count as full ones at a load of 1.
    assert 0.98 < needed(scenario, key) / needed(as_noise, key) < 1.05 / 0.8


def test_one_size_for_all_needs_what_no_sizes_need():
    same = sized(bs.Uniform(7, 7), bs.SizeOrWait(8, 2), bs.PaddedTime(1, 0.1, 0.01))
    plain = same.replace(workload=bs.Poisson(same.workload.rate_per_s), service=bs.Affine(1, 0.17))
    for key in ("mean_latency_ms", "p50_ms", "p99_ms", "utilisation"):
        assert needed(same, key) == pytest.approx(needed(plain, key))


def test_the_variety_of_padded_batches_is_that_of_their_longest():
    # The longest of 8 from 0 to 1 has the moments 8/9, 8/10 and 8/12.
    full = bs.SizeOrWait(8, math.inf)
    found = size_variety(sized(bs.Uniform(1, 1_000_000), full, bs.PaddedTime(0, 0, 0.001)))
    assert found.requests == pytest.approx(8)
    assert found.squared_cv == pytest.approx(8 / 10 / (8 / 9) ** 2 - 1, rel=0.05)
    assert found.dispersion == pytest.approx(8 * found.squared_cv, rel=1e-6)
    assert found.surprise == pytest.approx(8 / 12 / (8 / 10) ** 2 - 1, rel=0.05)


@pytest.mark.parametrize(
    "rule",
    [
        bs.SizeOrWait(8, 2), bs.SizeOrWait(8, 2, max_batch_units=20_000),
        bs.Buckets((64, 256, 20_000), 8, 5), bs.SortedWindow(8, 5, 64),
    ],
    ids=["padded", "units", "buckets", "sorted"],
)  # fmt: skip
def test_more_varied_sizes_need_longer_runs_under_any_rule(rule):
    service = bs.PaddedTime(0.2, 0.05, 0.002)
    lengths = [needed(sized(bs.Lognormal(80, cv, at_most=20_000), rule, service)) for cv in (0, 1, 3)]
    assert 3 * lengths[0] < 2 * lengths[1] < lengths[2]


def test_sizes_in_runs_need_many_runs_and_the_same_sizes_shuffled_do_not():
    random = np.random.default_rng(3)
    lengths = random.geometric(1 / 40, 5000)
    sizes = np.repeat(random.choice([40, 360], lengths.size), lengths)[:150_000]
    in_runs, shuffled = (size_variety(sized(each)) for each in (sizes, random.permutation(sizes)))
    # The index of dispersion of a chain that changes with the chance p is (2 - p) / p times the variance.
    assert in_runs.dispersion == pytest.approx((2 * 40 - 1) * 0.8**2, rel=0.3)
    assert shuffled.run == 0
    assert in_runs.run > 40
    assert in_runs.surprise == pytest.approx(shuffled.surprise)
    assert needed(sized(sizes)) > 10 * needed(sized(random.permutation(sizes)))


def test_the_index_of_dispersion_of_two_alike_after_two_is_that_of_the_pairs(monkeypatch):
    monkeypatch.setattr("batchsim.result.size_variety.PILOT", 128)
    found = size_variety(sized(np.tile([40, 40, 360, 360], 32)))
    # Each is 0.8 from the mean, a pair 1.6; by chance 64 independent ones had a spread so far above theirs.
    assert found.dispersion == pytest.approx(1.6**2 / 2 / (1 + math.sqrt(2 / 63)), rel=1e-4)


def test_sizes_too_varied_for_a_run_have_no_interval_alone_or_compared():
    scenario = sized(bs.Lognormal(80, 3, at_most=20_000), service=bs.PackedTime(0.2, 0, 0.02))
    runs = [bs.simulate(each, 12_000) for each in (scenario, scenario.replace(servers=2))]
    assert (
        "requests at load 0.8, got 12,000" in runs[0].intervals(["mean_latency_ms"])["mean_latency_ms"].reason
    )
    assert math.isnan(bs.compare(*runs, keys=["mean_latency_ms"], silent=True)["mean_latency_ms"].low)


def test_clients_that_send_varied_sizes_need_longer_runs():
    loops = [
        bs.Scenario(
            bs.ClosedLoop(8).with_sizes(bs.Lognormal(80, cv)), bs.SizeOrWait(1, 0), bs.PackedTime(0, 0, 0.02)
        )
        for cv in (0, 3)
    ]
    assert needed(loops[0]) == 400
    assert needed(loops[1]) == pytest.approx(200 * 9, rel=0.1)


# What changes seldom and stays for long.

SLOW = bs.Autoscale("utilisation", least=1, most=8, startup_s=1, every_s=1)
SETTLED = bs.Scenario(
    bs.Gamma(2000, 3), bs.SizeOrWait(8, 5), BATCH, replicas=1, routing="least_loaded", autoscale=SLOW
)
RESTLESS = SETTLED.replace(
    workload=bs.Poisson(3000), autoscale=bs.Autoscale("queue", 4, 1, 6, startup_s=0.01, every_s=0.02)
)


@pytest.mark.parametrize("knobs", [{}, {"replications": 3}, {"replications": 3, "keep": "summary"}], ids=repr)
@pytest.mark.filterwarnings("ignore:an interval")
def test_few_changes_of_the_number_of_replicas_have_no_interval_and_many_have_one(knobs):
    # Runs of 40,000 hold the mean of long ones, 9.76 ms, in two of three: the number has settled anywhere.
    settled = bs.simulate(SETTLED, 40_000, warmup=0.1, **knobs)
    with pytest.warns(UserWarning, match=r"needs about [\d,]+ .*number of replicas rise and fall 30 times"):
        settled.interval("mean_replicas")
    for key in ("mean_latency_ms", "p50", "utilisation", "rejected", "throughput_per_s"):
        assert np.isnan(settled.interval(key)).all()
    restless = bs.simulate(RESTLESS, 20_000, warmup=0.1, **knobs)
    low, high = restless.interval("mean_replicas")
    assert low < bs.simulate(RESTLESS, 200_000, seed=9, keep="summary").metrics.number("mean_replicas") < high
    # A number that cannot change needs no change.
    fixed = SETTLED.replace(replicas=4, autoscale=bs.Autoscale(least=4, most=4))
    assert bs.simulate(fixed, 40_000, warmup=0.1, **knobs).interval("mean_latency_ms")[0] > 0


def test_settings_whose_number_of_replicas_hardly_changed_are_neither_compared_nor_judged_to_meet():
    a, b = (bs.simulate(SETTLED.replace(max_wait_ms=ms), 40_000, warmup=0.1) for ms in (5, 4))
    assert all(np.isnan(row.low) for row in bs.compare(a, b, silent=True).rows.values())
    assert judge(a, bs.SLO(p50_ms=1000)).unclear
    many = bs.simulate(RESTLESS, 20_000, warmup=0.1)
    assert judge(many, bs.SLO(p50_ms=1000)).meets
    assert judge(many, bs.SLO(p99_ms=1000)).unclear  # hundreds of rises would show it
    assert judge(bs.simulate(RESTLESS, 20_000), bs.SLO(p50_ms=1000)).unclear  # the first replicas start
    slower = bs.simulate(RESTLESS.replace(service=bs.Affine(6, 0.25)), 20_000, warmup=0.1)
    assert bs.compare(many, slower, "p50")["p50"].low > 0


def test_rises_are_counted_through_the_level_that_is_passed_most_seldom():
    # 2 and 3 alternate, and the number is 6 once in a while: those stays decide the mean.
    asked = np.tile([2, 3] * 8 + [6] * 4, 10)
    scaling = np.array([np.arange(asked.size), np.zeros(asked.size), asked, asked], float).T
    assert rises(scaling, np.array([0, 100, asked.size])).tolist() == [5, 5]
    rarely = np.where(asked == 6, np.tile([2, 3], 100), asked)
    rarely[101] = 6  # too rare to decide anything
    scaling[:, 2] = rarely
    assert rises(scaling, np.array([0, asked.size])).tolist() == [100]
    scaling[:, 2] = 4
    assert rises(scaling, np.array([0, 100, asked.size])).tolist() == [0, 0]


@pytest.mark.filterwarnings("ignore:an interval")
def test_a_rule_that_learns_for_good_needs_replications_where_requests_wait_without_limit():
    # In a third of its runs this rule learns too small a batch, and never again keeps up with 800/s.
    service = BATCH.with_noise(0.2)
    learned = bs.Scenario(bs.Poisson(800), bs.LearnedSizes(32, 50), service)
    rates = [bs.simulate(learned, 20_000, seed=seed, warmup=0.1).throughput_per_s for seed in range(6)]
    assert min(rates) < 200 < 790 < max(rates)
    with pytest.warns(UserWarning, match="needs replications"):
        assert np.isnan(bs.simulate(learned, 20_000).interval("throughput_per_s")).all()
    low, high = bs.simulate(learned, 20_000, replications=8).interval("throughput_per_s")
    assert low < 560 < high  # the mean of 60 runs
    assert bs.simulate(learned.replace(timeout_ms=50), 20_000).interval("throughput_per_s")[0] > 0


@pytest.mark.filterwarnings("ignore:the metrics include a cold start")
def test_compiling_is_no_part_of_an_interval():
    cold = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(4, 5), BATCH.compiling(300))
    for knobs in ({}, {"replications": 4}, {"replications": 4, "keep": "summary"}):
        with pytest.warns(UserWarning, match="at most 1% of the time is spent on compiling, got"):
            assert np.isnan(bs.simulate(cold, 10_000, **knobs).interval("mean_latency_ms")).all()
        low, high = bs.simulate(cold, 10_000, warmup=0.3, **knobs).interval("mean_latency_ms")
        warm = bs.simulate(cold.replace(service=BATCH), 200_000, seed=9).mean_latency_ms
        assert low < warm < high


def test_noise_that_lasts_and_stale_loads_need_runs_that_see_them_often():
    noisy = MM1.replace({"service": ONE.with_noise(0.2, "lognormal", 0.9, 2000), "rate_per_s": 300})
    assert needed(noisy, "throughput_per_s") >= 60 * 2000 > 2 * needed(noisy.replace(service=ONE))
    stale = BURSTS.replace({"workload": bs.Poisson(1500), "replicas": 4, "routing": "least_loaded"})
    assert needed(stale.replace(stale_ms=5000)) == 100 * 5 * 1500 > 2 * needed(stale)
    assert needed(stale.replace({"stale_ms": 5000, "routing": "random"})) == needed(
        stale.replace(routing="random")
    )


def test_a_run_needs_several_times_the_requests_that_fill_a_prefix_cache_or_leaves_them_out():
    tokens = bs.Tokens(400, 10, prefixes=bs.PrefixGroups(4000, 320))
    rule = bs.Continuous(8, 512, kv_blocks=40_000, prefix_reuse=True)  # room for 2,000 groups
    cached = bs.Scenario(bs.Poisson(10), rule, bs.StepTime(1, 4, 0.05), tokens=tokens)
    # n requests of 4,000 equal groups have seen 4,000 * (1 - exp(-n / 4,000)): 2,000 after 2,773.
    assert filled_by(tokens.prefixes, 2000) == 4096
    assert requests_to_fill(cached) == 4096
    length = RunLength(relaxation=1, cycle=0, flow=100, noise=0, fill=4096)
    utilisation = metric("utilisation")
    assert [length.needed(utilisation, dropped=dropped) for dropped in (0, 4000, 5000)] == [12_288, 288, 100]
    assert requests_to_fill(cached.replace(servers=2)) == 2 * requests_to_fill(cached)
    assert [
        requests_to_fill(cached.replace(each)) for each in ({"prefix_reuse": False}, {"kv_blocks": 400})
    ] == [
        0,
        32,
    ]
    # One group is all that is new, and of one that nearly all requests have little is.
    assert [filled_by(bs.PrefixGroups(*each), math.inf) for each in ((1, 9), (1000, 9, 50))] == [1, 1]


def test_a_day_needs_the_number_of_replicas_to_follow_each_period():
    auto = bs.Autoscale("utilisation", most=8, startup_s=0.2, every_s=0.2)
    day = SETTLED.replace(workload=bs.Diurnal(2000, 1.8, 5), autoscale=auto)
    run = bs.simulate(day, 80_000)
    assert run.metrics.totals.cycles < 30
    assert run.interval("mean_latency_ms")[0] > 0
    lazy = day.replace(autoscale=bs.Autoscale("utilisation", most=8, startup_s=0.2, every_s=0.2, hold_s=20))
    with pytest.warns(UserWarning, match="rise and fall"):
        assert np.isnan(bs.simulate(lazy, 80_000).interval("mean_latency_ms")).all()
