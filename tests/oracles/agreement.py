"""One pass with every check: plain loop, SimPy, compiled loops, slices, summaries and folded steps agree."""

import dataclasses
import math
from unittest.mock import patch

import numpy as np
from oracles.naive import Naive
from oracles.naive_replicas import NaiveReplicas, NaiveScaler, NaiveTokenReplicas, zipf_keys
from oracles.naive_rules import NAIVE
from oracles.naive_sizes import Units
from oracles.plans import in_naive_words
from oracles.token_plans import columns_of, contents_of, lengths_of, naive

import batchsim as bs
from batchsim._clock import on_grid
from batchsim.engines import folded_log, gaps
from batchsim.engines.compiled import engine as compiled
from batchsim.engines.compiled import routed, summaries, token_engine, token_routed, token_summaries
from batchsim.engines.draws import Streams
from batchsim.engines.folded_log import FoldedLog
from batchsim.engines.log import warmup_requests
from batchsim.engines.reference import engine as reference
from batchsim.engines.reference import router
from batchsim.engines.replicas import without_steps
from batchsim.result import Result, Run
from batchsim.result.token_run import TokenRun

# A folded log repeats these columns to the last bit. Sums over several engines differ in their order.
OF_REQUESTS = (
    "arrival_s", "status", "batch_index", "preemptions", "start_s", "first_token_s", "finish_s", "latency_ms",
    "ttft_ms", "tpot_ms", "prefill_ms", "decode_ms", "preempted_ms", "computing_ms",
)  # fmt: skip


def assert_columns_equal(one, other, but=("outputs",)) -> None:
    """Two logs have the same columns, bit for bit."""
    for name, column in vars(other).items():
        if name not in but:
            mine = getattr(one, name)
            if isinstance(column, np.ndarray):
                assert mine.dtype == column.dtype, name
                assert np.array_equal(mine, column, equal_nan=column.dtype.kind == "f"), name
            else:
                assert mine == column, name


def assert_totals_close(found, expected, rtol=1e-12, **others) -> None:
    """Each total is within `rtol` of the expected one, or within its own of `others`."""
    for field in dataclasses.fields(found):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        np.testing.assert_allclose(a, b, others.get(field.name, rtol), atol=1e-9, err_msg=field.name)


class Replay:
    """A plan's randomness, drawn beforehand, as streams."""

    def __init__(self, plan):
        self.plan, self.service_s, self.slowdown = plan, plan.service_s, plan.slowdown
        self.cold_start, self.unit_cost, self.end_s = plan.cold_start, plan.unit_cost, plan.end_s

    def arrivals_s(self, requests, chunk, room=None):
        for begin in range(0, requests, chunk):
            yield self.plan.arrival_s[begin : min(begin + chunk, requests)]

    def noise(self):
        return self._drawer(self.plan.noise)

    def think(self):
        return self._drawer(self.plan.think_s)

    def priorities(self):
        return self._drawer(self.plan.priority)

    def sizes(self):
        return self._drawer(self.plan.size)

    @staticmethod
    def _drawer(values):
        if values is None:
            return None
        rest = iter(values)
        return lambda count: np.array([next(rest, 1) for _ in range(count)], values.dtype)


def naive_of(plan) -> Naive:
    """The plain loop's simulator of a plan of requests."""
    scenario, rule = plan.scenario, plan.scenario.rule
    at_least = isinstance(rule, bs.AtLeast)
    limited = isinstance(rule, bs.SizeOrWait) and rule.by_size
    spelling = Units if limited else NAIVE.get(type(rule).__name__, Naive)
    own = {}  # the parameters of the rule that only its own spelling has
    if spelling is not Naive:
        shared = {field.name for field in dataclasses.fields(Naive)}
        own = {name: getattr(rule, name) for name in rule.parameters() if name not in shared}
    return spelling(
        requests=plan.requests,
        service_s=scenario.service.count_s(rule.max_batch_size).tolist(),
        max_batch_size=rule.max_batch_size,
        max_wait_ms=math.inf if at_least else rule.max_wait_ms,
        enough=rule.min_batch_size if at_least else None,
        preferred=getattr(rule, "preferred", None),
        **in_naive_words(plan),
        **own,
    )


