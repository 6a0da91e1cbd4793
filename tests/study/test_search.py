"""What a search states about its choice: its distance to the best, a fresh run, and who makes the runs."""

import dataclasses
import importlib
import multiprocessing
import os
import signal
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import batchsim as bs
from batchsim._format import number
from batchsim.study import search
from batchsim.study.judgement import Candidate
from batchsim.study.search import Traffic
from batchsim.study.slo import SLO
from batchsim.study.tune import tune

T4 = bs.Affine(5, 0.25)
POISSON = bs.Scenario(bs.Poisson(1400), bs.SizeOrWait(), T4)
GRID = {"max_batch_size": [12, 16, 32, 64], "max_wait_ms": [0, 4, 8, 16]}
LIMIT = SLO(p99_ms=50)


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
    assert (statement.settings, statement.left_out) == (16, 0)
    assert f"Its {statement}." in found.explain()
    rivals = found.candidates[found.candidates["outcome"] != "recommended"]
    assert (rivals["better_by_ms"] <= statement.within_ms).sum() == statement.settings - 1


def test_the_written_config_states_the_numbers_and_the_distance_to_the_best(found):
    text = bs.servers.write("triton", found)
    assert f"# Expected: p99 {found.expected['p99_ms'].value:.4g} ms (" in text
    assert f"{found.statement.within_ms:.2g} ms of the best of 16 settings, 95% confidence" in text
    assert text in bs.servers.write_all(found).texts.values()


def test_the_only_setting_of_its_cost_has_no_rival_and_a_trace_has_no_fresh_seed():
    arrivals = bs.Trace(bs.simulate(POISSON, 2000).arrival_s)
    scenario = POISSON.replace(workload=arrivals, max_batch_size=32, max_wait_ms=0)
    text = tune(scenario, LIMIT, {"servers": [1, 2]}).explain()
    assert "There is no other setting on 1 server to compare it with." in text
    assert "These numbers are of the whole trace." in text
    assert "seed" not in text


def test_a_config_of_a_setting_that_is_not_shown_to_meet_the_objective_says_so():
    missed = tune(POISSON, SLO(p99_ms=15), {"max_batch_size": [32], "max_wait_ms": [0]}, requests=5000)
    says_so = "above the 15 ms asked for. No full run with a fresh seed shows that it meets the objective.\n"
    assert says_so in bs.servers.write("triton", missed)


def test_the_picture_of_a_search_has_the_settings_the_objective_and_the_fresh_run(found):
    chart = bs.plot(found)
    (ax,) = chart.axes
    labels = [tick.get_text() for tick in ax.get_xticklabels()]
    assert labels == ["16 settings,\nruns of 100,000", "full run, fresh seed,\n100,000 requests"]
    drawn = [line.get_xydata().tolist() for line in ax.lines]
    assert [2, found.result.percentile(99)] in [point for line in drawn for point in line]
    assert any({y for _, y in line} == {50} for line in drawn)
    names = {text.get_text() for text in ax.get_legend().get_texts()}
    assert {"recommended", "objective: 50", "does not clearly fail"} <= names
    rings = [line for line in ax.lines if line.get_markerfacecolor() == "none"]
    assert sum(len(line.get_xdata()) for line in rings) == len(found.ties)


def test_an_interval_beyond_the_edge_of_a_search_s_picture_is_not_drawn_below_it(found):
    columns = ["p99_ms", "p99_ms_low", "p99_ms_high"]
    frame = found.candidates.copy()
    frame.loc[frame["p99_ms"].idxmax(), columns] = [4000.0, 3000.0, 5000.0]
    (ax,) = bs.plot(dataclasses.replace(found, candidates=frame)).axes
    edge = ax.get_ylim()[1]
    assert edge < 3000
    drawn = [tuple(path.vertices[:, 1].tolist()) for lines in ax.collections for path in lines.get_paths()]
    ends = np.minimum(frame[columns[1:]].to_numpy()[frame["requests"] > 0], edge)
    assert (edge, edge) in drawn
    assert {tuple(each) for each in ends.tolist() if np.isfinite(each).all()} <= {*drawn}


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
    honest = search.tried

    def lucky(job, *args):
        scenario, *rest = job
        return honest((scenario.replace(service=bs.Affine(2.5, 0.125)), *rest), *args)

    monkeypatch.setattr(search, "tried", lucky)
    found = tune(POISSON, SLO(p99_ms=12), {"max_batch_size": [32], "max_wait_ms": [0, 1]}, 20_000)
    assert found.searched.excess < 1 < found.judgement.excess
    assert not found.met


