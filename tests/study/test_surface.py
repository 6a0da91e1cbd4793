"""Every number of a surface and of a load curve is that of a whole run, bit for bit."""

import dataclasses
import math
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import WORKLOADS, plans_with_ties, scenarios_at_random
from oracles.slower import slower_by
from refusals import refusals
from runs import in_python

import batchsim as bs
from batchsim.engines import draws
from batchsim.engines.compiled import engine, grid_loops, grid_runs, jit
from batchsim.engines.draws import draw
from batchsim.engines.log import CANCELLED
from batchsim.result import Result, Run
from batchsim.scenario import Limited
from batchsim.study import kinds
from batchsim.study.surface import LOADS, load_curve, surface

SCENARIO = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
TRACE = bs.Trace(np.cumsum(np.random.default_rng(3).exponential(1 / 900, 700)))
SIZES, WAITS_MS = [1, 3, 8, 11], [0, 2.5, 40, math.inf]


def p99_ms(scenario, requests, seed, x, y):
    """The p99 of a run at a cell of the rule's map; None where the rule or the scenario refuses it."""
    try:
        cell = scenario.replace(rule=scenario.rule.at(x, y))
    except ValueError:
        return None
    return bs.simulate(cell, requests, seed).percentile(99, unserved="inf"), not cell.stable


def assert_each_is_a_run(found):
    for row, y in enumerate(found.y_values):
        for column, x in enumerate(found.x_values):
            one = p99_ms(found.scenario, found.requests, found.seed, x, y)
            assert found.refused[row, column] == (one is None), (x, y)
            got = found.p99_ms[row, column], found.overloaded[row, column]
            assert np.array_equal(got, (math.nan, False) if one is None else one, equal_nan=True), (x, y)


def assert_each_point_is_a_run(scenario, requests, seed, curve):
    for place, x in enumerate(curve.x_values):
        point = scenario.replace({curve.x: x.item()})
        run = bs.simulate(point, requests, seed)
        expected = {
            "mean_ms": run.mean_latency_ms,
            "p50_ms": run.percentile(50),
            "p99_ms": run.percentile(99),
            "throughput_per_s": run.throughput_per_s,
            "overloaded": not point.stable,
        }
        for name, number in expected.items():
            assert np.array_equal(getattr(curve, name)[place], number, equal_nan=True), (name, x)


# The whole grid, against one run a cell.


@settings(max_examples=25)
@given(scenarios_at_random(), st.integers(0, 99), st.integers(1, 400))
def test_each_cell_is_a_run_of_its_own(scenario, seed, requests):
    ys = [1, 2, 5, 9] if isinstance(scenario.rule, bs.AtLeast) else WAITS_MS
    assert_each_is_a_run(surface(scenario, SIZES, ys, requests, seed))


@pytest.mark.parametrize("workload", [*WORKLOADS, TRACE], ids=repr)
@pytest.mark.parametrize("knobs", [{}, {"queue_limit": 20, "timeout_ms": 30}], ids=repr)
def test_each_cell_is_a_run_of_its_own_on_long_runs(workload, knobs):
    if workload == bs.ClosedLoop(7):
        knobs = {name: value for name, value in knobs.items() if name != "queue_limit"}
    scenario = SCENARIO.replace(workload=workload, **knobs)
    assert_each_is_a_run(surface(scenario, [1, 8], [0, 5, math.inf], requests=40_000))


def test_batches_larger_than_the_scenarios_own_are_taken_by_level():
    levels = SCENARIO.workload.with_priorities({1: 0.3, 2: 0.7})
    scenario = SCENARIO.replace(workload=levels, max_batch_size=1)
    assert_each_is_a_run(surface(scenario, [1, 8, 64], [0, 5, math.inf], requests=3000))


