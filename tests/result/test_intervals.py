"""Intervals: do they hold what they promise?"""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

import batchsim as bs
from batchsim.result.metrics import metric
from batchsim.result.shares import effective, proportion
from batchsim.result.standard_error import NoInterval, Series, StandardError, standard_errors

ONE = bs.Affine(1, 0)  # a millisecond a request


def md1(load):
    return bs.Scenario(bs.Poisson(1000 * load), bs.SizeOrWait(1, 0), ONE)


def md1_mean_ms(load):
    return 1 + load / (2 * (1 - load))


BATCHES = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


# Coverage: of 200 independent runs the 95 % interval holds the true value in 90 to 99 %; of 100, where it may
# hold it more often, or a run is long. `make coverage` has 300 runs of each of many more settings.


def share_that_holds(scenario, key, truth, requests, seeds, **knobs):
    held = 0
    for seed in range(seeds):
        low, high = bs.simulate(scenario, requests, seed=seed, **knobs).interval(key)
        held += low <= truth <= high
    return held / seeds


@pytest.mark.parametrize(
    ("load", "requests", "knobs"),
    [
        (0.5, 5_000, {"warmup": 0.1}),
        (0.7, 20_000, {}),
        (0.8, 20_000, {"warmup": "auto"}),
        (0.8, 50_000, {"warmup": 0.1}),
        (0.8, 4_000, {"warmup": 0.1, "replications": 8}),
        (0.8, 4_000, {"warmup": 0.1, "replications": 8, "keep": "summary"}),
    ],
)
def test_the_interval_of_the_mean_holds_the_true_mean_of_m_d_1(load, requests, knobs):
    seeds = 100 if "replications" in knobs else 200
    held = share_that_holds(md1(load), "mean_latency_ms", md1_mean_ms(load), requests, seeds, **knobs)
    assert 0.90 <= held <= 0.99


@pytest.mark.parametrize(
    ("scenario", "key"),
    [(md1(0.5), "p50"), (md1(0.5), "p99"), (BATCHES, "p99"), (BATCHES, "utilisation"), (BATCHES, "p90_ms")],
)
def test_other_intervals_hold_what_a_run_fifty_times_as_long_says(scenario, key):
    long = bs.simulate(scenario, 1_000_000, seed=999, warmup=0.01, replications=2)
    truth = long.metrics.number(metric(key).key)
    assert 0.90 <= share_that_holds(scenario, key, truth, 20_000, 100, warmup=0.1) <= 1


def test_the_interval_of_m_m_1_s_99th_percentile_holds_it():
    # The latency of M/M/1 is exponential: its percentiles are known.
    scenario = md1(0.5).replace(service=ONE.with_noise(1, "exponential"))
    truth_ms = math.log(100) / (1 - 0.5)
    assert 0.90 <= share_that_holds(scenario, "p99", truth_ms, 40_000, 100, warmup=0.05) <= 1


def test_four_times_the_requests_halve_the_interval():
    widths = []
    for requests in (40_000, 160_000):
        spans = [
            np.diff(bs.simulate(BATCHES, requests, seed=seed).interval("mean_latency_ms"))
            for seed in range(20)
        ]
        widths.append(np.mean(spans))
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.15)


# What an interval is.


@pytest.mark.parametrize(
    ("scenario", "requests", "knobs"),
    [
        (BATCHES, 30_000, {"warmup": 0.1}),
        (BATCHES, 10_000, {"replications": 5}),
        (BATCHES, 10_000, {"replications": 5, "keep": "summary"}),
        (BATCHES.replace(queue_limit=30, servers=2, rate_per_s=4000), 50_000, {}),
    ],
    ids=["sections", "replications", "summaries", "rejections"],
)
def test_every_number_of_the_summary_has_an_interval_round_it(scenario, requests, knobs):
    run = bs.simulate(scenario, requests, **knobs)
    for key, value in run.summary().items():
        low, high = run.interval(key)
        assert low <= value <= high, key


def test_the_units_may_be_left_out_of_a_percentile_and_any_percentile_asked():
    run = bs.simulate(BATCHES, 50_000)
    assert run.interval("p99") == run.interval("p99_ms")
    low, high = run.interval("p97.5")
    assert low <= run.percentile(97.5) <= high