# The round of screening.


@pytest.fixture(scope="module")
def screened():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "LONG_S", 0.0)
        return tune(POISSON, LIMIT, GRID | {"servers": [1, 2]})


def test_screening_keeps_what_paired_bounds_cannot_exclude(screened, found):
    frame = screened.candidates
    short = frame[frame["requests"] == 10_000]
    assert set(frame["requests"]) == {10_000, 100_000}
    assert set(short["outcome"]) <= {"slower", "fails"}
    assert {name: screened.knobs[name] for name in GRID} == found.knobs
    assert screened.met
    chosen = bs.simulate(screened.scenario, 500_000, seed=5).percentile(99)
    for row in short[(short["outcome"] == "slower") & (short["servers"] == 1)].itertuples():
        knobs = {name: getattr(row, name) for name in GRID}
        assert bs.simulate(POISSON.replace(knobs), 500_000, seed=5).percentile(99) > chosen


def test_a_statement_says_how_many_settings_a_tenth_of_the_requests_screened(screened):
    frame, statement = screened.candidates, screened.statement
    counted = frame[(frame["servers"] == 1) & (frame["better_by_ms"] <= statement.within_ms)]
    assert statement.screened == (counted["requests"] == 10_000).sum() > 0
    assert statement.settings == len(counted) + 1
    note = f"(a tenth of the requests screened {statement.screened} of them"
    assert note in str(statement)
    assert note in screened.explain()


def test_settings_that_were_screened_out_run_in_full_where_they_are_on_the_frontier(screened):
    assert (screened.frontier["requests"] == 100_000).all()
    labels = [tick.get_text() for tick in bs.plot(screened).axes[0].get_xticklabels()]
    assert [label.split("runs of ")[-1] for label in labels[:2]] == ["10,000", "100,000"]


TOKENS = bs.Scenario(
    bs.Poisson(4), bs.Continuous(), bs.StepTime(7, 10, 0.1), tokens=bs.Tokens(500, bs.Geometric(150))
)  # fmt: skip
SLOW = POISSON.replace(workload=bs.ClosedLoop(40), replicas=2)  # which SimPy runs


@pytest.mark.parametrize(
    ("scenario", "requests", "settings"),
    [(POISSON, 1_000_000, 1200), (TOKENS, 100_000, 100), (SLOW, 20_000, 60)],
    ids=["requests", "tokens", "SimPy"],
)
def test_a_search_of_more_than_half_a_minute_is_screened(scenario, requests, settings):
    for count, few in ((settings // 2, None), (settings * 2, requests // 10)):
        asked = search.Search(LIMIT, *[search.Traffic(scenario, requests)] * 2, [Candidate({}, scenario)])
        asked.screen_if_long(count)
        assert few == (asked.few and asked.few.requests)


@pytest.mark.parametrize(
    "scenario",
    [
        POISSON.replace(workload=bs.Diurnal(900, 1.8, 1)),
        POISSON.replace(workload=bs.Trace(bs.simulate(POISSON, 2000).arrival_s)),
        POISSON.replace(queue_limit=500, price_per_hour=1),
    ],
    ids=["day", "trace", "cost"],
)
def test_the_beginning_of_what_is_no_sample_screens_nothing(monkeypatch, scenario):
    monkeypatch.setattr(search, "LONG_S", 0.0)
    requests = None if isinstance(scenario.workload, bs.Trace) else 2000
    frame = tune(scenario, LIMIT, GRID, requests).candidates
    assert frame["requests"].nunique() == 1


def test_a_search_of_ranges_is_screened_too(monkeypatch):
    monkeypatch.setattr(search, "LONG_S", 0.0)
    found = tune(POISSON, LIMIT, {"max_wait_ms": bs.Range(0, 20), "max_batch_size": [32]}, requests=20_000)
    assert found.met
    assert set(found.candidates["requests"]) == {2_000, 20_000}


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
    """It fails after a few runs: processes that die, or the error of a lost node; of others nothing comes."""

    def __init__(self, lives, error):
        super().__init__(1)
        self.lives, self.error = lives, error
        self.broken = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))

    def submit(self, function, *args):
        self.lives -= 1
        if self.lives >= 0:
            return super().submit(function, *args)
        if self.error is None:
            return self.broken.submit(os._exit, 1)
        if self.error is OSError:
            raise OSError("too many files")
        failed = Future()
        if self.lives == -1:
            failed.set_exception(self.error("a node is lost"))
        return failed