def naive_router_of(plan, make, kind=NaiveReplicas, scaler=None, size=None) -> NaiveReplicas:
    """The plain loop's router in front of the simulators that `make` returns."""
    scenario = plan.scenario
    keys = getattr(scenario.routing, "keys", None)
    if isinstance(keys, int):
        keys = zipf_keys(keys, scenario.routing.popularity, plan.chances)
    return kind(
        make, scenario.most_replicas, scenario.router.name, scenario.rule.max_batch_size,
        plan.chances.tolist(), keys, scenario.stale_ms,
        None if plan.arrival_s is None else plan.arrival_s.tolist(), plan.requests,
        getattr(scenario.workload, "clients", 0), None if plan.think_s is None else plan.think_s.tolist(),
        None if plan.priority is None else plan.priority.tolist(), scaler, size,
    )  # fmt: skip


def naive_scaler_of(scenario) -> NaiveScaler | None:
    """The plain loop's autoscaler of a scenario; None without one."""
    if scenario.autoscale is None:
        return None
    return NaiveScaler(
        *dataclasses.astuple(scenario.autoscale), scenario.replicas, scenario.rule.max_batch_size,
        scenario.servers, scenario.stale_ms / 1000,
    )  # fmt: skip


def naive_replicas_of(plan) -> NaiveReplicas:
    """The plain loop's simulator of a plan with replicas."""
    scenario, one = plan.scenario, plan.scenario.one

    def make(number):
        noise = None if plan.noise_of is None else plan.noise_of(number, plan.requests)
        return naive_of(dataclasses.replace(plan, scenario=one, noise=noise))

    size = None if plan.size is None else plan.size.tolist()
    return naive_router_of(plan, make, scaler=naive_scaler_of(scenario), size=size)


def knows_shapes(scenario) -> bool:
    """Whether a log tells what its batches compiled: see `Run.ready_s`."""
    return scenario.rule.computed_as is None or scenario.service.compile_ms is None


def assert_replicas_agree(plan, chunk=64) -> None:
    """Both engines and the plain loop agree on a plan with replicas."""
    log = router.run(plan)
    oracle = naive_replicas_of(plan).run()
    requests, batches = oracle.columns()
    result = Result((Run(plan.scenario, log),), 0, "")
    for name, column in requests.items():
        assert np.array_equal(getattr(result, name), column, equal_nan=name.endswith("_s")), name
    if oracle.scaler is not None:
        assert np.array_equal(log.scaling, oracle.scaler.rows, equal_nan=True)
    waits = batches.pop("device_wait")
    for name, column in batches.items():
        assert np.array_equal(getattr(result.batches, name), column), name
    if knows_shapes(plan.scenario):
        assert np.array_equal(result.run.device_time.wait_s, waits)
    if plan.arrival_s is not None:
        assert_columns_equal(routed.run(plan), log)
        small = patch.multiple(routed, LEAST_ROOM=1, FIRST_ROWS=1)
        with patch.object(compiled, "SLICE", chunk), small:
            assert_columns_equal(routed.run(plan), log)


def assert_equal_to_naive(scenario, log, oracle: Naive) -> None:
    run = Run(scenario, log)
    result = Result((run,), 0, "")
    requests = {
        "arrival_s": oracle.arrival, "start_s": oracle.start, "finish_s": oracle.finish,
        "batch_index": oracle.batch, "status": oracle.status,
    }  # fmt: skip
    batches = {
        "start_s": oracle.batch_start, "finish_s": oracle.batch_finish, "batch_size": oracle.size,
        "server": oracle.server, "trigger": oracle.trigger,
    }  # fmt: skip
    for name, column in requests.items():
        assert np.array_equal(getattr(result, name), column, equal_nan=name.endswith("_s")), name
    for name, column in batches.items():
        assert np.array_equal(getattr(result.batches, name), column), name
    if knows_shapes(scenario):
        assert np.array_equal(run.device_time.wait_s, oracle.device_wait)


