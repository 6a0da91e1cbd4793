"""Replicas behind a router: what each routing does, results per replica, and what is refused."""

import numpy as np
import pytest

import batchsim as bs
from batchsim.engines.draws import draw_cached
from batchsim.scenario.routing import NAMES, ByKey, TwoChoices

FOUR = bs.Scenario(
    bs.Gamma(3000, cv=2), bs.SizeOrWait(8, 2), bs.Affine(2, 0.25).with_noise(0.3), replicas=4, servers=2
)
ROUTINGS = [*(name for name in NAMES if name != "by_key"), ByKey(100)]


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


def test_replica_0_has_the_noise_of_a_single_queue():
    noisy = FOUR.replace(routing="random")
    result, alone = bs.simulate(noisy, 4000), bs.simulate(noisy.replace(replicas=1), 4000)
    own = result.batches.server < 2
    factors = [
        (each.batches.finish_s - each.batches.start_s)[which]
        / (2 + 0.25 * each.batches.batch_size[which])
        * 1000
        for each, which in ((result, own), (alone, slice(None)))
    ]
    assert np.allclose(factors[0], factors[1][: own.sum()], rtol=1e-5)


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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"replicas": 0}, "replicas must be at least 1, got 0"),
        ({"replicas": 1025}, "replicas must be at most 1,024, got 1025"),
        ({"routing": "two_choises"}, "did you mean 'two_choices'"),
        ({"routing": "by_key"}, "needs keys"),
        ({"stale_ms": -1}, "stale_ms must be at least 0, got -1"),
        ({"replicas": 1000, "servers": 66}, "66,000"),
    ],
)
def test_bad_replicas_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        FOUR.replace(changes)


def test_bad_keys_are_refused():
    with pytest.raises(ValueError, match="keys must be one a request, 3, got 2"):
        bs.simulate(FOUR.replace(routing=ByKey([1, 2])), 3)
    with pytest.raises(ValueError, match="keys must be at least 1, got 0"):
        ByKey(0)
    with pytest.raises(TypeError, match="routing must be one of"):
        FOUR.replace(routing=TwoChoices)