@pytest.mark.parametrize("error", [None, ConnectionError, TimeoutError, OSError, KeyError])
def test_runs_of_workers_that_fail_are_made_here(alone, error):
    said = f"got {error.__name__ if error else 'BrokenProcessPool'}: the remaining runs"
    with Dying(5, error) as executor, pytest.warns(UserWarning, match=said):
        assert same(alone, tune(POISSON, LIMIT, GRID, requests=20_000, executor=executor))


def test_an_error_of_a_run_is_no_failure_of_its_executor(monkeypatch):
    monkeypatch.setattr(search, "tried", lambda *_: {}["of the run"])
    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyError, match="of the run"):
        tune(POISSON, LIMIT, GRID, requests=2000, executor=executor)


def test_an_executor_needs_submit():
    with pytest.raises(TypeError, match=r"executor must have submit\(\)"):
        tune(POISSON, LIMIT, GRID, requests=2000, executor=3)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("after", [5, 12])
def test_ctrl_c_returns_the_best_so_far_as_provisional(monkeypatch, after):
    honest, calls = search.tried, iter(range(1000))

    def interrupted(job, *args):
        if next(calls) == after:
            signal.raise_signal(signal.SIGINT)
        return honest(job, *args)

    monkeypatch.setattr(search, "tried", interrupted)
    found = tune(POISSON, LIMIT, GRID, requests=20_000)
    assert found.provisional.startswith("interrupted after ")
    assert not found.met
    assert found.explain().startswith("The search was interrupted after ")
    assert "Provisional" in repr(found)
    ran = found.candidates[found.candidates["requests"] > 0]
    assert 0 < len(ran) <= after
    assert f"after {ran['requests'].sum():,} requests" in found.provisional
    assert found.knobs in ran[["max_batch_size", "max_wait_ms"]].to_dict("records")


@pytest.mark.parametrize("phase", ["frontier", "neighbours"])
def test_ctrl_c_while_the_choice_is_explained_leaves_the_choice(monkeypatch, alone, phase):
    def interrupted(*args):
        raise KeyboardInterrupt

    module = importlib.import_module("batchsim.study.tune")
    monkeypatch.setattr(module.Search if phase == "frontier" else module, phase, interrupted)
    found = tune(POISSON, LIMIT, GRID, requests=20_000)
    assert (found.knobs, found.met) == (alone.knobs, True)
    assert repr(found.statement) == repr(alone.statement)  # not ==: Python 3.13 compares a NaN with itself
    assert found.provisional.startswith("interrupted after ")


def test_ctrl_c_in_a_search_of_ranges_returns_the_best_so_far(monkeypatch):
    honest, calls = search.tried, iter(range(1000))

    def interrupted(job, *args):
        if next(calls) == 20:
            raise KeyboardInterrupt
        return honest(job, *args)

    monkeypatch.setattr(search, "tried", interrupted)
    over = {"max_wait_ms": bs.Range(0, 20), "max_batch_size": bs.Range(8, 64, "log"), "servers": [1, 2]}
    found = tune(POISSON, LIMIT, over, requests=20_000)
    assert found.provisional
    assert not found.met
    assert 0 < (found.candidates["requests"] > 0).sum() <= 20
    met = found.candidates[found.candidates["p99_ms"] < 50]
    assert found.scenario.servers == met["servers"].min()


@pytest.mark.parametrize("over", [GRID, {"max_wait_ms": bs.Range(0, 20)}], ids=["grid", "range"])
def test_ctrl_c_before_any_run_returns_a_setting_with_a_short_run(monkeypatch, over):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "tried", interrupted)
    found = tune(POISSON, LIMIT, over, requests=20_000)
    assert found.provisional.startswith("interrupted after ")
    assert not found.met
    assert (found.candidates["requests"] > 0).sum() == 1
    assert found.expected["p99_ms"].value == found.result.percentile(99)
    assert "Provisional" in repr(found)