def test_a_higher_level_is_wider():
    run = bs.simulate(BATCHES, 50_000)
    for key in ("mean_latency_ms", "p99"):
        wide, narrow = run.interval(key, level=0.99), run.interval(key, level=0.5)
        assert wide[0] < narrow[0] < narrow[1] <= wide[1]  # both may end at 18.5 ms, which many requests take


def test_what_the_scenario_gives_has_no_width():
    run = bs.simulate(BATCHES, 1000)
    assert run.interval("saturation_per_s") == (run.scenario.saturation_per_s,) * 2
    assert run.interval("stable") == (1, 1)


def test_students_t_of_replications():
    run = bs.simulate(BATCHES, 5000, replications=6)
    means = np.array([each.mean_latency_ms for each in run.replications])
    half = 2.570581835636314 * means.std(ddof=1) / math.sqrt(6)  # t of 5 degrees, printed in every table
    # The upper end is as far in proportion: latencies have a long upper tail.
    ends = means.mean() - half, means.mean() * math.exp(half / means.mean())
    assert run.interval("mean_latency_ms") == pytest.approx(ends)


def test_a_run_that_repeats_itself_has_an_interval_without_width():
    run = bs.simulate(bs.Scenario(bs.Constant(100), bs.SizeOrWait(1, 0), ONE), 1000)
    low, high = run.interval("mean_latency_ms")
    assert low == pytest.approx(1, abs=1e-9)
    assert high == pytest.approx(1, abs=1e-9)


# Too little for an interval: NaN and a warning, not a false one.


def no_interval(run, key, why):
    with pytest.warns(UserWarning, match=why):
        assert np.isnan(run.interval(key)).all()


def test_clients_have_no_arrival_rate_and_no_load():
    run = bs.simulate(bs.Scenario(bs.ClosedLoop(3, 0.1), bs.SizeOrWait(2, 5), bs.Affine(5, 1)), 100)
    for key in ("offered_per_s", "load"):
        no_interval(run, key, "clients that wait for answers")


@pytest.mark.parametrize(
    ("requests", "key", "why"),
    [
        (319, "mean_latency_ms", "mean_latency_ms .* about 360 requests at load 0.325, got 319"),
        (3999, "p99", "p99_ms .* 4,000 requests at load 0.325, got 3,999"),
        (30_000, "p99.9", "40,000 requests at load 0.325, got 30,000"),
        (30_000, "p100", "extremes"),
        (1, "p50", "about 320 requests at load 0.325, got 1"),
    ],
)
def test_too_few_requests_have_no_interval(requests, key, why):
    no_interval(bs.simulate(BATCHES, requests), key, why)


def test_too_few_batches_have_no_interval():
    full = bs.simulate(BATCHES.replace(max_batch_size=64, max_wait_ms=math.inf), 64 * 39)
    no_interval(full, "mean_batch_size", "40 batches, got 39")


def test_short_replications_have_no_interval():
    no_interval(
        bs.simulate(BATCHES, 300, replications=4),
        "p99",
        "about 550 requests in each replication at load 0.325, got 300",
    )


def test_a_run_without_columns_or_replications_has_no_interval():
    run = bs.simulate(BATCHES, 5000, keep="summary")
    no_interval(run, "p50", "keep='summary'")


def test_a_queue_that_grows_without_end_has_no_interval():
    no_interval(bs.simulate(md1(1.2), 20_000), "mean_latency_ms", "stays finite, got load 1.2")


def test_a_day_has_no_interval_but_its_replications_do():
    day = md1(0.5).replace(workload=bs.Diurnal(500, 2, 200))
    no_interval(
        bs.simulate(day, 100_000), "p99", "needs 8 periods of 200 s, .* got 1: requests=800000 would do"
    )
    low, high = bs.simulate(day, 100_000, replications=4).interval("mean_latency_ms")
    assert low < high


@pytest.mark.parametrize(("load", "requests"), [(0.95, 5000), (0.9, 10_000)])
def test_a_run_too_short_for_its_load_has_no_interval_of_p99(load, requests):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [bs.simulate(md1(load), requests, seed=seed).interval("p99")[0] for seed in range(40)]
    assert np.isnan(given).all()


def test_the_utilisation_of_a_burst_that_comes_at_once_has_an_interval_that_holds_it():
    burst = bs.Scenario(bs.Trace(np.zeros(5000)), bs.SizeOrWait(8, 2), bs.Affine(1, 1))
    result = bs.simulate(burst)
    low, high = result.interval("utilisation")
    assert low <= result.utilisation == high == 1


