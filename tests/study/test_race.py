"""What a search states about its choice: its distance to the best, a fresh run, and who makes the runs."""

import importlib
import math
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import batchsim as bs
from batchsim.study import race
from batchsim.study.paired import Values, better_by
from batchsim.study.slo import SLO
from batchsim.study.surface import surface
from batchsim.study.tune import tune

T4 = bs.Affine(5, 0.25)
POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), T4)
GRID = {"max_batch_size": [12, 16, 32, 64], "max_wait_ms": [0, 4, 8, 16]}
LIMIT = SLO(p99_ms=50)


# Bounds of paired differences.


@pytest.mark.parametrize("key", ["p99_ms", "p50_ms", "mean_latency_ms"])
def test_a_bound_holds_as_often_as_it_says_under_common_random_numbers(key):
    # Two exponential latencies that share half of their randomness; the second has nine tenths of the scale.
    rng, level, truth = np.random.default_rng(7), 0.9, {"p99_ms": math.log(100), "p50_ms": math.log(2)}
    gap, held, runs = 0.1 * truth.get(key, 1.0), 0, 200
    for _ in range(runs):
        shared, other = rng.exponential(size=(2, 4000))
        one = Values(shared, 1)
        two = Values(0.9 * np.where(rng.random(4000) < 0.5, shared, other), 1)
        held += better_by(one, two, key, level).most >= gap
    assert held / runs >= level - 0.045  # two standard errors


def test_a_bound_of_percentiles_on_an_atom_knows_that_they_are_equal():
    slower = np.where(np.arange(6400) % 10 < 9, 5.0, 20.0)
    faster = np.where(np.arange(6400) % 20 < 19, 5.0, 20.0)
    bound = better_by(Values(slower, 1), Values(faster, 1), "p50_ms", 0.95)
    assert bound == (0, 0)


def test_runs_that_do_not_differ_may_still_differ_by_what_no_request_showed():
    ms = np.random.default_rng(0).exponential(size=1000)
    bound = better_by(Values(ms, 1), Values(ms, 1), "p99_ms", 0.95)
    assert bound.value == 0
    # Of 1,000 requests none differed: at 95 % fewer than 3 of 1,000 do (the rule of three).
    assert bound.most == pytest.approx(np.percentile(ms, 99) - np.percentile(ms, 98.7), rel=0.2)


def test_a_run_that_is_short_for_its_memory_has_no_steady_values():
    assert Values(np.zeros(1600), 100).steady
    assert not Values(np.zeros(1600), 101).steady
    assert not Values(np.zeros(10**6), math.inf).steady


# The statement.


@pytest.fixture(scope="module")
def found():
    return tune(POISSON, LIMIT, GRID)


def test_no_setting_that_the_statement_counts_is_better_by_more(found):
    best = min(
        bs.simulate(POISSON.replace(max_batch_size=size, max_wait_ms=ms), 500_000, seed=5).percentile(99)
        for size in GRID["max_batch_size"]
        for ms in (0, 4)
    )
    chosen = bs.simulate(found.scenario, 500_000, seed=5).percentile(99)
    statement = found.statement
    assert chosen - best <= statement.within_ms
    assert (statement.settings, statement.screened) == (12, 4)
    assert f"Its {statement}." in found.explain()
    rivals = found.candidates[found.candidates["outcome"] != "recommended"]
    assert (rivals["better_by_ms"] <= statement.within_ms).sum() == statement.settings - 1


def test_the_written_config_states_the_numbers_and_the_distance_to_the_best(found):
    text = bs.servers.write("triton", found)
    assert f"# Expected: p99 {found.expected['p99_ms'].value:.4g} ms (" in text
    assert f"{found.statement.within_ms:.2g} ms of the best of 12 settings, 95% confidence" in text
    assert text in bs.servers.write_all(found).texts.values()


def test_the_only_setting_of_its_cost_has_no_rival_and_a_trace_has_no_fresh_seed():
    arrivals = bs.Trace(bs.simulate(POISSON, 2000).arrival_s)
    scenario = POISSON.replace(workload=arrivals, max_batch_size=32, max_wait_ms=0)
    text = tune(scenario, LIMIT, {"servers": [1, 2]}).explain()
    assert "There is no other setting on 1 server to compare it with." in text
    assert "These numbers are of the whole trace, of which the search ran windows" in text
    assert "seed" not in text


