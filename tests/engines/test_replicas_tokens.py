"""Replicas that generate tokens: engines behind a router, as vLLM's data-parallel ranks."""

import numpy as np
import pytest
from oracles.agreement import assert_summaries_close, assert_totals_close
from refusals import refusals

import batchsim as bs
from batchsim.engines import estimates
from batchsim.engines.compiled import grid_runs
from batchsim.engines.compiled.token_summaries import summarise
from batchsim.engines.draws import Streams
from batchsim.engines.reference.router import TokenReplica
from batchsim.engines.token_log import draw_tokens
from batchsim.scenario.routing import NAMES, ByKey
from batchsim.scenario.saturation import load_to_tell
from batchsim.view.explorer.state import State
from batchsim.view.film.token_film import SeatFilm

TOKENS = bs.Tokens(bs.Lognormal(200, cv=1, at_most=2000), bs.Lognormal(100, cv=1, at_most=1000))
STEP = bs.StepTime(2, 8, 0.1, 0.001, 0.00001)
FOUR = bs.Scenario(
    bs.Poisson(48), bs.Continuous(32, 2048, kv_blocks=3000), STEP.with_noise(0.3), tokens=TOKENS, replicas=4,
)  # fmt: skip
ROUTINGS = [*(name for name in NAMES if name != "by_key"), ByKey(100)]
COLUMNS = ("arrival_s", "first_token_s", "finish_s", "latency_ms", "forming_ms", "queueing_ms", "status")


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_one_replica_is_a_run_without_a_router(routing):
    plain = bs.simulate(FOUR.replace(replicas=1), 1000)
    assert plain.run.log.replica is None
    result = bs.simulate(FOUR.replace(replicas=1, routing=routing, stale_ms=1.0), 1000)
    for name in (*COLUMNS, "batch_index"):
        assert np.array_equal(getattr(result, name), getattr(plain, name), equal_nan=True), name


def test_preemptions_of_all_replicas_are_in_the_order_of_their_steps():
    log = bs.simulate(FOUR.replace(kv_blocks=300), 300).run.log
    assert log.preempted_step.size > 10
    assert (np.diff(log.preempted_step) >= 0).all()


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_each_replica_is_a_run_of_the_requests_that_it_gets(routing):
    scenario = FOUR.replace(service=STEP, routing=routing, rate_per_s=80, queue_limit=4, timeout_ms=150)
    result = bs.simulate(scenario, 2000)
    assert set(result.status) == {bs.Status.SERVED, bs.Status.REJECTED, bs.Status.TIMED_OUT}
    for k in range(4):
        rows = np.flatnonzero(result.replica == k)
        lengths = bs.Tokens(result.prompt_tokens[rows].tolist(), result.output_tokens[rows].tolist())
        trace = bs.Trace(result.arrival_s[rows])  # which begins with its first arrival
        one = scenario.replace(workload=trace, tokens=lengths, replicas=1, routing="random")
        alone = bs.simulate(one, rows.size)
        assert np.array_equal(result.status[rows], alone.status)
        for name in ("ttft_ms", "latency_ms", "forming_ms", "queueing_ms"):
            assert np.allclose(getattr(result, name)[rows], getattr(alone, name), equal_nan=True), name


def test_random_routing_is_as_good_as_single_queues_of_a_quarter_of_the_traffic():
    # Poisson traffic split at random is Poisson.
    scenario = FOUR.replace(routing="random", rate_per_s=28)
    four = bs.simulate(scenario, 200_000, keep="requests")
    one = bs.simulate(scenario.replace(replicas=1, rate_per_s=7), 200_000, seed=1, keep="requests")
    for key in ("mean_latency_ms", "mean_ttft_ms", "mean_tpot_ms", "utilisation"):
        assert four.summary()[key] == pytest.approx(one.summary()[key], rel=0.01), key


