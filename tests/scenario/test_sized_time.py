"""Requests with sizes: their traffic, the times of padded and packed batches, and limits in units."""

import dataclasses
import math
import re

import numpy as np
import pandas as pd
import pytest

import batchsim as bs
from batchsim.scenario.full_batches import mean_seconds
from batchsim.scenario.toml import brief_tables

SIZES = bs.Lognormal(80, cv=1, at_most=512)
WORKLOAD = bs.Poisson(300).with_sizes(SIZES)
PADDED, PACKED = bs.PaddedTime(2, 0.2, 0.005), bs.PackedTime(2, 0.2, 0.005, per_pair_ms=1e-6)
TABLE = bs.SizeTable([1, 8, 32], [64, 512], [[1, 2], [3, 9], [8, 30]])
BUCKETED = bs.PaddedTime(2, 0.2, 0.005, 1e-5).padded_to([8, 32], [64, 512])
SUMMED = bs.SizeOrWait(32, 10, max_batch_units=700, units="summed")
LIMITED = bs.SizeOrWait(32, 10, max_batch_units=1000)
SERVICES = pytest.mark.parametrize("service", [PADDED, PACKED, TABLE, BUCKETED.compiling(30).with_noise(0.4)])
RULES = pytest.mark.parametrize("rule", [bs.SizeOrWait(32, 10), LIMITED, SUMMED])


# The traffic.


def test_sizes_have_a_stream_of_their_own_and_a_shorter_run_is_a_prefix():
    scenario = bs.Scenario(WORKLOAD, bs.SizeOrWait(8, 5), PADDED)
    short, long = bs.simulate(scenario, 100), bs.simulate(scenario.replace({"sizes.mean": 40}), 200)
    plain = bs.simulate(scenario.replace(sizes=None, service=bs.Affine(1, 0)), 200)
    assert np.array_equal(short.size, bs.simulate(scenario, 200).size[:100])
    assert (long.size[:100] <= short.size).all()
    assert np.array_equal(long.arrival_s, plain.arrival_s)
    assert plain.size is None
    assert "size" not in plain.to_frame()
    assert np.array_equal(short.to_frame()["size"], short.size)


def test_a_trace_has_its_own_sizes_also_from_a_file(tmp_path):
    trace = bs.Trace([0.0, 1.0, 3.0], sizes=[7, 512, 30])
    scenario = bs.Scenario(trace, bs.SizeOrWait(1, 0), bs.PackedTime(0, 0, 1))
    result = bs.simulate(scenario)
    assert result.size.tolist() == [7, 512, 30]
    np.testing.assert_allclose(result.latency_ms, [7, 512, 30])
    path = tmp_path / "trace.csv"
    path.write_text("at_s,tokens\n0,7\n1,512\n3,30\n")
    assert bs.Trace.from_csv(path, size_column="tokens") == trace
    assert trace.with_rate(7).sizes == trace.sizes
    path.write_text("at_s,tokens\n0,7\n1,0\n")
    with pytest.raises(ValueError, match=r"line 3: must be a whole number from 1 to 10,000,000, got '0'"):
        bs.Trace.from_csv(path, size_column="tokens")
    with pytest.raises(ValueError, match="sizes must be one for each of 3 arrivals, got 2"):
        bs.Trace([0.0, 1.0, 3.0], sizes=[7, 512])


@pytest.mark.parametrize("bad", [0, -3, math.nan, 1.5, 10**8])
def test_a_size_is_a_whole_number_from_1_on(bad):
    with pytest.raises((TypeError, ValueError), match=rf"sizes .*must be .*, got .*{bad}"):
        bs.Poisson(9).with_sizes([4, bad])


@pytest.mark.parametrize("workload", [WORKLOAD, bs.Gamma(9, cv=2).with_sizes([3, 1, 2], unit="pixels")])
@SERVICES
@RULES
def test_a_scenario_with_sizes_comes_back_from_toml(workload, service, rule):
    scenario = bs.Scenario(workload, rule, service, oversize_action="truncate")
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario


# Both engines, and a summary.