def assert_requests_agree(plan, chunk=64, warmup=0.0) -> None:
    """All engines and summaries of a plan of requests agree; `chunk` cuts slices and summaries."""
    scenario, log = plan.scenario, compiled.run(plan)
    assert log.arrival_s.size == plan.requests
    assert_columns_equal(log, reference.run(plan))
    assert_equal_to_naive(scenario, log, naive_of(plan).run())
    times_s = np.concatenate([log.arrival_s, log.batch_start_s, log.batch_finish_s])
    assert np.array_equal(on_grid(times_s), times_s)
    with patch.object(compiled, "SLICE", max(chunk % 6, 1)):
        assert_columns_equal(compiled.run(plan), log)
    whole = Result((Run(scenario, log, warmup=warmup),), 0, "")
    skip = warmup_requests(warmup, plan.requests)
    sums = summaries.summarise(scenario, plan.requests, Replay(plan), skip, chunk)
    assert_totals_close(sums[0], whole.metrics.totals)
    summary = Result((Run(scenario, sums=sums, warmup=warmup),), 0, "")
    for q in (0, 50, 90, 99, 100):
        np.testing.assert_allclose(summary.percentile(q), whole.percentile(q), rtol=1e-3)


def assert_tokens_agree(plan, chunk=30, room=0, warmup=0.0) -> None:
    """All engines agree on a plan of tokens; `chunk` cuts chunks and slices, `room` limits the steps kept."""
    scenario, log, oracle = plan.scenario, token_engine.run(plan), naive(plan)
    assert_columns_equal(log, router.run_tokens(plan))
    continuous = isinstance(scenario.rule, bs.Continuous)
    for name, column in columns_of(oracle).items():
        if continuous or name != "step_blocks":
            assert np.array_equal(getattr(log, name), column), name
    assert np.array_equal(on_grid(log.batch_finish_s), log.batch_finish_s)
    ends_s = np.append(log.batch_finish_s, math.nan)
    for index, times_s in ((log.token_step, "first"), (log.last_step, "finish")):
        assert np.array_equal(ends_s[index], [getattr(r, times_s) for r in oracle.all], equal_nan=True)
    gaps = TokenRun(scenario, log).gaps
    each = [np.diff(request.tokens) for request in oracle.all]
    expected = np.sort(on_grid(np.concatenate(each)))
    assert np.array_equal(np.sort(np.repeat(gaps.gap_s, gaps.counts.astype(int))), expected)
    assert np.array_equal(log.stall_s, [gap.max(initial=0.0) for gap in each])
    if continuous:  # no token is lost, or computed twice but after a preemption
        served = log.status == bs.Status.SERVED
        needed = (plan.prompts + plan.outputs - 1)[served].sum()
        assert log.step_tokens.sum() == needed + sum(request.recomputed for request in oracle.all)
        assert log.preemptions.sum() == log.step_preempted.sum()
        assert (log.last_step - log.batch_index)[served].min(initial=0) >= 0
        assert log.step_blocks.max(initial=0) <= (scenario.rule.kv_blocks or math.inf)
    with patch.multiple(token_engine, SLICE=chunk, CHUNK=chunk):
        assert_columns_equal(token_engine.run(plan), log)
    assert_steps_fold(plan, log, room, chunk, warmup)