@pytest.mark.parametrize("routing", ["round_robin", "least_tokens"])
def test_results_count_every_replica(routing, tmp_path):
    result = bs.simulate(FOUR.replace(routing=routing), 2000, warmup=0.2)
    each, summary = result.by_replica(), result.summary()
    assert each["requests"].sum() == 1600
    assert each["utilisation"].mean() == pytest.approx(summary["utilisation"])
    assert each["batches"].sum() == summary["batches"]
    assert each["ttft_p99_ms"].max() >= summary["ttft_p99_ms"] >= each["ttft_p99_ms"].min()
    parts = result.forming_ms + result.queueing_ms + result.computing_ms
    assert np.allclose(parts, result.latency_ms)
    story = result.story(1999)
    assert sum(to_s - from_s for _, from_s, to_s in story) * 1000 == pytest.approx(result.latency_ms[-1])
    assert np.array_equal(result.to_frame()["replica"], result.steps.server[result.batch_index])
    short = bs.simulate(result.scenario, 2000, warmup=0.2, keep="requests")
    for kept in (result, short):
        kept.save(tmp_path / "result.npz")
        loaded = bs.Result.load(tmp_path / "result.npz")
        assert np.array_equal(loaded.replica, result.replica)
        assert loaded.summary() == kept.summary()


def test_a_log_without_rows_of_steps_has_the_numbers_of_one_with_them(monkeypatch):
    scenario = FOUR.replace(routing="two_choices")
    whole = bs.simulate(scenario, 2000)
    monkeypatch.setattr(estimates, "PIECE", 100)
    short = bs.simulate(scenario, 2000, keep="requests")
    with pytest.raises(ValueError, match="steps must be kept"):
        _ = short.steps
    for name in (*COLUMNS, "replica", "ttft_ms"):
        assert np.allclose(getattr(short, name), getattr(whole, name), equal_nan=True), name
    for key, value in whole.summary().items():
        assert short.summary()[key] == pytest.approx(value, rel=1e-3), key
    both = [result.by_replica() for result in (whole, short)]
    assert np.isnan(both[1]["batches"]).all()  # rather than a wrong number
    unknown = ["batches", "mean_batch_size"]
    assert np.allclose(*(frame.drop(columns=unknown) for frame in both))


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_a_summary_is_that_of_the_kept_run(routing):
    scenario = FOUR.replace(routing=routing, rate_per_s=60, timeout_ms=900, watts={0: 50, 1: 100, 32: 300})
    kept, short = (bs.simulate(scenario, 3000, warmup=0.2, keep=keep) for keep in ("all", "summary"))
    assert_totals_close(short.run.metrics.totals, kept.run.metrics.totals)
    assert_summaries_close(short.summary(), kept.summary())
    totals, _ = summarise(scenario, 3000, Streams(scenario, 0), 600, 100)
    assert_totals_close(totals, kept.run.metrics.totals)


@pytest.mark.parametrize("routing", ["round_robin", "least_tokens", "fill_first"])
def test_a_cell_of_a_map_has_the_times_of_its_run(routing):
    plan = draw_tokens(FOUR.replace(routing=routing), 1000, 0)
    result = bs.simulate(plan.scenario, 1000)
    times = grid_runs.run_times(plan)
    assert np.array_equal(times.finish_s, result.finish_s)
    assert np.array_equal(times.token_s, result.first_token_s)


def test_the_explorer_shows_and_changes_replicas():
    scenario = FOUR.replace(routing="least_tokens", stale_ms=5)
    state = State.of(scenario)
    assert (state.replicas, state.routing, state.stale_ms) == (4, "least_tokens", 5)
    assert State.from_link(state.to_link()) == state
    assert state.scenario() == scenario
    assert "routing='least_tokens'" in state.python(1000)
    shown = [name for name in state.kind.controls if state.kind.relevant(name, vars(state))]
    assert {"routing", "stale_ms"} <= {*shown}
    assert "keys" not in shown
    plain = state.replace(replicas=1)
    assert not state.kind.relevant("routing", vars(plain))
    explorer = bs.explore(scenario, requests=500)
    assert explorer.result.scenario == scenario