def test_a_config_of_a_setting_that_is_not_shown_to_meet_the_objective_says_so():
    missed = tune(POISSON, SLO(p99_ms=15), {"max_batch_size": [32], "max_wait_ms": [0]}, requests=5000)
    says_so = "above the 15 ms asked for. No full run with a fresh seed shows that it meets the objective.\n"
    assert says_so in bs.servers.write("triton", missed)


def test_the_picture_of_the_race_has_each_round_the_objective_and_the_fresh_run(found):
    chart = bs.plot(found)
    (ax,) = chart.axes
    labels = [tick.get_text() for tick in ax.get_xticklabels()]
    assert labels[0] == "round 1: 16 settings,\nruns of 1,000"
    assert labels[-1] == "full run, fresh seed,\n100,000 requests"
    assert len(labels) == found.rounds["round"].nunique() + 1
    drawn = [line.get_xydata().tolist() for line in ax.lines]
    assert [len(labels), found.result.percentile(99)] in [point for line in drawn for point in line]
    assert any({y for _, y in line} == {50} for line in drawn)
    names = {text.get_text() for text in chart.axes[0].get_legend().get_texts()}
    assert {"recommended", "objective: 50", "goes on", "leaves the race"} <= names


@pytest.mark.parametrize("workload", [bs.Poisson(1400), bs.Gamma(2000, 1.5), bs.ClosedLoop(60)], ids=repr)
def test_the_picture_and_the_explorer_s_map_frame_the_same_settings(workload):
    scenario, sizes, waits_ms = POISSON.replace(workload=workload), [8, 16, 24, 32, 64], [0, 1, 4, 16]
    over = {"max_batch_size": sizes, "max_wait_ms": waits_ms, "servers": [1]}
    found = tune(scenario, SLO(p99_ms=60), over, requests=5000)
    framed = surface(scenario, sizes, waits_ms, 5000).ties()
    assert framed.any()
    frame = found.candidates
    for row in range(len(frame)):
        size, ms = frame.loc[row, ["max_batch_size", "max_wait_ms"]]
        assert frame["alike"][row] == framed[waits_ms.index(ms), sizes.index(size)]
    (ax,) = bs.plot(found).axes
    rings = [line for line in ax.lines if line.get_markerfacecolor() == "none"]
    drawn = found.rounds["candidate"].isin(frame.index[frame["alike"]])
    assert sum(len(line.get_xdata()) for line in rings) == drawn.sum() > 0


# The fresh run.


def test_met_is_a_verdict_of_a_seed_that_the_search_did_not_use(found):
    assert found.result.seed == 1_000_000
    assert found.judgement.estimates[LIMIT.latency].value == found.result.percentile(99)
    searched = found.searched.estimates[LIMIT.latency].value
    assert searched != found.result.percentile(99)
    assert (
        f"These numbers are of seed 1000000, which the search did not use; in the search p99 {searched:.4g}"
        in (found.explain())
    )


def test_a_lucky_search_does_not_make_an_objective_met(monkeypatch):
    # The search sees half of each latency; the fresh run all of it.
    honest = race.screened

    def lucky(job, *args):
        scenario, *rest = job
        return honest((scenario.replace(service=bs.Affine(2.5, 0.125)), *rest), *args)

    monkeypatch.setattr(race, "screened", lucky)
    found = tune(POISSON, SLO(p99_ms=12), {"max_batch_size": [32], "max_wait_ms": [0, 1]}, 20_000)
    assert found.searched.excess < 1 < found.judgement.excess
    assert not found.met


# Executors and Ctrl-C.


@pytest.fixture(scope="module")
def alone():
    return tune(POISSON, LIMIT, GRID, requests=20_000)


def same(one, other):
    return one.explain() == other.explain() and one.candidates.equals(other.candidates)


def test_threads_and_processes_give_the_same_answer(alone):
    spawned = multiprocessing.get_context("spawn")
    with ThreadPoolExecutor(3) as threads, ProcessPoolExecutor(2, mp_context=spawned) as processes:
        for executor in (threads, processes):
            assert same(alone, tune(POISSON, LIMIT, GRID, requests=20_000, executor=executor))