def assert_token_replicas_agree(plan, chunk=7) -> None:
    """Both engines and the plain loop agree on a plan of tokens with replicas."""
    log = router.run_tokens(plan)
    scaler = naive_scaler_of(plan.scenario)
    oracle = naive_router_of(plan.base, lambda number: naive(plan, number), NaiveTokenReplicas, scaler)
    oracle.lengths, oracle.shared = lengths_of(plan), contents_of(plan)
    joined = oracle.run().joined()
    continuous = isinstance(plan.scenario.rule, bs.Continuous)
    assert np.array_equal(log.replica, [k for k, _ in oracle.of])
    if scaler is not None:
        assert np.array_equal(log.scaling, scaler.rows, equal_nan=True)
    for name, column in columns_of(joined).items():
        if continuous or name != "step_blocks":
            assert np.array_equal(getattr(log, name), column), name
    if plan.base.arrival_s is not None:
        assert_columns_equal(token_routed.run(plan), log)
        with (
            patch.multiple(token_engine, SLICE=chunk, CHUNK=chunk),
            patch.multiple(token_routed, STEPS_AT_ONCE=1),
            patch.multiple(routed, LEAST_ROOM=1, FIRST_ROWS=1),
        ):
            assert_columns_equal(token_routed.run(plan), log)
        assert_steps_fold(plan, log, log.steps // 2, chunk, 0.3)
        assert_steps_fold(plan, log, log.steps, chunk, 0.3)


def assert_requests_equal(short, whole) -> None:
    """A result without rows of steps has the columns of requests of one with them."""
    one_queue = short.scenario.most_replicas == 1  # else their steps are numbered replica after replica
    for name in OF_REQUESTS if one_queue else [name for name in OF_REQUESTS if name != "batch_index"]:
        np.testing.assert_array_equal(getattr(short, name), getattr(whole, name), name)
    for name in ("forming_ms", "queueing_ms"):
        np.testing.assert_allclose(getattr(short, name), getattr(whole, name), atol=1e-6, err_msg=name)


def assert_steps_fold(plan, log, room, piece, warmup) -> None:
    """A run without rows of steps has the columns of requests and the totals of one with them."""
    one_a_block = patch.object(gaps, "BLOCK", 1)  # else many gaps share one time, and may leave their section
    with patch.object(folded_log, "PIECE", piece), one_a_block:
        logs = [run(plan, room=room) for run in (token_routed.run, router.run_tokens)]
        short_logs = logs[0], without_steps(plan.scenario, log)
    assert all(isinstance(short, FoldedLog) == (log.steps > room) for short in logs)
    assert_columns_equal(logs[0], logs[1])
    whole = Result((TokenRun(plan.scenario, log, warmup=warmup),), 0, "")
    for short in short_logs:
        result = Result((TokenRun(plan.scenario, short, warmup=warmup),), 0, "")
        assert (short.steps, short.most_running) == (log.steps, log.most_running)
        assert_requests_equal(result, whole)
        assert_totals_close(result.run.sections.totals, whole.run.sections.totals, rtol=1e-9, itl_s=1e-3)


def assert_token_summary_agrees(scenario, requests, seed, chunk, warmup) -> None:
    """A summary of tokens in windows of `chunk` requests has the kept run's numbers."""
    with patch.object(token_engine, "CHUNK", 7):
        streams, skip = Streams(scenario, seed), warmup_requests(warmup, requests)
        sums = token_summaries.summarise(scenario, requests, streams, skip, chunk)
    found = TokenRun(scenario, sums=sums, warmup=warmup).metrics.summary(drifting=False)
    kept = bs.simulate(scenario, requests, seed=seed, warmup=warmup).summary()
    if kept["served"]:
        assert_summaries_close(found, kept)


def assert_summaries_close(found, kept) -> None:
    assert found.keys() == kept.keys()
    for name, value in kept.items():
        percentile = name.startswith(("p5", "p9")) or "_p" in name  # from histograms
        np.testing.assert_allclose(
            found[name], value, rtol=2e-3 if percentile else 1e-9, atol=1e-9, err_msg=name
        )