@SERVICES
@RULES
@pytest.mark.parametrize("action", ["reject", "truncate"])
def test_engines_and_summaries_agree(service, rule, action):
    limits = {"servers": 2, "queue_limit": 30, "timeout_ms": 90, "oversize_action": action}
    for workload in (WORKLOAD, WORKLOAD.with_rate(900), bs.ClosedLoop(9, 0.01).with_sizes(SIZES)):
        scenario = bs.Scenario(workload, rule, service, **limits)
        one, other = (bs.simulate(scenario, 1000, engine=engine) for engine in ("compiled", "simpy"))
        for name, column in vars(one.log).items():
            assert np.array_equal(column, getattr(other.log, name)), name
        summary, kept = bs.simulate(scenario, 1000, keep="summary").summary(), one.summary()
        for name, value in kept.items():
            close = 2e-3 if name.startswith("p") and name != "padding" else 1e-9
            np.testing.assert_allclose(summary[name], value, rtol=close, err_msg=name)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (37, 8)])
def test_equal_sizes_repeat_the_run_without_sizes_bit_for_bit(size, count):
    plain = bs.Scenario(bs.Poisson(700), bs.SizeOrWait(count, 5), bs.Affine(2, 0.5 + 0.01 * size), servers=2)
    workload = bs.Poisson(700).with_sizes(bs.Uniform(size, size))
    expected = bs.simulate(plain, 3000)
    for service in (bs.PaddedTime(2, 0.5, 0.01), bs.PackedTime(2, 0.5, 0.01)):
        for limit in (None, count * size):
            rule = bs.SizeOrWait(32 if limit else count, 5, max_batch_units=limit)
            found = bs.simulate(bs.Scenario(workload, rule, service, servers=2), 3000)
            for name in ("start_s", "finish_s", "batch_index"):
                assert np.array_equal(getattr(found, name), getattr(expected, name)), name
            assert np.array_equal(found.batches.trigger, expected.batches.trigger)


def test_a_batch_is_full_once_the_next_request_however_small_would_break_the_limit():
    def batches(sizes, rule):
        workload = bs.Trace(np.arange(len(sizes)) / 1000, sizes=sizes)
        result = bs.simulate(bs.Scenario(workload, rule, bs.PackedTime(0.1, 0, 0)))
        return [
            (b, bs.Trigger(t).name)
            for b, t in zip(result.batches.batch_size, result.batches.trigger, strict=True)
        ]

    padded, summed = (
        bs.SizeOrWait(9, 50, max_batch_units=100, units=units) for units in ("padded", "summed")
    )
    assert batches([30, 30, 30, 30], padded) == [(3, "FULL"), (1, "WAIT")]
    assert batches([30, 30, 30, 30], summed) == [(3, "FULL"), (1, "WAIT")]
    assert batches([50, 50, 30], padded) == [(2, "FULL"), (1, "WAIT")]  # without waiting for the third
    assert batches([10, 60, 20], padded) == [(1, "FULL"), (1, "FULL"), (1, "WAIT")]
    assert batches([10, 60, 20], summed) == [(3, "WAIT")]


# Metrics.


def test_padding_is_the_share_of_computed_units_that_carry_no_request():
    workload = bs.Trace([0, 0, 0], sizes=[10, 20, 40])
    found = bs.simulate(bs.Scenario(workload, bs.SizeOrWait(3, 0), PADDED))
    assert (found.batches.units.tolist(), found.batches.carried.tolist()) == ([120], [70])
    assert found.summary()["padding"] == pytest.approx(1 - 70 / 120)
    assert found.summary()["mean_units"] == 120
    packed = bs.simulate(bs.Scenario(workload, bs.SizeOrWait(3, 0), PACKED)).summary()
    assert (packed["padding"], packed["mean_units"]) == (0, 70)
    assert "padding" not in bs.simulate(bs.Scenario(workload, bs.SizeOrWait(3, 0), bs.Affine(1, 1))).summary()


def test_a_request_above_the_limit_is_rejected_or_truncated_and_counted():
    workload = bs.Trace([0, 1, 2], sizes=[10, 900, 40])
    scenario = bs.Scenario(workload, LIMITED.__class__(8, 5, max_batch_units=100), bs.PackedTime(0, 0, 1))
    rejects = bs.simulate(scenario)
    assert [bs.Status(each).name for each in rejects.status] == ["SERVED", "REJECTED", "SERVED"]
    truncates = bs.simulate(scenario.replace(oversize_action="truncate"))
    np.testing.assert_allclose(truncates.latency_ms, [15, 100, 45])  # one is full at once
    assert truncates.size.tolist() == [10, 900, 40]
    for result, rejected in ((rejects, 1), (truncates, 0)):
        assert (result.summary()["oversized"], result.summary()["rejected"]) == (1, rejected)