def test_capacity_and_servers_have_the_same_answer_from_processes():
    scenario = POISSON.replace(max_batch_size=32, max_wait_ms=0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        here, there = (
            bs.capacity(scenario, LIMIT, requests=5000, executor=each) for each in (None, processes)
        )
        assert repr(here) == repr(there)
        assert here.to_frame().equals(there.to_frame())
        assert here.requests_simulated == there.requests_simulated
        names = ["triton", "torchserve"]
        here, there = (
            bs.compare_servers(scenario, names, requests=2000, executor=each) for each in (None, processes)
        )
        assert here.to_frame().equals(there.to_frame())


class Dying(ThreadPoolExecutor):
    """Its processes die after a few runs."""

    def __init__(self, lives):
        super().__init__(1)
        self.lives = lives
        self.broken = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def submit(self, function, *args):
        self.lives -= 1
        if self.lives < 0:
            return self.broken.submit(os._exit, 1)
        return super().submit(function, *args)


def test_runs_of_workers_that_die_are_made_here(alone):
    with Dying(5) as executor, pytest.warns(UserWarning, match="got BrokenProcessPool: the remaining runs"):
        assert same(alone, tune(POISSON, LIMIT, GRID, requests=20_000, executor=executor))


def test_an_executor_needs_submit():
    with pytest.raises(TypeError, match=r"executor must have submit\(\)"):
        tune(POISSON, LIMIT, GRID, requests=2000, executor=3)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("after", [5, 18])
def test_ctrl_c_returns_the_best_so_far_as_provisional(monkeypatch, after):
    honest, calls = race.screened, iter(range(1000))

    def interrupted(job, *args):
        if next(calls) == after:
            signal.raise_signal(signal.SIGINT)
        return honest(job, *args)

    monkeypatch.setattr(race, "screened", interrupted)
    found = tune(POISSON, LIMIT, GRID, requests=20_000)
    assert found.provisional.startswith("interrupted after ")
    assert not found.met
    assert found.explain().startswith("The search was interrupted after ")
    assert "Provisional" in repr(found)
    ran = found.candidates[found.candidates["requests"] > 0]
    assert len(ran) == min(after, 16)
    assert found.knobs in ran[["max_batch_size", "max_wait_ms"]].to_dict("records")


@pytest.mark.parametrize("phase", ["frontier", "effects_of", "alike"])
def test_ctrl_c_while_the_choice_is_explained_leaves_the_choice(monkeypatch, alone, phase):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("batchsim.study.tune"), phase, interrupted)
    found = tune(POISSON, LIMIT, GRID, requests=20_000)
    assert (found.knobs, found.met) == (alone.knobs, True)
    assert repr(found.statement) == repr(alone.statement)  # not ==: Python 3.13 compares a NaN with itself
    assert found.provisional.startswith("interrupted after ")


def test_ctrl_c_in_a_search_of_ranges_returns_the_best_so_far(monkeypatch):
    honest, calls = race.screened, iter(range(1000))

    def interrupted(job, *args):
        if next(calls) == 20:
            raise KeyboardInterrupt
        return honest(job, *args)

    monkeypatch.setattr(race, "screened", interrupted)
    over = {"max_wait_ms": bs.Range(0, 20), "max_batch_size": bs.Range(8, 64, "log"), "servers": [1, 2]}
    found = tune(POISSON, LIMIT, over, requests=20_000)
    assert found.provisional
    assert not found.met
    assert (found.candidates["requests"] > 0).sum() == 20
    met = found.candidates[found.candidates["p99_ms"] < 50]
    assert found.scenario.servers == met["servers"].min()


@pytest.mark.parametrize("over", [GRID, {"max_wait_ms": bs.Range(0, 20)}], ids=["grid", "range"])
def test_ctrl_c_before_any_run_returns_a_setting_with_a_short_run(monkeypatch, over):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(race, "screened", interrupted)
    found = tune(POISSON, LIMIT, over, requests=20_000)
    assert found.provisional.startswith("interrupted after ")
    assert not found.met
    assert (found.candidates["requests"] > 0).sum() == 1
    assert found.expected["p99_ms"].value == found.result.percentile(99)
    assert "Provisional" in repr(found)