@settings(max_examples=200)
@given(plans_with_ties(), st.sampled_from([0, 37.5, 50, 99, 100]), st.sampled_from(["ignore", "inf"]))
def test_many_settings_have_the_metrics_of_the_columns_when_everything_is_tied(plan, q, unserved):
    if plan.arrival_s is not None:  # a trace's cannot be written to
        plan = dataclasses.replace(plan, arrival_s=plan.arrival_s.copy())
    found = grid_runs.run_many(plan, [plan.scenario.rule], (q,), unserved, sections=64)
    result = Result((Run(plan.scenario, engine.run(plan)),), 0, "")
    assert found.served[0] == (result.status == bs.Status.SERVED).sum()
    assert np.array_equal(found.percentiles_ms[0, 0], result.percentile(q, unserved=unserved), equal_nan=True)
    assert np.array_equal(found.mean_ms[0], result.mean_latency_ms, equal_nan=True)
    assert found.throughput_per_s[0] == result.throughput_per_s


@pytest.mark.parametrize(
    "more", [{}, {"compile_ms": {1: 300, 8: 650}}, {"compile_ms": 300, "timeout_ms": 2000}]
)
def test_a_table_padding_slowdown_and_compilation_are_those_of_the_scenario(more):
    service = bs.Table({1: 5.0, 2: 3.0, 8: 9.1}).padded_to([2, 4, 8]).with_noise(0.6)
    scenario = SCENARIO.replace(service=service, max_batch_size=8, servers=3, slowdown={1: 1, 2: 1.4, 3: 1.9})
    scenario = scenario.replace(more)  # each setting compiles, and is not compiled already
    found = surface(scenario, SIZES, [0, 1, 2, 5, 10, 20, 40, math.inf], 1500, seed=4)  # several a thread
    assert found.refused[:, 3].all()  # batches of 11 have no service time
    assert not found.refused[:, :3].any()
    assert_each_is_a_run(found)


def test_a_wait_that_allows_larger_batches_has_its_own_overload():
    rule, slow = bs.PreferredUntilLate([4], 8, 5), bs.Table({1: 1, 4: 2, 8: 20})
    found = surface(bs.Scenario(bs.Poisson(1500), rule, slow), [8], [0, 5], 500)
    assert found.overloaded.tolist() == [[False], [True]]
    assert_each_is_a_run(found)


def test_all_may_be_refused():
    found = surface(SCENARIO.replace(service=bs.Table({1: 5.0, 32: 9.0})), [40, 50], [0, 1], 100)
    assert found.refused.all()
    assert np.isnan(found.p99_ms).all()
    assert found.best() is None


def test_it_does_not_depend_on_the_threads(monkeypatch):
    alone = ThreadPoolExecutor(1)
    one = surface(SCENARIO, SIZES, WAITS_MS, 2000)
    monkeypatch.setattr(grid_runs, "_threads", lambda _: alone)
    monkeypatch.setattr(kinds, "SHARES", 3)
    assert np.array_equal(one.p99_ms, surface(SCENARIO, SIZES, WAITS_MS, 2000).p99_ms)


def test_the_best_and_its_ties_are_steady():
    found = surface(SCENARIO, SIZES, WAITS_MS, 2000)
    assert found.overloaded.tolist() == [[True, True, False, False]] * 4
    assert found.ties()[found.best()]
    assert not found.ties()[found.overloaded].any()
    assert found.p99_ms[found.ties()].min() == found.p99_ms[~found.overloaded].min()


def test_without_a_steady_setting_there_is_no_best():
    found = surface(SCENARIO.replace(rate_per_s=1e5), SIZES, WAITS_MS, 200)
    assert found.overloaded.all()
    assert found.best() is None
    assert not found.ties().any()


def test_settings_that_never_differ_are_ties_and_the_best_has_the_most_headroom():
    sizes = [16, 24, 32, 48]  # so large that no batch of this traffic is full
    found = surface(SCENARIO.replace(rate_per_s=300), sizes, [0, 40], 5000)
    assert found.p99_ms[0].tolist() == [found.p99_ms[0, 0]] * 4
    assert found.ties()[0].all()
    assert not found.ties()[1].any()  # a wait of 40 ms is told apart
    assert found.best() == (0, 3)