def test_a_slower_setting_is_compared_in_the_traffic_that_all_settings_met():
    scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
    found = bs.tune(scenario, bs.SLO(p99_ms=50), {"max_wait_ms": [0, 20]}, requests=20_000, progress=False)
    rows = found.candidates.set_index("max_wait_ms")
    assert rows.outcome[20] == "slower"
    chosen_ms = found.frontier.set_index("max_wait_ms").p99_ms[0]  # of the search, not of the fresh seed
    assert chosen_ms != found.expected["p99_ms"].value
    assert f"above p99 {chosen_ms:.4g} ms" in rows.why[20]


# The least energy.


GREEN = bs.Scenario(
    bs.Poisson(400), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25), watts={0: 60, 1: 220, 8: 260, 32: 320}
)
OVER = {"max_batch_size": [4, 16, 32], "max_wait_ms": [0, 2, 5, 10, 20, 40], "servers": [1, 2]}


def test_the_greenest_setting_takes_the_least_energy_of_those_that_meet_the_objective():
    slo = bs.SLO(p99_ms=40)
    found = tune(GREEN, slo, OVER, requests=20_000, prefer="greenest")
    assert found.met
    table = bs.sweep(GREEN, OVER, 20_000, progress=False)
    meets = table[table.stable & (table.p99_ms <= 38)]  # surely
    chosen = table[
        [all(row[knob] == value for knob, value in found.knobs.items()) for _, row in table.iterrows()]
    ]
    assert chosen.p99_ms.item() <= 40
    assert chosen.joules_per_request.item() <= 1.01 * meets.joules_per_request.min()
    fastest, cheapest = (
        tune(GREEN, slo, OVER, requests=20_000, prefer=each) for each in ("fastest", "cheapest")
    )
    for other in (fastest, cheapest):
        assert found.result.summary()["joules_per_request"] < other.result.summary()["joules_per_request"]
    assert found.rule.max_wait_ms > cheapest.rule.max_wait_ms
    joules = found.result.summary()["joules_per_request"]
    assert f"A request takes {number(joules)} J, idle time included." in found.explain()
    hungrier = found.candidates[found.candidates.outcome == "more energy"]
    assert len(hungrier)
    assert hungrier.why.str.contains("J a request meets the objective").all()
    assert " J a request" in str(found.statement)


def test_what_a_setting_costs_does_not_depend_on_what_is_preferred():
    """It is the price over the offered rate; the run's own rate is another one by chance."""
    priced = GREEN.replace(price_per_hour=3.6)
    for prefer in ("greenest", "cheapest", "fastest"):
        found = tune(priced, bs.SLO(p99_ms=40), {"max_batch_size": [8]}, requests=2000, prefer=prefer)
        (million,) = found.candidates["cost_per_million"]
        assert million == pytest.approx(1000 / priced.workload.offered_per_s, rel=1e-12)


def test_the_greenest_setting_needs_watts():
    with pytest.raises(ValueError, match="prefer='greenest' needs watts, the power of a server, got none"):
        tune(GREEN.replace(watts=None), bs.SLO(p99_ms=40), OVER, prefer="greenest")


# Traffic.


@pytest.mark.parametrize(
    ("requests", "whole"),
    [(54_000, 54_000), (50_000, 54_000), (6_000, 54_000), (140_000, 162_000), (5_000, 5_000)],
)
def test_traffic_of_a_day_is_whole_periods_unless_those_are_ten_times_too_many(requests, whole):
    traffic = Traffic(POISSON.replace(workload=bs.Diurnal(900, 1.8, 60)), requests)
    assert traffic.requests == whole
    assert traffic.whole is (whole > 5_000)


def test_the_requests_of_a_longer_run_and_of_its_beginning_are_counted_together():
    traffic = Traffic(POISSON, 300)
    longer = traffic.resized(900)
    for each in (traffic, longer):
        each.run(POISSON)
    assert traffic.simulated == longer.simulated == 1200
