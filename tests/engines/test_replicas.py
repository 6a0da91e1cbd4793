"""Replicas behind a router: what each routing does, results per replica, and what is refused."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from refusals import refusals

import batchsim as bs
from batchsim.engines.compiled.summaries import summarise
from batchsim.engines.draws import Streams, draw_cached
from batchsim.scenario.routing import NAMES, ByKey, TwoChoices

FOUR = bs.Scenario(
    bs.Gamma(3000, cv=2), bs.SizeOrWait(8, 2), bs.Affine(2, 0.25).with_noise(0.3), replicas=4, servers=2
)
ROUTINGS = [*(name for name in NAMES if name not in ("by_key", "least_tokens")), ByKey(100)]


def run(routing, **changes):
    return bs.simulate(FOUR.replace(changes | {"routing": routing}), 20_000, seed=2)


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_the_metrics_of_all_are_those_of_the_columns(routing):
    result = run(routing, timeout_ms=5.0, queue_limit=6)
    summary, served = result.summary(), result.status == bs.Status.SERVED
    assert summary["served"] == served.sum()
    assert summary["batches"] == len(result.batches)
    assert summary["mean_latency_ms"] == pytest.approx(np.nanmean(result.latency_ms))
    assert summary["mean_forming_ms"] == pytest.approx(np.nanmean(result.forming_ms))
    busy_s = (result.batches.finish_s - result.batches.start_s).sum()
    assert summary["utilisation"] == pytest.approx(busy_s / 8 / result.batches.finish_s.max())
    parts = result.forming_ms + result.queueing_ms + result.computing_ms
    assert np.allclose(parts[served], result.latency_ms[served])
    story = result.story(int(np.flatnonzero(served)[-1]))
    assert sum(to_s - from_s for _, from_s, to_s in story) * 1000 == pytest.approx(
        result.latency_ms[served][-1]
    )


def test_a_wait_is_forming_while_its_own_replica_has_an_idle_server():
    # Replica 0 computes its only request until 10 ms; the one at replica 1 finds its server idle.
    scenario = bs.Scenario(bs.Trace([0, 0.001, 0.002]), bs.SizeOrWait(2, 4), bs.Affine(10, 0), replicas=2)
    result = bs.simulate(scenario)
    assert result.replica.tolist() == [0, 1, 0]
    assert result.start_s.tolist() == [0.002, 0.005, 0.002]
    assert result.forming_ms.round(9).tolist() == [2, 4, 0]
    assert not result.queueing_ms.round(9).any()


@pytest.mark.dear("the routed loop is compiled")
@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
@pytest.mark.parametrize("warmup", [0.0, 0.3])
def test_a_summary_has_the_metrics_of_a_run_that_keeps_its_columns(routing, warmup):
    scenario = FOUR.replace(routing=routing, timeout_ms=6.0, timeout_action="delay", devices=1, host_ms=0.5)
    kept, short = (
        bs.simulate(scenario, 5000, warmup=warmup, keep=keep).summary() for keep in ("all", "summary")
    )
    assert kept.keys() == short.keys()
    for name, value in kept.items():
        assert short[name] == pytest.approx(value, rel=2e-3 if name.startswith("p") else 1e-9), name


@pytest.mark.parametrize("routing", ["random", "round_robin", ByKey(100)], ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {}, {"max_wait_ms": math.inf}, {"queue_limit": 3, "devices": 1}, {"replicas": 40},
        {"workload": bs.Poisson(3000).with_priorities({1: 0.3, 2: 0.7})},
        {
            "workload": bs.Poisson(3000).with_sizes(bs.Lognormal(30, cv=1)),
            "service": bs.PaddedTime(2, 0.1, 0.01),
        },
    ],
    ids=["plain", "never", "limit", "40", "levels", "sizes"],
)  # fmt: skip
def test_a_summary_of_replicas_apart_is_that_of_the_whole_log(routing, changes):
    scenario = FOUR.replace({"routing": routing} | changes)
    kept = bs.simulate(scenario, 1500, warmup=0.1).metrics.totals
    for chunk in (7, 300):
        totals, histogram = summarise(scenario, 1500, Streams(scenario, 0), 150, chunk)
        for name, value in vars(kept).items():
            assert getattr(totals, name) == pytest.approx(value, rel=1e-12, abs=1e-12), name
        assert histogram.counts.sum() == kept.statuses[bs.Status.SERVED]


def test_the_memory_of_a_summary_of_replicas_apart_does_not_grow():
    scenario, peaks = FOUR.replace(routing="random"), []
    for requests in (20_000, 20_000, 100_000):  # the first compiles
        tracemalloc.start()
        summarise(scenario, requests, Streams(scenario, 0), 0, 2000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.1 * peaks[1]


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_maps_have_the_numbers_of_runs(routing):
    from batchsim.engines.compiled.grid_runs import run_many

    scenario, rules = FOUR.replace(routing=routing), [bs.SizeOrWait(4, 1), bs.SizeOrWait(8, 3)]
    many = run_many(draw_cached(scenario, 3000, 0, 8), rules, (50, 99), sections=64)
    for row, rule in enumerate(rules):
        result = bs.simulate(scenario.replace(rule=rule), 3000)
        assert many.percentiles_ms[row].tolist() == [result.percentile(50), result.percentile(99)]
        assert many.throughput_per_s[row] == pytest.approx(result.throughput_per_s, rel=1e-12)


@pytest.mark.parametrize("routing", ["random", "least_loaded", "fill_first"])
@pytest.mark.parametrize("action", ["reject", "truncate"])
def test_both_engines_agree_on_requests_with_sizes(routing, action):
    service = bs.PaddedTime(2, 0.1, 0.01).with_noise(0.3)
    sized = FOUR.replace(
        workload=FOUR.workload.with_sizes(bs.Lognormal(30, cv=1)), service=service, routing=routing,
        rule=bs.SizeOrWait(8, 2), oversize_action=action,
    )  # fmt: skip
    fast, plain = (bs.simulate(sized, 2000, engine=engine) for engine in ("compiled", "simpy"))
    for name in ("replica", "finish_s", "batch_index", "status", "size"):
        assert np.array_equal(getattr(fast, name), getattr(plain, name), equal_nan=name == "finish_s"), name
    short = bs.simulate(sized, 2000, keep="summary").summary()
    assert short["mean_latency_ms"] == pytest.approx(fast.mean_latency_ms)


def test_one_replica_is_the_plain_run_under_any_routing():
    plain = bs.simulate(FOUR.replace(replicas=1), 2000)
    for routing in ROUTINGS:
        result = bs.simulate(FOUR.replace(replicas=1, routing=routing, stale_ms=1.0), 2000)
        assert np.array_equal(result.finish_s, plain.finish_s)
        assert not result.replica.any()


def test_replica_0_has_the_noise_of_a_single_queue_and_each_other_its_own():
    noisy = FOUR.replace(routing="random")
    result, alone = bs.simulate(noisy, 4000), bs.simulate(noisy.replace(replicas=1), 4000)

    def factors_of(result, k):
        batches, own = result.batches, result.batches.server // 2 == k
        return ((batches.finish_s - batches.start_s) / (0.002 + 0.00025 * batches.batch_size))[own]

    factors = [factors_of(result, k) for k in range(4)]
    assert np.allclose(factors[0], factors_of(alone, 0)[: factors[0].size], rtol=1e-5)
    least = min(each.size for each in factors)
    correlations = np.corrcoef([each[:least] for each in factors])
    assert np.abs(correlations - np.eye(4)).max() < 5 / np.sqrt(least)


def test_routings_send_requests_where_they_say():
    share = {name: np.bincount(run(name).replica, minlength=4) / 20_000 for name in ("random", "round_robin")}
    assert np.allclose(share["random"], 0.25, atol=0.02)
    assert (share["round_robin"] == 0.25).all()
    filled = np.bincount(run("fill_first").replica, minlength=4)
    assert (np.diff(filled) < 0).all()
    assert filled[0] > 4 * filled[3]
    keys = run(ByKey(keys=[5, 5, 7, 7] * 5000)).replica
    assert len(set(keys[:4].tolist())) <= 2
    assert np.array_equal(keys[:4], keys[-4:])
    routings = "least_loaded", "two_choices", "round_robin", "random"
    means_ms = [run(name, rate_per_s=14_000).mean_latency_ms for name in routings]
    assert means_ms == sorted(means_ms)


def test_a_routing_with_a_function_of_its_own_is_not_the_one_that_it_extends():
    class Last(TwoChoices):
        @staticmethod
        def route(request, loads, draws, params):
            return loads.inside.size - 1

    class Renamed(TwoChoices):
        title = "Renamed"

    for engine in ("compiled", "simpy"):
        plain, renamed, last = (
            bs.simulate(FOUR.replace(routing=routing), 200, engine=engine).replica
            for routing in ("two_choices", Renamed(), Last())
        )
        assert np.array_equal(renamed, plain)
        assert (last == 3).all()


def test_the_shortest_queue_lies_between_one_queue_and_two_choices():
    from oracles.fleets import one_queue, two_choices_limit

    one = bs.Scenario(bs.Poisson(8 * 800), bs.SizeOrWait(1, 0), bs.Affine(1, 0).with_noise(1, "exponential"))
    fleet = one.replace(replicas=8, routing="least_loaded")
    low, high = bs.simulate(fleet, 100_000, replications=8, warmup=0.05).interval("mean_latency_ms")
    assert one_queue(8, 0.8) < low < high < two_choices_limit(0.8)


@pytest.mark.parametrize(
    ("routing", "replicas", "tolerance"),
    [("two_choices", 64, 0.02), ("two_choices", 8, 0.02), ("least_loaded", 2, 0.01)],
)
def test_routing_by_load_has_the_means_of_theory(routing, replicas, tolerance):
    from oracles.fleets import shortest_of_two, two_choices, two_choices_limit

    one = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(1, 0), bs.Affine(1, 0).with_noise(1, "exponential"))
    fleet = one.replace(replicas=replicas, routing=routing, rate_per_s=replicas * 700)
    found = bs.simulate(fleet, 200_000, warmup=0.1, replications=4).mean_latency_ms
    theirs = {64: two_choices_limit(0.7), 8: two_choices(0.7, 8), 2: shortest_of_two(0.7)}[replicas]
    assert found == pytest.approx(theirs, rel=tolerance)


def test_the_utilisation_misleads_an_autoscaler_where_batches_grow_with_the_queue():
    # With no wait, a server computes nearly always, whatever the load: here at 14 % of what it can carry.
    scenario = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(64, 0), bs.Affine(8, 0.14))
    assert scenario.load < 0.14
    assert bs.simulate(scenario, 50_000).utilisation > 0.97
    found = {}
    for signal in ("utilisation", "queue"):
        auto = bs.Autoscale(signal, most=8, startup_s=1, every_s=1)
        found[signal] = bs.simulate(scenario.replace(autoscale=auto, routing="least_loaded"), 50_000)
    assert found["queue"].scaling.asked.max() == 1
    assert found["utilisation"].summary()["mean_replicas"] > 4
    assert found["queue"].percentile(99) < 30


def test_old_loads_make_routing_worse():
    fresh, old, older = (
        run("least_loaded", stale_ms=ms, rate_per_s=14_000).mean_latency_ms for ms in (0, 5, 50)
    )
    assert fresh < old < older


def test_the_hottest_replica_decides_whether_the_queue_is_stable():
    even, skewed = (FOUR.replace(rate_per_s=12_000, routing=ByKey(100_000, how)) for how in (0, 2))
    assert even.stable
    assert not skewed.stable
    assert even.load == skewed.load
    assert skewed.router.hottest(4) > 0.5


@pytest.mark.parametrize("routing", ["two_choices", ByKey(100, 0.5), ByKey([1, 2, 3])])
def test_replicas_are_written_and_read(routing, tmp_path):
    scenario = FOUR.replace(routing=routing, stale_ms=2.5)
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
    assert hash(scenario)
    result = bs.simulate(scenario, 3)
    result.save(tmp_path / "run")
    again = bs.Result.load(tmp_path / "run")
    assert again.scenario == scenario
    assert np.array_equal(again.replica, result.replica)
    assert again.summary() == result.summary()
    assert again.to_frame().replica.tolist() == result.replica.tolist()


def test_closed_loops_run_in_simpy():
    scenario = FOUR.replace(workload=bs.ClosedLoop(20, think_s=0.01))
    assert bs.simulate(scenario, 500).engine == "simpy"
    with pytest.raises(ValueError, match="a ClosedLoop with replicas"):
        bs.simulate(scenario, 500, engine="compiled")
    with pytest.raises(ValueError, match="a ClosedLoop with replicas"):
        bs.simulate(scenario, 500, keep="summary")


def test_full_batches_of_sizes_are_those_of_all_replicas():
    sizes = bs.Poisson(500).with_sizes(bs.Uniform(2, 4))
    one = bs.Scenario(sizes, bs.SizeOrWait(8, 2, max_batch_units=16), bs.PackedTime(1, 0, 0.1))
    assert one.replace(replicas=3).full_batches_per_s == pytest.approx(3 * one.full_batches_per_s)


@refusals
def test_bad_replicas_are_refused():
    """
    FOUR.replace({"replicas": 0}) -> replicas must be at least 1, got 0
    FOUR.replace({"replicas": 1025}) -> replicas must be at most 1,024, got 1025
    FOUR.replace({"routing": "two_choises"}) -> did you mean 'two_choices'
    FOUR.replace({"routing": "by_key"}) -> needs keys
    FOUR.replace({"stale_ms": -1}) -> stale_ms must be at least 0, got -1
    FOUR.replace({"replicas": 1000, "servers": 66}) -> 66,000
    """


def test_bad_keys_are_refused():
    with pytest.raises(ValueError, match="keys must be one a request, 3, got 2"):
        bs.simulate(FOUR.replace(routing=ByKey([1, 2])), 3)
    with pytest.raises(ValueError, match="keys must be at least 1, got 0"):
        ByKey(0)
    with pytest.raises(TypeError, match="routing must be one of"):
        FOUR.replace(routing=TwoChoices)


def test_results_by_replica_are_those_of_its_columns():
    result = bs.simulate(FOUR.replace(routing="fill_first", timeout_ms=3.0), 8000, seed=2, warmup=0.25)
    table, kept = result.by_replica(), np.arange(8000) >= 2000
    assert table["requests"].sum() == 6000
    for k, row in table.iterrows():
        own = kept & (result.replica == k)
        assert row["requests"] == own.sum()
        assert row["share"] == pytest.approx(own.sum() / 6000)
        assert row["served"] == (own & (result.status == bs.Status.SERVED)).sum()
        if row["served"]:
            assert row["p99_ms"] == pytest.approx(np.nanpercentile(result.latency_ms[own], 99))
            assert row["mean_latency_ms"] == pytest.approx(np.nanmean(result.latency_ms[own]))
    assert table["utilisation"].mean() == pytest.approx(result.utilisation)
    assert table["batches"].sum() == result.summary()["batches"]
    assert result.imbalance == np.bincount(result.replica).max() / 2000


def test_routings_are_compared_under_one_traffic():
    found = bs.compare_routing(FOUR, requests=2000, seed=3)
    assert list(found.results) == ROUTINGS[:-1]
    plain = bs.simulate(FOUR.replace(routing="fill_first"), 2000, seed=3)
    assert np.array_equal(found.results["fill_first"].finish_s, plain.finish_s)
    table = found.to_frame()
    assert table.loc["fill_first", "p99_ms"] == plain.percentile(99)
    assert table.loc["fill_first", "imbalance"] == plain.imbalance
    assert "fill_first" in repr(found)
    assert list(bs.compare_routing(FOUR, ["random", ByKey(9)], 100).results) == ["random", repr(ByKey(9))]
    for wrong, words in (
        ((FOUR.replace(replicas=1),), "replicas must be at least 2, got 1"),
        ((FOUR, ["randon"]), "did you mean 'random'"),
        ((FOUR, []), "at least one, got none"),
        ((FOUR.replace(workload=bs.ClosedLoop(9)),), "workload must be open"),
    ):
        with pytest.raises(ValueError, match=words):
            bs.compare_routing(*wrong)


AUTO = bs.Autoscale("queue", target=4, least=1, most=4, startup_s=0.05, every_s=0.1)


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_cost_and_energy_are_those_of_the_columns(keep):
    watts = {0: 50, 1: 100, 8: 240}
    for scenario in (FOUR, FOUR.replace(replicas=1, autoscale=AUTO, routing="two_choices")):
        priced = scenario.replace(price_per_hour=3, watts=watts)
        result = bs.simulate(priced, 6000)
        summary = result if keep == "all" else bs.simulate(priced, 6000, keep=keep)
        found, b = summary.summary(), result.batches
        last_s = b.finish_s.max()
        replica_s = 4 * last_s
        if scenario.autoscale is not None:
            replica_s = found["mean_replicas"] * last_s
            steps, at_s = result.scaling, [*result.scaling.time_s, max(last_s, result.arrival_s[-1])]
            asked_s = float((steps.asked * np.diff(at_s)).sum())
            assert asked_s <= replica_s < asked_s + 0.2 * (steps.asked.diff() < 0).sum()
        server_s, busy_s = 2 * replica_s, b.finish_s - b.start_s
        assert found["cost_per_million"] == pytest.approx(3 / 3600 * server_s / 6000 * 1e6)
        joules = (np.interp(b.batch_size, [1, 8], [100, 240]) * busy_s).sum() + 50 * (server_s - busy_s.sum())
        assert found["joules_per_request"] == pytest.approx(joules / 6000)
        assert found["utilisation"] == pytest.approx(busy_s.sum() / server_s)
    assert not {"cost_per_million", "joules_per_request", "mean_replicas"} & {*run("random").summary()}


def test_the_cheapest_setting_says_what_a_percent_of_its_latency_costs():
    fleet = FOUR.replace(rate_per_s=5000, price_per_hour=2, routing="least_loaded")
    found = bs.tune(fleet, bs.SLO(p99_ms=12), {"replicas": [1, 2, 3]}, requests=4000, progress=False)
    assert found.met
    costs = found.costs.set_index("servers")
    for servers, row in costs.iterrows():
        assert row["cost_per_million"] == pytest.approx(2 / 3600 * servers / 5000 * 1e6)
        point = fleet.replace(replicas=int(row["replicas"]))
        full = bs.simulate(point, 4000, warmup=0.1)  # as in the search
        assert (row["p99_ms"], servers) == (full.percentile(99), point.all_servers)
    few, many = costs.iloc[-2], costs.iloc[-1]
    percent = 100 * (few["p99_ms"] - many["p99_ms"]) / few["p99_ms"]
    paid = many["cost_per_million"] - few["cost_per_million"]
    assert many["per_percent"] == pytest.approx(paid / percent)
    assert "each percent" in found.explain()
    unpriced = bs.tune(FOUR, bs.SLO(p99_ms=90), {"replicas": [3, 4]}, requests=1000, progress=False)
    with pytest.raises(ValueError, match="costs need price_per_hour"):
        _ = unpriced.costs


@pytest.mark.dear("closed loops of autoscaled replicas run in SimPy")
@pytest.mark.parametrize("workload", [bs.Poisson(6000), bs.ClosedLoop(60, 0.01)], ids=repr)
def test_the_cheapest_setting_has_the_lowest_cost_where_only_a_run_tells_it(workload):
    # All of them may have 4 replicas: those that keep the queue short pay for more of them.
    often = replace(AUTO, startup_s=0.001, every_s=0.001)  # a run must see the number change many times
    targets = {name: replace(often, target=target) for name, target in (("a", 1), ("b", 4), ("c", 8))}
    fleet = FOUR.replace(workload=workload, replicas=1, price_per_hour=2, autoscale=AUTO)
    cheap, fast = (
        bs.tune(fleet, bs.SLO(p95_ms=200), {"autoscale": targets}, 4_000, prefer=prefer, progress=False)
        for prefer in ("cheapest", "fastest")
    )
    for found in (cheap, fast):
        assert found.met
        for _, row in found.candidates.iterrows():
            run = bs.simulate(fleet.replace(autoscale=targets[row["autoscale"]]), 4_000, warmup=0.1)
            assert row["cost_per_million"] == run.metrics.number("cost_per_million")
    costs = cheap.candidates.set_index("autoscale")["cost_per_million"]
    names = {targets[name]: name for name in targets}
    assert (
        costs[names[cheap.knobs["autoscale"]]] <= 1.01 * costs.min() < costs[names[fast.knobs["autoscale"]]]
    )
    assert cheap.expected["p95_ms"].value > fast.expected["p95_ms"].value
    assert cheap.costs["cost_per_million"].is_monotonic_increasing


@pytest.mark.parametrize("startup_s", [1.5, 2])  # a replica is up at the very instant at which its start ends
def test_an_autoscaler_starts_and_stops_replicas_when_it_says(startup_s):
    # 200 requests at once, then none for 5 s: one waits at 2 s, and the fleet shrinks.
    times_s = [*np.full(200, 0.5), *np.arange(5.5, 9, 0.5)]
    auto = bs.Autoscale("queue", target=10, least=1, most=3, startup_s=startup_s, every_s=1, hold_s=2)
    scenario = bs.Scenario(
        bs.Trace(np.array(times_s) - 0.5), bs.SizeOrWait(1, 0), bs.Affine(10, 0), autoscale=auto
    )
    table = bs.simulate(scenario).scaling
    # Just before 1 s of the run, 99 of the 200 have been computed, one is, and 100 wait: at most 3 replicas.
    assert table.signal.tolist()[1:3] == [100, 0]
    assert table.asked.tolist() == [1, 3, 3, 3, 1, 1, 1, 1, 1]
    assert table.up.tolist() == [1, 1, 1, 3, 1, 1, 1, 1, 1]


@refusals
def test_bad_autoscalers_are_refused():
    """
    bs.Autoscale(least=5, most=3) -> least must be at most `most`, 3, got 5
    bs.Autoscale(most=1) -> most must be at least 2, got 1
    bs.Autoscale(signal="p99") -> target must be given in ms
    bs.Autoscale(target=1.5) -> target must be below 1
    bs.Autoscale(target=1) -> target must be below 1
    bs.Autoscale(signal="cpu") -> utilisation, queue, p99
    bs.Autoscale(every_s=0) -> every_s must be at least 0.001, got 0
    """


def test_autoscalers_that_can_never_carry_the_traffic_are_overloaded():
    over = FOUR.replace(replicas=1, rate_per_s=30_000, autoscale=bs.Autoscale(most=2))
    assert (over.saturation_per_s, over.stable) == (8000, False)
    assert over.replace(queue_limit=9).stable
    with pytest.raises(ValueError, match="at most the autoscaler's most, 2, got 4"):
        FOUR.replace(autoscale=bs.Autoscale(most=2))
    for wrong, words in (({0: 5}, "batch of 1 or more"), ({1: -1}, "at least 0, got -1")):
        with pytest.raises(ValueError, match=words):
            FOUR.replace(watts=wrong)


def test_replicas_and_routing_are_knobs_of_every_study():
    fleet = FOUR.replace(rate_per_s=5000, price_per_hour=2)
    over = {"replicas": [2, 4], "routing": ["random", "least_loaded"]}
    table = bs.sweep(fleet, over, requests=3000, progress=False)
    assert table["routing"].tolist() == ["random", "least_loaded"] * 2
    for row in table.itertuples():
        one = bs.simulate(fleet.replace(replicas=row.replicas, routing=row.routing), 3000).summary()
        assert (row.p99_ms, row.cost_per_million) == (one["p99_ms"], one["cost_per_million"])
    low, high = (
        bs.capacity(fleet.replace(routing=name), bs.SLO(p99_ms=12), requests=4000).rate_per_s
        for name in ("random", "least_loaded")
    )
    assert low < high < fleet.saturation_per_s
    runs = [bs.simulate(fleet.replace(routing=name), 40_000) for name in over["routing"]]
    assert bs.compare(*runs)["mean_batch_size"].low > 0  # chance leaves more batches small
    auto = fleet.replace(replicas=1, autoscale=AUTO)
    assert "replicas on average" in repr(bs.simulate(auto, 2000))


NOISY = bs.Affine(5, 0.25).with_noise(0.1)


@pytest.mark.parametrize("scenario", [
    bs.Scenario(bs.Poisson(10_000), bs.SizeOrWait(32, 10), NOISY, timeout_ms=1000),  # in the general loop
    bs.Scenario(bs.Poisson(10_000), bs.SizeOrWait(32, 10), NOISY),
    bs.Scenario(bs.Poisson(2000), bs.Continuous(32, 512), bs.StepTime(6.88, 9.997, 0.09631).with_noise(0.1),
                tokens=bs.Tokens(50, 2)),
])  # fmt: skip
def test_a_thousand_replicas_of_which_few_have_requests_need_little_memory(scenario):
    many = scenario.replace(replicas=1024, routing="fill_first")
    bs.simulate(many, 100)  # compiles the loop
    tracemalloc.start()
    result = bs.simulate(many, 10_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 4 < result.replica.max() < 20
    assert peak < 30e6  # with a row for each of the replicas it was 270 MB