def test_what_is_told_apart_is_told_apart_by_paired_runs_too():
    found = surface(SCENARIO, [8, 12, 16, 24, 32, 48], [0, 0.2, 0.5, 1, 2, 5, 20], 20_000)
    lowest = np.unravel_index(np.nanargmin(found.p99_ms), found.p99_ms.shape)
    runs = {}
    for row, wait_ms in enumerate(found.y_values):
        for column, size in enumerate(found.x_values):
            setting = SCENARIO.replace(max_batch_size=size, max_wait_ms=wait_ms)
            runs[row, column] = bs.simulate(setting, 20_000)
    agree = 0
    for cell, run in runs.items():
        agree += found.ties()[cell] == (not slower_by(run, runs[lowest], "p99_ms").low > 0)
    assert agree >= 0.9 * len(runs)


def test_those_who_are_turned_away_count_as_infinitely_late():
    found = surface(SCENARIO.replace(queue_limit=2), [1, 2, 32], [0, 10], 2000)
    assert np.isinf(found.p99_ms).any()
    assert not found.overloaded.any()
    assert_each_is_a_run(found)


def test_its_shape_and_names():
    found = surface(SCENARIO, SIZES, WAITS_MS[:2], 500, seed=3)
    assert (found.x, found.y, found.p99_ms.shape) == ("max_batch_size", "max_wait_ms", (2, 4))
    assert (found.x_values, found.y_values, found.seed) == ((1, 3, 8, 11), (0, 2.5), 3)
    assert repr(found) == "Surface(p99_ms, 4 max_batch_size x 2 max_wait_ms, 500 requests each)"
    assert surface(SCENARIO.replace(rule=bs.AtLeast(1, 4)), SIZES, [1, 2], 500).y == "min_batch_size"


def test_of_a_shorter_trace_it_takes_all():
    found = surface(SCENARIO.replace(workload=TRACE), [8], [5])
    assert found.requests == 700
    assert_each_is_a_run(found)


# By energy.

WATTS = {0: 60, 1: 150, 11: 300}
WITH_WATTS = {
    "plain": SCENARIO,
    "replicas": SCENARIO.replace(rate_per_s=1800, servers=2, replicas=2),
    "clients": SCENARIO.replace(workload=bs.ClosedLoop(30, 0.01)),
    "lost": SCENARIO.replace(queue_limit=8, timeout_ms=30),
    "trace": SCENARIO.replace(workload=TRACE, compile_ms={1: 40}),
}


@pytest.mark.parametrize("case", WITH_WATTS)
def test_the_energy_of_each_cell_is_that_of_its_own_run_in_both_engines(case):
    scenario, ran = WITH_WATTS[case].replace(watts=WATTS), 0
    found = surface(scenario, SIZES, WAITS_MS[:3], 700, seed=2, metric="joules")
    for row, wait_ms in enumerate(found.y_values):
        for column, size in enumerate(found.x_values):
            got, cell = found.values[row, column], scenario.replace(max_batch_size=size, max_wait_ms=wait_ms)
            assert cell.stable or np.isnan(got)
            for name in ("simpy", "compiled") if cell.stable else ():
                joules = bs.simulate(cell, 700, seed=2, engine=name).summary()["joules_per_request"]
                assert got == pytest.approx(joules, rel=1e-9, nan_ok=True)  # where no request is served
                ran += np.isfinite(got)
    assert ran >= 12


def test_the_best_by_energy_takes_the_least_within_the_objective_and_then_the_lowest_p99():
    found = surface(SCENARIO.replace(watts=WATTS), SIZES, WAITS_MS[:3], 5000, metric="joules")
    assert found.metric == "joules_per_request"
    assert np.array_equal(found.p99_ms, surface(SCENARIO, SIZES, WAITS_MS[:3], 5000).p99_ms)
    for objective_ms in (None, 60, 16):
        within = found.within(objective_ms)
        limit_ms = math.inf if objective_ms is None else objective_ms
        assert np.array_equal(within, ~found.overloaded & (found.p99_ms <= limit_ms))
        least, ties = found.values[within].min(), found.ties(objective_ms)
        assert np.array_equal(ties, within & (found.values <= 1.01 * least))
        assert found.p99_ms[found.best(objective_ms)] == found.p99_ms[ties].min()
    assert found.best() != found.best(objective_ms=16)
    assert found.best(objective_ms=5) is None