def test_a_share_is_at_most_all():
    low, high = bs.simulate(md1(0.98), 200_000).interval("utilisation")
    assert low < 1
    assert high <= 1
    assert bs.simulate(BATCHES, 20_000).interval("wait_share")[1] <= 1


def test_the_warning_names_the_line_that_asked():
    with pytest.warns(UserWarning, match="an interval") as caught:
        bs.simulate(BATCHES, 10).interval("p99")
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("key", "knobs", "error", "message"),
    [
        ("p999", {}, ValueError, "a percentile must be at most 100, got 999"),
        ("p99ms", {}, ValueError, "one of the summary's, got 'p99ms'; did you mean 'p99_ms'?"),
        ("latency", {}, ValueError, "one of the summary's, got 'latency'"),
        (99, {}, TypeError, "must be named by text, got 99"),
        ("p99", {"level": 1}, ValueError, "level must be less than 1, got 1"),
        ("p99", {"level": 0}, ValueError, "level must be greater than 0, got 0"),
        ("p99", {"level": math.nan}, ValueError, "level must be a number, got nan"),
    ],
)
def test_an_interval_refuses(key, knobs, error, message):
    with pytest.raises(error, match=message.replace("?", r"\?")):
        bs.simulate(BATCHES, 100).interval(key, **knobs)


def test_a_percentile_of_a_run_of_weeks_has_an_interval():
    slow = bs.Scenario(bs.Poisson(0.002), bs.SizeOrWait(4, 0), bs.Affine(5e5, 0))
    low, high = bs.simulate(slow, 5000).interval("p50")
    assert 5e5 <= low <= high


def test_latencies_that_are_one_but_for_rounding_have_an_interval():
    # A lone request waits 10 ms and computes 6 ms: 16 ms, and a bit more or less.
    alone = bs.Scenario(bs.Poisson(5), bs.SizeOrWait(8, 10), bs.Affine(5, 1))
    low, high = bs.simulate(alone, 20_000).interval("p75")
    assert low == pytest.approx(16)
    assert high == pytest.approx(16)


# Silent intervals.


def test_intervals_of_several_keys_are_silent_and_say_why_there_is_none():
    run = bs.simulate(BATCHES, 1000)
    found = run.intervals(["p50", "mean_latency_ms", "p99", "load"])
    assert list(found) == ["p50", "mean_latency_ms", "p99", "load"]
    assert found["p50"] == run.interval("p50")
    assert found["load"] == (run.scenario.load, run.scenario.load)
    assert isinstance(found["p99"], NoInterval)
    assert "about 4,000 requests at load 0.325, got 1,000" in found["p99"].reason
    assert np.isnan(found["p99"]).all()


def test_the_interval_of_a_percentile_does_not_depend_on_what_is_asked_with_it():
    run = bs.simulate(BATCHES, 20_000)
    together = run.intervals(["p50", "p95", "p99", "utilisation"])
    for key, interval in together.items():
        assert run.intervals([key])[key] == interval


def test_a_binomial_interval_is_clopper_and_pearsons():
    # 8 of 10: (0.4439, 0.9748), in every table. So many sections that t is the normal's.
    assert proportion(0.8, 10, 0.95) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert proportion(0, 10, 0.95) == pytest.approx((0, 0.3085), abs=1e-4)
    assert proportion(1, 10, 0.95) == pytest.approx((0.6915, 1), abs=1e-4)


def test_fewer_sections_make_a_binomial_interval_wider():
    (low, high), (lower, higher) = (
        proportion(0.8, effective(0.8, StandardError(0.04, sections), 1000, 0.95), 0.95)
        for sections in (1000, 8)
    )
    assert lower < low < high < higher


def test_an_independent_share_is_worth_its_requests():
    assert effective(0.5, StandardError(math.sqrt(0.25 / 70), 10**9), 1000, 0.95) == pytest.approx(70)
    assert effective(0.5, StandardError(0.0, 16), 1000, 0.95) == 1000


def limited(load, queue_limit):
    """Return M/M/1 with a queue limit, and the exact fraction of the arrivals that it rejects."""
    noisy = bs.Affine(1, 0).with_noise(1, "exponential")
    places = queue_limit + 1  # the server's own, too
    rejected = (1 - load) * load**places / (1 - load ** (places + 1))
    return bs.Scenario(bs.Poisson(1000 * load), bs.SizeOrWait(1, 0), noisy, queue_limit=queue_limit), rejected