UNSERVED = bs.Scenario(
    bs.Poisson(500).with_sizes(bs.Uniform(7, 9)),
    bs.SizeOrWait(8, 2, max_batch_units=6), bs.PackedTime(1, 0, 0.1),
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:(an interval|requests must cover|comparing)")
@pytest.mark.parametrize(
    "workload",
    [bs.Constant(90), bs.OnOff(900, 50, 0.5, 0.5), bs.Diurnal(500, 1.5, 1), bs.ClosedLoop(8, 0.1)],
    ids=lambda workload: type(workload).__name__,
)
def test_where_every_request_is_too_large_nothing_is_served_and_no_server_is_ever_busy(workload):
    workload = workload.with_sizes(bs.Uniform(7, 9)).with_priorities({1: 1})
    scenario = UNSERVED.replace(workload=workload)
    assert (scenario.saturation_per_s, scenario.full_batches_per_s, scenario.stable) == (0, 0, True)
    assert scenario.load == 0 or isinstance(workload, bs.ClosedLoop)
    for keep in ("summary", "requests"):
        found = bs.simulate(scenario, 2000, keep=keep, warmup=0)
        summary = found.summary()
        assert (summary["served"], summary["rejected"], summary["utilisation"]) == (0, 2000, 0)
        intervals = [found.interval(key) for key in summary if not isinstance(summary[key], bool)]
        assert all(math.isnan(low) or low == high for low, high in intervals)
    assert found.by_priority()["served"].tolist() == [0]
    other = bs.simulate(scenario.replace(max_batch_units=20), 2000, warmup=0)
    assert math.isnan(bs.compare(found, other)["mean_latency_ms"].difference)


def test_a_search_says_that_every_request_is_too_large():
    scenario, slo = UNSERVED, bs.SLO(p99_ms=20)
    none = bs.tune(scenario, slo, {"max_batch_units": [4, 6], "servers": [1, 2]}, 1000, progress=False)
    assert not none.met
    assert "rejected for its size, above 4 units" in none.out_of_reach
    assert not re.search("nan|None|[.] [.]", none.explain())
    some = bs.tune(scenario, slo, {"max_batch_units": [6, 20]}, 20_000, progress=False)
    assert (some.met, some.rule.max_batch_units) == (True, 20)
    limit = bs.capacity(scenario, slo, requests=1000)
    assert (limit.met, limit.requests_simulated) == (False, 0)
    assert "rejected for its size, above 6 units" in repr(limit)


# Saturation.


def test_full_batches_carry_the_requests_that_are_rejected_for_their_size_meanwhile():
    small, all_ = (bs.Poisson(100).with_sizes(bs.Uniform(1, most)) for most in (10, 20))
    rule = bs.SizeOrWait(4, 0, max_batch_units=10)
    of_small, of_all = (bs.Scenario(each, rule, bs.PackedTime(1, 0, 1)) for each in (small, all_))
    assert of_all.full_batches_per_s == pytest.approx(2 * of_small.full_batches_per_s, rel=0.02)
    result = bs.simulate(of_all.replace(rate_per_s=1.2 * of_all.full_batches_per_s), 100_000)
    carried_per_s = result.throughput_per_s / (1 - result.summary()["rejected"] / 100_000)
    assert carried_per_s == pytest.approx(of_all.full_batches_per_s, rel=0.02)


@pytest.mark.parametrize("sizes", [bs.Uniform(9, 9), bs.Uniform(1, 100), bs.Geometric(70, 300)], ids=repr)
@pytest.mark.parametrize("largest", [1, 5, 64, 700])
def test_the_expected_longest_of_full_batches_is_that_of_the_distribution(sizes, largest):
    values = np.arange(1, 301)
    low = 1 - np.exp(values * np.log1p(-1 / 70))
    if isinstance(sizes, bs.Uniform):
        low = np.clip((values - sizes.low + 1) / (sizes.high - sizes.low + 1), 0, 1)
    low[-1] = 1
    chances = np.diff(low**largest, prepend=0)
    longest = mean_seconds(bs.PaddedTime(0, 0, 1), sizes, largest)[-1] * 1000 / largest
    assert longest == pytest.approx(chances @ values, rel=1e-4)
    in_table = mean_seconds(bs.SizeTable([1024], [50, 300], [[1, 2]]), sizes, largest)[-1] * 1000
    assert in_table == pytest.approx(1 + chances[50:].sum(), rel=1e-3)


@SERVICES
@pytest.mark.parametrize("rule", [bs.SizeOrWait(1, 0), bs.SizeOrWait(24, 10), LIMITED, SUMMED])
@pytest.mark.parametrize("action", ["reject", "truncate"])
def test_the_saturation_rate_is_the_throughput_of_an_overloaded_run(service, rule, action):
    service = dataclasses.replace(service, compile_ms=None)
    base = bs.Scenario(WORKLOAD, rule, service, servers=2, oversize_action=action)
    summary = bs.simulate(base.replace(rate_per_s=5 * base.saturation_per_s), 40_000, warmup=0.1).summary()
    rejected = summary["rejected"] / summary["requests"]
    served_per_s = base.saturation_per_s * (1 - rejected)
    assert summary["throughput_per_s"] == pytest.approx(served_per_s, rel=0.012 + 3 * base.saturation_error)


# Refused.


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"sizes": None}, r"PaddedTime\(.*\) needs the sizes of the requests, as .*, got Poisson\(rate"),
        ({"rule": LIMITED, "priorities": {1: 0.5, 2: 0.5}}, "in order of arrival, got priorities"),
        (
            {"rule": bs.LearnedSizes(8)},
            "pads with copies, and needs a time by batch size alone, got PaddedTime",
        ),
        ({"service": bs.SizeTable([32], [256], [[9]])}, "at most the service's largest length, 256, got 512"),
        ({"service": PACKED.compiling(9)}, "that compiles must have lengths to pad to, got none"),
        ({"oversize_action": "cut"}, "oversize_action must be one of reject, truncate, got 'cut'"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_facts(change, refusal):
    with pytest.raises(ValueError, match=refusal):
        bs.Scenario(WORKLOAD, bs.SizeOrWait(32, 10), PADDED).replace(change)


# Studies.


@SERVICES
def test_a_scaled_service_time_takes_a_factor_of_the_time(service):
    sizes = [3, 80, 400]
    assert service.scaled(0.4, 32)(sizes) == pytest.approx(0.4 * service(sizes))


SIZED = bs.Scenario(
    bs.Poisson(400).with_sizes(bs.Lognormal(80, cv=1, at_most=512)),
    bs.SizeOrWait(32, 10, max_batch_units=4096),
    bs.PaddedTime(2, 0.05, 0.002),
)


def test_tune_and_capacity_search_limits_in_units():
    slo = bs.SLO(p99_ms=30)
    found = bs.tune(SIZED, slo, over={"max_batch_units": [512, 4096]}, requests=20_000)
    assert found.met
    assert found.rule.max_batch_units == 512  # waits for fewer others
    assert "a wait" not in found.no_optimum
    overloaded = SIZED.replace(rate_per_s=1500)  # a limit of 512 tokens carries 1,086/s
    hopeless = bs.tune(overloaded, bs.SLO(p99_ms=10), over={"max_batch_units": [512, 4096]}, requests=20_000)
    assert not hopeless.met
    assert "a model" in hopeless.explain()
    assert 400 < bs.capacity(SIZED, slo, requests=20_000).rate_per_s < 1600


@pytest.mark.parametrize(("most", "tried"), [(900, [1800, 450]), (None, [])])
def test_a_rule_without_a_wait_is_tuned_and_its_limit_in_units_doubled_and_halved(most, tried):
    rule = bs.PrefetchedBatches(16, max_batch_units=most)
    found = bs.tune(SIZED.replace(rule=rule), bs.SLO(p99_ms=60), {"max_batch_size": [4, 16]}, requests=20_000)
    steps = found.neighbours[found.neighbours["step"].isin(["twice", "half"])]
    assert steps["value"].tolist() == tried


def test_a_sweep_of_a_trace_with_sizes_resumes_from_its_folder(tmp_path):
    trace = bs.Trace(np.cumsum(np.full(200, 0.003)), sizes=np.arange(1, 201))
    scenario = SIZED.replace(workload=trace)
    over = {"max_wait_ms": [1, 5]}
    first = bs.sweep(scenario, over, out=tmp_path / "sweep", progress=False)
    again = bs.sweep(scenario, over, out=tmp_path / "sweep", progress=False)
    pd.testing.assert_frame_equal(first, again)
    other = scenario.replace(workload=trace.with_sizes(np.arange(200, 0, -1)))
    with pytest.raises(ValueError, match="out must be this sweep's folder"):
        bs.sweep(other, over, out=tmp_path / "sweep", progress=False)
    tables = brief_tables(scenario)
    assert tables["workload"]["requests"] == 200
    assert "sizes" not in tables["workload"]