def test_a_setting_that_loses_requests_is_not_the_best_by_energy():
    found = surface(SCENARIO.replace(watts=WATTS, queue_limit=2), SIZES, [0, 5], 2000, metric="joules")
    assert np.isinf(found.p99_ms).any()
    assert not found.ties()[np.isinf(found.p99_ms)].any()


class OnlySimPy(bs.SizeOrWait):
    compiled = False


@pytest.mark.parametrize("ask", [lambda s: surface(s, [1], [0]), lambda s: load_curve(s, 10)])
def test_a_rule_that_the_engine_does_not_cover_is_refused(ask):
    with pytest.raises(ValueError, match=r"compiled engine.*got OnlySimPy\("):
        ask(SCENARIO.replace(rule=OnlySimPy(4, 1)))
    with pytest.raises(TypeError, match="scenario must be a Scenario, got 3"):
        ask(3)


@refusals
def test_what_makes_no_grid_is_refused():
    """
    surface(SCENARIO, [], [1], 9, 0) -> values of max_batch_size must rise, got []
    surface(SCENARIO, [4, 4], [1], 9, 0) -> values of max_batch_size must rise, got [4, 4]
    surface(SCENARIO, [4], [2, 1], 9, 0) -> values of max_wait_ms must rise, got [2, 1]
    surface(SCENARIO, [0], [1], 9, 0) -> max_batch_size must be at least 1, got 0
    surface(SCENARIO, [4], [-1], 9, 0) -> max_wait_ms must be at least 0, got -1
    surface(SCENARIO, [4], [1], 0, 0) -> requests must be at least 1, got 0
    surface(SCENARIO, [4], [1], 9, -1) -> seed must be at least 0, got -1
    surface(SCENARIO, [4], [1], 9, metric="watts") -> metric must be one of joules, got 'watts'
    surface(SCENARIO, [4], [1], 9, metric="joules") -> metric='joules' needs watts, the power of a server
    load_curve(SCENARIO.replace(workload=bs.Trace([1.0, 1.0])), 10)
        -> must span some time to be scaled to a rate
    surface(SCENARIO, [4], [0], 10**12) -> MemoryError: 1,000,000,000,000 requests need
    load_curve(SCENARIO, requests=10**12) -> MemoryError: 1,000,000,000,000 requests need
    """


# Along the load.


@settings(max_examples=20)
@given(scenarios_at_random(), st.integers(0, 99), st.integers(1, 400))
def test_each_point_of_a_curve_is_a_run_of_its_own(scenario, seed, requests):
    assert_each_point_is_a_run(scenario, requests, seed, load_curve(scenario, requests, seed))


@pytest.mark.parametrize("workload", [*WORKLOADS, TRACE], ids=repr)
def test_each_point_of_a_long_curve_is_a_run_of_its_own(workload, monkeypatch):
    monkeypatch.setattr(sys.modules[load_curve.__module__], "LOADS", (0.3, 0.9, 1.1))
    scenario = SCENARIO.replace(workload=workload, max_batch_size=5, service=SCENARIO.service.with_noise(0.4))
    requests = min(40_000, getattr(workload, "max_requests", None) or 40_000)
    assert_each_point_is_a_run(scenario, requests, 2, load_curve(scenario, requests, 2))


def test_a_source_with_a_limit_in_flight_keeps_its_times_on_a_map_and_a_curve():
    limited = SCENARIO.replace(workload=Limited(7, times_s=tuple(np.arange(400) / 700)))
    assert_each_is_a_run(surface(limited, [1, 8], [0, 5], requests=400))
    assert_each_point_is_a_run(limited, 400, 0, load_curve(limited, 400))


def test_a_curve_goes_from_light_load_to_beyond_saturation():
    curve = load_curve(SCENARIO, 200)
    assert curve.saturation == SCENARIO.full_batches_per_s
    assert curve.x_values[0] == 0.02 * curve.saturation
    assert (np.diff(curve.x_values) > 0).all()
    assert curve.overloaded.tolist() == (curve.x_values >= curve.saturation).tolist()
    assert curve.overloaded.sum() == 3