@pytest.mark.parametrize(("load", "queue_limit"), [(0.5, 13), (0.7, 20), (0.9, 60)])
@pytest.mark.parametrize("requests", [10_000, 30_000])
def test_bounds_on_rare_rejections_hold_the_exact_expectation_even_where_none_occurs(
    load, queue_limit, requests
):
    scenario, share = limited(load, queue_limit)
    held, none = 0, 0
    for seed in range(60):
        run = bs.simulate(scenario, requests, seed=seed)
        low, high = run.interval("rejected")
        held += low <= share * requests <= high
        if run.summary()["rejected"] == 0:
            none += 1
            assert low == 0 < high
    assert held >= 57
    assert none or share * requests > 1


def test_what_cannot_happen_is_surely_zero():
    run = bs.simulate(BATCHES, 10_000)
    assert run.interval("rejected") == run.interval("timed_out") == (0, 0)


SIZED = bs.Poisson(900).with_sizes(bs.Lognormal(80, 2, at_most=4000))
PADDED = bs.PaddedTime(2, 0.05, 0.002)
LEVELS = bs.Poisson(800).with_priorities({1: 0.2, 2: 0.8})
ENGINE = bs.StepTime(1, 4, 0.05, 0.0005, 0.00001)
LENGTHS = bs.Tokens(bs.Lognormal(30, 1, at_most=150), bs.Lognormal(20, 1, at_most=150))
ALONE = {"mean_forming_ms", "mean_computing_ms", "mean_batch_size"}  # of requests that compute 1 ms each
# The numbers that a scenario gives exactly: none but these may have an interval without a width.
GIVEN = {
    "limit": (md1(0.5).replace(queue_limit=40), {"timed_out", *ALONE}),
    "timeout": (md1(0.5).replace(timeout_ms=60), {"rejected", *ALONE}),
    "timeout of batches": (BATCHES.replace(timeout_ms=600), {"rejected"}),
    "delay": (
        md1(0.8).replace(timeout_ms=60, timeout_action="delay"), {"served", "rejected", "timed_out", *ALONE},
    ),
    "limits by level": (
        bs.Scenario(LEVELS, bs.SizeOrWait(1, 0), ONE, queue_limit={2: 90}, timeout_ms={1: 30}), ALONE,
    ),
    "actions by level": (
        bs.Scenario(
            LEVELS, bs.SizeOrWait(1, 0), ONE, timeout_ms={1: 30, 2: 90}, timeout_action={1: "delay"}
        ), {"rejected", *ALONE},
    ),
    "too large": (bs.Scenario(SIZED, bs.SizeOrWait(8, 2, max_batch_units=1000), PADDED), {"timed_out"}),
    "too large, rarely": (
        bs.Scenario(SIZED, bs.SizeOrWait(8, 2, max_batch_units=3999), PADDED), {"timed_out"}
    ),
    "too large, cut": (
        bs.Scenario(
            SIZED, bs.SizeOrWait(8, 2, max_batch_units=3999), PADDED, oversize_action="truncate"
        ), {"served", "rejected", "timed_out"},
    ),
    "clients": (bs.Scenario(bs.ClosedLoop(8, 0.02), bs.SizeOrWait(4, 1), bs.Affine(5, 0.25)), {
        "served", "rejected", "timed_out",
    }),
    "clients and a limit": (
        bs.Scenario(bs.ClosedLoop(8, 0.2), bs.SizeOrWait(4, 1), bs.Affine(5, 0.25), queue_limit=7),
        {"timed_out"},
    ),
    "idle servers": (
        bs.Scenario(bs.Poisson(5), bs.SizeOrWait(4, 0), ONE, servers=4, devices=2, host_ms=0.2),
        {"served", "rejected", "timed_out", "mean_forming_ms"},
    ),
    "nothing random": (
        bs.Scenario(bs.Constant(500), bs.SizeOrWait(1, 0), ONE),
        {
            "served", "rejected", "timed_out", "batches", "mean_latency_ms", "mean_queueing_ms", *ALONE,
        },
    ),
    "tokens": (
        bs.Scenario(bs.Poisson(5), bs.Continuous(8, 256), ENGINE, tokens=LENGTHS, timeout_ms=5000),
        {"rejected", "mean_forming_ms", "mean_preempted_ms"},
    ),
    "tokens, enough memory": (
        bs.Scenario(
            bs.Poisson(5), bs.Continuous(8, 256, kv_blocks=300, block_size=8), ENGINE, tokens=LENGTHS,
            queue_limit=20,
        ), {"timed_out", "mean_forming_ms"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("scenario", "given"), GIVEN.values(), ids=[*GIVEN])
def test_an_interval_has_a_width_unless_the_scenario_gives_the_number(scenario, given):
    run = bs.simulate(scenario, 6_000)
    summary = run.summary()
    intervals = run.intervals([key for key in summary if metric(key).random and metric(key).q is None])
    for key, (low, high) in intervals.items():
        assert math.isnan(low) or low - 1e-9 <= summary[key] <= high * (1 + 1e-9), key
    points = {key for key, (low, high) in intervals.items() if low == high}
    assert points - {"requests"} == given


def test_requests_that_are_too_large_are_rejected_about_as_often_as_their_sizes_say():
    scenario = GIVEN["too large"][0]
    share = (SIZED.sizes.quantile((np.arange(10**6) + 0.5) / 10**6) > 1000).mean()
    held = 0
    for seed in range(40):
        intervals = bs.simulate(scenario, 6_000, seed=seed).intervals(["rejected", "oversized", "served"])
        assert intervals["rejected"] == intervals["oversized"]
        low, high = intervals["rejected"]
        assert intervals["served"] == (6000 - high, 6000 - low)
        held += low <= 6000 * share <= high
    assert held >= 36


def test_two_runs_without_a_loss_may_differ_in_it():
    runs = [bs.simulate(md1(0.5).replace(queue_limit=limit), 6_000) for limit in (40, 50)]
    rows = bs.compare(*runs, keys=["served", "rejected", "batches", "mean_batch_size"])
    for key in ("served", "rejected", "batches"):
        assert rows[key].low < 0 < rows[key].high
    assert rows["mean_batch_size"][2:] == (0, 0, 0)


def test_many_rejections_are_known_as_well_as_any_mean():
    scenario, share = limited(1.2, 20)
    run = bs.simulate(scenario, 100_000)
    low, high = run.interval("rejected")
    assert low < run.summary()["rejected"] < high
    # Arrivals and services vary by the root of their number each.
    assert low < share * 100_000 < high < low + 5 * math.sqrt(2 * 100_000)


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.7])
def test_the_error_of_a_mean_grows_with_the_correlation_of_its_sections(correlation):
    random, whole, variances, few = np.random.default_rng(0), [], [], 0
    for _ in range(600):
        steps, values = random.normal(size=128), np.zeros(128)
        for place in range(1, 128):
            values[place] = correlation * values[place - 1] + steps[place]
        values = values[64:]  # without its beginning at 0
        sections = [values.reshape(count, -1).mean(axis=1) for count in (64, 16, 8)]
        series = Series(np.concatenate(sections)[np.newaxis], values.mean(keepdims=True), [1.0])
        ((error,),) = standard_errors([series], (64, 16, 8))
        if isinstance(error, StandardError):
            variances.append(error.value**2)
            whole.append(values.mean())
            few += error.sections == 8
    assert len(whole) > 400
    assert 0.1 < few / len(whole) < 0.8  # eight sections where neighbours resemble each other
    assert 0.85 < np.mean(variances) / np.var(whole) < 1.5


@pytest.mark.parametrize(("requests", "widening"), [(5_000, 1.8), (6_000, 1.55), (20_000, 1.0)])
def test_the_interval_of_a_trace_that_is_hardly_long_enough_is_wider(requests, widening):
    """A quiet trace looks long enough too soon; up to twice the necessary length, the error is enlarged."""
    trace = bs.Trace(np.cumsum(np.random.default_rng(1).exponential(1 / 800, requests)))
    result = bs.simulate(md1(0.8).replace(workload=trace))
    known = result.scenario.replace(workload=bs.Poisson(trace.offered_per_s))
    as_known = replace(result, runs=tuple(replace(run, scenario=known) for run in result.runs))
    (low, high), (low_known, high_known) = (each.interval("mean_latency_ms") for each in (result, as_known))
    assert (high - low) / (high_known - low_known) == pytest.approx(widening, rel=0.1)


def test_a_share_that_a_few_batches_made_may_be_zero():
    rare = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(1, 0), bs.Affine(0.5, 0))
    few, many = (bs.simulate(rare, requests) for requests in (1_000, 10_000))
    assert few.interval("utilisation")[0] == 0 < few.utilisation
    assert 0 < many.interval("utilisation")[0] < many.utilisation