def test_the_saturation_rate_is_that_of_all_replicas():
    one = FOUR.replace(replicas=1, rate_per_s=12)
    assert FOUR.saturation_per_s == pytest.approx(4 * one.saturation_per_s)
    assert FOUR.load == pytest.approx(one.load)
    assert load_to_tell(FOUR, roughly=True) == pytest.approx(load_to_tell(one, roughly=True))
    # One key has a third of the requests, so the replica that gets them has more than it can serve.
    for routing, is_stable in (("random", True), (ByKey(9, 1.0), False)):
        scenario = FOUR.replace(rate_per_s=50, routing=routing)
        assert (
            scenario.stable == (load_to_tell(scenario, roughly=False) < 1) == is_stable
        )  # the second: in maps


def test_least_tokens_sees_a_long_prompt_where_least_loaded_sees_one_request():
    # The first request is long. The second goes elsewhere; the third joins a request, the long or the short.
    tokens = bs.Tokens([1000, 10, 10], [100, 100, 100])
    scenario = FOUR.replace(workload=bs.Trace([0, 0.001, 0.002]), tokens=tokens, replicas=2)
    found = {
        name: bs.simulate(scenario.replace(routing=name)).replica.tolist()
        for name in NAMES
        if name != "by_key"
    }
    assert found["least_loaded"] == [0, 1, 0]
    assert found["least_tokens"] == [0, 1, 1]
    assert found["fill_first"] == [0, 0, 0]


def test_in_the_shortest_queue_a_request_that_waits_counts_as_four_that_run():
    # The only seat of each engine is taken for long; then requests wait, in turn.
    tokens = bs.Tokens([10] * 7, [100] * 7)
    one_seat = bs.Continuous(1, 64, kv_blocks=99)
    scenario = FOUR.replace(
        workload=bs.Trace([0, 0.001, 0.1, 0.1, 0.1, 0.1, 0.1]), rule=one_seat, tokens=tokens, replicas=2,
        routing="shortest_queue",
    )  # fmt: skip
    assert bs.simulate(scenario).replica.tolist() == [0, 1, 0, 1, 0, 1, 0]
    # With two engines of a seat, a replica serves one more: one that runs counts less than one that waits.
    few = scenario.replace(workload=bs.Trace([0, 0.001, 0.002, 0.003, 0.1, 0.1, 0.1]), servers=2)
    assert bs.simulate(few).replica.tolist() == [0, 1, 0, 1, 0, 1, 0]


def test_routing_by_load_shortens_the_tail():
    found = bs.compare_routing(FOUR, ["random", "round_robin", "shortest_queue", "least_tokens"], 20_000)
    ttft_ms = found.to_frame()["ttft_p99_ms"]
    assert ttft_ms["random"] > 1.5 * ttft_ms["round_robin"]
    assert ttft_ms["round_robin"] > 1.1 * ttft_ms["shortest_queue"]
    assert "TTFT p99" in repr(found)
    assert "least_tokens" in bs.compare_routing(FOUR, requests=100).results


def test_replicas_of_tokens_are_knobs_of_studies():
    over = {"replicas": [2, 4], "routing": ["round_robin", "least_tokens"]}
    table = bs.sweep(FOUR, over, requests=500, progress=False)
    for row in table.itertuples():
        result = bs.simulate(FOUR.replace(replicas=row.replicas, routing=row.routing), 500)
        assert row.ttft_p99_ms == result.summary()["ttft_p99_ms"]
    found = bs.tune(
        FOUR, bs.SLO(ttft_p99_ms=1000), {"replicas": [1, 2, 3, 4, 5]}, requests=2000, progress=False
    )
    assert 3 <= found.knobs["replicas"] <= 5


def test_a_scenario_with_replicas_of_tokens_is_written_and_read():
    scenario = FOUR.replace(routing="least_tokens", stale_ms=100)
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario


@refusals
def test_what_is_not_covered_is_refused():
    """
    FOUR.replace(autoscale=bs.Autoscale(most=3)) -> at most the autoscaler's most, 3, got 4
    bs.Scenario(bs.Poisson(9), bs.SizeOrWait(8, 2), bs.Affine(2, 1), routing="least_tokens")
        -> routing 'least_tokens' needs tokens=..., got none
    """


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_an_autoscaler_that_cannot_carry_what_comes_is_overloaded_as_any_other_scenario(engine):
    few = FOUR.replace(autoscale=bs.Autoscale("queue", 4, 1, 2, 0.5, 0.5), replicas=1)
    result = bs.simulate(few, 300, engine=engine)
    assert not few.stable
    assert not result.summary()["stable"]
    assert result.scaling.up.max() == 2
    with pytest.warns(UserWarning, match="needs a queue that stays finite"):
        assert np.isnan(result.interval("mean_latency_ms")).all()


def test_an_autoscaler_of_engines_starts_and_stops_them_when_it_says():
    # An engine with one seat computes each of 40 requests in a step of 125 ms: just before 1 s, 32 wait.
    auto = bs.Autoscale("queue", target=4, least=1, most=4, startup_s=1.5, every_s=1)
    scenario = FOUR.replace(
        workload=bs.Trace([0] * 40 + [6, 7]), rule=bs.Continuous(1, 64, kv_blocks=99),
        service=bs.StepTime(125, 0, 0), tokens=bs.Tokens([10] * 42, [1] * 42), replicas=1, autoscale=auto,
    )  # fmt: skip
    fast, plain = (bs.simulate(scenario, engine=engine) for engine in ("compiled", "simpy"))
    assert fast.scaling.equals(plain.scaling)
    assert fast.scaling.signal.tolist()[1:] == [32, 24, 4, 2, 0, 0, 0]
    assert fast.scaling.asked.tolist() == [1, 4, 4, 4, 2, 1, 1, 1]
    assert fast.scaling.up.tolist() == [1, 1, 1, 4, 2, 1, 1, 1]


def test_the_utilisation_asks_for_engines_where_nothing_waits():
    # An engine computes while it has a request, and at a ninth of the load it nearly always has one.
    found = {}
    for signal in ("utilisation", "queue"):
        auto = bs.Autoscale(signal, most=4, startup_s=1, every_s=5)
        scenario = FOUR.replace(rate_per_s=6, replicas=1, autoscale=auto, routing="least_loaded")
        found[signal] = bs.simulate(scenario, 3000)
    assert scenario.load < 0.15
    assert found["queue"].scaling.asked.max() == 1
    assert found["utilisation"].summary()["mean_replicas"] > 2


def test_films_show_the_engines_of_all_replicas():
    film = SeatFilm.of(bs.simulate(FOUR, 100))
    assert film.servers == len(film.busy) == 4


@pytest.mark.parametrize("signal", ["utilisation", "queue", "p99"])
@pytest.mark.parametrize("workload", [bs.Poisson(5), bs.ClosedLoop(3, 0.2)], ids=["open", "closed"])
def test_an_autoscaler_that_looks_between_requests_sees_the_columns_once_a_request(
    monkeypatch, signal, workload
):
    looks, seen = [], TokenReplica.seen
    monkeypatch.setattr(
        TokenReplica, "seen", property(lambda self: looks.append(self.env.now) or seen.fget(self))
    )
    auto = bs.Autoscale(signal, {"p99": 300.0}.get(signal), most=2, startup_s=0.05, every_s=0.002, hold_s=0.1)
    scenario = FOUR.replace(workload=workload, autoscale=auto, replicas=1, queue_limit=3)
    result = bs.simulate(scenario, 15, engine="simpy")
    assert len(result.scaling) > 500
    assert 0 < len(looks) <= 2 * 15
    assert {*looks} <= {*result.arrival_s.tolist()}
    if isinstance(workload, bs.Poisson):
        fast = bs.simulate(scenario, 15, engine="compiled")
        assert fast.scaling.equals(result.scaling)
        for name in COLUMNS:
            assert np.array_equal(getattr(fast, name), getattr(result, name), equal_nan=True), name