def test_a_closed_loops_curve_goes_from_one_client_to_many():
    scenario = SCENARIO.replace(workload=bs.ClosedLoop(7), servers=2)
    curve = load_curve(scenario, 2000)
    assert (curve.x, curve.saturation) == ("clients", math.inf)
    assert curve.x_values[[0, -1]].tolist() == [1, 4 * 2 * 32]
    assert curve.x_values.dtype.kind == "i"
    assert not curve.overloaded.any()
    assert (np.diff(curve.throughput_per_s[:5]) > 0).all()


def test_a_closed_loop_that_waits_for_full_batches_begins_with_enough_clients():
    scenario = SCENARIO.replace(workload=bs.ClosedLoop(50), max_wait_ms=math.inf)
    curve = load_curve(scenario, 500)
    assert curve.x_values[[0, -1]].tolist() == [32, 128]
    assert_each_point_is_a_run(scenario, 500, 0, curve)


def test_no_more_clients_than_requests():
    assert load_curve(SCENARIO.replace(workload=bs.ClosedLoop(7)), 10).x_values[-1] == 10


def test_a_load_that_the_workload_refuses_is_left_out():
    # On and off states of a microsecond see too few arrivals at a low rate.
    scenario = SCENARIO.replace(workload=bs.OnOff(4000, 100, 1e-6, 1e-6))
    curve = load_curve(scenario, 300)
    assert 0 < curve.x_values.size < len(LOADS)
    assert curve.x_values[0] * 2e-6 >= 1e-3
    assert_each_point_is_a_run(scenario, 300, 0, curve)


def test_a_curve_of_nobody_served_has_no_latencies():
    curve = load_curve(SCENARIO.replace(timeout_ms=0, max_wait_ms=5), 50)
    assert np.isnan(curve.p99_ms).any()
    assert_each_point_is_a_run(SCENARIO.replace(timeout_ms=0, max_wait_ms=5), 50, 0, curve)


# What is kept from move to move.


@pytest.mark.parametrize("workload", [*WORKLOADS, TRACE], ids=repr)
@pytest.mark.parametrize("most", [0, 1 << 17])
def test_a_plan_from_kept_draws_is_the_plan(workload, most, monkeypatch):
    monkeypatch.setattr(draws, "SMALL", most)
    scenario = SCENARIO.replace(workload=workload, service=SCENARIO.service.with_noise(0.7))
    for requests, seed in ((500, 1), (300, 1), (500, 2)):
        kept, fresh = draws.draw_cached(scenario, requests, seed, largest=32), draw(scenario, requests, seed)
        for name in ("arrival_s", "think_s", "service_s", "noise", "slowdown"):
            a, b = getattr(kept, name), getattr(fresh, name)
            assert (a is None) == (b is None)
            assert a is None or np.array_equal(a, b, equal_nan=True), name


def test_surfaces_leave_what_is_kept_as_it_was():
    scenario = SCENARIO.replace(workload=bs.OnOff(2000, 100, 0.05, 0.05), timeout_ms=20)
    before = draws.draw_cached(scenario, 1000, 0, 32).arrival_s.copy()
    surface(scenario, SIZES, WAITS_MS, 1000)
    assert np.array_equal(draws.draw_cached(scenario, 1000, 0, 32).arrival_s, before)


@settings(max_examples=150)
@given(st.lists(st.floats(0, 1e6) | st.sampled_from([0.25, 0.5]), min_size=1, max_size=50), st.data())
def test_selection_is_sorting(values, data):
    keys = np.array(values).view(np.int64)
    rank = data.draw(st.integers(0, len(values) - 1))
    kept, bins = np.empty(keys.size, int), np.empty(grid_loops.BINS, np.int32)
    before = keys.copy()
    found = grid_loops.select(keys, keys.size, rank, kept, bins)
    assert found == tuple(np.sort(keys)[[rank, min(rank + 1, keys.size - 1)]])
    assert np.array_equal(keys, before)


# What is said while it compiles.


