"""Priority levels and delayed requests: who goes first, what limits each level, and what a result says."""

import dataclasses
import json
import pickle
from typing import NamedTuple

import numpy as np
import pytest
from oracles.agreement import assert_columns_equal
from oracles.priority import cobham_ms
from refusals import refusals
from typer.testing import CliRunner

import batchsim as bs
from batchsim import theory
from batchsim.cli import app, values
from batchsim.engines.compiled import engine as compiled
from batchsim.engines.draws import Streams, draw, draw_cached
from batchsim.engines.reference import engine as reference
from batchsim.result import Result
from batchsim.scenario.rules.rule import FULL, NOTHING, START, WAIT, helper, oldest_s
from batchsim.study.surface import surface
from batchsim.view.explorer.state import State

TWO = {1: 0.2, 2: 0.8}
SHARED = bs.Scenario(bs.Poisson(1900).with_priorities(TWO), bs.SizeOrWait(8, 5), bs.Affine(3, 0.1))


def test_in_overload_the_engines_agree_on_long_queues_of_several_levels():
    # Long enough that whoever goes first stands at both ends of the queue, and in its middle.
    for rule in (bs.SizeOrWait(4, 0), bs.FrozenBatches(4, 1)):
        workload = bs.Poisson(2500).with_priorities({1: 0.3, 2: 0.6, 3: 0.1})
        scenario = bs.Scenario(workload, rule, bs.Affine(2, 0), timeout_ms={3: 500})
        runs = [bs.simulate(scenario, 4000, engine=engine) for engine in ("simpy", "compiled")]
        assert np.array_equal(runs[0].batch_index, runs[1].batch_index)
        assert np.array_equal(runs[0].status, runs[1].status)


class MiddleParams(NamedTuple):
    max_batch_size: int
    max_wait_s: float


def decide_by_the_middle(now_s, waiting, idle, state, params):
    """Send when the one in the middle of the line, and whoever is at a third of it, have waited."""
    size = min(waiting.length, params.max_batch_size)
    if now_s >= wake_by_the_middle(now_s, waiting, idle, state, params):
        return START, size, WAIT
    return NOTHING, 0, FULL