def test_who_listens_is_told_of_compiling_in_the_calling_thread_else_stderr_once(tmp_path):
    code = """
        import contextlib, io, threading
        import batchsim as bs
        from batchsim.engines.compiled import engine as compiled
        from batchsim.engines.compiled.jit import compiled_uncached
        from batchsim.study.surface import surface
        told = []
        scenario = bs.Scenario(bs.Poisson(100), bs.SizeOrWait(4, 10), bs.Affine(5, 1))
        with compiled.announcing(lambda text: told.append((text, threading.current_thread().name))):
            with contextlib.redirect_stderr(io.StringIO()) as meanwhile:
                surface(scenario, [1, 2], [0, 1], 100)
                surface(scenario, [1, 2, 3], [0, 1], 100)
        for text, thread in told:
            print(text, thread)
        print(repr(meanwhile.getvalue()))
        for loop in (lambda: 1, lambda: 2):
            loop.__module__ = "batchsim.engines.a_loop"
            compiled_uncached(loop)()
    """
    told = "batchsim is compiling its engine (run_thresholds), once on this machine. MainThread\n"
    said = "batchsim is compiling its engine, once on this machine: some seconds.\n"
    for expected in (told, ""):  # the second process finds it on disk
        process = in_python(code, NUMBA_CACHE_DIR=str(tmp_path))
        out, errors = process.communicate()
        assert (out, errors) == (f"{expected}''\n", said)
        assert process.returncode == 0


# Ctrl-C, and what no memory holds.

SMALL = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.5), servers=40)


@pytest.mark.parametrize("knobs", [{}, {"timeout_ms": 60}], ids=repr)
@pytest.mark.parametrize("size", [7, 5000])
def test_settings_run_in_slices_of_bounded_work_and_are_the_same(monkeypatch, knobs, size):
    scenario, slices = SMALL.replace(knobs), []
    whole, curve = surface(scenario, [4, 8], [0, 5], 1000), load_curve(scenario, 300)
    monkeypatch.setattr(engine, "SLICE", size)
    for place in (engine, grid_runs):
        monkeypatch.setattr(place, "check_cancelled", slices.append)
    cut = surface(scenario, [4, 8], [0, 5], 1000)
    assert len(slices) >= 4 * 1000 * 3 / size / 8  # 3 for 40 servers, and at most 8 requests a batch
    assert np.array_equal(whole.p99_ms, cut.p99_ms)
    for name in ("mean_ms", "p50_ms", "p99_ms", "throughput_per_s"):
        assert np.array_equal(getattr(curve, name), getattr(load_curve(scenario, 300), name))


def test_when_one_setting_fails_the_others_are_stopped():
    stopped = []

    def task(job):
        stopped.append(CANCELLED.get())
        raise KeyError(job)

    grid_runs.in_threads(SMALL, int, [1])
    with pytest.raises(KeyError):
        grid_runs.in_threads(SMALL, task, [1, 2])
    assert stopped
    assert all(each.is_set() for each in stopped)
    with pytest.raises(InterruptedError):
        grid_runs.in_threads(SMALL, lambda job: (CANCELLED.get().set(), surface_of_one()), [1])


def test_a_caller_hears_of_a_loop_that_a_thread_compiles():
    def loop():
        return 1

    loop.__module__ = "batchsim.engines.a_loop"
    compiled, heard = jit.compiled_uncached(loop), []
    grid_runs.in_threads(SMALL, int, [1])  # from now on, threads alone run such jobs
    with jit.announcing(heard.append):
        assert grid_runs.in_threads(SMALL, lambda _: compiled(), [1, 2]) == [1, 1]
    assert heard


def surface_of_one():
    plan = draw(SMALL, 100, 0)
    return grid_runs.run_many(plan, [SMALL.rule])


def test_a_setting_that_lasts_longer_than_the_clock_counts_is_refused_alone():
    slow = bs.Scenario(bs.Poisson(0.026), bs.SizeOrWait(32, 0), bs.Affine(1e6, 0))
    found = surface(slow, [1, 4, 32], [0, 1000], 20_000)
    assert found.refused.tolist() == [[True, True, False]] * 2
    assert found.p99_ms[0, 2] == bs.simulate(slow, 20_000).percentile(99)
    assert found.best()[1] == 2
    curve = load_curve(slow, 20_000)
    assert 0 < curve.x_values.size < len(LOADS)  # lower rates take longer
    assert surface(slow, [1, 2], [0], 20_000).refused.all()