@helper
def wake_by_the_middle(now_s, waiting, idle, state, params):
    places = oldest_s(waiting, waiting.length // 2), oldest_s(waiting, waiting.length // 3)
    return max(places[0], places[1]) + params.max_wait_s


class ByTheMiddle(bs.SizeOrWait):
    Params = MiddleParams
    decide, wake_s = staticmethod(decide_by_the_middle), staticmethod(wake_by_the_middle)

    @property
    def params(self):
        return MiddleParams(self.max_batch_size, self.max_wait_ms / 1000)


@pytest.mark.plain
def test_a_rule_may_read_the_line_of_all_levels_at_any_place():
    workload = bs.Poisson(1600).with_priorities({1: 0.2, 2: 0.5, 3: 0.3})
    for knobs in ({"timeout_ms": {1: 4}, "timeout_action": "delay"}, {"timeout_ms": {2: 9, 3: 30}}):
        scenario = bs.Scenario(workload, ByTheMiddle(4, 1.7), bs.Affine(2, 0.1), **knobs)
        plan = draw(scenario, 1500, 0)
        assert_columns_equal(compiled.run(plan), reference.run(plan))


def test_many_settings_at_once_say_what_each_says():
    for scenario in (SHARED, SHARED.replace(priorities=None, timeout_ms=6, timeout_action="delay")):
        found = surface(scenario, [4, 8], [0, 5], 2000)
        for row, wait_ms in enumerate([0, 5]):
            for column, size in enumerate([4, 8]):
                alone = bs.simulate(scenario.replace(max_batch_size=size, max_wait_ms=wait_ms), 2000)
                assert found.p99_ms[row, column] == alone.percentile(99, unserved="inf")


def test_one_level_is_no_priority_and_takes_the_fast_loop():
    alone = SHARED.replace(priorities={3: 1.0})
    assert alone.in_order
    assert compiled.serves_in_turn(alone)
    with_it, without = (bs.simulate(each, 3000) for each in (alone, SHARED.replace(priorities=None)))
    assert np.array_equal(with_it.finish_s, without.finish_s)
    assert set(with_it.priority) == {3}
    assert without.priority is None


# Who goes first.


def run(times_ms, levels, rule=None, compute_ms=10, **knobs):
    """(start in ms, the requests) of each batch of a trace whose levels are given."""
    shares = {level: 1 / len(set(levels)) for level in set(levels)}
    workload = bs.Trace(np.array(times_ms) / 1000).with_priorities(shares)
    scenario = bs.Scenario(workload, rule or bs.SizeOrWait(2, 0), bs.Affine(compute_ms, 0), **knobs)
    plan = dataclasses.replace(draw(scenario, len(times_ms), 0), priority=np.array(levels, np.uint8))
    log = compiled.run(plan)
    starts = (log.batch_start_s * 1000).round(6)
    return [(s, np.flatnonzero(log.batch_index == b).tolist()) for b, s in enumerate(starts)]


def test_the_first_level_goes_first_and_in_a_level_the_oldest():
    assert run([0, 1, 2, 3, 4], [2, 2, 2, 1, 1]) == [(0, [0]), (10, [3, 4]), (20, [1, 2])]


def test_a_batch_of_one_level_is_filled_with_the_next():
    assert run([0, 1, 2, 3], [2, 2, 2, 1]) == [(0, [0]), (10, [1, 3]), (20, [2])]


def test_the_timer_counts_from_the_oldest_of_any_level():
    # The first request waits until 5, though the other, of a higher level, came at 4.
    assert run([0, 4], [2, 1], bs.SizeOrWait(8, 5)) == [(5, [0, 1])]


def test_a_frozen_batch_keeps_its_members_whoever_comes():
    rule = bs.FrozenBatches(2, 1)
    assert run([0, 0, 2, 2, 3], [2, 2, 2, 2, 1], rule) == [(0, [0, 1]), (10, [2, 3]), (20, [4])]


def test_each_level_has_a_queue_limit_of_its_own():
    workload = bs.Poisson(4000).with_priorities(TWO)
    scenario = bs.Scenario(workload, bs.SizeOrWait(4, 0), bs.Affine(4, 0), queue_limit=5)
    for engine in ("simpy", "compiled"):
        result = bs.simulate(scenario, 3000, engine=engine)
        frame = result.to_frame()
        lost = frame[frame.status == "rejected"].priority.value_counts()
        # Level 1 offers 800/s of the 1000/s that are carried, and has places of its own.
        assert (
            lost[2] / (frame.priority == 2).sum() > 0.8 > 0.2 > lost.get(1, 0) / (frame.priority == 1).sum()
        )
    limited = bs.simulate(scenario.replace(queue_limit={2: 5}), 3000).by_priority()
    assert limited.rejected[1] == 0 < limited.rejected[2]


def test_each_level_may_have_a_timeout_of_its_own():
    frame = bs.simulate(SHARED.replace(rate_per_s=3000, timeout_ms={2: 8}), 5000).to_frame()
    lost = frame[frame.status == "timed_out"]
    assert set(lost.priority) == {2}


# Delayed requests.


def test_a_delayed_request_goes_behind_the_others_of_its_level_and_before_the_next_level():
    times, levels = [0, 1, 2, 8, 9], [1, 2, 1, 1, 2]
    one = bs.SizeOrWait(1, 0)
    assert [who for _, (who,) in run(times, levels, one, timeout_ms=5)] == [0, 3]
    delayed = run(times, levels, one, timeout_ms=5, timeout_action="delay")
    # At 10 request 2 has waited 8 ms: 3 goes first; of level 2, 4 is late as well when its turn comes.
    assert [who for _, (who,) in delayed] == [0, 3, 2, 1, 4]


def test_whoever_has_waited_its_timeout_to_the_moment_is_not_delayed():
    one = bs.SizeOrWait(1, 0)
    for timeout_ms, order in ((875, [0, 1, 2]), (874, [0, 2, 1])):
        found = run([0, 125, 625], [1, 1, 1], one, 1000, timeout_ms=timeout_ms, timeout_action="delay")
        assert [who for _, (who,) in found] == order


def test_without_priorities_a_delay_makes_the_newest_go_first_under_load():
    scenario = SHARED.replace(priorities=None, rate_per_s=3000, timeout_ms=10, timeout_action="delay")
    plain = scenario.replace(timeout_ms=None)
    late, calm = bs.simulate(scenario, 20_000), bs.simulate(plain, 20_000)
    assert not scenario.stable
    assert not scenario.can_lose
    assert late.metrics.served == 20_000
    assert late.percentile(50) < 20 < calm.percentile(50)
    assert late.summary()["delayed"] == late.delayed.sum() > 1000
    assert "delayed" not in calm.summary()
    assert f"{late.delayed.sum():,} delayed" in repr(late)


# How levels are drawn.


def test_levels_are_drawn_from_a_stream_of_their_own():
    noisy = SHARED.replace(service=bs.Affine(3, 0.1).with_noise(0.5))
    clients = noisy.replace(workload=bs.ClosedLoop(20, 0.01).with_priorities(TWO))
    for scenario in (noisy, clients):
        plan, plain = draw(scenario, 1000, 7, 1), draw(scenario.replace(priorities=None), 1000, 7, 1)
        for name in ("arrival_s", "noise", "think_s"):
            assert np.array_equal(getattr(plan, name), getattr(plain, name)), name
        assert plain.priority is None
        assert np.array_equal(draw(scenario, 300, 7, 1).priority, plan.priority[:300])
    assert np.array_equal(draw_cached(noisy, 500, 7, 8).priority, draw(noisy, 500, 7).priority)
    chunked = Streams(noisy, 7).priorities()
    assert np.array_equal(np.concatenate([chunked(200), chunked(300)]), draw(noisy, 500, 7).priority)


def test_levels_have_their_shares_and_other_shares_move_few_requests():
    one = draw(SHARED, 100_000, 0).priority
    other = draw(SHARED.replace(priorities={1: 0.21, 2: 0.79}), 100_000, 0).priority
    assert np.mean(one == 1) == pytest.approx(0.2, abs=0.005)
    assert 0.005 < np.mean(one != other) < 0.015
    assert (other <= one).all()


# Against theory.


@pytest.mark.parametrize(("cv", "shape"), [(1, "exponential"), (0, "lognormal")])
def test_mean_latencies_by_level_are_cobhams(cv, shape):
    shares = {1: 0.2, 2: 0.3, 5: 0.5}
    workload = bs.Poisson(600).with_priorities(shares)
    scenario = bs.Scenario(workload, bs.SizeOrWait(1, 0), bs.Affine(1, 0).with_noise(cv, shape))
    result = bs.simulate(scenario, 150_000, seed=1, warmup=0.05, replications=4)
    found, expected = result.by_priority(), cobham_ms([600 * share for share in shares.values()], 1, cv)
    assert found.mean_latency_ms.tolist() == pytest.approx(expected, rel=0.02)
    assert (found.mean_latency_ms_low <= expected).all()
    assert (found.mean_latency_ms_high >= expected).all()


def test_theory_and_tune_say_that_they_do_not_know_priorities():
    assert "order" in theory.expected(SHARED).why
    assert theory.expected(SHARED.replace(priorities={1: 1}, max_batch_size=1, rate_per_s=9)).model


# Results by level.


@pytest.mark.parametrize("replications", [1, 3])
def test_the_levels_add_up_to_the_whole_and_each_is_what_its_columns_say(replications):
    scenario = SHARED.replace(rate_per_s=2600, queue_limit={2: 40}, timeout_ms={1: 9, 2: 12})
    result = bs.simulate(scenario, 20_000, seed=3, warmup=0.1, replications=replications)
    levels, s = result.by_priority(), result.summary()
    for key in ("requests", "served", "rejected", "timed_out"):
        assert levels[key].sum() == s[key]
    assert levels.throughput_per_s.sum() == pytest.approx(s["throughput_per_s"], rel=1e-3)
    mean = (levels.mean_latency_ms * levels.served).sum() / s["served"]
    assert mean == pytest.approx(s["mean_latency_ms"], rel=1e-9)
    parts = levels.mean_forming_ms + levels.mean_queueing_ms + levels.mean_computing_ms
    assert parts.tolist() == pytest.approx(levels.mean_latency_ms.tolist())
    kept = np.tile(np.arange(20_000) >= result.warmup_requests, replications)
    for level in (1, 2):
        column = result.latency_ms[kept & (result.priority == level)]
        assert levels.p99_ms[level] == pytest.approx(np.nanpercentile(column, 99), rel=1e-12)


def test_a_level_without_a_request_and_a_workload_without_levels():
    rare = bs.simulate(SHARED.replace(priorities={1: 1e-9, 2: 1 - 1e-9}), 50).by_priority()
    assert rare.requests.tolist() == [0, 50]
    assert rare[["served", "rejected", "timed_out"]].values.tolist() == [[0, 0, 0], [50, 0, 0]]
    with pytest.raises(ValueError, match="must have priorities"):
        bs.simulate(SHARED.replace(priorities=None), 50).by_priority()
    with pytest.raises(ValueError, match="columns of a run, keep='all'"):
        bs.simulate(SHARED, 50, keep="summary").by_priority()


def test_priorities_are_in_frames_and_files(tmp_path):
    for keep in ("all", "summary"):
        scenario = SHARED.replace(timeout_ms=8, timeout_action={2: "delay"})
        result = bs.simulate(scenario, 3000, keep=keep)
        result.save(tmp_path / "run.npz")
        again = Result.load(tmp_path / "run.npz")
        assert again.scenario == scenario
        assert again.summary() == result.summary()
        if keep == "all":
            assert np.array_equal(again.priority, result.priority)
            assert result.to_frame().priority.tolist() == result.priority.tolist()


# What is asked.


def test_priorities_are_part_of_any_workload_and_a_knob(tmp_path):
    (tmp_path / "times.csv").write_text("time_s\n0\n1\n2\n")
    workloads = [bs.Poisson(9), bs.OnOff(9, 1, 5, 5), bs.ClosedLoop(3, 1.0), bs.Trace([0, 1, 2])]
    for workload in workloads:
        with_levels = workload.with_priorities({2: 0.25, 1: 0.75})
        scenario = SHARED.replace(workload=workload).replace(priorities={1: 0.75, 2: 0.25})
        assert scenario.workload == with_levels != workload
        assert hash(with_levels) != hash(workload)
        assert pickle.loads(pickle.dumps(with_levels)) == with_levels
        assert repr(with_levels) == repr(workload) + ".with_priorities({1: 0.75, 2: 0.25})"
        assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
        if not isinstance(workload, bs.Trace):
            assert values.value(repr(with_levels)) == with_levels
    assert SHARED.replace(rate_per_s=5).workload == bs.Poisson(5).with_priorities(TWO)
    path = tmp_path / "times.csv"
    text = SHARED.to_toml().replace('"Poisson"', '"Trace"').replace("rate_per_s = 1900", f"path = '{path}'")
    assert bs.Scenario.from_toml(text).workload == bs.Trace([0, 1, 2]).with_priorities(TWO)


def test_limits_by_level_survive_a_file():
    scenario = SHARED.replace(queue_limit={1: 5}, timeout_ms={1: 3, 2: 7.5}, timeout_action={2: "delay"})
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
    assert [tuple(limits) for limits in scenario.limits] == [(5, 0.003, False), (None, 0.0075, True)]


def test_the_shell_takes_levels_and_says_what_becomes_of_each():
    base = ["simulate", "--rate-per-s", "800", "--fixed-ms", "3", "--requests", "500"]
    done = CliRunner().invoke(app, [*base, "--priorities", "1:0.2,2:0.8", "--json"])
    assert [each["priority"] for each in json.loads(done.stdout)["by_priority"]] == [1, 2]
    assert "level 2:" in CliRunner().invoke(app, [*base, "--priorities", "1:0.2,2:0.8"]).stdout
    summary = CliRunner().invoke(app, [*base, "--priorities", "1:0.2,2:0.8", "--keep", "summary"]).stdout
    assert "--keep all" in " ".join(summary.split())
    for wrong, words in (("1,2", "1:0.2,2:0.8"), ("1:0.5,2:0.4", "sum to 1")):
        refused = CliRunner().invoke(app, [*base, "--priorities", wrong])
        assert refused.exit_code != 0
        assert words in refused.output + str(refused.exception)


def test_the_explorer_keeps_priorities_and_limits_by_level():
    scenario = SHARED.replace(timeout_ms=8, timeout_action="delay")
    state = State.of(scenario)
    assert State.from_link(state.to_link()) == state
    assert "priorities=1:0.2,2:0.8" in state.to_link()
    assert state.scenario() == scenario
    by_level = SHARED.replace(queue_limit={1: 5})
    assert State.of(by_level).scenario() == by_level
    assert State.of(by_level).unshown == ["queue_limit"]


@refusals
def test_shares_that_are_none_are_refused():
    """
    bs.Poisson(9).with_priorities({1: 0.2, 2: 0.7}) -> must sum to 1, got 0.9
    bs.Poisson(9).with_priorities({0: 1.0}) -> a priority level must be at least 1, got 0
    bs.Poisson(9).with_priorities({256: 1.0}) -> at most 255, got 256
    bs.Poisson(9).with_priorities({1: 0.0, 2: 1.0}) -> priority level 1 must be greater than 0, got 0
    bs.Poisson(9).with_priorities({1.5: 1.0}) -> TypeError: a priority level must be a whole number, got 1.5
    bs.Poisson(9).with_priorities({}) -> at least one level
    bs.Poisson(9).with_priorities(3) -> TypeError: must be {level: share
    bs.Poisson(9).with_priorities(((1, 0.5), (1, 0.5))) -> must differ
    """


@refusals
def test_limits_that_are_none_are_refused():
    """
    SHARED.replace({"queue_limit": {3: 5}}) -> priority levels, 1, 2, got 3
    SHARED.replace({"queue_limit": {1: 0}}) -> queue_limit of priority level 1 must be at least 1, got 0
    SHARED.replace({"timeout_ms": {1: math.nan}}) -> timeout_ms of priority level 1 must be a number
    SHARED.replace({"timeout_action": "dely"}) -> did you mean 'delay'
    SHARED.replace({"queue_limit": {1: 5}, "priorities": None}) -> needs a workload with priorities
    """


def test_a_level_is_stable_if_it_keeps_up_with_those_before_it():
    heavy = SHARED.replace(rate_per_s=3000)  # full batches carry 2105/s
    assert not heavy.stable
    assert heavy.replace(queue_limit={2: 50}).stable  # level 1 offers 600/s
    assert not heavy.replace(queue_limit={1: 50}).stable
    assert heavy.replace(timeout_ms=50).stable
    assert not heavy.replace(timeout_ms=50, timeout_action="delay").stable
